"""Cells are run that a folder has not got yet, here or on Ray; each is kept as it ends.

The driver alone writes: a line of ``records.jsonl`` for each cell, forced to disk. A cell counts
when its line is whole: killing a study at any moment loses nothing that counts, and starting it
again repeats nothing that does. What ended in an error is run again.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import IO

from fedhist.base.files import sync_folder
from simulations.reporting.json_files import canonical
from simulations.studies.cells import Cell
from simulations.studies.measuring import error_record, run_cell
from simulations.studies.record import ERROR, Record

RECORDS = "records.jsonl"

Progress = Callable[[int, int], None]
"""Called with the cells that are done and with all."""


def run_cells(
    cells: Iterable[Cell],
    folder: Path | None = None,
    *,
    workers: int | None = 0,
    address: str | None = None,
    progress: Progress | None = None,
) -> dict[str, Record]:
    """Run cells, and keep their records in a folder.

    Parameters
    ----------
    cells : iterable of Cell
    folder : Path, optional
        Exists; cells whose records it has are not run again. None keeps nothing.
    workers : int, optional
        Processes on Ray; 0 runs in this process; None takes all cores.
    address : str, optional
        Join this Ray cluster, whose versions are compared with ours before any work.
    progress : callable, optional

    Returns
    -------
    dict of str to Record
        Of these cells, by their keys.

    Raises
    ------
    ValueError
        If another process writes to the folder, or its records are damaged.
    OSError
        If a record cannot be written; those before it are kept.
    """
    wanted = {c.key: c for c in cells}
    with writing(folder) as (file, before):
        found = {k: r for k, r in before.items() if k in wanted and r.status != ERROR}
        left: dict[str, list[Cell]] = {}  # by population, which a process then loads once
        for key, cell in wanted.items():
            if key not in found:
                left.setdefault(canonical(cell.population), []).append(cell)
        for record in run_all([*chain.from_iterable(left.values())], workers, address):
            if file is not None:
                file.write(record.to_json().encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
            found[record.key] = record
            if progress is not None:
                progress(len(found), len(wanted))
    return found


def run_all(
    cells: Sequence[Cell], workers: int | None = 0, address: str | None = None
) -> Iterator[Record]:
    """Run cells and yield their records as they end."""
    if not cells:
        return
    if workers == 0 and address is None:
        yield from map(run_cell, cells)
        return
    from simulations.runtimes.ray_tasks import on_ray

    plugins = sorted({p for cell in cells for p in cell.run.get("plugins", ())})
    for cell, found in on_ray(_in_worker, cells, workers or None, address, plugins):
        if isinstance(found, Exception):
            what = str(found).strip().partition("\n")[0]
            yield error_record(cell, f"its worker died: {type(found).__name__}: {what}")
        else:
            yield Record.from_json(found)


def _in_worker(cell: Cell) -> str:
    return run_cell(cell).to_json()


def read_records(folder: Path) -> dict[str, Record]:
    """Return the records of a folder by their keys, the last of each; a torn line is none yet.

    Raises
    ------
    ValueError
        If a line is damaged.
    """
    file = folder / RECORDS
    body = file.read_bytes() if file.is_file() else b""
    return _records(file, body[: body.rfind(b"\n") + 1])


def _records(file: Path, body: bytes) -> dict[str, Record]:
    found: dict[str, Record] = {}
    for number, line in enumerate(body.splitlines(), 1):
        try:
            record = Record.from_json(line.decode())
        except (ValueError, TypeError, AttributeError) as e:
            raise ValueError(f"{file}, line {number} is damaged: {e}") from None
        found[record.key] = record
    return found


@contextmanager
def writing(folder: Path | None) -> Iterator[tuple[IO[bytes] | None, dict[str, Record]]]:
    """Open the records of a folder for writing, and yield those that are there.

    The lock is the operating system's: it ends with its process, however that ends. Half a line,
    which a killed process left, is cut off.
    """
    if folder is None:
        yield None, {}
        return
    path = folder / RECORDS
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), "r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(
                f"another process writes to {folder}; wait for it, or name another folder"
            ) from None
        body = file.read()
        whole = body.rfind(b"\n") + 1
        file.truncate(whole)
        file.seek(whole)
        sync_folder(folder)
        yield file, _records(path, body[:whole])
