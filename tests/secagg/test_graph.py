"""Thresholds against exact laws, the graph against slow versions, shares against enumeration."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
from scipy.stats import hypergeom

from fedhist.privacy.shares import MOST_PARTIES
from fedhist.secagg import Refused, node
from fedhist.secagg.shamir import PRIME, SHARE, combine, draw, split, weights
from fedhist.secagg.terms import Graph, Plan, plan
from tests.secagg.attempts import Play, entropy, terms_of


@pytest.mark.parametrize(
    ("parties", "printed"), [(300, (56, 37, 13)), (1000, (78, 52, 18)), (10_000, (96, 64, 22))]
)
def test_what_the_specification_prints(parties: int, printed: tuple[int, int, int]) -> None:
    p = plan(parties, parties // 10, parties // 20)
    assert (p.degree, p.threshold, p.window) == printed


def holds(p: Plan, n: int, drop: int, collude: int) -> bool:
    k, c, t, half = p.degree, p.colluders, p.threshold, p.degree // 2
    return bool(
        n * hypergeom.sf(c, n - 1, collude, k) <= 2**-40
        and n * hypergeom.sf(k - t, n - 1, drop, k) <= 2**-20
        and n * hypergeom.sf(half - p.window - 1, n, drop, half) <= 2**-20
        and n * ((drop + collude) / n) ** (k / 2) <= 2**-40
    )


@pytest.mark.parametrize(
    ("n", "drop", "collude"),
    [(101, 5, 5), (150, 15, 7), (180, 0, 0), (200, 20, 20), (300, 30, 15), (500, 50, 0)],
)
def test_the_least_degree_that_will_do(n: int, drop: int, collude: int) -> None:
    """None is jumped over."""
    p = plan(n, drop, collude)
    assert p.degree % 2 == 0
    assert holds(p, n, drop, collude)
    assert p.threshold == (p.degree + 1 + p.colluders) // 2 + 1
    if p.colluders:
        assert n * hypergeom.sf(p.colluders - 1, n - 1, collude, p.degree) > 2**-40
    half = p.degree // 2
    assert n * hypergeom.sf(p.window, n, collude, half) <= 2**-40
    assert not p.window or n * hypergeom.sf(p.window - 1, n, collude, half) > 2**-40
    for k in range(2, p.degree, 2):
        c = int(next(c for c in range(k + 1) if n * hypergeom.sf(c, n - 1, collude, k) <= 2**-40))
        w = int(next(w for w in range(k) if n * hypergeom.sf(w, n, collude, k // 2) <= 2**-40))
        assert not holds(Plan(k, (k + 1 + c) // 2 + 1, c, w), n, drop, collude)


def test_everybody_up_to_a_hundred_or_where_nothing_less_will_do() -> None:
    assert plan(100, 10, 10) == Plan(99, 56, 10, -1)
    assert plan(10, 1, 1) == Plan(9, 6, 1, -1)
    assert plan(101, 50, 0) == Plan(100, 51, 0, -1)


@pytest.mark.parametrize("n", [2, 3, 7, 20, 100, 101, 300, 1000])
def test_one_secret_only(n: int) -> None:
    """Whatever honest holders give, one secret each, and colluders both: never t of both."""
    for collude in {0, n // 20, n // 10, n // 4}:
        p = plan(n, n // 10, collude)
        holders = p.degree + 1
        assert (holders - p.colluders) + 2 * p.colluders < 2 * p.threshold
        assert p.threshold <= holders


def test_a_plan_takes_seconds_or_is_refused() -> None:
    """It once took hours for a message of a kilobyte."""
    assert plan(10_000, 3000, 1000).degree == 786
    with pytest.raises(ValueError, match="1000 neighbours"):
        plan(65_536, 32_768 - 6553, 6553)
    assert MOST_PARTIES == 1 << 16  # as many as both sides plan for


def test_neighbours_are_the_places_beside() -> None:
    terms = terms_of(150, 15, 7)
    graph = Graph(terms)
    k = terms.plan.degree
    near = {i: graph.neighbours(i) for i in range(150)}
    assert all(len(set(js)) == k and i not in js and js == sorted(js) for i, js in near.items())
    assert all(i in near[j] for i, js in near.items() for j in js)
    other = Graph(replace(terms, digest=b"another query"))
    assert near != {i: other.neighbours(i) for i in range(150)}
    # i's two next neighbours on the circle share k - 1 with it: walk once around
    walk, here = [0], 0
    while len(walk) < 150:
        here = next(
            j for j in near[here]
            if j not in walk and len({*near[j], j} & {*near[here], here}) == k
        )  # fmt: skip
        walk.append(here)
    assert len(set(walk)) == 150


def test_who_is_present_is_enough_and_nowhere_sparse() -> None:
    """Against a loop over places; seeds fixed. Accepted sets stay connected without colluders."""
    terms = terms_of(200, 80, 4)
    graph, p = Graph(terms), terms.plan
    half = p.degree // 2
    order = sorted(range(200), key=lambda i: int(np.flatnonzero(graph._order == i)[0]))
    rng = np.random.default_rng(5)
    verdicts = set()
    for trial in range(60):
        gap = int(rng.integers(half - p.window - 3, half - p.window + 3))
        start = int(rng.integers(200))
        gone = {order[(start + s) % 200] for s in range(gap)}
        gone |= set(rng.choice(200, trial, replace=False).tolist())
        present = sorted(set(range(200)) - gone)
        here = [sum(order[(at + s) % 200] in present for s in range(half)) for at in range(200)]
        fine = len(present) >= terms.least and min(here) > p.window
        verdicts.add(fine)
        if fine:
            graph.check_present(present, "U")
            honest = set(present) - set(rng.choice(present, p.window, replace=False).tolist())
            assert connected(honest, graph)
        else:
            with pytest.raises(Refused, match="U: "):
                graph.check_present(present, "U")
    assert verdicts == {True, False}
    graph.check_present(sorted(order[half - p.window - 1 :]), "U")
    with pytest.raises(Refused, match="U: "):  # with one more gone
        graph.check_present(sorted(order[half - p.window :]), "U")


def connected(nodes: set[int], graph: Graph) -> bool:
    reached, front = set(), {min(nodes)}
    while front:
        reached |= front
        front = {j for i in front for j in graph.neighbours(i)} & nodes - reached
    return reached == nodes


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
