"""Text and Parquet tables as lazy frames of text columns.

Every field is read as text and parsed where it is used, so a bad field is a bad row with a number
and a value, not a failure of the whole file. One column more than the file has is asked for: it is
null in every good row and catches rows with too many fields.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from fedhist.base.arrays import Words
from fedhist.base.errors import PopulationError, nearest
from fedhist.users.batch import Users

if TYPE_CHECKING:
    import polars as pl

SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t", ".txt": "\t"}
OVERFLOW = "beyond the last column"
LONGEST_HEADER = 1 << 20
PACKED = {b"\x1f\x8b\x08": "gzip", b"\x28\xb5\x2f": "zstd"}
"""What a compressed file begins with."""
OTHERS = {
    b"PAR1": "a Parquet file: name it .parquet",
    b"ARROW1": "an Arrow file",
    b"PK\x03\x04": "a spreadsheet or an archive",
    b"SQLite format 3": "an SQLite database",
    b"{": "JSON",
    b"[": "JSON",
}
"""What files of other formats begin with."""
READ = "CSV, TSV and Parquet files are read, text also compressed by gzip or zstd"

Column = str | int
"""A column by its name, or by its position from 0."""


@dataclass(frozen=True, kw_only=True)
class TableFormat:
    """How a text table is written.

    ``separator`` is one byte, by default guessed from the file's extension: comma for .csv, tab for
    .tsv, .tab and .txt, before .gz or .zst if need be. ``encoding`` is "utf8", "utf8-lossy"
    (invalid bytes become U+FFFD), or the name of any Python codec: then the file is converted in
    memory first. ``header``: whether the first row names the columns; ``quote`` marks fields, ""
    for none; ``decimal`` is the decimal point of numbers that are text.
    """

    separator: str | None = None
    encoding: str = "utf8"
    header: bool = True
    quote: str = '"'
    decimal: str = "."

    def __post_init__(self) -> None:
        for name in ("separator", "encoding", "quote", "decimal"):
            value = getattr(self, name)
            if not isinstance(value, str) and (name, value) != ("separator", None):
                raise ValueError(f"{name} must be text, got {value!r}")
        if self.separator is not None and len(self.separator.encode()) != 1:
            raise ValueError(f"separator must be one byte, got {self.separator!r}")
        if not isinstance(self.header, bool):
            raise ValueError(f"header must be true or false, got {self.header!r}")
        if len(self.quote.encode()) > 1:
            raise ValueError(f"quote must be one byte or empty, got {self.quote!r}")
        if self.decimal not in (".", ","):
            raise ValueError(f'decimal must be "." or ",", got {self.decimal!r}')
        if self.encoding != "utf8-lossy":
            try:
                codecs.lookup(self.encoding)
            except LookupError:
                raise ValueError(f"unknown encoding {self.encoding!r}") from None


@dataclass(frozen=True)
class Table:
    """A lazy table: the wanted columns, as text, under the names c0, c1, ...

    ``names``: name in ``rows`` of each column asked for; ``overflow``: column that is null unless a
    row has too many fields; ``titles``: the file's name of each column, else its place.
    """

    rows: pl.LazyFrame
    names: list[str]
    overflow: str | None
    titles: list[str]


def is_parquet(path: Path) -> bool:
    """Say whether the name is that of a Parquet file."""
    return path.suffix.lower() in {".parquet", ".pq"}


def scan_table(path: Path, columns: Sequence[Column], form: TableFormat) -> Table:
    """Open a table lazily and find columns by name or by position.

    ``path``: parquet by its extension; otherwise text, plain or compressed by gzip or zstd;
    ``columns``: names, or positions counted from 0. Raises PopulationError for a missing or empty
    file, an unknown column (naming the nearest) or one whose name stands twice, and a separator
    that cannot be guessed.
    """
    import polars as pl  # here and below: only populations from files take its time

    existing(path)
    if is_parquet(path):
        try:
            rows = pl.scan_parquet(path, glob=False)
            header = list(rows.collect_schema())
        except (pl.exceptions.PolarsError, OSError) as error:
            raise PopulationError(f"{path}: not a Parquet file: {error}; {READ}") from error
        names = [header[k] for k in _positions(path, columns, header)]
        return Table(rows, names, None, names)
    head = _head(path)
    _check_text(path, head, form)
    separator = separator_of(path, form)
    first = _fields(path, head, separator, form)
    names = first if form.header else [str(k) for k in range(len(first))]
    places = _positions(path, columns, names if form.header else None, width=len(first))
    source: Path | io.BytesIO = path
    if _codec(form.encoding) != "utf-8":
        source = _as_utf8(path, form.encoding)
    rows = pl.scan_csv(
        source,
        schema={f"c{k}": pl.String() for k in range(len(first))} | {OVERFLOW: pl.String()},
        has_header=False,
        skip_rows=int(form.header),
        separator=separator,
        quote_char=form.quote or None,
        encoding="utf8-lossy" if form.encoding == "utf8-lossy" else "utf8",
        truncate_ragged_lines=True,
        missing_columns="insert",
        glob=False,
    )
    wanted = [f"c{k}" for k in places]
    empty_is_null = [
        pl.when(pl.col(c) != "").then(pl.col(c)).alias(c) for c in dict.fromkeys(wanted)
    ]
    titles = [names[k] for k in places]
    return Table(rows.with_columns(empty_is_null), wanted, OVERFLOW, titles)


def _head(path: Path) -> bytes:
    """Read what a header may be long, unpacked."""
    try:
        with _open(path) as raw:
            return raw.read(LONGEST_HEADER)
    except (OSError, EOFError) as error:
        raise PopulationError(f"{path}: it cannot be read: {error}") from error


def _check_text(path: Path, head: bytes, form: TableFormat) -> None:
    """Refuse files of another format by its name."""
    start = head.lstrip()
    for mark, name in OTHERS.items():
        if start.startswith(mark):
            raise PopulationError(f"{path}: this is {name}; {READ}")
    if head.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        raise PopulationError(f"{path}: this is UTF-32 text; {READ}")
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) and "16" not in form.encoding:
        raise PopulationError(f'{path}: this is UTF-16 text; set encoding = "utf-16"')
    if b"\r" in head and b"\n" not in head and "16" not in form.encoding:
        raise PopulationError(f"{path}: its lines end in CR alone; write LF, or CR LF; {READ}")


def first_row(path: Path, separator: str, form: TableFormat) -> list[str]:
    """Read the fields of a text table's first row."""
    return _fields(path, _head(path), separator, form)


