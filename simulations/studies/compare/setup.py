"""Who takes part in a comparison: settled before anything is run.

A protocol is left out, with the reason, if it cannot be configured, passes the common budget, or
answers in other entries. One that can only be had under another adjacency, for another unit than
the user, or with settings that read the data, is run and not ranked. One that estimates another
truth is held against the common one like the others, and how far its own is from it is shown.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from fedhist.base.errors import FedhistError, nearest
from fedhist.model.evaluation import Facts, measured
from fedhist.model.prediction import LowerBound
from fedhist.model.protocol import Protocol
from fedhist.model.registry import parameters, protocol_class
from fedhist.model.truths import Truth
from fedhist.privacy.adjacency import NoTotalError, convert
from fedhist.privacy.guarantee import Adjacency, Guarantee, Trust, pure
from simulations.populations import Loaded
from simulations.runs.config import Config, Prepared, population_spec
from simulations.runs.facts import budget_doubts, facts_for
from simulations.runs.results import NOT_PRIVATE
from simulations.studies.compare.config import Comparison
from simulations.studies.compare.ladder import (
    Entry,
    LevelRefused,
    Unreached,
    check_premises,
    premise_of_tables,
    unreached,
)
from simulations.studies.records.cells import Cell, load_once, prepare_cell
from simulations.studies.records.levels import setting_of
from simulations.studies.records.truth import Exact, exact_of, known_truths, sampling_error

READS = "its settings read the data: a reference"

ROUNDING = 1e-9
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
    asked : str
        The common truth, where it is not the protocol's own.
    """

    label: str
    table: Mapping[str, Any]
    protocol: Protocol
    flags: tuple[str, ...]
    bounds: tuple[LowerBound, ...] = ()
    level: Trust | None = None
    asked: str = ""


@dataclass(frozen=True)
class LeftOut:
    """A protocol that is not run, and why."""

    label: str
    protocol: str
    reason: str
    level: Trust | None = None


