"""Runs killed while a round is under way: they go on from its finished blocks, to the same bits."""

from __future__ import annotations

import math
import os
import signal
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, Message

from fedhist.model.protocol import Estimate, Protocol
from fedhist.model.query import Summary
from fedhist.model.trees import Tree
from fedhist.protocols.histograms.bounded_histogram import BoundedHistogram
from fedhist.protocols.means.mean import Mean
from fedhist.session import partial_round
from fedhist.session.journal import Journal
from fedhist.session.partial_round import PartialRound, State
from fedhist.session.session import Session
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from fedhist.users.shards import BLOCK
from server.strategy import SessionStrategy
from simulations.runs.run import Options, execute, noise_source
from simulations.runtimes.simulated_grid import LocalGrid

N = 3 * BLOCK + 100
ITEMS = Keys.of(["a", "b", "c"])
COUNTS = BoundedHistogram(ITEMS, epsilon=1.0, delta=1e-6, clip=1.7)
MEAN = replace(Mean.example(), epsilon=4.0)


@cache
def users_of(protocol: Protocol) -> Users:
    rng = np.random.default_rng(1)
    ids = rng.permutation(N).astype(np.uint64)
    if protocol is MEAN:
        return Users.from_samples(ids, np.arange(N + 1), rng.random(N))
    rows = np.repeat(np.arange(N), 2)
    items = np.tile([0, 2], N)
    return Users.from_counts(ids, rows, items, rng.integers(1, 9, 2 * N), ITEMS)


class Killed(BaseException):
    """Nobody catches it, as nobody catches a SIGKILL."""


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep a round's sums after every block."""
    monkeypatch.setattr(partial_round, "EVERY", 0.0)
    monkeypatch.setattr(partial_round, "COST", 0)
    monkeypatch.setattr(partial_round, "SHARE", 0.0)


@pytest.fixture
def folder() -> Iterator[Path]:
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        yield Path(name) / "journal"


def ran(
    protocol: Protocol,
    folder: Path | None,
    at: int = -1,
    kill: Callable[[], Any] | None = None,
    **options: Any,
) -> tuple[Estimate, list[int]]:
    """Run; at progress call number ``at`` the process dies. Also return what progress said."""
    told: list[int] = []

    def progress(number: int, done: int, of: int) -> None:
        assert of == N
        told.append(done)
        if len(told) - 1 == at:
            if kill is not None:
                kill()
            raise Killed

    seed = {"seed": 4} | options
    outcome = execute(
        protocol, users_of(protocol), Options(journal=folder, progress=progress, **seed)
    )
    return outcome.estimate, told


def bits(estimate: Estimate) -> tuple[bytes, ...]:
    assert estimate.value is not None
    return (np.asarray(estimate.value).tobytes(), str(estimate.ledger).encode())


@cache
def whole(protocol: Protocol, nodes: int) -> tuple[Estimate, list[int]]:
    return ran(protocol, None, nodes=nodes)


@pytest.mark.parametrize("protocol", [COUNTS, MEAN], ids=["central reals", "local, rounds"])
@pytest.mark.parametrize("nodes", [1, 3])
def test_a_killed_run_goes_on_from_its_blocks(protocol: Protocol, nodes: int, folder: Path) -> None:
    """Wherever it is killed, and killed again: each block is asked once, and the bits are those."""
    want, calls = whole(protocol, nodes)
    assert calls[-1] == N
    for at in range(len(calls)):
        here = folder.with_name(f"{at}")
        with pytest.raises(Killed):
            ran(protocol, here, at, nodes=nodes)
        if calls[at] < N:
            assert [f.name[:8] for f in here.glob("partial-*")] == ["partial-"]
            with pytest.raises(Killed):
                ran(protocol, here, 0, nodes=nodes)
        got, told = ran(protocol, here, nodes=nodes)
        assert bits(got) == bits(want)
        assert len(told) <= len(calls) - at + nodes
        assert not [*here.glob("partial-*"), *here.glob("exact-*")]


def test_who_is_asked_otherwise_is_asked_anew(folder: Path) -> None:
    """Other nodes, another seed, a file that cannot be read, and one with a changed number."""
    for change in ({"nodes": 2}, {"seed": 5}, None, "altered"):
        here = folder.with_name(str(change))
        with pytest.raises(Killed):
            ran(COUNTS, here, 1)
        (file,) = here.glob("partial-*")
        if change is None:
            file.write_bytes(b'{"format": 1, "digest"')
        elif change == "altered":
            raw = file.read_bytes()
            file.write_bytes(raw.replace(b'"n_bytes": 0', b'"n_bytes": 7'))
            assert file.read_bytes() != raw
        otherwise = change if isinstance(change, dict) else {}
        got, told = ran(COUNTS, here, **otherwise)
        assert told[0] == BLOCK
        assert bits(got) == bits(ran(COUNTS, None, **otherwise)[0])


