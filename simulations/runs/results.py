"""What a run leaves behind: one folder, written whole or not at all."""

from __future__ import annotations

import math
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import fedhist
from fedhist.base.arrays import Array
from fedhist.base.errors import PopulationError
from fedhist.model.evaluation import Facts, simulated
from fedhist.model.prediction import Prediction
from fedhist.model.protocol import Protocol
from fedhist.model.truths import Truth
from fedhist.privacy.adjacency import USER_LEVEL, NoTotalError
from fedhist.privacy.guarantee import Adjacency, Trust
from fedhist.privacy.ledger import Ledger
from fedhist.users.keys import Keys
from simulations.reporting.estimates import write_estimate
from simulations.reporting.json_files import write_json
from simulations.reporting.targets import new_folder, whole_folder
from simulations.runs.config import SHUFFLE, Prepared, shuffle_in_words
from simulations.runs.run import Outcome

RUN = "run"
"""The kind of folder that a run writes."""

NOT_PRIVATE = "NOT PRIVATE"
VERSIONS = ("flwr", "ray", "numpy", "numba", "scipy", "polars", "opendp")

NOT_PROMISED = (
    "privacy against a server that lies about who answered, invents nodes or swaps keys "
    "(nodes that sign and know each other, secagg-key and secagg-peers, count no others)",
    "a right answer: one corrupted node can make the sum anything",
    "that nobody learns who took part, when, and how long the messages are",
)
"""What sums under masks leave open."""


@dataclass(frozen=True)
class Evaluation:
    """How far the estimates are from the truth. NOT PRIVATE: it is computed from the data.

    ``support``: what the entries of the truth stand for, where the protocol's domain is unbounded;
    ``losses``: (repeats,) float; ``bound``: of the same loss; NaN where the users are too many to
    run the protocol on them again; ``one_in``: of so many items about one is in the support; losses
    are estimated from them.
    """

    truth: Array
    support: Keys | None
    losses: Array
    bound: Prediction
    one_in: int = 1

    @property
    def sampled(self) -> str:
        """What is to be said beside truth and losses; empty where all items are told apart."""
        return f"sampled 1 in {self.one_in}" if self.one_in > 1 else ""

    @property
    def total(self) -> float:
        """Sum of the truth's sizes over all entries."""
        return self.one_in * float(np.abs(self.truth).sum())

    @property
    def mean(self) -> float:
        """Mean loss over the repeats."""
        return float(self.losses.mean())

    @property
    def standard_error(self) -> float:
        """Standard error of the mean loss; NaN for a single run."""
        n = len(self.losses)
        return float(self.losses.std(ddof=1) / math.sqrt(n)) if n > 1 else math.nan


def evaluate(prepared: Prepared, outcomes: Sequence[Outcome]) -> Evaluation | None:
    """Compare the estimates with the truth, where the data are here and an estimate is ok."""
    found = [o.estimate for o in outcomes if o.estimate.value is not None]
    known = prepared.known
    if prepared.plan is None or known is None or not found:
        return None
    protocol, users = prepared.protocol, prepared.plan.users
    losses = np.array([protocol.loss_of(e, users, known=known) for e in found])
    bound = predicted(prepared, known)
    return Evaluation(known.truth, known.support, losses, bound, known.one_in)


def predicted(prepared: Prepared, known: Facts) -> Prediction:
    """Predict the loss of a run, of the users and nodes that it was told will answer."""
    answering = math.prod(
        1 - a.fraction for a in prepared.config.adversaries if a.kind == "dropout"
    )
    try:
        return known.error if answering == 1 else simulated(prepared.protocol, known, answering)
    except PopulationError as e:
        return Prediction(prepared.protocol.loss_name, math.nan, "simulated", str(e))


def folder_for(name: str, out: str) -> Path:
    """Return the folder of a run's results; a new one under results/ where none is named."""
    return (Path(out) if out else new_folder(name)).absolute()


