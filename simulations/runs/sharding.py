"""The job of ``fedhist shard``: from files to a folder of shards, here or on a cluster."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fedhist.base.errors import PopulationError
from simulations.populations.shard_files import MANIFEST, Manifest
from simulations.populations.sharding import Each, Sources, discard, here, make_shards
from simulations.reporting.targets import check_folder, whole_folder

KIND = "shards"
OPTIONS: Mapping[str, str] = MappingProxyType(
    {
        "set population.header = false": "give --no-header",
        "set population.max_ratio higher": "give a higher --max-ratio",
        "skip_bad_rows = true": "--skip-bad-rows",
        'set encoding = "latin-1"': "--encoding latin-1",
        "set separator": "give --separator",
    }
)
"""What the command has for the keys of [population] that messages about files name."""


def shard(
    sources: Sources,
    folder: Path,
    *,
    workers: int | None = 0,
    address: str | None = None,
    force: bool = False,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Manifest:
    """Make a folder of shards; what an earlier, unfinished call has done is not done again.

    Parameters
    ----------
    sources : Sources
    folder : Path
        Appears when it is whole. Until then the work is in a hidden folder beside it.
    workers : int, optional
        Processes on Ray, at most; 0 without an address works in this process, where polars itself
        uses all cores.
    address : str, optional
        Join this Ray cluster; its machines must see the same files under the same paths.
    force : bool
        Replace the folder, whatever wrote it.
    progress : callable, optional
        Called with the tasks that are done, and with all.

    Raises
    ------
    PopulationError
        For missing files and columns, bad rows, no rows, and a full disk.
    ValueError
        If the folder is something else.
    """
    target = check_folder(folder, KIND, force=force)
    paths = tuple(str(Path(p).resolve()) for p in sources.paths)
    with _said_by_options():
        sources = replace(sources, paths=paths).settled()
    work = target.with_name(f".{target.name}.unfinished")
    each = _on_ray(workers or None, address) if workers != 0 or address else here
    with _alone(work, folder):
        with _said_by_options():
            manifest = make_shards(sources, work, each, progress)
        manifest = replace(manifest, warnings=tuple(map(_by_options, manifest.warnings)))
        with whole_folder(target, KIND, force=force) as part:
            for file in (work / "shards").iterdir():
                file.rename(part / file.name)
            (part / MANIFEST).write_text(manifest.to_json(), encoding="utf-8")
        discard(work)
    return manifest


def _by_options(told: str) -> str:
    for key, option in OPTIONS.items():
        told = told.replace(key, option)
    return told


@contextmanager
def _said_by_options() -> Iterator[None]:
    try:
        yield
    except PopulationError as error:
        raise PopulationError(_by_options(str(error))) from error


@contextmanager
def _alone(work: Path, folder: Path) -> Iterator[None]:
    """Keep other processes from the work on a folder; ValueError if one is there.

    The lock is on the folder of the work itself: nothing is left of it, however a process ends.
    """
    while True:
        work.mkdir(parents=True, exist_ok=True)
        held = os.open(work, os.O_RDONLY)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(held)
            raise ValueError(
                f"another process makes {folder}; wait for it, or name another folder"
            ) from None
        if work.exists() and os.path.samestat(os.fstat(held), work.stat()):
            break
        os.close(held)  # who had the lock has just ended
    try:
        yield
    finally:
        if not any(work.glob("*")) and work.exists():
            work.rmdir()
        os.close(held)


def _on_ray(workers: int | None, address: str | None) -> Each:
    def each(function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
        from simulations.runtimes.ray_tasks import on_ray

        calls = [(function, task) for task in tasks]
        for _, found in on_ray(_called, calls, workers, address):
            if isinstance(found, Exception):
                raise found
            yield found

    return each


def _called(call: tuple[Callable[..., Any], tuple[Any, ...]]) -> Any:
    function, task = call
    return function(*task)
