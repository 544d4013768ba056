"""Sums of many users' reports, drawn from their exact joint law without making the reports."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedhist.users.streams import integer_threshold


def vote_totals(
    counts: NDArray[np.int64], n_users: ArrayLike, flip: float, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Draw how many of n users report a one at each position, given how many have one there.

    Given the true votes the reported bits are independent, so that the total at a position with c
    true votes is Bin(c, 1 - flip) + Bin(n - c, flip), independently over positions.

    Parameters
    ----------
    counts : (...) int64
        True votes, at most n_users.
    n_users : int or array that broadcasts against ``counts``
        Users who vote.
    flip : float
        Probability that a bit is flipped, as the channel gives it; what is drawn by a client is
        its integer threshold over 2^64.
    rng : numpy.random.Generator

    Returns
    -------
    (...) int64

    Examples
    --------
    >>> vote_totals(np.array([2, 0]), 3, 0.0, np.random.default_rng(0))
    array([2, 0])
    """
    p = float(integer_threshold(flip)) / 2.0**64
    others = np.broadcast_to(np.asarray(n_users), counts.shape) - counts
    return np.asarray(rng.binomial(counts, 1.0 - p) + rng.binomial(others, p), dtype=np.int64)
