"""A plan as plain data, for ``fedhist plan --json``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from simulations.runs.results import NOT_PRIVATE
from simulations.studies.plan.planner import Answer
from simulations.studies.plan.verify import Verified

WHY = "theory may have looked at the users of the template; simulations are measured with the truth"


def document_of(answers: Sequence[Answer], verified: Sequence[Verified] = ()) -> dict[str, Any]:
    """Return what a plan found, and what simulations of it gave."""
    first = answers[0]
    return {
        "kind": "plan",
        "name": first.config.name,
        "unknown": first.unknown,
        "target": first.target,
        "relative": first.relative,
        "answers": [_answer(a) for a in answers],
        "verified": [_verified(v) for v in verified],
        "config": first.config.to_dict(),
        NOT_PRIVATE: {"why": WHY},
    }


def _answer(a: Answer) -> dict[str, Any]:
    whole = a.x is not None and a.unknown != "epsilon"
    return {
        "protocol": a.label,
        "trust": None if a.level is None else a.level.value,
        "believed": None if a.believed is None else a.believed.words,
        "value": int(a.x) if whole and a.x is not None else a.x,
        "predicted": a.predicted,
        "loss": a.loss,
        "exact": a.exact,
        "source": a.source,
        "mostly": a.limit,
        "at_least": None if a.at_least is None else vars(a.at_least),
        "rounds": a.rounds,
        "bytes_per_user": a.bytes_per_user,
        "refused_below": a.refused_below,
        "reason": a.reason,
        "searched_to": a.searched,
        "least_error_found": None if a.best is None else {"at": a.best.x, "error": a.best.error},
        "extrapolated": a.beyond,
        "notes": list(a.notes),
    }


def _verified(v: Verified) -> dict[str, Any]:
    return {
        "protocol": v.answer.label,
        "trust": None if v.answer.level is None else v.answer.level.value,
        "runs": dict(v.statuses),
        "measured": v.measured,
        "predicted": v.predicted,
        "ratio": v.ratio,
        "interval": list(v.interval),
        "value_needed": v.needed,
        "seconds": v.seconds,
    }
