"""The Poisson population: its laws. Seeds are fixed; the bands are six standard errors wide."""

import math

import numpy as np
import pytest
from scipy.stats import nbinom, poisson

from fedhist.base.errors import PopulationError
from simulations.populations import population


def counts(users):
    out = np.zeros(len(users), dtype=np.int64)
    out[np.diff(users.counts.indptr) > 0] = users.counts.count
    return out


@pytest.mark.parametrize(("alpha", "mean"), [(0.2, 1.0), (1.0, 3.0), (10.0, 0.5), (math.inf, 1.0)])
def test_the_counts_are_gamma_mixed_poisson(alpha, mean):
    """A Poisson count whose rate is Gamma(alpha) with this mean is negative binomial.

    Each of at most ten frequencies and the total stays within six standard errors: a false alarm
    has probability below 1e-7 per case.
    """
    n = 200_000
    x = counts(population("paper-poisson", n_users=n, alpha=alpha, mean_items=mean).load().users)
    law = poisson(mean) if math.isinf(alpha) else nbinom(alpha, alpha / (alpha + mean))
    assert abs(x.sum() - n * mean) <= 6 * law.std() * math.sqrt(n)
    for k in range(10):
        p = law.pmf(k)
        assert abs((x == k).mean() - p) <= 6 * math.sqrt(p * (1 - p) / n) + 1e-9


def test_rates_that_vanish_are_refused():
    with pytest.raises(PopulationError, match="too small"):
        population("paper-poisson", n_users=10, alpha=1e-300).load()
