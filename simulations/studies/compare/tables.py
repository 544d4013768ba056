"""A comparison in the terminal, in 80 columns: the ranking, the guarantees, who is left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from fedhist.model.losses import L1, SQUARED_L2
from fedhist.model.registry import display_of, protocols
from fedhist.privacy.guarantee import Trust
from simulations.adversaries import read_adversaries
from simulations.reporting.numbers import short
from simulations.reporting.statistics import FAR
from simulations.reporting.table import Table
from simulations.reporting.terminal import print_lines, print_table
from simulations.runs.options import NOT_SAFE
from simulations.studies.compare.columns import (
    INTERVAL,
    LETTERS,
    TIMES,
    attacked,
    comparison_table,
    fields_of,
    usual_columns,
)
from simulations.studies.compare.rows import Ranked, Row
from simulations.studies.records.scale import UNIFORM
from simulations.studies.records.settings_table import WORSE
from simulations.studies.records.summary import labels_by

LONG_NAMES = {"ise": ", the integrated squared error"}
USUAL = (Trust.CENTRAL.value, Trust.LOCAL.value)


def print_comparison(console: Console, found: Ranked, columns: Sequence[str] | None = None) -> None:
    """Print the table, a line per row on its guarantee, and what was left out and why."""
    names = usual_columns(found) if columns is None else columns
    ready, c = found.ready, found.ready.comparison
    budget = f"epsilon = {c.epsilon:g}, delta = {c.delta:g}"
    print_lines(
        console,
        [
            f"{c.target}: {ready.title}",
            f"{budget} in all, {c.adjacency.value}: {c.adjacency.in_words}",
            _about(found),
            *_attack(found),
        ],
    )
    print_table(console, ranking(found, names))
    _print_section(console, "what must be believed", _believed(found))
    _print_section(console, "estimates", _estimates(found))
    promises = dict.fromkeys(f"{row.label}: {_promise(row)}" for row in found.rows)
    noise = f"noise: {c.run.noise}; clients: {c.run.clients}; {_composed(found)}"
    _print_section(console, "guarantees", [*promises, noise])
    _print_section(console, "at least", _bounds(found) if "at least" in names else [])
    _print_section(console, "theory", _theory(found))
    secret = "errors, theory and times: computed from the users' data"
    _print_section(console, "NOT PRIVATE in these runs", [secret, *ready.facts, *_notes(found)])
    _print_section(console, "warnings", [*ready.doubts, *_warnings(found)])
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


def _about(found: Ranked) -> str:
    """Say what errors are about, and what else they might be about."""
    ready = found.ready
    others = " or ".join(repr(t.value) for t in ready.truths)
    return f"truth: {ready.truth.value}" + (f" (compare.truth may be {others})" if others else "")


def _estimates(found: Ranked) -> list[str]:
    """Say which truth each row is about, and how far that is from what all are held against."""
    lines = []
    for truth, labels in labels_by(found.records, lambda r: filter(None, [r.truth])).items():
        off = {row.label: row.off for row in found.rows if row.off}
        told = [
            f"{label} ({short(off[label], 3)} off)" if label in off else label
            for label in dict.fromkeys(r.label for r in found.records if r.truth == truth)
        ]
        lines.append(f"{truth}: {', '.join(told) or labels}")
    if any(row.off for row in found.rows):
        lines.append(
            f"off: {found.ready.loss} between a row's own truth and "
            f"{found.ready.truth.value!r} on these users, a bias that no budget takes away"
        )
    return lines


def _theory(found: Ranked) -> list[str]:
    """Name the rows whose theory is far from what was measured."""
    far = [row for row in found.rows if row.far_off]
    told = ", ".join(f"{row.name} (measured / theory = {short(row.ratio, 3)})" for row in far)
    return [f"!: a factor of more than {FAR:g} off, beyond its interval: {told}"] if told else []


def absent_kinds(target: str) -> list[str]:
    """Name the kinds of protocols of which no registered one has this target."""
    made = [cls for cls in protocols().values() if cls.target == target]
    guarantees = [cls.example().guarantee for cls in made]
    there = {
        "central": any(g.trust is Trust.CENTRAL and g.unit == "user" for g in guarantees),
        "local": any(g.trust is Trust.LOCAL for g in guarantees),
    }
    return [kind for kind, found in there.items() if not found]


def _attack(found: Ranked) -> list[str]:
    """Say who misbehaves, at the largest share of several, and what the server does not check."""
    c = found.ready.comparison
    tables = c.attack(max(c.fractions) if c.fractions else None)
    most = "adversary, at most" if len(c.fractions) > 1 else "adversary"
    lines = [f"{most}: {a.in_words}" for a in read_adversaries([dict(t) for t in tables])]
    return lines if c.run.checks else [*lines, NOT_SAFE]


def ranking(found: Ranked, columns: Sequence[str] | None = None) -> Table:
    """Return the main table of a comparison: a line per row, the best first.

    It has all columns; those of ``columns`` are shown, or as many as 80 letters have room for.
    """
    names = usual_columns(found) if columns is None else columns
    return comparison_table(found, names, [_legend(found, names)])


def _believed(found: Ranked) -> list[str]:
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


def _bounds(found: Ranked) -> list[str]:
    """Say what the lower bounds are, each kind with its rows."""
    told: dict[str, list[str]] = {}
    for row in found.rows:
        for bound in row.bounds:
            told.setdefault(bound.words, []).append(row.label)
    lines = [f"{words} ({', '.join(dict.fromkeys(labels))})" for words, labels in told.items()]
    what = "what no protocol of that guarantee can beat on all such users; ~: order only"
    return [what, *lines] if lines else []


def _legend(found: Ranked, names: Sequence[str]) -> str:
    """Explain the columns, and what an error of 0 means here."""
    ready, known = found.ready, fields_of(found)
    runs = len(ready.comparison.seeds)
    loss = ready.loss + LONG_NAMES.get(ready.loss, "")
    text = [
        f"{loss}: mean distance from the exact answer about these {ready.n_users:,} users "
        f"over {runs} {'run' if runs == 1 else 'runs'}."
    ]
    if runs > 1:
        text.append(f"{INTERVAL}: Student's interval of that mean, for these users.")
    text += [f"{known[name].words}." for name in names if name in known and known[name].words]
    exact = any(x.predicted_exact for r in found.rows for x in r.records)
    if exact and "theory" in names:
        text.append("*: an exact formula.")
    if ready.comparison.adversary and not attacked(found):
        text.append("Theory is about honest users.")
    worse = dict.fromkeys(row.worse for row in found.rows if row.worse)
    if worse:
        text.append(f"{WORSE}: worse than {' or '.join(worse)}, an answer without any data.")
    if UNIFORM in found.trivial and display_of(ready.comparison.target).unit == "counts":
        text.append(f"{UNIFORM}: of the true total.")
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
    told = list(dict.fromkeys([*USUAL, *trusts])) if not ready.comparison.levels else trusts
    told.sort(key=list(LETTERS).index)
    text.append(f"{', '.join(LETTERS[t] for t in told)}: {', '.join(told)} trust.")
    if TIMES in names:
        text.append(f"{TIMES}: of the least error under the first of these.")
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


def _composed(found: Ranked) -> str:
    """Say by which composition the budgets were spent."""
    of = labels_by(found.records, lambda r: filter(None, [r.composed]))
    told = [how if len(of) == 1 else f"{how} ({labels})" for how, labels in of.items()]
    return f"composed by: {'; '.join(told) or 'nothing was spent'}"


def _notes(found: Ranked) -> list[str]:
    """List what the rows computed from private data outside their guarantees."""
    everybody = ", ".join(dict.fromkeys(r.label for r in found.records))
    of = labels_by(found.records, lambda r: r.not_private)
    return [f"{'all' if labels == everybody else labels}: {note}" for note, labels in of.items()]


def _warnings(found: Ranked) -> list[str]:
    """Quote a warning of each row, and say in how many of its runs there are any."""
    out = []
    for row in found.rows:
        warned = [r.warnings[0] for r in row.records if r.warnings]
        if warned:
            out.append(f"{row.name}: {warned[0]} ({len(warned)} of {len(row.records)} runs)")
    return out


def _troubles(found: Ranked) -> list[str]:
    """Say why runs ended without a result."""
    out = []
    for row in found.rows:
        reasons = Counter(f"{r.status}: {r.reason}" for r in row.records if r.loss is None)
        out += [f"{row.name}: {n} x {reason}" for reason, n in reasons.most_common(2)]
    return out
