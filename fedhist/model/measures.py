"""Measures: what evaluation needs to know of users, added up block by block. NOT PRIVATE.

Truth, prediction and diagnostics of a protocol come from one :class:`Measured`. A protocol whose
measure adds up has it made in the pass in which users answer, so that no machine holds them all;
the others need all records at once, and are refused above :data:`MOST_ROWS` users.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from fedhist.base.arrays import Array
from fedhist.base.errors import PopulationError
from fedhist.model.prediction import LowerBound, Prediction
from fedhist.model.query import Summary
from fedhist.model.trees import Tree
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from fedhist.users.shards import BLOCK, Shard, Wrapped

MOST_ROWS = 1_000_000
"""Users whose records an evaluation may need at once."""


Walk = Callable[[Callable[[Users], Summary]], Summary]
"""Adds up over all users what a function says of a block of them."""


TOLD = ("truth", "error", "support", "resolution", "diagnostics", "lower_bounds")
"""What is asked of users, by the names of a protocol's methods."""


class Measured(ABC):
    """What evaluation knows of a population; each part is computed when it is asked for.

    Attributes
    ----------
    users : Shard
        Who was measured, for a part that the first pass does not tell; given by :func:`measured`.
    """

    users: Shard

    def walk(self, of: Callable[[Users], Summary]) -> Summary:
        """Make another pass over the same users."""
        return walked(of, self.users)

    @property
    @abstractmethod
    def truth(self) -> Array:
        """What is being estimated, exactly."""

    @property
    @abstractmethod
    def error(self) -> Prediction:
        """The predicted error."""

    @property
    def support(self) -> Keys | None:
        """Keys of the truth's entries, where the domain is unbounded."""
        return None

    @property
    def one_in(self) -> int:
        """Of so many keys about one is in :attr:`support`; then losses are so many times theirs.

        More than 1 where keys are too many: see :mod:`fedhist.users.key_sample`.
        """
        return 1

    @property
    def resolution(self) -> float:
        """The loss that is left without noise, beyond rounding, at most."""
        return 0.0

    @property
    def diagnostics(self) -> Mapping[str, float]:
        """What a run may not say, counted."""
        return {}

    @property
    def lower_bounds(self) -> tuple[LowerBound, ...]:
        """What no protocol of the guarantee can beat."""
        return ()


class Measure(ABC):
    """How a protocol's users are added up for its evaluation; pickles, as workers make it.

    Class attributes
    ----------------
    finds_keys : bool
        Whether the domain is unbounded: :attr:`Measured.support` names the truth's entries, and
        those of an estimate are told apart by their keys.
    """

    finds_keys: ClassVar[bool] = False

    @abstractmethod
    def of(self, users: Users) -> Summary:
        """Measure a block of users: sums, and keyed sums. What adds up may be integers or reals."""

    @abstractmethod
    def finish(self, total: Summary) -> Measured | Measure:
        """Say what the sum over all users tells, or what a second pass has to measure."""


class Evaluated(ABC):
    """What a protocol says for its evaluation: the half of it that knows users."""

    name: ClassVar[str]
    loss_name: ClassVar[str] = "loss"

    def measure(self) -> Measure | None:
        """Say how users are added up block by block for truth, prediction and diagnostics.

        None, the default: :meth:`truth` and :meth:`error` need all records at once. A protocol that
        has a measure overrides neither of them, nor what else is asked of users below; where a
        class derived from it does, all records are needed again.
        """
        return None

    def error(self, users: Users) -> Prediction:
        """Predict the error on a known population. NOT PRIVATE: for evaluation only.

        Default: the mean of 30 runs on these users (:mod:`server.predictor`).
        """
        return measured(self, users).error

    def lower_bounds(self, users: Users) -> tuple[LowerBound, ...]:
        """Bound from below what any protocol of this guarantee can do for such users.

        Default: nothing is known. NOT PRIVATE: it may count the users' samples.
        """
        return self._measured(users).lower_bounds

    def truth(self, users: Users) -> Array:
        """Compute what is being estimated, exactly. NOT PRIVATE: for evaluation only."""
        return self._measured(users).truth

    def _measured(self, users: Users) -> Measured:
        """Measure users; without a measure, say what their records tell all at once."""
        return by_measure(self, users)

    def support(self, users: Users) -> Keys | None:
        """Return the keys of the entries of :meth:`truth`, where the domain is unbounded.

        None (the default) says that truth and estimate have the same entries. NOT PRIVATE.
        """
        return self._measured(users).support

    def resolution(self, users: Users) -> float:
        """Bound the loss that is left without noise, beyond rounding. NOT PRIVATE.

        0, the default: at epsilon = inf the truth comes back, on a population that nothing clips. A
        protocol that draws one item of each user, or answers in bins, says here how far off it
        may be.
        """
        return self._measured(users).resolution

    def diagnostics(self, users: Users) -> Mapping[str, float]:
        """Count what a run may not say: records that were replaced by the null record, say.

        Default: nothing. NOT PRIVATE: for evaluation only.
        """
        return self._measured(users).diagnostics


