"""Algorithm 3 at every threshold of a grid: samples, losses and bounds for Table 1 and Figure 3.

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

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from clients.bounding.size_curves import size_curves
from fedhist.base.arrays import Floats
from fedhist.privacy.guarantee import Adjacency
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from fedhist.users.shards import Items
from server.histograms.bound_choice import BoundTask
from simulations.experiments.experiment import Findings, exponential_law
from simulations.populations import most_frequent

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
SYNTHETIC = "synthetic"
"""Both of the paper's synthetic populations, at every support size and under every reading."""

AS_PRINTED = "as printed"
BLOCK = 1 << 23
"""Tokens that are put in order at a time, about."""


def margins(users: Users) -> tuple[Counts, Counts]:
    """Count each user's tokens, (n,), and each item's, (len(vocabulary),). NOT PRIVATE."""
    v, count = users.counts, users.counts.count.astype(np.int64)
    before = np.concatenate(([0], np.cumsum(count)))
    totals = np.zeros(len(v.vocabulary), dtype=np.int64)
    np.add.at(totals, v.item, count)
    return np.diff(before[v.indptr]), totals


def kept_totals(users: Users, clips: Counts, rng: np.random.Generator) -> Counts:
    """Total the tokens that rand-clip keeps, for each threshold, in one pass. NOT PRIVATE.

    Put each user's tokens in one uniformly random order. Its first C tokens are a uniform sample of
    C without replacement, for every C: a token of rank r is kept at exactly the thresholds C >= r.
    Each threshold has the law of a real run; together they are coupled, which is what a curve over
    C wants.

    ``clips``: (K,) int64, increasing, from 1 on. Returns (K, len(vocabulary)) int64.
    """
    d = len(users.vocabulary)
    out = np.zeros((len(clips) + 1) * d, dtype=np.int64)
    blocks = 1 + int(margins(users)[0].sum()) // BLOCK
    for part in users.split(min(blocks, max(len(users), 1))):
        sizes = margins(part)[0]
        item = np.repeat(part.counts.item, part.counts.count)
        owner = np.repeat(np.arange(len(part)), sizes)
        order = np.argsort(owner + rng.random(len(owner)))
        rank = 1 + np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        cell = np.searchsorted(clips, rank)
        out += np.bincount(cell * d + item[order], minlength=len(out))
    return np.cumsum(out.reshape(-1, d)[:-1], axis=0)


def expected_errors(kept: Floats, truth: Floats, scale: float, threshold: float) -> Floats:
    """Compute the expected error of every item, exactly, given what clipping kept of it.

    With y = kept + Z, Z of a Laplace law, the item is released, at |y - truth|, if y reaches the
    threshold, and costs ``truth`` otherwise.

    ``kept``, ``truth``: (k,) float64, 0 <= kept <= truth. Returns (k,) float64.

    Examples
    --------
    >>> expected_errors(np.array([9.0]), np.array([10.0]), 1e-9, 5.0).round(6)
    array([1.])
    """

    def short(x: Floats) -> Floats:
        """E[(x - Z)+]."""
        return np.maximum(x, 0.0) + 0.5 * scale * np.exp(-np.abs(x) / scale)

    gap, a = truth - kept, threshold - kept
    tail = 0.5 * np.exp(-np.abs(a) / scale)
    below = np.where(a >= 0, 1 - tail, tail)
    beyond = short(-a) + (a - gap) * (1 - below)  # E[Z - gap; Z >= a] where gap < a
    across = short(gap) + short(-gap) - short(a) - (gap - a) * below
    return np.asarray(truth * below + np.where(gap >= a, across, beyond))


@dataclass(frozen=True)
class Release:
    """Algorithm 3 as printed at one budget, at any threshold.

    Continuous Laplace noise on every item that anybody holds, released above
    C + (C / epsilon) ln(C / 2 delta).
    """

    epsilon: float
    delta: float

    def level(self, clip: int) -> float:
        """Threshold t(C)."""
        return float(self.task(1.0, clip, clip).levels()[-1])

    def expected(self, clip: int, kept: Counts, totals: Counts) -> float:
        """Return the exact expected l1 error given what sampling kept; both (d,)."""
        held = totals > 0
        some, truth = kept[held].astype(np.float64), totals[held].astype(np.float64)
        return float(expected_errors(some, truth, clip / self.epsilon, self.level(clip)).sum())

    def measured(self, clip: int, kept: Counts, totals: Counts, rng: np.random.Generator) -> float:
        """Draw the noise once and return the l1 error."""
        noisy = kept + rng.laplace(0.0, clip / self.epsilon, len(kept))
        out = np.where((noisy > self.level(clip)) & (totals > 0), noisy, 0.0)
        return float(np.abs(totals - out).sum())

    def task(self, epsilon: float, clip_max: int, clip_step: int) -> BoundTask:
        """Return the choice of C that belongs to the release: Algorithm 4 as printed."""
        grid = tuple(range(clip_step, clip_max + 1, clip_step))
        return BoundTask(grid, epsilon, self.epsilon, self.delta, ADJACENCY, clip_max)


