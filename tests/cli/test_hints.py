"""What a report says under "look here": noise, or what was cut away, and what to change."""

from __future__ import annotations

import numpy as np
import pytest

from fedhist.model.prediction import Prediction
from fedhist.model.protocol import Estimate
from fedhist.users.keys import Keys
from simulations.runs.results import Evaluation
from simulations.runs.tables import hint

TRUTH = np.array([600.0, 300.0, 100.0])


def said(
    value: np.ndarray, std: float | None, clip: float = 2.0, *, foreseen: float = 100.0
) -> str:
    """Of 500 users with two items each."""
    loss = np.array([float(np.abs(value - TRUTH).sum())])
    stderr = None if std is None else np.full(3, std)
    estimate = Estimate.ok(value, stderr=stderr, public={"clip": clip, "n_users": 500.0})
    return hint(Evaluation(TRUTH, None, loss, Prediction("l1", foreseen, "exact", "")), estimate)


def test_a_good_estimate_needs_no_hint() -> None:
    assert said(TRUTH + 10, 10.0) == ""


def test_what_the_clip_cut_away() -> None:
    assert said(TRUTH / 10, 3.0, clip=0.2).startswith("the clip, 0.2, cuts most of the counts away")


def test_noise_of_a_clip_that_is_too_high_and_of_too_few_users() -> None:
    noisy = TRUTH + np.array([900.0, -700.0, 800.0])
    assert "far above the 2 that a user contributes" in said(noisy, 800.0, clip=80.0)
    assert said(noisy, 800.0).startswith("most of the error is noise: more users")


def test_without_standard_errors_theory_decides() -> None:
    flat = np.array([0.0, 0.0, 1000.0])
    assert said(flat, None, foreseen=1500.0).startswith("as theory foresees")
    assert "do not fit the data" in said(flat, None, foreseen=20.0)


def test_items_that_were_not_released() -> None:
    keys = Keys.of(["a", "b", "c"])
    one = Estimate.ok(np.array([100.0]), keys=Keys.of(["c"]), stderr=np.array([5.0]))
    bound = Prediction("l1", 10.0, "exact", "")
    assert "not released" in hint(Evaluation(TRUTH, keys, np.array([900.0]), bound), one)


@pytest.mark.parametrize("loss", ["squared l2", "rank error"])
def test_other_losses_have_no_size_to_compare_with(loss: str) -> None:
    estimate = Estimate.ok(TRUTH * 9)
    bound = Prediction(loss, 1.0, "exact", "")
    assert hint(Evaluation(TRUTH, None, np.array([1e9]), bound), estimate) == ""


def test_no_items_at_all() -> None:
    nothing = Evaluation(np.zeros(3), None, np.zeros(1), Prediction("l1", 1.0, "exact", ""))
    assert "spelt as in the data" in hint(nothing, Estimate.ok(np.zeros(3)))
