"""What the terminal shows: tables that align in 80 columns."""

from __future__ import annotations

import inspect
import math
import textwrap
from dataclasses import MISSING, fields
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedhist.model.protocol import Protocol
from fedhist.model.registry import protocol_class, protocols
from fedhist.privacy.guarantee import Trust
from simulations.reporting.sheets import Sheet
from simulations.runs.config import builtin_configs, load_config, missing_keys
from simulations.runs.data_ledger import DataLedger
from simulations.runs.job import Finished
from simulations.runs.results import Evaluation

MOST_ROWS = 10
MOST_ROUNDS = 4
"""Rounds up to which each has its line."""
WIDTH = 1.96


def print_job(console: Console, finished: Finished) -> None:
    """Print a finished job: what it cost, how far off it was, and its first rows."""
    first = finished.outcomes[0]
    estimate, protocol = first.estimate, finished.prepared.protocol
    facts = Table(box=box.SIMPLE, show_header=False, pad_edge=False)
    facts.add_column(style="bold", no_wrap=True)
    facts.add_column(overflow="fold")
    facts.add_row("protocol", f"{protocol.name} ({protocol.paper})")
    facts.add_row("guarantee", str(protocol.guarantee))
    if protocol.claimed != protocol.guarantee:
        facts.add_row("the paper claims", str(protocol.claimed))
    if estimate.ledger is not None:
        total = estimate.ledger.spent()
        facts.add_row(
            "spent", f"epsilon = {total.epsilon:.6g} at delta = {total.delta:g} ({total.how})"
        )
    facts.add_row("noise", _noise_in_words(finished))
    if finished.prepared.loaded is not None:
        loaded = finished.prepared.loaded
        facts.add_row("population", f"{loaded.title}")
    facts.add_row("rounds", _rounds_in_words(finished))
    if estimate.public:
        facts.add_row("public", ", ".join(f"{k} = {_value(v)}" for k, v in estimate.public.items()))
    if finished.evaluation is not None:
        facts.add_row("error", _error_in_words(finished))
        hint = _hint(finished.evaluation)
        if hint:
            facts.add_row("look here", hint)
    notes = (*_dropped(finished), *_diagnostics(finished), *_adversaries(finished))
    for note in (*finished.prepared.not_private, *notes):
        facts.add_row("NOT PRIVATE", escape(note))
    for warning in estimate.warnings:
        facts.add_row("warning", escape(warning))
    reason = f": {estimate.reason}" if estimate.reason else ""
    facts.add_row("status", escape(estimate.status + reason))
    console.print(facts)
    if estimate.value is not None:
        console.print(_estimate_table(finished))
    console.print(f"written to {finished.folder}", soft_wrap=True)


def _dropped(finished: Finished) -> list[str]:
    """Say what the loader of the population dropped or changed, in one line."""
    loaded = finished.prepared.loaded
    if loaded is None or not loaded.dropped:
        return []
    return ["the loader: " + ", ".join(f"{n:,} x {why}" for why, n in loaded.dropped.items())]


def _diagnostics(finished: Finished) -> list[str]:
    found = finished.prepared.diagnostics.items()
    return [f"{name}: {_value(count)}" for name, count in found if count]


def _adversaries(finished: Finished) -> list[str]:
    """Say what adversaries did and what became of it, one line each."""
    found = finished.outcomes[0].adversaries.items()
    return [
        f"{what}: " + ", ".join(f"{n:,} x {why}" for why, n in counts.items())
        for what, counts in found
        if counts
    ]


def _noise_in_words(finished: Finished) -> str:
    if finished.prepared.protocol.guarantee.trust is Trust.LOCAL:
        if finished.prepared.config.run.clients == "aggregate":
            return "simulated in aggregate (sums of reports drawn from their exact law, seeded)"
        if finished.prepared.config.run.noise == "secure":
            return "secure (clients' coins from system entropy, no seed)"
        return "simulated clients (seeded coins: for evaluation; a real client draws its own)"
    return {
        "simulated": "simulated (NumPy, seeded: for evaluation, not for a real release)",
        "secure": "secure (exact integer samplers, no seed)",
    }[finished.prepared.config.run.noise]


