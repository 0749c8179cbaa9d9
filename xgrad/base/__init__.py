"""The foundation of the package: dtypes, devices, sizes, limits, settings, and the names that xgrad lacks."""
