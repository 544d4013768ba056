import math
from dataclasses import replace

import numpy as np
import pytest

import fedhist as fh
from server.baselines.naive_mean import NaiveMean
from tests.running import concluded, sampled

BASE = NaiveMean(epsilon=1.0, n_users=40, samples_per_user=3)


def ragged_users(d: int, seed: int = 0) -> fh.Users:
    """40 users of 0 to 6 samples whose means differ; some samples out of range, one record NaN."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, 7, 40)
    sizes[:3] = (0, 2, 6)
    centres = np.repeat(rng.normal(0.3, 0.3, (40, d)), sizes, axis=0)
    values = centres + rng.normal(0, 0.5, centres.shape)
    values[1] = np.nan
    return sampled(sizes, values)


def test_spec_figures() -> None:
    """The baselines of the specification, section G, at the midpoint of [-1, 1]."""
    n, T, d = 1000, 64, 16
    common = {"n_users": n, "samples_per_user": T, "epsilon": 1.0}
    coth2 = 1 / math.tanh(0.5) ** 2
    laplace = NaiveMean(kind="laplace", **common)
    assert laplace.planned_mse == pytest.approx(8 / n, rel=1e-3)
    assert replace(laplace, dimension=d).planned_mse == pytest.approx(8 * d**2 / n, rel=1e-3)
    onebit = NaiveMean(kind="onebit", **common)
    assert onebit.planned_mse == pytest.approx(coth2 / n)
    box = replace(onebit, dimension=d)
    assert box.planned_mse == pytest.approx(d**2 * coth2 / n)
    ball = NaiveMean(geometry="l2", dimension=d, radius=2.0, **common)
    assert ball.planned_mse == pytest.approx(4 * math.pi * d / 2 * coth2 / n, rel=0.04)


def test_reports_are_checked() -> None:
    ball = replace(BASE, geometry="l2", dimension=2).query
    length = ball.channel.length
    on = np.array([[length, 0.0], [0.0, -length]])
    ids = np.arange(2, dtype=np.uint64)
    ball.check(fh.Report(ids, {"reports": on}))
    for bad in (on * 1.001, on * 0.999, on[:, :1], on * np.nan):
        with pytest.raises(fh.WireError):
            ball.check(fh.Report(ids, {"reports": bad}))
    with pytest.raises(fh.WireError):
        ball.check(fh.Report(ids, {"other": on}))


def test_few_or_no_users() -> None:
    """Without answers it fails; a coordinate without users is its midpoint, and says so."""
    none, rng = ragged_users(4).slice(0, 0), np.random.default_rng(0)
    for method in ("user-mean", "one-item"):
        protocol = replace(BASE, dimension=4, method=method)
        assert concluded(protocol, protocol.query.draw_summary(none, rng)).status == "failed"
    protocol = replace(BASE, dimension=4, low=1.0, high=5.0)
    estimate = fh.run(protocol, ragged_users(4).slice(2, 3), seed=0)
    assert np.isinf(estimate.stderr).sum() == 3
    assert (estimate.value[np.isinf(estimate.stderr)] == 3.0).all()
    assert len(estimate.warnings) == 1
