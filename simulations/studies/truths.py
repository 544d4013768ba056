"""What is compared with what: exact answers by truth, and how exact a truth is itself."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from clients.records.user_rows import user_points
from fedhist.base.arrays import Array, Floats, Integers
from fedhist.base.errors import PopulationError
from fedhist.model.evaluation import Facts, measured
from fedhist.model.losses import L1, L2, SQUARED_L2
from fedhist.model.protocol import Protocol
from fedhist.model.registry import display_of
from fedhist.model.truths import Truth
from fedhist.users.batch import Users
from fedhist.users.columns import Samples
from fedhist.users.keys import Keys
from simulations.populations.facts import owners

CLOSE = 1e-9
"""Relative difference up to which two truths are one: sums may be added up in another order."""


@dataclass(frozen=True)
class Exact:
    """An exact answer about given users. NOT PRIVATE.

    Attributes
    ----------
    value : array
    keys : Keys or None
        What its entries stand for; None: their positions.
    """

    value: Array
    keys: Keys | None

    @classmethod
    def of(cls, protocol: Protocol, known: Facts) -> Exact:
        """Take a protocol's truth, with the keys of its entries where it has any."""
        value = np.asarray(known.truth, dtype=np.float64)
        keys = known.support or getattr(protocol, "domain", None)
        named = isinstance(keys, Keys) and value.shape == (len(keys),)
        return cls(value, keys if named else None)

    def gap(self, other: Exact) -> float:
        """Return the largest difference of two entries; an item that is missing has 0.

        Infinite where entries cannot be matched.
        """
        if self.keys is not None and other.keys is not None and self.keys != other.keys:
            at = self.keys.positions(other.keys)
            mine = np.zeros(len(other.value))
            mine[at >= 0] = self.value[at[at >= 0]]
            rest = np.delete(self.value, at[at >= 0])
            found = np.concatenate([np.abs(mine - other.value), np.abs(rest)])
            return float(found.max(initial=0.0))
        if self.value.shape != other.value.shape:
            return math.inf
        return float(np.abs(self.value - other.value).max(initial=0.0))

    def over(self, keys: Keys | None) -> Exact:
        """Return the answer about other items: what is not among them is dropped."""
        return Exact(over(self.value, self.keys, keys), keys or self.keys)

    def same(self, other: Exact) -> bool:
        """Whether both are the same numbers, but for rounding; never where one is not finite."""
        scale = float(np.abs(self.value).max(initial=0.0))
        return math.isfinite(scale) and self.gap(other) <= CLOSE * scale


def sampling_error(truth: Exact, users: Users, loss: str) -> float | None:
    """Estimate how far the truth is from that of the population which the users were drawn from.

    The truth of a comparison is a number about its users: without privacy its error is 0. As an
    answer about the population that they are a sample of, it has an error of its own; an error
    far below it is of no use there.

    Parameters
    ----------
    truth : Exact
        An average of the users' own means or shares, or a total of their counts.
    users : Users
        Taken as independent draws of one law of users.
    loss : str
        "l1" (by the normal approximation), "l2" (root mean square) or "squared l2".

    Returns
    -------
    float or None
        None where the truth is another statistic, the loss another one, or there is one user.
        NOT PRIVATE.
    """
    for mean, second, n, times in _statistics(truth, users):
        if n > 1 and truth.same(Exact(mean * times, truth.keys)):
            variance = np.maximum(second - np.square(mean), 0.0) / (n - 1)
            errors = times * np.sqrt(variance)
            known: Mapping[str, float] = {
                L1: math.sqrt(2 / math.pi) * float(errors.sum()),
                L2: math.sqrt(float(np.square(errors).sum())),
                SQUARED_L2: float(np.square(errors).sum()),
            }
            return known.get(loss)
    return None


def _statistics(truth: Exact, users: Users) -> list[tuple[Array, Array, int, float]]:
    """List what a truth may be times an average of: rows' mean, mean square, their number, factor.

    Rows are the users' own means of samples; or their shares of the items (users without any do
    not count), and their counts.
    """
    if users.samples is not None:
        rows = user_points(users.samples)
        rows = rows[~np.isnan(rows).any(axis=1)]
        if not len(rows):
            return []
        return [(rows.mean(axis=0), np.square(rows).mean(axis=0), len(rows), 1.0)]
    if truth.keys is None:
        return []
    d = len(truth.keys)
    owner, at, count = _inside(users, truth.keys)
    totals = np.bincount(owner, weights=count, minlength=len(users))
    out = []
    for row, n, times in (
        (count / totals[owner], int(np.count_nonzero(totals)), 1.0),
        (count, len(users), float(len(users))),
    ):
        first = np.bincount(at, weights=row, minlength=d) / max(n, 1)
        out.append((first, np.bincount(at, weights=row**2, minlength=d) / max(n, 1), n, times))
    return out