def test_other_users_of_the_same_number_are_all_asked(folder: Path) -> None:
    """One of them has another record; those whose numbers were in the sums are asked again."""
    users = users_of(COUNTS)
    rows = np.arange(N)
    others = Users.from_counts(users.ids, rows, rows % 3, np.ones(N, dtype=int), ITEMS)
    with pytest.raises(Killed):
        ran(COUNTS, folder, 1)
    assert [*folder.glob("partial-*")]
    got = execute(COUNTS, others, Options(seed=4, journal=folder)).estimate
    assert bits(got) == bits(execute(COUNTS, others, Options(seed=4)).estimate)


def test_sums_of_another_run_are_not_gone_on_from(folder: Path) -> None:
    """Two runs that ask the same: what one has kept is none of the other's."""
    other = folder.with_name("other")
    for here in (folder, other):
        with pytest.raises(Killed):
            ran(COUNTS, here, 1)
    (file,) = folder.glob("partial-*")
    (other / file.name).write_bytes(file.read_bytes())
    assert ran(COUNTS, other)[1][0] == BLOCK


def test_by_sigkill(folder: Path) -> None:
    """A process of its own, twice."""
    for at in (1, 0):
        pid = os.fork()
        if pid == 0:
            try:
                ran(COUNTS, folder, at, lambda: os.kill(os.getpid(), signal.SIGKILL))
            finally:
                os._exit(0)
        _, status = os.waitpid(pid, 0)
        assert os.WIFSIGNALED(status)
    got, told = ran(COUNTS, folder)
    assert (told[0], bits(got)) == (N, bits(whole(COUNTS, 1)[0]))


# -- behind messages -------------------------------------------------------------------------------


class Dying(LocalGrid):
    """The server dies after some replies."""

    def __init__(self, nodes: list[Users], dies_after: int) -> None:
        super().__init__(nodes, 4)
        self.left, self.asked = dies_after, 0

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterator[Message]:
        sent = list(messages)
        self.asked += len(sent)
        for reply in np.random.default_rng(len(sent)).permutation(len(sent)).tolist():
            if self.left == 0:
                raise Killed
            self.left -= 1
            yield self.answer(sent[reply])


@pytest.mark.parametrize("protocol", [COUNTS, MEAN], ids=["central reals", "local, rounds"])
def test_only_the_nodes_that_are_missing_are_asked(protocol: Protocol, folder: Path) -> None:
    nodes = users_of(protocol).slice(0, 3000).split(9)

    def run(folder: Path | None, dies_after: int = -1) -> tuple[Estimate | None, int]:
        grid = Dying(nodes, dies_after)
        journal = None if folder is None else Journal(folder)
        session = Session(protocol, noise_source("simulated", 4, protocol), journal)
        strategy = SessionStrategy(session, 9, kept_of="nine")
        try:
            strategy.start(grid, ArrayRecord())
        except Killed:
            if journal is not None:
                journal.close()
        if session.estimate is not None:
            assert protocol is not COUNTS or strategy.recalled == 9 - grid.asked
            assert {r["replies"] for r in strategy.rounds} <= {9}
        return session.estimate, grid.asked

    want, asked = run(None)
    assert want is not None
    for after in range(1, asked):
        here = folder.with_name(str(after))
        assert run(here, after)[0] is None
        got, again = run(here)
        assert got is not None
        assert again == asked - after
        assert bits(got) == bits(want)


# -- what lies in the folder -----------------------------------------------------------------------


def a_state() -> State:
    tree = Tree()
    for i in (0, 1, 2, 5):
        tree.add(i, Summary(1, {"x": np.array([0.1 * i]), "n": np.array([i])}))
    return State(tree, frozenset((0, 1, 2, 5)), {"n": 8}, 77, 6, 0, Tree())


def test_what_is_kept_is_found_by_its_own_round_only(folder: Path) -> None:
    journal = Journal(folder)
    PartialRound(journal, 3, "digest", "of").offer(1.0, a_state)
    for index, digest, of in ((2, "digest", "of"), (3, "other", "of"), (3, "digest", "them")):
        assert PartialRound(journal, index, digest, of).found() is None
    found = PartialRound(journal, 3, "digest", "of").found()
    assert found is not None
    assert (found.done, found.n_bytes, found.at) == (frozenset((0, 1, 2, 5)), 77, 6)
    assert found.nodes.total().sums["x"] == a_state().nodes.total().sums["x"]
    assert (folder / "partial-3.json").stat().st_mode & 0o777 == 0o600


