"""What a trusted server must hide of users' trigonometric means, and what hiding it costs.

The means of cos(2 pi k x) and sin(2 pi k x), k = 1, ..., K, over a user's samples are a point of
the convex hull of the closed curve x -> (cos 2 pi x, sin 2 pi x, ..., sin 2 pi K x) in R^(2 K), or
zero for a user without samples. These points and their differences are what noise must cover.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from fedhist.privacy.guarantee import Adjacency
from fedhist.privacy.noise_law import noise_per_sensitivity
from server.densities.series import GRID, best_level

_CELLS = 512


@lru_cache(maxsize=4096)
def curve_diameter(n_frequencies: int) -> float:
    """Bound the l2 distance of two points of the hull, from above, within a relative 1e-6.

    The largest distance in a convex hull is that of two points of the curve. With t the difference
    of their parameters, its square is sum_k |e^(2 pi i k t) - 1|^2 = N - D(t), N = 2 K + 1 and D
    Dirichlet's kernel sin(N pi t) / sin(pi t). D is positive up to t = 1 / N, and from 3 / (2 N)
    on it is at least -1 / sin(pi t) >= D(3 / (2 N)): its least value lies between these two, where
    a grid finds it up to max |D''| h^2 / 8, |D''| <= 2 sum_k (2 pi k)^2. About 2.434 K, where the
    triangle inequality gives 4 K.

    Parameters
    ----------
    n_frequencies : int
        K.

    Examples
    --------
    >>> round(curve_diameter(1), 5), round(curve_diameter(24) / math.sqrt(24), 3)
    (2.0, 1.577)
    """
    k = n_frequencies
    n = 2 * k + 1
    t = np.linspace(1 / n, 1.5 / n, _CELLS + 1)
    least = float((np.sin(n * np.pi * t) / np.sin(np.pi * t)).min())
    bend = 8 * math.pi**2 * k * (k + 1) * n / 6
    return math.sqrt(n - least + bend * (0.5 / n / _CELLS) ** 2 / 8)


def row_sensitivity(n_frequencies: int, norm: int, adjacency: Adjacency) -> float:
    """Bound by how much the sum of the users' points changes with one user.

    Parameters
    ----------
    n_frequencies : int
        K.
    norm : {1, 2}
    adjacency : Adjacency
        REPLACE_USER: the diameter; zero is no further than that from the curve. ZERO_OUT_USER or
        ADD_REMOVE_USER: the largest norm of a point, sqrt(K).

    Returns
    -------
    float
        In l1 sqrt(2 K) times the l2 bound, by Cauchy and Schwarz.

    Raises
    ------
    ValueError
        For an adjacency of single items.
    """
    if adjacency is Adjacency.REPLACE_ITEM:
        raise ValueError(f"a sensitivity to one user is bounded here, got {adjacency.value}")
    replaced = adjacency is Adjacency.REPLACE_USER
    far = curve_diameter(n_frequencies) if replaced else math.sqrt(n_frequencies)
    return far * math.sqrt(2 * n_frequencies) if norm == 1 else far


def central_variance(
    level: int,
    n_users: int,
    samples: float,
    epsilon: float,
    delta: float,
    adjacency: Adjacency,
    discrete: bool = False,
) -> float:
    """Predict the integrated variance of J terms by noisy sums: sampling, and the noise.

    Parameters
    ----------
    level : int
        J, the known one included.
    n_users : int
    samples : float
        T.
    epsilon, delta : float
        Laplace noise where delta = 0, otherwise Gaussian.
    adjacency : Adjacency
    discrete : bool

    Notes
    -----
    phi_2k^2 + phi_{2k+1}^2 = 2: the coefficients' variances add up to at most (J - 1) / (n T).
    phi_j is sqrt(2) times what a user averages.
    """
    # the grid is fine: discrete Laplace noise is as large as the other
    unit = noise_per_sensitivity(epsilon, delta, discrete=discrete and delta > 0)
    std = unit.std * row_sensitivity(max(1, level // 2), 2 if delta else 1, adjacency)
    return (level - 1) * (2 * (std / n_users) ** 2 + 1 / (n_users * samples))


@lru_cache(maxsize=256)
def central_level(
    n_users: int,
    samples: float,
    epsilon: float,
    delta: float,
    adjacency: Adjacency = Adjacency.REPLACE_USER,
    discrete: bool = False,
    smoothness: float = 1.0,
    radius: float = 1.5,
    most: int = GRID - 1,
) -> int:
    """Choose the terms J of least predicted integrated squared error; see the arguments above.

    Examples
    --------
    >>> central_level(20_000, 100, 1.0, 1e-6), central_level(5, 100, 1.0, 1e-6)
    (67, 1)
    """
    return best_level(
        lambda level: central_variance(
            level, n_users, samples, epsilon, delta, adjacency, discrete
        ),
        smoothness,
        radius,
        most,
    )