def _inside(users: Users, keys: Keys) -> tuple[Integers, Integers, Floats]:
    """List the counts of known items: user, position of the item, count."""
    items = users.counts
    at = keys.positions(items.vocabulary)[items.item]
    inside = at >= 0
    return owners(items.indptr)[inside], at[inside], items.count[inside].astype(np.float64)


def over(value: Array, keys: Keys | None, wanted: Keys | None) -> Array:
    """Bring values by item to other items: 0 where there is none, what is not asked is dropped.

    >>> over(np.array([1.0, 2.0]), Keys.of(["x", "y"]), Keys.of(["y", "z"])).tolist()
    [2.0, 0.0]
    """
    if keys is None or wanted is None or keys == wanted:
        return value
    at = wanted.positions(keys)
    out = np.zeros(len(wanted))
    out[at[at >= 0]] = value[at >= 0]
    return out


# -- truths that may be chosen ---------------------------------------------------------------------


def of_items(protocol: Protocol) -> bool:
    """Whether an estimate has an entry for each item."""
    return (protocol.display or display_of(protocol.target)).form == "items"


def known_truths(protocol: Protocol) -> tuple[Truth, ...]:
    """List the truths that an estimate can be held against, the most usual first.

    Of shares: the average of users' own, those of all events, and those of one item a user; of
    counts: the total, and one item a user; of samples: each user weighs the same, or each sample.
    """
    own = protocol.estimates
    if of_items(protocol):
        if protocol.value_range == (0.0, 1.0):
            return Truth.AVERAGE_OF_USERS, Truth.POOLED, Truth.ONE_ITEM
        return Truth.TOTAL, Truth.ONE_ITEM
    if own in (Truth.AVERAGE_OF_USERS, Truth.POOLED, Truth.COMMON):
        return Truth.AVERAGE_OF_USERS, Truth.POOLED
    return (own,)


def exact_of(
    truth: Truth,
    protocol: Protocol,
    users: Users,
    domain: Keys | None,
    known: Facts | None = None,
) -> tuple[Exact, Users]:
    """Compute a truth that a protocol's estimate is held against. NOT PRIVATE.

    Parameters
    ----------
    truth : Truth
        One of :func:`known_truths`.
    protocol : Protocol
    users : Users
    domain : Keys or None
        Items that are asked about; None takes the protocol's own, or all that occur.
    known : Facts, optional
        What was measured of the users for the protocol; default: they are measured here.

    Returns
    -------
    exact : Exact
    judged : Users
        On whom the protocol's loss is to be measured: where all samples weigh the same, each of
        them is a user of its own.

    Raises
    ------
    ValueError
        If the protocol's estimate cannot be held against it.
    """
    own = protocol.estimates
    known = measured(protocol, users) if known is None else known
    if of_items(protocol):
        keys = domain or known.support or getattr(protocol, "domain", None)
        if keys is known.support and known.one_in > 1 and truth is not own:
            raise ValueError(
                f"{truth.value!r} needs all items; they are sampled 1 in {known.one_in}"
            )
        if isinstance(keys, Keys) and truth in known_truths(protocol):
            shares = protocol.value_range == (0.0, 1.0)
            return Exact(_of_items(truth, users, keys, shares=shares), keys), users
    elif truth is own or (truth, own) == (Truth.AVERAGE_OF_USERS, Truth.COMMON):
        return Exact.of(protocol, known), users
    elif truth is Truth.POOLED and users.samples is not None:
        samples = users.samples  # each is a record of its own
        every = np.arange(len(samples.values) + 1)
        alone = Users(every[:-1].astype(np.uint64), samples=Samples(every, samples.values))
        return Exact.of(protocol, measured(protocol, alone)), alone
    elif (truth, own) == (Truth.AVERAGE_OF_USERS, Truth.POOLED) and users.samples is not None:
        value = np.nanmean(user_points(users.samples), axis=0)
        if value.shape == np.shape(known.truth):
            return Exact(value, None), users
    raise ValueError(f"{protocol.name} cannot be held against the truth {truth.value!r}")


def _of_items(truth: Truth, users: Users, keys: Keys, *, shares: bool) -> Floats:
    """Compute a truth about items: (d,)."""
    owner, at, count = _inside(users, keys)
    d = len(keys)
    if truth in (Truth.TOTAL, Truth.POOLED):
        total = np.bincount(at, weights=count, minlength=d)
        if truth is Truth.TOTAL:
            return total.astype(np.float64)
        divisor = float(total.sum())
    else:
        mine = np.bincount(owner, weights=count, minlength=len(users))
        total = np.bincount(at, weights=count / mine[owner], minlength=d)
        everybody = len(users) if shares else 1
        divisor = everybody if truth is Truth.ONE_ITEM else int(np.count_nonzero(mine))
    if not divisor:
        raise PopulationError("no user has an item of the domain; there is no distribution")
    return np.asarray(total / divisor)
