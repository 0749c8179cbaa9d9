"""Random expressions over extreme values: one program of them gives what operator by operator gives, as torch does.

XLA may rewrite a program by the algebra of real numbers, which floating-point numbers do not obey near the ends of
their ranges.  An expression is a list of steps; several expressions are one program.  `check` evaluates them by torch
and by xgrad: eagerly, lazily, compiled, and their gradients also by a compiled backward and in both view paths.

Programs are compiled without the instructions that round a product and sum once (FLAGS): XLA takes them where one
program has both, and docs/differences.md says so.  Then each way must give what eager gives, or torch.

Which difference is rounding?  Torch evaluates each expression again with every operand and result scaled by
1 + k * eps, k a small random number: what lies between these values differs by rounding, because `exp` differs by an
ulp.  Two in three of torch's evaluations do what xgrad does (docs/differences.md): one takes subnormal results for 0,
as XLA's CPU programs, one computes half precision in float32 and rounds each result.
"""

import functools
import math
import random
import sys
import time
import warnings
from collections import Counter

import numpy as np
import torch

import xgrad

# XLA then has no such instruction; nor does it optimize where that takes long.
FLAGS = "--xla_cpu_max_isa=AVX --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
DTYPES = ("float32", "float64", "bfloat16", "float16")
_COUNT = 48  # elements of each input
_SAMPLES = 12  # evaluations of torch with other roundings

UNARY = {
    "neg": 0, "abs": 0, "sqrt": 1, "exp": 3, "log": 3, "tanh": 3, "reciprocal": 1, "sigmoid": 3, "square": 1,
    "rsqrt": 2, "log1p": 3, "expm1": 3, "relu": 0, "sin": 0, "atan": 3, "softplus": 4,
}  # fmt: skip
BINARY = ("add", "sub", "mul", "div", "div", "mul", "add", "sub", "maximum", "minimum", "hypot", "pow")


def extremes(dtype: str) -> list[float]:
    """Return numbers of a dtype: the ends of its range, the middle, and what is no number."""
    info = torch.finfo(getattr(torch, dtype))
    big, tiny = info.max, info.smallest_normal
    sizes = [
        tiny,
        tiny * 2,
        tiny**0.75,
        tiny**0.5,
        tiny**0.25,
        0.3,
        1.0,
        3.0,
        100.0,
        big**0.25,
        big**0.5,
        big**0.75,
        big / 4,
        big,
    ]
    found = [s * sign for s in sizes for sign in (1, -1)]
    return [*found, 0.0, -0.0, math.inf, -math.inf, math.nan, 1.4, -2.7]


def expression(chosen: random.Random, dtype: str, length: int) -> list[tuple]:
    """Return steps (name, operands): an operand is the number of a value, the inputs first, or (number,) itself."""
    steps: list[tuple] = []
    for n in range(length):
        values = [0, 1, 2, *range(3, 3 + n), *([2 + n] * 3 if n else [])]  # the latest one is likelier
        if chosen.random() < 0.3:
            steps.append((chosen.choice([*UNARY]), (chosen.choice(values),)))
            continue
        a, b = chosen.choice(values), chosen.choice(values)
        if chosen.random() < 0.4:
            b = (chosen.choice([x for x in extremes(dtype) if math.isfinite(x)]),)
            if chosen.random() < 0.3:
                b = (chosen.choice([2.0, 0.5, 3.0, 0.0, 1.0, -1.0]),)
        name = chosen.choice(BINARY)
        if b.__class__ is tuple and name not in ("add", "sub", "mul", "div", "pow"):
            name = "mul"
        steps.append((name, (a, b)))
    return steps


def text(steps: list[tuple]) -> str:
    names = list("abc")
    for name, operands in steps:
        names.append(f"{name}({', '.join(repr(o[0]) if isinstance(o, tuple) else names[o] for o in operands)})")
    return names[-1]


class Rounded(torch.autograd.Function):
    """Round a tensor, and its gradient, to a dtype, with 0 in place of subnormal numbers if `flush`."""

    @staticmethod
    def forward(ctx, x, dtype, flush):
        ctx.how = dtype, flush
        x = x.to(dtype)
        if flush:
            x = torch.where(x.abs() < torch.finfo(dtype).smallest_normal, x * 0, x)
        return x.to(torch.float64 if dtype == torch.float64 else torch.float32)

    @staticmethod
    def backward(ctx, grad):
        return Rounded.apply(grad, *ctx.how), None, None


def evaluated(library, steps, inputs, scale=None, rounded=None):
    """Evaluate an expression.  `scale` gives a factor for each operand and result, `rounded` is applied to each."""
    values = [*inputs] if rounded is None else [*map(rounded, inputs)]
    for name, operands in steps:
        given = [
            o[0] if isinstance(o, tuple) else values[o] if scale is None else values[o] * scale(1) for o in operands
        ]
        function = library.nn.functional.softplus if name == "softplus" else getattr(library, name)
        out = function(*given)
        out = out if scale is None else out * scale(max(1, UNARY.get(name, 1)))
        values.append(out if rounded is None else rounded(out))
    return values[-1]


def with_gradients(library, expressions, inputs, scale=None, rounded=None):
    """Return for each expression its value and the gradients of the inputs."""
    found = []
    for steps in expressions:
        leaves = [x.detach().clone().requires_grad_() for x in inputs]
        out = evaluated(library, steps, leaves, scale, rounded)
        grads = library.autograd.grad(out, leaves, library.ones_like(out), allow_unused=True)
        found += [out.detach(), *[library.zeros_like(out) if g is None else g for g in grads]]
    return found


