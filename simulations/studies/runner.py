"""Cells that a folder has not got yet are run, here or on Ray; each is measured, and kept.

The driver alone writes: a line of ``records.jsonl`` for each cell, forced to disk. A cell counts
when its line is whole: killing a study at any moment loses nothing that counts, and starting it
again repeats nothing that does. What ended in an error is run again.
"""

from __future__ import annotations

import fcntl
import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np
from threadpoolctl import threadpool_limits

from clients.answers import streams
from fedhist.base.arrays import Floats
from fedhist.base.files import sync_folder
from fedhist.base.origin import in_words, whole
from fedhist.flower.wire import answer_bytes, encode_answer
from fedhist.model.codec import query_digest
from fedhist.model.evaluation import Facts, measured
from fedhist.model.protocol import Estimate
from fedhist.model.query import Query
from fedhist.model.registry import display_of
from fedhist.model.truths import Prediction
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from simulations.adversaries import read_adversaries
from simulations.reporting.files import canonical
from simulations.runs.results import predicted
from simulations.runs.run import execute
from simulations.studies.cells import (
    ERROR,
    Cell,
    Record,
    key_now,
    prepare_cell,
    revision_of,
    versions,
)
from simulations.studies.losses import item_measures, norms, of_items, trivial_answers

RECORDS = "records.jsonl"

Progress = Callable[[int, int], None]
"""Called with the cells that are done and with all."""


def run_cells(
    cells: Iterable[Cell],
    folder: Path | None = None,
    *,
    workers: int | None = 0,
    address: str | None = None,
    progress: Progress | None = None,
) -> dict[str, Record]:
    """Run cells, and keep their records in a folder.

    ``folder``: exists; cells whose records it has are not run again. None keeps nothing;
    ``workers``: processes on Ray; 0 runs in this process; None takes all cores; ``address``: join
    this Ray cluster, whose versions are compared with ours before any work. Returns records
    by the keys of their cells. Raises ValueError if another process writes to the folder, or its
    records are damaged; OSError if a record cannot be written; those before it are kept.
    """
    wanted = {c.key: c for c in cells}
    with writing(folder) as (file, before):
        finished = {k: r for k, r in before.items() if k in wanted and r.status != ERROR}
        left: dict[str, list[Cell]] = {}  # by population, which a process then loads once
        for key, cell in wanted.items():
            if key not in finished:
                left.setdefault(canonical(cell.population), []).append(cell)
        for record in run_all([*chain.from_iterable(left.values())], workers, address):
            if file is not None:
                file.write(record.to_json().encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
            finished[record.key] = record
            if progress is not None:
                progress(len(finished), len(wanted))
    return finished


def run_all(
    cells: Sequence[Cell], workers: int | None = 0, address: str | None = None
) -> Iterator[Record]:
    """Run cells and yield their records as they end."""
    if not cells:
        return
    if workers == 0 and address is None:
        yield from map(run_cell, cells)
        return
    from simulations.runtimes.ray_tasks import on_ray

    plugins = sorted({p for cell in cells for p in cell.run.get("plugins", ())})
    for cell, result in on_ray(_in_worker, cells, workers or None, address, plugins):
        if isinstance(result, Exception):
            what = str(result).strip().partition("\n")[0]
            yield error_record(cell, f"its worker died: {type(result).__name__}: {what}")
        else:
            yield Record.from_json(result)


def _in_worker(cell: Cell) -> str:
    return run_cell(cell).to_json()


def read_records(folder: Path) -> dict[str, Record]:
    """Return the records of a folder by their keys, the last of each; a torn line is none yet.

    Raises ValueError if a line is damaged.
    """
    file = folder / RECORDS
    body = file.read_bytes() if file.is_file() else b""
    return _records(file, body[: body.rfind(b"\n") + 1])


def _records(file: Path, body: bytes) -> dict[str, Record]:
    records: dict[str, Record] = {}
    for number, line in enumerate(body.splitlines(), 1):
        try:
            record = Record.from_json(line.decode())
        except (ValueError, TypeError, AttributeError) as e:
            raise ValueError(f"{file}, line {number} is damaged: {e}") from None
        records[record.key] = record
    return records


@contextmanager
def writing(folder: Path | None) -> Iterator[tuple[IO[bytes] | None, dict[str, Record]]]:
    """Open the records of a folder for writing, and yield those that are there.

    The lock is the operating system's: it ends with its process, however that ends. Half a line,
    which a killed process left, is cut off.
    """
    if folder is None:
        yield None, {}
        return
    path = folder / RECORDS
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), "r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(
                f"another process writes to {folder}; wait for it, or name another folder"
            ) from None
        body = file.read()
        whole = body.rfind(b"\n") + 1
        file.truncate(whole)
        file.seek(whole)
        sync_folder(folder)
        yield file, _records(path, body[:whole])


