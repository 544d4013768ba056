"""Cost per user as the number of users grows."""

from __future__ import annotations

from collections.abc import Callable

from clients.answers import fold_node
from fedhist.model.query import Query
from fedhist.protocols.histograms.bounded_histogram import ClippedCounts
from fedhist.session.codec import query_digest
from fedhist.users.batch import Users
from simulations.benchmarks.measuring import Result, Row, Spread, in_turns, scaled
from simulations.benchmarks.populations import samplers, shoppers
from simulations.benchmarks.votes import QUERY as VOTES

SEED = 1
FLAT = 1.25
MOST_ITEMS = 100


def measure(*, quick: bool = False) -> Result:
    """Measure both kinds of query at each size, all sizes in turns."""
    sizes = (1_000, 2_000) if quick else (10_000, 100_000, 1_000_000)
    turns = 2 if quick else 25
    rows: list[Row] = []
    everybody = shoppers(sizes[-1], 1000, MOST_ITEMS)
    rows += _rows(
        "histogram", ClippedCounts(everybody.vocabulary, 10.0, 2), everybody, sizes, turns
    )
    rows += _rows("votes", VOTES, samplers(sizes[-1]), sizes, turns)
    notes = (
        "Inline, one thread, one node. A size is repeated, over different users, until it has "
        f"asked {sizes[-1]:,} of them, so that every size reads the same data. The last line of "
        "each is the largest of the sizes' medians over the smallest.",
    )
    names = ", ".join(f"{n:,}" for n in sizes)
    return Result("scaling", f"cost per user at {names} users", tuple(rows), notes)


def _rows(what: str, query: Query, users: Users, sizes: tuple[int, ...], turns: int) -> list[Row]:
    found = in_turns({f"{n}": asked_in_parts(query, users, n) for n in sizes}, turns)
    spreads = {n: scaled(found[f"{n}"], 1e9 / len(users)) for n in sizes}
    rows = [Row(f"{what}, {n:,} users", "ns/user", s) for n, s in spreads.items()]
    medians = [s.median for s in spreads.values()]
    worst = [max(turn) / min(turn) for turn in zip(*found.values(), strict=True)]
    flat = Spread(max(medians) / min(medians), min(worst), max(worst))
    return [*rows, Row(f"{what}: largest / smallest", "x", flat, at_most=FLAT)]


def asked_in_parts(query: Query, users: Users, size: int) -> Callable[[], None]:
    """Ask all users, ``size`` at a time, each time as a whole round of its own."""

    def ask() -> None:
        for part in users.chunks(size):
            fold_node(query, part, SEED, query_digest(query, 0))

    return ask
