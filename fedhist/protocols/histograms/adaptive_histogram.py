"""Histogram over a public domain whose clipping threshold is chosen privately (central) [1]_.

A first part of the script chooses the threshold C by one of several rules, from how much users
contribute, and whether Laplace or Gaussian noise is the less; the release is then that of
:mod:`fedhist.protocols.histograms.bounded_histogram` at that C. One run, one ledger. Corrected
against the paper: noise fits the declared adjacency, and the range of C is public (the paper's: up
to the largest contribution in the data).

References
----------
.. [1] Liu, Suresh, Zhu, Kairouz & Gruteser, "Algorithms for bounding contribution for histogram
   estimation under user-level privacy", ICML 2023, Algorithms 1 and 2, Sections 4 and 7.1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from fedhist.base.arrays import Array
from fedhist.base.checks import check_choice, check_integer
from fedhist.model.error_bounds import ErrorBound
from fedhist.model.protocol import Estimate, Script
from fedhist.model.query import Query
from fedhist.model.registry import register_protocol
from fedhist.privacy.aggregation import Aggregation
from fedhist.privacy.guarantee import Adjacency, check_budget
from fedhist.protocols.clip_choice.budget import Shares, domain_share, split_budget, sums_share
from fedhist.protocols.clip_choice.by_curve import shared_query
from fedhist.protocols.clip_choice.by_exponential import EM_SLOPE
from fedhist.protocols.clip_choice.catalogue import threshold_rule
from fedhist.protocols.clip_choice.ratio_debiasing import ROUNDS, SMALLER_CLIP, private_total, ratio
from fedhist.protocols.clip_choice.rule import ThresholdRule, ThresholdTask
from fedhist.protocols.clip_choice.two_norms import choose_norm
from fedhist.protocols.histograms.adaptive_law import ChoiceLaw
from fedhist.protocols.histograms.bounded_histogram import GRID_STEPS, BoundedHistogram
from fedhist.protocols.shared.central import Central
from fedhist.protocols.shared.contributions import MOST_CAP, NormHistogram
from fedhist.protocols.shared.domains import check_domain
from fedhist.protocols.shared.histogram_target import DomainHistogram
from fedhist.protocols.shared.seen import Seen
from fedhist.session.curator import Curator
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from fedhist.users.shards import Shard

NOISES = ("auto", "laplace", "gaussian")


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
        ``delta = 0``: l1 norm and Laplace noise.
    epsilon_choice : float, optional
        Part of epsilon that pays for the choice of C. Default: by the number of items, for rules by
        noisy sums the more (:func:`~fedhist.protocols.clip_choice.budget.domain_share`).
    delta_choice : float, optional
        Part of delta for the choice. Default: half for rules with Gaussian noise, otherwise 0.
    threshold : str
        Rule that chooses C. One round and no delta: "em-slope" (default), "em-quantile". Linear,
        for Gaussian noise: "slope-curve" (one round), "dp-sgd" (many). To be measured and not
        chosen: "em-slope-point", "output-perturbation", "adaptive-quantile", "huang-quantile", and
        as printed "dp-sgd-paper", "output-perturbation-paper".
    clip_min, clip_max : float
        Public ends of the search, in counts. A user who has any item has norm 1 at least.
    noise : {"auto", "laplace", "gaussian"}
        Gaussian noise and l2 clips, where delta > 0; or Laplace noise and l1 clips. "auto", with
        "em-slope": Laplace noise where it is less however broad users are, which public numbers
        say; otherwise C is chosen for both, and the lesser noise is taken
        (:mod:`fedhist.protocols.clip_choice.two_norms`). Other rules: as delta says.
    sparsity : int, optional
        s: slopes ||N||_1 / ||N||_2 are cut to R = sqrt(s) on the client, for the choice alone.
        Default: a tenth of the domain; s = d cuts nothing and makes the choice noisier.
    adjacency : str
        "zero-out-user" (default), "add-remove-user" or "replace-user".
    discrete : bool
        Integer messages on the grid C / 2^20 and discrete noise; needed for secure noise.
    nonneg : bool
        Raise negative totals to zero; never increases the l1 error of Algorithm 1.
    debias : bool
        Clip at C / 4 and scale up to a private total; for large domains, and not covered by theory
        (:mod:`fedhist.protocols.clip_choice.ratio_debiasing`).
    epsilon_ratio : float, optional
        Part of epsilon that pays for that total. Default: a tenth.
    n_users : int, optional
        Public number of users, for the share of the choice and for rules that need it.
    steps : int
        Rounds of an iterative rule.
    per_octave : int
        Grid points per factor of two.
    trust : Aggregation, optional
        The nodes add the noise, of choice and release; needs ``discrete``, no ratio, and a rule by
        noisy sums: "slope-curve", "dp-sgd", "adaptive-quantile" or "huang-quantile".

    Privacy
    -------
    (epsilon, delta)-DP per user, by basic composition of the choice, the total and the release.
    Each is private by itself for every value that the earlier ones may have.

    Error
    -----
    An exact mixture over thresholds, or a mean over simulated ones: see :meth:`error`.

    Examples
    --------
    >>> p = AdaptiveHistogram(Keys.range(100), epsilon=1.0, delta=1e-6)
    >>> round(p.shares.choice_epsilon, 6), round(p.shares.release_epsilon, 6), p.norms
    (0.126491, 0.873509, (1, 2))
    """

    name: ClassVar[str] = "adaptive-histogram"
    paper: ClassVar[str] = "Liu et al., ICML 2023, Algorithms 1 and 2, Sections 4 and 7.1"
    revision: ClassVar[int] = 4

    domain: Keys
    epsilon: float
    delta: float = 0.0
    epsilon_choice: float | None = None
    delta_choice: float | None = None
    threshold: str = "em-slope"
    noise: str = "auto"
    clip_min: float = 1.0
    clip_max: float = 1000.0
    sparsity: int | None = None
    adjacency: str = Adjacency.ZERO_OUT_USER.value
    discrete: bool = False
    nonneg: bool = True
    debias: bool = False
    epsilon_ratio: float | None = None
    n_users: int | None = None
    steps: int = 40
    per_octave: int = 4
    trust: Aggregation | None = None

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)
        check_domain(self.domain)
        self.check_integers(self.discrete)
        check_choice("noise", self.noise, NOISES)
        if self.noise == "gaussian" and not self.delta:
            raise ValueError("Gaussian noise needs delta > 0, got 0")
        if self.norm not in self.rule.norms:
            needed = f"delta > 0, got {self.delta}" if not self.delta else "Gaussian noise"
            raise ValueError(f"the rule {self.threshold!r} needs {needed}")
        if not 0 < self.clip_min <= self.clip_max < math.inf:
            raise ValueError(
                "clip_min and clip_max must be positive, finite and in this order, got "
                f"{self.clip_min} and {self.clip_max}"
            )
        _ = self.at(self.clip_min)
        if self.sparsity is not None and not 1 <= self.sparsity <= len(self.domain):
            raise ValueError(f"sparsity must lie in [1, {len(self.domain)}], got {self.sparsity}")
        for name in ("n_users", "steps", "per_octave"):
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name))
        if self.n_users and Adjacency(self.adjacency) is Adjacency.ADD_REMOVE_USER:
            raise ValueError(f"{self.adjacency} keeps the number of users private: got n_users")
        if self.debias and self.clip_max * self.radius > MOST_CAP:
            raise ValueError(f"clip_max must be at most 2^40 / R with a ratio, got {self.clip_max}")
        _ = self.max_rounds  # a rule may need n_users
        if self.trust is not None:
            if self.debias or self.rule.by_sums is None:
                what = "a ratio is" if self.debias else f"the rule {self.threshold!r} is"
                raise ValueError(f"{what} chosen by exact scores, which aggregate trust has not")
            radius = self.rule.by_sums(self.task)
            _ = self.asks(NormHistogram(self.domain, (1.0,), self.norm, radius), 0)

    def asks(self, query: Query, round_index: int) -> Query:
        """Under aggregate trust, for shares of the budget of the choice, or of the release."""
        if self.trust is None:
            return query
        if not isinstance(query, NormHistogram):
            p = self.at(self.clip_min)
            return self.shared(query, p.epsilon, p.delta)
        task, times = self.task, self.rule.rounds(self.task)
        return self.shared(
            shared_query(self.rule, query),
            task.epsilon,
            task.delta,
            rounds=times,
            place=round_index,
        )

    # -- the budget ------------------------------------------------------------------------------

    @property
    def shares(self) -> Shares:
        """How the budget is split."""
        d, by_sums = len(self.domain), self.rule.aim is None
        return split_budget(
            self.epsilon,
            self.delta,
            self.rule,
            share=sums_share(d) if by_sums else domain_share(d, self.n_users, self.epsilon),
            epsilon_choice=self.epsilon_choice,
            delta_choice=self.delta_choice,
            epsilon_ratio=self.epsilon_ratio,
            ratio=self.debias,
        )

    # -- the two parts ---------------------------------------------------------------------------

    @property
    def norms(self) -> tuple[int, ...]:
        """1 with Laplace noise, 2 with Gaussian noise; both where the users decide."""
        if not self.delta or self.noise == "laplace":
            return (1,)
        if self.noise == "gaussian" or self.rule is not EM_SLOPE or math.isinf(self.epsilon):
            return (2,)
        # ||N||_1 <= sqrt(d) ||N||_2: were C1 = sqrt(d) C2, Laplace noise would still be the less
        laplace, gaussian = (self.at(1.0, norm).noise.mean_absolute for norm in (1, 2))
        return (1,) if math.sqrt(len(self.domain)) * laplace <= gaussian else (1, 2)

    @property
    def norm(self) -> int:
        """The norm of the release, where it is settled beforehand; 2 where it may be either."""
        return self.norms[-1]

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

    def at(self, clip: float, norm: int | None = None) -> BoundedHistogram:
        """Return the protocol of the release at a threshold; negative totals are kept.

        Without noise there is nothing to protect and the totals are summed as they are.
        """
        steps = self.discrete and (self.trust is not None or not math.isinf(self.epsilon))
        grid = clip / GRID_STEPS if steps else None
        epsilon, delta = self.shares.release_epsilon, self.shares.release_delta
        delta = delta if (norm or self.norm) == 2 else 0.0
        return BoundedHistogram(
            self.domain, epsilon, clip, delta, self.adjacency, grid, nonneg=False, trust=self.trust
        )

    @property
    def task(self) -> ThresholdTask:
        """The public side of the search for C, in the norm of the release."""
        return self.task_in(self.norm)

    def task_in(self, norm: int) -> ThresholdTask:
        """Build the public side of the search for C in a norm.

        Where delta > 0, l1 norms may be sqrt(d) times as large as ``clip_max``, which bounds l2
        norms; where C is searched for in both norms, each search has half of the budget.
        """
        d, adjacency = len(self.domain), Adjacency(self.adjacency)
        shares, unit = self.shares, self.at(1.0, norm).noise
        broad = math.sqrt(d) if norm == 1 and self.delta else 1.0
        return ThresholdTask(
            self.domain,
            norm,
            mass=d * unit.mean_absolute,
            rank=unit.std * math.sqrt(d) if norm == 2 else 0.0,
            radius=self.radius if norm == 2 else 1.0,
            c_min=self.clip_min,
            c_max=self.clip_max * broad,
            epsilon=shares.choice_epsilon / len(self.norms),
            delta=shares.choice_delta,
            adjacency=adjacency,
            n_users=self.n_users,
            steps=self.steps,
            per_octave=self.per_octave,
            secure=self.discrete,
            trust=self.trust,
        )

    @property
    def law(self) -> ChoiceLaw:
        """How C is chosen."""
        return ChoiceLaw(self.rule, tuple(map(self.task_in, self.norms)))

    @property
    def null_safe(self) -> bool:
        """Where the number of users is private: an empty record adds nothing to any sum."""
        return Adjacency(self.adjacency) is Adjacency.ADD_REMOVE_USER

    @property
    def max_rounds(self) -> int:
        """Those of the rule, two for the total if there is one, and the release."""
        return self.rule.rounds(self.task) + (ROUNDS if self.debias else 0) + 1

    def rounds(self, server: Curator) -> Script:
        """Choose C, then release the totals clipped to it."""
        if server.grade == "secure" and not self.discrete and not math.isinf(self.epsilon):
            return Estimate.refused('noise = "secure" draws integers only: set discrete = true')
        if len(self.norms) == 2:
            choice = yield from choose_norm(self.task_in(1), self.task_in(2), server)
        else:
            choice = yield from self.rule.search(self.task, server)
        norm = int(choice.public.get("norm", self.norm))
        public = {"mass": self.task_in(norm).mass, **choice.public}
        public["epsilon_choice"] = self.shares.choice_epsilon
        total = None
        if self.debias:
            total, cap = yield from private_total(
                server, self.domain, self._caps, self.shares.ratio_epsilon
            )
            public |= {"total": total, "cap": float(cap)}
        estimate = yield from self.at(self.release_clip(choice.clip), norm).rounds(server)
        if estimate.value is None or estimate.stderr is None:
            return estimate
        value, stderr = estimate.value, estimate.stderr
        if self.nonneg:
            value = np.maximum(value, 0.0)
        if total is not None:
            factor = ratio(total, value)
            value, stderr = factor * value, factor * stderr
            public["ratio"] = factor
        return replace(
            estimate,
            value=value,
            stderr=stderr,
            warnings=(*choice.warnings, *estimate.warnings),
            public={**estimate.public, **public},
        )

    def release_clip(self, chosen: float) -> float:
        """Return the threshold of the release: a quarter of the chosen one for a ratio."""
        if not self.debias or math.isinf(self.epsilon):
            return chosen
        return max(self.clip_min, chosen / SMALLER_CLIP)

    @property
    def _caps(self) -> tuple[float, ...]:
        """Caps on a user's number of items: up to the largest of norm clip_max and slope R."""
        low = max(1.0, self.clip_min)
        high = max(low, self.clip_max * self.radius)
        return tuple(np.unique(replace(self.task, c_min=low, c_max=high).grid).tolist())

    def sums(self, users: Users) -> dict[str, Array]:
        """Add up counts, and what the law of the choice follows from. NOT PRIVATE."""
        return {**super().sums(users), **self.law.tails(users)}

    def error_of(self, seen: Seen) -> ErrorBound:
        """Predict the expected l1 error, by a second pass over the users. NOT PRIVATE.

        Exact where the law of the choice is known (the exponential mechanism): the errors at all
        thresholds, weighted by their probabilities. For the other rules the same over the
        thresholds of 200 runs of the rule with its own noise. For ``debias`` that of the release
        before it is scaled up: a rough guide only. Says where the best threshold would err far
        less: of few users who hold much, what the choice may spend does not show enough.
        """

        def released(clip: float, norm: int) -> BoundedHistogram:
            return self.at(self.release_clip(clip), norm)

        return self.law.bound(seen, released, nonneg=self.nonneg, ratio=self.debias)

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
        """Five drinks, Gaussian noise; so few users that the choice of C is mostly noise."""
        domain = Keys.of(["chai", "maté", "rooibos", "tea", "お茶"])
        return cls(domain, epsilon=1.0, delta=1e-6, clip_max=64.0)

    @classmethod
    def example_users(cls) -> Users:
        """Forty users, some of them empty and some with items outside the domain."""
        return BoundedHistogram.example_users()
