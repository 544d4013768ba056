"""Cohorts and folds: data-independent groups of users, by a salted public hash of the user id."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedhist.base.arrays import PlainArguments, Words
from fedhist.base.checks import check_integer, check_within
from fedhist.base.hashing import digest64
from fedhist.users.keys import keyed_hash


@dataclass(frozen=True)
class Cohort(metaclass=PlainArguments):
    """The users whose keyed hash, divided by 2^64, lies in [lo, hi).

    Cohorts of one salt nest, and whether two of them are disjoint is known without any data;
    each purpose (phase, fold, hash row) takes a salt of its own, so that purposes do not
    correlate.

    Parameters
    ----------
    salt : int
        Public; in [0, 2^63).
    lo, hi : float
        0 <= lo < hi <= 1.

    Examples
    --------
    >>> Cohort(1, 0.0, 0.5).disjoint(Cohort(1, 0.5, 1.0)), Cohort(1).disjoint(Cohort(2))
    (True, False)
    """

    salt: int
    lo: float = 0.0
    hi: float = 1.0

    def __post_init__(self) -> None:
        check_integer("salt", self.salt, (1 << 63) - 1, least=0)
        if not 0.0 <= self.lo < self.hi <= 1.0:
            raise ValueError(f"need 0 <= lo < hi <= 1, got [{self.lo}, {self.hi})")

    @property
    def share(self) -> float:
        """Expected share of the users."""
        return self.hi - self.lo

    def contains(self, ids: Words) -> NDArray[np.bool_]:
        """Say which users belong: ids (n,) uint64; returns (n,) bool."""
        h = keyed_hash(ids, self.salt)
        inside = h >= np.uint64(_bound(self.lo))
        if self.hi < 1.0:
            inside &= h < np.uint64(_bound(self.hi))
        return inside

    def disjoint(self, other: Cohort) -> bool:
        """Say whether no user can be in both (known only within one salt)."""
        return self.salt == other.salt and (self.hi <= other.lo or other.hi <= self.lo)


def _bound(x: float) -> int:
    """floor(x 2^64): monotone, so neighbouring intervals neither overlap nor leave a gap."""
    return int(np.ldexp(x, 64))


MAX_FOLDS = 1 << 24


def fold_of(ids: Words, salt: int, n_folds: int) -> NDArray[np.int64]:
    """Return the fold of each user: the top 32 bits h of a keyed hash give floor(h k / 2^32).

    The salt is public, and another one than that of the cohorts, so that folds and phases do not
    correlate.

    >>> fold_of(np.arange(5, dtype=np.uint64), 1, 1).tolist()
    [0, 0, 0, 0, 0]
    """
    check_within("n_folds", n_folds, 1, MAX_FOLDS)
    if n_folds == 1:
        return np.zeros(len(ids), dtype=np.int64)
    high = keyed_hash(ids, salt) >> np.uint64(32)
    return ((high * np.uint64(n_folds)) >> np.uint64(32)).astype(np.int64)


def salt_of_folds(salt: int) -> int:
    """Derive the public salt of the folds from that of the cohorts, in [0, 2^63)."""
    return digest64("fedhist.folds", salt) >> 1
