"""Two owners' files, for the tests of a deployment."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from flower_cases import DOMAIN


@pytest.fixture(scope="module")
def event_files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two owners' files of events: 8 users each, Parquet and CSV, items outside the domain."""
    folder = tmp_path_factory.mktemp("events")
    rng = np.random.default_rng(11)
    files = []
    for node in range(2):
        rows = [
            (f"user-{node}-{u}", item, int(rng.integers(1, 6)))
            for u in range(8)
            for item in rng.choice([*DOMAIN, "cola"], size=3, replace=False)
        ]
        frame = pl.DataFrame(rows, schema=["who", "what", "times"], orient="row")
        files.append(folder / f"owner-{node}.{'parquet' if node == 0 else 'csv'}")
        frame.write_parquet(files[-1]) if node == 0 else frame.write_csv(files[-1])
    return files


@pytest.fixture(scope="module")
def sample_files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two owners' files of real samples in [0, 8]: 40 users each, 4 samples a user."""
    folder = tmp_path_factory.mktemp("samples")
    rng = np.random.default_rng(12)
    files = []
    for node in range(2):
        rows = [
            (f"user-{node}-{u}", float(x))
            for u in range(40)
            for x in np.clip(rng.normal(5.0, 1.0, 4), 0.0, 8.0)
        ]
        files.append(folder / f"owner-{node}.csv")
        pl.DataFrame(rows, schema=["who", "x"], orient="row").write_csv(files[-1])
    return files
