"""Aggregate trust from the script to the total: what leaves, what is added up, what is refused."""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import fedhist as fh
from clients.answers import fold_node
from clients.frequency_oracles.oracle_votes import OracleReports
from clients.histograms.queries import ClippedCounts
from fedhist.model.aggregated import Aggregated
from fedhist.model.codec import decode_query, encode_fields, query_digest
from fedhist.protocols import BoundedHistogram, ItemHistogram
from server.intake import Intake
from server.session.journal import Journal
from server.session.session import Session
from simulations.runs.options import Options
from simulations.runs.run import execute
from simulations.runtimes.inline import InlinePopulation

DOMAIN = fh.Keys.of(["chai", "maté", "rooibos", "tea", "お茶"])
WHO = fh.Aggregation(10)
GAUSS = BoundedHistogram(DOMAIN, 1.0, 16.0, 1e-6, grid=1 / 64, trust=WHO)
ITEMS = ItemHistogram(DOMAIN, 1.0, nonneg=False, trust=WHO)
USERS = BoundedHistogram.example_users()


def noise(index: int) -> Any:
    """Nothing that could be drawn from."""
    return object()


noise.grade = "simulated"


def asked(protocol: fh.Protocol) -> Aggregated:
    query = Session(protocol, noise).query
    assert isinstance(query, Aggregated)
    return query


def words_of(query: Aggregated, n_nodes: int = 10, seed: int = 3) -> list[fh.Summary]:
    digest = query_digest(query, 0)
    return [fold_node(query, u, seed, digest, i) for i, u in enumerate(USERS.split(n_nodes))]


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("sign", [1, -1])
def test_totals_lift_up_to_half_the_modulus(bits: int, sign: int) -> None:
    """In whatever pieces they come."""
    query = asked(dataclasses.replace(ITEMS, trust=fh.Aggregation(2, 0.0, 0.0, 1)))
    assert query.share.bits == 32  # min(count, 2^30) of one user, and noise
    if bits == 64:
        query = dataclasses.replace(query, share=dataclasses.replace(query.share, bits=64))
    most = sign * ((1 << (bits - 1)) - 1)
    rng = np.random.default_rng(bits)
    one = rng.integers(0, 1 << bits, 5, dtype=np.uint64)
    other = np.array([(most - int(x)) % (1 << bits) for x in one], dtype=np.uint64)
    parts = [fh.Summary(0, {"counts": x.astype(query.modular)}) for x in (one, other)]
    lifted = query.lift(fh.Summary.merge(parts), 2)
    assert lifted.sums["counts"].tolist() == [most] * 5
    assert lifted.sums["counts"].dtype == np.int64


def test_a_modulus_without_room_is_refused() -> None:
    who = fh.Aggregation(10, max_users=1 << 20)
    query = asked(dataclasses.replace(GAUSS, trust=who))
    assert query.share.bits == 32
    least = next(n for n in range(1 << 20, 1 << 22, 1 << 14) if _bits(n) == 64)
    small = dataclasses.replace(query.share, max_users=least, bits=32)
    with pytest.raises(ValueError, match=rf"do not fit into 32 bits.*max_users = {least}"):
        Aggregated(query.query, small)
    with pytest.raises(ValueError, match="do not fit into 64 bits"):
        dataclasses.replace(ITEMS, trust=fh.Aggregation(10, max_users=1 << 40))


def _bits(max_users: int) -> int:
    who = fh.Aggregation(10, max_users=max_users)
    return asked(dataclasses.replace(GAUSS, trust=who)).share.bits


def test_the_quorum_is_checked_before_anything_is_looked_at() -> None:
    query = asked(GAUSS)
    digest, words = query_digest(query, 0), words_of(query)
    for answered in (10, 9, 8, 1):
        intake = Intake(query, digest)
        for i, summary in enumerate(words[:answered]):
            intake.use(i, digest, summary)
        if answered >= 9:
            assert intake.total(10).summary.sums["counts"].dtype == np.int64
            continue
        for least in (None, 1):  # a run may ask for more than the quorum, not for less
            with pytest.raises(fh.MissingReplies, match=f"{10 - answered} of 10"):
                intake.total(10, least)
    with pytest.raises(fh.MissingReplies, match="9"):
        query.lift(fh.Summary.merge(words[:8]), 8)
    with pytest.raises(fh.WireError, match="11"):
        query.lift(fh.Summary.merge([*words, words[0]]), 11)
    few = dataclasses.replace(query, share=dataclasses.replace(query.share, max_users=39))
    with pytest.raises(fh.WireError, match="40"):
        few.lift(fh.Summary.merge(words), 10)


