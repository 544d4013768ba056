"""The profile of a population: the facts to know before a protocol is chosen. NOT PRIVATE."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.privacy.guarantee import Adjacency
from fedhist.protocols.shared.sample_sizes import samples_held
from simulations.populations.base import Loaded, item_totals
from simulations.populations.facts import (
    Outside,
    Similar,
    facts_of,
    inside_of,
    outside_domain,
    outside_range,
    owners,
    percent,
    similar_names,
)
from simulations.reporting.shown import Shown
from simulations.reporting.table import Table
from simulations.runs.results import NOT_PRIVATE
from simulations.studies.profile.dispersion import (
    SURE,
    Dispersion,
    dispersion_of_counts,
    dispersion_of_means,
)
from simulations.studies.profile.figure import draw_profile
from simulations.studies.profile.profiled import Profiled
from simulations.studies.profile.suggest import Budget, Suggestion, for_items, for_samples
from simulations.studies.profile.tables import tables_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

USELESS = 0.5
"""Share of all events from which on an error is said to be too large for the suggestions."""
HALF = 0.5
"""Share of everything in the hands of 1% of the users from which on that is said."""
FAR = 5.0
"""Times the width of the middle 98% of the values beyond which a value is far outside."""
LEVELS = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99)


@dataclass(frozen=True, repr=False)
class Profile(Profiled, Shown):
    """What a population is like, which shows itself. NOT PRIVATE."""

    kind: ClassVar[str] = "profile"

    def tables(self) -> Sequence[Table]:
        """Facts; quantiles; suggested settings; names in several spellings."""
        return tables_of(self)

    def document(self) -> dict[str, Any]:
        """Return what ``--json`` prints: plain data, all of it NOT PRIVATE."""
        plain = ("per_user", "items_per_user", "values", "suggested", "reasons", "dropped")
        single = ("n_users", "n_events", "n_items", "domain_size", "outside_events")
        return {
            "kind": self.kind,
            "population": self.population,
            **{name: getattr(self, name) for name in (*single, "outside_users")},
            **{name: dict(getattr(self, name)) for name in plain},
            "similar": asdict(self.similar),
            "dispersion": asdict(self.dispersion),
            "budget": asdict(self.budget) | {"adjacency": self.budget.adjacency.value},
            "warnings": list(self.warnings),
            NOT_PRIVATE: {"why": self.not_private},
        }

    def draw(self, figure: Figure) -> None:
        """Draw how much users hold, and the items by frequency or the values."""
        draw_profile(self, figure)


def profile_of(
    loaded: Loaded,
    *,
    epsilon: float = 1.0,
    delta: float = 0.0,
    adjacency: Adjacency | str = Adjacency.REPLACE_USER,
) -> Profile:
    """Measure a population in memory. NOT PRIVATE.

    Parameters
    ----------
    loaded : Loaded
    epsilon, delta : float
        Budget that the suggestions are for.
    adjacency : Adjacency or str

    Returns
    -------
    Profile
    """
    budget = Budget.of(epsilon, delta, str(getattr(adjacency, "value", adjacency)))
    users = loaded.users
    held = samples_held(users)
    judged = held
    outside, similar = Outside(), Similar()
    different: Mapping[str, float] = {}
    values: Mapping[str, float] = {}
    suggestions: dict[str, Suggestion]
    ranked, drawn = np.empty(0), np.empty(0)
    if users.items is not None:
        domain = loaded.domain
        totals = item_totals(users)
        ranked = np.sort(totals[totals > 0])[::-1]
        similar = similar_names(users.vocabulary, totals, domain)
        inside = None
        if domain is not None:
            outside, inside = outside_domain(users, domain), inside_of(users, domain)
            owner, count = owners(users.counts.indptr)[inside], users.counts.count[inside]
            judged = np.bincount(owner, count, len(users)).astype(np.float64)
        dispersion = dispersion_of_counts(users, inside)
        suggestions = for_items(users, domain, budget)
        different = quantiles(users.n_items().astype(np.float64))
    else:
        if loaded.value_range is not None:
            outside = outside_range(users, *loaded.value_range)
        dispersion = dispersion_of_means(users.reals)
        suggestions = for_samples(users.reals, held, budget)
        drawn = users.reals.values[np.isfinite(users.reals.values)]
        values = quantiles(drawn)
    stated = facts_of(loaded)
    found = _warnings(loaded, held, judged, dispersion, suggestions, budget)
    return Profile(
        population=loaded.title,
        n_users=len(users),
        n_events=int(held.sum()),
        n_items=None if users.items is None else len(ranked),
        held=held,
        per_user=quantiles(held),
        items_per_user=different,
        values=values,
        domain_size=None if loaded.domain is None else len(loaded.domain),
        outside_events=outside.events,
        outside_users=outside.users,
        similar=similar,
        dispersion=dispersion,
        budget=budget,
        suggested={k: s.value for k, s in suggestions.items()},
        reasons={k: s.why for k, s in suggestions.items()},
        warnings=(*stated, *found),
        dropped=dict(loaded.dropped),
        stated=stated,
        ranked=ranked,
        drawn=drawn,
    )


def quantiles(x: Floats) -> dict[str, float]:
    """Return the least, some quantiles, the most and the mean; empty for nothing.

    >>> found = quantiles(np.arange(101.0))
    >>> found["least"], found["10%"], found["mean"]
    (0.0, 10.0, 50.0)
    """
    if not len(x):
        return {}
    between = np.quantile(x, LEVELS)
    names = [f"{q:.0%}" for q in LEVELS]
    return {
        "least": float(x.min()),
        **dict(zip(names, map(float, between), strict=True)),
        "most": float(x.max()),
        "mean": float(x.mean()),
    }


def lopsided(loaded: Loaded, held: Floats) -> list[str]:
    """Say where a few users, or a few values, are what a total or a mean is made of."""
    out, total, few = [], float(held.sum()), math.ceil(len(held) / 100)
    if len(held) >= 100 and total:
        share = float(np.partition(held, -few)[-few:].sum()) / total
        if share >= HALF:
            out.append(
                f"{few:,} of {len(held):,} users hold {percent(share)} of everything: totals are "
                "about them, and a clip that keeps them is noise to all others; an average over "
                "users weighs all alike"
            )
    if loaded.users.samples is not None:
        x = loaded.users.reals.values
        x = x[np.isfinite(x)]
        if len(x) >= 100:
            low, high = np.quantile(x, (0.01, 0.99))
            far = FAR * (high - low)
            beyond = int(np.count_nonzero((x < low - far) | (x > high + far)))
            if beyond and high > low:
                out.append(
                    f"{beyond:,} values lie far outside of where 98% are, {low:.4g} to {high:.4g}: "
                    f"the least is {x.min():.4g}, the largest {x.max():.4g}. A mean, and a "
                    "range chosen by them, may be theirs: give low and high, or take quantiles"
                )
    return out


def _warnings(
    loaded: Loaded,
    held: Floats,
    judged: Floats,
    dispersion: Dispersion,
    suggestions: Mapping[str, Suggestion],
    budget: Budget,
) -> list[str]:
    """Say what deserves a thought before an estimate: what happened, what it means, what to do.

    Of what users hold, ``judged`` is in the domain: what the dispersion is about.
    """
    out = []
    empty = int(np.count_nonzero(held == 0))
    if empty:
        out.append(
            f"{empty:,} users hold nothing ({percent(empty / len(held))}): they count as users and "
            "add only noise; leave them out where who takes part is public"
        )
    unusable = 0 if loaded.users.samples is None else loaded.users.n_unusable() - empty
    if unusable:
        out.append(
            f"{unusable:,} users have a sample that is no number: all samples of such a user "
            "count as the protocol's null record; fill the fields, or leave those rows out"
        )
    total = float(held.sum())
    most = float(held.max(initial=0.0))
    if len(held) > 1 and total and most > 0.1 * total:
        out.append(
            f"one user holds {percent(most / total)} of everything: an estimate of totals either "
            "clips it or is noise of its size; choose an average over users instead"
        )
    out += lopsided(loaded, held)
    if dispersion.score < -SURE:
        out.append(
            "users repeat items less often than chance would: they hold sets, such as films rated "
            "once each, and no draws from a distribution; what theory says of draws is then careful"
        )
    if dispersion.differ:
        typical = float(np.median(judged[judged > 0]))
        out.append(
            f"users differ by more than chance (correlation {dispersion.correlation:.2g} between "
            f"two draws of one user): {typical:,.0f} of one user are worth "
            f"{dispersion.effective(typical):.3g} independent ones; protocols that rest on one "
            "common distribution are about none of these users"
        )
    top = suggestions.get("top")
    if top is not None and "clip" in suggestions and top.error >= USELESS:
        out.append(
            f"at {budget} even the best domain and clip may leave a histogram of these "
            f"{len(held):,} users {top.error:.0%} off: more users or a larger epsilon is needed"
        )
    if loaded.users.items is not None and "clip" not in suggestions:
        out.append(
            f"no item can be told from noise at {budget}: more users, a larger epsilon or a "
            "shorter domain is needed"
        )
    return out
