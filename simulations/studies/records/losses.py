"""Records of several protocols in one loss: what is set side by side is measured alike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from fedhist.model.registry import display_of
from simulations.studies.records.cells import Record
from simulations.studies.records.metrics import restated
from simulations.studies.records.scale import relative

NORMS = ("l1", "squared l2", "l2", "linf")
ROUNDING = 1e-9


def in_loss(record: Record, loss: str) -> Record:
    """State a record in another loss; what it said in its own goes to ``more``.

    Theory's prediction goes along where the protocol's own loss is the same number, or its root:
    then the square of an expected distance stands for the expected square. l1 follows from the
    squared l2 distance as :func:`~simulations.studies.records.metrics.restated` says. Otherwise it
    is dropped.
    """
    if record.loss is None or record.loss_name == loss:
        return record
    if loss not in record.losses:
        reason = f"its loss, {record.loss_name}, cannot be stated as {loss}"
        return replace(record, status="error", reason=reason, loss=None, predicted=None)
    value, predicted, exact = record.losses[loss], record.predicted, record.predicted_exact
    if predicted is not None and not math.isclose(record.loss, value, rel_tol=ROUNDING):
        rooted = math.isclose(record.loss**2, value, rel_tol=ROUNDING)
        form = display_of(record.target).form
        exact = False
        if rooted:
            predicted = predicted**2
        else:
            predicted = restated(predicted, record.loss_name, loss, record.entries, form)
    own = {
        "own_loss_name": record.loss_name,
        "own_loss": record.loss,
        "own_predicted": record.predicted,
    }
    return replace(
        record,
        loss=value,
        loss_name=loss,
        predicted=predicted,
        predicted_exact=exact,
        more={**record.more, **own},
    )


def in_one_loss(records: Sequence[Record], asked: str = "") -> tuple[list[Record], str, list[str]]:
    """Express all losses in one, where they are not already.

    Parameters
    ----------
    records : sequence of Record
    asked : str
        A loss that the records are known to be in.

    Returns
    -------
    records, loss, notes
        The loss is "" where there is none in common; the records are then left as they are.
    """
    done = [r for r in records if r.loss is not None]
    own = sorted({r.loss_name for r in done})
    if asked or len(own) <= 1:
        return list(records), asked or (own[0] if own else ""), []
    usual = {display_of(r.target).loss for r in done}
    names = dict.fromkeys((*(usual if len(usual) == 1 else ()), *NORMS))
    common = next((n for n in names if all(n in (r.loss_name, *r.losses) for r in done)), "")
    if not common:
        return list(records), "", [f"the runs have different losses: {', '.join(own)}"]
    changed = [in_loss(r, common) for r in records]
    note = f"losses of different protocols ({', '.join(own)}) are all given in {common}; theory's "
    return changed, common, [note + "is left out where it does not follow in that loss"]


def as_shares(records: Sequence[Record]) -> list[Record] | None:
    """Put relative errors in the place of losses: what can be set against the number of users.

    Returns
    -------
    list of Record or None
        None if the size of an answer is not known.
    """
    done = [r for r in records if r.loss is not None]
    if not done or any(r.relative is None for r in done):
        return None
    return [
        r
        if r.loss is None
        else replace(
            r,
            loss=r.relative,
            predicted=relative(r.predicted, r.size, r.loss_name),
            loss_name=f"relative {r.loss_name}",
        )
        for r in records
    ]
