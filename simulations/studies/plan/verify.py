"""Simulations of what a plan says: measured against predicted error, and how far off it was."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from fedhist.model.evaluation import Facts, measured
from fedhist.model.protocol import Estimate, Protocol
from fedhist.model.query import Query
from fedhist.users.batch import Users
from simulations.populations import Loaded, PopulationSpec
from simulations.reporting.statistics import Compared
from simulations.runs.config import prepare
from simulations.runs.run import Options, execute
from simulations.studies.plan.planner import Answer
from simulations.studies.plan.population import MOST_ENTRIES, Template
from simulations.studies.plan.search import scale
from simulations.studies.records.metrics import bytes_per_user, distances

USUAL_SEEDS = 20
STEP = 0.9
"""An answer predicted below this share of the target is at a step: theory jumps over the target."""


@dataclass(frozen=True)
class Verified(Compared):
    """An answer and what simulations of it gave. NOT PRIVATE: losses come from the truth.

    Attributes
    ----------
    answer : Answer
    losses : tuple of float
        Of the runs that are ok; shares if the answer is relative.
    statuses : mapping of str to int
        How many runs ended how.
    bytes_per_user : float
        In all rounds.
    seconds : float
        Mean wall time of a run, without making its population.
    """

    answer: Answer
    losses: tuple[float, ...]
    statuses: Mapping[str, int]
    bytes_per_user: float
    seconds: float

    @property
    def predicted(self) -> float:
        """What the plan promises."""
        return self.answer.predicted

    @property
    def loss(self) -> str:
        """What the plan's loss is, and whether its prediction is exact."""
        return f"{self.answer.loss}{' (exact)' * self.answer.exact}"

    @property
    def needed(self) -> float:
        """Value of the unknown that simulation would need, by the local slope of theory.

        NaN where the answer is at a step of the prediction, which has no slope.
        """
        a = self.answer
        step = not STEP * a.target < a.predicted
        if a.x is None or step or not a.slope < 0 or not self.measured > 0:
            return math.nan
        return float(a.x * (a.target / self.measured) ** (1 / a.slope))


def verify(
    answer: Answer,
    seeds: int = USUAL_SEEDS,
    *,
    first_seed: int = 1,
    most: float | None = None,
    progress: Callable[[], None] | None = None,
) -> Verified | None:
    """Simulate an answer: every run has another seed and, if it is made up, another population.

    Parameters
    ----------
    answer : Answer
    seeds : int
        Runs.
    first_seed : int
        Seed of the first run, and number of its population; at least 1.
    most : float, optional
        As in :func:`~simulations.studies.plan.planner.plan`: given, populations of any size are
        made.
    progress : callable, optional
        Called after every run.

    Returns
    -------
    Verified or None
        None without an answer, and where its population is too large to simulate.

    Raises
    ------
    ValueError
        If ``seeds`` or ``first_seed`` is not positive.
    """
    if seeds < 1 or first_seed < 1:
        raise ValueError(f"seeds must be positive, got {seeds} from {first_seed}")
    if answer.x is None:
        return None
    template = Template(answer.config, answer.unknown)
    setting = template.at(answer.x)
    if most is None and template.entries(setting) > 2 * MOST_ENTRIES:
        return None
    losses: list[float] = []
    statuses: Counter[str] = Counter()
    sent = math.nan
    spent = 0.0
    for seed in range(first_seed, first_seed + seeds):
        loaded = template.load(setting, seed)
        protocol = prepare(setting.config, partial(_given, loaded)).protocol
        queries: list[Query] = []
        started = time.perf_counter()
        options = Options(seed=seed, watch=queries.append, plugins=answer.config.run.plugins)
        estimate = execute(protocol, loaded.users, options).estimate
        spent += time.perf_counter() - started
        statuses[estimate.status] += 1
        if math.isnan(sent) and queries:
            sent = bytes_per_user(queries, loaded.users)
        if estimate.value is not None:
            known = measured(protocol, loaded.users)
            loss = _loss(answer, protocol, estimate, loaded.users, known)
            size = scale(protocol, loaded.users, known) if answer.relative else 1.0
            losses.append(loss / size)
        if progress is not None:
            progress()
    return Verified(answer, tuple(losses), dict(statuses), sent, spent / seeds)


def _loss(
    answer: Answer, protocol: Protocol, estimate: Estimate, users: Users, known: Facts
) -> float:
    """Measure an estimate in the loss that the answer is in. NOT PRIVATE."""
    wanted = answer.loss.removeprefix("relative ")
    if known.error.loss == wanted:
        return protocol.loss_of(estimate, users, known=known)
    return distances(estimate, known.truth, known.support, known.one_in)[wanted]


def _given(loaded: Loaded, spec: PopulationSpec) -> Loaded:
    """Hand over a population that is made already."""
    return loaded
