"""Where a node keeps what it has answered; here: in Flower's Context.

The folder of an owner is :mod:`clients.guard_folder`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any, NamedTuple, cast

from flwr.app import ConfigRecord, RecordDict

from clients.spending import Answered
from fedhist.flower.wire import ARRAYS, HEAD


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

    @abstractmethod
    def attempt(self, digest: str) -> bytes | None:
        """Return what the node keeps of its attempt at a sum under masks, if it is here."""

    @abstractmethod
    def keep_attempt(self, digest: str, body: bytes, *, unmasked: bool) -> None:
        """Keep an attempt before its answer leaves; secret until the node has ``unmasked``."""

    @abstractmethod
    def unmasked(self) -> frozenset[str]:
        """Digests of the queries whose answers the node has unmasked, ever."""

    def stored_bytes(self) -> int:
        """Bytes that are kept; 0 where a driver keeps them."""
        return 0


class NodeMemory(NamedTuple):
    """What a driver keeps of a node between messages."""

    lines: tuple[str, ...] = ()
    unmasked: tuple[str, ...] = ()
    attempt: tuple[str, bytes] | None = None


class MemoryStore(Store):
    """What a driver keeps of a node, while that answers a message: ``memory`` before, and now."""

    def __init__(self, memory: NodeMemory) -> None:
        self.memory = memory

    def answered(self) -> tuple[Answered, ...]:
        return tuple(_entry(line) for line in self.memory.lines)

    def add(self, entry: Answered, reply: RecordDict | None) -> None:
        self._keep(_with_entry(self.memory, entry))

    def reply(self, digest: str) -> RecordDict | None:
        return None  # answers are not kept

    def attempt(self, digest: str) -> bytes | None:
        newest = self.memory.attempt
        return newest[1] if newest is not None and newest[0] == digest else None

    def keep_attempt(self, digest: str, body: bytes, *, unmasked: bool) -> None:
        """Keep an attempt in the place of the one before: a run has one at a time."""
        done = self.memory.unmasked
        if unmasked and digest not in done:
            done = (*done, digest)
        self._keep(self.memory._replace(unmasked=done, attempt=(digest, body)))

    def unmasked(self) -> frozenset[str]:
        return frozenset(self.memory.unmasked)

    def _keep(self, memory: NodeMemory) -> None:
        self.memory = memory


class ContextStore(MemoryStore):
    """Keeps entries in Flower's Context (its state), which outlives the worker but not the run."""

    def __init__(self, state: RecordDict) -> None:
        super().__init__(memory_of(state))
        self._state = state

    def add(self, entry: Answered, reply: RecordDict | None) -> None:
        self._keep(self.memory._replace(lines=(*self.memory.lines, _line(entry))))
        if reply is not None:
            self._state[f"fedhist.reply.{entry.digest}.head"] = reply[HEAD]
            self._state[f"fedhist.reply.{entry.digest}.arrays"] = reply[ARRAYS]

    def reply(self, digest: str) -> RecordDict | None:
        head = self._state.get(f"fedhist.reply.{digest}.head")
        arrays = self._state.get(f"fedhist.reply.{digest}.arrays")
        if head is None or arrays is None:
            return None
        return RecordDict({HEAD: head, ARRAYS: arrays})

    def _keep(self, memory: NodeMemory) -> None:
        super()._keep(memory)
        self._state["fedhist.guard"] = ConfigRecord({"answered": list(memory.lines)})
        if memory.attempt is not None:
            digest, body = memory.attempt
            self._state["fedhist.secagg"] = ConfigRecord({"digest": digest, "body": body})
        if memory.unmasked:
            self._state["fedhist.unmasked"] = ConfigRecord({"digests": list(memory.unmasked)})


def memory_of(state: RecordDict) -> NodeMemory:
    """Return what a Context's state holds of the guard and of sums under masks."""
    entries, done, attempt = (_record(state, name) for name in ("guard", "unmasked", "secagg"))
    lines = tuple(map(str, cast(list[str], entries.get("answered", ()))))
    newest = (str(attempt["digest"]), cast(bytes, attempt["body"])) if attempt else None
    return NodeMemory(lines, tuple(cast(list[str], done.get("digests", ()))), newest)


def _record(state: RecordDict, name: str) -> Mapping[str, Any]:
    key = f"fedhist.{name}"
    if key not in state:  # an exception, of state.get, costs as much as all the rest
        return {}
    record = state[key]  # by key: state.config_records copies the whole state
    return record if isinstance(record, ConfigRecord) else {}


# The nodes of a worker answer the same queries, so they have the same entries.
_line = lru_cache(maxsize=1024)(Answered.to_json)
_entry = lru_cache(maxsize=1024)(Answered.from_json)


@lru_cache(maxsize=1024)
def _with_entry(memory: NodeMemory, entry: Answered) -> NodeMemory:
    return memory._replace(lines=(*memory.lines, _line(entry)))