def test_a_message_of_another_kind_is_left_out() -> None:
    query = asked(GAUSS)
    counts = words_of(query)[0].sums["counts"]
    one, x = np.zeros(1, np.uint64), np.zeros((1, 5), dtype=np.int64)
    bad = [
        fh.Summary(4, {"counts": counts.view(np.int64)}),
        fh.Summary(4, {"counts": counts[:4]}),
        fh.Summary(4, {"other": counts}),
        fh.Summary(1, rows={"counts": x}, ids=one),
        fh.Report(one),
        fh.Summary(1 << 33, {"counts": counts}),
    ]
    for body in bad:
        with pytest.raises(fh.WireError):
            Intake(query, "x", "stop").use(0, "x", body)


def test_a_total_that_no_honest_nodes_give_is_refused() -> None:
    query = asked(GAUSS)
    most = query.tail + 40 * 16 * 64
    for size in (most, -query.tail):
        query.check_summary(fh.Summary(40, {"counts": np.full(5, size)}))
    for size in (most + 2, -most):
        with pytest.raises(fh.WireError):
            query.check_summary(fh.Summary(40, {"counts": np.full(5, size)}))


def test_the_number_of_users_does_not_travel_where_it_is_private() -> None:
    protocol = dataclasses.replace(GAUSS, adjacency="add-remove-user")
    query = asked(protocol)
    assert all(words.n_users == 0 for words in words_of(query))
    with pytest.raises(fh.WireError, match="names 4 users, whose number is private"):
        query.check_part(dataclasses.replace(words_of(query)[0], n_users=4))
    estimate = execute(protocol, USERS, Options(seed=1)).estimate
    assert "n_users" not in estimate.public

    @dataclass(frozen=True)
    class Divides(BoundedHistogram):
        null_safe: ClassVar[bool] = False

    with pytest.raises(ValueError, match="uses the number of users, which nodes do not send"):
        Divides(DOMAIN, 1.0, 16.0, adjacency="add-remove-user", grid=0.5, trust=WHO)


def test_what_has_no_integer_sums_is_refused() -> None:
    with pytest.raises(ValueError, match="grid"):
        dataclasses.replace(GAUSS, grid=16.0)
    share = asked(GAUSS).share
    for query in (ClippedCounts(DOMAIN, 16.0, 1, 0.5), OracleReports(DOMAIN, 1.0, kind="unary")):
        with pytest.raises(ValueError, match="sums"):  # of the other norm; of reports
            Aggregated(query, share)


def test_a_query_around_a_query_travels_and_only_once() -> None:
    query = asked(GAUSS)
    text, arrays = encode_fields(query)
    result = decode_query("aggregated", text, arrays)
    assert query_digest(result, 0) == query_digest(query, 0)
    with pytest.raises(fh.WireError, match="around another"):
        decode_query("aggregated", text.replace("clipped-counts", "aggregated"), arrays)
    with pytest.raises(fh.WireError):  # more noise than is stated must not be less
        decode_query("aggregated", text.replace('\\"parties\\":10', '\\"parties\\":0'), arrays)


def test_nodes_are_as_many_as_the_parties() -> None:
    with pytest.raises(ValueError, match="9"):
        execute(GAUSS, USERS, Options(seed=1, nodes=9))
    with pytest.raises(fh.FedhistError, match="9"):
        InlinePopulation(USERS.split(9), 1).ask(asked(GAUSS), 0)
    with pytest.raises(ValueError, match="fold"):
        execute(GAUSS, USERS, Options(seed=1, fold=False))


def test_it_is_charged_when_it_leaves_and_journalled_as_it_is(tmp_path: Path) -> None:
    session = Session(GAUSS, noise, Journal(tmp_path))
    (entry,) = session.ledger.entries
    assert (entry.label, entry.release.epsilon) == ("clipped-counts, by shares", 1.0)
    replaced = entry.under(fh.Adjacency.REPLACE_USER).release
    assert replaced.rho == pytest.approx(2 * entry.release.rho)  # sqrt 2 in the l2 norm
    assert session.ledger.aggregation == "ideal (simulated)"
    population = InlinePopulation(USERS.split(10), 7)
    summary = population.ask(session.query, 0)
    kept = summary.sums["counts"].copy()
    session.advance(summary)
    assert session.ledger.entries == (entry,)
    np.testing.assert_array_equal(summary.sums["counts"], kept)  # a script may keep what is private
    assert not list(tmp_path.glob("exact-*"))
    lines = (tmp_path / "journal.jsonl").read_text()
    assert '"kind":"summary"' in lines
    assert '"kind":"exact"' not in lines
    again = Session(GAUSS, noise, Journal(tmp_path))
    assert again.estimate is not None
    assert session.estimate is not None
    np.testing.assert_array_equal(again.estimate.value, session.estimate.value)


@dataclass(frozen=True)
class Scripted(BoundedHistogram):
    """Releases its totals as it is told to."""

    release: Callable[[fh.Curator, Any], Any] = lambda server, counts: counts

    def rounds(self, server: fh.Curator) -> fh.Script:
        summary = yield self.query
        return fh.Estimate.ok(self.release(server, summary.sums["counts"]))


