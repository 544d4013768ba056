"""Private randomness of the client half: one stream per user, vectorised over users.

A client half never holds a global generator. It receives ``rng: Streams``, names a substream per
purpose and draws; draw indices depend on the user's own record only, so splitting or reordering a
batch changes no other user's draws.

Two grades share one interface: :class:`SeededStreams` (simulation: a function of seed, query,
round, user, purpose and draw index, so a retry repeats the same answer) and
:class:`SystemStreams` (deployment: ChaCha20 keyed by system entropy).
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from functools import lru_cache

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from numpy.typing import NDArray

from fedhist.base.arrays import Floats, Words
from fedhist.base.hashing import (
    GOLDEN,
    bernoulli_bits_kernel,
    digest64,
    mix64,
    user_keys_kernel,
    user_words_kernel,
)


def integer_threshold(probability: float | Floats) -> Words:
    """Turn probabilities into 64-bit thresholds, rounded TOWARDS one half.

    ``word < threshold`` then happens with probability threshold / 2^64, which never lies further
    from one half than the probability asked for: rounding can only strengthen a randomizer whose
    privacy is a ratio of keep to flip.

    Parameters
    ----------
    probability : float or array, in [0, 1)

    Returns
    -------
    uint64 array of the same shape

    Raises
    ------
    ValueError
        If a probability lies outside [0, 1).
    """
    p = np.asarray(probability, dtype=np.float64)
    if not ((p >= 0) & (p < 1)).all():
        raise ValueError(f"probabilities must lie in [0, 1), got {probability}")
    # A float64 below 1 times 2^64 is exact unless it is below 2^-11; there it is rounded up,
    # towards one half. Above one half the product is already an integer.
    scaled = np.ldexp(p, 64)
    return np.ceil(scaled).astype(np.uint64)


class Streams(ABC):
    """One private stream per user of a batch.

    A seeded stream is a function: drawing twice from the SAME substream repeats the same words.
    Every draw of a kernel therefore takes a substream of its own, named by its purpose.

    Attributes
    ----------
    n_users : int
        Rows of everything that is drawn.
    """

    n_users: int

    @abstractmethod
    def substream(self, purpose: str) -> Streams:
        """Return independent streams for one named purpose."""

    @abstractmethod
    def rows(self, start: int, stop: int) -> Streams:
        """Return the streams of some of the users: what these would draw among all, or as good."""

    @abstractmethod
    def words(self, n_draws: int) -> Words:
        """Draw uniform 64-bit words: (n_users, n_draws)."""

    @abstractmethod
    def ragged_words(self, indptr: NDArray[np.int64]) -> Words:
        """Draw ``indptr[u + 1] - indptr[u]`` words for user u: (indptr[-1],) uint64."""

    @abstractmethod
    def bernoulli_bits(self, n_bits: int, probability: float) -> Words:
        """Draw n_bits independent Bernoulli bits per user, packed little-endian into words.

        Parameters
        ----------
        n_bits : int
        probability : float
            In [0, 1); one public constant for all bits, exact to 2^-64, rounded towards 1/2.

        Returns
        -------
        (n_users, ceil(n_bits / 64)) uint64; bits from n_bits on are zero
        """

    def uniform(self, n_draws: int) -> Floats:
        """Draw uniforms strictly inside (0, 1), 52 bits: (n_users, n_draws)."""
        return unit_interval(self.words(n_draws))

    def bernoulli(self, probability: Floats) -> NDArray[np.bool_]:
        """Draw one Bernoulli bit per user: probability (n_users,) in [0, 1]; returns bool."""
        p = np.asarray(probability, dtype=np.float64)
        certain = p == 1.0
        hit = self.words(1)[:, 0] < integer_threshold(np.where(certain, 0.0, p))
        return np.asarray(hit | certain)


def unit_interval(words: Words) -> Floats:
    """Map words to the midpoints of 2^52 equal cells of (0, 1); finer ones would round to 1."""
    return np.asarray(((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52)


def clear_tail(bits: Words, n_bits: int) -> Words:
    """Zero the bits from n_bits on, in place; returns the same array."""
    if n_bits % 64:
        bits[:, -1] &= np.uint64((1 << (n_bits % 64)) - 1)
    return bits


_digest64 = lru_cache(maxsize=1024, typed=True)(digest64)
"""Thousands of small nodes of a process draw under the same few names."""


class SeededStreams(Streams):
    """Counter-based streams of the simulation.

    Parameters
    ----------
    ids : (n_users,) uint64
        Public user ids.
    seed : int
        The simulation's seed.
    context : str
        What the draws are for: query digest and round.
    """

    def __init__(self, ids: Words, seed: int, context: str) -> None:
        self._ids = ids
        self._root = _digest64("fedhist.streams", seed, context)
        self.n_users = len(ids)

    @classmethod
    def _of(cls, ids: Words, root: int) -> SeededStreams:
        streams = cls.__new__(cls)
        streams._ids, streams._root, streams.n_users = ids, root, len(ids)
        return streams

    @property
    def keys(self) -> Words:
        """One 64-bit key per user, (n_users,)."""
        keys = np.empty(self.n_users, dtype=np.uint64)
        user_keys_kernel(self._ids, np.uint64(self._root), keys)
        return keys

    def substream(self, purpose: str) -> SeededStreams:
        return self._of(self._ids, _digest64(self._root, purpose))

    def rows(self, start: int, stop: int) -> SeededStreams:
        return self._of(self._ids[start:stop], self._root)

    def words(self, n_draws: int) -> Words:
        words = np.empty((self.n_users, n_draws), dtype=np.uint64)
        user_words_kernel(self._ids, np.uint64(self._root), words)
        return words

    def ragged_words(self, indptr: NDArray[np.int64]) -> Words:
        sizes = np.diff(indptr)
        index = np.arange(1, indptr[-1] + 1, dtype=np.uint64) - np.repeat(
            indptr[:-1].astype(np.uint64), sizes
        )
        counters = np.repeat(self.keys, sizes) + (index * np.uint64(GOLDEN)).astype(np.uint64)
        return mix64(counters)

    def bernoulli_bits(self, n_bits: int, probability: float) -> Words:
        bits = np.empty((self.n_users, -(-n_bits // 64)), dtype=np.uint64)
        bernoulli_bits_kernel(self.keys, integer_threshold(probability)[()], bits)
        return clear_tail(bits, n_bits)


class SystemStreams(Streams):
    """ChaCha20 keystream keyed by system entropy, for real clients. No seed, never repeats."""

    def __init__(self, n_users: int) -> None:
        self.n_users = n_users
        cipher = Cipher(algorithms.ChaCha20(os.urandom(32), os.urandom(16)), mode=None)
        self._keystream = cipher.encryptor()

    def substream(self, purpose: str) -> SystemStreams:
        return SystemStreams(self.n_users)

    def rows(self, start: int, stop: int) -> SystemStreams:
        return SystemStreams(stop - start)

    def _draw(self, *shape: int) -> Words:
        raw = self._keystream.update(bytes(8 * int(np.prod(shape))))
        return np.frombuffer(raw, dtype="<u8").astype(np.uint64).reshape(shape)

    def words(self, n_draws: int) -> Words:
        return self._draw(self.n_users, n_draws)

    def ragged_words(self, indptr: NDArray[np.int64]) -> Words:
        return self._draw(int(indptr[-1]))

    def bernoulli_bits(self, n_bits: int, probability: float) -> Words:
        bits = np.empty((self.n_users, -(-n_bits // 64)), dtype=np.uint64)
        for word in bits.T:  # of 64 bits, each of which takes a word of its own
            hit = self.words(64) < integer_threshold(probability)
            word[:] = np.packbits(hit, axis=1, bitorder="little").view("<u8")[:, 0]
        return clear_tail(bits, n_bits)
