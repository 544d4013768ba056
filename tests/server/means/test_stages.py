"""Stages of clipped reports for few users: widths, shares, and the risk that is predicted."""

from __future__ import annotations

import math

import numpy as np
import pytest

from server.localize.choice import Stage, clipped_normal, plan_stages, stages_risk


def test_stages_narrow_and_their_shares_add_up() -> None:
    plan = plan_stages(250.0, 500**-0.5, 1.0, 2.0)
    widths = [s.half_width for s in plan.stages]
    assert widths[0] == 1.0
    assert widths == sorted(widths, reverse=True)
    assert sum(s.share for s in plan.stages) == pytest.approx(1)
    assert len(plan_stages(250.0, 1.0, 1.0, 2.0).stages) == 1  # one sample a user


def test_the_clipped_mean_of_a_normal() -> None:
    x = np.linspace(-9, 9, 200_001)
    density = np.exp(-((x - 0.3) ** 2) / (2 * 0.49))
    slow = (np.clip(x, -0.5, 0.5) * density).sum() / density.sum()
    assert clipped_normal(np.array([0.3]), 0.7, 0.5)[0] == pytest.approx(slow, abs=1e-6)


def test_the_risk_of_stages_is_that_of_runs() -> None:
    """Against the recursion drawn 20,000 times: 1 % is one standard error of a mean square."""
    n, sigma, own = 300.0, 0.06, 0.06**2
    stages = tuple(Stage(f, h, 8.0 * h * h + own) for f, h in ((0.3, 1.0), (0.3, 0.4), (0.4, 0.2)))
    rng = np.random.default_rng(2)
    value, precision = np.zeros(20_000), 0.0
    for s in stages:
        noise = s.user_variance / (s.share * n)
        told = value + clipped_normal(-value, sigma, s.half_width) if precision else value
        told = told + math.sqrt(noise) * rng.normal(size=20_000)
        value = (precision * value + told / noise) / (precision + 1 / noise)
        precision += 1 / noise
    assert stages_risk(stages, n, sigma) == pytest.approx((value**2).mean(), rel=0.06)
