"""The guard's memory in a folder of the node's owner: it outlives processes, and damage shows.

Every answer is a line of a :class:`~fedhist.base.chained_log.ChainedLog` that also says what reply
left. Whatever does not fit together is an error, and the node answers nothing until its owner has
reset the folder.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import AbstractContextManager
from pathlib import Path

from flwr.app import RecordDict

from clients.spending import Answered
from clients.store import Store
from fedhist.base.chained_log import ChainedLog, DamagedLog, Line
from fedhist.base.files import locked, write_private
from fedhist.flower.wire import WIRE_VERSION, pack_record, unpack_record
from fedhist.model.codec import array_from_json, array_to_json

NODE = "node"


class GuardDamaged(DamagedLog):
    """The folder does not hold what the guard has put there."""


class FolderStore(Store):
    """Keeps entries and answers in files of mode 0600, in the folder of one node's owner.

    ``counter`` is a file outside the folder, on a disk that is not restored together with it. It
    only ever counts up: a folder that has fewer entries has been rolled back. GuardDamaged if the
    folder serves another node, and in every method where lines are missing, altered, doubled or
    unreadable, where replies are missing, or the folder was rolled back.
    """

    def __init__(
        self, folder: str | Path, node: int = 0, counter: str | Path | None = None
    ) -> None:
        self._folder = Path(folder)
        elsewhere = None if counter is None else Path(counter)
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._log = ChainedLog(
            self._folder / "answered.jsonl", self._folder / "tally.json", elsewhere
        )
        owner = self._folder / NODE
        used = self._log.file.exists() or any(self._folder.glob("reply-*"))
        if not owner.exists() and not used:
            self._begin(node)
        said = owner.read_text().split() if owner.exists() else []
        if said[:1] != [str(node)]:
            raise GuardDamaged(f"the guard's folder belongs to node {' '.join(said[:1]) or '?'}")
        self._chained = "chained" in said
        self._unmasked: frozenset[str] = frozenset()

    def locked(self) -> AbstractContextManager[object]:
        return locked(self._folder / "lock")

    def answered(self) -> tuple[Answered, ...]:
        return tuple(entry for entry, _ in self._read())

    def add(self, entry: Answered, reply: RecordDict | None) -> None:
        self._read()
        line: Line = json.loads(entry.to_json())
        if reply is not None:
            head, arrays = unpack_record(reply)
            kept = {"head": head, "arrays": {k: array_to_json(v) for k, v in arrays.items()}}
            body = json.dumps(kept).encode()
            write_private(self._reply_file(entry.digest), body)
            line["reply"] = hashlib.sha256(body).hexdigest()
        self._log.append(line)

    def reply(self, digest: str) -> RecordDict | None:
        """Return the stored answer to a query, if there is one, in today's form."""
        hashes = {entry.digest: line.get("reply") for entry, line in self._read()}
        file = self._reply_file(digest)
        if not file.exists():
            return None
        raw = file.read_bytes()
        if hashes.get(digest) not in (None, hashlib.sha256(raw).hexdigest()):
            raise self._damage(f"{file.name} has been altered")
        body = json.loads(raw)
        arrays = {k: array_from_json(v) for k, v in body["arrays"].items()}
        return pack_record(body["head"] | {"version": WIRE_VERSION}, arrays)

    def attempt(self, digest: str) -> bytes | None:
        self._read()
        file = self._attempt_file(digest)
        return file.read_bytes() if file.exists() else None

    def keep_attempt(self, digest: str, body: bytes, *, unmasked: bool) -> None:
        """Put an attempt in the place of the one before, which is deleted with its secrets.

        That a node has unmasked is a line of the log, like an answer: it stays so for ever.
        """
        self._read()
        file = self._attempt_file(digest)
        if not file.exists():
            self._make_room()
        write_private(file, body)
        if unmasked and digest not in self._unmasked:
            self._log.append({"unmasked": digest})
            self._unmasked = self._unmasked | {digest}

    def unmasked(self) -> frozenset[str]:
        self._read()
        return self._unmasked

    def _make_room(self) -> None:
        """Delete the oldest attempt that was broken off, if there are many of them."""
        begun = [
            f
            for f in self._folder.glob("secagg-*.json")
            if f.name.removeprefix("secagg-").removesuffix(".json") not in self._unmasked
        ]
        if len(begun) >= 16:  # one for each of so many runs
            min(begun, key=lambda f: f.stat().st_mtime_ns).unlink()

    def stored_bytes(self) -> int:
        return sum(f.stat().st_size for f in self._folder.iterdir() if f.is_file())

    def reset(self) -> Path:
        """Begin anew: every budget is unspent again. Returns the folder that keeps the old files.

        The owner's decision alone; no message leads here.
        """
        aside = self._folder / f"reset-{len(list(self._folder.glob('reset-*'))) + 1}"
        aside.mkdir(mode=0o700)
        node = (self._folder / NODE).read_text().split()[0]
        for file in self._folder.glob("secagg-*.json"):
            file.unlink()  # secrets are not put aside
        for file in [*self._folder.glob("*.json*"), self._folder / NODE]:
            os.replace(file, aside / file.name)
        if self._log.counter is not None:
            self._log.counter.unlink(missing_ok=True)
        self._begin(int(node))
        self._chained = True
        return aside

    def start_counter(self) -> None:
        """Begin to count elsewhere what the folder holds now: the owner says that it is whole."""
        self._log.start_counter()

    def _begin(self, node: int) -> None:
        """Count from zero; the node's file comes last, so that a folder without it is empty."""
        self._log.start()
        write_private(self._folder / NODE, f"{node}\nchained\n".encode())

    def _read(self) -> list[tuple[Answered, Line]]:
        try:
            lines, entries, unmasked = self._log.read(counted=self._chained), [], set[str]()
            for number, line in enumerate(lines, 1):
                if line.keys() == {"unmasked"}:
                    unmasked.add(str(line["unmasked"]))
                    continue
                try:
                    entry = Answered(**{k: v for k, v in line.items() if k != "reply"})
                except (ValueError, TypeError) as e:
                    raise DamagedLog(f"line {number} cannot be read: {e}") from None
                if "reply" in line and not self._reply_file(entry.digest).exists():
                    raise DamagedLog(f"the reply of line {number} is missing")
                entries.append((entry, line))
        except DamagedLog as damage:
            raise self._damage(str(damage)) from None
        self._unmasked = frozenset(unmasked)
        return entries

    def _damage(self, what: str) -> GuardDamaged:
        return GuardDamaged(
            f"the guard's folder {self._folder} is damaged: {what}. Nothing is answered until its "
            f"owner has looked: fedhist node guard {self._folder}"
        )

    def _attempt_file(self, digest: str) -> Path:
        return self._folder / f"secagg-{digest}.json"

    def _reply_file(self, digest: str) -> Path:
        return self._folder / f"reply-{digest}.json"
