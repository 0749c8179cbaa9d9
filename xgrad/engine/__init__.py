"""The autograd engine: nodes, edges, hooks, saved variables, the loop of backward, history after in-place writes."""