def _rounds_in_words(finished: Finished) -> str:
    first = finished.outcomes[0]
    out = []
    for r in first.rounds:
        replies = "1 reply" if r["replies"] == 1 else f"{int(r['replies']):,} replies"
        text = f"{replies} in {r.get('seconds_asking', 0.0):.2f} s"
        if r.get("bytes_received") and r.get("replies"):
            text += f", {r['bytes_received'] / r['replies']:,.0f} bytes each"
        if r.get("missing"):
            text += f", {int(r['missing'])} missing"
        out.append(text)
    if len(out) > MOST_ROUNDS:
        out[1:-1] = [f"... {len(out) - 2} more"]
    return "\n".join(out) or "none"


def _value(x: float) -> str:
    return f"{x:,.0f}" if float(x).is_integer() else f"{x:.5g}"


def _error_in_words(finished: Finished) -> str:
    e = finished.evaluation
    if e is None:
        return "unknown"
    several = len(e.losses) > 1
    plus = f" ± {e.standard_error:.3g} in {len(e.losses)} runs" if several else " in this run"
    kind = "exact formula" if e.bound.exact else "theory"
    total = float(np.abs(e.truth).sum())
    share = f", {e.mean / total:.2%} of the total" if e.bound.loss == "l1" and total else ""
    return (
        f"{e.bound.loss} {e.mean:.4g}{plus}{share}\n"
        f"{e.bound.loss} {e.bound.expected:.4g} expected ({kind}); NOT PRIVATE"
    )


def _hint(e: Evaluation) -> str:
    """Say what is wrong where an estimate of counts is of no use. NOT PRIVATE."""
    total = float(np.abs(e.truth).sum())
    if e.bound.loss != "l1":
        return ""
    if total == 0:
        return "no user holds any item of the domain: are its items spelt as in the data?"
    if e.mean > total / 2:
        return (
            "most of the counts are lost: the clip may be far below or above what users "
            "contribute, or the users too few (NOT PRIVATE)"
        )
    return ""


def _estimate_table(finished: Finished) -> Table:
    estimate = finished.outcomes[0].estimate
    value = np.atleast_1d(np.asarray(estimate.value))
    evaluation = finished.evaluation
    truth = None if evaluation is None else np.atleast_1d(evaluation.truth)
    if evaluation is not None and truth is not None and evaluation.support and estimate.keys:
        truth = truth[evaluation.support.positions(estimate.keys)]
    order = (
        np.argsort(-value, kind="stable") if estimate.keys is not None else np.arange(len(value))
    )
    order, which = order[:MOST_ROWS], "largest" if estimate.keys is not None else "first"
    title = None if len(value) <= MOST_ROWS else f"the {MOST_ROWS} {which} of {len(value):,}"
    protocol = finished.prepared.protocol
    places = protocol.positions
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    table.add_column("item" if estimate.keys is not None else "", overflow="ellipsis", max_width=30)
    table.add_column("estimate", justify="right")
    table.add_column("± 1.96 s.e.", justify="right")
    if truth is not None:
        table.add_column("truth (NOT PRIVATE)", justify="right")
    for i in order.tolist():
        half = ""
        if estimate.stderr is not None:
            half = _number(WIDTH * float(np.broadcast_to(estimate.stderr, value.shape)[i]))
        if estimate.keys is not None:
            name = estimate.keys[i]
        else:
            entry = i if places is None else f"{places[i]:g}"
            name = protocol.target + (f"[{entry}]" if len(value) > 1 else "")
        row = [name, _number(float(value[i])), half]
        table.add_row(*row, *([_number(float(truth[i]))] if truth is not None else []))
    return table


def _number(x: float) -> str:
    return f"{x:,.0f}" if abs(x) >= 1000 else f"{x:.4g}"


