"""The columns of a comparison: all there are, and those that a terminal of 80 columns shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedhist.base.errors import nearest
from fedhist.model.registry import display_of
from fedhist.privacy.guarantee import Trust
from simulations.reporting.numbers import MISSING, fixed, short
from simulations.reporting.table import BAD, HEADING, Column, Marked, Table, worded
from simulations.studies.compare.rows import Ranked, Row
from simulations.studies.records.metrics import NORM_NAMES
from simulations.studies.records.runs import LEVEL
from simulations.studies.records.scale import percent, relative
from simulations.studies.records.settings_table import WORSE

REFERENCE = "no privacy (exact)"
"""Label of the row that needs no run: the truth itself."""

LETTERS = {t.value: t.name[0] for t in Trust}
INTERVAL, TIMES, BELIEVED, RECALL = f"± {LEVEL:.0%}", "times", "must be believed", "top"
IN_FILES = ("estimates", "worse than", "theory far off", "flags")
"""Columns of text that data files have."""


@dataclass(frozen=True)
class Field:
    """A column of numbers.

    Attributes
    ----------
    value : callable
        Its value in a row; :class:`Marked` where it is written with a sign.
    write : callable
        Writes a value that is there.
    words : str
        What it is, for the legend; empty where it is told otherwise.
    key : str
        What frames call it, where that is not its name.
    """

    value: Callable[[Row], Any]
    write: Callable[[Any], str] = short
    words: str = ""
    key: str = ""

    def written(self, value: Any) -> str:
        """Write a value, or that there is none."""
        return MISSING if value is None else self.write(value)


def _seconds(value: float) -> str:
    return "<.01" if value < 0.005 else fixed(value, 2 * (value < 100))


def _two(value: float) -> str:
    return short(value if value > 1e-99 else 0.0, 2)  # no room for what says nothing


def _three(value: float) -> str:
    return short(value, 3)


def _loss(row: Row) -> Marked | None:
    worse = bool(row.worse)
    return None if row.mean is None else Marked(row.mean, BAD * worse, "{}" + WORSE * worse)


def _ratio(row: Row) -> Marked | None:
    far = row.far_off
    return None if row.ratio is None else Marked(row.ratio, BAD * far, "{}" + "!" * far)


def _bound(row: Row) -> Marked | None:
    bound = row.at_least
    return None if bound is None else Marked(bound.value)


def _predicted(row: Row) -> Marked | None:
    exact = any(r.predicted_exact for r in row.records)
    return None if row.predicted is None else Marked(row.predicted, form="{}" + "*" * exact)


def _multiple(value: float) -> str:
    """Write a ratio whole from ten on: the interval of a mean is rarely narrower."""
    return fixed(value, 0 if value >= 10 else 2)


def fields_of(found: Ranked) -> dict[str, Field]:
    """Return all columns of a comparison that have a value in some row, by name."""
    loss = found.ready.loss
    k = next((int(x) for row in found.rows if (x := row.item_measure("k"))), 0)
    best = {f: least_error(found, f) for f in found.ready.fractions}

    def measured(name: str) -> Callable[[Row], float | None]:
        return lambda row: row.item_measure(name)

    def norm(name: str) -> Callable[[Row], float | None]:
        return lambda row: row.in_norm(name)

    top, off = f"{RECALL} {k}", f"off {RECALL} {k}"
    every = {
        loss: Field(_loss, key="loss"),
        INTERVAL: Field(lambda row: row.half_width, _two, key="half_width"),
        "relative": Field(
            lambda row: row.relative, percent, "relative: to the answer's size (all zeros)"
        ),
        "per item": Field(measured("per item"), _three, "per item: mean error"),
        top: Field(
            measured("recall"), percent, f"{top}: share of the {k} largest items that are found"
        ),
        off: Field(measured("top off"), percent, f"{off}: their median relative error"),
        "theory": Field(_predicted, _three),
        "ratio": Field(_ratio, _three, "ratio: measured / theory"),
        "at least": Field(_bound, _two),
        "bias": Field(lambda row: row.bias, _three, "bias: the mean signed error"),
        "other truth": Field(
            lambda row: row.off, _three, "other truth: distance of a row's own from this one"
        ),
        TIMES: Field(lambda row: _over(row.mean, best[row.fraction]), _multiple),
        **{name: Field(norm(name)) for name in NORM_NAMES if name != loss},
        "rounds": Field(lambda row: row.rounds, str),
        "bytes": Field(lambda row: row.bytes_per_user, fixed, "bytes: of a user's reports"),
        "sec": Field(lambda row: row.seconds, _seconds),
        BELIEVED: Field(lambda row: "\n".join(row.believed.short) if row.believed else None, str),
    }
    there = (loss, INTERVAL, "theory", "ratio")
    return {
        name: field
        for name, field in every.items()
        if name in there or any(field.value(row) is not None for row in found.rows)
    }


def _over(mean: float | None, least: float | None) -> float | None:
    return mean / least if mean is not None and least else None


def usual_columns(found: Ranked) -> list[str]:
    """Choose the columns that 80 letters have room for; the others are in the folder."""
    known = fields_of(found)
    start = [found.ready.loss, INTERVAL, "relative"]
    if found.ready.comparison.levels:
        return _there([*start, TIMES, BELIEVED], known)
    counts = display_of(found.ready.comparison.target).unit == "counts"
    if attacked(found):  # theory knows of no adversary
        return _there([*start, "bias", "rounds", "bytes"], known)
    recall = next((name for name in known if name.startswith(f"{RECALL} ")), "")
    if counts:
        return _there([*start, "per item", recall, "ratio"], known)
    if recall:
        return _there(
            [*start, recall, "ratio", "at least" if "at least" in known else "bytes"], known
        )
    return _there(
        [*start, "theory", "ratio", "at least" if "at least" in known else "bytes"], known
    )


def columns_of(found: Ranked, asked: Sequence[str]) -> list[str]:
    """Name the columns that are asked for, by name or key; "all" alone for all, none the usual.

    Raises
    ------
    ValueError
        For a column that the comparison has not.
    """
    known = fields_of(found)
    if not asked:
        return usual_columns(found)
    keys = {field.key: name for name, field in known.items() if field.key}
    names = list(known) if [*asked] == ["all"] else [keys.get(name, name) for name in asked]
    for name in names:
        if name not in known:
            raise ValueError(f"no column {name!r}{nearest(name, known)}")
    return names


def _there(names: Sequence[str], known: Mapping[str, Field]) -> list[str]:
    return [name for name in names if name in known]


def attacked(found: Ranked) -> bool:
    """Whether the table shows biases instead of theory, which is about honest users."""
    biased = any(row.bias is not None for row in found.rows)
    return biased and bool(found.ready.comparison.adversary)


def least_error(found: Ranked, fraction: float | None) -> float | None:
    """Return the least mean error of those who believe most, of the rows that are ranked."""
    rows = [r for r in found.rows if r.rank is not None and r.fraction == fraction]
    return next((r.mean for r in rows), None)


def times(row: Row, least: float | None) -> str:
    """Write a row's error as a multiple of the least."""
    ratio = _over(row.mean, least)
    return MISSING if ratio is None else _multiple(ratio)


