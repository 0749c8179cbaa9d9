"""Rule: an optimizer's step as three pure functions; `apply` compiles them to programs that update a group in place.

A rule has three pure functions, in PyTorch's formulas; the last two compute with arrays:

    derive(h, log)           of the hyperparameters `h` and a logarithm: the numbers that the next function reads
    coefficients(h, s, o)    of these numbers and the group's counts `s` ({"step": a vector with an item for
                             each parameter}): scalars, as such vectors, and the new counts
    update(p, g, s, c, o)    of a parameter, its gradient, its state and the scalars `c`: the new parameter and state

Hyperparameters are operands: another learning rate is not another program.  `derive` computes in
Python's doubles unless a hyperparameter is a tensor, because 1 - 0.999 in float32 is wrong in its fifth digit.  `o` are
the options that are part of a program (`nesterov`, whether there is a weight decay).

`update` sees real arrays: complex ones come as PyTorch's `view_as_real`, half precision as float32.
"""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..base.dtypes import x64_enabled
from ..base.limits import unseen
from ..config import state as modes
from ..dispatch.call import call
from ..dispatch.multi_write import MultiWrite, direct
from ..dispatch.operator import Operator
from ..execution.segments import repeats
from ..execution.shapes import MOST_RESULTS
from ..tensor import Tensor, from_foreign

_PACKAGE = "xgrad.optim."
_MOST = 256  # vectors of hyperparameters that are kept
_MOST_SHARDINGS = 4096
_FEW = 24  # parameters, whose program compiles in a second, and beside whose update a launch costs little


class Rule(NamedTuple):
    """An optimizer's step as pure functions, which the module's docstring describes; `ByRule` runs it."""

    name: str
    counts: tuple[str, ...]  # the 0-d parts of a parameter's state
    derive: Callable[[SimpleNamespace, Callable[[Any], Any]], dict[str, Any]]  # of hyperparameters and a logarithm
    coefficients: Callable[..., tuple[dict[str, Any], dict[str, Any]]]
    update: Callable[..., tuple[Any, dict[str, Any]]]


class _Form(NamedTuple):
    """The choices of a program beside shapes: hashable."""

    rule: Rule
    options: tuple[tuple[str, Any], ...]
    arrays: tuple[str, ...]  # the parts of a parameter's state that are like the parameter
    numbers: tuple[str, ...]  # what the first operand, a vector, has
    tensors: tuple[str, ...]  # hyperparameters that are tensors: then nothing was derived yet
    skips: bool  # True if the last operand says whether the step is skipped


