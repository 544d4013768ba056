"""A node's share of the noise, in two grades.

*simulated* (with a seed): compiled kernels, keyed by seed, question and node, so that a repeated
question gets the same share on every runtime, in nanoseconds. *secure* (without): integers against
integer thresholds, or OpenDP's samplers, on system entropy; the caller keeps what was drawn, for it
is never drawn twice for one question.

A negative binomial of shape 1 / M is a Poisson number of logarithmic jumps [1]_, -ln(1 - p) / M of
them on average: a share is 0 nearly everywhere, and costs what its jumps cost. This holds for any
scale, where a table of the law would have 72 entries for each step of it.

References
----------
.. [1] Quenouille, "A relation between the logarithmic, Poisson, and negative binomial series",
   Biometrics 5, 1949.
"""

from __future__ import annotations

import math
import os
import secrets
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context, Decimal, localcontext
from functools import lru_cache
from typing import Any

import numpy as np
from numba import uint64
from numpy.typing import NDArray

from fedhist.base.arrays import Integers, Words
from fedhist.base.hashing import GOLDEN, digest64, mix
from fedhist.base.lazy import kernel
from fedhist.privacy.noise_law import exact_noise
from fedhist.privacy.shares import ShareNoise

WORK, BITS = 192, 128
"""Fractional bits in which probabilities are computed; bits of a random number, and of the
threshold that it is compared with."""


def draw_share(
    noise: ShareNoise, entries: int, *, seed: int | None, node: int, digest: str
) -> NDArray[np.int64]:
    """Draw one node's share for all integers of its answer: (entries,) int64."""
    if not noise.size:
        return np.zeros(entries, dtype=np.int64)
    if seed is None:
        if noise.kind == "gaussian":
            return exact_noise("gaussian", (entries,), noise.share)
        return exact_differences(noise.size, noise.honest).draw(entries)
    key = digest64("fedhist.shares", seed, digest, node)
    if noise.kind == "laplace":
        return laplace_share(key, entries, noise.size, noise.honest)
    return gaussian_share(key, entries, noise.share)


@dataclass(frozen=True, eq=False)
class ExactDifferences:
    """Differences of negative binomials, from system entropy and in integers only.

    ``high`` and ``low`` are words of T_0 <= T_1 <= ...: the partial sums of the Poisson law of the
    number of jumps, in units of 2^-128, rounded down. A draw of 128 bits below T_j, and not below
    T_(j-1), is j. ``powers`` are p^(2^i) in units of 2^-192, rounded down.

    Privacy
    -------
    Each of X and Y is within 2^-110 of its law in total variation: :attr:`total_variation`. The
    N d shares of a sum then turn epsilon-DP into (epsilon, delta)-DP with
    delta = 4 (1 + exp(epsilon)) N d 2^-110, below 1e-20 for 10^10 shares at epsilon = 1.
    """

    high: Words
    low: Words
    powers: tuple[int, ...]

    @property
    def total_variation(self) -> float:
        """Bound on the distance of one negative binomial draw from its law.

        The number of jumps: half of 2^-128 for each entry of the table, 2^-127 behind it. A jump:
        over all J octaves, thresholds take at most 2^-128 from the chance -ln(1 - p) / J that a
        proposal is kept, and what lies behind them is less; there are -ln(1 - p) / M jumps.
        """
        return math.ldexp(len(self.high) / 2 + 3 + len(self.powers), -BITS)

    def draw(self, entries: int) -> NDArray[np.int64]:
        """Draw X - Y for each entry: (entries,) int64."""
        words = np.frombuffer(os.urandom(32 * entries), dtype="<u8").astype(np.uint64)
        counts = self.jumps(words[0::2], words[1::2])
        at = np.repeat(np.arange(2 * entries), counts)
        size = np.array([self.jump() for _ in range(len(at))], dtype=np.int64)
        out = np.zeros(entries, dtype=np.int64)
        np.add.at(out, at >> 1, np.where(at & 1, -size, size))
        return out

    def jumps(self, high: Words, low: Words) -> NDArray[np.int64]:
        """Turn uniform words, two a draw, into numbers of jumps: (n,) int64."""
        out = np.zeros(high.shape, dtype=np.int64)
        for t_high, t_low in zip(self.high, self.low, strict=True):
            at_least = (high > t_high) | ((high == t_high) & (low >= t_low))
            if not at_least.any():
                break
            out += at_least
        return out

    def jump(self) -> int:
        """Draw k >= 1 with P(k) ~ p^k / k.

        A uniform octave, a uniform k = 2^j ... 2^(j+1) - 1 of it, kept with probability
        2^j p^k / k.
        """
        while True:
            j = secrets.randbelow(len(self.powers))
            k = secrets.randbelow(1 << j) + (1 << j)
            if secrets.randbits(BITS) < self.threshold(j, k):
                return k

    def threshold(self, j: int, k: int) -> int:
        """2^j p^k / k in units of 2^-128, rounded down."""
        kept = 1 << WORK
        for i in range(j + 1):
            if k >> i & 1:
                kept = kept * self.powers[i] >> WORK
        return (kept << j) // k >> (WORK - BITS)


