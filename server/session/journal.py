"""The journal: what a run has released so far, so that a restart repeats and never redraws.

One chained file of lines, mode 0600, each line forced to disk before its value is used. An exact
central summary is kept beside it only until something drawn from it is written: it is deleted, and
that forced to disk, BEFORE the first line of such a release. So no exact summary outlives a
release, whenever the process is killed; one that is still needed then is asked for again.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import IO

import numpy as np

from fedhist.base.arrays import Array
from fedhist.base.chained_log import ChainedLog, DamagedLog, Line
from fedhist.base.errors import FedhistError
from fedhist.base.files import locked, sync_folder, write_private
from fedhist.model.codec import array_from_json, array_to_json, summary_arrays, summary_of_arrays
from fedhist.model.query import Summary

LOG = "journal.jsonl"


def log_of(folder: Path) -> ChainedLog:
    """Return the file of lines in a journal's folder."""
    return ChainedLog(folder / LOG, folder / "tally.json")


class Journal:
    """A run's checkpoint, in memory or in a ``folder``; one that is there already is continued."""

    def __init__(self, folder: str | Path | None = None) -> None:
        self._folder = Path(folder) if folder is not None else None
        self._lines: list[Line] = []
        self._exact: dict[int, Summary] = {}
        self._local: dict[int, Summary] = {}
        self._on_disk: set[int] = set()
        self._lock: IO[str] | None = None
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            sync_folder(self._folder.parent)
            try:
                self._lock = locked(self._folder / "lock", wait=False)
            except OSError:
                raise FedhistError(
                    f"the journal in {self._folder} is in use by another run"
                ) from None
            self._log = log_of(self._folder)
            if not self._log.file.exists() and not self._log.tally.exists():
                self._log.start()
            self._lines = self._log.read()
            for number, line in enumerate(self._lines, 1):
                if not {"kind", "index"} <= line.keys():
                    raise DamagedLog(f"{self._log.file}, line {number}, is no line of a journal")
            self._sweep()

    def _sweep(self) -> None:
        """Delete exact sums that no replay reads: half written, not yet noted, or used up."""
        if self._folder is None:
            return
        wanted = {
            line["index"]: self._exact_file(line["index"])
            for line in self._lines
            if line["kind"] == "exact" and self.find("forgotten", line["index"]) is None
        }
        self._on_disk = {index for index, file in wanted.items() if file.exists()}
        left = [f for f in self._folder.glob("exact-*") if f not in wanted.values()]
        left += self._folder.glob("partial-*")  # sums of a round under way, which 0.2.0 kept
        for file in left:
            file.unlink()
        if left:
            sync_folder(self._folder)

    def close(self) -> None:
        """Let another process have the folder; the run has ended."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def append(self, line: Line) -> None:
        """Write one line and force it to disk."""
        if self._folder is not None:
            self._log.append(line)
        self._lines.append(line)

    def find(self, kind: str, index: int) -> Line | None:
        """Return the line of one kind and number, or None."""
        return next(iter(self.lines(kind, index)), None)

    def lines(self, kind: str, index: int) -> list[Line]:
        """Return all lines of one kind and number."""
        return [line for line in self._lines if (line["kind"], line["index"]) == (kind, index)]

    @property
    def name(self) -> str:
        """What names the run that the journal is of, the same after every restart.

        Empty in memory, and before the journal is claimed. A copy in another folder has another
        name: runs that go on from copies are two releases. Never put a copy back in the same
        folder.
        """
        line = self.find("run", 0)
        if line is None or self._folder is None or "name" not in line:
            return ""
        return hashlib.sha256(f"{line['name']} {self._folder.resolve()}".encode()).hexdigest()[:32]

    @property
    def ended(self) -> bool:
        """Whether the run has ended: going on from here draws and asks nothing."""
        return self.find("ended", 0) is not None

    # -- released values -----------------------------------------------------------------------

    def release(self, index: int, label: str, value: Array) -> None:
        """Journal a released value; exact sums on disk are deleted first."""
        for number in sorted(self._on_disk):
            self.drop_exact(number)
        self.append(
            {"kind": "release", "index": index, "label": label, "value": array_to_json(value)}
        )

    def released(self, index: int, label: str) -> Array | None:
        """Return the value released before under this number, or None."""
        line = self.find("release", index)
        if line is None:
            return None
        if line["label"] != label:
            raise FedhistError(
                f"release {index} of the journal is {line['label']!r}, the script asks for "
                f"{label!r}: the journal belongs to another run"
            )
        return array_from_json(line["value"])

    # -- summaries -----------------------------------------------------------------------------

    def keep_local(self, index: int, summary: Summary) -> None:
        """Journal a summary that is private as it is; in memory it is kept as it is."""
        line: Line = {"kind": "summary", "index": index, "n_users": summary.n_users}
        if self._folder is None:
            self._local[index] = summary
        else:
            line["arrays"] = {k: array_to_json(v) for k, v in summary_arrays(summary).items()}
        self.append(line)

    def keep_exact(self, index: int, summary: Summary) -> None:
        """Keep an exact central summary until :meth:`forget_exact`; journal its shapes only."""
        arrays = summary_arrays(summary)
        if self._folder is not None and not self._drawn_from(index):
            encoded = {k: array_to_json(v) for k, v in arrays.items()}
            body = {"n_users": summary.n_users, "arrays": encoded}
            write_private(self._exact_file(index), json.dumps(body).encode())
            self._on_disk.add(index)
        else:
            self._exact[index] = summary
        shapes = {
            k: {"dtype": str(v.dtype), "shape": list(v.shape)}
            for k, v in arrays.items()
            if not k.startswith("keyed/")
        }
        line: Line = {"kind": "exact", "index": index, "n_users": summary.n_users}
        if self.find("exact", index) is None:
            self.append(line | {"shapes": shapes, "keyed": sorted(summary.keyed)})

    def forget_exact(self, index: int) -> None:
        """Delete an exact summary: everything drawn from it is journalled."""
        if self.find("forgotten", index) is None:
            self.append({"kind": "forgotten", "index": index})
        self.drop_exact(index)

    def drop_exact(self, index: int) -> None:
        """Delete an exact summary that may still be needed: a replay asks for it again."""
        self._exact.pop(index, None)
        self._on_disk.discard(index)
        if self._folder is not None and self._exact_file(index).exists():
            self._exact_file(index).unlink()
            sync_folder(self._folder)  # or a power cut brings it back

    def summary(self, index: int) -> Summary | None:
        """Return the summary of a round already answered, or None.

        A central summary whose releases are all journalled comes back with zeros: the Curator
        replays the released values. One that was lost before that counts as not answered.
        """
        if index in self._local:
            return self._local[index]
        line = self.find("summary", index)
        if line is None:
            exact = self.find("exact", index)
            if exact is None:
                return None
            if index in self._exact:
                return self._exact[index]
            if self._folder is None or not self._exact_file(index).exists():
                return _blank(exact) if self._settled(index) else None
            line = json.loads(self._exact_file(index).read_bytes())
        arrays = {k: array_from_json(v) for k, v in line["arrays"].items()}
        return summary_of_arrays(line["n_users"], arrays)

    def _drawn_from(self, index: int) -> bool:
        """Whether a release follows the exact summary of a round."""
        kinds = [line["kind"] for line in self._lines]
        entry = self.find("exact", index)
        return entry is not None and "release" in kinds[self._lines.index(entry) :]

    def _settled(self, index: int) -> bool:
        """Whether everything drawn from the answer of a round is written."""
        later = self.find("forgotten", index) or self.find("query", index + 1)
        return later is not None or self.ended

    def _exact_file(self, index: int) -> Path:
        if self._folder is None:
            raise FedhistError("a journal in memory has no files")
        return self._folder / f"exact-{index}.json"


def _blank(line: Line) -> Summary:
    """Stand in for an exact summary that was deleted: its shapes, zeros, no keys."""
    arrays = {k: np.zeros(v["shape"], dtype=v["dtype"]) for k, v in line["shapes"].items()}
    for name in line["keyed"]:
        arrays[f"keyed/{name}/offsets"] = np.zeros(1, dtype=np.int64)
        arrays[f"keyed/{name}/bytes"] = np.zeros(0, dtype=np.uint8)
        arrays[f"keyed/{name}/values"] = np.zeros(0, dtype=np.int64)
    return summary_of_arrays(line["n_users"], arrays)
