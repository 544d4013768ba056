"""The second half of Appendix E: from m-hat and s-hat to a distribution [1]_.

Every user with m-hat samples or more draws m-hat of them without replacement; the others send the
all-zero row. The number of users s is replaced by the released s-hat throughout, and the users with
at most t of a symbol by C(t) = s-hat - #{u : N_i(u) > t}, which one user moves by at most 1, and
for at most min(k, 2 m-hat) symbols (min(k, m-hat) if a user is added or removed).

References
----------
.. [1] Liu, Suresh, Yu, Kumar & Riley, "Learning discrete distributions: user vs item-level
   privacy", NeurIPS 2020, Appendix E.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedhist.base.arrays import Array, Floats
from fedhist.base.text import warned
from fedhist.model.query import Query, Summary
from fedhist.privacy.guarantee import Adjacency
from fedhist.privacy.noise_law import NoiseLaw
from fedhist.privacy.sensitivity import sqrt_up
from fedhist.protocols.distributions.ragged import theory
from fedhist.protocols.distributions.ragged.encodings import RaggedCounts
from fedhist.protocols.distributions.selection_theory import KS_HEIGHT, PHS_HEIGHT, users_needed
from fedhist.session.curator import Curator
from fedhist.users.keys import Keys
from server.distributions.binomial_grid import (
    MOST_CELLS,
    SENSITIVITY,
    SMALL,
    SelectionPlan,
    pick_eta,
)
from server.distributions.ks_scores import KSPlan
from server.distributions.phs_scores import PHSPlan
from server.distributions.simplex import presence_to_probability

MOST_SELECTED = 1 << 20
"""Largest m-hat for a selection among binomials; the automatic choice stops at a sixteenth."""


@dataclass(frozen=True)
class RaggedTask:
    """Public and released numbers of the second half.

    Attributes
    ----------
    domain : Keys
    size : int
        m-hat.
    adjacency : Adjacency
    epsilon, delta : float
        Budget of the whole run.
    rest : float
        What is left: rho in zCDP if delta > 0, otherwise epsilon.
    mechanism : {"auto", "presence", "ks", "phs"}
    cmax : float

    Class attributes
    ----------------
    strict : bool
        Whether a selection is refused below its floor; else it carries a warning.
    counts_kept : bool
        Whether the exact number of the users with m-hat samples is asked for.
    """

    strict: ClassVar[bool] = True
    counts_kept: ClassVar[bool] = False

    domain: Keys
    size: int
    adjacency: Adjacency
    epsilon: float
    delta: float
    rest: float
    mechanism: str
    cmax: float

    @property
    def touched(self) -> int:
        """Most symbols of which one user changes the counts above thresholds."""
        return RaggedCounts(self.domain, self.size, (0,)).touched(self.adjacency)

    def touched_by(self, step: str) -> int:
        """Most symbols whose statistics one user changes in a step."""
        return self.touched

    @property
    def epsilon_each(self) -> float:
        """Budget of one symbol's selection."""
        if self.delta:
            return math.sqrt(8 * self.rest / self.touched)
        return self.rest / self.touched

    @property
    def law(self) -> NoiseLaw:
        """Noise on every number of users that have a symbol."""
        if self.delta:
            std = sqrt_up(self.touched) * math.sqrt(0.5 / self.rest)
            return NoiseLaw("discrete-gaussian", std)
        return NoiseLaw("discrete-laplace", self.touched / self.rest)

    def steps(self, users: float) -> tuple[str, ...]:
        """Choose what is released, from public and released numbers: "presence", "ks", "phs".

        "auto" takes the smaller predicted error at p uniform, selection only above its floor.
        """
        return self.best_steps(users) if self.mechanism == "auto" else (self.mechanism,)

    def best_steps(self, users: float) -> tuple[str, ...]:
        """Choose by predicted error."""
        feasible = users >= self.floor("ks")
        few = len(self.domain) * math.isqrt(self.size) <= MOST_SELECTED
        if not (feasible and few and self.size <= MOST_SELECTED >> 4):
            return ("presence",)
        uniform = np.full(len(self.domain), 1 / len(self.domain))
        ks, presence = (self.error(uniform, (s,), users, 0.0, 0.0) for s in ("ks", "presence"))
        return ("ks",) if ks < presence else ("presence",)

    def error(
        self,
        p: Floats,
        steps: tuple[str, ...],
        kept: float,
        shared: float,
        users_std: float,
        *,
        projected: bool = False,
    ) -> float:
        """Predict the l1 error with ``kept`` users; see the theory of this room."""
        if steps[0] == "presence":
            return theory.ragged_presence_error(
                p, self.size, kept, shared, users_std, self.law, self.cmax, projected=projected
            )
        each, eta = self.epsilon_each, self.eta(kept)
        return theory.ragged_selection_error(
            p, self.size, kept, shared, users_std, each, eta, projected=projected
        )

    def eta(self, users: float) -> float:
        """Width of the grid in total variation; wider where its table is too large."""
        return max(pick_eta(max(1, round(users)), self.epsilon_each), 2e-7 * self.size)

    def floor(self, step: str) -> float:
        """Fewest users at which a selection's error is as predicted."""
        height = KS_HEIGHT if step == "ks" else PHS_HEIGHT
        return users_needed(self.size, self.epsilon_each, height)

    def plan(self, step: str, users: float) -> SelectionPlan:
        """Hypotheses and thresholds of a selection; from public and released numbers."""
        kind = KSPlan if step == "ks" else PHSPlan
        return kind.of(self.size, self.eta(users))

    def present(
        self, server: Curator, present: NDArray[np.int64], total: int, users: float
    ) -> Array:
        """Release the numbers of users that have each symbol.

        Parameters
        ----------
        server : Curator
        present : (k,) int64
        total, users : float
            The users with m-hat samples: exactly where that is asked for, and released.
        """
        q = self.touched_by("presence")
        if self.delta:
            return server.gaussian_zcdp(
                present, l2_sensitivity=sqrt_up(q), rho=self.rest, discrete=True, label="presence"
            )
        return server.discrete_laplace(
            present, l1_sensitivity=q, epsilon=self.rest, label="presence"
        )


