"""Shards: consecutive users, in memory or made and read block by block when they are walked.

What a block of them holds is columnar: item counts, or real samples.
"""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from fedhist.base.arrays import Words
from fedhist.base.errors import PopulationError
from fedhist.base.hashing import digest64
from fedhist.users.keys import Keys

if TYPE_CHECKING:
    from fedhist.users.batch import Users
    from fedhist.users.cohort import Cohort

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


BLOCK = 65_536
"""Users that are made, answered and added up at a time; fixed, because real-valued sums depend on
it (:mod:`fedhist.model.query`)."""

MOST_IN_MEMORY = 10_000_000
"""Users that are made or read to be held in memory at once. Who loads a file of more holds them."""


def check_in_memory(n_users: int, what: str) -> None:
    """Refuse what needs all users in memory at once, if they are too many."""
    if n_users > MOST_IN_MEMORY:
        raise PopulationError(
            f"{what} needs all users in memory at once: at most {MOST_IN_MEMORY:,}, got "
            f"{n_users:,}; take fewer (population.n_users, population.max_users)"
        )


class Shard(ABC):
    """Consecutive users of a population, by number; :class:`~fedhist.users.batch.Users` is one.

    A user's id and record are functions of the population and of the user's number in it: the
    same in any slice, in any order and on any machine. What is not in memory pickles to some kB.
    """

    @abstractmethod
    def __len__(self) -> int:
        """Count the users."""

    @abstractmethod
    def slice(self, start: int, stop: int) -> Shard:
        """Return users start to stop of this shard, ``0 <= start <= stop <= len``."""

    @abstractmethod
    def blocks(self, size: int = BLOCK) -> Iterator[Users]:
        """Walk the users in order, ``size`` at a time (the last block may be smaller)."""

    @property
    @abstractmethod
    def none(self) -> Users:
        """No users of the same kind: with the vocabulary of items, or the dimension of samples."""

    @property
    def digest(self) -> int:
        """64-bit digest of who they are and of their records, or of how these are made."""
        arrays: list[pickle.PickleBuffer] = []  # read where they are: they may be gigabytes
        head = pickle.dumps(self, 5, buffer_callback=arrays.append)
        return digest64(head, *(a.raw() for a in arrays))

    def public_ids(self) -> Words:
        """Return the users' public ids in their order: (n,) uint64."""
        return np.concatenate([self.none.ids, *(block.ids for block in self.blocks())])

    def select(self, cohort: Cohort | None) -> Users:
        """Return the users of a cohort at once (all of them for None)."""
        return self.none.followed_by(block.select(cohort) for block in self.blocks())

    def in_memory(self, what: str = "this") -> Users:
        """Return all users at once, in their order.

        Raises
        ------
        PopulationError
            If they are too many, and not in memory anyway; ``what`` says who asks for them.
        """
        check_in_memory(len(self), what)
        return self.none.followed_by(self.blocks())

    def split(self, n_nodes: int) -> list[Self]:
        """Split evenly into contiguous nodes: sizes differ by at most one, none is cut."""
        check_nodes(len(self), n_nodes)
        edges = [edge(i, len(self), n_nodes) for i in range(n_nodes + 1)]
        return [self.slice(a, b) for a, b in pairwise(edges)]  # type: ignore[misc]


class Wrapped(Shard):
    """Another shard's users, asked for all that a class does not say itself; slices are theirs."""

    def __init__(self, users: Shard) -> None:
        self.users = users

    def __len__(self) -> int:
        return len(self.users)

    def slice(self, start: int, stop: int) -> Shard:
        return self.users.slice(start, stop)

    def blocks(self, size: int = BLOCK) -> Iterator[Users]:
        return self.users.blocks(size)

    @property
    def none(self) -> Users:
        return self.users.none

    @property
    def digest(self) -> int:
        return self.users.digest

    def public_ids(self) -> Words:
        return self.users.public_ids()


def edge(index: int, n_users: int, n_nodes: int) -> int:
    """Return the number of the first user of node ``index``; that of no node is ``n_users``."""
    return index * n_users // n_nodes


def check_nodes(n_users: int, n_nodes: int) -> None:
    """Raise PopulationError unless every node gets a user."""
    if n_nodes < 1:
        raise PopulationError(f"the number of nodes must be positive, got {n_nodes}")
    if n_nodes > n_users:
        raise PopulationError(f"{n_nodes} nodes need at least as many users, got {n_users}")
