"""The profile of a population: what to know before a protocol is chosen. NOT PRIVATE."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.users.shards import Samples
from server.targets.sample_sizes import samples_held
from simulations.populations import Loaded, item_totals
from simulations.populations.facts import (
    Outside,
    facts_of,
    outside_domain,
    percent,
    samples_outside,
)
from simulations.reporting.shown import Shown
from simulations.reporting.table import Column, Table, numeric, short

HALF = 0.5
"""Share of everything in the hands of 1% of the users from which on that is said."""
FAR = 5.0
"""Times the width of the middle 98% of the values beyond which a value is far outside."""
LEVELS = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99)


@dataclass(frozen=True, repr=False)
class Profile(Shown):
    """What a population is like. NOT PRIVATE.

    Attributes
    ----------
    population : str
        The population in a line.
    n_users, n_events : int
        Users, and events or samples.
    n_items : int or None
        Different items; None for samples.
    per_user : mapping of str to float
        Quantiles of the events of a user: "least", "1%", ..., "99%", "most", and "mean".
    items_per_user, values : mapping of str to float
        The same of different items, and of the samples' values; empty where there are none.
    domain_size : int or None
    outside : Outside
        What falls outside the domain, or the public range.
    suggested : mapping of str to float
        ``samples_per_user``, and ``low`` and ``high`` of samples.
    warnings : tuple of str
    dropped : mapping of str to int
        Rows that the loader left out, or values that it changed, and why.
    """

    kind: ClassVar[str] = "profile"

    population: str
    n_users: int
    n_events: int
    n_items: int | None
    per_user: Mapping[str, float]
    items_per_user: Mapping[str, float]
    values: Mapping[str, float]
    domain_size: int | None
    outside: Outside
    suggested: Mapping[str, float]
    warnings: tuple[str, ...]
    dropped: Mapping[str, int]

    @property
    def title(self) -> str:
        """The population in a line."""
        return f"profile of {self.population}"

    def tables(self) -> Sequence[Table]:
        """Return facts, quantiles and suggestions."""
        columns = {f"{self._what} per user": self.per_user, "items per user": self.items_per_user}
        columns["values"] = self.values
        shown = {name: x for name, x in columns.items() if x}
        rows = [(q, *(x[q] for x in shown.values())) for q in self.per_user]
        suggested = Table.of(
            ["suggested", *numeric(["value"], write=_written)],
            list(self.suggested.items()),
            notes=["They read the data: a release takes what is known publicly."],
        )
        out = [self._facts(), Table.of(["quantile", *numeric(shown, write=_written)], rows)]
        return [*out, suggested] if self.suggested else out

    def document(self) -> dict[str, Any]:
        """Return plain data."""
        return {"kind": self.kind, **asdict(self), "NOT PRIVATE": self.not_private}

    @property
    def _what(self) -> str:
        return "samples" if self.n_items is None else "events"

    def _facts(self) -> Table:
        rows: list[Sequence[Any]] = [("users", self.n_users, ""), (self._what, self.n_events, "")]
        if self.n_items is not None:
            rows.append(("different items", self.n_items, ""))
        if self.domain_size is not None:
            rows.append(("items of the domain", self.domain_size, ""))
        if self.domain_size is not None or self.outside.matters:
            where = "range" if self.n_items is None else "domain"
            for who, share in ((self._what, self.outside.events), ("users", self.outside.users)):
                rows.append((f"{who} outside the {where}", share, percent(share)))
        rows += [(f"left out or changed: {why}", n, "") for why, n in self.dropped.items()]
        return Table.of(
            [Column("fact", keep=True), *numeric(["value"], write=_written), "in words"],
            rows,
            notes=[*(f"look here: {w}" for w in self.warnings)],
        )


def profile_of(loaded: Loaded) -> Profile:
    """Measure a population in memory. NOT PRIVATE."""
    users, domain = loaded.users, loaded.domain
    held = samples_held(users)
    outside, n_items = Outside(), None
    different: Mapping[str, float] = {}
    values: Mapping[str, float] = {}
    some = held[held > 0]
    # nine users in ten who hold anything hold so many
    suggested = dict[str, float]()
    if len(some):
        suggested["samples_per_user"] = float(np.quantile(some, 0.1, method="lower"))
    if users.items is not None:
        n_items = int(np.count_nonzero(item_totals(users)))
        if domain is not None:
            outside = outside_domain(users, domain)
        different = quantiles(users.n_items().astype(np.float64))
    else:
        if loaded.value_range is not None:
            outside = samples_outside(users, *loaded.value_range)[0]
        values = quantiles(users.reals.values[np.isfinite(users.reals.values)])
        low, high = range_of(users.reals)
        suggested |= {"low": low, "high": high} if low < high else {}
    return Profile(
        population=loaded.title,
        n_users=len(users),
        n_events=int(held.sum()),
        n_items=n_items,
        per_user=quantiles(held),
        items_per_user=different,
        values=values,
        domain_size=None if domain is None else len(domain),
        outside=outside,
        suggested=suggested,
        warnings=(*facts_of(loaded), *_warnings(loaded, held)),
        dropped=dict(loaded.dropped),
    )


def quantiles(x: Floats) -> dict[str, float]:
    """Return the least, some quantiles, the most and the mean; empty for nothing.

    >>> told = quantiles(np.arange(101.0))
    >>> told["least"], told["10%"], told["mean"]
    (0.0, 10.0, 50.0)
    """
    if not len(x):
        return {}
    between = dict(zip((f"{q:.0%}" for q in LEVELS), np.quantile(x, LEVELS).tolist(), strict=True))
    return {"least": float(x.min()), **between, "most": float(x.max()), "mean": float(x.mean())}


def range_of(samples: Samples) -> tuple[float, float]:
    """Return a range beyond whose ends lie one user's worth of samples each, rounded outwards.

    There a wider range costs as much noise, at epsilon = 1, as the samples beyond are cut.
    """
    size = np.diff(samples.indptr).astype(np.float64)
    share = np.repeat(1 / np.maximum(size, 1), size.astype(np.int64))
    finite = np.isfinite(samples.values).all(axis=1)
    x, share = samples.values[finite], share[finite]
    if not len(x):
        return 0.0, 0.0
    ends = []
    for column in x.T:
        order = np.argsort(column, kind="stable")
        for ranked in (order, order[::-1]):
            at = int(np.searchsorted(np.cumsum(share[ranked]), 1.0))
            ends.append(float(column[ranked[min(at, len(ranked) // 2)]]))
    return outward(min(ends), max(ends))


def outward(low: float, high: float) -> tuple[float, float]:
    """Round a range outwards, to a hundredth of the power of ten of its width.

    >>> outward(1.0, 5.0), outward(-0.12345, 1.7654)
    ((1.0, 5.0), (-0.13, 1.77))
    """
    if not high > low:
        return low, high
    places = 2 - math.floor(math.log10(high - low))
    step = 10.0**-places
    return (
        round(math.floor(low / step + 1e-9) * step, max(places, 0)),
        round(math.ceil(high / step - 1e-9) * step, max(places, 0)),
    )


def _warnings(loaded: Loaded, held: Floats) -> list[str]:
    """Say what deserves a thought before an estimate: what it is, and what to do."""
    out, n, total = [], len(held), float(held.sum())
    most, few = float(held.max(initial=0.0)), math.ceil(n / 100)
    empty = int(np.count_nonzero(held == 0))
    if empty:
        out.append(
            f"{empty:,} users hold nothing ({percent(empty / n)}): they add only noise; leave them "
            "out where who takes part is public"
        )
    if n > 1 and total and most > 0.1 * total:
        out.append(
            f"one user holds {percent(most / total)} of everything: estimate an average over users "
            "in place of a total"
        )
    if n >= 100 and (top := float(np.partition(held, -few)[-few:].sum())) > HALF * total:
        out.append(
            f"{few:,} of {n:,} users hold {percent(top / total)} of everything: a clip that keeps "
            "them is noise to all others; an average over users weighs all the same"
        )
    return out + _far_values(loaded)


def _far_values(loaded: Loaded) -> list[str]:
    """Say where a few values are what a mean is made of."""
    if loaded.users.samples is None:
        return []
    x = loaded.users.reals.values
    x = x[np.isfinite(x)]
    if len(x) < 100:
        return []
    low, high = np.quantile(x, (0.01, 0.99))
    far = FAR * (high - low)
    beyond = int(np.count_nonzero((x < low - far) | (x > high + far)))
    if not beyond or high <= low:
        return []
    return [
        f"{beyond:,} values lie far outside of where 98% are, {low:.4g} to {high:.4g}: the least "
        f"is {x.min():.4g}, the largest {x.max():.4g}. Give low and high, or take quantiles"
    ]


def _written(value: Any) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return short(value, 3) if value is None or abs(value) < 1000 else f"{value:,.0f}"
