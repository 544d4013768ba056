"""Events from a file: one row per (user, item), or per (user, item, count)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from simulations.populations.base import ItemDomain, Loaded
from simulations.populations.tables import Column, TableFormat, read_items


@dataclass(frozen=True, kw_only=True)
class Events(ItemDomain, TableFormat):
    """Users' item counts from CSV, TSV or Parquet, plain or compressed.

    The file is streamed: memory grows with the distinct (user, item) pairs, not with the rows.

    Parameters
    ----------
    path : path
        See :class:`~simulations.populations.tables.TableFormat` for how it may be written.
    user, item : str or int
        Columns, by name or by position from 0; compared as text.
    count : str or int, optional
        Column of non-negative integers; without it each row is one event.
    top, domain, max_users
        See :class:`~simulations.populations.base.ItemDomain`.
    skip_bad_rows : bool, default False
        Leave out and count rows without a user or an item, with an unreadable count or with too
        many fields, instead of refusing the file with the first such row (counted from 1, the
        header apart).
    """

    kind: ClassVar[str] = "events"
    path: str | Path
    user: Column
    item: Column
    count: Column | None = None
    skip_bad_rows: bool = False

    def load(self) -> Loaded:
        """Read the file.

        Raises PopulationError for a missing file or column and for bad rows; names the file, the
        row and the value.
        """
        path = Path(self.path)
        columns = [self.user, self.item, *([] if self.count is None else [self.count])]
        users, dropped = read_items(path, columns, self, skip_bad_rows=self.skip_bad_rows)
        return self.bounded(users, f"events of {path.name}", dropped)
