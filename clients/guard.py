"""The guard: what a node's owner allows, and what each user has already spent.

Answered queries and spent budgets are per USER and survive the process that answered: they are a
list of entries that the driver (simulation), Flower's Context (deployment) or a file (deployment,
over restarts) keeps. An entry names the cohort that answered, so what one user has spent is
recomputed from the public user id. A query answered before gets the same answer, never a fresh
draw.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedhist.base.arrays import Words
from fedhist.privacy.guarantee import Trust
from fedhist.privacy.ledger import SLACK
from fedhist.users.cohort import Cohort

if TYPE_CHECKING:
    from fedhist.flower.wire import Question


class Refusal(Exception):
    """The guard does not answer; the reason is public and depends on no user's data."""


@dataclass(frozen=True)
class Policy:
    """What the node's owner allows.

    Parameters
    ----------
    trust : {"local", "central"}
        "local" answers only queries that are randomized on the client.
    epsilon : float
        Budget of each user over all local queries.
    max_epsilon : float
        Largest cost of one local query.
    wire_names : tuple of str
        Queries that may be asked; empty allows every registered one.
    salts : tuple of int
        Cohort salts that may be used; empty allows any.
    simulated : bool
        Whether the users are made up: only then are queries answered that have no noise
        (epsilon = inf) or whose floating-point noise leaks in its low bits.
    """

    trust: str = Trust.LOCAL.value
    epsilon: float = 1.0
    max_epsilon: float = float("inf")
    wire_names: tuple[str, ...] = ()
    salts: tuple[int, ...] = ()
    simulated: bool = False

    def __post_init__(self) -> None:
        if self.trust not in (Trust.LOCAL.value, Trust.CENTRAL.value):
            raise ValueError(f"trust must be 'local' or 'central', got {self.trust!r}")
        if not isinstance(self.simulated, bool):
            raise ValueError(f"simulated must be true or false, got {self.simulated!r}")
        if not self.epsilon > 0 or not self.max_epsilon > 0:
            raise ValueError(
                f"a policy's budgets must be positive, got {self.epsilon}, {self.max_epsilon}"
            )


SIMULATED_OWNER = {"trust": "central", "epsilon": float("inf"), "simulated": True}
"""A simulated node's configuration of the guard; it makes :data:`SIMULATION`."""

SIMULATION = Policy(trust="central", epsilon=float("inf"), simulated=True)
"""What the simulation allows: everything; the run's own ledger limits it."""


@dataclass(frozen=True)
class Answered:
    """One answered query: its digest, its cost to each user of its cohort, and the cohort."""

    digest: str
    epsilon: float
    salt: int = -1
    lo: float = 0.0
    hi: float = 1.0

    def covers(self, ids: Words) -> NDArray[np.bool_]:
        """Say which users answered."""
        if self.salt < 0:
            return np.ones(len(ids), dtype=bool)
        return Cohort(self.salt, self.lo, self.hi).contains(ids)

    def to_json(self) -> str:
        """Encode for the store."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Answered:
        """Decode from the store."""
        body: dict[str, Any] = json.loads(text)
        return cls(**body)


class Guard:
    """Decides whether a node answers a question.

    Parameters
    ----------
    policy : Policy
    answered : sequence of Answered
        What this node has answered so far.
    """

    def __init__(self, policy: Policy, answered: Sequence[Answered] = ()) -> None:
        self.policy, self.answered = policy, tuple(answered)

    def admit(self, question: Question, ids: Words) -> Answered | None:
        """Decide on a question for the users of this node that are in its cohort.

        Parameters
        ----------
        question : Question
        ids : (n,) uint64
            The users who would answer.

        Returns
        -------
        Answered or None
            The entry to store before the answer leaves; None if the question was answered
            before, so that it must get the same answer and costs nothing more.

        Raises
        ------
        Refusal
            If the policy does not allow the question or a user's budget is spent.
        """
        query, policy = question.query, self.policy
        if policy.wire_names and query.wire_name not in policy.wire_names:
            raise Refusal(f"the owner of this node does not allow the query {query.wire_name!r}")
        if query.trust is Trust.CENTRAL and policy.trust != Trust.CENTRAL.value:
            raise Refusal(f"{query.wire_name!r} needs a trusted server; this node trusts none")
        cohort = query.cohort
        if policy.salts and cohort is not None and cohort.salt not in policy.salts:
            raise Refusal(f"cohort salt {cohort.salt} is not one that this node's owner allows")
        cost = query.release.epsilon
        if query.trust is Trust.LOCAL and not 0 < cost <= policy.max_epsilon:
            raise Refusal(f"the query costs epsilon = {cost:g}; at most {policy.max_epsilon:g}")
        if cost == float("inf") and not policy.simulated:
            raise Refusal("a query without noise (epsilon = inf) is never answered here")
        if query.trust is Trust.LOCAL and not query.exact and not policy.simulated:
            raise Refusal(
                f"{query.wire_name!r} does not protect a user's record as it is drawn: its noise "
                "is floating-point, whose low bits depend on the data, or its cost is per item"
            )
        if any(a.digest == question.digest for a in self.answered):
            return None
        entry = Answered(question.digest, cost)
        if cohort is not None:
            entry = Answered(question.digest, cost, cohort.salt, cohort.lo, cohort.hi)
        if cost > 0 and np.isfinite(policy.epsilon):
            spent = self.spent(ids)
            if len(spent) and spent.max() + cost > policy.epsilon * SLACK:
                raise Refusal(
                    f"a user's budget is spent: {spent.max():g} of {policy.epsilon:g}, the query "
                    f"costs {cost:g} more"
                )
        return entry

    def spent(self, ids: Words) -> NDArray[np.float64]:
        """Epsilon that each user has spent: (n,)."""
        total = np.zeros(len(ids))
        for a in self.answered:
            total += a.epsilon * a.covers(ids)
        return total
