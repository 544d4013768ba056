"""A comparison in the terminal, in 80 columns: the ranking, the guarantees, who is left out."""

from __future__ import annotations

from collections import Counter
from typing import get_args, get_type_hints

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from fedhist.model.losses import L1, SQUARED_L2
from fedhist.model.protocol import Protocol
from fedhist.model.registry import protocols
from fedhist.privacy.guarantee import Trust
from simulations.adversaries import read_adversaries
from simulations.reporting.sheets import Sheet
from simulations.runs.options import NOT_SAFE
from simulations.studies.compare.run import LEVEL, Compared, Row
from simulations.studies.records.summary import MISSING, shown

REFERENCE = "no privacy (exact)"
"""Label of the row that needs no run: the truth itself."""


LONG_NAMES = {"ise": ", the integrated squared error"}
LETTERS = {Trust.CENTRAL.value: "C", Trust.LOCAL.value: "L"}


def print_comparison(console: Console, found: Compared) -> None:
    """Print the table, a line per row on its guarantee, and what was left out and why."""
    ready, c = found.ready, found.ready.comparison
    budget = f"epsilon = {c.epsilon:g}, delta = {c.delta:g}"
    _line(console, f"{c.target}: {ready.title}")
    _line(console, f"{budget} in all, {c.adjacency.value}: {c.adjacency.in_words}")
    for line in _attack(found):
        _line(console, line)
    console.print(_table(found))
    _line(console, _legend(found))
    console.print("\nguarantees", style="bold")
    for line in dict.fromkeys(f"{row.label}: {_promise(row)}" for row in found.rows):
        _line(console, line, "  ")
    noise, clients = c.run.noise, c.run.clients
    _line(console, f"noise: {noise}; clients: {clients}; {_composed(found)}", "  ")
    console.print("\nNOT PRIVATE in these runs", style="bold")
    for note in ["errors, theory and times: computed from the users' data", *_notes(found)]:
        _line(console, note, "  ")
    warnings = _warnings(found)
    if warnings:
        console.print("\nwarnings", style="bold")
        for warning in warnings:
            _line(console, warning, "  ")
    troubles = _troubles(found)
    if troubles:
        console.print("\nruns without a result", style="bold")
        for trouble in troubles:
            _line(console, trouble, "  ")
    missing = absent_kinds(c.target)
    if missing:
        console.print()
        _line(console, f"no registered protocol for a {c.target} is {', '.join(missing)}")
    if ready.left_out:
        console.print("\nleft out", style="bold")
        for x in ready.left_out:
            _line(console, f"{x.label}: {x.reason}", "  ")


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


def _table(found: Compared) -> Sheet:
    loss = found.ready.loss
    table = Sheet(dense=True)
    table.add_column("#", right=True)
    table.add_column("")
    table.add_column("protocol")
    attacked = _attacked(found)
    theory = ("bias",) if attacked else ("theory", "ratio")  # which knows of no adversary
    for name in (loss, f"± {LEVEL:.0%}", *theory, "rounds", "bytes", "sec"):
        table.add_column(name, right=True, keep=True)
    table.add_row(MISSING, "", REFERENCE, "0", *[MISSING] * (4 + len(theory)))
    before: Row | None = None
    for row in found.rows:
        if row.fraction is not None and (before is None or row.fraction != before.fraction):
            table.add_section()
            table.add_row("", "", Text(f"{100 * row.fraction:g}% misbehave", style="bold"))
        elif row.flags and not (before and before.flags):
            table.add_section()
        before = row
        table.add_row(
            shown(row.rank),
            LETTERS.get(row.records[0].trust, ""),
            "\n".join([row.label, *row.flags, *missing_in_words(row)]),
            short(row.mean),
            short(row.half_width, 2),
            *([short(row.bias, 3)] if attacked else _theory(row)),
            shown(row.rounds),
            fixed(row.bytes_per_user),
            "<.01" if row.seconds < 0.005 else fixed(row.seconds, 2 if row.seconds < 100 else 0),
        )
    return table


def _theory(row: Row) -> list[str]:
    exact = "*" if any(r.predicted_exact for r in row.records) else ""
    return [short(row.predicted) + exact, short(row.ratio, 3)]


def _attacked(found: Compared) -> bool:
    """Whether the table shows biases instead of theory, which is about honest users."""
    biased = any(row.bias is not None for row in found.rows)
    return biased and bool(found.ready.comparison.adversary)


def short(x: float | None, digits: int = 4) -> str:
    """Write a number in at most eight letters.

    >>> short(81692.4), short(0.0001234), short(None), short(2.5), short(4.2e9)
    ('81,690', '1.23e-04', '-', '2.5', '4.20e+09')
    """
    if x is None:
        return MISSING
    if x and not 1e-3 <= abs(x) < 1e6:
        return f"{x:.{min(digits, 3) - 1}e}"
    rounded = float(f"{x:.{digits}g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 1000 else f"{rounded:g}"


def fixed(x: float | None, places: int = 0) -> str:
    """Write a number with a fixed number of places."""
    return MISSING if x is None else f"{x:,.{places}f}"


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
    text.append("C, L: central, local trust. bytes: of a user's reports.")
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
    of: dict[str, list[str]] = {}
    for row in found.rows:
        for how in dict.fromkeys(r.composed for r in row.records if r.composed):
            of.setdefault(how, []).append(row.label)
    told = [how if len(of) == 1 else f"{how} ({', '.join(labels)})" for how, labels in of.items()]
    return f"composed by: {'; '.join(told) or 'nothing was spent'}"


def _notes(found: Compared) -> list[str]:
    """List what the rows computed from private data outside their guarantees."""
    of: dict[str, dict[str, None]] = {}
    for row in found.rows:
        for note in dict.fromkeys(n for r in row.records for n in r.not_private):
            of.setdefault(note, {})[row.label] = None
    everywhere = len({row.label for row in found.rows})
    return [
        f"{'all' if len(rows) == everywhere else ', '.join(rows)}: {note}"
        for note, rows in of.items()
    ]


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


def _line(console: Console, text: str, indent: str = "") -> None:
    """Print text wrapped to the console's width, without markup."""
    console.print(Padding(Text(text), (0, 0, 0, len(indent)), expand=False))
