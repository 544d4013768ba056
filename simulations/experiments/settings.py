"""Reading an experiment's settings: what ``--set`` may be given, and what it is told if not."""

from __future__ import annotations

import math
from typing import Any

from fedhist.base.checks import check_integer
from simulations.experiments.base import Request


def whole(request: Request, name: str, least: int = 1) -> int:
    """Read a whole number; ValueError, with the value, below ``least``."""
    return _whole(name, request.settings[name], least)


def wholes(request: Request, name: str) -> list[int]:
    """Read a list of positive whole numbers, which may not be empty."""
    return [_whole(name, x, 1) for x in _listed(name, request.settings[name])]


def positive(request: Request, name: str) -> float:
    """Read a positive and finite number: an experiment without noise measures nothing."""
    return _positive(name, request.settings[name])


def positives(request: Request, name: str) -> list[float]:
    """Read a list of positive and finite numbers, which may not be empty."""
    return [_positive(name, x) for x in _listed(name, request.settings[name])]


def _listed(name: str, values: Any) -> list[Any]:
    if not isinstance(values, list) or not values:
        raise ValueError(f"{name} must be a list of at least one, got {values!r}")
    return values


def _whole(name: str, value: Any, least: int) -> int:
    check_integer(name, value, least=least)
    return int(value)


def _positive(name: str, value: Any) -> float:
    if type(value) not in (int, float) or not 0 < value < math.inf:
        raise ValueError(f"{name} must be positive and finite, got {value!r}")
    return float(value)
