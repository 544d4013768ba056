"""The ledger against a brute-force maximum over users, in two currencies."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from fedhist.base.errors import BudgetExceeded
from fedhist.privacy import ledger as module
from fedhist.privacy.guarantee import Adjacency, Guarantee, Release, Trust, pure, zcdp_epsilon
from fedhist.privacy.ledger import Entry, Ledger, spent, whole
from fedhist.users.cohort import Cohort

LIMIT = Guarantee(1.0, 1e-6, Trust.LOCAL, Adjacency.REPLACE_USER)


def total(charges: list[tuple[Release, Cohort | None]], delta: float = 0.0) -> float:
    return spent([Entry("x", r, c) for r, c in charges], delta).epsilon


def brute_force(charges: list[tuple[Release, Cohort | None]], delta: float) -> float:
    salts = sorted({c.salt for _, c in charges if c is not None})
    worst = 0.0
    for at in itertools.product([(k + 0.5) / 8 for k in range(8)], repeat=len(salts)):
        where = dict(zip(salts, at, strict=True))
        mine = [r for r, c in charges if c is None or c.lo <= where[c.salt] < c.hi]
        basic = math.inf
        if sum(r.delta for r in mine) <= delta * (1 + 1e-9):
            basic = sum(r.epsilon for r in mine)
        known = [r for r in mine if math.isfinite(r.rho)]
        other = [r for r in mine if not math.isfinite(r.rho)]
        rho = sum(r.rho for r in known)
        left = delta - sum(r.slack for r in known) - sum(r.delta for r in other)
        concentrated = math.inf
        if rho == 0 and left >= 0:
            concentrated = sum(r.epsilon for r in other)
        elif left > 0:
            concentrated = sum(r.epsilon for r in other) + zcdp_epsilon(rho, left)
        worst = max(worst, min(basic, concentrated))
    return worst


@pytest.mark.parametrize("seed", range(40))
def test_equals_brute_force(seed: int) -> None:
    rng = np.random.default_rng(seed)
    charges: list[tuple[Release, Cohort | None]] = []
    for _ in range(rng.integers(1, 9)):
        cohort = None
        if rng.random() < 0.8:
            lo, hi = sorted(rng.choice(9, 2, replace=False))
            cohort = Cohort(int(rng.integers(1, 4)), lo / 8, hi / 8)
        eps = float(rng.integers(1, 20)) / 16
        kinds = [
            pure(eps),
            Release(eps, 1e-7, eps**2 / 40),
            Release(eps, 1e-7),
            Release(math.inf, 0.0, eps**2 / 40),
            Release(eps, 0.0, eps**2 / 8, 1e-7),
        ]
        charges.append((kinds[rng.integers(len(kinds) if seed % 2 else 2)], cohort))
    for delta in (0.0, 3e-7, 1e-5):
        expected = brute_force(charges, delta)
        assert total(charges, delta) == pytest.approx(expected, rel=1e-12)


def test_many_salts_are_bounded_from_above(monkeypatch: pytest.MonkeyPatch) -> None:
    charges = [(pure(1.0), Cohort(s, k / 8, (k + 1) / 8)) for s in range(3) for k in range(8)]
    exact = total(charges)
    monkeypatch.setattr(module, "MOST_COMBINATIONS", 10)
    assert total(charges) >= exact == 3


def test_the_smaller_currency_counts() -> None:
    many = [(pure(0.1), None)] * 100
    result = spent([Entry("x", r, c) for r, c in many], 1e-6)
    assert result.basic_epsilon == pytest.approx(10)
    assert result.epsilon == pytest.approx(zcdp_epsilon(0.5, 1e-6))
    assert result.epsilon < 10
    assert result.how == "zCDP composition"
    few = spent([Entry("x", pure(0.1), None)], 1e-6)
    assert (few.epsilon, few.how) == (0.1, "basic composition")
    assert spent([Entry("x", pure(0.1), None)] * 100, 0.0).epsilon == pytest.approx(10)


def test_delta_is_never_exceeded() -> None:
    one = Release(0.1, 4e-7)
    assert total([(one, None)] * 2, 1e-6) == pytest.approx(0.2)
    assert math.isinf(total([(one, None)] * 3, 1e-6))


def test_what_passes_the_limit_is_not_written() -> None:
    ledger = Ledger(LIMIT)
    ledger.charge("first", pure(0.7))
    before = ledger.entries
    with pytest.raises(BudgetExceeded, match=r"'second'.*1\.4.*allows 1"):
        ledger.charge("second", pure(0.7))
    assert ledger.entries == before
    ledger.charge("third", pure(0.3))
    assert ledger.spent().epsilon == pytest.approx(1.0)
    with pytest.raises(BudgetExceeded):
        ledger.charge("fourth", pure(1e-6))


def test_disjoint_cohorts_share_the_limit() -> None:
    ledger = Ledger(LIMIT)
    ledger.charge("votes", pure(1.0), Cohort(1, 0.0, 0.5))
    ledger.charge("reports", pure(1.0), Cohort(1, 0.5, 1.0))
    with pytest.raises(BudgetExceeded):
        ledger.charge("again", pure(1e-3), Cohort(1, 0.4, 0.6))
    with pytest.raises(BudgetExceeded):
        ledger.charge("another salt", pure(1e-3), Cohort(2, 0.0, 0.1))


def test_unknown_costs_are_refused() -> None:
    with pytest.raises(BudgetExceeded):
        Ledger(LIMIT).charge("nothing known", Release(math.inf))
    with pytest.raises(BudgetExceeded):
        Ledger(LIMIT).charge("delta", Release(0.1, 1e-3))


def test_a_whole_run_as_one_release_bounds_every_user() -> None:
    """The cohort with the larger epsilon at delta 0 must not hide the other one's."""
    a, b = Cohort(1, 0.0, 0.5), Cohort(1, 0.5, 1.0)
    entries = [Entry("a", pure(1.0), a), Entry("b", Release(0.01, 1e-6), b)]
    assert whole(entries) == Release(1.0, 1e-6, math.inf)
    assert whole(entries[:1]) == pure(1.0)
    assert whole([]) == Release(0.0, 0.0, 0.0)
