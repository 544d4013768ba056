"""The laws that hold for every registered protocol; the list is the registry, never by hand.

A protocol without ``example()`` and ``example_users()`` fails here. The throw-away protocols of the
tests obey the same laws, so that keyed parts, rows and many rounds are covered.
"""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from clients.answers import streams
from fedhist.base import chained_log
from fedhist.base.errors import FedhistError, WireError
from fedhist.flower.wire import (
    decode_answer,
    decode_question,
    encode_answer,
    encode_question,
    pack_array,
    unpack_array,
)
from fedhist.model.codec import decode_query, encode_fields, query_digest
from fedhist.model.protocol import Estimate, Protocol
from fedhist.model.query import CHUNK, Query, Report, Summary
from fedhist.model.registry import own_protocols, protocol_class
from fedhist.model.truths import Truth
from fedhist.privacy.guarantee import Adjacency, Trust
from fedhist.privacy.shuffler import Shuffling
from fedhist.protocols import CentralDensity, PoissonCounts
from fedhist.users.batch import Users, join
from fedhist.users.keys import Keys
from fedhist.users.streams import SeededStreams
from server.noise import SimulatedNoise
from server.session import journal as module
from server.session.curator import NoiseSource, Shape
from server.session.journal import Journal
from server.session.session import Session
from server.targets.mean_target import MeanTarget
from simulations.runtimes.inline import InlinePopulation

SEED = 20


def shuffled(n_users: int, epsilon: float = 1.5, **how: Any) -> dict[str, Any]:
    """A configuration under shuffle trust: a local epsilon, and what it is worth among others."""
    return {"epsilon": epsilon, "trust": Shuffling(1.2, 0.01, n_users, tau=0.0), **how}


# further configurations of protocols that have several: tested beside the example, never instead
MORE: dict[str, list[dict[str, Any]]] = {
    "adaptive-histogram": [
        {"discrete": True, "noise": "gaussian"},
        {"delta": 0.0, "discrete": True, "adjacency": "replace-user"},
        {"threshold": "adaptive-quantile", "steps": 3, "discrete": True},
        {"threshold": "dp-sgd", "steps": 3},
        {"threshold": "output-perturbation-paper", "steps": 3, "n_users": 40, "discrete": True},
    ],
    "bounded-histogram": [
        {"grid": 1 / 64},
        {"delta": 0.0, "grid": 1 / 64, "adjacency": "replace-user"},
        {"delta": 0.0},
    ],
    "box-mean": [
        {"delta": 0.0, "adjacency": "zero-out-user"},
        {"adjacency": "add-remove-user"},
        {"box": 2.0, "discrete": True},
    ],
    "central-density": [
        {"delta": 0.0},
        {"discrete": True, "adjacency": "zero-out-user"},
        {"delta": 0.0, "discrete": True, "shrink": False, "project": False},
    ],
    "cover-select": [
        {"geometry": "l2-ball"},
        {"geometry": "sparse", "sparsity": 2},
        {"geometry": "sobolev", "smoothness": 1.0, "bound": 2.0},
        {"per_axis": 75},
        shuffled(400),
    ],
    "density": [
        {"kind": "onebit"},
        {"mode": "paper"},
        {"shrink": False, "samples_per_user": 1},
        shuffled(800, method="folds", basis="fourier"),
    ],
    "distribution": [
        {"mechanism": "gaussian"},
        {"mechanism": "gaussian", "mode": "paper", "discrete": False},
        {"mechanism": "one-item", "delta": 0.0},
        {"mechanism": "presence"},
        {"mechanism": "presence-laplace"},
        {"mechanism": "ks", "epsilon": 20.0},
        {"mechanism": "sparse", "epsilon": 20.0},
        {"mechanism": "centred", "epsilon": 20.0, "delta": 0.4},
        {"mechanism": "phs", "mode": "paper"},
    ],
    "few-users-distribution": [{"method": "large-n", "samples_per_user": 100, "epsilon": 20.0}],
    "few-users-mean": [
        {"method": "blocks", "n_blocks": 2, "epsilon": 4.0},
        {"method": "boosted", "n_runs": 3, "epsilon": 4.0},
        {"method": "large-n", "epsilon": 16.0},
        {"mode": "paper", "method": "auto", "n_blocks": None},
    ],
    "frequency-oracle": [
        {"kind": "krr"},
        {"kind": "hadamard"},
        {"kind": "projective", "project": True},
        {"kind": "subset"},
        {"kind": "unary"},
        shuffled(300, kind="krr"),
    ],
    "central-mean": [
        {"epsilon": 1.0},
        {"epsilon": 40.0, "adjacency": "zero-out-user", "radius": 0.2},
        {"epsilon": 40.0, "adjacency": "add-remove-user", "delta": 1e-6},
        {"epsilon": 3.5, "discrete": True},
    ],
    "heavy-hitters": [{"of": "named"}, {"code": "bytes", "level_bits": 8}],
    "local-distribution": [
        {"method": "folds", "kind": "onebit", "project": False},
        {"domain": Keys.of(["rye", "tea"]), "project": False},
        {"domain": Keys.of(["rye", "tea"]), "method": "folds", "kind": "laplace"},
        {"samples_per_user": 1},
        shuffled(1400, method="folds"),
    ],
    "local-histogram": [
        {"oracle": "unary"},
        {"oracle": "hadamard", "nonneg": False},
        {"oracle": "projective"},
        {"oracle": "subset"},
        shuffled(300, 2.0, oracle="krr"),
    ],
    "mean-l2": [
        {"method": "folds"},
        {"method": "folds", "kind": "laplace"},
        {"mode": "paper"},
        {"samples_per_user": 1},
        shuffled(1200, method="folds"),
    ],
    "mean-linf": [{"kind": "onebit"}, {"mode": "paper"}, {"samples_per_user": 1}, shuffled(900)],
    "mean": [
        {"kind": "onebit"},
        {"kind": "laplace"},
        {"mode": "paper"},
        shuffled(400),
        {"method": "centred"},
        {"method": "stages"},
    ],
    "naive-mean": [
        {"method": "one-item", "kind": "laplace"},
        {"geometry": "l2"},
        {"geometry": "l2", "method": "one-item"},
        shuffled(300),
    ],
    "poisson-counts": [
        {"discrete": True, "adjacency": "replace-user"},
        {"clip": 32, "debias": False, "delta": 1e-6},
        {"domain": Keys.of(["rye", "chai", "お茶"]), "clip": 32, "delta": 1e-6, "discrete": True},
    ],
    "ragged-distribution": [
        {"mechanism": "ks", "epsilon": 40.0},
        {"mechanism": "phs", "epsilon": 60.0, "delta": 0.0},
        {"mechanism": "auto", "delta": 0.0},
        {"mechanism": "centred"},
        {"mechanism": "auto", "mode": "paper"},
    ],
    "sparse-mean": [
        {"method": "vectors"},
        {"method": "threshold", "kind": "onebit"},
        {"vote": "laplace", "kind": "laplace"},
        {"mode": "paper"},
        {"sparsity": 12},
    ],
    "unbounded-histogram": [
        {"clip": 8},
        {"method": "sample"},
        {"discrete": False, "adjacency": "replace-user"},
        {"clip": 8, "discrete": False, "adjacency": "replace-user"},
        {"threshold": "exact-range", "adjacency": "add-remove-user"},
        {"threshold": "exact-range", "discrete": False},
        {"threshold": "paper", "mode": "paper", "clip_max": 100},
    ],
    "user-level-erm": [
        {"discrete": True},
        {"oracle": "fixed", "ridge": 0.1, "curvature": 1.0, "iterate": "last"},
        {"model": "logistic", "smoothness": 0.27, "strong_convexity": 0.1, "steps": 14},
        {"oracle": "few-users", "steps": 8, "max_failed": 0.9},
    ],
}


