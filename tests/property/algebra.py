"""Random expressions over extreme values: one program of them gives what operator by operator gives, as torch does.

XLA may rewrite a program by the algebra of real numbers, which floating-point numbers do not obey near the ends of
their ranges.  An expression is a list of steps; several expressions are one program.  `check` evaluates them by torch
and by xgrad: eagerly, lazily, compiled, and their gradients also by a compiled backward and in both view paths.

Which difference is rounding?  Torch evaluates each expression again with every result scaled by 1 + k * eps, k a random
small number: what lies between these values differs by rounding, for a fused product and sum is rounded once and an
`exp` by an ulp.  XLA's CPU compiler takes subnormal numbers for 0, so half of torch's evaluations do too.
"""

import math
import random
import time
import warnings
from collections import Counter

import numpy as np
import torch

import xgrad

DTYPES = ("float32", "float64", "bfloat16", "float16")
_COUNT = 48  # elements of each input
_SAMPLES = 12  # evaluations of torch with other roundings

UNARY = {
    "neg": 0, "abs": 0, "sqrt": 1, "exp": 3, "log": 3, "tanh": 3, "reciprocal": 1, "sigmoid": 3, "square": 1, "rsqrt": 2,
    "log1p": 3, "expm1": 3, "relu": 0, "sin": 0, "atan": 3, "softplus": 4,
}  # fmt: skip
BINARY = ("add", "sub", "mul", "div", "div", "mul", "add", "sub", "maximum", "minimum", "hypot", "pow")


def extremes(dtype: str) -> list[float]:
    """Return numbers of a dtype: the ends of its range, the middle, and what is no number."""
    info = torch.finfo(getattr(torch, dtype))
    big, tiny = info.max, info.smallest_normal
    sizes = [tiny, tiny * 2, tiny**0.75, tiny**0.5, tiny**0.25, 0.3, 1.0, 3.0, 100.0, big**0.25, big**0.5, big**0.75, big / 4, big]
    found = [s * sign for s in sizes for sign in (1, -1)]
    return [*found, 0.0, -0.0, math.inf, -math.inf, math.nan, tiny / 4, -tiny / 4, 1.4, -2.7]


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


def evaluated(library, steps, inputs, scales=None):
    """Evaluate an expression; `scales` are factors of the results."""
    values = [*inputs]
    for n, (name, operands) in enumerate(steps):
        given = [o[0] if isinstance(o, tuple) else values[o] for o in operands]
        function = library.nn.functional.softplus if name == "softplus" else getattr(library, name)
        out = function(*given)
        values.append(out if scales is None else out * scales[n])
    return values[-1]


def with_gradients(library, expressions, inputs, scales=None):
    """Return for each expression its value and the gradients of the inputs."""
    found = []
    for number, steps in enumerate(expressions):
        leaves = [x.detach().clone().requires_grad_() for x in inputs]
        out = evaluated(library, steps, leaves, None if scales is None else scales[number])
        grads = library.autograd.grad(out, leaves, library.ones_like(out), allow_unused=True)
        found += [out.detach(), *[library.zeros_like(out) if g is None else g for g in grads]]
    return found


def _numpy(tensors) -> list[np.ndarray]:
    return [t.detach().to(getattr(torch if isinstance(t, torch.Tensor) else xgrad, "float64")).numpy() for t in tensors]


def references(expressions, inputs, dtype, chosen):
    """Return torch's values, one array of samples for each result."""
    samples = []
    eps = torch.finfo(dtype).eps
    for n in range(2 + _SAMPLES):
        torch.set_flush_denormal(n % 2 == 0)
        try:
            scales = None
            if n >= 2:
                scales = [
                    [1 + eps * chosen.choice((-1, 0, 1)) * max(1, UNARY.get(name, 1)) for name, _ in steps]
                    for steps in expressions
                ]
            samples.append(_numpy(with_gradients(torch, expressions, inputs, scales)))
        finally:
            torch.set_flush_denormal(False)
    return [np.stack(column) for column in zip(*samples)]


def differs(value: np.ndarray, samples: np.ndarray, eps: float, tiny: float) -> np.ndarray:
    """Return where a value is none that torch could have."""
    with np.errstate(all="ignore"):
        low, high = np.nanmin(samples, 0), np.nanmax(samples, 0)
        slack = 8 * eps * np.maximum(np.abs(low), np.abs(high)) + 4 * tiny
        slack = np.where(np.isfinite(slack), slack, 0)
        spread = np.where(np.isfinite(high) & np.isfinite(low), high - low, 0)
        inside = (value >= low - slack - spread) & (value <= high + slack + spread)
        inside |= np.isnan(value) & np.isnan(samples).any(0)
        # The sign of a zero counts where torch always has a zero, of one sign.
        zero = (samples == 0).all(0)
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


def check(seed: int, count: int = 4, length: int = 5, dtype: str | None = None, only: tuple[str, ...] = ()) -> list[str]:
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
                wrong = differs(value, sample, info.eps, info.smallest_normal)
                for where in np.flatnonzero(wrong)[:1]:
                    result = ("value", "d/da", "d/db", "d/dc")[i % 4]
                    at = ", ".join(f"{n}={c[where]!r}" for n, c in zip("abc", columns))
                    found.append(
                        f"{dtype}, {way}: {result} of {text(expressions[i // 4])} at {at}: {value[where]!r}, torch "
                        f"{sample[0][where]!r} to {sorted({*sample[:, where].tolist()})[:3]}"
                    )
        return found


def run(seconds: float, seed: int) -> int:
    """Check random expressions for some time, print what differs, and return how many programs do."""
    counts: Counter[str] = Counter()
    until, failures = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        found = check(seed)
        counts["expressions"] += 4
        failures += bool(found)
        for line in found:
            print(f"seed {seed}: {line}", flush=True)
        seed += 1
    print(dict(counts), failures, "programs differ")
    return failures
