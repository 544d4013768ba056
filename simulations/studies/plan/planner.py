"""How many users, samples per user, or how much epsilon a target error takes, by theory.

The prediction :meth:`Protocol.error` is the oracle. A coarse walk over the range finds where it is
below the target for good, and a search inside the last step refines that: a prediction that falls
and rises again is not taken for one that falls. A script that refuses a size before it asks has an
infinite error there. NOT PRIVATE: the population is a template, made up or drawn from a file.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fedhist.base.checks import check_size
from fedhist.model.prediction import LowerBound
from fedhist.model.registry import load_builtin, load_plugin, protocol_class
from fedhist.privacy.guarantee import Adjacency, Trust
from simulations.runs.config import Config
from simulations.studies.plan.parts import least_of, limit, share_of
from simulations.studies.plan.population import (
    MOST_ENTRIES,
    Template,
    TooLarge,
    Unknown,
    for_protocol,
)
from simulations.studies.plan.search import (
    REASONS,
    Oracle,
    Point,
    first_asked,
    local_slope,
    refine,
    walk,
)
from simulations.studies.records.adjacency import with_common
from simulations.studies.records.levels import (
    NOBODY_THERE,
    OF_NATIVE,
    Premise,
    on_level,
    premise_of,
)
from simulations.studies.records.metrics import foreseen_bytes

RANGE: dict[Unknown, tuple[float, float]] = {
    "n_users": (1, 1e9),
    "samples_per_user": (1, 1e9),
    "epsilon": (0.01, 64.0),
}
"""Where to search if every value is cheap."""


MOST_LOG = math.log(1e15)
"""Logarithm of the largest value that an extrapolation names."""


@dataclass(frozen=True)
class Answer:
    """What a plan found for one protocol.

    Attributes
    ----------
    config : Config
        The template.
    label : str
    unknown : {"n_users", "samples_per_user", "epsilon"}
    target : float
    relative : bool
        Whether errors are shares of the error of an estimate that is 0 everywhere.
    x : float or None
        The least value from which on the prediction stays below the target, up to ``searched``.
    predicted : float
        The prediction there; NaN without an answer.
    loss, source : str
    exact : bool
        Whether the prediction is an exact formula for the template's users.
    limit : str
        What the error there mostly comes from, with its share.
    rounds : int
    bytes_per_user : float
        In all rounds; ``bytes_of`` of them where what comes after is not known beforehand.
    bytes_of : int
    refused_below : float or None
        Least value at which the script asks anybody, if there are some at which it does not.
    reason : str
        Why it does not, at the largest value at which it does not.
    searched : float
        Largest value that was looked at.
    best : Point or None
        Least predicted error of all that were looked at.
    beyond : float or None
        Without an answer: where the last slope of the prediction would reach the target.
    slope : float
        d log error / d log x around the answer, or at the end of the search.
    read : bool
        Whether theory looked at the users of the template, not at public numbers only.
    notes : tuple of str
    at_least : LowerBound or None
        The largest lower bound that is known there, for any protocol of this guarantee.
    level : Trust or None
        The level of trust, where several are planned; ``believed`` says what it takes there.
    adjacency : Adjacency or None
        Of the guarantee; None where the protocol could not be built.
    share : float or None
        The prediction as a share of the answer's size, of users like the template's.
    """

    config: Config
    label: str
    unknown: Unknown
    target: float
    relative: bool
    x: float | None = None
    predicted: float = math.nan
    loss: str = ""
    source: str = ""
    exact: bool = False
    limit: str = ""
    rounds: int = 0
    bytes_per_user: float = math.nan
    bytes_of: int = 0
    refused_below: float | None = None
    reason: str = ""
    searched: float = math.nan
    best: Point | None = None
    beyond: float | None = None
    slope: float = math.nan
    read: bool = False
    notes: tuple[str, ...] = ()
    at_least: LowerBound | None = None
    level: Trust | None = None
    believed: Premise | None = None
    adjacency: Adjacency | None = None
    share: float | None = None


def plan(
    config: Config,
    error: float,
    unknown: Unknown = "n_users",
    *,
    relative: bool = False,
    most: float | None = None,
    loss: str = "",
    between: tuple[float, float] | None = None,
) -> Answer:
    """Find the least value of the unknown for a target error.

    Parameters
    ----------
    config : Config
        The population is the template; its value of the unknown does not matter.
    error : float
        Target, in the protocol's loss; must be positive.
    unknown : {"n_users", "samples_per_user", "epsilon"}
    relative : bool
        Whether ``error`` is a share of the error of an estimate that is 0 everywhere.
    most : float, optional
        Largest value to look at, whatever it costs. Default: all that is quick.
    loss : str
        The loss that the target is in; empty takes the protocol's own.
    between : (float, float), optional
        The part of the range to look at, of who has looked elsewhere. Default: all of it.

    Returns
    -------
    Answer

    Raises
    ------
    ValueError
        If the target, the unknown or the population cannot be meant, or if the protocol cannot be
        configured at any value.
    """
    check_size("the target error", error)
    load_builtin()
    for plugin in config.run.plugins:
        load_plugin(plugin)
    template = Template(config, unknown, MOST_ENTRIES if most is None else math.inf)
    low, high = between or RANGE[unknown]
    if most is not None and not most >= low:
        raise ValueError(f"the largest {unknown} to look at must be at least {low:g}, got {most}")
    oracle = Oracle(template, relative=relative, loss=loss)
    walked = walk(oracle, error, low, high if most is None else most, whole=unknown != "epsilon")
    if not walked:
        raise ValueError("the smallest population is too large to plan with: give --most")
    reasons = [p for p in walked if p.reason]
    refused = first_asked(oracle, walked)
    if len(reasons) == len(walked) and _broken(oracle):
        raise ValueError(reasons[-1].reason)
    found = Answer(
        config,
        str(config.protocol["name"]),
        unknown,
        error,
        relative,
        searched=walked[-1].x,
        refused_below=refused,
        reason=reasons[-1].reason if reasons else "",
        best=min(walked, key=lambda p: (p.error, p.x)),
        read=oracle.read,
    )
    above = [i for i, p in enumerate(walked) if p.error > error]
    if above and above[-1] == len(walked) - 1:
        return _unreached(oracle, found, walked)
    if above:
        i = above[-1]
        best = refine(oracle, error, walked[i], walked[i + 1], whole=unknown != "epsilon")
    else:
        best = walked[0]
    notes = (_dip(walked[: above[-1]], error),) if above else ()
    found = replace(found, x=best.x, predicted=best.error, notes=tuple(n for n in notes if n))
    return describe(oracle, replace(found, slope=local_slope(oracle.points, best.x)))


def plans(
    config: Config,
    names: list[str],
    error: float,
    unknown: Unknown = "n_users",
    *,
    relative: bool = False,
    most: float | None = None,
) -> list[Answer]:
    """Plan several protocols on one template; what cannot be configured says why.

    Each takes of [protocol] the parameters that it has, and the common adjacency where that names
    none. The target of several is in the loss of the first.
    """
    loss = ""
    out = []
    for name in names:
        own = for_protocol(config, name)
        own = replace(own, protocol=with_common(own.protocol))
        try:
            out.append(plan(own, error, unknown, relative=relative, most=most, loss=loss))
            loss = loss or out[-1].loss.removeprefix("relative ")
        except REASONS as e:
            if len(names) == 1:
                raise
            out.append(Answer(own, name, unknown, error, relative, reason=str(e)))
    return out


def plan_levels(
    config: Config,
    names: list[str],
    levels: Sequence[Trust],
    error: float,
    unknown: Unknown = "n_users",
    *,
    relative: bool = False,
    most: float | None = None,
) -> list[Answer]:
    """Plan every level of trust, each with the protocols that have it.

    A level that none of them has is an answer without a protocol, whose reason says why. The target
    is in the loss of the first protocol, on all levels.
    """
    load_builtin()
    for plugin in config.run.plugins:
        load_plugin(plugin)
    usual = {name: protocol_class(name).example() for name in names}
    loss = usual[names[0]].error(type(usual[names[0]]).example_users()).loss
    out = []
    for level in levels:
        found = []
        for name in names:
            if level not in OF_NATIVE.get(usual[name].guarantee.trust, ()):
                continue
            own = replace(config, protocol=with_common(on_level(config.protocol, name, level)))
            blank = Answer(own, name, unknown, error, relative, level=level)
            try:
                answer = plan(own, error, unknown, relative=relative, most=most, loss=loss)
            except REASONS as e:
                found.append(replace(blank, reason=str(e)))
            else:
                found.append(replace(answer, level=level))
        none = Answer(config, "-", unknown, error, relative, reason=NOBODY_THERE[level])
        out += found or [replace(none, level=level)]
    return out


def _broken(oracle: Oracle) -> bool:
    """Say whether the protocol cannot even be built as configured."""
    try:
        oracle.prepared(oracle.template.at(oracle.template.current))
    except REASONS:
        return True
    except TooLarge:
        return False
    return False


def _dip(walked: list[Point], target: float) -> str:
    """Say where a prediction is below the target that rises above it again."""
    below = [p.x for p in walked if p.error <= target]
    if not below:
        return ""
    return (
        f"not monotone: the prediction is below the target from about {below[0]:,.4g} to "
        f"{below[-1]:,.4g} already, and above it again later"
    )


def _unreached(oracle: Oracle, found: Answer, walked: list[Point]) -> Answer:
    """Say how near the error comes to a target that is not reached, and what would do."""
    finite = [p for p in walked if math.isfinite(p.error)]
    notes = [n for n in (_dip(walked, found.target),) if n]
    if oracle.cut:
        most = f"more than {oracle.template.most_entries:,} values in all"
        notes.append(f"beyond that the users, with {most}, were not made: --most looks further")
    if len(finite) > 1:
        a, b = finite[-2:]
        slope = math.log(b.error / a.error) / math.log(b.x / a.x) if a.error and b.error else 0.0
        beyond = None
        if slope < -0.1 and b.x < RANGE[found.unknown][1]:
            log_beyond = math.log(b.x) + math.log(found.target / b.error) / slope
            beyond = math.exp(log_beyond) if log_beyond < MOST_LOG else None
        elif abs(slope) <= 0.1:
            notes.append(f"the prediction hardly falls any more: {b.error:.4g} at {b.x:,.4g}")
        elif slope > 0.1:
            notes.append("the prediction rises at the end of the range")
            if found.unknown == "n_users" and not found.relative:
                notes.append("an error in counts grows with the users: --relative divides by them")
        found = replace(found, slope=slope, beyond=beyond)
    if found.unknown == "samples_per_user":
        base = oracle.template.config
        try:
            other = plan(base, found.target, "n_users", relative=found.relative)
        except REASONS:
            other = found
        if other is not found and other.x is not None:
            notes.append(f"with the samples as configured, {other.x:,.0f} users would reach it")
    found = replace(found, notes=tuple(notes))
    best = found.best
    if best is None or not math.isfinite(best.error):
        return found
    at_best = describe(oracle, replace(found, x=best.x, predicted=best.error))
    return replace(at_best, x=None, predicted=math.nan)


def describe(oracle: Oracle, found: Answer) -> Answer:
    """Add to an answer what its error comes from and what a run costs."""
    x = found.x if found.x is not None else found.searched
    setting, bound = oracle.template.at(x), oracle.bounds[x]
    prepared = oracle.prepared(setting)
    protocol = prepared.protocol
    sent, asked = foreseen_bytes(protocol, oracle.template.sample(setting).users)
    return replace(
        found,
        loss=f"relative {bound.loss}" if found.relative else bound.loss,
        believed=premise_of(protocol),
        adjacency=protocol.guarantee.adjacency,
        share=share_of(oracle, setting, protocol, found.predicted, bound.loss),
        source=bound.source,
        exact=bound.exact,
        limit=limit(oracle, setting, protocol, found.predicted),
        rounds=protocol.max_rounds,
        bytes_per_user=sent,
        bytes_of=asked,
        at_least=None if found.relative else least_of(oracle, setting, protocol),
        notes=(*found.notes, *(f"NOT PRIVATE: {note}" for note in prepared.not_private)),
    )
