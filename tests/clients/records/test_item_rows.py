"""Rows of records: round trips in any script, and everything malformed is refused."""

import struct
from itertools import pairwise

import numpy as np
import pytest

from clients.records.item_rows import pack_records, read_records
from fedhist.base.errors import WireError
from fedhist.users.batch import Users

NAMES = ["\t", "a", "a\0b", "ab", "tea", "té", "お茶", "🙂", "🙂🙂"]


def record(key, count):
    raw = key if isinstance(key, bytes) else key.encode()
    return struct.pack("<IQ", len(raw), count) + raw


def rows(*parts):
    """Data and indptr of rows given as lists of records."""
    joined = [b"".join(p) for p in parts]
    indptr = np.cumsum([0, *map(len, joined)])
    return np.frombuffer(b"".join(joined), dtype=np.uint8), indptr


def read(data, indptr, least=1):
    """Rows as dicts of key to count."""
    keys, ptr, item, counts = read_records(data, indptr, least)
    pairs = [(keys[int(i)], int(c)) for i, c in zip(item, counts, strict=True)]
    return [dict(pairs[a:b]) for a, b in pairwise(ptr)], keys


@pytest.mark.parametrize("seed", range(2))
def test_round_trip(seed):
    rng = np.random.default_rng(seed)
    chosen = [rng.permutation(NAMES)[: rng.integers(0, len(NAMES) + 1)] for _ in range(20)]
    want = {
        f"u{i}": {str(k): int(rng.integers(1, 2**61)) for k in row} for i, row in enumerate(chosen)
    }
    v = Users.from_records(want).counts
    data, indptr = pack_records(v.vocabulary, v.indptr, v.item, v.count)
    result, keys = read(data, indptr)
    assert sorted(map(str, result)) == sorted(
        str({k: row[k] for k in sorted(row, key=str.encode)}) for row in want.values()
    )
    assert list(keys) == sorted({k for row in want.values() for k in row}, key=str.encode)
    # bytes are what the format says, so that anybody can write them
    first = next(u for u in range(20) if v.indptr[u + 1] > v.indptr[u])
    entries = range(v.indptr[first], v.indptr[first + 1])
    expected = b"".join(record(v.vocabulary[int(v.item[k])], int(v.count[k])) for k in entries)
    assert data[indptr[first] : indptr[first + 1]].tobytes() == expected


@pytest.mark.parametrize(
    "parts",
    [
        [[record("a", 1)[:-1]]],
        [[record("a", 1)], [record("b", 2)[:5]]],
        [[record("a", 1), b"\0" * 11]],
        [[struct.pack("<IQ", 2**32 - 1, 1) + b"abc"]],
        [[], [record("a", 0)]],
        [[record("a", 1), record("a", 2)]],
        [[record("b", 1), record("a", 2)]],
        [[record("", 1), record("a", 2), record("", 2)]],
        [[record("é", 1), record("z", 2)]],
    ],
)
def test_malformed_rows_are_refused(parts):
    with pytest.raises(WireError, match=f"row {len(parts) - 1}"):
        read_records(*rows(*parts))


@pytest.mark.parametrize("raw", [b"\xff", b"\xed\xa0\x80", "é".encode()[:1], b"\xc0\x80"])
def test_keys_that_are_not_utf8_are_refused(raw):
    with pytest.raises(WireError, match="UTF-8"):
        read_records(*rows([record("a", 1), record(raw, 1)]))


def test_no_bytes_crash_the_reader():
    """Any bytes give rows or a WireError; flipping one byte never gives the same rows."""
    rng = np.random.default_rng(1)
    good, indptr = rows([record("tea", 3), record("té", 2)], [record("rye", 1)])
    want = read(good, indptr)[0]
    refused = 0
    for _ in range(500):
        data = good.copy()
        data[rng.integers(len(data))] ^= np.uint8(rng.integers(1, 256))
        try:
            assert read(data, indptr)[0] != want
        except WireError:
            refused += 1
    assert 0 < refused < 500
