"""rand, randperm, normal, bernoulli, multinomial, ...: operators that draw random tensors, or fill them (`uniform_`).

Each draws one key (`draw_key`), which is an argument of a cached program.  As in PyTorch, a sample has the
gradient 0 in its parameters: nothing here is reparametrised.
"""

from collections.abc import Callable
from math import isfinite
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient

from ...base import dtypes, threefry
from ...base.limits import x64_for_now
from ...batching.batched_tensor import batch_like
from ...config import settings
from ...dispatch.argument_kinds import require_int, require_no_grad
from ...dispatch.call import call
from ...dispatch.declare import Operator, composite, internal, variant
from ...dispatch.inplace import call_inplace
from ...dispatch.promotion import require_floating
from ...dispatch.samples import STOPPED, between, key, positive, real, sample
from ...dispatch.wrong_arguments import require_tensor
from ...random import Generator
from ...tensor import Tensor
from ...views.named.arguments import variadic
from ..create.factories import checked_sizes, like, made
from ..create.from_data import place, placement
from ..index.index_checks import on_host
from ..pointwise.arithmetic import zero
from .draws import drawn_in, exponential, integers, uniform
from .draws import normal as normal_numbers
from .keys import draw_early, draw_key, draw_words

_WIDEST = {8: 3, 16: 11, 32: 24, 64: 53}  # bits of a float → integers up to 2**n that it holds exactly (float8: fewer)


_DOUBLE = dict(dtype=dtypes.float64, placement=None)  # of samples


@internal(differentiable=False, samples=(sample(key(), size=(2, 3), **_DOUBLE),))
def _rand(key, *, size, dtype, placement):
    return place(uniform(key, size, dtype), placement)


@internal(differentiable=False, samples=(sample(key(), size=(2, 3), **_DOUBLE),))
def _randn(key, *, size, dtype, placement):
    return place(normal_numbers(key, size, dtype), placement)


@internal(differentiable=False, samples=(sample(key(), 2, 7, size=(2, 3), dtype=dtypes.int64, placement=None),))
def _randint(key, low, high, *, size, dtype, placement):
    return place(integers(key, low, high, size, dtype), placement)


@internal(differentiable=False, samples=(sample(key(), n=5, dtype=dtypes.int64, placement=None),))
def _randperm(key, *, n, dtype, placement):
    return place(jax.random.permutation(key, n).astype(dtype), placement)


# -- factories --------------------------------------------------------------------------------------------------------


def _require_inexact(dtype: Any, name: str) -> Any:
    if dtype not in dtypes.INEXACT:
        raise NotImplementedError(f'"{name}" not implemented for {dtype.name!r}: ask for a floating-point dtype')
    return dtype


def _random(name: str, op: Operator, doc: str) -> Callable:
    """Declare rand or randn, with its `_like` form."""

    def drawn(generator: Generator | None, shape: tuple[int, ...], dtype: Any, where: Any) -> Tensor:
        if name == "rand" and dtype == dtypes.float32:
            early = draw_early(generator, name, shape, where, threefry.uniform)
            if early is not None:
                return early
        return call(op, (draw_words(generator, name, shape, dtype, where),), (shape, dtype, where))

    def factory(
        *size: Any, generator: Generator | None = None, out: Tensor | None = None, dtype: Any = None,
        layout: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False, **named: Any,
    ) -> Tensor:  # fmt: skip
        shape = checked_sizes(variadic(name, "size", size, named))
        dtype = settings.default_dtype if dtype is None else _require_inexact(dtypes.as_dtype(dtype), name)
        return made(drawn(generator, shape, dtype, placement(device)), requires_grad, out, name)

    def factory_like(
        input: Tensor, *, generator: Generator | None = None, dtype: Any = None, layout: Any = None,
        device: Any = None, requires_grad: bool = False, pin_memory: bool = False, memory_format: Any = None,
    ) -> Tensor:  # fmt: skip
        dtype = _require_inexact(input._dtype if dtype is None else dtypes.as_dtype(dtype), name + "_like")
        where = like(input) if device is None else placement(device)
        return made(batch_like(drawn(generator, tuple(input.shape), dtype, where), input), requires_grad)

    factory.__doc__ = f"A tensor of the given sizes, with {doc}."
    factory_like.__doc__ = f"A tensor of the shape, dtype and device of `input`, with {doc}."
    for known, fn in ((name, factory), (name + "_like", factory_like)):
        fn.__name__ = fn.__qualname__ = known
        composite(known, method=False)(fn)
    return factory


