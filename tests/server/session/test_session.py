"""The session refuses scripts that break their promises; what broke off can be taken up again."""

import dataclasses
import math
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from clients.histograms.queries import ClippedCounts
from clients.localize.queries import BinVotes
from clients.records.functionals import Coordinates
from fedhist.base.chained_log import DamagedLog
from fedhist.base.errors import BudgetExceeded, FedhistError, WireError
from fedhist.model.protocol import Estimate, Script
from fedhist.model.query import Summary
from fedhist.privacy.guarantee import EXACT
from fedhist.users.cohort import Cohort
from fedhist.users.keys import Keys
from server.baselines.naive_mean import NaiveMean
from server.histograms.bounded_histogram import BoundedHistogram
from server.histograms.poisson_counts import PoissonCounts
from server.histograms.unbounded_histogram import UnboundedHistogram
from server.means.mean import Mean
from server.noise import SimulatedNoise
from server.session.curator import Curator
from server.session.journal import Journal
from server.session.session import Session
from simulations.runtimes.inline import InlinePopulation

COUNTS = ClippedCounts(Keys.of(["a", "b"]), 2.0, 1)
VOTES = BinVotes(Coordinates(1), 4, 2.0)


def noise(index: int) -> SimulatedNoise:
    return SimulatedNoise(3, index)


def session(
    script: Any, base: type = Mean, journal: Journal | None = None, **changes: Any
) -> Session:
    """A protocol with another script."""
    protocol = type("Scripted", (base,), {"rounds": lambda self, server: script(server)})
    fields = {f.name: getattr(base.example(), f.name) for f in dataclasses.fields(base)}
    return Session(protocol(**(fields | changes)), noise, journal)


def test_a_local_protocol_asks_nobody_to_trust_the_server() -> None:
    def script(server: Curator) -> Script:
        yield COUNTS
        return Estimate.ok([1.0])

    with pytest.raises(FedhistError, match="'clipped-counts' needs a trusted server"):
        session(script)


def test_a_local_query_states_its_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    def script(server: Curator) -> Script:
        yield VOTES
        return Estimate.ok([1.0])

    assert session(script).query == VOTES
    monkeypatch.setattr(BinVotes, "release", EXACT)
    with pytest.raises(FedhistError, match="'bin-votes' states no cost"):
        session(script)


def test_a_query_that_overspends_never_leaves() -> None:
    def script(server: Curator) -> Script:
        yield VOTES
        yield dataclasses.replace(VOTES, n_bins=5)
        return Estimate.ok([1.0])

    journal = Journal()
    run = session(script, journal=journal)
    with pytest.raises(BudgetExceeded):
        run.advance(Summary(3, {"votes": np.array([[1, 0, 2, 0]]), "users": np.array([3])}))
    assert journal.find("query", 1) is None
    assert run.ledger.spent().epsilon == 2.0


def test_impossible_answers_never_reach_the_script() -> None:
    run = Session(BoundedHistogram.example(), noise)
    with pytest.raises(WireError, match="outside"):
        run.advance(Summary(1, {"counts": np.full(5, 1e9)}))
    assert run.query is not None
    assert run.journal.find("exact", 0) is None


def test_nothing_is_asked_after_the_end() -> None:
    run = Session(BoundedHistogram.example(), noise)
    run.run(InlinePopulation([BoundedHistogram.example_users()], 3).ask)
    with pytest.raises(FedhistError, match="has ended"):
        run.advance(Summary(1, {"counts": np.zeros(5)}))


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_draw_that_fails_can_be_taken_up_again(
    throwaway: ModuleType, tmp_path: Path, in_memory: bool
) -> None:
    """The second draw of a round fails. No exact summary stays behind, and the run taken up again
    asks for it once more, repeats the first release and ends as if nothing had happened."""
    protocol = throwaway.PrivateMedian.example()
    population = InlinePopulation([throwaway.PrivateMedian.example_users()], 3)
    whole = Session(protocol, noise).run(population.ask)
    journal = Journal(None if in_memory else tmp_path)

    def broken(index: int) -> SimulatedNoise:
        if index == 1:
            raise OSError("no entropy")
        return noise(index)

    with pytest.raises(OSError, match="no entropy"):
        Session(protocol, broken, journal).run(population.ask)
    assert not list(tmp_path.glob("exact-*"))
    if not in_memory:
        with pytest.raises(FedhistError, match="in use by another run"):
            Journal(tmp_path)
        journal.close()  # the broken run's process ends
    again = Session(protocol, noise, journal if in_memory else Journal(tmp_path))
    assert again.round_index == 0
    assert again.query is not None
    estimate = again.run(population.ask)
    assert np.array_equal(estimate.value, whole.value)
    assert estimate.public == whole.public
    assert estimate.ledger is not None
    assert estimate.ledger.spent().epsilon == 2.0


