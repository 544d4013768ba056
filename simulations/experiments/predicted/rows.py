"""Results rows: what theory predicts and what is measured, at the settings of ``rows.toml``.

The predicted side shares no code with the estimators. A row passes if the 99% interval of the mean
loss meets a band around the prediction that was written before anything was measured. NOT PRIVATE:
populations are made up.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from typing import Any

from fedhist.base.hashing import digest64
from fedhist.model.evaluation import Facts as Known
from fedhist.model.evaluation import measured
from fedhist.model.protocol import Protocol
from fedhist.model.registry import protocol_class
from fedhist.privacy.aggregation import Aggregation
from fedhist.users.batch import Users
from simulations.config.reading import required
from simulations.experiments.base import Check
from simulations.experiments.predicted.populations import made
from simulations.reporting.statistics import Compared, compared_table
from simulations.reporting.table import BAD, Column, Marked, Table
from simulations.runs.run import Options, execute

LEAST = 20
"""Runs of a row at least, however small the effort."""
ATTEMPTS = 20
"""Runs that may end without a value, one after another, where a row allows for it."""


@dataclass(frozen=True)
class ResultsRow:
    """One setting of ``fedhist validate``: plain data, written before anything is measured.

    Attributes
    ----------
    label : str
        The setting in words; "EDGE ..." at the edge of feasibility.
    protocol : mapping
        Parameters, as in a configuration's [protocol]; what they leave out is completed from the
        population as for any run. ``trust.nodes`` is a number of nodes that add the noise.
    population : mapping
        As in a configuration's [population]: "kind", and the fields of that kind.
    repeats : int
        Runs, with the seeds 0, 1, ...
    band : (float, float)
        Where measured / predicted must be.
    anew : bool
        Whether every run has users of its own; otherwise the same are asked again.
    expected : float, optional
        The prediction, of an independent source; default: ``error(users).expected``.
    clients : {"aggregate", "per-user"}
        Local reports as sums of the same law, or one by one.
    may_fail : bool
        Whether a run may end without a value: it is then repeated with another seed, and the row
        speaks of the runs that have one.
    """

    label: str
    protocol: Mapping[str, Any]
    population: Mapping[str, Any]
    repeats: int
    band: tuple[float, float]
    anew: bool = False
    expected: float | None = None
    clients: str = "aggregate"
    may_fail: bool = False

    @property
    def edge(self) -> bool:
        """Whether it lies at the edge of feasibility."""
        return self.label.startswith("EDGE")


def within(width: float) -> tuple[float, float]:
    """Return the band of a prediction that is right up to a share of itself.

    >>> within(0.25)
    (0.75, 1.25)
    """
    return 1 - width, 1 + width


@dataclass(frozen=True, eq=False)
class Setting:
    """A row, and the protocol that it is about.

    Attributes
    ----------
    protocol : type of Protocol
    row : ResultsRow
    """

    protocol: type[Protocol]
    row: ResultsRow

    def users(self, seed: int | None = None) -> Users:
        """Make the users of a run; without a seed those of the prediction."""
        return made(self.row.population, None if seed is None else self._key(seed))

    def build(self, users: Users) -> Protocol:
        """Build the protocol, completed from the population as for any run."""
        domain = None if users.items is None else users.vocabulary
        words = dict(self.row.protocol)
        if "trust" in words:
            words["trust"] = Aggregation(words["trust"]["nodes"])
        given, _ = self.protocol.resolve(words, users, domain)
        if "n_users" in required(self.protocol) - given.keys():
            given["n_users"] = len(users)
        return self.protocol(**given)

    @cached_property
    def fixed(self) -> tuple[Users, Protocol, Known]:
        """The users of the prediction, the protocol on them, and what is known of them."""
        users = self.users()
        protocol = self.build(users)
        return users, protocol, measured(protocol, users)

    def predict(self) -> float:
        """Return the expected loss."""
        expected = self.row.expected
        return self.fixed[2].error.expected if expected is None else expected

    def measure(self, seed: int) -> float:
        """Run the protocol once and return its loss.

        Raises
        ------
        RuntimeError
            If the run ends without a value, or, where the row allows for that, many of them do.
        """
        users, protocol, known = self.fixed
        if self.row.anew:
            users = self.users(seed)
            known = measured(protocol, users)
        for attempt in range(ATTEMPTS if self.row.may_fail else 1):
            who = getattr(protocol, "trust", None)
            nodes = who.parties if isinstance(who, Aggregation) else None
            options = Options(seed=seed + 10_000 * attempt, clients=self.row.clients, nodes=nodes)
            estimate = execute(protocol, users, options).estimate
            if estimate.value is not None:
                return protocol.loss_of(estimate, users, known=known)
        raise RuntimeError(f"{self.row.label}: {estimate.status}: {estimate.reason}")

    def _key(self, seed: int) -> int:
        return digest64("fedhist.results-row", self.protocol.name, self.row.label, seed) >> 1


@dataclass(frozen=True, eq=False)
class Measured(Compared):
    """A row that was run. NOT PRIVATE."""

    setting: Setting
    losses: tuple[float, ...]

    @cached_property
    def predicted(self) -> float:
        """What theory predicts."""
        return self.setting.predict()

    @cached_property
    def loss(self) -> str:
        """Name of the loss."""
        return self.setting.fixed[2].error.loss

    @property
    def check(self) -> Check:
        """The verdict, in the loss's own units."""
        low, high = (b * self.predicted for b in self.setting.row.band)
        half = (self.interval[1] - self.interval[0]) / 2 * self.predicted
        name = f"{self.setting.protocol.name}: {self.setting.row.label}"
        return Check(name, self.loss, self.predicted, self.measured, low, high, half=half)


