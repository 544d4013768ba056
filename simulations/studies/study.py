"""Study files: protocols of one target at one budget, a grid of settings, or both.

[compare] holds

- ``target = "mean"``: all registered protocols of that target that the common settings configure;
  one whose field ``method`` is a choice without "auto" gives a row per method;
- ``protocols = [{ name = "distribution", mechanism = "laplace", label = "Laplace" }]``: these
  protocols, with keys of their own. Shares of users may stand beside the counts that the first one
  estimates, and are counts then. With ``target`` too, they take the place of the registered ones of
  the same names. ``epsilon = inf`` makes an entry a reference without privacy;
- ``epsilon``, ``delta``: the total budget of every protocol; ``adjacency``, "replace-user" unless
  told otherwise;
- ``seeds = 20``: every protocol is run with run.seed, run.seed + 1, ...;
- ``loss``: "l1", "l2", "squared l2" or "linf", instead of the one that the target's protocols
  declare, or else of each protocol's own;
- ``truth``: which statistic of the users errors are about where protocols estimate several:
  "average of users", say, or "one item a user". Unless told otherwise, the one that most of the
  protocols estimate. What estimates another one is left out;
- ``without = ["..."]``: protocols of the target that are left out;
- ``trust = ["central", "aggregate", "shuffle", "local"]``: every protocol is run under each of
  these levels that it has, and ranked with the others of the same level; an entry's own key
  ``trust`` names its levels alone. All under replacement, which all levels can state.

[sweep] makes a grid:

- axes: ``"protocol.epsilon" = [0.5, 1, 2]``, any key of [protocol], [population] or [run] that
  results depend on, ``"adversary.fraction" = [0, 0.1]`` of the only table [[adversary]] or
  ``"adversary.1.fraction"`` of the second. Protocols are ranked at each of their combinations;
  protocol.epsilon is the common budget;
- without [compare]: ``protocols = [{ name = "mean" }, { name = "mean", mode = "paper" }]``, or that
  of the table [protocol]; ``seeds``. They are compared at the budget of [protocol].

[protocol] holds common settings: each protocol takes those that it has. [population], [run] and
[[adversary]] are those of a run configuration. In a file that is also one, [protocol] has a name:
its target is compared, under its budget and adjacency, where [compare] does not say otherwise.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, get_args

from fedhist.base.errors import nearest
from fedhist.model.protocol import Protocol
from fedhist.model.registry import (
    display_of,
    load_builtin,
    load_plugin,
    parameters,
    protocol_class,
    protocols,
)
from fedhist.model.renamed import instead
from fedhist.model.truths import Truth
from fedhist.privacy.guarantee import Adjacency, Trust
from simulations.adversaries import (
    Adversary,
    as_tables,
    override_adversary,
    read_adversaries,
)
from simulations.config.reading import COMMON as TABLES
from simulations.config.reading import (
    Delta,
    Must,
    Settings,
    Table,
    Tables,
    Whole,
    as_table,
    hints,
    one_of,
    part_of,
    read,
    reading,
    settings_text,
)
from simulations.populations import KINDS
from simulations.runs.config import Config, RunTable, config_of, parse_tables, population_spec
from simulations.studies.cells import NOT_OF_A_CELL
from simulations.studies.levels import (
    COMMON,
    Entry,
    levels_of,
    methods_of,
    on_levels,
)
from simulations.studies.losses import AS_COUNTS, NORMS

FOLDER = "studies"
TRUTHS = tuple(t.value for t in Truth)
BUDGET = ("epsilon", "delta", "adjacency")
NOT_HERE = ("repeats", "ledger", "journal", "out")
"""Keys of [run] that a study has no use for."""
SEEDS = ("run.seed", "population.seed")
"""Axes along which a line's error is averaged."""
MOST_CELLS = 1_000_000

Setting = Mapping[str, Any]
"""Values by "table.key"."""


