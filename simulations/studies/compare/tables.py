"""A comparison in the terminal, in 80 columns: the ranking, the guarantees, who is left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from fedhist.model.losses import L1, SQUARED_L2
from fedhist.model.protocol import Protocol
from fedhist.model.registry import protocols
from fedhist.privacy.guarantee import Trust
from simulations.adversaries import read_adversaries
from simulations.reporting.numbers import MISSING, fixed, short
from simulations.reporting.table import HEADING, Column, Marked, Table
from simulations.reporting.terminal import print_lines, print_table
from simulations.runs.options import NOT_SAFE
from simulations.studies.records.summary import LEVEL, labels_by

if TYPE_CHECKING:
    from simulations.studies.compare.run import Compared, Row

REFERENCE = "no privacy (exact)"
"""Label of the row that needs no run: the truth itself."""

TIMES = "times"
LONG_NAMES = {"ise": ", the integrated squared error"}
LETTERS = {t.value: t.name[0] for t in Trust}
USUAL = (Trust.CENTRAL.value, Trust.LOCAL.value)


def print_comparison(console: Console, found: Compared) -> None:
    """Print the table, a line per row on its guarantee, and what was left out and why."""
    ready, c = found.ready, found.ready.comparison
    budget = f"epsilon = {c.epsilon:g}, delta = {c.delta:g}"
    print_lines(
        console,
        [
            f"{c.target}: {ready.title}",
            f"{budget} in all, {c.adjacency.value}: {c.adjacency.in_words}",
            *_attack(found),
        ],
    )
    print_table(console, ranking(found))
    _print_section(console, "what must be believed", _believed(found))
    about = labels_by(found.records, lambda r: filter(None, [r.truth]))
    _print_section(console, "estimates", [f"{t}: {labels}" for t, labels in about.items()])
    promises = dict.fromkeys(f"{row.label}: {_promise(row)}" for row in found.rows)
    noise = f"noise: {c.run.noise}; clients: {c.run.clients}; {_composed(found)}"
    _print_section(console, "guarantees", [*promises, noise])
    _print_section(console, "at least", _bounds(found))
    secret = "errors, theory and times: computed from the users' data"
    _print_section(console, "NOT PRIVATE in these runs", [secret, *_notes(found)])
    _print_section(console, "warnings", _warnings(found))
    _print_section(console, "runs without a result", _troubles(found))
    missing = absent_kinds(c.target)
    if missing:
        line = f"no registered protocol for a {c.target} is {', '.join(missing)}"
        print_lines(console, ["", line])
    told = {u.trust for u in ready.unreached}  # why, stands above
    out = [f"{x.label}: {x.reason}" for x in ready.left_out if x.level not in told]
    _print_section(console, "left out", out)


def _print_section(console: Console, title: str, lines: Sequence[str]) -> None:
    """Print indented lines below a title, if there are any."""
    if lines:
        console.print(f"\n{title}", style="bold")
        for line in lines:
            console.print(Padding(Text(line), (0, 0, 0, 2), expand=False))


def absent_kinds(target: str) -> list[str]:
    """Name the kinds of protocols of which no registered one has this target."""
    made = [cls for cls in protocols().values() if cls.target == target]
    guarantees = [cls.example().guarantee for cls in made]
    there = {
        "central": any(g.trust is Trust.CENTRAL and g.unit == "user" for g in guarantees),
        "local": any(g.trust is Trust.LOCAL for g in guarantees),
        "item-level": any(g.unit == "item" for g in guarantees) or any(map(_can_be_item, made)),
    }
    return [kind for kind, found in there.items() if not found]


def _can_be_item(cls: type[Protocol]) -> bool:
    """Say whether a field lets a protocol be had per item."""
    return any("item-level" in get_args(hint) for hint in get_type_hints(cls).values())


def _attack(found: Compared) -> list[str]:
    """Say who misbehaves, at the largest share of several, and what the server does not check."""
    c = found.ready.comparison
    tables = c.attack(max(c.fractions) if c.fractions else None)
    most = "adversary, at most" if len(c.fractions) > 1 else "adversary"
    lines = [f"{most}: {a.in_words}" for a in read_adversaries([dict(t) for t in tables])]
    return lines if c.run.checks else [*lines, NOT_SAFE]


def ranking(found: Compared) -> Table:
    """Return the main table of a comparison: a line per row, the best first."""
    attacked = _attacked(found)
    levels = bool(found.ready.comparison.levels)
    bounded = not (attacked or levels) and any(row.bounds for row in found.rows)
    # 80 columns have no place for all; what is not shown is in the folder
    digits = 1 if bounded and len(found.rows) > 9 else 2  # ranks of two digits take their room
    theory = [_numbers("bias", 3)] if attacked else [_numbers("theory", 3), _numbers("ratio", 3)]
    columns = [
        Column("#", right=True, key="rank"),
        Column("", key="trust"),
        Column("protocol"),
        _numbers(found.ready.loss, 4, key="loss"),
        _numbers(f"± {LEVEL:.0%}", digits, key="half_width"),
    ]
    if levels:
        columns += [theory[0], Column(TIMES, right=True, keep=True), Column("must be believed")]
    else:
        columns += [*theory, *[_numbers("at least", 2)] * bounded]
        columns += [_numbers("rounds"), Column("bytes", right=True, keep=True, write=fixed)]
        columns += [_numbers("sec")] * (not bounded)
    keys = [c.key or c.name for c in columns]
    rows: list[Sequence[object] | None] = []
    rows.append([{"trust": "", "protocol": REFERENCE, "loss": 0.0}.get(k) for k in keys])
    best = {f: least_error(found, f) for f in found.ready.fractions}
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
        values = _values(row, best[row.fraction])
        rows.append([values[k] for k in keys])
    return Table.of(columns, rows, notes=[_legend(found)])


def _numbers(name: str, digits: int = 4, key: str = "") -> Column:
    return Column(name, right=True, keep=True, write=partial(short, digits=digits), key=key)


def _written(value: Any, text: str) -> Marked:
    """Write a value otherwise than its column does."""
    return Marked(value, form=text.replace("{", "{{").replace("}", "}}"))


def _values(row: Row, least: float | None) -> dict[str, Any]:
    """Return what columns may show of a row, by their keys."""
    trust = row.records[0].trust
    exact = "*" if any(r.predicted_exact for r in row.records) else ""
    words = "\n".join([row.title, *row.flags, *missing_in_words(row)])
    ratio = row.mean / least if row.mean is not None and least else None
    return {
        "rank": row.rank,
        "trust": _written(trust, LETTERS.get(trust, "")),
        "protocol": _written(row.title, words),
        "loss": row.mean,
        "half_width": row.half_width,
        "theory": _written(row.predicted, short(row.predicted, 3) + exact),
        "bias": row.bias,
        "ratio": row.ratio,
        "at least": _at_least(row),
        "rounds": row.rounds,
        "bytes": row.bytes_per_user,
        "sec": _written(row.seconds, _seconds(row)),
        TIMES: _written(ratio, times(row, least)),
        "must be believed": "\n".join(row.believed.short) if row.believed else "",
    }


def least_error(found: Compared, fraction: float | None) -> float | None:
    """Return the least mean error of those who believe most, of the rows that are ranked."""
    rows = [r for r in found.rows if r.rank is not None and r.fraction == fraction]
    return next((r.mean for r in rows), None)


def times(row: Row, least: float | None) -> str:
    """Write a row's error as a multiple of the least.

    Whole from ten on: the interval of a mean is rarely narrower.
    """
    if row.mean is None or not least:
        return MISSING
    ratio = row.mean / least
    return fixed(ratio, 0 if ratio >= 10 else 2)


def _believed(found: Compared) -> list[str]:
    """Say what must be believed on each level, and why there is nothing on others."""
    told: dict[str, list[str]] = {}
    for row in found.rows:
        if row.level is not None and row.believed is not None:
            told.setdefault(f"{row.level.value}: {row.believed.words}", []).append(row.title)
    lines = {line: list(dict.fromkeys(titles)) for line, titles in told.items()}
    heads = [line.partition(":")[0] for line in lines]
    out = [
        f"{line} ({', '.join(titles)})" if heads.count(line.partition(":")[0]) > 1 else line
        for line, titles in lines.items()
    ]
    out += [f"{u.trust.value}: not reached; {u.reason}" for u in found.ready.unreached]
    return sorted(out, key=lambda line: list(LETTERS).index(line.partition(":")[0]))


def _seconds(row: Row) -> str:
    return "<.01" if row.seconds < 0.005 else fixed(row.seconds, 2 * (row.seconds < 100))


def _at_least(row: Row) -> Marked | None:
    bound = row.at_least
    if bound is None:
        return None
    value = bound.value if bound.value > 1e-99 else 0.0  # no room for what says nothing
    return _written(bound.value, ("" if bound.explicit else "~") + short(value, 2))


def _bounds(found: Compared) -> list[str]:
    """Say what the lower bounds are, each kind with its rows."""
    if _attacked(found) or found.ready.comparison.levels:
        return []  # the table has no such column
    told: dict[str, list[str]] = {}
    for row in found.rows:
        for bound in row.bounds:
            told.setdefault(bound.words, []).append(row.label)
    lines = [f"{words} ({', '.join(dict.fromkeys(labels))})" for words, labels in told.items()]
    what = "what no protocol of that guarantee can beat on all such users; ~: order only"
    return [what, *lines] if lines else []


def _attacked(found: Compared) -> bool:
    """Whether the table shows biases instead of theory, which is about honest users."""
    biased = any(row.bias is not None for row in found.rows)
    return biased and bool(found.ready.comparison.adversary)


def missing_in_words(row: Row) -> list[str]:
    """Count the runs that gave no result: "3 of 20 runs failed"."""
    total = len(row.records)
    words = {"error": "broke off"}
    return [f"{n} of {total} runs {words.get(s, s)}" for s, n in sorted(row.missing.items())]


def _legend(found: Compared) -> str:
    """Explain the columns, and what an error of 0 means here."""
    ready = found.ready
    runs = len(ready.comparison.seeds)
    loss = ready.loss + LONG_NAMES.get(ready.loss, "")
    text = [
        f"{loss}: mean distance from the exact answer about these {ready.n_users:,} users "
        f"over {runs} {'run' if runs == 1 else 'runs'}."
    ]
    if runs > 1:
        text.append(f"± {LEVEL:.0%}: Student's interval of that mean, for these users.")
    if _attacked(found):
        text.append("bias: the mean signed error.")
    elif any(x.predicted_exact for r in found.rows for x in r.records):
        text.append("*: an exact formula.")
    if found.ready.comparison.adversary and not _attacked(found):
        text.append("Theory is about honest users.")
    normal = [
        row.label
        for row in found.rows
        if row.predicted is not None and _own_prediction(row) == SQUARED_L2 and ready.loss == L1
    ]
    if normal:
        text.append(
            f"The theory of {', '.join(dict.fromkeys(normal))} follows from their squared l2 "
            "distance, as if errors were normal, alike in all entries and not projected."
        )
    others = dict.fromkeys((_own_prediction(r), r.label) for r in found.rows if r.predicted is None)
    for own in dict.fromkeys(name for name, _ in others if name):
        labels = [label for name, label in others if name == own]
        text.append(f"The theory of {', '.join(labels)} is about {own}.")
    trusts = [t.value for t in Trust if any(r.records[0].trust == t.value for r in found.rows)]
    known = list(dict.fromkeys([*USUAL, *trusts])) if not ready.comparison.levels else trusts
    known.sort(key=list(LETTERS).index)
    text.append(f"{', '.join(LETTERS[t] for t in known)}: {', '.join(known)} trust.")
    if ready.comparison.levels:
        text.append(f"{TIMES}: of the least error under the first of these.")
    else:
        text.append("bytes: of a user's reports.")
    if ready.sampling is not None:
        text.append(
            f"The exact answer is itself about {ready.sampling:.3g} from that of the population "
            "which the users are a sample of (estimated)."
        )
    return " ".join(text)


def _own_prediction(row: Row) -> str:
    """Name the loss of a prediction that could not be stated in the common one."""
    found = (r.more for r in row.records if r.more.get("own_predicted") is not None)
    return next((str(more["own_loss_name"]) for more in found), "")


def _promise(row: Row) -> str:
    """State what a row's protocol guarantees, and what its paper says where that is more."""
    first = row.records[0]
    text = first.guarantee
    if first.claimed:
        text += f"; its paper claims {first.claimed}"
    return "; ".join([text, *(f for f in row.flags if f not in text)])


