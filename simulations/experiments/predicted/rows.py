"""Results rows: what theory predicts and what is measured, at the settings that protocols declare.

The predicted side shares no code with the estimators. A row passes if the 99% interval of the mean
loss meets a band around the prediction that was written before anything was measured. NOT PRIVATE:
populations are made up.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fedhist.base.arrays import Array
from fedhist.base.hashing import digest64
from fedhist.model.measures import Measured as Known
from fedhist.model.measures import measured
from fedhist.model.protocol import Protocol
from fedhist.model.registry import load_builtin, protocols
from fedhist.model.results import ResultsRow
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


@dataclass(frozen=True, eq=False)
class Setting:
    """A row that a protocol declares.

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
        given, _ = self.protocol.resolve(self.row.protocol, users, domain)
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
        _, protocol, known = self.fixed
        expected = self.row.expected
        if expected is None:
            return known.error.expected
        return expected(protocol, self.row.population) if callable(expected) else expected

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
        truth = self._common
        for attempt in range(ATTEMPTS if self.row.may_fail else 1):
            who = getattr(protocol, "trust", None)
            nodes = who.parties if isinstance(who, Aggregation) else None
            options = Options(seed=seed + 10_000 * attempt, clients=self.row.clients, nodes=nodes)
            estimate = execute(protocol, users, options).estimate
            if estimate.value is not None:
                return protocol.loss_of(estimate, users, truth, known)
        raise RuntimeError(f"{self.row.label}: {estimate.status}: {estimate.reason}")

    @property
    def _common(self) -> Array | None:
        """The truth of the population that users are drawn from, where rows are about that."""
        if not callable(self.row.expected):
            return None
        return np.atleast_1d(np.asarray(self.row.population["mean"], dtype=np.float64))

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
    load_builtin()
    every = [Setting(cls, row) for cls in protocols().values() for row in cls.results()]
    found = [s for s in every if protocol in (None, s.protocol.name)]
    if not found:
        names = ", ".join(dict.fromkeys(s.protocol.name for s in every))
        raise ValueError(f"no results rows for {protocol!r}; there are some for {names}")
    return found


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
