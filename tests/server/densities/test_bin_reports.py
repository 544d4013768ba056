"""Bins of one sample: what a user is asked, and what its report gives away."""

import math

import numpy as np
import pytest

from clients.densities.queries import BinReports
from fedhist.users.batch import Users
from fedhist.users.keys import Keys, user_ids
from tests.running import streams


def test_bins_without_noise() -> None:
    """Ends of the range count; samples outside are clipped, unusable records say so."""
    records = [[0.0], [0.249], [0.25], [1.0], [7.0], [-3.0], [], [0.3, math.nan], [math.inf]]
    sizes = np.cumsum([0, *map(len, records)])
    values = np.array([x for r in records for x in r])
    users = Users.from_samples(user_ids(Keys.range(len(records))), sizes, values, unusable=True)
    query = BinReports(4, math.inf)
    summary = query.fold(query.answer(users, streams(users)))
    assert query.masses(summary) * 9 == pytest.approx([3, 1, 0, 3])
    drawn = query.draw_summary(users, np.random.default_rng(0))
    assert query.masses(drawn) == pytest.approx(query.masses(summary))
