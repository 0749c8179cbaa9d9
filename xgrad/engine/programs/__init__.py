"""Compiled backward: collects autograd nodes in place of running them, and runs each segment as one XLA program."""
