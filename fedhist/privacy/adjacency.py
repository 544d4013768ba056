"""One adjacency per total: what a release that is stated under one costs under another.

A user may be added or removed, may have its record emptied, or may get another record. The table,
where only (epsilon, delta) and rho are known; "two steps" is group privacy of two, see
:func:`two_steps`:

=================  ==================  ==================  ===================
stated under       add or remove       zero out            replace
=================  ==================  ==================  ===================
add or remove      as stated           N: as stated,       two steps
                                       else two steps
zero out           N: as stated,       as stated           two steps
                   else nothing
replace            N: as stated,       as stated           as stated
                   else nothing
=================  ==================  ==================  ===================

N: where the run is null-safe: a user with an empty record changes the law of nothing that comes
out, and the exact number of users is neither used nor published. Then D and D with an empty record
are one and the same. Emptying a record is removing it (one step) and adding an empty one (no step
if N, else a second one). A replacement is two steps either way: away and back. An empty record is a
record, so that a replacement covers emptying. Without N nothing is said about adding: n may be
public, and then one answer proves it.

Where it is known how far one user moves a statistic under each adjacency (:class:`Moves`), the
noise says what that costs, and the table is not needed: a Gaussian histogram of rho under zeroing
out costs 2 rho under replacement, not 4 rho. Adding needs N all the same, since what a run
publishes beside its releases (n, a status that depends on n) is not a charge.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from fedhist.privacy.guarantee import Adjacency, Release, zcdp_epsilon

USER_LEVEL = (Adjacency.ADD_REMOVE_USER, Adjacency.ZERO_OUT_USER, Adjacency.REPLACE_USER)
"""The adjacencies that a total of users' losses can be stated under."""


@dataclass(frozen=True)
class Moves:
    """How far one user moves a statistic at most, in one norm and one unit, under each adjacency.

    An infinite number says that nothing bounds it.

    >>> Moves.of(lambda a: 6.0 if a is Adjacency.REPLACE_USER else 3.0)
    Moves(add_remove=3.0, zero_out=3.0, replace=6.0)
    """

    add_remove: float
    zero_out: float
    replace: float

    @classmethod
    def of(cls, sensitivity: Callable[[Adjacency], float]) -> Self:
        """Ask the function that the noise is sized by."""
        return cls(*(float(sensitivity(a)) for a in USER_LEVEL))

    def under(self, adjacency: Adjacency) -> float:
        """Return the move under an adjacency."""
        return (self.add_remove, self.zero_out, self.replace)[USER_LEVEL.index(adjacency)]


ONE_COUNT = Moves(1.0, 1.0, 1.0)
"""A count of users, or a sum of numbers in [0, C] by C; scores that are made of such counts."""


class NoTotalError(ValueError):
    """A release says nothing under an adjacency."""


def convert(
    r: Release,
    source: Adjacency,
    target: Adjacency,
    *,
    null_safe: bool = False,
    moves: Moves | None = None,
) -> Release:
    """State a release under another adjacency, by the table above or by what is known of it.

    ``null_safe`` is the run's, see above; ``moves`` are those of the statistic that the noise, or
    the exponential mechanism, was sized for. NoTotalError, with both adjacencies, if the release
    says nothing under the target.
    """
    if source is target:
        return r
    adds = target is Adjacency.ADD_REMOVE_USER and not null_safe
    if Adjacency.REPLACE_ITEM in (source, target) or adds:
        why = ": there the number of users is public" if adds and source in USER_LEVEL else ""
        raise NoTotalError(f"a release under {source.value} says nothing under {target.value}{why}")
    known = None if moves is None else scaled(r, moves.under(target), moves.under(source))
    if known is not None:
        return known
    if source is Adjacency.REPLACE_USER or (null_safe and target is not Adjacency.REPLACE_USER):
        return r
    return two_steps(r)


def two_steps(r: Release) -> Release:
    """Bound what two changes, one after the other, cost: group privacy [1]_.

    (2 epsilon, (1 + e^epsilon) delta), and 4 rho: the root of rho is a metric, by Cauchy-Schwarz
    on Renyi divergences [2]_. Approximate zCDP is made (epsilon, delta) first.

    >>> two_steps(Release(0.5, 0.0, 0.125))
    Release(epsilon=1.0, delta=0.0, rho=0.5, slack=0.0)

    References
    ----------
    .. [1] Dwork & Roth, "The algorithmic foundations of differential privacy", 2014, Section 2.3.
    .. [2] Bun & Steinke, "Concentrated differential privacy", TCC 2016, Proposition 1.9.
    """
    epsilon, delta, rho = r.epsilon, r.delta, 4 * r.rho
    if r.slack:
        rho = math.inf
        if math.isinf(epsilon):
            epsilon, delta = zcdp_epsilon(r.rho, r.slack), 2 * r.slack
    if delta:
        delta = min(1.0, delta * (1 + math.exp(min(epsilon, 700.0))))
    return Release(2 * epsilon, delta, rho)


def scaled(r: Release, to: float, of: float) -> Release | None:
    """State a release whose statistic moves by ``to`` where its noise was sized for ``of``.

    ``r`` is what the formula of its noise says, as a Curator charges it; a cost that was found in
    another way need not go with the move. Laplace noise and exponential mechanisms: epsilon goes
    with the move, rho with its square.
    Gaussian noise: rho with the square, from which epsilon at the same delta follows; that of a
    smaller move is no larger. None where the noise is not known to be one of these.

    >>> scaled(Release(1.0, 0.0, 0.5), 2.0, 1.0)
    Release(epsilon=2.0, delta=0.0, rho=2.0, slack=0.0)
    """
    if r.slack or not (0 <= to < math.inf and 0 < of < math.inf):
        return None
    factor = to / of
    if factor == 0:
        return Release(0.0, 0.0, 0.0)
    rho = r.rho * factor * factor
    if not r.delta:
        return Release(r.epsilon * factor, 0.0, rho)
    if math.isinf(r.rho):
        return None
    return Release(r.epsilon if factor <= 1 else zcdp_epsilon(rho, r.delta), r.delta, rho)