@dataclass(frozen=True)
class CompareTable(Settings):
    """The table [compare]; what its keys mean stands above."""

    table: ClassVar[str] = "compare"
    epsilon: Annotated[float, Must("a positive number", lambda x: x > 0)]
    delta: Delta = 0.0
    adjacency: Adjacency = COMMON
    target: str | None = None
    protocols: Annotated[
        Tables, Must("a list of tables with names", lambda rows: all("name" in r for r in rows))
    ] = ()
    without: tuple[str, ...] = ()
    seeds: Whole = 10
    loss: Annotated[str, one_of(*NORMS)] | None = None
    truth: Annotated[str, one_of(*TRUTHS)] | None = None
    trust: Any = None


@dataclass(frozen=True)
class SweepTable(Settings):
    """The table [sweep] without its axes; what its keys mean stands above."""

    table: ClassVar[str] = "sweep"
    seeds: Whole = 1
    protocols: Annotated[Tables, Must("a list of tables", bool)] | None = None


OWN = tuple(f.name for f in fields(SweepTable))


@dataclass(frozen=True, kw_only=True)
class Comparison(CompareTable):
    """What is compared at one point of a study: the table [compare] as it is meant, and the others.

    An empty loss takes the protocols' own, no truth that of most protocols, and without levels of
    trust every protocol is taken as it is. ``common`` are settings that each protocol takes where
    it has them.
    """

    name: str
    target: str
    loss: str
    run: RunTable
    common: Mapping[str, Any]
    population: Mapping[str, Any]
    entries: tuple[Entry, ...]
    adversary: tuple[Mapping[str, Any], ...]
    levels: tuple[Trust, ...]


@dataclass(frozen=True)
class Study:
    """A study file as read.

    ``name``: built-in name or file name; ``tables``: the file, with what was overridden;
    ``points``: what is compared at each point of the grid, which is named by its axes' values.
    """

    name: str
    tables: Mapping[str, Any]
    run: RunTable
    points: tuple[tuple[Setting, Comparison], ...] = ()


def study_text(source: str | Path) -> tuple[str, str]:
    """Return text and name of a study file, or of a built-in study; else ValueError."""
    return settings_text(source, "study", FOLDER)


def load_study(source: str | Path, overrides: Iterable[str] = ()) -> Study:
    """Read a study.

    ``source``: a .toml file, or a name that ``fedhist list studies`` lists; ``overrides``:
    "compare.epsilon=2", "population.n_users=500". Raises ValueError for a missing file, malformed
    TOML, and keys and values that cannot be meant; PopulationError if a file that a cell names does
    not exist.
    """
    text, name = study_text(source)
    with reading(source):
        return study_of(parse_tables(text, overrides), source, name)


def study_of(tables: dict[str, Any], source: str | Path, name: str) -> Study:
    """Read the tables of a study; errors are those of :func:`load_study`."""
    common, compare = part_of(tables, "compare")
    sweep = part_of(tables, "sweep")[1]
    if compare is None and sweep is None:
        raise ValueError(
            f"{source} needs a table [compare] or [sweep]; fedhist run runs a single protocol"
        )
    load_builtin()
    for key in as_table(tables.get("run", {}), "[run]"):
        if key in NOT_HERE:
            hint = "; seeds repeats runs" if key == "repeats" else ""
            raise ValueError(f"run.{key} has no meaning in a study{hint}")
    # a cell runs in one process, wherever that is
    common["run"] = {**tables.get("run", {}), "runtime": "inline"}
    axes = dict(as_table(sweep or {}, "[sweep]"))
    if compare is None:
        compare, common = _compared(axes, common)
    elif "protocols" in axes:
        raise ValueError("sweep.protocols stand in [compare], where there is one")
    if "seeds" in axes:
        compare = {**compare, "seeds": axes["seeds"]}
    if "epsilon" in compare:  # an axis may replace what stands there
        read(CompareTable, compare)
    if "run.seed" in _flat(axes):
        raise ValueError("run.seed cannot be an axis: give compare.seeds, or sweep.seeds")
    points = []
    for setting in _settings(axes):
        given, rest = dict(compare), dict[str, Any]()
        for key, value in setting.items():
            last = key.removeprefix("protocol.")
            (given if last in BUDGET else rest)[last if last in BUDGET else key] = value
        values = with_values(common, rest)
        points.append((setting, comparison_of(values | {"compare": given}, source, name)))
    return Study(name, tables, points[0][1].run, tuple(points))


# -- comparisons -----------------------------------------------------------------------------------


