"""opcheck: tests an operator that a user registered, on sample arguments (PyTorch: torch/testing/_internal/optests)."""

from collections.abc import Callable, Sequence
from typing import Any

from ..autograd.backward import grad
from ..compiler import compile as compiled
from ..config import Unrecorded
from ..tensor import Tensor
from ..testing import assert_close
from .calls import shares, tensors_in
from .custom_op import operator_of
from .operator import OpOverload


class OpCheckError(Exception):
    """A test of `opcheck` failed."""


def opcheck(
    op: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    test_utils: str | Sequence[str] = (
        "test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic",
    ),
    raise_exception: bool = True,
    atol: float | None = None,
    rtol: float | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Test an operator on sample arguments; return {test: "SUCCESS" or the error}.

    test_schema: it writes the arguments that its schema names and no others, and returns no alias of one.
    test_autograd_registration: if an argument requires grad, the results have a formula, or there is none to find.
    test_faketensor: its fake kernel gives the shapes, dtypes and devices of its results.
    test_aot_dispatch_dynamic: under `xgrad.compile` values and gradients equal an eager call's.

    Raises `OpCheckError` for the first test that fails, unless `raise_exception` is False.

    >>> import xgrad
    >>> @xgrad.library.custom_op("docs::plus", mutates_args=())
    ... def plus(x: xgrad.Tensor) -> xgrad.Tensor:
    ...     return x + 1
    >>> _ = plus.register_fake(xgrad.empty_like)
    >>> xgrad.library.opcheck(plus, (xgrad.ones(2),))["test_schema"]
    'SUCCESS'

    Source: PyTorch's `torch.library.opcheck`.
    """
    operator = operator_of(op)
    names = [test_utils] if isinstance(test_utils, str) else [*test_utils]
    unknown = [name for name in names if name not in _TESTS]
    if unknown:
        raise ValueError(f"opcheck: unknown test_utils {unknown}; there are {', '.join(_TESTS)}")
    found: dict[str, Any] = {}
    for name in names:
        values, named = operator._schema.bind(args, dict(kwargs or {}))
        try:
            _TESTS[name](operator, *_copied(values, named), {"atol": atol, "rtol": rtol})
            found[name] = "SUCCESS"
        except Exception as error:
            if raise_exception:
                raise OpCheckError(f"opcheck(op, ...): {name} failed with {error}") from error
            found[name] = error
    return found


def _copied(values: list[Any], named: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return arguments that the test may write: new tensors, which require grad where the others do."""

    def copy(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.detach().clone().requires_grad_(value.requires_grad)
        if isinstance(value, (list, tuple)):
            return type(value)([copy(v) for v in value])
        return value

    return [copy(v) for v in values], {name: copy(v) for name, v in named.items()}


def _schema(operator: OpOverload, values: list[Any], named: dict[str, Any], close: dict[str, Any]) -> None:
    arguments = [*zip(operator._schema.arguments, [*values, *named.values()], strict=True)]
    before = [(a, t, t._version, t.detach().clone()) for a, v in arguments for t in tensors_in((v,))]
    with Unrecorded():
        result = operator(*values, **named)
    for argument, tensor, version, copy in before:
        changed = tensor._version != version or not bool((copy.isclose(tensor, equal_nan=True)).all())
        if changed and not argument.type.is_write:
            raise RuntimeError(f"Argument {argument.name} is not defined as mutable but was mutated")
        for out in tensors_in((result,)):
            if shares(out, tensor) and not argument.type.is_write:
                raise RuntimeError(f"Argument {argument.name} is not defined to alias output but was aliasing")


def _autograd(operator: OpOverload, values: list[Any], named: dict[str, Any], close: dict[str, Any]) -> None:
    if not any(t.requires_grad for t in tensors_in((values, named))):
        return
    outputs = [t for t in tensors_in((operator(*values, **named),)) if t.dtype.is_floating_point]
    if outputs and not any(t.requires_grad for t in outputs):
        raise RuntimeError(f"{operator}: no result requires grad, although an argument does")


def _fake(operator: OpOverload, values: list[Any], named: dict[str, Any], close: dict[str, Any]) -> None:
    if operator.fake is None and not operator.opaque:
        return
    faked = operator.faked(values, named)
    with Unrecorded():
        real = operator(*values, **named)
    expected, given = [*tensors_in((faked,))], [*tensors_in((real,))]
    start = f"When comparing the output of {operator} on FakeTensor and concrete Tensors, found mismatched"
    if len(expected) != len(given):
        raise RuntimeError(f"{start} number of tensors: {len(expected)} and {len(given)} are not equal!")
    for one, other in zip(expected, given, strict=True):
        for what in ("shape", "dtype", "device"):
            if getattr(one, what) != getattr(other, what):
                raise RuntimeError(
                    f"{start} tensor metadata: {what} {getattr(one, what)} and {getattr(other, what)} are not equal!"
                )


def _compiled(operator: OpOverload, values: list[Any], named: dict[str, Any], close: dict[str, Any]) -> None:
    def run(call: Callable[..., Any]) -> list[Any]:
        given, by_name = _copied(values, named)
        entered = [*tensors_in((given, by_name))]
        outputs = [*tensors_in((call(*given, **by_name),))]
        ends = [o for o in outputs if o.requires_grad and operator.formula is not None]
        inputs = [t for t in entered if t.requires_grad and not operator._schema.is_mutable]
        grads: Any = ()
        if ends and inputs:
            grads = grad([o.sum() for o in ends], inputs, allow_unused=True)
        return [*outputs, *entered, *[g for g in grads if g is not None]]

    eager, program = run(operator), run(compiled(lambda *a, **k: operator(*a, **k)))
    if len(eager) != len(program):
        raise RuntimeError(f"{operator}: compiled it gives {len(program)} tensors and gradients, eagerly {len(eager)}")
    for one, other in zip(program, eager, strict=True):
        assert_close(one.detach(), other.detach(), **{k: v for k, v in close.items() if v is not None})


_TESTS: dict[str, Callable[..., None]] = {
    "test_schema": _schema,
    "test_autograd_registration": _autograd,
    "test_faketensor": _fake,
    "test_aot_dispatch_dynamic": _compiled,
    "test_aot_dispatch_static": _compiled,
}
