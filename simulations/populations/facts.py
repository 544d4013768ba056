"""What no estimate shows of a population: items left out or clipped, names written in two ways.

Everything here is computed from the users' data outside any guarantee: NOT PRIVATE.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from clients.records.functionals import BallMean
from clients.records.user_rows import norms
from fedhist.base.arrays import ROUNDING, Floats, Integers
from fedhist.model.protocol import Protocol
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from fedhist.users.shards import BLOCK, Shard
from server.targets.domains import user_norms
from server.targets.mean_target import MeanTarget
from simulations.populations import Plan, item_totals

if TYPE_CHECKING:
    import polars as pl

WORTH_SAYING = 0.01
"""Share of the events, or of the users, from which on it is said that they are left out."""
MOST_EPSILON = 64.0
"""Beyond it nothing is protected; planners search up to it."""

MUCH = 0.05
"""Share of the events from which on it is said that a clip takes it; a good one takes some."""

MOST_WALKED = 1_000_000
"""Users who are all looked at for what is said beside an estimate; of more, a block's worth is."""

MOST_WHOLE = 1000
"""Bins of whole numbers, one for each; of more, a bin of several is no wrong answer."""

FAULTS = ("too many fields", "missing", "bad")
"""How the words begin for rows that were left out, and not changed."""


@dataclass(frozen=True)
class Outside:
    """What a domain, or a range, leaves out. NOT PRIVATE.

    ``events``: share of the events whose item is not in the domain; of the samples outside the
    range; ``users``: share of the users who hold something, and nothing that is inside.
    """

    events: float = 0.0
    users: float = 0.0

    @property
    def matters(self) -> bool:
        """Whether it is enough to be said."""
        return max(self.events, self.users) >= WORTH_SAYING


def outside_domain(users: Shard, domain: Keys) -> Outside:
    """Measure what a domain leaves out.

    Examples
    --------
    >>> users = Users.from_records({"ann": {"tea": 1, "rye": 2}, "bob": {"rye": 1}})
    >>> outside_domain(users, Keys.of(["tea"]))
    Outside(events=0.75, users=0.5)
    """
    known = domain.positions(users.none.vocabulary) >= 0
    if known.all():
        return Outside()
    kept, total, reached, holding = 0.0, 0.0, 0, 0
    for batch in users.blocks():
        items = batch.counts
        inside = known[items.item]
        kept += float(items.count[inside].sum())
        total += float(items.count.sum())
        reached += _holders(inside, items.indptr)
        holding += int(np.count_nonzero(batch.n_items()))
    return _left_out(kept, total, reached, holding)


def samples_outside(
    users: Shard, low: float, high: float, *, ball: bool = False
) -> tuple[Outside, int]:
    """Measure what a range leaves out, and count users without a usable record, in one walk.

    The range is of every coordinate, to which samples are clipped; or ``high`` is the radius of a
    ``ball``, onto which they are scaled.
    """
    kept, total, reached, holding, unusable = 0, 0, 0, 0, 0
    for batch in users.blocks():
        unusable += batch.n_unusable()
        x = batch.reals.values
        with np.errstate(invalid="ignore"):
            inside = norms(x) <= high * ROUNDING if ball else ((x >= low) & (x <= high)).all(axis=1)
        inside |= np.isnan(x).any(axis=1)  # unusable, which is counted elsewhere
        kept, total = kept + int(inside.sum()), total + len(x)
        reached += _holders(inside, batch.reals.indptr)
        holding += int(np.count_nonzero(batch.n_items()))
    return _left_out(kept, total, reached, holding), unusable


def _holders(inside: ArrayLike, indptr: Integers) -> int:
    """Count the users who have an entry inside."""
    before = np.append(0, np.cumsum(inside))
    return int(np.count_nonzero(np.diff(before[indptr])))


def _left_out(kept: float, total: float, reached: int, holding: int) -> Outside:
    return Outside(1 - kept / total, (holding - reached) / holding) if holding else Outside()


