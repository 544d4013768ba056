"""A discrete distribution from users with different numbers of samples (central).

References
----------
.. [1] Liu, Suresh, Yu, Kumar & Riley, "Learning discrete distributions: user vs item-level
   privacy", NeurIPS 2020, Appendix E.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar, Self

import numpy as np

from clients.bounding.sampling import MOST_TOKENS
from clients.distributions.queries import MOST_FRAMED, SHARE_STEPS, OwnShares
from fedhist.base.arrays import Floats, Integers
from fedhist.base.checks import check_choice, check_integer
from fedhist.base.errors import warned
from fedhist.model.evaluation import Facts
from fedhist.model.protocol import Estimate, Script
from fedhist.model.query import Query, Summary
from fedhist.model.registry import register_protocol
from fedhist.model.truths import Truth
from fedhist.privacy.guarantee import Adjacency, Moves, check_budget, zcdp_rho
from fedhist.users.batch import Users
from fedhist.users.keys import Keys, check_domain
from server.distributions.centred import SPENT, CentredTask, centred
from server.distributions.distribution import Assumption
from server.distributions.mechanisms import Learned, Search, all_answer
from server.distributions.median_size import (
    EM_SHARE,
    MOST_SELECTED,
    MedianSearch,
    MedianTask,
    RaggedTask,
    em_search,
    release,
)
from server.modes import Mode, TwoModes
from server.session.curator import Curator
from server.targets.domains import DistributionTarget, project_simplex
from server.targets.sample_sizes import PlannedUsers
from server.trust import Central

AVERAGES = ("frequencies", "centred")

SIZE_SHARE = 0.1
"""Part of rho that finds m-hat and s-hat; twice as much of epsilon, if delta = 0."""


@register_protocol
@dataclass(frozen=True)
class RaggedDistribution(TwoModes, DistributionTarget, Central, PlannedUsers):
    """Distribution of the users' samples, who have different numbers of them.

    Parameters
    ----------
    domain : Keys
        The k public symbols; samples outside it do not count.
    epsilon : float
        Budget of the whole run; ``inf`` switches noise off (not private): then the average of the
        users' shares comes back.
    delta : float
        Positive: zCDP accounting and Gaussian noise. 0: pure differential privacy.
    m_max : int
        Public bound on the number of samples of a user, at most 2^24; larger numbers count as this
        one.
    n_users : int
        s, PUBLIC. All of them must answer.
    mechanism : {"auto", "frequencies", "centred", "presence", "ks", "phs"}
        What is released of the samples. "auto" is "frequencies", or "centred" where its gain, by
        public numbers, exceeds what it loses on users who differ. ``assume`` admits the others.
    mode : {"default", "paper"}
        "paper": half of epsilon for the paper's median of sizes, the printed budgets per symbol in
        the other half, sums of zero indicators. ``guarantee`` says what that is worth; for many
        symbols more than epsilon.
    project : bool
        Project onto the simplex, which never increases the l2 error.
    assume : {"nothing", "same-distribution"}
        "same-distribution": you declare that all users draw from one distribution. "auto" then
        chooses between "presence" and "ks", from released numbers.

    Privacy
    -------
    (epsilon, delta)-DP per user. Averages: a row of own shares counts 1 in l1, so frequencies are
    epsilon-DP for Laplace noise 2 / (n epsilon) under replacement. With presence and selection a
    tenth of the budget is for m-hat and s-hat (a fifth of epsilon if delta = 0). Given these, one
    user changes the counts of at most q = min(k, 2 m-hat) symbols by 1 each: presence has the l2
    sensitivity sqrt(q), and q exponential mechanisms of epsilon_1 cost q epsilon_1^2 / 8 in zCDP.

    Error
    -----
    In l1, from the average of the users' empirical distributions. Frequencies: 2 k / (n epsilon)
    before the projection, whoever the users are. Presence and selection assume that all samples
    come from one distribution: about the error of s-hat users with m-hat samples each; what other
    samples there are is not used.

    Examples
    --------
    >>> sums = RaggedDistribution(Keys.range(9), epsilon=1.0, delta=1e-6, m_max=100, n_users=5000)
    >>> round(sums.budgets[0], 3), round(sums.median_task.least_users)
    (0.155, 340)
    """

    name: ClassVar[str] = "ragged-distribution"
    paper: ClassVar[str] = "Liu et al., NeurIPS 2020, Appendix E"
    needs_server: ClassVar[str] = "it chooses by exact counts how many samples of each user to use"
    revision: ClassVar[int] = 2

    domain: Keys
    epsilon: float
    delta: float = 0.0
    m_max: int = 1024
    mechanism: str = "auto"
    mode: Mode = "default"
    project: bool = True
    assume: Assumption = "nothing"
    n_users: int = field(kw_only=True)

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)
        check_domain(self.domain)
        check_integer("m_max", self.m_max)
        check_integer("n_users", self.n_users)
        check_choice("mechanism", self.mechanism, ("auto", *AVERAGES, "presence", "ks", "phs"))
        self.check_mode()
        if self.mechanism == "centred" and not self.delta:
            raise ValueError(f"mechanism 'centred' needs delta > 0, got {self.delta}")
        if self.mechanism == "centred" and len(self.domain) > MOST_FRAMED:
            raise ValueError(f"'centred' takes {MOST_FRAMED} symbols, got {len(self.domain)}")
        if self.mechanism in ("ks", "phs") and self.m_max > MOST_SELECTED:
            raise ValueError(f"{self.mechanism!r} needs m_max <= {MOST_SELECTED}, got {self.m_max}")
        _ = self.median_task

    # -- what is spent ---------------------------------------------------------------------------

    @property
    def averages(self) -> bool:
        """Whether the users' own shares are averaged."""
        return self.mechanism in AVERAGES or (self.mechanism == "auto" and self.assume == "nothing")

    @property
    def averaging(self) -> str:
        """Which average is released; from public numbers.

        The predicted error of offsets is that of users with sqrt(m_max) samples: the middle one if
        all powers of two are equally frequent sizes. Where offsets have more noise than shares,
        shares are asked for with the rest of the budget, which is a part of it: so much is to be
        gained.
        """
        if self.mechanism != "auto":
            return self.mechanism
        if not self.delta or math.isinf(self.epsilon):
            return "frequencies"
        task = self.centred_task
        if not (task.runs and task.selects):
            return "frequencies"
        offsets = replace(task, m=math.isqrt(self.m_max)).error()
        left = math.hypot(task.first, task.third + task.far)
        shares = left * 2 * task.k / (task.n_users * task.epsilon**2)
        return "centred" if offsets < shares else "frequencies"

    @property
    def max_rounds(self) -> int:
        if not self.averages:
            return 2
        return 3 if self.averaging == "centred" else 1

    @property
    def budgets(self) -> tuple[float, float]:
        """Epsilon of the median, and what is left: rho if delta > 0, otherwise epsilon."""
        if math.isinf(self.epsilon):
            return math.inf, math.inf
        if not self.delta:
            return 2 * SIZE_SHARE * self.epsilon, (1 - 2 * SIZE_SHARE) * self.epsilon
        rho = zcdp_rho(self.epsilon, self.delta) * SPENT
        # what m-hat and s-hat cost in zCDP per epsilon^2: the choice has bounded range
        each = EM_SHARE**2 / 8 + (1 - EM_SHARE) ** 2 / 2
        return math.sqrt(SIZE_SHARE * rho / each), (1 - SIZE_SHARE) * rho

    @property
    def median_task(self) -> MedianTask:
        """The public side of the search for m-hat and s-hat."""
        return MedianTask(self.domain, self.m_max, self.n_users, self.budgets[0])

    def release_task(self, size: int) -> RaggedTask:
        """Collect what the second round needs to know, given m-hat."""
        return RaggedTask(
            domain=self.domain,
            size=size,
            epsilon=self.epsilon,
            delta=self.delta,
            rest=self.budgets[1],
            mechanism=self.mechanism,
        )

    # -- the script ------------------------------------------------------------------------------

    def rounds(self, server: Curator) -> Script:
        if math.isinf(self.epsilon):
            return (yield from self._exact(server))
        least = 0.0 if self.averages else self.least_users
        if self.n_users < least:
            return Estimate.refused(
                f"{self.n_users} users are too few to find their median number of samples: "
                f"{math.ceil(least)} are needed"
            )
        search = self._average(server) if self.averages else self._of_median(server)
        learned = yield from all_answer(search, self.n_users)
        if isinstance(learned, Estimate):
            return learned
        value = project_simplex(learned.p) if self.project else learned.p
        said = {"warnings": learned.warnings, "public": learned.public}
        return Estimate.ok(value, keys=self.domain, **said)

    def _of_median(self, server: Curator) -> Generator[Query, Summary, Learned | Estimate]:
        """Find m-hat and s-hat; release counts among m-hat samples."""
        median = yield from self.search_median(server)
        if not median.size:
            return Estimate.failed(median.reason)
        public = {"size": float(median.size), "users": median.users}
        learned = yield from release(self.release_task(median.size), median.users, server)
        if isinstance(learned, str):
            return Estimate.failed(learned, public=public)
        return replace(learned, public=public | dict(learned.public))

    @property
    def least_users(self) -> float:
        """Fewest users for which m-hat can be found: fewer are refused."""
        return self.median_task.least_users

    def search_median(self, server: Curator) -> MedianSearch:
        """Find m-hat and s-hat."""
        return em_search(self.median_task, server)

    # -- averages --------------------------------------------------------------------------------

    def _average(self, server: Curator) -> Search:
        """Release everybody's shares, or their offsets from a centre.

        Privacy
        -------
        "frequencies": epsilon-DP, the sum of own shares moves by 2 rows in l1 under replacement,
        else by 1. "centred": (epsilon, delta)-DP, that of :func:`centred` with rows of own shares.
        """
        if self.averaging != "centred":
            return (yield from self._own_shares(self.epsilon, "frequencies", server))
        ask = partial(self._own_shares, server=server)
        return (yield from centred(self.centred_task, server, ask))

    @property
    def centred_task(self) -> CentredTask:
        """What centred counts of the users' own shares work with."""
        return CentredTask(
            self.domain,
            self.m_max,
            MOST_TOKENS,
            own=True,
            n_users=self.n_users,
            epsilon=self.epsilon,
            delta=self.delta,
            rho=zcdp_rho(self.epsilon, self.delta) * SPENT if self.delta else 0.0,
        )

    def _own_shares(self, epsilon: float, label: str, server: Curator) -> Search:
        """Ask for own shares, add noise, and divide by the number of users."""
        query = OwnShares(self.domain)
        summary = yield query
        size = query.l1_sensitivity(Adjacency.REPLACE_USER)
        noisy = server.discrete_laplace(
            summary.sums["steps"],
            l1_sensitivity=size,
            epsilon=epsilon,
            label=label,
            moves=Moves.of(query.l1_sensitivity),
        )
        return _from_steps(noisy, self.n_users, math.sqrt(2) * size / (SHARE_STEPS * epsilon))

    def _exact(self, server: Curator) -> Script:
        """Ask for the users' shares, and divide by what they add up to."""
        query = OwnShares(self.domain)
        summary = yield query
        steps = server.discrete_laplace(
            summary.sums["steps"],
            l1_sensitivity=query.l1_sensitivity(Adjacency.REPLACE_USER),
            epsilon=math.inf,
        )
        total = int(steps.sum())
        if not total:
            return Estimate.failed("no user has a sample in the domain")
        return Estimate.ok(steps / total, keys=self.domain)

    @property
    def estimates(self) -> Truth:
        if self.averages or not self.guarantee.private:
            return Truth.AVERAGE_OF_USERS
        return Truth.COMMON

    def resolution_of(self, facts: Facts) -> float:
        return len(self.domain) * 2.0**-23

    @classmethod
    def example(cls) -> Self:
        domain = Keys.of(["chai", "maté", "tea", "お茶"])
        return cls(domain, epsilon=6.0, delta=1e-6, m_max=16, n_users=300)

    @classmethod
    def example_users(cls) -> Users:
        """Make users with different numbers of samples, some with none, some outside the domain."""
        rng = np.random.default_rng(11)
        names = ["お茶", "tea", "rye", "maté", "chai"]
        cups = rng.multinomial(rng.integers(0, 13, 300), [0.4, 0.3, 0.1, 0.15, 0.05])
        rows = ({n: int(c) for n, c in zip(names, row, strict=True)} for row in cups)
        return Users.from_records({f"user-{u}": row for u, row in enumerate(rows)})


def _from_steps(noisy: Integers, n: float, std: float) -> Learned:
    """Divide by the number of users, or of those who have items where they are clearly fewer."""
    p: Floats = np.asarray(noisy, dtype=np.float64) / (n * SHARE_STEPS)
    mass, noise = float(p.sum()), 5 * std / n * math.sqrt(len(p))
    public = {"mass": mass, "noise_std": std / n}
    if mass >= 1 - noise - 2.0**-20 * len(p):
        return Learned(p, (), public)
    words = warned(
        f"about {100 * (1 - mass):.3g} % of the users have no items in the domain",
        "they are left out, and the average is that of the others",
        "enlarge the domain if they should count",
    )
    return Learned(p / mass if mass > noise else p, (words,), public)
