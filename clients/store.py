"""Where a node keeps what it has answered; here: in Flower's Context.

The folder of an owner is :mod:`clients.guard_folder`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import cast

from flwr.app import ConfigRecord, RecordDict

from clients.guard import Answered
from fedhist.flower.wire import ARRAYS, HEAD

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

    def stored_bytes(self) -> int:
        """Bytes that are kept; 0 where a driver keeps them."""
        return 0


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