def words_of_names(names: Keys, totals: Floats, domain: Keys | None = None) -> str:
    """Say which names are counted apart that may be one; nothing if there are none.

    Two names are compared by what is left of them after compatibility decomposition and composition
    (NFKC), in small letters, without invisible signs, with single blanks and none at the ends. The
    example is the group with the most events under other spellings than its most frequent one,
    preferably a group of which the domain has a name, but not all.

    ``totals``: (len(names),) float64, events of each.

    Examples
    --------
    >>> said = words_of_names(Keys.of(["Tea", "rye", "tea "]), np.array([5.0, 1.0, 2.0]))
    >>> said.partition("only, ")[2].partition(";")[0]
    "25% of events: 'Tea' and 'tea ' are counted apart"
    """
    if _plain(names):
        return ""
    import polars as pl  # takes its time, which synthetic populations are spared

    inside = np.zeros(len(names), bool) if domain is None else domain.positions(names) >= 0
    table = pl.DataFrame({"name": list(names), "total": totals, "inside": inside})
    groups = (
        table.with_columns(normal_form(pl.col("name")).alias("form"))
        .filter(pl.len().over("form") > 1)
        .sort("total", "name", descending=[True, False])
        .group_by("form", maintain_order=True)
        .agg(
            pl.col("name", "inside"),
            (pl.col("total").sum() - pl.col("total").max()).alias("others"),
        )
        .sort("others", descending=True, maintain_order=True)
    )
    if not len(groups):
        return ""
    split = groups.filter(pl.col("inside").list.any() & ~pl.col("inside").list.all())
    if len(split):
        spellings, known = split.row(0)[1:3]
        one, other = spellings[known.index(True)], spellings[known.index(False)]
        pair = f"{spelt(one)} is in the domain, the other is left out ({spelt(other)})"
    else:
        one, other = groups["name"][0][:2]
        pair = f"{spelt(one)} and {spelt(other)} are counted apart"
    what = "group of names differs" if len(groups) == 1 else "groups of names differ"
    share = float(groups["others"].sum()) / max(float(totals.sum()), 1.0)
    return (
        f"{len(groups):,} {what} in case, blanks or Unicode form only, "
        f"{percent(share)} of events: {pair}; write them alike if they mean one thing"
    )


def _plain(names: Keys) -> bool:
    """Whether all names are their own normal form: small letters, digits and signs of ASCII."""
    data = names.data
    capital = (data >= ord("A")) & (data <= ord("Z"))
    return bool(((data > ord(" ")) & (data < 127) & ~capital).all())


def normal_form(names: pl.Expr) -> pl.Expr:
    """Return the expression that makes similar names equal."""
    return (
        names.str.normalize("NFKC")
        .str.to_lowercase()
        .str.replace_all(r"\p{Cf}", "")
        .str.replace_all(r"\s+", " ")
        .str.strip_chars()
    )


def facts_of(
    plan: Plan, value_range: tuple[float, float] | None = None, *, ball: bool = False
) -> tuple[str, ...]:
    """Say in sentences what matters about a population for whoever reads an estimate of it.

    ``value_range``: (float, float), optional, where samples are clipped to, or the diameter of the
    ``ball`` onto which they are scaled; default: the population's own.

    Returns
    -------
    tuple of str
        Each is NOT PRIVATE; empty where nothing is out of the ordinary.
    """
    users = plan.users
    told = [*plan.warnings, words_of_dropped(plan.dropped)]
    if users.none.items is None:
        ends = value_range or plan.value_range
        outside, unusable = samples_outside(users, *(ends or (-math.inf, math.inf)), ball=ball)
        told += [] if ends is None else [words_of_range(outside, *ends, ball=ball)]
        told.append(words_of_unusable(unusable))
        return tuple(t for t in told if t)
    domain = plan.domain
    told += [] if domain is None else [words_of_domain(outside_domain(users, domain))]
    told.append(words_of_names(users.none.vocabulary, item_totals(users), domain))
    return tuple(t for t in told if t)


