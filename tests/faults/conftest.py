"""Runs of these tests know the adversaries that only attack the intake."""

from __future__ import annotations

import pytest

from simulations import adversaries
from tests.faults.intake.hostile import HostileGrid


@pytest.fixture(autouse=True)
def every_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adversaries, "HostileGrid", HostileGrid)
