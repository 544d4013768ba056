"""Learn a discrete distribution from users with m samples each, under central privacy [1]_.

References
----------
.. [1] Liu, Suresh, Yu, Kumar & Riley, "Learning discrete distributions: user vs item-level
   privacy", NeurIPS 2020.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal, Self

import numpy as np

from clients.bounding.sampling import MOST_TOKENS
from fedhist.base.checks import check_choice, check_integer, check_within
from fedhist.base.errors import warned
from fedhist.model.protocol import Estimate, Script
from fedhist.model.query import Query
from fedhist.model.registry import register_protocol
from fedhist.model.truths import Truth
from fedhist.privacy.guarantee import check_budget
from fedhist.privacy.shares import Aggregation
from fedhist.users.batch import Users
from fedhist.users.keys import Keys, check_domain, user_ids
from server.distributions.centred import Centred
from server.distributions.mechanisms import (
    LAPLACE,
    Additive,
    DistributionTask,
    Mechanism,
    all_answer,
)
from server.distributions.selection import PHS, Selection
from server.modes import Mode, TwoModes
from server.session.curator import Curator
from server.targets.domains import DistributionTarget, project_simplex
from server.targets.sample_sizes import PlannedUsers
from server.trust import Central

MECHANISMS: Mapping[str, Mechanism] = {
    mechanism.name: mechanism
    for mechanism in (
        LAPLACE,
        Additive("gaussian", gaussian=True),
        Additive("one-item", "one-item"),
        Additive("presence", "presence", gaussian=True),
        Additive("presence-laplace", "presence"),
        Selection("ks"),
        Selection("phs", PHS),
        Selection("sparse"),
        Centred("centred"),
    )
}
"""Every mechanism, by name: counts and one item [1, Lemma 1], presence [1, Algorithm 4], selection
in one stage [1, Algorithm 3] and in two [1, Algorithm 5], and the average of any users."""

Assumption = Literal["nothing", "same-distribution"]
"""What the automatic choice may rest on."""


@register_protocol
@dataclass(frozen=True)
class Distribution(TwoModes, DistributionTarget, Central, PlannedUsers):
    """The distribution over k public symbols that the users' samples come from.

    Parameters
    ----------
    domain : Keys
        The symbols; users drop other items before anything else.
    epsilon : float
        Budget of the whole run; ``inf`` switches noise off (not private): the empirical
        distribution comes back exactly, whatever the mechanism.
    samples_per_user : int
        m, PUBLIC. A user with more in-domain items draws m of them uniformly without replacement.
        One with fewer sends what it has. Noisy counts are divided by their sum where that is surely
        less than s m, so that users weigh by what they send; presence and selection estimate too
        little. So choose m no larger than almost all users' numbers, or take
        ``ragged-distribution``.
    n_users : int
        s, PUBLIC under replacement. All of them must answer.
    delta : float
        0: mechanisms that need none.
    mechanism : str
        "auto", or "laplace", "gaussian", "one-item", "presence", "presence-laplace", "ks", "phs",
        "sparse", "centred". "auto" takes the least expected error at the uniform distribution of
        "laplace", "gaussian" and "centred", which estimate the average of the users' own
        distributions whatever these are; by public numbers only.
    mode : {"default", "paper"}
        "paper": the mechanism with its printed budget; ``guarantee`` says what that really spends,
        ``claimed`` what is printed.
    p_max : float
        PUBLIC upper bound on every symbol's probability, 1 if nothing is known. Where
        ``assume`` opens the choice and m p_max <= 2, "auto" considers presence, which is best for
        many rare symbols and blind for frequent ones.
    project : bool
        Project to the simplex; l2 error never grows by it, and l1 error falls in practice.
    discrete : bool
        Integer noise on integers; needed for secure noise. False: real values; Gaussian
        noise is then smaller by what integers cost, next to nothing for more than a few samples.
    assume : {"nothing", "same-distribution"}
        "same-distribution": you declare that all users draw from one distribution. "auto" then
        considers the paper's "ks" and presence as well, where n_users reaches their floor and they
        suit p_max. If users differ the estimate is then wrong; a warning says so where the released
        numbers show it.
    trust : Aggregation, optional
        The nodes add the noise: for "laplace", "gaussian", "one-item", "presence" and
        "presence-laplace", of which "auto" takes the one of least expected error. Where nodes drop
        out, n_users is the number of those who answered.

    Privacy
    -------
    (epsilon, delta)-DP per user under replacement; the mechanisms derive their sensitivities. The
    projection is free, and so is what public numbers choose.

    Error
    -----
    In l1. Laplace on counts: sqrt(k / (s m)) + 2 k / (s epsilon) [1, Lemma 1]. The value estimates
    the distribution behind the data. On given users it is compared with the average of their
    empirical distributions (:meth:`truth`): for users of m samples each that is the pooled one.

    Examples
    --------
    >>> few = Distribution(Keys.of(["a", "b"]), 1.0, samples_per_user=5, n_users=100)
    >>> few.chosen.name
    'laplace'
    """

    name: ClassVar[str] = "distribution"
    paper: ClassVar[str] = "Liu, Suresh, Yu, Kumar & Riley, NeurIPS 2020"
    mechanisms: ClassVar[Mapping[str, Mechanism]] = MECHANISMS
    revision: ClassVar[int] = 5

    domain: Keys
    epsilon: float
    samples_per_user: int
    n_users: int
    delta: float = 0.0
    mechanism: str = "auto"
    mode: Mode = "default"
    p_max: float = 1.0
    project: bool = True
    discrete: bool = True
    assume: Assumption = "nothing"
    trust: Aggregation | None = None

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)
        check_domain(self.domain)
        check_integer("samples_per_user", self.samples_per_user, MOST_TOKENS)
        check_integer("n_users", self.n_users, 1 << 32)
        check_within("p_max", self.p_max, 1 / len(self.domain), 1)
        self.check_mode()
        self.check_integers(self.discrete)
        if self.mechanism != "auto":
            self._check_mechanism()
        if self._linear:
            _ = self.asks(self._linear.query(self.task), 0)

    def _check_mechanism(self) -> None:
        check_choice("mechanism", self.mechanism, self.mechanisms)
        named = self.mechanisms[self.mechanism]
        if not (self.delta or named.pure):
            raise ValueError(f"mechanism {self.mechanism!r} needs delta > 0, got {self.delta}")
        if self.trust is not None and not named.linear:
            names = ", ".join(m.name for m in MECHANISMS.values() if m.linear)
            raise ValueError(
                f"mechanism {self.mechanism!r} in mode {self.mode!r} needs exact sums, of which "
                f"aggregate trust has none: take one of {names}"
            )

    # -- what is run and what is spent -----------------------------------------------------------

    @property
    def task(self) -> DistributionTask:
        """The public numbers that mechanisms see."""
        return DistributionTask(
            self.domain,
            self.samples_per_user,
            self.n_users,
            self.epsilon,
            self.delta,
            discrete=self.discrete,
            p_max=float(self.p_max),
            trust=self.trust,
        )

    @property
    def chosen(self) -> Mechanism:
        """The mechanism that runs; from public numbers only."""
        if math.isinf(self.epsilon):  # the empirical distribution itself
            return LAPLACE
        if self.mechanism != "auto":
            return self.mechanisms[self.mechanism]
        return MECHANISMS[_best(self.task, self.assume != "nothing")]

    @property
    def _linear(self) -> Additive | None:
        chosen = self.chosen
        return chosen if isinstance(chosen, Additive) and chosen.linear else None

    @property
    def max_rounds(self) -> int:
        return self.chosen.rounds

    def asks(self, query: Query, round_index: int) -> Query:
        if self.trust is None or self._linear is None:
            return query
        return self.shared(query, *self._linear.spends(self.task))

    # -- the script ------------------------------------------------------------------------------

    def rounds(self, server: Curator) -> Script:
        secure = server.grade == "secure" and not math.isinf(self.epsilon)
        if secure and not self.discrete:
            return Estimate.refused('noise = "secure" draws integers only: set discrete = true')
        mechanism, task = self.chosen, self.task
        floor = mechanism.floor(task)
        if math.isinf(floor):
            return Estimate.refused(
                f"{mechanism.name} does not run with {task.k} symbols, {task.m} samples per user "
                f'and {task.n_users} users: take mechanism = "auto"'
            )
        learned = yield from all_answer(
            mechanism.search(task, server), self.n_users, may_drop=self.trust is not None
        )
        if isinstance(learned, Estimate):
            return learned
        warnings = learned.warnings
        if self.n_users < floor:
            warnings += (
                warned(
                    f"{mechanism.name} needs about {floor:.3g} users, and there are {self.n_users}",
                    "errors are larger than predicted",
                    'take mechanism = "auto"',
                ),
            )
        value = project_simplex(learned.p) if self.project else learned.p
        public = {"n_users": float(self.n_users), "samples_per_user": float(task.m)}
        return Estimate.ok(
            value, keys=self.domain, warnings=warnings, public={**public, **learned.public}
        )

    # -- theory ----------------------------------------------------------------------------------

    @property
    def estimates(self) -> Truth:
        """As the mechanism that runs: selection and presence tell of a common distribution only."""
        return self.chosen.estimates

    @classmethod
    def example(cls) -> Self:
        return cls(Keys.of(["maté", "rye", "tea", "お茶"]), 1.0, 8, 60, delta=1e-6)

    @classmethod
    def example_users(cls) -> Users:
        """Sixty users with eight drinks of the domain each, some with others besides."""
        cups = np.random.default_rng(3).multinomial(8, [0.1, 0.2, 0.3, 0.4], 60)
        cups = np.hstack([cups, np.arange(60)[:, None] % 3])  # chai is outside the domain
        user, item = np.nonzero(cups)
        drinks = Keys.of(["maté", "rye", "tea", "お茶", "chai"])
        ids = user_ids(Keys.range(60))
        return Users.from_counts(ids, user, item, cups[user, item], drinks)


@lru_cache(maxsize=256)
def _best(task: DistributionTask, alike: bool) -> str:
    """Name the mechanism of least expected error at the uniform distribution."""
    possible = [
        mechanism
        for mechanism in MECHANISMS.values()
        if mechanism.name not in ("one-item", "phs", "sparse")  # never the best of those like them
        and (alike or mechanism.estimates is Truth.AVERAGE_OF_USERS)
        and (mechanism.pure or task.delta)
        and mechanism.suits(task)
        and task.n_users >= mechanism.floor(task)
        and (task.trust is None or (isinstance(mechanism, Additive) and mechanism.addable(task)))
    ]
    return min(possible, key=lambda mechanism: mechanism.error(task)).name
