"""Servers killed with SIGKILL, and what their restarts make of the journal.

A server is a forked process with a journal on disk. It is killed around and in the middle of each
write, between a draw and its journal line, between a draw and the next query, between an answer and
its journal line, around the deletion of an exact copy. The last restart runs to the end. No exact
copy may be found beside a release that was drawn from it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import signal
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import fedhist as fh
from fedhist.base import chained_log
from fedhist.model.codec import summary_arrays
from fedhist.model.registry import protocol_class
from server.noise import noise_source
from server.session import journal as module
from server.session.curator import NoiseSource
from server.session.journal import Journal
from server.session.session import Session
from simulations.contract.law import demand_same_estimate
from simulations.runtimes.inline import InlinePopulation

SEED = 31
Ask = Callable[[fh.Query, int], fh.Summary]
Make = Callable[[Journal], Ask]
"""Makes the population that a server with this journal asks."""
Point = int | tuple[str, int]
"""The number of a point, or a name and how many points of that name come before."""

SECURE: dict[str, dict[str, Any]] = {
    "adaptive-histogram": {"discrete": True},
    "bounded-histogram": {"grid": 1 / 64},
    "box-mean": {"discrete": True},
    "central-density": {"discrete": True},
    "central-mean": {"discrete": True},
    "few-users-distribution": {"method": "large-n", "samples_per_user": 100, "epsilon": 20.0},
    "few-users-mean": {"method": "large-n", "epsilon": 16.0},
    "poisson-counts": {"discrete": True},
    "user-level-erm": {"discrete": True},
}
"""What an example needs for secure noise; the others are served as they are."""


@dataclasses.dataclass(frozen=True)
class Case:
    """One protocol's example in one grade of noise."""

    name: str
    grade: str

    @property
    def protocol(self) -> fh.Protocol:
        example = protocol_class(self.name).example()
        changes = SECURE.get(self.name, {}) if self.grade == "secure" else {}
        return dataclasses.replace(example, **changes)

    @cached_property
    def users(self) -> fh.Users:
        return protocol_class(self.name).example_users()

    def ask(self, _: Journal) -> Ask:
        seed = None if self.grade == "secure" else SEED
        return InlinePopulation(self.users.split(2), seed).ask

    @cached_property
    def reference(self) -> tuple[fh.Estimate, list[bytes]]:
        with tempfile.TemporaryDirectory() as folder:
            estimate, _ = finish(self, Path(folder), self.ask)
            return estimate, lines_of(Path(folder) / "journal")


class Recorded:
    """The case's noise, and which draws were made."""

    def __init__(self, case: Case) -> None:
        self.grade = case.grade
        self.drawn: list[int] = []
        self._make = noise_source(case.grade, SEED, case.protocol)

    def __call__(self, index: int) -> NoiseSource:
        self.drawn.append(index)
        return self._make(index)


def logged(make: Make, folder: Path) -> Make:
    def made(journal: Journal) -> Ask:
        ask = make(journal)

        def asked(query: fh.Query, number: int) -> fh.Summary:
            summary = ask(query, number)
            digest = hashlib.sha256(str(summary.n_users).encode())
            for name, a in sorted(summary_arrays(summary).items()):
                digest.update(f"{name} {a.dtype} {a.shape}".encode() + a.tobytes())
            append(folder / "asked", f"{number} {digest.hexdigest()}\n".encode())
            return summary

        return asked

    return made


def finish(case: Case, folder: Path, make: Make) -> tuple[fh.Estimate, Session]:
    journal = Journal(folder / "journal")
    session = Session(case.protocol, Recorded(case), journal)
    return session.run(make(journal)), session


def written(path: Path) -> str:
    what = {"journal.jsonl": "a journal line", "tally.json": "a tally"}
    return what.get(path.name, "an exact copy")


