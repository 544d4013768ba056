"""The folder of a comparison: table, figure, records, and one JSON file that says it all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Console

from simulations.reporting.json_files import numbers, write_json
from simulations.runs.results import NOT_PRIVATE, git_revision
from simulations.studies.compare.rows import Ranked, Row
from simulations.studies.compare.tables import print_comparison
from simulations.studies.records.cells import Record
from simulations.studies.records.identity import versions
from simulations.studies.records.runs import LEVEL
from simulations.studies.records.scale import ITEM_MEASURES
from simulations.studies.records.store import frame_of

FILE = "comparison.json"
SCHEMA = 1
WIDTH = 80
WHY = "losses, predictions and times are computed from the users' data; who knows a seed knows "
WHY += "the noise"


def write_parts(found: Ranked, folder: Path) -> None:
    """Write config.json, comparison.json, records.parquet and table.txt.

    Records are in the common loss.
    """
    write_json(folder / "config.json", found.ready.comparison.to_dict())
    write_json(folder / FILE, summary_of(found))
    frame_of(found.records).write_parquet(folder / "records.parquet")
    with (folder / "table.txt").open("w", encoding="utf-8") as f:
        print_comparison(Console(file=f, width=WIDTH, highlight=False), found)


def summary_of(found: Ranked) -> dict[str, Any]:
    """Return a comparison as plain data: settings, rows in order, who is left out, records."""
    ready, levels = found.ready, found.ready.comparison.levels
    return {
        "schema": SCHEMA,
        "kind": "comparison",
        "name": ready.comparison.name,
        "config": ready.comparison.to_dict(),
        "population": ready.title,
        "n_users": ready.n_users,
        "loss": ready.loss,
        "level": LEVEL,
        "truth": ready.truth.value,
        "truths": [t.value for t in ready.truths],
        "reference": {"loss": 0.0, "sampling_error": ready.sampling, "size": found.size},
        "trivial": found.trivial,
        "rows": [_row(row) for row in found.rows],
        "left_out": [
            {"label": x.label, "protocol": x.protocol, "reason": x.reason} for x in ready.left_out
        ],
        **({"unreached": {u.trust.value: u.reason for u in ready.unreached}} if levels else {}),
        "versions": versions(),
        "revision": git_revision(),
        NOT_PRIVATE: {"why": WHY, "facts": list(ready.facts)},
        "records": [json.loads(r.to_json()) for r in found.records],
    }


def _row(row: Row) -> dict[str, Any]:
    first = row.records[0]
    return {
        "rank": row.rank,
        "label": row.label,
        **({} if row.fraction is None else {"fraction": row.fraction}),
        "protocol": row.protocol,
        **_believed(row),
        "flags": list(row.flags),
        "loss": row.mean,
        "half_width": row.half_width,
        "relative": row.relative,
        "worse_than": row.worse,
        **({} if row.off is None else {"truth_off": row.off}),
        "items": {k: x for k in ITEM_MEASURES if (x := row.item_measure(k)) is not None},
        **({} if row.bias is None else {"bias": row.bias}),
        "predicted": row.predicted,
        "ratio": row.ratio,
        "theory_far_off": row.far_off,
        "at_least": [vars(b) for b in row.bounds],
        "rounds": row.rounds,
        "bytes_per_user": row.bytes_per_user,
        "seconds": row.seconds,
        "runs": len(row.records),
        "missing": dict(row.missing),
        "guarantee": first.guarantee,
        "claimed": first.claimed,
        "adversaries": list(first.adversaries),
        "not_private": sorted({note for r in row.records for note in r.not_private}),
    }


def _believed(row: Row) -> dict[str, Any]:
    """Return a row's level of trust and what must be believed for it; nothing without levels."""
    if row.level is None or row.believed is None:
        return {}
    return {
        "trust": row.level.value,
        "believed": row.believed.words,
        "premise": dict(row.believed.numbers),
    }


def read_comparison(folder: str | Path) -> tuple[dict[str, Any], list[Record]]:
    """Read what :func:`write_parts` wrote: its summary, and the records in the common loss.

    Raises
    ------
    ValueError
        If the folder has no comparison, or one of a newer fedhist.
    """
    path = Path(folder) / FILE
    if not path.is_file():
        raise ValueError(f"{folder} is not a folder of fedhist compare: it has no {FILE}")
    body: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if body.get("schema", 0) > SCHEMA:
        raise ValueError(f"{path} was written by a newer fedhist; this one reads {SCHEMA}")
    records = [Record.from_json(json.dumps(r)) for r in body.pop("records")]
    return numbers(body), records
