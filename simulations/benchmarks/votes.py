"""Unary votes over 64 bins, client and server, against two other libraries."""

from __future__ import annotations

from pathlib import Path

from clients.answers import fold_node
from clients.records.functionals import Coordinates
from fedhist.base.arrays import Array
from fedhist.protocols.localize.queries import BinVotes
from fedhist.session.codec import query_digest
from fedhist.users.batch import Users
from simulations.benchmarks.measuring import Result, Row, ratio, scaled, seconds
from simulations.benchmarks.populations import samplers
from simulations.benchmarks.rivals import FOLDER, Unavailable, rivals

BINS = 64
EPSILON = 1.0
SEED = 1
TARGETS = {"pure-ldp": 100.0, "multi-freq-ldpy": 20.0}
QUERY = BinVotes(Coordinates(1, 0.0, 1.0), BINS, EPSILON)


def measure(*, quick: bool = False, folder: str = "") -> Result:
    """Measure users per second in turns: ours, then each library that runs."""
    n_users, n_theirs = (4_000, 300) if quick else (1_000_000, 20_000)
    turns = 1 if quick else 7
    users = samplers(n_users)
    ours: list[float] = []
    theirs: dict[str, list[float]] = {name: [] for name in TARGETS}
    missing: dict[str, str] = {}
    vote(users)
    try:
        with rivals(Path(folder or FOLDER).resolve()) as others:
            for turn in range(turns + 1):  # the first turn is not counted
                taken = [seconds(lambda: vote(users)) / n_users]
                for name in [x for x in TARGETS if x not in missing]:
                    try:
                        spent, share = others.run(name, n_theirs, BINS, EPSILON)
                    except Unavailable as e:
                        missing[name] = str(e)
                        continue
                    if not -1.0 < share < 1.0:
                        missing[name] = f"it estimates a share of {share} for a bin of 1/{BINS}"
                    elif turn:
                        theirs[name].append(spent / n_theirs)
                if turn:
                    ours += taken
    except Unavailable as e:
        missing = dict.fromkeys(TARGETS, str(e))
    if not ours:
        ours = [seconds(lambda: vote(users)) / n_users for _ in range(turns)]
    rows = [Row("fedhist: answer, fold, debias", "ns/user", scaled(ours, 1e9))]
    found = {name: times for name, times in theirs.items() if name not in missing}
    rows += [Row(name, "ns/user", scaled(times, 1e9)) for name, times in found.items()]
    rows += [
        Row(f"{name} / fedhist", "x", ratio(times, ours), at_least=TARGETS[name])
        for name, times in found.items()
    ]
    notes = (
        f"One process each, one thread; {n_users:,} users here, {n_theirs:,} there, in turns. Here "
        "from each user's sample to the debiased shares, there from each user's bin number.",
        *(f"{name} could not be measured: {why}" for name, why in missing.items()),
    )
    setting = f"one vote of {BINS} bins per user, epsilon = {EPSILON:g}"
    return Result("votes", setting, tuple(rows), notes)


def vote(users: Users) -> Array:
    """Both halves: randomize and count on the node, debias on the server."""
    summary = fold_node(QUERY, users, SEED, query_digest(QUERY, 0))
    return QUERY.frequencies(summary)
