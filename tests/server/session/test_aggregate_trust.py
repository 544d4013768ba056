"""Aggregate trust from the script to the total: what leaves, what is added up, what is refused."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from clients.answers import fold_node
from clients.frequency_oracles.oracle_votes import OracleReports
from clients.histograms.queries import ClippedCounts
from fedhist.base.arrays import Bounds
from fedhist.base.errors import BudgetExceeded, FedhistError, MissingReplies, WireError
from fedhist.flower.wire import decode_question, encode_question
from fedhist.model.aggregated import Aggregated
from fedhist.model.codec import decode_query, encode_fields, protocol_digest, query_digest
from fedhist.model.protocol import Estimate, Protocol, Script
from fedhist.model.query import Query, Report, Summary
from fedhist.model.share import Share
from fedhist.privacy.aggregation import Aggregation
from fedhist.privacy.guarantee import Adjacency, Guarantee, Trust
from fedhist.protocols import BoundedHistogram, ItemHistogram
from fedhist.users.keys import Keys
from server.intake import Intake
from server.session.curator import Curator
from server.session.journal import Journal
from server.session.session import Session
from simulations.runs.options import Options
from simulations.runs.over_grid import run_over_grid
from simulations.runs.run import execute, open_session
from simulations.runtimes.inline import InlinePopulation

DOMAIN = Keys.of(["chai", "maté", "rooibos", "tea", "お茶"])
WHO = Aggregation(10)
GAUSS = BoundedHistogram(DOMAIN, 1.0, 16.0, 1e-6, grid=1 / 64, trust=WHO)
LAPLACE = BoundedHistogram(
    DOMAIN, 1.0, 16.0, adjacency="replace-user", grid=1 / 8, nonneg=False, trust=WHO
)
ITEMS = ItemHistogram(DOMAIN, 1.0, nonneg=False, trust=WHO)
CASES = [GAUSS, LAPLACE, ITEMS]
USERS = BoundedHistogram.example_users()


def noise(index: int) -> Any:
    """Nothing that could be drawn from."""
    return object()


noise.grade = "simulated"  # type: ignore[attr-defined]


def asked(protocol: Protocol) -> Aggregated:
    query = Session(protocol, noise).query
    assert isinstance(query, Aggregated)
    return query


def words_of(query: Aggregated, n_nodes: int = 10, seed: int = 3) -> list[Summary]:
    digest = query_digest(query, 0)
    return [fold_node(query, u, seed, digest, i) for i, u in enumerate(USERS.split(n_nodes))]


@pytest.mark.parametrize("protocol", CASES)
def test_every_runtime_gives_the_same_bits(protocol: Protocol) -> None:
    options = Options(seed=5, nodes=10)
    here = execute(protocol, USERS, options).estimate
    session, seed = open_session(protocol, options)
    there = run_over_grid(session, USERS, 10, seed, options).estimate  # Flower's messages
    np.testing.assert_array_equal(here.value, there.value)
    assert here.public == there.public
    other = execute(protocol, USERS, dataclasses.replace(options, seed=6)).estimate
    assert not np.array_equal(here.value, other.value)


@pytest.mark.parametrize("protocol", CASES)
def test_a_total_is_the_exact_sum_and_every_share(protocol: Any) -> None:
    """A node without users adds a share as well; the noise is what is left of the total."""
    query = asked(protocol)
    words = [*words_of(query, 9), fold_node(query, USERS.slice(0, 0), 3, query_digest(query, 0), 9)]
    assert words[-1].n_users == 0
    assert words[-1].sums["counts"].any() or protocol is ITEMS  # whose shares are 0 as a rule
    total = query.lift(Summary.merge(words), 10)
    exact = query.query.answer_folded(USERS, lambda _: None)  # type: ignore[arg-type, return-value]
    shares = [fold_node(query, USERS.slice(0, 0), 3, query_digest(query, 0), i) for i in range(10)]
    left = query.lift(Summary.merge(shares), 10).sums["counts"]
    np.testing.assert_array_equal(total.sums["counts"], exact.sums["counts"] + left)
    assert total.n_users == len(USERS)


def test_without_noise_the_total_is_exact() -> None:
    for protocol in CASES:
        open_ended = dataclasses.replace(protocol, epsilon=math.inf)
        estimate = execute(open_ended, USERS, Options(seed=1)).estimate
        np.testing.assert_array_equal(estimate.value, open_ended.truth(USERS))
        assert not open_ended.guarantee.private


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("sign", [1, -1])
def test_totals_lift_up_to_half_the_modulus(bits: int, sign: int) -> None:
    """In whatever pieces they come."""
    query = asked(dataclasses.replace(ITEMS, trust=Aggregation(2, 0.0, 0.0, 1)))
    assert query.share.bits == 32  # min(count, 2^30) of one user, and noise
    if bits == 64:
        query = dataclasses.replace(query, share=dataclasses.replace(query.share, bits=64))
    most = sign * ((1 << (bits - 1)) - 1)
    rng = np.random.default_rng(bits)
    one = rng.integers(0, 1 << bits, 5, dtype=np.uint64)
    other = np.array([(most - int(x)) % (1 << bits) for x in one], dtype=np.uint64)
    parts = [Summary(0, {"counts": x.astype(query.modular)}) for x in (one, other)]
    lifted = query.lift(Summary.merge(parts), 2)
    assert lifted.sums["counts"].tolist() == [most] * 5
    assert lifted.sums["counts"].dtype == np.int64


def test_a_modulus_without_room_is_refused() -> None:
    who = Aggregation(10, max_users=1 << 20)
    query = asked(dataclasses.replace(GAUSS, trust=who))
    assert query.share.bits == 32
    least = next(n for n in range(1 << 20, 1 << 22, 1 << 14) if _bits(n) == 64)
    small = dataclasses.replace(query.share, max_users=least, bits=32)
    with pytest.raises(ValueError, match=rf"do not fit into 32 bits.*max_users = {least}"):
        Aggregated(query.query, small)
    with pytest.raises(ValueError, match="do not fit into 64 bits"):
        dataclasses.replace(ITEMS, trust=Aggregation(10, max_users=1 << 40))


def _bits(max_users: int) -> int:
    who = Aggregation(10, max_users=max_users)
    return asked(dataclasses.replace(GAUSS, trust=who)).share.bits


def test_the_quorum_is_checked_before_anything_is_looked_at() -> None:
    query = asked(GAUSS)
    digest, words = query_digest(query, 0), words_of(query)
    for keep in (10, 9, 8, 1):
        intake = Intake(query, digest)
        for i, summary in enumerate(words[:keep]):
            intake.use(i, digest, summary)
        if keep >= 9:
            assert intake.total(10).summary.sums["counts"].dtype == np.int64
            continue
        with pytest.raises(MissingReplies, match=f"{10 - keep} of 10"):
            intake.total(10)
        with pytest.raises(MissingReplies):
            intake.total(10, min_replies=1)  # a run may ask for more than the quorum, not for less
    with pytest.raises(MissingReplies, match="the quorum is 9: at most 10% of 10 nodes"):
        query.lift(Summary.merge(words[:8]), 8)
    with pytest.raises(WireError, match="11 nodes answered, of 10"):
        query.lift(Summary.merge([*words, words[0]]), 11)
    few = dataclasses.replace(query, share=dataclasses.replace(query.share, max_users=39))
    with pytest.raises(WireError, match="sums of 40 users may wrap, of 39 at most"):
        few.lift(Summary.merge(words), 10)


def test_a_message_of_another_kind_is_left_out() -> None:
    query = asked(GAUSS)
    good = words_of(query)[0]
    counts = good.sums["counts"]
    bad = {
        "expected uint64": {"counts": counts.view(np.int64)},
        r"uint64\(4,\), expected uint64\(5,\)": {"counts": counts[:4]},
        r"sums \['counts'\] are expected": {"other": counts},
    }
    for why, sums in bad.items():
        with pytest.raises(WireError, match=why):
            Intake(query, "x").use(0, "x", Summary(4, sums))
    rows = {"counts": np.zeros((1, 5), dtype=np.int64)}
    with pytest.raises(WireError, match="are expected"):
        Intake(query, "x").use(0, "x", Summary(1, rows=rows, ids=np.zeros(1, np.uint64)))
    with pytest.raises(WireError, match="sends its sum, not its users' reports"):
        Intake(query, "x", "stop").use(0, "x", Report(np.zeros(1, np.uint64)))
    with pytest.raises(WireError, match="of 4294967296"):
        Intake(query, "x").use(0, "x", Summary(1 << 33, good.sums))


def test_a_total_that_no_honest_nodes_give_is_refused() -> None:
    query = asked(GAUSS)
    most = query.tail + 40 * 16 * 64
    for size, fits in ((most, True), (most + 2, False), (-query.tail, True), (-most, False)):
        total = Summary(40, {"counts": np.full(5, size)})
        if fits:
            query.check_summary(total)
        else:
            with pytest.raises(WireError, match="outside"):
                query.check_summary(total)


def test_the_number_of_users_does_not_travel_where_it_is_private() -> None:
    protocol = dataclasses.replace(GAUSS, adjacency="add-remove-user")
    query = asked(protocol)
    assert all(words.n_users == 0 for words in words_of(query))
    with pytest.raises(WireError, match="names 4 users, whose number is private"):
        query.check_part(dataclasses.replace(words_of(query)[0], n_users=4))
    estimate = execute(protocol, USERS, Options(seed=1)).estimate
    assert "n_users" not in estimate.public

    @dataclass(frozen=True)
    class Divides(BoundedHistogram):
        null_safe: ClassVar[bool] = False  # type: ignore[assignment]

    with pytest.raises(ValueError, match="uses the number of users, which nodes do not send"):
        Divides(DOMAIN, 1.0, 16.0, adjacency="add-remove-user", grid=0.5, trust=WHO)


# -- what can be asked -----------------------------------------------------------------------------


def test_what_has_no_integer_sums_is_refused() -> None:
    with pytest.raises(ValueError, match="set a grid"):
        dataclasses.replace(GAUSS, grid=None)
    share = asked(GAUSS).share
    with pytest.raises(ValueError, match="no l2 sensitivity of integer sums"):
        Aggregated(ClippedCounts(DOMAIN, 16.0, 1, 0.5), share)  # of the other norm
    local = OracleReports(DOMAIN, 1.0, kind="unary")
    with pytest.raises(ValueError, match="exact sums, but 'frequency-oracle' has none"):
        Aggregated(local, share)
    with pytest.raises(ValueError, match="finer grid"):
        dataclasses.replace(GAUSS, grid=16.0)
    for bad, why in (
        ({"parties": 0}, "parties must be an integer in"),
        ({"tau_d": 0.5}, "tau_d must lie"),
        ({"tau_c": -0.1}, "tau_c must lie"),
        ({"tau_d": 0.3, "tau_c": 0.3}, "at least half"),
        ({"kind": "skellam"}, "kind must be"),
        ({"bits": 48}, "bits must be 32 or 64"),
        ({"delta": 0.0}, "delta"),
        ({"rounds": 2, "place": 2}, "place must be"),
        ({"epsilon": 0.0}, "epsilon must be positive"),
    ):
        with pytest.raises(ValueError, match=why):
            dataclasses.replace(share, **bad)


def test_a_query_around_a_query_travels_and_only_once() -> None:
    query = asked(GAUSS)
    found = decode_question(encode_question(query, 0)).query
    assert isinstance(found, Aggregated)
    assert found.share == query.share
    assert query_digest(found, 0) == query_digest(query, 0)
    assert (found.cohort, found.parties, found.quorum) == (None, 10, 9)
    text, arrays = encode_fields(query)
    twice = text.replace("clipped-counts", "aggregated")
    with pytest.raises(WireError, match="a query around another query"):
        decode_query("aggregated", twice, arrays)
    with pytest.raises(WireError):  # more noise than is stated must not be less
        decode_query("aggregated", text.replace('\\"parties\\":10', '\\"parties\\":0'), arrays)


def test_a_protocol_under_central_trust_is_what_it_was() -> None:
    central = dataclasses.replace(GAUSS, trust=None)
    assert "trust" not in encode_fields(central)[0]  # and golden records hold the digests
    digests = {protocol_digest(p) for p in (central, GAUSS)}
    digests |= {
        protocol_digest(dataclasses.replace(GAUSS, trust=who))
        for who in (Aggregation(11), Aggregation(10, 0.2), Aggregation(10, max_users=5))
    }
    assert len(digests) == 5


def test_nodes_are_as_many_as_the_parties() -> None:
    with pytest.raises(ValueError, match="has 10 parties, but nodes = 9"):
        execute(GAUSS, USERS, Options(seed=1, nodes=9))
    with pytest.raises(FedhistError, match=r"is for 10 parties, .* but 9 nodes are asked"):
        InlinePopulation(USERS.split(9), 1).ask(asked(GAUSS), 0)
    with pytest.raises(ValueError, match='fold = "server"'):
        execute(GAUSS, USERS, Options(seed=1, fold=False))


# -- the session and its Curator -------------------------------------------------------------------


def test_it_is_charged_when_it_leaves_and_journalled_as_it_is(tmp_path: Path) -> None:
    session = Session(GAUSS, noise, Journal(tmp_path))
    (entry,) = session.ledger.entries
    assert (entry.label, entry.release.epsilon) == ("clipped-counts, by shares", 1.0)
    replaced = entry.under(Adjacency.REPLACE_USER).release
    assert replaced.rho == pytest.approx(2 * entry.release.rho)  # sqrt 2 in the l2 norm
    assert session.ledger.aggregation == "ideal (simulated)"
    population = InlinePopulation(USERS.split(10), 7)
    summary = population.ask(session.query, 0)  # type: ignore[arg-type]
    kept = summary.sums["counts"].copy()
    session.advance(summary)
    assert session.ledger.entries == (entry,)
    np.testing.assert_array_equal(summary.sums["counts"], kept)  # a script may keep what is private
    assert not list(tmp_path.glob("exact-*"))
    lines = (tmp_path / "journal.jsonl").read_text()
    assert '"kind":"summary"' in lines
    assert '"kind":"exact"' not in lines
    again = Session.replay(GAUSS, noise, str(tmp_path))
    assert again.estimate is not None
    assert session.estimate is not None
    np.testing.assert_array_equal(again.estimate.value, session.estimate.value)


@dataclass(frozen=True)
class Scripted(BoundedHistogram):
    """Releases its totals as it is told to."""

    release: Callable[[Curator, Any], Any] = lambda server, counts: counts

    def rounds(self, server: Curator) -> Script:
        summary = yield self.query
        return Estimate.ok(self.release(server, summary.sums["counts"]))


S = GAUSS.query.sensitivity(Adjacency.ZERO_OUT_USER)


@pytest.mark.parametrize(
    ("release", "why"),
    [
        (lambda c, x: c.discrete_gaussian(x, l2_sensitivity=S, epsilon=0.5, delta=1e-6), "0.5"),
        (lambda c, x: c.discrete_gaussian(x, l2_sensitivity=S, epsilon=1.0, delta=1e-7), "1e-07"),
        (
            lambda c, x: c.discrete_gaussian(x, l2_sensitivity=1.1 * S, epsilon=1.0, delta=1e-6),
            "the script's is",
        ),
        (lambda c, x: c.discrete_laplace(x, l1_sensitivity=S, epsilon=1.0), "discrete_laplace"),
        (lambda c, x: c.laplace(x, l1_sensitivity=S, epsilon=1.0), "noise that no node has"),
        (lambda c, x: c.gaussian(x, l2_sensitivity=S, epsilon=1.0, delta=1e-6), "no node has"),
        (
            lambda c, x: c.gaussian_zcdp(x, l2_sensitivity=S, rho=0.01, discrete=True),
            "noise that no node has",
        ),
        (lambda c, x: c.exponential(x, sensitivity=S, epsilon=1.0), "aggregate trust has none"),
        (
            lambda c, x: c.gaussian_series(2, epsilon=1.0, delta=1e-6, discrete=True)(x, S),
            "the script asks for",
        ),
    ],
)
def test_the_curator_releases_what_the_nodes_have_noised_and_nothing_else(
    release: Callable[[Curator, Any], Any], why: str
) -> None:
    protocol = Scripted(DOMAIN, 1.0, 16.0, 1e-6, grid=1 / 64, trust=WHO, release=release)
    with pytest.raises(FedhistError, match=why):
        _run(protocol)


def _run(protocol: Protocol) -> Estimate:
    """Run without a journal of its own digest: a function is no public field."""
    session = Session(dataclasses.replace(GAUSS), noise)
    session._script = protocol.rounds(session._curator)
    next(session._script)
    return session.run(InlinePopulation(USERS.split(10), 1).ask)


def test_a_smaller_sensitivity_is_the_scripts_own_business() -> None:
    def release(c: Curator, x: Any) -> Any:
        return c.discrete_gaussian(x, l2_sensitivity=S / 2, epsilon=1.0, delta=1e-6)

    protocol = Scripted(DOMAIN, 1.0, 16.0, 1e-6, grid=1 / 64, trust=WHO, release=release)
    assert _run(protocol).status == "ok"


# -- a series --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Steps(BoundedHistogram):
    """Asks the same totals several times, within one budget."""

    steps: int = 3
    asked: int = 3

    @property
    def max_rounds(self) -> int:
        return self.asked

    def asks(self, query: Query, round_index: int) -> Query:
        place = min(round_index, self.steps - 1)
        return self.shared(query, self.epsilon, self.delta, rounds=self.steps, place=place)

    def rounds(self, server: Curator) -> Script:
        release = server.gaussian_series(
            self.steps, epsilon=self.epsilon, delta=self.delta, discrete=True
        )
        found = []
        for _ in range(self.asked):
            summary = yield self.query
            found.append(release(summary.sums["counts"], S))
        return Estimate.ok(np.array(found))


def test_a_series_is_paid_for_once() -> None:
    protocol = Steps(DOMAIN, 1.0, 16.0, 1e-6, grid=1 / 64, trust=WHO)
    session = Session(protocol, noise)
    estimate = session.run(InlinePopulation(USERS.split(10), 1).ask)
    assert len(session.ledger.entries) == 1
    assert len({tuple(row) for row in estimate.value}) == 3
    law = asked(protocol).noise
    assert law.std == pytest.approx(math.sqrt((3 * 4.2247**2 * S**2 + 4) * 10 / 8), rel=1e-3)
    more = dataclasses.replace(protocol, asked=4)
    with pytest.raises(BudgetExceeded, match="paid for 3"):
        Session(more, noise).run(InlinePopulation(USERS.split(10), 1).ask)


def test_nobody_promises_more_than_is_asked_for() -> None:
    @dataclass(frozen=True)
    class Promises(BoundedHistogram):
        def asks(self, query: Query, round_index: int) -> Query:
            return query

    with pytest.raises(FedhistError, match="promises aggregate privacy, but 'clipped-counts'"):
        Session(Promises(DOMAIN, 1.0, 16.0, 1e-6, grid=0.5, trust=WHO), noise)


def test_guarantee_and_bounds() -> None:
    assert GAUSS.guarantee == Guarantee(
        1.0, 1e-6, Trust.AGGREGATE, Adjacency.ZERO_OUT_USER, premise=str(WHO)
    )
    assert ITEMS.guarantee.unit == "item"
    query = asked(GAUSS)
    limits = query.bounds(3)["counts"]
    inner: Bounds = query.query.bounds(3)["counts"]
    assert (limits.low, limits.high) == (inner.low - query.tail, inner.high + query.tail)
    assert isinstance(query.share, Share)


# -- the usual mistakes ----------------------------------------------------------------------------


@pytest.mark.parametrize("delta", [0.0, 1e-6], ids=["laplace", "gaussian"])
def test_whoever_drops_out_or_colludes_the_noise_that_is_left_is_enough(delta: float) -> None:
    """Shares for 16 of 20: the variance with all of them, at the quorum, and without colluders.

    40,000 entries, whose mean square has a relative standard error of 1.2% (Laplace), 0.7%: five
    of them, a false alarm in 10^6, tell 20, 18 and 16 shares apart.
    """
    domain = Keys.of(f"item-{i:05d}" for i in range(40_000))
    who = Aggregation(20)
    protocol = BoundedHistogram(domain, 1.0, 16.0, delta, grid=1 / 64, trust=who)
    query, nobody = asked(protocol), USERS.slice(0, 0)
    digest = query_digest(query, 0)
    parts = [fold_node(query, nobody, 8, digest, i) for i in range(20)]

    def variance(some: list[Summary]) -> float:
        total = Summary.merge(some).sums["counts"].view(np.int64).astype(np.float64)
        return float(np.mean(total**2))

    calibrated = query.shares.std(who.honest) ** 2
    scale = query.sensitivity if not delta else 0.0
    if scale:
        assert calibrated == pytest.approx(2 * scale**2, rel=1e-3)  # epsilon = 1
    room = 5 * (0.012 if not delta else 0.0071)
    for count in (20, 18, 16):
        found = variance(parts[20 - count :]) / calibrated
        assert found == pytest.approx(count / who.honest, rel=room)
    with pytest.raises(MissingReplies):
        query.lift(Summary.merge(parts[:17]), 17)
