"""The file of a study: records by key in one SQLite database, one transaction per record.

The database is in WAL mode: readers see whole records while a study writes, and a process that is
killed leaves every record it has put. What a record says is one JSON column; the others repeat a
few of its keys for whoever asks in SQL. Columns and keys that this version does not know are kept.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import polars as pl

from fedhist.base.files import folder_held
from simulations.reporting.json_files import flat
from simulations.studies.records.cells import ERROR, Cell, Record

SCHEMA = 1
"""Raised only where an older fedhist could not read the file; a new column is no reason."""

APPLICATION = 0x66656468
"""SQLite's application id of these files: "fedh"."""

COLUMNS: Mapping[str, str] = {
    "protocol": "TEXT",
    "label": "TEXT",
    "target": "TEXT",
    "status": "TEXT",
    "seed": "INTEGER",
    "n_users": "INTEGER",
    "epsilon": "REAL",
    "delta": "REAL",
    "loss": "REAL",
    "predicted": "REAL",
    "seconds": "REAL",
}
"""Keys of a record that are columns of their own; one more is added to older files."""

ENDINGS = (".sqlite", ".sqlite3", ".db")
"""Of the names of such files."""

WAIT = 60.0
"""Seconds to wait for another process's transaction."""


class Store:
    """Records by key in one file.

    Parameters
    ----------
    path : path
    create : bool
        Make the file if it is missing, and bring an older one's columns up to date. False reads
        any file as it is, even where this process may not write.

    Raises
    ------
    ValueError
        If the file is missing (``create=False``), is not a file of fedhist, was written by a newer
        version that this one cannot read, or lies where SQLite can have no write-ahead log.
    """

    def __init__(self, path: str | Path, *, create: bool = True) -> None:
        self.path = Path(path).absolute()
        if not create and not self.path.is_file():
            raise ValueError(f"no such file of results: {path}")
        if create:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        self._writes = create
        mode = "rwc" if create else self._mode_of_reader()
        try:
            self._db = sqlite3.connect(
                f"{self.path.as_uri()}?mode={mode}", uri=True, timeout=WAIT, isolation_level=None
            )
        except sqlite3.OperationalError as e:
            raise ValueError(f"{path} cannot be opened: {e}") from None
        try:
            # who looks while another makes the file would find half of one, and SQLite does not
            # wait where two turn to the write-ahead log
            with folder_held(self.path.parent):
                self._open()
        except sqlite3.OperationalError as e:
            self._db.close()
            raise ValueError(f"{path} cannot be opened: {e}") from None
        except sqlite3.DatabaseError as e:
            self._db.close()
            raise ValueError(f"{path} is not a file of fedhist results: {e}") from None
        except ValueError:
            self._db.close()
            raise

    def _mode_of_reader(self) -> str:
        """Say how to open a file that is only read: who reads makes files beside it too."""
        if os.access(self.path, os.W_OK) and os.access(self.path.parent, os.W_OK):
            return "rw"  # the last to close then removes the log
        logged = Path(f"{self.path}-wal").exists()
        return "ro" if logged else "ro&immutable=1"

    def _open(self) -> None:
        application, schema = self._pragma("application_id"), self._pragma("user_version")
        tables = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if application != APPLICATION and (tables or application):
            raise ValueError(f"{self.path} is not a file of fedhist results")
        if schema > SCHEMA:
            raise ValueError(
                f"{self.path} has schema {schema}, written by a newer fedhist; this one reads "
                f"{SCHEMA}: update it"
            )
        if self._writes:
            mode = self._db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            if mode != "wal":
                raise ValueError(f"{self.path} must lie on a local disk: SQLite has no WAL there")
            self._db.execute("PRAGMA synchronous = FULL")
            self._bring_up_to_date()
        elif not tables:  # a study has just made the file
            self._db.execute("CREATE TEMP TABLE cells (key TEXT, record TEXT)")
        self._columns = self._present()

    def _bring_up_to_date(self) -> None:
        """Create the table, or add the columns that an older file has not."""
        columns = "".join(f", {name} {kind}" for name, kind in COLUMNS.items())
        self._db.execute("BEGIN IMMEDIATE")
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS cells "
            f"(key TEXT PRIMARY KEY NOT NULL{columns}, record TEXT NOT NULL)"
        )
        for name in COLUMNS.keys() - self._present():
            self._db.execute(f"ALTER TABLE cells ADD COLUMN {name} {COLUMNS[name]}")
            self._db.execute(f"UPDATE cells SET {name} = {_in_json(name)}")
        self._db.execute(f"PRAGMA application_id = {APPLICATION}")
        self._db.execute(f"PRAGMA user_version = {SCHEMA}")
        self._db.execute("COMMIT")

    def _pragma(self, name: str) -> int:
        return int(self._db.execute(f"PRAGMA {name}").fetchone()[0])

    def _present(self) -> set[str]:
        return {row[1] for row in self._db.execute("PRAGMA table_info(cells)")}

    def close(self) -> None:
        """Close the file; SQLite then folds its write-ahead log into it."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __len__(self) -> int:
        return int(self._rows("SELECT count(*) FROM cells")[0][0])

    def _rows(self, question: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return what a question gives; ValueError if the file is damaged."""
        try:
            return self._db.execute(question, values).fetchall()
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError as e:
            raise self._damaged(e) from None

    def _damaged(self, why: Exception) -> ValueError:
        return ValueError(
            f"{self.path} is damaged: {why}; restore a copy, or let sqlite3's .recover save what "
            "can be read"
        )

    def _record(self, text: str) -> Record:
        try:
            return Record.from_json(text)
        except (ValueError, TypeError, KeyError) as e:
            raise self._damaged(e) from None

    def put(self, record: Record) -> bool:
        """Write a record in a transaction of its own.

        A key that is there is left alone, unless what is there is an error: a cell that could not
        be run may be run again.

        Returns
        -------
        bool
            Whether the record was written.
        """
        names = ["key", *COLUMNS, "record"]
        values = [getattr(record, name) for name in names[:-1]] + [record.to_json()]
        cursor = self._db.execute(
            f"INSERT INTO cells ({', '.join(names)}) VALUES ({', '.join('?' * len(names))}) "
            "ON CONFLICT (key) DO UPDATE SET "
            + ", ".join(f"{name} = excluded.{name}" for name in names[1:])
            + f" WHERE cells.status = '{ERROR}'",
            values,
        )
        return cursor.rowcount == 1

    def has(self, key: str) -> bool:
        """Say whether there is a record of that key."""
        return self.get(key) is not None

    def get(self, key: str) -> Record | None:
        """Return the record of a key, if there is one."""
        rows = self._rows("SELECT record FROM cells WHERE key = ?", (key,))
        return self._record(rows[0][0]) if rows else None

    def statuses(self) -> dict[str, str]:
        """Return the status of every key."""
        return {k: s for k, s in self._rows(f"SELECT key, {self._expression('status')} FROM cells")}

    def records(self, where: Mapping[str, Any] | None = None) -> list[Record]:
        """Return the records in the order of their keys.

        Parameters
        ----------
        where : mapping, optional
            Values of columns (:data:`COLUMNS`) that a record must have.

        Raises
        ------
        ValueError
            For a name that is not a column.
        """
        asked = dict(where or {})
        for name in asked:
            if name not in COLUMNS and name != "key":
                raise ValueError(f"{name!r} is not one of the columns {', '.join(COLUMNS)}")
        test = " AND ".join(f"{self._expression(name)} IS ?" for name in asked) or "1"
        question = f"SELECT record FROM cells WHERE {test} ORDER BY key"
        return [self._record(text) for (text,) in self._rows(question, list(asked.values()))]

    def _expression(self, name: str) -> str:
        """Name a column, or find it in the record of a file that has not got it."""
        return name if name in self._columns else _in_json(name)


