"""Backward as programs: the engine's loop that collects nodes (run), and evaluates them segment by segment."""
