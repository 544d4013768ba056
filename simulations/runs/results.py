"""What a run shows in the terminal, and leaves behind: a folder, whole or not at all."""

from __future__ import annotations

import json
import math
import platform
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

import fedhist
from fedhist.base.arrays import Array
from fedhist.base.errors import FedhistError, PopulationError
from fedhist.model.evaluation import Facts, simulated
from fedhist.model.protocol import Protocol
from fedhist.model.truths import Prediction, Truth
from fedhist.privacy.guarantee import USER_LEVEL, Adjacency, NoTotalError, Trust, chance_of_telling
from fedhist.privacy.ledger import Ledger, whole
from fedhist.users.keys import Keys
from simulations.reporting.charts import CHART, Chart
from simulations.reporting.estimates import chart_of, columns_of, write_table
from simulations.reporting.files import (
    NEW,
    check_folder,
    new_folder,
    plain,
    whole_folder,
    write_json,
)
from simulations.reporting.intervals import NORMAL
from simulations.reporting.shown import Shown
from simulations.reporting.table import Table, clipped, number, numeric, print_facts, print_table
from simulations.runs.config import SHUFFLE, Config, Prepared, shuffle_in_words
from simulations.runs.options import Outcome

if TYPE_CHECKING:
    from rich.console import Console

RUN = "run"
"""The kind of folder that a run writes."""
CONFIG = "config.json"

NOT_PRIVATE = "NOT PRIVATE"
VERSIONS = ("flwr", "ray", "numpy", "numba", "scipy", "polars", "opendp")

NOT_PROMISED = (
    "privacy against a server that lies about who answered, invents nodes or swaps keys "
    "(nodes that sign and know each other, secagg-key and secagg-peers, count no others)",
    "a right answer: one corrupted node can make the sum anything",
    "that nobody learns who took part, when, and how long the messages are",
)
"""What sums under masks leave open."""

MOST_ROWS = 10
MOST_LETTERS = 30
MOST_ROUNDS = 4
"""Rounds up to which each has its line."""


@dataclass(frozen=True)
class Evaluation:
    """How far the estimates are from the truth. NOT PRIVATE: it is computed from the data.

    ``support``: what the entries of the truth stand for, where the protocol's domain is unbounded;
    ``losses``: (repeats,) float; ``bound``: of the same loss; NaN where the users are too many to
    run the protocol on them again.
    """

    truth: Array
    support: Keys | None
    losses: Array
    bound: Prediction

    @property
    def total(self) -> float:
        """Sum of the truth's sizes over all entries."""
        return float(np.abs(self.truth).sum())

    @property
    def mean(self) -> float:
        """Mean loss over the repeats."""
        return float(self.losses.mean())

    @property
    def standard_error(self) -> float:
        """Standard error of the mean loss; NaN for a single run."""
        n = len(self.losses)
        return float(self.losses.std(ddof=1) / math.sqrt(n)) if n > 1 else math.nan


@dataclass(frozen=True, repr=False)
class Finished(Shown):
    """A finished job: its runs, how far off they were, and the folder where they are written."""

    kind: ClassVar[str] = RUN
    not_private: ClassVar[str] = (
        "errors and what stands beside them; the estimate is as its guarantee says"
    )

    prepared: Prepared
    outcomes: list[Outcome]
    evaluation: Evaluation | None
    folder: Path

    @property
    def title(self) -> str:
        """The protocol, the population, and how it ended."""
        estimate, config = self.outcomes[0].estimate, self.prepared.config
        reason = f": {estimate.reason}" if estimate.reason else ""
        people = config.population["kind"]
        return f"{config.protocol['name']} on {people}: {estimate.status}{reason}"

    def tables(self) -> list[Table]:
        """Return the largest entries of the estimate, if one was released, and the facts."""
        facts = Table.of(["fact", "told"], _facts(self))
        value = self.outcomes[0].estimate.value
        return [*([] if value is None else [_estimate_table(self)]), facts]

    def chart(self) -> Chart:
        """Return the figure of the first estimate, over the truth where it is known."""
        shown, truth, evaluation = self.outcomes[0].estimate, None, self.evaluation
        told = list(self.prepared.not_private)
        if evaluation is not None:
            truth = evaluation.truth
            if evaluation.support is not None and shown.keys is not None:
                n, at = len(shown.keys), evaluation.support.positions(shown.keys)
                if absent := int((at < 0).sum()):
                    told.append(f"{absent} of {n} estimates are of no user's items: not drawn")
                shown = shown.over(evaluation.support, invented=self.prepared.protocol.invents)
        return chart_of(shown, truth, self.prepared.protocol, told)


