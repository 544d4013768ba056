"""Settings that theory would take for these users, at one budget. NOT PRIVATE: it read their data.

References to start from and to compare with. A release takes settings from public knowledge, or
lets a part of its budget choose them.

References
----------
.. [1] Liu et al., "Algorithms for bounding contribution for histogram estimation under user-level
   privacy", ICML 2023, Lemma 4.2 and Theorem 4.3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedhist.base.arrays import Floats, Integers
from fedhist.base.errors import nearest
from fedhist.privacy.adjacency import USER_LEVEL
from fedhist.privacy.guarantee import Adjacency, check_budget
from fedhist.privacy.noise_law import noise_per_sensitivity
from fedhist.privacy.sensitivity import sensitivity_multipliers
from fedhist.protocols.histograms.reference_clips import c_star_gaussian, c_star_laplace
from fedhist.users.batch import Users
from fedhist.users.columns import Samples
from fedhist.users.keys import Keys
from simulations.populations.base import item_totals
from simulations.populations.facts import owners

DIGITS = 3
FEW = 0.1
"""Share of the users who may hold fewer than the suggested number of samples."""


@dataclass(frozen=True)
class Budget:
    """What the suggestions are for."""

    epsilon: float = 1.0
    delta: float = 0.0
    adjacency: Adjacency = Adjacency.REPLACE_USER

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)

    @classmethod
    def of(cls, epsilon: float, delta: float, adjacency: str) -> Budget:
        """Make a budget; ValueError for an unknown adjacency, with the known ones."""
        known = [a.value for a in USER_LEVEL]
        if adjacency not in known:
            raise ValueError(f"unknown adjacency {adjacency!r}{nearest(adjacency, known)}")
        return cls(epsilon, delta, Adjacency(adjacency))

    def __str__(self) -> str:
        return f"epsilon = {self.epsilon:g}, delta = {self.delta:g}, {self.adjacency.value}"

    def best_clip(self, l1: Floats, l2: Floats, d: int) -> tuple[float, float]:
        """Return C* of users of these norms, and the bound on the l1 error that it minimizes [1].

        Parameters
        ----------
        l1, l2 : (n,) float64
            Norms of the users' counts.
        d : int
            Items.
        """
        if not d or not l1.any():
            return 0.0, 0.0
        if math.isinf(self.epsilon):
            return float((l2 if self.delta else l1).max(initial=0.0)), 0.0
        k = sensitivity_multipliers(self.adjacency, d)
        unit = noise_per_sensitivity(self.epsilon, self.delta, False)
        if not self.delta:
            clip = c_star_laplace(l1, d, self.epsilon, k[0])
            return clip, float(np.maximum(l1 - clip, 0).sum()) + k[0] * d * clip / self.epsilon
        mass = d * k[1] * unit.mean_absolute
        clip = c_star_gaussian(l1, l2, mass)
        lost = np.maximum(1 - clip / np.maximum(l2, 1e-300), 0.0) * l1
        return clip, float(lost.sum()) + mass * clip


@dataclass(frozen=True)
class Suggestion:
    """A setting, and where it comes from.

    Attributes
    ----------
    value : float or int
    why : str
    error : float
        Bound on the error with it, as a share of the answer; 0 where none is known.
    """

    value: float
    why: str
    error: float = 0.0


def for_items(users: Users, domain: Keys | None, budget: Budget) -> dict[str, Suggestion]:
    """Suggest ``top``, ``clip`` and ``samples_per_user`` for item counts.

    Without "clip" where no item is worth its noise.
    """
    items = users.counts
    owner, count = owners(items.indptr), items.count.astype(np.float64)
    totals = item_totals(users)
    rank = np.empty(len(totals), dtype=np.int64)
    rank[np.argsort(-totals, kind="stable")] = np.arange(len(totals))
    place = rank[items.item]
    out = {}
    d, error = _best_size(owner, count, place, len(users), len(totals), budget)
    share = error / max(float(totals.sum()), 1.0)
    out["top"] = Suggestion(
        d,
        f"of 1, 2, 5, 10, ... most frequent items, least bound on the l1 error ({share:.0%})",
        share,
    )
    if domain is None:
        inside, size, where = place < d, d, f"the {d:,} most frequent items"
    else:
        inside = (domain.positions(items.vocabulary) >= 0)[items.item]
        size, where = len(domain), f"the domain's {len(domain):,} items"
    l1, l2 = _norms(owner[inside], count[inside], len(users))
    clip, _ = budget.best_clip(l1, l2, size)
    if clip > 0:
        norm = "l2" if budget.delta else "l1"
        out["clip"] = Suggestion(
            rounded(clip), f"C* of Liu et al. 2023, Section 4.1: {norm} norm, {where}"
        )
    return out | _sizes(l1, f"in {where}")


def for_samples(samples: Samples, held: Floats, budget: Budget) -> dict[str, Suggestion]:
    """Suggest ``low``, ``high`` and ``samples_per_user`` for real samples.

    An end of the range is where one step further out would clip less than it adds noise: beyond it
    lie samples that are 1 / epsilon users' worth, the rule C* for means of samples in a range.
    """
    low, high = _range(samples, budget.epsilon)
    out = {}
    if low < high:
        why = "beyond it lie samples of 1 / epsilon users' worth: clipping equals noise there"
        out = {"low": Suggestion(low, why), "high": Suggestion(high, why)}
    return out | _sizes(held, "")


def _best_size(
    owner: Integers, count: Floats, place: Integers, n_users: int, n_items: int, budget: Budget
) -> tuple[int, float]:
    """Return the number of most frequent items with the least bound on the error over all items."""
    series = [m * 10**k for k in range(len(str(n_items))) for m in (1, 2, 5)]
    sizes = sorted({*(s for s in series if s < n_items), n_items})
    best = n_items, math.inf
    everything = float(count.sum())
    for d in sizes:
        inside = place < d
        l1, l2 = _norms(owner[inside], count[inside], n_users)
        clip, error = budget.best_clip(l1, l2, d)
        error += everything - float(l1.sum())
        if clip > 0 and error < best[1]:
            best = d, error
    return best if math.isfinite(best[1]) else (1, everything)


def _norms(owner: Integers, count: Floats, n_users: int) -> tuple[Floats, Floats]:
    l1 = np.bincount(owner, count, n_users).astype(np.float64)
    return l1, np.sqrt(np.bincount(owner, count**2, n_users))


def _sizes(held: Floats, where: str) -> dict[str, Suggestion]:
    some = held[held > 0]
    if not len(some):
        return {}
    few = int(np.quantile(some, FEW, method="lower"))
    why = f"{1 - FEW:.0%} of the users who hold anything {where} hold at least so many"
    return {"samples_per_user": Suggestion(few, " ".join(why.split()))}


def _range(samples: Samples, epsilon: float) -> tuple[float, float]:
    size = np.diff(samples.indptr).astype(np.float64)
    share = np.repeat(1 / np.maximum(size, 1), size.astype(np.int64))
    finite = np.isfinite(samples.values).all(axis=1)
    x, share = samples.values[finite], share[finite]
    if not len(x):
        return 0.0, 0.0
    ends = []
    for column in x.T:
        order = np.argsort(column, kind="stable")
        for ranked in (order, order[::-1]):
            at = np.searchsorted(np.cumsum(share[ranked]), 1 / epsilon)
            ends.append(float(column[ranked[min(int(at), len(ranked) // 2)]]))
    return outward(min(ends), max(ends))


def outward(low: float, high: float) -> tuple[float, float]:
    """Round a range outwards, to a hundredth of the power of ten of its width.

    >>> outward(1.0, 5.0), outward(-0.12345, 1.7654)
    ((1.0, 5.0), (-0.13, 1.77))
    """
    if not high > low:
        return low, high
    places = 2 - math.floor(math.log10(high - low))
    step = 10.0**-places
    return (
        round(math.floor(low / step + 1e-9) * step, max(places, 0)),
        round(math.ceil(high / step - 1e-9) * step, max(places, 0)),
    )


def rounded(x: float) -> float:
    """Round to a few digits.

    >>> rounded(81.6924)
    81.7
    """
    return float(f"{x:.{DIGITS}g}")
