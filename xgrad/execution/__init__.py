"""Execution: lazy tensors.  Programs that are called in a lazy block are noted in a queue, and run as one."""
