"""Sums of many users' oracle reports, drawn from their exact joint law without the reports."""

from __future__ import annotations

import numpy as np

from fedhist.base.arrays import Integers
from fedhist.channels.bit_oracles import SubsetOracle, UnaryOracle
from fedhist.channels.oracle_base import OracleChannel
from fedhist.channels.summed_reports import vote_totals
from fedhist.channels.symbol_oracles import SymbolOracle

_AT_ONCE = 1 << 22


def draw_counts(
    true_counts: Integers, channel: OracleChannel, generator: np.random.Generator
) -> Integers:
    """Draw the folded reports of many users, given how many have each symbol.

    Parameters
    ----------
    true_counts : (k + 1,) int64
        Users with each symbol, and last those with none.
    channel : OracleChannel
    generator : numpy.random.Generator

    Returns
    -------
    (channel.size,) int64

    Examples
    --------
    >>> from fedhist.channels.oracles import oracle_channel
    >>> channel = oracle_channel("krr", float("inf"), 2)
    >>> draw_counts(np.array([3, 0, 1]), channel, np.random.default_rng(0)).tolist()
    [3, 0, 1, 0]
    """
    if isinstance(channel, UnaryOracle):
        votes, unary = true_counts[:-1], channel.channel
        kept = generator.binomial(votes, unary.keep)
        others = int(true_counts.sum()) - votes
        return kept + vote_totals(np.zeros_like(votes), others, unary.flip, generator)
    if isinstance(channel, SubsetOracle):
        return _subset_counts(true_counts, channel, generator)
    if isinstance(channel, SymbolOracle):
        return _symbol_counts(true_counts, channel, generator)
    raise TypeError(f"no summed law is known for a channel of kind {channel.kind!r}")


def _symbol_counts(
    true_counts: Integers, channel: SymbolOracle, generator: np.random.Generator
) -> Integers:
    """Say who speaks in the upper layer, and name uniform members; the rest is the same for all."""
    law = channel.layers
    upper = generator.binomial(true_counts, law.gain)
    rest = int(true_counts.sum() - upper.sum())
    erased = int(generator.binomial(rest, min(law.erased / (1.0 - law.gain), 1.0))) if rest else 0
    counts = np.zeros(channel.size, dtype=np.int64)
    counts[-1] = erased
    counts[:-1] = _uniform_counts(rest - erased, law.size, generator)
    ends = np.cumsum(upper)
    for first in range(0, int(ends[-1]), _AT_ONCE):
        speaker = np.arange(first, min(first + _AT_ONCE, int(ends[-1])))
        symbol = np.searchsorted(ends, speaker, side="right")
        rank = generator.integers(law.chosen, size=len(speaker))
        counts += np.bincount(channel.members(symbol, rank), minlength=channel.size)
    return counts


def _uniform_counts(n: int, size: int, generator: np.random.Generator) -> Integers:
    """Put n balls into ``size`` urns: one by one if there are few."""
    if n < size:
        return np.bincount(generator.integers(size, size=n), minlength=size).astype(np.int64)
    return np.asarray(generator.multinomial(n, np.full(size, 1.0 / size)))


def _subset_counts(
    true_counts: Integers, channel: SubsetOracle, generator: np.random.Generator
) -> Integers:
    """Walk through the symbols with groups of users who still need r others, r = 0, ..., w.

    A uniform subset takes the next of m others that are left with probability r / m,
    independently over users. Before its own symbol a user's path does not depend on which symbol
    that is, so that the users who meet their own are a uniform sample of those who have not yet.
    """
    w, total = channel.chosen, channel.size
    n = int(true_counts.sum())
    n_inside = int(generator.binomial(n, channel.p))
    # before the own symbol, [own out, own in], and after it; a column for each r
    before = np.zeros((2, w + 1), dtype=np.int64)
    before[0, w], before[1, w - 1] = n - n_inside, n_inside
    after = np.zeros(w + 1, dtype=np.int64)
    counts = np.zeros(total, dtype=np.int64)
    need = np.arange(w + 1)
    low, high = w - 1, w  # columns in use
    for x in range(total):
        here = slice(low, high + 1)
        groups = before[:, here]
        met = generator.multivariate_hypergeometric(
            groups.ravel(), int(true_counts[x]), method="marginals"
        ).reshape(groups.shape)
        groups -= met
        counts[x] = met[1].sum()
        unmet = total - 1 - x  # others that are left, this one among them
        for group, left in ((before[0], unmet), (before[1], unmet), (after, unmet + 1)):
            taking = generator.binomial(group[here], np.minimum(need[here] / max(left, 1), 1.0))
            counts[x] += taking.sum()
            group[here] -= taking
            if low == 0:
                group[:high] += taking[1:]
            else:
                group[low - 1 : high] += taking
        after[here] += met.sum(axis=0)
        low = max(low - 1, 0)
        window = slice(low, high + 1)
        used = np.flatnonzero(before[:, window].any(axis=0) | (after[window] > 0))
        if len(used):
            low, high = low + int(used[0]), low + int(used[-1])
    return counts
