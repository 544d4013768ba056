"""A study is run, kept in a folder, and comes back as an object that shows itself.

The folder holds ``study.toml``, which repeats it; ``records.jsonl``, a line for each finished cell;
``result.json``, which says what was asked and, once the study has ended, what came of each line;
``figure.png`` and ``report.html``. Another run of the same folder goes on where this one stopped.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from fedhist.base.files import whole_file
from simulations.adversaries import read_adversaries
from simulations.config.reading import to_toml
from simulations.reporting.files import (
    canonical,
    check_folder,
    json_text,
    kind_of,
    numbers,
    write_mark,
)
from simulations.reporting.shown import RESULT, Kept, NoFigureError, Shown
from simulations.reporting.table import Table
from simulations.studies import figures, tables
from simulations.studies.cells import Cell, Record, versions
from simulations.studies.contenders import Ready, set_up
from simulations.studies.levels import premise_of
from simulations.studies.losses import AS_COUNTS
from simulations.studies.runner import RECORDS, read_records, run_cells
from simulations.studies.study import SEEDS, Study, absolute
from simulations.studies.summary import Line, ranked

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STUDY = "study"
FILES = ("study.toml", RECORDS, RESULT, "figure.png", "report.html")


@dataclass(frozen=True, repr=False)
class Compared(Shown):
    """What came of a study. NOT PRIVATE: losses are computed from the truth.

    ``about``: what was asked, as plain data; ``planned``: without records; ``by_key``: by the keys
    of their cells; those that are there.
    """

    kind: ClassVar[str] = STUDY

    about: Mapping[str, Any]
    planned: tuple[Line, ...]
    by_key: Mapping[str, Record]

    @classmethod
    def open(cls, folder: str | Path) -> Self:
        """Read a folder, to which another process may be writing.

        Raises ValueError if it is no study's.
        """
        try:
            body = numbers(json.loads((Path(folder) / RESULT).read_text(encoding="utf-8")))
            lines = tuple(map(Line.planned, body.pop("lines")))
        except (OSError, ValueError, KeyError, TypeError) as e:
            raise ValueError(f"{folder} is not the folder of a study: {e}") from None
        return cls(body, lines, read_records(Path(folder)))

    @cached_property
    def lines(self) -> tuple[Line, ...]:
        """Every protocol in every setting, in the order of the table."""
        target, groups = self.about["target"], dict[str, list[Line]]()
        for line in self.planned:
            records = [self.by_key[k] for k in line.keys if k in self.by_key]
            counts = [r.in_counts() if (r.target, target) == AS_COUNTS else r for r in records]
            stated = tuple(r.in_loss(self.about["loss"]) for r in counts)
            place = canonical([line.setting, line.level])
            groups.setdefault(place, []).append(replace(line, records=stated))
        return tuple(line for group in groups.values() for line in ranked(group))

    @property
    def records(self) -> list[Record]:
        """All records, line by line, in the study's loss."""
        return [r for line in self.lines for r in line.records]

    @property
    def title(self) -> str:
        """What was compared, of which users, at which budget."""
        done = sum(k in self.by_key for line in self.planned for k in line.keys)
        total = sum(len(line.keys) for line in self.planned)
        told = "" if done == total else f" ({done:,} of {total:,} cells are done)"
        return f"{self.about['title']}{told}"

    def tables(self) -> Sequence[Table]:
        """Return a line for each protocol in each setting, the best first where they are ranked."""
        return [tables.table_of(self.about, self.lines)]

    def sections(self) -> Sequence[tuple[str, Sequence[str]]]:
        """Return what must be known to read the table."""
        return tables.sections_of(self.about, self.lines)

    def draw(self, figure: Figure) -> None:
        """Draw errors with their intervals: by rank, by level of trust, or over an axis."""
        if not any(line.mean is not None for line in self.lines):
            raise NoFigureError("there is nothing to draw: no run has an estimate")
        figures.draw(self.about, self.lines, figure)

    def document(self) -> dict[str, Any]:
        """Return result.json."""
        return {**self.about, "lines": [line.to_dict() for line in self.lines]}

    def write(self, folder: Path) -> None:
        """Write the study's own files into a folder."""
        whole_file(folder / "study.toml", to_toml(self.about["tables"]))
        body = "".join(r.to_json() + "\n" for r in self.by_key.values())
        whole_file(folder / RECORDS, body)
        whole_file(folder / RESULT, json_text(self.document()))


