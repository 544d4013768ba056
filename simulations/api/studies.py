"""Studies as functions of data, and study files as objects."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedhist.model.registry import load_plugin
from simulations.api.inputs import (
    SHARED,
    TABLES,
    checked,
    files_of,
    plain,
    population_of,
    short,
    takes,
)
from simulations.config.named_files import settings_text
from simulations.config.reading import reading, tables_of
from simulations.populations.memory import Held, Memory
from simulations.studies.decide.question import DecideTable, question_of, question_text
from simulations.studies.study import CompareTable, SweepTable, study_of, study_text

if TYPE_CHECKING:
    from simulations.reporting.shown import Shown
    from simulations.studies.compared import Compared
    from simulations.studies.decide.decision import Decision
    from simulations.studies.decide.profile import Profile

EXAMPLES = {
    "population": '"kind": "zipf", "n_users": 1000',
    "protocol": '"name": "mean", "epsilon": 1.0',
    "adversary": '"kind": "corrupted", "fraction": 0.1',
    "run": '"seed": 1',
}


@dataclass(frozen=True, repr=False)
class Study:
    """A study file as an object: tables that all studies share, and a part for each.

    It, and every function that makes a study, takes as keywords

    - ``data``: a polars or pandas frame (or what gives one), :class:`fedhist.Users`, a path, or the
      table [population] as a dict; ``user``, ``item``, ``count``, ``value`` name its columns, and
      ``top`` or ``domain`` (a file, or for data in memory a list) the items that are counted;
    - ``population``, ``protocol``, ``adversary``, ``run``: the tables of a study file as dicts,
      which complete those of the file; ``protocol`` may be a protocol, or its class;
    - ``plugins``: Python files with protocols of your own;
    - the keys of the study's own table: ``epsilon=1.0``, ``seeds=20``.

    What these keys mean stands in the documentation of the study files. Everything runs in this
    process unless ``workers`` says otherwise. Results are NOT PRIVATE unless they say so.

    Attributes
    ----------
    name : str
    tables : mapping
        As in the file.
    source : str
        The file that paths of plugins are relative to.

    Examples
    --------
    >>> study = Study.open("quickstart")
    >>> study
    <Study quickstart: population, protocol, run>
    """

    name: str
    tables: Mapping[str, Any]
    source: str = ""
    _held: Held | None = field(default=None, compare=False)

    @classmethod
    @takes()
    def open(cls, file: str | Path, **given: Any) -> Study:
        """Open a study file, or a built-in configuration or study.

        Parameters
        ----------
        file : path or str
            A .toml file, or a name that ``fedhist list`` lists.
        **given
            Data and tables in place of the file's.

        Raises
        ------
        ValueError
            If there is none, or it is not TOML.
        """
        checked("Study.open", given, SHARED)
        if not isinstance(file, str | os.PathLike):
            raise TypeError(f"file must be a path or a name, got {short(file)}")
        return opened(file, "").given(**given)

    def given(self, **given: Any) -> Study:
        """Return the study with other data, or with more in its tables."""
        checked("Study.given", given, SHARED)
        table, held = population_of(given)
        tables = {k: plain(k, v) for k, v in self.tables.items()}
        for name in TABLES:
            if given.get(name) is not None:
                _complete(tables, name, plain(name, given[name]))
        if table is not None:
            if given.get("population") is not None:
                raise TypeError("give data or population, not both")
            tables["population"] = table
            tables["run"] = {**tables.get("run", {}), "nodes": 0}  # was of another population
        plugins = [os.path.abspath(p) for p in files_of("plugins", given.get("plugins"))]
        if plugins:
            for file in plugins:
                load_plugin(file)
            run = tables.get("run", {})
            tables["run"] = {**run, "plugins": [*run.get("plugins", ()), *plugins]}
        return replace(self, tables=tables, _held=held or self._held)

    def __repr__(self) -> str:
        return f"<Study {self.name}: {', '.join(sorted(self.tables))}>"

    @property
    def _told(self) -> str:
        """What errors are headed with, and what paths of plugins are relative to."""
        return self.source or self.name

    def _with(self, part: str, keys: Mapping[str, Any]) -> dict[str, Any]:
        """Complete a study's own table with keywords; protocols may be given by their names."""
        tables = {k: plain(k, v) for k, v in self.tables.items()}
        own = dict(tables.get(part, {}))
        for key, value in keys.items():
            if value is None:
                continue
            entry = plain(key, value)
            if key == "protocols" and isinstance(entry, list):
                entry = [{"name": v} if isinstance(v, str) else v for v in entry]
            own[key] = entry
        return tables | {part: own}


