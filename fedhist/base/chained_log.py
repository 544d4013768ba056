"""A file of lines that shows its damage: every line carries a hash of all lines before it.

How many lines there are is counted in a second file, and may be counted in a third one elsewhere,
so that lines missing at the end, and a folder put back from an older copy, show as well. Nothing is
repaired: whatever does not fit together is an error that names the line.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from fedhist.base.errors import FedhistError
from fedhist.base.files import write_private

Line = dict[str, Any]
CHAIN = "chain"


class DamagedLog(FedhistError):
    """The file does not hold what was put there."""


class Tally(NamedTuple):
    """How many lines there are, and the hash that the last of them carries."""

    entries: int = 0
    chain: str = ""


def link(before: str, line: Line) -> str:
    """Hash a line and, through the hash that it follows, all before it."""
    text = json.dumps(line, sort_keys=True)
    return hashlib.sha256(f"{before}\n{text}".encode()).hexdigest()[:32]


class ChainedLog:
    """Appends JSON lines to ``file``, and reads them back whole or not at all.

    Lines of versions before 0.3 carry no hash; those that follow do. ``tally`` counts them beside
    the file, and ``counter`` elsewhere, on a disk that is not restored together with the file: a
    file with fewer lines has been rolled back.
    """

    def __init__(self, file: Path, tally: Path, counter: Path | None = None) -> None:
        self.file, self.tally, self.counter = file, tally, counter
        self._last, self._complete, self._behind = Tally(), 0, False

    def start(self) -> None:
        """Count from zero; a counter that is there already knows of an older file, and stays."""
        new = self.counter is not None and not self.counter.exists()
        self._count(Tally(), elsewhere=new)

    def start_counter(self) -> None:
        """Begin to count elsewhere what is here now: its owner says that it is whole."""
        if self.counter is None or self.counter.exists():
            raise DamagedLog(f"the counter {self.counter} is there already, or none was named")
        counter, self.counter = self.counter, None
        self.read()
        self.counter = counter
        self._count(self._last)

    def read(self, *, counted: bool = False) -> list[Line]:
        """Return the lines, without their hashes; a torn end was never used.

        DamagedLog if a line is missing, altered, doubled or no JSON object, or the counts differ.
        With ``counted`` there must be a tally, even where no line says so.
        """
        raw = self.file.read_bytes() if self.file.exists() else b""
        self._complete = raw.rfind(b"\n") + 1
        lines, chain, n_chained = list[Line](), "", 0
        for number, text in enumerate(raw[: self._complete].splitlines(), 1):
            try:
                line = json.loads(text)
                said = line.pop(CHAIN, None)
            except (ValueError, AttributeError, TypeError, RecursionError) as e:
                raise DamagedLog(f"{self.file}, line {number}, cannot be read: {e}") from None
            chain = link(chain, line)
            n_chained += said is not None or n_chained > 0
            if (counted or n_chained) and said != chain:
                raise DamagedLog(
                    f"{self.file}, line {number}, does not continue the lines before it: one was "
                    "removed, altered or doubled"
                )
            lines.append(line)
        self._last, self._behind = Tally(len(lines), chain), False
        # a first line with a hash after older ones may not have been counted yet
        self._hold_against(self.tally, required=counted or n_chained > 1)
        if self.counter is not None:
            self._hold_against(self.counter, required=True)
        return lines

    def append(self, line: Line) -> None:
        """Write a line after those that were read, and force it to disk."""
        if self._behind:
            self._count(self._last)  # what a killed process wrote and did not count
        if self.file.exists() and self.file.stat().st_size != self._complete:
            os.truncate(self.file, self._complete)  # a torn line was never used
        chain = link(self._last.chain, line)
        body = json.dumps(line | {CHAIN: chain}, separators=(",", ":")).encode() + b"\n"
        write_private(self.file, body, append=True)
        self._last, self._complete = (
            Tally(self._last.entries + 1, chain),
            self._complete + len(body),
        )
        self._count(self._last)

    def _hold_against(self, file: Path, *, required: bool) -> None:
        """Compare with what was counted: all lines, but the one that a killed process wrote."""
        if not file.exists():
            if required:
                raise DamagedLog(f"{file}, which counts the lines of {self.file.name}, is missing")
            return
        try:
            counted = Tally(**json.loads(file.read_bytes()))
            behind = self._last.entries - counted.entries
        except (ValueError, TypeError) as e:
            raise DamagedLog(f"{file} cannot be read: {e}") from None
        self._behind = self._behind or behind > 0
        same = behind > 0 or self._last.chain == counted.chain
        if not (0 <= behind <= 1 and same):  # a killed process may not have counted its last line
            raise DamagedLog(
                f"{self.file} has {self._last.entries} lines where {file} has counted "
                f"{counted.entries}"
            )

    def _count(self, tally: Tally, *, elsewhere: bool = True) -> None:
        body = json.dumps(tally._asdict(), sort_keys=True).encode()
        for file in (self.tally, self.counter if elsewhere else None):
            if file is not None:
                write_private(file, body)
        self._behind = False