def run_study(
    study: Study,
    folder: str | Path | None = None,
    *,
    workers: int | None = 0,
    address: str | None = None,
    force: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Compared:
    """Run a study, and keep it in a folder.

    ``folder``: made if it is missing. Cells whose records it has are not run again; ``workers``:
    processes on Ray; 0 runs in this process; None takes all cores; ``address``: join this Ray
    cluster; ``force``: begin anew, whatever the folder holds; ``progress``: called with the cells
    that are done and with all. Raises ValueError, PopulationError for what cannot be configured,
    and a folder that holds something else.
    """
    place = None if folder is None else check_folder(folder, STUDY, force=force)
    about, lines, cells = plan_of(study)
    asked = Compared({**about, "status": "running"}, tuple(lines), {})
    if place is not None:
        if force and place.exists():
            shutil.rmtree(place)
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_mark(place, STUDY, list(FILES))
        whole_file(place / "study.toml", to_toml(about["tables"]), mode=0o600)
        whole_file(place / RESULT, json_text(asked.document()), mode=0o600)
    records = run_cells(cells, place, workers=workers, address=address, progress=progress)
    done = Compared({**about, "status": "done"}, tuple(lines), records)
    if place is not None:
        whole_file(place / RESULT, json_text(done.document()), mode=0o600)
        with suppress(NoFigureError):
            whole_file(place / "figure.png", done.written("png"), mode=0o600)
        whole_file(place / "report.html", done.written("html"), mode=0o600)
    return done


def plan_of(study: Study) -> tuple[dict[str, Any], list[Line], list[Cell]]:
    """Return the facts about the study, its lines and their cells."""
    lines: dict[str, Line] = {}
    cells: list[Cell] = []

    def add(line: Line, own: Sequence[Cell]) -> None:
        setting = {k: v for k, v in line.setting.items() if k not in SEEDS}
        name = canonical([line.label, line.level, setting])
        there = lines.get(name, replace(line, setting=setting))
        lines[name] = replace(there, keys=(*there.keys, *(c.key for c in own)))
        cells.extend(own)

    readies = []
    for setting, comparison in study.points:
        ready = set_up(comparison)
        readies.append(ready)
        for c in ready.contenders:
            level = "" if c.level is None else c.level.value
            believed = None if c.level is None else premise_of(c.protocol)
            named = Line(c.label, c.protocol.name, (), setting, c.flags, level, believed, c.bounds)
            add(named, ready.cells_of(c))
    about = {
        "kind": STUDY,
        "name": study.name,
        "tables": _repeated(study),
        "axes": _axes(list(lines.values())),
        "run": {"noise": study.run.noise, "clients": study.run.clients},
        "versions": versions(),
    }
    return about | _about(readies), list(lines.values()), cells


def _repeated(study: Study) -> dict[str, Any]:
    """Return the tables that repeat a study from any folder."""
    tables = absolute(study.tables)
    if study.run.plugins:
        tables["run"] = {**tables.get("run", {}), "plugins": list(study.run.plugins)}
    return tables


def _about(readies: Sequence[Ready]) -> dict[str, Any]:
    """Say what a study compares; of several points, what holds at all of them."""
    first, c, about = readies[0], readies[0].comparison, readies[0].about
    alone = len(readies) == 1
    budgets = {(r.comparison.epsilon, r.comparison.delta) for r in readies}
    title = c.target if alone else f"{c.target}, {len(readies)} settings"
    if len({r.about["title"] for r in readies}) == 1:
        title += f": {about['title']}"
    budget = f"epsilon = {c.epsilon:g}, delta = {c.delta:g}, " if len(budgets) == 1 else ""
    tables = [dict(t) for r in readies for t in r.comparison.adversary]
    return {
        **about,
        "title": f"{title}; {budget}{c.adjacency.value}",
        "target": c.target,
        "budget": {"epsilon": c.epsilon, "delta": c.delta, "adjacency": c.adjacency.value},
        "neighbours": c.adjacency.in_words,
        "seeds": c.seeds,
        "loss": first.loss,
        "truth": first.truth.value,
        "levels": [t.value for t in c.levels],
        "adversary": list(dict.fromkeys(a.in_words for a in read_adversaries(tables))),
        "left_out": [list(x) for x in dict.fromkeys(x for r in readies for x in r.left_out)],
        "unreached": {k: v for r in readies for k, v in r.about["unreached"].items()},
    }


def _axes(lines: Sequence[Line]) -> list[str]:
    """Name the axes that tell lines apart."""
    keys = dict.fromkeys(k for line in lines for k in line.setting)
    return [k for k in keys if len({canonical(line.setting.get(k)) for line in lines}) > 1]


def open_folder(path: str | Path) -> Shown:
    """Read whatever results a folder holds; ValueError where it holds none."""
    folder = Path(path)
    if not folder.is_dir():
        old = folder.suffix == ".sqlite" and folder.is_file()
        why = " (files of sweeps up to 0.2.0 are not read: run the study again)" if old else ""
        raise ValueError(f"no such folder of results: {path}{why}")
    if kind_of(folder) == STUDY:
        return Compared.open(folder)
    if (folder / RESULT).is_file():
        return Kept.open(folder)
    raise ValueError(f"{path} has no {RESULT}: no command of this version wrote it")
