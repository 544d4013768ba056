"""How far off the planner is: its settings, simulated, and the page of the documentation."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from fedhist.model.registry import load_builtin, protocols
from simulations.reporting.table import markdown
from simulations.runs.config import Config, builtin_configs
from simulations.studies.plan.planner import plan
from simulations.studies.plan.population import Unknown
from simulations.studies.plan.tables import accuracy_table
from simulations.studies.plan.template import template_of
from simulations.studies.plan.verify import Verified, verify
from simulations.studies.records.identity import versions

FIRST_SEED = 1
ACCURACY_SEEDS = 50


@dataclass(frozen=True)
class Goal:
    """A question to the planner.

    Parameters
    ----------
    source : str
        Built-in configuration, or a protocol.
    error : float
    unknown : {"n_users", "samples_per_user", "epsilon"}
    relative : bool
    overrides : tuple of str
    words : str
        What the overrides mean, for the table.
    """

    source: str
    error: float
    unknown: Unknown = "n_users"
    relative: bool = False
    overrides: tuple[str, ...] = ()
    words: str = ""

    @property
    def config(self) -> Config:
        """The template, named for the table."""
        found = template_of(self.source, self.overrides)
        return replace(found, name=self.words or found.name)


def _people(**values: object) -> tuple[str, ...]:
    return tuple(f"population.{k}={v}" for k, v in values.items())


FIXED_T = (*_people(samples_per_user=100), "protocol.samples_per_user=100")
ZIPF = _people(kind="zipf", n_users=2000, d=50, exponent=0.5, mean_items=300, tail="inf", seed=7)
COUNTS = _people(kind="paper-poisson", n_users=2000, mean_items=1.0, alpha=4.0, seed=7)
VECTORS = _people(n_users=400, samples_per_user=20, dimension=50)
FEW = ("protocol.dimension=50", "protocol.sample_radius=0.71", "protocol.samples_per_user=20")
SPARSE = (
    "protocol.samples_per_user=100",
    *_people(kind="gaussian", n_users=4000, samples_per_user=100, dimension=32, mean=[0.5, -0.5]),
)
NAIVE = _people(kind="gaussian", n_users=2000, samples_per_user=100, mean=0.237)
COUNTED = (
    "protocol.epsilon=1.0",
    *_people(kind="zipf", n_users=2000, d=200, exponent=1.0, mean_items=50, seed=7),
)
BUMPS = (
    *("protocol.epsilon=2.0", "protocol.radius=4.0"),
    *_people(kind="density", n_users=8000, samples_per_user=50, density="two-bumps", seed=7),
)

GOALS = (
    Goal("mean", 1e-4, overrides=FIXED_T, words="T = 100"),
    Goal(
        "mean",
        2e-3,
        overrides=(*FIXED_T, *_people(n_users=2000)),
        unknown="epsilon",
        words="n = 2,000, T = 100",
    ),
    Goal(
        "mean",
        1e-3,
        "samples_per_user",
        overrides=(*FIXED_T, *_people(n_users=2000)),
        words="n = 2,000",
    ),
    Goal("bounded-histogram", 0.1, relative=True, words="C = 80"),
    Goal("bounded-histogram", 0.05, "epsilon", relative=True, words="C = 80, n = 40,000"),
    Goal("adaptive-histogram", 0.15, relative=True, words="C chosen"),
    Goal(
        "poisson-counts",
        0.05,
        relative=True,
        overrides=(
            "protocol.name=poisson-counts",
            "protocol.epsilon=1.1",
            "protocol.clip_max=32",
            *COUNTS,
        ),
        words="d = 1, C chosen",
    ),
    Goal(
        "unbounded-histogram",
        0.4,
        relative=True,
        overrides=("protocol.epsilon=1.0", "protocol.clip=100"),
        words="C = 100",
    ),
    Goal("item-histogram", 0.01, relative=True, overrides=COUNTED, words="d = 200"),
    Goal("distribution", 0.05, overrides=("protocol.mechanism=laplace",), words="laplace, m = 300"),
    Goal("distribution", 0.02, overrides=("protocol.mechanism=ks",), words="ks, m = 300"),
    Goal("ragged-distribution", 0.05, words="m_max = 4096"),
    Goal("few-users-mean", 0.45, overrides=(*FEW, *VECTORS), words="d = 50, m = 20"),
    Goal(
        "few-users-distribution",
        0.7,
        overrides=(
            "protocol.name=few-users-distribution",
            "protocol.epsilon=1.0",
            "protocol.samples_per_user=300",
            *ZIPF,
        ),
        words="d = 50, m = 300",
    ),
    Goal("user-level-erm", 0.02, words="d = 10, m = 20 to 100"),
    Goal(
        "mean-linf",
        0.01,
        overrides=(*FIXED_T, "protocol.dimension=4", *_people(dimension=4)),
        words="d = 4, T = 100",
    ),
    Goal(
        "mean-l2",
        0.05,
        overrides=(*FIXED_T, "protocol.dimension=8", *_people(dimension=8)),
        words="d = 8, T = 100",
    ),
    Goal(
        "sparse-mean",
        0.05,
        overrides=("protocol.epsilon=2.0", "protocol.dimension=32", "protocol.sparsity=2", *SPARSE),
        words="d = 32, s = 2, T = 100",
    ),
    Goal("naive-mean", 1e-3, overrides=("protocol.epsilon=1.0", *NAIVE), words="T = 100"),
    Goal("density", 0.05, words="two bumps"),
    Goal("central-density", 0.002, words="two bumps"),
    Goal("naive-density", 0.1, overrides=BUMPS, words="two bumps, one sample"),
    Goal("local-distribution", 0.1, words="k = 50, m = 300"),
    Goal("local-histogram", 0.3, relative=True, words="k = 20, L = 20"),
    Goal("hadamard-response", 0.02, words="k = 64"),
    Goal("unary-encoding", 0.02, overrides=("protocol.project=false",), words="k = 64"),
    Goal("cover-select", 0.02, words="d = 2"),
)
"""One or more for every family; a family that is not registered is left out."""


def settings() -> list[Goal]:
    """Return the goals whose protocols are registered."""
    load_builtin()
    return [g for g in GOALS if g.source in protocols() or g.source in builtin_configs()]


def accuracy(
    seeds: int = ACCURACY_SEEDS, goals: Sequence[Goal] | None = None
) -> Iterator[Verified]:
    """Plan every setting and simulate the answer, one after the other.

    Raises
    ------
    RuntimeError
        If a plan has no answer that can be simulated: the setting is wrong then.
    """
    for goal in settings() if goals is None else goals:
        answer = plan(goal.config, goal.error, goal.unknown, relative=goal.relative)
        found = verify(answer, seeds, first_seed=FIRST_SEED)
        if found is None:
            raise RuntimeError(f"no answer to simulate for {goal}")
        yield found


def page(found: Sequence[Verified], seeds: int) -> str:
    """Write the page of the documentation."""
    planned = {v.answer.label for v in found}
    without = sorted(n for n in protocols() if n not in planned)
    used = ", ".join(f"{name} {version}" for name, version in versions().items())
    return f"""# How far off the planner is

`fedhist plan` answers from theory alone. Here its answers are simulated: each row is a plan for a
target error, and the mean loss of {seeds} runs at the planned value. Every run has another seed
and another population of the same kind, so that the 99% interval (Student's) speaks of both.

A ratio above 1 means that theory promised too much: the plan falls short, and "simulation needs"
says what would have done, by theory's local slope. "Off by" is that over the plan. A prediction
marked exact is a formula for the template's users; the others are bounds, rates or
approximations. Even an exact one is for one population: where users' sizes are heavy-tailed, as in
the Zipf populations, what clipping takes away differs from one to the next. "-": the answer is at a
step of the prediction, which jumps over the target.

{markdown(accuracy_table(found), aligned=True)}

Measured {time.strftime("%Y-%m-%d")}, seeds {FIRST_SEED} to {FIRST_SEED + seeds - 1}, inline, noise
simulated; {used}.

Settings are in `simulations/experiments/predicted/planner.py`; the table is written by

<!-- slow -->
```sh
fedhist plan --accuracy --seeds {seeds} --out docs/planner-accuracy.md
```

Registered protocols without a row here: {", ".join(without) or "none"}.
"""