def evaluate(prepared: Prepared, outcomes: Sequence[Outcome]) -> Evaluation | None:
    """Compare the estimates with the truth, where the data are here and an estimate is ok."""
    estimates = [o.estimate for o in outcomes if o.estimate.value is not None]
    known = prepared.known
    if prepared.plan is None or known is None or not estimates:
        return None
    protocol, users = prepared.protocol, prepared.plan.users
    losses = np.array([protocol.loss_of(e, users, known=known) for e in estimates])
    bound = predicted(prepared, known)
    return Evaluation(known.truth, known.support, losses, bound)


def predicted(prepared: Prepared, known: Facts) -> Prediction:
    """Predict the loss of a run, of the users and nodes that it was told will answer."""
    answering = math.prod(
        1 - a.fraction for a in prepared.config.adversaries if a.kind == "dropout"
    )
    try:
        return known.error if answering == 1 else simulated(prepared.protocol, known, answering)
    except PopulationError as e:
        return Prediction(prepared.protocol.loss_name, math.nan, "simulated", str(e))


def check_place(config: Config, kind: str, *, force: bool) -> None:
    """Refuse a folder that may not be replaced: somebody's, or a run's of another question."""
    folder = check_folder(config.run.out or NEW, kind, force=force)
    if force or not (folder / CONFIG).is_file():
        return
    new = plain(config.to_dict())
    try:
        old = dict(json.loads((folder / CONFIG).read_text(encoding="utf-8")))
    except (TypeError, ValueError):  # damaged
        old = dict.fromkeys(new)
    for table in ("protocol", "population"):
        if old.get(table, new[table]) != new[table]:
            raise ValueError(
                f"{config.run.out} holds a run of another [{table}]; it is left alone (--force "
                "replaces it)"
            )


def folder_for(name: str, out: str) -> Path:
    """Return the folder of a run's results; a new one under results/ where none is named."""
    return (Path(out) if out else new_folder(name)).absolute()


def write_results(finished: Finished, *, force: bool = False) -> None:
    """Write a run's folder: configuration, estimate, metrics, ledger and what a figure shows.

    The estimate written is the first one's; ``force``: replace whatever folder is there.
    It appears whole or not at all; an older run's is replaced; see :func:`written_somewhere`.
    """
    written_somewhere(finished.folder, lambda folder: _write_to(folder, finished, force))


def written_somewhere(folder: Path, write: Callable[[Path], None]) -> None:
    """Write results that are paid for: to a temporary folder, or the home, if not to ``folder``.

    A disk may be full, or somebody else's files there. Raises FedhistError if the folder could not
    be written; the message names the one that was.
    """
    try:
        write(folder)
    except (OSError, ValueError) as error:
        for place in (None, str(Path.home())):
            with suppress(OSError, ValueError):
                spare = Path(tempfile.mkdtemp(prefix="fedhist-results-", dir=place))
                write(spare)
                raise FedhistError(
                    f"{folder} could not be written ({error}): the results are in {spare}"
                ) from error
        raise


def _write_to(folder: Path, finished: Finished, force: bool) -> None:
    prepared, first = finished.prepared, finished.outcomes[0]
    with whole_folder(folder, RUN, force=force) as part:
        write_json(part / CONFIG, describe(prepared, [o.seed for o in finished.outcomes]))
        write_json(part / "metrics.json", metrics(finished))
        write_json(part / "ledger.json", ledger_in_words(prepared, first.estimate.ledger))
        finished.write(part)
        if first.estimate.value is not None:
            about = {"estimates": in_words(first.estimate.truth)}
            write_table(part, columns_of(first.estimate), about)
            finished.chart().save(part / CHART)


def describe(prepared: Prepared, seeds: Sequence[int]) -> dict[str, Any]:
    """Return the configuration as resolved, with versions and seeds."""
    tables = prepared.config.to_dict()
    tables["run"].pop("seed")  # stands below, apart from what may be published
    return {
        **tables,
        "resolved": {"protocol": protocol_fields(prepared.protocol)},
        "versions": {"fedhist": fedhist.__version__, "python": platform.python_version()}
        | {v: version(v) for v in VERSIONS},
        NOT_PRIVATE: {
            "why": "who knows a seed knows the noise; choices made by looking at private data",
            # a deployment's seed was drawn to be forgotten
            "seeds": list(seeds) if prepared.plan is not None else [],
            "choices": list(prepared.not_private),
        },
    }


