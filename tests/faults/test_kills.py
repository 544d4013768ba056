"""Servers of every protocol killed with SIGKILL: nothing is lost, nothing is drawn twice."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from kill_campaign import Ask, Case, asked_of, scout, serve, trial

import fedhist as fh
from clients.guard import Guard
from clients.guard_folder import FolderStore
from clients.node import Node, policy_of
from fedhist.flower.host import NodeSetup
from fedhist.flower.wire import decode_answer, encode_question
from fedhist.model.registry import load_builtin, own_protocols
from server.noise import noise_source
from server.session.journal import Journal
from server.session.session import Session

load_builtin()
POINTS = [
    *("before a journal line", "in the middle of a journal line", "after a journal line"),
    *("before a tally", "in the middle of a tally", "after a tally"),
    "a tally written, not renamed",
    *("before an exact copy", "in the middle of an exact copy", "after an exact copy"),
    "an exact copy written, not renamed",
    *("drawn, not journalled", "drawn and journalled, before the next query"),
    *("before an exact copy is deleted", "after an exact copy is deleted"),
    *("a query is pending", "answered, not journalled"),
]
LEAVES_A_COPY = {
    *("in the middle of an exact copy", "after an exact copy"),
    *("drawn, not journalled", "before an exact copy is deleted"),
    "an exact copy written, not renamed",
}


@pytest.fixture
def folder() -> Iterator[Path]:
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        yield Path(name)


QUICK = ("bounded-histogram", "mean")
NAMES = [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in own_protocols()]


@pytest.mark.parametrize("grade", ["simulated", "secure"])
@pytest.mark.parametrize("name", NAMES)
def test_killed_at_random_points(name: str, grade: str, folder: Path) -> None:
    case, chance = Case(name, grade), random.Random(name)
    points, kills = scout(case, folder / "scout"), list[str]()
    for k in range(3):
        at = [chance.randrange(points) for _ in range(1 + k % 2)]
        result = trial(case, folder / str(k), at)
        assert result.faults == []
        kills += result.kills
    assert kills


@pytest.mark.parametrize("grade", ["simulated", pytest.param("secure", marks=pytest.mark.slow)])
def test_killed_at_every_point(grade: str, folder: Path) -> None:
    """A choice and a release in two rounds, killed twice wherever a server can be."""
    case = Case("unbounded-histogram", grade)
    for name in POINTS:
        result = trial(case, folder / name, [(name, 0), (name, 1)])
        assert result.faults == []
        assert result.kills[0] == name
        if name in LEAVES_A_COPY:
            assert result.exact_left


def test_what_a_killed_server_left_is_deleted_at_once(folder: Path) -> None:
    """Also where the run is never taken up: opening the journal is enough."""
    stale = "exact-0.json.part", "exact-0.json", "exact-1.json", "exact-2.json"
    for name in (*stale, "partial-0.json", "partial-2.json.part"):  # the last two are of 0.2.0
        (folder / name).write_text("{}")
    journal = Journal(folder)
    for index in (1, 2):
        journal.append({"kind": "exact", "index": index, "n_users": 1})
    journal.append({"kind": "forgotten", "index": 1})
    journal.close()
    (folder / "exact-1.json").write_text("{}")
    (folder / "exact-2.json").write_text("{}")
    Journal(folder).close()
    assert [f.name for f in folder.glob("*-*")] == ["exact-2.json"]  # still to be drawn from


def test_a_journal_keeps_its_grade(folder: Path) -> None:
    """A run begun with secure noise is not ended with seeded noise."""
    case = Case("bounded-histogram", "secure")
    (folder / "run").mkdir()
    assert serve(case, folder / "run", case.ask, ("drawn, not journalled", 0))
    with pytest.raises(fh.FedhistError, match="simulated"):
        Session(
            case.protocol,
            noise_source("simulated", 1, case.protocol),
            Journal(folder / "run" / "journal"),
        )


class Owned:
    """Nodes of owners who trust nobody, with a budget for one run and guards on disk."""

    def __init__(self, protocol: fh.Protocol, users: fh.Users, folder: Path) -> None:
        self.owner = {"trust": "local", "epsilon": protocol.guarantee.epsilon}
        self.folder = folder
        self.nodes = [
            Node(NodeSetup(part, i, None, self.owner)) for i, part in enumerate(users.split(3))
        ]

    def ask(self, query: fh.Query, number: int) -> fh.Summary:
        parts = []
        for i, node in enumerate(self.nodes):
            store = FolderStore(self.folder / str(i), i)
            body = decode_answer(node.answer(encode_question(query, number), store)).body
            assert isinstance(body, fh.Summary), body
            parts.append(body)
        return fh.Summary.merge(parts)

    def spent(self) -> float:
        most = 0.0
        for i, node in enumerate(self.nodes):
            guard = Guard(policy_of(self.owner), FolderStore(self.folder / str(i), i).answered())
            most = max(most, float(np.max(guard.spent(node.setup.users.ids))))
        return most


def test_a_question_asked_again_gets_the_stored_answer(folder: Path) -> None:
    """Clients draw from the system, and the server dies with each round's answers unused."""
    case = Case("mean", "secure")
    protocol = case.protocol
    assert protocol.guarantee.trust is fh.Trust.LOCAL

    def population(_: Journal) -> Ask:
        return Owned(protocol, case.users, folder / "guards").ask

    run, here = folder / "run", "answered, not journalled"
    result = trial(case, run, [(here, 0), (here, 0), (here, 1)], population)
    assert result.faults == []
    assert result.kills == [here] * 3
    assert result.asked_again == 3
    answers = Counter(asked_of(run))
    assert len(answers) == protocol.max_rounds  # one to each question, however often it was asked
    spent = Owned(protocol, case.users, folder / "guards").spent()
    assert spent <= protocol.guarantee.epsilon * (1 + 1e-9)


def test_the_campaign_sees_a_journal_that_redraws(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not blind: a journal that forgets releases is caught in both grades."""
    forgets: Callable[..., None] = lambda self, index, label: None  # noqa: E731
    monkeypatch.setattr(Journal, "released", forgets)
    for grade in ("simulated", "secure"):
        case = Case("bounded-histogram", grade)
        points = scout(case, folder / grade / "scout")
        faults = trial(case, folder / grade / "run", [points - 1]).faults
        assert any("a journalled draw was repeated" in f for f in faults)
