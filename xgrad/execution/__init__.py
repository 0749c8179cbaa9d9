"""How programs run: at once, some in an operand's memory; or noted in a queue in a lazy block, and run as one."""