# -- one cell --------------------------------------------------------------------------------------

MOST_ROWS = 8
"""How many rows a process keeps, with what is known of their users."""


class Built:
    """A row's protocol, built once for all its seeds, and what is known of its users.

    ``cell``: any of the row.
    """

    def __init__(self, cell: Cell) -> None:
        self.prepared = prepare_cell(cell)
        self.protocol = self.prepared.protocol
        if self.prepared.plan is None:
            raise ValueError("the population is remote: a cell needs its users here")
        self.plan = self.prepared.plan
        self.users = self.plan.users.in_memory("a cell")

    @cached_property
    def known(self) -> Facts:
        """What evaluation knows of the users."""
        return measured(self.protocol, self.users)

    @cached_property
    def prediction(self) -> Prediction:
        """The expected loss, of those who will answer."""
        return predicted(self.prepared, self.known)

    @cached_property
    def promised(self) -> dict[str, Any]:
        """What is known before anybody is asked: fields of a record."""
        protocol, plan = self.protocol, self.plan
        g, claimed = protocol.guarantee, protocol.claimed
        guarantee = {
            "text": str(g),
            "epsilon": g.epsilon,
            "delta": g.delta,
            "trust": g.trust.value,
            "adjacency": g.adjacency.value,
            "unit": g.unit,
        }
        guarantee |= {} if claimed == g else {"claimed": str(claimed)}
        notes = self.prepared.not_private
        return {
            "target": protocol.target,
            "guarantee": guarantee,
            "n_users": len(plan.users),
            "more": {
                "population": plan.title,
                "not_private": list(notes),
                "reads": [n for n in notes if n not in plan.not_private],
            },
        }


_rows: OrderedDict[str, Built] = OrderedDict()


def built_once(cell: Cell) -> Built:
    """Return what the cell's row needs; those used last are kept."""
    tables = cell.to_dict()
    del tables["run"]["seed"]
    row = key_now(tables)
    if row not in _rows:
        _rows[row] = Built(cell)
    _rows.move_to_end(row)
    if len(_rows) > MOST_ROWS:
        _rows.popitem(last=False)
    return _rows[row]


def run_cell(cell: Cell) -> Record:
    """Run a cell in this process; whatever it raises becomes a record of status "error".

    On one thread, as on Ray: sums of real numbers depend on how many threads BLAS splits them over.
    """
    known: dict[str, Any] = {}
    try:
        with threadpool_limits(1):
            built = built_once(cell)
            known = built.promised
            measures = {**known, **_measured(built, cell)}
        if key_now(cell.to_dict()) != cell.key:
            raise ValueError("a file that the cell names has changed since the study began")
        more = {**known["more"], **measures.pop("more")}
        return Record(**_named(cell), **measures, more=more)
    except Exception as e:
        more = {**known.get("more", {}), "traceback": whole(e)}
        told = {"status": ERROR, "reason": in_words(e), "more": more}
        return Record(**_named(cell), **(known | told))


def error_record(cell: Cell, reason: str) -> Record:
    """Return the record of a cell that could not be run."""
    return Record(**_named(cell), status=ERROR, reason=reason)


def _named(cell: Cell) -> dict[str, Any]:
    return {
        "key": cell.key,
        "label": cell.label,
        "cell": cell.to_dict(),
        "versions": versions() | revision_of(str(cell.protocol["name"])),
    }


