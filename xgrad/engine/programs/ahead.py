"""prepare: compiles in parallel the programs that a backward, and an optimizer's first step after it, will run.

It does so only if a program was compiled since the last backward, so a loop pays one comparison a run.
A prediction can be wrong (a hook changes a gradient, another one is undefined): then a program was compiled in vain.
"""

from typing import Any

import jax

from ...base.jax_compat import Tracer
from ...config import state
from ...execution.programs.ahead import compile_ahead, compiled, expected
from ...execution.runner import runner

_MOST = 4096  # nodes that are looked at


class _Seen:
    count = 0  # of the programs compiled when the last backward was prepared


_seen = _Seen()


def prepare(task: Any, values: list[Any]) -> None:
    """Compile what the task's nodes will run, if a program was compiled since the last call.

    values: the root gradients, arrays.
    """
    if compiled.count == _seen.count:
        return
    if state.trace is None and runner.at_once():
        runner.evaluate(values)
        root = values[0] if len(values) == 1 else None
        if isinstance(root, jax.Array) and not isinstance(root, Tracer) and len(root.sharding.device_set) == 1:
            compile_ahead(_calls(task, root.sharding if root.committed else None), _steps_after(task))
    _seen.count = compiled.count


def _calls(task: Any, where: Any) -> list[tuple[Any, list[Any]]]:
    """Return the programs and operands that are known now.

    where: the sharding of committed arrays; None if they are not committed.
    """
    found = []
    info = task.exec_info
    for _, node in zip(range(_MOST), task.dependencies):
        if info and not (node in info and info[node].needed):
            continue
        if not node.avals:
            continue
        aval = node.avals[0]
        try:
            grad = jax.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=where)
            call = node.program_ahead(task.needs(node) if info else -1, grad)
        except Exception:  # the node itself will raise it
            continue
        if call is not None:
            runner.evaluate(call[1])
            if all(_is_at(operand, where) for operand in call[1]):
                found.append(call)
    return found


def _steps_after(task: Any) -> list[Any]:
    """Return the programs of the optimizers' first steps, which follow this backward."""
    found = []
    leaves = {id(node.variable) for node in task.dependencies if node.is_accumulator} if expected else set()
    for known in expected.valuerefs() if leaves else ():  # a list made in C, which no other thread changes
        optimizer = known()
        try:
            found += [] if optimizer is None else optimizer.programs_ahead(leaves)
        except Exception:  # its step will raise it
            continue
    return found


def _is_at(operand: Any, where: Any) -> bool:
    if not isinstance(operand, jax.Array):
        return True
    return not isinstance(operand, Tracer) and (operand.sharding if operand.committed else None) == where
