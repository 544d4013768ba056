"""Reading an experiment's settings: what ``--set`` may be given, and what it is told if not."""

from __future__ import annotations

import math
from typing import Annotated

from fedhist.base.checks import check_integer
from simulations.config.reading import Must, Whole, convert
from simulations.experiments.base import Request

AtLeastOne = Must("a list of at least one", bool)
Positive = Annotated[float, Must("positive and finite", lambda x: 0 < x < math.inf)]


def whole(request: Request, name: str, least: int = 1) -> int:
    """Read a whole number; ValueError, with the value, below ``least``."""
    check_integer(name, request.settings[name], least=least)
    return int(request.settings[name])


def wholes(request: Request, name: str) -> list[int]:
    """Read a list of positive whole numbers, which may not be empty."""
    return list(convert(name, request.settings[name], Annotated[tuple[Whole, ...], AtLeastOne]))


def positive(request: Request, name: str) -> float:
    """Read a positive and finite number: an experiment without noise measures nothing."""
    return float(convert(name, request.settings[name], Positive))


def positives(request: Request, name: str) -> list[float]:
    """Read a list of positive and finite numbers, which may not be empty."""
    return list(convert(name, request.settings[name], Annotated[tuple[Positive, ...], AtLeastOne]))
