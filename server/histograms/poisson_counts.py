"""Counts of a few items, clipped per item and debiased for Poisson data (central) [1]_.

Corrected against the paper: the variance of its Laplace noise is 2 (C / n epsilon)^2, not
(C / n epsilon)^2 (eq. (16), (17), (19), (22)); and its private rank 1 / epsilon lies below the rank
error of any mechanism with a small budget: it is found in the empty tail, at a C far above every
count. The debiasing keeps off totals that no Poisson counts explain
(:mod:`server.histograms.poisson_debiasing`).

"quantile" raises the rank by the error of the mechanism, 2 ln(K / 0.02) / epsilon'. So many users
exceed C then that clipping errs far more than noise does: where counts are Poisson, debiasing
repairs that; where a few users hold much, nothing does. "excess" keeps the rank and counts users
beyond it, with weights that fall with C before any data.

References
----------
.. [1] Liu, Suresh, Zhu, Kairouz & Gruteser, "Algorithms for bounding contribution for histogram
   estimation under user-level privacy", ICML 2023, Algorithm 5 and Appendix C.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from clients.histograms.contributions import NormHistogram
from clients.histograms.queries import MOST_ITEM_CLIP, PerItemClip
from fedhist.base.arrays import Array
from fedhist.base.checks import check_choice, check_integer, check_within
from fedhist.base.errors import warned
from fedhist.model.protocol import Estimate, Script
from fedhist.model.query import Query, Summary
from fedhist.model.registry import register_protocol
from fedhist.privacy import noise_law
from fedhist.privacy.guarantee import ONE_COUNT, Adjacency, check_budget
from fedhist.privacy.shares import Aggregation
from fedhist.users.batch import Users
from fedhist.users.keys import Keys, check_domain, user_ids
from fedhist.users.shards import Shard
from server.clip_choice.rule import (
    LIGHT_DECAY,
    at_the_top,
    excess_scores,
    safe_rank,
    small_first,
    tail_scores,
)
from server.histograms import poisson_debiasing as debias
from server.session.curator import Curator
from server.targets.domains import DomainHistogram, with_domain
from server.trust import Central, add_noise

UNLIKELY_LOGITS = math.log(100)
"""Logits by which more users above C than are looked for are unlikely to be left there."""


@register_protocol
@dataclass(frozen=True)
class PoissonCounts(DomainHistogram, Central):
    """Total counts of a few public items, debiased for Poisson data, under central privacy.

    Parameters
    ----------
    domain : Keys
        Public items; one is the paper's case. Beyond 20 the noise, of l2 norm d C sigma, is a poor
        bargain: clip whole histograms instead (``bounded-histogram``).
    epsilon : float
        Budget of the whole run; ``inf`` switches noise off (not private).
    n_users : int
        Number of users, PUBLIC: the estimate divides by it. All of them must answer.
    clip : int, optional
        C, in counts, for each item. Public: choose it without the data. None: chosen privately,
        for a domain of one item only (a quantile of per-item counts would cost d times as much).
    clip_max : int
        Public upper end of the private choice.
    epsilon_choice : float, optional
        Part of epsilon for the choice of C. Default: a quarter, or what it takes to see one user in
        200 who have fifty times as much as the others, whichever is less.
    choice : {"excess", "quantile"}
        Score of the exponential mechanism that chooses C. "quantile" is the paper's: about as good
        on Poisson counts, and up to ten times worse where users differ.
    delta : float
        0: Laplace noise. Positive: Gaussian noise, better for more than a few items.
    adjacency : str
        "zero-out-user" (default) or "replace-user". Under "add-remove-user" the number of users
        is private, and the estimate needs it.
    discrete : bool
        Integer noise, on the integer totals; needed for secure noise.
    debias : bool
        False: release the clipped totals, raised to at least zero (the paper's baseline).
    guarded : bool
        Debias only where Poisson counts explain the total and noise grows at most fourfold
        (:meth:`most_rate`). False: debias every total below n_users clip, as the paper does.
    trust : Aggregation, optional
        The nodes add the noise, and n_users is the number of those who answered; ``clip`` is given.

    Privacy
    -------
    (epsilon, delta)-DP per user. Noise for the sensitivities of :class:`PerItemClip`, the same for
    both adjacencies; debiasing is post-processing. A private C is the exponential mechanism on the
    users above each threshold.

    Error
    -----
    On Poisson data with one rate, the variance
    around the users' own total is n (Var min(N, C) / h'^2 - rate) + Var Z / h'^2: ``stderr``, which
    leaves out the bias that differing rates cause.

    Examples
    --------
    >>> PoissonCounts(Keys.of(["tea"]), epsilon=1.0, n_users=1000, clip=4).law(4).scale
    4.0
    """

    name: ClassVar[str] = "poisson-counts"
    paper: ClassVar[str] = "Liu et al., ICML 2023, Algorithm 5"
    revision: ClassVar[int] = 5

    domain: Keys
    epsilon: float
    n_users: int
    clip: int | None = None
    clip_max: int = 1024
    epsilon_choice: float | None = None
    choice: str = "excess"
    delta: float = 0.0
    adjacency: str = Adjacency.ZERO_OUT_USER.value
    discrete: bool = False
    debias: bool = True
    guarded: bool = True
    trust: Aggregation | None = None

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)
        check_domain(self.domain)
        check_integer("n_users", self.n_users, 1 << 32)
        check_integer("clip_max", self.clip_max, MOST_ITEM_CLIP)
        check_choice("choice", self.choice, ("excess", "quantile"))
        if self.clip is not None:
            check_integer("clip", self.clip, MOST_ITEM_CLIP)
        elif len(self.domain) > 1:
            raise ValueError(
                f"clip is chosen privately for one item only, got {len(self.domain)}: give clip"
            )
        if Adjacency(self.adjacency) is Adjacency.ADD_REMOVE_USER:
            raise ValueError(
                f"the estimate divides by the number of users, which {self.adjacency!r} keeps "
                'private: use "zero-out-user" or "replace-user"'
            )
        if self.epsilon_choice is not None:
            if self.clip is not None:
                raise ValueError(f"clip is given: epsilon_choice buys nothing, got {self.clip}")
            check_budget(self.epsilon_choice)
            if not math.isinf(self.epsilon):
                check_within("epsilon_choice", self.epsilon_choice, 0, self.epsilon, "()")
        self.check_integers(self.discrete)
        if self.trust is not None and self.clip is None:
            raise ValueError("clip is chosen by exact scores: under aggregate trust give clip")
        _ = self.clip and self.asks(PerItemClip(self.domain, self.clip), 0)

    # -- what is spent ---------------------------------------------------------------------------

    @property
    def max_rounds(self) -> int:
        return 2 if self._chooses else 1

    @property
    def _chooses(self) -> bool:
        """Whether C is chosen; without noise no threshold is better than the largest."""
        return self.clip is None and not math.isinf(self.epsilon)

    @property
    def budgets(self) -> tuple[float, float]:
        """Epsilon of the choice of C (0: none is made) and of the release.

        A C that is 50 times too small is as likely before any data as 50^3 of the right size; k
        users beyond it make it e^(epsilon' k) times less likely: 3 ln 50 and the slack see one user
        in 200. Of few users a quarter of epsilon: 0.2 to 0.3 err alike within 10 %, less up to 7
        times as much.
        """
        if not self._chooses:
            return 0.0, self.epsilon
        enough = 200 * (LIGHT_DECAY * math.log(50) + UNLIKELY_LOGITS) / self.n_users
        choice = self.epsilon_choice or min(self.epsilon / 4, enough)
        return choice, self.epsilon - choice

    @property
    def edges(self) -> tuple[float, ...]:
        """Thresholds to choose from: integers, about four per octave, from 1 to clip_max."""
        steps = math.ceil(math.log2(self.clip_max) * 4)
        grid = np.geomspace(1, self.clip_max, steps + 1)
        return tuple(float(c) for c in np.unique(np.rint(grid)))

    @property
    def rank(self) -> float:
        """How many users should exceed C: the mean absolute noise per unit of C."""
        unit = noise_law.noise_per_sensitivity(self.budgets[1], self.delta, discrete=False)
        return unit.mean_absolute

    @property
    def level(self) -> float:
        """Users above C that the choice looks for."""
        if self.choice == "excess":
            return self.rank
        return safe_rank(self.rank, len(self.edges), self.budgets[0])

    @property
    def most_above(self) -> float:
        """Users above C of whom more are hardly left there by the choice."""
        return (
            self.level + UNLIKELY_LOGITS * (2 if self.choice == "quantile" else 1) / self.budgets[0]
        )

    def most_rate(self, clip: int) -> float:
        """Public rate from which on a total is released as it is."""
        if not self.guarded:
            return debias.most_rate(clip)
        most = debias.steepest_rate(clip)
        if not self._chooses:
            return most
        share = min(self.most_above / self.n_users, 1.0)
        return min(most, debias.fitting_rate(clip, share))

    def law(self, clip: int) -> noise_law.NoiseLaw:
        """Law of the noise on each total of counts clipped at ``clip``."""
        query = PerItemClip(self.domain, clip)
        if self.trust is not None:
            return self.noise_of_shares(query)
        size = query.l2_sensitivity if self.delta else query.l1_sensitivity
        unit = noise_law.noise_per_sensitivity(self.budgets[1], self.delta, self.discrete, size)
        return noise_law.NoiseLaw(unit.kind, unit.scale * size)

    # -- the script ------------------------------------------------------------------------------

    def rounds(self, server: Curator) -> Script:
        if server.grade == "secure" and not self.discrete and not math.isinf(self.epsilon):
            return Estimate.refused('noise = "secure" draws integers only: set discrete = true')
        clip, warnings = self.clip or self.clip_max, tuple[str, ...]()
        if self._chooses:
            clip, warnings = yield from self._choose(server)
        query = PerItemClip(self.domain, clip)
        summary = yield query
        public = {"clip": float(clip), "n_users": float(summary.n_users)}
        if self.trust is None and summary.n_users != self.n_users:
            return Estimate.failed(
                f"{summary.n_users} users answered, but n_users = {self.n_users}: the estimate "
                "divides by n_users, so set it to the number of users who will answer; the totals "
                "were not released",
                public=public,
                warnings=warnings,
            )
        size = query.l2_sensitivity if self.delta else query.l1_sensitivity
        epsilon, totals = self.budgets[1], summary.sums["counts"]
        noisy = add_noise(
            server, totals, size, epsilon, self.delta, discrete=self.discrete, moves=ONE_COUNT
        )
        if not summary.n_users:
            return Estimate.failed("nobody answered", public=public)
        answered = replace(self, n_users=summary.n_users)  # nodes may have dropped out of the sum
        return answered._conclude(noisy, clip, public, warnings)

    def _choose(self, server: Curator) -> Generator[Query, Summary, tuple[int, tuple[str, ...]]]:
        """Choose C by the exponential mechanism; one round."""
        edges, epsilon, level = self.edges, self.budgets[0], self.level
        query = NormHistogram(self.domain, edges, 1)
        tails = query.tails((yield query))
        if self.choice == "excess":  # scores move one way: half of that range
            first = small_first(edges, LIGHT_DECAY) / epsilon
            scores, size = excess_scores(tails, level) + first, 0.5
        else:
            scores, size = tail_scores(tails, level), 1.0
        at = server.exponential(
            scores, sensitivity=size, epsilon=epsilon, label="choice of C", moves=ONE_COUNT
        )
        warnings = []
        if self.most_above > self.n_users / 2:
            what = f"{self.n_users} users are too few to choose C with epsilon = {epsilon:.3g}"
            means = "it may be far too small or too large, and errors much larger"
            warnings.append(warned(what, means, "give clip, or more budget"))
        elif at == len(edges) - 1 > 0:
            warnings.append(at_the_top(edges[at]))
        return int(edges[at]), tuple(warnings)

    def _conclude(
        self, noisy: Array, clip: int, public: dict[str, float], warnings: tuple[str, ...]
    ) -> Estimate:
        """Turn noisy totals into the estimate; post-processing."""
        n, d, std = self.n_users, len(self.domain), self.law(clip).std
        public["noise_std"] = std
        if d > 20:
            means = "with more than 20 bounded-histogram needs less noise"
            warnings += (warned(f"{d} items are clipped one by one", means, "take that"),)
        value, stderr = np.maximum(noisy, 0.0), np.full(d, std)
        if self.debias:
            public["most_rate"] = most = self.most_rate(clip)
            value, inverted = debias.debiased(noisy, n, clip, most)
            repaired = debias.debiased_stderr(np.minimum(value / n, most), n, clip, std)
            stderr = np.where(inverted, repaired, std)
            if not inverted.all():
                names = ", ".join(self.domain[int(j)] for j in np.flatnonzero(~inverted)[:3])
                what = (
                    f"{int((~inverted).sum())} of {d} items ({names}) have a total near n_users "
                    f"times clip = {clip}, which no Poisson counts explain or noise drowns"
                )
                means = "it is released as it is, without debiasing, too low by what clip cut away"
                warnings += (warned(what, means, "raise clip if many users exceed it"),)
        return Estimate.ok(value, keys=self.domain, stderr=stderr, public=public, warnings=warnings)

    @classmethod
    def resolve(
        cls, parameters: Mapping[str, Any], users: Shard, domain: Keys | None
    ) -> tuple[dict[str, Any], list[str]]:
        """Fill the domain, and the public number of users."""
        p = with_domain(parameters, domain)
        p.setdefault("n_users", len(users))
        if p.get("trust") is not None:
            p.setdefault("discrete", True)
        return p, []

    @classmethod
    def example(cls) -> Self:
        return cls(Keys.of(["お茶"]), epsilon=4.0, n_users=400, clip_max=64)

    @classmethod
    def example_users(cls) -> Users:
        """Make users with Poisson counts of two drinks, some with none."""
        counts = np.random.default_rng(5).poisson([1.5, 0.7], (400, 2))
        user, item = np.nonzero(counts)
        names = Keys.range(400)
        drinks = Keys.of(["rye", "お茶"])
        return Users.from_counts(user_ids(names), user, item, counts[user, item], drinks)
