"""Comparison files: protocols of one target, one budget, one adjacency, one population.

[compare] holds

- ``target = "mean"``: all registered protocols of that target that the common settings configure;
  one whose field ``method`` is a choice without "auto" gives a row per method;
- ``protocols = [{ name = "distribution", mechanism = "laplace", label = "Laplace" }]``: these
  protocols, with keys of their own. With ``target`` too, they take the place of the registered
  ones of the same names. ``epsilon = inf`` makes an entry a reference without privacy;
- ``epsilon``, ``delta``: the total budget of every protocol; ``adjacency``, "replace-user" unless
  told otherwise;
- ``seeds = 20``: every protocol is run with run.seed, run.seed + 1, ...; or a list of seeds;
- ``loss``: "l1", "l2", "squared l2" or "linf", instead of the one that the target's protocols
  declare, or else of each protocol's own;
- ``without = ["..."]``: protocols of the target that are left out;
- ``fractions = [0, 0.1, 0.49]``: every protocol is run with each of these shares of misbehaving
  users, and ranked with the others at the same share. The only table [[adversary]] says what they
  do; without one they are "corrupted": all hold the same made-up record.

[protocol] holds common settings: each protocol takes those that it has. [population], [run] and
[[adversary]] are those of a run configuration, the same for all rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from fedhist.base.errors import nearest
from fedhist.model.protocol import Protocol
from fedhist.model.registry import (
    display_of,
    load_builtin,
    load_plugin,
    protocol_class,
    protocols,
)
from fedhist.privacy.guarantee import Adjacency, check_budget
from simulations.adversaries import as_tables, read_adversaries
from simulations.config.casting import check_keys
from simulations.config.named_files import builtin_names, settings_text
from simulations.runs.config import RunTable, config_of, parse_tables, population_spec
from simulations.studies.records.labels import check_labels, labelled, seeds_of
from simulations.studies.sweep.config import NOT_HERE, with_values

FOLDER = "comparisons"
TABLES = ("compare", "protocol", "population", "run", "adversary")
KEYS = (
    *("target", "protocols", "without", "epsilon", "delta", "adjacency", "seeds", "loss"),
    "fractions",
)
NORMS = ("l1", "l2", "squared l2", "linf")
USUAL_SEEDS = 10
USUAL_ATTACK = "corrupted"
"""What misbehaving users do where fractions are given and no table [[adversary]]."""


@dataclass(frozen=True)
class Entry:
    """One row to be.

    Attributes
    ----------
    label : str
    table : mapping
        "name", and what the file says of this protocol alone.
    named : bool
        Whether the file names it; otherwise it was found in the registry.
    """

    label: str
    table: Mapping[str, Any]
    named: bool


@dataclass(frozen=True)
class Comparison:
    """A comparison as read.

    Attributes
    ----------
    name, target : str
    epsilon, delta : float
        Total budget of every protocol.
    adjacency : Adjacency
    loss : str
        Common loss; empty takes the protocols' own.
    seeds : tuple of int
    run : RunTable
    common : mapping
        Settings that each protocol takes where it has them.
    population : mapping
    entries : tuple of Entry
    without : tuple of str
        Protocols of the target that the file leaves out.
    adversary : tuple of mapping
        The tables [[adversary]]; where ``fractions`` are given there is one, and they replace its
        own.
    fractions : tuple of float
        Shares of misbehaving users; empty for the one of the tables.
    """

    name: str
    target: str
    epsilon: float
    delta: float
    adjacency: Adjacency
    loss: str
    seeds: tuple[int, ...]
    run: RunTable
    common: Mapping[str, Any]
    population: Mapping[str, Any]
    entries: tuple[Entry, ...]
    without: tuple[str, ...] = ()
    adversary: tuple[Mapping[str, Any], ...] = ()
    fractions: tuple[float, ...] = ()

    def attack(self, fraction: float | None) -> tuple[Mapping[str, Any], ...]:
        """Return the tables [[adversary]] at one share; None leaves them as they are."""
        if fraction is None:
            return self.adversary
        return tuple({**table, "fraction": fraction} for table in self.adversary)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain data, with every row spelled out."""
        attack = {"adversary": [dict(t) for t in self.adversary]} if self.adversary else {}
        return {
            "compare": {
                "target": self.target,
                "protocols": [{"label": e.label, **e.table} for e in self.entries],
                "without": list(self.without),
                "epsilon": self.epsilon,
                "delta": self.delta,
                "adjacency": self.adjacency.value,
                "loss": self.loss,
                "seeds": list(self.seeds),
                **({"fractions": list(self.fractions)} if self.fractions else {}),
            },
            "protocol": dict(self.common),
            "population": dict(self.population),
            "run": asdict(self.run),
            **attack,
        }


def builtin_comparisons() -> list[str]:
    """Return the names of the comparisons that come with fedhist."""
    return builtin_names(FOLDER)


def comparison_text(source: str | Path) -> tuple[str, str]:
    """Return text and name of a comparison file, or of a built-in comparison; else ValueError."""
    return settings_text(source, "comparison", FOLDER)