def _composed(found: Compared) -> str:
    """Say by which composition the budgets were spent."""
    of = labels_by(found.records, lambda r: filter(None, [r.composed]))
    told = [how if len(of) == 1 else f"{how} ({labels})" for how, labels in of.items()]
    return f"composed by: {'; '.join(told) or 'nothing was spent'}"


def _notes(found: Compared) -> list[str]:
    """List what the rows computed from private data outside their guarantees."""
    everybody = ", ".join(dict.fromkeys(r.label for r in found.records))
    of = labels_by(found.records, lambda r: r.not_private)
    return [f"{'all' if labels == everybody else labels}: {note}" for note, labels in of.items()]


def _warnings(found: Compared) -> list[str]:
    """Quote a warning of each row, and say in how many of its runs there are any."""
    out = []
    for row in found.rows:
        warned = [r.warnings[0] for r in row.records if r.warnings]
        if warned:
            out.append(f"{row.name}: {warned[0]} ({len(warned)} of {len(row.records)} runs)")
    return out


def _troubles(found: Compared) -> list[str]:
    """Say why runs ended without a result."""
    out = []
    for row in found.rows:
        reasons = Counter(f"{r.status}: {r.reason}" for r in row.records if r.loss is None)
        out += [f"{row.name}: {n} x {reason}" for reason, n in reasons.most_common(2)]
    return out
