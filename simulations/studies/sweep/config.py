"""Sweep files: a run configuration with the table [sweep], and the cells they stand for.

[sweep] holds

- axes: ``"protocol.epsilon" = [0.5, 1, 2]``, any key of [protocol], [population] or [run] that
  results depend on, ``"adversary.fraction" = [0, 0.1]`` of the only table [[adversary]] or
  ``"adversary.1.fraction"`` of the second; the sweep runs all their combinations;
- ``[[sweep.zip]]``: axes of equal length that go together, such as "population.samples_per_user"
  and "protocol.samples_per_user";
- ``protocols = [{ name = "mean" }, { name = "mean", mode = "paper", label = "as printed" }]``: each
  entry completes the table [protocol], which then needs no name;
- ``"protocol.trust" = ["central", "aggregate", "shuffle", "local"]``: an axis on which a protocol
  is run under those levels of trust that it has; the others are left out, with the reason;
- ``adjacency`` of [protocol], of an entry or an axis; replacement where nothing is said, as in
  comparisons and plans, of those protocols that can have it;
- ``seeds = 10``: every combination is run with run.seed, run.seed + 1, ...; or a list of seeds.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, get_args

from fedhist.base.errors import nearest
from fedhist.model.registry import load_builtin, load_plugin, protocol_class
from fedhist.privacy.guarantee import Trust
from simulations.adversaries import Adversary, override_adversary, rows_of
from simulations.config.named_files import builtin_names, settings_text
from simulations.config.parts import COMMON, part_of
from simulations.config.reading import (
    Must,
    Settings,
    Table,
    Tables,
    as_table,
    hints,
    read,
    reading,
)
from simulations.populations import KINDS
from simulations.reporting.json_files import canonical
from simulations.runs.config import RunTable, config_of, parse_tables
from simulations.runs.trust import with_trust
from simulations.studies.records.adjacency import with_common
from simulations.studies.records.cells import NOT_OF_A_CELL, Cell
from simulations.studies.records.labels import Seeds, labelled, seeds_of
from simulations.studies.records.levels import KEY, OF_NATIVE, at_word, levels_of, premise_keys
from simulations.studies.sweep.checks import check_cells

FOLDER = "sweeps"
NOT_HERE = ("repeats", "ledger", "journal", "out")
"""Keys of [run] that a sweep has no use for."""

TRUST = "protocol.trust"
MOST_CELLS = 1_000_000

Setting = Mapping[str, Any]
"""Values by "table.key"."""


ZIPPED = Must("tables of their own: [[sweep.zip]]", lambda _: True)


@dataclass(frozen=True)
class SweepTable(Settings):
    """The table [sweep] without its axes.

    Parameters
    ----------
    seeds : int or tuple of int
    protocols : tuple of mapping, optional
    zip : tuple of mapping
    """

    table: ClassVar[str] = "sweep"
    seeds: Seeds = 1
    protocols: Annotated[Tables, Must("a list of tables", bool)] | None = None
    zip: Annotated[tuple[Annotated[Table, ZIPPED], ...], ZIPPED] = ()


OWN = tuple(f.name for f in fields(SweepTable))


@dataclass(frozen=True)
class Sweep:
    """A sweep as read.

    Attributes
    ----------
    name : str
        Built-in name or file name.
    run : RunTable
        Where to run; its keys that results depend on are in the cells.
    cells : tuple of Cell
        In the order of their populations, each key once.
    left_out : tuple of str
        Levels of trust that a protocol has not, with the reason.
    """

    name: str
    run: RunTable
    cells: tuple[Cell, ...]
    left_out: tuple[str, ...] = ()


def builtin_sweeps() -> list[str]:
    """Return the names of the sweeps that come with fedhist."""
    return builtin_names(FOLDER)


def sweep_text(source: str | Path) -> tuple[str, str]:
    """Return the text and the name of a sweep file, or of a built-in sweep; else ValueError."""
    return settings_text(source, "sweep", FOLDER)


def load_sweep(source: str | Path, overrides: Iterable[str] = ()) -> Sweep:
    """Read a sweep and list its cells.

    Parameters
    ----------
    source : path or str
        A .toml file, or a name from :func:`builtin_sweeps`.
    overrides : iterable of str
        "population.n_users=500", "sweep.seeds=2".

    Raises
    ------
    ValueError
        For a missing file, malformed TOML, and keys and values that cannot be meant.
    PopulationError
        If a file that a cell names does not exist.
    """
    text, name = sweep_text(source)
    with reading(source):
        return sweep_of(parse_tables(text, overrides), source, name)


def sweep_of(tables: dict[str, Any], source: str | Path, name: str) -> Sweep:
    """List the cells of a sweep's tables; errors are those of :func:`load_sweep`."""
    tables, given = part_of(tables, "sweep")
    if given is None:
        raise ValueError(f"{source} needs a table [sweep]; fedhist run runs a single setting")
    table = read(SweepTable, {k: v for k, v in given.items() if k in OWN})
    load_builtin()
    variants = _variants(table, as_table(tables.get("protocol", {}), "[protocol]"))
    # axes may complete the adversaries, which are then checked with their cells
    attack = {"adversary": rows_of(tables.pop("adversary"))} if "adversary" in tables else {}
    base = config_of(tables | {"protocol": variants[0][1]}, source, name)
    check_run_keys(tables, "a sweep", "sweep.seeds")
    for plugin in base.run.plugins:
        load_plugin(plugin)
    with reading("sweep.protocols" if table.protocols else "protocol.name"):
        for _, variant in variants:
            protocol_class(str(variant["name"]))
    axes = {k: v for k, v in given.items() if k not in OWN}
    settings = _settings(table, axes, base.run.seed, seeded="seeds" in given)
    if len(variants) * len(settings) > MOST_CELLS:
        raise ValueError(f"{len(variants) * len(settings):,} cells are more than {MOST_CELLS:,}")
    run = base.to_dict()["run"]
    cells: dict[str, Cell] = {}
    left: dict[str, None] = {}
    for (label, protocol), setting in itertools.product(variants, settings):
        found = {"protocol": protocol, "population": tables["population"], "run": run, **attack}
        named = str(setting.get("protocol.name", label))
        values = with_values(found, setting)
        values["protocol"] = with_common(values["protocol"])
        cell = Cell(**values, label=named)
        if TRUST in setting:
            cell = replace(cell, protocol=at_word(cell.protocol))
            reason = _no_level(cell, named)
            if reason:
                left[reason] = None
                continue
        if cells.setdefault(cell.key, cell).label != named:
            raise ValueError(f"{cells[cell.key].label!r} and {named!r} are the same cells")
    if not cells:
        raise ValueError(f"no protocol of the sweep has such a level of trust: {'; '.join(left)}")
    check_cells(cells.values(), [k for k in settings[0] if k.startswith("protocol.")])
    return Sweep(name, base.run, _by_population(cells.values()), tuple(left))


