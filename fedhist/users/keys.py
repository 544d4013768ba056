"""Ordered sets of UTF-8 strings, and public hashing of them.

``Keys`` names things in public: the items of a bounded domain, the vocabulary a batch of users
is interned in, the keys of a sparse summary. It is stored as byte offsets plus bytes, which is
also how it travels. ``user_ids`` turns original user names into public 64-bit ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhist.base.arrays import Array, Words
from fedhist.base.errors import PopulationError
from fedhist.base.hashing import digest64, hash_bytes_kernel, keyed_hash_kernel, mix64
from fedhist.base.lazy import kernel

USER_ID_KEY = digest64("fedhist.user-id")


class Keys(Sequence[str]):
    """An immutable ordered set of strings, stored as UTF-8 bytes with offsets.

    Parameters
    ----------
    offsets : (k + 1,) int64
        Byte offsets; string i is ``data[offsets[i]:offsets[i + 1]]``.
    data : (n_bytes,) uint8
        The UTF-8 bytes, one string after the other.

    Raises
    ------
    ValueError
        If the offsets do not describe the bytes, a string is not UTF-8, or a string occurs twice.

    Examples
    --------
    >>> keys = Keys.of(["pear", "äpple"])
    >>> keys[1], keys.position("pear"), len(keys)
    ('äpple', 0, 2)
    """

    __slots__ = ("__dict__", "data", "offsets")

    def __init__(self, offsets: NDArray[np.int64], data: NDArray[np.uint8]) -> None:
        if offsets.dtype != np.int64 or data.dtype != np.uint8:
            raise ValueError(f"keys are int64 offsets and bytes, got {offsets.dtype}, {data.dtype}")
        offsets, data = np.ascontiguousarray(offsets), np.ascontiguousarray(data)
        if (
            offsets.ndim != 1
            or data.ndim != 1
            or len(offsets) == 0
            or offsets[0] != 0
            or offsets[-1] != len(data)
            or (offsets[1:] < offsets[:-1]).any()  # a difference could wrap around
        ):
            raise ValueError(f"offsets {offsets[:5]}... do not describe {len(data)} bytes of keys")
        offsets.setflags(write=False)
        data.setflags(write=False)
        self.offsets, self.data = offsets, data
        if len(self._index) != len(offsets) - 1:
            raise ValueError(f"{len(offsets) - 1} keys are not distinct: {len(self._index)} differ")

    @classmethod
    def of(cls, strings: Iterable[str]) -> Keys:
        """Build from strings, in the order given."""
        names = list(strings)
        for other in (s for s in names if not isinstance(s, str)):
            raise ValueError(f"keys are strings, got {type(other).__name__} {other!r}")
        try:
            raw = [s.encode() for s in names]
        except UnicodeEncodeError as error:
            raise ValueError(f"keys are valid text, got {error.object!r}") from None
        offsets = np.zeros(len(raw) + 1, dtype=np.int64)
        np.cumsum([len(r) for r in raw], out=offsets[1:])
        return cls(offsets, np.frombuffer(b"".join(raw), dtype=np.uint8))

    @classmethod
    def known(cls, offsets: NDArray[np.int64], data: NDArray[np.uint8]) -> Keys:
        """Build from the parts of other keys, known to be distinct strings; nothing is checked."""
        keys = cls.__new__(cls)
        offsets.setflags(write=False)
        data.setflags(write=False)
        keys.offsets, keys.data = offsets, data
        return keys

    @classmethod
    def range(cls, d: int) -> Keys:
        """Name the items of an anonymous domain "0", "1", ..., str(d - 1)."""
        if d < 0:
            raise ValueError(f"d must be non-negative, got {d}")
        return cls.of(map(str, range(d)))

    @cached_property
    def _strings(self) -> list[str]:
        raw, bounds = self.data.tobytes(), self.offsets.tolist()
        return [raw[a:b].decode() for a, b in pairwise(bounds)]

    @cached_property
    def _index(self) -> dict[str, int]:
        return {s: i for i, s in enumerate(self._strings)}

    @cached_property
    def digest(self) -> int:
        """64-bit digest of the strings in their order."""
        return digest64(self.offsets.tobytes(), self.data.tobytes())

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: Any) -> Any:
        return self._strings[i]

    def __iter__(self) -> Iterator[str]:
        return iter(self._strings)

    def __contains__(self, key: object) -> bool:
        return key in self._index

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Keys) and (
            self is other or (len(self) == len(other) and self.digest == other.digest)
        )

    def __hash__(self) -> int:
        return self.digest

    def __repr__(self) -> str:
        head = ", ".join(map(repr, self._strings[:4]))
        return f"Keys({head}{', ...' if len(self) > 4 else ''}; {len(self)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Keys, (self.offsets, self.data)

    def position(self, key: str) -> int:
        """Return the position of one key, or -1."""
        return self._index.get(key, -1)

    def positions(self, others: Keys) -> NDArray[np.int32]:
        """Return the position in ``self`` of each key of ``others``, -1 where there is none.

        Returns
        -------
        (len(others),) int32
        """
        find = self._index.get
        return np.fromiter((find(s, -1) for s in others), dtype=np.int32, count=len(others))

    def take(self, places: NDArray[np.int64]) -> Keys:
        """Return the keys at some places, each at most once, in that order.

        >>> list(Keys.of(["a", "bc", ""]).take(np.array([2, 1])))
        ['', 'bc']
        """
        sizes = np.diff(self.offsets)[places]
        offsets = np.append(0, np.cumsum(sizes))
        shift = np.repeat(self.offsets[:-1][places] - offsets[:-1], sizes)
        return Keys.known(offsets, self.data[np.arange(offsets[-1]) + shift])

    @cached_property
    def byte_order(self) -> NDArray[np.int64]:
        """Positions sorted by the keys' bytes: the order in which a user's items are kept."""
        raw = [s.encode() for s in self._strings]
        return np.array(sorted(range(len(raw)), key=raw.__getitem__), dtype=np.int64)


def user_ids(names: Keys) -> Words:
    """Hash distinct user names to public 64-bit user ids; see :func:`user_ids_of_bytes`."""
    return user_ids_of_bytes(names.offsets, names.data)


def user_ids_of_bytes(offsets: NDArray[np.int64], data: NDArray[np.uint8]) -> Words:
    """Hash distinct user names, given as byte offsets and bytes, to public 64-bit user ids."""
    ids = np.empty(len(offsets) - 1, dtype=np.uint64)
    hash_bytes_kernel(offsets, data, np.uint64(USER_ID_KEY), ids)
    order = np.argsort(ids, kind="stable")
    equal = np.flatnonzero(ids[order][1:] == ids[order][:-1])
    if len(equal):
        pair = [
            data[offsets[i] : offsets[i + 1]].tobytes().decode(errors="replace")
            for i in (order[equal[0]], order[equal[0] + 1])
        ]
        raise PopulationError(f"user names {pair[0]!r} and {pair[1]!r} have the same 64-bit id")
    return ids


def keyed_hash(ids: Words, salt: int) -> Words:
    """Hash user ids under a public salt (cohorts, folds, hash rows): (n,) uint64."""
    out = np.empty(len(ids), dtype=np.uint64)
    # the kernel would take signed ids, and shift their signs in
    words = ids.astype(np.uint64, order="C", casting="safe", copy=False)
    keyed_hash_kernel(words, _key_of_salt(salt), np.uint64(salt), out)
    return out


@lru_cache(maxsize=1024)
def _key_of_salt(salt: int) -> np.uint64:
    return np.uint64(digest64("fedhist.salt", salt))


def public_signs(key: int, shape: tuple[int, ...]) -> NDArray[np.int8]:
    """Expand a public integer key to independent random signs (rotations), int8 in {-1, +1}."""
    n = int(np.prod(shape))
    words = mix64(
        np.uint64(digest64("fedhist.signs", key)) + np.arange(-(-n // 64), dtype=np.uint64)
    )
    bits = np.unpackbits(words.astype("<u8").view(np.uint8), bitorder="little")[:n]
    return (1 - 2 * bits.astype(np.int8)).reshape(shape)


# -- numbers under keys, added up: one walk over two sets in byte order, some 50 ns a key ---------

Positions = NDArray[np.int64]


def add_up(parts: Sequence[tuple[Keys, Array]]) -> tuple[Keys, Array]:
    """Add values under equal keys, those of neighbours first, then those of pairs of neighbours.

    So what many parts cost does not grow with the keys that are there already.

    Of at least one part. Values are (number of keys, ...), of one shape and dtype in all parts;
    those that are returned are new, and the keys in byte order.
    """
    sums = [*parts, (Keys.of(()), parts[0][1][:0])] if len(parts) == 1 else list(parts)
    while len(sums) > 1:
        pairs = zip(sums[::2], sums[1::2], strict=False)
        sums = [_added(*pair) for pair in pairs] + sums[len(sums) & ~1 :]
    return sums[0]


def _added(a: tuple[Keys, Array], b: tuple[Keys, Array]) -> tuple[Keys, Array]:
    keys, at_a, at_b = union(a[0], b[0])
    values = np.zeros((len(keys), *a[1].shape[1:]), dtype=a[1].dtype)
    values[at_a] = a[1]
    values[at_b] += b[1]
    return keys, values


def union(a: Keys, b: Keys) -> tuple[Keys, Positions, Positions]:
    """Unite two sets of keys, each in whatever order.

    Returns the keys in byte order, and where each key of a, and each of b, is among them.
    """
    alike = np.array_equal(a.offsets, b.offsets) and np.array_equal(a.data, b.data)
    a, back_a = _ascending(a)
    if alike:
        here = np.arange(len(a)) if back_a is None else back_a
        return a, here, here
    b, back_b = _ascending(b)
    at_a, at_b = np.empty(len(a), np.int64), np.empty(len(b), np.int64)
    offsets = np.empty(len(a) + len(b) + 1, np.int64)
    data = np.empty(len(a.data) + len(b.data), np.uint8)
    n = _unite(a.offsets, a.data, b.offsets, b.data, at_a, at_b, offsets, data)
    same = a if n == len(a) else b if n == len(b) else None
    if same is None:
        same = Keys.known(offsets[: n + 1].copy(), data[: offsets[n]].copy())
    return same, at_a if back_a is None else at_a[back_a], at_b if back_b is None else at_b[back_b]


def _ascending(keys: Keys) -> tuple[Keys, Positions | None]:
    """Return keys in byte order and, unless they were, where each one has gone."""
    if _is_ascending(keys.offsets, keys.data):
        return keys, None
    order = keys.byte_order
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    return Keys.of(keys[i] for i in order.tolist()), back


@kernel()
def _compare(x: Any, i: int, i_end: int, y: Any, j: int, j_end: int) -> int:
    """Compare two strings of bytes: negative, zero or positive."""
    while i < i_end and j < j_end:
        if x[i] != y[j]:
            return -1 if x[i] < y[j] else 1
        i += 1
        j += 1
    return int(i < i_end) - int(j < j_end)


@kernel()
def _is_ascending(offsets: Any, data: Any) -> bool:
    for i in range(len(offsets) - 2):
        if _compare(data, offsets[i], offsets[i + 1], data, offsets[i + 1], offsets[i + 2]) >= 0:
            return False
    return True


@kernel()
def _unite(
    starts_a: Any, a: Any, starts_b: Any, b: Any, at_a: Any, at_b: Any, offsets: Any, data: Any
) -> int:
    """Fill where keys go and the union's own offsets and bytes; return how many keys it has."""
    n_a, n_b = len(starts_a) - 1, len(starts_b) - 1
    i = j = n = end = 0
    offsets[0] = 0
    while i < n_a or j < n_b:
        if i == n_a:
            which = 1
        elif j == n_b:
            which = -1
        else:
            which = _compare(a, starts_a[i], starts_a[i + 1], b, starts_b[j], starts_b[j + 1])
        if which <= 0:
            for k in range(starts_a[i], starts_a[i + 1]):
                data[end] = a[k]
                end += 1
            at_a[i] = n
            i += 1
            if which == 0:
                at_b[j] = n
                j += 1
        else:
            for k in range(starts_b[j], starts_b[j + 1]):
                data[end] = b[k]
                end += 1
            at_b[j] = n
            j += 1
        n += 1
        offsets[n] = end
    return n


def check_domain(domain: Any) -> None:
    """Raise ValueError unless the domain is Keys, and not empty."""
    if not isinstance(domain, Keys) or not len(domain):
        raise ValueError(f"domain must be non-empty Keys (Keys.of([...])), got {domain!r}")