def _fields(path: Path, head: bytes, separator: str, form: TableFormat) -> list[str]:
    codec = _codec(form.encoding)
    codec = "utf-8-sig" if codec == "utf-8" else codec
    try:
        text = codecs.getincrementaldecoder(codec)("replace").decode(head)
        lines = io.StringIO(text, newline="")
        reader = csv.reader(
            lines,
            delimiter=separator,
            quotechar=form.quote or None,
            quoting=csv.QUOTE_MINIMAL if form.quote else csv.QUOTE_NONE,
        )
        row = next(iter(reader), [])
    except UnicodeError as error:
        raise PopulationError(f"{path}: not {form.encoding} text: {error}") from error
    except csv.Error as error:
        raise PopulationError(f"{path}: the first row cannot be read: {error}") from error
    if not row:
        raise PopulationError(f"{path}: no rows: the file or its first line is empty")
    return row


def read_items(
    path: Path, columns: Sequence[Column], form: TableFormat, *, skip_bad_rows: bool
) -> tuple[Users, Mapping[str, int]]:
    """Read users' item counts: columns of the user, the item and, if there is one, the count.

    Returns how many rows were left out, and why. PopulationError for a missing file or column and
    for bad rows; names the file, the row and the value.
    """
    from fedhist.users.frames import items_of_rows

    table = scan_table(path, columns, form)
    names = dict(zip(("user", "item", "count"), table.names, strict=False))
    with told_of(path):
        ids, items, dropped = items_of_rows(
            table.rows,
            **names,
            overflow=table.overflow,
            decimal=form.decimal,
            skip_bad_rows=skip_bad_rows,
        )
    return Users(ids, items=items), dropped


