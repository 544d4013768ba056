"""The guard's memory in a folder of the node's owner: it outlives processes, and damage shows.

Every entry is a line that carries a hash of all lines before it and of the reply that left. A
second file keeps the number of entries and the hash of the last line; a third one, elsewhere, may
keep the same, so that a folder put back from an older copy is found out. Whatever does not fit
together is an error, and the node answers nothing until its owner resets the folder.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from flwr.app import RecordDict

from clients.guard import Answered
from clients.store import Store
from fedhist.base.errors import FedhistError
from fedhist.base.files import locked, write_private
from fedhist.flower.wire import pack_record, unpack_record
from fedhist.session.codec import array_from_json, array_to_json

LOG, TALLY, NODE = "answered.jsonl", "tally.json", "node"
CHAINED = "chained"
_MOST_AHEAD = 1
"""Entries that a killed process may have written without counting them."""


class GuardDamaged(FedhistError):
    """The folder does not hold what the guard has put there."""


class Tally(NamedTuple):
    """How many entries there are, and the hash that the last of them carries."""

    entries: int = 0
    chain: str = ""


class _Found(NamedTuple):
    """What the folder holds: entries, hashes of their replies, and the bytes of whole lines."""

    entries: tuple[Answered, ...]
    replies: dict[str, str]
    tally: Tally
    complete: int


class FolderStore(Store):
    """Keeps entries and answers in files of mode 0600.

    Parameters
    ----------
    folder : path
        Owned by the node's owner; made if it does not exist.
    node : int
        Index of the node; a folder serves one node only.
    counter : path, optional
        A file outside the folder, on a disk that is not restored together with it. It only ever
        counts up: a folder that has fewer entries has been rolled back.

    Raises
    ------
    GuardDamaged
        If the folder serves another node. Every method raises it where lines are missing, altered,
        doubled or unreadable, where replies are missing, or the folder was rolled back.
    """

    def __init__(
        self, folder: str | Path, node: int = 0, counter: str | Path | None = None
    ) -> None:
        self._folder = Path(folder)
        self._counter = None if counter is None else Path(counter)
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._log, self._tally = self._folder / LOG, self._folder / TALLY
        owner = self._folder / NODE
        if not owner.exists() and not any(self._folder.glob("reply-*")) and not self._log.exists():
            self._begin(node)
        said = owner.read_text().split() if owner.exists() else []
        if said[:1] != [str(node)]:
            raise GuardDamaged(f"the guard's folder belongs to node {' '.join(said[:1]) or '?'}")
        self._chained = CHAINED in said

    def locked(self) -> AbstractContextManager[object]:
        """Hold the folder against other processes of this node."""
        return locked(self._folder / "lock")

    def answered(self) -> tuple[Answered, ...]:
        """All queries answered so far, in order; a torn last line was never answered."""
        return self._read().entries

    def add(self, entry: Answered, reply: RecordDict | None) -> None:
        """Remember an answer on disk before it leaves: the answer first, then the charge."""
        found = self._read()
        line: dict[str, Any] = json.loads(entry.to_json())
        if reply is not None:
            head, arrays = unpack_record(reply)
            kept = {"head": head, "arrays": {k: array_to_json(v) for k, v in arrays.items()}}
            body = json.dumps(kept).encode()
            write_private(self._reply_file(entry.digest), body)
            line["reply"] = hashlib.sha256(body).hexdigest()
        line["chain"] = _chain(found.tally.chain, line)
        if self._log.exists():
            os.truncate(self._log, found.complete)  # a torn line was never answered
        write_private(self._log, f"{json.dumps(line, sort_keys=True)}\n".encode(), append=True)
        self._count(Tally(found.tally.entries + 1, line["chain"]))

    def reply(self, digest: str) -> RecordDict | None:
        """Return the stored answer to a query, if there is one."""
        file, found = self._reply_file(digest), self._read()
        if not file.exists():
            return None
        raw = file.read_bytes()
        if digest in found.replies and found.replies[digest] != hashlib.sha256(raw).hexdigest():
            raise self._damage(f"{file.name} has been altered")
        body = json.loads(raw)
        return pack_record(body["head"], {k: array_from_json(v) for k, v in body["arrays"].items()})

    def stored_bytes(self) -> int:
        """Bytes of all files."""
        return sum(f.stat().st_size for f in self._folder.iterdir() if f.is_file())

    def reset(self) -> Path:
        """Begin anew: every budget is unspent again. Returns the folder that keeps the old files.

        The owner's decision alone; no message leads here.
        """
        aside = self._folder / f"reset-{len(list(self._folder.glob('reset-*'))) + 1}"
        aside.mkdir(mode=0o700)
        node = (self._folder / NODE).read_text().split()[0]
        for file in [*self._folder.glob("*.json*"), self._folder / NODE]:
            os.replace(file, aside / file.name)
        if self._counter is not None:
            self._counter.unlink(missing_ok=True)
        self._begin(int(node))
        self._chained = True
        return aside

    def start_counter(self) -> None:
        """Begin to count elsewhere what the folder holds now: the owner says that it is whole."""
        if self._counter is None or self._counter.exists():
            raise GuardDamaged(f"the counter {self._counter} is there already, or none was named")
        counter, self._counter = self._counter, None
        tally = self._read().tally
        self._counter = counter
        self._count(tally)

    # -- what fits together

    def _begin(self, node: int) -> None:
        """Count from zero; the node's file comes last, so that a folder without it is empty."""
        new = self._counter is not None and not self._counter.exists()
        self._count(Tally(), elsewhere=new)  # a counter that is there knows of an older folder
        write_private(self._folder / NODE, f"{node}\n{CHAINED}\n".encode())

    def _read(self) -> _Found:
        raw = self._log.read_bytes() if self._log.exists() else b""
        complete = raw.rfind(b"\n") + 1
        entries, replies, chain, chained = [], {}, "", self._chained
        for number, text in enumerate(raw[:complete].splitlines(), 1):
            entry, said, line = self._entry(number, text)
            follows = _chain(chain, line)
            chained = chained or said is not None
            if chained and said != follows:
                raise self._damage(f"line {number} does not continue the lines before it")
            if "reply" in line:
                replies[entry.digest] = line["reply"]
                if not self._reply_file(entry.digest).exists():
                    raise self._damage(f"the reply of line {number} is missing")
            entries.append(entry)
            chain = follows
        found = _Found(tuple(entries), replies, Tally(len(entries), chain), complete)
        self._hold_against(self._tally, found.tally, required=chained)
        if self._counter is not None:
            self._hold_against(self._counter, found.tally, required=True)
        return found

    def _entry(self, number: int, text: bytes) -> tuple[Answered, str | None, dict[str, Any]]:
        """Read one line: entry, the hash it carries (none before version 0.3), what is hashed."""
        try:
            line = json.loads(text)
            said = line.pop("chain", None)
            entry = Answered(**{k: v for k, v in line.items() if k != "reply"})
        except (ValueError, TypeError, AttributeError, RecursionError) as e:
            raise self._damage(f"line {number} cannot be read ({e})") from None
        return entry, said, line

    def _hold_against(self, file: Path, found: Tally, *, required: bool) -> None:
        """Compare with what was counted: all lines, but the one that a killed process wrote."""
        if not file.exists():
            if required:
                raise self._damage(f"{file.name} is missing")
            return
        try:
            counted = Tally(**json.loads(file.read_bytes()))
        except (ValueError, TypeError) as e:
            raise self._damage(f"{file.name} cannot be read ({e})") from None
        behind = found.entries - counted.entries
        if not 0 <= behind <= _MOST_AHEAD or (behind == 0 and found.chain != counted.chain):
            raise self._damage(
                f"it has {found.entries} entries where {file.name} has counted {counted.entries}"
            )

    def _count(self, tally: Tally, *, elsewhere: bool = True) -> None:
        body = json.dumps(tally._asdict(), sort_keys=True).encode()
        write_private(self._tally, body)
        if elsewhere and self._counter is not None:
            write_private(self._counter, body)

    def _damage(self, what: str) -> GuardDamaged:
        return GuardDamaged(
            f"the guard's folder {self._folder} is damaged: {what}. Nothing is answered until its "
            f"owner has looked: fedhist guard {self._folder}"
        )

    def _reply_file(self, digest: str) -> Path:
        return self._folder / f"reply-{digest}.json"


def _chain(before: str, line: dict[str, Any]) -> str:
    """Hash a line and, through the hash it follows, all before it."""
    text = json.dumps(line, sort_keys=True)
    return hashlib.sha256(f"{before}\n{text}".encode()).hexdigest()[:32]