rand: Callable[..., Any] = _random("rand", _rand.operator, "numbers uniform on [0, 1)")
randn: Callable[..., Any] = _random(
    "randn", _randn.operator, "numbers of the standard normal distribution (complex: of variance 1)"
)


def _bounds(low: Any, high: Any, dtype: np.dtype) -> tuple[Any, Any]:
    """Check and convert integer bounds: `RuntimeError` for an empty range, `OverflowError` outside of the dtype."""
    require_no_grad("randint", low=low, high=high)
    require_int("randint", low=low, high=high)
    low, high = (int(v.item() if isinstance(v, Tensor) else v) for v in (low, high))
    if low >= high:
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    if dtype in dtypes.COMPLEX:
        raise RuntimeError(f"random_ handles integral, floating-point and boolean dtypes, but not {dtype.name}")
    wide = dtype if dtype in dtypes.INTEGERS else dtypes.default_integer()
    info = np.iinfo(wide)
    most = 1 if dtype == dtypes.bool else float(jnp.finfo(dtype).max) if dtype in dtypes.FLOATS else info.max
    if low < (0 if dtype == dtypes.bool else max(info.min, -most - 1)) or high - 1 > min(info.max, most):
        raise OverflowError(
            f"the range from {low} to {high} is out of bounds for {dtype.name}{dtypes.widen(wide) * (wide == dtype)}"
        )
    # In a wider dtype the upper bound can exceed the largest value, which can be drawn then.
    return low, high if high <= info.max and high < 1 << 31 else np.asarray(high, _bound_dtype(wide, high))


def _bound_dtype(wide: np.dtype, high: int) -> np.dtype:
    if high <= np.iinfo(wide).max:
        return wide
    if wide.itemsize == 8 or not dtypes.x64_enabled():
        raise OverflowError(f"the largest value of {wide.name} cannot be drawn here: ask for `high` one smaller")
    return dtypes.int64


def _drawn_integers(generator: Any, bounds: tuple[Any, Any], shape: tuple[int, ...], dtype: Any, where: Any) -> Tensor:
    if dtype == dtypes.int32 and bounds[1].__class__ is int:
        early = draw_early(generator, "randint", shape, where, lambda key, n: threefry.integers(key, n, *bounds))
        if early is not None:
            return early
    return call(_randint.operator, (draw_key(generator), *bounds), (shape, dtype, where))


