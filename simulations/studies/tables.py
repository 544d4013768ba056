"""The table of a study, and the sentences below it: the same in a terminal, on a page, in files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedhist.model.registry import display_of
from fedhist.privacy.guarantee import Trust
from simulations.reporting.intervals import FAR
from simulations.reporting.table import (
    BAD,
    MISSING,
    Column,
    Marked,
    Table,
    fixed,
    percent,
    short,
    shown,
    span,
    worded,
)
from simulations.studies.cells import ERROR
from simulations.studies.losses import NORMS, UNIFORM, relative
from simulations.studies.summary import LEVEL, Line

REFERENCE = "no privacy (exact)"
"""Label of the row that needs no run: the truth itself."""
LETTERS = {t.value: t.name[0] for t in Trust}
INTERVAL, BELIEVED = f"± {LEVEL:.0%}", "must be believed"
WORSE = "†"
"""Stands after an error that an answer without any data would beat."""
KINDS = {"exact": "*", "bound": "<"}
"""What stands beside a prediction of each kind, but for those that are simulated."""
MOST_TRIVIAL = 3
"""Answers that need no data which are rows of their own, of different populations together."""

About = Mapping[str, Any]
Lines = Sequence[Line]


@dataclass(frozen=True)
class Field:
    """A column: its value in a line, how it is written, what it is, its key in frames."""

    value: Callable[[Line], Any]
    write: Callable[[Any], str] = short
    words: str = ""
    key: str = ""


def _digits(n: int) -> Callable[[Any], str]:
    return lambda x: short(x if x is None or abs(x) > 1e-99 else 0.0, n)


def _loss(line: Line) -> Marked | None:
    bad = bool(line.worse)
    return None if line.mean is None else Marked(line.mean, BAD * bad, "{}" + WORSE * bad)


def _ratio(line: Line) -> Marked | None:
    far = line.far_off
    return None if line.ratio is None else Marked(line.ratio, BAD * far, "{}" + "!" * far)


def _predicted(line: Line) -> Marked | None:
    mark = KINDS.get(line.predicted_kind, "")
    return None if line.predicted is None else Marked(line.predicted, form="{}" + mark)


def _bound(line: Line) -> float | None:
    bound = line.at_least
    return None if bound is None else bound.value


def _runs(line: Line) -> Marked:
    ok, others = line.statuses["ok"], dict(sorted(line.missing.items()))
    told = [str(ok)] * bool(ok or not others) + [f"{n} {s}" for s, n in others.items()]
    return worded(ok, ", ".join(told))


def fields_of(about: About, lines: Lines) -> dict[str, Field]:
    """Return all columns that have a value in some line, by name."""
    loss = about["loss"]
    k, many = (
        next((int(x) for line in lines if (x := line.extra(name, "items"))), 0)
        for name in ("k", "many")
    )
    least: dict[str, float] = {}
    for line in lines:
        if line.rank and line.mean:
            least.setdefault(str(line.setting), line.mean)

    def times(line: Line) -> float | None:
        best = least.get(str(line.setting))
        return line.mean / best if best and line.mean is not None else None

    def item(name: str, of: str = "items") -> Callable[[Line], float | None]:
        return lambda line: line.extra(name, of)

    every = {
        loss: Field(_loss, key="loss"),
        INTERVAL: Field(lambda line: line.half_width, _digits(2), key="half_width"),
        "relative": Field(
            lambda line: line.relative, percent, "relative: to the answer's size (all zeros)"
        ),
        "per item": Field(item("per item"), _digits(3), "per item: mean error"),
        f"top {k}": Field(
            item("recall"),
            percent,
            f"top {k}: share of the {k} largest items that are found",
            "top",
        ),
        **_of_names(lines, k, many),
        "theory": Field(_predicted, _digits(3)),
        "ratio": Field(_ratio, _digits(3), "ratio: measured / theory"),
        "at least": Field(_bound, _digits(2)),
        "bias": Field(lambda line: line.bias, _digits(3), "bias: the mean signed error"),
        "times": Field(
            times,
            lambda x: fixed(x, 0 if x is not None and x >= 10 else 2),
            "times: of the least error under the first level",
        ),
        **{name: Field(item(name, "losses")) for name in NORMS if name != loss},
        "rounds": Field(lambda line: line.rounds or None, str),
        "bytes": Field(lambda line: line.bytes_per_user, fixed, "bytes: of a user's reports"),
        "sec": Field(
            lambda line: line.seconds, lambda x: "<.01" if x < 0.005 else fixed(x, 2 * (x < 100))
        ),
        "runs": Field(_runs, str),
        BELIEVED: Field(lambda line: "\n".join(line.believed.short) if line.believed else None),
        "estimates": Field(lambda line: line.first.truth or None),
        "worse than": Field(lambda line: line.worse or None),
        "flags": Field(lambda line: "; ".join(line.flags) or None),
    }
    there = (loss, INTERVAL, "theory", "ratio", "runs")
    filled = [line for line in lines if line.records]
    return {
        name: field
        for name, field in every.items()
        if name in there or any(field.value(line) is not None for line in filled)
    }


def _of_names(lines: Lines, k: int, many: int) -> dict[str, Field]:
    """Return the columns of a study in which somebody finds out which items there are."""
    if not finds_names(lines):
        return {}
    words = {f"top {many}": ("recall of many", f"of the {many} largest")} if many > k else {}
    words |= {
        "precision": (
            "precision",
            f"of the items of the {many or k} largest estimates, the share that anybody has",
        ),
        "off": ("off", f"median error of the counts of the {many or k} largest that are found"),
    }

    def field(name: str, of: str, told: str) -> Field:
        return Field(lambda line: line.extra(of, "items"), percent, f"{name}: {told}", of)

    return {name: field(name, *told) for name, told in words.items()}


def finds_names(lines: Lines) -> bool:
    """Whether a protocol puts together the names of items that nobody listed."""
    return any(line.extra("invented", "items") is not None for line in lines)


def usual_columns(about: About, lines: Lines, known: Mapping[str, Field]) -> list[str]:
    """Choose the columns that 80 letters have room for."""
    start = [next(iter(known)), INTERVAL, "relative"]
    top = next((n for n in known if n.startswith("top ")), "")
    if about["levels"]:
        rest = ["times", BELIEVED]
    elif about["axes"]:
        rest = ["bias"] if about["adversary"] else ["theory", "ratio", "runs"]
    elif about["adversary"]:  # theory knows of no adversary
        rest = ["bias", "rounds", "bytes"]
    elif finds_names(lines):
        start, rest = start[:2], [*(n for n in known if n.startswith("top ")), "precision", "off"]
    elif display_of(about["target"]).unit == "counts":
        rest = ["per item", top, "ratio"]
    else:
        last = "at least" if "at least" in known else "bytes"
        rest = [top, "ratio", last] if top else ["theory", "ratio", last]
    return [n for n in (*start, *rest) if n in known]


def table_of(about: About, lines: Lines) -> Table:
    """Make the table of a study, with all columns."""
    lines = [line for line in lines if line.records]
    if not lines:
        return Table.of(["protocol"], [], notes=("no cell has ended yet",))
    known = fields_of(about, lines)
    usual = usual_columns(about, lines, known)
    names = [*usual, *(n for n in known if n not in usual)]
    axes = list(about["axes"])
    alone = bool(axes) and len({line.label for line in lines}) == 1
    short_names = [a.partition(".")[2] for a in axes]
    heads = [s if short_names.count(s) == 1 else a for a, s in zip(axes, short_names, strict=True)]
    columns = [
        Column("#", right=True, key="rank", more=alone),
        Column("", key="trust"),
        Column("protocol", more=alone),
        *(Column(h.replace("_", " "), right=True, key=h) for h in heads),
        *(
            Column(
                n, n != BELIEVED, n == BELIEVED, _written(known[n]), known[n].key, n not in usual
            )
            for n in names
        ),
    ]
    rows: list[Sequence[Any] | None] = []
    for what, loss in () if alone else _references(lines):
        size = next((s for line in lines for r in line.records if (s := r.size)), None)
        share = relative(loss, size, about["loss"])
        told = {names[0]: loss, "relative": share}
        rows.append([None, "", what, *[None] * len(axes), *(told.get(n) for n in names)])
    before: Line | None = None
    for line in lines:
        apart = before is not None and (
            (not alone and (line.setting, line.level) != (before.setting, before.level))
            or (bool(line.flags) and not before.flags)
        )
        if apart or (before is None and rows):
            rows.append(None)
        before = line
        trust, remarks = line.first.trust, [*line.flags, *missing_in_words(line)]
        rows.append(
            [
                line.rank,
                worded(trust, LETTERS.get(trust, "")),
                worded(line.title, "\n".join([line.title, *([] if axes else remarks)])),
                *(line.setting.get(a) for a in axes),
                *(known[n].value(line) for n in names),
            ]
        )
    return Table.of(columns, rows, notes=(_legend(about, lines, usual, known),))


def _written(field: Field) -> Callable[[Any], str]:
    return lambda x: MISSING if x is None else field.write(x)


def _references(lines: Lines) -> list[tuple[str, float]]:
    """List the answers that need no run: the exact one, and those that need no data."""
    trivial = [(name, loss) for line in lines for name, loss in line.trivial.items()]
    most = max((loss for _, loss in trivial), default=0.0)
    names: dict[float, dict[str, None]] = {}
    for name, loss in trivial:  # up to rounding
        names.setdefault(most * round(loss / most, 9) if most else loss, {})[name] = None
    every = [(", ".join(own), loss) for loss, own in names.items()]
    told = len(every) <= MOST_TRIVIAL and len({line.first.n_users for line in lines}) == 1
    exact = (REFERENCE, 0.0)
    return [exact, *sorted(every, key=lambda x: x[1])] if told else [exact]


def missing_in_words(line: Line) -> list[str]:
    """Count the runs that gave no result: "3 of 20 runs failed"."""
    total, words = len(line.records), {ERROR: "broke off"}
    return [f"{n} of {total} runs {words.get(s, s)}" for s, n in sorted(line.missing.items())]


def _legend(about: About, lines: Lines, usual: Sequence[str], known: Mapping[str, Field]) -> str:
    """Explain the columns, and what an error of 0 means here."""
    seeds, several = about["seeds"], len({line.first.n_users for line in lines}) > 1
    users = "" if several else f"{about['n_users']:,} "
    long = ", the integrated squared error" if about["loss"] == "ise" else ""
    text = [
        f"{usual[0]}{long}: mean distance from the exact answer about "
        f"these {users}users over {seeds} {'run' if seeds == 1 else 'runs'}."
    ]
    if any(line.half_width is not None for line in lines):
        text.append(f"{INTERVAL}: Student's interval of that mean.")
    text += [f"{known[n].words}." for n in usual if known[n].words]
    kinds = {line.predicted_kind for line in lines} if "theory" in usual else set()
    text += ["*: an exact formula."] * ("exact" in kinds)
    text += ["<: an upper bound."] * ("bound" in kinds)
    if worse := dict.fromkeys(line.worse for line in lines if line.worse):
        text.append(f"{WORSE}: worse than {' or '.join(worse)}, an answer without any data.")
    if any(UNIFORM in line.trivial for line in lines) and about["target"] == "histogram":
        text.append(f"{UNIFORM}: of the true total.")
    if any(line.far_off for line in lines):
        text.append(f"!: theory is off by a factor of more than {FAR:g}, beyond the interval.")
    levels = {line.first.trust for line in lines}
    told = [t for t in LETTERS if t in levels]
    text.append(f"{', '.join(LETTERS[t] for t in told)}: {', '.join(told)} trust.")
    return " ".join(text)


# -- sentences -------------------------------------------------------------------------------------


def sections_of(about: About, lines: Lines) -> list[tuple[str, list[str]]]:
    """Return what must be known to read the table: titles, and sentences under each."""
    lines = [line for line in lines if line.records]
    return [
        ("what is compared", _compared(about)),
        ("what must be believed", _believed(about, lines)),
        ("guarantees", _guarantees(about, lines)),
        ("at least", _bounds(lines)),
        ("NOT PRIVATE in these runs", _secret(about, lines)),
        ("warnings", [*about["doubts"], *_warnings(lines)]),
        ("runs without a result", _troubles(lines)),
        ("left out", [f"{label}: {reason}" for label, reason in about["left_out"]]),
    ]


def _said(lines: Lines, of: Callable[[Line], Sequence[str]]) -> list[str]:
    """Write what lines say, each sentence once, with who says it where not all do."""
    labels = dict.fromkeys(line.label for line in lines)
    warnings: dict[str, dict[str, None]] = {}
    for line in lines:
        for text in filter(None, of(line)):
            warnings.setdefault(text, {})[line.label] = None
    return [t if len(w) == len(labels) else f"{'; '.join(w)}: {t}" for t, w in warnings.items()]


def _compared(about: About) -> list[str]:
    return [
        f"one budget for all, {about['budget']['adjacency']}: {about['neighbours']}",
        f"truth: {about['truth']}",
        *(f"adversary: {words}" for words in about["adversary"]),
    ]


def _believed(about: About, lines: Lines) -> list[str]:
    told = {
        level: dict.fromkeys(x.believed.words for x in lines if x.level == level and x.believed)
        for level in about["levels"]
    }
    out = [f"{level}: {words}" for level, every in told.items() for words in every]
    return out + [f"{t}: not reached; {why}" for t, why in about["unreached"].items()]


def _guarantees(about: About, lines: Lines) -> list[str]:
    """State what lines guarantee: one sentence for those that differ in their budgets alone."""
    of: dict[str, list[Line]] = {}
    for line in lines:
        if g := line.first.guarantee:
            words = str(g["text"])
            claimed = f"; its paper claims {g['claimed']}" if "claimed" in g else ""
            flags = "".join(f"; not ranked: {flag}" for flag in line.flags)
            kind = f"{words.partition('-DP ')[2] or words}{claimed}{flags}"
            of.setdefault(kind, []).append(line)
    promises = []
    for kind, own in of.items():
        labels = "; ".join(dict.fromkeys(line.label for line in own))
        epsilon, delta = (span([x.first.guarantee[n] for x in own]) for n in ("epsilon", "delta"))
        promises.append(f"{labels}: epsilon = {epsilon}, delta = {delta} {kind}")
    spent = [r.more["spent"]["how"] for line in lines for r in line.records if "spent" in r.more]
    composed = f"; composed by: {', '.join(dict.fromkeys(spent))}" if spent else ""
    noise, clients = about["run"]["noise"], about["run"]["clients"]
    return [*promises, f"noise: {noise}; clients: {clients}{composed}"]


def _bounds(lines: Lines) -> list[str]:
    told = _said(lines, lambda line: [b.words for b in line.bounds])
    what = "what no protocol of that guarantee can beat on all such users"
    return [what, *told] if told else []


def _secret(about: About, lines: Lines) -> list[str]:
    every = lambda line: [n for r in line.records for n in r.more.get("not_private", ())]  # noqa: E731
    first = "errors, theory and times: computed from the users' data"
    return [first, *about["facts"], *_said(lines, every)]


def _warnings(lines: Lines) -> list[str]:
    """Quote a warning of each line, and say of which."""

    def first(line: Line) -> list[str]:
        warned = [r.warnings[0] for r in line.records if r.warnings]
        told = f"({len(warned)} of {len(line.records)} runs)"
        return [f"{warned[0]} {told}"] if warned else []

    told = _said(lines, first)
    return told[:8] + [f"and {len(told) - 8} more"] * (len(told) > 8)


def _troubles(lines: Lines) -> list[str]:
    """Say why runs ended without a result, most often first."""
    reasons = Counter(
        f"{line.label}: {{}} x {r.status}: {r.reason}"
        for line in lines
        for r in line.records
        if r.loss is None
    )
    return [text.replace("{}", str(n), 1) for text, n in reasons.most_common(12)]


def tracebacks(lines: Lines) -> list[str]:
    """Return the whole tracebacks of cells that broke off, each once."""
    every = [r.more["traceback"] for line in lines for r in line.records if "traceback" in r.more]
    return list(dict.fromkeys(every))


def in_setting(line: Line, axes: Sequence[str]) -> str:
    """Write where on some axes a line stands: "epsilon = 1, n_users = 1,000"."""
    return ", ".join(f"{a.partition('.')[2]} = {shown(line.setting.get(a))}" for a in axes)
