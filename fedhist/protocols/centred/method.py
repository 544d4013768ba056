"""The field that says how whole vectors are asked for."""

from __future__ import annotations

from typing import Literal

from fedhist.base.checks import check_within

Method = Literal["centred", "folds", "auto"]


def check_clip_mass(clip_mass: float) -> None:
    """Raise ValueError unless a share of users between 0 and 1/2."""
    check_within("clip_mass", clip_mass, 0, 0.5, "(]")
