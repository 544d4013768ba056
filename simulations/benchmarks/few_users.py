"""Means from few users at the default number of rounds: one draw, and several for one mean."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedhist.base.arrays import Array
from server.few_users.interpolation import release_draws
from server.few_users.plan import Method, Wishes, choose_branch
from server.few_users.sampler import BallSampler
from simulations.benchmarks.measuring import Result, Row, Task, in_turns, scaled

RADIUS = 0.1
MOST_SECONDS = 30.0
SEVERAL = 600, 200, 3.0
"""Users, dimensions and most seconds of the methods that draw several times."""


@dataclass(frozen=True)
class OneSeed:
    """Draws with one seed, in place of a Curator."""

    seed: int

    def sample(self, sampler: BallSampler, *, label: str) -> Array:
        """Draw."""
        return sampler.draw(np.random.default_rng(self.seed))


def measure(*, quick: bool = False) -> Result:
    """Measure in turns: users close together, users far apart; all rounds are executed."""
    n, d = (60, 200) if quick else (300, 10_000)
    several, wide, most = (600, 32, 3.0) if quick else SEVERAL
    turns, fewer = (1, 200) if quick else (3, None)
    tasks: dict[str, Task] = {}
    targets: dict[str, float] = {}

    def add(method: Method, n: int, d: int, at_most: float) -> str:
        plan = choose_branch(n, d, RADIUS, None, 1.0, 1e-6, Wishes(method=method, n_rounds=fewer))
        rng, server = np.random.default_rng(1), OneSeed(_seed(plan.n_rounds))
        together = rng.standard_normal((n, d)) * RADIUS / np.sqrt(d)
        apart = 1e3 * rng.standard_normal((n, d))
        what = f"{method}, n = {n}, d = {d:,}"
        for name, rows in (("close together", together), ("far apart", apart)):
            tasks[f"{what}: users {name}"] = _release(server, rows, plan)
            targets[f"{what}: users {name}"] = at_most
        return f"{plan.n_parts} x {plan.n_rounds:,}"

    rounds = [
        add("ball", n, d, MOST_SECONDS),
        add("blocks", several, wide, most),
        add("boosted", several, wide, most),
    ]
    found = in_turns(tasks, turns, clock=time.process_time)
    rows = [Row(what, "s", scaled(found[what], 1.0), at_most=targets[what]) for what in tasks]
    notes = (
        "CPU seconds of one thread. All draws use seeds whose number of rounds is within a tenth "
        f"of N, the mean of its geometric law, and execute all of them: {', '.join(rounds)}.",
    )
    return Result("few-users", "one mean, epsilon = 1", tuple(rows), notes)


def _release(server: Any, rows: Array, plan: Any) -> Task:
    return lambda: release_draws(server, rows, plan)


def _seed(n_rounds: int) -> int:
    """Find the first seed whose geometric number of rounds is close to its mean."""
    for seed in range(1000):
        x = np.random.default_rng(seed).geometric(1 / n_rounds)
        if abs(x / n_rounds - 1) <= 0.1:
            return seed
    raise RuntimeError(f"no seed of 1000 gives about {n_rounds} rounds")
