"""Part: plain data inside a query. Functional, VectorPart: numbers of a user's record.

A *fold* is a public, data-independent group of users, see :func:`fedhist.users.cohort.fold_of`. All
users of one fold report about the same scalar functional of their records: a coordinate of the
mean, a rotated coordinate, a Fourier coefficient, a row of a Hadamard matrix. A *vector* is all of
them at once, for reports of a whole vector.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedhist.base.arrays import PlainArguments

if TYPE_CHECKING:
    from fedhist.users.batch import Users


class Part(metaclass=PlainArguments):
    """A frozen dataclass that may be a field of a query; register it with ``@register_part``."""

    wire_name: ClassVar[str]


class Functional(Part, ABC):
    """k scalar functionals of a user's record, one per fold, all with the same public range."""

    @property
    @abstractmethod
    def n_folds(self) -> int:
        """How many there are: k."""

    @property
    @abstractmethod
    def low(self) -> float:
        """Least value."""

    @property
    @abstractmethod
    def high(self) -> float:
        """Largest value."""

    @property
    def half_range(self) -> float:
        """Half of high - low."""
        return (self.high - self.low) / 2

    @abstractmethod
    def scalars(self, users: Users, fold: NDArray[np.int64]) -> NDArray[np.float64]:
        """Compute each user's scalar of its fold.

        They are (n,) and lie in [low, high], whatever the record; NaN for a record without usable
        data. Each entry depends on its own user's record and fold, in [0, n_folds), only.
        PopulationError if the users hold another kind of data, or samples of another dimension.
        """


class VectorPart(Part, ABC):
    """A vector of a user's record, in a ball around 0 whose radius is public."""

    @property
    @abstractmethod
    def n_coordinates(self) -> int:
        """Of the vector: d."""

    @property
    @abstractmethod
    def bound(self) -> float:
        """Largest l2 norm."""

    @abstractmethod
    def vectors(self, users: Users) -> NDArray[np.float64]:
        """Compute each user's vector.

        They are rows (n, d) of norm ``bound`` at most, up to rounding, whatever the record; NaN for
        a record without usable data. Each row depends on its own user's record only.
        PopulationError if the users hold another kind of data, or samples of another dimension.
        """
