"""Users who are made block by block: the same answers, and no more than a block in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
from walked_users import Walked

import fedhist as fh
from clients import answers
from clients.answers import fold_node, streams
from clients.heavy_hitters.queries import CodePieces, packed
from clients.histograms.queries import ClippedCounts
from fedhist.base.hashing import digest64
from fedhist.model.codec import query_digest
from fedhist.protocols import BoundedHistogram, LocalHistogram
from fedhist.users import shards
from fedhist.users.shards import BLOCK, Items
from server.noise import SimulatedNoise
from server.session.session import Session
from simulations.runs.options import Options
from simulations.runs.run import execute
from simulations.runtimes import inline
from simulations.runtimes.inline import InlinePopulation

SEED = 11


@pytest.fixture(autouse=True)
def no_more_than_a_block(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(inline, "ROOM", 0)
    Walked.made = Walked.held = 0
    yield
    assert Walked.held == 0, "a block was there still when another one was made"


def asked(
    protocol: fh.Protocol, nodes: Sequence[fh.Shard], *, fold: bool = True
) -> tuple[fh.Estimate, bool, list[fh.Query]]:
    session = Session(protocol, lambda i: SimulatedNoise(SEED, i))
    population = InlinePopulation(nodes, SEED, fold=fold)
    integers, queries = True, []
    while session.query is not None:
        queries.append(session.query)
        summary = population.ask(session.query, session.round_index)
        parts = [*summary.sums.values(), *(k.values for k in summary.keyed.values())]
        integers &= all(a.dtype.kind in "iub" for a in [*parts, *summary.rows.values()])
        session.advance(summary)
    assert session.estimate is not None
    return session.estimate, integers, queries


def equal(a: fh.Summary | fh.Report, b: fh.Summary | fh.Report) -> bool:
    if isinstance(a, fh.Report) or isinstance(b, fh.Report):
        parts = [(x.arrays, x.ragged, {"ids": x.ids}) for x in (a, b)]
    else:
        parts = [(x.sums, {k: v.values for k, v in x.keyed.items()}, x.rows) for x in (a, b)]
    return a.n_users == b.n_users and all(
        one.keys() == other.keys() and all(np.array_equal(v, other[k]) for k, v in one.items())
        for one, other in zip(*parts, strict=True)
    )


SIZES = [k * BLOCK + more for k in (1, 2) for more in (-1, 0, 1)]
VOTES = asked(LocalHistogram.example(), [LocalHistogram.example_users()])[2][0]
PIECES = CodePieces(packed([""], 0), 0, 17, "text", 1.0, 1 << 17)
TOTALS = ClippedCounts(LocalHistogram.example_users().vocabulary, clip=2.0, norm=2, grid=1 / 64)


@pytest.fixture(scope="module")
def many() -> fh.Users:
    n, vocabulary = max(SIZES), TOTALS.domain
    ids = np.random.default_rng(1).integers(1 << 63, size=n, dtype=np.uint64)
    item = (np.arange(n) % len(vocabulary)).astype(np.uint32)
    count = (1 + np.arange(n) % 5).astype(np.uint32)
    return fh.Users(ids, items=Items(vocabulary, np.arange(n + 1), item, count))


def at_once(query: fh.Query, users: fh.Users) -> fh.Summary:
    chosen = users.select(query.cohort)
    return query.fold(query.answer(chosen, streams(chosen, SEED, "d")))


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("query", [VOTES, TOTALS], ids=["votes", "totals"])
def test_edges_of_blocks(query: fh.Query, n: int, many: fh.Users) -> None:
    """Against all users in one chunk, in a cohort and not, on one node and on several."""
    users = many.slice(0, n)
    for asked_of in (query, replace(query, cohort=fh.Cohort(5, 0.25, 0.5))):
        want = at_once(asked_of, users)
        assert equal(fold_node(asked_of, users, SEED, "d"), want)
        parts = [fold_node(asked_of, u, SEED, "d") for u in Walked(users).split(3)]
        assert equal(fh.Summary.merge(parts), want)
    nobody = replace(query, cohort=fh.Cohort(5, 0.0, 1e-12))
    assert equal(fold_node(nobody, Walked(users), SEED, "d"), at_once(nobody, users.none))


def test_real_sums_are_those_of_the_tree(many: fh.Users) -> None:
    """Blocks are leaves: the sum of three of them, and not of their users in order."""
    query = replace(TOTALS, grid=0.0, clip=0.3)
    one, two, three = (fold_node(query, b, None, "").sums["counts"] for b in many.blocks())
    assert np.array_equal(
        fold_node(query, Walked(many), None, "").sums["counts"], one + two + three
    )


@pytest.mark.parametrize("query", [VOTES, PIECES], ids=["votes", "reports"])
def test_sums_from_their_law_are_drawn_by_block(
    query: fh.Query, many: fh.Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first block is drawn as a node of one block is; the others by numbers of their own."""
    monkeypatch.setattr(answers, "MOST_REPORTS", BLOCK + 1)
    draw = [
        InlinePopulation([some], SEED, aggregate=True).ask(query, 0).sums
        for some in (many, Walked(many), many.slice(0, BLOCK), many.slice(BLOCK, 2 * BLOCK))
    ]
    names = list(draw[0])
    assert all(np.array_equal(draw[0][k], draw[1][k]) for k in names)
    blocks = [many.slice(0, BLOCK), many.slice(BLOCK, 2 * BLOCK), many.slice(2 * BLOCK, len(many))]
    digest = query_digest(query, 0)
    by_hand = []
    for b, at in zip(blocks, ((), (1,), (2,)), strict=True):
        key = digest64("fedhist.aggregate", SEED, digest, 0, *at)
        reports = query.draw_reports(b, np.random.default_rng(key))
        assert (reports is None) == (query is VOTES)
        drawn = query.draw_summary(b, np.random.default_rng(key))
        by_hand.append(drawn if reports is None else query.fold(reports))
    total = fh.Summary.merge(by_hand).sums
    assert all(np.array_equal(draw[0][k], total[k]) for k in names)


def test_what_needs_all_users_at_once_is_refused_above_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    users, protocol = BoundedHistogram.example_users(), BoundedHistogram.example()
    monkeypatch.setattr(shards, "MOST_IN_MEMORY", len(users) - 1)
    some = Walked(users)
    told = 'each node with run.fold = "server" needs'
    with pytest.raises(fh.PopulationError, match=f"{told}.*at most {len(users) - 1}, got"):
        execute(protocol, some, Options(seed=1, fold=False))
    with pytest.raises(fh.PopulationError, match=r"load needs all.*take fewer \(population"):
        some.in_memory("load")
    assert users.in_memory() is users
    assert Walked.made == 0, "nobody was asked"
    assert execute(protocol, some, Options(seed=1, fold=False, nodes=2)).estimate.status == "ok"
    assert execute(protocol, some, Options(seed=1)).estimate.status == "ok"
