"""Every experiment in one go, and one page with a verdict per row."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

import fedhist
from fedhist.base.errors import FedhistError, PopulationError
from simulations.experiments.base import Request, Result
from simulations.experiments.catalogue import Experiment, experiment, names
from simulations.experiments.report import causes, cells, write_result
from simulations.reporting.json_files import write_json
from simulations.reporting.table import Table, markdown
from simulations.reporting.targets import check_folder, whole_folder
from simulations.runs.results import git_revision

REPRODUCTION = "reproduction"
"""The kind of folder that holds all experiments."""

PAGE = "reproduction.md"
Report = Callable[[str], None]


@dataclass(frozen=True)
class Done:
    """One experiment of the page.

    Attributes
    ----------
    what : Experiment
    request : Request or None
        None where it could not be asked.
    result : Result or None
    seconds : float
    problem : str
        Why there is no result: a missing file, or the error.
    broken : bool
        Whether the problem is an error, and not a file that is not here.
    """

    what: Experiment
    request: Request | None
    result: Result | None
    seconds: float
    problem: str = ""
    broken: bool = False


def reproduce_all(
    chosen: Iterable[str] = (),
    *,
    quick: bool = False,
    seed: int = 0,
    report: Report | None = None,
    workers: int | None = 0,
    address: str | None = None,
) -> Iterator[Done]:
    """Run experiments, one after another or as tasks; an error in one does not stop the others.

    Parameters
    ----------
    chosen : iterable of str
        Names; by default every experiment there is.
    quick : bool
        Small sizes, which are not judged.
    seed : int
    report : callable, optional
        Called with the name of each experiment before it runs, or on Ray when it has ended.
    workers : int, optional
        0: in this process. Else experiments are tasks on Ray, as many at a time; None: as many as
        Ray has CPUs. They are yielded as they end.
    address : str, optional
        Join this Ray cluster.
    """
    asked = [(name, quick, seed) for name in list(chosen) or names()]
    if workers == 0:
        for one in asked:
            if report is not None:
                report(one[0])
            yield _reproduced(one)
        return
    from simulations.runtimes.ray_tasks import on_ray

    for (name, *_), found in on_ray(_reproduced, asked, workers, address):
        if report is not None:
            report(name)
        if isinstance(found, Exception):
            why = f"{type(found).__name__}: {found}"
            found = Done(experiment(name), None, None, 0.0, why, broken=True)
        yield found


def _reproduced(asked: tuple[str, bool, int]) -> Done:
    """Run one experiment: its name, whether quickly, its seed."""
    name, quick, seed = asked
    what, started, request = experiment(name), time.perf_counter(), None
    if not what.without_file:
        wanted = ", ".join(what.populations)
        return Done(what, None, None, 0.0, f"needs the file of {wanted}: give it with --data")
    try:
        request = what.request(population=what.without_file[0], seed=seed, quick=quick)
        result = what.run(request)
    except (FedhistError, PopulationError, ValueError, ArithmeticError, MemoryError) as e:
        spent = time.perf_counter() - started
        return Done(what, request, None, spent, f"{type(e).__name__}: {e}", broken=True)
    found = result.unjudged() if quick else result
    return Done(what, request, found, time.perf_counter() - started)


def print_all(
    console: Console,
    out: str,
    *,
    quick: bool,
    seed: int,
    force: bool = False,
    workers: int | None = 0,
    address: str | None = None,
) -> tuple[bool, bool]:
    """Run everything, write the page and print its overview; whether some row failed, or broke."""
    target = check_folder(out or Path("results") / "reproduction", REPRODUCTION, force=force)
    done = reproduce_all(
        quick=quick,
        seed=seed,
        report=lambda name: console.print(f"{name} ..."),
        workers=workers,
        address=address,
    )
    finished = write_page(done, target, quick=quick, seed=seed, force=force)
    for d in finished:
        if d.result is None:
            console.print(
                f"{d.what.name}: {'ERROR: ' if d.broken else ''}{d.problem}", markup=False
            )
            continue
        passed, failed, rest = counts(d.result)
        console.print(
            f"{d.what.name:28} {passed:4} PASS {failed:4} FAIL {rest:4} not judged "
            f"{d.seconds:6.0f} s"
        )
    console.print(f"written to {target / PAGE}", soft_wrap=True)
    failures = any(d.result is not None and d.result.failures for d in finished)
    return failures, any(d.broken for d in finished)


def write_page(
    done: Iterable[Done], target: Path, *, quick: bool, seed: int, force: bool = False
) -> list[Done]:
    """Write the page and a folder per experiment, as they finish; whole or not at all."""
    finished: list[Done] = []
    with whole_folder(target, REPRODUCTION, force=force) as part:
        for d in done:
            finished.append(d)
            if d.request is not None and d.result is not None:
                write_result(d.what, d.request, d.result, part / d.what.name)
        order = names()
        finished.sort(key=lambda d: order.index(d.what.name))  # tasks end in any order
        facts = {"experiment": "all", "quick": quick, "seed": seed, "version": fedhist.__version__}
        facts |= {"revision": git_revision()}
        write_json(part / "config.json", facts)
        (part / PAGE).write_text(page(finished, quick=quick, seed=seed), encoding="utf-8")
    return finished


def page(done: Iterable[Done], *, quick: bool, seed: int) -> str:
    """Write the page: an overview, then a table of rows per experiment. Markdown."""
    all_done = list(done)
    lines = ["# The papers measured again", ""]
    lines += [
        f"fedhist {fedhist.__version__}, revision {git_revision()}, seed {seed}. Values and "
        "tolerances stand in `simulations/experiments/configs`, fixed before anything was measured "
        "unless a file says otherwise. NOT PRIVATE: everything here is compared with the truth.",
        "",
    ]
    if quick:
        lines += ["A quick run: the sizes are too small to be judged.", ""]
    overview = ("Experiment", "Paper", "PASS", "FAIL", "Not judged", "Seconds")
    lines.append(markdown(Table.of(overview, map(_overview, all_done))))
    for d in all_done:
        lines += ["", f"## {d.what.title}", ""]
        lines += [f"Not run: {d.problem}."] if d.result is None else _section(d, d.result)
    return "\n".join(lines) + "\n"


def _overview(d: Done) -> tuple[str, ...]:
    name = f"`{d.what.name}`"
    if d.result is None:
        return name, d.what.paper, "ERROR" if d.broken else "not run"
    return name, d.what.paper, *map(str, counts(d.result)), f"{d.seconds:.0f}"


def counts(result: Result) -> tuple[int, int, int]:
    """Count what passes, fails and is not judged."""
    judged, failed = sum(c.judged for c in result.checks), len(result.failures)
    return judged - failed, failed, len(result.checks) - judged


def _section(d: Done, result: Result) -> list[str]:
    population = result.population or (d.request.population if d.request else "")
    lines = [f"`fedhist reproduce {d.what.name}`: {population}", ""]
    rows = []
    for c in result.checks:
        setting, quantity, paper, ours, _, interval, verdict = cells(c)
        rows.append((setting, quantity, paper or c.claim, ours, interval, verdict))
    header = ("Setting", "Quantity", "Paper", "Ours", "Allowed", "Verdict")
    lines.append(markdown(Table.of(header, rows)))
    for line in (*causes(result), *result.not_judged):
        lines += ["", f"- {line}"]
    if result.curves:
        lines += ["", f"![{result.title}]({d.what.name}/figure.png)"]
    return lines
