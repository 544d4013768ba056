"""What evaluation knows of a protocol's users. NOT PRIVATE.

Truth, prediction and diagnostics come from sums over the users, which are made block by block in
the pass in which they answer, so that no machine holds them all. A protocol without such sums
needs all records at once, and is refused above :data:`MOST_ROWS` users.
"""

from __future__ import annotations

import functools
import importlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any

from fedhist.base.arrays import Array
from fedhist.base.errors import PopulationError
from fedhist.model.query import Summary, Tree
from fedhist.model.truths import LowerBound, Prediction
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from fedhist.users.shards import BLOCK, Shard, Wrapped

MOST_ROWS = 1_000_000
"""Users whose records an evaluation may need at once."""


class Facts:
    """What is known of a protocol's users; each part is computed when it is asked for.

    Parameters
    ----------
    protocol : Protocol
    users : Shard
    total : Summary, optional
        Its sums over the users, if they were made as the users answered.

    Attributes
    ----------
    notes : dict
        What the protocol has worked out of them.
    """

    def __init__(self, protocol: Any, users: Shard, total: Summary | None = None) -> None:
        self.protocol, self.users = protocol, users
        self.notes: dict[str, Any] = {}
        if total is not None:
            self.total = total

    @cached_property
    def total(self) -> Summary:
        """The protocol's sums over all users."""
        return walked(functools.partial(block_sums, self.protocol), self.users)

    @cached_property
    def records(self) -> Users:
        """All users at once."""
        return self.users.in_memory(f"the truth of {self.protocol.name}")

    @property
    def n_users(self) -> int:
        """Everybody."""
        return len(self.users)

    def __getitem__(self, name: str) -> Array:
        """Return one of the sums."""
        return self.total.sums[name]

    def walk(self, of: Callable[[Users], Mapping[str, Array]]) -> Summary:
        """Add up other sums over all users, in another pass."""
        return walked(lambda block: _by_chunks(block, of, self.protocol.batch), self.users)

    @cached_property
    def truth(self) -> Array:
        """What is being estimated, exactly."""
        truth: Array = self._part("truth")
        return truth

    @cached_property
    def error(self) -> Prediction:
        """The predicted error."""
        error: Prediction = self._part("error")
        return error

    @cached_property
    def support(self) -> Keys | None:
        """Keys of the truth's entries, where the domain is unbounded."""
        keys: Keys | None = self._part("support")
        return keys

    @cached_property
    def resolution(self) -> float:
        """The loss that is left without noise, beyond rounding, at most."""
        return float(self._part("resolution"))

    @cached_property
    def diagnostics(self) -> Mapping[str, float]:
        """What a run may not say, counted."""
        return dict(self._part("diagnostics"))

    @cached_property
    def lower_bounds(self) -> tuple[LowerBound, ...]:
        """What no protocol of the guarantee can beat."""
        return tuple(self._part("lower_bounds"))

    def _part(self, name: str) -> Any:
        """Ask the protocol; the most derived class that says it decides in which of two ways."""
        for cls in type(self.protocol).__mro__:
            if f"{name}_of" in vars(cls):
                break
            if name in vars(cls):
                return getattr(self.protocol, name)(self.records)
        return getattr(self.protocol, f"{name}_of")(self)


class Watched(Wrapped):
    """Users who are measured by block while somebody walks them: to make them costs more than that.

    ``seconds`` were spent on measuring so far.
    """

    def __init__(self, users: Shard, of: Callable[[Users], Summary]) -> None:
        super().__init__(users)
        self._of = of
        self._total: Summary | None = None
        self.seconds = 0.0

    def blocks(self, size: int = BLOCK) -> Iterator[Users]:
        if self._total is not None or size != BLOCK:
            yield from self.users.blocks(size)
            return
        tree, number = Tree(), 0
        for block in self.users.blocks():  # no enumerate: it keeps a block
            tree.add(number, self._timed(block))
            number += 1
            yield block
            del block
        self._total = tree.own_total() if number else self._of(self.none)

    @property
    def total(self) -> Summary:
        """What all users add up to; they are walked for it if nobody has."""
        if self._total is None:
            deque(self.blocks(), maxlen=0)
        if self._total is None:
            raise RuntimeError("users were walked, and not measured")
        return self._total

    def _timed(self, block: Users) -> Summary:
        started = time.perf_counter()
        summary = self._of(block)
        self.seconds += time.perf_counter() - started
        return summary


def walked(of: Callable[[Users], Summary], users: Shard) -> Summary:
    """Add up what ``of`` says of each block of users, as every runtime does."""
    return Watched(users, of).total


def block_sums(protocol: Any, users: Users) -> Summary:
    """Add up a protocol's sums over a block of users."""
    return _by_chunks(users, protocol.sums, protocol.batch)


def _by_chunks(users: Users, of: Callable[[Users], Mapping[str, Array]], size: int) -> Summary:
    parts = [Summary(len(chunk), of(chunk)) for chunk in users.blocks(size)]
    return Summary.merge(parts or [Summary(0, of(users))])


def first_pass(protocol: Any) -> Callable[[Users], Summary] | None:
    """Return what to measure of users while they answer; None where all are needed at once."""
    return functools.partial(block_sums, protocol) if protocol.adds_up else None


def measured(protocol: Any, users: Shard, total: Summary | None = None) -> Facts:
    """Measure users for a protocol.

    Parameters
    ----------
    protocol : Protocol
    users : Shard
    total : Summary, optional
        Of the first pass, if it was made while users answered.

    Raises
    ------
    PopulationError
        If the protocol needs all records at once, and they are too many.
    """
    check_rows(protocol, len(users))
    facts = Facts(protocol, users, total)
    _ = facts.total if total is None and protocol.adds_up else None
    return facts


def check_rows(protocol: Any, n_users: int) -> None:
    """Refuse to evaluate a protocol that needs all records at once on too many users."""
    if not protocol.adds_up and n_users > MOST_ROWS:
        raise PopulationError(
            f"the truth of {protocol.name} needs all users' records at once: at most "
            f"{MOST_ROWS:,} users, got {n_users:,}"
        )


def simulated(protocol: Any, facts: Facts, answering: float = 1.0) -> Prediction:
    """Predict by running the protocol on the users that were measured, of whom a share answers."""
    public = importlib.import_module("fedhist")  # the predictor is the server's
    prediction: Prediction = public.simulated(protocol, facts.users, facts, answering)
    return prediction
