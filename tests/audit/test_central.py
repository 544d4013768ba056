"""End to end: whole runs on neighbouring populations. Honest audits: false alarm 1e-9 a finding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from fedhist.base.arrays import Bounds
from fedhist.model import registry
from fedhist.model.protocol import Estimate, Protocol, Script
from fedhist.model.query import Query, Report, Summary
from fedhist.model.registry import load_builtin, own_protocols, protocol_class
from fedhist.privacy.guarantee import Adjacency, Guarantee, Trust
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from fedhist.users.streams import Streams
from server.noise import NoiseFactory
from server.session.curator import Curator
from server.session.session import Session
from simulations.audit.asked import asked_of
from simulations.audit.central import audit_central
from simulations.audit.checks import audit_protocol
from simulations.audit.finding import Finding, Settings
from simulations.audit.neighbours import are_neighbours, pair_of
from simulations.audit.published import Runs
from simulations.runtimes.inline import InlinePopulation
from tests.audit.mechanisms import Rounds

load_builtin()
CENTRAL = [
    n for n in own_protocols() if protocol_class(n).example().guarantee.trust is Trust.CENTRAL
]
SOME = Settings(effort=0.06)
D = 6


@pytest.fixture(autouse=True)
def _clients_know_the_query(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._queries, Bits.wire_name, Bits)


@dataclass(frozen=True)
class Bits(Query):
    """Which of the items 0 to 5 a user holds, exactly; ``flip`` of them at random."""

    wire_name: ClassVar[str] = "end-to-end-bits"
    trust: ClassVar[Trust] = Trust.CENTRAL
    flip: float = 0.0

    def answer(self, users: Users, rng: Streams) -> Report:
        table, out = users.counts, np.zeros((len(users), D), dtype=bool)
        at = np.array([int(k) if k.isdigit() else D for k in table.vocabulary], dtype=np.int64)
        owner = np.repeat(np.arange(len(users)), np.diff(table.indptr))
        item = at[table.item]
        out[owner[item < D], item[item < D]] = True
        if self.flip:
            out ^= rng.substream("flip").uniform(D) < self.flip
        return Report(users.ids, {"bits": out})

    def fold(self, report: Report) -> Summary:
        return Summary(report.n_users, {"bits": report.arrays["bits"].sum(axis=0)})

    def check(self, report: Report) -> None:
        pass

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        return {"bits": Bounds((D,), "i", 0, n_users)}


@dataclass(frozen=True)
class Released(Rounds):
    """The noisy number of users who hold item 0; ``flaw`` says what is wrong with it."""

    name: ClassVar[str] = "end-to-end"
    promised: float = 1.0
    flaw: str = ""
    adjacency: str = "zero-out-user"

    @property
    def guarantee(self) -> Guarantee:
        unit = "item" if self.adjacency == "replace-item" else "user"
        return Guarantee(self.promised, 0.0, Trust.CENTRAL, Adjacency(self.adjacency), unit=unit)

    def rounds(self, server: Curator) -> Script:
        summary = yield Bits(0.1 if self.flaw == "coins" else 0.0)
        exact = summary.sums["bits"]
        if self.flaw == "broken off" and exact[0] == 12:
            raise ZeroDivisionError("a mean of nothing")
        noise = 1 / 3 if self.flaw == "estimate" else 1.0
        noisy = server.laplace(exact[:1], l1_sensitivity=noise, epsilon=self.promised)
        if self.flaw == f"spends twice at {exact[0]}":
            server.laplace(exact[:1], l1_sensitivity=1.0, epsilon=self.promised)
        if self.flaw == "status" and exact[0] < 12:
            return Estimate.failed("too few users")
        public = {"users": float(exact[0] if self.flaw == "choices" else 12.0)}
        if self.flaw == "reason":
            return Estimate.failed(f"{exact[0]} users are too few", public=public)
        keys = Keys.of(["0"])
        if self.flaw == "support":
            there = np.flatnonzero(exact)
            keys, noisy = Keys.of(str(j) for j in there), np.zeros(len(there))
        return Estimate.ok(noisy, stderr=np.full(len(keys), 2.0), keys=keys, public=public)

    @classmethod
    def example_users(cls) -> Users:
        user = np.repeat(np.arange(12), 2)
        return Users.from_counts(range(12), user, [0, 1] * 12, np.ones(24, int), Keys.range(D))


def judged(protocol: Protocol, settings: Settings = SOME) -> Finding:
    (result,) = audit_central(protocol, settings)
    return result


@pytest.mark.parametrize("name", CENTRAL)
def test_the_pair_of_a_registered_protocol_are_neighbours_that_differ(name: str) -> None:
    protocol = protocol_class(name).example()
    queries = asked_of(protocol, protocol.example_users(), 0).queries
    first, second = (p.users for p in pair_of(protocol, queries, Settings()))
    assert are_neighbours(first, second, protocol.guarantee.adjacency)
    vocabulary = (first.items is None) or first.vocabulary == second.vocabulary
    assert vocabulary


ITEMS = {"a": {"x": 2, "y": 1}, "b": {"x": 1}}


@pytest.mark.parametrize(
    ("changed", "replace_user", "zero_out", "add_remove", "replace_item"),
    [
        ({}, True, True, True, True),
        ({"a": {}}, True, True, False, False),
        ({"a": {"x": 9}}, True, False, False, False),
        ({"a": {"x": 1, "y": 2}}, True, False, False, True),
        ({"a": {"x": 1, "z": 2}}, True, False, False, False),
        ({"a": {}, "b": {}}, False, False, False, False),
        ({"c": {"z": 1}}, False, False, True, False),
        ({"c": {"z": 1}, "a": {}}, False, False, False, False),
    ],
)
def test_who_is_a_neighbour(
    changed: dict[str, dict[str, int]],
    replace_user: bool,
    zero_out: bool,
    add_remove: bool,
    replace_item: bool,
) -> None:
    first, second = Users.from_records(ITEMS), Users.from_records(ITEMS | changed)
    expected = {
        Adjacency.REPLACE_USER: replace_user,
        Adjacency.ZERO_OUT_USER: zero_out,
        Adjacency.ADD_REMOVE_USER: add_remove,
        Adjacency.REPLACE_ITEM: replace_item,
    }
    for adjacency, near in expected.items():
        assert are_neighbours(first, second, adjacency) == near, adjacency
        assert are_neighbours(second, first, adjacency) == near, adjacency


def test_samples_are_compared_bit_by_bit() -> None:
    first = Users.from_records({"a": [1.0, np.nan], "b": [2.0]}, unusable=True)
    other = Users.from_records({"a": [1.0, 3.0], "b": [2.0]})
    assert are_neighbours(first, first.copy(), Adjacency.ZERO_OUT_USER)
    assert are_neighbours(first, other, Adjacency.REPLACE_ITEM)
    assert not are_neighbours(first, other, Adjacency.ZERO_OUT_USER)


def test_two_populations_that_are_no_neighbours_are_refused() -> None:
    @dataclass(frozen=True)
    class Naming(Released):
        @classmethod
        def neighbours(cls) -> tuple[Users, Users]:
            return cls.example_users(), cls.example_users().slice(0, 3)

    with pytest.raises(ValueError, match="neighbours"):
        next(audit_central(Naming(), SOME))


@pytest.mark.parametrize("name", ["adaptive-histogram", "few-users-mean", "unbounded-histogram"])
def test_a_run_is_what_a_session_would_have_published(name: str) -> None:
    protocol = protocol_class(name).example()
    users = protocol.example_users()
    runs = Runs(protocol, users, 0)
    for seed in (3, 4, 3):
        result = runs.run(seed).estimate
        session = Session(protocol, NoiseFactory("simulated", seed))
        expected = session.run(InlinePopulation([users], seed).ask)  # some clients draw
        assert (result.status, result.reason, result.keys) == (
            expected.status,
            expected.reason,
            expected.keys,
        )
        assert result.public == expected.public
        assert np.array_equal(result.value, expected.value, equal_nan=result.value is not None)


def test_exact_answers_are_computed_once_unless_the_client_draws(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []
    answer = Bits.answer

    def counting(self: Bits, users: Users, rng: Streams) -> Report:
        asked.append(self)
        return answer(self, users, rng)

    monkeypatch.setattr(Bits, "answer", counting)
    calm, random = (Runs(Released(flaw=f), Released.example_users(), 0) for f in ("", "coins"))
    assert len({calm.run(seed).estimate.value.tobytes() for seed in range(5)}) == 5
    assert len(asked) == 1
    exact = {random.ask(Bits(0.1), "digest", seed).sums["bits"].tobytes() for seed in range(20)}
    assert len(exact) > 10
    assert len(asked) == 21


def test_a_script_that_changes_its_summary_changes_no_later_run() -> None:
    runs = Runs(Released(), Released.example_users(), 0)
    first = runs.ask(Bits(), "digest", 0)
    first.sums["bits"][:] = -1
    assert runs.ask(Bits(), "digest", 1).sums["bits"][0] == 12


def test_an_honest_release_is_certified_from_below() -> None:
    """One user changes the count by 1 at scale 1: epsilon is 1."""
    result = judged(Released(), Settings(effort=0.2, records=({"0": 1}, {})))
    assert result.kind == "end to end"
    assert 0.5 < result.certified <= 1.0


@pytest.mark.parametrize(
    ("flaw", "event"),
    [
        ("estimate", "value"),
        ("choices", "users"),
        ("status", ""),
        ("reason", "the reason"),
        ("broken off", ""),
        ("support", ""),
    ],
)
def test_every_flaw_is_proved(flaw: str, event: str) -> None:
    result = judged(Released(flaw=flaw), replace(SOME, records=({}, {"0": 1, "3": 1})))
    assert result.violated, result
    witness = result.witness
    assert event in witness.event
    assert witness.hits[0] > witness.hits[1]
    assert "; user " in witness.inputs[0]


def test_given_records_are_compared() -> None:
    flawed = Released(flaw="estimate", adjacency="replace-user")
    same = judged(flawed, replace(SOME, records=({"1": 1}, {"2": 1})))
    assert same.certified == 0  # item 0 is what is counted
    result = judged(flawed, replace(SOME, records=({"0": 1}, {"1": 1})))
    assert result.violated
    assert {w.split(": ", 1)[1] for w in result.witness.inputs} == {"{'0': 1}", "{'1': 1}"}


def test_a_run_that_its_own_ledger_stops_is_reported_once() -> None:
    """Where it is a neighbour's run; the bank has the example's own."""
    result = [f for f in audit_protocol(Released(flaw="spends twice at 11"), SOME) if f.violated]
    assert [f.kind for f in result] == ["structural"]
    assert "ledger stops it" in result[0].witness.event


def test_local_protocols_are_left_to_the_other_auditors() -> None:
    assert list(audit_central(protocol_class("mean").example(), SOME)) == []
