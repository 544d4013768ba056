"""The 64-bit mix and its compiled kernels against slow Python integers."""

from __future__ import annotations

import numpy as np
import pytest

from fedhist.base.hashing import (
    GOLDEN,
    MASK64,
    TOGETHER,
    bernoulli_bits_kernel,
    counter_words,
    digest64,
    hash_bytes_kernel,
    mix64,
    user_keys_kernel,
    user_words_kernel,
)


def slow_mix(z: int) -> int:
    """Steele, Lea & Flood 2014, in Python integers."""
    z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & MASK64
    z = ((z ^ z >> 27) * 0x94D049BB133111EB) & MASK64
    return z ^ z >> 31


def slow_hash(raw: bytes, key: int) -> int:
    h = slow_mix(key ^ (len(raw) * GOLDEN & MASK64))
    for at in range(0, len(raw) // 8 * 8, 8):
        word = int.from_bytes(raw[at : at + 8], "little")
        h = (slow_mix(h ^ word) + GOLDEN) & MASK64
    return slow_mix(h ^ int.from_bytes(raw[len(raw) // 8 * 8 :], "little"))


def test_the_published_vectors() -> None:
    """SplitMix64 from state 1234567: the reference implementation's first five outputs."""
    assert counter_words(np.array([1234567], dtype=np.uint64), 5)[0].tolist() == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


def test_mix_equals_python_integers() -> None:
    x = np.random.default_rng(1).integers(0, 2**64, 1000, dtype=np.uint64)
    before = x.copy()
    assert mix64(x).tolist() == [slow_mix(int(v)) for v in x]
    assert np.array_equal(x, before)
    keys = np.array([1, 99, MASK64], dtype=np.uint64)
    whole = counter_words(keys, 10)
    assert np.array_equal(counter_words(keys, 4, first=6), whole[:, 6:])
    assert whole[2, 3] == slow_mix(MASK64 + 4 * GOLDEN & MASK64)


@pytest.mark.parametrize("key", [0, 1, 0x123456789ABCDEF0, MASK64])
def test_hash_equals_python_integers(key: int) -> None:
    rng = np.random.default_rng(3)
    strings = [rng.bytes(n) for n in [*range(40), 100, 1000]]
    strings += [b"\0" * n for n in range(20)]
    offsets = np.concatenate(([0], np.cumsum([len(s) for s in strings]))).astype(np.int64)
    data = np.frombuffer(b"".join(strings), dtype=np.uint8)
    out = np.empty(len(strings), dtype=np.uint64)
    hash_bytes_kernel(offsets, data, np.uint64(key), out)
    assert out.tolist() == [slow_hash(s, key) for s in strings]
    assert len(set(zip(strings, out.tolist(), strict=True))) == len(set(out.tolist()))


def test_digests_separate_their_parts() -> None:
    result = {
        digest64("a", "b"),
        digest64("ab"),
        digest64("a", "b", ""),
        digest64("", "ab"),
        digest64(b"a", b"bb"),
        digest64(1, 2),
        digest64(12),
    }
    assert len(result) == 7
    assert digest64("fedhist.user-id") == digest64(b"fedhist.user-id")
    assert 0 <= digest64("x") <= MASK64


def slow_bits(key: int, word: int, threshold: int) -> int:
    """Compare 64 uniform numbers, whose bits are those of the user's words, with a threshold."""
    hit = 0
    words = [slow_mix(key + (64 * word + level + 1) * GOLDEN & MASK64) for level in range(64)]
    for lane in range(64):
        x = 0
        for w in words:  # the most significant bit first
            x = 2 * x + (w >> lane & 1)
        hit |= (x < threshold) << lane
    return hit


@pytest.mark.parametrize("threshold", [0, 1, 1 << 63, 0x60A5B3C2D1E4F708, 3 << 53, MASK64])
@pytest.mark.parametrize("n", [1, TOGETHER + 3])
def test_bernoulli_bits_equal_python_integers(threshold: int, n: int) -> None:
    """Blocks, words of a row and early stops change nothing."""
    keys = mix64(np.arange(n, dtype=np.uint64))
    out = np.empty((n, 2), dtype=np.uint64)
    bernoulli_bits_kernel(keys, np.uint64(threshold), out)
    for u in {0, n - 1, n // 2}:
        slow = [slow_bits(int(keys[u]), b, threshold) for b in range(2)]
        assert out[u].tolist() == slow


def test_user_keys_equal_numpy() -> None:
    ids = np.random.default_rng(4).integers(0, 2**64, 1000, dtype=np.uint64)
    keys = np.empty_like(ids)
    user_keys_kernel(ids, np.uint64(99), keys)
    assert np.array_equal(keys, mix64(mix64(ids + np.uint64(GOLDEN)) ^ np.uint64(99)))


@pytest.mark.parametrize("n_draws", [0, 1, 7])
def test_user_words_are_the_counter_words_under_the_users_keys(n_draws: int) -> None:
    ids = np.array([0, 1, 2**64 - 1, 12345], dtype=np.uint64)
    words = np.empty((4, n_draws), dtype=np.uint64)
    user_words_kernel(ids, np.uint64(99), words)
    keys = mix64(mix64(ids + np.uint64(GOLDEN)) ^ np.uint64(99))
    assert np.array_equal(words, counter_words(keys, n_draws))
