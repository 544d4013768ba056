"""One user's items and counts as bytes: what rows over an unbounded domain are sent as.

A record is ``uint32 length | uint64 count | length bytes of UTF-8``, integers little-endian; a row
is its records one after the other, in strictly increasing byte order of their keys. So equal
histograms are equal bytes, and an item named twice shows at once. Both halves read this file.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numba import uint64
from numpy.typing import NDArray

from fedhist.base.arrays import Integers, offsets
from fedhist.base.compiled import kernel
from fedhist.base.errors import WireError
from fedhist.base.hashing import hash_bytes_kernel
from fedhist.users.keys import Keys

Bytes = NDArray[np.uint8]
RECORD_HEAD = 12
"""Bytes before the key: its length and the count."""


def pack_records(
    vocabulary: Keys,
    indptr: Integers,
    item: NDArray[np.unsignedinteger[Any]],
    count: NDArray[np.unsignedinteger[Any]],
) -> tuple[Bytes, Integers]:
    """Write every user's (item, count) entries as records.

    >>> pack_records(Keys.of(["tea"]), np.array([0, 1]), np.array([0]), np.array([7]))[0].tolist()
    [3, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 116, 101, 97]
    """
    at = offsets(np.diff(vocabulary.offsets)[item] + RECORD_HEAD)
    data = np.empty(int(at[-1]), dtype=np.uint8)
    heads = np.zeros(len(item), dtype=np.dtype([("length", "<u4"), ("count", "<u8")]))
    heads["length"], heads["count"] = np.diff(vocabulary.offsets)[item], count
    data[at[:-1, None] + np.arange(RECORD_HEAD)] = heads.view(np.uint8).reshape(-1, RECORD_HEAD)
    lengths = heads["length"].astype(np.int64)
    data[_spans(at[:-1] + RECORD_HEAD, lengths)] = vocabulary.data[
        _spans(vocabulary.offsets[:-1][item], lengths)
    ]
    return data, at[indptr]


def _spans(starts: Integers, lengths: Integers) -> Integers:
    """Return the numbers of the bytes of spans, one after the other."""
    ends = np.cumsum(lengths)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - ends + lengths, lengths)


def parse_records(
    data: Bytes, indptr: Integers, least: int = 1
) -> tuple[Integers, Integers, Integers, NDArray[np.uint64]]:
    """Read rows of records: row bounds of the entries, starts and lengths of their keys, counts.

    WireError for a record that ends after its row, a count below ``least``, and keys of a row that
    are not strictly increasing in byte order (so that none comes twice).
    """
    if data.dtype != np.uint8 or data.ndim != 1:
        raise WireError(f"records are a vector of bytes, got {data.dtype}{data.shape}")
    data = np.ascontiguousarray(data)
    entries = np.zeros(len(indptr), dtype=np.int64)
    starts, lengths, counts = (np.empty(len(data) // RECORD_HEAD, t) for t in ("i8", "i8", "u8"))
    wrong, row, value = _walk(data, indptr, uint64(least), entries, starts, lengths, counts)
    if wrong == 1:
        raise WireError(f"row {row} holds a record of {value} bytes that ends after the row")
    if wrong == 2:
        raise WireError(f"row {row} holds the count {value}, below {least}")
    if wrong == 3:
        raise WireError(f"row {row}: record {value} does not follow the one before in byte order")
    n = int(entries[-1])
    return entries, starts[:n].copy(), lengths[:n].copy(), counts[:n].copy()


def intern_records(data: Bytes, starts: Integers, lengths: Integers) -> tuple[Keys, Integers]:
    """Find the distinct keys of parsed records, in byte order, and number each record's by them.

    Keys are compared by their hashes, and every match is then verified in bytes: rows that collide
    on purpose only lose the speed-up. WireError for a key that is not UTF-8.
    """
    at, flat = offsets(lengths), data[_spans(starts, lengths)]
    hashes = np.empty(len(starts), dtype=np.uint64)
    hash_bytes_kernel(at, flat, np.uint64(0), hashes)
    _, first, which = np.unique(hashes, return_index=True, return_inverse=True)
    which = which.reshape(-1)
    same = first[which]
    alike = np.array_equal(lengths[same], lengths)
    if not (alike and np.array_equal(flat, data[_spans(starts[same], lengths)])):
        raw = [flat[a:b].tobytes() for a, b in pairwise(at)]
        places: dict[bytes, int] = {}
        which = np.array([places.setdefault(r, len(places)) for r in raw], dtype=np.int64)
        first = np.unique(which, return_index=True)[1]
    names = [flat[at[k] : at[k + 1]].tobytes() for k in first]
    order = sorted(range(len(names)), key=names.__getitem__)
    rank = np.empty(len(names), dtype=np.int64)
    rank[order] = np.arange(len(names))
    sizes = offsets(np.array([len(names[k]) for k in order], dtype=np.int64))
    joined = np.frombuffer(b"".join(names[k] for k in order), dtype=np.uint8)
    try:
        return Keys(sizes, joined), rank[which].astype(np.int64, copy=False)
    except UnicodeDecodeError as error:
        raise WireError(f"a key is not UTF-8: {bytes(error.object)[:40]!r}") from error


@kernel()
def _walk(
    data: Bytes,
    indptr: Integers,
    least: Any,
    entries: Integers,
    starts: Integers,
    lengths: Integers,
    counts: Any,
) -> tuple[int, int, Any]:
    """Fill the columns, and count the records up to every row into ``entries``; returns an error.

    An error is (kind, row, offending value); kind 0 is none.
    """
    n = 0
    for u in range(indptr.shape[0] - 1):
        p, end = indptr[u], indptr[u + 1]
        last, last_length, row = np.int64(-1), np.int64(0), 0
        while p < end:
            if end - p < 12:
                return 1, u, end - p
            length, c = np.int64(0), uint64(0)
            for b in range(4):
                length |= np.int64(data[p + b]) << np.int64(8 * b)
            for b in range(8):
                c |= uint64(data[p + 4 + b]) << uint64(8 * b)
            if length > end - p - 12:
                return 1, u, length + 12
            if c < least:
                return 2, u, np.int64(c)
            start = p + 12
            if last >= 0:
                common = min(length, last_length)
                k = 0
                while k < common and data[start + k] == data[last + k]:
                    k += 1
                follows = length > last_length if k == common else data[start + k] > data[last + k]
                if not follows:
                    return 3, u, row
            starts[n], lengths[n], counts[n] = start, length, c
            n += 1
            row += 1
            last, last_length = start, length
            p = start + length
        entries[u + 1] = n
    return 0, 0, 0