@dataclass(frozen=True)
class Released:
    """What the second half returns: probabilities before any projection, or why there are none."""

    p: Floats | None
    reason: str = ""
    warnings: tuple[str, ...] = ()
    public: Mapping[str, float] = field(default_factory=dict)


def release(
    task: RaggedTask, users: float, n_users: int | None, server: Curator
) -> Generator[Query, Summary, Released]:
    """Ask for the counts among m-hat samples, and release what the steps need; one round.

    Parameters
    ----------
    task : RaggedTask
    users : float
        s-hat, a positive integer.
    n_users : int or None
        s, where it is public.
    server : Curator
    """
    steps = task.steps(users)
    public: dict[str, float] = {}
    warnings: tuple[str, ...] = ()
    selection = next((s for s in steps if s != "presence"), None)
    plan = None
    if selection is not None:
        floor = task.floor(selection)
        needs = (
            f'"{selection}" needs about {floor:.0f} users with {task.size} samples; there are '
            f"about {users:g}"
        )
        other = 'take mechanism = "presence" or "auto"'
        if users < floor and task.strict:
            return Released(None, f"{needs}: {other}")
        warnings = (warned(needs, "errors are larger than predicted", other),) * (users < floor)
        plan = task.plan(selection, users)
        public["epsilon_each"] = task.epsilon_each
    if "presence" in steps:
        public["noise_std"] = task.law.std
    thresholds = (0,) if plan is None else plan.thresholds
    thresholds = thresholds if thresholds[0] == 0 else (0, *thresholds)
    if len(task.domain) * len(thresholds) > MOST_CELLS:
        return Released(
            None,
            f"{len(task.domain)} symbols at {len(thresholds)} thresholds are too many to select "
            'from: take mechanism = "presence"',
        )
    query = RaggedCounts(task.domain, task.size, thresholds, count_kept=task.counts_kept)
    summary = yield query
    if n_users is not None and summary.n_users != n_users:
        return Released(
            None, f"{summary.n_users} users answered in the second round, not n_users = {n_users}"
        )
    above = query.above(summary)
    total = int(summary.sums["kept"][0]) if task.counts_kept else round(users)
    p = np.zeros(len(task.domain))
    if plan is not None:
        below = np.clip(total - above[:, len(thresholds) - len(plan.thresholds) :], 0, None)
        # at most s-hat: scores are then exact doubles, and clipping moves nothing by more than 1
        scores = plan.scores(np.minimum(below, round(users)), round(users))
        chosen = server.exponential_rows(
            scores,
            sensitivity=SENSITIVITY,
            epsilon_each=task.epsilon_each,
            changed=task.touched_by("selection"),
        )
        p = np.asarray(plan.p[chosen], dtype=np.float64)
    if "presence" in steps:
        noisy = task.present(server, above[:, 0], total, users)
        small = presence_to_probability(noisy, users, task.size, task.cmax)
        p = small if plan is None else np.where(p < SMALL / task.size, small, p)
    return Released(p, warnings=warnings, public=public)
