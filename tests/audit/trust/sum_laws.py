"""The law of what a server sees under aggregate trust, enumerated: noise of so many shares.

The server knows everything but one user's record: it subtracts what the other users add. What is
left is the user's own integers and the shares of the nodes that do not collude. The laws are put
together here from what a share is, and from nothing that a mechanism says of their sum.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from fedhist.base.arrays import Floats
from fedhist.privacy.shares import ShareNoise

Move = tuple[int, ...]
"""How far a user moves each integer that it moves, in steps: absolute values, the largest first."""

ROUNDED = 1e-6
"""More than the relative error of an epsilon that is enumerated: taken off what is certified."""
SEEN = 1e-7
"""Probabilities below this one have too few digits, after a transform, for a ratio."""
STEPS = 1 << 14
"""Grid points per unit of epsilon for losses that are added up; they are rounded down to it."""
MOST_LOSS = 24.0
"""Losses beyond have no weight to speak of: of one integer they are left out, sums may wrap."""
WIDE = 2048.0
"""Laplace noise of a larger scale, in steps, is looked at in coarser ones: :func:`coarse`."""
SMOOTH, SMOOTHED = 64.0, 1e-3
"""From this std on a discrete Gaussian is taken for a continuous one; what that may change."""


def move_of(difference: NDArray[np.int64]) -> Move:
    """Order a difference of sums by size, which is all that symmetric noise leaves of it.

    Examples
    --------
    >>> move_of(np.array([0, 2, -3]))
    (3, 2)
    """
    size = np.abs(difference[difference != 0].ravel())
    return tuple(sorted(size.tolist(), reverse=True))


@lru_cache(maxsize=64)
def law_of_shares(noise: ShareNoise, shares: int) -> Floats:
    """Law of the sum of so many shares at the integers -k, ..., k.

    laplace: the inverse transform of |(1 - p) / (1 - p e^it)|^(2 shares / M), or the discrete
    Laplace law itself where the shares are M; gaussian: N_Z of the summed variance parameters,
    within a factor of e^1e-27 (:mod:`fedhist.privacy.lattice_gaussian`).
    """
    size = noise.size
    if noise.kind == "gaussian":
        std = size * math.sqrt(shares / noise.honest)
        reach = max(math.ceil(13 * std), 16)
        k = np.arange(-reach, reach + 1)
        weights = np.exp(-0.5 * (k / std) ** 2)
        return np.asarray(weights / weights.sum())
    shape = shares / noise.honest
    reach = max(math.ceil((40 + 8 * math.sqrt(shape)) * size), 16)
    k = np.arange(-reach, reach + 1)
    if shares == noise.honest:
        return np.asarray(math.tanh(0.5 / size) * np.exp(-np.abs(k) / size))
    n = 1 << (2 * reach).bit_length()
    p = math.exp(-1 / size)
    around = np.abs((1 - p) / (1 - p * np.exp(2j * np.pi * np.arange(n // 2 + 1) / n)))
    return np.asarray(np.maximum(np.fft.irfft(around ** (2 * shape), n)[k], 0.0))


def coarse(noise: ShareNoise, move: Move) -> tuple[ShareNoise, Move]:
    """Look at wide Laplace noise, and at moves by it, in multiples of the step, moves rounded down.

    Examples
    --------
    >>> coarse(ShareNoise("laplace", 8192.0, 8), (8191, 3))[1]
    (2047,)
    """
    unit = max(1, math.ceil(noise.size / WIDE))
    if unit == 1 or noise.kind == "gaussian":
        return noise, move
    return replace(noise, size=noise.size / unit), tuple(m // unit for m in move if m >= unit)


def epsilon_of_shares(noise: ShareNoise, shares: int, move: Move, delta: float) -> float:
    """Least epsilon at which the law keeps delta for a user who moves the sums so: from below.

    The entries' noises are independent. At delta = 0 the largest log-ratios of the entries add up.
    Otherwise the hockey-stick divergence is added up: exactly where one integer is moved, over sums
    of losses that are rounded down where several are, and in closed form for a wide Gaussian.

    Examples
    --------
    >>> noise = ShareNoise("laplace", 4.0, 8)
    >>> [round(epsilon_of_shares(noise, m, (4,), 0.0), 2) for m in (10, 8, 7)]
    [1.0, 1.0, 1.2]
    """
    if not move:
        return 0.0
    if not noise.size or not shares:
        return math.inf
    noise, move = coarse(noise, move)
    margin = SMOOTHED if _is_smooth(noise, shares) else ROUNDED
    if not delta:
        each = Counter(move)
        total = math.fsum(c * _most_ratio(noise, shares, step) for step, c in each.items())
        return total * (1 - margin)
    low, high = 0.0, 1.0
    while delta_of_shares(noise, shares, move, high) > delta:
        low, high = high, 2 * high
        if high > MOST_LOSS / 2:
            return low * (1 - margin)
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        inside = delta_of_shares(noise, shares, move, middle) > delta
        low, high = (middle, high) if inside else (low, middle)
    return low * (1 - margin)


def delta_of_shares(noise: ShareNoise, shares: int, move: Move, epsilon: float) -> float:
    """Hockey-stick divergence at e^epsilon, from below up to doubles; of noise that is not wide."""
    if _is_smooth(noise, shares):
        mu = math.hypot(*move) / (noise.size * math.sqrt(shares / noise.honest))
        out, back = ndtr([mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu])
        return float(out - math.exp(epsilon) * back)
    if len(move) == 1:
        law = law_of_shares(noise, shares)
        step = min(move[0], len(law))
        moved = np.concatenate([np.zeros(step), law])[: len(law)]
        gain = law - math.exp(epsilon) * moved
        return float(gain[gain > 0].sum())
    losses, masses = _added_losses(noise, shares, move)
    over = losses > epsilon
    return float((masses[over] * -np.expm1(epsilon - losses[over])).sum())


def _is_smooth(noise: ShareNoise, shares: int) -> bool:
    return noise.kind == "gaussian" and noise.size**2 * shares >= SMOOTH**2 * noise.honest


@lru_cache(maxsize=4096)
def _most_ratio(noise: ShareNoise, shares: int, step: int) -> float:
    """Largest log-ratio between the law and its shift; that far out is known, for laplace."""
    far = step / noise.size if noise.kind == "laplace" else math.inf
    if shares == noise.honest or math.isinf(far):
        return far
    law = law_of_shares(noise, shares)
    if step >= len(law):
        return far
    shifted, here = law[:-step], law[step:]
    seen = (shifted > SEEN) & (here > SEEN)
    if not seen.any():
        return far
    return max(far, float(np.log(here[seen] / shifted[seen]).max()))


@lru_cache(maxsize=8)
def _added_losses(noise: ShareNoise, shares: int, move: Move) -> tuple[Floats, Floats]:
    """Law of the privacy loss of all moved integers: values on a grid, and masses."""
    law = law_of_shares(noise, shares)
    width = 2 * round(MOST_LOSS * STEPS)
    spectrum = np.ones(width // 2 + 1, dtype=np.complex128)
    for step, count in Counter(move).items():
        if step >= len(law):
            continue  # left out: a loss of 0 is less than what it is
        p, moved = law[step:], law[:-step]
        kept = (p > SEEN**2) & (moved > SEEN**2)
        loss = np.floor(np.log(p[kept] / moved[kept]) * STEPS).astype(np.int64)
        inside = np.abs(loss) < width // 2
        masses = np.bincount(loss[inside] % width, p[kept][inside], width)
        spectrum *= np.fft.rfft(masses) ** count
    masses = np.maximum(np.fft.irfft(spectrum, width), 0.0)
    at = np.arange(width)
    values = np.where(at < width // 2, at, at - width) / STEPS
    return np.asarray(values), np.asarray(masses, dtype=np.float64)