class Unmeasured(Measured):
    """Of a protocol without a measure that does not say from records what it is asked for."""

    @property
    def truth(self) -> Array:
        """Not known."""
        raise TypeError("a protocol needs the method truth, or measure")

    @property
    def error(self) -> Prediction:
        """Not known."""
        raise TypeError("a protocol needs the method truth, or measure")


@dataclass(frozen=True)
class Records(Measured):
    """What all users' records tell at once, through the protocol's own methods."""

    protocol: Evaluated
    users: Users

    @cached_property
    def truth(self) -> Array:
        """What is being estimated, exactly."""
        return self.protocol.truth(self.users)

    @cached_property
    def error(self) -> Prediction:
        """The predicted error."""
        if type(self.protocol).error is Evaluated.error:
            return simulated(self.protocol, self)
        return self.protocol.error(self.users)

    @cached_property
    def support(self) -> Keys | None:
        """Keys of the truth's entries, where the domain is unbounded."""
        return self.protocol.support(self.users)

    @cached_property
    def resolution(self) -> float:
        """The loss that is left without noise, beyond rounding, at most."""
        return self.protocol.resolution(self.users)

    @cached_property
    def diagnostics(self) -> Mapping[str, float]:
        """What a run may not say, counted."""
        return self.protocol.diagnostics(self.users)

    @cached_property
    def lower_bounds(self) -> tuple[LowerBound, ...]:
        """What no protocol of the guarantee can beat."""
        return self.protocol.lower_bounds(self.users)


class Watched(Wrapped):
    """Users who are measured while somebody walks them: to make them costs more than that.

    Parameters
    ----------
    users : Shard
    of : callable
        Measures a block.

    Attributes
    ----------
    seconds : float
        Spent on measuring so far.
    """

    def __init__(self, users: Shard, of: Callable[[Users], Summary]) -> None:
        super().__init__(users)
        self._of = of
        self._total: Summary | None = None
        self.seconds = 0.0

    def blocks(self, size: int = BLOCK) -> Iterator[Users]:
        """Walk the users; the first walk to their end measures them."""
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
    return users.added_up(of) if isinstance(users, Elsewhere) else Watched(users, of).total


class Elsewhere(Wrapped):
    """Users whose blocks others can walk."""

    @abstractmethod
    def added_up(self, of: Callable[[Users], Summary]) -> Summary:
        """Return what :func:`walked` would, to the bit: a tree over the blocks by number."""


def simulated(protocol: Any, known: Measured, answering: float = 1.0) -> Prediction:
    """Predict by running the protocol on the users that were measured, of whom a share answers."""
    from server.predictor import simulated as run  # the default of an interface looks up

    return run(protocol, known.users, known, answering)


def first_pass(protocol: Evaluated) -> Callable[[Users], Summary] | None:
    """Return what to measure of users while they answer; None where all are needed at once."""
    measure = None if by_records(protocol) else protocol.measure()
    return None if measure is None else measure.of


def by_records(protocol: Evaluated) -> bool:
    """Say whether evaluation needs all users' records at once.

    That is: there is no measure, or a class derived from the one that has it says otherwise what
    the measure tells.
    """
    if protocol.measure() is None:
        return True
    classes = type(protocol).__mro__
    measuring = next(i for i, cls in enumerate(classes) if "measure" in vars(cls))
    return any(name in vars(cls) for cls in classes[:measuring] for name in TOLD)


def measured(protocol: Evaluated, users: Shard, total: Summary | None = None) -> Measured:
    """Measure users for a protocol, in as many passes as that takes.

    Parameters
    ----------
    protocol : Evaluated
    users : Shard
    total : Summary, optional
        Of the first pass, if it was made while users answered.

    Raises
    ------
    PopulationError
        If the protocol needs all records at once, and they are too many.
    """
    if by_records(protocol):
        check_rows(protocol, len(users))
        return Records(protocol, users.in_memory(f"the truth of {protocol.name}"))
    return by_measure(protocol, users, total)


def by_measure(protocol: Evaluated, users: Shard, total: Summary | None = None) -> Measured:
    """Measure users by the protocol's measure, as in :func:`measured`."""
    first = protocol.measure()
    if first is None:
        return Unmeasured()
    step: Measure | Measured = first
    while isinstance(step, Measure):
        step = step.finish(total if total is not None else walked(step.of, users))
        total = None
    if type(step).support is not Measured.support and not first.finds_keys:
        # a session would keep the order of keys, which may tell what is private
        raise TypeError(
            f"{type(step).__name__} has a support: {type(first).__name__}.finds_keys must be True"
        )
    object.__setattr__(step, "users", users)
    return step


def check_rows(protocol: Evaluated, n_users: int) -> None:
    """Refuse to evaluate a protocol that needs all records at once on too many users."""
    if by_records(protocol) and n_users > MOST_ROWS:
        raise PopulationError(
            f"the truth of {protocol.name} needs all users' records at once: at most "
            f"{MOST_ROWS:,} users, got {n_users:,}"
        )