def print_protocols(console: Console) -> None:
    """List the registered protocols."""
    table = Sheet(dense=True)
    for column in ("protocol", "target", "trust", "guarantee of its example", "paper"):
        table.add_column(column, keep=column == "protocol")
    for name, cls in sorted(protocols().items()):
        g = cls.example().guarantee
        delta = f", {g.delta:g}" if g.delta else ""
        words = f"({g.epsilon:g}{delta}), {g.adjacency.value}"
        table.add_row(name, cls.target, g.trust.value, words, cls.paper)
    console.print(table)
    console.print("fedhist protocols NAME shows the parameters.")


def print_protocol(console: Console, name: str) -> None:
    """Show one protocol: its docstring, parameters and defaults."""
    cls = protocol_class(name)
    console.print(f"[bold]{name}[/]  ({escape(cls.paper)})")
    text, _, _ = (inspect.getdoc(cls) or "").partition("\nExamples\n")
    console.print(reflow(text.rstrip(), console.width), markup=False)
    table = Sheet()
    for column in ("parameter", "type", "default"):
        table.add_column(column, keep=column == "parameter")
    for f in fields(cls):  # type: ignore[arg-type]
        kind = f.type.__name__ if isinstance(f.type, type) else str(f.type)
        table.add_row(f.name, kind, _default(f))
    console.print(table)
    _print_guarantee(console, cls)


def reflow(text: str, width: int) -> str:
    """Fill the paragraphs of a docstring anew, keeping indentation, headings and examples."""
    out: list[str] = []
    paragraph: list[str] = []

    def close() -> None:
        if paragraph:
            indent = " " * (len(paragraph[0]) - len(paragraph[0].lstrip()))
            words = " ".join(line.strip() for line in paragraph)
            out.extend(textwrap.wrap(words, width, initial_indent=indent, subsequent_indent=indent))
            paragraph.clear()

    for line in text.split("\n"):
        depth = len(line) - len(line.lstrip())
        alone = not line.strip() or set(line) == {"-"} or ">>>" in line or " : " in line
        if alone or (paragraph and depth != len(paragraph[-1]) - len(paragraph[-1].lstrip())):
            close()
        if alone:
            out.append(line)
        else:
            paragraph.append(line)
    close()
    return "\n".join(out)


def _default(f: Any) -> str:
    return "required" if f.default is MISSING else repr(f.default)


def _print_guarantee(console: Console, cls: type[Protocol]) -> None:
    g = cls.example().guarantee
    console.print(f"Guarantee of its example: {g}")
    console.print(f"Adjacency: {g.adjacency.in_words}.")


def print_configs(console: Console) -> None:
    """List the built-in configurations."""
    table = Sheet()
    for column in ("configuration", "protocol", "population", "runtime"):
        table.add_column(column, keep=column == "configuration")
    for name in builtin_configs():
        config = load_config(name)
        kind = config.population["kind"]
        source = f"{kind}, from your file" if "path" in missing_keys(config) else kind
        table.add_row(name, config.protocol["name"], source, config.run.runtime)
    console.print(table)
    console.print("fedhist run NAME runs one; fedhist configs NAME shows its file.")


def print_ledger(console: Console, ledger: DataLedger) -> None:
    """Show what has been released from a data set."""
    cap, lines = ledger.read()
    table = Sheet(dense=True)
    for column in ("when", "run", "trust", "adjacency", "epsilon", "delta", "state"):
        table.add_column(column, keep=column != "run")
    for s in lines:
        row = (
            s.when[:16],
            s.what,
            s.trust,
            s.adjacency,
            f"{s.epsilon:.4g}",
            f"{s.delta:g}",
            s.state,
        )
        table.add_row(*row)
    console.print(table)
    epsilon, delta = ledger.total()
    if len({s.adjacency for s in lines}) > 1:
        console.print("mixed adjacencies: under replacement, another line counts twice")
    limit = "no cap" if math.isinf(cap.epsilon) else f"the cap is {cap.epsilon:g}"
    console.print(f"released: epsilon = {epsilon:.6g} at delta = {delta:g}; {limit}")
