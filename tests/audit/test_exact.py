"""The exact check: closed forms, brute force over whole channels, and broken channels."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
from oracle_laws import enumerated
from vote_laws import unary_inputs

import fedhist as fh
from fedhist.channels.oracles import oracle_channel
from fedhist.model.registry import load_builtin, own_protocols, protocols
from fedhist.privacy.guarantee import chance_of_telling
from simulations.audit.asked import asked_of
from simulations.audit.audited import summary
from simulations.audit.exact import audit_exact, delta_curve, epsilon_at, excess, judge_channel
from tests.audit.mechanisms import Warner, nearest

load_builtin()
LOCAL = [n for n, c in own_protocols().items() if c.example().guarantee.trust is fh.Trust.LOCAL]


def brute_force(weights: list[list[int]], epsilon: float) -> tuple[Fraction, float]:
    ratio, delta = Fraction(0), 0.0
    for p, q in permutations(weights, 2):
        total = sum(p)
        ratio = max(ratio, *(Fraction(a, b) for a, b in zip(p, q, strict=True)))
        here = sum(
            max(a / total - math.exp(epsilon) * b / total, 0) for a, b in zip(p, q, strict=True)
        )
        delta = max(delta, here)
    return ratio, delta


@pytest.mark.parametrize("ones", [1, 2, 3])
def test_the_bits_left_out_cancel(ones: int) -> None:
    """The law of all bits, one more than are enumerated, gives the same ratio and curve."""
    channel, n = fh.UnaryChannel(1.3, ones), 2 * ones + 1
    t = channel.flip_threshold
    rows = [
        [
            t ** int((bits != z).sum()) * (2**64 - t) ** (n - int((bits != z).sum()))
            for z in ((np.arange(1 << n)[:, None] >> np.arange(n)) & 1)
        ]
        for bits in unary_inputs(channel, n)
    ]
    law = fh.unary_law(channel, n)
    worst = law.worst()
    if ones == 1:  # all pairs by plain loops; for more ones, by the largest and least of a column
        ratio, delta = brute_force(rows, 0.4)
        assert delta_curve(law, [0.4])[0][0] == pytest.approx(delta, rel=1e-12)
    else:
        ratio = max(Fraction(max(c), min(c)) for c in zip(*rows, strict=True))
    assert Fraction(worst.more, worst.less) == ratio
    assert worst.log_ratio == pytest.approx(1.3, abs=1e-12)


@pytest.mark.parametrize("kind", ["krr", "hadamard", "projective", "subset"])
@pytest.mark.parametrize("n_symbols", [1, 5])
def test_oracles_need_two_symbols_only(kind: str, n_symbols: int) -> None:
    """The law by classes has the ratio and the divergences of the law of all messages."""
    channel = oracle_channel(kind, 0.9, n_symbols)
    small = channel.law()
    ratio, delta = brute_force(enumerated(channel)[0], 0.3)
    worst = small.worst()
    assert Fraction(worst.more, worst.less) == ratio
    assert delta_curve(small, [0.3])[0][0] == pytest.approx(delta, rel=1e-12)


@pytest.mark.parametrize(
    ("kind", "epsilon"),
    [("onebit", 0.3), ("onebit", 4.0), ("laplace", 4.0), ("piecewise", 0.5), ("piecewise", 4.0)],
)
def test_scalar_channels_reach_their_epsilon_and_stop_there(kind: str, epsilon: float) -> None:
    law = fh.scalar_law(fh.scalar_channel(kind, epsilon))
    worst = law.worst()
    assert excess(worst.more, worst.less, epsilon) == 0
    assert worst.log_ratio > epsilon * (1 - 1e-3)


@pytest.mark.parametrize("epsilon", [0.1, 3.0])
def test_rounding_is_no_violation_and_is_told(epsilon: float) -> None:
    """Some words of 2^64 are rounding, forty are a violation: 2^-60 of all probability are 16."""
    for off in (0, 1, 7):
        result = judge_channel(nearest(epsilon, 2**64, off), (epsilon, 0.0), "x")
        assert not result.violated
        assert (result.excess > 0) == result.rounded == (off > 0)
    result = judge_channel(nearest(epsilon, 2**64, 40), (epsilon, 0.0), "x")
    assert result.violated
    assert not result.rounded
    # (1 - q) / q, 40 words less: the derivative of its logarithm is 1 / (q (1 - q))
    assert result.excess == pytest.approx(40 * (2 + 2 * math.cosh(epsilon)) / 2**64, rel=0.05)


def test_a_rounded_law_of_few_parts_is_a_violation() -> None:
    """One part of a hundred is no rounding, nor is any excess without a bound."""
    assert judge_channel(nearest(1.0, 100, 1), (1.0, 0.0), "x").violated
    impossible = fh.FiniteChannel.of([[2**70 - 1, 1], [2**70, 0]], "ab")
    assert judge_channel(impossible, (1.0, 0.0), "x").violated
    seldom = fh.FiniteChannel.of([[2**70 - 1, 1], [2**70 - 3, 3]], "ab")  # 3 e^-1 - 1, 2^-70 of all
    assert judge_channel(seldom, (1.0, 0.0), "x").violated


def test_impossible_outputs_have_no_epsilon() -> None:
    law = fh.FiniteChannel.of([[2, 2, 0], [0, 2, 2]], "ab")
    result = judge_channel(law, (1.0, 0.0), "x")
    assert result.violated
    assert result.certified == math.inf
    assert not judge_channel(law, (1.0, 0.5), "x").violated  # delta = 1/2 covers it
    assert judge_channel(law, (1.0, 0.4), "x").violated


def test_epsilon_at_a_delta() -> None:
    law = fh.FiniteChannel.of([[3, 1], [1, 3]], "ab")
    assert epsilon_at(law, 0.25) == pytest.approx(math.log(2), abs=1e-8)  # 3/4 - e^x / 4 = 1/4
    uneven = fh.FiniteChannel.of([[9, 1], [5, 5]], "ab")  # the second against the first
    assert delta_curve(uneven, [1.0])[0][0] == pytest.approx(0.5 - 0.1 * math.e)


def test_a_query_that_lies_about_its_cost_is_caught() -> None:
    assert audit_exact(Warner(math.inf), "x") is None
    assert audit_exact(Warner(math.log(3) + 1e-9), "x").verdict == "consistent"
    result = audit_exact(Warner(1.0), "x")
    assert result.violated
    assert result.witness is not None


@pytest.mark.parametrize("name", LOCAL)
def test_every_local_query_of_the_registry_has_a_law_within_its_claim(name: str) -> None:
    protocol = protocols()[name].example()
    for query in asked_of(protocol, protocol.example_users(), 1).queries:
        result = audit_exact(query, name)
        assert result is not None, query.wire_name
        assert result.verdict == "consistent"
        assert result.certified > result.epsilon * 0.999
        chance = (1 + result.curve[0][1]) / 2  # delta at epsilon = 0 is the total variation
        assert 0.5 < chance <= chance_of_telling(query.release) * (1 + 1e-12)


def test_one_bit_is_told_apart_as_often_as_its_claim_allows() -> None:
    law = fh.FiniteChannel.of([[3, 1], [1, 3]], "ab")
    result = judge_channel(law, (math.log(3), 0.0), "a bit")
    said = "apart with 75.0% (enumerated); the claim allows 75.0%"
    assert said in " ".join(summary([result], 0.1))
