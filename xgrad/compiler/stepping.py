"""SteppingEntry: runs a compiled function's program, then repeats in Python the traced `scheduler.step()` calls.

A step of a schedule (optim/lr_scheduler/) changes Python's numbers, which no program can.  `OF_SCHEDULES` has the names
by which a function may ask for these numbers: then it is traced without repeated steps.
"""

from typing import Any

from .compiled_program import Entry

# Names in code that may ask for what a schedule's step changes.
OF_SCHEDULES = frozenset({
    "__dict__", "_last_lr", "_step_count", "best", "cooldown_counter", "get_last_lr", "get_lr", "in_cooldown",
    "last_epoch", "lr", "num_bad_epochs", "param_groups", "state_dict", "T_cur", "T_i", "vars",
})  # fmt: skip


class SteppingEntry(Entry):
    """A program, and the steps of schedules that follow each of its runs."""

    def run(self, tensors: list[Any], arrays: list[Any], leaves: list[Any]) -> Any:
        """Run the program, then make the steps."""
        result = super().run(tensors, arrays, leaves)
        for step, args, options in self._traced.steps:
            step(*args, **options)
        return result