def _numpy(tensors) -> list[np.ndarray]:
    return [t.detach().to((torch if isinstance(t, torch.Tensor) else xgrad).float64).numpy() for t in tensors]


def references(expressions, inputs, dtype, chosen):
    """Return torch's values, one array of samples for each result."""
    samples = []
    eps = torch.finfo(dtype).eps
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    for n in range(3 + _SAMPLES):
        scale = None if n < 3 else lambda ulps: 1 + eps * ulps * chosen.choice((-1, 0, 1))
        given, rounded = inputs, None
        if n % 3:
            given = [x.to(wide) for x in inputs]
            rounded = functools.partial(_rounded, dtype=dtype, flush=n % 3 == 1)
        samples.append(_numpy(with_gradients(torch, expressions, given, scale, rounded)))
    return [np.stack(column) for column in zip(*samples)]


def _rounded(x, dtype, flush):
    return Rounded.apply(x, dtype, flush)


def differs(value: np.ndarray, samples: np.ndarray, eps: float, tiny: float, signs: bool) -> np.ndarray:
    """Return where a value differs from all of the samples by more than rounding."""
    with np.errstate(all="ignore"):
        low, high = np.nanmin(samples, 0), np.nanmax(samples, 0)
        slack = 8 * eps * np.nanmax(np.where(np.isfinite(samples), np.abs(samples), 0), 0) + 4 * tiny
        spread = np.where(np.isfinite(high) & np.isfinite(low), high - low, 0)
        inside = (value >= low - slack - spread) & (value <= high + slack + spread)
        inside |= np.isnan(value) & np.isnan(samples).any(0)
        # The sign of a zero counts where all samples have a zero, of one sign; the larger of 0 and -0 is either.
        zero = (samples == 0).all(0) & signs
        negative = np.signbit(samples)
        signed = zero & (negative.all(0) | ~negative.any(0)) & (value == 0)
        return ~inside | (signed & (np.signbit(value) != negative[0]))


def ways(expressions):
    """Return {name: function of the inputs} of the ways by which xgrad evaluates expressions with their gradients."""

    def eager(*inputs):
        return with_gradients(xgrad, expressions, inputs)

    def lazily(*inputs):
        with xgrad.lazy():
            return with_gradients(xgrad, expressions, inputs)

    def compiled_backward(*inputs):
        with xgrad.autograd.compiled_backward():
            return with_gradients(xgrad, expressions, inputs)

    def geometry(*inputs):
        with xgrad.views.tracking("geometry"):
            return with_gradients(xgrad, expressions, inputs)

    return {
        "eager": eager, "lazy": lazily, "compiled": xgrad.compile(eager), "compiled backward": compiled_backward,
        "geometry": geometry,
    }  # fmt: skip


def check(
    seed: int, count: int = 4, length: int = 5, dtype: str | None = None, only: tuple[str, ...] = ()
) -> list[str]:
    """Evaluate `count` expressions of a seed in all ways, and return the differences as text."""
    chosen = random.Random(seed)
    dtype = dtype or DTYPES[seed % 4]
    expressions = [expression(chosen, dtype, 1 + chosen.randrange(length)) for _ in range(count)]
    numbers = extremes(dtype)
    columns = [[chosen.choice(numbers) for _ in range(_COUNT)] for _ in range(3)]
    theirs = [torch.tensor(c, dtype=torch.float64).to(getattr(torch, dtype)) for c in columns]
    ours = [xgrad.tensor(t.to(torch.float64).numpy()).to(getattr(xgrad, dtype)) for t in theirs]
    info = torch.finfo(getattr(torch, dtype))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        samples = references(expressions, theirs, getattr(torch, dtype), chosen)
        found = []
        for way, function in ways(expressions).items():
            if only and way not in only:
                continue
            values = _numpy(function(*ours))
            for i, (value, sample) in enumerate(zip(values, samples)):
                if way == "eager":  # a program may have what eager has, or torch
                    samples[i] = np.concatenate([sample, value[None]])
                steps = expressions[i // 4]
                signs = not any(name in ("maximum", "minimum", "relu") for name, _ in steps)
                wrong = differs(value, sample, info.eps, info.smallest_normal, signs)
                for where in np.flatnonzero(wrong)[:1]:
                    result = ("value", "d/da", "d/db", "d/dc")[i % 4]
                    at = ", ".join(f"{n}={c[where]!r}" for n, c in zip("abc", columns))
                    found.append(
                        f"{dtype}, {way}: {result} of {text(steps)} at {at}: {value[where]!r}, torch "
                        f"{sample[0][where]!r} to {sorted({*sample[:, where].tolist()})[:3]}"
                    )
        return found


def run(seconds: float, seed: int) -> Counter:
    """Check random expressions for some time, and return what was counted."""
    counts: Counter = Counter(failures=[])
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        found = check(seed)
        counts["expressions"] += 4
        counts["results of eager that differ from torch's"] += sum(", eager: " in line for line in found)
        counts["failures"] += [f"seed {seed}: {line}" for line in found if ", eager: " not in line]
        seed += 1
    return counts


if __name__ == "__main__":  # in a process that has FLAGS
    sys.exit("\n".join(line for seed in map(int, sys.argv[1:]) for line in check(seed) if ", eager: " not in line) or 0)
