"""Owners' nodes under masks: system entropy, folders that outlive processes, peers' signatures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from flwr.app import Message
from masked_grids import FolderGrid, Killed, masked_vectors, start, total_of
from test_masked_sums import NODES, PROTOCOL, N

from clients.guard_folder import GuardDamaged
from clients.histograms.queries import ClippedCounts
from clients.masked import owner_keys
from fedhist import Users
from fedhist.base.chained_log import ChainedLog
from fedhist.base.errors import MissingReplies, PopulationError
from fedhist.flower.masked_wire import encode_asks
from fedhist.flower.wire import decode_answer, encode_question
from fedhist.privacy.shares import Aggregation
from fedhist.protocols import UserLevelErm
from fedhist.secagg.messages import seal
from simulations.runtimes.flower_internals import FIRST_NODE_ID

OWNER = {"trust": "aggregate", "epsilon": 1.0, "adjacency": "zero-out-user"}


@pytest.fixture
def grid(tmp_path: Path) -> FolderGrid:
    return FolderGrid(NODES, tmp_path / "nodes", [OWNER] * N)


def unmask_of(grid: FolderGrid, present: Iterable[int], node: int = 0) -> Message:
    asked = grid.sent["masked"][node]
    head = asked.content["fedhist"]
    nodes = np.array(list(present), dtype=np.uint32)
    sealed = seal("unmask.ask", head["session"], node, present=nodes)
    (record,) = encode_asks("unmask", head["digest"], {node: sealed}).values()
    return Message(record, asked.metadata.dst_node_id, "query")


def test_numbers_are_drawn_once_and_charged_once(grid: FolderGrid, tmp_path: Path) -> None:
    grid.unseen = {"masked": {1, 2, 3}}
    with pytest.raises(MissingReplies):
        start(grid, PROTOCOL, tmp_path / "run")
    drawn = [grid.kept_words(i) for i in range(N)]
    first = masked_vectors(grid)
    grid.unseen = {}
    session, _ = start(grid, PROTOCOL, tmp_path / "run")
    for i in range(N):
        np.testing.assert_array_equal(grid.kept_words(i), drawn[i])
        assert [a.epsilon for a in grid.store(i).answered()] == [1.0]
    again = masked_vectors(grid)[len(first) :]
    assert (first[0] != again[0]).all()  # node 0's, under the masks of two sessions
    np.testing.assert_array_equal(total_of(session), grid.total_of_kept(range(N)))


def test_secrets_are_private_and_gone_after_unmasking(grid: FolderGrid) -> None:
    grid.kill_before = "unmask"
    with pytest.raises(Killed):
        start(grid, PROTOCOL)
    file = grid.attempt_file(0)
    assert file.stat().st_mode & 0o777 == 0o600
    before = grid.attempt(0)
    assert len(before["held"]) == N
    grid.kill_before = ""
    start(grid, PROTOCOL)
    after = grid.attempt(0)
    assert after["unmasked"] == list(range(N))
    assert not any(after[name] for name in ("r", "b", "enc", "own_share", "keys", "held"))
    assert [f.suffix for f in (grid.folder / "guard-0").glob("secagg-*")] == [".json"]
    digest = file.stem.removeprefix("secagg-")
    assert grid.store(0).unmasked() == {digest}


def test_unmasking_is_remembered_whatever_is_deleted(grid: FolderGrid, tmp_path: Path) -> None:
    start(grid, PROTOCOL, tmp_path / "run")
    for i in range(N):
        grid.attempt_file(i).unlink()
    with pytest.raises(MissingReplies, match="has unmasked its answer to this query, and does so"):
        start(grid, PROTOCOL)
    log = grid.folder / "guard-0" / "answered.jsonl"
    log.write_text("\n".join(log.read_text().splitlines()[:-1]) + "\n")
    with pytest.raises(GuardDamaged):
        grid.store(0).unmasked()


def test_a_node_killed_between_its_answer_and_the_note_of_it(
    grid: FolderGrid, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is on disk and has not left: it is the only one that ever will."""
    grid.kill_before = "unmask"
    with pytest.raises(Killed):
        start(grid, PROTOCOL)
    file = grid.attempt_file(0)
    digest = file.stem.removeprefix("secagg-")
    grid.kill_before = ""
    message = unmask_of(grid, range(N))
    with monkeypatch.context() as patched:
        patched.setattr(ChainedLog, "append", lambda *_: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            grid.answer(message)
    assert grid.store(0).unmasked() == frozenset()
    other = decode_answer(grid.answer(unmask_of(grid, range(1, N), 0)).content)
    assert "has unmasked another set" in str(other.body)
    first, again = (grid.answer(message).content["fedhist"]["check"] for _ in range(2))
    assert first == again
    assert grid.store(0).unmasked() == {digest}


def test_an_attempt_put_back_from_before_unmasks_nothing(grid: FolderGrid) -> None:
    grid.kill_before = "unmask"
    with pytest.raises(Killed):
        start(grid, PROTOCOL)
    file = grid.attempt_file(0)
    digest, before = file.stem.removeprefix("secagg-"), file.read_bytes()
    grid.kill_before = ""
    start(grid, PROTOCOL)
    message = grid.sent["unmask"][0]
    file.write_bytes(before)
    said = decode_answer(grid.answer(message).content).body
    assert "has been put back from before" in str(said)
    assert grid.store(0).unmasked() == {digest}


def test_attempts_that_were_broken_off_do_not_pile_up(grid: FolderGrid) -> None:
    store = grid.store(0)
    for k in range(40):
        store.keep_attempt(f"{k:032x}", b"{}", unmasked=k < 3)
    left = list((grid.folder / "guard-0").glob("secagg-*"))
    assert len(left) == 3 + 16
    assert store.attempt(f"{39:032x}") == b"{}"
    assert store.attempt(f"{4:032x}") is None
    aside = store.reset()
    assert not list(aside.glob("secagg-*"))
    assert store.unmasked() == frozenset()


def test_an_owners_node_answers_under_masks_only(grid: FolderGrid) -> None:
    record = encode_question(PROTOCOL.asks(PROTOCOL.query, 0), 0)
    reply = grid.answer(Message(record, FIRST_NODE_ID, "query"))
    assert "leave under masks only" in str(decode_answer(reply.content).body)
    assert not grid.store(0).answered()


def test_a_spent_budget_is_refused_before_any_key_is_sent(tmp_path: Path) -> None:
    grid = FolderGrid(NODES, tmp_path, [OWNER | {"epsilon": 0.5}] * N)
    with pytest.raises(MissingReplies, match=r"12 x .* refused: a user's budget is spent"):
        start(grid, PROTOCOL)
    grid = FolderGrid(NODES, tmp_path, [OWNER | {"min-parties": 13}] * N)
    with pytest.raises(MissingReplies, match="12 nodes share the noise; this node's owner asks"):
        start(grid, PROTOCOL)


def test_what_goes_wrong_with_data_is_not_told(
    grid: FolderGrid, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: object, users: Users, rng: object) -> None:
        raise ValueError(f"secret {users.ids.tolist()}")

    monkeypatch.setattr(ClippedCounts, "answer_folded", fails)
    with pytest.raises(MissingReplies, match="could not answer; its own log says why") as e:
        start(grid, PROTOCOL)
    assert "secret" not in str(e.value)


def test_a_series_is_charged_with_its_first_question(tmp_path: Path) -> None:
    """Five sums in turn, each under masks of its own, for one budget on every node."""
    protocol = replace(UserLevelErm.example(), discrete=True, trust=Aggregation(10))
    owner = OWNER | {"epsilon": protocol.epsilon, "adjacency": protocol.guarantee.adjacency.value}
    grid = FolderGrid(UserLevelErm.example_users().split(10), tmp_path, [owner] * 10)
    session, strategy = start(grid, protocol)
    assert session.estimate.status == "ok"
    assert [r["replies"] for r in strategy.rounds] == [10] * 5
    costs = [a.epsilon for a in grid.store(3).answered()]
    assert costs == [protocol.epsilon, 0.0, 0.0, 0.0, 0.0]
    assert len(grid.store(3).unmasked()) == 5


def pem(folder: Path, n: int) -> list[Mapping[str, Any]]:
    keys = [Ed25519PrivateKey.generate() for _ in range(n)]
    peers = folder / "peers.pem"
    peers.write_bytes(
        b"".join(
            k.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
            for k in keys
        )
    )
    for i, key in enumerate(keys):
        raw = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (folder / f"key-{i}.pem").write_bytes(raw)
    return [
        OWNER | {"secagg-key": str(folder / f"key-{i}.pem"), "secagg-peers": str(peers)}
        for i in range(n)
    ]


def test_peers_sign_and_strangers_do_not_count(tmp_path: Path) -> None:
    owners = pem(tmp_path, N)
    grid = FolderGrid(NODES, tmp_path / "known", owners)
    session, _ = start(grid, PROTOCOL)
    np.testing.assert_array_equal(total_of(session), grid.total_of_kept(range(N)))
    stranger = [*owners[:-1], {**owners[-1], "secagg-key": owners[0]["secagg-key"]}]
    for odd, words in (
        (stranger, "nodes 0 and 11 are signed for by one owner"),
        ([*owners[:-1], OWNER], "the keys of node 11 bear no valid signature"),
    ):
        grid = FolderGrid(NODES, tmp_path / str(len(words)), odd)
        with pytest.raises(MissingReplies, match=words):
            start(grid, PROTOCOL)
        assert not grid.told["masked"]


def test_files_of_keys(tmp_path: Path) -> None:
    owner = pem(tmp_path, 2)[0]
    assert owner_keys({}) == (None, None)
    bad = tmp_path / "bad.pem"
    bad.write_text("no key")
    for key in ("secagg-key", "secagg-peers"):
        for file in (bad, tmp_path / "nothing"):
            with pytest.raises(PopulationError, match=key):
                owner_keys({key: str(file)})
    with pytest.raises(PopulationError, match="secagg-key"):
        owner_keys({"secagg-key": owner["secagg-peers"]})
