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
- ``truth``: which statistic of the users errors are about where a target has several: "average of
  users", "pooled" or "one item a user" of shares, "total" or "one item a user" of counts, "average
  of users" or "pooled" of samples. Unless told otherwise, the one that most of the protocols
  estimate. What estimates another one is run too, and what that costs it is shown;
- ``without = ["..."]``: protocols of the target that are left out;
- ``trust = ["central", "aggregate", "shuffle", "local"]``: every protocol is run under each of
  these levels that it has, and ranked with the others of the same level; an entry's own key
  ``trust`` names its levels alone. All under replacement, which all levels can state;
- ``fractions = [0, 0.1, 0.49]``: every protocol is run with each of these shares of misbehaving
  users, and ranked with the others at the same share. The only table [[adversary]] says what they
  do; without one they are "corrupted": all hold the same made-up record.

[protocol] holds common settings: each protocol takes those that it has. [population], [run] and
[[adversary]] are those of a run configuration, the same for all rows. In a file that is also a run
configuration, [protocol] has a name: its target is compared, under its budget and adjacency, where
[compare] does not say otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args, get_origin

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
from fedhist.model.truths import Truth
from fedhist.privacy.guarantee import Adjacency, Trust
from simulations.adversaries import as_tables, read_adversaries, rows_of
from simulations.config.named_files import builtin_names, settings_text
from simulations.config.parts import part_of
from simulations.config.reading import (
    Delta,
    Must,
    Settings,
    Tables,
    as_table,
    hints,
    one_of,
    read,
    reading,
)
from simulations.runs.config import RunTable, config_of, parse_tables, population_spec
from simulations.studies.compare.ladder import Entry, on_levels
from simulations.studies.records.adjacency import COMMON
from simulations.studies.records.labels import Seeds, check_labels, labelled, seeds_of
from simulations.studies.records.levels import KEY, levels_of
from simulations.studies.sweep.config import check_run_keys, with_values

FOLDER = "comparisons"
NORMS = ("l1", "l2", "squared l2", "linf")
TRUTHS = tuple(t.value for t in Truth)
USUAL_ATTACK = "corrupted"
"""What misbehaving users do where fractions are given and no table [[adversary]]."""


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
    seeds: Seeds = 10
    loss: Annotated[str, one_of(*NORMS)] | None = None
    truth: Annotated[str, one_of(*TRUTHS)] | None = None
    fractions: Annotated[tuple[float, ...], Must("a list of numbers", bool)] | None = None
    trust: Any = None


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
    truth : str
        What errors are about; empty takes the truth of most protocols.
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
    levels : tuple of Trust
        Levels of trust that are compared; empty takes every protocol as it is.
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
    levels: tuple[Trust, ...] = ()
    truth: str = ""

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
                "protocols": [_spelled(e) for e in self.entries],
                "without": list(self.without),
                "epsilon": self.epsilon,
                "delta": self.delta,
                "adjacency": self.adjacency.value,
                "loss": self.loss,
                **({"truth": self.truth} if self.truth else {}),
                "seeds": list(self.seeds),
                **({"fractions": list(self.fractions)} if self.fractions else {}),
                **({KEY: [t.value for t in self.levels]} if self.levels else {}),
            },
            "protocol": dict(self.common),
            "population": dict(self.population),
            "run": asdict(self.run),
            **attack,
        }


def _spelled(entry: Entry) -> dict[str, Any]:
    """Write a row as plain data."""
    level = {} if entry.level is None else {KEY: entry.level.value}
    return {"label": entry.label, **entry.table, **level}


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
    with reading(source):
        return comparison_of(parse_tables(text, overrides), source, name)


