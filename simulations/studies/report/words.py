"""What a report says in words: guarantees, how budgets were spent, and what was not private."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fedhist.privacy.guarantee import Adjacency, Trust
from simulations.reporting.numbers import shown, span
from simulations.reporting.page import Block, Facts, Items, Text
from simulations.reporting.table import Table, numeric
from simulations.runs.results import NOT_PRIVATE
from simulations.studies.records.cells import Record
from simulations.studies.records.summary import labels_by

TRUST: Mapping[str, str] = {
    Trust.CENTRAL.value: (
        "central: the server sees exact answers and is trusted with them; what it releases is "
        "private"
    ),
    Trust.AGGREGATE.value: (
        "aggregate: nodes add the noise, and the server sees one sum of them all; believed are the "
        "aggregation and all but a share of the nodes"
    ),
    Trust.SHUFFLE.value: (
        "shuffle: users randomize their reports, which a shuffler passes on without senders and in "
        "no order; it is believed, and that enough users report"
    ),
    Trust.LOCAL.value: (
        "local: nobody is trusted; every message is randomized by its user before it leaves"
    ),
}
NOISE: Mapping[str, str] = {
    "simulated": (
        "simulated: seeded NumPy generators, for evaluation only; whoever knows the seed knows "
        "the noise, and floating-point samplers leak in their low bits"
    ),
    "secure": "secure: exact integer samplers with system entropy on the server; no seed",
}
UNIT = "one {}: everything that a {} holds, in all rounds together"
MOST_SEEDS = 20
MOST_ROWS = 500
"""Rows of a table; the study's file has the others."""
EVALUATION = (
    "The errors on this page are computed from the users' data. Do not publish it as it is."
)
BOTH = (
    "In words: an attacker who knows everything else about the data and sees all that is released "
    "can hardly tell which of two adjacent populations it came from: no odds change by more than "
    "exp(epsilon), except with probability about delta."
)


def adjacency_in_words(value: str) -> str:
    """Explain an adjacency by its name; a name that this version does not know stands alone."""
    known = {a.value: a.in_words for a in Adjacency}
    return f"{value}: {known[value]}" if value in known else value


EXPLAINED: Mapping[str, Callable[[str], str]] = {
    "adjacency": adjacency_in_words,
    "trust": lambda name: TRUST.get(name, name),
    "noise": lambda name: NOISE.get(name, name),
    "unit": lambda name: UNIT.format(name, name),
}
"""What the words for a guarantee mean, by the field of a record that holds them."""


def budget(epsilon: float | None, delta: float | None) -> str:
    """Write an epsilon and a delta.

    >>> budget(1.0, 1e-6), budget(2.0, 0.0), budget(None, None)
    ('epsilon = 1, delta = 1e-06', 'epsilon = 2, delta = 0', 'unknown')
    """
    if epsilon is None:
        return "unknown"
    if not math.isfinite(epsilon):
        return "no finite epsilon: NOT PRIVATE"
    return f"epsilon = {epsilon:.6g}, delta = {0.0 if delta is None else delta:.3g}"


def ledger_blocks(ledger: Mapping[str, Any], noise: str) -> tuple[Block, ...]:
    """Tell a run's ledger: the promise, the total, and the share of each release."""
    unit = str(ledger.get("unit", "user"))
    rows = [
        ("Guarantee", str(ledger["guarantee"])),
        ("Unit of privacy", UNIT.format(unit, unit)),
        ("Adjacency", str(ledger.get("adjacency", ""))),
        ("Trust", TRUST.get(str(ledger.get("trust")), str(ledger.get("trust", "")))),
        ("Grade of the noise", NOISE.get(noise, noise)),
    ]
    if "the paper claims" in ledger:
        rows.insert(1, ("The paper claims", str(ledger["the paper claims"])))
    if "spent epsilon" in ledger:
        rows.append(("Spent in all", budget(ledger["spent epsilon"], ledger.get("at delta"))))
        rows.append(("Composed by", str(ledger.get("composed by", ""))))
    for adjacency, spent in ledger.get("spent under", {}).items():
        said = spent.get("no total") or budget(spent["epsilon"], spent["delta"])
        rows.append((f"Spent, {adjacency}", str(said)))
    blocks: list[Block] = [Facts(tuple(rows)), Text(BOTH)]
    charges = ledger.get("charges", [])
    if charges:
        blocks.append(_charges(charges, float(ledger["spent epsilon"])))
    return tuple(blocks)


def _charges(charges: Sequence[Mapping[str, Any]], total: float) -> Table:
    rows = []
    for c in charges:
        epsilon, rho, cohort = float(c["epsilon"]), c.get("rho"), c.get("cohort")
        known = rho is not None and math.isfinite(float(rho))
        rows.append(
            (
                str(c["label"]),
                "all users" if cohort is None else _cohort(cohort),
                f"{epsilon:.6g}",
                f"{float(c['delta']):.3g}",
                float(rho) if known and rho is not None else "",
                f"{100 * epsilon / total:.3g} %" if 0 < total < math.inf else "",
            )
        )
    numbers = numeric(("epsilon", "delta", "rho (zCDP)", "of the total epsilon"))
    return Table.of(
        ("release", "asked of", *numbers),
        rows,
        title="How the budget is split over the releases. Over disjoint cohorts the largest "
        "counts, within a cohort the sum.",
    )


