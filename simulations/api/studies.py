"""Studies as functions of data."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
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
)
from simulations.config.reading import reading, tables_of
from simulations.populations.memory import Held, Memory
from simulations.studies.decide.question import DecideTable, question_of, question_text
from simulations.studies.study import CompareTable, SweepTable, study_of, study_text

if TYPE_CHECKING:
    from simulations.reporting.shown import Shown
    from simulations.studies.compared import Compared
    from simulations.studies.decide.decision import Decision
    from simulations.studies.decide.profile import Profile


@dataclass(frozen=True)
class _Asked:
    """What a function was given: a study's tables, and the keys of its own table.

    ``source``: what errors are headed with, and what paths of plugins are relative to; ``held``:
    users in memory, for as long as they are studied.
    """

    name: str
    source: str
    tables: dict[str, Any]
    keys: dict[str, Any]
    held: Held | None

    def with_own(self, part: str) -> dict[str, Any]:
        """Complete a study's own table with its keys; protocols may be given by their names."""
        own = dict(self.tables.get(part, {}))
        for key, value in self.keys.items():
            if value is None:
                continue
            entry = plain(key, value)
            if key == "protocols" and isinstance(entry, list):
                entry = [{"name": v} if isinstance(v, str) else v for v in entry]
            own[key] = entry
        return self.tables | {part: own}


def _asked(part: str, file: Any, given: Mapping[str, Any], *own: type) -> _Asked:
    """Open a function's study, and complete it with data and tables."""
    checked(f"fedhist.{part}", given, SHARED, [f.name for t in own for f in fields(t)])
    name, source, tables = part, part, dict[str, Any]()
    if file is not None:
        if not isinstance(file, str | os.PathLike):
            hint = "" if isinstance(file, int | float) else " (users are given as data=...)"
            raise TypeError(f"the study must be a path or a name, got {short(file)}{hint}")
        source = os.fspath(file)
        text, name = {"compare": study_text, "decide": question_text}[part](source)
        with reading(source):
            tables = tables_of(text)
    population, held = population_of(given)
    for key in TABLES:
        if given.get(key) is not None:
            _complete(tables, key, plain(key, given[key]))
    if population is not None:
        if given.get("population") is not None:
            raise TypeError("give data or population, not both")
        tables["population"] = population
        tables["run"] = {**tables.get("run", {}), "nodes": 0}  # was of another population
    if plugins := [os.path.abspath(p) for p in files_of("plugins", given.get("plugins"))]:
        for plugin in plugins:
            load_plugin(plugin)
        run = tables.get("run", {})
        tables["run"] = {**run, "plugins": [*run.get("plugins", ()), *plugins]}
    if "population" not in tables:
        raise TypeError(f"fedhist.{part} needs data: data=..., or population={{...}}")
    keys = {k: v for k, v in given.items() if k not in SHARED}
    return _Asked(name, source, tables, keys, held)


def _complete(tables: dict[str, Any], name: str, given: Any) -> None:
    """Put keys into a table; those of another protocol, or another population, replace it."""
    if name == "adversary" and isinstance(given, list):
        tables[name] = given
        return
    if not isinstance(given, Mapping):
        raise TypeError(f"{name} must be a table, a dict of its keys, got {given!r}")
    if name == "adversary":
        tables[name] = [given]
        return
    there = tables.get(name, {})
    choice = {"protocol": "name", "population": "kind"}.get(name)
    if choice in given and there.get(choice) not in (None, given[choice]):
        there = {}
    tables[name] = {**there, **given}


def compare(
    study: str | Path | None = None,
    axes: Mapping[str, Sequence[Any]] | None = None,
    *,
    out: str | Path | None = None,
    workers: int | None = 0,
    force: bool = False,
    **given: Any,
) -> Compared:
    """Rank protocols of one target on the same users, at one budget; with axes, at each point.

    Parameters
    ----------
    study : path or str, optional
        A .toml file, or a built-in study.
    axes : mapping, optional
        Values by "table.key": ``{"protocol.epsilon": [0.5, 1, 2]}``.
    out : path, optional
        Folder that keeps the study: cells that it has are not run again. Default: none.
    workers : int, optional
        Processes on Ray; 0 runs in this process, None takes all cores.
    force : bool
        Begin anew, whatever the folder holds.
    **given
        ``data``: a polars or pandas frame (or what gives one), :class:`fedhist.Users`, a path, or
        the table [population] as a dict; ``user``, ``item``, ``count``, ``value`` name its columns,
        and ``top`` or ``domain`` (a file, or for data in memory a list) the items that are counted.
        ``population``, ``protocol``, ``adversary``, ``run``: the tables of a study file as dicts,
        which complete those of the file; ``protocol`` may be a protocol, or its class.
        ``plugins``: Python files with protocols of your own.
        The keys of the tables [compare] and [sweep]: of ``protocols``, names do, and protocols, and
        their classes. Without a common ``epsilon`` the budget is that of [protocol].

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
    >>> compared = fh.compare(
    ...     data=users,
    ...     domain=["tea", "rye"],
    ...     protocols=["bounded-histogram"],
    ...     protocol={"clip": 3.0},
    ...     epsilon=1.0,
    ...     seeds=2,
    ... )
    >>> compared.table["protocol"].to_list()[-1]
    'bounded-histogram'
    """
    from simulations.studies.compared import run_study

    if not isinstance(axes, Mapping | None):
        example = '{"protocol.epsilon": [0.5, 1, 2]}'
        raise TypeError(f"axes must be a mapping such as {example}, got {short(axes)}")
    asked = _asked("compare", study, given, CompareTable, SweepTable)
    tables, keys = asked.tables, asked.keys
    ranked = "compare" in tables or ("sweep" not in tables and "epsilon" in keys)
    part = CompareTable if ranked else SweepTable
    checked("fedhist.compare", keys, [f.name for f in fields(part)])
    tables = asked.with_own(part.table)
    if axes:
        tables["sweep"] = {**tables.get("sweep", {}), **plain("axes", axes)}
    if workers != 0 and tables["population"].get("kind") == Memory.kind:
        raise ValueError(
            f"data in memory are studied in this process: workers must be 0, got {workers!r} "
            "(write the data to a file, and give its path, for Ray)"
        )
    with reading(asked.source):
        loaded = study_of(tables, asked.source, asked.name)
        return run_study(loaded, out, workers=workers, force=force)


def show(folder: str | Path) -> Shown:
    """Open a folder that a command has written, to which another process may be writing.

    Raises
    ------
    ValueError
        If there are no results.
    """
    from simulations.studies.compared import open_folder

    if not isinstance(folder, str | os.PathLike):
        raise TypeError(f"folder must be a path, got {short(folder)}")
    return open_folder(folder)


def decide(
    study: str | Path | None = None,
    *,
    profile: bool = False,
    **given: Any,
) -> Decision | Profile:
    """From data to a decision: which protocol under which trust, at which epsilon.

    Parameters
    ----------
    study : path or str, optional
        A file of data, whose columns ``user``, ``item`` or ``value`` name; a .toml file, or a
        built-in question.
    profile : bool
        Return what the users are like, and stop.
    **given
        Data and tables as of :func:`compare`, and the keys of the table [decide].
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

    asked = _asked("decide", study, given, DecideTable)
    if profile and not {"error", "epsilon"} & asked.keys.keys():
        asked.keys["epsilon"] = asked.tables.get("decide", {}).get("epsilon", 1.0)
    with reading(asked.source):
        question = question_of(asked.with_own("decide"), asked.source, asked.name)
    return profile_for(question) if profile else answer(question)
