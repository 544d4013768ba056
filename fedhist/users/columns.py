"""What a batch of users holds, columnar: item counts, or real samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhist.base.errors import PopulationError
from fedhist.users.keys import Keys

Indptr = NDArray[np.int64]


@dataclass(frozen=True)
class Items:
    """Item counts of each user in CSR form, each user's items in the byte order of their keys.

    Attributes
    ----------
    vocabulary : Keys
        What the item numbers stand for. Local to the data; never sent as it is.
    indptr : (n + 1,) int64
    item : (nnz,) uint32
        Positions in the vocabulary; distinct within a user.
    count : (nnz,) uint32 or uint64
        Positive totals: compiled loops rely on it, so that a zero is refused.
    """

    vocabulary: Keys
    indptr: Indptr
    item: NDArray[np.unsignedinteger[Any]]
    count: NDArray[np.unsignedinteger[Any]]

    def __post_init__(self) -> None:
        if self.count.min(initial=1) < 1:
            raise PopulationError(f"counts must be positive, got 0 in entry {self.count.argmin()}")


@dataclass(frozen=True)
class Samples:
    """Real-valued samples of each user, ragged.

    Attributes
    ----------
    indptr : (n + 1,) int64
        User u holds rows ``indptr[u]`` to ``indptr[u + 1]``.
    values : (total, dimension) float64
        May hold NaN: a client half maps such a user to the protocol's null record.
    """

    indptr: Indptr
    values: NDArray[np.float64]