def comparison_of(tables: dict[str, Any], source: str | Path, name: str) -> Comparison:
    """Read the tables of a comparison; errors are those of :func:`load_study`."""
    tables, given = part_of(tables, "compare")
    common = dict(as_table(tables.pop("protocol", {}), "[protocol]"))
    single = common.pop("name", None)
    budget = {k: common.pop(k) for k in BUDGET if k in common}
    if budget and single is None:  # else the table is also that of a run
        key = next(iter(budget))
        raise ValueError(f"protocol.{key} stands in [compare]: it is common to all rows")
    table = read(CompareTable, {**budget, **as_table(given, "[compare]")})
    base = base_of(tables, source, name)
    placed = absolute({"run": base.to_dict()["run"], "population": base.population})
    levels = () if table.trust is None else levels_of(table.trust, "compare.trust")
    if levels and table.adjacency is not COMMON:
        raise ValueError(
            "levels of trust are compared under replacement, which all can state: "
            f"compare.adjacency must be {COMMON.value!r}, got {table.adjacency.value!r}"
        )
    target, entries = _entries(table, single)
    if single not in (None, *(e.table["name"] for e in entries)):  # its settings are its own
        known = {k for e in entries for k in parameters(protocol_class(e.table["name"]))}
        common = {k: v for k, v in common.items() if k in known}
    entries = on_levels(entries, levels)
    for label, n in Counter(entry.label for entry in entries).items():
        if n > 1:
            raise ValueError(f"compare.protocols: two rows are called {label!r}; give a label")
    own = {
        "target": target,
        "loss": display_of(target).loss if table.loss is None else table.loss,
    }
    return Comparison(
        **(vars(table) | own),
        name=name,
        run=replace(base.run, plugins=tuple(placed["run"]["plugins"])),
        common=common,
        population=placed["population"],
        entries=tuple(entries),
        adversary=tuple(as_tables(read_adversaries(tables.get("adversary", [])))),
        levels=levels,
    )


def base_of(tables: Mapping[str, Any], source: str | Path, name: str) -> Config:
    """Check all tables but that of a protocol, and load what protocols there are."""
    base = config_of({**tables, "protocol": {"name": ""}}, source, name)
    load_builtin()
    for plugin in base.run.plugins:
        load_plugin(plugin)
    population_spec(base)
    return base


def _entries(table: CompareTable, single: str | None) -> tuple[str, list[Entry]]:
    """List the rows: those that the file names, then those of the target.

    Where it names neither, the target is that of the protocol which the file is of.
    """
    if table.target is None and not table.protocols and single is not None:
        table = replace(table, target=protocol_class(single).target)
    named = [Entry(label, own, named=True) for label, own in labelled(table.protocols)]
    with reading("compare.protocols"):
        targets = {str(p["name"]): protocol_class(str(p["name"])).target for p in table.protocols}
    every = {cls.target for cls in protocols().values()}
    target = next(iter(targets.values()), None) if table.target is None else table.target
    if target is None:
        raise ValueError("[compare] needs target or protocols")
    if target not in every:
        raise ValueError(f"unknown target {target!r}{nearest(target, every)}")
    for name, own in targets.items():
        if own != target and (own, target) != AS_COUNTS:
            raise ValueError(f"{name} estimates another target, {own!r}, not {target!r}")
    of_target = [n for n, cls in protocols().items() if cls.target == target]
    if table.without and table.target is None:
        raise ValueError("compare.without leaves out protocols of compare.target: give that, too")
    for name in table.without:
        if name not in of_target:
            raise ValueError(f"compare.without: {name!r} is not taken{nearest(name, of_target)}")
    if table.target is not None:
        given = {*targets, *table.without}
        left = [n for n in of_target if n not in given and not protocol_class(n).only_named]
        named += [entry for name in left for entry in _registered(name, protocol_class(name))]
    if not named:
        raise ValueError("there is nothing to compare: no protocol is left")
    return target, named


def _registered(name: str, cls: type[Protocol]) -> list[Entry]:
    """Make the rows of a registered protocol: one per method where it will not choose by itself."""
    rows = [Entry(f"{name} {m}", {"name": name, "method": m}, named=False) for m in methods_of(cls)]
    return rows or [Entry(name, {"name": name}, named=False)]


