"""Users in a folder of shards, which ``fedhist shard`` makes: read by blocks, in order of ids."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fedhist.base.arrays import Integers, offsets
from fedhist.base.errors import PopulationError
from fedhist.users.batch import Users
from fedhist.users.shards import BLOCK, Shard
from simulations.populations.base import ItemDomain, Loaded, Plan
from simulations.populations.shard_files import Checked, Folder, Manifest


@dataclass(frozen=True)
class InFolder(Shard):
    """Consecutive users of a folder of shards; no more than a block and a row group are read.

    Attributes
    ----------
    folder : Folder
    first : int
        Number of the shard that the first of the files is.
    files : tuple of Checked
        Those that these users lie in.
    start, stop : int
        Which users, counted from the first one of the first file.
    """

    folder: Folder
    first: int
    files: tuple[Checked, ...]
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def slice(self, start: int, stop: int) -> InFolder:
        """Return users start to stop, and no more files than they lie in."""
        start, stop, edges = self.start + start, self.start + stop, self._edges
        a = int(np.searchsorted(edges, start, side="right")) - 1
        b = max(a, int(np.searchsorted(edges, stop)))
        before = int(edges[a])
        return replace(
            self,
            first=self.first + a,
            files=self.files[a:b],
            start=start - before,
            stop=stop - before,
        )

    @cached_property
    def _edges(self) -> Integers:
        """Users before each file, and in all of them: (files + 1,)."""
        return offsets(np.array([file.entry.rows for file in self.files], dtype=np.int64))

    def __reduce__(self) -> tuple[Any, ...]:
        return InFolder, (self.folder, self.first, self.files, self.start, self.stop)

    def blocks(self, size: int = BLOCK) -> Iterator[Users]:
        """Walk the users in order, ``size`` at a time."""
        parts, held = list[Users](), 0
        for found in self._parts():
            part = found
            while held + len(part) >= size:
                parts.append(part.slice(0, size - held))
                part = part.slice(size - held, len(part))
                yield _joined(parts)
                parts, held = [], 0
            if len(part):
                parts.append(part)
                held += len(part)
            del part, found
        if parts:
            yield _joined(parts)

    def _parts(self) -> Iterator[Users]:
        """Read the users, at most a row group at a time."""
        start, stop = self.start, self.stop
        for number, file in enumerate(self.files, self.first):
            yield from self.folder.users(file, number, start, stop)
            start, stop = max(0, start - file.entry.rows), stop - file.entry.rows

    @property
    def none(self) -> Users:
        """No users of the same kind."""
        return self.folder.none


def _joined(parts: list[Users]) -> Users:
    return parts[0] if len(parts) == 1 else parts[0].followed_by(parts[1:])


@dataclass(frozen=True, kw_only=True)
class Shards(ItemDomain):
    """Users from a folder that ``fedhist shard`` has made: item counts, or samples.

    Parameters
    ----------
    path : path
        The folder.
    top, domain
        See :class:`~simulations.populations.base.ItemDomain`; for item counts only.
    max_users
        Keep only the users with the smallest ids: a subset that does not depend on the data.
    """

    kind: ClassVar[str] = "shards"
    path: str | Path

    def load(self) -> Loaded:
        """Read all users."""
        return self.plan().loaded()

    @property
    def stated(self) -> int:
        """How many users there are, by the folder's manifest."""
        n_users = Manifest.read(Path(self.path)).n_users
        return min(n_users, self.max_users or n_users)

    def plan(self) -> Plan:
        """Check all files that are needed; users are read by blocks, by increasing id.

        Raises
        ------
        PopulationError
            For a folder without a manifest, and a file that is missing, damaged, of another version
            or of another vocabulary.
        """
        path = Path(self.path)
        manifest = Manifest.read(path)
        folder = Folder.of(path, manifest)
        if folder.vocabulary is None and (self.top is not None or self.domain is not None):
            raise PopulationError(f"{path} holds samples: top and domain are for items")
        everybody = InFolder(folder, 0, tuple(map(Checked, manifest.shards)), 0, manifest.n_users)
        some = everybody.slice(0, min(len(everybody), self.max_users or len(everybody)))
        users = replace(some, files=folder.checked(some.files))
        plan = self.settled(users, f"{manifest.what} of {manifest.title}", manifest.dropped)
        return replace(plan, warnings=tuple(f"fedhist shard: {w}" for w in manifest.warnings))
