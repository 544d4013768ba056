"""The tables of a profile, and what the terminal shows of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from simulations.populations.facts import percent, spelt
from simulations.reporting.numbers import clipped, short
from simulations.reporting.shown import NOT_PRIVATE
from simulations.reporting.table import Column, Table, numeric
from simulations.reporting.terminal import print_lines, print_table
from simulations.studies.profile.dispersion import SURE
from simulations.studies.profile.profiled import Profiled

MOST_LETTERS = 30


def tables_of(profile: Profiled) -> Sequence[Table]:
    """Return facts, quantiles, suggestions, and names in several spellings where there are any."""
    out = [_facts(profile), _quantiles(profile), _suggested(profile)]
    if profile.similar.groups:
        out.append(_names(profile))
    return out


def print_profile(console: Console, profile: Profiled) -> None:
    """Print the tables with the warnings, and that nothing of it is private."""
    print_lines(console, [profile.title])
    for table in tables_of(profile):
        print_table(console, table)
    print_lines(console, [f"NOT PRIVATE: {NOT_PRIVATE}"])


def _facts(p: Profiled) -> Table:
    what = p.what
    rows: list[Sequence[Any]] = [("users", p.n_users, ""), (what, p.n_events, "")]
    if p.n_items is not None:
        rows.append(("different items", p.n_items, ""))
    if p.domain_size is not None:
        rows += [
            ("items of the domain", p.domain_size, ""),
            (f"{what} outside the domain", p.outside_events, percent(p.outside_events)),
            ("users outside the domain", p.outside_users, percent(p.outside_users)),
        ]
    elif p.n_items is None and max(p.outside_events, p.outside_users) > 0:
        rows += [
            (f"{what} outside the range", p.outside_events, percent(p.outside_events)),
            ("users outside the range", p.outside_users, percent(p.outside_users)),
        ]
    rows += [(f"left out or changed: {why}", n, "") for why, n in p.dropped.items()]
    if p.similar.groups:
        rows.append(("groups of similar names", p.similar.groups, ""))
    d = p.dispersion
    rows.append(("correlation within users", _known(d.correlation), _in_words(p)))
    if not math.isnan(d.score) and not math.isnan(d.correlation):
        differ = "users differ" if d.differ else "no more than chance"
        differ = "fewer repeats than chance" if d.score < -SURE else differ
        beyond = "more than any number of " if math.isinf(d.score) else ""
        rows.append(("its score", _known(d.score), f"{beyond}standard deviations; {differ}"))
    return Table.of(
        [Column("fact", keep=True), *numeric(["value"], write=_written), "in words"],
        rows,
        notes=[
            f"correlation: {d.statistic}; 0 where all users draw from one distribution.",
            *(f"look here: {w}" for w in p.warnings),
        ],
    )


def _in_words(p: Profiled) -> str:
    d = p.dispersion
    if math.isnan(d.correlation):
        if d.n_users < 2:
            return "not defined: fewer than two users hold several"
        return f"not defined: all {'values' if p.n_items is None else 'events'} are alike"
    if p.n_items is None:
        return (
            f"variance {short(max(d.between, 0.0), 3)} between users, {short(d.within, 3)} within"
        )
    return (
        f"two events of one user are the same item in {percent(d.within)}, "
        f"of two users in {percent(d.between)} of cases"
    )


def _quantiles(p: Profiled) -> Table:
    found: dict[str, Mapping[str, float]] = {f"{p.what} per user": p.per_user}
    found |= {"items per user": p.items_per_user} if p.items_per_user else {}
    found |= {"values": p.values} if p.values else {}
    rows = [(q, *(x[q] for x in found.values())) for q in p.per_user]
    return Table.of(["quantile", *numeric(found, write=_written)], rows)


def _suggested(p: Profiled) -> Table:
    rows = [(name, value, p.reasons[name]) for name, value in p.suggested.items()]
    return Table.of(
        [Column("suggested", keep=True), *numeric(["value"], write=_written), "where it is from"],
        rows,
        notes=[
            f"For {p.budget}. They read the data: start from them, and compare with them. A "
            "release takes what is known publicly, or spends a part of its budget on the choice."
        ],
    )


def _names(p: Profiled) -> Table:
    rows = [
        (clipped(spelt(names[0]), MOST_LETTERS), _list(names[1:])) for names in p.similar.examples
    ]
    more = p.similar.groups - len(rows)
    notes = [f"and {more:,} groups more"] if more > 0 else []
    return Table.of(["most frequent spelling", "others"], rows, notes=notes)


def _list(names: Sequence[str]) -> str:
    told = ", ".join(clipped(spelt(n), MOST_LETTERS) for n in names[:4])
    return told + (f", and {len(names) - 4} more" if len(names) > 4 else "")


def _known(x: float) -> float | None:
    return x if math.isfinite(x) else None


def _written(value: Any) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return short(value, 3) if value is None or abs(value) < 1000 else f"{value:,.0f}"
