"""Write the golden record: what this code answers and writes, which no later commit may change.

``python tests/golden/record.py [PROTOCOL ...]`` rewrites the record, or the entries of some
protocols, from today's code. Do so only in a commit that says why their answers may change; one
that moves or renames code never does.

``estimates.json`` has, for every own protocol and its variants (:func:`variants`), the digests, the
estimate and what was charged, of one inline run with a fixed seed. Numbers stand as ``float.hex``
in the order of the array; a long array as the sum, the first entries and a digest of its bytes.
Digests, whole numbers and texts hold everywhere. Floating-point numbers hold to the bit on a
machine with the recorded :func:`fingerprint`, else to 1e-9 of the array's largest entry: NumPy's
kernels differ in the last bits from processor to processor. ``revisions`` are those of the laws.

``files/`` has what runs left behind: journals, a guard's folder, a data set's ledger, a sweep.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import math
import os
import re
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from contextlib import chdir, closing, redirect_stdout
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
from threadpoolctl import threadpool_limits

from clients.guard import Guard, Policy
from clients.guard_folder import FolderStore
from clients.node import Node
from fedhist import Adjacency, Estimate, Guarantee, Protocol, Query, Trust
from fedhist.flower.host import NodeSetup
from fedhist.flower.wire import decode_answer, encode_question
from fedhist.model.registry import load_builtin, own_protocols
from fedhist.session.codec import LATER, protocol_digest, query_digest
from simulations.cli.main import main
from simulations.runs.data_ledger import Cap, CapExceeded, DataLedger
from simulations.runs.run import Options, execute

HERE = Path(__file__).resolve().parent
FILES = HERE / "files"
sys.path.append(str(HERE.parent))  # run as a script

from processor import ESTIMATES, fingerprint  # noqa: E402

SEED, OTHER_SEED = 20, 21
LONG, FIRST = 16, 4
MORE = json.loads((HERE / "more.json").read_text())  # what one or two names cannot say
JOURNALLED = ("adaptive-histogram", "mean")  # central, and local: both of two rounds or more
OWNER = {"trust": "local", "epsilon": 2.0}
NAME = re.compile(r"[a-z0-9][a-z0-9-]+")
OLDER = "sweep-older.sqlite"
"""Of a version whose cells said nothing of trivial answers, and of no adjacency unless asked."""

SWEEP = ("sweep", "sweep.toml", "--out", "sweep.sqlite", "--workers", "0")


# -- estimates -------------------------------------------------------------------------------------


def choices(example: Protocol) -> dict[str, list[Any]]:
    """Find the other values of every field that takes a name from a list, or a yes or no."""
    found = {}
    hints = get_type_hints(type(example))
    for field in fields(example):
        hint, names = hints[field], list[Any]()
        if hint is bool:
            names = [False, True]
        elif get_origin(hint) is Literal:
            names = list(get_args(hint))
        elif hint is str:
            try:
                dataclasses.replace(example, **{field: "?"})
            except ValueError as e:  # a refusal names what there is
                names = sorted({*NAME.findall(str(e)), *(a.value for a in Adjacency)})
        found[field] = [n for n in names if n != getattr(example, field)]
    return found


def fields(protocol: Protocol) -> list[str]:
    """Name a protocol's fields, but for the one that a digest leaves out where it is None."""
    return [f.name for f in dataclasses.fields(protocol) if f.name != LATER]


def variants(example: Protocol) -> Iterator[dict[str, Any]]:
    """Yield the changes of the example that its class takes: one name, two names, and MORE."""
    names = choices(example)
    single = [{field: name} for field, found in names.items() for name in found]
    pairs = [a | b for a, b in combinations(single, 2) if a.keys() != b.keys()]
    pairs = [p for p in pairs if not any(isinstance(v, bool) for v in p.values())]
    for changes in [{}, *single, *pairs, *MORE.get(example.name, [])]:
        try:
            dataclasses.replace(example, **changes).guarantee  # noqa: B018
        except ValueError:
            continue
        yield changes


def numbers(values: Any) -> dict[str, Any]:
    """Write numbers down; see the module's docstring."""
    a = np.asarray(values)
    kind, write = ("floats", float.hex) if a.dtype.kind == "f" else ("ints", int)
    flat = a.ravel().tolist()
    out = {"type": a.dtype.str, "shape": list(a.shape)}
    if len(flat) > LONG:
        out["sha256"] = hashlib.sha256(a.astype(a.dtype.newbyteorder("<")).tobytes()).hexdigest()
        flat = [math.fsum(flat) if kind == "floats" else sum(flat), *flat[:FIRST]]
    return {**out, kind: [write(x) for x in flat]}


