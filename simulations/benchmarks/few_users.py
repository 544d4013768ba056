"""DP-Estimate-1 at its default number of rounds: 300 users, 10,000 dimensions, any data."""

from __future__ import annotations

import numpy as np

from server.few_users.plan import Wishes, choose_branch
from server.few_users.sampler import BallSampler, bucket_params
from simulations.benchmarks.measuring import Result, Row, Task, in_turns, scaled

RADIUS = 0.1
MOST_SECONDS = 30.0


def measure(*, quick: bool = False) -> Result:
    """Measure in turns: users close together, users far apart; all rounds are executed."""
    n, d = (60, 200) if quick else (300, 10_000)
    plan = choose_branch(n, d, RADIUS, None, 1.0, 1e-6, Wishes(method="ball"))
    rng = np.random.default_rng(1)
    data = {
        "users close together": rng.standard_normal((n, d)) * RADIUS / np.sqrt(d),
        "users far apart": 1e3 * rng.standard_normal((n, d)),
    }
    n_rounds = 200 if quick else plan.n_rounds
    buckets = bucket_params(n, 1.0, 1e-6, plan.kappa)

    def draw(name: str) -> Task:
        sampler = BallSampler(data[name], plan.part_radius, buckets, n_rounds)
        return lambda: sampler.draw(np.random.default_rng(_seed(n_rounds)))

    found = in_turns({name: draw(name) for name in data}, 1 if quick else 3)
    rows = [Row(name, "s", scaled(found[name], 1.0), at_most=MOST_SECONDS) for name in data]
    notes = (
        f"Both draws use a seed whose number of rounds is within a tenth of N = {n_rounds:,}, the "
        "mean of its geometric law, and execute all of them.",
    )
    return Result("few-users", f"n = {n}, d = {d:,}, one ball, epsilon = 1", tuple(rows), notes)


def _seed(n_rounds: int) -> int:
    """Find the first seed whose geometric number of rounds is close to its mean."""
    for seed in range(1000):
        x = np.random.default_rng(seed).geometric(1 / n_rounds)
        if abs(x / n_rounds - 1) <= 0.1:
            return seed
    raise RuntimeError(f"no seed of 1000 gives about {n_rounds} rounds")
