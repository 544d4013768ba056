r"""How much users differ, beyond what chance explains. NOT PRIVATE.

A correlation between two draws of one user: 0 where all users draw from one law. Of counts, with W
the chance that another event of the same user is the same item, and B that an event of another
user is, rho = (W - B) / (1 - B): it is 1 / (1 + alpha) where users' own distributions are
Dirichlet(alpha p), whatever p is [1]_. Of samples, the intraclass correlation of a one-way
analysis of variance [2]_. The score is in standard deviations of chance, where nobody differs.

References
----------
.. [1] Weir & Cockerham, "Estimating F-statistics for the analysis of population structure",
   Evolution 38, 1984.
.. [2] Searle, Casella & McCulloch, "Variance Components", 1992, Section 3.6.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedhist.base.arrays import Array, Floats, Integers
from fedhist.users.batch import Users
from fedhist.users.columns import Samples
from simulations.populations.facts import owners

SURE = 4.0
"""Score from which on users are said to differ; a fair coin gives it once in 30,000 files."""


@dataclass(frozen=True)
class Dispersion:
    """How much users differ. NOT PRIVATE.

    Attributes
    ----------
    correlation : float
        Between two draws of one user: 0 where all draw from one law, 1 where each user draws one
        thing only. A little below 0 by chance. NaN where it is not defined.
    score : float
        Standard deviations of chance between the statistic and 0; NaN where it is not defined.
    within, between : float
        Of counts: chance that two events of one user, and of two users, are the same item. Of
        samples: variance within users and between users' own means.
    n_users : int
        Users who hold at least two draws: the others say nothing.
    """

    correlation: float
    score: float
    within: float
    between: float
    n_users: int

    @property
    def differ(self) -> bool:
        """Whether users differ by more than chance explains."""
        return self.score > SURE

    def effective(self, samples: float) -> float:
        """Return how many independent draws so many of one user are worth.

        >>> Dispersion(0.5, 9.0, 0.0, 0.0, 9).effective(101)
        1.9803921568627452
        """
        rho = 0.0 if math.isnan(self.correlation) else max(self.correlation, 0.0)
        return samples / (1 + max(samples - 1, 0.0) * rho)


def dispersion_of_counts(users: Users, inside: Array | None = None) -> Dispersion:
    """Compare collisions within users with collisions between them.

    The score is that of the sum over users of sum_j c_j (c_j - 1) / (m - 1), whose variance
    under one multinomial law p is sum over users of 2 m / (m - 1) times
    sum p^2 - 2 sum p^3 + (sum p^2)^2, to first order. Only the entries ``inside`` count.

    Examples
    --------
    >>> users = Users.from_records({"ann": {"tea": 2}, "bob": {"rye": 2}})
    >>> dispersion_of_counts(users).correlation
    1.0
    """
    items = users.counts
    owner, c = owners(items.indptr), items.count.astype(np.float64)
    item = items.item
    if inside is not None:
        owner, item, c = owner[inside], item[inside], c[inside]
    held = np.bincount(owner, weights=c, minlength=len(users))
    several = held > 1
    kept = several[owner]
    owner, item, c, m = owner[kept], item[kept], c[kept], held[several]
    n, total = len(m), float(m.sum())
    pairs = total**2 - float(np.square(m).sum())
    if n < 2 or pairs <= 0:
        return Dispersion(math.nan, math.nan, math.nan, math.nan, n)
    within = float((c * (c - 1) / (held[owner] - 1)).sum()) / total
    of_items = np.bincount(item, weights=c)
    between = (float(np.square(of_items).sum()) - float(np.square(c).sum())) / pairs
    p = of_items / total
    kernel = between - 2 * float((p**3).sum()) + between**2
    deviation = math.sqrt(max(kernel, 0.0) * float((2 * m / (m - 1)).sum()))
    off = (within - between) * total
    score = off / deviation if deviation > 1e-9 * total else 0.0 if off <= 0 else math.inf
    rho = (within - between) / (1 - between) if between < 1 else math.nan
    return Dispersion(rho, score, within, between, n)


def dispersion_of_means(samples: Samples) -> Dispersion:
    """Split the variance of the samples into that within users and that between them.

    Users with a sample that is not finite are left out. Several dimensions are added up; the score
    is then on the careful side. It is the normal approximation of F = MSB / MSW.

    Examples
    --------
    >>> found = dispersion_of_means(Samples(np.array([0, 2, 4]), np.array([[1.0], [3], [7], [9]])))
    >>> found.within, found.between
    (2.0, 17.0)
    """
    x, ptr = usable(samples)
    m = np.diff(ptr).astype(np.float64)
    n, total = len(m), float(m.sum())
    several = int(np.count_nonzero(m > 1))
    if n < 2 or total <= n:
        return Dispersion(math.nan, math.nan, math.nan, math.nan, several)
    owner = owners(ptr)
    x = x - x.mean(axis=0)  # squares of what is far from 0 would cancel
    means = np.stack([np.bincount(owner, v, n) for v in x.T], axis=1) / m[:, None]
    msw = float(np.square(x - means[owner]).sum()) / (total - n)
    msb = float((m[:, None] * np.square(means)).sum()) / (n - 1)
    typical = (total - float(np.square(m).sum()) / total) / (n - 1)
    between = (msb - msw) / typical
    whole = between + msw
    if whole <= 0:
        return Dispersion(math.nan, math.nan, msw, between, several)
    spread = math.sqrt(2 / (n - 1) + 2 / (total - n))
    score = (msb / msw - 1) / spread if msw > 0 else math.inf
    return Dispersion(between / whole, score, msw, between, several)


def usable(samples: Samples) -> tuple[Floats, Integers]:
    """Return the samples of the users who have some and only finite ones, and where each starts."""
    size = np.diff(samples.indptr)
    owner = owners(samples.indptr)
    bad = np.zeros(len(size), dtype=bool)
    bad[owner[~np.isfinite(samples.values).all(axis=1)]] = True
    kept = ~bad & (size > 0)
    ptr = np.concatenate((np.zeros(1, np.int64), np.cumsum(size[kept])))
    return samples.values[kept[owner]], ptr
