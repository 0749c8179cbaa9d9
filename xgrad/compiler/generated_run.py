"""straight: generates a Python function that runs a compiled program of `xgrad.compile` and makes the call's result.

It serves programs that change no tensor, generator or container; Ctrl-C in such a program leaves nothing to undo.
compiled_program.py serves the others.  The function is, for example:

    def run(tensors, arrays):
        a0, a1, = arrays
        o0, o1, = executable(a1, a0, c5)
        t0 = blank(Tensor); t0._array = o1
        ...
        return (t0, t1)
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..tensor import Tensor, blank
from .backward_node import CompiledFunctionBackward
from .guards.identity_guards import Source
from .traced import Traced


def straight(
    traced: Traced,
    executable: Callable[..., Any],
    order: list[int],
    constants: list[Any],
    simple: list[tuple[Any, ...]],
) -> Callable[[list[Any], list[Any]], Any]:
    """Return the function of (tensors, their arrays) that runs the program.

    `order`: the numbers of the arrays that are its operands; `constants` follow them; `simple`: (array, edge,
    requires_grad) of each tensor that is made.
    """
    source = Source()
    name, line = source.name, source.lines.append
    line("def run(tensors, arrays):")
    if order:
        line(f"    {' '.join(f'a{i},' for i in range(len(traced.match.expected)))} = arrays")
    if traced.metas:
        line(f"    node = {name(CompiledFunctionBackward)}({name(traced)}, tensors)")
    operands = ", ".join([*[f"a{i}" for i in order], *map(name, constants)])
    outs = "".join(f"o{i}, " for i in range(len(traced.program.closed.jaxpr.outvars)))
    line(f"    {outs and outs + '= '}{name(executable)}({operands})")
    for i, (number, edge, requires_grad) in enumerate(simple):
        line(f"    t{i} = {name(blank)}({name(Tensor)})")
        line(f"    t{i}._array = o{number}")
        if edge is not None:
            line(f"    t{i}._grad_fn, t{i}._output_nr, t{i}._requires_grad = node, {edge}, True")
        elif requires_grad:
            line(f"    t{i}._requires_grad = True")
    line(f"    return {_expression(traced.result, name)}")
    return source.function("run")


def _expression(plan: tuple[str, Any], name: Callable[[Any], str]) -> str:
    """Return the expression for the value that `compiled_program.built(plan, ...)` would build."""
    kind, what = plan
    if kind == "made":
        return f"t{what}"
    if kind == "given":
        return f"tensors[{what}]"
    if kind == "constant":
        return f"{name(what)}.copy()" if isinstance(what, np.ndarray) else name(what)  # the caller may change the copy
    if kind == "array":
        return f"o{what}"
    if kind == "dict":
        return f"{{{', '.join(f'{name(key)}: {_expression(item, name)}' for key, item in what.items())}}}"
    items = "".join(f"{_expression(item, name)}, " for item in (what[1] if kind == "tree" else what))
    if kind == "tree":
        return f"{name(what[0])}.unflatten([{items}])"
    return f"({items})" if kind == "tuple" else f"[{items}]"