def protocol_fields(protocol: Protocol) -> dict[str, Any]:
    """Return a protocol's fields as plain data; long ones are named by their size."""
    out: dict[str, Any] = {"name": protocol.name}
    for key, value in vars(protocol).items():
        if isinstance(value, bool | int | float | str) or value is None:
            out[key] = value
        elif isinstance(value, fedhist.Keys):
            out[key] = f"{len(value)} keys, digest {value.digest:016x}"
        else:
            out[key] = repr(value)
    return out


def metrics(finished: Finished) -> dict[str, Any]:
    """Return what was measured, the public part apart from the part that is not private."""
    prepared, evaluation, first = finished.prepared, finished.evaluation, finished.outcomes[0]
    body: dict[str, Any] = {
        "status": first.estimate.status,
        "reason": first.estimate.reason,
        "warnings": [*prepared.doubts, *first.estimate.warnings],
        "estimates": in_words(first.estimate.truth),
        "public": dict(first.estimate.public),
        "noise": _noise(prepared, prepared.config.run.noise),
        "clients": prepared.config.run.clients,
    }
    # times, sizes and numbers of messages depend on the data
    secret: dict[str, Any] = {
        "seconds": first.seconds,
        "rounds": first.rounds,
        "rounds from the journal": first.replayed,
        "choices": list(prepared.not_private),
    }
    if prepared.plan is not None and prepared.plan.dropped:
        secret["rows dropped by the loader"] = dict(prepared.plan.dropped)
    if prepared.known is not None:
        secret["diagnostics"] = dict(prepared.known.diagnostics)
        secret["facts"] = list(prepared.facts)
    if first.adversaries:
        secret["adversaries"] = {k: dict(v) for k, v in first.adversaries.items()}
    if evaluation is not None:
        secret |= {
            "loss": evaluation.bound.loss,
            "measured": evaluation.mean,
            "standard error": evaluation.standard_error if len(evaluation.losses) > 1 else None,
            "repeats": len(evaluation.losses),
            "predicted": evaluation.bound.expected,
            "prediction is": evaluation.bound.kind,
            "prediction": evaluation.bound.source,
        }
    why = "computed from the users' data for evaluation; do not publish"
    return body | {NOT_PRIVATE: {"why": why} | secret}


def in_words(truth: Truth | None) -> str:
    """Say what an estimate is about.

    >>> in_words(Truth.POOLED).partition(", so")[0]
    'pooled: all samples weigh the same'
    """
    return f"{truth}: {truth.in_words}" if truth is not None else ""


def _noise(prepared: Prepared, grade: str) -> str:
    """Name the grade of the noise; clients of a deployment draw all but a server's."""
    by_clients = prepared.protocol.guarantee.trust.rank and prepared.plan is None
    return "drawn by each client" if by_clients else grade


def ledger_in_words(prepared: Prepared, ledger: Ledger | None) -> dict[str, Any]:
    """Return what was spent, on what, what it guarantees and what it leaves out, in words."""
    guarantee, claimed = prepared.protocol.guarantee, prepared.protocol.claimed
    body: dict[str, Any] = {
        "guarantee": str(guarantee),
        "unit": guarantee.unit,
        "trust": guarantee.trust.value,
        "adjacency": f"{guarantee.adjacency.value}: {guarantee.adjacency.in_words}",
    }
    if claimed != guarantee:
        body["the paper claims"] = str(claimed)
    if prepared.not_private:
        body[f"{NOT_PRIVATE}, outside the guarantee"] = list(prepared.not_private)
    if ledger is not None:
        body["noise"] = _noise(prepared, ledger.noise)
        if ledger.aggregation:
            body |= {"aggregation": ledger.aggregation, "not promised": list(NOT_PROMISED)}
        body |= {SHUFFLE: shuffle_in_words(guarantee)} if guarantee.trust is Trust.SHUFFLE else {}
        body |= spent_in_words(ledger)
        body["two neighbours are told apart with at most"] = chance_of_telling(
            whole(ledger.under(ledger.adjacency))
        )
        body["null-safe"] = ledger.null_safe
        body["spent under"] = {a.value: _spent_under(ledger, a) for a in USER_LEVEL}
    return body