@pytest.mark.parametrize("noted", [None, PoissonCounts.revision - 1, PoissonCounts.revision])
@pytest.mark.parametrize("reached", ["asked", "released", "ended"])
def test_a_journal_of_another_law_is_refused_where_it_would_spend(
    noted: int | None, reached: str
) -> None:
    """Laws share epsilon otherwise: a choice that cost 1.08, and counts for 2.25, are 3.33 of 3."""
    protocol = dataclasses.replace(PoissonCounts.example(), epsilon=3.0)
    population, journal = InlinePopulation([protocol.example_users()], 3), Journal()
    Session(protocol, noise, journal).run(population.ask)
    if reached != "ended":
        first = {"run", "query"} if reached == "asked" else {"run", "query", "exact", "release"}
        journal._lines = [x for x in journal._lines if x["kind"] in first and x["index"] == 0]
    del journal._lines[0]["revision"]
    journal._lines[0] |= {} if noted is None else {"revision": noted}
    if reached == "ended" or noted == protocol.revision or (noted is None and reached == "asked"):
        Session(protocol, noise, journal)
        return
    with pytest.raises(FedhistError, match="poisson-counts may have shared its budget otherwise"):
        Session(protocol, noise, journal)


@pytest.mark.parametrize("damage", ["removed", "altered", "doubled", "cut off"])
def test_a_damaged_journal_is_refused(tmp_path: Path, damage: str) -> None:
    """Else a release whose line is gone would be drawn again, and nobody told."""
    run = Session(BoundedHistogram.example(), noise, Journal(tmp_path))
    run.run(InlinePopulation([BoundedHistogram.example_users()], 3).ask)
    file = tmp_path / "journal.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    for at in range(len(lines) - 1):
        head, line, after = lines[:at], lines[at], lines[at + 1 :]
        changed = {
            "removed": [*head, *after],
            "altered": [*head, line.replace(b'"index":', b'"index":1'), *after],
            "doubled": [*head, line, line, *after],
            "cut off": [*head, line[:9]],
        }[damage]
        file.write_bytes(b"".join(changed))
        with pytest.raises(DamagedLog, match=rf"line {at + 1}\b|lines where|line {at + 2}\b"):
            Journal(tmp_path)
    (tmp_path / "tally.json").unlink()
    file.write_bytes(b"".join(lines))
    with pytest.raises(DamagedLog, match=r"tally\.json"):
        Journal(tmp_path)


def test_charges_follow_the_cohort_of_the_summary() -> None:
    halves = Cohort(1, 0.0, 0.5), Cohort(1, 0.5, 1.0)

    def script(server: Curator) -> Script:
        for half in halves:
            got = yield dataclasses.replace(COUNTS, cohort=half)
            server.laplace(got.sums["counts"], l1_sensitivity=2.0, epsilon=1.0)
        return Estimate.ok([1.0])

    run = session(script, PoissonCounts, epsilon=1.0)
    run.run(InlinePopulation([BoundedHistogram.example_users()], 3).ask)
    assert [e.cohort for e in run.ledger.entries] == list(halves)
    assert run.ledger.spent().epsilon == 1.0


