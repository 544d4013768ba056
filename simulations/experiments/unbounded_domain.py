"""Algorithm 3 at every threshold of a grid: losses and bounds for Table 1 and Figure 3.

The loss is ||released - true||_1 / ||true||_1 [1, eq. (2)]. Which tokens sampling keeps is drawn;
given that, the expectation over the noise is a closed form. So a curve over the thresholds needs no
Monte Carlo over the noise, and its minimum is not the luckiest draw's. Everything here reads
private data and is for evaluation only: NOT PRIVATE.

References
----------
.. [1] Liu, Suresh, Zhu, Kairouz & Gruteser, "Algorithms for bounding contribution for histogram
   estimation under user-level privacy", ICML 2023, sections 5 and 7.2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clients.bounding.size_curves import size_curves
from fedhist.base.arrays import Floats
from fedhist.base.checks import check_integer
from fedhist.privacy.guarantee import Adjacency
from fedhist.protocols.histograms.bound_choice import BoundTask
from fedhist.protocols.histograms.unbounded_histogram import KeyRelease, UnboundedHistogram
from fedhist.users.batch import Users
from fedhist.users.columns import Items
from fedhist.users.keys import Keys
from simulations.experiments.algorithm3 import alg3_expected
from simulations.experiments.experiment import Request
from simulations.experiments.token_ranks import kept_totals, margins
from simulations.populations import Loaded
from simulations.populations.base import most_frequent

Counts = NDArray[np.int64]

ADJACENCY = Adjacency.ZERO_OUT_USER
"""What the paper's noise is calibrated to, whatever it states."""

NAMES = {
    "paper-iid": "i.i.d.",
    "paper-non-iid": "non-i.i.d.",
    "sentiment140": "Sentiment140",
    "zipf": "Zipf",
    "lastfm": "Last.fm",
}
SYNTHETIC_KINDS = ("paper-iid", "paper-non-iid")


@dataclass(frozen=True)
class Reading:
    """What the paper's setting is taken to be.

    ``epsilon``: setting that holds the budget of the release; ``rates``: reading of the population
    that is not i.i.d; ``fewer``: whether there are fewer users, by the factor of the setting
    ``fewer``.
    """

    epsilon: str
    rates: str
    fewer: bool = False


READINGS = {
    "as printed": Reading("epsilon_as_printed", "as-printed"),
    "fitted": Reading("epsilon_fitted", "fitted"),
    "fitted, fewer users": Reading("epsilon_fewer", "fitted", fewer=True),
}
AS_PRINTED = "as printed"


@dataclass(frozen=True)
class Release:
    """Algorithm 3 at one budget, at any threshold.

    ``printed``: as in the paper: continuous Laplace noise on every item that anybody holds,
    released above C + (C / epsilon) ln(C / 2 delta). Otherwise ours: integer noise on the items
    that sampling left, released from the smallest threshold on that is private.
    """

    epsilon: float
    delta: float
    printed: bool

    def level(self, clip: int) -> float:
        """Threshold t(C)."""
        return float(self.task(1.0, clip, clip).levels()[-1])

    def expected(self, clip: int, kept: Counts, totals: Counts) -> float:
        """Return the exact expected l1 error given what sampling kept; both (d,)."""
        law = KeyRelease(
            clip / self.epsilon, self.level(clip), not self.printed, raw_support=self.printed
        )
        held = totals > 0
        return float(
            alg3_expected(kept[held].astype(np.float64), totals[held].astype(np.float64), law).sum()
        )

    def measured(self, clip: int, kept: Counts, totals: Counts, rng: np.random.Generator) -> float:
        """Draw the noise once and return the l1 error."""
        scale, level = clip / self.epsilon, self.level(clip)
        if self.printed:
            noisy = kept + rng.laplace(0.0, scale, len(kept))
            out = np.where((noisy > level) & (totals > 0), noisy, 0.0)
        else:
            stop = -math.expm1(-1.0 / scale)
            drawn = rng.geometric(stop, (2, len(kept)))
            noisy = kept + drawn[0] - drawn[1]
            out = np.where((noisy >= level) & (kept > 0), noisy, 0)
        return float(np.abs(totals - out).sum())

    def task(self, epsilon: float, clip_max: int, clip_step: int) -> BoundTask:
        """Return the choice of C that belongs to the release: Algorithm 4 as printed, or ours."""
        budget = epsilon, self.epsilon, self.delta, ADJACENCY
        if self.printed:
            return BoundTask(tuple(range(clip_step, clip_max + 1, clip_step)), *budget, clip_max)
        ours = UnboundedHistogram(1.0, self.delta, method="sample", clip_max=clip_max)
        return BoundTask(ours.task.grid, *budget)


@dataclass(frozen=True)
class Sampled:
    """A population after sampling, at every threshold, several times over.

    ``clips``: (K,) int64; ``kept``: (repeats, K, d) int64; ``totals``: (d,) int64, before sampling.
    """

    clips: Counts
    kept: Counts
    totals: Counts

    @classmethod
    def of(cls, users: Users, clips: Counts, repeats: int, seed: int, context: str) -> Sampled:
        """Sample the users ``repeats`` times."""
        kept = [kept_totals(users, clips, seed, f"{context} {r}") for r in range(repeats)]
        return cls(clips, np.array(kept), margins(users)[1])

    def losses(self, release: Release) -> Floats:
        """Return the expected relative loss of each sample at each threshold: (repeats, K)."""
        return self._relative(release.expected)

    def runs(self, release: Release, rng: np.random.Generator) -> Floats:
        """Return the relative loss of one noisy run per sample and threshold: (repeats, K)."""
        return self._relative(lambda c, kept, totals: release.measured(c, kept, totals, rng))

    def _relative(self, error: Callable[[int, Counts, Counts], float]) -> Floats:
        rows = [
            [error(int(c), h, self.totals) for c, h in zip(self.clips, kept, strict=True)]
            for kept in self.kept
        ]
        return np.array(rows) / float(self.totals.sum())


