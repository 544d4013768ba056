"""The field that says how whole vectors are asked for."""

from __future__ import annotations

from typing import Literal, get_args

Method = Literal["centred", "folds", "auto"]
METHODS = get_args(Method)


def check_clip_mass(clip_mass: float) -> None:
    """Raise ValueError unless a share of users between 0 and 1/2."""
    if not 0 < clip_mass <= 0.5:
        raise ValueError(f"clip_mass must lie in (0, 0.5], got {clip_mass}")