def settings(protocol: str | None = None) -> list[Setting]:
    """Return the settings of one protocol, or of all.

    Raises
    ------
    ValueError
        If there is none for a protocol of that name.
    """
    text = resources.files(__package__).joinpath("rows.toml").read_text(encoding="utf-8")
    every = tomllib.loads(text)
    names = every if protocol is None else [protocol]
    if not every.keys() >= set(names):
        known = ", ".join(every)
        raise ValueError(f"no results rows for {protocol!r}; there are some for {known}")
    rows = [(name, {**row, "band": tuple(row["band"])}) for name in names for row in every[name]]
    return [Setting(protocol_class(name), ResultsRow(**row)) for name, row in rows]


def measure(setting: Setting, effort: float = 1.0) -> Measured:
    """Run a setting as often as it says, times ``effort``, seeds 0, 1, ..."""
    if not effort > 0:
        raise ValueError(f"effort must be positive, got {effort}")
    repeats = max(LEAST, round(setting.row.repeats * effort))
    return Measured(setting, tuple(setting.measure(seed) for seed in range(repeats)))


def summary_of(rows: Iterable[Measured]) -> dict[str, Any]:
    """Return results rows as plain data."""
    every = [
        {
            "protocol": m.setting.protocol.name,
            "row": m.setting.row.label,
            "runs": len(m.losses),
            "loss": m.loss,
            "predicted": m.predicted,
            "measured": m.measured,
            "ratio": list(m.interval),
            "band": list(m.setting.row.band),
            "verdict": m.check.verdict,
        }
        for m in rows
    ]
    return {"kind": "validation", "rows": every}


def rows_table(rows: Iterable[Measured], title: str = "") -> Table:
    """Return the table of results rows."""
    return compared_table(
        rows,
        {"setting": lambda m: m.setting.row.label},
        {
            "band": lambda m: "{:.4g} to {:.4g}".format(*m.setting.row.band),
            Column("verdict", keep=True): lambda m: Marked(m.check.verdict, BAD * m.check.failed),
        },
        title=title,
    )
