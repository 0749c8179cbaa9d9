"""The package of `compiled_backward`: collects autograd nodes, and runs groups of them as XLA programs."""
