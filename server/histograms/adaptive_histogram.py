"""Histogram over a public domain whose clipping threshold is chosen privately (central) [1]_.

Corrected against the paper: noise fits the declared adjacency, and the range of C is public (the
paper's: up to the largest contribution in the data).

References
----------
.. [1] Liu, Suresh, Zhu, Kairouz & Gruteser, "Algorithms for bounding contribution for histogram
   estimation under user-level privacy", ICML 2023, Algorithms 1 and 2, Sections 4 and 7.1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from clients.histograms.contributions import NORM_STEPS, NormHistogram
from clients.histograms.queries import ClippedCounts
from fedhist.base.checks import check_choice, check_integer, check_within
from fedhist.base.errors import nearest
from fedhist.model.protocol import Estimate, Script
from fedhist.model.query import Query
from fedhist.model.registry import register_protocol
from fedhist.model.renamed import instead
from fedhist.privacy.guarantee import Adjacency, check_budget
from fedhist.privacy.shares import Aggregation
from fedhist.users.keys import Keys, check_domain
from fedhist.users.shards import Shard
from server.clip_choice import by_paper
from server.clip_choice.rule import ThresholdRule, ThresholdTask, em_slope
from server.histograms.bounded_histogram import BoundedHistogram
from server.session.curator import Curator
from server.targets.domains import DomainHistogram
from server.trust import Central

CHOICE_SHARE = 0.2
"""Share of epsilon that pays for C. Exact mixtures over 96 settings: 0.09 (the paper's, Section
7.1), 0.15 and 0.2 err alike within 4 % in geometric mean; but of five items and one user in twenty
with fifty times as much as the others, 0.15 errs up to 5 times as much as 0.2."""


def threshold_rule(name: str) -> ThresholdRule:
    """Look up a rule by name; ValueError, with the nearest known name, if there is none.

    >>> threshold_rule("em-slope").needs_delta
    False
    """
    rules = {"em-slope": ThresholdRule(em_slope), **by_paper.RULES}
    if name not in rules:  # a layer above: it is loaded by whoever asks for it
        rules |= import_module("server.printed.histograms").PRINTED_RULES
    if name not in rules:
        gone = instead(f"adaptive-histogram.threshold={name}")
        known = gone or f"{nearest(name, sorted(rules))}; there are {', '.join(rules)}"
        raise ValueError(f"unknown threshold rule {name!r}{known}")
    return rules[name]


class Shares(NamedTuple):
    """The parts of a budget: (epsilon', delta') for the choice of C, and what is left."""

    choice_epsilon: float
    choice_delta: float
    release_epsilon: float
    release_delta: float


@register_protocol
@dataclass(frozen=True)
class AdaptiveHistogram(DomainHistogram, Central):
    """Total count of every item of a public domain; the clipping threshold is chosen privately.

    Parameters
    ----------
    domain : Keys
        Public items.
    epsilon, delta : float
        The whole budget, choice and release. ``epsilon = inf`` switches noise off (not private);
        ``delta = 0``: l1 norm and Laplace noise. A choice by Gaussian noise gets half of delta.
    epsilon_choice : float, optional
        Part of epsilon that pays for the choice of C. Default: 0.2 of it.
    threshold : str
        Rule that chooses C. One round and no delta: "em-slope" (default). Linear, many rounds, for
        Gaussian noise: "dp-sgd". The paper's others, to be measured and not chosen:
        "adaptive-quantile", "output-perturbation", and as printed "dp-sgd-paper",
        "output-perturbation-paper".
    clip_min, clip_max : float
        Public ends of the search, in counts. A user who has any item has norm 1 at least.
    noise : {"auto", "laplace", "gaussian"}
        Gaussian noise and l2 clips, where delta > 0; or Laplace noise and l1 clips. "auto" takes
        Gaussian noise where delta allows it, unless public numbers and the chosen C show that
        Laplace noise is less.
    sparsity : int, optional
        s: slopes ||N||_1 / ||N||_2 are cut to R = sqrt(s) on the client, for the choice alone.
        Default: a tenth of the domain; s = d cuts nothing and makes the choice noisier.
    adjacency : str
        "zero-out-user" (default), "add-remove-user" or "replace-user".
    discrete : bool
        Integer messages on the grid C / 2^20 and discrete noise; needed for secure noise.
    nonneg : bool
        Raise negative totals to zero; never increases the l1 error of Algorithm 1.
    n_users : int, optional
        Public number of users, for the rules as printed.
    steps : int
        Rounds of an iterative rule.
    trust : Aggregation, optional
        The nodes add the noise, of choice and release; needs ``discrete``, and a rule by noisy
        sums: "dp-sgd" or "adaptive-quantile".

    Privacy
    -------
    (epsilon, delta)-DP per user, by basic composition of the choice and the release. The release is
    private by itself for every C that may be chosen, and for either noise.

    Examples
    --------
    >>> p = AdaptiveHistogram(Keys.range(100), epsilon=1.0, delta=1e-6)
    >>> p.shares.choice_epsilon, p.shares.release_epsilon, p.norm
    (0.2, 0.8, 2)
    """

    name: ClassVar[str] = "adaptive-histogram"
    paper: ClassVar[str] = "Liu et al., ICML 2023, Algorithms 1 and 2, Sections 4 and 7.1"
    revision: ClassVar[int] = 7

    domain: Keys
    epsilon: float
    delta: float = 0.0
    epsilon_choice: float | None = None
    threshold: str = "em-slope"
    noise: str = "auto"
    clip_min: float = 1.0
    clip_max: float = 1000.0
    sparsity: int | None = None
    adjacency: str = Adjacency.ZERO_OUT_USER.value
    discrete: bool = False
    nonneg: bool = True
    n_users: int | None = None
    steps: int = 40
    trust: Aggregation | None = None

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)
        check_domain(self.domain)
        self.check_integers(self.discrete)
        check_choice("noise", self.noise, ("auto", "laplace", "gaussian"))
        if self.noise == "gaussian" and not self.delta:
            raise ValueError("Gaussian noise needs delta > 0, got 0")
        if self.rule.needs_delta and not self.delta:
            raise ValueError(f"the rule {self.threshold!r} needs delta > 0, got 0")
        check_within("clip_max", self.clip_max, 0, math.inf, "()")
        check_within("clip_min", self.clip_min, 0, self.clip_max, "(]")
        _ = self.at(self.clip_min, self.norm)
        if self.sparsity is not None:
            check_within("sparsity", self.sparsity, 1, len(self.domain))
        for name in ("n_users", "steps"):
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name))
        if self.n_users and Adjacency(self.adjacency) is Adjacency.ADD_REMOVE_USER:
            raise ValueError(f"{self.adjacency} keeps the number of users private: got n_users")
        _ = self.max_rounds  # a rule may need n_users
        if self.trust is not None:
            if self.rule.by_sums is None:
                raise ValueError(
                    f"the rule {self.threshold!r} is chosen by exact scores, which aggregate trust "
                    "has not"
                )
            radius = self.rule.by_sums(self.task)
            _ = self.asks(NormHistogram(self.domain, (1.0,), self.norm, radius), 0)

    def asks(self, query: Query, round_index: int) -> Query:
        if self.trust is None:
            return query
        if isinstance(query, ClippedCounts):
            p = self.at(query.clip, query.norm)
            return self.shared(query, p.epsilon, p.delta)
        task, times = self.task, self.rule.rounds(self.task)
        return self.shared(query, task.epsilon, task.delta, rounds=times, place=round_index)

    # -- the two parts ---------------------------------------------------------------------------

    @property
    def shares(self) -> Shares:
        """How the budget is split; an infinite epsilon makes every epsilon infinite."""
        given = self.epsilon_choice
        if given is not None and not given > 0:
            raise ValueError(f"epsilon_choice must be positive, got {given}")
        choice = CHOICE_SHARE * self.epsilon if given is None else given
        left = self.epsilon - choice
        if math.isinf(self.epsilon):
            choice = left = math.inf
        if not left > 0:
            what = f"epsilon_choice = {choice} leaves nothing of epsilon = {self.epsilon}"
            raise ValueError(f"{what} to the release")
        delta = self.delta / 2 if self.rule.needs_delta else 0.0
        return Shares(choice, delta, left, self.delta - delta)

    @property
    def norm(self) -> int:
        """The norm that is searched: 1 for Laplace noise, 2 for Gaussian noise."""
        if not self.delta or self.noise == "laplace":
            return 1
        if self.noise == "gaussian" or math.isinf(self.epsilon) or self.rule.needs_delta:
            return 2
        # ||N||_1 <= sqrt(d) ||N||_2: were C1 = sqrt(d) C2, Laplace noise would still be the less
        laplace, gaussian = (self.at(1.0, norm).noise.mean_absolute for norm in (1, 2))
        return 1 if math.sqrt(len(self.domain)) * laplace <= gaussian else 2

    @property
    def rule(self) -> ThresholdRule:
        """How C is chosen."""
        return threshold_rule(self.threshold)

    @property
    def radius(self) -> float:
        """R, the bound on slopes; 1 for norm 1, where all slopes are 1."""
        if not self.delta:
            return 1.0
        return math.sqrt(self.sparsity or max(1, round(0.1 * len(self.domain))))

    def at(self, clip: float, norm: int) -> BoundedHistogram:
        """Return the protocol of the release at a threshold; negative totals are kept."""
        steps = self.discrete and (self.trust is not None or not math.isinf(self.epsilon))
        grid = clip / NORM_STEPS if steps else None
        epsilon, delta = self.shares.release_epsilon, self.shares.release_delta
        delta = delta if norm == 2 else 0.0
        return BoundedHistogram(
            self.domain, epsilon, clip, delta, self.adjacency, grid, nonneg=False, trust=self.trust
        )

    def release_at(self, clip: float) -> BoundedHistogram:
        """Return the protocol of the release at a threshold that was chosen.

        Counts are integers, hence ||N||_1 <= ||N||_2^2: whoever an l2 clip of C leaves whole, an
        l1 clip of C^2 leaves whole. It is taken where Laplace noise at C^2 is at most 3/4 of the
        Gaussian noise at C: errors are in about that ratio, but at equal noise up to 1.15 times as
        large, because more is cut off users beyond C.
        """
        chosen, wide = self.at(clip, self.norm), math.floor(clip**2 * (1 + 1e-9))
        if self.norm == 1 or self.noise != "auto" or not wide or math.isinf(self.epsilon):
            return chosen
        narrow = self.at(float(wide), 1)
        less = narrow.noise.mean_absolute <= 0.75 * chosen.noise.mean_absolute
        return narrow if less else chosen

    @property
    def task(self) -> ThresholdTask:
        """The public side of the search for C, in the norm that is searched."""
        d, norm, shares = len(self.domain), self.norm, self.shares
        broad = math.sqrt(d) if norm == 1 and self.delta else 1.0
        return ThresholdTask(
            self.domain,
            norm,
            mass=d * self.at(1.0, norm).noise.mean_absolute,
            radius=self.radius if norm == 2 else 1.0,
            c_min=self.clip_min,
            c_max=self.clip_max * broad,
            epsilon=shares.choice_epsilon,
            delta=shares.choice_delta,
            adjacency=Adjacency(self.adjacency),
            n_users=self.n_users,
            steps=self.steps,
            secure=self.discrete,
            trust=self.trust,
        )

    @property
    def null_safe(self) -> bool:
        return Adjacency(self.adjacency) is Adjacency.ADD_REMOVE_USER

    @property
    def max_rounds(self) -> int:
        return self.rule.rounds(self.task) + 1

    def rounds(self, server: Curator) -> Script:
        if server.grade == "secure" and not self.discrete and not math.isinf(self.epsilon):
            return Estimate.refused('noise = "secure" draws integers only: set discrete = true')
        task = self.task
        choice = yield from self.rule.search(task, server)
        estimate = yield from self.release_at(choice.clip).rounds(server)
        if estimate.value is None:
            return estimate
        public = {"mass": task.mass, **choice.public, "epsilon_choice": task.epsilon}
        return replace(
            estimate,
            value=np.maximum(estimate.value, 0.0) if self.nonneg else estimate.value,
            warnings=(*choice.warnings, *estimate.warnings),
            public={**estimate.public, **public},
        )

    @classmethod
    def resolve(
        cls, parameters: Mapping[str, Any], users: Shard, domain: Keys | None
    ) -> tuple[dict[str, Any], list[str]]:
        """Fill the domain, and the number of users where it is public."""
        p, not_private = super().resolve(parameters, users, domain)
        if p.get("adjacency") != Adjacency.ADD_REMOVE_USER.value:
            p.setdefault("n_users", len(users) or None)
        return p, not_private

    @classmethod
    def example(cls) -> Self:
        domain = Keys.of(["chai", "maté", "rooibos", "tea", "お茶"])
        return cls(domain, epsilon=1.0, delta=1e-6, clip_max=64.0)
