"""Costs under another adjacency, against the exact costs of tiny mechanisms.

A database has three places for users; each is free, or holds a record of the items a and b, the
empty one included. Laws over outputs are enumerated, so that every cost is exact up to rounding.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest

import fedhist as fh
from fedhist.privacy.guarantee import (
    ONE_COUNT,
    USER_LEVEL,
    Moves,
    NoTotalError,
    convert,
    gaussian_cost,
    gaussian_multiplier,
    scaled,
    sensitivity_multipliers,
    two_steps,
)
from fedhist.privacy.ledger import Ledger
from fedhist.protocols import BoundedHistogram, CentralDensity, PoissonCounts, Quantiles
from tests.running import result

Database = tuple[str | None, ...]
EMPTY, RECORDS = "", ("", "a", "b")
PLACES, EPSILON = 3, 0.6
ALL: tuple[Database, ...] = tuple(itertools.product((None, *RECORDS), repeat=PLACES))
ORDERS = np.concatenate([1 + np.geomspace(1e-4, 1, 20), np.linspace(2.2, 60, 30)])
ROUNDING = 1e-9


ADD_REMOVE, ZERO_OUT, REPLACE = USER_LEVEL


def adjacent(x: str | None, y: str | None, adjacency: fh.Adjacency) -> bool:
    if adjacency is ADD_REMOVE:
        return (x is None) != (y is None)
    if x is None or y is None or x == y:
        return False
    return adjacency is REPLACE or EMPTY in (x, y)


@cache
def neighbours(adjacency: fh.Adjacency) -> tuple[tuple[int, int], ...]:
    number = {db: i for i, db in enumerate(ALL)}
    return tuple(
        (number[db], number[(*db[:i], y, *db[i + 1 :])])
        for db in ALL
        for i in range(PLACES)
        for y in (None, *RECORDS)
        if adjacent(db[i], y, adjacency)
    )


def users(db: Database) -> int:
    return sum(r is not None for r in db)


def count(db: Database, item: str) -> int:
    return sum(r == item for r in db)


def noisy(at: int, epsilon: float, low: int = -4, high: int = 8) -> fh.Floats:
    far = np.arange(-200, 201)
    weight = np.exp(-epsilon * np.abs(far))
    cut = np.clip(at + far, low, high) - low
    return np.bincount(cut, weights=weight / weight.sum(), minlength=high - low + 1)


def published(k: int) -> fh.Floats:
    return np.eye(PLACES + 1)[k]


def both(p: fh.Floats, q: fh.Floats) -> fh.Floats:
    return np.outer(p, q).ravel()


def histogram(db: Database) -> fh.Floats:
    return both(noisy(count(db, "a"), EPSILON), noisy(count(db, "b"), EPSILON))


def one_count(db: Database) -> fh.Floats:
    return noisy(count(db, "a"), EPSILON)


def empty_counts(db: Database) -> fh.Floats:
    return noisy(count(db, "a") + count(db, "b") - count(db, ""), EPSILON)


def public_n(db: Database) -> fh.Floats:
    """A noisy count, and how many users there are."""
    return both(noisy(count(db, "a"), EPSILON), published(users(db)))


def noisy_n(db: Database) -> fh.Floats:
    return noisy(users(db), EPSILON)


@dataclass(frozen=True)
class Tiny:
    law: Callable[[Database], fh.Floats]
    null_safe: bool
    costs: tuple[float, float, float]  # exact epsilon / EPSILON, by the page's table
    moves: Moves | None = None


INF = math.inf
MECHANISMS = {
    "sum": Tiny(histogram, True, (1, 1, 2), Moves(1.0, 1.0, 2.0)),
    "one count": Tiny(one_count, True, (1, 1, 1), ONE_COUNT),
    "an empty record counts": Tiny(empty_counts, False, (1, 2, 2), Moves(1.0, 2.0, 2.0)),
    "n published": Tiny(public_n, False, (INF, 1, 1), Moves(INF, 1.0, 1.0)),
    "noisy n": Tiny(noisy_n, False, (1, 0, 0), Moves(1.0, 0.0, 0.0)),
}


@cache
def laws(name: str) -> fh.Floats:
    return np.array([MECHANISMS[name].law(db) for db in ALL])


def exact_epsilon(p: fh.Floats, adjacency: fh.Adjacency) -> float:
    x, y = (p[list(side)] for side in zip(*neighbours(adjacency), strict=True))
    if ((x > 0) & (y == 0)).any():
        return math.inf
    at = x > 0
    return float(np.log(x[at] / y[at]).max())


def exact_delta(p: fh.Floats, adjacency: fh.Adjacency, epsilon: float) -> float:
    x, y = (p[list(side)] for side in zip(*neighbours(adjacency), strict=True))
    return float(np.maximum(x - math.exp(epsilon) * y, 0).sum(axis=1).max())


def exact_rho(p: fh.Floats, adjacency: fh.Adjacency) -> float:
    x, y = (p[list(side)] for side in zip(*neighbours(adjacency), strict=True))
    if ((x > 0) & (y == 0)).any():
        return math.inf
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(x > 0, np.log(x) - np.log(y), -np.inf)
        result = [
            np.log(np.sum(y * np.exp(a * ratio), axis=1)).max() / (a * (a - 1)) for a in ORDERS
        ]
    return float(max(result))


@pytest.mark.parametrize("name", MECHANISMS)
def test_the_costs_of_the_table_are_exact(name: str) -> None:
    """Sums, counts and a published n, infinite entries included."""
    tiny = MECHANISMS[name]
    for adjacency, cost in zip(USER_LEVEL, tiny.costs, strict=True):
        result = exact_epsilon(laws(name), adjacency) / EPSILON
        assert result == pytest.approx(cost, abs=1e-6)


@pytest.mark.parametrize("known", [False, True], ids=["converted", "by moves"])
@pytest.mark.parametrize("source", USER_LEVEL)
@pytest.mark.parametrize("name", MECHANISMS)
def test_a_converted_cost_bounds_the_exact_one(
    name: str, source: fh.Adjacency, known: bool
) -> None:
    tiny, p = MECHANISMS[name], laws(name)
    stated = fh.Release(exact_epsilon(p, source), 0.0, exact_rho(p, source))
    moves = None
    if known:  # what the noise was sized for, by its formula
        stated, moves = fh.pure(EPSILON * tiny.costs[USER_LEVEL.index(source)]), tiny.moves
    for target in USER_LEVEL:
        if target is ADD_REMOVE is not source and not tiny.null_safe:
            both = f"{source.value} says nothing under {target.value}"
            with pytest.raises(NoTotalError, match=both):
                convert(stated, source, target, moves=moves)
            continue
        result = convert(stated, source, target, null_safe=tiny.null_safe, moves=moves)
        assert exact_epsilon(p, target) <= result.epsilon * (1 + 1e-6) + ROUNDING
        assert exact_rho(p, target) <= result.rho * (1 + 1e-6) + ROUNDING


@pytest.mark.parametrize("null_safe", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_any_mechanism_obeys_the_rules(seed: int, null_safe: bool) -> None:
    """Random laws over four outputs; of null-safe ones those of databases that differ by nobody."""
    rng = np.random.default_rng(seed)
    by_content: dict[object, fh.Floats] = {}
    rows = []
    for db in ALL:
        content = tuple(r or None for r in db) if null_safe else db
        if content not in by_content:
            by_content[content] = rng.dirichlet(np.full(4, 0.7 + seed))
        rows.append(by_content[content])
    p = np.array(rows)
    for source, target in itertools.permutations(USER_LEVEL, 2):
        if target is ADD_REMOVE and not null_safe:
            with pytest.raises(NoTotalError):
                convert(fh.pure(1.0), source, target)
            continue
        for epsilon in (0.1, 0.5, 1.0, 2.0):
            stated = fh.Release(epsilon, exact_delta(p, source, epsilon), exact_rho(p, source))
            result = convert(stated, source, target, null_safe=null_safe)
            assert exact_delta(p, target, result.epsilon) <= result.delta + ROUNDING
            assert exact_rho(p, target) <= result.rho * (1 + 1e-6)


@pytest.mark.parametrize(("d", "factor"), [(1, 1.0), (2, 2.0), (3, 2.0)])
def test_a_gaussian_histogram_costs_twice_under_replacement(d: int, factor: float) -> None:
    """Against all non-negative integer records of norm at most 4; two steps would say 4 rho."""
    every = np.array([r for r in itertools.product(range(5), repeat=d) if np.dot(r, r) <= 16])
    away = np.square(every[:, None] - every).sum(axis=2).max()
    assert away / np.square(every).sum(axis=1).max() == factor
    moves = Moves.of(lambda a: sensitivity_multipliers(a, d)[1] * 4)
    ledger = Ledger(fh.Guarantee(1.0, 1e-6, fh.Trust.CENTRAL, ZERO_OUT))
    _, cost = gaussian_cost(1.0, 1e-6)
    ledger.charge("histogram", cost, moves=moves)
    (replaced,) = ledger.under(REPLACE)
    assert replaced.release.rho == pytest.approx(factor * cost.rho)
    z = gaussian_multiplier(1.0, 1e-6)
    if factor > 1:  # epsilon at the same delta holds for the same noise
        assert gaussian_multiplier(replaced.release.epsilon, 1e-6) <= z / math.sqrt(factor)
        assert ledger.spent(adjacency=REPLACE).epsilon < 2
    with pytest.raises(NoTotalError, match=r"^'histogram': .*zero-out-user says nothing"):
        ledger.spent(adjacency=ADD_REMOVE)


def test_two_steps_of_a_release() -> None:
    """Against group privacy: (2 epsilon, (1 + e^epsilon) delta), and 4 rho."""
    once = fh.Release(0.5, 1e-6, 0.02, 0.0)
    twice = convert(once, ZERO_OUT, REPLACE)
    assert twice == two_steps(once)
    assert twice.epsilon == 1.0
    assert twice.delta == pytest.approx(1e-6 * (1 + math.exp(0.5)))
    assert twice.rho == pytest.approx(0.08)
    assert convert(once, REPLACE, ZERO_OUT) == once == convert(once, REPLACE, REPLACE)
    for null_safe in (False, True):
        with pytest.raises(NoTotalError, match="replace-item"):
            convert(once, fh.Adjacency.REPLACE_ITEM, REPLACE, null_safe=null_safe)


def test_approximate_zcdp_is_made_epsilon_delta_first() -> None:
    """4 rho does not hold with a slack; (epsilon, delta) does, if it has to be computed as well."""
    known = two_steps(fh.Release(1.0, 1e-6, 0.02, 1e-7))
    assert (known.epsilon, known.rho, known.slack) == (2.0, math.inf, 0.0)
    unknown = two_steps(fh.Release(math.inf, 0.0, 0.02, 1e-7))
    assert math.isfinite(unknown.epsilon)
    assert unknown.delta == pytest.approx(2e-7 * (1 + math.exp(unknown.epsilon / 2)))
    assert scaled(fh.Release(1.0, 1e-6, 0.02, 1e-7), 2.0, 1.0) is None
    assert scaled(fh.Release(1.0, 1e-6), 1.0, 2.0) is None  # a threshold: nothing is known
    assert scaled(fh.pure(1.0), math.inf, 1.0) is None
    assert scaled(fh.pure(1.0), 0.0, 1.0) == fh.Release(0.0, 0.0, 0.0)


@pytest.mark.parametrize("cls", [BoundedHistogram, CentralDensity, PoissonCounts, Quantiles])
def test_charges_know_how_far_a_user_moves_them(cls: type[fh.Protocol]) -> None:
    """Else a cost under another adjacency is that of two steps; the contract holds the moves."""
    ledger = result(cls.example(), cls.example_users()).ledger
    assert [e.moves for e in ledger.entries if e.moves is None] == []
