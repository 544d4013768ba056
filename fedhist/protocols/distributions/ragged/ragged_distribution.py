"""A discrete distribution from users with different numbers of samples (central).

The average of the users' own distributions, by noise on their shares ("frequencies"), by offsets
from a centre ("centred"), or by whichever public and released numbers say is best ("auto":
:mod:`fedhist.protocols.distributions.ragged.choice`).

Or, where all users draw from one distribution, [1, Appendix E] in two round trips. The first finds
m-hat, a power of two near the median number of samples, and s-hat, the number of users with as
many. In the second these users draw m-hat of their samples each, and the distribution is learned as
if all users had m-hat samples, from the numbers of users that hold each symbol (``presence``) or
hold it more than t times (``ks``, ``phs``).

Corrected against the paper: sums of presence indicators in place of zero indicators, of which a
user who drops below m-hat changes up to k - 1 and not min(k, m-hat); and all counts are divided by
the released s-hat (the text has two definitions of tau-hat, one with the exact number, under which
the scores' sensitivity is not 1).

References
----------
.. [1] Liu, Suresh, Yu, Kumar & Riley, "Learning discrete distributions: user vs item-level
   privacy", NeurIPS 2020.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from fedhist.base.checks import check_choice, check_integer
from fedhist.model.error_bounds import ErrorBound
from fedhist.model.losses import L1
from fedhist.model.modes import Mode, TwoModes
from fedhist.model.protocol import Estimate, Script
from fedhist.model.registry import register_protocol
from fedhist.model.truths import Truth
from fedhist.privacy.guarantee import Adjacency, check_budget, zcdp_rho
from fedhist.protocols.distributions.centred_counts import MOST_SYMBOLS
from fedhist.protocols.distributions.centred_mechanism import ROUNDING
from fedhist.protocols.distributions.distribution import NOTHING, Assumption
from fedhist.protocols.distributions.ragged.average import (
    AverageTask,
    all_answer,
    centred_shares,
    frequencies,
)
from fedhist.protocols.distributions.ragged.choice import Choice, automatic
from fedhist.protocols.distributions.ragged.forecast import appendix_l1, predicted_average
from fedhist.protocols.distributions.ragged.median_size import (
    RULES,
    MedianRule,
    MedianTask,
    possible_sizes,
)
from fedhist.protocols.distributions.ragged.own_shares import OwnShares
from fedhist.protocols.distributions.ragged.release import MOST_SELECTED, RaggedTask, release
from fedhist.protocols.shared.central import Central
from fedhist.protocols.shared.distribution_target import DistributionTarget, SeenShares
from fedhist.protocols.shared.domains import check_domain, with_domain
from fedhist.protocols.shared.seen import Seen
from fedhist.session.curator import Curator
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from fedhist.users.shards import Shard
from server.distributions.simplex import CMAX, project_simplex

AVERAGES = ("frequencies", "centred")
MECHANISMS = ("auto", *AVERAGES, "presence", "ks", "phs")
MEDIAN_SHARE = 0.1
"""Part of rho that finds m-hat and s-hat."""

PURE_SHARE = 0.2
"""Part of epsilon that does, if delta = 0."""


@register_protocol
@dataclass(frozen=True)
class RaggedDistribution(TwoModes, DistributionTarget, Central):
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
        Public bound on the number of samples of a user; larger numbers count as this one.
    n_users : int, optional
        s, public under "replace-user", where it must be given and all must answer; None under
        "add-remove-user", where it is private.
    median : {"em", "dyadic"}
        How m-hat and s-hat are found: :mod:`fedhist.protocols.distributions.ragged.median_size`.
    mechanism : {"auto", "frequencies", "centred", "presence", "ks", "phs"}
        What is released of the samples. "auto" takes the least predicted error at p uniform among
        frequencies, centred shares and, behind two private tests, "ks".
    adjacency : str
        "replace-user" (default) or "add-remove-user".
    mode : {"default", "paper"}
        "paper": half of epsilon for "dyadic", the printed budgets per symbol in the other half,
        sums of zero indicators. ``guarantee`` says what that is worth; for many symbols more than
        epsilon.
    project : bool
        Project onto the simplex, which never increases the l2 error.
    beta : float
        Probability with which the bounds behind m-hat may fail.
    cmax : float
        Largest m-hat p that presence is read as.
    assume : {"nothing", "same-distribution"}
        "same-distribution": all users draw from one distribution, says whoever asks. "auto" then
        tests nothing and chooses between "presence" and "ks", from released numbers.

    Privacy
    -------
    (epsilon, delta)-DP per user. Averages: a row of own shares counts 1 in l1, so frequencies are
    epsilon-DP for Laplace noise 2 / (n epsilon) under replacement. With presence and selection a
    tenth of the budget is for m-hat and s-hat (a fifth of epsilon if delta = 0). Given these, one
    user changes the counts of at most q = min(k, 2 m-hat) symbols (min(k, m-hat) if added or
    removed) by 1 each: presence has the l2 sensitivity sqrt(q), and q exponential mechanisms of
    epsilon_1 cost q epsilon_1^2 / 8 in zCDP.

    Error
    -----
    In l1, from the average of the users' empirical distributions. Frequencies: 2 k / (n epsilon)
    before the projection, whoever the users are. Presence and selection assume that all samples
    come from one distribution: about the error of s-hat users with m-hat samples each; what other
    samples there are is not used.

    Examples
    --------
    >>> sums = RaggedDistribution(Keys.range(9), epsilon=1.0, delta=1e-6, m_max=100, n_users=5000)
    >>> round(sums.budgets[0], 3), round(sums.least_users)
    (0.155, 340)
    """

    name: ClassVar[str] = "ragged-distribution"
    paper: ClassVar[str] = "Liu et al., NeurIPS 2020, Appendix E"
    needs_server: ClassVar[str] = "it chooses by exact counts how many samples of each user to use"

    domain: Keys
    epsilon: float
    delta: float = 0.0
    m_max: int = 1024
    n_users: int | None = None
    median: str = "em"
    mechanism: str = "auto"
    adjacency: str = Adjacency.REPLACE_USER.value
    mode: Mode = "default"
    project: bool = True
    beta: float = 0.05
    cmax: float = CMAX
    assume: Assumption = NOTHING

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)
        check_domain(self.domain)
        check_integer("m_max", self.m_max)
        if self.n_users is not None:
            check_integer("n_users", self.n_users)
        check_choice("median", self.median, RULES)
        check_choice("mechanism", self.mechanism, MECHANISMS)
        self.check_mode()
        if self.mechanism == "centred" and not self.delta:
            raise ValueError(f"mechanism 'centred' needs delta > 0, got {self.delta}")
        if self.mechanism == "centred" and len(self.domain) > MOST_SYMBOLS:
            raise ValueError(f"'centred' takes {MOST_SYMBOLS} symbols, got {len(self.domain)}")
        if not self.cmax > 0:
            raise ValueError(f"cmax must be positive, got {self.cmax}")
        if self.mechanism in ("ks", "phs") and self.m_max > MOST_SELECTED:
            raise ValueError(f"{self.mechanism!r} needs m_max <= {MOST_SELECTED}, got {self.m_max}")
        _ = self.median_task

    # -- what is spent ---------------------------------------------------------------------------

    @property
    def max_rounds(self) -> int:
        """One for the sizes, one for the samples; of averages as many as they ask."""
        if not self.averages:
            return 2
        asked = {"frequencies": 1, "centred": 3}.get(self.mechanism, 6)
        return asked + (self.n_users is None)

    @property
    def averages(self) -> bool:
        """Whether the users' own shares are averaged, unless a test allows more."""
        return self.mechanism in AVERAGES or (self.mechanism == "auto" and self.assume == NOTHING)

    @property
    def average_task(self) -> AverageTask:
        """The public side of an average.

        Where a released value may decide by which composition the run holds, basic and zCDP have a
        half of delta each: see :class:`fedhist.privacy.ledger.Ledger`.
        """
        known = self.domain, self.n_users, self.m_max, Adjacency(self.adjacency)
        concentrated = self.delta > 0 and not math.isinf(self.epsilon)
        delta = self.delta / 2 if self.mechanism == "auto" or self.n_users is None else self.delta
        rho = zcdp_rho(self.epsilon, delta) * ROUNDING if concentrated else 0.0
        return AverageTask(*known, self.epsilon, delta, rho)

    @property
    def choice(self) -> Choice:
        """The public side of the automatic choice."""
        return Choice(self.average_task, self.beta, self.cmax)

    @property
    def rule(self) -> MedianRule:
        """The mechanism that finds m-hat and s-hat."""
        return RULES[self.median]

    @property
    def budgets(self) -> tuple[float, float]:
        """Epsilon of the median, and what is left: rho if delta > 0, otherwise epsilon."""
        if math.isinf(self.epsilon):
            return math.inf, math.inf
        if not self.delta:
            return PURE_SHARE * self.epsilon, (1 - PURE_SHARE) * self.epsilon
        rho = zcdp_rho(self.epsilon, self.delta) * ROUNDING
        return self.rule.epsilon_of(MEDIAN_SHARE * rho), (1 - MEDIAN_SHARE) * rho

    @property
    def median_task(self) -> MedianTask:
        """The public side of the first half."""
        adjacency = Adjacency(self.adjacency)
        return MedianTask(
            self.domain, self.m_max, self.n_users, adjacency, self.budgets[0], self.beta
        )

    @property
    def least_users(self) -> float:
        """Fewest users for which m-hat can be found: fewer are refused, if s is public."""
        return self.rule.least_users(self.median_task)

    def release_task(self, size: int) -> RaggedTask:
        """Collect what the second half needs to know, given m-hat."""
        return RaggedTask(
            domain=self.domain,
            size=size,
            adjacency=Adjacency(self.adjacency),
            epsilon=self.epsilon,
            delta=self.delta,
            rest=self.budgets[1],
            mechanism=self.mechanism,
            cmax=self.cmax,
        )

    # -- the script ------------------------------------------------------------------------------

    def rounds(self, server: Curator) -> Script:
        """Average; or find m-hat and s-hat, ask their users for samples; estimate, project."""
        if math.isinf(self.epsilon):
            return (yield from self._exact(server))
        if self.averages:
            return (yield from self._average(server))
        if self.n_users is not None and self.n_users < self.least_users:
            return Estimate.refused(
                f"{self.n_users} users are too few to find their median number of samples: "
                f"{math.ceil(self.least_users)} are needed (median = {self.median!r})"
            )
        found = yield from self.rule.search(self.median_task, server)
        if not found.size:
            return Estimate.failed(found.reason)
        public = {"size": float(found.size), "users": found.users}
        task = self.release_task(found.size)
        out = yield from release(task, found.users, self.n_users, server)
        public |= out.public
        if out.p is None:
            return Estimate.failed(out.reason, public=public)
        value = project_simplex(out.p) if self.project else out.p
        return Estimate.ok(value, keys=self.domain, warnings=out.warnings, public=public)

    def _average(self, server: Curator) -> Script:
        """Run an average, and check in every round that all users answer."""
        task = self.average_task
        if self.mechanism == "auto":
            search = automatic(self.choice, server)
        elif self.mechanism == "frequencies":
            search = frequencies(task, server)
        elif self.n_users is None or task.centred(self.n_users).runs:
            search = centred_shares(task, server)
        else:
            return Estimate.refused(
                f"centred shares do not run with {len(self.domain)} symbols and m_max = "
                f'{self.m_max}: take mechanism = "auto"'
            )
        learned = yield from all_answer(search, self.n_users)
        if isinstance(learned, Estimate):
            return learned
        value = project_simplex(learned.p) if self.project else learned.p
        said = {"warnings": learned.warnings, "public": learned.public}
        return Estimate.ok(value, keys=self.domain, **said)

    def _exact(self, server: Curator) -> Script:
        """Ask for the users' shares, and divide by what they add up to."""
        query = OwnShares(self.domain)
        summary = yield query
        steps = server.discrete_laplace(
            summary.sums["steps"],
            l1_sensitivity=query.l1_sensitivity(Adjacency(self.adjacency)),
            epsilon=math.inf,
        )
        total = int(steps.sum())
        if not total:
            return Estimate.failed("no user has a sample in the domain")
        return Estimate.ok(steps / total, keys=self.domain)

    # -- theory ----------------------------------------------------------------------------------

    def predicted(self, seen: SeenShares) -> ErrorBound:
        """Predict the expected l1 error on a known population. NOT PRIVATE.

        Presence and selection are averaged over the m-hat that "em" can find; "dyadic" is taken at
        its value without noise.
        """
        if math.isinf(self.epsilon):
            return ErrorBound(L1, 0.0, True, "average of the users' shares, no noise")
        if self.averages:
            return predicted_average(self.choice, self.mechanism, seen, self.project)
        total = weight = 0.0
        task = self.median_task
        for size, kept, chance in possible_sizes(seen.classes(task.classes), task, self.median):
            rest, std = self.release_task(size), self.rule.users_std(task, size)
            if len(steps := rest.steps(kept)) == 1:
                found = appendix_l1(rest, seen, std, self.project)
            else:
                how = steps, kept, seen.shared_variance(size), std
                found = min(2.0, rest.error(seen.shares, *how, projected=self.project))
            total, weight = total + chance * found, weight + chance
        return ErrorBound(L1, total / weight if weight else math.nan, False, self.source)

    source: ClassVar[str] = "Liu et al. 2020, App. E, on the users' own counts"

    @property
    def estimates(self) -> Truth:
        """The average of users, or the one distribution that all samples come from."""
        if self.averages or not self.guarantee.private:
            return Truth.AVERAGE_OF_USERS
        return Truth.COMMON

    def resolution_of(self, seen: Seen) -> float:
        """Shares are rounded down to 2^-24."""
        return len(self.domain) * 2.0**-23

    @classmethod
    def resolve(
        cls, parameters: Mapping[str, Any], users: Shard, domain: Keys | None
    ) -> tuple[dict[str, Any], list[str]]:
        """Fill the domain, and the public number of users where it is public."""
        p = with_domain(parameters, domain)
        if p.get("adjacency", Adjacency.REPLACE_USER.value) == Adjacency.REPLACE_USER.value:
            p.setdefault("n_users", len(users))
        return p, []

    @classmethod
    def example(cls) -> Self:
        """Four drinks, 300 users with up to 12 cups of them, presence."""
        domain = Keys.of(["chai", "maté", "tea", "お茶"])
        return cls(domain, epsilon=6.0, delta=1e-6, m_max=16, n_users=300, mechanism="presence")

    @classmethod
    def example_users(cls) -> Users:
        """Make users with different numbers of samples, some with none, some outside the domain."""
        rng = np.random.default_rng(11)
        names = ["お茶", "tea", "rye", "maté", "chai"]
        cups = rng.multinomial(rng.integers(0, 13, 300), [0.4, 0.3, 0.1, 0.15, 0.05])
        rows = ({n: int(c) for n, c in zip(names, row, strict=True)} for row in cups)
        return Users.from_records({f"user-{u}": row for u, row in enumerate(rows)})
