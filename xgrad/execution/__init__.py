"""Runs XLA programs: at once, in-place ones in an operand's memory, or from a lazy block's queue, many as one."""
