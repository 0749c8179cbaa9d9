"""Declares xgrad.special's Bessel functions of orders 0 and 1 (bessel_j0, ...), and the Airy function airy_ai.

Functions that jax lacks are evaluated by the approximations of S. L. Moshier's Cephes library (j0.c, j1.c, k0.c, k1.c,
airy.c): quotients of polynomials, and Chebyshev series, on either side of a bound.  On the side that does not apply the
argument is replaced, so that jax's derivatives have no NaN from there.  PyTorch uses the same approximations
(ATen/native/Math.h), but forgets the leading 1 of some denominators, and is off by up to 1e-6 around the bounds.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax.numpy as jnp

from ...dispatch.promotion import require_32_bits
from ...dispatch.samples import SINGLE, positive, sample
from .unary import i0, i1, series, unary

# Numerators and denominators, the highest power first.  J, Y: in x**2, for x up to 5; P, Q: in (5 / x)**2, beyond.
_ORDER_0 = {
    "J": (
        (-4794432209.782018, 1956174919465.5657, -249248344360967.72, 9708622510473064.0),
        (
            1.0, 499.563147152651, 173785.4016763747, 48440965.83399621, 11185553704.535683, 2112775201154.892,
            310518229857422.56, 3.1812195594320496e+16, 1.7108629408104315e+18,
        ),
    ),
    "Y": (
        (
            15592.436785523574, -14663929.59039716, 5435264770.518765, -982136065717.9115, 87590639439536.7,
            -3466283033847297.0, 4.4273326857256984e+16, -1.8495080043698668e+16,
        ),
        (
            1.0, 1041.2835366425984, 626107.330137135, 268919633.39381415, 86400248710.3935, 20297961275010.555,
            3171577528429750.5, 2.5059625617265306e+17,
        ),
    ),
    "P": (
        (
            0.0007969367292973471, 0.08283523921074408, 1.239533716464143, 5.447250030587687, 8.74716500199817,
            5.303240382353949, 1.0,
        ),
        (
            0.0009244088105588637, 0.08562884743544745, 1.2535274390105895, 5.470977403304171, 8.761908832370695,
            5.306052882353947, 1.0,
        ),
    ),
    "Q": (
        (
            -0.011366383889846916, -1.2825271867050931, -19.553954425773597, -93.20601521237683, -177.68116798048806,
            -147.07750515495118, -51.41053267665993, -6.050143506007285,
        ),
        (
            1.0, 64.3178256118178, 856.4300259769806, 3882.4018360540163, 7240.467741956525, 5930.727011873169,
            2062.0933166032783, 242.0057402402914,
        ),
    ),
}  # fmt: skip

_ORDER_1 = {
    "J": (
        (-899971225.7055594, 452228297998.19403, -72749424522181.83, 3682957328638529.0),
        (
            1.0, 620.8364781180543, 256987.25675774884, 83514679.14319493, 22151159547.97925, 4749141220799.914,
            784369607876235.9, 8.952223361846274e+16, 5.322786203326801e+18,
        ),
    ),
    "Y": (
        (
            1263204747.9017804, -647355876379.1603, 114509511541823.73, -8127702555013251.0, 2.024394757135949e+17,
            -7.788771962659501e+17,
        ),
        (
            1.0, 594.3015923461282, 235564.09294306856, 73481194.44597217, 18760131610.870617, 3882312774962.3857,
            620557727146953.8, 6.871410873553005e+16, 3.9727060811656064e+18,
        ),
    ),
    "P": (
        (
            0.0007621256162081731, 0.07313970569409176, 1.1271960812968493, 5.112079511468076, 8.424045901417724,
            5.214515986823615, 1.0,
        ),
        (
            0.0005713231280725487, 0.06884559087544954, 1.105142326340617, 5.073863861286015, 8.399855543276042,
            5.209828486823619, 1.0,
        ),
    ),
    "Q": (
        (
            0.05108625947501766, 4.982138729512334, 75.82382841325453, 366.7796093601508, 710.8563049989261,
            597.4896124006136, 211.68875710057213, 25.207020585802372,
        ),
        (
            1.0, 74.23732770356752, 1056.4488603826283, 4986.410583376536, 9562.318924047562, 7997.041604473507,
            2826.1927851763908, 336.0936078106983,
        ),
    ),
}  # fmt: skip

_AIRY = {
    "cos": (
        (
            0.01973399320916857, 0.39110302961568827, 1.0657989759959559, 0.9391692298166502, 0.35146565610554764,
            0.06338889196289255, 0.005858041130483885, 0.000282851600836737, 6.98793669997261e-06,
            8.117892395543892e-08, 3.415517847659236e-10,
        ),
        (
            1.0, 9.30892908077442, 19.835292871831214, 15.564662893286462, 5.476860694229755, 0.9542936116189619,
            0.08645808263523921, 0.004126565238242226, 0.00010125908511650914, 1.1716673321441352e-06,
            4.9183457006293e-09,
        ),
    ),
    "sin": (
        (
            -0.1316963234183318, -0.6264565444319123, -0.6931580360369335, -0.2797799815451191, -0.04919001326095003,
            -0.004062659235948854, -0.0001592764962392621, -2.776491081552329e-06, -1.6778769848911465e-08,
        ),
        (
            1.0, 13.356042070655324, 32.682503279522464, 26.736704094149957, 9.187074029072596, 1.4752914677166642,
            0.11568717379518804, 0.004402916416152112, 7.547203482874142e-05, 4.5185009297058035e-07,
        ),
    ),
    "exp": (
        (
            0.346538101525629, 12.007595273964581, 76.27960536152345, 168.08922493463058, 159.75639135016442,
            70.53609068404442, 14.026469116338967, 1.0,
        ),
        (
            0.5675945326387702, 14.75625625848472, 84.51389701414746, 177.31808814540045, 164.2346928715297,
            71.47784008255756, 14.095913560783403, 1.0,
        ),
    ),
}  # fmt: skip

_K = {
    0: (
        (
            1.374465435613523e-16, 4.25981614279661e-14, 1.0349695257633842e-11, 1.904516377220209e-09,
            2.5347910790261494e-07, 2.286212103119452e-05, 0.001264615411446926, 0.0359799365153615, 0.3442898999246285,
            -0.5353273932339028,
        ),
        (
            5.300433772686263e-18, -1.6475804301524212e-17, 5.2103915050390274e-17, -1.678231096805412e-16,
            5.512055978524319e-16, -1.848593377343779e-15, 6.3400764774050706e-15, -2.2275133269916698e-14,
            8.032890775363575e-14, -2.9800969231727303e-13, 1.140340588208475e-12, -4.514597883373944e-12,
            1.8559491149547177e-11, -7.957489244477107e-11, 3.577397281400301e-10, -1.69753450938906e-09,
            8.574034017414225e-09, -4.660489897687948e-08, 2.766813639445015e-07, -1.8317555227191195e-06,
            1.39498137188765e-05, -0.00012849549581627802, 0.0015698838857300533, -0.0314481013119645,
            2.4403030820659555,
        ),
    ),
    1: (
        (
            -7.023863479386288e-18, -2.427449850519366e-15, -6.666901694199329e-13, -1.4114883926335278e-10,
            -2.213387630734726e-08, -2.4334061415659684e-06, -0.0001730288957513052, -0.006975723859639864,
            -0.12261118082265715, -0.3531559607765449, 1.5253002273389478,
        ),
        (
            -5.756744483665017e-18, 1.7940508731475592e-17, -5.689462558442859e-17, 1.838093544366639e-16,
            -6.057047248373319e-16, 2.038703165624334e-15, -7.019837090418314e-15, 2.4771544244813043e-14,
            -8.976705182324994e-14, 3.3484196660784293e-13, -1.2891739609510289e-12, 5.13963967348173e-12,
            -2.1299678384275683e-11, 9.218315187605006e-11, -4.1903547593418965e-10, 2.015049755197033e-09,
            -1.0345762465678097e-08, 5.7410841254500495e-08, -3.5019606030878126e-07, 2.406484947837217e-06,
            -1.936197974166083e-05, 0.00019521551847135162, -0.002857816859622779, 0.10392373657681724,
            2.7206261904844427,
        ),
    ),
}  # fmt: skip

# The squares of J's first two zeros, which its quotient leaves out.
_ZEROS = {0: (5.783185962946784, 30.471262343662087), 1: (14.681970642123893, 49.2184563216946)}
_ORDERS = (_ORDER_0, _ORDER_1)


def _horner(coefficients: tuple, z: Any) -> Any:
    total = jnp.zeros_like(z)
    for c in coefficients:
        total = total * z + c
    return total


def _quotient(table: tuple, z: Any) -> Any:
    return _horner(table[0], z) / _horner(table[1], z)


def _chebyshev(coefficients: tuple, y: Any) -> Any:
    """The sum of Chebyshev polynomials of y / 2, the highest first, by Clenshaw's recurrence."""
    a = before = last = jnp.zeros_like(y)
    for c in coefficients:
        before, last, a = last, a, y * a - last + c
    return (a - before) / 2


