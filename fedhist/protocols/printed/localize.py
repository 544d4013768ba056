"""Localize, then refine, to the letter: what the printed means and densities share [1]_.

References
----------
.. [1] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local
   differential privacy", arXiv 2405.11923, Section 3.1, eq. (25)-(30).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.channels.catalogue import scalar_channel
from fedhist.protocols.localize.script import FoldProtocol
from fedhist.protocols.shared.shuffles import Batch
from server.means.localize import Plan, plan_paper


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
        """Always."""
        return True

    @property
    def batches(self) -> Sequence[Batch]:
        """None: it is a local procedure; ValueError."""
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