def comparison_of(tables: dict[str, Any], source: str | Path, name: str) -> Comparison:
    """Read the tables of a comparison; errors are those of :func:`load_comparison`."""
    tables, given = part_of(tables, "compare")
    if given is None:
        raise ValueError(f"{source} needs a table [compare]; fedhist run runs a single protocol")
    check_run_keys(tables, "a comparison", "compare.seeds")
    common = dict(as_table(tables.pop("protocol", {}), "[protocol]"))
    single = common.pop("name", None)
    budget = {k: common.pop(k) for k in ("epsilon", "delta", "adjacency") if k in common}
    if budget and single is None:  # else the table is also that of a run
        key = next(iter(budget))
        raise ValueError(f"protocol.{key} stands in [compare]: it is common to all rows")
    table = read(CompareTable, {**budget, **given})
    adversary, fractions = _adversaries(table, tables.pop("adversary", []))
    # the name is that of no row: only the other tables are checked here
    base = config_of({**tables, "protocol": {"name": ""}}, source, name)
    load_builtin()
    for plugin in base.run.plugins:
        load_plugin(plugin)
    population_spec(base)
    found = with_values({"run": base.to_dict()["run"], "population": base.population}, {})
    levels = () if table.trust is None else levels_of(table.trust, "compare.trust")
    if levels and table.adjacency is not Adjacency.REPLACE_USER:
        raise ValueError(
            "levels of trust are compared under replacement, which all can state: "
            f"compare.adjacency must be {Adjacency.REPLACE_USER.value!r}, "
            f"got {table.adjacency.value!r}"
        )
    target, entries = _entries(table, single)
    if single not in (None, *(e.table["name"] for e in entries)):  # its settings are its own
        known = {k for e in entries for k in parameters(protocol_class(e.table["name"]))}
        common = {k: v for k, v in common.items() if k in known}
    entries = on_levels(entries, levels)
    check_labels([entry.label for entry in entries], "compare.protocols")
    return Comparison(
        name=name,
        target=target,
        epsilon=table.epsilon,
        delta=table.delta,
        adjacency=table.adjacency,
        loss=display_of(target).loss if table.loss is None else table.loss,
        seeds=seeds_of(table.seeds, max(base.run.seed, 0)),
        run=replace(base.run, plugins=tuple(found["run"]["plugins"])),
        common=common,
        population=found["population"],
        entries=tuple(entries),
        without=table.without,
        adversary=adversary,
        fractions=fractions,
        levels=levels,
        truth=table.truth or "",
    )


def _adversaries(
    table: CompareTable, given: object
) -> tuple[tuple[Mapping[str, Any], ...], tuple[float, ...]]:
    """Check the tables [[adversary]] at every fraction."""
    if table.fractions is None:
        return tuple(as_tables(read_adversaries(given))), ()
    rows = rows_of(given) or [{"kind": USUAL_ATTACK}]
    if len(rows) != 1:
        raise ValueError(
            f"compare.fractions are of one table [[adversary]], got {len(rows)}; "
            "fedhist sweep can vary one of several"
        )
    every = [read_adversaries([{**rows[0], "fraction": f}])[0] for f in table.fractions]
    return tuple(as_tables(every[:1])), tuple(dict.fromkeys(a.fraction for a in every))


def _entries(table: CompareTable, single: str | None) -> tuple[str, list[Entry]]:
    """List the rows: those that the file names, then those of the target.

    Where it names neither, the target is that of the protocol which the file is of.
    """
    if table.target is None and not table.protocols and single is not None:
        table = replace(table, target=protocol_class(single).target)
    rows = labelled(table.protocols, None, "compare.protocols")
    named = [Entry(label, own, named=True) for label, own in rows]
    names = [str(p["name"]) for p in table.protocols]
    with reading("compare.protocols"):
        targets = {name: protocol_class(name).target for name in names}
    every = {cls.target for cls in protocols().values()}
    target = next(iter(targets.values()), None) if table.target is None else table.target
    if target is None:
        raise ValueError("[compare] needs target or protocols")
    if target not in every:
        raise ValueError(f"unknown target {target!r}{nearest(target, every)}")
    for name, found in targets.items():
        if found != target:
            raise ValueError(f"{name} estimates another target, {found!r}, not {target!r}")
    of_target = [n for n, cls in protocols().items() if cls.target == target]
    if table.without and table.target is None:
        raise ValueError("compare.without leaves out protocols of compare.target: give that, too")
    for name in table.without:
        if name not in of_target:
            raise ValueError(f"compare.without: {name!r} is not taken{nearest(name, of_target)}")
    if table.target is not None:
        left = [n for n in of_target if n not in targets and n not in table.without]
        named += [entry for name in left for entry in _found(name, protocol_class(name))]
    if not named:
        raise ValueError("there is nothing to compare: no protocol is left")
    return target, named


def _found(name: str, cls: type[Protocol]) -> list[Entry]:
    """Make the rows of a registered protocol: one per method where it will not choose by itself."""
    hint = hints(cls).get("method")
    methods = get_args(hint) if get_origin(hint) is Literal else ()
    if not methods or "auto" in methods:
        return [Entry(name, {"name": name}, named=False)]
    return [Entry(f"{name} {m}", {"name": name, "method": m}, named=False) for m in methods]