def _no_level(cell: Cell, label: str) -> str:
    """Say why a protocol has not the level of trust that an axis names; empty if it has."""
    cls = protocol_class(str(cell.protocol["name"]))
    word, known = str(cell.protocol[KEY]), cell.protocol.keys()
    if Trust(word) in OF_NATIVE.get(cls.example().guarantee.trust, ()):
        try:
            premise = {k: cell.protocol[k] for k in premise_keys(cls, Trust(word)) & known}
            with_trust(cls, {KEY: word, **premise}, cell.run.get("nodes"))
        except ValueError as e:
            return f"{label}: {e}"
        return ""
    return f"{label}: runs under {cls.example().guarantee.trust.value} trust, not under {word}"


def check_run_keys(tables: Mapping[str, Any], study: str, seeds: str) -> None:
    """Refuse the keys of [run] that a study of many runs has no use for."""
    for key in as_table(tables.get("run", {}), "[run]"):
        if key in NOT_HERE:
            hint = f"; {seeds} repeats runs" if key == "repeats" else ""
            raise ValueError(f"run.{key} has no meaning in {study}{hint}")


def _variants(table: SweepTable, common: Setting) -> list[tuple[str, Setting]]:
    """List the protocols: label and table of each."""
    listed = table.protocols
    if listed is None:
        return [(str(common.get("name", "")), common)]
    named = [p.get("name", common.get("name")) for p in listed]
    if None in named:
        raise ValueError(f"sweep.protocols: {listed[named.index(None)]!r} needs a name")
    rows = labelled(listed, common.get("name"), "sweep.protocols")
    return [(label, {**common, **entry}) for label, entry in rows]