@cache
def configured(name: str) -> list[Protocol]:
    """The example of a protocol, and its further configurations."""
    example: Any = protocol_class(name).example()
    return [example, *(dataclasses.replace(example, **c) for c in MORE.get(name, []))]


@pytest.fixture
def example(protocol_name: str) -> Protocol:
    return configured(protocol_name)[0]


@cache
def example_users(name: str) -> Users:
    return protocol_class(name).example_users()


@pytest.fixture
def users(protocol_name: str) -> Users:
    return example_users(protocol_name)


@pytest.fixture
def configurations(protocol_name: str) -> list[Protocol]:
    return list(configured(protocol_name))


def noise(index: int) -> SimulatedNoise:
    return SimulatedNoise(SEED, index)


Seen = list[tuple[Query, int, Summary]]


def walk(
    protocol: Protocol, users: Users, *, nodes: int = 1, seed: int = SEED, fold: bool = True
) -> tuple[Estimate, Seen]:
    """Run a protocol and keep what was asked and answered."""
    session = Session(protocol, lambda i: SimulatedNoise(seed, i))
    population = InlinePopulation(users.split(nodes), seed, fold=fold)
    seen = []
    while session.query is not None:
        query, number = session.query, session.round_index
        summary = population.ask(query, number)
        seen.append((query, number, Summary.merge([summary])))  # a copy: the session wipes its own
        session.advance(summary)
    assert session.estimate is not None
    return session.estimate, seen


@cache
def walked(name: str, number: int) -> tuple[Estimate, Seen]:
    """One configuration's run on one node: made once, for all the laws that look at it."""
    return walk(configured(name)[number], example_users(name))


def walks(name: str) -> Iterator[tuple[Protocol, Estimate, Seen]]:
    """Every configuration, its estimate, and what was asked and answered (a copy for each law)."""
    for number, protocol in enumerate(configured(name)):
        estimate, seen = walked(name, number)
        yield protocol, estimate, [(q, i, Summary.merge([s])) for q, i, s in seen]


