"""Who takes part in a comparison: settled before anything is run.

A protocol is left out, with the reason, if it cannot be configured, passes the common budget, is
private under another adjacency, or estimates another truth. One that protects another unit than the
user, or whose settings read the data, is run and not ranked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from fedhist.base.errors import FedhistError, nearest
from fedhist.base.origin import in_words, origin_of
from fedhist.model.evaluation import Facts, measured
from fedhist.model.protocol import Protocol
from fedhist.model.registry import parameters, protocol_class
from fedhist.model.truths import LowerBound, Truth
from fedhist.privacy.guarantee import Trust
from simulations.populations import Loaded
from simulations.populations.facts import budget_doubts, facts_for
from simulations.runs.config import Config, population_spec
from simulations.runs.results import NOT_PRIVATE
from simulations.studies.cells import Cell, load_once, prepare_cell
from simulations.studies.levels import (
    NOBODY_THERE,
    Entry,
    LevelRefused,
    check_premises,
    excess_of,
    flags_of,
    other_adjacency,
    premise_of_tables,
    setting_of,
)
from simulations.studies.losses import AS_COUNTS, Exact
from simulations.studies.study import Comparison

READS = "its settings read the data: a reference"
REFUSALS = (ValueError, TypeError, KeyError, FedhistError)


@dataclass(frozen=True)
class Contender:
    """A protocol that is run.

    Attributes
    ----------
    label : str
    table : mapping
        The complete table [protocol] of its cells.
    protocol : Protocol
    flags : tuple of str
        Why it cannot be ranked with the others; empty if it can.
    bounds : tuple of LowerBound
        What no protocol of its guarantee can beat, in the common loss. NOT PRIVATE.
    level : Trust or None
        The level of trust, where several are compared.
    """

    label: str
    table: Mapping[str, Any]
    protocol: Protocol
    flags: tuple[str, ...]
    bounds: tuple[LowerBound, ...] = ()
    level: Trust | None = None


@dataclass(frozen=True)
class Ready:
    """A comparison whose rows are settled.

    Attributes
    ----------
    comparison : Comparison
    contenders : tuple of Contender
    left_out : tuple of (str, str)
        Labels that are not run, and why.
    loss : str
        The common loss.
    truth : Truth
        What errors are about.
    about : mapping
        Facts as plain data; NOT PRIVATE: "title" of the population, "n_users",
        "unreached" levels of trust and why, "facts" that matter about the users, "doubts" where the
        budget protects nobody.
    """

    comparison: Comparison
    contenders: tuple[Contender, ...]
    left_out: tuple[tuple[str, str], ...]
    loss: str
    truth: Truth
    about: Mapping[str, Any]

    def cells_of(self, contender: Contender) -> tuple[Cell, ...]:
        """Return the cells of a row, one for each seed."""
        c = self.comparison
        first = max(c.run.seed, 0)
        return tuple(
            replace(_cell(c, contender.table, contender.label, seed), adversary=c.adversary)
            for seed in range(first, first + c.seeds)
        )


def set_up(comparison: Comparison) -> Ready:
    """Load the population and settle who takes part.

    Raises ValueError, PopulationError if the population or a protocol that the file names cannot be
    configured, or if a common setting is no protocol's.
    """
    check_premises(comparison.levels, comparison.common, comparison.run.nodes)
    config = Config(comparison.name, comparison.run, {"name": ""}, comparison.population)
    loaded = load_once(comparison.population, population_spec(config))
    pairs: list[tuple[Contender, Exact]] = []
    every: dict[str, Facts] = {}
    out = {name: "left out by the configuration (compare.without)" for name in comparison.without}
    refused: dict[Trust, dict[str, str]] = {}
    taken: set[str] = set()
    for entry in comparison.entries:
        try:
            contender = _contender(comparison, entry, loaded, taken)
            known = measured(contender.protocol, loaded.users)
            own = Exact.of(contender.protocol, known)
            if (contender.protocol.target, comparison.target) == AS_COUNTS:
                own = replace(own, value=own.value * len(loaded.users))
        except LevelRefused as e:
            out[entry.label] = str(e)
            refused.setdefault(entry.level or Trust.LOCAL, {})[entry.title] = str(e)
            continue
        except Exception as e:
            found_at = origin_of(e)
            ours = isinstance(e, REFUSALS) and (found_at is None or found_at.meant)
            if entry.named and ours:
                named = "" if entry.label in str(e) else f"{entry.label}: "
                raise ValueError(f"{named}{e}") from None
            if entry.named:
                raise
            out[entry.title] = str(e) if ours else in_words(e)  # on every level the same
            continue
        protocol = contender.protocol
        g, reason = protocol.guarantee, ""
        if g.private or entry.table.get("epsilon") not in (math.inf, "inf"):  # else a reference
            reason = excess_of(g, comparison.epsilon, comparison.delta)
        reason = reason or other_adjacency(comparison.adjacency, protocol)
        if reason:
            out[entry.label] = reason
        else:
            pairs.append((contender, own))
            every[contender.label] = known
    for key in comparison.common.keys() - taken if comparison.entries else ():
        names = {k for e in comparison.entries for k in parameters(protocol_class(e.table["name"]))}
        raise ValueError(f"no protocol here has the parameter {key!r}{nearest(key, names)}")
    if not pairs:
        told = [f"{label}: {reason}" for label, reason in out.items()]
        told += [f"{t.value}: {NOBODY_THERE[t]}" for t in comparison.levels]
        raise ValueError(f"nothing can be compared: {'; '.join(told)}")
    truth, exact = _common_truth(comparison, pairs)
    chosen = []
    for contender, own in pairs:
        if own is exact or own.same(exact):
            chosen.append(contender)
        else:
            out[contender.label] = _other_truth(contender.protocol, own, truth, exact)
    losses = {every[c.label].error.loss for c in chosen}
    loss = comparison.loss or (losses.pop() if len(losses) == 1 else "l2")
    for i, c in enumerate(chosen):
        bounds = tuple(b for b in every[c.label].lower_bounds if b.loss == loss)
        chosen[i] = replace(c, bounds=bounds)
    reached = {c.level for c in chosen}
    unreached = {
        t.value: "; ".join(f"{k}: {v}" for k, v in refused.get(t, {}).items()) or NOBODY_THERE[t]
        for t in comparison.levels
        if t not in reached
    }
    n_users = len(loaded.users)
    about = {
        "title": loaded.title,
        "n_users": n_users,
        "unreached": unreached,
        "facts": list(facts_for(loaded, chosen[0].protocol)),
        "doubts": list(budget_doubts(comparison.epsilon, comparison.delta, n_users)),
    }
    return Ready(comparison, tuple(chosen), tuple(out.items()), loss, truth, about)


def _contender(comparison: Comparison, entry: Entry, loaded: Loaded, taken: set[str]) -> Contender:
    """Build a row's protocol."""
    cls = protocol_class(str(entry.table["name"]))
    common = _settings_of(cls, comparison.common, entry, loaded)
    premise, own = premise_of_tables(entry, comparison.common, comparison.delta)
    entry = replace(entry, table=own)
    taken.update(common, premise)
    given: dict[str, Any] = {
        "epsilon": comparison.epsilon,
        "delta": comparison.delta,
        "adjacency": comparison.adjacency.value,
    }
    if loaded.value_range is not None:  # what a population makes public and protocols may be told
        given |= dict(zip(("low", "high"), loaded.value_range, strict=True))
    if loaded.users.samples is not None:
        given["dimension"] = loaded.users.samples.values.shape[1]
    first = {k: v for k, v in given.items() if k in parameters(cls)}
    table: dict[str, Any] = {**first, **common, **entry.table}
    prepared = prepare_cell(_cell(comparison, table, entry.label, 0))
    if setting_of(entry.level):
        table = {**table, **premise, **setting_of(entry.level)}
        try:
            prepared = prepare_cell(_cell(comparison, table, entry.label, 0))
        except REFUSALS as e:
            raise LevelRefused(str(e)) from None
    flags = flags_of(prepared.protocol)
    if flags != (NOT_PRIVATE,) and set(prepared.not_private) - set(loaded.not_private):
        flags += (READS,)
    return Contender(entry.label, table, prepared.protocol, flags, level=entry.level)