def missing_in_words(row: Row) -> list[str]:
    """Count the runs that gave no result: "3 of 20 runs failed"."""
    total = len(row.records)
    words = {"error": "broke off"}
    return [f"{n} of {total} runs {words.get(s, s)}" for s, n in sorted(row.missing.items())]


def remarks(row: Row) -> list[str]:
    """Say below a row's label what its numbers alone would hide."""
    said = [*row.flags, *missing_in_words(row)]
    if row.off is not None:
        told = f"other truth: {short(row.off, 3)} off" if row.off else "of more items, these count"
        said.append(told)
    return said


def comparison_table(found: Ranked, shown: Sequence[str], notes: Sequence[str] = ()) -> Table:
    """Make the table of a comparison, with all columns.

    Parameters
    ----------
    found : Ranked
    shown : sequence of str
        Names of the columns that are seen where none are asked for, in their order.
    notes : sequence of str
    """
    known = fields_of(found)
    names = [*shown, *(name for name in known if name not in shown)]
    header = [
        Column("#", right=True, key="rank"),
        Column("", key="trust"),
        Column("protocol"),
        *(_column(name, known[name], more=name not in shown) for name in names),
    ]
    header += [Column(name, more=True) for name in IN_FILES]
    trivial = sorted(found.trivial.items(), key=lambda x: x[1])
    rows: list[Sequence[object] | None] = [
        (None, "", what, *(_of_reference(found, name, loss) for name in names))
        for what, loss in ((REFERENCE, 0.0), *trivial)
    ]
    crowded = len(found.rows) > len({(r.fraction, r.level) for r in found.rows})
    before: Row | None = None
    for row in found.rows:
        if row.fraction is not None and (before is None or row.fraction != before.fraction):
            share = Marked(f"{100 * row.fraction:g}% misbehave", HEADING)
            rows += [None, ("", "", share)]
        elif (row.flags and not (before and before.flags)) or (
            crowded and before is not None and row.level is not before.level
        ):
            rows.append(None)
        before = row
        trust = row.records[0].trust
        rows.append(
            (
                row.rank,
                worded(trust, LETTERS.get(trust, "")),
                worded(row.title, "\n".join([row.title, *remarks(row)])),
                *(known[name].value(row) for name in names),
                row.records[0].truth,
                row.worse,
                row.far_off,
                "; ".join(row.flags),
            )
        )
    return Table.of(header, rows, notes=notes)


def _column(name: str, field: Field, *, more: bool) -> Column:
    text = name == BELIEVED
    return Column(name, not text, not text, field.written, field.key, more)


def _of_reference(found: Ranked, name: str, loss: float) -> object:
    """Return what is known of an answer that nobody is asked for."""
    if name == found.ready.loss:
        return loss
    return relative(loss, found.size, found.ready.loss) if name == "relative" else None
