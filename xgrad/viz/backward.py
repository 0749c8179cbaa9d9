"""viz.backward: draws what `loss.backward()` would do, as steps to click through.  Nothing runs and nothing changes."""

from collections.abc import Sequence
from typing import Any

from ..base.table import size
from ..tensor import Tensor
from .drawing import Drawing
from .fold import folded
from .graph import outputs_of, scene_of
from .names import names_for
from .player import player
from .scene import Scene
from .steps import Step, steps_of_backward
from .svg import svg

_SHOWN = 12  # names of nodes in a list


def backward(
    loss: Tensor | Sequence[Tensor],
    *,
    inputs: Tensor | Sequence[Tensor] | None = None,
    retain_graph: bool = False,
    params: Any = None,
    fold: bool | None = None,
) -> "Steps":
    """Show what `loss.backward()` would do, node by node: a picture to click through, or lines in a terminal.

    A step says which node runs, which of its hooks are called, where its gradients go, which nodes are ready after it
    and which wait for more gradients, and what has been released.  The order is the engine's, found without running
    it: no gradient is accumulated, no hook is called, the graph stays.  `inputs` and `retain_graph` are the same as in
    `backward`; `params` and `fold` as in `graph`.

    Raises `RuntimeError` for a tensor that has no graph.

    >>> import xgrad
    >>> x = xgrad.ones(2, requires_grad=True)
    >>> print(xgrad.viz.backward((x * 3).sum()))
    0  start: [] → SumBackward0 | ready: SumBackward0
    1  SumBackward0: computes 1 gradient; [2] → MulBackward0 | ready: MulBackward0
    2  MulBackward0: computes 1 gradient; [2] → AccumulateGrad of x | ready: AccumulateGrad of x
    3  AccumulateGrad of x: x.grad is the gradient
    """
    outputs = outputs_of(loss)
    wanted = None if inputs is None else outputs_of(inputs)
    names = names_for(params, 1)
    scene, nodes = scene_of(outputs, names)
    steps = steps_of_backward(outputs, names, nodes, wanted, retain_graph)
    scene = folded(scene, fold)
    _number(scene, {step.node: i for i, step in enumerate(steps)})
    return Steps(scene, steps)


def _number(scene: Scene, turns: dict[int, int]) -> None:
    """Write into each box when its nodes run."""
    for box in scene.boxes:
        found = sorted(turns[n] for n in box.members if n in turns)
        if box.inner is not None:
            _number(box.inner, turns)
        elif found:
            shown = ", ".join(map(str, found[:3])) + (f", … {found[-1]}" if len(found) > 3 else "")
            box.lines = [(f"step {shown}" if len(found) == 1 else f"steps {shown}", "note"), *box.lines]


class Steps(Drawing):
    """The steps of a backward: a Drawing whose HTML has buttons, and whose text has a line for each step."""

    def __init__(self, scene: Scene, steps: list[Step]) -> None:
        super().__init__(scene)
        self.steps = steps
        self._titles = {step.node: step.title for step in steps}

    def text(self) -> str:
        """Return a line for each step."""
        digits = len(str(len(self.steps) - 1))
        return "\n".join(f"{i:{digits}}  {self._line(step)}" for i, step in enumerate(self.steps))

    def _line(self, step: Step) -> str:
        parts = [f"{step.title}: {'; '.join(step.events)}"]
        if step.ready:
            parts.append(f"ready: {', '.join(self._names(step.ready))}")
        if step.waiting:
            parts.append(f"waiting: {', '.join(self._waiting(step))}")
        return " | ".join(parts)

    def _names(self, numbers: list[int]) -> list[str]:
        shown = [self._titles[n] for n in numbers[:_SHOWN]]
        return shown + ([f"and {len(numbers) - _SHOWN} more"] if len(numbers) > _SHOWN else [])

    def _waiting(self, step: Step) -> list[str]:
        shown = [f"{self._titles[n]} ({here} of {all_})" for n, here, all_ in step.waiting[:_SHOWN]]
        return shown + ([f"and {len(step.waiting) - _SHOWN} more"] if len(step.waiting) > _SHOWN else [])

    def html(self) -> str:
        """Return the picture with buttons."""
        data = [
            {
                "node": step.node,
                "title": step.title,
                "events": step.events,
                "ready": step.ready,
                "readyNames": self._names(step.ready),
                "waiting": self._waiting(step),
                "released": size(step.released),
            }
            for step in self.steps
        ]
        return player(svg(self.layout, standalone=False), data, self.text())
