"""The shuffle accountant against multisets enumerated in fractions, and against slow sums."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from scipy.linalg import hadamard
from scipy.stats import binom

from fedhist.privacy.shuffling import (
    Hiding,
    calibrate,
    clone_delta,
    shuffled_delta,
    shuffled_epsilon,
)

Law = list[list[Fraction]]
MIXES = Hiding(mixes=True)


def krr(k: int, e: int) -> Law:
    return [[Fraction(e if x == y else 1, e + k - 1) for y in range(k)] for x in range(k)]


def hadamard_response(size: int, e: int) -> Law:
    signs = hadamard(size)
    each = Fraction(2, size * (e + 1))
    return [[each * (e if s == 1 else 1) for s in signs[x]] for x in range(1, size)]


def bits(k: int, own: Fraction, other: Fraction) -> Law:
    def of(x: int, z: tuple[int, ...]) -> Fraction:
        ones = [own if i == x else other for i in range(k)]
        return math.prod(
            (p if b else 1 - p for p, b in zip(ones, z, strict=True)), start=Fraction(1)
        )

    return [[of(x, z) for z in itertools.product((0, 1), repeat=k)] for x in range(k)]


def unary(k: int, odds: int) -> Law:
    """Bits that keep their value at these odds: epsilon_0 = 2 ln odds."""
    return bits(k, Fraction(odds, odds + 1), Fraction(1, odds + 1))


def optimized_unary(k: int, e: int) -> Law:
    return bits(k, Fraction(1, 2), Fraction(1, e + 1))


def variations(law: Law) -> tuple[float, ...]:
    pairs = itertools.combinations(law, 2)
    return tuple({float(sum(abs(a - b) for a, b in zip(*p, strict=True)) / 2) for p in pairs})


def exact_delta(law: Law, n: int, factor: Fraction, pairs: Sequence[tuple[int, int]] = ()) -> float:
    m, best = len(law[0]), Fraction(0)
    for others in itertools.combinations_with_replacement(range(len(law)), n - 1):
        counts = {(0,) * m: Fraction(1)}
        for x in others:
            counts = add_one(counts, law[x])
        for x0, x1 in pairs or itertools.permutations(range(len(law)), 2):
            excess = [a - factor * b for a, b in zip(law[x0], law[x1], strict=True)]
            best = max(best, sum((v for v in add_one(counts, excess).values() if v > 0), best * 0))
    return float(best)


def add_one(
    counts: dict[tuple[int, ...], Fraction], row: Sequence[Fraction]
) -> dict[tuple[int, ...], Fraction]:
    out: dict[tuple[int, ...], Fraction] = {}
    for c, w in counts.items():
        for y, p in enumerate(row):
            if p:
                more = (*c[:y], c[y] + 1, *c[y + 1 :])
                out[more] = out.get(more, Fraction(0)) + w * p
    return out


CASES = [
    pytest.param(krr(2, 3), 3, 6, True, id="2-RR"),
    pytest.param(krr(3, 3), 3, 6, True, id="3-RR"),
    pytest.param(krr(3, 12), 12, 4, True, id="3-RR, large epsilon"),
    pytest.param(hadamard_response(4, 4), 4, 4, True, id="Hadamard 4"),
    pytest.param(hadamard_response(8, 4), 4, 2, False, id="Hadamard 8"),
    pytest.param(unary(2, 2), 4, 6, True, id="unary of two"),
    pytest.param(unary(3, 2), 4, 2, False, id="unary of three"),
    pytest.param(optimized_unary(3, 4), 4, 3, False, id="OUE of three"),
]


@pytest.mark.parametrize(("law", "e", "most", "condition"), CASES)
def test_enumerated_multisets_are_within_every_bound(
    law: Law, e: int, most: int, condition: bool
) -> None:
    rows = [tuple(r) for r in law]
    mixed = all(
        (e + 1) * r[y] >= a[y] + b[y]
        for r in rows
        for a, b in itertools.combinations(rows, 2)
        for y in range(len(r))
    )
    assert mixed == condition
    local, tv = math.log(e), variations(law)
    for n in range(1, most + 1):
        for factor in (Fraction(1), Fraction(3, 2), Fraction(5, 2)):
            truth, eps = exact_delta(law, n, factor), math.log(factor)
            assert truth <= shuffled_delta(n, local, eps) * (1 + 1e-12)
            assert truth <= shuffled_delta(n, local, eps, Hiding(condition, tv)) * (1 + 1e-12)


def test_bounds_are_attained_where_they_can_be() -> None:
    """Two symbols: (C) is exact while everybody is a clone or not; k-RR: (B) at epsilon = 0."""
    truth = exact_delta(krr(2, 3), 3, Fraction(3, 2))
    assert truth == pytest.approx(shuffled_delta(3, math.log(3), math.log(1.5), MIXES), rel=1e-9)
    law = krr(3, 6)
    truth = exact_delta(law, 4, Fraction(1))
    known = Hiding(distances=variations(law))
    assert truth == pytest.approx(shuffled_delta(4, math.log(6), 0.0, known), rel=1e-9)


def test_a_larger_distance_may_be_the_better_one() -> None:
    """Near laws have few clones: the largest distance of a channel does not bound the others."""
    near, far = (Hiding(distances=(t,)) for t in (0.02, 0.6))
    both = Hiding(distances=(0.02, 0.6))
    result = [shuffled_delta(2000, 3.0, 0.5, h) for h in (near, far, both)]
    assert result[1] < result[0] == result[2] <= shuffled_delta(2000, 3.0, 0.5)


def slow_clone_delta(n: int, q: float, local: float, epsilon: float) -> float:
    a, total = math.exp(local) / (1 + math.exp(local)), 0.0
    for c in range(n):
        weight = binom.pmf(c, n - 1, q)
        ups = binom.pmf(np.arange(-1, c + 2), c, 0.5)
        from_v0, from_v1 = ups[:-1], ups[1:]  # the user's own counts as one from V0, or does not
        p, r = a * from_v0 + (1 - a) * from_v1, (1 - a) * from_v0 + a * from_v1
        total += weight * np.maximum(p - math.exp(epsilon) * r, 0.0).sum()
    return total


@pytest.mark.parametrize("n", [1, 2, 3, 17, 150])
@pytest.mark.parametrize("local", [0.1, 1.0, 4.0, 12.0])
def test_closed_form_of_each_count_against_the_sum(n: int, local: float) -> None:
    for q in (math.exp(-local), 2 / (math.exp(local) + 1), 0.01, 1.0):
        for epsilon in (0.0, 0.3 * local, 0.9 * local):
            slow = slow_clone_delta(n, q, local, epsilon)
            fast = clone_delta(n, q, local, epsilon)
            assert slow * (1 - 1e-9) - 1e-15 <= fast <= slow * (1 + 1e-7) + 1e-12


def test_values_of_the_specification() -> None:
    for (n, local), a, c in (((100_000, 4.0), 0.1698, 0.1182), ((20_000, 3.0), 0.2202, 0.1557)):
        assert shuffled_epsilon(n, local, 1e-6) == pytest.approx(a, abs=6e-5)
        assert shuffled_epsilon(n, local, 1e-6, MIXES) == pytest.approx(c, abs=6e-5)
    # the interval that the authors' own program prints
    assert 0.1693 <= shuffled_epsilon(100_000, 4.0, 1e-6) <= 0.1729


def test_calibration_of_the_specification() -> None:
    for n, a, c in ((10_000, 4.80, 5.47), (20_000, 5.47, 6.16), (100_000, 7.07, 7.76)):
        assert calibrate(1.0, 1e-6, n) == pytest.approx(a, abs=6e-3)
        assert calibrate(1.0, 1e-6, n, lambda _: MIXES) == pytest.approx(c, abs=6e-3)
    bits = calibrate(1.0, 1e-6, 20_000, lambda x: Hiding(distances=(math.tanh(x / 4),)))
    assert bits == pytest.approx(6.07, abs=6e-3)


def test_the_size_of_the_fold_counts_and_not_the_total() -> None:
    local = calibrate(1.0, 1e-6, 20_000)
    assert shuffled_epsilon(1000, local, 1e-6) == pytest.approx(local, rel=1e-3)
    assert calibrate(1.0, 1e-6, 1000) < 2.75
    assert shuffled_epsilon(16_000, 6.157, 1e-6, MIXES) == pytest.approx(1.163, abs=3e-3)


def test_the_target_is_met_within_the_rounding_of_a_ledger() -> None:
    for n in (30, 1000, 20_000):
        local = calibrate(0.7, 1e-6, n, lambda _: MIXES)
        assert shuffled_delta(n, local, 0.7, MIXES) <= 1e-6
        assert 0.69 < shuffled_epsilon(n, local, 1e-6, MIXES) <= 0.7 * (1 + 2e-10)


def test_sizes_from_one_to_a_billion() -> None:
    assert shuffled_epsilon(1, 12.0, 1e-6) == pytest.approx(12.0, rel=1e-6)
    last = math.inf
    for n in (1, 10, 10**3, 10**6, 10**9):
        result = shuffled_epsilon(n, 12.0, 1e-6, MIXES)
        assert 0 < result <= last
        last = result
    assert calibrate(1.0, 1e-6, 10**9) > 16
    # blocks of counts cost nothing that shows: a slightly smaller n has none
    few, many = (calibrate(1.0, 1e-6, n) for n in (10**9 - 10**6, 10**9))
    assert many - few == pytest.approx(1e-3, rel=0.05)


def test_what_cannot_be_is_refused() -> None:
    for call, told in (
        (lambda: calibrate(1.0, 0.0, 10), "delta"),
        (lambda: shuffled_delta(0, 1.0, 0.5), "n must"),
        (lambda: Hiding(distances=(1.5,)), "variation"),
    ):
        with pytest.raises(ValueError, match=told):
            call()
    assert math.isinf(calibrate(math.inf, 1e-6, 10))
    assert math.isinf(shuffled_epsilon(10, math.inf, 1e-6))
