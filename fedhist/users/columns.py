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
    """Item counts of each user in CSR form, each user's items in the byte order of their keys."""

    vocabulary: Keys  # what the item numbers stand for; never sent as it is
    indptr: Indptr
    item: NDArray[np.unsignedinteger[Any]]  # positions in it, distinct within a user
    count: NDArray[np.unsignedinteger[Any]]  # positive: compiled loops rely on it

    def __post_init__(self) -> None:
        if self.count.min(initial=1) < 1:
            raise PopulationError(f"counts must be positive, got 0 in entry {self.count.argmin()}")


@dataclass(frozen=True)
class Samples:
    """Real-valued samples of each user, ragged: user u holds rows indptr[u] to indptr[u + 1]."""

    indptr: Indptr
    values: NDArray[np.float64]  # (total, dimension); a user with a NaN is the null record
