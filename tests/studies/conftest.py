"""A study file that several tests write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from noted_study import BASE


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    def written(text: str) -> Path:
        path = tmp_path / "grid.toml"
        path.write_text(text + BASE, encoding="utf-8")
        return path

    return written
