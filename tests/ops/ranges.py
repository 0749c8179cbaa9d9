"""Pointwise functions at numbers of all sizes, with derivatives, against torch and against torch in float64.

An entry is a function with one kind of result (`value`, the `gradient` of an argument, its `tangent`, the `second`
derivative) in one dtype.  It is *wrong* at a point where the operands and the exact result are inside of the dtype's
range, and ours is infinite, NaN, 0 or off by more than `ULPS` and torch's is right; or where the
exact result is outside and ours is another number than torch's.
"""

import warnings
from typing import Any

import numpy as np
import torch

import xgrad
import xgrad.interop.torch

ULPS = {"float16": 8, "bfloat16": 8, "float32": 64, "float64": 64}
DTYPES = ("float16", "bfloat16", "float32", "float64")
COMPLEX = ("complex64", "complex128")
SPREAD = 48  # sizes of one operand that others vary against


def F(T):
    return T.nn.functional


# name: (number of operands, function of a library and operands)
REAL: dict[str, tuple[int, Any]] = {}
BOTH: dict[str, tuple[int, Any]] = {}  # of complex numbers too


def _declare() -> None:
    for name in [
        "asinh",
        "atan",
        "cos",
        "cosh",
        "exp",
        "sin",
        "sinh",
        "tanh",
        "sigmoid",
        "square",
        "sqrt",
        "rsqrt",
        "reciprocal",
        "log",
        "log10",
        "log2",
        "log1p",
        "acos",
        "acosh",
        "asin",
        "atanh",
        "tan",
        "abs",
        "sgn",
        "neg",
        "exp2",
        "expm1",
        "sinc",
    ]:
        BOTH[name] = 1, lambda T, x, name=name: getattr(T, name)(x)
    for name in [
        "erf",
        "erfc",
        "erfinv",
        "digamma",
        "lgamma",
        "i0",
        "deg2rad",
        "rad2deg",
        "frac",
        "sign",
        "nan_to_num",
        "logit",
        "ceil",
    ]:
        REAL[name] = 1, lambda T, x, name=name: getattr(T, name)(x)
    for name in ["entr", "erfcx", "i0e", "i1", "i1e", "log_ndtr", "ndtr", "ndtri", "spherical_bessel_j0"]:
        REAL[name] = 1, lambda T, x, name=name: getattr(T.special, name)(x)
    for name in [
        "relu6",
        "hardswish",
        "hardsigmoid",
        "hardtanh",
        "leaky_relu",
        "elu",
        "celu",
        "selu",
        "gelu",
        "silu",
        "mish",
        "softplus",
        "logsigmoid",
        "softsign",
        "tanhshrink",
        "softshrink",
    ]:
        REAL[name] = 1, lambda T, x, name=name: getattr(F(T), name)(x)
    REAL["gelu_tanh"] = 1, lambda T, x: F(T).gelu(x, approximate="tanh")
    REAL["softplus_beta"] = 1, lambda T, x: F(T).softplus(x, 3.0, 10.0)
    REAL["celu_alpha"] = 1, lambda T, x: F(T).celu(x, 0.25)
    REAL["angle"] = BOTH["angle"] = 1, lambda T, x: T.angle(x)
    for n in (0, 1, 2, 3):
        REAL[f"polygamma{n}"] = 1, lambda T, x, n=n: T.polygamma(n, x)
    for p in (-3, -2, -1, -0.5, 0.25, 0.5, 1.5, 2, 3, 4, 5, 7):
        BOTH[f"pow{p}"] = 1, lambda T, x, p=p: T.pow(x, p)
    BOTH["rpow2"] = 1, lambda T, x: T.pow(2.0, x)
    BOTH["rdiv"] = 1, lambda T, x: 3.0 / x
    for name in ["add", "sub", "mul", "div", "pow"]:
        BOTH[name] = 2, lambda T, x, y, name=name: getattr(T, name)(x, y)
    BOTH["logaddexp"] = 2, lambda T, x, y: T.logaddexp(x, y)
    for name in [
        "atan2",
        "hypot",
        "logaddexp2",
        "xlogy",
        "copysign",
        "fmod",
        "remainder",
        "maximum",
        "minimum",
        "fmax",
        "fmin",
        "float_power",
        "igamma",
        "igammac",
    ]:
        REAL[name] = 2, lambda T, x, y, name=name: getattr(T, name)(x, y)
    for name in ["xlog1py", "zeta"]:
        REAL[name] = 2, lambda T, x, y, name=name: getattr(T.special, name)(x, y)
    REAL["floor_div"] = 2, lambda T, x, y: T.div(x, y, rounding_mode="floor")
    REAL["trunc_div"] = 2, lambda T, x, y: T.div(x, y, rounding_mode="trunc")
    REAL["ldexp"] = 1, lambda T, x: T.ldexp(x, T.full_like(x, 3))
    for name in [
        "smooth_l1_loss",
        "huber_loss",
        "mse_loss",
        "l1_loss",
        "poisson_nll_loss",
        "kl_div",
        "soft_margin_loss",
    ]:
        REAL[name] = 2, lambda T, x, y, name=name: getattr(F(T), name)(x, y, reduction="none")
    REAL["poisson_full"] = 2, lambda T, x, y: F(T).poisson_nll_loss(x, y, log_input=False, full=True, reduction="none")
    REAL["huber_delta"] = 2, lambda T, x, y: F(T).huber_loss(x, y, delta=0.5, reduction="none")
    REAL["smooth_beta"] = 2, lambda T, x, y: F(T).smooth_l1_loss(x, y, beta=4.0, reduction="none")
    REAL["bce_logits"] = 2, lambda T, x, y: F(T).binary_cross_entropy_with_logits(x, y, reduction="none")
    REAL["hinge"] = 2, lambda T, x, y: F(T).hinge_embedding_loss(x, y.sign().detach(), reduction="none")
    for name, f in {
        "addcmul": lambda T, x, y, z: T.addcmul(x, y, z, value=2),
        "addcdiv": lambda T, x, y, z: T.addcdiv(x, y, z, value=2),
        "lerp": lambda T, x, y, z: T.lerp(x, y, z),
    }.items():
        BOTH[name] = 3, f
    REAL["gaussian_nll"] = 3, lambda T, x, y, z: F(T).gaussian_nll_loss(x, y, z.abs(), full=True, reduction="none")

    # Reductions: the operands are the elements of one vector along the last dimension.
    def stacked(f):
        return lambda T, *x: f(T, T.stack(x, -1))

    for p in (0.5, 1, 1.5, 2, 3, 4, -1, -2, float("inf")):
        BOTH[f"norm{p}"] = 3, stacked(lambda T, x, p=p: T.linalg.vector_norm(x, p, dim=-1))
        REAL[f"normalize{p}"] = 2, stacked(lambda T, x, p=p: F(T).normalize(x, p, dim=-1)[..., 0])
        if p > 0:
            REAL[f"pairwise{p}"] = 2, lambda T, x, y, p=p: F(T).pairwise_distance(x[:, None], y[:, None], p)
            REAL[f"cdist{p}"] = 2, lambda T, x, y, p=p: T.cdist(x[:, None, None], y[:, None, None], p)[:, 0, 0]
            REAL[f"renorm{p}"] = 2, stacked(lambda T, x, p=p: T.renorm(x, p, 0, 1.0)[..., 0])
    BOTH["dist"] = 2, lambda T, x, y: T.stack([T.dist(a, b) for a, b in zip(x[:7], y[:7])])
    REAL["cosine"] = 4, lambda T, a, b, c, d: F(T).cosine_similarity(T.stack([a, b], -1), T.stack([c, d], -1), -1)
    for name in ["logsumexp", "softmax", "log_softmax"]:
        REAL[name] = 3, stacked(lambda T, x, name=name: getattr(T, name)(x, -1).reshape(len(x), -1)[:, 0])
    for name in ["std", "var", "mean", "sum", "prod"]:
        BOTH[name] = 3, stacked(lambda T, x, name=name: getattr(T, name)(x, -1))
    REAL["logcumsumexp"] = 2, stacked(lambda T, x: T.logcumsumexp(x, -1)[..., 1])
    REAL["cumprod"] = 3, stacked(lambda T, x: T.cumprod(x, -1)[..., 2])
    REAL["layer_norm"] = 3, stacked(lambda T, x: F(T).layer_norm(x, (3,))[..., 0])
    REAL["rms_norm"] = 3, stacked(lambda T, x: F(T).rms_norm(x, (3,))[..., 0])
    REAL["cross_entropy"] = (
        3, stacked(lambda T, x: F(T).cross_entropy(x, T.zeros(len(x), dtype=T.int64), reduction="none"))
    )  # fmt: skip
    REAL["det"] = 4, lambda T, a, b, c, d: T.linalg.det(T.stack([a, b, c, d], -1).reshape(-1, 2, 2))


