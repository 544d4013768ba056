"""Real data, where the environment variable FEDHIST_DATA names the folder that holds them."""

from __future__ import annotations

import csv
import os
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from fedhist.users.keys import Keys, user_ids
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
    slow: dict[str, Counter[str]] = defaultdict(Counter)
    with real("lastfm_user_artists.tsv").open(newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            slow[row["userID"]][row["artistID"]] += int(row["weight"])
    ids = dict(zip(user_ids(Keys.of(slow)).tolist(), slow, strict=True))
    words = list(items.vocabulary)
    for k, user in enumerate(users.ids.tolist()):
        row = slice(items.indptr[k], items.indptr[k + 1])
        names = [words[j] for j in items.item[row]]
        assert dict(zip(names, items.count[row].tolist(), strict=True)) == slow[ids[user]]
        assert names == sorted(names)
    plays: Counter[str] = Counter()
    for counts in slow.values():
        plays.update(counts)
    ranked = sorted(plays, key=lambda item: (-plays[item], item))[:100]
    assert list(loaded.domain or ()) == sorted(ranked)
