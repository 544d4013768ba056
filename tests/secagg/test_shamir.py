"""Shares against exact enumeration in small fields, by the code that runs in the large one."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, product

import pytest

from fedhist.secagg import node
from fedhist.secagg.shamir import PRIME, SHARE, combine, draw, split, weights
from tests.secagg.attempts import Play, entropy, terms_of


@pytest.mark.parametrize(("prime", "t", "points"), [(5, 2, (1, 2, 4)), (7, 3, (1, 3, 4, 6))])
def test_fewer_shares_are_uniform_whatever_the_secret(
    prime: int, t: int, points: tuple[int, ...]
) -> None:
    """Over all coefficients: any t - 1 shares take every value equally often, t restore."""
    every = list(product(range(prime), repeat=t - 1))
    for secret in range(prime):
        shared = [split(secret, coefficients, points, prime) for coefficients in every]
        for at in combinations(range(len(points)), t - 1):
            recorded = Counter(tuple(shares[i] for i in at) for shares in shared)
            assert recorded == dict.fromkeys(product(range(prime), repeat=t - 1), 1)
        for at in combinations(range(len(points)), t):
            w = weights([points[i] for i in at], prime)
            assert all(combine([shares[i] for i in at], w, prime) == secret for shares in shared)


@pytest.mark.parametrize("prime", [5, 7, 11, 13])
def test_drawn_elements_are_uniform(prime: int) -> None:
    """Every byte once: each element of the field comes equally often, and nothing else."""
    feed = iter([bytes(range(256)) * 2, *([b"\0"] * 10_000)])

    def bytes_of(n: int) -> bytes:
        return next(feed)[:n].ljust(n, b"\0")

    accepted = [x for b in range(256) if (x := b % (1 << prime.bit_length())) < prime]
    result = draw(256, bytes_of, prime)[: len(accepted)]
    assert Counter(result) == dict.fromkeys(range(prime), len(accepted) // prime)


@pytest.mark.parametrize("secret", [0, 2**128 - 1, PRIME - 1])
def test_the_large_field(secret: int) -> None:
    points = list(range(1, 31))
    shares = split(secret, draw(16, entropy("coefficients")), points)
    assert all(y < PRIME < 1 << 8 * SHARE for y in shares)
    assert combine(shares[5:22], weights(points[5:22])) == secret
    assert pow(3, PRIME - 1, PRIME) == 1  # a base of Fermat's, as is every one: it is a prime


@pytest.mark.parametrize("points", [(0, 1), (1, 1), (1, PRIME), (-1, 2)])
def test_no_share_is_the_secret_or_comes_twice(points: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="points must be distinct"):
        split(1, [5], points)
    with pytest.raises(ValueError, match="points must be distinct"):
        weights(points)


def test_a_node_shares_its_secrets_by_the_threshold(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fewer holders than the terms say have of a node is not its secret."""
    shared = []

    def noted(secret: int, coefficients: list[int], points: list[int]) -> list[int]:
        shares = split(secret, coefficients, points)
        shared.append((secret, dict(zip(points, shares, strict=True))))
        return shares

    monkeypatch.setattr(node, "split", noted)
    play = Play(terms_of(8, 1, 1))
    play.until("shares")
    t = play.terms.plan.threshold
    assert len(shared) == 2 * play.terms.parties
    for secret, shares in shared:
        assert len(shares) >= t
        for size in (t, t - 1):
            points = sorted(shares)[:size]
            restored = combine([shares[x] for x in points], weights(points))
            assert (restored == secret) == (size == t)
