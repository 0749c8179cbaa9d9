"""The meta device: its tensors have a shape and a dtype and no values (PyTorch: device "meta").

`_Meta` has the methods that run programs on an `xgrad.Backend` (backends/runtime.py), and computes shapes only.  A
tensor here holds a Pending of a lazy queue that never runs (shapes_only.py).
"""

from typing import Any

from ..base.declared import DeclaredPlace, absent, register
from .pending import Pending, place_number
from .runner import runner
from .shapes_only import array_of, no_values


class _Meta:
    """A backend that runs nothing; its results are the shapes that programs would give."""

    lazy = several = stale = False
    views = hlo = None

    def start(self) -> DeclaredPlace:
        """Return the place.  From now on operators look for it among their operands."""
        runner.expect_backends()
        return _place

    def run(self, program: Any, operands: Any) -> Any:
        """Return what a program will give, without values."""
        return self._placed(no_values.note(program, operands))

    def write(
        self,
        out: list[Any],
        box: list[Any],
        alone: bool,
        program_of: Any,
        operands: tuple[Any, ...],
        holder: Any = None,
    ) -> None:
        """Put the shape of what is written into `out`."""
        out.append(self._placed(program_of(False)(box[0], *operands)))

    def _placed(self, out: Any) -> Any:
        for p in out if isinstance(out, tuple) else (out,):
            if p.__class__ is Pending:
                p.place = _number
        return out

    def received(self, array: Any, layout: Any = None) -> Any:
        """Return an array's shape and dtype as an array of this device."""
        return self._placed(array_of(array.shape, array.dtype))

    adopt = received

    def sent(self, array: Any) -> Any:
        """Return the array; reading it has raised before."""
        return array

    def laid_out(self, array: Any, layout: Any) -> Any:
        """Return the array."""
        return array

    def operator(self, op: Any) -> Any:
        """Return the operator."""
        return op


_place = DeclaredPlace("meta", False, _Meta())
_place._devices = {absent("meta", None)}
_number = place_number(_place)
register(_place)
