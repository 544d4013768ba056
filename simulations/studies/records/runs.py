"""What the runs of one setting say together: means, intervals, theory, sizes."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np

from simulations.reporting.statistics import far_off, half_width
from simulations.studies.records.cells import Record
from simulations.studies.records.scale import relative, worse_than

LEVEL = 0.95
"""Of the intervals around the mean losses."""


class Runs:
    """What a line of a study is: records that differ by their seeds alone, in one loss.

    Attributes
    ----------
    records : tuple of Record
    """

    records: tuple[Record, ...]

    @property
    def statuses(self) -> Counter[str]:
        """How many records have each status."""
        return Counter(r.status for r in self.records)

    @property
    def loss_name(self) -> str:
        """Which loss; empty if no record has any."""
        return next((r.loss_name for r in self.records if r.loss_name), "")

    @property
    def losses(self) -> list[float]:
        """Losses of the records that are ok."""
        return [r.loss for r in self.records if r.loss is not None]

    @property
    def mean(self) -> float | None:
        """Mean loss of the records that are ok."""
        return float(np.mean(self.losses)) if self.losses else None

    @property
    def bias(self) -> float | None:
        """Mean signed error of the records that have one."""
        found = [r.bias for r in self.records if r.bias is not None]
        return float(np.mean(found)) if found else None

    @property
    def standard_error(self) -> float | None:
        """Standard error of the mean; None for a single run, and where a loss is not finite."""
        values = self._independent()
        if len(values) < 2 or not all(map(math.isfinite, values)):
            return None
        with np.errstate(all="ignore"):  # of losses that are not finite there is none
            return float(np.std(values, ddof=1) / math.sqrt(len(values)))

    @property
    def half_width(self) -> float | None:
        """Half the width of the 95 % interval of the mean loss; None for a single value.

        By Student's distribution, over the populations where several were drawn, otherwise over
        the runs.
        """
        return half_width(self._independent(), LEVEL)

    def _independent(self) -> list[float]:
        """Return the losses of the runs, or their means over each population where several are.

        Runs on the same users are not independent of each other where several populations were
        drawn.
        """
        by_population: dict[Any, list[float]] = {}
        for r in self.records:
            if r.loss is not None:
                seed = r.cell.get("population", {}).get("seed")
                by_population.setdefault(seed, []).append(r.loss)
        found = list(by_population.values()) or [[]]
        return [float(np.mean(v)) for v in found] if len(found) > 1 else found[0]

    @property
    def predicted(self) -> float | None:
        """Theory's loss, averaged over the populations."""
        found = [r.predicted for r in self.records if r.predicted is not None]
        return float(np.mean(found)) if found else None

    @property
    def ratio(self) -> float | None:
        """Measured over predicted, each about the protocol's own truth."""
        own = self._own_losses()
        return float(np.mean(own)) / self.predicted if own and self.predicted else None

    @property
    def far_off(self) -> bool:
        """Whether theory is more than a factor of two from measurement, beyond its interval.

        Never where somebody misbehaves: theory is about honest users.
        """
        attacked = any(r.adversaries for r in self.records)
        return not attacked and far_off(self._own_losses(), self.predicted)

    def _own_losses(self) -> list[float]:
        return [x for r in self.records if (x := r.own_loss) is not None]

    @property
    def relative(self) -> float | None:
        """Mean error as a share of the answer's size, which may differ from run to run."""
        found = [(r.loss, r.size) for r in self.records if r.loss is not None and r.size]
        if not found:
            return None
        share = float(np.mean([loss / size for loss, size in found]))
        return relative(share, 1.0, self.loss_name)

    @property
    def trivial(self) -> dict[str, float]:
        """Mean losses of the answers that need no data, by name."""
        found: dict[str, list[float]] = {}
        for r in self.records:
            for name, losses in r.trivial.items():
                if r.loss_name in losses:
                    found.setdefault(name, []).append(losses[r.loss_name])
        return {name: float(np.mean(losses)) for name, losses in found.items()}

    @property
    def worse(self) -> str:
        """Name of the best answer without data, if this one is worse; else empty."""
        return worse_than(self.mean, self.trivial)
