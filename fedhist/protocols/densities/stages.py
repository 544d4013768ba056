"""A density's coefficients by centred reports: the vector, the first report, the errors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clients.records.vectors import BasisName, SeriesMeans
from fedhist.base.arrays import Array, Floats
from fedhist.model.query import Summary
from fedhist.protocols.centred.script import Opening
from fedhist.protocols.densities.bin_reports import BinReports
from fedhist.users.cohort import Cohort
from server.densities.bases import BASES, Basis
from server.densities.centred_plan import SeriesPlan
from server.densities.series import project_density

_COARSE = 256
"""Cells on which estimates between stages are made densities."""


@dataclass(frozen=True)
class SeriesStages:
    """What the script of centred reports is given.

    Parameters
    ----------
    basis : {"cosine", "fourier"}
    plan : SeriesPlan
        With one coefficient or more.
    epsilon : float
    """

    basis: BasisName
    plan: SeriesPlan
    epsilon: float

    @property
    def series(self) -> Basis:
        """The basis itself."""
        return BASES[self.basis]

    @property
    def part(self) -> SeriesMeans:
        """What a user's vector is."""
        return SeriesMeans(self.basis, self.plan.n_coefficients)

    @property
    def opening(self) -> Opening | None:
        """Ask the first users for the bin of one sample, where that says more than the vector.

        Users without usable samples count as uniform.
        """
        if not self.plan.n_bins:
            return None
        return Opening(self._ask, self._read)

    def _ask(self, cohort: Cohort | None) -> BinReports:
        return BinReports(self.plan.n_bins, self.epsilon, cohort)

    def _read(self, summary: Summary) -> Floats:
        masses = self._ask(None).masses(summary)
        return np.asarray(self.series.of_bins(self.plan.n_bins, self.plan.n_coefficients) @ masses)

    def stderr(self, variance: float) -> Array:
        """Divide the total variance over the coefficients: (J,).

        Of bins alone a wave that is short against them has more.
        """
        k, stages = self.plan.n_coefficients, self.plan.stages
        each = np.ones(k)
        if self.plan.n_bins and stages is not None and stages.n_stages == 1:
            each = np.sinc(self.series.frequencies(k) / self.plan.n_bins) ** -2.0
        return np.asarray(np.sqrt(variance * each / each.sum()))

    def nearest(self, theta: Floats) -> Floats:
        """Return the coefficients of the nearest density: (J,)."""
        level = len(theta) + 1
        values = self.series.on_grid(np.append(1.0, theta), max(_COARSE, 2 * level))
        return self.series.of_grid(project_density(values), level)[1:]