def opened(file: str | Path | Study | None, part: str) -> Study:
    """Open what a function was given as its study."""
    if isinstance(file, Study):
        return file
    if file is None:
        return Study(part or "study", {})
    if not isinstance(file, str | os.PathLike):
        hint = "" if isinstance(file, int | float) else " (users are given as data=...)"
        raise TypeError(f"the study must be a path, a name or a Study, got {short(file)}{hint}")
    source = os.fspath(file)
    find = {"compare": study_text, "decide": question_text}.get(part, _any_text)
    text, name = find(source)
    with reading(source):
        tables = tables_of(text)
    return Study(name, tables, source if Path(source).suffix == ".toml" else "")


def _any_text(source: str | Path) -> tuple[str, str]:
    try:
        return study_text(source)
    except ValueError:
        return settings_text(source, "study")


def _complete(tables: dict[str, Any], name: str, given: Any) -> None:
    """Put keys into a table; those of another protocol, or another population, replace it."""
    if name == "adversary" and isinstance(given, list):
        tables[name] = given
        return
    if not isinstance(given, Mapping):
        raise TypeError(f"{name} must be a table, such as {{{EXAMPLES[name]}}}, got {given!r}")
    if name == "adversary":
        tables[name] = [given]
        return
    there = tables.get(name, {})
    choice = {"protocol": "name", "population": "kind"}.get(name)
    if choice in given and there.get(choice) not in (None, given[choice]):
        there = {}
    tables[name] = {**there, **given}


