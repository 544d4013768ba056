"""Results rows and goals: where a protocol's prediction is held against measured runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Expected = Callable[[Any, Mapping[str, Any]], float]
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


Unknown = Literal["n_users", "samples_per_user", "epsilon"]
"""What a plan solves for."""


@dataclass(frozen=True)
class Goal:
    """A question to the planner, whose answer `fedhist plan --accuracy` simulates: plain data.

    Attributes
    ----------
    error : float
        Target, in the protocol's loss.
    unknown : {"n_users", "samples_per_user", "epsilon"}
        What is asked for.
    relative : bool
        Whether the target is a share of the error of an estimate that is 0 everywhere.
    words : str
        The setting in words.
    protocol, population : mapping
        What differs from the configuration that the protocol starts from.
    """

    error: float
    unknown: Unknown = "n_users"
    relative: bool = False
    words: str = ""
    protocol: Mapping[str, Any] = field(default_factory=dict)
    population: Mapping[str, Any] = field(default_factory=dict)


def within(width: float) -> tuple[float, float]:
    """Return the band of a prediction that is right up to a share of itself.

    >>> within(0.25)
    (0.75, 1.25)
    """
    return 1 - width, 1 + width
