"""Levels of trust in studies: which a protocol has, what must be believed, on which rows run.

A level is central (believe the server), aggregate (all but a share of the nodes), shuffle (a
shuffler) or local (nobody). A protocol that needs a trusted server stands under central trust and,
where its nodes can add the noise, under aggregate trust; one whose users randomize their own
reports under local trust and, where reports of one law hide each other, under shuffle trust.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args, get_origin

from fedhist.base.errors import closest
from fedhist.model.protocol import Protocol
from fedhist.model.registry import parameters, protocol_class
from fedhist.privacy.guarantee import Adjacency, Guarantee, NoTotalError, Trust, convert, pure
from fedhist.privacy.shares import Aggregation
from fedhist.privacy.shuffling import Shuffling
from server.trust import Shuffles
from simulations.config.reading import converted, hints
from simulations.runs.config import COUNTED, PARTIES, PREMISES
from simulations.runs.results import NOT_PRIVATE

KEY = "trust"
WORDS = tuple(t.value for t in Trust)
LISTED = f"a list of levels of trust ({', '.join(WORDS)})"
COMMON = Adjacency.REPLACE_USER
"""Replacement of one user's whole record: what every level of trust can state."""
OF_NATIVE: Mapping[Trust, tuple[Trust, ...]] = {
    Trust.CENTRAL: (Trust.CENTRAL, Trust.AGGREGATE),
    Trust.LOCAL: (Trust.SHUFFLE, Trust.LOCAL),
}
"""Levels that a protocol may have, by the trust that it needs when nothing is said."""

NOBODY_THERE: Mapping[Trust, str] = {
    Trust.CENTRAL: "none of these protocols has a server draw noise",
    Trust.AGGREGATE: "none of these protocols adds up what nodes send",
    Trust.SHUFFLE: "none of these protocols has users randomize a report",
    Trust.LOCAL: "none of these protocols has users randomize a report",
}


@dataclass(frozen=True)
class Entry:
    """One row to be.

    ``table``: "name", and what the file says of this protocol alone; ``named``: whether the file
    names it; otherwise it was found in the registry; ``level``: the level of trust that it is run
    under, where several are compared.
    """

    label: str
    table: Mapping[str, Any]
    named: bool
    level: Trust | None = None

    @property
    def title(self) -> str:
        """Label without the level of trust."""
        return self.label if self.level is None else self.label.removesuffix(suffix(self.level))


class LevelRefused(ValueError):
    """A protocol that cannot be had on a level, and why."""


@dataclass(frozen=True)
class Premise:
    """What must be believed for a guarantee.

    ``short``: for a table and a figure, a line each.
    """

    short: tuple[str, ...]
    words: str


def levels_of(given: object, what: str) -> tuple[Trust, ...]:
    """Read a level of trust or a list of them, in the order of the ladder.

    >>> [t.value for t in levels_of(["local", "central"], "compare.trust")]
    ['central', 'local']
    """
    words = list(given) if isinstance(given, list | tuple) else [given]
    for word in words:
        value = word.value if isinstance(word, Trust) else word
        if value not in WORDS:
            raise ValueError(f"{what} must be {LISTED}, got {value!r}{closest(value, WORDS)}")
    if not words:
        raise ValueError(f"{what} must be {LISTED}, got an empty one")
    return tuple(t for t in Trust if t in words or t.value in words)


def possible_levels(cls: type[Protocol]) -> tuple[Trust, ...]:
    """Return the levels that a protocol can run on, with one choice of its parameters or another.

    >>> [t.value for t in possible_levels(protocol_class("mean"))]
    ['shuffle', 'local']
    """
    native = cls.example().guarantee.trust
    return OF_NATIVE.get(native, (native,)) if KEY in parameters(cls) else (native,)


def suffix(level: Trust) -> str:
    """Return what a label ends with on a level."""
    return f", {level.value}"


def setting_of(level: Trust | None) -> dict[str, Any]:
    """Return what a level adds to [protocol]."""
    return {KEY: level.value} if level in (Trust.AGGREGATE, Trust.SHUFFLE) else {}


def methods_of(cls: type[Protocol]) -> tuple[str, ...]:
    """Name the methods of a protocol that will not choose among them by itself."""
    hint = hints(cls).get("method")
    methods = get_args(hint) if get_origin(hint) is Literal else ()
    return () if "auto" in methods else methods


def premise_keys(cls: type[Protocol], level: Trust) -> set[str]:
    """Name the keys of [protocol] that say what must be believed on a level: tau_d, say."""
    premise = PREMISES.get(level.value)
    names = {f.name for f in fields(premise)} if premise is not None else set()
    return names - {COUNTED, *parameters(cls)}


