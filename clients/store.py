"""Where a node keeps what it has answered; here: in Flower's Context.

The folder of an owner is :mod:`clients.guard_folder`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import NamedTuple, cast

from flwr.app import ConfigRecord, RecordDict

from clients.spending import Answered
from fedhist.flower.wire import ARRAYS, HEAD

GUARD = "fedhist.guard"
REPLY = "fedhist.reply"
ATTEMPT, UNMASKED = "fedhist.secagg", "fedhist.unmasked"


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


class ContextStore(Store):
    """Keeps entries in Flower's Context (its state), which outlives the worker but not the run."""

    def __init__(self, state: RecordDict) -> None:
        self._state = state

    def answered(self) -> tuple[Answered, ...]:
        return tuple(_entry(line) for line in guard_lines(self._state))

    def add(self, entry: Answered, reply: RecordDict | None) -> None:
        lines = [*guard_lines(self._state), _line(entry)]
        self._state[GUARD] = ConfigRecord({"answered": lines})
        if reply is not None:
            self._state[f"{REPLY}.{entry.digest}.head"] = reply[HEAD]
            self._state[f"{REPLY}.{entry.digest}.arrays"] = reply[ARRAYS]

    def reply(self, digest: str) -> RecordDict | None:
        head = self._state.get(f"{REPLY}.{digest}.head")
        arrays = self._state.get(f"{REPLY}.{digest}.arrays")
        if head is None or arrays is None:
            return None
        return RecordDict({HEAD: head, ARRAYS: arrays})

    def attempt(self, digest: str) -> bytes | None:
        found = memory_of(self._state).attempt
        return found[1] if found is not None and found[0] == digest else None

    def keep_attempt(self, digest: str, body: bytes, *, unmasked: bool) -> None:
        self._state[ATTEMPT] = ConfigRecord({"digest": digest, "body": body})
        before = memory_of(self._state).unmasked
        if unmasked and digest not in before:
            self._state[UNMASKED] = ConfigRecord({"digests": [*before, digest]})

    def unmasked(self) -> frozenset[str]:
        return frozenset(memory_of(self._state).unmasked)


class NodeMemory(NamedTuple):
    """What a driver keeps of a node between messages.

    The guard's entries, the queries whose answers were unmasked, and the newest attempt at a sum
    under masks with its query.
    """

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
        self.memory = _with_entry(self.memory, entry)

    def reply(self, digest: str) -> None:
        """Return None: answers are not kept."""

    def attempt(self, digest: str) -> bytes | None:
        found = self.memory.attempt
        return found[1] if found is not None and found[0] == digest else None

    def keep_attempt(self, digest: str, body: bytes, *, unmasked: bool) -> None:
        done = self.memory.unmasked
        if unmasked and digest not in done:
            done = (*done, digest)
        self.memory = self.memory._replace(unmasked=done, attempt=(digest, body))

    def unmasked(self) -> frozenset[str]:
        return frozenset(self.memory.unmasked)


def memory_of(state: RecordDict) -> NodeMemory:
    """Return what a Context's state holds of the guard and of sums under masks."""
    done, attempt = state.get(UNMASKED), state.get(ATTEMPT)
    digests = cast(list[str], done["digests"]) if isinstance(done, ConfigRecord) else []
    newest = None
    if isinstance(attempt, ConfigRecord):
        newest = str(attempt["digest"]), cast(bytes, attempt["body"])
    return NodeMemory(guard_lines(state), tuple(digests), newest)


def guard_lines(state: RecordDict) -> tuple[str, ...]:
    """Return the guard's entries in a Context's state, as text."""
    record = state.get(GUARD)  # not state.config_records, which copies the whole state
    if not isinstance(record, ConfigRecord):
        return ()
    return tuple(str(x) for x in cast(list[str], record["answered"]))


# The nodes of a worker answer the same queries, so they have the same entries.
_line = lru_cache(maxsize=1024)(Answered.to_json)
_entry = lru_cache(maxsize=1024)(Answered.from_json)


@lru_cache(maxsize=1024)
def _with_entry(found: NodeMemory, entry: Answered) -> NodeMemory:
    return found._replace(lines=(*found.lines, _line(entry)))
