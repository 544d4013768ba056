"""Where a node keeps what it has answered: in Flower's Context, or in a folder of its owner."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from pathlib import Path
from typing import cast

from flwr.app import ConfigRecord, RecordDict

from clients.guard import Answered
from fedhist.base.errors import FedhistError
from fedhist.base.files import locked, write_private
from fedhist.flower.wire import ARRAYS, HEAD, pack_record, unpack_record
from fedhist.session.codec import array_from_json, array_to_json

GUARD = "fedhist.guard"
REPLY = "fedhist.reply"


class Store(ABC):
    """Answered queries and, where answers cannot be recomputed, the answers themselves."""

    def locked(self) -> AbstractContextManager[object]:
        """Hold the store from the guard's decision to the entry, so that no two runs race."""
        return nullcontext()

    @abstractmethod
    def answered(self) -> tuple[Answered, ...]:
        """All queries answered so far, in order."""

    @abstractmethod
    def add(self, entry: Answered, reply: RecordDict | None) -> None:
        """Remember an answer before it leaves; ``reply`` is None where it can be recomputed."""

    @abstractmethod
    def reply(self, digest: str) -> RecordDict | None:
        """Return the stored answer to a query, if there is one."""


class ContextStore(Store):
    """Keeps entries in Flower's Context, which outlives the worker but not the run.

    Parameters
    ----------
    state : RecordDict
        ``context.state`` of the node.
    """

    def __init__(self, state: RecordDict) -> None:
        self._state = state

    def answered(self) -> tuple[Answered, ...]:
        """All queries answered so far, in order."""
        return tuple(_entry(line) for line in guard_lines(self._state))

    def add(self, entry: Answered, reply: RecordDict | None) -> None:
        """Remember an answer before it leaves."""
        lines = [*guard_lines(self._state), _line(entry)]
        self._state[GUARD] = ConfigRecord({"answered": lines})
        if reply is not None:
            self._state[f"{REPLY}.{entry.digest}.head"] = reply[HEAD]
            self._state[f"{REPLY}.{entry.digest}.arrays"] = reply[ARRAYS]

    def reply(self, digest: str) -> RecordDict | None:
        """Return the stored answer to a query, if there is one."""
        head = self._state.get(f"{REPLY}.{digest}.head")
        arrays = self._state.get(f"{REPLY}.{digest}.arrays")
        if head is None or arrays is None:
            return None
        return RecordDict({HEAD: head, ARRAYS: arrays})


def guard_lines(state: RecordDict) -> tuple[str, ...]:
    """Return the guard's entries in a Context's state, as text."""
    record = state.get(GUARD)  # not state.config_records, which copies the whole state
    if not isinstance(record, ConfigRecord):
        return ()
    return tuple(str(x) for x in cast(list[str], record["answered"]))


def set_guard_lines(state: RecordDict, lines: tuple[str, ...]) -> None:
    """Put entries kept elsewhere (by the simulation's driver) into a Context's state."""
    if lines:
        state[GUARD] = ConfigRecord({"answered": list(lines)})


# The nodes of a worker answer the same queries, so they have the same entries.
_line = lru_cache(maxsize=1024)(Answered.to_json)
_entry = lru_cache(maxsize=1024)(Answered.from_json)


class FolderStore(Store):
    """Keeps entries and answers in files of mode 0600, so that they outlive the node's process.

    Parameters
    ----------
    folder : path
        Owned by the node's owner; made if it does not exist.
    node : int
        Index of the node; a folder serves one node only.

    Raises
    ------
    FedhistError
        If the folder serves another node.
    """

    def __init__(self, folder: str | Path, node: int = 0) -> None:
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._log = self._folder / "answered.jsonl"
        owner = self._folder / "node"
        if not owner.exists():
            write_private(owner, f"{node}\n".encode())
        elif owner.read_text() != f"{node}\n":
            raise FedhistError(f"the guard's folder belongs to node {owner.read_text().strip()}")

    def locked(self) -> AbstractContextManager[object]:
        """Hold the folder against other processes of this node."""
        return locked(self._folder / "lock")

    def answered(self) -> tuple[Answered, ...]:
        """All queries answered so far, in order; a torn last line was never answered."""
        if not self._log.exists():
            return ()
        complete, _, _ = self._log.read_text().rpartition("\n")
        return tuple(Answered.from_json(line) for line in complete.splitlines() if line)

    def add(self, entry: Answered, reply: RecordDict | None) -> None:
        """Remember an answer on disk before it leaves: the answer first, then the charge."""
        if reply is not None:
            head, arrays = unpack_record(reply)
            body = {"head": head, "arrays": {k: array_to_json(v) for k, v in arrays.items()}}
            write_private(self._reply_file(entry.digest), json.dumps(body).encode())
        if self._log.exists():
            raw = self._log.read_bytes()
            os.truncate(self._log, raw.rfind(b"\n") + 1)  # a torn line was never answered
        write_private(self._log, f"{entry.to_json()}\n".encode(), append=True)

    def reply(self, digest: str) -> RecordDict | None:
        """Return the stored answer to a query, if there is one."""
        file = self._reply_file(digest)
        if not file.exists():
            return None
        body = json.loads(file.read_text())
        return pack_record(body["head"], {k: array_from_json(v) for k, v in body["arrays"].items()})

    def _reply_file(self, digest: str) -> Path:
        return self._folder / f"reply-{digest}.json"
