"""FlopCounterMode: counts the floating-point operations of products and convolutions (PyTorch: utils/flop_counter.py).

An operator's work is read from the jaxpr of its kernel, and its backward's from the derivative of that; both are traced
once for each shape, and nothing is computed.  The node that an operator recorded has the operator's sequence number, by
which the engine's report of a node finds the work, and the modules that it belongs to.
"""

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from itertools import chain, islice, repeat
from math import prod
from operator import call
from typing import Any, Self
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp

from ..autograd.profiler import Recorder, number_of, number_of_write
from ..base.refused import programs_in
from ..config import state
from ..dispatch.kernel import Kernel, kernel_of
from ..dispatch.operator import Operator
from ..dispatch.operator_modes import public_name
from ..nn import Module
from ..nn.hook_registration import register_module_forward_hook, register_module_forward_pre_hook
from ..tensor import Tensor

__all__ = ["FlopCounterMode"]

_UNITS = ("", "K", "M", "B", "T")


class FlopCounterMode(Recorder):
    """Within the block, count the floating-point operations of products and convolutions, by modules and operators.

    A product of (n, k) and (k, m) counts 2 * n * k * m, and a convolution two for each element of its kernel that meets
    an element of the result; other operators count nothing, as in PyTorch.  Backward counts when it runs, if its
    forward ran in the block too, for the modules of the forward; so does what a checkpoint computes again.  A compiled
    function counts when it is traced.

    `depth`: how deep the table shows modules, None for all.  `display`: print the table at the end.  `mods`: ignored.
    `custom_mapping` is refused: an operator's work is read from its JAX function.  A counter that is entered again
    begins anew; raises `RuntimeError` when it is entered within itself.

    PyTorch counts by the operators that it runs (`aten.addmm`); here a linear layer is one, "aten.linear", and its
    backward is "aten.linear_backward".  Sums agree, except that PyTorch has no count of some operators (products of
    matrix and vector, its LSTM and fused attention on a CPU), and counts more for grouped convolutions in backward.

    Source: PyTorch's `torch.utils.flop_counter.FlopCounterMode`.

    >>> import xgrad
    >>> model = xgrad.nn.Sequential(xgrad.nn.Linear(4, 8), xgrad.nn.Linear(8, 2))
    >>> with xgrad.utils.flop_counter.FlopCounterMode(display=False) as counter:
    ...     model(xgrad.ones(3, 4)).sum().backward()
    >>> counter.get_flop_counts()["Sequential.0"]
    {'aten.linear': 192, 'aten.linear_backward': 192}
    >>> counter.get_total_flops()
    672
    """

    enabled = True
    _shown = "FlopCounterMode"
    display: bool

    def __init__(
        self, mods: Any = None, depth: int | None = 2, display: bool = True, custom_mapping: Any = None
    ) -> None:
        if custom_mapping:
            raise NotImplementedError(
                "FlopCounterMode: custom_mapping is not supported: an operator's work is read from its JAX function"
            )
        self.depth, self.display = depth, display
        self.flop_counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self._modules: tuple[str, ...] = ("Global",)  # the names of those whose forward runs
        self._around_forward: list[tuple[Module, tuple[str, ...]]] = []
        self._names: WeakKeyDictionary[Module, str] = WeakKeyDictionary()
        self._noted: dict[int, Any] = {}  # what backward will need, by a node's sequence number
        self._removals: list[Callable[[], Any]] = []

    def __enter__(self) -> Self:
        if self.entered:
            return super().__enter__()  # an error
        self.flop_counts.clear()
        self._noted.clear()
        self._thread = threading.get_ident()
        try:
            for handle in (
                register_module_forward_pre_hook(self._enter_module),
                register_module_forward_hook(self._leave_module, always_call=True),
            ):
                self._removals.append(handle._close())
            return super().__enter__()
        except BaseException:  # an interrupt
            deque(map(call, self._removals), 0)
            raise

    def _close(self) -> Callable[[], Any]:
        # C code restores the modes and removes the hooks: an interrupt comes after that.
        restored = islice(map(vars(state).update, iter(self._before.pop, None)), 1)
        return partial(deque, chain(restored, map(call, self._removals), map(self._ended, (None,))), 0)

    def _ended(self, _: Any) -> None:
        self._removals.clear()
        self.entered = False
        if self.display:
            print(self.get_table())

    def _enter_module(self, module: Module, args: Any) -> None:
        if threading.get_ident() != self._thread:
            return
        if module not in self._names:
            root = type(module).__name__
            self._names |= {m: f"{root}.{name}" if name else root for name, m in module.named_modules()}
        self._around_forward.append((module, self._modules))
        self._modules = tuple(dict.fromkeys((*self._modules, self._names[module])))

    def _leave_module(self, module: Module, args: Any, output: Any) -> None:
        if threading.get_ident() != self._thread or all(m is not module for m, _ in self._around_forward):
            return
        left = None
        while left is not module:  # those whose forward an error ended before their hooks ran are left too
            left, self._modules = self._around_forward.pop()

    def run(self, op: Operator, args: tuple[Any, ...], statics: tuple[Any, ...]) -> Any:
        out = super().run(op, args, statics)
        self._note(op, args, statics, number_of(out))
        return out

    def write(self, op: Operator, args: tuple[Any, ...], statics: tuple[Any, ...]) -> Any:
        out = super().write(op, args, statics)
        self._note(op, args, statics, number_of_write(out))
        return out

    def _note(self, op: Operator, args: tuple[Any, ...], statics: tuple[Any, ...], number: int) -> None:
        if not op.jit:  # its shapes depend on values: it has no products
            return
        kinds = tuple(map(_kind, args))
        name, kernel = f"aten.{public_name(op)}", kernel_of(op, statics)
        forward = _flops_of(kernel, kinds)
        if forward:
            self._count(name, forward)
            wanted = tuple([i for i, a in enumerate(args) if isinstance(a, Tensor) and a.requires_grad])
            self._noted[number] = self._modules, f"{name}_backward", (kernel, kinds), wanted

    def _count(self, name: str, flops: int) -> None:
        for module in self._modules:
            self.flop_counts[module][name] += flops

    @contextmanager
    def _span(
        self, name: str, number: int, inputs: Iterable, kind: str, made: Callable = int, needs: int = -1
    ) -> Iterator[list]:
        if kind == "forward" and made is int and number >= 0:  # a custom Function's node runs in the same modules
            self._noted[number] = self._modules, "", (), ()
        noted = self._noted.get(number) if kind == "backward" and number >= 0 else None
        if noted is None:
            yield []
            return
        before, (self._modules, key, program, wanted) = self._modules, noted
        if program and not state.grad_enabled:  # else backward runs operators, which count themselves
            wanted = tuple([i for i in wanted if needs >> i & 1])
            self._count(key, _flops_of(*program, wanted) if wanted else 0)
        try:
            yield []
        finally:
            self._modules = before

    def get_total_flops(self) -> int:
        """Return the sum of all operators."""
        return sum(self.flop_counts["Global"].values()) if "Global" in self.flop_counts else 0

    def get_flop_counts(self) -> dict[str, dict[str, int]]:
        """Return the count of each operator, by the names of modules; "Global" has all."""
        return {module: dict(counts) for module, counts in self.flop_counts.items()}

    def get_table(self, depth: int | None = None) -> str:
        """Return a table of modules down to `depth`, the counter's own by default, with the operators of each."""
        depth = depth or self.depth or 10**6
        total = self.get_total_flops()
        rows = [("Module", "FLOP", "% Total")]
        for module in sorted(self.flop_counts, key=lambda name: (name != "Global", name)):
            level = 0 if module == "Global" else module.count(".") + 1
            if level <= depth:
                counts = self.flop_counts[module]
                lines = [(module, sum(counts.values())), *((f" - {name}", n) for name, n in counts.items())]
                rows += [(" " * level + name, _short(n, total), f"{n / (total or 1):.2%}") for name, n in lines]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [f"{a:<{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}" for a, b, c in rows]
        lines.insert(1, "  ".join("-" * width for width in widths))
        return "\n".join(lines)


