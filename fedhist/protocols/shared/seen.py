"""What evaluation sees of users: sums over all of them, and rows of some. NOT PRIVATE.

Sums are made in the pass in which users answer. Where a prediction follows the users' own numbers,
another pass keeps a row of each; where they are too many, of some, by a public hash of their ids.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, cast

import numpy as np

from fedhist.base.arrays import Array
from fedhist.base.hashing import digest64
from fedhist.model.measures import MOST_ROWS, Measure, Measured, measured, simulated
from fedhist.model.prediction import Kind, LowerBound, Prediction
from fedhist.model.protocol import Protocol
from fedhist.model.query import CHUNK, Summary
from fedhist.protocols.shared.sample_sizes import Held
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from fedhist.users.shards import Shard

MOST_NUMBERS = 1 << 24
"""Numbers that rows hold together."""
_SALT = digest64("fedhist.seen") >> 1


@dataclass(frozen=True)
class Seen(Measured):
    """Sums over all users, and rows of some, as a protocol reads them.

    Attributes
    ----------
    protocol : SeenProtocol
    total : Summary
        What :meth:`SeenProtocol.sums` says of all users, and how many samples they hold.
    """

    protocol: SeenProtocol
    total: Summary

    def __getitem__(self, name: str) -> Array:
        """Return one of the sums."""
        return self.total.sums[name]

    @property
    def n_users(self) -> int:
        """Everybody."""
        return self.total.n_users

    @property
    def held(self) -> Held:
        """How many samples users hold."""
        return Held.read(self.total)

    # -- what takes another pass

    def again(self, of: Callable[[Users], Mapping[str, Array]]) -> Mapping[str, Array]:
        """Add up other sums over all users, which depend on what is known by now."""
        return self.walk(lambda block: _by_chunks(block, lambda c: Summary(len(c), of(c)))).sums

    @cached_property
    def cohort(self) -> Cohort | None:
        """Of whom rows are kept; None: of everybody."""
        most = self.protocol.most_rows
        return Cohort(_SALT, 0.0, most / self.n_users) if self.n_users > most else None

    @cached_property
    def rows(self) -> Mapping[str, Array]:
        """Rows of the users, or of some: :meth:`SeenProtocol.rows` in the order of ids."""

        def of(block: Users) -> Summary:
            some = block.select(self.cohort)
            return _by_chunks(some, lambda c: Summary(len(c), rows=row(c), ids=c.ids))

        row = self.protocol.rows_after(self)
        return self.walk(of).rows

    @property
    def times(self) -> float:
        """How many users one with a row stands for: 1 unless they are sampled."""
        kept = len(next(iter(self.rows.values())))
        return self.n_users / kept if kept else 1.0

    # -- what is asked for

    @cached_property
    def truth(self) -> Array:
        """What is being estimated, exactly."""
        return self.protocol.truth_of(self)

    @cached_property
    def error(self) -> Prediction:
        """The predicted error; its source says if users are sampled."""
        found = self.protocol.error_of(self)
        if "rows" not in vars(self) or self.cohort is None:
            return found
        said = f"{found.source}; sampled: {self.protocol.most_rows:,} of {self.n_users:,} users"
        kind: Kind = "bound" if found.kind == "bound" else "simulated"
        return Prediction(found.loss, found.expected, kind, said, found.stderr)

    @property
    def resolution(self) -> float:
        """The loss that is left without noise, beyond rounding, at most."""
        return self.protocol.resolution_of(self)

    @property
    def diagnostics(self) -> Mapping[str, float]:
        """What a run may not say, counted."""
        return self.protocol.diagnostics_of(self)

    @property
    def lower_bounds(self) -> tuple[LowerBound, ...]:
        """What no protocol of the guarantee can beat."""
        return self.protocol.lower_bounds_of(self)


class SeenProtocol(Protocol):
    """A protocol whose evaluation needs sums over its users, and rows of some.

    Class attributes
    ----------------
    batch : int
        Users that :meth:`sums` gets at a time.
    """

    batch: ClassVar[int] = CHUNK

    @abstractmethod
    def sums(self, users: Users) -> Mapping[str, Array]:
        """Add up what is needed of a batch of users, by name. NOT PRIVATE."""

    @property
    def most_rows(self) -> int:
        """Users of whom :attr:`Seen.rows` keeps a row, at most."""
        return MOST_ROWS

    def rows(self, users: Users) -> Mapping[str, Array]:
        """Return a row of each user of a batch, by name. NOT PRIVATE."""
        raise TypeError(f"{self.name} is evaluated without rows of its users")

    def rows_after(self, seen: Seen) -> Callable[[Users], Mapping[str, Array]]:
        """Return what makes rows, where they depend on sums that are known by now: :meth:`rows`."""
        return self.rows

    @abstractmethod
    def truth_of(self, seen: Seen) -> Array:
        """Compute what is being estimated, exactly. NOT PRIVATE."""

    def error_of(self, seen: Seen) -> Prediction:
        """Predict the error. NOT PRIVATE. Default: the mean of 30 runs on these users."""
        return simulated(self, seen)

    def resolution_of(self, seen: Seen) -> float:
        """Bound the loss that is left without noise. NOT PRIVATE."""
        return 0.0

    def diagnostics_of(self, seen: Seen) -> Mapping[str, float]:
        """Count what a run may not say. NOT PRIVATE."""
        return {}

    def lower_bounds_of(self, seen: Seen) -> tuple[LowerBound, ...]:
        """Bound from below what any protocol can do for such users. NOT PRIVATE."""
        return ()

    def measure(self) -> Measure | None:
        """See sums, and rows where they are asked for."""
        return Seeing(self)

    def seen(self, users: Shard) -> Seen:
        """See users. NOT PRIVATE."""
        return cast(Seen, measured(self, users))


@dataclass(frozen=True)
class Seeing(Measure):
    """The sums of a block."""

    protocol: SeenProtocol
    kind: type[Seen] = Seen

    def of(self, users: Users) -> Summary:
        """Add up the chunks of a block, in their order."""
        found = _by_chunks(
            users, lambda c: Summary(len(c), self.protocol.sums(c)), self.protocol.batch
        )
        return Summary(len(users), {**Held.sums(users), **found.sums})

    def finish(self, total: Summary) -> Measured:
        """See them."""
        return self.kind(self.protocol, total)


def rows_at_most(width: int) -> int:
    """Return how many rows of so many numbers are kept: a million, and 2^24 numbers, at most."""
    return max(1, min(MOST_ROWS, MOST_NUMBERS // width))


def _by_chunks(users: Users, of: Callable[[Users], Summary], size: int = CHUNK) -> Summary:
    return Summary.merge([of(c) for c in users.blocks(size)] or [of(users)])


def sum_of_rows(rows: Array) -> Array:
    """Add up rows as batches of :data:`CHUNK` users one after the other do, to the last bit."""
    total = rows[:CHUNK].sum(axis=0)
    for start in range(CHUNK, len(rows), CHUNK):
        total = total + rows[start : start + CHUNK].sum(axis=0)
    return np.asarray(total)
