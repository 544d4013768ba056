"""Norm histograms and private quantiles: obvious versions, exact sensitivities, exact privacy."""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest

from clients.answers import streams
from fedhist.base.errors import WireError
from fedhist.model.query import Report, Summary
from fedhist.privacy.guarantee import Adjacency, Guarantee, Trust
from fedhist.privacy.ledger import Ledger
from fedhist.protocols.shared.contributions import (
    STEPS,
    NormHistogram,
    TotalContribution,
    em_quantile,
    safe_rank,
    tail_scores,
)
from fedhist.session.curator import Curator
from fedhist.session.journal import Journal
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from server.noise import SimulatedNoise
from simulations.runtimes.inline import InlinePopulation

NAMES = ["お茶", "tea", "rye", "maté"]


def population(rows):
    return Users.from_records(
        {f"u{i}": dict(zip(NAMES, r, strict=False)) for i, r in enumerate(rows)}
    )


def dense(users, domain):
    out = []
    c = users.counts
    for a, b in itertools.pairwise(c.indptr):
        row = {c.vocabulary[int(j)]: int(k) for j, k in zip(c.item[a:b], c.count[a:b], strict=True)}
        out.append([k for name, k in row.items() if domain is None or name in domain])
    return out


ROWS = [
    (0, 0, 0, 0),
    (3, 4, 0, 0),
    (1, 1, 1, 1),
    (0, 0, 9, 0),
    (2**32, 1, 0, 5),
    (0, 2, 0, 0),
    (7, 0, 0, 24),
]


@pytest.mark.parametrize("domain", [None, Keys.of(["tea", "maté", "absent"])])
@pytest.mark.parametrize(("norm", "radius"), [(1, 0.0), (2, 0.0), (2, 1.3), (2, 2.0), (1, 1.0)])
def test_bins_and_weights(domain, norm, radius):
    users = population(ROWS)
    query = NormHistogram(domain, (1.0, 2.0, 4.5, 5.0, 25.0), norm, radius)
    weight = np.zeros(5, dtype=np.int64)
    for row in dense(users, domain):
        size = math.sqrt(sum(k * k for k in row)) if norm == 2 else float(sum(row))
        below = [k for k, e in enumerate(query.edges) if size > e]
        if below:
            slope = sum(row) / size
            weight[below[-1]] += math.floor(min(slope / radius, 1.0) * STEPS) if radius else 1
    summary = query.answer_folded(users, lambda u: streams(u, 1, 2))
    assert summary.sums["weight"].tolist() == weight.tolist()
    assert query.tails(summary).tolist() == [int(weight[k:].sum()) for k in range(5)]
    report = query.answer(users, streams(users, 1, 2))
    query.check(report)
    query.check_summary(summary)
    assert np.array_equal(query.fold(report).sums["weight"], weight)


@pytest.mark.parametrize("radius", [0.0, 1.2, 1.6])
def test_every_tail_changes_by_at_most_the_largest_weight(radius):
    # one user's rows over a small cube: zeroed out, and replaced by any other
    rows = list(itertools.product(range(4), repeat=3))
    query = NormHistogram(None, (0.5, 1.0, 1.5, 2.5, 3.5), 2, radius)
    tails = np.array(
        [
            query.tails(query.answer_folded(population([r]), lambda u: streams(u, 1, 2)))
            for r in rows
        ]
    )
    apart = np.abs(tails[:, None] - tails[None]).max()
    assert apart == query.most  # never more, and attained: a row against the empty one
    assert query.unit * query.most == (radius or 1.0)


def test_total_contribution():
    users = population(ROWS)
    for domain, cap in itertools.product((None, Keys.of(["tea", "rye"])), (1, 4, 10_000)):
        query = TotalContribution(domain, cap)
        report = query.answer(users, streams(users, 1, 2))
        query.check(report)
        want = sum(min(sum(r), cap) for r in dense(users, domain))
        assert query.fold(report).sums["total"].tolist() == [want]


def test_messages_that_are_not_honest():
    query = NormHistogram(None, (1.0, 2.0), 2, 1.0)
    ids = np.arange(2, dtype=np.uint64)

    def report(bins, weight):
        return Report(ids, {"bin": np.array(bins, np.int32), "weight": np.array(weight)})

    query.check(report([0, 2], [0, STEPS]))
    for bins, weight, why in (
        ([0, 3], [0, 1], "outside"),
        ([0, 1], [0, STEPS + 1], "outside"),
        ([0, 1], [5, 1], "in no bin has weight 5"),
        ([0, 1], [0, -1], "outside"),
    ):
        with pytest.raises(WireError, match=why):
            query.check(report(bins, weight))
    with pytest.raises(WireError, match="weight 0"):
        NormHistogram(None, (1.0,), 1).check(report([1, 1], [1, 0]))
    with pytest.raises(WireError, match="adds up to"):
        query.check_summary(Summary(2, {"weight": np.array([2 * STEPS, 1])}))
    with pytest.raises(WireError, match="outside"):
        TotalContribution(None, 3).check(Report(ids, {"total": np.array([1, 4])}))