@dataclass(frozen=True)
class Sampled:
    """A population after sampling, at every threshold, several times over.

    ``clips``: (K,) int64; ``kept``: (repeats, K, d) int64; ``totals``: (d,) int64, before sampling.
    """

    clips: Counts
    kept: Counts
    totals: Counts

    @classmethod
    def of(cls, users: Users, clips: Counts, repeats: int, rng: np.random.Generator) -> Sampled:
        """Sample the users ``repeats`` times."""
        kept = [kept_totals(users, clips, rng) for _ in range(repeats)]
        return cls(clips, np.array(kept), margins(users)[1])

    def losses(self, release: Release, clips: Counts) -> Floats:
        """Return the expected relative loss of each sample at some thresholds: (repeats, K)."""
        at = np.searchsorted(self.clips, clips)
        rows = [
            [release.expected(int(c), kept[k], self.totals) for c, k in zip(clips, at, strict=True)]
            for kept in self.kept
        ]
        return np.array(rows) / float(self.totals.sum())

    def runs(self, release: Release, clips: Counts, rng: np.random.Generator) -> Floats:
        """Return the relative losses of noisy runs, the samples in turn: (K,)."""
        at = np.searchsorted(self.clips, clips)
        turn = np.arange(len(clips)) % len(self.kept)
        out = [
            release.measured(int(c), self.kept[r, k], self.totals, rng)
            for c, r, k in zip(clips, turn, at, strict=True)
        ]
        return np.array(out) / float(self.totals.sum())


def scores_of(task: BoundTask, users: Users) -> Floats:
    """Evaluate V at every threshold of the task: (K,), tokens beyond C_m included."""
    _, shares, n, size = size_curves(users.counts, task.grid)
    beyond = np.maximum(margins(users)[0] - task.grid[-1], 0).sum()
    return task.scores(n, size, shares) + 2 * float(beyond)


def choice_of(task: BoundTask, users: Users) -> Floats:
    """Compute the exact probabilities of the private choice of C: (K,). NOT PRIVATE."""
    return exponential_law(-scores_of(task, users), task.range / 2, task.epsilon)


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

    @property
    def name(self) -> str:
        """Setting and reading."""
        return f"{self.setting} ({self.reading})" if self.reading else self.setting

    @property
    def delta(self) -> float:
        """1 / 2n, as in the paper."""
        return 0.5 / len(self.users)

    @property
    def release(self) -> Release:
        """The paper's algorithm."""
        return Release(self.epsilon, self.delta)


def cases(findings: Findings) -> Iterator[Case]:
    """Make the paper's synthetic populations under every reading, or load one from a file."""
    s, request = findings.settings, findings.request
    if request.population != SYNTHETIC:
        yield from _loaded(findings)
        return
    for kind, d, (name, reading) in product(s.kinds, s.d, s.readings.items()):
        if kind not in NAMES:
            raise ValueError(f"kinds must be among {', '.join(NAMES)}, got {kind!r}")
        n_users = request.parameters["n_users"] // reading.get("fewer", 1)
        rates = {} if kind == "paper-iid" else {"reading": reading["rates"]}
        loaded = replace(request, population=kind).load(d=d, **rates, n_users=n_users)
        name = f"fitted, n = {n_users:,}" if "fewer" in reading else name
        yield Case(f"{NAMES[kind]}, d = {d}", name, loaded.users, reading["epsilon"])


def _loaded(findings: Findings) -> Iterator[Case]:
    """Load a population once and restrict it to its top d items, for each d."""
    users, population = findings.load().users, findings.request.population
    findings.note(
        "NOT PRIVATE: the support is the most frequent items, chosen by looking at all users' data "
        "as in the paper; the algorithms do not know it"
    )
    epsilon = findings.settings.readings[AS_PRINTED]["epsilon"]
    for d in findings.settings.d_files:
        left = on_support(users, most_frequent(users, d))
        yield Case(f"{NAMES[population]}, d = {d}", "", left, epsilon)


def on_support(users: Users, support: Keys) -> Users:
    """Drop all items outside a support; users are kept even if nothing of theirs is left.

    ``support``: in byte order.
    """
    v = users.counts
    where = support.positions(v.vocabulary)[v.item]
    inside = where >= 0
    before = np.concatenate(([0], np.cumsum(inside)))
    items = Items(support, before[v.indptr], where[inside].astype(np.uint32), v.count[inside])
    return Users(users.ids, items=items)
