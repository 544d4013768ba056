"""Where the guard's memory lives: Flower's Context and a folder of the node's owner."""

from pathlib import Path

import numpy as np
import pytest
from flwr.app import RecordDict

from clients.guard_folder import FolderStore
from clients.spending import Answered
from clients.store import ContextStore, MemoryStore, NodeMemory, Store, memory_of
from fedhist.flower.wire import ARRAYS, HEAD, decode_answer, encode_answer
from fedhist.model.query import Report, Summary

ENTRIES = [Answered("aa", 0.5), Answered("bb", 1.0, 7, 0.25, 0.5), Answered("cc", 0.0)]


@pytest.fixture(params=["context", "folder"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return ContextStore(RecordDict()) if request.param == "context" else FolderStore(tmp_path / "g")


def replies() -> list[RecordDict]:
    report = Report(
        np.array([4, 2**64 - 1], dtype=np.uint64),
        {"x": np.array([[True], [False]])},
        {"y": np.array([0.5, -0.0, np.inf])},
        np.array([0, 1, 3]),
    )
    return [
        encode_answer(Summary(2, {"s": np.array([[1, 2]], dtype=np.int32)}), 1, "aa"),
        encode_answer(report, 2, "bb"),
        encode_answer("no", 3, "cc"),
    ]


def test_entries_and_replies_come_back(store: Store) -> None:
    assert store.answered() == ()
    assert store.reply("aa") is None
    for k, (entry, reply) in enumerate(zip(ENTRIES, replies(), strict=True)):
        with store.locked():
            store.add(entry, reply)
        assert store.answered() == tuple(ENTRIES[: k + 1])
    for entry, reply in zip(ENTRIES, replies(), strict=True):
        got = store.reply(entry.digest)
        assert got is not None
        assert dict(got[HEAD]) == dict(reply[HEAD])
        assert {k: a.data for k, a in got[ARRAYS].items()} == {
            k: a.data for k, a in reply[ARRAYS].items()
        }
        assert type(decode_answer(got).body) is type(decode_answer(reply).body)


def test_replies_that_can_be_recomputed_are_not_kept(store: Store) -> None:
    store.add(ENTRIES[0], None)
    assert store.answered() == (ENTRIES[0],)
    assert store.reply("aa") is None


def test_a_driver_keeps_what_a_context_would() -> None:
    """The lines go to the next worker; a run's attempt and what it unmasked go with them."""
    state, kept = RecordDict(), NodeMemory()
    for entry in ENTRIES:
        ContextStore(state).add(entry, None)
        store = MemoryStore(kept)
        store.add(entry, replies()[0])
        kept = store.memory
    assert kept.lines == memory_of(state).lines
    assert MemoryStore(kept).answered() == ContextStore(state).answered() == tuple(ENTRIES)
    assert MemoryStore(kept).reply("aa") is None
    for digest, unmasked in (("aa", False), ("aa", True), ("bb", True)):
        stores = MemoryStore(kept), ContextStore(state)
        for each in stores:
            each.keep_attempt(digest, b"secret", unmasked=unmasked)
            assert each.attempt(digest) == b"secret"
            assert each.attempt("other") is None
        assert stores[0].unmasked() == stores[1].unmasked()
        kept = stores[0].memory
    assert kept == NodeMemory(memory_of(state).lines, ("aa", "bb"), ("bb", b"secret"))
