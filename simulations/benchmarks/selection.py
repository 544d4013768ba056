"""Selecting binomials: the client's threshold counts, and the curator's scores for all symbols."""

from __future__ import annotations

import math

import numpy as np

from fedhist.privacy.guarantee import zcdp_rho
from fedhist.protocols.distributions.queries import ExceedanceCounts
from fedhist.users.batch import Users
from fedhist.users.streams import SeededStreams
from server.distributions.binomial_scores import KSPlan, PHSPlan, pick_eta
from server.noise import SimulatedNoise
from simulations.benchmarks.measuring import Result, Row, Spread, in_turns, ratio, scaled, seconds
from simulations.benchmarks.memory import watch_private
from simulations.benchmarks.populations import shoppers

SEED = 1


def measure(*, quick: bool = False) -> Result:
    """Measure the counts against a bincount of the same items, then plans, scores and draws."""
    n_users, n_items, m = (5_000, 50, 20) if quick else (1_000_000, 1_000, 40)
    turns = 1 if quick else 7
    users = shoppers(n_users, n_items, m)
    item = users.counts.item.astype(np.int64)  # what bincount would convert itself
    query = ExceedanceCounts(users.vocabulary, m, KSPlan.of(m, 0.02).thresholds)
    found = in_turns(
        {"ours": lambda: count(query, users), "bincount": lambda: np.bincount(item)}, turns
    )
    times = ratio(found["ours"], found["bincount"])
    rows = [
        Row(f"threshold counts, {n_users:,} users", "ms", scaled(found["ours"], 1e3)),
        Row("threshold counts / np.bincount", "x", times, at_most=3),
    ]
    k, m, s = (20, 30, 500) if quick else (1_000, 1_000, 10_000)
    each = math.sqrt(8 * zcdp_rho(1.0, 1e-6) / min(k, 2 * m))
    with watch_private() as peak:
        for name, kind in (("KS scores", KSPlan), ("PHS scores", PHSPlan)):
            rows += selection(name, kind, k, m, s, each, 1 if quick else 3)
    rows.append(Row("peak memory of the process", "GB", Spread.of([peak[0] / 1e9])))
    notes = (
        "np.bincount: of the item numbers, converted to its own integer type beforehand; the "
        "threshold counts also check that no user holds more than m items, and read the counts.",
        "Scores: plan built before (its time is in the row of its name), one thread.",
    )
    setting = f"{n_users:,} users with {len(item):,} entries; then k = {k:,}, m = {m:,}, s = {s:,}"
    return Result("selection", setting, tuple(rows), notes)


def count(query: ExceedanceCounts, users: Users) -> object:
    """Run the client half of one node."""
    return query.answer_folded(users, lambda batch: SeededStreams(batch.ids, SEED, "selection"))


def selection(
    name: str, kind: type[KSPlan] | type[PHSPlan], k: int, m: int, s: int, each: float, turns: int
) -> list[Row]:
    """Time one kind of plan, its scores for all symbols, and the draw of all hypotheses."""
    eta = pick_eta(s, each)
    kind.of(2, 0.05).scores(np.zeros((1, len(kind.of(2, 0.05).thresholds))), 1)  # compiles
    built = seconds(lambda: kind.of(m, eta))
    plan = kind.of(m, eta)
    rng = np.random.default_rng(SEED)
    p = rng.dirichlet(np.ones(k))
    held = np.stack([np.bincount(rng.binomial(m, x, s), minlength=m + 1) for x in p])
    below = np.cumsum(held, axis=1)[:, list(plan.thresholds)]
    noise = SimulatedNoise(SEED, 0)
    found = in_turns(
        {
            "scores": lambda: plan.scores(below, s),
            "all": lambda: noise.exponential_rows(plan.scores(below, s) * (each / 2)),
        },
        turns,
    )
    d = len(plan.p)
    return [
        Row(f"{name}: plan, d = {d:,}, |T| = {len(plan.thresholds):,}", "s", Spread.of([built])),
        Row(f"{name}: all symbols", "s", scaled(found["scores"], 1.0), at_most=10.0),
        Row(f"{name}: all symbols, and the draws", "s", scaled(found["all"], 1.0)),
    ]
