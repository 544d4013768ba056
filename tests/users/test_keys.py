"""Keys in any script, public hashes against slow Python, collisions, signs."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedhist.base.errors import PopulationError
from fedhist.base.hashing import MASK64, digest64
from fedhist.users import keys as module
from fedhist.users.keys import USER_ID_KEY, Keys, keyed_hash, public_signs, user_ids
from tests.base.test_hashing import slow_hash, slow_mix

SCRIPTS = [
    "",
    "a",
    "Ω",
    "ж",
    "لغة",
    "हिन्दी",
    "日本語",
    "한국어",
    "🙂👍🏽",
    "a\0b",
    "\0",
    "é",
    "e\u0301",
]


def test_any_script_and_back() -> None:
    keys = Keys.of(SCRIPTS)
    assert list(keys) == SCRIPTS
    assert [keys.position(s) for s in SCRIPTS] == list(range(len(SCRIPTS)))
    assert keys.position("no") == -1
    assert Keys.of(["a", "b"]).positions(Keys.of(["x", "b", "a", ""])).tolist() == [-1, 1, 0, -1]
    assert "日本語" in keys
    assert 3 not in keys
    again = pickle.loads(pickle.dumps(keys))
    assert again == keys
    assert again.digest == keys.digest
    assert list(Keys.range(3)) == ["0", "1", "2"]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.text(max_size=12), unique=True, max_size=12))
def test_laws_of_keys(strings: list[str]) -> None:
    try:
        keys = Keys.of(strings)
    except UnicodeEncodeError:  # lone surrogates are not text
        assert any(0xD800 <= ord(c) < 0xE000 for s in strings for c in s)
        return
    assert list(keys) == strings
    assert [strings[i] for i in keys.byte_order] == sorted(strings, key=str.encode)
    other = Keys.of(strings[::-1])
    assert keys.positions(other).tolist() == list(range(len(strings)))[::-1]
    assert (other == keys) == (strings == strings[::-1])
    assert user_ids(keys).tolist() == [slow_hash(s.encode(), USER_ID_KEY) for s in strings]


BYTES = np.frombuffer(b"abcd", dtype=np.uint8)


@pytest.mark.parametrize(
    ("offsets", "data"),
    [
        ([], BYTES),
        ([1, 4], BYTES),
        ([0, 5], BYTES),
        ([0, 3, 2, 4], BYTES),
        ([0, 2**63 - 1, -2, 4], BYTES),  # differences wrap around to positive numbers
        ([0, 1], np.array([0xFF], dtype=np.uint8)),
        ([0, 1, 2], np.frombuffer("é".encode(), dtype=np.uint8)),
    ],
)
def test_malformed_bytes_are_refused(offsets: list[int], data: np.ndarray) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - UnicodeDecodeError is one of them
        Keys(np.array(offsets, dtype=np.int64), data)


def test_two_users_of_one_id_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def collide(offsets: object, data: object, key: object, out: np.ndarray) -> None:
        out[:] = np.arange(len(out)) % 2

    monkeypatch.setattr(module, "hash_bytes_kernel", collide)
    assert user_ids(Keys.of(["ann", "bob"])).tolist() == [0, 1]
    with pytest.raises(PopulationError, match="'ann' and 'zoë' have the same 64-bit id"):
        user_ids(Keys.of(["ann", "bob", "zoë"]))


def test_keyed_hash_is_the_slow_one() -> None:
    ids = np.array([0, 1, MASK64, 12345678901234567890], dtype=np.uint64)
    for salt in (0, 1, 2**63 - 1):
        key = digest64("fedhist.salt", salt)
        slow = [slow_mix(slow_mix(int(i) ^ key) + salt & MASK64) for i in ids]
        assert keyed_hash(ids, salt).tolist() == slow
        assert keyed_hash(np.repeat(ids, 3)[::3], salt).tolist() == slow
        assert keyed_hash(ids.astype(">u8"), salt).tolist() == slow
    assert keyed_hash(ids[:0], 1).shape == (0,)
    with pytest.raises(TypeError, match="int64"):
        keyed_hash(np.arange(3), 1)


def test_signs() -> None:
    """130,000 signs: |z| < 5, false alarm 6e-7; prefixes agree, keys differ."""
    signs = public_signs(7, (1000, 130))
    assert signs.shape == (1000, 130)
    assert set(np.unique(signs)) == {-1, 1}
    assert abs(signs.sum(dtype=int)) < 5 * np.sqrt(signs.size)
    assert np.array_equal(public_signs(7, (50,)), signs.ravel()[:50])
    agree = np.mean(public_signs(8, (130_000,)) == signs.ravel())
    assert abs(agree - 0.5) < 5 * 0.5 / np.sqrt(signs.size)
    assert public_signs(1, (0, 3)).shape == (0, 3)


def test_what_no_keys_are() -> None:
    with pytest.raises(ValueError, match="distinct"):
        Keys.of(["a", "b", "a"])
    with pytest.raises(ValueError, match="int 3"):
        Keys.of(["a", 3])
    with pytest.raises(ValueError, match="None"):
        Keys.of(["a", None])
    with pytest.raises(ValueError, match="valid text"):
        Keys.of(["\ud800"])
    with pytest.raises(ValueError, match="-1"):
        Keys.range(-1)
    with pytest.raises(ValueError, match="read-only"):
        Keys.of(["a", "b"]).data[0] = 99
    with pytest.raises(ValueError, match="int64"):
        Keys(np.array([0, 4], dtype=np.int32), BYTES)
    with pytest.raises(ValueError, match="bytes"):
        Keys(np.array([0, 4], dtype=np.int64), BYTES.astype(np.int64))