@dataclass(frozen=True)
class Ready:
    """A comparison whose rows are settled.

    Attributes
    ----------
    comparison : Comparison
    title : str
        The population in words.
    n_users : int
    contenders : tuple of Contender
    left_out : tuple of LeftOut
    loss : str
        The common loss.
    sampling : float or None
        The truth's own error about the population behind the users; NOT PRIVATE.
    truth : Truth
        What errors are about.
    truths : tuple of Truth
        What else they might be about: values of ``compare.truth``.
    unreached : tuple of Unreached
        Levels of trust on which nothing is run.
    facts : tuple of str
        What matters about the users beside errors; NOT PRIVATE.
    doubts : tuple of str
        Where the budget protects nobody.
    """

    comparison: Comparison
    title: str
    n_users: int
    contenders: tuple[Contender, ...]
    left_out: tuple[LeftOut, ...]
    loss: str
    sampling: float | None
    truth: Truth
    truths: tuple[Truth, ...] = ()
    unreached: tuple[Unreached, ...] = ()
    facts: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Every protocol with every fraction and every seed."""
        c = self.comparison
        return tuple(
            replace(_cell(c, p.table, p.label, s), adversary=c.attack(f), asked=p.asked)
            for f in self.fractions
            for p in self.contenders
            for s in c.seeds
        )

    @property
    def fractions(self) -> tuple[float | None, ...]:
        """Shares of misbehaving users that are compared; None for what the tables say."""
        return self.comparison.fractions or (None,)


def set_up(comparison: Comparison) -> Ready:
    """Load the population and settle who takes part.

    Raises
    ------
    ValueError, PopulationError
        If the population or a protocol that the file names cannot be configured, or if a common
        setting is no protocol's.
    """
    check_premises(comparison.levels, comparison.common, comparison.run.nodes)
    config = Config(comparison.name, comparison.run, {"name": ""}, comparison.population)
    loaded = load_once(comparison.population, population_spec(config))
    found: list[tuple[Contender, Exact]] = []
    every: dict[str, Facts] = {}
    out = [
        LeftOut(name, name, "left out by the configuration (compare.without)")
        for name in comparison.without
    ]
    taken: set[str] = set()
    for entry in comparison.entries:
        try:
            contender = _contender(comparison, entry, loaded, taken)
            known = measured(contender.protocol, loaded.users)
            own = Exact.of(contender.protocol, known)
        except LevelRefused as e:
            out.append(LeftOut(entry.label, str(entry.table["name"]), str(e), entry.level))
            continue
        except REFUSALS as e:
            if entry.named:
                named = "" if entry.label in str(e) else f"{entry.label}: "
                raise ValueError(f"{named}{e}") from None
            left = LeftOut(entry.title, str(entry.table["name"]), str(e))
            out += [left] * (left not in out)  # on every level the same
            continue
        excess = _excess(comparison, contender.protocol.guarantee, entry)
        if excess:
            out.append(LeftOut(entry.label, contender.protocol.name, excess))
        else:
            found.append((contender, own))
            every[contender.label] = known
    if comparison.entries:
        _check_common(comparison, taken)
    if not found:
        told = [f"{x.label}: {x.reason}" for x in out]
        told += [f"{u.trust.value}: {u.reason}" for u in unreached(comparison.levels, ())]
        raise ValueError(f"nothing can be compared: {'; '.join(told)}")
    truth, exact = _common_truth(comparison, found, loaded, every)
    alike = [c for c, own in found if own.same(exact)] or [c for c, _ in found]
    loss = comparison.loss or _own_loss([every[c.label] for c in alike])
    kept = []
    for contender, own in found:
        if own.same(exact):
            kept.append(contender)
        elif _can_be_held(truth, exact, contender.protocol, loaded, every[contender.label]):
            kept.append(replace(contender, asked=truth.value))
        else:
            out.append(_other_truth(contender, own, truth, exact))
    if not kept:
        raise ValueError(f"nothing can be compared: no protocol answers about {truth.value!r}")
    kept = [replace(c, bounds=_bounds(every[c.label], loss)) for c in kept]
    empty = set(comparison.levels) - {c.level for c in kept}
    return Ready(
        comparison,
        loaded.title,
        len(loaded.users),
        tuple(kept),
        tuple(out),
        loss,
        sampling_error(exact, loaded.users, loss),
        truth,
        tuple(t for t in known_truths(kept[0].protocol) if t is not truth),
        unreached(empty, [(x.level, x.label, x.reason) for x in out]),
        facts_for(loaded, kept[0].protocol),
        budget_doubts(comparison.epsilon, comparison.delta, len(loaded.users)),
    )


def _check_common(comparison: Comparison, taken: set[str]) -> None:
    """Refuse a common setting that no protocol takes."""
    for key in comparison.common.keys() - taken:
        known = {k for e in comparison.entries for k in parameters(protocol_class(e.table["name"]))}
        raise ValueError(f"no protocol here has the parameter {key!r}{nearest(key, known)}")


def _bounds(known: Facts, loss: str) -> tuple[LowerBound, ...]:
    """Return the lower bounds that are known in the common loss."""
    return tuple(b for b in known.lower_bounds if b.loss == loss)


def _contender(comparison: Comparison, entry: Entry, loaded: Loaded, taken: set[str]) -> Contender:
    """Build a row's protocol; under its own adjacency if the common one cannot be had."""
    cls = protocol_class(str(entry.table["name"]))
    common = _settings_of(cls, comparison.common, entry, loaded)
    premise, own = premise_of_tables(entry, comparison.common, comparison.delta)
    entry = replace(entry, table=own)
    taken.update(common, premise)
    budget = {
        "epsilon": comparison.epsilon,
        "delta": comparison.delta,
        "adjacency": comparison.adjacency.value,
    }
    first = {k: v for k, v in (budget | _public(loaded)).items() if k in parameters(cls)}
    table: dict[str, Any] = {**first, **common, **entry.table}
    table, prepared = _build(comparison, table, entry)
    if setting_of(entry.level):
        table = {**table, **premise, **setting_of(entry.level)}
        try:
            prepared = prepare_cell(_cell(comparison, table, entry.label, 0))
        except REFUSALS as e:
            raise LevelRefused(str(e)) from None
    flags = _flags(comparison.adjacency, prepared.protocol)
    if flags != (NOT_PRIVATE,) and set(prepared.not_private) - set(loaded.not_private):
        flags += (READS,)
    return Contender(entry.label, table, prepared.protocol, flags, level=entry.level)


