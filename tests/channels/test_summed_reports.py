"""The aggregate path draws the very law of the sums that the per-user path has."""

from __future__ import annotations

import itertools

import numpy as np

from fedhist.channels.bits import vote_totals
from fedhist.protocols import Mean
from fedhist.users.streams import integer_threshold
from simulations.runs.options import Options
from simulations.runs.run import execute


def test_vote_totals_have_the_exact_law() -> None:
    """Enumerated for two ones among three users; chi-squared false alarm 1e-6."""
    flip, draws = 0.3, 40_000
    p = float(integer_threshold(flip)) / 2**64
    law = np.zeros(4)
    for bits in itertools.product((0, 1), repeat=3):
        chance = [(1 - p if b else p) for b in bits[:2]] + [p if bits[2] else 1 - p]
        law[sum(bits)] += np.prod(chance)
    counts = np.full(draws, 2, dtype=np.int64)
    result = np.bincount(vote_totals(counts, 3, flip, np.random.default_rng(5)), minlength=4)
    chi = ((result - draws * law) ** 2 / (draws * law)).sum()
    assert chi < 30.7  # 1 - 1e-6 quantile of three degrees of freedom


def test_nobody_in_the_cohort_of_the_vote() -> None:
    """A vote that nobody heard is a failure, with nodes that have users and in aggregate too."""
    protocol, users = Mean.example(), Mean.example_users()
    asked = next(protocol.rounds(None))
    deaf = users.take(np.flatnonzero(~asked.cohort.contains(users.ids)))
    for clients in ("per-user", "aggregate"):
        result = execute(protocol, deaf, Options(seed=1, clients=clients, nodes=3)).estimate
        assert (result.status, result.reason) == ("failed", "nobody voted")