def load_comparison(source: str | Path, overrides: Iterable[str] = ()) -> Comparison:
    """Read a comparison and list its rows.

    Parameters
    ----------
    source : path or str
        A .toml file, or a name from :func:`builtin_comparisons`.
    overrides : iterable of str
        "compare.epsilon=2", "population.n_users=500".

    Raises
    ------
    ValueError
        For a missing file, malformed TOML, and keys and values that cannot be meant.
    """
    text, name = comparison_text(source)
    tables = parse_tables(text, source, overrides)
    check_keys(tables, TABLES, "table")
    table = tables.pop("compare", None)
    if not isinstance(table, dict):
        raise ValueError(f"{source} needs a table [compare]; fedhist run runs a single protocol")
    check_keys(table, KEYS, "key of [compare]")
    for key in NOT_HERE:
        if key in tables.get("run", {}):
            hint = "; compare.seeds repeats runs" if key == "repeats" else ""
            raise ValueError(f"run.{key} has no meaning in a comparison{hint}")
    common = dict(tables.pop("protocol", {}))
    for key in ("name", "epsilon", "delta", "adjacency"):
        if key in common:
            raise ValueError(f"protocol.{key} stands in [compare]: it is common to all rows")
    adversary, fractions = _adversaries(table, tables)
    # the name is that of no row: only the other tables are checked here
    base = config_of({**tables, "protocol": {"name": ""}}, source, name)
    load_builtin()
    for plugin in base.run.plugins:
        load_plugin(plugin)
    population_spec(base)
    found = with_values({"run": base.to_dict()["run"], "population": base.population}, {})
    epsilon, delta = _number(table, "epsilon"), _number(table, "delta", 0.0)
    check_budget(epsilon, delta)
    target, entries, without = _entries(table)
    loss = str(table.get("loss", display_of(target).loss))
    if loss and loss not in NORMS:
        raise ValueError(f"compare.loss must be one of {', '.join(NORMS)}, got {loss!r}")
    return Comparison(
        name=name,
        target=target,
        epsilon=epsilon,
        delta=delta,
        adjacency=_adjacency(table.get("adjacency", Adjacency.REPLACE_USER.value)),
        loss=loss,
        seeds=seeds_of(table.get("seeds", USUAL_SEEDS), max(base.run.seed, 0), "compare.seeds"),
        run=replace(base.run, plugins=tuple(found["run"]["plugins"])),
        common=common,
        population=found["population"],
        entries=tuple(entries),
        without=without,
        adversary=adversary,
        fractions=fractions,
    )


def _adversaries(
    table: Mapping[str, Any], tables: dict[str, Any]
) -> tuple[tuple[Mapping[str, Any], ...], tuple[float, ...]]:
    """Take the tables [[adversary]] out, and check them at every fraction."""
    found = tables.pop("adversary", [])
    given = table.get("fractions", [])
    if not isinstance(given, list) or ("fractions" in table and not given):
        raise ValueError(f"compare.fractions must be a list of numbers, got {given!r}")
    if not given:
        return tuple(as_tables(read_adversaries(found))), ()
    rows = [found] if isinstance(found, dict) else found or [{"kind": USUAL_ATTACK}]
    if len(rows) != 1:
        raise ValueError(
            f"compare.fractions are of one table [[adversary]], got {len(rows)}; "
            "fedhist sweep can vary one of several"
        )
    every = [read_adversaries([{**rows[0], "fraction": f}])[0] for f in given]
    return tuple(as_tables(every[:1])), tuple(dict.fromkeys(float(a.fraction) for a in every))


def _entries(table: Mapping[str, Any]) -> tuple[str, list[Entry], tuple[str, ...]]:
    """List the rows: those that the file names, then those of the target."""
    listed = table.get("protocols", [])
    if not isinstance(listed, list) or not all(isinstance(p, dict) and "name" in p for p in listed):
        raise ValueError(f"compare.protocols must be a list of tables with names, got {listed!r}")
    rows = labelled(listed, None, "compare.protocols")
    named = [Entry(label, table, named=True) for label, table in rows]
    targets = {name: protocol_class(name).target for name in (str(p["name"]) for p in listed)}
    every = {cls.target for cls in protocols().values()}
    target = table.get("target", next(iter(targets.values()), None))
    if target is None:
        raise ValueError("[compare] needs target or protocols")
    if target not in every:
        raise ValueError(f"unknown target {target!r}{nearest(str(target), every)}")
    for name, found in targets.items():
        if found != target:
            raise ValueError(f"{name} estimates another target, {found!r}, not {target!r}")
    without = tuple(map(str, table.get("without", ())))
    of_target = [n for n, cls in protocols().items() if cls.target == target]
    for name in without:
        if name not in of_target or "target" not in table:
            raise ValueError(f"compare.without: {name!r} is not taken{nearest(name, of_target)}")
    if "target" in table:
        left = [n for n in of_target if n not in targets and n not in without]
        named += [entry for name in left for entry in _found(name, protocol_class(name))]
    check_labels([entry.label for entry in named], "compare.protocols")
    if not named:
        raise ValueError("there is nothing to compare: no protocol is left")
    return str(target), named, without


def _found(name: str, cls: type[Protocol]) -> list[Entry]:
    """Make the rows of a registered protocol: one per method where it will not choose by itself."""
    hint = get_type_hints(cls).get("method")
    methods = get_args(hint) if get_origin(hint) is Literal else ()
    if not methods or "auto" in methods:
        return [Entry(name, {"name": name}, named=False)]
    return [Entry(f"{name} {m}", {"name": name, "method": m}, named=False) for m in methods]


def _number(table: Mapping[str, Any], key: str, usual: float | None = None) -> float:
    value = table.get(key, usual)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"compare.{key} must be a number, got {value!r}")
    return float(value)


def _adjacency(given: Any) -> Adjacency:
    known = [a.value for a in Adjacency]
    if given not in known:
        raise ValueError(f"compare.adjacency must be one of {', '.join(known)}, got {given!r}")
    return Adjacency(given)