def queries_of(name: str) -> list[tuple[Query, int]]:
    return [(q, i) for q, i, _ in walked(name, 0)[1]]


def answer(query: Query, users: Users, number: int, seed: int = SEED) -> Report:
    return query.answer(users, streams(users, seed, query_digest(query, number)))


def assert_same_arrays(a: dict[str, Any], b: dict[str, Any]) -> None:
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].dtype == b[name].dtype
        assert np.array_equal(a[name], b[name]), name


def assert_same_estimate(a: Estimate, b: Estimate, *, exact: bool = True) -> None:
    assert (a.status, a.reason, a.keys) == (b.status, b.reason, b.keys)
    for x, y in ((a.value, b.value), (a.stderr, b.stderr)):
        assert (x is None) == (y is None)
        if x is not None and y is not None:
            same = np.array_equal(x, y) if exact else np.allclose(x, y, rtol=1e-9, atol=1e-9)
            assert same, f"{x} and {y}"


def assert_same_summary(a: Summary, b: Summary, *, exact: bool = True) -> None:
    close = np.array_equal if exact else lambda x, y: np.allclose(x, y, rtol=1e-9, atol=1e-9)
    assert a.n_users == b.n_users
    assert a.sums.keys() == b.sums.keys()
    assert a.keyed.keys() == b.keyed.keys()
    assert a.rows.keys() == b.rows.keys()
    for name in a.sums:
        assert a.sums[name].dtype == b.sums[name].dtype
        assert close(a.sums[name], b.sums[name]), name
    for name in a.keyed:
        assert list(a.keyed[name].keys) == list(b.keyed[name].keys)
        assert close(a.keyed[name].values, b.keyed[name].values), name
    for name in a.rows:
        assert np.array_equal(a.ids, b.ids)
        assert close(a.rows[name], b.rows[name]), name


def integer_valued(seen: Seen) -> bool:
    return all(
        a.dtype.kind in "iub"
        for _, _, s in seen
        for a in [*s.sums.values(), *(k.values for k in s.keyed.values()), *s.rows.values()]
    )


# -- what a protocol is ----------------------------------------------------------------------------


def test_says_what_it_is(protocol_name: str, example: Protocol) -> None:
    cls = type(example)
    assert cls.name == protocol_name
    assert len(cls.paper) > 5
    assert cls.target
    assert cls.__doc__
    assert not cls.__doc__.startswith(f"{cls.__name__}(")  # what @dataclass writes by itself
    assert dataclasses.fields(cls)
    with pytest.raises(dataclasses.FrozenInstanceError):
        example.epsilon = 1.0  # type: ignore[attr-defined]
    assert math.isfinite(example.guarantee.epsilon)
    assert example.claimed == example.guarantee


def test_names_its_truth(protocol_name: str, configurations: list[Protocol]) -> None:
    for protocol in configurations:
        assert isinstance(protocol.estimates, Truth)
        if protocol_name in own_protocols():
            assert protocol.estimates is not Truth.OWN, "declare `estimates`"


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, -math.inf])
def test_refuses_a_bad_epsilon(protocol_name: str, example: Protocol, bad: float) -> None:
    with pytest.raises(ValueError, match=r"epsilon.*(0|nan|-1|inf)"):
        dataclasses.replace(example, epsilon=bad)  # type: ignore[type-var]


# -- the estimate ----------------------------------------------------------------------------------


def test_exact_without_noise(protocol_name: str, configurations: list[Protocol]) -> None:
    """At epsilon = inf, on a population that no clipping touches, the truth comes back.

    But for what the protocol itself says: one that works on bins, say, is off by part of a bin.
    """
    users = example_users(protocol_name)
    for protocol in configurations:
        open_ended = dataclasses.replace(protocol, epsilon=math.inf)  # type: ignore[type-var]
        estimate = walk(open_ended, users)[0]
        assert estimate.status == "ok"
        assert not open_ended.guarantee.private
        truth = open_ended.truth(users)
        size = float(np.abs(truth).sum())
        allowed = open_ended.resolution(users) + 1e-9 * size
        assert open_ended.loss_of(estimate, users, truth) <= allowed


@pytest.mark.parametrize(
    "name", sorted(n for n, c in own_protocols().items() if issubclass(c, MeanTarget))
)
def test_a_mean_of_zero_counts_and_an_infinite_sample_does_not_spread(name: str) -> None:
    """In the truth; which users count must not depend on what their mean is."""
    users, example = protocol_class(name).example_users(), protocol_class(name).example()
    n, T, d = len(users), int(users.n_items()[0]), users.reals.values.shape[1]
    new = np.setdiff1d(np.arange(n + 2, dtype=np.uint64), users.ids)[:1]

    def with_one_more(rows: np.ndarray) -> Users:
        return join([users, Users.from_samples(new, [0, T], rows)])

    zero, infinite = np.zeros((T, d)), np.full((T, d), np.inf)
    infinite[1:] = 0.0
    for protocol in [example, *(dataclasses.replace(example, **c) for c in MORE.get(name, []))]:
        truth = protocol.truth(users)
        assert protocol.truth(with_one_more(zero)) == pytest.approx(truth * n / (n + 1), rel=1e-9)
        found = protocol.truth(with_one_more(infinite))
        high = getattr(protocol, "high", getattr(protocol, "radius", 1.0)) or 1.0
        assert (np.abs(found - truth) <= (np.abs(truth) + high) / (n + 1)).all()
        assert protocol.truth(with_one_more(infinite * np.nan)) == pytest.approx(truth, rel=1e-9)