def _settings(table: SweepTable, single: Setting, seed: int, *, seeded: bool) -> list[Setting]:
    """List all combinations of the axes and the seeds."""
    axes: list[list[Setting]] = []
    for key, values in _flat(single).items():
        axes.append([{key: v} for v in _axis(key, values)])
    for group in map(_flat, table.zip):
        columns = {key: _axis(key, values) for key, values in group.items()}
        lengths = {key: len(values) for key, values in columns.items()}
        if len(set(lengths.values())) != 1:
            found = ", ".join(f"{key} has {n}" for key, n in lengths.items())
            raise ValueError(f"zipped axes need equally many values: {found or 'there are none'}")
        rows = zip(*columns.values(), strict=True)
        axes.append([dict(zip(columns, row, strict=True)) for row in rows])
    names = [key for axis in axes for key in axis[0]]
    for key in names:
        if names.count(key) > 1:
            raise ValueError(f"{key} is on two axes of the sweep")
    if "run.seed" not in names:
        axes.append([{"run.seed": s} for s in seeds_of(table.seeds, max(seed, 0))])
    elif seeded:
        raise ValueError("run.seed is an axis of the sweep; seeds has no meaning beside it")
    if math.prod(map(len, axes)) > MOST_CELLS:
        raise ValueError(f"{math.prod(map(len, axes)):,} cells are more than {MOST_CELLS:,}")
    return [{k: v for part in parts for k, v in part.items()} for parts in itertools.product(*axes)]


def _flat(table: Mapping[str, Any]) -> dict[str, Any]:
    """Read protocol.epsilon = [...] without quotation marks too: TOML makes it a table."""
    out: dict[str, Any] = {}
    for key, value in table.items():
        if key.partition(".")[0] in COMMON and isinstance(value, dict):
            out |= _flat({f"{key}.{name}": v for name, v in value.items()})
        else:
            out[key] = value
    return out


def _axis(key: str, values: Any) -> list[Any]:
    """Check an axis: a known key, and a list of values that is not empty."""
    table, dot, name = key.partition(".")
    if not dot or table not in COMMON:
        known = [*OWN, *(f"{t}.{name or '...'}" for t in COMMON)]
        raise ValueError(
            f"unknown key of [sweep] {key!r}{nearest(key, known)} (an axis is named table.key)"
        )
    if table == "run":
        cell_keys = [f.name for f in fields(RunTable) if f.name not in NOT_OF_A_CELL]
        if name not in cell_keys:
            raise ValueError(f"run.{name} cannot be swept{nearest(name, cell_keys)}")
    if table == "adversary":
        last = name.rpartition(".")[2]
        known = [f.name for f in fields(Adversary)]
        if last not in known:
            raise ValueError(f"unknown key of [[adversary]] {last!r}{nearest(last, known)}")
    if not isinstance(values, list) or not values:
        raise ValueError(f"the axis {key} needs a list of values, got {values!r}")
    if key == TRUST:
        levels_of(values, key)
    return values


def with_values(tables: Mapping[str, Any], setting: Setting) -> dict[str, Any]:
    """Set the keys of one combination; files are named by absolute paths, for other machines."""
    out = copy.deepcopy(dict(tables))
    for key, value in setting.items():
        table, _, name = key.partition(".")
        if table == "adversary":
            override_adversary(out, name, value)
        else:
            out[table][name] = value
    kind = KINDS.get(str(out["population"]["kind"]))
    known = hints(kind) if kind is not None else {}
    for key, value in out["population"].items():
        if isinstance(value, str) and Path in get_args(known.get(key)):
            out["population"][key] = str(Path(value).absolute())
    out["run"]["plugins"] = [str(Path(p).absolute()) for p in out["run"].get("plugins", ())]
    return out


def _by_population(cells: Iterable[Cell]) -> tuple[Cell, ...]:
    """Put the cells of a population beside each other, so that a worker loads it once."""
    order: dict[str, list[Cell]] = {}
    for cell in cells:
        order.setdefault(canonical(cell.population), []).append(cell)
    return tuple(itertools.chain.from_iterable(order.values()))
