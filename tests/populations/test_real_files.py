"""Real data, where the environment variable FEDHIST_DATA names the folder that holds them."""

from __future__ import annotations

import csv
import os
from collections import Counter
from pathlib import Path

import pytest

from simulations.populations import population

FOLDER = os.environ.get("FEDHIST_DATA")
pytestmark = pytest.mark.skipif(not FOLDER, reason="FEDHIST_DATA is not set")


def real(name: str) -> Path:
    return Path(FOLDER or "") / name


def test_lastfm() -> None:
    spec = population(
        "events",
        path=real("lastfm_user_artists.tsv"),
        user="userID",
        item="artistID",
        count="weight",
        top=100,
    )
    loaded = spec.load()
    users, items = loaded.users, loaded.users.counts
    assert len(users) == 1892
    assert len(items.item) == 92_834
    plays: Counter[str] = Counter()
    with real("lastfm_user_artists.tsv").open(newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            plays[row["artistID"]] += int(row["weight"])
    assert items.count.sum() == plays.total()
    ranked = sorted(plays, key=lambda item: (-plays[item], item))[:100]
    assert list(loaded.domain or ()) == sorted(ranked)
