"""What theory says about a loss: the prediction of a protocol, and what none can beat."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class ErrorBound:
    """What theory predicts for a run.

    Attributes
    ----------
    loss : str
        Which loss: "l1", "squared l2", ...; see :mod:`fedhist.model.losses`.
    expected : float
        Predicted expected loss, in the estimate's units.
    exact : bool
        Whether ``expected`` is an exact formula rather than a rate or an approximation.
    source : str
        Paper and equation, or the derivation; after it, if so, "a bound", and "close: ..." or
        "... close: ..." with the reason.

    Examples
    --------
    >>> told = ErrorBound("l1", 0.25, False, "closed form: a bound; close: no test tells")
    >>> told.is_bound, told.is_close
    (True, True)
    >>> said = ErrorBound("l1", 0.25, False, "closed form of an unbounded-histogram")
    >>> said.is_bound, said.is_close
    (False, False)
    """

    loss: str
    expected: float
    exact: bool
    source: str

    @property
    def is_bound(self) -> bool:
        """Whether the source says that the expected loss may be less."""
        return bool(re.search(r"\ba bound\b", self.source))

    @property
    def is_close(self) -> bool:
        """Whether the source says that another choice may be as good, or better."""
        return bool(re.search(r"\bclose:", self.source))


@dataclass(frozen=True)
class LowerBound:
    """What no protocol under the same guarantee can beat.

    Attributes
    ----------
    loss : str
    value : float
        In the loss's units: of the worst population for any one protocol.
    explicit : bool
        Whether it holds as it stands; an order of magnitude, with constants of 1, may be crossed.
    source : str
        Paper and theorem, or the derivation, and where it is not stated.

    Examples
    --------
    >>> str(LowerBound("l1", 0.25, explicit=False, source="a paper"))
    '~0.25'
    """

    loss: str
    value: float
    explicit: bool
    source: str

    def __str__(self) -> str:
        """Write the value, an order of magnitude with a tilde."""
        return f"{'' if self.explicit else '~'}{self.value:.3g}"

    @property
    def words(self) -> str:
        """Say of what kind it is, and where it comes from."""
        kind = "explicit" if self.explicit else "order only, estimates may cross it"
        return f"{kind}: {self.source}"