def _kind(value: Any) -> Any:
    """Return the shape and dtype of a tensor or an array, and another value as it is."""
    if isinstance(value, Tensor):
        return tuple(value.shape), value._dtype
    return (value.shape, value.dtype) if hasattr(value, "shape") else value


def _short(n: int, total: int) -> str:
    unit = min(len(_UNITS) - 1, (len(str(total)) - 1) // 3)
    return f"{n / 1000**unit:.3f}{_UNITS[unit]}" if unit else str(n)


@lru_cache(4096)
def _flops_of(kernel: Kernel, kinds: tuple[Any, ...], wanted: tuple[int, ...] = ()) -> int:
    """Return the work of a kernel, or of its gradients for the wanted arguments; `kinds` are shapes and dtypes."""
    arrays = [jax.ShapeDtypeStruct(*kind) for kind in kinds if isinstance(kind, tuple)]
    places = [sum(isinstance(kind, tuple) for kind in kinds[:i]) for i in wanted]

    def function(*arrays: Any) -> Any:
        given = iter(arrays)
        return kernel.function(*[next(given) if isinstance(kind, tuple) else kind for kind in kinds])

    def gradients(*arrays: Any) -> Any:
        def differentiable(*some: Any) -> list[Any]:
            every = list(arrays)
            for place, array in zip(places, some, strict=True):
                every[place] = array
            out = jax.tree.leaves(function(*every))
            return [array for array in out if jnp.issubdtype(array.dtype, jnp.inexact)]

        out, pull = jax.vjp(differentiable, *[arrays[place] for place in places])
        return out, pull([jnp.ones_like(array) for array in out])

    name = kernel.operator.name
    if not wanted:
        return _work(jax.make_jaxpr(function)(*arrays).jaxpr, turned=name.startswith("conv_transpose"))
    if name.startswith("conv"):
        return _flops_of(kernel, kinds) * sum(i < 2 for i in wanted)  # the gradients of operand and kernel, not bias
    return _work(jax.make_jaxpr(gradients)(*arrays).jaxpr) - _flops_of(kernel, kinds)


def _work(jaxpr: Any, needed: list[bool] | None = None, turned: bool = False) -> int:
    """Return the work behind the results that are needed: by default all.  `turned`: convolutions are transposed."""
    total, live = 0, {id(v) for v, wanted in zip(jaxpr.outvars, needed or repeat(True)) if wanted}
    for equation in reversed(jaxpr.eqns):
        mask = [id(v) in live for v in equation.outvars]
        if not any(mask):
            continue
        live |= set(map(id, equation.invars))
        name, params = equation.primitive.name, equation.params
        if name == "dot_general":
            (contracted, _), _ = params["dimension_numbers"]
            left, out = equation.invars[0].aval.shape, equation.outvars[0].aval.shape
            total += 2 * prod(out) * prod(left[i] for i in contracted) if contracted else 0  # else PyTorch multiplies
        elif name == "conv_general_dilated":
            left, right = (v.aval.shape for v in equation.invars)
            out, numbers = equation.outvars[0].aval.shape, params["dimension_numbers"]
            spread = turned or max(params["lhs_dilation"]) > 1  # each element of the operand meets the kernel
            met = [left[i] for i in numbers.lhs_spec[2:]] if spread else [out[i] for i in numbers.out_spec[2:]]
            total += 2 * out[numbers.out_spec[0]] * prod(met) * prod(right)
        else:
            inner = [_work(p, mask if len(p.outvars) == len(mask) else None, turned) for p in programs_in(equation)]
            total += max(inner) if inner and name == "cond" else sum(inner) * params.get("length", 1)
    return total
