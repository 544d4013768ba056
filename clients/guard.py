"""The guard: what a node's owner allows, and what each user has already spent.

Answered queries and spent budgets are per USER (:mod:`clients.spending`) and survive the process
that answered: they are a list of entries that the driver (simulation), Flower's Context
(deployment) or a file (deployment, over restarts) keeps. A query answered before gets the same
answer, never a fresh draw.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from clients.spending import Answered, Spending
from fedhist.base.arrays import PlainArguments, Words
from fedhist.base.checks import check_choice, check_integer, check_within, is_real
from fedhist.model.aggregated import Aggregated
from fedhist.model.shuffled import Shuffled
from fedhist.privacy.guarantee import USER_LEVEL, Adjacency, Release, Trust, convert
from fedhist.privacy.ledger import SLACK
from fedhist.privacy.shares import TAU

if TYPE_CHECKING:
    from fedhist.flower.wire import Question
    from fedhist.model.query import Query


class Refusal(Exception):
    """The guard does not answer; the reason is public and depends on no user's data."""


@dataclass(frozen=True)
class Policy(metaclass=PlainArguments):
    """What the node's owner allows.

    Parameters
    ----------
    trust : {"local", "aggregate", "central"}
        "local" answers only queries that are randomized on the client; "aggregate" also those whose
        sums are private by the noise of many nodes, each of which adds a share.
    epsilon : float
        Budget of each user over all queries that cost something.
    max_epsilon : float
        Largest cost of one such query.
    wire_names : tuple of str
        Queries that may be asked; empty allows every registered one.
    min_epsilon : float
        Least cost of one such query: smaller ones tell nothing and would be asked without end.
    min_users : int
        Fewest users of a cohort that a central query may single out on this node; all of its users
        may be asked together, however few they are. Where it is private who they are
        ("add-remove-user"), any number above 0 allows no part of them.
    min_parties : int
        Fewest nodes whose shares of noise together hide this node's users.
    min_collude : float
        Least share of the nodes that may collude with the server (a query's ``tau_c``): the noise
        of so many is not counted on.
    adjacency : {"replace-user", "zero-out-user", "add-remove-user"}
        What must not show, and what budgets are stated under: a cost under another adjacency is
        converted (:func:`~fedhist.privacy.guarantee.convert`). "add-remove-user" hides who is on
        this node: then only sums that keep the number of users private are answered.
    delta : float
        Budget of each user over all such queries, beside that of epsilon.
    max_delta : float
        Largest delta of one such query.
    max_answers : int
        Most queries that are ever answered.
    max_reply_bytes, max_store_bytes : int
        Largest reply, and largest store of replies, in bytes.
    limits : tuple of str
        Ranges of fields of queries, such as ``"clipped-counts.clip<=100"``.
    memoize : bool
        Keep an answer for each state of this node's records: a question that comes again of the
        same records gets the same answer and costs nothing, of changed ones it is asked and paid
        for anew. That, and when, the records changed is not hidden then. Otherwise the first answer
        stands for good; it always does where many nodes share the noise.
    simulated : bool
        Whether the users are made up: only then are queries answered that have no noise
        (epsilon = inf) or whose floating-point noise leaks in its low bits.
    """

    trust: str = Trust.LOCAL.value
    epsilon: float = 1.0
    max_epsilon: float = inf
    wire_names: tuple[str, ...] = ()
    min_epsilon: float = 1e-3
    min_users: int = 20
    min_parties: int = 10
    min_collude: float = TAU
    adjacency: str = Adjacency.REPLACE_USER.value
    delta: float = 1e-5
    max_delta: float = 1e-5
    max_answers: int = 1000
    max_reply_bytes: int = 1 << 26
    max_store_bytes: int = 1 << 30
    limits: tuple[str, ...] = ()
    memoize: bool = False
    simulated: bool = False

    def __post_init__(self) -> None:
        check_choice("trust", self.trust, ("local", "aggregate", "central"))
        for name in ("memoize", "simulated"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be true or false, got {getattr(self, name)!r}")
        if not all(is_real(e) and e > 0 for e in (self.epsilon, self.max_epsilon)):
            raise ValueError(
                f"a policy's budgets must be positive, got {self.epsilon!r}, {self.max_epsilon!r}"
            )
        check_within("min_epsilon", self.min_epsilon, 0.0, inf)
        check_within("delta", self.delta, 0.0, inf)
        check_within("max_delta", self.max_delta, 0.0, 1.0)
        check_within("min_collude", self.min_collude, 0.0, 0.5)
        check_choice("adjacency", self.adjacency, tuple(a.value for a in USER_LEVEL))
        check_integer("min_users", self.min_users, least=0)
        for name in ("min_parties", "max_answers", "max_reply_bytes", "max_store_bytes"):
            check_integer(name, getattr(self, name))
        _ = self.ranges

    @property
    def counts_users(self) -> bool:
        """Whether an answer depends on who they are, or how many: not where all is allowed."""
        return not self.simulated or min(self.epsilon, self.delta) < inf

    @cached_property
    def ranges(self) -> tuple[tuple[str, str, str, float], ...]:
        """The limits: query, field, "<=" or ">=", number."""
        ranges = []
        for text in self.limits:
            m = re.fullmatch(r"([a-z0-9-]+)\.([a-z_]+)(<=|>=)([-+.0-9e]+)", text.replace(" ", ""))
            if m is None:
                raise ValueError(f"a limit is written QUERY.FIELD<=NUMBER (or >=), got {text!r}")
            ranges.append((m[1], m[2], m[3], float(m[4])))
        return tuple(ranges)


SIMULATED_OWNER = {"trust": "central", "epsilon": inf, "delta": inf, "simulated": True}
"""A simulated node's configuration of the guard: everything; the run's own ledger limits it."""


class Guard:
    """Decides whether a node answers a question, by what it has answered so far."""

    def __init__(self, policy: Policy, answered: Sequence[Answered] = ()) -> None:
        self.policy, self.answered = policy, tuple(answered)

    def admit(self, question: Question, ids: Words, n_all: int | None = None) -> Answered | None:
        """Decide on a question for the users of this node that are in its cohort.

        Users ``ids`` would answer, of ``n_all`` on the node (default: these). Returns the entry to
        store before the answer leaves; None if the question was answered before, so that it must
        get the same answer and costs nothing more. Refusal if the policy does not allow the
        question or a user's budget is spent.
        """
        query, policy, name = question.query, self.policy, question.query.inner.wire_name
        if policy.wire_names and name not in policy.wire_names:
            raise Refusal(f"the owner of this node does not allow the query {name!r}")
        if isinstance(query, Shuffled):  # a node believes in no shuffler: it answers the query
            query = query.query
        if query.trust is Trust.AGGREGATE:
            self._refuse_shares(query, question.fold)
        if query.trust is Trust.CENTRAL and policy.trust != Trust.CENTRAL.value:
            raise Refusal(f"{query.wire_name!r} needs a trusted server; this node trusts none")
        cohort = query.cohort
        release = self._cost(query)
        cost = release.epsilon
        if query.trust is not Trust.CENTRAL and not 0 < cost <= policy.max_epsilon:
            raise Refusal(f"the query costs epsilon = {cost:g}; at most {policy.max_epsilon:g}")
        if cost == inf and not policy.simulated:
            raise Refusal("a query without noise (epsilon = inf) is never answered here")
        if query.trust is Trust.LOCAL and not query.exact and not policy.simulated:
            raise Refusal(
                f"{query.wire_name!r} does not protect a user's record as it is drawn: its noise "
                "is floating-point, whose low bits depend on the data, or its cost is per item"
            )
        if any(a.digest == question.digest for a in self.answered):
            return None
        if not policy.simulated:
            self._refuse_excess(query, release, len(ids), n_all)
        entry = Answered(question.digest, cost, delta=release.delta)
        if cost:
            entry = replace(entry, adjacency=policy.adjacency)
        if cohort is not None:
            entry = replace(entry, salt=cohort.salt, lo=cohort.lo, hi=cohort.hi)
        if isinstance(query, Aggregated) and query.series is not None:
            entry = self._placed(entry, query.series, query.share.place)
        self._refuse_spent(query, entry, ids)
        return entry

    def _cost(self, query: Query) -> Release:
        """Return what a query costs under the owner's adjacency."""
        if self.policy.simulated or query.trust is Trust.CENTRAL:
            return query.release
        stated, moves = Adjacency.REPLACE_USER, None  # what a local answer promises
        if isinstance(query, Aggregated):
            stated, moves = query.adjacency, query.moves
        with _public_numbers():
            return convert(query.release, stated, Adjacency(self.policy.adjacency), moves=moves)

    @cached_property
    def _spending(self) -> Spending:
        with _public_numbers():
            return Spending.of(self.answered, Adjacency(self.policy.adjacency))

    def _refuse_spent(self, query: Query, entry: Answered, ids: Words) -> None:
        """Hold a cost against what users have left.

        Where it is private who is on the node, against what anybody of the cohort may have spent,
        by cohorts alone: a refusal, and the number in it, must not tell who is there.
        """
        costs = {"epsilon": entry.epsilon, "delta": entry.delta}
        budgets = {"epsilon": self.policy.epsilon, "delta": self.policy.delta}
        if not any(costs.values()) or not np.isfinite(list(budgets.values())).any():
            return
        private = isinstance(query, Aggregated) and not query.sends_n
        if not (private or len(ids)):
            return
        spent = self._spending.by_anybody(entry) if private else self._spending.by_user(ids)
        for (name, cost), most in zip(costs.items(), spent.max(axis=0), strict=True):
            if cost and not most + cost <= budgets[name] * SLACK:
                of = "" if name == "epsilon" else f" of {name}"
                converted = entry.epsilon != query.release.epsilon
                under = f" under {self.policy.adjacency}" if converted else ""
                raise Refusal(
                    f"a user's budget{of} is spent: {most:g} of {budgets[name]:g}, the query "
                    f"costs {cost:g} more{under}"
                )

    def _refuse_shares(self, query: Query, fold: bool) -> None:
        """Hold a query whose noise is shared against what the owner believes in."""
        policy = self.policy
        if policy.trust == Trust.LOCAL.value:
            raise Refusal(
                f"{query.label!r} needs other nodes to be trusted, each of which adds a share of "
                "the noise; this node trusts none"
            )
        if not fold:
            raise Refusal("under aggregate trust a node sends its sum, not its users' reports")
        if policy.simulated:
            return
        if (query.parties or 0) < policy.min_parties:
            raise Refusal(
                f"{query.parties} nodes share the noise; this node's owner asks for "
                f"{policy.min_parties}"
            )
        if isinstance(query, Aggregated) and query.share.tau_c < policy.min_collude:
            raise Refusal(
                f"tau_c = {query.share.tau_c:g} of the nodes may collude; this node's owner "
                f"expects {policy.min_collude:g}"
            )

    def _placed(self, entry: Answered, series: str, place: int) -> Answered:
        """Put a question into its series: the first one pays for all, and no place comes twice."""
        before = [a for a in self.answered if a.series == series]
        if any(a.place == place for a in before):
            raise Refusal(f"question {place} of this series was another one, and was answered")
        if any(a.cohort != entry.cohort for a in before):
            raise Refusal("the questions of a series are asked of one cohort, which has paid")
        if before:
            entry = replace(entry, epsilon=0.0, delta=0.0, adjacency=Adjacency.REPLACE_USER.value)
        return replace(entry, series=series, place=place)

    def _refuse_excess(self, query: Query, r: Release, n: int, n_all: int | None) -> None:
        """Hold a new query against the owner's floors and ceilings."""
        policy = self.policy
        if len(self.answered) >= policy.max_answers:
            raise Refusal(f"{len(self.answered)} queries were answered; this node answers no more")
        if query.trust is not Trust.CENTRAL and r.epsilon < policy.min_epsilon:
            least = f"at least {policy.min_epsilon:g}"
            raise Refusal(f"the query costs epsilon = {r.epsilon:g}; {least}")
        if r.delta > policy.max_delta:
            raise Refusal(f"the query costs delta = {r.delta:g}; at most {policy.max_delta:g}")
        singled_out = n < policy.min_users and n_all is not None and n < n_all
        if policy.adjacency == Adjacency.ADD_REMOVE_USER.value:  # n is private: the cohort decides
            part = query.cohort is not None and query.cohort.share < 1
            singled_out = part and policy.min_users > 0
        if query.trust is Trust.CENTRAL and singled_out:
            raise Refusal(
                f"a central query may not single out fewer than {policy.min_users} users of a node"
            )
        inner = query.inner  # for which an owner's rules are written
        for name, field, sign, limit in policy.ranges:
            if name != inner.wire_name:
                continue
            value = getattr(inner, field, None)
            if not isinstance(value, int | float):
                raise Refusal(f"{name!r} has no number {field!r}, which this owner has limited")
            if not (value <= limit if sign == "<=" else value >= limit):
                raise Refusal(f"{name}.{field} = {value:g} is not {sign} {limit:g}")

    def spent(self, ids: Words) -> NDArray[np.float64]:
        """Epsilon that each user has spent: (n,)."""
        return self._spending.by_user(ids)[:, 0]


@contextmanager
def _public_numbers() -> Iterator[None]:
    """Refuse what arithmetic cannot say of the numbers of queries."""
    try:
        yield
    except (ValueError, ArithmeticError, RuntimeError) as error:
        raise Refusal(f"a cost cannot be stated as this node's owner asks: {error}") from None
