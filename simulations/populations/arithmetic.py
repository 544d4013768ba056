"""Logarithm, exponential, cosine and normal quantile from + - * / and sqrt alone.

A synthetic user must have the same bits on every machine. IEEE 754 fixes the result of + - * / and
sqrt, and of scaling by a power of two, but not that of a library's log or pow, which differ in
the last bit between processors and versions. Each function here is a fixed sequence of the
former (compiled without contraction or reordering, which numba does only where it is asked to),
within some units of the last place of the true value.

References
----------
.. [1] Wichura, "Algorithm AS 241: the percentage points of the normal distribution", Applied
   Statistics 37(3), 1988.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import ArrayLike

from fedhist.base.arrays import Floats, read_only

LN2_HIGH = 6.93147180369123816490e-01
"""Log 2 to 33 bits: a multiple by an exponent is exact."""
LN2_LOW = 1.90821492927058770002e-10
CENTRAL = 0.425
"""Distance from the median, in probability, up to which one rational function will do [1]_."""
FAR = 5.0
"""Depth of a tail, sqrt(-log) of its probability, up to which a second one will do [1]_."""


@njit(cache=True, nogil=True, error_model="numpy", forceinline=True)  # type: ignore[untyped-decorator]
def log1(x: Any) -> Any:
    """Return the natural logarithm of one positive number that is not subnormal."""
    bits = np.float64(x).view(np.int64)
    e = (bits >> 52) - 1023
    m = np.int64((bits & 0xFFFFFFFFFFFFF) | 0x3FF0000000000000).view(np.float64)  # in [1, 2)
    if m > 1.4142135623730951:
        m *= 0.5
        e += 1
    s = (m - 1.0) / (m + 1.0)
    t = s * s
    t2 = t * t
    low = (1 / 3 + t * (1 / 5)) + t2 * (1 / 7 + t * (1 / 9))  # side by side, not one by one
    high = (1 / 11 + t * (1 / 13)) + t2 * ((1 / 15 + t * (1 / 17)) + t2 * (1 / 19 + t * (1 / 21)))
    series = t * (low + t2 * t2 * high)
    return e * LN2_HIGH + (2.0 * s + (2.0 * s * series + e * LN2_LOW))


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def exp1(x: Any) -> Any:
    """Return the exponential of one number: 0 below -708, infinity above 709."""
    if x < -708.0:
        return 0.0
    if x > 709.0:
        return math.inf
    k = math.floor(x * 1.4426950408889634 + 0.5)
    r = (x - k * LN2_HIGH) - k * LN2_LOW
    v = 1 / 479001600 + r * (1 / 6227020800 + r * (1 / 87178291200))
    v = 1 / 362880 + r * (1 / 3628800 + r * (1 / 39916800 + r * v))
    v = 1 / 720 + r * (1 / 5040 + r * (1 / 40320 + r * v))
    v = 1.0 + r * (1.0 + r * (1 / 2 + r * (1 / 6 + r * (1 / 24 + r * (1 / 120 + r * v)))))
    return v * np.int64((np.int64(k) + 1023) << 52).view(np.float64)


@njit(cache=True, nogil=True, error_model="numpy")  # type: ignore[untyped-decorator]
def normal1(p: Any) -> Any:
    """Return the p-quantile of the standard normal law, to about 16 digits [1]_."""
    if abs(p - 0.5) <= CENTRAL:
        return central(p - 0.5)
    r = tail_depth(p)
    x = tail(r) if r <= FAR else _far_tail(r)
    return x if p >= 0.5 else -x


@njit(inline="always", cache=True)  # type: ignore[untyped-decorator]
def central(q: Any) -> Any:
    """Return the (q + 1/2)-quantile, for q of at most CENTRAL in size."""
    r = 0.180625 - q * q
    a = 2.5090809287301226727e3 * r + 3.3430575583588128105e4
    a = (a * r + 6.7265770927008700853e4) * r + 4.5921953931549871457e4
    a = (a * r + 1.3731693765509461125e4) * r + 1.9715909503065514427e3
    a = (a * r + 1.3314166789178437745e2) * r + 3.3871328727963666080e0
    b = 5.2264952788528545610e3 * r + 2.8729085735721942674e4
    b = (b * r + 3.9307895800092710610e4) * r + 2.1213794301586595867e4
    b = (b * r + 5.3941960214247511077e3) * r + 6.8718700749205790830e2
    b = (b * r + 4.2313330701600911252e1) * r + 1.0
    return a * q / b


@njit(cache=True, nogil=True, forceinline=True)  # type: ignore[untyped-decorator]
def tail_depth(p: Any) -> Any:
    """Return sqrt(-log) of the probability of the tail in which the p-quantile lies."""
    return math.sqrt(-log1(p if p < 0.5 else 1.0 - p))


@njit(inline="always", cache=True)  # type: ignore[untyped-decorator]
def tail(r: Any) -> Any:
    """Return the size of a quantile where :func:`central` does not hold, at a depth up to FAR."""
    r -= 1.6
    a = 7.74545014278341407640e-4 * r + 2.27238449892691845833e-2
    a = (a * r + 2.41780725177450611770e-1) * r + 1.27045825245236838258e0
    a = (a * r + 3.64784832476320460504e0) * r + 5.76949722146069140550e0
    a = (a * r + 4.63033784615654529590e0) * r + 1.42343711074968357734e0
    b = 1.05075007164441684324e-9 * r + 5.47593808499534494600e-4
    b = (b * r + 1.51986665636164571966e-2) * r + 1.48103976427480074590e-1
    b = (b * r + 6.89767334985100004550e-1) * r + 1.67638483018380384940e0
    b = (b * r + 2.05319162663775882187e0) * r + 1.0
    return a / b


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _far_tail(r: Any) -> Any:
    r -= 5.0
    a = 2.01033439929228813265e-7 * r + 2.71155556874348757815e-5
    a = (a * r + 1.24266094738807843860e-3) * r + 2.65321895265761232930e-2
    a = (a * r + 2.96560571828504891230e-1) * r + 1.78482653991729133580e0
    a = (a * r + 5.46378491116411436990e0) * r + 6.65790464350110377720e0
    b = 2.04426310338993978564e-15 * r + 1.42151175831644588870e-7
    b = (b * r + 1.84631831751005468180e-5) * r + 7.86869131145613259100e-4
    b = (b * r + 1.48753612908506148525e-2) * r + 1.36929880922735805310e-1
    b = (b * r + 5.99832206555887937690e-1) * r + 1.0
    return a / b


def elementwise(loop: Callable[..., None], *arguments: ArrayLike) -> Floats:
    """Run a compiled loop over the elements of arrays, and numbers, broadcast together."""
    # no ufunc: each is linked anew in every process, which takes ten times what loading a loop does
    arrays = [np.asarray(a) for a in arguments]
    out = np.empty(np.broadcast_shapes(*(a.shape for a in arrays)))
    loop(*(read_only(np.broadcast_to(a, out.shape).ravel()) for a in arrays), out.reshape(-1))
    return out


def exp(x: Floats) -> Floats:
    """Return the exponential: 0 below -708, infinity above 709."""
    return elementwise(_exps, x)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _exps(x: Floats, out: Floats) -> None:
    for i in range(len(out)):
        out[i] = exp1(x[i])


def power(x: ArrayLike, y: ArrayLike) -> Floats:
    """Return x to the y, of positive x: relative error some 1e-16 times 1 + |y log x|."""
    return elementwise(_powers, np.asarray(x, np.float64), np.asarray(y, np.float64))


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _powers(x: Floats, y: Floats, out: Floats) -> None:
    for i in range(len(out)):
        out[i] = exp1(y[i] * log1(x[i]))


def cosine(turns: ArrayLike) -> Floats:
    """Return cos(2 pi turns)."""
    return elementwise(_cosines, np.asarray(turns, np.float64))


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _cosines(turns: Floats, out: Floats) -> None:
    for i in range(len(out)):
        out[i] = _cosine(turns[i])


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _cosine(turns: Any) -> Any:
    x = abs(turns - math.floor(turns + 0.5))  # in [0, 1/2]
    sign = 1.0
    if x > 0.25:
        x = 0.5 - x
        sign = -1.0
    r = 6.283185307179586 * x
    r *= r
    v = 1 / 20922789888000 - r * (1 / 6402373705728000 - r * (1 / 2432902008176640000))
    v = 1 / 479001600 - r * (1 / 87178291200 - r * v)
    v = 1 / 720 - r * (1 / 40320 - r * (1 / 3628800 - r * v))
    return sign * (1.0 - r * (1 / 2 - r * (1 / 24 - r * v)))
