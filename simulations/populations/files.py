"""Populations from tables: events, real samples, and check-ins in the layout of [1]_.

References
----------
.. [1] Cho, Myers & Leskovec, "Friendship and mobility: user movement in location-based social
   networks", KDD 2011.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from fedhist.users import tables
from fedhist.users.tables import TableFormat, read_items, read_samples
from simulations.config.reading import Must, Settings, Whole
from simulations.populations import ItemDomain, Loaded, PopulationSpec

USER, LOCATION = 0, 4
"""Columns of check-ins."""
Column = Annotated[
    tables.Column,
    Must("a column's name or a position from 0", lambda c: c != "" and (c == str(c) or c >= 0)),
]
LAYOUT = TableFormat(separator="\t", header=False, quote="")


@dataclass(frozen=True, kw_only=True)
class Format(Settings, TableFormat):
    """How a text table is written, as a command is told: ``--set separator=;``."""


@dataclass(frozen=True, kw_only=True)
class Events(ItemDomain, TableFormat):
    """Users' item counts from CSV, TSV or Parquet, plain or compressed.

    The file is streamed: memory grows with the distinct (user, item) pairs, not with the rows.

    Parameters
    ----------
    path : path
        See :class:`~fedhist.users.tables.TableFormat` for how it may be written.
    user, item : str or int
        Columns, by name or by position from 0: text, numbers, booleans, dates or times, compared by
        value. A row without one of them is left out and counted.
    count : str or int, optional
        Column of non-negative integers; without it each row is one event.
    top, domain, max_users
        See :class:`~simulations.populations.ItemDomain`.
    skip_bad_rows : bool, default False
        Leave out and count rows with text or a fraction for a count, with too many fields, or with
        a user or an item that cannot be told apart (doubles from 2^53 on), instead of refusing the
        file with the first such row (counted from 1, the header apart).
    """

    kind: ClassVar[str] = "events"
    format: ClassVar[int] = 1
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


@dataclass(frozen=True, kw_only=True)
class SampleFile(PopulationSpec, TableFormat):
    """Users' real samples from CSV, TSV or Parquet, ragged, in the order of the rows.

    Parameters
    ----------
    path : path
        See :class:`~fedhist.users.tables.TableFormat` for how it may be written.
    user : str or int
        Column, by name or by position from 0; as that of events.
    value : str, int, or list of them
        One column per dimension. A row without one of them (empty, null or NaN) is left out and
        counted; the user keeps the others.
    max_users : int, optional
        Keep only the users with the smallest ids: a subset that does not depend on the data.
    skip_bad_rows : bool, default False
        The same, for rows with text for a value.
    """

    kind: ClassVar[str] = "samples"
    format: ClassVar[int] = 1
    path: str | Path
    user: Column
    value: Column | Annotated[tuple[Column, ...], Must("a column, or a list of them", bool)]
    max_users: Whole | None = None
    skip_bad_rows: bool = False

    def load(self) -> Loaded:
        """Read the file.

        Raises PopulationError for a missing file or column and for bad rows; names the file, the
        row and the value.
        """
        path = Path(self.path)
        values = self.value if isinstance(self.value, tuple) else (self.value,)
        columns = [self.user, *values]
        users, dropped = read_samples(path, columns, self, skip_bad_rows=self.skip_bad_rows)
        if self.max_users is not None:
            users = users.slice(0, min(self.max_users, len(users)))
        title = f"samples of {path.name}: {len(users):,} users"
        return Loaded(users, title, dropped=dropped)


@dataclass(frozen=True, kw_only=True)
class Snap(ItemDomain):
    """Users' check-in counts per location [1]_.

    Parameters
    ----------
    path : path
        Tab-separated user, time, latitude, longitude, location id; no header; gzip or plain.
    top, domain, max_users
        See :class:`~simulations.populations.ItemDomain`.
    skip_bad_rows : bool, default False
        Leave out and count rows with too many fields, instead of refusing the file.
    """

    kind: ClassVar[str] = "snap"
    path: str | Path
    skip_bad_rows: bool = False

    def load(self) -> Loaded:
        """Read the file.

        Raises PopulationError for a missing file and for bad rows; names the file, the row and the
        value.
        """
        path = Path(self.path)
        columns = [USER, LOCATION]
        users, dropped = read_items(path, columns, LAYOUT, skip_bad_rows=self.skip_bad_rows)
        return self.bounded(users, f"check-ins of {path.name}", dropped)
