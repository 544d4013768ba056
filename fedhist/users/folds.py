"""Folds: the users split into k data-independent groups by a salted public hash."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedhist.base.arrays import Words
from fedhist.base.checks import check_within
from fedhist.base.hashing import digest64
from fedhist.users.keys import keyed_hash

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