def _j_near(order: int, x: Any) -> Any:
    z = x * x
    first, second = _ZEROS[order]
    return (z - first) * (z - second) * _quotient(_ORDERS[order]["J"], z) * x**order


def _y_near(order: int, x: Any) -> Any:
    found = _quotient(_ORDERS[order]["Y"], x * x) * x**order
    return found + 2 / math.pi * (jnp.log(x) * _j_near(order, x) - (1 / x if order else 0))


def _far(order: int, x: Any, behind: bool) -> Any:
    """J beyond 5, by its phase; Y (with `behind`) is a quarter of a turn behind J."""
    w = 5 / x
    phase = x - math.pi / 4 * (1 + 2 * order)
    P, Q = (_quotient(_ORDERS[order][name], w * w) for name in "PQ")
    if behind:
        return math.sqrt(2 / math.pi) / jnp.sqrt(x) * (P * jnp.sin(phase) + w * Q * jnp.cos(phase))
    return math.sqrt(2 / math.pi) / jnp.sqrt(x) * (P * jnp.cos(phase) - w * Q * jnp.sin(phase))


def _j(order: int, x: Any) -> Any:
    near = (x >= -5) & (x <= 5)
    size = jnp.where(near, 6, jnp.where(x < 0, -x, x))
    far = _far(order, size, False)
    return jnp.where(near, _j_near(order, jnp.where(near, x, 1)), jnp.where(x < 0, -far, far) if order else far)


