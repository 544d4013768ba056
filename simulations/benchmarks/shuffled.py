"""Ideal shuffling beside the local run of the same reports: a million users, one item each."""

from __future__ import annotations

from dataclasses import replace

from fedhist.privacy.shuffler import Shuffling
from fedhist.privacy.shuffling import PLAIN, Hiding, calibrate, shuffled_epsilon
from fedhist.protocols import FrequencyOracle
from fedhist.users.keys import Keys
from simulations.benchmarks.measuring import Result, Row, in_turns, ratio, scaled
from simulations.populations import population
from simulations.runs.run import Options, execute

D = 100
SEED = 1
NODES = 1000
MOST = 1.2
"""Times the local run."""
MOST_SECONDS = 1.0
"""For the accountant: the largest local epsilon, and what it is worth."""


def measure(*, quick: bool = False) -> Result:
    """Measure whole runs in turns, inline; finding the epsilon apart."""
    n, nodes = (20_000, 20) if quick else (1_000_000, NODES)
    people = {"n_users": n, "d": D, "exponent": 1.0, "mean_items": 1, "tail": float("inf")}
    users = population("zipf", **people).load().users
    trust, domain = Shuffling(1.0, 1e-6, n), Keys.range(D)
    known = Hiding(mixes=True)

    deltas = iter(1e-6 * (1 + turn) for turn in range(9))  # another one each time: nothing is known

    def account() -> None:
        delta = next(deltas)
        for bound in (PLAIN, known):
            local = calibrate(1.0, delta, n, lambda _, bound=bound: bound)  # type: ignore[misc]
            shuffled_epsilon(n, local, delta, bound)

    accounted = in_turns({"accountant": account}, 1 if quick else 5)["accountant"]
    shuffled = FrequencyOracle.shuffled(trust, domain=domain)
    local = replace(shuffled, trust=None)
    options = Options(seed=SEED, nodes=nodes)
    taken = in_turns(
        {
            "shuffled": lambda: execute(shuffled, users, options),
            "local": lambda: execute(local, users, options),
        },
        1 if quick else 5,
    )
    rows = (
        Row("run, shuffled", "ns/user", scaled(taken["shuffled"], 1e9 / n)),
        Row("run, local", "ns/user", scaled(taken["local"], 1e9 / n)),
        Row("shuffled / local", "x", ratio(taken["shuffled"], taken["local"]), at_most=MOST),
        Row("accountant, bounds A and C", "s", scaled(accounted, 1.0), at_most=MOST_SECONDS),
    )
    notes = (
        "Inline runs of the same report and the same local epsilon, every user's report drawn: the "
        "shuffler passes on sums, which are functions of the multiset, and counts batches.",
    )
    setting = f"{n:,} users on {nodes:,} nodes, d = {D}, {shuffled.kind}, (1, 1e-06)-DP shuffled"
    return Result("shuffled", setting, rows, notes)
