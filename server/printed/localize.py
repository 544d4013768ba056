"""Localize, then refine, to the letter: what printed means and densities share; a density [1]_.

References
----------
.. [1] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local
   differential privacy", arXiv 2405.11923, Section 3.1, eq. (25)-(30), and Section 5,
   eq. (49), (50).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedhist.base.arrays import Array, Floats
from fedhist.channels.scalar import scalar_channel
from server.densities.density import Density
from server.densities.plan import paper_level
from server.densities.series import midpoints, series_at
from server.localize.choice import Plan, plan_paper
from server.localize.script import FoldProtocol
from server.modes import Mode, register_printed
from server.trust import Batch


class FoldsAsPrinted(FoldProtocol):
    """Three votes a user, 7 delta, Laplace noise, the first T* samples, averages as they are.

    K = 1/4 and c = 1/100 stand for the paper's unnamed constants.
    """

    neighbours: ClassVar[bool] = True
    clips: ClassVar[bool] = False

    def windows(self, frequencies: Floats, low: float, high: float) -> tuple[Floats, Floats]:
        """Find the middle of every fold's most frequent bin, and its share [1, eq. (28)]."""
        best = np.argmax(frequencies, axis=1)
        share = np.take_along_axis(frequencies, best[:, None], axis=1)[:, 0]
        return low + (best + 0.5) * (high - low) / frequencies.shape[1], share

    @property
    def uses_folds(self) -> bool:
        return True

    @property
    def batches(self) -> Sequence[Batch]:
        raise ValueError(f'{self.name}: mode "paper" is not shuffled')

    @property
    def channel_kind(self) -> str:
        """Laplace noise."""
        return "laplace"

    def fold_plan(self, n_users: float, half_range: float) -> Plan:
        """Plan a fold by [1, eq. (25)-(30)]."""
        return plan_paper(n_users, self.samples_per_user, self.scale, half_range, self.epsilon)

    def check_fields(self, mean_scale: float | None = None) -> None:
        """Raise ValueError, with the value, unless the fields are valid and ask for this noise."""
        super().check_fields(mean_scale)
        if self.kind not in ("auto", "laplace"):
            raise ValueError(f'mode "paper" adds Laplace noise, got kind {self.kind!r}')
        scalar_channel("laplace", self.epsilon)  # least epsilon


@register_printed
@dataclass(frozen=True)
class DensityAsPrinted(FoldsAsPrinted, Density):
    """The level of [1, eq. (49)], c = 1/100 for its constant; neither shrinks nor projects."""

    mode: Mode = "paper"

    @property
    def terms(self) -> int:
        if self.level is not None:
            return self.level
        n, T, most = self.n_users, self.samples_per_user, self.grid - 1
        return paper_level(n, T, self.epsilon, self.ellipsoid[0], most)

    def finished(self, theta: Array, stderr: Array) -> Array:
        """Return the series as it is."""
        return series_at("fourier", theta, midpoints(self.grid))
