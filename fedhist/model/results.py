"""Results rows: the settings at which a protocol's prediction is held against measured runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedhist.model.protocol import Protocol

Expected = Callable[["Protocol", Mapping[str, Any]], float]
"""Predicts the loss of a protocol from the words of its population."""


@dataclass(frozen=True)
class ResultsRow:
    """One setting of ``fedhist validate``: plain data, written before anything is measured.

    Attributes
    ----------
    label : str
        The setting in words; "EDGE ..." at the edge of feasibility.
    protocol : mapping
        Parameters, as in a configuration's [protocol]; what they leave out is completed from the
        population as for any run.
    population : mapping
        As in a configuration's [population]: "kind", and the fields of that kind.
    repeats : int
        Runs, with the seeds 0, 1, ...
    band : (float, float)
        Where measured / predicted must be.
    anew : bool
        Whether every run has users of its own; otherwise the same are asked again.
    expected : float or callable, optional
        The prediction; default: ``error(users).expected``. A function gets the protocol and
        ``population``, and the loss is then taken against the population's ``mean``.
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
    expected: float | Expected | None = None
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
