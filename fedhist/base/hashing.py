"""64-bit mixing: SplitMix64 in counter mode, and the numba kernels of the private streams.

A stream is a function ``word(key, index) = mix64(key + (index + 1) * GOLDEN)``: stateless, so a
user's draws do not depend on who else is in the batch, and vectorised over users. Each compiled
kernel has a short obvious NumPy counterpart here or in :mod:`fedhist.users.streams` that the tests
use as the oracle.

References
----------
.. [1] Steele, Lea & Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numba import uint64
from numpy.typing import NDArray

from fedhist.base.arrays import Words
from fedhist.base.lazy import kernel

GOLDEN = 0x9E3779B97F4A7C15
MASK64 = (1 << 64) - 1


def mix64(x: Words) -> Words:
    """Mix 64-bit words: every input bit reaches every output bit (SplitMix64's finalizer)."""
    z = x ^ (x >> np.uint64(30))
    z = z * np.uint64(0xBF58476D1CE4E5B9)
    z ^= z >> np.uint64(27)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z


def counter_words(keys: Words, n_draws: int, first: int = 0) -> Words:
    """Draw ``n_draws`` words per key, draw indices ``first, first + 1, ...``, one row per key."""
    steps = np.arange(first + 1, first + n_draws + 1, dtype=np.uint64) * np.uint64(GOLDEN)
    return mix64(keys[:, None] + steps[None, :])


def digest64(*parts: bytes | memoryview | str | int) -> int:
    """Hash labelled parts to one 64-bit integer with BLAKE2b (stable over versions and machines).

    >>> digest64("a", 1) == digest64("a", 1), digest64("a", 1) == digest64("a1")
    (True, False)
    """
    h = hashlib.blake2b(digest_size=8)
    for part in parts:
        raw = part if isinstance(part, bytes | memoryview) else str(part).encode()
        h.update(len(raw).to_bytes(8, "little"))
        h.update(raw)
    return int.from_bytes(h.digest(), "little")


@kernel(inline="always")
def mix(z: Any) -> Any:
    """Mix one word as :func:`mix64` does, in compiled code."""
    z = (z ^ (z >> uint64(30))) * uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> uint64(27))) * uint64(0x94D049BB133111EB)
    return z ^ (z >> uint64(31))


@kernel(inline="always")
def unit1(word: Any) -> Any:
    """Map one word strictly inside (0, 1), 52 bits, as ``unit_interval`` of the streams does."""
    return (float(word >> uint64(12)) + 0.5) * 2.0**-52


@kernel()
def user_keys_kernel(ids: Words, root: np.uint64, out: Words) -> None:
    """Fill ``out`` with the users' keys: mix64(mix64(id + GOLDEN) ^ root)."""
    for u in range(ids.shape[0]):
        out[u] = mix(mix(ids[u] + uint64(GOLDEN)) ^ root)


@kernel()
def user_words_kernel(ids: Words, root: np.uint64, out: Words) -> None:
    """Fill ``out`` (n, n_draws) with the words of :func:`counter_words` under the users' keys."""
    if out.shape[1] == 1:  # most reports take one word: a loop over users alone is vectorised
        first = out.reshape(out.shape[0])
        for u in range(ids.shape[0]):
            first[u] = mix(mix(mix(ids[u] + uint64(GOLDEN)) ^ root) + uint64(GOLDEN))
        return
    for u in range(ids.shape[0]):
        counter = mix(mix(ids[u] + uint64(GOLDEN)) ^ root)
        for j in range(out.shape[1]):
            counter += uint64(GOLDEN)
            out[u, j] = mix(counter)


@kernel()
def keyed_hash_kernel(ids: Words, key: np.uint64, salt: np.uint64, out: Words) -> None:
    """Fill ``out`` with mix64(mix64(id ^ key) + salt)."""
    for u in range(ids.shape[0]):
        out[u] = mix(mix(ids[u] ^ key) + salt)


TOGETHER = 256
"""Users whose bits are drawn side by side: their state stays in the first-level cache."""


@kernel(forceinline=True)
def _later_bits(counter: Any, rest: Any, undecided: Any) -> Any:
    """Decide the lanes that the first words have left undecided."""
    hit = uint64(0)
    while undecided != uint64(0) and rest != uint64(0):
        counter += uint64(GOLDEN)
        word = mix(counter)
        if rest >> uint64(63):
            hit |= undecided & ~word
            undecided &= word
        else:
            undecided &= ~word
        rest = rest << uint64(1)
    return hit


@kernel()
def bernoulli_bits_kernel(keys: Words, threshold: np.uint64, out: Words) -> None:
    """Fill ``out[u, b]`` with 64 independent Bernoulli(threshold / 2^64) bits, exactly.

    The comparison U < threshold runs bit-sliced over 64 lanes, most significant bit first. The
    first words are drawn for a block of users at once, in loops without branches that the
    compiler vectorises; then each user goes on until every lane of it is decided: about 10 words
    instead of 64, and exact to the last bit. Words beyond the deciding one change nothing.
    """
    counter = np.empty(TOGETHER, dtype=np.uint64)
    undecided = np.empty(TOGETHER, dtype=np.uint64)
    hit = np.empty(TOGETHER, dtype=np.uint64)
    for b in range(out.shape[1]):
        start = uint64(b) * uint64(64) * uint64(GOLDEN)
        for first in range(0, keys.shape[0], TOGETHER):
            size = min(TOGETHER, keys.shape[0] - first)
            for i in range(size):
                counter[i] = keys[first + i] + start
                undecided[i] = uint64(0xFFFFFFFFFFFFFFFF)
                hit[i] = uint64(0)
            rest, step = threshold, uint64(0)
            for _ in range(10):  # 64 lanes are then undecided with probability 0.06
                step += uint64(GOLDEN)
                if rest >> uint64(63):
                    for i in range(size):
                        word = mix(counter[i] + step)
                        hit[i] |= undecided[i] & ~word
                        undecided[i] &= word
                else:
                    for i in range(size):
                        undecided[i] &= ~mix(counter[i] + step)
                rest = rest << uint64(1)
            for i in range(size):
                out[first + i, b] = hit[i] | _later_bits(counter[i] + step, rest, undecided[i])


@kernel()
def hash_bytes_kernel(
    offsets: NDArray[np.int64], data: NDArray[np.uint8], key: np.uint64, out: Words
) -> None:
    """Hash each byte string ``data[offsets[i]:offsets[i+1]]`` to 64 bits under a public key."""
    for i in range(offsets.shape[0] - 1):
        start, stop = offsets[i], offsets[i + 1]
        h = mix(key ^ (uint64(stop - start) * uint64(GOLDEN)))
        word = uint64(0)
        shift = uint64(0)
        for k in range(start, stop):
            word |= uint64(data[k]) << shift
            shift += uint64(8)
            if shift == uint64(64):
                h = mix(h ^ word) + uint64(GOLDEN)
                word = uint64(0)
                shift = uint64(0)
        out[i] = mix(h ^ word)
