"""Real samples from a file: one row per sample."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from fedhist.users.batch import Users
from simulations.config.reading import Must, Whole
from simulations.populations.base import Loaded, PopulationSpec
from simulations.populations.tables import Column, TableFormat, scan_table, told_of


@dataclass(frozen=True, kw_only=True)
class SampleFile(PopulationSpec, TableFormat):
    """Users' real samples from CSV, TSV or Parquet, ragged, in the order of the rows.

    Parameters
    ----------
    path : path
        See :class:`~simulations.populations.tables.TableFormat` for how it may be written.
    user : str or int
        Column, by name or by position from 0; compared as text.
    value : str, int, or list of them
        One column per dimension. An empty field is NaN: the client half puts the protocol's null
        record in place of a user with NaN.
    max_users : int, optional
        Keep only the users with the smallest ids: a subset that does not depend on the data.
    skip_bad_rows : bool, default False
        Leave out and count rows without a user, with text for a value or with too many fields,
        instead of refusing the file with the first such row (counted from 1, the header apart).
    """

    kind: ClassVar[str] = "samples"
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
        from fedhist.users.frames import samples_of_rows

        path = Path(self.path)
        values = self.value if isinstance(self.value, tuple) else (self.value,)
        table = scan_table(path, [self.user, *values], self)
        with told_of(path):
            ids, samples, dropped = samples_of_rows(
                table.rows,
                user=table.names[0],
                value=table.names[1:],
                overflow=table.overflow,
                skip_bad_rows=self.skip_bad_rows,
            )
        users = Users(ids, samples=samples)
        if self.max_users is not None:
            users = users.slice(0, min(self.max_users, len(users)))
        title = f"samples of {path.name}: {len(users):,} users"
        return Loaded(users, title, dropped=dropped)