@composite(method=False)
def randint(
    *args: Any, low: Any = None, high: Any = None, size: Any = None, generator: Generator | None = None,
    out: Tensor | None = None, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Integers uniform from `low` (0) up to, and without, `high`: `randint(high, size)` or `randint(low, high, size)`.

    Raises `RuntimeError` if no such integer exists.
    """
    given = list(args)
    if size is None and given:
        size = given.pop()
    if high is None and given:
        high = given.pop()
    if low is None:
        low = given.pop() if given else 0
    if given or high is None or size is None:
        raise TypeError("randint() takes (high, size) or (low, high, size)")
    dtype = dtypes.as_dtype(int if dtype is None else dtype)
    shape, bounds = checked_sizes(size), _bounds(low, high, dtype)
    return made(_drawn_integers(generator, bounds, shape, dtype, placement(device)), requires_grad, out, "randint")


@composite(method=False)
def randint_like(
    input: Tensor, *args: Any, low: Any = None, high: Any = None, dtype: Any = None, layout: Any = None,
    device: Any = None, requires_grad: bool = False, generator: Generator | None = None, memory_format: Any = None,
) -> Tensor:  # fmt: skip
    """Integers uniform from `low` (0) up to `high`, in the shape, dtype and device of `input`.

    `randint_like(input, high)` or `randint_like(input, low, high)`.
    """
    given = list(args)
    if high is None and given:
        high = given.pop()
    if low is None:
        low = given.pop() if given else 0
    if given or high is None:
        raise TypeError("randint_like() takes (input, high) or (input, low, high)")
    dtype = input.dtype if dtype is None else dtypes.as_dtype(dtype)
    where = like(input) if device is None else placement(device)
    bounds = _bounds(low, high, dtype)
    return made(_drawn_integers(generator, bounds, tuple(input.shape), dtype, where), requires_grad)


@composite(method=False)
def randperm(
    n: int, *, generator: Generator | None = None, out: Tensor | None = None, dtype: Any = int, layout: Any = None,
    device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """The integers from 0 to n - 1 in random order."""
    (n,) = checked_sizes(n)
    dtype = dtypes.as_dtype(dtype)
    if n > _largest(dtype) + 1 or dtype == dtypes.bool:
        raise RuntimeError(f"randperm: n = {n} is too large for {dtype.name}, which has no such numbers")
    statics = (n, dtype, placement(device))
    return made(call(_randperm.operator, (draw_key(generator),), statics), requires_grad, out, "randperm")


# -- samples of given parameters --------------------------------------------------------------------------------------


@internal("bernoulli", samples=(sample(between(0.2, 0.8, 2, 3), key()), sample(real(2, 3), key(), 0.4)))
def _bernoulli(self, key, p=None):
    chance = self if p is None else p
    return jax.random.bernoulli(key, stop_gradient(chance).astype(jnp.float32), self.shape).astype(self.dtype)


_bernoulli.derivative(self=zero)


def _require_range(p: Any, low: float, high: float, message: str) -> None:
    """Check a parameter that is a number, or a tensor that can be read without waiting for a device."""
    values = np.asarray(p) if isinstance(p, (int, float)) else on_host(p)
    if values is not None and values.size and not (low <= values.min() and values.max() <= high):
        raise RuntimeError(f"{message}, but got values from {values.min()} to {values.max()}")


@composite
def bernoulli(
    input: Tensor, p: float | None = None, *, generator: Generator | None = None, out: Tensor | None = None
) -> Tensor:
    """Ones with the probabilities in `input` (or `p`), else zeros, in the dtype of `input`."""
    require_tensor("bernoulli", input)
    if p is None:
        require_floating(input, "bernoulli")
    _require_range(input if p is None else p, 0, 1, "Expected p_in >= 0 && p_in <= 1: probabilities are from 0 to 1")
    return made(call(_bernoulli.operator, (input, draw_key(generator), p), ()), False, out, "bernoulli")


@internal("normal", node="NormalBackward0", samples=(sample(real(2, 3), positive(3), key()),) + STOPPED)
def _normal_of(mean, std, key):
    wide = dtypes.promote_types(
        *(x.dtype if x.dtype in dtypes.INEXACT else settings.default_dtype for x in (mean, std))
    )
    dtype = mean.dtype if getattr(std, "weak_type", False) else std.dtype if getattr(mean, "weak_type", False) else wide
    shape: Any = jnp.broadcast_shapes(mean.shape, std.shape)
    drawn = normal_numbers(key, shape, drawn_in(dtype))
    return (drawn * stop_gradient(std).astype(dtype) + stop_gradient(mean).astype(dtype)).astype(dtype)


_normal_of.derivative(mean=zero, std=zero)


@composite(method=False)
def normal(
    mean: Any = 0.0, std: Any = 1.0, size: Any = None, *, generator: Generator | None = None,
    out: Tensor | None = None, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Normal numbers, with means and standard deviations from tensors, or from numbers and a size.

    Raises `RuntimeError` for a negative standard deviation.
    """
    _require_range(std, 0, np.inf, "normal expects std >= 0.0")
    if size is None:
        if not isinstance(mean, Tensor) and not isinstance(std, Tensor):
            raise TypeError("normal() of two numbers needs a size")
        return made(call(_normal_of.operator, (mean, std, draw_key(generator)), ()), False, out, "normal")
    out_ = randn(size, generator=generator, dtype=dtype, device=device)
    return made(out_.mul_(std).add_(mean), requires_grad, out, "normal")


@internal(
    differentiable=False,
    samples=tuple([sample(positive(2, 3), key(), num_samples=2, replacement=r) for r in (True, False)]),
)
def _multinomial(self, key, *, num_samples, replacement):
    logits = jnp.log(self.astype(jnp.promote_types(self.dtype, jnp.float32)))
    if replacement:
        drawn = jax.random.categorical(key, logits[..., None, :], shape=(*self.shape[:-1], num_samples))
    else:  # the places of the largest log p + Gumbel noise are a sample without replacement
        drawn = jax.lax.top_k(logits + jax.random.gumbel(key, self.shape, logits.dtype), num_samples)[1]
    return drawn.astype(dtypes.default_integer())


@composite
def multinomial(
    input: Tensor, num_samples: int, replacement: bool = False, *, generator: Generator | None = None,
    out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Indices drawn with probabilities proportional to each row of `input` (1 or 2 dimensions).

    Raises `RuntimeError` for more samples than categories without replacement, and for weights that make no
    distribution.
    """
    if input.ndim not in (1, 2):
        raise RuntimeError(f"prob_dist must be 1 or 2 dim, got {input.ndim}")
    if input.dtype not in dtypes.FLOATS:
        raise RuntimeError(f"multinomial only supports floating-point dtypes for input, got: {input.dtype.name}")
    if num_samples <= 0:
        raise RuntimeError("cannot sample n_sample <= 0 samples")
    if not replacement and num_samples > input.shape[-1]:
        raise RuntimeError("cannot sample n_sample > prob_dist.size(-1) samples without replacement")
    values = on_host(input)
    if values is not None and values.size:
        if not (np.isfinite(values).all() and values.min() >= 0):
            raise RuntimeError("probability tensor contains either `inf`, `nan` or element < 0")
        if (np.asarray(values, np.float64).sum(-1) <= 0).any():
            raise RuntimeError("invalid multinomial distribution (sum of probabilities <= 0)")
    result = call(_multinomial.operator, (input, draw_key(generator)), (int(num_samples), bool(replacement)))
    return made(result, False, out, "multinomial")


@internal("poisson", samples=(sample(positive(2, 3), key()),))
def _poisson(self, key):
    require_floating(self, "poisson")
    rate = stop_gradient(self).astype(drawn_in(self.dtype))
    with x64_for_now():  # an int32 would end at 2**31
        return jax.random.poisson(key, rate, self.shape, jnp.int64).astype(self.dtype)


@composite(method=False)
def poisson(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Poisson numbers with the rates in `input`, in its dtype.  Raises `RuntimeError` for a negative rate."""
    require_tensor("poisson", input)
    _require_range(input, 0, np.inf, "invalid Poisson rate, expected rate to be non-negative")
    return call(_poisson.operator, (input, draw_key(generator)), ())


# -- in place ---------------------------------------------------------------------------------------------------------


def _filler(name: str, defaults: dict[str, float | None], draw: Callable, valid: Callable | None = None) -> None:
    """Declare a filler by `draw(key, shape, dtype, *parameters)`; `valid(*parameters)` returns None or an error."""
    names = list(defaults)

    def function(self: Any, key: Any, *parameters: Any) -> Any:
        return draw(key, self.shape, self.dtype, *parameters).astype(self.dtype)

    numbers = [0.4 if value is None else value for value in defaults.values()]
    op = variant(name.rstrip("_"), function, samples=(sample(real(2, 3), key(), *numbers),))
    op.derivative(self=zero)

    def fill(self: Tensor, *args: Any, generator: Generator | None = None, **named: Any) -> Tensor:
        if len(args) > len(names) or not set(named) <= set(names):
            raise TypeError(f"{name}() takes {', '.join([*names, 'generator'])}")
        given = {**defaults, **dict(zip(names, args)), **named}
        require_no_grad(name, **given)
        parameters = tuple(v.item() if isinstance(v, Tensor) else v for v in given.values())
        wrong = valid(*parameters) if valid else None
        if wrong:
            raise RuntimeError(f"{name} expects {wrong}, but got {', '.join(f'{k}={v}' for k, v in given.items())}")
        if name != "geometric_":
            _require_inexact(self.dtype, name)
        if draw in _OF_WORDS and self._level is None:
            operand = draw_words(generator, name, tuple(self.shape), self._dtype, self._placed())
        else:
            operand = draw_key(generator)
        return call_inplace(op, (self, operand, *parameters), ())

    fill.__name__ = name
    shown = ", ".join(f"{k}={v}" for k, v in defaults.items())
    fill.__doc__ = f"Fill the tensor with numbers of the {name[:-1].replace('_', '-')} distribution ({shown})."
    composite(name, function=False)(fill)


def _uniform_between(key: Any, shape: Any, dtype: Any, a: Any, b: Any) -> Any:
    return uniform(key, shape, dtype).astype(drawn_in(dtype)) * (b - a) + a


def _normal_about(key: Any, shape: Any, dtype: Any, mean: Any, std: Any) -> Any:
    return normal_numbers(key, shape, drawn_in(dtype)) * std + mean


_OF_WORDS = (_uniform_between, _normal_about)  # which draw of a key or of words

_filler(
    "uniform_", {"from": 0.0, "to": 1.0}, _uniform_between,
    lambda a, b: None if a <= b and isfinite(b - a) else "to return a [from, to) range, neither empty nor infinite",
)  # fmt: skip
_filler(
    "normal_", {"mean": 0.0, "std": 1.0}, _normal_about,
    lambda mean, std: None if std >= 0 else "std >= 0.0",
)  # fmt: skip
_filler(
    "log_normal_", {"mean": 1.0, "std": 2.0},
    lambda key, shape, dtype, mean, std: jnp.exp(normal_numbers(key, shape, drawn_in(dtype)) * std + mean),
    lambda mean, std: None if std > 0 else "std > 0.0",
)  # fmt: skip
_filler(
    "exponential_", {"lambd": 1.0}, lambda key, shape, dtype, lambd: exponential(key, shape, dtype) / lambd,
    lambda lambd: None if lambd > 0 else "lambda > 0.0",
)  # fmt: skip
_filler(
    "cauchy_", {"median": 0.0, "sigma": 1.0},
    lambda key, shape, dtype, median, sigma: jax.random.cauchy(key, shape, drawn_in(dtype)) * sigma + median,
    lambda median, sigma: None if sigma > 0 else "sigma > 0.0",
)  # fmt: skip
_filler(
    "geometric_", {"p": None},
    # in floats: an int32 would end at 2**31
    lambda key, shape, dtype, p: jnp.floor(jnp.log1p(-jax.random.uniform(key, shape)) / jnp.log1p(-p)) + 1,
    lambda p: None if p is not None and 0 < p < 1 else "p to be in (0, 1)",
)  # fmt: skip


@composite("bernoulli_", function=False)
def bernoulli_(self: Tensor, p: Any = 0.5, *, generator: Generator | None = None) -> Tensor:
    """Fill the tensor with ones with probability `p` (a number or a tensor that broadcasts), else zeros."""
    _require_range(p, 0, 1, "bernoulli_ expects p to be in [0, 1]")
    return call_inplace(
        _bernoulli.operator, (self, draw_key(generator), p.detach() if isinstance(p, Tensor) else p), ()
    )


_random_ = variant(
    "random", lambda self, key, low, high: integers(key, low, high, self.shape, self.dtype),
    samples=(sample(real(2, 3), key(), 2, 7),),
)  # fmt: skip
_random_.derivative(self=zero)


@composite("random_", function=False)
def random_(self: Tensor, *args: Any, generator: Generator | None = None, **named: Any) -> Tensor:
    """Fill the tensor with integers: `random_()`, `random_(to)` or `random_(from, to)`, also by these names.

    `to` is never drawn.  Without bounds they go from 0 to the largest value of the dtype, or the largest integer up to
    which a float holds all; both are drawn.
    """
    if len(args) == 1 and args[0] is not None and "to" not in named:
        args = 0, *args
    given = dict(zip(("from", "to"), args))
    if len(args) > 2 or given.keys() & named or not {"from", "to"} >= (given := given | named).keys() != {"from"}:
        raise TypeError("random_() takes at most two bounds: random_(to) or random_(from, to)")
    high = _largest(self._dtype) + 1 if given.get("to") is None else given["to"]
    bounds = _bounds(given.get("from", 0), high, self._dtype)
    return call_inplace(_random_, (self, draw_key(generator), *bounds), ())


def _largest(dtype: np.dtype) -> int:
    if dtype == dtypes.bool:
        return 1
    if dtype in dtypes.INTEGERS:
        return int(np.iinfo(dtype).max)
    bits = 8 if dtype == dtypes.bfloat16 else _WIDEST[dtype.itemsize * 8]
    return min(1 << bits, int(np.iinfo(dtypes.default_integer()).max))
