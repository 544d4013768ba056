"""A vector of a user's record: the means of basis functions over its samples on [0, 1]."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np
from numba import njit

from clients.records.functionals import samples_of
from fedhist.base.arrays import Floats, Integers
from fedhist.base.checks import check_choice, check_within
from fedhist.model.part import VectorPart
from fedhist.model.registry import register_part
from fedhist.users.batch import Users

BasisName = Literal["cosine", "fourier"]
MOST_COEFFICIENTS = 1 << 12


@register_part
@dataclass(frozen=True)
class SeriesMeans(VectorPart):
    """Coefficients of the distribution of a user's samples on [0, 1].

    Parameters
    ----------
    basis : {"cosine", "fourier"}
        "cosine": sqrt(2) cos(pi j x), j = 1, 2, ...; "fourier": sqrt(2) cos(2 pi k x) and
        sqrt(2) sin(2 pi k x), k = 1, 2, ...
    n_coefficients : int

    Notes
    -----
    Samples outside [0, 1] are clipped into it; a NaN makes a user unusable.
    """

    wire_name: ClassVar[str] = "series-means"
    basis: BasisName
    n_coefficients: int

    def __post_init__(self) -> None:
        check_choice("basis", self.basis, get_args(BasisName))
        check_within("n_coefficients", self.n_coefficients, 1, MOST_COEFFICIENTS)

    @property
    def n_coordinates(self) -> int:
        """The coefficients."""
        return self.n_coefficients

    @property
    def bound(self) -> float:
        """At x = 0 all cosines are 1; a cosine and its sine always have the norm 1 together."""
        many = self.n_coefficients
        return math.sqrt(2 * (many if self.basis == "cosine" else (many + 1) // 2))

    def vectors(self, users: Users) -> Floats:
        """Average each user's basis functions: (n, n_coefficients); NaN for none, or a NaN."""
        samples = samples_of(users, 1)
        out = np.empty((len(users), self.n_coefficients))
        _fill(samples.indptr, samples.values, self.basis == "cosine", out)
        return out


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _fill(indptr: Integers, values: Floats, half_turns: bool, out: Floats) -> None:
    """Fill the means; one turn more for every next frequency."""
    width = out.shape[1]
    for u in range(indptr.shape[0] - 1):
        start, stop = indptr[u], indptr[u + 1]
        row = out[u]
        row[:] = 0.0 if stop > start else np.nan
        for i in range(start, stop):
            x = values[i, 0]
            x = 0.0 if x < 0.0 else (1.0 if x > 1.0 else x)  # a NaN stays, and spoils every sum
            if half_turns:
                c = math.cos(math.pi * x)
                before, wave = 1.0, c
                for j in range(width):
                    row[j] += wave
                    before, wave = wave, 2.0 * c * wave - before
                continue
            c, s = math.cos(2.0 * math.pi * x), math.sin(2.0 * math.pi * x)
            re, im = 1.0, 0.0
            for j in range(0, width, 2):
                re, im = re * c - im * s, re * s + im * c
                row[j] += re
                if j + 1 < width:
                    row[j + 1] += im
        for j in range(width):
            row[j] *= math.sqrt(2.0) / max(stop - start, 1)
