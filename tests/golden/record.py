"""Write the golden record: what this code answers and writes, which no later commit may change.

``python tests/golden/record.py [PROTOCOL ...]`` rewrites the record, or the files of some
protocols, from today's code. Do so only in a commit that says why their answers may change; one
that moves or renames code never does.

``protocols/NAME.json`` has the digests, the estimate and what was charged of an inline run with a
fixed seed, a line for each of the ``changes`` of its example that the file names: whoever adds an
option writes a line ``{"changes": ...}`` and runs this. ``files/`` has what runs left behind,
journals, a guard's folder, a data set's ledger, a sweep, and ``files.json`` what reading them
gives.
"""

import dataclasses
import hashlib
import io
import json
import math
import os
import re
import shutil
import sys
import tempfile
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from clients.guard import Guard, Policy
from clients.guard_folder import FolderStore
from clients.node import Node
from fedhist import Adjacency, Estimate, Guarantee, Protocol, Query, Trust
from fedhist.flower.host import NodeSetup
from fedhist.flower.wire import decode_answer, encode_question
from fedhist.model.codec import protocol_digest, query_digest
from fedhist.model.registry import load_builtin, own_protocols
from simulations.cli.main import main
from simulations.runs.data_ledger import Cap, CapExceeded, DataLedger
from simulations.runs.options import Options
from simulations.runs.run import execute

HERE = Path(__file__).resolve().parent
PROTOCOLS, FILES, READ = HERE / "protocols", HERE / "files", HERE / "files.json"

SEED, OTHER_SEED = 20, 21
LONG, FIRST = 16, 4
JOURNALLED = ("adaptive-histogram", "mean")  # central, and local: both of two rounds or more
OWNER = {"trust": "local", "epsilon": 2.0}

SWEEP = ("compare", "sweep.toml", "--out", "study")


# -- estimates -------------------------------------------------------------------------------------


def numbers(values: Any) -> dict[str, Any]:
    """Write an array down: a long one as its first entries, and numbers that hang on every entry.

    Of floats these are the largest, the sum, that of sizes, and a projection that no order leaves
    as it is; of whole numbers the sum and a digest of the bytes.
    """
    a = np.asarray(values)
    out: dict[str, Any] = {"type": a.dtype.str, "shape": list(a.shape)}
    kind = "floats" if a.dtype.kind == "f" else "ints"
    if a.size <= LONG:
        return {**out, kind: short(a.ravel().tolist())}
    flat = a.ravel()
    if kind == "floats":
        sizes, waves = np.abs(flat), np.cos(np.arange(1, len(flat) + 1))
        whole = [sizes.max(), *map(math.fsum, (flat, sizes, flat * waves))]
    else:
        out["sha256"] = hashlib.sha256(a.astype(a.dtype.newbyteorder("<")).tobytes()).hexdigest()
        whole = [sum(flat.tolist())]
    return {**out, kind: short([*whole, *flat[:FIRST].tolist()])}


def short(values: Any) -> list[Any]:
    """Write floats with the digits that every machine agrees on."""
    return [float(f"{x:.12g}") if isinstance(x, float) else int(x) for x in values]


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
            short([c.release.epsilon, c.release.delta, c.release.rho, c.release.slack]),
            [] if c.cohort is None else [c.cohort.salt, *short([c.cohort.lo, c.cohort.hi])],
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


def recorded(name: str) -> dict[str, Any]:
    """Return a protocol's record; of a new one, that its example is to be run."""
    file = PROTOCOLS / f"{name}.json"
    if not file.exists():
        return {"runs": [{"changes": {}}]}
    body: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return body


def estimates(name: str) -> dict[str, Any]:
    """Run a protocol's example, with the changes that its record has."""
    cls = own_protocols()[name]
    example = cls.example()
    try:
        sums: Any = estimated(run(example, clients="aggregate")[0])
    except NotImplementedError as e:
        sums = str(e)
    given = [r["changes"] for r in recorded(name)["runs"]]
    return {
        "revision": cls.revision,
        "truth": numbers(example.truth(example.example_users())),
        "aggregate": sums,
        "runs": [{"changes": c, **ran(dataclasses.replace(example, **c))} for c in given],
    }


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


def cells(folder: str) -> list[list[Any]]:
    """Read the cells of a study's folder without this project's code."""
    lines = Path(folder, "records.jsonl").read_text(encoding="utf-8").splitlines()
    rows = sorted(map(json.loads, lines), key=lambda r: r["key"])
    return [[r["key"], r["label"], r["status"], numbers([r["loss"], r["predicted"]])] for r in rows]


def results(folder: str) -> list[str]:
    """Print a study's table; its words, as its rules are as long as the terminal is wide."""
    return [w for w in command("show", folder).split() if w[0] != "─"]


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
    out |= {"cells": cells("study"), "results": results("study")}
    for drawn in ("figure.png", "report.html"):  # may differ by machine
        Path("study", drawn).unlink()
    for lock in list(Path().rglob("*lock")):
        lock.unlink()
    return out


def text_of(entry: dict[str, Any]) -> str:
    """Write an entry with a line for each of its members and its runs."""

    def line(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))

    runs = ",\n".join(map(line, entry["runs"]))
    rest = "".join(f'"{k}":{line(v)},\n' for k, v in entry.items() if k != "runs")
    return f'{{{rest}"runs":[\n{runs}\n]}}\n'


def write_record(*names: str) -> None:
    """Rewrite the protocols named, and files/ where one of them wrote these; or all."""
    load_builtin()
    if not names or {*names} & {*JOURNALLED}:
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            read = write_files()
            shutil.rmtree(FILES)
            shutil.copytree(folder, FILES)
            FILES.chmod(0o755)
        READ.write_text(json.dumps(read, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    for name in names or own_protocols():
        (PROTOCOLS / f"{name}.json").write_text(text_of(estimates(name)), encoding="utf-8")


if __name__ == "__main__":
    write_record(*sys.argv[1:])