def facts_of_run(plan: Plan, protocol: Protocol) -> tuple[str, ...]:
    """Say what matters about users for an estimate of this protocol. NOT PRIVATE.

    Returns what its domain or range leaves out, and what its clip takes; marked where only some of
    the users were looked at.
    """
    n = len(plan.users)
    if n <= MOST_WALKED or isinstance(plan.users, Users):
        return facts_for(plan, protocol) + words_of_clip(plan.users, protocol)
    some = plan.users.slice(0, BLOCK).in_memory()  # their order tells nothing of their data
    visible = replace(plan, users=some, warnings=(), dropped={})
    told = facts_for(visible, protocol) + words_of_clip(some, protocol)
    exact = [t for t in (*plan.warnings, words_of_dropped(plan.dropped)) if t]
    return (*exact, *(f"{fact} (sampled: {len(some):,} of {n:,} users)" for fact in told))


def facts_for(plan: Plan, protocol: Protocol) -> tuple[str, ...]:
    """Say what matters about users, by the domain, range or ball of a protocol. NOT PRIVATE."""
    domain = getattr(protocol, "domain", None)
    domain = domain if isinstance(domain, Keys) else None
    ends: Any = protocol.value_range  # of means, which lie where samples do
    if not isinstance(protocol, MeanTarget) or math.isinf(ends[1]):
        ends = getattr(protocol, "low", None), getattr(protocol, "high", None)
    ends = ends if all(isinstance(end, int | float) for end in ends) else None
    in_ball = isinstance(getattr(protocol, "part", None), BallMean)
    ball = in_ball or getattr(protocol, "geometry", None) == "l2"  # of mean-l2, and of naive-mean
    told = facts_of(replace(plan, domain=domain), value_range=ends, ball=ball)
    return (*told, *_words_of_bins(plan.users, protocol))


def bins_of_whole_numbers(values: Floats) -> dict[str, Any]:
    """Return a range with one bin for each of few whole numbers; nothing for other values."""
    x = values[np.isfinite(values)]
    if not len(x) or (np.rint(x) != x).any() or np.ptp(x) >= MOST_WHOLE:
        return {}
    ends = {"low": float(x.min()) - 0.5, "high": float(x.max()) + 0.5}
    return ends | {"n_bins": int(np.ptp(x)) + 1}


def _words_of_bins(users: Shard, protocol: Protocol) -> tuple[str, ...]:
    """Say where quantiles of whole numbers are asked between them."""
    asked: dict[str, Any] = {k: getattr(protocol, k, None) for k in ("low", "high", "n_bins")}
    if protocol.target != "quantiles" or not isinstance(users, Users) or None in asked.values():
        return ()
    best = bins_of_whole_numbers(users.reals.values)
    if not best or (asked["high"] - asked["low"]) / asked["n_bins"] == 1:
        return ()
    told = ", ".join(f"{k} = {v:g}" for k, v in best.items())
    return (f"the values are whole numbers: {told} give quantiles that are whole numbers",)


def words_of_clip(users: Shard, protocol: Protocol) -> tuple[str, ...]:
    """Say how much a clip takes of the events in the domain, where it is worth saying."""
    clip, norm = getattr(protocol, "clip", None), getattr(protocol, "norm", None)
    domain = getattr(protocol, "domain", None)
    if not (isinstance(clip, int | float) and norm in (1, 2) and isinstance(domain, Keys)):
        return ()
    total, kept, above = 0.0, 0.0, 0
    for block in users.blocks():
        l1, l2 = user_norms(block, domain)
        size = l1 if norm == 1 else l2
        factor = clip / np.maximum(np.maximum(size, clip), 1e-300)  # scales what a user holds
        total, kept = total + float(l1.sum()), kept + float((l1 * factor).sum())
        above += int(np.count_nonzero(size > clip))
    if not total or kept >= (1 - MUCH) * total:
        return ()
    return (
        f"the clip of {clip:g} takes {percent(1 - kept / total)} of the events in the domain, from "
        f"the {percent(above / len(users))} of users who hold more: totals come out so much too "
        "small; a larger clip adds noise in proportion",
    )


