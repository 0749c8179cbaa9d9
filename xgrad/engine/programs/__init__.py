"""Backward as programs: the engine's loop that notes nodes (run), and evaluates them segment by segment."""