@contextmanager
def _bar(shown: bool) -> Iterator[Callable[[float, float], None]]:
    """Yield what is called with how much is done, and of how much."""
    if not shown:
        yield lambda done, total: None
        return
    from rich.progress import Progress

    with Progress(transient=True) as bar:
        task = bar.add_task("runs", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _split(
    part: str, study: Any, given: dict[str, Any], *own: type
) -> tuple[Study, dict[str, Any]]:
    """Open a function's study with what is shared, and return the keys of its own tables."""
    checked(f"fedhist.{part}", given, SHARED, [f.name for t in own for f in fields(t)])
    shared = {k: v for k, v in given.items() if k in SHARED}
    whole = opened(study, part).given(**shared)
    if "population" not in whole.tables:
        raise TypeError(f"fedhist.{part} needs data: data=..., or population={{...}}")
    return whole, {k: v for k, v in given.items() if k not in SHARED}


@takes(CompareTable, SweepTable)
def compare(
    study: str | Path | Study | None = None,
    axes: Mapping[str, Sequence[Any]] | None = None,
    *,
    out: str | Path | None = None,
    workers: int | None = 0,
    force: bool = False,
    progress: bool = False,
    **given: Any,
) -> Compared:
    """Rank protocols of one target on the same users, at one budget; with axes, at each point.

    Parameters
    ----------
    study : path, str or Study, optional
        A .toml file, or a built-in study.
    axes : mapping, optional
        Values by "table.key": ``{"protocol.epsilon": [0.5, 1, 2]}``.
    out : path, optional
        Folder that keeps the study: cells that it has are not run again. Default: none.
    workers : int, optional
        Processes on Ray; 0 runs in this process, None takes all cores.
    force : bool
        Begin anew, whatever the folder holds.
    progress : bool
        Show a bar.
    **given
        Data, tables, and the keys of the tables [compare] and [sweep]: see :class:`fedhist.Study`.
        Of ``protocols``, names do, and protocols, and their classes. Without a common ``epsilon``
        nothing is ranked: [protocol] is run at each point of the grid.

    Returns
    -------
    Compared
        NOT PRIVATE: errors are measured against the truth.

    Raises
    ------
    TypeError
        For an argument that is not known, and for what is no data.
    ValueError, PopulationError
        For values that cannot be meant.

    Examples
    --------
    >>> import fedhist as fh
    >>> users = fh.Users.from_records({f"u{i}": {"tea": 1 + i % 3} for i in range(50)})
    >>> found = fh.compare(
    ...     data=users,
    ...     domain=["tea", "rye"],
    ...     protocols=["bounded-histogram"],
    ...     protocol={"clip": 3.0},
    ...     epsilon=1.0,
    ...     seeds=2,
    ... )
    >>> found.table["protocol"].to_list()[-1]
    'bounded-histogram'
    """
    from simulations.studies.compared import run_study

    if not isinstance(axes, Mapping | None):
        example = '{"protocol.epsilon": [0.5, 1, 2]}'
        raise TypeError(f"axes must be a mapping such as {example}, got {short(axes)}")
    whole, keys = _split("compare", study, given, CompareTable, SweepTable)
    ranked = "compare" in whole.tables or ("sweep" not in whole.tables and "epsilon" in keys)
    part = CompareTable if ranked else SweepTable
    checked("fedhist.compare", keys, [f.name for f in fields(part)])
    tables = whole._with(part.table, keys)
    if axes:
        tables["sweep"] = {**tables.get("sweep", {}), **plain("axes", axes)}
    if workers != 0 and tables["population"].get("kind") == Memory.kind:
        raise ValueError(
            f"data in memory are studied in this process: workers must be 0, got {workers!r} "
            "(write the data to a file, and give its path, for Ray)"
        )
    with reading(whole._told), _bar(progress) as tell:
        loaded = study_of(tables, whole._told, whole.name)
        return run_study(loaded, out, workers=workers, force=force, progress=tell)


def show(folder: str | Path) -> Shown:
    """Open a folder that a command has written, to which another process may be writing.

    Raises
    ------
    ValueError
        If there are no results.
    """
    from simulations.studies.folders import open_folder

    if not isinstance(folder, str | os.PathLike):
        raise TypeError(f"folder must be a path, got {short(folder)}")
    return open_folder(folder)


@takes(DecideTable)
def decide(
    study: str | Path | Study | None = None,
    *,
    profile: bool = False,
    progress: bool = False,
    **given: Any,
) -> Decision | Profile:
    """From data to a decision: which protocol under which trust, at which epsilon.

    Parameters
    ----------
    study : path, str or Study, optional
        A file of data, whose columns ``user``, ``item`` or ``value`` name; a .toml file, or a
        built-in question.
    profile : bool
        Return what the users are like, and stop.
    progress : bool
        Show a bar.
    **given
        Data, tables, and the keys of the table [decide]: see :class:`fedhist.Study`.
        ``error="10%"`` is a share of the answer's own size; ``effort="quick"`` is for notebooks;
        ``theory=True`` stops after the search, before fresh runs.

    Returns
    -------
    Decision or Profile
        NOT PRIVATE: errors are measured against the truth. ``decision.best("local")`` is the
        protocol of a level's answer, which :func:`fedhist.run` takes.

    Raises
    ------
    TypeError, ValueError, PopulationError
        As :func:`compare`.

    Examples
    --------
    >>> import fedhist as fh
    >>> users = fh.Users.from_records({f"u{i}": {"tea": 1 + i % 3} for i in range(500)})
    >>> decision = fh.decide(data=users, domain=["tea", "rye"], error="20%", trust="central")
    >>> protocol = decision.best("central")
    >>> fh.run(protocol, users, seed=1).status
    'ok'
    """
    if isinstance(study, str | os.PathLike) and Path(study).suffix not in ("", ".toml"):
        given, study = {"data": Path(study), **given}, None
    from simulations.studies.decide.decision import decide as answer
    from simulations.studies.decide.decision import profile_for

    whole, keys = _split("decide", study, given, DecideTable)
    if profile and not {"error", "epsilon"} & keys.keys():
        keys["epsilon"] = whole.tables.get("decide", {}).get("epsilon", 1.0)
    with reading(whole._told):
        question = question_of(whole._with("decide", keys), whole._told, whole.name)
    if profile:
        return profile_for(question)
    with _bar(progress) as tell:
        return answer(question, lambda _, share: tell(share, 1.0))