def read_samples(
    path: Path, columns: Sequence[Column], form: TableFormat, *, skip_bad_rows: bool
) -> tuple[Users, Mapping[str, int]]:
    """Read users' real samples, as :func:`read_items`: the user's column, one per dimension."""
    from fedhist.users.frames import samples_of_rows

    table = scan_table(path, columns, form)
    with told_of(path):
        ids, samples, dropped = samples_of_rows(
            table.rows,
            user=table.names[0],
            value=table.names[1:],
            overflow=table.overflow,
            decimal=form.decimal,
            skip_bad_rows=skip_bad_rows,
        )
    return Users(ids, samples=samples), dropped


def read_user_ids(path: Path, column: Column, form: TableFormat) -> Words:
    """Read who stands in a table, whatever else its rows hold or lack: (n,) uint64, increasing."""
    from fedhist.users.frames import ids_of_rows

    table = scan_table(path, [column], form)
    with told_of(path):
        return ids_of_rows(table.rows, user=table.names[0])


@contextmanager
def told_of(path: Path) -> Iterator[None]:
    """Put the file's name before the message of a PopulationError."""
    try:
        yield
    except PopulationError as error:
        hint = ' (set encoding = "latin-1"?)' if "utf-8" in str(error) else ""
        raise PopulationError(f"{path}: {error}{hint}") from error


def existing(path: Path) -> Path:
    """Return the path of a regular file that exists; PopulationError otherwise."""
    if path.exists() and not path.is_file():
        what = "a folder" if path.is_dir() else "a pipe" if path.is_fifo() else "no regular file"
        raise PopulationError(f"{path} is {what}, not a file of data")
    if not path.is_file():
        beside = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
        close = [name for name in beside if name.lower().startswith(path.stem.lower()[:4])]
        hint = f" (there is {', '.join(sorted(close)[:3])})" if close else ""
        raise PopulationError(f"no such file: {path}{hint}")
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise PopulationError(f"the name {str(path)!r} is not UTF-8: rename the file") from None
    return path


def _positions(
    path: Path, columns: Sequence[Column], header: list[str] | None, width: int = 0
) -> list[int]:
    width = width if header is None else len(header)
    places = []
    for column in columns:
        if isinstance(column, int):
            if isinstance(column, bool) or not 0 <= column < width:
                raise PopulationError(f"{path}: no column {column}: there are {width}, from 0")
            places.append(column)
        elif header is None:
            raise PopulationError(
                f"{path}: column {column!r} needs a header; without one, give a position from 0"
            )
        elif header.count(column) != 1:
            what = "several columns" if column in header else "no column"
            others = [name for name in header if name != column]
            hint = nearest(column, others)
            if len(header) == 1 and any(mark in header[0] for mark in ";\t|,"):
                hint += ": is another character between the columns? set separator"
            raise PopulationError(f"{path}: {what} {column!r}" + hint)
        else:
            places.append(header.index(column))
    return places


def separator_of(path: Path, form: TableFormat) -> str:
    """Return what stands between columns; PopulationError where the name does not tell."""
    if form.separator:
        return form.separator
    suffixes = [s.lower() for s in path.suffixes if s.lower() not in {".gz", ".zst"}]
    if not suffixes or suffixes[-1] not in SEPARATORS:
        raise PopulationError(f"{path}: cannot guess the separator from the name; set separator")
    return SEPARATORS[suffixes[-1]]


def _codec(encoding: str) -> str:
    return "utf-8" if encoding == "utf8-lossy" else codecs.lookup(encoding).name


def _open(path: Path) -> BinaryIO:
    """Open a text table, which is unpacked as it is read."""
    with path.open("rb") as raw:
        kind = PACKED.get(raw.read(3))
    if kind is None:
        return path.open("rb")
    import pyarrow as pa

    return cast(BinaryIO, pa.CompressedInputStream(str(path), kind))


def _as_utf8(path: Path, encoding: str) -> io.BytesIO:
    """Convert a whole text file to UTF-8 in memory, some megabytes at a time."""
    out = io.BytesIO()
    try:
        with _open(path) as raw, io.TextIOWrapper(raw, encoding=encoding, newline="") as text:
            while part := text.read(1 << 22):
                out.write(part.encode())
    except (UnicodeError, OSError, EOFError) as error:
        raise PopulationError(f"{path}: not {encoding} text: {error}") from error
    out.seek(0)
    return out
