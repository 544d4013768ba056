"""How values are written in reports, Student's intervals of means, and what theory is held to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedhist.base.errors import visible

MISSING = "-"


def shown(value: Any, digits: int = 4) -> str:
    """Write a value for a table; what is missing is a dash.

    >>> shown(12345), shown(0.123456), shown(None), shown("noise")
    ('12,345', '0.1235', '-', 'noise')
    """
    if value is None:
        return MISSING
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)


def number(x: float | None, digits: int = 4) -> str:
    """Write a number: whole from 1,000 on, below with a few digits.

    >>> number(0.00123456), number(12345.6), number(0.39897, 3), number(148.2, 2), number(None)
    ('0.001235', '12,346', '0.399', '150', '-')
    """
    if x is None:
        return MISSING
    if abs(x) >= 1000:
        return f"{x:,.0f}"
    text = f"{x:.{digits}g}"
    return f"{float(text):,.0f}" if abs(x) >= 1 and "e" in text else text


def short(x: float | None, digits: int = 4) -> str:
    """Write a number in at most eight letters.

    >>> short(81692.4), short(0.0001234), short(None), short(2.5), short(4.2e9)
    ('81,690', '1.23e-04', '-', '2.5', '4.20e+09')
    """
    if x is not None and x and not 1e-3 <= abs(x) < 1e6:
        return f"{x:.{min(digits, 3) - 1}e}"
    return number(None if x is None else float(f"{x:.{digits}g}"), digits)


def fixed(x: float | None, places: int = 0) -> str:
    """Write a number with a fixed number of places; what is none is a dash."""
    return MISSING if x is None or x != x else f"{x:,.{places}f}"


def percent(share: float | None) -> str:
    """Write a share in per cent, with two digits at least.

    >>> [percent(x) for x in (0.0123, 0.5, 12.34, None, 1e-7)]
    ['1.2%', '50%', '1,234%', '-', '1e-05%']
    """
    if share is None or share != share:
        return MISSING
    value = 100 * share
    return f"{value:,.0f}%" if value >= 9.95 else f"{value:.2g}%"


def span(values: Sequence[float | None]) -> str:
    """Write a few numbers, or the ends of many.

    >>> span([2.0, 0.5, 1.0, 0.5]), span([1, 2, 3, 4, 5]), span([None])
    ('0.5, 1, 2', '1 to 5', '-')
    """
    distinct = sorted({v for v in values if v is not None})
    if not distinct:
        return MISSING
    if len(distinct) <= 4:
        return ", ".join(f"{v:.4g}" for v in distinct)
    return f"{distinct[0]:.4g} to {distinct[-1]:.4g}"


def clipped(text: str, most: int) -> str:
    """Cut a long name, with a sign that it was cut; control characters become visible.

    >>> clipped("item-0001", 6)
    'item-…'
    """
    text = visible(text)
    return text if len(text) <= most else text[: most - 1] + "…"


def no_formula(cell: str) -> str:
    """Keep a spreadsheet from reading a name as a formula: a quotation mark comes before it.

    Numbers stay numbers.

    >>> no_formula("=1+1"), no_formula("-5"), no_formula("tea"), no_formula("@a")
    ("'=1+1", '-5', 'tea', "'@a")
    """
    formula = cell.startswith(("=", "+", "-", "@", "\t", "\r"))
    return f"'{cell}" if formula and not is_number(cell) else cell


def is_number(text: str) -> bool:
    """Say whether a text is a number, as Python reads them.

    >>> [text for text in ("-5", "1e3", " 7 ", "nan", "tea", "") if is_number(text)]
    ['-5', '1e3', ' 7 ', 'nan']
    """
    try:
        float(text)
    except ValueError:
        return False
    return True


# -- intervals ------------------------------------------------------------------------------------

NORMAL = 1.96
"""Half the width of a 95 % interval of what is normal, in standard errors."""


def student(n: int, level: float) -> float:
    """Return half the width of the interval of a mean of n values, in standard errors.

    >>> round(student(2, 0.95), 3), round(student(20, 0.99), 3)
    (12.706, 2.861)
    """
    from scipy.special import stdtrit  # a tenth of a second: only where runs are repeated

    return float(stdtrit(n - 1, (1 + level) / 2))


def half_width(values: Sequence[float], level: float) -> float | None:
    """Return half the width of Student's interval of a mean; None for one value, or an infinity.

    >>> half_width([1.0], 0.95)
    """
    n = len(values)
    if n < 2 or not all(map(math.isfinite, values)):
        return None
    with np.errstate(all="ignore"):  # squares of large values may overflow
        return student(n, level) * float(np.std(values, ddof=1)) / math.sqrt(n)


FAR = 2.0
"""Factor between measurement and theory from which on theory is flagged."""


def far_off(losses: Sequence[float], predicted: float | None, level: float = 0.95) -> bool:
    """Whether theory is more than a factor of two from a mean, and outside of its interval.

    One run has no interval, and is taken as it is.

    >>> far_off([2.1], 1.0), far_off([1.9], 1.0), far_off([0.1, 5.0, 1.9], 1.0), far_off([], 1.0)
    (True, False, False, False)
    """
    if not len(losses) or not predicted:
        return False
    mean, half = float(np.mean(losses)), half_width(losses, level)
    off = not predicted / FAR <= mean <= predicted * FAR
    return off and (half is None or abs(mean - predicted) > half)
