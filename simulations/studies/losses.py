"""Exact answers, and how large an error is: in norms, against the answer's size, trivial answers.

The size of an answer is the error of one that is 0 everywhere. Errors that are squares are brought
to their roots first, so that 10% is a tenth of the answer in any loss.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedhist.base.arrays import Array, Floats
from fedhist.model.evaluation import Facts
from fedhist.model.protocol import Protocol
from fedhist.model.registry import display_of
from fedhist.model.truths import L1, L2, SQUARED_L2
from fedhist.users.keys import Keys

NORMS = (L1, SQUARED_L2, L2, "linf")
ZEROS, UNIFORM, MIDPOINT = "all zeros", "uniform", "midpoint of the range"
SQUARES = (SQUARED_L2, "ise")
"""Losses that are squares of a distance."""

AS_COUNTS = ("distribution", "histogram")
"""Targets of which the first, times the users, is the second."""

TOP, MANY = 10, 50
"""Items that recalls are of, at most."""
CLOSE = 1e-9
"""Relative difference up to which two truths are one: sums may be added up in another order."""


@dataclass(frozen=True)
class Exact:
    """An exact answer about given users. NOT PRIVATE.

    ``keys``: what its entries stand for; None: their positions.
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
            errors = np.concatenate([np.abs(mine - other.value), np.abs(rest)])
            return float(errors.max(initial=0.0))
        if self.value.shape != other.value.shape:
            return math.inf
        return float(np.abs(self.value - other.value).max(initial=0.0))

    def over(self, keys: Keys | None) -> Exact:
        """Return the answer about other items: what is not among them is dropped."""
        return Exact(over(self.value, self.keys, keys), keys if self.keys else None)

    def same(self, other: Exact) -> bool:
        """Whether both are the same numbers, but for rounding; never where one is not finite."""
        scale = float(np.abs(self.value).max(initial=0.0))
        return math.isfinite(scale) and self.gap(other) <= CLOSE * scale


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


def of_items(protocol: Protocol) -> bool:
    """Whether an estimate has an entry for each item."""
    return (protocol.display or display_of(protocol.target)).form == "items"


def norms(value: Array, truth: Array) -> dict[str, float]:
    """Measure the distance of two vectors in the usual norms."""
    gap = np.abs(value - truth).ravel()
    square = float(np.square(gap).sum())  # in one order, whatever the threads of BLAS
    return {
        L1: float(gap.sum()),
        L2: math.sqrt(square),
        SQUARED_L2: square,
        "linf": float(gap.max(initial=0.0)),
    }


def restated(expected: float, own: str, wanted: str, entries: int, form: str) -> float | None:
    """State a predicted loss in another one; None where it does not follow.

    From the squared l2 distance of items, or of a single number, the noise of all entries being
    taken as normal and alike, l1 follows by E|X| = sigma sqrt(2 / pi). The square of an expected
    l2 distance stands for the expected square.

    >>> restated(4.0, "l2", "squared l2", 3, "items"), restated(4.0, "l1", "l2", 3, "items")
    (16.0, None)
    """
    if own == wanted:
        return expected
    if (own, wanted) == (SQUARED_L2, L1) and entries and (form == "items" or entries == 1):
        return math.sqrt(2 / math.pi * entries * expected)
    return expected**2 if (own, wanted) == (L2, SQUARED_L2) else None


def trivial_answers(protocol: Protocol, truth: Array) -> dict[str, Floats]:
    """Return the answers that need no data, by name, each of the truth's shape.

    A uniform histogram has the true total, which is the one thing that it must be told.
    """
    truth = np.asarray(truth, dtype=np.float64)
    form = (protocol.display or display_of(protocol.target)).form
    low, high = protocol.value_range
    if not math.isfinite(low + high):
        low, high = (float(getattr(protocol, name, math.nan)) for name in ("low", "high"))
    out: dict[str, Floats] = {}
    if form != "quantiles":
        out[ZEROS] = np.zeros(truth.shape)
    if form == "items" and truth.size:
        total = 1.0 if protocol.value_range == (0.0, 1.0) else float(truth.sum())
        out[UNIFORM] = np.full(truth.shape, total / truth.size)
    elif form == "cells":
        out[UNIFORM] = np.ones(truth.shape)
    elif math.isfinite(low + high):
        out[MIDPOINT] = np.full(truth.shape, (low + high) / 2)
        if form == "quantiles" and protocol.positions is not None:
            out[UNIFORM] = low + np.asarray(protocol.positions) * (high - low)
    return out


