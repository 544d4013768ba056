"""Run the cells of a study that its file has not got yet, here or on Ray.

The driver alone writes, one transaction per cell as each ends. A cell counts when its transaction
is in: killing a sweep at any moment loses nothing that counts, and starting it again repeats
nothing that does.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

from simulations.studies.records.cells import ERROR, Cell, Record, error_record, run_cell
from simulations.studies.records.store import Store

Progress = Callable[[int, int], None]
"""Called with the cells that are done and with all."""


def run_cells(
    cells: Sequence[Cell],
    path: str | Path,
    *,
    workers: int | None = None,
    address: str | None = None,
    retry: bool = False,
    progress: Progress | None = None,
) -> Counter[str]:
    """Run cells and keep their records in a file; those that are in it are not run again.

    Parameters
    ----------
    cells : sequence of Cell
    path : path
        The file; made if it is missing.
    workers : int, optional
        Processes on Ray; 0 runs in this process; default: all cores.
    address : str, optional
        Join this Ray cluster.
    retry : bool
        Run the cells again that ended in an error.
    progress : callable, optional

    Returns
    -------
    Counter of str
        How many of the cells have each status.

    Raises
    ------
    ValueError
        If another process writes to the file.
    OSError
        If a record cannot be written; those before it are kept.
    """
    cells = list({c.key: c for c in cells}.values())
    with writing(path), Store(path) as store:
        before = store.statuses()
        left = [c for c in cells if _is_left(before.get(c.key), retry)]
        done = len(cells) - len(left)
        for record in chain([None], run_all(left, workers, address)):
            if record is not None:
                _put(store, record)
                done += 1
            if progress is not None:
                progress(done, len(cells))
        after = store.statuses()
        return Counter(after[c.key] for c in cells)


def _put(store: Store, record: Record) -> None:
    try:
        store.put(record)
    except sqlite3.OperationalError as e:  # locked by another program, or the disk is full
        raise OSError(f"{store.path} cannot be written to: {e}; what it has is kept") from None
    except sqlite3.DatabaseError as e:
        raise ValueError(f"{store.path} is damaged: {e}") from None


def _is_left(status: str | None, retry: bool) -> bool:
    return status is None or (retry and status == ERROR)


def run_all(cells: Sequence[Cell], workers: int | None, address: str | None) -> Iterator[Record]:
    """Run cells and yield their records as they end."""
    if not cells:
        return iter(())
    return map(run_cell, cells) if workers == 0 else _on_ray(cells, workers, address)


def _on_ray(cells: Sequence[Cell], workers: int | None, address: str | None) -> Iterator[Record]:
    from simulations.runtimes.ray_tasks import on_ray

    plugins = sorted({p for cell in cells for p in cell.run.get("plugins", ())})
    for cell, found in on_ray(_in_worker, cells, workers, address, plugins):
        if isinstance(found, Exception):
            what = str(found).strip().partition("\n")[0]
            yield error_record(cell, f"its worker died: {type(found).__name__}: {what}")
        else:
            yield Record.from_json(found)


def _in_worker(cell: Cell) -> str:
    return run_cell(cell).to_json()


@contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """Keep other studies from writing to the same file: two would compute the same cells twice.

    The lock is the operating system's: it ends with its process, however that ends.

    Raises
    ------
    ValueError
        If another process has the lock.
    """
    file = Path(path).absolute()
    lock = file.with_name(f".{file.name}.fedhist-lock")  # NAME.lock may be somebody's own
    lock.parent.mkdir(parents=True, exist_ok=True)
    while True:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise ValueError(
                f"another process writes to {path}; wait for it, or write to another file"
            ) from None
        if lock.exists() and os.path.samestat(os.fstat(handle), lock.stat()):
            break
        os.close(handle)  # who had the lock has just removed the file
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        os.close(handle)
