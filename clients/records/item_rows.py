"""One user's items and counts as bytes: what rows over an unbounded domain are sent as.

A record is ``uint32 length | uint64 count | length bytes of UTF-8``, integers little-endian; a row
is its records one after the other, in strictly increasing byte order of their keys. So equal
histograms are equal bytes, and an item named twice shows at once. Both halves read this file.
"""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhist.base.arrays import Integers, offsets
from fedhist.base.errors import WireError
from fedhist.users.keys import Keys

ENTRY = struct.Struct("<IQ")
"""Before the key: its length and the count."""


def pack_records(
    vocabulary: Keys,
    indptr: Integers,
    item: NDArray[np.unsignedinteger[Any]],
    count: NDArray[np.unsignedinteger[Any]],
) -> tuple[NDArray[np.uint8], Integers]:
    """Write every user's (item, count) entries as records.

    >>> pack_records(Keys.of(["tea"]), np.array([0, 1]), np.array([0]), np.array([7]))[0].tolist()
    [3, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 116, 101, 97]
    """
    starts, ends = (ptr[item].tolist() for ptr in (vocabulary.offsets[:-1], vocabulary.offsets[1:]))
    names = [vocabulary.data[a:b].tobytes() for a, b in zip(starts, ends, strict=True)]
    pairs = zip(names, count.tolist(), strict=True)
    records = [ENTRY.pack(len(name), c) + name for name, c in pairs]
    at = offsets([len(record) for record in records])
    return np.frombuffer(b"".join(records), dtype=np.uint8), at[indptr]


def read_records(
    data: NDArray[np.uint8], indptr: Integers, least: int = 1
) -> tuple[Keys, Integers, NDArray[np.uint32], NDArray[np.uint64]]:
    """Read rows of records: keys in byte order, row bounds of the entries, their keys and counts.

    WireError for a record that ends after its row, a count below ``least``, a key that is not
    UTF-8, and keys of a row that are not strictly increasing in byte order (so none comes twice).
    """
    if data.dtype != np.uint8 or data.ndim != 1:
        raise WireError(f"records are a vector of bytes, got {data.dtype}{data.shape}")
    raw, names, counts, entries = data.tobytes(), list[bytes](), list[int](), [0]
    for row, (at, end) in enumerate(pairwise(indptr.tolist())):
        while at < end:
            start = at + ENTRY.size
            length, count = ENTRY.unpack_from(raw, at) if start <= end else (0, 0)
            at = start + length
            if at > end:
                raise WireError(f"row {row} ends {at - end} bytes before its last record")
            if count < least:
                raise WireError(f"row {row} holds the count {count}, below {least}")
            name, place = raw[start:at], len(names) - entries[-1]
            if place and name <= names[-1]:
                raise WireError(
                    f"row {row}: record {place} does not follow the one before in byte order"
                )
            names.append(name)
            counts.append(count)
        entries.append(len(names))
    number = {name: k for k, name in enumerate(sorted(set(names)))}
    try:
        keys = Keys.of(name.decode() for name in number)
    except UnicodeDecodeError as error:
        raise WireError(f"a key is not UTF-8: {bytes(error.object)[:40]!r}") from error
    item = np.array([number[name] for name in names], dtype=np.uint32)
    return keys, np.array(entries), item, np.array(counts, dtype=np.uint64)