@lru_cache(maxsize=64)
def exact_differences(scale: float, honest: int) -> ExactDifferences:
    """Prepare draws of shape 1 / honest and p = exp(-1 / scale)."""
    with localcontext(Context(prec=90, rounding=ROUND_FLOOR)):
        p = (Decimal(-1) / Decimal(scale)).exp()
        rate = (1 - p).ln() / -honest
        w, total, sums = (-rate).exp(), Decimal(0), []
        while int(w * (1 << BITS)):
            total += w
            sums.append(min(int(total * (1 << BITS)), (1 << BITS) - 1))
            w = w * rate / len(sums)
        powers, power = [int(p * (1 << WORK))], p
        while (1 << len(powers)) < 89 * scale:  # p^(89 scale) < 2^-128
            power *= power
            powers.append(int(power * (1 << WORK)))
    mask = (1 << 64) - 1
    high = np.array([t >> 64 for t in sums], dtype=np.uint64)
    return ExactDifferences(high, np.array([t & mask for t in sums], np.uint64), tuple(powers))


def laplace_share(key: int, entries: int, scale: float, honest: int) -> Integers:
    """Draw differences of negative binomials of shape 1 / honest, at the cost of the jumps.

    ``key`` lies in [0, 2^64), and ``scale`` is that of the sum of ``honest`` shares. The jumps of
    all entries are one Poisson process.
    """
    out = np.zeros(entries, dtype=np.int64)
    log_stop = math.log(-math.expm1(-1 / scale))
    if log_stop < 0:  # else no draw differs from 0
        _jumps(np.uint64(key), log_stop, honest / -log_stop, out)
    return out


def gaussian_share(key: int, entries: int, std: float) -> Integers:
    """Draw integers with P(k) ~ exp(-k^2 / (2 std^2)): (entries,) int64; key in [0, 2^64)."""
    out = np.empty(entries, dtype=np.int64)
    _gaussians(np.uint64(key), std, out)
    return out


@kernel(inline="always")
def _unit(word: Any) -> Any:
    """Map a word into (0, 1], 53 bits."""
    return (np.float64(word >> uint64(11)) + 1.0) * 2.0**-53


@kernel()
def _jumps(key: np.uint64, log_stop: float, gap: float, out: Integers) -> None:
    """Walk over X and Y of every entry, a jump each ``gap`` of them on average."""
    counter, at, end = key, 0.0, 2.0 * out.shape[0]
    while True:
        counter += uint64(GOLDEN)
        at -= gap * math.log(_unit(mix(counter)))
        if at >= end:
            return
        counter += uint64(GOLDEN)
        stop = math.exp(log_stop * _unit(mix(counter)))
        counter += uint64(GOLDEN)
        size = np.int64(1)
        if stop < 1.0:
            size += np.int64(math.floor(math.log(_unit(mix(counter))) / math.log1p(-stop)))
        slot = np.int64(at)
        out[slot >> 1] += -size if slot & 1 else size


@kernel()
def _gaussians(key: np.uint64, std: float, out: Integers) -> None:
    """Propose differences of geometrics of scale t until one is kept."""
    counter, t = key, math.floor(std) + 1.0
    for i in range(out.shape[0]):
        while True:
            counter += uint64(GOLDEN)
            y = math.floor(-t * math.log(_unit(mix(counter))))
            counter += uint64(GOLDEN)
            y -= math.floor(-t * math.log(_unit(mix(counter))))
            counter += uint64(GOLDEN)
            away = (abs(y) - std * std / t) / std
            if -math.log(_unit(mix(counter))) > away * away / 2.0:
                out[i] = y
                break
