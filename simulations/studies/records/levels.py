"""Levels of trust as studies name them: which a protocol has, and what must be believed for each.

A level is central (believe the server), aggregate (all but a share of the nodes), shuffle (a
shuffler) or local (nobody). A protocol that needs a trusted server stands under central trust and,
where its nodes can add the noise, under aggregate trust; one whose users randomize their own
reports under local trust and, where reports of one law hide each other, under shuffle trust.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from fedhist.base.errors import closest
from fedhist.model.protocol import Protocol
from fedhist.model.registry import parameters, protocol_class
from fedhist.privacy.aggregation import Aggregation
from fedhist.privacy.guarantee import Trust
from fedhist.privacy.shuffler import Shuffling
from fedhist.protocols.shared.shuffles import Shuffles
from simulations.runs.trust import COUNTED, PREMISES

KEY = "trust"
WORDS = tuple(t.value for t in Trust)
LISTED = f"a list of levels of trust ({', '.join(WORDS)})"
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
class Premise:
    """What must be believed for a guarantee.

    Attributes
    ----------
    short : tuple of str
        For a table and a figure, a line each.
    words : str
    numbers : mapping
        The public numbers in it, by name; empty where there are none.
    """

    short: tuple[str, ...]
    words: str
    numbers: Mapping[str, float]


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


def suffix(level: Trust) -> str:
    """Return what a label ends with on a level."""
    return f", {level.value}"


def setting_of(level: Trust | None) -> dict[str, Any]:
    """Return what a level adds to [protocol]."""
    return {KEY: level.value} if level in (Trust.AGGREGATE, Trust.SHUFFLE) else {}


def premise_keys(cls: type[Protocol], level: Trust) -> set[str]:
    """Name the keys of [protocol] that say what must be believed on a level: tau_d, say."""
    premise = PREMISES.get(level.value)
    found = {f.name for f in fields(premise)} if premise is not None else set()
    return found - {COUNTED, *parameters(cls)}


def at_word(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table [protocol] that names its trust, without what must be believed elsewhere."""
    cls, word = protocol_class(str(table["name"])), str(table[KEY])
    other = {k for t in Trust if t.value != word for k in premise_keys(cls, t)}
    kept = premise_keys(cls, Trust(word))
    return {k: v for k, v in table.items() if k not in other or k in kept}


def on_level(table: Mapping[str, Any], name: str, level: Trust) -> dict[str, Any]:
    """Return the table [protocol] of a protocol on a level, of what it takes of another's."""
    cls = protocol_class(name)
    same = table.get("name") == name
    every = {KEY} | {k for t in Trust for k in premise_keys(cls, t)}
    own = {k: v for k, v in table.items() if k not in every and (same or k in parameters(cls))}
    premise = {k: v for k, v in table.items() if k in premise_keys(cls, level)}
    return {**own, "name": name, **premise, **setting_of(level)}


def premise_of(protocol: Protocol) -> Premise:
    """Say what must be believed for a protocol's guarantee."""
    trust = protocol.guarantee.trust
    asked = getattr(protocol, KEY, None)
    if trust is Trust.CENTRAL:
        return Premise(("the server",), "the server, which sees exact sums", {})
    if trust is Trust.LOCAL:
        return Premise(("nobody",), "nobody: what leaves a user is private by itself", {})
    if isinstance(asked, Aggregation):
        n, m = asked.parties, asked.honest
        short = f"{m} of {n} nodes", f"tau = {asked.tau_d:g} + {asked.tau_c:g}"
        words = (
            f"the aggregation, which shows the server sums only, and {m} of {n} nodes: {asked}; "
            f"a sum of fewer than {asked.quorum} is not looked at"
        )
        return Premise(
            short,
            words,
            {
                "parties": n,
                "honest": m,
                "quorum": asked.quorum,
                "tau_d": asked.tau_d,
                "tau_c": asked.tau_c,
            },
        )
    if isinstance(asked, Shuffling) and isinstance(protocol, Shuffles):
        least = min(asked.least(b.share, b.folds) for b in protocol.batches)
        local = float(protocol.epsilon)
        return Premise(
            (f"a shuffler, {least:,} users", f"else {local:.3g}-DP"),
            f"a shuffler, and that {least:,} users of each cohort report honestly and do not "
            f"collude with the server; against the shuffler {local:.4g}-DP is left",
            {
                "least": least,
                "epsilon_0": local,
                "n_users": asked.n_users,
                "tau": asked.tau,
                "colluders": asked.colluders,
            },
        )
    return Premise((trust.value,), str(protocol.guarantee), {})