def spent_in_words(ledger: Ledger) -> dict[str, Any]:
    """Return what a ledger adds up to, by which composition, and every charge."""
    total = ledger.spent()
    charges = [
        {
            "label": e.label,
            "adjacency": e.adjacency.value,
            **vars(e.release),
            "cohort": None if e.cohort is None else vars(e.cohort),
        }
        for e in ledger.entries
    ]
    return {
        "spent epsilon": total.epsilon,
        "at delta": total.delta,
        "composed by": total.how,
        "charges": charges,
    }


def _spent_under(ledger: Ledger, adjacency: Adjacency) -> dict[str, Any]:
    """Return the total under an adjacency, or why there is none."""
    try:
        total = ledger.spent(adjacency=adjacency)
    except NoTotalError as e:
        return {"no total": str(e)}
    return {"epsilon": total.epsilon, "delta": total.delta}


def summary_of(finished: Finished) -> dict[str, Any]:
    """Return a finished job as plain data: what its folder holds, and where that is."""
    prepared, outcomes = finished.prepared, finished.outcomes
    estimate, table = outcomes[0].estimate, None
    if estimate.value is not None:
        table = {
            name: [*x] if name == "key" else x.tolist() for name, x in columns_of(estimate).items()
        }
    return {
        "kind": "run",
        "name": prepared.config.name,
        "estimate": table,
        "metrics": metrics(finished),
        "ledger": ledger_in_words(prepared, estimate.ledger),
        "config": describe(prepared, [o.seed for o in outcomes]),
        "folder": str(finished.folder),
    }


# -- in the terminal -------------------------------------------------------------------------------


def print_job(console: Console, finished: Finished) -> None:
    """Print a finished job: what it cost, how far off it was, and its first rows."""
    print_facts(console, _facts(finished))
    if finished.outcomes[0].estimate.value is not None:
        print_table(console, _estimate_table(finished), gap=3)


def _facts(finished: Finished) -> list[tuple[str, str]]:
    estimate, prepared = finished.outcomes[0].estimate, finished.prepared
    protocol = prepared.protocol
    facts = [
        ("protocol", f"{protocol.name} ({protocol.paper})"),
        ("guarantee", str(protocol.guarantee)),
    ]
    if estimate.truth not in (None, Truth.OWN):
        facts.insert(1, ("estimates", f"{protocol.target}: {estimate.truth}"))
    if protocol.claimed != protocol.guarantee:
        facts.append(("the paper claims", str(protocol.claimed)))
    if estimate.ledger is not None:
        total = estimate.ledger.spent()
        spent = f"epsilon = {total.epsilon:.6g} at delta = {total.delta:g} ({total.how})"
        facts.append(("spent", spent))
    facts.append(("noise", _noise_in_words(finished)))
    if estimate.ledger is not None and estimate.ledger.aggregation:
        facts.append(("aggregation", estimate.ledger.aggregation))
    if protocol.guarantee.trust is Trust.SHUFFLE:
        facts.append((SHUFFLE, shuffle_in_words(protocol.guarantee)))
    if prepared.plan is not None:
        facts.append(("population", prepared.plan.title))
    facts.append(("rounds", _rounds_in_words(finished)))
    if estimate.public:
        told = ", ".join(f"{k} = {number(v, 5)}" for k, v in estimate.public.items())
        facts.append(("public", told))
    if finished.evaluation is not None:
        facts.append(("error", _error_in_words(finished)))
    notes = (*prepared.facts, *_diagnostics(finished), *_adversaries(finished))
    facts += [("NOT PRIVATE", note) for note in (*prepared.not_private, *notes)]
    facts += [("warning", warning) for warning in (*prepared.doubts, *estimate.warnings)]
    reason = f": {estimate.reason}" if estimate.reason else ""
    return [*facts, ("status", estimate.status + reason)]


def _diagnostics(finished: Finished) -> list[str]:
    known = finished.prepared.known
    if known is None:
        return []
    counted = finished.prepared.protocol.empty_record
    rest = f" of {known.n_users:,} users, each counted as {counted}" if counted else ""
    counts = known.diagnostics.items()
    return [f"{name}: {number(count, 5)}{rest}" for name, count in counts if count]


def _adversaries(finished: Finished) -> list[str]:
    """Say what adversaries did and what became of it, one line each."""
    counted = finished.outcomes[0].adversaries.items()
    return [
        f"{what}: " + ", ".join(f"{n:,} x {why}" for why, n in counts.items())
        for what, counts in counted
        if counts
    ]