def _in_json(name: str) -> str:
    return f"json_extract(record, '$.{name}')"


def records_of(cells: Sequence[Cell], path: str | Path) -> list[Record]:
    """Return the records that a file has of some cells; errors are those of :class:`Store`."""
    keys = {c.key for c in cells}
    with Store(path, create=False) as store:
        return [r for r in store.records() if r.key in keys]


def frame_of(records: Iterable[Record]) -> pl.DataFrame:
    """Make a table of records, one row each.

    Columns are the fields of :class:`~simulations.studies.records.cells.Record`; the cell's keys
    under their tables ("protocol.epsilon", "population.n_users", "run.seed"); the numbers that a
    run published ("public.threshold"), and what a newer version wrote. Lists are joined by "; ";
    the protocol's resolved fields are left to the records themselves.
    """
    rows = [_row(r) for r in records]
    names = dict.fromkeys(name for row in rows for name in row)
    return pl.DataFrame([_series(name, [row.get(name) for row in rows]) for name in names])


def _row(record: Record) -> dict[str, Any]:
    row = {
        k: "; ".join(v) if isinstance(v, tuple) else v
        for k, v in vars(record).items()
        if not isinstance(v, Mapping)
    }
    row |= flat(record.cell)
    row |= {f"diagnostics.{k}": v for k, v in record.diagnostics.items()}
    row |= {f"losses.{k}": v for k, v in record.losses.items()}
    row |= {"relative": record.relative} if record.relative is not None else {}
    row |= {f"items.{k}": v for k, v in record.items.items()}
    row |= {f"off.{k}": v for k, v in record.off.items()}
    for name, losses in record.trivial.items():
        row |= {f"trivial.{name}": losses.get(record.loss_name)}
    row |= {f"public.{k}": v for k, v in record.public.items()}
    row |= {f"versions.{k}": v for k, v in record.versions.items()}
    return row | dict(record.more)


def _series(name: str, values: list[Any]) -> pl.Series:
    """Make a column of one type: numbers become floats where some are, other mixtures text."""
    kinds = {type(v) for v in values} - {type(None)}
    if kinds <= {int, float} and len(kinds) == 2:
        return pl.Series(name, [None if v is None else float(v) for v in values], pl.Float64)
    if len(kinds) == 1 and kinds <= {bool, int, float, str}:
        return pl.Series(name, values)
    return pl.Series(name, [None if v is None else _text(v) for v in values], pl.String)


def _text(value: Any) -> str:
    return str(value)