def apply(
    rule: Rule,
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    states: Sequence[dict[str, Any]],
    arrays: tuple[str, ...],
    hyper: dict[str, Any],
    options: dict[str, Any],
    given: Tensor | None = None,
    unless: Tensor | None = None,
) -> None:
    """Do one step of parameters whose states have the rule's counts and these arrays.

    given: a tensor of `numbers(rule, hyper)`, in place of constants, where a trace makes operands of them.
    unless: a number; if it is above zero when the program runs, parameters and states stay as they are.
    """
    form, operands = _form(rule, arrays, hyper, options, given, unless)
    names = rule.counts + arrays
    written = [[p, *[s[k] for k in names]] for p, s in zip(params, states)]
    if modes.grad_enabled or ({*map(type, params)} != {Tensor} and any(p._interpreter is not None for p in params)):
        for own, grad in zip(written, grads):
            _recorded(form, own, grad, operands)
        return
    with unseen() if is_own(rule, params) else nullcontext():
        for share in _shares(written, (MOST_RESULTS - 1) // (len(names) + 1)):
            own = [t for i in share for t in written[i]]
            _together(form, len(share))(own, [*operands, *[grads[i] for i in share]])


def is_own(rule: Rule, params: Sequence[Tensor]) -> bool:
    """Return True in a trace in which a step of these parameters runs no code of a user's."""
    return modes.trace is not None and rule.update.__module__.startswith(_PACKAGE) and {*map(type, params)} == {Tensor}


def _form(
    rule: Rule, arrays: tuple[str, ...], hyper: dict[str, Any], options: dict[str, Any], given: Any, unless: Any
) -> tuple[_Form, list[Any]]:
    """Return the form of a step's programs, and the operands that come before the gradients."""
    operands, names, tensors = operands_of(rule, hyper, given)
    if unless is not None:
        operands.append(unless)
    return _Form(rule, tuple(options.items()), arrays, names, tensors, unless is not None), operands


class Ahead(NamedTuple):
    """A program of a step before its arrays are there, with the operand's shapes in their places."""

    program: MultiWrite
    written: list[Any]
    read: list[Any]

    def lower(self) -> Any:
        """`jax.jit`'s `lower`, for these operands."""
        return self.program.lower(self.written, self.read)


def ahead(
    rule: Rule,
    written: list[list[Any]],
    grads: list[Any],
    arrays: tuple[str, ...],
    hyper: dict[str, Any],
    options: dict[str, Any],
) -> list[Ahead]:
    """Return the programs that `apply` would run, all parameters being plain tensors on one device.

    written, grads: the `jax.ShapeDtypeStruct`s of each parameter and its state, and of its gradient.
    """
    form, operands = _form(rule, arrays, hyper, options, None, None)
    first = [t._read() if isinstance(t, Tensor) else t for t in operands]
    parts = _parts(tuple([(own[0].shape, own[0].dtype) for own in written]), (MOST_RESULTS - 1) // len(written[0]))
    return [Ahead(_together(form, j - i), [*itertools.chain(*written[i:j])], [*first, *grads[i:j]]) for i, j in parts]


def _shares(written: list[list[Tensor]], size: int) -> list[list[int]]:
    """Return the numbers of the parameters of each program: on one device, and each tensor once.

    Views and parameters that are there twice are on their own, and so done one after the other.
    """
    numbers = list(range(len(written)))
    if not direct([t for own in written for t in own]):
        return [[i] for i in numbers]
    places: dict[Any, list[int]] = {}
    for i, own in enumerate(written):
        places.setdefault(_devices(own[0]._placed()), []).append(i)
    shares = []
    for found in places.values():
        if len(found) <= min(_FEW, size):
            shares.append(found)
            continue
        kinds = tuple([(written[i][0].shape, written[i][0].dtype) for i in found])
        shares += [found[i:j] for i, j in _parts(kinds, size)]
    return shares


@functools.lru_cache(maxsize=_MOST)
def _parts(kinds: tuple[Any, ...], size: int) -> list[tuple[int, int]]:
    """Return the first and last parameters of each program, at most `size`.  Equal layers have equal programs."""
    start = end = step = 0
    for start, end, period in repeats(kinds, size // 2)[:1]:
        step = -(-_FEW // period) * period
        end -= (end - start) % step
    if not step or step > size or end - start < 2 * step:
        start, end, step = 0, len(kinds), size
    bounds = [*range(0, start, size), *range(start, end, step), *range(end, len(kinds), size), len(kinds)]
    return [*itertools.pairwise(bounds)]


_known_devices: dict[int, tuple[Any, Any]] = {}  # {id of a sharding: (it, its devices)}: a set takes 1 µs to make


def _devices(where: Any) -> Any:
    """Return the devices of a sharding, to be compared; None for the sharding of a traced tensor."""
    known = _known_devices.get(id(where))
    if known is not None and known[0] is where:
        return known[1]
    if where is None:
        return None
    devices = frozenset(where.device_set)
    if len(_known_devices) >= _MOST_SHARDINGS:
        _known_devices.clear()
    _known_devices[id(where)] = where, devices
    return devices


# ------------------------------------------------------------ hyperparameters


def operands_of(
    rule: Rule, hyper: dict[str, Any], given: Tensor | None = None
) -> tuple[list[Any], tuple[str, ...], tuple[str, ...]]:
    """Return (a vector of numbers, and tensors), the names of the numbers, the names of the tensors.

    given: a tensor of `numbers(rule, hyper)`, which is then the vector.
    """
    if given is not None:
        return [given], _names(rule, tuple(hyper)), ()
    tensors = tuple([name for name, value in hyper.items() if isinstance(value, Tensor)])
    if not tensors:
        values = tuple(map(float, hyper.values()))  # NumPy's and JAX's scalars too
        return [*_derived(rule, tuple(hyper), values, x64_enabled())], _names(rule, tuple(hyper)), ()
    numbers = tuple([name for name in hyper if name not in tensors])
    first = vector(tuple([float(hyper[name]) for name in numbers]), x64_enabled())
    return [first, *[hyper[name] for name in tensors]], numbers, tensors


def log(value: float) -> float:
    """Return the logarithm of a number that is not negative."""
    return math.log(value) if value > 0 else -math.inf


@functools.lru_cache(maxsize=_MOST)
def _derived(rule: Rule, names: tuple[str, ...], values: tuple[Any, ...], x64: bool) -> tuple[Any, ...]:
    return (vector(_doubles(rule, names, values), x64),)


def _doubles(rule: Rule, names: tuple[str, ...], values: tuple[Any, ...]) -> tuple[float, ...]:
    return tuple(map(float, rule.derive(SimpleNamespace(**dict(zip(names, values))), log).values()))


def numbers(rule: Rule, hyper: dict[str, Any]) -> np.ndarray[Any, Any]:
    """Return the vector of numbers that a program reads, made of hyperparameters that are not tensors."""
    kind = np.float64 if x64_enabled() else np.float32
    return np.array(_doubles(rule, tuple(hyper), tuple(hyper.values())), kind)


@functools.lru_cache
def _names(rule: Rule, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(rule.derive(SimpleNamespace(**dict.fromkeys(names, 0.5)), log))


@functools.lru_cache(maxsize=_MOST)
def vector(values: tuple[float, ...], x64: bool) -> Any:
    """Return numbers as one operand of a program."""
    with jax.ensure_compile_time_eval():
        return jax.device_put(np.array(values, np.float64 if x64 else np.float32))


# ------------------------------------------------------------ the program


@functools.lru_cache(maxsize=1024)
def _together(form: _Form, count: int) -> MultiWrite:
    """Return the program of a step of `count` parameters.

    It writes (parameter, counts, arrays) of each, and reads the vector, the tensors and the gradients.
    """
    rule, width = form.rule, 1 + len(form.rule.counts) + len(form.arrays)

    def optimizer_step(written: list[Any], read: list[Any]) -> list[Any]:
        own = [written[i : i + width] for i in range(0, len(written), width)]
        others = 1 + len(form.tensors) + form.skips
        return _step(form, own, read[others:], read[:others])

    optimizer_step.__name__ = f"{rule.name}_step"
    return MultiWrite(optimizer_step, f"{rule.name}_step", own=rule.update.__module__.startswith(_PACKAGE))


def _step(form: _Form, own: list[list[Any]], grads: list[Any], operands: list[Any]) -> list[Any]:
    if form.skips:
        *operands, found = operands
        skip = found > 0
        # A formula of NaN would have a gradient of NaN even where its value is not taken.
        new = _step(form._replace(skips=False), own, [jnp.where(skip, 0, g).astype(g.dtype) for g in grads], operands)
        return [jnp.where(skip, old, value) for old, value in zip(itertools.chain(*own), new, strict=True)]
    h = vars(derived(form.rule, form.numbers, form.tensors, operands))
    # Parameters of one shape are traced once, and are in the program as if each had been traced.
    one = jax.jit(functools.partial(_step_of_one, form), inline=True)
    return [*itertools.chain(*[one(h, mine, grad) for mine, grad in zip(own, grads, strict=True)])]


def _step_of_one(form: _Form, h: dict[str, Any], own: list[Any], grad: Any) -> list[Any]:
    rule, options = form.rule, SimpleNamespace(**dict(form.options))
    p, *rest = own
    arrays = rest[len(rule.counts) :]
    kind = _real_dtype(p.dtype)
    # Each parameter's own, because XLA compiles equal kernels once: items of one array would make each another.
    scalars, counts = rule.coefficients(SimpleNamespace(**h), dict(zip(rule.counts, rest)), options)
    c = SimpleNamespace(**{name: jnp.asarray(value, kind) for name, value in scalars.items()})
    g = _wide(grad if grad.dtype == p.dtype else grad.astype(p.dtype))
    if getattr(options, "maximize", False):
        g = -g
    s = {name: _wide(a) for name, a in zip(form.arrays, arrays)}
    new, s = _updated(rule, _wide(p), g, s, c, options)
    return [
        _narrow(new, p),
        *[counts[name].astype(o.dtype) for name, o in zip(rule.counts, rest)],
        *[_narrow(s[name], a) for name, a in zip(form.arrays, arrays)],
    ]


def derived(rule: Rule, names: tuple[str, ...], tensors: tuple[str, ...], operands: list[Any]) -> SimpleNamespace:
    """Return the hyperparameters that `rule.derive` made, or makes of tensors; `operands_of` gave the arguments."""
    numbers, *given = operands
    h: dict[str, Any] = dict(zip(names, numbers))
    if given:
        h |= {name: t.astype(jnp.result_type(t, numbers)).reshape(()) for name, t in zip(tensors, given)}
        h = rule.derive(SimpleNamespace(**h), jnp.log)
    return SimpleNamespace(**h)


def _updated(rule: Rule, p: Any, g: Any, s: dict[str, Any], c: Any, o: Any) -> tuple[Any, dict[str, Any]]:
    """Return the new parameter and state.  Raises `RuntimeError` for a state that another shape of parameter has left.

    Broadcasting would give the parameter or its state another shape.
    """
    try:
        new, found = rule.update(p, g, s, c, o)
    except (TypeError, ValueError) as error:
        if all(a.shape == p.shape for a in s.values()):
            raise
        raise of_another_shape(rule.name, p, s) from error  # JAX can't broadcast them
    if new.shape != p.shape or any(found[name].shape != a.shape for name, a in s.items()):
        raise of_another_shape(rule.name, p, s)
    return new, found


def of_another_shape(name: str, p: Any, s: dict[str, Any]) -> RuntimeError:
    """Return the error for a state that does not belong to a parameter of this shape."""
    shapes = {key: list(a.shape) for key, a in s.items()}
    return RuntimeError(
        f"{name}: the state's shapes {shapes} do not match a parameter of shape {list(p.shape)}: it is the "
        "state of another parameter (load_state_dict matches parameters by their order), or the parameter's shape was "
        "changed"
    )


def _real_dtype(dtype: Any) -> Any:
    """Return the dtype in which an update of such a parameter is computed."""
    if jnp.issubdtype(dtype, jnp.complexfloating):
        return jnp.finfo(dtype).dtype
    return dtype if jnp.finfo(dtype).bits >= 32 else jnp.dtype("float32")


def _wide(array: Any) -> Any:
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        return jnp.stack([array.real, array.imag], -1)
    return array.astype(_real_dtype(array.dtype))


def _narrow(array: Any, like: Any) -> Any:
    if jnp.issubdtype(like.dtype, jnp.complexfloating):
        return jax.lax.complex(array[..., 0], array[..., 1])
    return array.astype(like.dtype)


# ------------------------------------------------------------ a step that is recorded


@functools.lru_cache(maxsize=256)
def _operator(form: _Form) -> Operator:
    """Return the step of one parameter as an operator of the tape: of (written, gradient, operands)."""
    width = 1 + len(form.rule.counts) + len(form.arrays)

    def optimizer_step(*values: Any) -> Any:
        new = _step(form, [[*values[:width]]], [values[width]], [*values[width + 1 :]])
        return tuple(new) if width > 1 else new[0]

    return Operator(f"{form.rule.name}_step", optimizer_step)


def _recorded(form: _Form, own: list[Tensor], grad: Tensor, operands: list[Any]) -> None:
    """Do a step by operators: with `differentiable=True`, so that gradients flow through it, and for subclasses."""
    given = [t if isinstance(t, Tensor) else from_foreign(t) for t in operands]
    old = [t.clone() for t in own]  # saved for backward, which the writes below would spoil
    new = call(_operator(form), (*old, grad, *given), ())
    for t, value in zip(own, new if len(own) > 1 else (new,), strict=True):
        t.copy_(value)
