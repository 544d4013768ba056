"""Experiments on local means: quick runs, the populations, and the arithmetic of the checks."""

from __future__ import annotations

import math

import numpy as np
import pytest
from small_requests import result_of, small

from fedhist.protocols import Mean
from simulations.experiments import local_runs as runs
from simulations.experiments.experiment import Findings
from simulations.experiments.phase_transition import Phases

# -- populations ---------------------------------------------------------------------------------


# -- runs ----------------------------------------------------------------------------------------


# -- the arithmetic of the checks ------------------------------------------------------------------


def test_a_perfect_curve_bends_where_it_is_planned_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """MSE = 20 / (n min(T, 2 N^2)): slope -1, constant 20 in every channel, bend at 2 N^2."""
    flat = 68_719_476_736

    def errors(self: Phases, protocol: Mean, T: int) -> runs.Errors:
        n = protocol.n_users
        T = min(T, 2 * self.mean(n, flat).plan.n_bins ** 2)
        size = math.sqrt(20 / (n * T))
        return runs.Errors(np.array([[size * 0.999], [-size]]), math.inf)

    monkeypatch.setattr(Phases, "errors", errors)
    phases = Phases(Findings(small("phase-transition", bend_users=[1000, 1600])))
    for part in (phases.against_samples, phases.channels, phases.bend):
        part()
    ours = {c.quantity: c.ours for c in phases.findings.checks}
    assert ours["auto: steepest log-log slope in T, over n"] == pytest.approx(-1)
    assert ours["piecewise: average n T MSE"] == pytest.approx(20, rel=2e-3)
    assert ours["onebit: least n T MSE, + 2 stderr"] == pytest.approx(20, rel=5e-3)
    assert ours["least T of the bend / N^2"] == pytest.approx(2)
    assert ours["most T of the bend / N^2"] == pytest.approx(2)


def test_item_level_formulas_are_those_of_the_specification() -> None:
    """9 and 4.7 over n T in one dimension; d^2 coth^2 and B^2 ~ (pi d / 2) coth^2 in more."""
    coth2 = 1 / math.tanh(0.5) ** 2
    curves = {c.label: c for c in result_of("phase-transition").curves}
    for label, constant in (("Laplace", 9.0), ("one bit", coth2)):
        c = curves[f"item level, {label}, formula"]
        np.testing.assert_allclose(c.y * c.x * 2000, constant, rtol=1e-3)  # its lattice rounds
    assert coth2 == pytest.approx(4.7, abs=0.03)
    request = small("local-dimension")
    n, T = request.settings["users"], request.settings["samples"]
    panel = [c for c in result_of("local-dimension").curves if c.panel.startswith("against d")]
    many = {c.label: c for c in panel}
    linf, l2 = many["linf: item level"], many["l2: item level"]
    np.testing.assert_allclose(linf.y * n * T, linf.x**2 * coth2, rtol=1e-3)
    np.testing.assert_allclose(l2.y * n * T, math.pi * l2.x / 2 * coth2, rtol=0.15)
    np.testing.assert_allclose(many["linf: naive"].y, T * linf.y, rtol=1e-3)