def _noise_in_words(finished: Finished) -> str:
    if finished.prepared.protocol.guarantee.trust in (Trust.SHUFFLE, Trust.LOCAL):
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
    out = [first.from_journal] if first.replayed else []
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


KINDS = {"exact": "exact formula", "simulated": "simulated", "bound": "a paper's upper bound"}


def _error_in_words(finished: Finished) -> str:
    e = finished.evaluation
    if e is None:
        return "unknown"
    several = len(e.losses) > 1
    plus = f" ± {e.standard_error:.3g} in {len(e.losses)} runs" if several else " in this run"
    kind = KINDS[e.bound.kind] + (f" ± {e.bound.stderr:.2g}" if e.bound.stderr else "")
    share = f", {e.mean / e.total:.2%} of the total" if e.bound.loss == "l1" and e.total else ""
    return (
        f"{e.bound.loss} {e.mean:.4g}{plus}{share}\n"
        f"{e.bound.loss} {e.bound.expected:.4g} expected ({kind}); NOT PRIVATE"
    )


def _estimate_table(finished: Finished) -> Table:
    estimate, evaluation = finished.outcomes[0].estimate, finished.evaluation
    keys, value = estimate.keys, np.atleast_1d(np.asarray(estimate.value))
    order = np.arange(len(value)) if keys is None else np.argsort(-value, kind="stable")
    order = order[:MOST_ROWS]
    names, columns = ["estimate", "± 1.96 s.e."], [value.tolist(), [""] * len(value)]
    if estimate.stderr is not None:
        columns[1] = (NORMAL * np.broadcast_to(estimate.stderr, value.shape)).tolist()
    if evaluation is not None:
        truth = np.atleast_1d(evaluation.truth).tolist()
        if evaluation.support is not None and keys:
            at = evaluation.support.positions(keys)
            truth = [truth[i] if i >= 0 else "" for i in at.tolist()]
        columns.append(truth)
        names.append("truth (NOT PRIVATE)")
    protocol = finished.prepared.protocol
    places = protocol.positions

    def name(i: int) -> str:
        if keys is not None:
            return clipped(keys[i], MOST_LETTERS)
        entry = i if places is None else f"{places[i]:g}"
        return protocol.target + (f"[{entry}]" if len(value) > 1 else "")

    rows = [[name(i), *(c[i] for c in columns)] for i in order.tolist()]
    which = "first" if keys is None else "largest"
    return Table.of(
        ["" if keys is None else "item", *numeric(names, write=number)],
        rows,
        title=f"the {MOST_ROWS} {which} of {len(value):,}" if len(value) > MOST_ROWS else "",
        notes=[
            *_unanswered(finished),
            *_missed(*([c[i] for i in order.tolist()] for c in columns)),
        ],
    )


def _unanswered(finished: Finished) -> tuple[str, ...]:
    """Say of totals that they are of those who answered."""
    rounds = [r for r in finished.outcomes[0].rounds if r.get("missing")]
    if not rounds or finished.outcomes[0].estimate.truth is not Truth.TOTAL:
        return ()
    worst = min(rounds, key=lambda r: r["replies"] / (r["replies"] + r["missing"]))
    nodes = int(worst["replies"] + worst["missing"])
    return (
        f"totals are of the {int(worst['replies']):,} of {nodes:,} nodes that answered, "
        f"{worst['replies'] / nodes:.1%}",
    )


def _missed(
    value: Sequence[float], half: Sequence[Any], truth: Sequence[Any] = ()
) -> tuple[str, ...]:
    """Say that more of the intervals shown miss the truth than noise alone explains.

    Of n intervals at 95%, .05 n miss, and three standard deviations more once in 700 runs.
    """
    rows = [row for row in zip(value, half, truth, strict=False) if "" not in row]
    if not rows:
        return ()
    values, halves, truths = np.array(rows, dtype=np.float64).T
    off = values - truths
    misses, n = int((np.abs(off) > halves).sum()), len(rows)
    if misses <= 0.05 * n + 3 * math.sqrt(0.05 * 0.95 * n) + 1:
        return ()
    side = "below" if np.median(off) < 0 else "above"
    by = number(float(np.median(np.abs(off))), 3)
    return (
        f"{misses:,} of {n:,} intervals miss the truth (NOT PRIVATE): they cover the noise alone, "
        "not what clipping, bounds, sampling or missing replies do; half of the estimates shown "
        f"lie {by} or more off, most of them {side} the truth",
    )
