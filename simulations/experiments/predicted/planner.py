"""How far off the planner is: its settings, simulated, and the page of the documentation."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from fedhist.model.registry import load_builtin, own_protocols
from fedhist.model.results import Goal
from simulations.config.named_files import toml_value
from simulations.reporting.table import markdown
from simulations.runs.config import Config
from simulations.studies.plan.planner import plan
from simulations.studies.plan.tables import accuracy_table
from simulations.studies.plan.template import template_of
from simulations.studies.plan.verify import Verified, verify
from simulations.studies.records.identity import versions

FIRST_SEED = 1


def goals() -> list[tuple[Config, Goal]]:
    """Return the goals of this package's protocols, each after the template it is asked of."""
    load_builtin()
    return [(_template(name, g), g) for name, cls in own_protocols().items() for g in cls.goals]


def _template(protocol: str, goal: Goal) -> Config:
    """Read what a goal is asked of, named for the table."""
    own = {f"protocol.{k}": v for k, v in goal.protocol.items()}
    own |= {f"population.{k}": v for k, v in goal.population.items()}
    found = template_of(protocol, [f"{k}={toml_value(v)}" for k, v in own.items()])
    return replace(found, name=goal.words or found.name)


def measure(template: Config, goal: Goal, seeds: int) -> Verified:
    """Plan for a goal and simulate the answer.

    Raises
    ------
    RuntimeError
        If the plan has no answer that can be simulated: the goal is wrong then.
    """
    answer = plan(template, goal.error, goal.unknown, relative=goal.relative)
    found = verify(answer, seeds, first_seed=FIRST_SEED)
    if found is None:
        raise RuntimeError(f"no answer to simulate for {template.name}: {goal}")
    return found


def page(found: Sequence[Verified], seeds: int) -> str:
    """Write the page of the documentation."""
    planned = {v.answer.label for v in found}
    without = sorted(n for n in own_protocols() if n not in planned)
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
step of the prediction, which jumps over the target. Runs without an estimate are not counted.

{markdown(accuracy_table(found), aligned=True)}

Measured {time.strftime("%Y-%m-%d")}, seeds {FIRST_SEED} to {FIRST_SEED + seeds - 1}, inline, noise
simulated; {used}.

Settings are the goals that the classes of the protocols declare; the table is written by

<!-- slow -->
```sh
fedhist plan --accuracy --seeds {seeds} --out docs/planner-accuracy.md
```

Registered protocols without a row here: {", ".join(without) or "none"}.
"""
