"""Learn a discrete distribution from users with m samples each, under central privacy [1]_.

Several ways behind one protocol: noise on counts, on one item per user, or on who has which symbol
at all; private selection among binomial hypotheses, where users are alike; and offsets from a
centre, where they need not be. What privacy costs then falls with m as m^(-1/2), where with noise
on counts it does not fall at all. Public numbers and a private test of fit say which is best.

References
----------
.. [1] Liu, Suresh, Yu, Kumar & Riley, "Learning discrete distributions: user vs item-level
   privacy", NeurIPS 2020.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self

import numpy as np

from clients.bounding.sampling import MOST_CLIP
from fedhist.base.checks import check_integer
from fedhist.base.errors import PopulationError, nearest
from fedhist.base.text import warned
from fedhist.model.error_bounds import ErrorBound
from fedhist.model.losses import L1
from fedhist.model.modes import Mode, TwoModes
from fedhist.model.protocol import Estimate, Script
from fedhist.model.query import Query, Summary
from fedhist.model.registry import register_protocol
from fedhist.model.truths import Truth
from fedhist.privacy.aggregation import Aggregation
from fedhist.privacy.guarantee import check_budget, zcdp_rho
from fedhist.protocols.distributions import mechanisms as distribution_mechanisms
from fedhist.protocols.distributions import selection as binomial_mechanisms
from fedhist.protocols.distributions.agreement_choice import automatic, doubt
from fedhist.protocols.distributions.centred_mechanism import CENTRED
from fedhist.protocols.distributions.mechanisms import DistributionTask, Learned, Mechanism, Search
from fedhist.protocols.shared.central import Central
from fedhist.protocols.shared.clipped_totals import in_domain
from fedhist.protocols.shared.distribution_target import DistributionTarget, SeenShares
from fedhist.protocols.shared.domains import check_domain, with_domain
from fedhist.session.curator import Curator
from fedhist.users.batch import Users
from fedhist.users.keys import Keys, user_ids
from fedhist.users.shards import Shard
from server.distributions.simplex import project_simplex

MECHANISMS: Mapping[str, Mechanism] = MappingProxyType(
    {
        found.name: found
        for found in (
            *distribution_mechanisms.MECHANISMS,
            *binomial_mechanisms.MECHANISMS,
            CENTRED,
        )
    }
)
"""Every mechanism, by name."""

Assumption = Literal["nothing", "same-distribution"]
"""What the automatic choice may rest on."""
NOTHING: Assumption = "nothing"

EXACT = "laplace"
"""Mechanism of runs without noise: it then returns the empirical distribution itself."""


@register_protocol
@dataclass(frozen=True)
class Distribution(TwoModes, DistributionTarget, Central):
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
        One with fewer sends what it has, and what it lacks is missing: noisy counts then add up to
        less than 1 and the projection spreads the rest evenly, presence and selection take the
        symbols for rarer than they are. So choose m no larger than almost all users' numbers, or
        take ``ragged-distribution``. In a configuration, "min" and "max" compute it FROM the data.
    n_users : int
        s, PUBLIC under replacement. All of them must answer.
    delta : float
        0: mechanisms that need none.
    mechanism : str
        "auto", or "laplace", "gaussian", "one-item", "presence", "presence-laplace", "ks", "phs"
        and the others of ``MECHANISMS``. "auto": where selection or centred counts can be better
        than noise on counts, a twentieth to a fifth of epsilon tests whether all users draw from
        one distribution. If so a hypothesis may be selected; if not, a warning says so, and centred
        counts or noise on counts estimate the average of the users' own distributions. Up to 32,768
        users are compared with each other
        (:mod:`fedhist.protocols.distributions.agreement_choice`), more with hypotheses
        (:mod:`fedhist.protocols.distributions.fit_choice`).
    mode : {"default", "paper"}
        "paper": the mechanism with its printed budget; ``guarantee`` says what that really spends,
        ``claimed`` what is printed.
    p_max : float
        PUBLIC upper bound on every symbol's probability, 1 if nothing is known. With m p_max <= 2
        "auto" considers presence, which is best for many rare symbols and blind for frequent ones;
        where it could be best and the bound does not say, a fiftieth of epsilon finds one.
    project : bool
        Project to the simplex; l2 error never grows by it, and l1 error falls in practice.
    discrete : bool
        Integer noise on integers; needed for secure noise. False: real values; Gaussian
        noise is then smaller by what integers cost, next to nothing for more than a few samples.
    assume : {"nothing", "same-distribution"}
        "same-distribution": all users draw from one distribution, says whoever asks. "auto" then
        tests nothing and takes the smallest expected error at the uniform distribution among the
        mechanisms whose floor n_users reaches and that suit p_max. On users who differ the estimate
        is then about none of them.
    trust : Aggregation, optional
        The nodes add the noise: for "laplace", "gaussian", "one-item", "presence" and
        "presence-laplace", of which "auto" takes the one of least expected error. Where nodes drop
        out, n_users is the number of those who answered.

    Privacy
    -------
    (epsilon, delta)-DP per user under replacement; the mechanisms derive their sensitivities. The
    projection is free, and so is what public numbers choose; a test costs a twentieth to a
    fifth of epsilon, and what it chooses runs with the rest.

    Error
    -----
    In l1. Laplace on counts: sqrt(k / (s m)) + 2 k / (s epsilon) [1, Lemma 1]. The value estimates
    the distribution behind the data. On given users it is compared with the average of their
    empirical distributions (:meth:`truth`): for users of m samples each that is the pooled one,
    whose own sampling error, sqrt(2 (k - 1) / (pi s m)) at most, is then left out of
    :meth:`error` as well. ``project`` makes the error smaller than predicted.

    Examples
    --------
    >>> few = Distribution(Keys.of(["a", "b"]), 1.0, samples_per_user=5, n_users=100)
    >>> few.chosen.name
    'laplace'
    """

    name: ClassVar[str] = "distribution"
    paper: ClassVar[str] = "Liu, Suresh, Yu, Kumar & Riley, NeurIPS 2020"
    mechanisms: ClassVar[Mapping[str, Mechanism]] = MECHANISMS
    revision: ClassVar[int] = 2

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
    assume: Assumption = NOTHING
    trust: Aggregation | None = None

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)
        check_domain(self.domain)
        check_integer("samples_per_user", self.samples_per_user, MOST_CLIP)
        check_integer("n_users", self.n_users, 1 << 32)
        if not 1 / len(self.domain) <= self.p_max <= 1:
            raise ValueError(f"p_max must lie in [1 / {len(self.domain)}, 1], got {self.p_max}")
        self.check_mode()
        self.check_integers(self.discrete)
        if self.mechanism != "auto":
            self._check_mechanism()
        if (linear := self.chosen.linear) is not None:
            _ = self.asks(linear.query(self.task), 0)

    def _check_mechanism(self) -> None:
        if self.mechanism not in self.mechanisms:
            raise ValueError(
                f"no mechanism {self.mechanism!r} in mode {self.mode!r}"
                + nearest(self.mechanism, sorted(self.mechanisms))
            )
        named = self.mechanisms[self.mechanism]
        if not (self.delta or named.pure):
            raise ValueError(f"mechanism {self.mechanism!r} needs delta > 0, got {self.delta}")
        if self.trust is not None and named.linear is None:
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
            zcdp_rho(self.epsilon, self.delta) if self.delta else math.nan,
            discrete=self.discrete,
            p_max=float(self.p_max),
            trust=self.trust,
        )

    @property
    def chosen(self) -> Mechanism:
        """The mechanism that runs; from public numbers only."""
        if math.isinf(self.epsilon):
            return MECHANISMS[EXACT]
        if self.mechanism != "auto":
            return self.mechanisms[self.mechanism]
        if self.assume == NOTHING and self.trust is None:
            return automatic(self.task)
        return MECHANISMS[_best(self.task)]

    @property
    def max_rounds(self) -> int:
        """The mechanism's."""
        return self.chosen.rounds

    def asks(self, query: Query, round_index: int) -> Query:
        """Under aggregate trust, for shares of what the mechanism spends."""
        linear = self.chosen.linear
        if self.trust is None or linear is None:
            return query
        return self.shared(query, *linear.spends(self.task))

    # -- the script ------------------------------------------------------------------------------

    def rounds(self, server: Curator) -> Script:
        """Run the mechanism and project what it learned."""
        secure = server.grade == "secure" and not math.isinf(self.epsilon)
        if secure and not self.discrete:
            return Estimate.refused('noise = "secure" draws integers only: set discrete = true')
        mechanism, task = self.chosen, replace(self.task, secure=secure)
        floor = mechanism.floor(task)
        if math.isinf(floor):
            return Estimate.refused(
                f"{mechanism.name} does not run with {task.k} symbols, {task.m} samples per user "
                f'and {task.n_users} users: take mechanism = "auto"'
            )
        learned = yield from self._all_answer(mechanism.search(task, server))
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

    def _all_answer(self, search: Search) -> Generator[Query, Summary, Learned | Estimate]:
        """Pass the mechanism's queries on, and check after each that all users answered."""
        query = next(search)
        while True:
            summary = yield query
            n = summary.n_users
            if n != self.n_users and (self.trust is None or not n):  # else of those who are in it
                search.close()
                return Estimate.failed(
                    f"{summary.n_users} users answered, but n_users = {self.n_users}: the estimate "
                    "divides by n_users, so set it to the number of users who will answer; nothing "
                    "was released from this round",
                    public={"n_users": float(summary.n_users)},
                )
            try:
                query = search.send(summary)
            except StopIteration as stop:
                learned = stop.value
                if not isinstance(learned, Learned):
                    raise TypeError(f"a mechanism must return Learned, got {learned!r}") from None
                return learned

    # -- theory ----------------------------------------------------------------------------------

    def predicted(self, seen: SeenShares) -> ErrorBound:
        """Predict the expected l1 error on a known population. NOT PRIVATE.

        For noise on counts, one item and presence exact before the projection; a selection's law
        follows from the users' own scores. What the projection does to that is in the closed form
        of :mod:`fedhist.protocols.shared.projected_error`. "sparse" is not projected: a bound.
        """
        mechanism, task = self.chosen, self.task
        if mechanism.given is None:
            expected = min(mechanism.error(task, seen.shares, True), 2.0)
            return ErrorBound(L1, expected, False, f"{mechanism.source}: a bound, not projected")
        expected = mechanism.given(task, seen, self.project)
        exact = not self.project or math.isinf(self.epsilon)
        source = mechanism.source if exact else f"{mechanism.source}; projected, closed form"
        chooses = self.mechanism == "auto" and self.assume == NOTHING and self.trust is None
        source += doubt(task) if chooses and task.private else ""
        return ErrorBound(L1, expected, exact, source)

    @property
    def estimates(self) -> Truth:
        """As the mechanism that runs: selection and presence tell of a common distribution only."""
        return self.chosen.estimates

    @classmethod
    def resolve(
        cls, parameters: Mapping[str, Any], users: Shard, domain: Keys | None
    ) -> tuple[dict[str, Any], list[str]]:
        """Fill the domain and n_users; compute samples_per_user given as "min" or "max".

        The two words read the private data, and the report says so.
        """
        p = with_domain(parameters, domain)
        p.setdefault("n_users", len(users))
        asked = p.get("samples_per_user")
        if not isinstance(asked, str):
            return p, []
        if asked not in ("min", "max"):
            raise ValueError(f'samples_per_user must be an integer, "min" or "max", got {asked!r}')
        found = [
            getattr(np.bincount(flat // len(p["domain"]), count, n), asked)()
            for block in users.blocks()
            for n, flat, count in in_domain(block, p["domain"])
        ]
        m = int({"min": min, "max": max}[asked](found, default=0))
        if m < 1:
            raise PopulationError(f'samples_per_user = "{asked}" is {m}: some user has no items')
        p["samples_per_user"] = m
        word = "smallest" if asked == "min" else "largest"
        return p, [f"samples_per_user = {m} is the {word} number of items of any user"]

    @classmethod
    def example(cls) -> Self:
        """Four drinks, eight cups each."""
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
def _best(task: DistributionTask) -> str:
    """Name the mechanism of least expected error at the uniform distribution, if all are alike."""
    uniform = np.full(task.k, 1 / task.k)
    possible = [
        found
        for found in MECHANISMS.values()
        if found.automatic
        and (found.pure or task.delta)
        and found.suits(task)
        and task.n_users >= found.floor(task)
        and (task.trust is None or (found.linear is not None and found.linear.addable(task)))
    ]
    return min(possible, key=lambda found: found.error(task, uniform, False)).name