def labelled(entries: Sequence[Table]) -> list[tuple[str, Table]]:
    """Label rows of protocols: by "label", by the name, and by their own keys if that comes twice.

    >>> rows = [{"name": "mean", "mode": "paper"}, {"name": "mean", "kind": "onebit", "salt": 3}]
    >>> [label for label, _ in labelled(rows)]
    ['mean paper', 'mean onebit salt=3']
    """
    names = [str(e["name"]) for e in entries]
    out: list[tuple[str, Table]] = []
    for entry, name in zip(entries, names, strict=True):
        own = [
            v if isinstance(v, str) else f"{k}={v}"
            for k, v in entry.items()
            if k not in ("name", "label")
        ]
        usual = " ".join([name, *own]) if names.count(name) > 1 else name
        table = {k: v for k, v in entry.items() if k != "label"}
        out.append((str(entry.get("label", usual)), table))
    return out


# -- grids -----------------------------------------------------------------------------------------


def _compared(given: Table, common: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Make the table [compare] of a grid that has none, and leave its budget out of [protocol]."""
    table = read(SweepTable, {k: v for k, v in given.items() if k in OWN})
    own = dict(as_table(common.get("protocol", {}), "[protocol]"))
    budget = {k: own.pop(k) for k in BUDGET if k in own}
    name = own.pop("name", None)
    rows = [{"name": name, **row} for row in table.protocols or ({},)]
    if nameless := [row for row in rows if row["name"] is None]:
        raise ValueError(f"sweep.protocols: {nameless[0]!r} needs a name")
    return {**budget, "protocols": rows, "seeds": table.seeds}, {**common, "protocol": own}


def _settings(given: Table) -> list[Setting]:
    """List all combinations of the axes of [sweep]."""
    axes = _flat({k: v for k, v in given.items() if k not in OWN})
    for key, values in axes.items():
        _check_axis(key, values)
    seeds = given.get("seeds", 1)
    several = seeds if isinstance(seeds, int) else 1  # others are refused where they are read
    if (n := several * math.prod(map(len, axes.values()))) > MOST_CELLS:
        raise ValueError(f"{n:,} cells are more than {MOST_CELLS:,}")
    return [dict(zip(axes, point, strict=True)) for point in itertools.product(*axes.values())]


def _flat(table: Mapping[str, Any]) -> dict[str, Any]:
    """Read protocol.epsilon = [...] without quotation marks too: TOML makes it a table."""
    out: dict[str, Any] = {}
    for key, value in table.items():
        if key.partition(".")[0] in TABLES and isinstance(value, dict):
            out |= _flat({f"{key}.{name}": v for name, v in value.items()})
        else:
            out[key] = value
    return out


def _check_axis(key: str, values: Any) -> None:
    """Check an axis: a known key, and a list of values that is not empty (ValueError)."""
    table, dot, name = key.partition(".")
    if key == "protocol.name":
        raise ValueError("protocol.name cannot be an axis: list them in sweep.protocols")
    if not dot or table not in TABLES:
        known = [*OWN, *(f"{t}.{name or '...'}" for t in TABLES)]
        told = instead(f"[sweep].{key}") or f"{nearest(key, known)} (an axis is named table.key)"
        raise ValueError(f"unknown key of [sweep] {key!r}{told}")
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


def with_values(tables: Mapping[str, Any], setting: Setting) -> dict[str, Any]:
    """Set the keys of one combination."""
    out = copy.deepcopy(dict(tables))
    for key, value in setting.items():
        table, _, name = key.partition(".")
        if table == "adversary":
            override_adversary(out, name, value)
        else:
            out.setdefault(table, {})[name] = value
    return out


def absolute(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Name files by absolute paths, for other machines."""
    out = copy.deepcopy(dict(tables))
    kind = KINDS.get(str(out.get("population", {}).get("kind")))
    known = hints(kind) if kind is not None else {}
    for key, value in out.get("population", {}).items():
        if isinstance(value, str) and Path in get_args(known.get(key)):
            out["population"][key] = str(Path(value).absolute())
    if "plugins" in out.get("run", {}):
        out["run"]["plugins"] = [str(Path(p).absolute()) for p in out["run"]["plugins"]]
    return out
