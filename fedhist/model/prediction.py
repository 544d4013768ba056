"""What a protocol's error is expected to be, and what no protocol can beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["exact", "simulated", "bound"]


@dataclass(frozen=True)
class Prediction:
    """The expected loss of a protocol on given users. NOT PRIVATE: it is computed from the data.

    Attributes
    ----------
    loss : str
        Which loss: "l1", "squared l2", ...; see :mod:`fedhist.model.losses`.
    expected : float
        Expected loss, in the estimate's units; infinite where no run has an estimate.
    kind : {"exact", "simulated", "bound"}
        "exact": a closed form. "simulated": the mean of :attr:`runs` runs on these users. "bound":
        a paper's upper bound, which the loss may stay below by any factor.
    source : str
        Paper and equation, or what was run.
    stderr : float
        Standard error of ``expected`` where it is simulated, else 0.

    Examples
    --------
    >>> Prediction("l1", 0.25, "exact", "sum of E|Z|").exact
    True
    """

    loss: str
    expected: float
    kind: Kind
    source: str
    stderr: float = 0.0

    @property
    def exact(self) -> bool:
        """Whether ``expected`` is a closed form."""
        return self.kind == "exact"


@dataclass(frozen=True)
class LowerBound:
    """What no protocol under the same guarantee can beat, as it stands: with all constants.

    ``value`` is in the loss's units, of the worst population for any one protocol; ``source`` names
    paper and theorem, or the derivation, and where it is not stated.
    """

    loss: str
    value: float
    source: str

    def __str__(self) -> str:
        return f"{self.value:.3g}"

    @property
    def words(self) -> str:
        """Say where it comes from."""
        return f"explicit: {self.source}"
