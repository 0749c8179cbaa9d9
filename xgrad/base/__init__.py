"""What everything else stands on: dtypes, devices, sizes, limits, settings, and the names that xgrad lacks."""
