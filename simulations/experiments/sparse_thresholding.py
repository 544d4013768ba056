"""Sparse means by thresholding [1]_. NOT PRIVATE.

Thresholding estimates all d coordinates in folds and drops what noise explains: its error has the
factor d, and none that asks a user to see a signal in its own samples.

References
----------
.. [1] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local
   differential privacy", arXiv 2405.11923, Section 4.1, eq. (43)-(48), Theorem 8.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedhist.base.arrays import Floats
from simulations.experiments.experiment import Findings, Request, Result, mean_and_error, power_law
from simulations.experiments.sparse_selection import Task

SECOND = "second procedure"
Measured = tuple[float, float | None]


def run(request: Request) -> Result:
    """Measure the panels."""
    base = Task.of(request, request.whole("d"))
    found = Findings(request)
    _rates(found, base)
    return found.result(
        "Sparse means: thresholding",
        "Theorem 8",
        x_label="n, users; T, samples per user; d, coordinates, by panel",
        y_label="summed squared error",
        notes=(
            "NOT PRIVATE: errors are measured with the truth, the mean of the population",
            f"epsilon = {base.epsilon:g} per user and record, local; {base.s} coordinates at "
            f"+-{base.amplitude:g} in random places where nothing else is said, samples +-1; users "
            "drawn anew for each run; a refusal counts as the estimate 0",
        ),
        not_judged=("the constants of Theorem 8: the paper does not name them",),
        population="samples of {-1, 1}^d",
    )


def _errors(found: Findings, tasks: Sequence[Task], method: str) -> list[Measured]:
    """Measure a procedure at several settings."""
    runs = found.request.whole("repeats")
    return [
        mean_and_error(t.losses(t.protocol(method=method), found.request, method, runs))
        for t in tasks
    ]


def _planned(tasks: Sequence[Task]) -> Floats:
    """Predict thresholding where it keeps the signals, and nothing else: their s folds' errors."""
    return np.array([t.s * t.protocol(method="threshold").plan.risk for t in tasks])


def _rates(found: Findings, base: Task) -> None:
    """Judge how the error of thresholding moves with n, T and d."""
    for axis, words, wanted in (("n", "users", -1), ("T", "samples", -1), ("d", "coordinates", 1)):
        x = found.request.wholes(f"rates_{axis}")
        tasks = [replace(base, **{axis: value}) for value in x]
        sse, theory = _errors(found, tasks, "threshold"), _planned(tasks)
        mean = np.array([m for m, _ in sse])
        panel = f"{SECOND}, against {axis}, {words}"
        found.draw_means(panel, "thresholding", x, sse, "o", " ", x_label=f"{axis}, {words}")
        found.draw(panel, "predicted", x, theory, style="--", x_label=f"{axis}, {words}")
        rate = mean[0] * (np.array(x) / x[0]) ** float(wanted)
        label = f"{axis}^{wanted}, through the first"
        found.draw(panel, label, x, rate, style=":", x_label=f"{axis}, {words}")
        found.check(SECOND, f"log-log slope in {axis}", power_law(x, mean)[0])
        quantity = f"slope in {axis} less the predicted one"
        found.check(SECOND, quantity, power_law(x, mean)[0] - power_law(x, theory)[0])
    few = replace(base, n=found.request.whole("few_n"))
    lost = _errors(found, [few], "threshold")[0][0] / (base.s * base.amplitude**2)
    found.check(SECOND, "thresholding / nothing, with few users for d folds", lost)