def test_it_is_kept_at_intervals(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Never sooner than every so many seconds, nor without some progress in between."""
    clock = [0.0]
    monkeypatch.setattr(partial_round.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(partial_round, "EVERY", 10.0)
    monkeypatch.setattr(partial_round, "SHARE", 0.1)
    partial, written = PartialRound(Journal(folder), 0, "d", "of"), []

    def state() -> State:
        written.append(clock[0])
        return a_state()

    for now, share in ((1, 0.5), (11, 0.05), (12, 0.5), (13, 0.9), (23, 0.55), (24, 0.7)):
        clock[0] = float(now)
        partial.offer(share, state)
    assert written == [12.0, 24.0]


def test_an_exact_partial_sum_outlives_no_release(folder: Path) -> None:
    """Nor the summary of its round; where one was drawn from that, it is not written at all."""

    def files() -> list[str]:
        return sorted(f.name for f in folder.glob("[ep]*-*"))

    summary = Summary(1, {"x": np.ones(1)})
    journal = Journal(folder)
    journal.append({"kind": "query", "index": 0, "digest": "d"})
    journal.keep_partial(0, b"{}")
    assert files() == ["partial-0.json"]
    journal.keep_exact(0, summary)
    assert files() == ["exact-0.json"]
    journal.keep_partial(0, b"{}")  # the copy was lost, and the round is asked again
    journal.release(0, "x", np.ones(1))
    assert files() == []
    journal.keep_partial(0, b"{}")
    assert files() == []
    journal.append({"kind": "query", "index": 1, "digest": "d"})
    journal.keep_partial(1, b"{}")
    journal.keep_local(1, summary)
    assert files() == []
    journal.close()


@pytest.mark.parametrize("kind", ["local", "exact"])
def test_sums_of_a_round_are_gone_before_its_summary_is_written(kind: str, folder: Path) -> None:
    """Those of few nodes under aggregate trust, or of few of a batch, tell more than the whole."""
    journal, left = Journal(folder), []
    journal.append({"kind": "query", "index": 0, "digest": "d"})
    journal.keep_partial(0, b"{}")
    append, journal_line = Journal.append, {"local": "summary", "exact": "release"}[kind]

    def watched(self: Journal, line: dict[str, Any]) -> None:
        if line["kind"] == journal_line:
            left.append([f.name for f in folder.glob("[ep]*-*")])
        append(self, line)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Journal, "append", watched)
        getattr(journal, f"keep_{kind}")(0, Summary(1, {"x": np.ones(1)}))
        journal.release(0, "x", np.ones(1))
    assert left == [[]]


def test_sums_whose_writing_fails_half_way_outlive_no_release(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    """The file is there, and forcing its folder to disk fails."""
    journal = Journal(folder)
    journal.append({"kind": "query", "index": 0, "digest": "d"})

    def failing(path: Path, data: bytes) -> None:
        path.write_bytes(data)
        raise OSError("input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("fedhist.session.journal.write_private", failing)
        with pytest.raises(OSError, match="input/output"):
            journal.keep_partial(0, b"{}")
    journal.release(0, "x", np.ones(1))
    assert not [*folder.glob("partial-*")]


def test_what_no_round_goes_on_from_is_deleted_when_the_journal_is_opened(folder: Path) -> None:
    journal = Journal(folder)
    journal.append({"kind": "query", "index": 0, "digest": "d"})
    journal.keep_partial(0, b"{}")
    journal.close()
    for name in ("partial-0.json.part", "partial-1.json"):
        (folder / name).write_text("{}")
    journal = Journal(folder)
    assert [f.name for f in folder.glob("partial-*")] == ["partial-0.json"]
    assert journal.partial(0) == b"{}"
    journal.close()
    (folder / "partial-0.json").rename(folder / "kept")
    journal = Journal(folder)
    journal.keep_local(0, Summary(1, {"x": np.ones(1)}))
    journal.close()
    (folder / "kept").rename(folder / "partial-0.json")
    Journal(folder).close()
    assert not [*folder.glob("partial-*")]


def test_a_sum_that_fails_its_check_is_not_gone_on_from(folder: Path) -> None:
    """Else every restart would add up the same."""
    assert COUNTS.epsilon < math.inf
    session = Session(COUNTS, noise_source("simulated", 4, COUNTS), Journal(folder))
    session.journal.keep_partial(0, b"{}")
    with pytest.raises(Exception, match="counts"):
        session.advance(Summary(1, {"counts": np.full(3, math.nan)}))
    assert not [*folder.glob("partial-*")]