def test_same_seed_same_estimate(protocol_name: str) -> None:
    """Users, protocol and run are made anew for the second time."""
    users = protocol_class(protocol_name).example_users()
    anew = configured.__wrapped__(protocol_name)
    for protocol, (_, first, _) in zip(anew, walks(protocol_name), strict=True):
        again = walk(protocol, users)[0]
        assert_same_estimate(first, again)
        assert first.public == again.public


def test_different_seeds_different_randomness(
    protocol_name: str, example: Protocol, users: Users
) -> None:
    """Local: the reports differ. Central: what is released differs (for one of three seeds)."""
    query, number = queries_of(protocol_name)[0]
    if query.trust is Trust.LOCAL:
        chosen = users.select(query.cohort)
        a, b = answer(query, chosen, number, 1), answer(query, chosen, number, 2)
        assert any((a.arrays[k] != b.arrays[k]).any() for k in a.arrays)
    else:
        releases = set()
        for seed in (1, 2, 3):
            journal = Journal()
            session = Session(example, lambda i, s=seed: SimulatedNoise(s, i), journal)
            session.run(InlinePopulation([users], seed).ask)
            lines = [x for x in journal._lines if x["kind"] == "release"]
            releases.add(str([x["value"] for x in lines]))
        assert len(releases) > 1


def test_spends_what_it_declares(protocol_name: str) -> None:
    """The ledger's total is at most the guarantee, and in the default mode 0.99 of it at least."""
    for number, (protocol, estimate, _) in enumerate(walks(protocol_name)):
        assert estimate.ledger is not None
        promised = protocol.guarantee
        total = estimate.ledger.spent(promised.delta).epsilon
        assert total <= promised.epsilon * (1 + 1e-9)
        if number == 0:
            assert total > 0.99 * promised.epsilon


def test_an_empty_record_changes_nothing_where_a_protocol_says_so(
    protocol_name: str, configurations: list[Protocol]
) -> None:
    """Null-safe: the same noise gives the same bits, whether a user holds nothing or is not there.

    Under every adjacency that a configuration can be had with; and n is not among what is public.
    """
    users = example_users(protocol_name)
    ids = np.array([(1 << 64) - 1], dtype=np.uint64)
    if users.items is None:
        nobody = Users.from_samples(ids, np.array([0, 0]), users.reals.values[:0])
    else:
        none = {"item": users.counts.item[:0], "count": users.counts.count[:0]}
        items = dataclasses.replace(users.counts, indptr=np.array([0, 0]), **none)
        nobody = Users(ids, items=items)
    more = join([users, nobody])
    known = {id(protocol): estimate for protocol, estimate, _ in walks(protocol_name)}
    for protocol in [*configurations, *under_adjacencies(configurations)]:
        if protocol.null_safe:
            without = known.get(id(protocol)) or walk(protocol, users)[0]
            within = walk(protocol, more)[0]
            assert_same_estimate(without, within)
            assert without.public == within.public
            assert float(len(users)) not in without.public.values()


def under_adjacencies(configurations: list[Protocol]) -> list[Protocol]:
    """Every configuration under every adjacency that it takes, with n public and private."""
    found: list[Protocol] = []
    for protocol in configurations:
        names = {f.name for f in dataclasses.fields(protocol)}
        for adjacency in Adjacency:
            for more in ({}, {"n_users": None}):
                with suppress(ValueError, TypeError):
                    if names >= {"adjacency", *more}:
                        changes: dict[str, Any] = {"adjacency": adjacency.value, **more}
                        made = dataclasses.replace(protocol, **changes)
                        found += [made] if made.guarantee else []
    return found


def test_max_rounds(protocol_name: str) -> None:
    for protocol, _, seen in walks(protocol_name):
        assert 1 <= len(seen) <= protocol.max_rounds


def test_local_scripts_ask_local_queries(protocol_name: str, example: Protocol) -> None:
    for query, _ in queries_of(protocol_name):
        if example.guarantee.trust is Trust.LOCAL:
            assert query.trust is Trust.LOCAL
        assert (query.release.epsilon > 0) == (query.trust is Trust.LOCAL)


# -- a report's row belongs to one user ------------------------------------------------------------


