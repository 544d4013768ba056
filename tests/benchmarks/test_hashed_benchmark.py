from __future__ import annotations

import math

import numpy as np

from fedhist.channels.catalogue import OneBitChannel
from fedhist.channels.sign_hashes import HadamardSigns, RademacherSigns
from simulations.benchmarks import hashed
from simulations.benchmarks.running import NAMES, without_targets

N = 6000


def test_the_two_decodings_agree() -> None:
    ids = np.arange(N, dtype=np.uint64)
    z = np.random.default_rng(1).choice(np.array([-1, 1], dtype=np.int8), N)
    signs = HadamardSigns(hashed.D, 1)
    assert np.array_equal(hashed.one_by_one(signs, ids, z), signs.scores(signs.fold(ids, z)))


def test_the_two_forms_score_alike() -> None:
    """Everybody votes for the columns 0 to 3: gain 3/8 times tanh(1) there, 0 elsewhere.

    1,024 means of 6,000 signs, none beyond 6 deviations: false alarm 4e-6.
    """
    columns = np.tile(np.arange(hashed.VOTES), (N, 1))
    ids = np.arange(N, dtype=np.uint64)
    channel = OneBitChannel(2.0)
    gain = np.where(np.arange(hashed.D) < hashed.VOTES, 0.375 * math.tanh(1.0), 0.0)
    signs, rng = RademacherSigns(hashed.D, 1), np.random.default_rng(2)
    for found in (
        hashed.scores(signs, ids, columns, channel),
        hashed.scores(HadamardSigns(hashed.D, 1), ids, columns, channel),
        hashed.packed_scores(signs, ids, columns, channel.flip, rng),
    ):
        assert np.abs(found / N - gain).max() < 6 / math.sqrt(N)


def test_rows_and_targets() -> None:
    assert "hashed" in NAMES
    result = hashed.measure(quick=True)
    targets = {row.what: row.at_least for row in result.rows if row.at_least is not None}
    assert targets == {"hashed votes, 1,024 signs: NumPy / compiled": 3.0}
    assert all(row.spread.median > 0 for row in result.rows)
    assert all(row.met is None for row in without_targets(result).rows)