def scores_of(task: BoundTask, users: Users) -> Floats:
    """Evaluate V at every threshold of the task: (K,), tokens beyond C_m included."""
    _, shares, n, size = size_curves(users.counts, task.grid)
    beyond = np.maximum(margins(users)[0] - task.grid[-1], 0).sum()
    return task.scores(n, size, shares) + 2 * float(beyond)


def choice_of(task: BoundTask, users: Users) -> Floats:
    """Compute the exact probabilities of the private choice of C: (K,). NOT PRIVATE."""
    return _weights(scores_of(task, users), task.epsilon / task.range)


def _weights(cost: Floats, rate: float) -> Floats:
    """Probabilities proportional to exp(-rate cost); at an infinite rate the first least cost."""
    if math.isinf(rate):
        return np.asarray(np.arange(len(cost)) == np.argmin(cost), dtype=np.float64)
    w = np.exp(-rate * (cost - cost.min()))
    return np.asarray(w / w.sum())


def check_settings(request: Request, *sizes: str) -> None:
    """Refuse settings that are not positive integers, and a grid without thresholds.

    ``sizes`` names settings that hold one support size or a list of them.
    """
    s = request.settings
    for name in ("clip_max", "clip_step", "repeats", "fewer"):
        request.whole(name)
    for name in ("epsilon_as_printed", "epsilon_fitted", "epsilon_fewer"):
        request.positive(name)
    for name in sizes:
        (request.wholes if isinstance(s[name], list) else request.whole)(name)
    if s["clip_step"] > s["clip_max"]:
        raise ValueError(f"clip_step must be at most clip_max, got {s['clip_step']}")


# -- populations -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One population under one reading of the paper's setting.

    ``setting``: "non-i.i.d., d = 50"; ``reading``: "as printed", "fitted" or "fitted, n = 50,000";
    "" where there is only one; ``epsilon``: of the release.
    """

    setting: str
    reading: str
    users: Users
    epsilon: float
    title: str
    told: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Setting and reading."""
        return f"{self.setting} ({self.reading})" if self.reading else self.setting

    @property
    def delta(self) -> float:
        """1 / 2n, as in the paper."""
        return 0.5 / len(self.users)

    def releases(self) -> tuple[Release, Release]:
        """Return the paper's algorithm and ours."""
        return Release(self.epsilon, self.delta, True), Release(self.epsilon, self.delta, False)


def synthetic_cases(request: Request, kind: str, d: int) -> Iterator[Case]:
    """Generate one of the paper's synthetic populations under every reading asked for."""
    s = request.settings
    readings = [str(r) for r in s["readings"]]
    if set(readings) - set(READINGS) or not readings:
        raise ValueError(f"readings must be among {list(READINGS)}, got {s['readings']}")
    if kind not in SYNTHETIC_KINDS:
        raise ValueError(f"kinds must be among {', '.join(SYNTHETIC_KINDS)}, got {kind!r}")
    setting = f"{NAMES[kind]}, d = {d}"
    named = replace(request, population=kind)
    n_users = request.parameters["n_users"]
    check_integer("n_users", n_users)
    last: tuple[dict[str, Any], Loaded] | None = None
    for name in readings:
        reading = READINGS[name]
        how = {"d": d} | ({} if kind == "paper-iid" else {"reading": reading.rates})
        if reading.fewer:
            how["n_users"] = max(1, n_users // int(s["fewer"]))
            name = f"fitted, n = {how['n_users']:,}"
        if last is None or last[0] != how:  # readings that differ in epsilon have the same users
            last = how, named.load(**how)
        yield Case(setting, name, last[1].users, float(s[reading.epsilon]), last[1].title)


def other_cases(request: Request, tops: list[int]) -> Iterator[Case]:
    """Load a population once and restrict it to its top d items, for each d."""
    loaded = request.load()
    for d in tops:
        support = most_frequent(loaded.users, d)
        users = on_support(loaded.users, support)
        told = (
            *loaded.not_private,
            f"the support is the {d:,} most frequent items, chosen by looking at all users' data "
            "as in the paper; the algorithms do not know it",
        )
        setting = f"{NAMES[request.population]}, d = {d}"
        epsilon = float(request.settings["epsilon_as_printed"])
        yield Case(setting, "", users, epsilon, loaded.title, told)


def on_support(users: Users, support: Keys) -> Users:
    """Drop all items outside a support; users are kept even if nothing of theirs is left.

    ``support``: in byte order.
    """
    v = users.counts
    where = support.positions(v.vocabulary)[v.item]
    inside = where >= 0
    before = np.concatenate(([0], np.cumsum(inside)))
    kept = Items(support, before[v.indptr], where[inside].astype(np.uint32), v.count[inside])
    return Users(users.ids, items=kept)
