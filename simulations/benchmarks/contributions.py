"""A score at 100 thresholds against one, and a row of the paper's Table 1 at its own size."""

from __future__ import annotations

from clients.bounding.size_curves import size_curves
from simulations.benchmarks.measuring import Result, Row, Spread, in_turns, ratio, scaled, seconds
from simulations.benchmarks.memory import watch_private
from simulations.experiments.catalogue import experiment
from simulations.populations.paper_non_iid import PaperNonIid

THRESHOLDS = 100
CLIP_MAX = 1500
GIGABYTE = 1e9


def measure(*, quick: bool = False) -> Result:
    """Measure the curves in turns, then one row of the table, generation included."""
    n_users = 5_000 if quick else 500_000
    turns = 1 if quick else 7
    items = PaperNonIid(n_users=n_users).load().users.counts
    step = CLIP_MAX // THRESHOLDS
    grid = tuple(range(step, CLIP_MAX + 1, step))
    found = in_turns(
        {"all": lambda: size_curves(items, grid), "one": lambda: size_curves(items, grid[-1:])},
        turns,
    )
    times = ratio(found["all"], found["one"])
    rows = [
        Row(f"V at {len(grid)} thresholds", "ms", scaled(found["all"], 1e3)),
        Row(f"V at {len(grid)} thresholds / at one", "x", times, at_most=5),
    ]
    for kind in ("paper-iid", "paper-non-iid"):
        taken, peak = table_row(kind, n_users)
        rows += [
            Row(f"Table 1 row, {kind}, d = 50", "s", Spread.of([taken]), at_most=20.0),
            Row("peak memory of the process", "GB", Spread.of([peak]), at_most=4.0),
        ]
    notes = (
        "V: what the users of one process send, folded; scoring it takes under a millisecond more.",
        "Table 1 row: one population generated, three samplings, all losses and choices; in this "
        "process, with as many threads as the machine has cores.",
    )
    return Result("contributions", f"{n_users:,} users, d = 50", tuple(rows), notes)


def table_row(kind: str, n_users: int) -> tuple[float, float]:
    """Run one row of Table 1 in the fitted reading; returns seconds and peak gigabytes."""
    table = experiment("table1")
    wanted = ['readings=["fitted"]', "d=[50]", f'kinds=["{kind}"]', f"population.n_users={n_users}"]
    request = table.request(overrides=wanted, seed=1)
    with watch_private() as peak:
        taken = seconds(lambda: table.run(request))
    return taken, peak[0] / GIGABYTE
