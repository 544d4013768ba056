"""Density by localization as printed [1]_; epsilon-LDP, as the paper states.

References
----------
.. [1] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local
   differential privacy", arXiv 2405.11923, Section 5, eq. (49), (50).
"""

from __future__ import annotations

from dataclasses import dataclass

from fedhist.model.modes import Mode
from fedhist.model.registry import register_printed
from fedhist.protocols.densities.density import Density
from fedhist.protocols.printed.localize import FoldsAsPrinted
from server.densities.plan import paper_level


@register_printed
@dataclass(frozen=True)
class DensityAsPrinted(FoldsAsPrinted, Density):
    """The level of [1, eq. (49)], c = 1/100 for its unnamed constant; neither shrinks nor projects.

    The value is the series at the midpoints of the cells.
    """

    mode: Mode = "paper"

    @property
    def terms(self) -> int:
        """Terms J of the series in use, the known one included."""
        if self.level is not None:
            return self.level
        n, T, most = self.n_users, self.samples_per_user, self.grid - 1
        return paper_level(n, T, self.epsilon, self.ellipsoid[0], most)

    @property
    def shrinks(self) -> bool:
        return False

    @property
    def projects(self) -> bool:
        return False
