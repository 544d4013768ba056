"""The frame of an experiment: measurements are judged and drawn as they are found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from simulations.experiments.base import FREE, Check, Curve, Request, Result


class Findings:
    """What an experiment finds, in the order of its table and of its legends.

    Parameters
    ----------
    request : Request
        Its [[value]] rows judge the lines of the same setting and quantity.
    """

    def __init__(self, request: Request) -> None:
        self.request = request
        self.checks: list[Check] = []
        self.curves: list[Curve] = []

    def check(self, setting: str, quantity: str, ours: float, stderr: float | None = None) -> None:
        """Judge a measurement, or show it for orientation where the paper claims nothing."""
        judged = self.request.judge(setting, quantity, ours, stderr)
        if judged is None:
            self.show(setting, quantity, ours, stderr)
        else:
            self.checks.append(judged)

    def show(self, setting: str, quantity: str, ours: float, stderr: float | None = None) -> None:
        """Add a line for orientation, which cannot fail."""
        self.checks.append(Check(setting, quantity, None, float(ours), *FREE, stderr=stderr))

    def draw(
        self, panel: str, label: str, x: ArrayLike, y: ArrayLike,
        yerr: ArrayLike | None = None, marker: str = "", style: str = "", **axes: Any,
    ) -> None:  # fmt: skip
        """Add a curve; a single y is a level. ``axes`` are further fields of :class:`Curve`."""
        at = np.asarray(x, dtype=np.float64)
        values = np.asarray(y, dtype=np.float64)
        values = values if values.ndim else np.full(len(at), values)
        error = None if yerr is None else np.asarray(yerr, dtype=np.float64)
        self.curves.append(Curve(panel, label, at, values, error, marker, style, **axes))

    def draw_means(
        self, panel: str, label: str, x: ArrayLike, found: Sequence[tuple[float, float | None]],
        marker: str = "", style: str = "", **axes: Any,
    ) -> None:  # fmt: skip
        """Add a curve of means with their standard errors."""
        y, yerr = [m for m, _ in found], [e or 0.0 for _, e in found]
        self.draw(panel, label, x, y, yerr, marker, style, **axes)

    def result(self, title: str, paper: str, **more: Any) -> Result:
        """Return the table and the figure; ``more`` are further fields of :class:`Result`."""
        more.setdefault("log", "xy")
        return Result(title, paper, tuple(self.checks), tuple(self.curves), **more)
