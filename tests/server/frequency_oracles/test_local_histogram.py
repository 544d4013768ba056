"""Counts by padding and sampling: the draw, the exact law of a report, the error."""

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from oracle_laws import enumerated

import fedhist as fh
from clients.records.draws import padded_symbols
from server.frequency_oracles.frequency_oracle import AnyKind, LocalHistogram
from simulations.audit.exact import excess
from tests.running import p_value

WORDS = fh.Keys.of(["a", "b", "out"])
DOMAIN = fh.Keys.of(["a", "b"])
ORACLES: tuple[AnyKind, ...] = ("unary", "hadamard", "krr", "projective", "subset")
each = pytest.mark.parametrize("oracle", ORACLES)


def slot_law(counts: tuple[int, ...], slots: int) -> list[Fraction]:
    """Probability that a uniform slot of a uniform subset is empty, or holds each item."""
    most = max(sum(counts), slots)
    return [Fraction(most - sum(counts), most), *(Fraction(c, most) for c in counts)]


RECORDS = list(product(range(4), repeat=2))


@pytest.mark.parametrize("slots", [1, 3, 5, 200])
def test_the_draw_has_its_law(slots: int) -> None:
    """Chi-squared over 40,000 users; five records and four paddings: false alarm below 2e-5."""
    for number, counts in enumerate([(0, 0, 3), (1, 0, 0), (3, 1, 9), (0, 2, 1), (90, 30, 7)]):
        one = fh.Users.from_records({"u": dict(zip(WORDS, counts, strict=True))})
        users = one.take(np.zeros(40_000, dtype=np.int64))
        words = fh.SeededStreams(np.arange(40_000, dtype=np.uint64), number, "test").words(2)
        result = padded_symbols(users.counts, DOMAIN, slots, words)
        law = np.array([float(p) for p in slot_law(counts[:2], slots)])
        recorded = np.bincount(result + 1, minlength=3)
        assert (recorded[law == 0] == 0).all()
        assert p_value(recorded, 40_000 * law) > 1e-6


@each
@pytest.mark.parametrize("slots", [1, 2, 3, 5])
def test_the_exact_law_of_a_report(oracle: AnyKind, slots: int) -> None:
    """Every record of at most three of each item, every report: integers, no room for error."""
    query = LocalHistogram(DOMAIN, 1.3, slots, oracle).query
    votes = np.array(enumerated(query.channel)[0], dtype=object)
    scale = math.lcm(*(f.denominator for r in RECORDS for f in slot_law(r, slots)))
    laws = [
        [sum(int(f * scale) * int(w) for f, w in zip(slot_law(r, slots), column, strict=True))
         for column in votes.T]
        for r in RECORDS
    ]  # fmt: skip
    mixed = fh.FiniteChannel.of(np.array(laws, dtype=object), [str(r) for r in RECORDS]).worst()
    plain = fh.FiniteChannel.of(votes, ["none", *DOMAIN]).worst()
    assert excess(mixed.more, mixed.less, 1.3) == 0
    if slots <= 3 or oracle != "unary":  # a record without items reports null alone
        assert Fraction(mixed.more, mixed.less) == Fraction(plain.more, plain.less)
    else:  # nobody here fills five slots with one item, but all items
        assert 0.5 < mixed.log_ratio < plain.log_ratio
    known = query.finite_channel()
    assert known is not None
    worst = known.worst()
    assert Fraction(worst.more, worst.less) == Fraction(plain.more, plain.less)


def test_resolve() -> None:
    """The population's domain; a clip that is written as a real number, as central ones are."""
    users = fh.Users.from_records({"u": {"a": 3}})
    given = {"epsilon": 1.0, "clip": 80.0}
    resolved, not_private = LocalHistogram.resolve(given, users, DOMAIN)
    assert (resolved, not_private) == ({"epsilon": 1.0, "clip": 80, "domain": DOMAIN}, [])
    assert type(resolved["clip"]) is int