def relative(loss: float | None, size: float | None, name: str) -> float | None:
    """Return an error as a share of the answer's size; None where that is 0 or not known.

    ``size``: loss of the answer that is 0 everywhere; ``name``: of the loss.

    >>> relative(1.0, 4.0, "l1"), relative(1.0, 4.0, "squared l2"), relative(1.0, 0.0, "l1")
    (0.25, 0.5, None)
    """
    if loss is None or not size or not math.isfinite(size):
        return None
    share = loss / size
    return math.sqrt(share) if name in SQUARES and share >= 0 else share


def worse_than(loss: float | None, trivial: Mapping[str, float]) -> str:
    """Name the best of the answers without data if it beats an error; else an empty text.

    >>> worse_than(2.0, {"all zeros": 1.0, "uniform": 3.0}), worse_than(0.5, {"all zeros": 1.0})
    ('all zeros', '')
    """
    best = min(trivial, key=trivial.__getitem__, default="")
    return best if best and loss is not None and not loss <= trivial[best] else ""


def item_measures(value: Array, truth: Array, invented: Array | None = None) -> Mapping[str, float]:
    """Measure an estimate of items otherwise than in a norm. NOT PRIVATE.

    ``invented``: estimates of items that are not among these, of a protocol that makes names.
    Returns "per item": mean absolute error; "k": items that "recall" is of, see :func:`recall`;
    "many" and "recall of many" for more items, if there are. "precision": of the items of the k or
    "many" largest estimates above 0, the share that anybody has. "off": median relative error of
    the counts of the k or "many" largest that are found. Both only where something is. "invented":
    how many, if they are told.

    >>> estimate, made_up = np.array([3.0, 9.0, 1.0, 0.0]), np.array([4.0])
    >>> result = item_measures(estimate, np.array([8.0, 6.0, 2.0, 0.0]), made_up)
    >>> result["per item"], result["recall"], result["precision"], result["off"]
    (2.25, 1.0, 0.5, 0.5625)
    """
    value, truth = (np.asarray(x, dtype=np.float64).ravel() for x in (value, truth))
    if not truth.size:
        return {}
    k, many = (min(most, max(1, truth.size // 2)) for most in (TOP, MANY))
    out = {"per item": float(np.abs(value - truth).mean())}
    out |= {"k": float(k), "recall": recall(value, truth, k)}
    if many > k:
        out |= {"many": float(many), "recall of many": recall(value, truth, many)}
    positive, made_up = value > 0, np.zeros(0) if invented is None else invented
    made_up = made_up[made_up > 0]
    if invented is not None:
        out["invented"] = float(len(made_up))
    every = np.concatenate([value[positive], made_up])
    real = np.concatenate([truth[positive] > 0, np.zeros(len(made_up))])
    if len(every):
        out["precision"] = float(real[np.argsort(-every, kind="stable")[:many]].mean())
    large = positive & (truth > 0) & (truth >= np.partition(truth, -many)[-many])
    if large.any():
        out["off"] = float(np.median(np.abs(value[large] / truth[large] - 1)))
    return out


def recall(value: Floats, truth: Floats, k: int) -> float:
    """Return the share of the k largest of an estimate that are among the k largest in truth.

    Ties in truth are all among them; ties in the estimate count as if broken at random, not by the
    domain's order.

    >>> recall(np.array([3.0, 9.0, 1.0]), np.array([8.0, 6.0, 7.0]), 2)
    0.5
    """
    known = np.where(np.isnan(value), -np.inf, value)
    least = np.partition(known, -k)[-k]
    hit, above, tied = truth >= np.partition(truth, -k)[-k], known > least, known == least
    return (float(hit[above].sum()) + (k - int(above.sum())) * float(hit[tied].mean())) / k


def unit_of(loss: str, target: str) -> str:
    """Name a loss with its unit.

    >>> unit_of("squared l2", "mean"), unit_of("l1", "histogram")
    ('squared l2 (squared units of the samples)', 'l1 error (counts)')
    """
    unit = display_of(target).unit
    if unit and loss in ("l1", "l2", "linf"):
        return f"{loss} error ({unit})"
    if unit and loss == SQUARED_L2:
        return f"{loss} (squared {unit.partition(',')[0]})"
    if loss == "ise":
        return "integrated squared error"
    return f"error ({loss})" if loss else "error"
