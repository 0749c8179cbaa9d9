"""The engine of backward: nodes, edges, hooks, saved variables, the loop (engine.py), and what writes do to history."""