def estimated(estimate: Estimate) -> dict[str, Any]:
    """Write an estimate and its ledger down."""
    e, ledger = estimate, estimate.ledger
    out: dict[str, Any] = {"status": e.status, "reason": e.reason, "warnings": list(e.warnings)}
    out |= {k: numbers(v) for k, v in (("value", e.value), ("stderr", e.stderr)) if v is not None}
    out |= {"keys": list(e.keys)} if e.keys is not None else {}
    out["public"] = {k: numbers(v) for k, v in sorted(e.public.items())}
    out["charges"] = [
        [
            c.label,
            numbers([c.release.epsilon, c.release.delta, c.release.rho, c.release.slack]),
            [] if c.cohort is None else [c.cohort.salt, numbers([c.cohort.lo, c.cohort.hi])],
        ]
        for c in (ledger.entries if ledger is not None else ())
    ]
    return out


def run(protocol: Protocol, **options: Any) -> tuple[Estimate, list[Query]]:
    """Run a protocol on the users of its example, on one thread, as BLAS sums by threads."""
    asked: list[Query] = []
    given = {"seed": SEED, "watch": asked.append} | options
    with threadpool_limits(1):
        return execute(protocol, protocol.example_users(), Options(**given)).estimate, asked


def ran(protocol: Protocol) -> dict[str, Any]:
    """Run a protocol and write down what was asked and answered."""
    estimate, asked = run(protocol)
    return {
        "protocol": protocol_digest(protocol),
        "guarantee": [str(protocol.guarantee), str(protocol.claimed)],
        "queries": [[q.wire_name, query_digest(q, i)] for i, q in enumerate(asked)],
        "estimate": estimated(estimate),
    }


def evaluated(protocol: Protocol) -> dict[str, Any]:
    """Write down what is said of an example's truth, and its run with sums drawn from their law."""
    users = protocol.example_users()
    with threadpool_limits(1):
        truth, bound = protocol.truth(users), protocol.error(users)
    try:
        sums: Any = estimated(run(protocol, clients="aggregate")[0])
    except NotImplementedError as e:
        sums = str(e)
    return {
        "fields": fields(protocol),
        "truth": numbers(truth),
        "bound": [bound.loss, numbers(bound.expected), bound.exact],  # its source names modules
        "aggregate": sums,
    }


