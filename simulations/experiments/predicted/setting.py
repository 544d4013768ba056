"""A setting of a results row, and the row once it is measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from rich.console import Console

Z99 = 2.5758


@dataclass(frozen=True)
class Setting:
    """One setting of a results row.

    Attributes
    ----------
    protocol : str
    label : str
        The settings in words; the edge of feasibility is marked.
    loss : str
    repeats : int
    band : (float, float)
        Where measured / predicted must be.
    predict : callable
        Returns the expected loss.
    measure : callable of int to float
        Runs the protocol once with a seed and returns its loss.
    """

    protocol: str
    label: str
    loss: str
    repeats: int
    band: tuple[float, float]
    predict: Callable[[], float]
    measure: Callable[[int], float]


@dataclass(frozen=True)
class Row:
    """A measured setting.

    Attributes
    ----------
    setting : Setting
    repeats : int
        Runs that were made.
    predicted, measured : float
    ratio : (float, float)
        99% interval of measured / predicted (normal approximation over the repeats).
    """

    setting: Setting
    repeats: int
    predicted: float
    measured: float
    ratio: tuple[float, float]

    @property
    def passes(self) -> bool:
        """Whether the interval meets the band."""
        low, high = self.setting.band
        return self.ratio[1] >= low and self.ratio[0] <= high

    @property
    def verdict(self) -> str:
        """PASS, FAIL, or "too few runs" where the interval is over twice as wide as the band."""
        low, high = self.setting.band
        if not self.passes:
            return "FAIL"
        return "PASS" if self.ratio[1] - self.ratio[0] <= 2 * (high - low) else "too few runs"


def measure(setting: Setting, effort: float = 1.0) -> Row:
    """Run a setting as often as it says, times ``effort``, seeds 0, 1, ..."""
    if not effort > 0:
        raise ValueError(f"effort must be positive, got {effort}")
    repeats = max(20, round(setting.repeats * effort))
    losses = np.array([setting.measure(seed) for seed in range(repeats)])
    predicted = setting.predict()
    mean, half = losses.mean(), Z99 * losses.std(ddof=1) / math.sqrt(repeats)
    return Row(
        setting,
        repeats,
        predicted,
        float(mean),
        (float((mean - half) / predicted), float((mean + half) / predicted)),
    )


def print_rows(console: Console, rows: Iterable[Row]) -> bool:
    """Print results rows as they come; says whether all pass."""
    console.print("predicted against measured; a row passes if the 99% interval of the ratio")
    console.print("meets its band, which was fixed before anything was measured")
    passed = True
    for row in rows:
        s = row.setting
        verdict = row.verdict if row.passes else "[bold red]FAIL[/]"
        console.print(f"[bold]{s.protocol}[/]  {s.label}  ({row.repeats:,} runs)")
        console.print(
            f"  {s.loss:<4} predicted {row.predicted:<11.5g} measured {row.measured:<11.5g} "
            f"ratio {row.ratio[0]:.3f}..{row.ratio[1]:.3f}  {verdict}"
        )
        console.print(f"       band {s.band[0]:g}..{s.band[1]:g}")
        passed &= row.passes
    return passed
