"""Names of arrays, NumPy's scalars, and :class:`Bounds`: what an array of a message can be."""

from __future__ import annotations

from abc import ABCMeta
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedhist.base.errors import WireError

Array = NDArray[Any]
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Words = NDArray[np.uint64]


def read_only(array: Array) -> Array:
    """Return a view that cannot be written to: a compiled loop then has one form, not two."""
    view = array.view()
    view.flags.writeable = False
    return view


def offsets(sizes: ArrayLike) -> Integers:
    """Return where rows of these sizes start in one array, and where the last ends: (n + 1,) int64.

    >>> offsets([2, 0, 3])
    array([0, 2, 2, 5])
    """
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)))


class PlainArguments(ABCMeta):
    """Makes objects of Python's own numbers, words and tuples where NumPy's, or lists, are given.

    Else epsilon = np.float32(1) would be reckoned with in 24 bits, and could not travel. A row of
    NumPy is a tuple where the field is one.
    """

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """Make an object."""
        tuples = _tuples(cls)
        own = [plain(v, rows=i in tuples) for i, v in enumerate(args)]
        given = {name: plain(v, rows=name in tuples) for name, v in kwargs.items()}
        return super().__call__(*own, **given)


@cache
def _tuples(cls: type) -> frozenset[str | int]:
    """Name the fields of a dataclass that are tuples, and their places among the arguments."""
    named = [f for f in fields(cls) if f.init] if is_dataclass(cls) else []
    placed = enumerate(f for f in named if not f.kw_only)
    return frozenset(
        [f.name for f in named if str(f.type).startswith("tuple")]
        + [i for i, f in placed if str(f.type).startswith("tuple")]
    )


def plain(value: Any, *, rows: bool = False) -> Any:
    """Make NumPy scalars Python's own, in tuples too, and lists tuples; ``rows``: arrays too."""
    if isinstance(value, np.number | np.bool_ | np.str_):
        return value.item()
    if isinstance(value, np.ndarray) and (rows or value.ndim == 0):
        value = value.tolist()
    if type(value) in (tuple, list):
        return tuple(plain(v, rows=rows) for v in value)
    return value


ROUNDING = 1 + 1e-9
"""A norm may exceed its bound by so much, which is put down to rounding."""


@dataclass(frozen=True)
class Bounds:
    """What one array of an honest message can be: shape, kind and range.

    Parameters
    ----------
    shape : tuple of int or None
        None stands for any length.
    kind : str
        NumPy dtype kinds allowed, such as "iu" or "f".
    low, high : float
        Inclusive.
    part : {"sums", "keyed", "rows"}
        Which part of a summary this describes.
    """

    shape: tuple[int | None, ...]
    kind: str
    low: float = -np.inf
    high: float = np.inf
    part: str = "sums"

    def check(self, name: str, a: Array) -> None:
        """Raise WireError, with the offending value, unless the array fits."""
        fits = len(a.shape) == len(self.shape) and all(
            want is None or got == want for got, want in zip(a.shape, self.shape, strict=True)
        )
        if not fits:
            raise WireError(f"{name!r} has shape {a.shape}, expected {self.shape}")
        if a.dtype.kind not in self.kind:
            raise WireError(f"{name!r} has dtype {a.dtype}, expected kind {self.kind!r}")
        if a.dtype.kind == "f" and not np.isfinite(a).all():
            raise WireError(f"{name!r} holds {a[~np.isfinite(a)][0]}")
        if a.size:
            low, high = a.min(), a.max()
            if low < self.low or high > self.high:
                bad = low if low < self.low else high
                raise WireError(f"{name!r} holds {bad}, outside [{self.low:g}, {self.high:g}]")


def next_power_of_two(n: int) -> int:
    """Smallest power of two that is at least n (1 for n <= 1)."""
    return 1 << max(0, n - 1).bit_length()