_declare()


def _sigmoid(T, x):
    """The sigmoid; of real numbers with a derivative that does not subtract it from 1."""
    if x.is_complex():
        return T.sigmoid(x)
    sloped = T.exp(T.nn.functional.logsigmoid(x))
    return T.sigmoid(x).detach() + sloped - sloped.detach()


# Functions that torch's float64 has wrong, as it is right.
EXACT: dict[str, Any] = {
    "expm1": lambda T, x: T.expm1(x).detach() + T.exp(x) - T.exp(x).detach(),
    "ndtr": lambda T, x: T.special.erfc(x * -(0.5**0.5)) / 2,
    "sigmoid": _sigmoid,
}


def sizes(dtype: str) -> np.ndarray:
    """Powers of 2 over the normal range, in both signs, and numbers between them."""
    info = torch.finfo(getattr(torch, dtype))
    low, high = int(np.log2(info.tiny)), int(np.log2(info.max))
    exponents = np.unique(np.round(np.linspace(low + 1, high, min(high - low, 160))))
    near = np.arange(-8, 9)
    found = np.concatenate([np.exp2(exponents), 1.37 * np.exp2(exponents - 1), np.exp2(near / 2.0)])
    return np.concatenate([found, -found])


def operands(n: int, dtype: str, complex_too: bool) -> list[np.ndarray]:
    """`n` vectors of numbers in float64 or complex128, each rounded to `dtype`."""
    parts = n * (2 if complex_too else 1)
    one = sizes(dtype)
    if parts == 1:
        columns = [one]
    else:
        draw = np.random.RandomState(parts)
        few = draw.choice(one, SPREAD, replace=False)
        grid = [few, few[::-1]] if parts == 2 else None
        if grid:
            columns = [a.ravel() for a in np.meshgrid(*grid)]
        else:  # of three and more: near each other in size, and far
            base = draw.choice(one, 2304)
            near = np.exp2(draw.randint(-4, 5, (parts, 2304)))
            columns = [
                np.where(draw.rand(2304) < 0.5, base * near[i] * draw.choice([-1, 1], 2304), draw.choice(one, 2304))
                for i in range(parts)
            ]
    with np.errstate(all="ignore"):
        rounded = [torch.tensor(c).to(getattr(torch, dtype)).double().numpy() for c in columns]
    info = torch.finfo(getattr(torch, dtype))
    rounded = [np.where(np.isinf(c), np.sign(c) * info.max / 2, c) for c in rounded]
    rounded = [np.where(np.abs(c) < info.tiny, np.copysign(info.tiny * 2, c), c) for c in rounded]
    if complex_too:
        return [a + 1j * b for a, b in zip(rounded[::2], rounded[1::2])]
    return rounded