def _measured(built: Built, cell: Cell) -> dict[str, Any]:
    """Run a cell's protocol, and compare with the truth and with theory: fields of a record."""
    queries: list[Query] = []
    run = cell.config.run
    adversaries = read_adversaries(list(cell.adversary))
    options = run.options(watch=queries.append, adversaries=adversaries)
    outcome = execute(built.protocol, built.users, options)
    estimate = outcome.estimate
    compared = {} if estimate.value is None else _compared(built, estimate)
    warnings = [*estimate.warnings]
    more: dict[str, Any] = {
        "public": {k: float(v) for k, v in estimate.public.items()},
        "diagnostics": {
            f"{what}: {why}": n
            for what, counts in outcome.adversaries.items()
            for why, n in counts.items()
        },
    }
    if estimate.ledger is not None:
        spent = estimate.ledger.spent()
        more["spent"] = {"epsilon": spent.epsilon, "delta": spent.delta, "how": spent.how}
    return {
        "status": estimate.status,
        "reason": estimate.reason,
        "truth": "" if estimate.truth is None else estimate.truth.value,
        "rounds": len(queries),
        "bytes_per_user": bytes_per_user(queries, built.users) if queries else None,
        "seconds": outcome.seconds.get("run", 0.0),
        "warnings": tuple(dict.fromkeys(warnings)),
        **compared,
        "more": {**more, **compared.pop("more", {})},
    }


def _compared(built: Built, estimate: Estimate) -> dict[str, Any]:
    """Hold an estimate against the truth, in all losses, beside the answers that need no data."""
    protocol, known, bound = built.protocol, built.known, built.prediction
    truth, keys = known.truth, known.support
    more: dict[str, Any] = {"source": bound.source, "entries": int(np.size(truth))}
    final = (estimate if keys is None else estimate.over(keys, invented=True)).value
    value = np.asarray(final, dtype=np.float64)
    alike = value.shape == np.shape(truth)
    if of_items(protocol):
        invented = _invented(estimate, keys) if protocol.invents else None
        more["items"] = item_measures(value, truth, invented)
    more["bias"] = None
    if alike and (protocol.display or display_of(protocol.target)).form == "coordinates":
        with np.errstate(all="ignore"):
            more["bias"] = float(np.mean(value - truth))
    return {
        "loss": protocol.loss_of(estimate, built.users, known=known),
        "loss_name": bound.loss,
        "losses": norms(value, truth) if alike else {},
        "trivial": _trivial(built, bound.loss),
        "predicted": float(bound.expected),
        "predicted_kind": bound.kind,
        "more": more,
    }


def _invented(estimate: Estimate, keys: Keys | None) -> Floats:
    """Return the estimates of items that the truth has not."""
    if estimate.keys is None or keys is None:
        return np.zeros(0)
    return np.asarray(estimate.value, dtype=np.float64)[keys.positions(estimate.keys) < 0]


def _trivial(built: Built, loss: str) -> dict[str, dict[str, float]]:
    """Measure the answers that need no data; of items entry by entry, whatever their support."""
    protocol, known, out = built.protocol, built.known, {}
    for name, x in trivial_answers(protocol, known.truth).items():
        if of_items(protocol):
            own = protocol.loss(x, known.truth)
        else:
            answer = Estimate.ok(x, keys=known.support)
            own = protocol.loss_of(answer, built.users, known.truth, known)
        out[name] = {loss: own} | norms(x, known.truth)
    return out


def bytes_per_user(queries: list[Query], users: Users) -> float:
    """Measure what one user sends in all rounds, weighted by the share that each round asks.

    A report is encoded as it travels. Where its length depends on the user's record, the folded
    summary of a node that holds that one user is taken instead.

    ``users``: the first of them is asked.
    """
    one, total = users.slice(0, 1), 0.0
    for index, query in enumerate(queries):
        digest = query_digest(query, index)
        report = query.answer(one, streams(one, 0, digest))
        body = report if report.indptr is None else query.fold(report)
        share = 1.0 if query.cohort is None else query.cohort.share
        total += share * answer_bytes(encode_answer(body, 0, digest))
    return total
