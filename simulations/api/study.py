"""A study file as an object, with data of your own in place of the file's."""

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

    @takes(CompareTable, SweepTable, shared=False)
    def compare(
        self,
        axes: Mapping[str, Sequence[Any]] | None = None,
        *,
        out: str | Path | None = None,
        workers: int | None = 0,
        force: bool = False,
        progress: bool = False,
        **keys: Any,
    ) -> Compared:
        """Rank protocols of one target on the same users, or run a grid: see :func:`compare`."""
        from simulations.studies.compared import run_study

        if not isinstance(axes, Mapping | None):
            example = '{"protocol.epsilon": [0.5, 1, 2]}'
            raise TypeError(f"axes must be a mapping such as {example}, got {short(axes)}")
        checked(
            "fedhist.compare", keys, [f.name for t in (CompareTable, SweepTable) for f in fields(t)]
        )
        ranked = "compare" in self.tables or ("sweep" not in self.tables and "epsilon" in keys)
        part = CompareTable if ranked else SweepTable
        tables = self._with(part.table, part, keys, named=("protocols",))
        if axes:
            tables["sweep"] = {**tables.get("sweep", {}), **plain("axes", axes)}
        self._check_workers(workers)
        with reading(self._told):
            loaded = study_of(tables, self._told, self.name)
            with _bar(progress, 1) as advance:
                tell: Callable[[int, int], None] = lambda n, total: advance(n, total)  # noqa: E731
                return run_study(loaded, out, workers=workers, force=force, progress=tell)

    @takes(DecideTable, shared=False)
    def decide(
        self, *, profile: bool = False, progress: bool = False, **keys: Any
    ) -> Decision | Profile:
        """Find which protocol reaches an error, under every level of trust: see :func:`decide`."""
        from simulations.studies.decide.decision import decide, profile_for

        if profile and not {"error", "epsilon"} & keys.keys():
            keys["epsilon"] = self.tables.get("decide", {}).get("epsilon", 1.0)
        tables = self._with("decide", DecideTable, keys)
        with reading(self._told):
            question = question_of(tables, self._told, self.name)
        if profile:
            return profile_for(question)
        with _bar(progress, 100) as advance:
            return decide(question, lambda _, share: advance(100 * share))

    def _data(self, part: str) -> dict[str, Any]:
        """Return the table [population]; TypeError where there is none."""
        if "population" not in self.tables:
            raise TypeError(f"fedhist.{part} needs data: data=..., or population={{...}}")
        return dict(self.tables["population"])

    @property
    def _told(self) -> str:
        """What errors are headed with, and what paths of plugins are relative to."""
        return self.source or self.name

    def _with(
        self, part: str, table: type, keys: Mapping[str, Any], named: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Complete a study's own table with keywords; protocols may be given by their names."""
        checked(f"fedhist.{part}", keys, (f.name for f in fields(table)))
        self._data(part)
        tables = {k: plain(k, v) for k, v in self.tables.items()}
        own = dict(tables.get(part, {}))
        for key, value in keys.items():
            if value is None:
                continue
            found = plain(key, value)
            if key in named and isinstance(found, list):
                found = [{"name": v} if isinstance(v, str) else v for v in found]
            own[key] = found
        tables[part] = own
        return tables

    def _check_workers(self, workers: int | None) -> None:
        kind = self.tables.get("population", {}).get("kind")
        if workers != 0 and kind == Memory.kind:
            raise ValueError(
                f"data in memory are studied in this process: workers must be 0, got {workers!r} "
                "(write the data to a file, and give its path, for Ray)"
            )


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
    text, name = _texts(part)(source)
    with reading(source):
        tables = tables_of(text)
    return Study(name, tables, source if Path(source).suffix == ".toml" else "")


def _texts(part: str) -> Callable[[str], tuple[str, str]]:
    """Return what finds the text of a file, or of a built-in study of a part."""
    known: dict[str, Callable[[str], tuple[str, str]]] = {
        "compare": study_text,
        "decide": question_text,
    }
    return known.get(part, _any_text)


def _any_text(source: str) -> tuple[str, str]:
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
def _bar(shown: bool, total: int) -> Iterator[Callable[..., None]]:
    """Yield what is called after each of some steps, or with how many are done."""
    if not shown:
        yield lambda done=None, total=None: None
        return
    from rich.progress import Progress

    with Progress(transient=True) as bar:
        task = bar.add_task("runs", total=total)
        yield lambda done=None, total=None: bar.update(
            task, advance=None if done else 1, completed=done, total=total
        )
