"""Runs of these tests know the adversary that only attacks the intake."""

from __future__ import annotations

import pytest

from simulations import adversaries
from tests.faults.attacks import HostileGrid


@pytest.fixture(autouse=True)
def every_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adversaries, "HostileGrid", HostileGrid)