def _settings_of(
    cls: type[Protocol], common: Mapping[str, Any], entry: Entry, loaded: Loaded
) -> dict[str, Any]:
    """Return the common settings that a protocol has, and those that its ``resolve`` replaces."""
    own = {k: v for k, v in common.items() if k in parameters(cls)}
    for key in common.keys() - own.keys():
        given = {k: v for k, v in entry.table.items() if k != "name"}
        try:
            resolved, _ = cls.resolve({**given, key: common[key]}, loaded.users, loaded.domain)
        except REFUSALS:
            continue
        if key not in resolved:
            own[key] = common[key]
    return own


def _cell(comparison: Comparison, table: Mapping[str, Any], label: str, seed: int) -> Cell:
    return Cell(table, comparison.population, {**asdict(comparison.run), "seed": seed}, label)


def _common_truth(
    comparison: Comparison, contenders: Sequence[tuple[Contender, Exact]]
) -> tuple[Truth, Exact]:
    """Return what errors are about: as the file says, or what most protocols estimate."""
    asked, of = comparison.truth, [_estimated(c.protocol) for c, _ in contenders]
    able = [i for i, truth in enumerate(of) if asked in (None, truth.value)]
    if not able:
        known = ", ".join(dict.fromkeys(repr(truth.value) for truth in of))
        raise ValueError(f"compare.truth: nobody here estimates {asked!r}, but {known}")
    most = max(able, key=lambda i: sum(contenders[i][1].same(other) for _, other in contenders))
    return of[most], contenders[most][1]


def _estimated(protocol: Protocol) -> Truth:
    """Name what a protocol estimates; who takes users to be alike averages over them."""
    own = protocol.estimates
    return Truth.AVERAGE_OF_USERS if own is Truth.COMMON else own


def _other_truth(protocol: Protocol, own: Exact, truth: Truth, exact: Exact) -> str:
    gap = own.gap(exact)
    by = f"differ by up to {gap:.3g} an entry" if math.isfinite(gap) else "have other entries"
    told = _estimated(protocol)
    if told is truth:
        return f"its exact answers {by} from the others' on these users"
    return f"estimates {told.value!r}, the comparison {truth.value!r}: they {by} on these users"
