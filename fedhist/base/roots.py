"""Roots and minima of functions of one number, without the 0.15 s that SciPy's take to import."""

from __future__ import annotations

import math
from collections.abc import Callable

MOST_STEPS = 100
MOST_VALUES = 500
GOLDEN_MEAN = 0.5 * (3.0 - math.sqrt(5.0))
SMALL = math.sqrt(2.2e-16)
XATOL = 1e-5


def brentq(
    f: Callable[[float], float], low: float, high: float, *, xtol: float, rtol: float = 2.0**-50
) -> float:
    """Find a root between two points of opposite signs by Brent's method [1]_.

    The steps are those of ``scipy.optimize.brentq`` and so are the results, to the last bit.

    Parameters
    ----------
    f : callable
    low, high : float
    xtol, rtol : float
        The root lies within ``xtol + rtol * |root|`` of what is returned.

    Raises
    ------
    ValueError
        If the signs at both ends are the same, or a value is not a number.
    RuntimeError
        If 100 steps are too few.

    References
    ----------
    .. [1] Brent, "Algorithms for minimization without derivatives", 1973, chapter 4.

    Examples
    --------
    >>> brentq(lambda x: x * x - 2, 0.0, 2.0, xtol=1e-12)
    1.4142135623731364
    """

    def at(x: float) -> float:
        y = float(f(x))
        if math.isnan(y):
            raise ValueError(f"the function value at x={x} is NaN; solver cannot continue")
        return y

    before, now = float(low), float(high)
    f_before, f_now = at(before), at(now)
    if f_before == 0:
        return before
    if f_now == 0:
        return now
    if _same_sign(f_before, f_now):
        raise ValueError("f(a) and f(b) must have different signs")
    other = f_other = last = step = 0.0
    for _ in range(MOST_STEPS):
        if f_before != 0 and f_now != 0 and not _same_sign(f_before, f_now):
            other, f_other = before, f_before
            last = step = now - before
        if abs(f_other) < abs(f_now):
            before, now, other = now, other, now
            f_before, f_now, f_other = f_now, f_other, f_now
        delta = (xtol + rtol * abs(now)) / 2
        half = (other - now) / 2
        if f_now == 0 or abs(half) < delta:
            return now
        tried = math.inf
        if abs(last) > delta and abs(f_now) < abs(f_before):
            tried = _interpolated(before, now, other, f_before, f_now, f_other)
        if 2 * abs(tried) < min(abs(last), 3 * abs(half) - delta):
            last, step = step, tried
        else:
            last = step = half
        before, f_before = now, f_now
        now += step if abs(step) > delta else math.copysign(delta, half)
        f_now = at(now)
    raise RuntimeError(f"failed to converge after {MOST_STEPS} iterations, value is {now}")


def _same_sign(a: float, b: float) -> bool:
    return math.copysign(1.0, a) == math.copysign(1.0, b)


def _interpolated(
    before: float, now: float, other: float, f_before: float, f_now: float, f_other: float
) -> float:
    """Return the step by the secant, or by inverse quadratic interpolation; inf for none."""
    try:
        if before == other:
            return -f_now * (now - before) / (f_now - f_before)
        a = (f_before - f_now) / (before - now)
        b = (f_other - f_now) / (other - now)
        return -f_now * (f_other * b - f_before * a) / (b * a * (f_other - f_before))
    except ZeroDivisionError:
        return math.inf


def bounded_minimum(f: Callable[[float], float], low: float, high: float) -> float:
    """Find the least value of a function with one minimum, by Brent's method ``fminbound``.

    The steps are those of ``scipy.optimize.minimize_scalar(method="bounded")`` with its usual
    accuracy, and so are the values, to the last bit.

    Parameters
    ----------
    f : callable
    low, high : float
        Finite.

    Examples
    --------
    >>> bounded_minimum(lambda x: (x - 1) ** 2 + 3, -2.0, 7.0)
    3.0
    """
    a, b = low, high
    best = second = third = a + GOLDEN_MEAN * (b - a)
    f_best = f_second = f_third = f(best)
    step = last = 0.0
    values = 1
    while values < MOST_VALUES:
        middle = 0.5 * (a + b)
        near = SMALL * abs(best) + XATOL / 3.0
        if abs(best - middle) <= 2.0 * near - 0.5 * (b - a):
            break
        golden = True
        if abs(last) > near:  # a parabola through the three best
            r = (best - second) * (f_best - f_third)
            q = (best - third) * (f_best - f_second)
            p = (best - third) * q - (best - second) * r
            q = 2.0 * (q - r)
            p, q = (-p if q > 0.0 else p), abs(q)
            before, last = last, step
            if abs(p) < abs(0.5 * q * before) and q * (a - best) < p < q * (b - best):
                golden, step = False, p / q
                x = best + step
                if x - a < 2.0 * near or b - x < 2.0 * near:
                    step = near if middle >= best else -near
        if golden:
            last = (a if best >= middle else b) - best
            step = GOLDEN_MEAN * last
        x = best + (max(abs(step), near) if step >= 0 else -max(abs(step), near))
        fx = f(x)
        values += 1
        if fx <= f_best:
            a, b = (best, b) if x >= best else (a, best)
            third, f_third, second, f_second = second, f_second, best, f_best
            best, f_best = x, fx
        else:
            a, b = (x, b) if x < best else (a, x)
            if fx <= f_second or second == best:
                third, f_third, second, f_second = second, f_second, x, fx
            elif fx <= f_third or third in (best, second):
                third, f_third = x, fx
    return f_best