def computed(T: Any, f: Any, arrays: list, dtype: str, kinds: tuple) -> dict[str, np.ndarray]:
    """The results of each kind, in float64 or complex128."""
    wide = torch.complex128 if arrays[0].dtype.kind == "c" else torch.float64

    def to(a):
        x = torch.tensor(a, dtype=wide).to(getattr(torch, dtype))
        return x if T is torch else xgrad.interop.torch.from_torch(x)

    def back(x):
        if x is None:
            return None
        if T is torch and x._is_zerotensor():
            x = torch.zeros_like(x)
        x = x.detach() if T is torch else xgrad.interop.torch.to_torch(x.detach().resolve_conj())
        return x.to(torch.complex128 if x.is_complex() else torch.float64).resolve_conj().numpy()

    found = {}
    xs = [to(a).requires_grad_() for a in arrays]
    y = f(T, *xs)
    found["value"] = back(y)
    if y.requires_grad and "gradient" in kinds:
        try:
            grads = T.autograd.grad(y, xs, T.ones_like(y), create_graph="second" in kinds, allow_unused=True)
        except (NotImplementedError, RuntimeError) as error:
            if "derivative" not in str(error) and "not implemented" not in str(error):
                raise
            return found
        for i, g in enumerate(grads):
            found[f"gradient{i}"] = back(g)
        if "second" in kinds:
            for i, g in enumerate(grads):
                if g is not None and g.requires_grad:
                    try:
                        (h,) = T.autograd.grad(g, xs[i], T.ones_like(g), retain_graph=True, allow_unused=True)
                    except (NotImplementedError, RuntimeError):
                        continue
                    found[f"second{i}"] = back(h)
    if "tangent" in kinds:
        for i in range(len(xs)):
            with T.autograd.forward_ad.dual_level():
                duals = [x.detach() for x in xs]
                duals[i] = T.autograd.forward_ad.make_dual(duals[i], T.ones_like(duals[i]))
                try:
                    t = T.autograd.forward_ad.unpack_dual(f(T, *duals)).tangent
                except NotImplementedError:
                    continue
                found[f"tangent{i}"] = back(t)
    return found