def _build(
    comparison: Comparison, table: dict[str, Any], entry: Entry
) -> tuple[dict[str, Any], Prepared]:
    """Build a protocol; without the common adjacency if it refuses that."""
    try:
        return table, prepare_cell(_cell(comparison, table, entry.label, 0))
    except REFUSALS:
        if "adjacency" not in table or "adjacency" in entry.table:
            raise
        own = {k: v for k, v in table.items() if k != "adjacency"}
        try:
            return own, prepare_cell(_cell(comparison, own, entry.label, 0))
        except REFUSALS:
            pass  # the adjacency was not the reason
        raise


def _public(loaded: Loaded) -> dict[str, Any]:
    """Return what a population makes public and protocols may be told."""
    out: dict[str, Any] = {}
    if loaded.value_range is not None:
        out["low"], out["high"] = loaded.value_range
    if loaded.users.samples is not None:
        out["dimension"] = loaded.users.samples.values.shape[1]
    return out


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


def _flags(common: Adjacency, protocol: Protocol) -> tuple[str, ...]:
    """Say why a guarantee is not of the common kind."""
    g = protocol.guarantee
    if not g.private:
        return (NOT_PRIVATE,)
    if g.unit != "user":
        return (f"{g.unit}-level: does not protect a user",)
    with suppress(NoTotalError):  # replacement says the same of emptying, say
        stated = pure(g.epsilon)
        if convert(stated, g.adjacency, common, null_safe=protocol.null_safe) == stated:
            return ()
    return (f"other adjacency: {g.adjacency.value}",)


def _excess(comparison: Comparison, g: Guarantee, entry: Entry) -> str:
    """Say by how much a guarantee passes the common budget; empty if it does not."""
    asked = entry.table.get("epsilon")
    if not g.private and asked in (math.inf, "inf"):
        return ""  # a reference, which says so
    within = g.epsilon <= comparison.epsilon * (1 + ROUNDING)
    if within and g.delta <= comparison.delta * (1 + ROUNDING):
        return ""
    return f"passes the common budget ({comparison.epsilon:g}, {comparison.delta:g}): {g}"


def _common_truth(
    comparison: Comparison,
    found: Sequence[tuple[Contender, Exact]],
    loaded: Loaded,
    every: Mapping[str, Facts],
) -> tuple[Truth, Exact]:
    """Return what errors are about: as the file says, or what most protocols estimate."""
    most = int(np.argmax([sum(a.same(b) for _, b in found) for _, a in found]))
    usual, exact = found[most]
    own = usual.protocol.estimates
    truth: Truth = Truth.AVERAGE_OF_USERS if own is Truth.COMMON else own
    if not comparison.truth and all(other.same(exact) for _, other in found):
        return truth, exact
    if comparison.truth:
        truth = Truth(comparison.truth)
        known = list(dict.fromkeys(t for c, _ in found for t in known_truths(c.protocol)))
        if truth not in known:
            listed = ", ".join(repr(t.value) for t in known)
            raise ValueError(
                f"compare.truth: estimates of a {comparison.target} can be held against {listed}, "
                f"not against {truth.value!r}"
            )
        usual = next((c for c, _ in found if c.protocol.estimates is truth), usual)
    try:
        mine = every[usual.label]
        return truth, exact_of(truth, usual.protocol, loaded.users, loaded.domain, mine)[0]
    except REFUSALS as e:
        if comparison.truth:
            raise ValueError(f"compare.truth: {e}") from None
        return truth, exact


def _can_be_held(
    truth: Truth, exact: Exact, protocol: Protocol, loaded: Loaded, known: Facts
) -> bool:
    """Whether a protocol's estimate can be held against the common truth."""
    try:
        found, _ = exact_of(truth, protocol, loaded.users, loaded.domain, known)
    except REFUSALS:
        return False
    return found.same(exact)


def _other_truth(contender: Contender, own: Exact, truth: Truth, exact: Exact) -> LeftOut:
    gap = own.gap(exact)
    by = f"by up to {gap:.3g} an entry" if math.isfinite(gap) else "and has other entries"
    reason = f"its truth cannot be held against {truth.value!r}: it differs {by} on these users"
    return LeftOut(contender.label, contender.protocol.name, reason)


def _own_loss(every: Iterable[Facts]) -> str:
    """Return the loss that the protocols themselves have in common, or "l2"."""
    names = {known.error.loss for known in every}
    return names.pop() if len(names) == 1 else "l2"
