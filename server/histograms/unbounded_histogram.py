"""Histogram over unknown keys (central) [1]_.

By default a first release says which items appear (:mod:`server.session.unknown_keys`), and a
second one counts those with a clip of its own; that is the project's own. The paper's way is one
release of samples of the users' tokens, whose noise is in proportion to the clip C, and so is the
count that a key needs to appear.

Corrected against the paper: noise goes on the items that were SENT. The paper puts it on all that
any user has; an item that clipping took away may then appear, with a chance of its own, so that a
user of many items is betrayed with a probability that no delta bounds. Thresholds are the exact
ones, and noise is calibrated to the adjacency that is declared.

References
----------
.. [1] Liu, Suresh, Zhu, Kairouz & Gruteser, "Algorithms for bounding contribution for histogram
   estimation under user-level privacy", ICML 2023, Algorithms 3 and 4.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from clients.histograms.key_queries import WEIGHT, DistinctKeys, RandomClip, SizeCurves
from fedhist.base.arrays import Array
from fedhist.base.checks import check_choice, check_integer, check_within
from fedhist.model.evaluation import Facts
from fedhist.model.protocol import Estimate, Script
from fedhist.model.registry import register_protocol
from fedhist.model.renamed import instead
from fedhist.privacy.guarantee import Adjacency, check_budget, sensitivity_multipliers
from fedhist.privacy.noise_law import NoiseLaw
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from server.clip_choice.rule import Choice
from server.histograms.adaptive_histogram import AdaptiveHistogram
from server.histograms.bound_choice import BoundTask, choose_bound
from server.modes import Mode, TwoModes
from server.session.curator import Curator
from server.session.unknown_keys import WeightedKeys, key_threshold, laplace_key_threshold
from server.targets.domains import UnboundedCounts, totals
from server.trust import Central

PAPER_GRID = tuple(range(10, 1501, 10))
"""The thresholds of the paper's experiments."""


@dataclass(frozen=True)
class KeyRelease:
    """Law of a release over unknown keys."""

    scale: float  # of the (discrete) Laplace noise; 0 for none
    threshold: float  # keys whose noisy count reaches it are released
    discrete: bool = True
    raw_support: bool = False  # whether keys that none sent get noise too, as printed

    @property
    def std(self) -> float:
        """Standard deviation of the noise."""
        return NoiseLaw("discrete-laplace" if self.discrete else "laplace", self.scale).std


