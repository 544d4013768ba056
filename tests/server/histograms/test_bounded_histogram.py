"""Bounded histogram: exact sensitivities and privacy on tiny cases, error, wire, edges."""

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import fedhist as fh
from clients.histograms.queries import ClippedCounts
from fedhist.privacy.guarantee import sensitivity_multipliers
from server.histograms.bounded_histogram import BoundedHistogram
from server.histograms.item_histogram import ItemHistogram
from server.noise import SimulatedNoise
from server.session.session import Session
from tests.running import result as run
from tests.running import streams, table_users, zipf_table

ZERO, REPLACE, ADD = "zero-out-user", "replace-user", "add-remove-user"
INF = math.inf


def rows(query, users):
    """Every user's answer as a dense row, in the units that are sent."""
    report = query.answer(users, streams(users))
    query.check(report)
    out = np.zeros((len(users), len(query.domain)), dtype=report.ragged["value"].dtype)
    user = np.repeat(np.arange(len(users)), np.diff(report.indptr))
    out[user, report.ragged["item"]] = report.ragged["value"]
    return out


def every_user(d, most=4):
    """One user for every histogram over d items with counts up to ``most``."""
    counts = np.array(list(itertools.product(range(most + 1), repeat=d)))
    return table_users(counts)


def zipf_users(n, d, seed=0, mean=20):
    return table_users(zipf_table(n, d, mean, seed))


def distances(vectors, adjacency):
    """Differences that one user can make to the sum."""
    if adjacency == REPLACE:
        return (vectors[:, None] - vectors[None, :]).reshape(-1, vectors.shape[1])
    return vectors


@pytest.mark.parametrize("adjacency", [ZERO, REPLACE])
@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize(
    ("clip", "grid"), [(4.0, 0.125), (2.5, 2.5 / 1024), (3.0, 0.7), (0.3, 0.1)]
)
def test_grid_sensitivity_is_exact_in_integers(adjacency, d, norm, clip, grid):
    users = every_user(d)
    query = ClippedCounts(fh.Keys.range(d), clip, norm, grid)
    steps = rows(query, users)
    assert steps.dtype == np.int64
    exact = [sum(abs(int(h)) ** norm for h in row) for row in distances(steps, adjacency)]
    k = sensitivity_multipliers(fh.Adjacency(adjacency), d)[norm - 1]
    one = int(Fraction(clip) / Fraction(grid))  # a user with one item reaches this many steps
    factor = round(k**norm)
    assert max(exact) >= factor * one**norm
    assert max(exact) <= factor * (Fraction(clip) / Fraction(grid)) ** norm
    stated = query.sensitivity(fh.Adjacency(adjacency))
    assert Fraction(stated) ** norm >= max(exact)  # never understated, not even by rounding
    if (Fraction(clip) / Fraction(grid)).denominator == 1:
        assert stated == pytest.approx(max(exact) ** (1 / norm), rel=1e-15)


def report(item, value, indptr=(0, 2)):
    return fh.Report(
        np.arange(len(indptr) - 1, dtype=np.uint64),
        ragged={"item": np.array(item, dtype=np.uint32), "value": np.array(value)},
        indptr=np.array(indptr),
    )


def test_integer_rows_are_checked_exactly():
    query = ClippedCounts(fh.Keys.range(4), 5.0, 2, 1.0)
    query.check(report([0, 1], [3, 4]))
    for item, value in (([0, 1, 2], [3, 4, 1]), ([1, 1], [1, 1]), ([0, 4], [1, 1])):
        with pytest.raises(fh.WireError):
            query.check(report(item, value, (0, len(item))))
    wide = ClippedCounts(fh.Keys.range(4), 2.0**31 - 1, 2, 1.0)
    with pytest.raises(fh.WireError):  # the squares overflow 64 bits
        wide.check(report([0, 1, 2, 3], [(1 << 31) - 1] * 4, (0, 4)))


def test_clip_zero_asks_nobody_and_spends_nothing():
    p = BoundedHistogram(fh.Keys.range(3), 1.0, 0.0)
    session = Session(p, lambda i: SimulatedNoise(1, i))
    assert session.query is None
    assert session.estimate.value.tolist() == [0, 0, 0]
    assert session.ledger.entries == ()
    users = zipf_users(30, 3)
    assert p.error(users).expected == p.truth(users).sum()


@pytest.mark.parametrize("grid", [None, 0.25])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_empty_users_and_users_outside_the_domain(grid, delta):
    p = BoundedHistogram(fh.Keys.of(["茶", "☕"]), INF, 2.0, delta, grid=grid)
    nobody = fh.Users.from_records({"a": {"x": 5}, "b": {}, "c": {"y": 1 << 40}})
    assert run(p, nobody).value.tolist() == [0, 0]
    assert run(p, nobody.slice(0, 0)).value.tolist() == [0, 0]
    assert p.error(nobody).expected == 0
    mixed = fh.Users.from_records({"a": {"☕": 1 << 40, "x": 9}, "b": {"茶": 1}})
    assert run(p, mixed).value.tolist() == [1, 2]


def test_resolve_fills_the_domain_and_says_what_is_not_private():
    users, domain = zipf_users(400, 25), fh.Keys.range(25)
    plain, said = BoundedHistogram.resolve({"epsilon": 1.0, "clip": 4.0}, users, domain)
    assert said == []
    assert BoundedHistogram(**plain).domain == domain
    listed, _ = BoundedHistogram.resolve({"domain": ["a", "b"]}, users, domain)
    assert listed["domain"] == fh.Keys.of(["a", "b"])
    given = {"epsilon": 1.0, "delta": 1e-6, "clip": "c-star", "grid": "default"}
    completed, said = BoundedHistogram.resolve(given, users, domain)
    assert len(said) == 1
    protocol = BoundedHistogram(**completed)
    assert protocol.grid == protocol.clip / 2**20
    others = (replace(protocol, clip=c, grid=None) for c in np.geomspace(0.5, 200, 30))
    assert protocol.error(users).expected <= 2 * min(p.error(users).expected for p in others)
    with pytest.raises(ValueError, match="domain"):
        BoundedHistogram.resolve({"epsilon": 1.0, "clip": 4.0}, users, None)
    with pytest.raises(ValueError, match="median"):
        BoundedHistogram.resolve({"epsilon": 1.0, "clip": "median"}, users, domain)
    with pytest.raises(ValueError, match="fine"):
        BoundedHistogram(domain, epsilon=1.0, clip=4.0, grid="fine")


AB = fh.Keys.of(["a", "b"])


def test_it_promises_nothing_about_a_user() -> None:
    protocol = ItemHistogram(AB, 1.0)
    guarantee = protocol.guarantee
    assert (guarantee.unit, guarantee.trust) == ("item", fh.Trust.CENTRAL)
    assert guarantee.adjacency is fh.Adjacency.REPLACE_ITEM
    estimate = fh.run(protocol, fh.Users.from_records({"u": {"a": 3}}), seed=0)
    assert any("NOT for a user" in w for w in estimate.warnings)