def _cohort(cohort: Mapping[str, Any]) -> str:
    told = ", ".join(
        f"{k} {v:g}" if isinstance(v, float) else f"{k} {v}" for k, v in cohort.items()
    )
    return f"a cohort ({told})"


def guarantee_table(records: Sequence[Record]) -> tuple[Block, ...]:
    """Tell the guarantees of a study: a row for each that differs, and the words below."""
    found: dict[tuple[str, ...], list[Record]] = {}
    for r in records:
        key = (r.label, r.trust, r.adjacency, r.unit, r.composed, r.noise, r.claimed)
        found.setdefault(key, []).append(r)
    rows = [
        (
            label,
            span([r.epsilon for r in own]),
            span([r.delta for r in own]),
            unit,
            trust,
            adjacency,
            span([r.spent_epsilon for r in own]),
            composed or "nothing was spent",
            noise,
            claimed,
        )
        for (label, trust, adjacency, unit, composed, noise, claimed), own in sorted(found.items())
        if own[0].guarantee
    ]
    header = (
        *("mechanism", *numeric(("epsilon", "delta")), "unit", "trust", "adjacency"),
        *(*numeric(["spent epsilon"]), "composed by", "noise", "the paper claims"),
    )
    table = Table.of(header if any(row[-1] for row in rows) else header[:-1], rows)
    lines = [
        f"{name}: {explained(value)}"
        for name, explained in EXPLAINED.items()
        for value in sorted({getattr(r, name) for r in records} - {""})
    ]
    about = labels_by(records, lambda r: filter(None, [r.truth]))
    lines += [f"estimates: {truth} ({labels})" for truth, labels in about.items()]
    return table, Items(tuple(lines)), Text(BOTH), *split_table(records)


def split_table(records: Sequence[Record]) -> tuple[Block, ...]:
    """Tell how each mechanism's budget is split: its releases, and the fields that say so."""
    rows: dict[tuple[str, str, str], None] = {}
    for r in records:
        for charge in getattr(r, "charges", ()):
            rows.setdefault((r.label, budget(r.epsilon, r.delta), str(charge)), None)
    if not rows:
        return ()
    return (
        Table.of(
            ("mechanism", "total", "releases"),
            rows,
            folded="How each budget is split over the releases",
        ),
    )


def not_private_of_run(config: Mapping[str, Any], metrics: Mapping[str, Any]) -> tuple[Block, ...]:
    """List what of a run and its evaluation is outside the guarantee."""
    secret, seeds = metrics.get(NOT_PRIVATE, {}), config.get(NOT_PRIVATE, {}).get("seeds", [])
    lines = [str(c) for c in config.get(NOT_PRIVATE, {}).get("choices", [])]
    if "measured" in secret:
        lines.append(KNOWN_TRUTH)
        lines.append("theory's prediction may use the users' data, such as what a clip cuts off")
    lines.append("times, sizes and numbers of messages: they depend on the data")
    if secret.get("diagnostics"):
        told = ", ".join(f"{k} = {shown(v)}" for k, v in secret["diagnostics"].items())
        lines.append(f"diagnostics: {told}")
    for what, counts in secret.get("adversaries", {}).items():
        lines += [f"messages {what}: {n:,} × {why}" for why, n in counts.items()]
    old = secret.get("rows dropped by the loader", {}).items()  # of folders without "facts"
    lines += secret.get("facts", [f"rows dropped by the loader: {why}: {n}" for why, n in old])
    return (Items((*lines, *_seeds(seeds))),)


KNOWN_TRUTH = "the errors: they compare with the truth, which only an evaluation knows"


def not_private_of_study(records: Sequence[Record]) -> tuple[Block, ...]:
    """List what of a study is outside the guarantees."""
    lines = [KNOWN_TRUTH, "which mechanism wins, and every choice made by looking at these errors"]
    lines.append("theory's predictions where they use the users' data, and the times")
    choices = labels_by(records, lambda r: r.not_private)
    lines += [f"{choice} ({labels})" for choice, labels in choices.items()]
    open_ = sorted(
        {r.label for r in records if r.epsilon is not None and not math.isfinite(r.epsilon)}
    )
    if open_:
        lines.append(f"references without privacy: {', '.join(open_)}")
    return (Items((*lines, *_seeds(sorted({r.seed for r in records if r.seed is not None})))),)


def _seeds(seeds: Sequence[int]) -> tuple[str, ...]:
    if not seeds:
        return ("no seed is kept",)
    told = ", ".join(map(str, seeds[:MOST_SEEDS]))
    more = f" and {len(seeds) - MOST_SEEDS:,} more" if len(seeds) > MOST_SEEDS else ""
    return (f"seeds {told}{more}: who knows a seed knows the noise of its run",)


def facts(body: Mapping[str, Any], prefix: str = "") -> tuple[tuple[str, str], ...]:
    """Flatten a configuration; what is empty is left out."""
    rows: list[tuple[str, str]] = []
    for key, value in body.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            rows += facts(value, f"{name}.")
        elif isinstance(value, list | tuple):
            if value:
                told = ", ".join(map(shown, value[:MOST_SEEDS]))
                more = len(value) - MOST_SEEDS
                rows.append((name, told + (f" and {more:,} more" if more > 0 else "")))
        elif value is not None and value != "":
            rows.append((name, shown(value, 6)))
    return tuple(rows)