def judged(ours: np.ndarray, theirs: np.ndarray, exact: np.ndarray, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Where ours is wrong; and where so is torch."""
    info = torch.finfo(getattr(torch, dtype))
    with np.errstate(all="ignore"):
        size = np.abs(exact)
        inside = (size >= 8 * info.tiny) & (size <= info.max / 8)

        def off(x: Any) -> Any:
            return np.where(np.isfinite(x), np.abs(x - exact) / size, np.inf)

        mine, other = off(ours), off(theirs)
        bound = ULPS[dtype] * info.eps + 8 * info.tiny / size  # XLA may flush numbers below the range to 0
        wrong = inside & (mine > bound) & (other < mine / 4) & (other < 4 * bound)
        both = inside & (mine > bound) & (mine > 0.01) & ~wrong
        # Outside: an infinity or a zero, as torch's; never NaN where torch has none, nor an ordinary number.
        small = size < info.tiny / 8
        wrong |= small & ~np.isfinite(ours) & np.isfinite(theirs)
        large = size > info.max * 4
        wrong |= large & np.isrealobj(exact) & (np.isnan(ours) | (np.abs(ours) < info.max / 8)) & np.isinf(theirs)
        wrong |= np.isnan(ours) & np.isnan(exact) & ~np.isnan(theirs) & np.isfinite(theirs)
    return wrong, both


def survey(name: str, dtype: str, kinds: tuple = ("gradient", "tangent", "second")) -> dict[str, tuple]:
    """{kind: (points tried, wrong, wrong as torch, examples)} of a function in a dtype; {} if torch refuses it."""
    complex_too = dtype in COMPLEX
    part = {"complex64": "float32", "complex128": "float64"}.get(dtype, dtype)
    n, f = (BOTH if complex_too else {**BOTH, **REAL})[name]
    with np.errstate(all="ignore"):
        arrays = operands(n, part, complex_too)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            theirs = computed(torch, f, arrays, dtype, kinds)
        except (RuntimeError, NotImplementedError):
            return {}
        exact = computed(torch, EXACT.get(name, f), arrays, "complex128" if complex_too else "float64", kinds)
        try:
            ours = computed(xgrad, f, arrays, dtype, kinds)
        except (RuntimeError, NotImplementedError, TypeError) as error:
            return {"refused": (0, 0, 0, [str(error)[:100]])}
    report = {}
    for kind, mine in ours.items():
        # A tangent of a pointwise function of real numbers is its gradient, which torch computes more often.
        source = kind if kind in theirs and kind in exact else None
        if source is None or mine is None or theirs[source] is None or exact[source] is None:
            continue
        k = len(mine)
        wrong, both = judged(mine, theirs[source], exact[source], part)
        where = np.flatnonzero(wrong)
        also = np.flatnonzero(both)
        places = where[np.linspace(0, len(where) - 1, min(3, len(where))).astype(int)] if len(where) else []
        examples = [
            (
                *(complex(a[i]) if complex_too else float(a[i]) for a in arrays),
                mine[i],
                theirs[source][i],
                exact[source][i],
            )
            for i in places
        ]
        report[kind] = (k, len(where), len(also), examples)
    return report
