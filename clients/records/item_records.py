"""Records of single samples: one drawn from each user's, or all of them, each by itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedhist.base.arrays import Floats, Integers, Words, offsets
from fedhist.users.batch import Users
from fedhist.users.columns import Samples
from fedhist.users.streams import LANES, Streams, clear_tail, integer_threshold


def draw_one(users: Users, words: Words) -> Users:
    """Keep one sample of each user, drawn uniformly; a user without samples stays without.

    Parameters
    ----------
    users : Users
        With real samples, fewer than 2^32 of one user.
    words : (n,) uint64
        One private word per user: sample floor(h T / 2^32), h its upper half. The probabilities
        are uniform up to T / 2^32; no privacy rests on them.

    Examples
    --------
    >>> users = Users.from_records({"ann": [1.0, 2.0], "bob": []})
    >>> one = draw_one(users, np.array([0, 1 << 63], dtype=np.uint64))
    >>> sorted(one.n_items().tolist())
    [0, 1]
    """
    samples = users.reals
    sizes = np.diff(samples.indptr)
    index = (words >> np.uint64(32)) * sizes.astype(np.uint64) >> np.uint64(32)
    held = sizes > 0
    rows = (samples.indptr[:-1] + index.astype(np.int64))[held]
    indptr = offsets(held)
    return replace(users, samples=Samples(indptr, samples.values[rows]))


def one_value(users: Users, words: Words) -> Floats:
    """Draw one sample of each user, of one dimension: (n,) float64.

    NaN for an unusable record: no samples, or a NaN among them, whichever is drawn.

    Parameters
    ----------
    users : Users
    words : (n,) uint64
        As of :func:`draw_one`.

    Examples
    --------
    >>> users = Users.from_records({"ann": [1.0], "bob": [], "cat": [1.0, np.nan]})
    >>> float(np.nansum(one_value(users, np.zeros(3, dtype=np.uint64))))
    1.0
    """
    samples = users.reals
    broken = offsets(np.isnan(samples.values[:, 0]))
    usable = (np.diff(broken[samples.indptr]) == 0) & (np.diff(samples.indptr) > 0)
    one = draw_one(users, words).reals
    out = np.full(len(users), np.nan)
    out[usable] = one.values[usable[np.diff(samples.indptr) > 0], 0]
    return out


def each_alone(users: Users) -> tuple[Users, Integers]:
    """Make every sample a record of its own: the records, and (n + 1,) bounds of each user's."""
    samples = users.reals
    m = len(samples.values)
    alone = Samples(np.arange(m + 1), samples.values)
    return Users(np.arange(m, dtype=np.uint64), samples=alone), samples.indptr


class ItemStreams(Streams):
    """One stream per item of each user, out of the users' own streams.

    Parameters
    ----------
    rng : Streams
        The users'.
    indptr : (n + 1,) int64
        User u has items ``indptr[u]`` to ``indptr[u + 1]``.
    """

    def __init__(self, rng: Streams, indptr: Integers) -> None:
        self._rng, self._indptr = rng, indptr
        self.n_users = int(indptr[-1])

    def substream(self, purpose: str) -> ItemStreams:
        """Return independent streams for one named purpose."""
        return ItemStreams(self._rng.substream(purpose), self._indptr)

    def words(self, n_draws: int) -> Words:
        """Draw uniform 64-bit words: (items, n_draws)."""
        return self._rng.ragged_words(self._indptr * n_draws).reshape(-1, n_draws)

    def ragged_words(self, indptr: Integers) -> Words:
        """Draw a different number of words per item; see the base class."""
        return self._rng.ragged_words(indptr[self._indptr])

    def bernoulli_bits(self, n_bits: int, probability: float) -> Words:
        """Draw packed Bernoulli bits, each from a word of its own; see the base class."""
        lanes = -(-n_bits // LANES)
        hit = self.words(lanes * LANES) < integer_threshold(probability)
        packed = np.packbits(hit, axis=1, bitorder="little").view("<u8").astype(np.uint64)
        return clear_tail(packed, n_bits)