@pytest.mark.parametrize(
    "wrong",
    [
        {"edges": ()},
        {"edges": (2.0, 1.0)},
        {"edges": (-1.0,)},
        {"edges": (math.nan,)},
        {"norm": 3},
        {"radius": -1.0},
        {"domain": Keys.of([])},
    ],
)
def test_wrong_parameters(wrong):
    with pytest.raises(ValueError, match=r"got"):
        NormHistogram(**({"domain": None, "edges": (1.0,), "norm": 1} | wrong))
    with pytest.raises(ValueError, match="got 0"):
        TotalContribution(None, 0)


def choice_probabilities(users, edges, rank, epsilon):
    """The distribution of the choice, from the logits that reach the noise source."""
    seen = []

    def record(logits):
        seen.append(np.array(logits))
        return 0

    noise = SimpleNamespace(exponential=record, grade="simulated")
    guarantee = Guarantee(epsilon, 0.0, Trust.CENTRAL, Adjacency.ZERO_OUT_USER)
    server = Curator(Ledger(guarantee), lambda i: noise, Journal())
    script = em_quantile(server, None, 1, edges, rank, epsilon)
    query = next(script)
    with pytest.raises(StopIteration):
        script.send(InlinePopulation([users], 1).ask(query, 0))
    assert server.ledger.spent().epsilon == epsilon
    p = np.exp(seen[0] - seen[0].max())
    return p / p.sum()


def test_the_private_quantile_is_as_private_as_it_says():
    edges, epsilon = (0.5, 1.5, 2.5, 3.5), 0.7
    worst = 0.0
    others = [(3, 0), (1, 1), (0, 1)]
    for rank in (0.0, 1.0, 1.5, 2.0, 3.0):
        laws = [
            choice_probabilities(population([*others, row]), edges, rank, epsilon)
            for row in ((0, 0), (1, 0), (1, 1), (4, 4))
        ]
        for a, b in itertools.permutations(laws, 2):
            worst = max(worst, float(np.log(a / b).max()))
    assert worst <= epsilon + 1e-12
    assert worst > 0.45 * epsilon  # half of the budget at least: a smaller one would not do


def test_the_private_quantile_finds_the_rank():
    rng = np.random.default_rng(3)
    sizes = rng.geometric(0.05, 4000)
    users = population([(int(s), 0) for s in sizes])
    edges = tuple(float(e) for e in np.unique(np.geomspace(1, 500, 60).round()))
    guarantee = Guarantee(1.0, 0.0, Trust.CENTRAL, Adjacency.ZERO_OUT_USER)
    server = Curator(Ledger(guarantee), lambda i: SimulatedNoise(7, i), Journal())
    script = em_quantile(server, None, 1, edges, 100.0, 1.0)
    query = next(script)
    with pytest.raises(StopIteration) as stop:
        script.send(InlinePopulation([users], 1).ask(query, 0))
    at = edges[stop.value.value]
    best = min(abs((sizes > e).sum() - 100) for e in edges)
    # utility theorem: worse than the best by more than 2 ln(60 / beta) with probability beta
    assert abs((sizes > at).sum() - 100) <= best + 2 * math.log(60 / 1e-6)


@pytest.mark.parametrize("level", [0.0, 2.5, 4.0, 100.0])
def test_tail_scores(level):
    """One score is 0 for every population, and a user moves no score by more than 1."""
    edges = np.array([1, 2, 4])
    seen = {}
    for counts in itertools.product(range(6), repeat=4):
        above = (np.array(counts)[:, None] > edges).sum(axis=0)
        seen[counts] = tail_scores(above, level)
        assert seen[counts].max() == 0
    worst = max(
        np.abs(seen[counts] - seen[(*counts[:3], other)]).max()
        for counts in seen
        for other in range(6)
    )
    assert worst <= 1
    assert tail_scores(np.array([7]), level).tolist() == [0.0]
    for counts in seen:
        above = (np.array(counts)[:, None] > edges).sum(axis=0)
        points = -np.abs(np.append(above[:-1], 0) - level)
        assert tail_scores(above, level, interval=False).tolist() == points.tolist()


def test_tail_scores_agree_with_a_slow_loop():
    rng = np.random.default_rng(5)
    for _ in range(200):
        tails = np.sort(rng.integers(0, 12, 6))[::-1]
        level = float(rng.integers(0, 25)) / 2
        for k in range(6):
            low = tails[k] if k < 5 else 0
            high = tails[k - 1] if k else math.inf
            assert tail_scores(tails, level)[k] == -max(low - level, level - high, 0.0)


def test_safe_rank():
    assert safe_rank(5.0, 41, math.inf) == 5.0
    assert safe_rank(0.0, 50, 2.0, beta=0.5) == pytest.approx(math.log(100))
    with pytest.raises(ValueError, match="epsilon"):
        safe_rank(1.0, 10, 0.0)