def test_an_exact_summary_is_wiped_at_the_next_step() -> None:
    """A script that keeps it, or its arrays, finds zeros; the released values stay."""
    kept: list[np.ndarray] = []

    def script(server: Curator) -> Script:
        summary = yield BoundedHistogram.example().query
        kept.append(summary.sums["counts"])
        value = server.laplace(summary.sums["counts"], l1_sensitivity=1.0, epsilon=math.inf)
        return Estimate.ok(value)

    run = session(script, BoundedHistogram, epsilon=math.inf)
    run.advance(Summary(3, {"counts": np.array([1.0, 2.0, 0.0, 0.0, 4.0])}))
    assert (kept[0] == 0).all()
    assert run.estimate is not None
    np.testing.assert_array_equal(run.estimate.value, [1.0, 2.0, 0.0, 0.0, 4.0])


def keyed(keys: list[str], **columns: Any) -> Any:
    def script(server: Curator) -> Script:
        yield from ()
        return Estimate.ok(keys=Keys.of(keys), **columns)

    return script


def test_keys_of_an_unbounded_domain_leave_in_byte_order() -> None:
    """The order that a script found them in may tell exact counts: nobody accounts for it."""
    made = keyed(["pear", "fig", "äpple"], value=[3.0, 2.0, 1.0], stderr=np.array([0.3, 0.2, 0.1]))
    run = session(made, UnboundedHistogram)
    assert run.estimate is not None
    assert list(run.estimate.keys or ()) == ["fig", "pear", "äpple"]
    np.testing.assert_array_equal(run.estimate.value, [2.0, 3.0, 1.0])
    np.testing.assert_array_equal(run.estimate.stderr, [0.2, 0.3, 0.1])
    assert run.estimate.ledger is run.ledger
    # of a public domain they stay: the truth has the same entries by place
    run = session(keyed(["b", "a"], value=[1.0, 2.0]), BoundedHistogram)
    assert run.estimate is not None
    assert list(run.estimate.keys or ()) == ["b", "a"]
    np.testing.assert_array_equal(run.estimate.value, [1.0, 2.0])


def test_a_query_that_no_client_knows_is_refused_before_it_is_asked() -> None:
    stranger = type("Stranger", (BinVotes,), {"wire_name": "stranger"})

    def script(server: Curator) -> Script:
        yield stranger(Coordinates(1), 4, 2.0)
        return Estimate.ok([1.0])

    with pytest.raises(FedhistError, match="no client knows the query Stranger, wire name"):
        session(script)


def test_every_key_has_one_value_and_occurs_once() -> None:
    for keys, columns, told in (
        ("ba", {"value": [1.0, 2.0, 3.0]}, "2 keys"),
        ("ba", {"value": [1.0, 2.0], "stderr": [1.0]}, "stderr"),
        ("bb", {"value": [1.0, 2.0]}, "distinct"),
    ):
        with pytest.raises(ValueError, match=told):
            session(keyed(list(keys), **columns), UnboundedHistogram)


@pytest.mark.parametrize(
    ("value", "stderr", "warns"),
    [(1.99, 0.1, 0), (2.01, 0.1, 1), (-2.01, 0.1, 1), (1.0 + 1e-12, 0.0, 0), (50.0, math.inf, 0)],
)
def test_an_impossible_estimate_is_not_silent(value: float, stderr: float, warns: int) -> None:
    """Beyond ten standard errors out of a range of [-1, 1]."""

    def script(server: Curator) -> Script:
        yield from ()
        return Estimate.ok([0.0, value], stderr=np.array([0.1, stderr]))

    result = session(script, NaiveMean).estimate
    assert result is not None
    assert len([w for w in result.warnings if f"{value:g}" in w]) == warns


def test_scripts_keep_to_what_they_promise() -> None:
    """A script returns an estimate, asks no more rounds than promised, refuses before it asks."""

    def nothing(server: Curator) -> Any:
        yield VOTES

    def endless(server: Curator) -> Script:
        for _ in range(5):
            yield dataclasses.replace(VOTES, epsilon=0.1)
        return Estimate.ok([1.0])

    def late(server: Curator) -> Script:
        yield VOTES
        return Estimate.refused("changed my mind")

    votes = Summary(3, {"votes": np.array([[1, 0, 2, 0]]), "users": np.array([3])})
    for script, told in ((nothing, "None"), (endless, "max_rounds"), (late, "after it has asked")):
        run = session(script)
        if script is endless:
            for _ in range(run.protocol.max_rounds - 1):
                run.advance(votes)
        with pytest.raises(FedhistError, match=told):
            run.advance(votes)