S = GAUSS.query.sensitivity(fh.Adjacency.ZERO_OUT_USER)


def released(release: Callable[[fh.Curator, Any], Any]) -> fh.Estimate:
    """Run a script of GAUSS's budget that releases its totals so."""
    session = Session(GAUSS, noise)
    protocol = Scripted(DOMAIN, 1.0, 16.0, 1e-6, grid=1 / 64, trust=WHO, release=release)
    session._script = protocol.rounds(session._curator)
    next(session._script)
    return session.run(InlinePopulation(USERS.split(10), 1).ask)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("discrete_gaussian", {"l2_sensitivity": S, "epsilon": 0.5, "delta": 1e-6}),
        ("discrete_gaussian", {"l2_sensitivity": S, "epsilon": 1.0, "delta": 1e-7}),
        ("discrete_gaussian", {"l2_sensitivity": 1.1 * S, "epsilon": 1.0, "delta": 1e-6}),
        ("discrete_laplace", {"l1_sensitivity": S, "epsilon": 1.0}),
        ("laplace", {"l1_sensitivity": S, "epsilon": 1.0}),
        ("gaussian", {"l2_sensitivity": S, "epsilon": 1.0, "delta": 1e-6}),
        ("gaussian_zcdp", {"l2_sensitivity": S, "rho": 0.01, "discrete": True}),
        ("exponential", {"sensitivity": S, "epsilon": 1.0}),
    ],
)
def test_the_curator_releases_what_the_nodes_have_noised_and_nothing_else(
    name: str, given: dict[str, Any]
) -> None:
    right = {"l2_sensitivity": S, "epsilon": 1.0, "delta": 1e-6}
    assert released(lambda server, x: server.discrete_gaussian(x, **right)).status == "ok"
    with pytest.raises(fh.FedhistError):
        released(lambda server, x: getattr(server, name)(x, **given))


@dataclass(frozen=True)
class Steps(BoundedHistogram):
    """Asks the same totals several times, within one budget."""

    steps: int = 3
    asked: int = 3

    @property
    def max_rounds(self) -> int:
        return self.asked

    def asks(self, query: fh.Query, round_index: int) -> fh.Query:
        place = min(round_index, self.steps - 1)
        return self.shared(query, self.epsilon, self.delta, rounds=self.steps, place=place)

    def rounds(self, server: fh.Curator) -> fh.Script:
        release = server.gaussian_series(
            self.steps, epsilon=self.epsilon, delta=self.delta, discrete=True
        )
        result = []
        for _ in range(self.asked):
            summary = yield self.query
            result.append(release(summary.sums["counts"], S))
        return fh.Estimate.ok(np.array(result))


def test_a_series_is_paid_for_once() -> None:
    protocol = Steps(DOMAIN, 1.0, 16.0, 1e-6, grid=1 / 64, trust=WHO)
    session = Session(protocol, noise)
    estimate = session.run(InlinePopulation(USERS.split(10), 1).ask)
    assert len(session.ledger.entries) == 1
    assert len({tuple(row) for row in estimate.value}) == 3
    law = asked(protocol).noise
    assert law.std == pytest.approx(math.sqrt((3 * 4.2247**2 * S**2 + 4) * 10 / 8), rel=1e-3)
    more = dataclasses.replace(protocol, asked=4)
    with pytest.raises(fh.BudgetExceeded, match="paid for 3"):
        Session(more, noise).run(InlinePopulation(USERS.split(10), 1).ask)


def test_a_series_is_asked_of_the_users_who_have_paid() -> None:
    @dataclass(frozen=True)
    class Halves(Steps):
        def asks(self, query: fh.Query, round_index: int) -> fh.Query:
            half = fh.Cohort(1, round_index / 2, (round_index + 1) / 2)
            return super().asks(dataclasses.replace(query, cohort=half), round_index)

    halves = Halves(DOMAIN, 1.0, 16.0, 1e-6, grid=1 / 64, trust=WHO, steps=2, asked=2)
    with pytest.raises(fh.FedhistError, match="paid for by"):
        Session(halves, noise).run(InlinePopulation(USERS.split(10), 1).ask)


def test_nobody_promises_more_than_is_asked_for() -> None:
    @dataclass(frozen=True)
    class Promises(BoundedHistogram):
        def asks(self, query: fh.Query, round_index: int) -> fh.Query:
            return query

    with pytest.raises(fh.FedhistError, match="promises aggregate privacy, but 'clipped-counts'"):
        Session(Promises(DOMAIN, 1.0, 16.0, 1e-6, grid=0.5, trust=WHO), noise)


def test_a_series_that_the_nodes_have_not_noised_is_refused() -> None:
    given = {"epsilon": 1.0, "delta": 1e-6, "discrete": True}
    with pytest.raises(fh.FedhistError):
        released(lambda server, x: server.gaussian_series(2, **given)(x, S))