def _y(order: int, x: Any) -> Any:
    """Y: -inf at 0 and NaN for negative numbers, as the logarithm is."""
    near = x <= 5
    found = jnp.where(near, _y_near(order, jnp.where(near & (x > 0), x, 1)), _far(order, jnp.where(near, 6, x), True))
    return jnp.where(x <= 0, jnp.log(x), found)


def _k(order: int, scaled: bool, x: Any) -> Any:
    """K: infinite at 0 and NaN for negative numbers."""
    near = x <= 2
    low, high = jnp.where(near & (x > 0), x, 1), jnp.where(near, 3, x)
    at_origin, beyond = _K[order]
    if order:
        small = jnp.log(low / 2) * i1(low) + _chebyshev(at_origin, low * low - 2) / low
    else:
        small = _chebyshev(at_origin, low * low - 2) - jnp.log(low / 2) * i0(low)
    large = _chebyshev(beyond, 8 / high - 2) / jnp.sqrt(high)
    found = jnp.where(near, small * (jnp.exp(low) if scaled else 1), large * (1 if scaled else jnp.exp(-high)))
    return jnp.where(x <= 0, -jnp.log(x), found)


def _airy_ai(x: Any) -> Any:
    """Ai; NaN at the infinities, as in PyTorch."""
    left, right = x < -2.09, x >= 2.09
    back, forth = jnp.where(left, -x, 3), jnp.where(right, x, 3)
    # The oscillation on the left, the decay on the right, and a power series between them.
    zeta = 2 / 3 * back * jnp.sqrt(back)
    z, phase = 1 / zeta, zeta + math.pi / 4
    swing = jnp.sin(phase) * (1 + z * z * _quotient(_AIRY["sin"], z * z))
    swing = (swing - jnp.cos(phase) * z * _quotient(_AIRY["cos"], z * z)) / jnp.sqrt(jnp.sqrt(back) * math.pi)
    zeta = 2 / 3 * forth * jnp.sqrt(forth)
    decay = jnp.exp(-zeta) * _quotient(_AIRY["exp"], 1 / zeta) / jnp.sqrt(jnp.sqrt(forth) * (4 * math.pi))
    middle = jnp.where(left | right, 0, x)
    cube = middle**3
    found = 0.3550280538878172 * series(cube, 18, lambda k: 1 / ((3 * k - 1) * (3 * k)))
    found = found - 0.2588194037928068 * middle * series(cube, 18, lambda k: 1 / (3 * k * (3 * k + 1)))
    return jnp.where(jnp.isinf(x), jnp.nan, jnp.where(left, swing, jnp.where(right, decay, found)))


def _declare(name: str, compute: Callable, doc: str, samples: tuple = (sample(positive(2, 3)),) + SINGLE) -> Any:
    def checked(x):
        require_32_bits(x, name)
        return compute(x)

    return unary(f"special_{name}", checked, doc, samples, namespace="special", method=False)


for _order in (0, 1):
    _declare(f"bessel_j{_order}", partial(_j, _order), f"The Bessel function of the first kind, of order {_order}.")
    _declare(f"bessel_y{_order}", partial(_y, _order), f"The Bessel function of the second kind, of order {_order}.")
    _declare(
        f"modified_bessel_k{_order}", partial(_k, _order, False),
        f"The modified Bessel function of the second kind, of order {_order}.",
    )  # fmt: skip
    _declare(
        f"scaled_modified_bessel_k{_order}", partial(_k, _order, True),
        f"exp(input) times the modified Bessel function of the second kind, of order {_order}.",
    )  # fmt: skip
_declare("airy_ai", _airy_ai, "The Airy function Ai, which solves y'' = x y and decays.")
_declare("modified_bessel_i0", i0, "The modified Bessel function of the first kind, of order 0.")
_declare("modified_bessel_i1", i1, "The modified Bessel function of the first kind, of order 1.")