def write_results(
    prepared: Prepared,
    outcomes: Sequence[Outcome],
    evaluation: Evaluation | None,
    out: str = "",
    *,
    force: bool = False,
) -> Path:
    """Write a run's folder: configuration, estimate, metrics, ledger and figure.

    ``outcomes``: one per repeat; the estimate written and drawn is the first one's; ``evaluation``:
    from :func:`evaluate`; ``out``: folder; empty makes one under results/ named after configuration
    and time; ``force``: replace whatever folder is there. Returns the folder. It appears whole or
    not at all; an older run's is replaced. Raises ValueError if something else is there
    (:mod:`simulations.reporting.targets`).
    """
    first = outcomes[0]
    target = folder_for(prepared.config.name, out)
    with whole_folder(target, RUN, shared=prepared.config.run.shared, force=force) as part:
        write_json(part / "config.json", describe(prepared, [o.seed for o in outcomes]))
        write_json(part / "metrics.json", metrics(prepared, outcomes, evaluation))
        write_json(part / "ledger.json", ledger_in_words(prepared, first.estimate.ledger))
        if first.estimate.value is not None:
            about = {"estimates": in_words(first.estimate.truth)}
            write_estimate(part, first.estimate, about, raw=prepared.config.run.raw_csv)
            from simulations.reporting.estimates import draw_estimate

            shown, truth, told = first.estimate, None, prepared.not_private
            if evaluation is not None:
                truth = evaluation.truth
                if evaluation.support is not None:
                    shown = shown.over(
                        evaluation.support, evaluation.one_in, invented=prepared.protocol.invents
                    )
                told += (f"items {evaluation.sampled}",) if evaluation.sampled else ()
            draw_estimate(
                shown,
                truth,
                prepared.protocol,
                part / "figure.png",
                not_private=told,
            )
    return target


def describe(prepared: Prepared, seeds: Sequence[int]) -> dict[str, Any]:
    """Return the configuration as resolved, with versions, seeds and revision."""
    tables = prepared.config.to_dict()
    tables["run"].pop("seed")  # stands below, apart from what may be published
    return {
        **tables,
        "resolved": {"protocol": protocol_fields(prepared.protocol)},
        "versions": {"fedhist": fedhist.__version__, "python": platform.python_version()}
        | {v: version(v) for v in VERSIONS},
        "revision": git_revision(),
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


def metrics(
    prepared: Prepared, outcomes: Sequence[Outcome], evaluation: Evaluation | None
) -> dict[str, Any]:
    """Return what was measured, the public part apart from the part that is not private."""
    first = outcomes[0]
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
        "rounds": [_with_rates(r) for r in first.rounds],
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


def _with_rates(statistics: Mapping[str, float]) -> dict[str, float]:
    out = dict(statistics)
    if statistics.get("replies") and "bytes_received" in statistics:
        out["bytes_per_client"] = statistics["bytes_received"] / statistics["replies"]
    return out


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
        total = ledger.spent()
        body |= {"spent epsilon": total.epsilon, "at delta": total.delta, "composed by": total.how}
        body["null-safe"] = ledger.null_safe
        body["spent under"] = {a.value: _spent_under(ledger, a) for a in USER_LEVEL}
        body["charges"] = [
            {
                "label": e.label,
                "epsilon": e.release.epsilon,
                "delta": e.release.delta,
                "rho": e.release.rho,
                "cohort": None if e.cohort is None else vars(e.cohort),
            }
            for e in ledger.entries
        ]
    return body


def _spent_under(ledger: Ledger, adjacency: Adjacency) -> dict[str, Any]:
    """Return the total under an adjacency and the cost of every charge, or why there is none."""
    try:
        costs = [e.release for e in ledger.under(adjacency)]
        total = ledger.spent(adjacency=adjacency)
    except NoTotalError as e:
        return {"no total": str(e)}
    charges = [{"epsilon": c.epsilon, "delta": c.delta, "rho": c.rho} for c in costs]
    return {"epsilon": total.epsilon, "delta": total.delta, "charges": charges}


def git_revision() -> str | None:
    """Return the git revision of the source tree, or None outside a checkout."""
    home = Path(fedhist.__file__).resolve().parent.parent
    if not (home / ".git").exists():
        return None
    command = ["git", "-C", str(home), "describe", "--always", "--dirty", "--abbrev=40"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.stdout.strip() or None
