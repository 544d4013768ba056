"""Counts by padding and sampling: the draw, the exact law of a report, the error."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from oracle_laws import enumerated
from scipy import stats

from clients.records.draws import padded_symbols
from fedhist.model.finite import FiniteChannel
from fedhist.model.protocol import Estimate
from fedhist.model.query import Summary
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from fedhist.users.streams import SeededStreams
from server.frequency_oracles.frequency_oracle import AnyKind, LocalHistogram
from simulations.audit.exact import excess

WORDS = Keys.of(["a", "b", "out"])
DOMAIN = Keys.of(["a", "b"])
ORACLES: tuple[AnyKind, ...] = ("unary", "hadamard", "krr", "projective", "subset")
each = pytest.mark.parametrize("oracle", ORACLES)


def slot_law(counts: tuple[int, ...], slots: int) -> list[Fraction]:
    """Probability that a uniform slot is empty or holds each item, by listing all fillings.

    Every subset of at most ``slots`` of the items is equally likely; what is left stays empty.
    """
    held = [j for j, c in enumerate(counts) for _ in range(c)]
    subsets = list(combinations(held, min(slots, len(held))))
    law = [Fraction(0)] * (len(counts) + 1)
    for subset in subsets:
        filled = [*subset, *([-1] * (slots - len(subset)))]
        for item in filled:
            law[item + 1] += Fraction(1, len(subsets) * slots)
    return law


RECORDS = list(product(range(4), repeat=2))


@pytest.mark.parametrize("slots", [1, 2, 3, 5])
def test_a_slot_of_a_subset_is_an_item(slots: int) -> None:
    """What the draw relies on: item j with probability N_j / max(N, L)."""
    for counts in RECORDS:
        law = slot_law(counts, slots)
        most = max(sum(counts), slots)
        assert law[1:] == [Fraction(c, most) for c in counts]


@pytest.mark.parametrize("slots", [1, 3, 5, 200])
def test_the_draw_has_its_law(slots: int) -> None:
    """Chi-squared over 40,000 users; five records and four paddings: false alarm below 2e-5."""
    for number, counts in enumerate([(0, 0, 3), (1, 0, 0), (3, 1, 9), (0, 2, 1), (90, 30, 7)]):
        one = Users.from_records({"u": dict(zip(WORDS, counts, strict=True))})
        users = one.take(np.zeros(40_000, dtype=np.int64))
        words = SeededStreams(np.arange(40_000, dtype=np.uint64), number, "test").words(2)
        found = padded_symbols(users.counts, DOMAIN, slots, words)
        most = max(counts[0] + counts[1], slots)
        law = np.array([most - counts[0] - counts[1], *counts[:2]]) / most
        seen = np.bincount(found + 1, minlength=3)
        assert (seen[law == 0] == 0).all()
        if (law > 0).sum() > 1:
            expected = 40_000 * law[law > 0]
            assert stats.chisquare(seen[law > 0], expected).pvalue > 1e-6


@each
@pytest.mark.parametrize("slots", [1, 2, 3, 5])
def test_the_exact_law_of_a_report(oracle: AnyKind, slots: int) -> None:
    """Every record of at most three of each item, every report: integers, no room for error.

    The worst ratio is that of the oracle itself, at most e^epsilon: a record that fills its slots
    with one item reaches it, so that the sampling buys nothing.
    """
    query = LocalHistogram(DOMAIN, 1.3, slots, oracle).query
    votes = np.array(enumerated(query.channel)[0], dtype=object)
    scale = math.lcm(*(f.denominator for r in RECORDS for f in slot_law(r, slots)))
    laws = [
        [sum(int(f * scale) * int(w) for f, w in zip(slot_law(r, slots), column, strict=True))
         for column in votes.T]
        for r in RECORDS
    ]  # fmt: skip
    mixed = FiniteChannel.of(np.array(laws, dtype=object), [str(r) for r in RECORDS]).worst()
    plain = FiniteChannel.of(votes, ["none", *DOMAIN]).worst()
    assert excess(mixed.more, mixed.less, 1.3) == 0
    if slots <= 3 or oracle != "unary":  # a record without items reports null alone
        assert Fraction(mixed.more, mixed.less) == Fraction(plain.more, plain.less)
    else:  # nobody here fills five slots with one item, but all items
        assert 0.5 < mixed.log_ratio < plain.log_ratio
    known = query.finite_channel()
    assert known is not None
    worst = known.worst()
    assert Fraction(worst.more, worst.less) == Fraction(plain.more, plain.less)


def mixed_users(n: int = 60) -> tuple[Users, np.ndarray]:
    """Users with none to some twenty items, a few of them outside; and their counts, (n, 9)."""
    rng = np.random.default_rng(3)
    counts = rng.poisson(0.5, (n, 10)) * rng.integers(1, 6, (n, 10))
    counts[:4] = 0
    counts[4:8, :9] = 0
    counts[4:8, 9] = 7
    user, item = np.nonzero(counts)
    words = Keys.of([f"w{j}" for j in range(9)] + ["outside"])
    return Users.from_counts(np.arange(n), user, item, counts[user, item], words), counts[:, :9]


NINE = Keys.of([f"w{j}" for j in range(9)])


def estimate_of(protocol: LocalHistogram, summary: Summary) -> Estimate:
    """What the server half makes of a summary."""
    script = protocol.rounds(None)  # type: ignore[arg-type]
    next(script)
    with pytest.raises(StopIteration) as end:
        script.send(summary)
    found: Estimate = end.value.value
    return found


@each
def test_standard_errors_cover(oracle: AnyKind) -> None:
    """Around the clipped totals, of 200 runs over 9 items: 99% expected within 2.6 of them."""
    users, counts = mixed_users(400)
    protocol = LocalHistogram(NINE, 1.0, 50, oracle, nonneg=False)
    assert counts.sum(axis=1).max() <= 50  # nobody is clipped
    rng, inside = np.random.default_rng(9), []
    for _ in range(200):
        estimate = estimate_of(protocol, protocol.query.draw_summary(users, rng))
        inside.append(np.abs(estimate.value - counts.sum(axis=0)) <= 2.6 * estimate.stderr)
    assert np.mean(inside) > 0.98


def test_resolve() -> None:
    """The population's domain; a clip that is written as a real number, as central ones are."""
    users, _ = mixed_users()
    given = {"epsilon": 1.0, "clip": 80.0}
    resolved, not_private = LocalHistogram.resolve(given, users, NINE)
    assert (resolved, not_private) == ({"epsilon": 1.0, "clip": 80, "domain": NINE}, [])
    assert type(resolved["clip"]) is int


def test_estimates_are_counts_of_items() -> None:
    """Without noise what is left is the draw of the slot: L^2 p (1 - p) for each user; 5 sigma."""
    n, slots = 500, 10
    users = Users.from_records({f"u{i}": {"a": 3} for i in range(n)})
    protocol, rng = LocalHistogram(DOMAIN, math.inf, slots), np.random.default_rng(4)
    drawn = [protocol.query.draw_summary(users, rng) for _ in range(200)]
    values = np.array([estimate_of(protocol, summary).value for summary in drawn])
    std = slots * math.sqrt(n * 0.3 * 0.7)
    assert (values[:, 1] == 0).all()
    assert abs(values[:, 0].mean() - 3 * n) < 5 * std / math.sqrt(200)
