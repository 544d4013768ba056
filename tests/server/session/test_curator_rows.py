"""Many exponential mechanisms at once: their cost, their law, and what is refused."""

import math
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import chisquare

import fedhist as fh
from fedhist.privacy.ledger import Ledger
from fedhist.privacy.noise_law import NoiseSource
from server.noise import SecureNoise, SimulatedNoise
from server.session import curator as module
from server.session.journal import Journal


def curator(
    epsilon: float = math.inf,
    delta: float = 0.0,
    noise: NoiseSource | None = None,
    journal: Journal | None = None,
) -> fh.Curator:
    limit = fh.Guarantee(epsilon, delta, fh.Trust.CENTRAL, fh.Adjacency.REPLACE_USER)
    source = noise or SimulatedNoise(3, 0)
    return fh.Curator(Ledger(limit), lambda i: source, journal or Journal())


SCORES = np.array([[0.0, 1.0, 2.0], [5.0, 5.0, 5.0], [0.0, -3.0, 9.0]])


def test_changed_rows_are_charged_in_both_currencies() -> None:
    server = curator()
    server.exponential_rows(SCORES, sensitivity=1.0, epsilon_each=0.4, changed=2)
    (entry,) = server.ledger.entries
    assert entry.release.epsilon == 0.8
    assert entry.release.rho == pytest.approx(2 * 0.4**2 / 8)
    assert (entry.release.delta, entry.release.slack) == (0.0, 0.0)


def test_a_zcdp_budget_is_spent_to_the_last_bit_and_not_passed() -> None:
    rho, q = fh.zcdp_rho(1.0, 1e-6), 100
    scores = np.zeros((150, 4))
    each = math.sqrt(8 * rho / q)
    server = curator(1.0, 1e-6)
    server.exponential_rows(scores, sensitivity=1.0, epsilon_each=each, changed=q)
    assert server.ledger.spent().epsilon == pytest.approx(1.0, rel=1e-9)
    with pytest.raises(fh.BudgetExceeded):
        curator(1.0, 1e-6).exponential_rows(
            scores, sensitivity=1.0, epsilon_each=each * 1.001, changed=q
        )


@pytest.mark.parametrize(
    "noise", [SimulatedNoise(5, 0), SecureNoise()], ids=["simulated", "secure"]
)
def test_every_row_has_the_law_of_one_mechanism(noise: NoiseSource) -> None:
    """Chi-square of two rows' frequencies against softmax: false alarm 2e-6 over both grades."""
    n, epsilon, sensitivity = (40_000, 1.5, 2.0) if noise.grade == "simulated" else (1200, 1.5, 2.0)
    rows = np.tile(SCORES[[0, 2]], (n, 1))
    result = curator(noise=noise).exponential_rows(
        rows, sensitivity=sensitivity, epsilon_each=epsilon, changed=1
    )
    assert result.dtype == np.int64
    for i in (0, 1):
        law = softmax(SCORES[[0, 2]][i] * epsilon / (2 * sensitivity))
        assert chisquare(np.bincount(result[i::2], minlength=3), n * law).pvalue > 5e-7
    # rows are independent: pairs have the product law (correlation within 5.3 deviations)
    assert abs(np.corrcoef(result[0::2], result[1::2])[0, 1]) < 5.3 / math.sqrt(n)


def test_blocks_do_not_matter_to_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SCORES_AT_ONCE", 7)
    rows = np.tile([[0.0, 900.0], [900.0, 0.0], [0.0, 900.0]], (5, 1))
    result = curator().exponential_rows(rows, sensitivity=1.0, epsilon_each=1.0, changed=3)
    assert result.tolist() == [1, 0, 1] * 5


def test_a_restart_returns_what_was_released() -> None:
    journal = Journal()
    first = curator(noise=SimulatedNoise(1, 0), journal=journal)
    again = curator(noise=SimulatedNoise(2, 0), journal=journal)
    rows = np.zeros((50, 9))
    a, b = (
        c.exponential_rows(rows, sensitivity=1.0, epsilon_each=1.0, changed=50)
        for c in (first, again)
    )
    assert np.array_equal(a, b)
    assert len(set(a.tolist())) > 3


@pytest.mark.parametrize(
    "change",
    [
        {"scores": np.zeros(3)},
        {"scores": np.zeros((0, 3))},
        {"scores": np.array([[0.0, math.nan]])},
        {"scores": np.array([[0.0, math.inf]])},
        {"changed": 0},
        {"changed": 4},
        {"sensitivity": 0.0},
        {"epsilon_each": 0.0},
    ],
)
def test_bad_arguments_charge_nothing(change: dict[str, Any]) -> None:
    server = curator()
    good = {"scores": SCORES, "sensitivity": 1.0, "epsilon_each": 1.0, "changed": 2} | change
    with pytest.raises(ValueError, match=f"{next(iter(change))}|finite|epsilon"):
        server.exponential_rows(**good)
    assert server.ledger.entries == ()


@pytest.mark.parametrize("bad", [np.zeros(3), np.zeros((2, 0)), np.array([[0.0], [-math.inf]])])
def test_noise_needs_a_possible_index_in_every_row(bad: np.ndarray) -> None:
    with pytest.raises(ValueError, match="logits must be"):
        SimulatedNoise(1, 0).exponential_rows(bad)


@pytest.mark.parametrize(
    "noise", [SimulatedNoise(5, 0), SecureNoise()], ids=["simulated", "secure"]
)
def test_zcdp_gaussians_on_integers(noise: NoiseSource) -> None:
    """The std of 4,000 draws is within 6 of its deviations, 1.1 % (false alarm below 1e-8)."""
    server = curator(noise=noise)
    result = server.gaussian_zcdp(
        np.zeros(4000, np.int64), l2_sensitivity=3.0, rho=0.02, discrete=True
    )
    assert result.dtype == np.int64
    assert result.std() == pytest.approx(3.0 / math.sqrt(0.04), rel=0.068)
    assert server.ledger.entries[0].release.rho == 0.02
    with pytest.raises(ValueError, match="takes integers"):
        server.gaussian_zcdp(np.zeros(2), l2_sensitivity=1.0, rho=0.1, discrete=True)
