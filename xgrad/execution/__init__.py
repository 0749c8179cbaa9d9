"""Runs programs: at once, some in an operand's memory (donation); or in a lazy block from a queue, many as one."""