@register_protocol
@dataclass(frozen=True)
class UnboundedHistogram(TwoModes, UnboundedCounts, Central):
    """Total counts of the frequent items, whatever they are, under central user-level privacy.

    Parameters
    ----------
    epsilon, delta : float
        Budget in all; ``epsilon = inf`` switches noise off (not private). delta > 0: a release
        of unknown keys needs one, well below 1 / n.
    method : {"keys", "sample"}, optional
        "keys": which items appear, then their counts. "sample": the paper's one release. Default:
        "keys", but "sample" where ``clip``, another ``threshold`` or mode "paper" asks for it.
    most_keys : int
        "keys": distinct items that a user names at most (D).
    epsilon_keys : float, optional
        "keys": part of ``epsilon`` that says which items appear; by default 0.4 of it.
    clip : int, optional
        "sample": C, in tokens; public, chosen without the data. None: it is chosen privately.
    clip_max : int
        Public upper end of the choice (C_m).
    threshold : {"exact-range", "paper"}, optional
        "sample": how C is chosen, unless it is given: by the paper's score V with its exact range
        (default), or by Algorithm 4 as printed.
    epsilon_choice : float, optional
        Part of ``epsilon`` for the choice of a clip (epsilon'). Default: epsilon / 11 with
        "sample"; with "keys" what ``adaptive-histogram`` takes of the counts' part.
    adjacency : str
        "zero-out-user" (default), "add-remove-user" or "replace-user".
    discrete : bool
        Integer noise; needed for secure noise. False: real values.
    mode : {"default", "paper"}
        "paper": Algorithm 3 as printed, for comparisons: real-valued noise of scale C / epsilon on
        every item that any user has, t = C + (C / epsilon) ln(C / 2 delta). NOT PRIVATE.

    Privacy
    -------
    (epsilon, delta)-DP per user. "keys": (epsilon_keys, delta) for the keys, of which half of delta
    bounds the probability that an item of one user alone appears, and the rest of epsilon for the
    counts, by basic composition. "sample": epsilon' for the choice, (epsilon - epsilon', delta) for
    the release. A user's sample is a histogram of norm at most C whatever its
    coins; conditioned on them, the shared support costs epsilon - epsilon' and a user's own keys
    appear with probability at most delta (:mod:`server.session.unknown_keys`).

    Error
    -----
    Per item: what it costs not to release it, or clipping and noise.

    Examples
    --------
    >>> UnboundedHistogram(epsilon=1.0, delta=1e-6, clip=10).release_at(10).threshold
    156.0
    """

    name: ClassVar[str] = "unbounded-histogram"
    paper: ClassVar[str] = "Liu et al., ICML 2023, Algorithms 3 and 4"
    revision: ClassVar[int] = 6
    biased: ClassVar[str] = "an item that few users hold is not released"
    needs_server: ClassVar[str] = "which items there are is decided on exact counts by key"
    raw_support: ClassVar[bool] = False
    way_out: ClassVar[str] = "set discrete = true"
    occurring: ClassVar[str] = "whole"

    epsilon: float
    delta: float
    clip: int | None = None
    clip_max: int = 1500
    threshold: str | None = None
    epsilon_choice: float | None = None
    adjacency: str = Adjacency.ZERO_OUT_USER.value
    discrete: bool = True
    mode: Mode = "default"
    method: str | None = None
    most_keys: int = 50
    epsilon_keys: float | None = None

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)
        if self.delta == 0:
            raise ValueError("releasing unknown keys needs delta > 0, got 0")
        Adjacency(self.adjacency)
        if self.threshold not in (None, "exact-range", "paper"):
            gone = instead(f"{self.name}.threshold={self.threshold}")
            said = gone or ': "exact-range" or "paper" is expected'
            raise ValueError(f"unknown threshold {self.threshold!r}{said}")
        self.check_mode()
        if self.method is not None:
            check_choice("method", self.method, ("keys", "sample"))
        check_integer("clip_max", self.clip_max)
        if self.by_keys:
            self._check_keys()
            return
        if self.epsilon_keys is not None:
            raise ValueError(f'epsilon_keys is for method = "keys", got {self.epsilon_keys}')
        if self.epsilon_choice is not None:
            check_budget(self.epsilon_choice)
            if self.clip is not None:
                got = self.epsilon_choice
                raise ValueError(f"a clip that is given needs no epsilon_choice, got {got}")
            if not math.isinf(self.epsilon):
                check_within("epsilon_choice", self.epsilon_choice, 0, self.epsilon, "()")
        if self.clip is not None:
            RandomClip(self.clip)
        elif not self.task.grid:
            raise ValueError(
                f"the paper's thresholds begin at {PAPER_GRID[0]}: clip_max = {self.clip_max}"
            )
        else:
            SizeCurves(self.task.grid)

    def _check_keys(self) -> None:
        for name, usual in (("clip", None), ("threshold", None), ("mode", "default")):
            if getattr(self, name) != usual:
                raise ValueError(f'{name} = {getattr(self, name)!r} is for method = "sample"')
        if self.epsilon_keys is not None and not math.isinf(self.epsilon):
            check_within("epsilon_keys", self.epsilon_keys, 0, self.epsilon, "()")
        _ = self.first, self.second(Keys.range(1))

    # -- budgets and guarantees ------------------------------------------------------------------

    @property
    def by_keys(self) -> bool:
        """Whether keys are released first, and then their counts."""
        asked = self.clip is not None or self.threshold is not None or self.mode != "default"
        return self.method == "keys" or (self.method is None and not asked)

    @property
    def first(self) -> WeightedKeys:
        """The release of keys."""
        replaced = Adjacency(self.adjacency) is Adjacency.REPLACE_USER
        return WeightedKeys(self.most_keys, self._epsilon_keys, self.delta, replaced, self.discrete)

    def second(self, domain: Keys) -> AdaptiveHistogram:
        """Count the keys that were released."""
        return AdaptiveHistogram(
            domain,
            math.inf if math.isinf(self.epsilon) else self.epsilon - self._epsilon_keys,
            epsilon_choice=self.epsilon_choice,
            clip_max=float(self.clip_max),
            adjacency=self.adjacency,
            discrete=self.discrete,
        )

    @property
    def _epsilon_keys(self) -> float:
        """What says which items appear; their counts get the rest."""
        return 0.4 * self.epsilon if self.epsilon_keys is None else self.epsilon_keys

    @property
    def choice_epsilon(self) -> float:
        """What the choice of C may spend: 0 where C is given."""
        if self.clip is not None:
            return 0.0
        return self.epsilon / 11 if self.epsilon_choice is None else self.epsilon_choice

    @property
    def release_epsilon(self) -> float:
        """What the release may spend."""
        return math.inf if math.isinf(self.epsilon) else self.epsilon - self.choice_epsilon

    @property
    def null_safe(self) -> bool:
        return Adjacency(self.adjacency) is Adjacency.ADD_REMOVE_USER

    @property
    def max_rounds(self) -> int:
        if self.by_keys:
            return 1 + self.second(Keys.range(1)).max_rounds
        return 1 if self.clip is not None else 2

    @property
    def real_valued(self) -> bool:
        """Whether the noise of the release is."""
        return not self.discrete

    @property
    def task(self) -> BoundTask:
        """The public side of the choice of C: the paper's thresholds, or eight per factor of 2."""
        if self.threshold == "paper":
            grid = tuple(c for c in PAPER_GRID if c <= self.clip_max)
        else:
            steps = math.ceil(math.log2(self.clip_max) * 8)
            points = np.geomspace(1, self.clip_max, steps + 1).round().astype(np.int64)
            grid = tuple(np.unique(points).tolist())
        return BoundTask(
            grid,
            self.choice_epsilon,
            self.release_epsilon,
            self.delta,
            Adjacency(self.adjacency),
            self.clip_max if self.threshold == "paper" else None,
        )

    def l1_sensitivity(self, clip: int) -> int:
        """C, or 2 C under replacement."""
        return round(sensitivity_multipliers(Adjacency(self.adjacency), 2)[0]) * clip

    def release_at(self, clip: int) -> KeyRelease:
        """Law of the release at a given C: noise scale, threshold and support."""
        s, budget = self.l1_sensitivity(clip), (self.release_epsilon, self.delta)
        scale = s / self.release_epsilon
        if not self.discrete:
            at = laplace_key_threshold(clip, s, *budget)
            return KeyRelease(scale, at, discrete=False)
        return KeyRelease(scale, float(key_threshold(clip, s, *budget)))

    # -- the script ------------------------------------------------------------------------------

    def rounds(self, server: Curator) -> Script:
        real = self.real_valued
        if server.grade == "secure" and real and not math.isinf(self.release_epsilon):
            return Estimate.refused(f'noise = "secure" draws integers only: {self.way_out}')
        if self.by_keys:
            return (yield from self._count_keys(server))
        if self.clip is not None:
            choice = Choice(float(self.clip))
        else:
            choice = yield from choose_bound(self.task, server)
        clip = int(choice.clip)
        summary = yield RandomClip(clip, raw_support=self.raw_support)
        released = server.threshold(
            summary.keyed["counts"],
            contribution=clip,
            l1_sensitivity=self.l1_sensitivity(clip),
            epsilon=self.release_epsilon,
            delta=self.delta,
            noise="laplace" if real else "discrete",
            as_printed=self.raw_support,
        )
        law = self.release_at(clip)
        public = {
            **choice.public,
            "clip": float(clip),
            "threshold": float(law.threshold),
            "noise_std": law.std,
        }
        if Adjacency(self.adjacency) is not Adjacency.ADD_REMOVE_USER:
            public["n_users"] = float(summary.n_users)
        return Estimate.ok(
            released.values,
            keys=released.keys,
            stderr=np.full(len(released.keys), law.std),
            warnings=choice.warnings,
            public=public,
        )

    def _count_keys(self, server: Curator) -> Script:
        """Release the keys, then their counts."""
        first = self.first
        summary = yield DistinctKeys(first.limit)
        keys = server.keys(summary.keyed["weights"], first)
        public = {
            "keys": float(len(keys)),
            "key_threshold": first.threshold / WEIGHT,
            "key_noise_std": first.std / WEIGHT,
        }
        if not len(keys):
            return Estimate.failed(
                "no item appeared: too few users share any; raise epsilon, or delta", public=public
            )
        estimate = yield from self.second(keys).rounds(server)
        return replace(estimate, public={**estimate.public, **public})

    # -- evaluation ------------------------------------------------------------------------------

    def sums(self, users: Users) -> Mapping[str, Array]:
        return {"whole": totals(users, users.vocabulary)}

    def truth_of(self, facts: Facts) -> Array:
        """Return the total count of every item that occurs, (k,)."""
        return np.asarray(facts["whole"][self.places(facts)])

    @classmethod
    def example(cls) -> Self:
        return cls(epsilon=11.0, delta=1e-6, clip_max=64)

    @classmethod
    def example_users(cls) -> Users:
        """Sixty users of up to seven tokens, some of them empty, with a few items of their own."""
        names = ["お茶", "tea", "maté", "?", "chai\0latte"]

        def row(u: int) -> dict[str, int]:
            mine = {names[(u + 2 * k) % 5]: 1 + (u + k) % 3 for k in range(u % 4)}
            return mine | ({f"own-{u}": 1} if u % 10 == 3 else {})

        return Users.from_records({f"user-{u}": row(u) for u in range(60)})
