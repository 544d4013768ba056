"""A record: what came of a cell, as plain data. NOT PRIVATE."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Self

from fedhist.model.registry import display_of
from simulations.reporting.json_files import canonical, numbers
from simulations.studies.cells import Cell
from simulations.studies.losses import ZEROS, relative, restated

ERROR = "error"
"""Status of a cell that raised; the others are those of an Estimate."""


@dataclass(frozen=True)
class Record:
    """What came of a cell. NOT PRIVATE: losses are computed from the truth.

    Attributes
    ----------
    key, label, target : str
    status : {"ok", "refused", "failed", "error"}
        "error": the cell raised, and ``reason`` is the message.
    reason : str
    loss : float or None
        None unless ok.
    loss_name : str
    losses : mapping of str to float
        Distances from the truth in "l1", "l2", "squared l2" and "linf", whatever the protocol's
        own loss: what protocols of one target are compared in.
    trivial : mapping of str to mapping
        The same distances of the answers that need no data, by name, in the protocol's own loss
        too.
    predicted : float or None
        Theory's expected loss.
    predicted_kind : {"", "exact", "simulated", "bound"}
    truth : str
        Which statistic of the users the estimate is about: see :class:`fedhist.Truth`.
    guarantee : mapping
        "text", "epsilon", "delta", "trust", "adjacency", "unit"; "claimed" where a paper says more.
    n_users : int or None
    rounds : int
    bytes_per_user : float or None
        Bytes that a user sends, on average over cohorts.
    seconds : float
        Wall time of the run, without loading the population.
    warnings : tuple of str
    cell : mapping
        The cell's tables.
    versions : mapping of str to str
    more : mapping
        What not every study shows: "population" in words, "entries" of the truth, "items" (see
        :func:`~simulations.studies.losses.item_measures`), "bias" of means, "public" numbers,
        "spent" epsilon, delta and by which composition, "not_private" notes and "reads" (of them
        what a setting took from the data), "diagnostics" of adversaries, "source" of the
        prediction, "traceback" of an error.
    """

    key: str
    label: str = ""
    target: str = ""
    status: str = ERROR
    reason: str = ""
    loss: float | None = None
    loss_name: str = ""
    losses: Mapping[str, float] = field(default_factory=dict)
    trivial: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    predicted: float | None = None
    predicted_kind: str = ""
    truth: str = ""
    guarantee: Mapping[str, Any] = field(default_factory=dict)
    n_users: int | None = None
    rounds: int = 0
    bytes_per_user: float | None = None
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()
    cell: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return strict JSON in one line: infinities are spelled as strings."""
        return canonical(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read :meth:`to_json`; what a newer version wrote besides goes to ``more``."""
        body = json.loads(text)
        texts = {f.name for f in fields(cls) if f.type == "str"}
        body = {k: v if k in texts else numbers(v) for k, v in body.items()}
        known = {f.name for f in fields(cls)}
        given: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in body.items() if k in known
        }
        new = {k: v for k, v in body.items() if k not in known}
        given["more"] = {**given.get("more", {}), **new}
        return cls(**given)

    @property
    def seed(self) -> int:
        """The run's seed."""
        return int(self.cell.get("run", {}).get("seed", 0))

    @property
    def protocol(self) -> str:
        """The protocol's name."""
        return str(self.cell.get("protocol", {}).get("name", ""))

    @property
    def trust(self) -> str:
        """Whom the guarantee trusts; empty where it is not known."""
        return str(self.guarantee.get("trust", ""))

    @property
    def epsilon(self) -> float | None:
        """The guarantee's."""
        return self.guarantee.get("epsilon")

    @property
    def size(self) -> float | None:
        """Loss of the answer that is 0 everywhere; None where it is not known."""
        return self.trivial.get(ZEROS, {}).get(self.loss_name)

    @property
    def relative(self) -> float | None:
        """The loss as a share of the answer's size."""
        return relative(self.loss, self.size, self.loss_name)

    @property
    def tables(self) -> Cell:
        """The cell again, under its label."""
        return Cell.from_dict(self.cell, self.label)

    def in_loss(self, loss: str) -> Record:
        """State the record in another loss; what it said in its own goes to ``more["stated"]``.

        Theory's prediction goes along where the protocol's own loss is the same number, or where
        it follows (:func:`~simulations.studies.losses.restated`). Otherwise it is dropped.
        """
        if self.loss is None or self.loss_name == loss or not loss:
            return self
        if loss not in self.losses:
            reason = f"its loss, {self.loss_name}, cannot be stated as {loss}"
            return replace(self, status=ERROR, reason=reason, loss=None, predicted=None)
        value, predicted, kind = self.losses[loss], self.predicted, self.predicted_kind
        if predicted is not None and not math.isclose(self.loss, value, rel_tol=1e-9):
            if math.isclose(self.loss**2, value, rel_tol=1e-9):
                predicted = predicted**2  # the square of an expected distance stands for its own
            else:
                form, entries = display_of(self.target).form, int(self.more.get("entries", 0))
                predicted = restated(predicted, self.loss_name, loss, entries, form)
            kind = "simulated" if kind == "exact" else kind
        own = {"loss_name": self.loss_name, "loss": self.loss, "predicted": self.predicted}
        return replace(
            self,
            loss=value,
            loss_name=loss,
            predicted=predicted,
            predicted_kind=kind if predicted is not None else "",
            more={**self.more, "stated": own},
        )
