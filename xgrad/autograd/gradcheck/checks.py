"""gradcheck's further checks: derivatives with batched, undefined or zero gradients, batched or undefined tangents.

An undefined gradient is one that was not computed: it counts as zero, and a backward has to cope with it.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...tensor import Tensor
from ..backward import grad
from ..function import Function
from ..mapped import mapped
from .analytical import still, tangents
from .entries import host
from .error import GradcheckError
from .numerical import placed
from .problem import Problem, differentiable, run

_SEED = 1

_BATCHED = (
    "gradcheck or gradgradcheck failed while testing batched gradient computation: a batch of gradients has to give "
    "what its entries give one by one, because jacobians and hessians are computed that way. If not needed, pass "
    "`check_batched_grad=False`."
)
_BATCHED_FORWARD = (
    "gradcheck failed while testing batched gradient computation with forward-mode AD: a batch of tangents has to give "
    "what its entries give one by one. If that is not needed, pass `check_batched_forward_grad=False`."
)


def _random(random: Any, like: Tensor) -> np.ndarray:
    values = random.standard_normal((2, *like.shape))
    return (values + 1j * random.standard_normal(values.shape) if like.is_complex() else values).astype(like.dtype)


def _same(result: np.ndarray, expected: np.ndarray, output: int, input: int, message: str) -> None:
    if not np.allclose(result, expected, 1e-5, 1e-8):
        raise GradcheckError(
            f"For output {output} and input {input}:\n\n{message}\n\nGot:\n{result}\n\nExpected:\n{expected}"
        )


def check_batched(output: Tensor, number: int, wanted: Sequence[Tensor]) -> None:
    """Compare a batch of gradients with one after another."""
    batch = _random(np.random.default_rng(_SEED), output)

    def pulled(v: Tensor, **options: Any) -> list[np.ndarray | None]:
        found = grad(output, wanted, v, retain_graph=True, allow_unused=True, **options)
        assert isinstance(found, tuple)
        return [None if g is None else host(g) for g in found]

    expected = [pulled(placed(entry, output)) for entry in batch]
    try:
        results = pulled(placed(batch, output), is_grads_batched=True)
    except Exception as error:
        raise GradcheckError(f"While computing batched gradients, got: {error}\n\n{_BATCHED}") from error
    for i, (result, *entries) in enumerate(zip(results, *expected, strict=True)):
        if result is not None:
            _same(result, np.stack(entries), number, i, _BATCHED)


def check_batched_forward(problem: Problem) -> None:
    """Compare a batch of tangents with one after another."""
    random = np.random.default_rng(_SEED)
    for number, (place, x) in enumerate(problem.wanted):
        batch = _random(random, x)

        def pushed(tangent: Tensor, place: int = place) -> tuple[Tensor, ...]:
            return tuple(tangents(problem, {place: tangent}))

        expected = [[host(t) for t in pushed(placed(entry, x))] for entry in batch]
        try:
            results = [host(t) for t in mapped(pushed, placed(batch, x))]
        except Exception as error:
            raise GradcheckError(f"While computing batched gradients, got: {error}\n\n{_BATCHED_FORWARD}") from error
        for o, (result, *entries) in enumerate(zip(results, *expected, strict=True)):
            _same(result, np.stack(entries), o, number, _BATCHED_FORWARD)


def check_zero(outputs: Sequence[Tensor], wanted: Sequence[Tensor], masked: bool) -> None:
    """Raise unless gradients of zero give zero: a backward is linear."""
    if not outputs:
        return
    zeros = [placed(np.zeros(o.shape, o.dtype), o) for o in outputs]
    found = grad(outputs, wanted, zeros, retain_graph=True, allow_unused=True)
    assert isinstance(found, tuple)
    for i, (gradient, x) in enumerate(zip(found, wanted, strict=True)):
        if gradient is None:
            continue
        _check_layout(gradient, x)
        values = host(gradient)
        if not (np.allclose(values, 0, 1e-5, 1e-8) if masked else (values == 0).all()):
            raise GradcheckError(
                f"backward not multiplied by grad_output: the gradient of input {i} is not zero where the gradients of "
                "all outputs are"
            )
        for what, mine, other in (("type", gradient.dtype, x.dtype), ("device", gradient.device, x.device)):
            if mine != other:
                raise GradcheckError(f"grad is incorrect {what}: {mine} for input {i}, which is {other}")


def _check_layout(gradient: Any, x: Any) -> None:
    if not gradient._sparse:
        return
    if not x._sparse:
        raise GradcheckError(f"grad is incorrect layout ({gradient.layout} is not {x.layout})")
    for what in ("sparse_dim", "dense_dim"):
        mine, other = getattr(gradient, what)(), getattr(x, what)()
        if mine != other:
            raise GradcheckError(f"grad is sparse tensor, but has incorrect {what} {mine}, expected {other}")


class _Undefined(Function):
    """The identity; its backward passes on an undefined gradient, as from an unused output."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.set_materialize_grads(False)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> None:
        return None


def check_undefined(func: Callable[..., Any], inputs: tuple[Any, ...], wanted: Sequence[Tensor]) -> None:
    """Raise unless undefined gradients of all outputs, and of each one with zeros for the others, give zero."""

    def outputs() -> list[Tensor]:
        return [x for _, x in differentiable(run(func, inputs))]

    n = len(outputs())
    for chosen in ({*range(n)}, *({i} for i in range(n if n > 1 else 0))):
        roots = [_Undefined.apply(x) if i in chosen else x for i, x in enumerate(outputs())]
        if not roots:
            continue
        zeros = [placed(np.zeros(o.shape, o.dtype), o) for o in roots]
        try:
            found = grad(roots, wanted, zeros, allow_unused=True)
        except Exception as error:
            _warn()
            raise GradcheckError(
                f"Expected backward function to handle undefined output grads, but it raised {error!r}. With "
                "ctx.set_materialize_grads(False) a backward gets None for them"
            ) from error
        assert isinstance(found, tuple)
        for i, gradient in enumerate(found):
            if gradient is not None and host(gradient).any():
                _warn()
                raise GradcheckError(
                    "Expected all input grads to be undefined or zero when all output grads are undefined or zero, but "
                    f"the grad of input {i} is not. With ctx.set_materialize_grads(False) a backward gets None for them"
                )


def _warn() -> None:
    warnings.warn(
        "Backwards compatibility: New undefined gradient support checking feature is enabled by default. A backward "
        'that is never to get an undefined gradient can be checked with "check_undefined_grad=False"',
        stacklevel=5,
    )


def check_undefined_tangents(problem: Problem) -> None:
    """Raise unless an input without a tangent counts as one whose tangent is zero."""
    random = np.random.default_rng(_SEED)
    moving = {i: placed(random.uniform(size=tuple(x.shape)).astype(x.dtype), x) for i, x in problem.wanted}
    zeros = still(problem)
    for place in moving:
        others = {i: t for i, t in moving.items() if i != place}
        with_zero = tangents(problem, others | {place: zeros[place]})
        without = tangents(problem, others)
        for o, (expected, result) in enumerate(zip(with_zero, without, strict=True)):
            if not np.allclose(host(result), host(expected), 1e-5, 1e-8):
                raise GradcheckError(
                    f"Mismatch in tangent values for output with index: {o}, when the input at {place} has an "
                    f"undefined tangent value. Got: {result} but expected: {expected}"
                )
