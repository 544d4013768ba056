"""What is compared with what: truths of several protocols, and how exact a truth is itself."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from clients.records.user_rows import user_points
from fedhist.base.arrays import Array
from fedhist.model.losses import L1, L2, SQUARED_L2, l1, l2, squared_l2
from fedhist.model.protocol import Protocol
from fedhist.users.batch import Users
from fedhist.users.keys import Keys

CLOSE = 1e-9
"""Relative difference up to which two truths are one: sums may be added up in another order."""


@dataclass(frozen=True)
class Truth:
    """What a protocol estimates, on given users. NOT PRIVATE.

    Attributes
    ----------
    value : array
    keys : Keys or None
        What its entries stand for; None: their positions.
    """

    value: Array
    keys: Keys | None

    @classmethod
    def of(cls, protocol: Protocol, users: Users) -> Truth:
        """Compute a protocol's truth, with the keys of its entries where it has any."""
        value = np.asarray(protocol.truth(users), dtype=np.float64)
        keys = protocol.support(users) or getattr(protocol, "domain", None)
        named = isinstance(keys, Keys) and value.shape == (len(keys),)
        return cls(value, keys if named else None)

    def gap(self, other: Truth) -> float:
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

    def distance(self, other: Truth, loss: str) -> float:
        """Return the distance in a loss; infinite where entries cannot be matched one by one."""
        known = {L1: l1, L2: l2, SQUARED_L2: squared_l2}.get(loss)
        if known is None or self.keys != other.keys or self.value.shape != other.value.shape:
            return math.inf
        return known(self.value, other.value)

    def same(self, other: Truth) -> bool:
        """Whether both are the same numbers, but for rounding; never where one is not finite."""
        scale = float(np.abs(self.value).max(initial=0.0))
        return math.isfinite(scale) and self.gap(other) <= CLOSE * scale


def sampling_error(truth: Truth, users: Users, loss: str) -> float | None:
    """Estimate how far the truth is from that of the population which the users were drawn from.

    The truth of a comparison is a number about its users: without privacy its error is 0. As an
    answer about the population that they are a sample of, it has an error of its own; an error
    far below it is of no use there.

    Parameters
    ----------
    truth : Truth
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
        if n > 1 and truth.same(Truth(mean * times, truth.keys)):
            variance = np.maximum(second - np.square(mean), 0.0) / (n - 1)
            errors = times * np.sqrt(variance)
            known: Mapping[str, float] = {
                L1: math.sqrt(2 / math.pi) * float(errors.sum()),
                L2: math.sqrt(float(np.square(errors).sum())),
                SQUARED_L2: float(np.square(errors).sum()),
            }
            return known.get(loss)
    return None


def _statistics(truth: Truth, users: Users) -> list[tuple[Array, Array, int, float]]:
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
    items, d = users.counts, len(truth.keys)
    at = truth.keys.positions(items.vocabulary)[items.item]
    inside = at >= 0
    owner = np.repeat(np.arange(len(users)), np.diff(items.indptr))[inside]
    at, count = at[inside], items.count[inside].astype(np.float64)
    totals = np.bincount(owner, weights=count, minlength=len(users))
    out = []
    for row, n, times in (
        (count / totals[owner], int(np.count_nonzero(totals)), 1.0),
        (count, len(users), float(len(users))),
    ):
        first = np.bincount(at, weights=row, minlength=d) / max(n, 1)
        out.append((first, np.bincount(at, weights=row**2, minlength=d) / max(n, 1), n, times))
    return out
