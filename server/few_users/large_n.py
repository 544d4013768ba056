"""The large-n branch: a private median of every coordinate, then a clipped mean around them [1]_.

References
----------
.. [1] Levy, Sun, Amin, Kale, Kulesza, Mohri & Suresh, "Learning with user-level privacy",
   NeurIPS 2021, Algorithms 1 and 2, Corollary 1; Narayanan, Mirrokni & Esfandiari, ICML 2022,
   Corollary 8.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedhist.base.arrays import Floats, Integers
from fedhist.privacy.guarantee import zcdp_rho
from server.central_means.localizing import median_scores
from server.few_users.draws import Released, Rotation
from server.few_users.plan import CLIP_RADII, MEDIAN_SHARE, FewUsersPlan, n_bins

if TYPE_CHECKING:
    from fedhist.session.curator import Curator


def counted(places: Integers, n_bins: int) -> Integers:
    """Count the users in every bin of each coordinate: (D, n) to (D, n_bins)."""
    at = places + n_bins * np.arange(len(places))[:, None]
    return np.bincount(at.ravel(), minlength=len(places) * n_bins).reshape(-1, n_bins)


def clip_to_grid(rows: Floats, radius: float) -> tuple[NDArray[np.int64], float]:
    """Scale rows into the l2 ball and round them towards zero to whole steps.

    Returns
    -------
    rows : (n, D) int64
        In steps; every norm times the step is at most ``radius``, up to a relative 1e-9.
    step : float
        About the radius / sqrt(D) times 2^-20.
    """
    step = 2.0 ** (math.floor(math.log2(radius / math.sqrt(rows.shape[1]))) - 20)
    inside = rows / radius  # squares of what matters cannot vanish
    scale = 1 / np.maximum(np.sqrt(np.einsum("ij,ij->i", inside, inside)), 1.0)
    return np.trunc(rows * scale[:, None] / step).astype(np.int64), step


def release_large_n(
    server: Curator, rows: Floats, plan: FewUsersPlan, *, salt: int = 1
) -> Released:
    """Release the mean of (n, d) rows of norm at most ``plan.box`` by medians and a clipped mean.

    Privacy
    -------
    rho-zCDP with the rho of (epsilon, delta), under replacement: .3 rho for the medians and .7 rho
    for the mean. Replacing a user moves the number of users on one side of a bin by 1 at most, in
    each of D coordinates: D exponential mechanisms of bounded range, each epsilon^2 / 8-zCDP. Rows
    are clipped to 1.6 r around the released centre, so that the sum moves by at most 3.2 r in l2;
    on a grid with discrete Gaussian noise.

    Error
    -----
    r sqrt(1/n + 3.2^2 d / (1.4 rho n^2)) around the common mean, and in few dimensions what the
    clip takes away (:func:`server.few_users.plan.clip_bias`); an l2 clip, where the paper
    winsorizes every coordinate and loses sqrt(log dn).
    """
    rotation = Rotation(plan.dimension, salt)
    turned = rotation.turn(rows)
    count, width = n_bins(plan.radius, plan.box, plan.padded), plan.part_radius
    # the bins are centred; rounding and norms beyond the box end in the outermost ones
    low = -count * width / 2
    places = np.clip(np.floor((turned.T - low) / width), 0, count - 1).astype(np.int64)
    medians = server.exponential_rows(
        median_scores(counted(places, count)),
        sensitivity=1.0,
        epsilon_each=plan.part_epsilon,
        changed=plan.padded,
        label="large-n: medians",
    )
    centre = low + (medians + 0.5) * width
    clip = CLIP_RADII * plan.radius
    whole, step = clip_to_grid(turned - centre, clip)
    total = server.gaussian_zcdp(
        whole.sum(axis=0),
        l2_sensitivity=2 * clip / step * (1 + 1e-9),
        rho=(1 - MEDIAN_SHARE) * zcdp_rho(plan.epsilon, plan.delta),
        discrete=True,
        label="large-n: mean",
    )
    value = rotation.back((centre + total * (step / len(rows)))[None])[0]
    return Released(value, "", {"bins": float(count)})