class Points:
    """Counts the points that a server passes, and kills it at one of them."""

    def __init__(self, folder: Path, at: Point | None) -> None:
        self.folder, self.at, self.passed = folder, at, 0
        self.names: Counter[str] = Counter()

    def due(self, name: str) -> bool:
        here: list[Point] = [self.passed, (name, self.names[name])]
        self.passed += 1
        self.names[name] += 1
        if self.at not in here:
            return False
        (self.folder / "killed").write_text(name)
        return True

    def reach(self, name: str) -> None:
        if self.due(name):
            os.kill(os.getpid(), signal.SIGKILL)

    def install(self) -> None:
        write, release, drop = module.write_private, Journal.release, Journal.drop_exact
        replace = os.replace

        def writing(path: Path, data: bytes, *, append: bool = False) -> None:
            what = written(path)
            self.reach(f"before {what}")
            if self.due(f"in the middle of {what}"):
                target = path if append else path.with_suffix(path.suffix + ".part")
                with target.open("ab" if append else "wb") as f:
                    f.write(data[: len(data) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            write(path, data, append=append)
            self.reach(f"after {what}")

        def renaming(source: Any, target: Any) -> None:
            self.reach(f"{written(Path(target))} written, not renamed")
            replace(source, target)

        def releasing(journal: Journal, *args: Any) -> None:
            self.reach("drawn, not journalled")
            release(journal, *args)
            self.reach("drawn and journalled, before the next query")

        def dropping(journal: Journal, index: int) -> None:
            self.reach("before an exact copy is deleted")
            drop(journal, index)
            self.reach("after an exact copy is deleted")

        module.write_private = chained_log.write_private = writing
        os.replace = renaming
        Journal.release, Journal.drop_exact = releasing, dropping

    def ask(self, make: Make) -> Make:
        def made(journal: Journal) -> Ask:
            ask = make(journal)

            def asked(query: fh.Query, number: int) -> fh.Summary:
                self.reach("a query is pending")
                summary = ask(query, number)
                self.reach("answered, not journalled")
                return summary

            return asked

        return made


def serve(case: Case, folder: Path, make: Make, at: Point | None) -> str:
    """Run a server in a process of its own; it dies at a point."""
    (folder / "killed").unlink(missing_ok=True)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            points = Points(folder, at)
            points.install()
            finish(case, folder, points.ask(logged(make, folder)))
            append(folder / "passed", f"{points.passed}\n".encode())
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return (folder / "killed").read_text()
    assert os.WEXITSTATUS(status) == 0, f"the server of {case} failed"
    return ""


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as f:
        f.write(data)


def lines_of(journal: Path) -> list[bytes]:
    file = journal / "journal.jsonl"
    raw = file.read_bytes() if file.exists() else b""
    return raw[: raw.rfind(b"\n") + 1].splitlines(keepends=True)


def numbers(lines: list[bytes], *kinds: str) -> set[int]:
    return {x["index"] for x in map(json.loads, lines) if x["kind"] in kinds}


def asked_of(folder: Path) -> list[tuple[int, str]]:
    file = folder / "asked"
    text = file.read_text().splitlines() if file.exists() else []
    return [(int(line.split()[0]), line.split()[1]) for line in text]


@dataclasses.dataclass
class Trial:
    """One server killed once or twice and restarted to the end; what went wrong is listed."""

    case: Case
    kills: list[str]
    faults: list[str]
    asked_again: int = 0
    exact_left: int = 0


def trial(
    case: Case,
    folder: Path,
    points: Sequence[Point],
    ask: Make | None = None,
) -> Trial:
    """Kill a server at each point in turn, then let a restart end, and check all that must hold."""
    folder.mkdir(parents=True)
    make, journal = ask or case.ask, folder / "journal"
    done = Trial(case, [], [])
    before: list[bytes] = []
    n_asked = 0

    def claim(holds: bool, fault: str) -> None:
        if not holds:
            done.faults.append(f"{case.name}, {case.grade}, killed {done.kills}: {fault}")

    def settle() -> list[bytes]:
        nonlocal n_asked
        after = lines_of(journal)
        claim(after[: len(before)] == before, "journalled lines changed")
        # what was asked next shows that the answer before had been used
        settled = numbers(before, "summary", "forgotten")
        settled |= {number - 1 for number in numbers(before, "query")}
        fresh = asked_of(folder)[n_asked:]
        claim(not settled & {number for number, _ in fresh}, "a settled round was asked again")
        n_asked += len(fresh)
        return after

    for at in points:
        killed = serve(case, folder, make, at)
        if not killed:
            break
        done.kills.append(killed)
        before = settle()
        files = list(journal.glob("exact-*"))
        done.exact_left += bool(files)
        claim(len(files) <= 1, f"{len(files)} exact copies at once")
        claim(not outlived(before, files), "an exact copy beside a release drawn from it")
    if journal.exists():
        Journal(journal).close()
        wanted = numbers(before, "exact") - numbers(before, "forgotten")
        files = list(journal.glob("exact-*"))
        claim(
            {f.name for f in files} <= {f"exact-{i}.json" for i in wanted},
            f"{files} outlive what was drawn from them",
        )
    released = numbers(before, "release")
    estimate, session = finish(case, folder, logged(make, folder))
    final = settle()
    claim(not released & set(session._curator._noise.drawn), "a journalled draw was repeated")
    times = Counter((x["kind"], x["index"]) for x in map(json.loads, final))
    claim(max(times.values()) == 1, "two journal lines with one number")
    claim(numbers(final, "release") == set(range(session._curator._index)), "a release is missing")
    claim(not list(journal.glob("exact-*")), "an exact copy is left")
    answers = defaultdict(list)
    for number, digest in asked_of(folder):
        answers[number].append(digest)
    done.asked_again = sum(len(a) - 1 for a in answers.values())
    spent = estimate.ledger.spent().epsilon if estimate.ledger else 0.0
    claim(spent <= case.protocol.guarantee.epsilon * (1 + 1e-9), f"epsilon {spent} was spent")
    if case.grade == "simulated":
        whole, lines = case.reference
        claim(all(len(set(a)) == 1 for a in answers.values()), "another answer to a question")
        claim(nameless(final) == nameless(lines), "another journal than one that nobody killed")
        claim(same(estimate, whole), "another estimate than that of a run that nobody killed")
    else:
        claim(estimate.status in ("ok", "failed"), f"status {estimate.status}")
    again, replayed = finish(case, folder, logged(make, folder))
    claim(same(again, estimate), "the finished journal gives another estimate")
    claim(not replayed._curator._noise.drawn, "the finished journal draws")
    claim(len(asked_of(folder)) == n_asked, "the finished journal asks")
    return done


def outlived(lines: list[bytes], files: list[Path]) -> set[str]:
    result, current = set[str](), set[str]()
    for line in map(json.loads, lines):
        if line["kind"] in ("exact", "summary"):
            current = {f"exact-{line['index']}"}
        elif line["kind"] == "release":
            result |= current
    return result & stems(files)


def stems(files: list[Path]) -> set[str]:
    return {f.name.partition(".")[0] for f in files}


def nameless(lines: list[bytes]) -> list[dict[str, Any]]:
    drawn = ("name", "chain")
    return [{k: v for k, v in json.loads(line).items() if k not in drawn} for line in lines]


def same(a: fh.Estimate, b: fh.Estimate) -> bool:
    try:
        demand_same_estimate(a, b, "An estimate")
    except AssertionError:
        return False
    charges = [None if e.ledger is None else e.ledger.entries for e in (a, b)]
    return dict(a.public) == dict(b.public) and charges[0] == charges[1]


def scout(case: Case, folder: Path) -> int:
    folder.mkdir(parents=True)
    assert serve(case, folder, case.ask, None) == ""
    return int((folder / "passed").read_text())
