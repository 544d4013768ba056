"""What is known of a profiled population: data for tables and a figure. NOT PRIVATE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fedhist.base.arrays import Floats
from simulations.populations.facts import Similar
from simulations.studies.profile.dispersion import Dispersion
from simulations.studies.profile.suggest import Budget


@dataclass(frozen=True, repr=False)
class Profiled:
    """What a population is like. NOT PRIVATE.

    Attributes
    ----------
    population : str
        The population in a line.
    n_users : int
    n_events : int
        Events, or samples.
    n_items : int or None
        Different items; None for samples.
    held : (n_users,) float64
        Events, or samples, of each user.
    per_user : mapping of str to float
        Quantiles of ``held``: "least", "1%", "10%", "25%", "50%", "75%", "90%", "99%", "most", and
        "mean".
    items_per_user : mapping of str to float
        The same of different items; empty for samples.
    values : mapping of str to float
        The same of the samples' values; empty for items.
    domain_size : int or None
        Items of the domain, where one was chosen.
    outside_events, outside_users : float
        Shares that fall outside the domain, or the public range; 0 where there is none.
    similar : Similar
        Names that differ in case, blanks or Unicode form only.
    dispersion : Dispersion
        How much users differ, beyond what chance explains.
    budget : Budget
        What the suggestions are for.
    suggested : mapping of str to float
        Settings by the name of the protocol's parameter, or "top" of the population.
    reasons : mapping of str to str
        Where each suggestion comes from.
    warnings : tuple of str
        What happened, what it means for an estimate, what to do.
    dropped : mapping of str to int
        Rows that the loader left out, or values that it changed, and why.
    stated : tuple of str
        See :meth:`facts`.
    ranked : (n_items,) float64
        Events of each item, the most frequent first; empty for samples.
    drawn : float64
        All finite values; empty for items.
    """

    population: str
    n_users: int
    n_events: int
    n_items: int | None
    held: Floats
    per_user: Mapping[str, float]
    items_per_user: Mapping[str, float]
    values: Mapping[str, float]
    domain_size: int | None
    outside_events: float
    outside_users: float
    similar: Similar
    dispersion: Dispersion
    budget: Budget
    suggested: Mapping[str, float]
    reasons: Mapping[str, str]
    warnings: tuple[str, ...]
    dropped: Mapping[str, int]
    stated: tuple[str, ...]
    ranked: Floats
    drawn: Floats

    @property
    def title(self) -> str:
        """The population in a line."""
        return f"profile of {self.population}"

    @property
    def what(self) -> str:
        """What a user holds: "events" or "samples"."""
        return "samples" if self.n_items is None else "events"

    def facts(self) -> list[str]:
        """Return the lines that stand under a run and a comparison; empty where none matters."""
        return list(self.stated)
