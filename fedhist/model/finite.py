"""Finite channels: the exact law of a local answer, as integers, for every allowed input.

A channel whose inputs and outputs are finite needs no statistics: the largest likelihood ratio over
all pairs of inputs is a quotient of two integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedhist.base.arrays import Array


@dataclass(frozen=True)
class Worst:
    """The largest likelihood ratio of a channel, exactly.

    Under the first of the two ``inputs`` the ``output`` is most likely, with an integer weight of
    ``more``, and under the second least, with ``less``; 0 says that the ratio is infinite.
    """

    inputs: tuple[int, int]
    output: int
    more: int
    less: int

    @property
    def log_ratio(self) -> float:
        """Its logarithm, to double precision: the channel's epsilon at delta = 0."""
        if self.less == 0:
            return math.inf
        ratio = Fraction(self.more, self.less)
        return math.log(ratio.numerator) - math.log(ratio.denominator)


@dataclass(frozen=True, eq=False)
class FiniteChannel:
    """The law of an answer, for every allowed input.

    Attributes
    ----------
    labels : sequence of str
        The inputs, in words.
    weights : callable
        Row numbers (k,) to (k, m) integers, uint64 or Python's: the probability of each output
        times ``total``.
    total : int
        What every row adds up to.
    scope : str
        What was enumerated, and why it is the general case.

    Examples
    --------
    >>> half = FiniteChannel.of([[3, 1], [1, 3]], ("yes", "no"))
    >>> half.worst().log_ratio == math.log(3), half.delta(0, 1, [0.0]).tolist()
    (True, [0.5])
    """

    labels: Sequence[str]
    weights: Callable[[NDArray[np.int64]], Array]
    total: int
    scope: str = ""

    @classmethod
    def of(cls, weights: Any, labels: Sequence[str], scope: str = "") -> FiniteChannel:
        """Build from a matrix of integers: a row for each input.

        Raises
        ------
        ValueError
            If the weights are no integers: a double has lost what the law is about.

        Examples
        --------
        >>> FiniteChannel.of([[2**64 - 5, 5], [5, 2**64 - 5]], "ab").worst().more == 2**64 - 5
        True
        """
        # of a list with numbers on both sides of 2^63 NumPy would make doubles
        matrix = weights if isinstance(weights, np.ndarray) else np.array(weights, dtype=object)
        boxed = matrix.flat if matrix.dtype.kind == "O" else ()
        if matrix.dtype.kind == "f" or any(isinstance(w, float) for w in boxed):
            raise ValueError(f"the weights of a law are integers, got {matrix[0].tolist()}")
        total = int(sum(int(w) for w in matrix[0]))
        return cls(labels, lambda rows: matrix[rows], total, scope)

    def worst(self) -> Worst:
        """Find the largest ratio of an output's probabilities over all pairs of inputs.

        Raises
        ------
        ValueError
            If a row does not add up to ``total``: then it is no law.
        """
        best: tuple[Array, Array, Array, Array] | None = None
        for rows, block in self._blocks():
            top, bottom = block.argmax(axis=0), block.argmin(axis=0)
            column = np.arange(block.shape[1])
            new = (block[top, column], block[bottom, column], rows[top], rows[bottom])
            if best is None:
                best = new
                continue
            more, less = new[0] > best[0], new[1] < best[1]
            best = (
                np.where(more, new[0], best[0]),
                np.where(less, new[1], best[1]),
                np.where(more, new[2], best[2]),
                np.where(less, new[3], best[3]),
            )
        if best is None:
            raise ValueError("a channel without inputs has no likelihood ratio")
        high, low, upper, lower = best
        z = _largest_ratio(high, low)
        return Worst((int(upper[z]), int(lower[z])), z, int(high[z]), int(low[z]))

    def delta(self, i: int, j: int, epsilon: ArrayLike) -> NDArray[np.float64]:
        """Hockey-stick divergence sum over z of max(P(z | i) - e^epsilon P(z | j), 0), in doubles.

        Parameters
        ----------
        i, j : int
            Numbers of the inputs.
        epsilon : (e,) float
        """
        p, q = (np.asarray(self.weights(np.array([x]))[0], np.float64) for x in (i, j))
        factor = np.exp(np.asarray(epsilon, dtype=np.float64))[..., None]
        return np.asarray(np.maximum(p - factor * q, 0.0).sum(axis=-1) / float(self.total))

    def _blocks(self) -> Iterator[tuple[NDArray[np.int64], Array]]:
        k, m = len(self.labels), self.weights(np.array([0])).shape[1]
        step = max(1, (1 << 22) // m)  # so many weights are held at once
        for start in range(0, k, step):
            rows = np.arange(start, min(start + step, k))
            block = self.weights(rows)
            for row, total in zip(rows, _totals(block), strict=True):
                if total != self.total:
                    raise ValueError(f"the law of {self.labels[row]} adds up to {total}")
            yield rows, block


def _totals(block: Array) -> list[int]:
    """Add up rows without wrapping."""
    if block.dtype == object:
        return [int(t) for t in block.sum(axis=1)]
    words = block.astype(np.uint64)
    high = (words >> np.uint64(32)).sum(axis=1, dtype=np.uint64)
    low = (words & np.uint64(0xFFFFFFFF)).sum(axis=1, dtype=np.uint64)
    return [(int(h) << 32) + int(x) for h, x in zip(high, low, strict=True)]


def _largest_ratio(high: Array, low: Array) -> int:
    """Find the column of the largest quotient, exactly; one without a denominator wins."""
    impossible = np.flatnonzero((low == 0) & (high > 0))
    if len(impossible):
        return int(impossible[0])
    possible = np.flatnonzero(high > 0)
    ratio = np.asarray(high[possible], np.float64) / np.asarray(low[possible], np.float64)
    near = possible[ratio >= ratio.max() * (1 - 1e-12)]  # doubles decide up to 2^-52; integers here
    distinct = {(int(high[z]), int(low[z])): int(z) for z in near}
    return distinct[max(distinct, key=lambda pair: Fraction(*pair))]
