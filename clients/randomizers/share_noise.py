"""A node's share of the noise, in two grades.

*simulated* (with a seed): NumPy, keyed by seed, node and digest of the question, so that a repeated
question gets the same share on every runtime. *secure* (without): integers against integer tables
or OpenDP's samplers, on system entropy; the caller keeps what was drawn, for it is never drawn
twice for one question.

References
----------
.. [1] Goryczka & Xiong, "A comprehensive comparison of multiparty secure additions with
   differential privacy", IEEE TDSC 2017.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context, Decimal
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedhist.base.arrays import Words
from fedhist.base.hashing import digest64
from fedhist.privacy.integer_noise import exact_gaussian, seeded_gaussian
from fedhist.privacy.shares import ShareNoise

WORK = 192
"""Fractional bits in which the probabilities of a table are computed."""

BITS = 128
"""Bits of a draw, and of the table that it is compared with."""

MOST_ENTRIES = 1 << 22
"""Of a table: reached at a scale of about 60,000 steps."""


def draw_share(
    noise: ShareNoise, entries: int, *, seed: int | None, node: int, digest: str
) -> NDArray[np.int64]:
    """Draw one node's share for all integers of its answer.

    Parameters
    ----------
    noise : ShareNoise
    entries : int
    seed : int or None
        None draws from system entropy, exactly.
    node : int
        The node's place among all that are asked.
    digest : str
        Of the question.

    Returns
    -------
    (entries,) int64
    """
    if not noise.size:
        return np.zeros(entries, dtype=np.int64)
    if seed is None:
        if noise.kind == "gaussian":
            return exact_gaussian((entries,), noise.share)
        return negative_binomial_table(noise.size, noise.honest).differences(entries)
    key = digest64("fedhist.shares", seed, digest) << 64 | digest64("node", node)
    rng = np.random.Generator(np.random.Philox(key=key))
    if noise.kind == "gaussian":
        return seeded_gaussian(rng, (entries,), noise.share)
    return seeded_differences(rng, entries, noise.size, noise.honest)


def seeded_differences(
    rng: np.random.Generator, entries: int, scale: float, honest: int
) -> NDArray[np.int64]:
    """Draw differences of negative binomials of shape 1 / honest, at the cost of the jumps.

    A negative binomial is a Poisson number of logarithmic jumps: -ln(1 - p) / honest of them on
    average, so that almost all shares are 0. A logarithmic jump is geometric, with a chance
    (1 - p)^U to stop, U uniform.
    """
    log_stop = math.log(-math.expm1(-1 / scale))
    jumps = int(rng.poisson(2 * entries * -log_stop / honest))
    at = rng.integers(2 * entries, size=jumps)
    size = rng.geometric(np.exp(log_stop * rng.random(jumps)))
    out = np.zeros(entries, dtype=np.int64)
    np.add.at(out, at >> 1, np.where(at & 1, -size, size))
    return out


@dataclass(frozen=True, eq=False)
class NegativeBinomialTable:
    """Cumulative law of a negative binomial in units of 2^-128, for draws by inversion.

    Attributes
    ----------
    high, low : (k,) uint64
        Words of T_0 <= T_1 <= ...: a draw of 128 bits below T_j, and not below T_(j-1), is j.
    total_variation : float
        Distance of one draw from the law it stands for: what rounding the T_j down takes from one
        mass and gives to the next, half of it in all, and the mass behind the last entry. Below
        2^-110 up to a scale of 20,480; the N d draws of a sum then turn epsilon-DP into
        (epsilon, delta)-DP with delta = 2 (1 + exp(epsilon)) N d times this.
    """

    high: Words
    low: Words
    total_variation: float

    def draw(self, high: Words, low: Words) -> NDArray[np.int64]:
        """Turn uniform words, two a draw, into draws: (n,) int64."""
        out = np.zeros(high.shape, dtype=np.int64)
        some = np.flatnonzero(high >= self.high[0])  # most shares are 0
        words, lows = high[some], low[some]
        # entries that lie below for their high word alone, and those that share it
        first = np.searchsorted(self.high, words, side="left")
        last = np.searchsorted(self.high, words, side="right")
        found = last.astype(np.int64)
        for i in np.flatnonzero(first < last):
            tied = self.low[first[i] : last[i]]
            found[i] = first[i] + np.searchsorted(tied, lows[i], side="right")
        out[some] = found
        return out

    def differences(self, entries: int) -> NDArray[np.int64]:
        """Draw X - Y for each entry from system entropy: (entries,) int64."""
        words = np.frombuffer(os.urandom(32 * entries), dtype="<u8").astype(np.uint64)
        draws = self.draw(words[0::2], words[1::2])
        return np.asarray(draws[:entries] - draws[entries:])


@lru_cache(maxsize=4)
def negative_binomial_table(scale: float, honest: int) -> NegativeBinomialTable:
    """Tabulate the law of shape 1 / honest and p = exp(-1 / scale), in integers.

    w_0 = (1 - p)^(1 / M), w_(j+1) = w_j p (1 + M j) / (M (j + 1)) with 192 bits after the point,
    until w_j < 2^-128: some 72 scale entries. What lies behind the last of them is drawn as the
    next integer.

    Raises
    ------
    ValueError
        If the table would have more than :data:`MOST_ENTRIES` entries.
    """
    sums, distance = _cumulative(scale, honest)
    raw = b"".join(t.to_bytes(BITS // 8, "little") for t in sums)
    words = np.frombuffer(raw, dtype="<u8").astype(np.uint64).reshape(-1, 2)
    return NegativeBinomialTable(words[:, 1].copy(), words[:, 0].copy(), distance)


def _cumulative(scale: float, honest: int) -> tuple[list[int], float]:
    """Return the law's partial sums, in units of 2^-128 and rounded down, and what that costs."""
    context = Context(prec=90, rounding=ROUND_FLOOR)
    p_exact = context.exp(context.divide(Decimal(-1), Decimal(scale)))
    log_w = context.divide(context.ln(context.subtract(Decimal(1), p_exact)), Decimal(honest))
    one = Decimal(1 << WORK)
    p = int(context.multiply(p_exact, one))
    w = int(context.multiply(context.exp(log_w), one))
    total, sums, j = 0, [], 0
    below, half = (1 << WORK - BITS) - 1, 0  # what is rounded away, and how much that changes
    while w >> (WORK - BITS):
        before = total & below
        total += w
        sums.append(min(total >> (WORK - BITS), (1 << BITS) - 1))
        half += abs((total & below) - before)
        w = (w * p * (1 + honest * j) >> WORK) // (honest * (j + 1))
        j += 1
        if j > MOST_ENTRIES:
            raise ValueError(
                f"secure Laplace shares of scale {scale:g} need a table of more than "
                f"{MOST_ENTRIES} entries: take a coarser grid"
            )
    behind = (scale + 1) * 2.0**-BITS  # w falls by p at least, 1 / (1 - p) < scale + 1
    return sums, math.ldexp(half, -WORK - 1) + behind