def budget_doubts(epsilon: float, delta: float, n_users: int) -> tuple[str, ...]:
    """Say where a budget protects nobody; nothing of ``epsilon = inf``, which says so itself.

    >>> budget_doubts(1.0, 1e-6, 1000)
    ()
    """
    out = []
    if MOST_EPSILON < epsilon < math.inf:
        out.append(
            f"epsilon = {epsilon:g} protects nobody: a guess about a user may become e^{epsilon:g} "
            "times as likely; take 10 or less for a promise, inf for a reference without noise"
        )
    if delta * n_users > 1:
        out.append(
            f"delta = {delta:g} is more than 1 / {n_users:,} users: to publish one of them in full "
            "would keep such a promise; take it well below one over the number of users"
        )
    return tuple(out)


def words_of_dropped(dropped: Mapping[str, int]) -> str:
    """Say what the loader left out or changed; nothing if it did not.

    >>> words_of_dropped({"missing item": 2})
    'the loader: 2 x missing item; such rows are in no estimate and in no truth'
    """
    if not dropped:
        return ""
    rest = any(why.startswith(FAULTS) for why in dropped)
    what = ", ".join(f"{n:,} x {why}" for why, n in dropped.items())
    return f"the loader: {what}" + "; such rows are in no estimate and in no truth" * rest


def words_of_domain(outside: Outside) -> str:
    """Say what a domain leaves out and what that means; nothing if it is little.

    >>> words_of_domain(Outside(0.978, 0.67)).partition(":")[0]
    '97.8% of events and 67% of users fall outside the domain'
    """
    if not outside.matters:
        return ""
    return (
        f"{percent(outside.events)} of events and {percent(outside.users)} of users fall outside "
        "the domain: neither estimate nor truth is about them (a longer domain takes more noise)"
    )


def words_of_range(outside: Outside, low: float, high: float, *, ball: bool) -> str:
    """Say what a range, or a ball, leaves out and what that means; nothing if it is little."""
    if not outside.matters:
        return ""
    where = f"the ball of radius {high:g}" if ball else f"[{low:g}, {high:g}]"
    return (
        f"{percent(outside.events)} of samples lie outside {where}, for "
        f"{percent(outside.users)} of users all: each counts as the nearest point inside, which "
        "draws means inwards, and no standard error covers that; a wider one adds noise"
    )


def words_of_unusable(n: int) -> str:
    """Say how many users a protocol puts its null record for; nothing if there are none.

    >>> words_of_unusable(3).partition(":")[0]
    '3 users have no sample, or one that is infinite'
    """
    if not n:
        return ""
    return (
        f"{n:,} users have no sample, or one that is infinite: a null record stands for each; "
        "no truth counts them"
    )


def spelt(name: str) -> str:
    r"""Quote a name so that it can be told from similar ones: what is not composed is escaped.

    >>> print(spelt("caf\u00e9"), spelt("cafe\u0301"), spelt("te\u200ba"))
    'café' 'cafe\u0301' 'te\u200ba'
    """
    return repr(name) if unicodedata.is_normalized("NFC", name) else ascii(name)


def percent(share: float) -> str:
    """Write a share with three digits, and never 0% or 100% for what is not.

    >>> percent(0.978), percent(0.67), percent(1e-9), percent(0.99999), percent(1.0), percent(0.0)
    ('97.8%', '67%', '<0.1%', '>99.9%', '100%', '0%')
    """
    if 0 < share < 0.001:
        return "<0.1%"
    return ">99.9%" if 0.999 < share < 1 else f"{100 * share:.3g}%"