def larger_record(users: Users, row: int) -> Users:
    """The same users, one of them with a thousand times more items or samples."""
    if users.items is not None:
        extra = [f"~{k}" for k in range(1000)]
        old = list(users.vocabulary)
        # the new words come first, so that every item gets another number
        vocabulary = Keys.of([*extra, *old])
        c = users.counts
        owner = np.repeat(np.arange(len(users)), np.diff(c.indptr))
        return Users.from_counts(
            users.ids,
            np.concatenate([owner, np.full(1000, row)]),
            np.concatenate([c.item.astype(np.int64) + 1000, np.arange(1000)]),
            np.concatenate([c.count, np.full(1000, 1000, c.count.dtype)]),
            vocabulary,
        )
    s = users.reals
    parts = [s.values[a:b] for a, b in pairwise(s.indptr)]
    parts[row] = np.tile(parts[row], (1000, 1)) + 0.01
    indptr = np.cumsum([0, *map(len, parts)])
    return Users.from_samples(users.ids, indptr, np.concatenate(parts))


def test_a_row_depends_on_its_user_alone(protocol_name: str) -> None:
    users = example_users(protocol_name)
    for _, _, seen in walks(protocol_name):
        for query, number, _ in seen:
            whole = answer(query, users, number)
            rows = {int(u): whole.row(i) for i, u in enumerate(whole.ids)}
            n = len(users)
            others = [
                users.take(np.arange(n)[::-1]),
                users.slice(0, 1),
                users.slice(1, n // 3),
                users.slice(n // 3, n),
            ]
            for batch in others:
                report = answer(query, batch, number)
                for i, u in enumerate(batch.ids):
                    assert_same_arrays(report.row(i), rows[int(u)])
            changed = answer(query, larger_record(users, 5), number)
            assert changed.ids[5] == users.ids[5]
            for i, u in enumerate(changed.ids):
                if i != 5:
                    assert_same_arrays(changed.row(i), rows[int(u)])


def test_an_honest_report_passes_the_check(protocol_name: str) -> None:
    users = example_users(protocol_name)
    for _, _, seen in walks(protocol_name):
        for query, number, _ in seen:
            for batch in (users, users.slice(0, 1), users.slice(0, 0)):
                query.check(answer(query, batch, number))
            query.check(answer(query, larger_record(users, 5), number))


# -- folding and packing ---------------------------------------------------------------------------


def test_fold_is_additive(protocol_name: str) -> None:
    users = example_users(protocol_name)
    for _, _, seen in walks(protocol_name):
        for query, number, summary in seen:
            chosen = users.select(query.cohort)
            n = len(chosen)
            exact = integer_valued([(query, number, summary)]) or not summary.sums
            for cuts in ([0, n], [0, 1, n], [0, n // 2, n], [0, n // 3, n // 3, n - 1, n]):
                batches = [chosen.slice(a, b) for a, b in pairwise(cuts)]
                parts = [query.fold(answer(query, b, number)) for b in batches]
                assert_same_summary(Summary.merge(parts), summary, exact=exact)
                assert_same_summary(Summary.merge(parts[::-1]), summary, exact=exact)


def test_a_node_with_nobody_in_the_cohort_adds_nothing(protocol_name: str) -> None:
    """On each of the three ways to a summary; the aggregate path is for simulations."""
    users = example_users(protocol_name)
    nobody = users.slice(0, 0)
    for _, _, seen in walks(protocol_name):
        for query, number, summary in seen:
            digest = query_digest(query, number)
            ways = [
                query.fold(answer(query, nobody, number)),
                query.answer_folded(nobody, lambda u, d=digest: streams(u, SEED, d)),
            ]
            if query.trust is Trust.CENTRAL or type(query).draw_summary is not Query.draw_summary:
                ways.append(query.draw_summary(nobody, np.random.default_rng(SEED)))
            for empty in ways:
                query.check_summary(empty)
                assert_same_summary(Summary.merge([empty, summary, empty]), summary)


def repeat_users(users: Users, times: int) -> Users:
    copies = []
    for k in range(times):
        ids = users.ids ^ np.uint64(k << 48)
        order = np.argsort(ids)
        copies.append(dataclasses.replace(users, ids=ids).take(order))
    return join(copies)


def test_answer_folded_equals_folding_chunk_by_chunk(protocol_name: str) -> None:
    """Bit for bit, also over more than one chunk."""
    small = example_users(protocol_name)
    many = repeat_users(small, CHUNK // len(small) + 2)
    assert len(many) > CHUNK
    for _, _, seen in walks(protocol_name):
        for query, number, _ in seen[:2]:
            digest = query_digest(query, number)
            for users in (many, small, small.slice(0, 0)):
                fused = query.answer_folded(users, lambda b, d=digest: streams(b, SEED, d))
                chunks = list(users.blocks(CHUNK)) or [users]
                parts = [query.fold(answer(query, c, number)) for c in chunks]
                assert_same_summary(fused, Summary.merge(parts))
                query.check_summary(fused)


def test_packing_does_not_matter(protocol_name: str, configurations: list[Protocol]) -> None:
    """Integer-valued messages: bit-identical for any number of nodes; reals: up to rounding.

    A node for each user where the example, or the first of the other kind, is asked.
    """
    users = example_users(protocol_name)
    kinds = set()
    for protocol, one, seen in walks(protocol_name):
        exact = integer_valued(seen)
        for nodes in (7,) if exact in kinds else (7, len(users)):
            many = walk(protocol, users, nodes=nodes)[0]
            assert_same_estimate(one, many, exact=exact)
        kinds.add(exact)
    whole = [PoissonCounts.name, CentralDensity.name]
    whole += ["ragged-distribution", "distribution", "box-mean", "central-mean"]
    local = configurations[0].guarantee.trust is Trust.LOCAL and protocol_name != "naive-mean"
    if protocol_name in whole or local:  # integers, always
        assert kinds == {True}
    elif protocol_name in ("few-users-mean", "few-users-distribution"):  # real rows, always
        assert kinds == {False}
    elif protocol_name in MORE:
        assert kinds == {True, False}


def test_server_side_folding_agrees(protocol_name: str) -> None:
    """Reports of three nodes, and the sums of one."""
    users = example_users(protocol_name)
    for protocol, folded, seen in walks(protocol_name):
        unfolded = walk(protocol, users, nodes=3, fold=False)[0]
        assert_same_estimate(folded, unfolded, exact=integer_valued(seen))


# -- the wire --------------------------------------------------------------------------------------


def travel(record: RecordDict) -> RecordDict:
    """As Flower sends it: to protobuf bytes and back."""
    head = ConfigRecord(dict(record["fedhist"]))
    arrays = ArrayRecord(
        {
            k: Array(a.dtype, tuple(a.shape), a.stype, bytes(a.data))
            for k, a in record["fedhist.arrays"].items()
        }
    )
    return RecordDict({"fedhist": head, "fedhist.arrays": arrays})


def test_query_survives_the_wire(protocol_name: str) -> None:
    users = example_users(protocol_name)
    for _, _, seen in walks(protocol_name):
        for query, number, _ in seen:
            for fold in (True, False):
                question = decode_question(travel(encode_question(query, number, fold=fold)))
                assert (question.round_index, question.fold) == (number, fold)
                assert type(question.query) is type(query)
                text, arrays = encode_fields(query)
                text2, arrays2 = encode_fields(question.query)
                assert text == text2
                assert_same_arrays(arrays, arrays2)
                assert question.digest == query_digest(query, number)
                assert query_digest(question.query, number) == question.digest
                assert query_digest(query, number + 1) != question.digest
            sample = users.select(query.cohort)
            here, there = answer(query, sample, number), answer(question.query, sample, number)
            assert_same_arrays(dict(here.arrays), dict(there.arrays))
            assert_same_arrays(dict(here.ragged), dict(there.ragged))


def test_answers_survive_the_wire(protocol_name: str) -> None:
    users = example_users(protocol_name)
    for _, _, seen in walks(protocol_name):
        for query, number, summary in seen:
            digest = query_digest(query, number)
            got = decode_answer(travel(encode_answer(summary, 3, digest)))
            assert (got.node, got.digest) == (3, digest)
            assert isinstance(got.body, Summary)
            assert_same_summary(got.body, summary)
            report = answer(query, users.select(query.cohort), number)
            got = decode_answer(travel(encode_answer(report, 4, digest)))
            assert isinstance(got.body, Report)
            assert_same_arrays(dict(got.body.arrays), dict(report.arrays))
            assert_same_arrays(dict(got.body.ragged), dict(report.ragged))
            assert_same_summary(query.fold(got.body), query.fold(report))
            for name, a in {**report.arrays, **report.ragged}.items():
                assert np.array_equal(unpack_array(name, pack_array(a)), a)


def test_query_holds_no_seed_and_no_users(example: Protocol, users: Users) -> None:
    """Everything in a query can be encoded as public data, and no field depends on the seed."""
    first = walk(example, users, seed=1)[1]
    other = walk(example, users, seed=2)[1]
    text, arrays = encode_fields(first[0][0])
    text2, arrays2 = encode_fields(other[0][0])
    assert text == text2
    assert_same_arrays(arrays, arrays2)
    for query, _, _ in first:
        for f in dataclasses.fields(query):  # type: ignore[arg-type]
            assert "seed" not in f.name
            assert not isinstance(getattr(query, f.name), Users | SeededStreams)
        assert dataclasses.is_dataclass(query)
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(query, dataclasses.fields(query)[0].name, None)


def test_fields_of_another_type_are_refused(protocol_name: str) -> None:
    """Each field in turn gets values of other types: WireError, or the same query again."""
    for query, _ in queries_of(protocol_name)[:2]:
        text, arrays = encode_fields(query)
        scalars = json.loads(text)
        types = get_type_hints(type(query))
        for name in scalars:
            for bad in ("text", [1], {"a": 1}, {"tuple": [1, "x"]}, {"array": "float64"}, 10**400):
                both_integers = isinstance(bad, int) and isinstance(scalars[name], int)
                free_text = isinstance(bad, str) and types[name] is str
                if bad == scalars[name] or both_integers or free_text:
                    continue
                broken = json.dumps(scalars | {name: bad})
                with pytest.raises(WireError):
                    decode_query(query.wire_name, broken, arrays)
            without = {k: v for k, v in scalars.items() if k != name}
            with pytest.raises(WireError):
                decode_query(query.wire_name, json.dumps(without), arrays)
            with pytest.raises(WireError):
                decode_query(query.wire_name, text, arrays | {"more": np.zeros(3)})


def corruptions(query: Query, summary: Summary) -> list[Summary]:
    """Summaries that no honest population of that size can send."""
    bad: list[Summary] = []
    swap = dataclasses.replace
    limits = query.bounds(summary.n_users)
    for name, a in summary.sums.items():
        others = {k: v for k, v in summary.sums.items() if k != name}
        huge = a.copy()
        huge.flat[0] = 2**62 if a.dtype.kind in "iu" else 1e300
        bad.append(swap(summary, sums=others))
        if math.isfinite(limits[name].high):  # a sum of Laplace reports has no bound
            bad.append(swap(summary, sums={**others, name: huge}))
        bad.append(swap(summary, sums={**others, name: a[None]}))
        bad.append(swap(summary, sums={**others, name: np.concatenate([a, a])}))
        bad.append(swap(summary, sums={**others, name: a.astype(str)}))
        bad.append(swap(summary, sums={**others, name: a.astype(object)}))
        bad.append(swap(summary, sums={**others, name: a.astype(complex)}))
        bad.append(swap(summary, sums={**summary.sums, "more": a}))
        bad.append(swap(summary, n_users=0) if np.any(a) else bad[0])
        if a.dtype.kind == "f":
            for x in (np.nan, np.inf, -np.inf):
                broken = a.copy()
                broken.flat[-1] = x
                bad.append(swap(summary, sums={**others, name: broken}))
            bad.append(swap(summary, sums={**others, name: a.astype(np.int64)}))
        else:
            bad.append(swap(summary, sums={**others, name: a.astype(np.float64)}))
        # the same name in another part must not hide the first
        n = summary.n_users
        rows = {name: np.resize(a, (n, *a.shape[1:]))}
        bad.append(swap(summary, sums={name: huge}, rows=rows, ids=np.arange(n, dtype=np.uint64)))
    for name, part in summary.keyed.items():
        bad.append(swap(summary, keyed={}))
        bad.append(swap(summary, keyed={name: swap(part, values=part.values + 2**60)}))
        bad.append(swap(summary, keyed={name: swap(part, values=-part.values)}))
        bad.append(swap(summary, keyed={name: swap(part, values=part.values * 1.0)}))
        bad.append(swap(summary, keyed={}, sums={name: part.values}))
    for name, a in summary.rows.items():
        broken = a.copy()
        broken[0] = np.nan
        bad.append(swap(summary, rows={name: broken}))
        bad.append(swap(summary, rows={name: a + 1e9}))
        bad.append(swap(summary, rows={}, ids=None))
        bad.append(swap(summary, rows={name: a, "more": a}))
    return bad


def test_corrupted_summaries_are_refused(protocol_name: str) -> None:
    for _, _, seen in walks(protocol_name):
        for query, _, summary in seen[:2]:
            query.check_summary(summary)
            found = corruptions(query, summary)
            assert len(found) >= 4
            for corrupted in found:
                with pytest.raises(WireError):
                    query.check_summary(corrupted)


# -- checkpoints -----------------------------------------------------------------------------------


class CountingNoise:
    """The simulated noise, and which draws were made."""

    grade = "simulated"

    def __init__(self) -> None:
        self.drawn: list[int] = []

    def __call__(self, index: int) -> NoiseSource:
        counting, source = self, SimulatedNoise(SEED, index)

        class Counted(NoiseSource):
            grade = source.grade

            def laplace(self, shape: Shape, scale: float) -> Any:
                counting.drawn.append(index)
                return source.laplace(shape, scale)

            def gaussian(self, shape: Shape, std: float) -> Any:
                counting.drawn.append(index)
                return source.gaussian(shape, std)

            def discrete_laplace(self, shape: Shape, scale: float) -> Any:
                counting.drawn.append(index)
                return source.discrete_laplace(shape, scale)

            def discrete_gaussian(self, shape: Shape, std: float) -> Any:
                counting.drawn.append(index)
                return source.discrete_gaussian(shape, std)

            def exponential(self, logits: Any) -> int:
                counting.drawn.append(index)
                return source.exponential(logits)

            def exponential_rows(self, logits: Any) -> Any:
                counting.drawn.append(index)
                return source.exponential_rows(logits)

            def generator(self) -> np.random.Generator:
                counting.drawn.append(index)
                return source.generator()

        return Counted()


def journalled_run(
    protocol: Protocol, users: Users, folder: Path
) -> tuple[Estimate, list[tuple[int, str]], list[int]]:
    session = Session(protocol, noise, Journal(folder))
    population = InlinePopulation([users], SEED)
    asked, exact_files = [], []
    while session.query is not None:
        query, number = session.query, session.round_index
        asked.append((number, query_digest(query, number)))
        session.advance(population.ask(query, number))
        exact_files.append(len(list(folder.glob("exact-*"))))
    assert session.estimate is not None
    return session.estimate, asked, exact_files


def released(folder: Path) -> set[int]:
    whole, _, _ = (folder / "journal.jsonl").read_bytes().rpartition(b"\n")
    return released_of(whole.splitlines())


def test_replay_from_every_prefix(
    protocol_name: str, configurations: list[Protocol], tmp_path: Path
) -> None:
    """Cut the journal after each line, and with a torn last line: same queries, same estimate.

    What is journalled is never drawn again. Configurations beside the example are cut after every
    third line, each from another one on, and after the last.
    """
    users = example_users(protocol_name)
    for number, protocol in enumerate(configurations):
        folder = tmp_path / f"whole-{number}"
        estimate, asked, exact_files = journalled_run(protocol, users, folder)
        assert exact_files == [0] * len(exact_files)
        assert not list(folder.glob("*.part"))
        assert all(f.stat().st_mode & 0o777 == 0o600 for f in folder.iterdir())
        lines = (folder / "journal.jsonl").read_bytes().splitlines(keepends=True)
        cuts = range(number % 3, len(lines), 3 if number else 1)
        for k in (*cuts, len(lines)):
            for torn in (b"", b'{"kind": "rel') if k % 4 == 2 else (b"",):
                cut = tmp_path / f"cut-{number}"
                shutil.rmtree(cut, ignore_errors=True)
                cut.mkdir()
                (cut / "journal.jsonl").write_bytes(b"".join(lines[:k]) + torn)
                last = json.loads(lines[k - 1])["chain"] if k else ""
                (cut / "tally.json").write_text(json.dumps({"entries": k, "chain": last}))
                before = released(cut) if not torn else released_of(lines[:k])
                counting = CountingNoise()
                session = Session.replay(protocol, counting, str(cut))
                if session.query is not None:
                    here = (session.round_index, query_digest(session.query, session.round_index))
                    assert here == asked[session.round_index]
                again = session.run(InlinePopulation([users], SEED).ask)
                assert_same_estimate(again, estimate)
                assert not before & set(counting.drawn)
                assert len(counting.drawn) == len(set(counting.drawn))
                assert released(cut) == released(folder)
                assert not list(cut.glob("exact-*"))


def released_of(lines: list[bytes]) -> set[int]:
    return {x["index"] for x in map(json.loads, lines) if x["kind"] == "release"}


def test_replay_from_every_crash(
    example: Protocol, users: Users, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stop after each write to the disk, exact summaries included, and go on from there."""
    snapshots: list[Path] = []
    write = module.write_private
    folder = tmp_path / "run"

    def write_and_copy(path: Path, data: bytes, *, append: bool = False) -> None:
        write(path, data, append=append)
        if path.parent == folder:
            snapshots.append(tmp_path / f"snapshot-{len(snapshots)}")
            shutil.copytree(folder, snapshots[-1])

    for writer in (module, chained_log):
        monkeypatch.setattr(writer, "write_private", write_and_copy)
    estimate, asked, _ = journalled_run(example, users, folder)
    exact = [s for s in snapshots if list(s.glob("exact-*.json"))]
    assert bool(exact) == (example.guarantee.trust is Trust.CENTRAL)
    assert len(snapshots) >= 2 * len(asked)
    for snapshot in snapshots:
        for file in snapshot.glob("exact-*.json"):
            assert file.stat().st_mode & 0o777 == 0o600
        before = released(snapshot) if (snapshot / "journal.jsonl").exists() else set()
        counting = CountingNoise()
        session = Session.replay(example, counting, str(snapshot))
        again = session.run(InlinePopulation([users], SEED).ask)
        assert_same_estimate(again, estimate)
        assert not before & set(counting.drawn)
        assert not list(snapshot.glob("exact-*"))


def test_a_journal_of_another_configuration_is_refused(
    example: Protocol, users: Users, tmp_path: Path
) -> None:
    """Another epsilon must not continue this run (its queries or its releases would mix)."""
    journalled_run(example, users, tmp_path)
    other = dataclasses.replace(example, epsilon=example.guarantee.epsilon * 2)  # type: ignore
    with pytest.raises(FedhistError, match="another"):
        Session.replay(other, noise, str(tmp_path))