def estimates(name: str, changes: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """Run a protocol's example with these changes; default: with all of its variants."""
    example = own_protocols()[name].example()
    found = list(variants(example)) if changes is None else changes
    runs = [{"changes": c, **ran(dataclasses.replace(example, **c))} for c in found]
    return {"example": evaluated(example), "runs": runs}


def revisions() -> dict[str, int]:
    """Return the revision of every own protocol's law that has had another one."""
    return {name: cls.revision for name, cls in own_protocols().items() if cls.revision}


# -- files -----------------------------------------------------------------------------------------


def guarded() -> dict[str, Any]:
    """Ask a node whose guard's folder is ./guard: two parts of its users, one of them again."""
    local = own_protocols()[JOURNALLED[1]].example()
    central = own_protocols()[JOURNALLED[0]].example()
    (first, *_, last), counts = run(local)[1], run(central)[1][0]
    other_part = dataclasses.replace(first, cohort=last.cohort)
    users, store = local.example_users(), FolderStore("guard")
    node = Node(NodeSetup(users, 0, None, OWNER))
    answers = []
    for query, number in ((first, 0), (other_part, 1), (first, 2), (counts, 0)):
        body = decode_answer(node.answer(encode_question(query, number), store)).body
        sums = body if isinstance(body, str) else {k: numbers(v) for k, v in body.sums.items()}
        answers.append([query_digest(query, number), sums])
    guard = Guard(Policy(epsilon=OWNER["epsilon"]), store.answered())
    return {"answers": answers, "spent": numbers(guard.spent(users.ids))}


def booked(book: DataLedger) -> dict[str, Any]:
    """Go on with a ledger: the reserved run again, one over the cap, and settle the first."""
    central = Guarantee(1.0, 1e-6, Trust.CENTRAL, Adjacency.ZERO_OUT_USER)
    out: dict[str, Any] = {"total": numbers(book.total()), "again": reserve(book, central, "a-run")}
    out |= {"over": reserve(book, dataclasses.replace(central, epsilon=9.0), "b-run")}
    book.settle(out["again"], None)
    return out | {"settled": numbers(book.total()), "states": [s.state for s in book.read()[1]]}


def reserve(book: DataLedger, guarantee: Guarantee, run: str) -> int | str:
    """Return the number of the line, or the refusal."""
    try:
        return book.reserve("golden", guarantee, run)
    except CapExceeded as e:
        return str(e)


def command(*arguments: str) -> str:
    """Run ``fedhist ARGUMENTS`` and return what it prints."""
    before, printed = sys.argv, io.StringIO()
    sys.argv = ["fedhist", *arguments]
    try:
        with redirect_stdout(printed):
            main()
    except SystemExit as ended:
        if ended.code:
            raise
    finally:
        sys.argv = before
    return printed.getvalue()


def cells(file: str) -> list[list[Any]]:
    """Read the cells of a sweep's file without this project's code."""
    with closing(sqlite3.connect(file)) as db:
        rows = db.execute("SELECT key, label, status, loss, predicted FROM cells ORDER BY key")
        return [[*row[:3], numbers(row[3:])] for row in rows]


def results(file: str) -> list[str]:
    """Print a sweep's table; its words, as its rules are as long as the terminal is wide."""
    return [w for w in command("results", file).split() if w[0] != "─"]


def write_files() -> dict[str, Any]:
    """Write the files into the current folder; returns what reading them must give."""
    resumed = {}
    for name in JOURNALLED:
        example = own_protocols()[name].example()
        run(example, journal=f"{name}-ended")
        whole = Path(f"{name}-ended/journal.jsonl").read_bytes()
        # killed before the second answer: its line, of a local or a central round, is missing
        cut = re.search(rb'{"kind":"(summary|exact)","index":1', whole)
        for folder in (f"{name}-unfinished", "again"):
            Path(folder).mkdir()
            left = whole[: cut.start()]  # type: ignore[union-attr]
            Path(folder, "journal.jsonl").write_bytes(left)
            lines = left.splitlines()
            tally = {"entries": len(lines), "chain": json.loads(lines[-1])["chain"]}
            Path(folder, "tally.json").write_text(json.dumps(tally))
        again = run(example, journal="again", seed=OTHER_SEED)
        resumed[name] = [len(again[1]), estimated(again[0])]
        shutil.rmtree("again")
    book = DataLedger("ledger.json")
    book.set_cap(Cap(4.0, 1e-5))
    local = own_protocols()[JOURNALLED[1]].example()
    book.settle(book.reserve("local", local.guarantee), run(local)[0].ledger)
    reserve(book, Guarantee(1.0, 1e-6, Trust.CENTRAL, Adjacency.ZERO_OUT_USER), "a-run")
    shutil.copy("ledger.json", "kept.json")
    out = {"resumed": resumed, "guard": guarded(), "ledger": booked(book)}
    os.replace("kept.json", "ledger.json")
    shutil.copy(FILES / "sweep.toml", ".")
    command(*SWEEP)
    out |= {"cells": cells("sweep.sqlite"), "results": results("sweep.sqlite")}
    shutil.copy(FILES / OLDER, ".")
    out["results_older"] = results(OLDER)
    for lock in list(Path().rglob("*lock")):
        lock.unlink()
    return out


def write_record(*names: str) -> None:
    """Rewrite the entries of the protocols named, and files/ where one of them wrote these; or all.

    The fingerprint is that of the last whole record; an entry that another machine renews has one
    of its own.
    """
    load_builtin()
    body: dict[str, Any] = {"fingerprint": fingerprint(), "protocols": {}}
    if names:
        body = json.loads(ESTIMATES.read_text(encoding="utf-8"))
    if not names or {*names} & {*JOURNALLED}:
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            body["files"] = write_files()
            shutil.rmtree(FILES)
            shutil.copytree(folder, FILES)
            FILES.chmod(0o755)
    here = {} if body["fingerprint"] == fingerprint() else {"fingerprint": fingerprint()}
    body["protocols"] |= {name: estimates(name) | here for name in names or own_protocols()}
    body["revisions"] = revisions()
    text = json.dumps(body, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    ESTIMATES.write_text(text.replace('{"changes"', '\n{"changes"') + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_record(*sys.argv[1:])
