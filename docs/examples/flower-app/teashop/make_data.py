"""Make up partitions: ``python -m teashop.make_data FOLDER 5``."""

import sys
from pathlib import Path

import numpy as np
import polars as pl

TEAS = ["assam", "chai", "oolong", "sencha"]


def make(folder: Path, nodes: int, users: int = 400) -> None:
    """Write a file for each node: who drank what, at what age, how many cups."""
    rng = np.random.default_rng(1)
    folder.mkdir(parents=True, exist_ok=True)
    for node in range(nodes):
        age = rng.integers(18, 80, users)
        pl.DataFrame(
            {
                "customer": [f"{node}-{u}" for u in range(users)],
                "tea": rng.choice(TEAS, users, p=[0.4, 0.3, 0.2, 0.1]),
                "age": age,
                "cups": 1.0 + 0.05 * age + rng.normal(0.0, 0.5, users),
            }
        ).write_parquet(folder / f"{node}.parquet")


if __name__ == "__main__":
    make(Path(sys.argv[1]), int(sys.argv[2]))