def on_levels(entries: Sequence[Entry], levels: tuple[Trust, ...]) -> list[Entry]:
    """Put every row on those levels that its protocol has, or that its own key ``trust`` names.

    Raises ValueError if the key names a level that the comparison or the protocol has not.
    """
    if not levels:
        return list(entries)
    out = []
    for entry in entries:
        table = {k: v for k, v in entry.table.items() if k != KEY}
        asked, own = levels, KEY in entry.table
        if own:
            asked = levels_of(entry.table[KEY], f"trust of {entry.label}")
            if missing := [t.value for t in asked if t not in levels]:
                known = ", ".join(t.value for t in levels)
                raise ValueError(
                    f"trust of {entry.label}: {missing[0]!r} is not among compare.trust ({known})"
                )
        native = protocol_class(str(entry.table["name"])).example().guarantee.trust
        has = OF_NATIVE.get(native, (native,))
        other = [t.value for t in asked if t not in has]
        if own and other:
            known = " or ".join(t.value for t in has)
            raise ValueError(f"trust of {entry.label}: it runs under {known} trust, not {other[0]}")
        out += [
            replace(entry, label=entry.label + suffix(t), table=table, level=t)
            for t in asked
            if t in has
        ]
    return out


def premise_of_tables(
    entry: Entry, common: Mapping[str, Any], delta: float
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Take a row's keys that say what must be believed on its level out of its table.

    ``common``: the table [protocol]; ``delta``: of the comparison, for a level that has one beside
    a protocol that has none; ``premise``: those of its level, common ones too; ``own``: the table
    without those of any level, where the row has one.
    """
    if entry.level is None:
        return {}, dict(entry.table)
    cls = protocol_class(str(entry.table["name"]))
    every, asked = {k for t in Trust for k in premise_keys(cls, t)}, premise_keys(cls, entry.level)
    given = {"delta": delta, **common, **entry.table}
    premise = {k: v for k, v in given.items() if k in asked}
    return premise, {k: v for k, v in entry.table.items() if k not in every}


def check_premises(levels: Iterable[Trust], common: Mapping[str, Any], nodes: int) -> None:
    """Raise ValueError if what all rows of a level are to believe cannot be meant."""
    for level in levels:
        premise = PREMISES.get(level.value)
        if premise is not None and COUNTED in hints(premise):
            keys = {k: v for k, v in common.items() if k in hints(premise)}
            premise(**{COUNTED: nodes or PARTIES}, **converted(premise, keys, "protocol"))


def premise_of(protocol: Protocol) -> Premise:
    """Say what must be believed for a protocol's guarantee."""
    trust = protocol.guarantee.trust
    asked = getattr(protocol, KEY, None)
    if trust is Trust.CENTRAL:
        return Premise(("the server",), "the server, which sees exact sums")
    if trust is Trust.LOCAL:
        return Premise(("nobody",), "nobody: what leaves a user is private by itself")
    if isinstance(asked, Aggregation):
        n, m = asked.parties, asked.honest
        words = (
            f"the aggregation, which shows the server sums only, and {m} of {n} nodes: {asked}; "
            f"a sum of fewer than {asked.quorum} is not looked at"
        )
        return Premise((f"{m} of {n} nodes", f"tau = {asked.tau_d:g} + {asked.tau_c:g}"), words)
    if isinstance(asked, Shuffling) and isinstance(protocol, Shuffles):
        least = min(asked.least(b.share, b.folds) for b in protocol.batches)
        local = float(protocol.epsilon)
        words = (
            f"a shuffler, and that {least:,} users of each cohort report honestly and do not "
            f"collude with the server; against the shuffler {local:.4g}-DP is left"
        )
        return Premise((f"a shuffler, {least:,} users", f"else {local:.3g}-DP"), words)
    return Premise((trust.value,), str(protocol.guarantee))


# -- what a guarantee is not -----------------------------------------------------------------------


def flags_of(protocol: Protocol) -> tuple[str, ...]:
    """Say why a guarantee is not one of a user."""
    g = protocol.guarantee
    if not g.private:
        return (NOT_PRIVATE,)
    return () if g.unit == "user" else (f"{g.unit}-level: does not protect a user",)


def other_adjacency(common: Adjacency, protocol: Protocol) -> str:
    """Say that a user's guarantee is no promise under the common adjacency; empty if it is."""
    if flags_of(protocol):
        return ""
    g = protocol.guarantee
    with suppress(NoTotalError):  # replacement says the same of emptying, say
        stated = pure(g.epsilon)
        if convert(stated, g.adjacency, common, null_safe=protocol.null_safe) == stated:
            return ""
    return f"its guarantee is under {g.adjacency.value}, not under {common.value}"


def excess_of(g: Guarantee, epsilon: float, delta: float) -> str:
    """Say by how much a guarantee passes a budget; empty if it does not."""
    rounding = 1 + 1e-9
    if g.epsilon <= epsilon * rounding and g.delta <= delta * rounding:
        return ""
    return f"passes the common budget ({epsilon:g}, {delta:g}): {g}"
