"""Laws of the budget: what is spent, what pays for which noise, and how far a user reaches."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from clients.histograms.key_queries import WEIGHT
from fedhist.model.aggregated import Aggregated
from fedhist.model.codec import query_digest
from fedhist.model.query import Query
from fedhist.privacy.guarantee import USER_LEVEL, Adjacency, Release, Trust, zcdp_epsilon
from fedhist.users.batch import join
from server.noise import SimulatedNoise
from simulations.contract.law import (
    ANY_NODES,
    EVERYBODY,
    SERVER_TRUSTED,
    demand,
    demand_same_estimate,
    flat,
    law,
    passes_over,
)
from simulations.contract.neighbours import EMPTY
from simulations.contract.reports import repeat_users
from simulations.contract.subject import (
    ABSENT,
    SEED,
    Subject,
    pairs,
    under_adjacencies,
)
from simulations.contract.watching import Act

ROUNDING = 1 + 1e-6
FALSE_ALARM = 1e-9
"""Probability that correct noise fails one of the laws' statistical tests under another seed."""
DRAWS = 4096
ADDED = ("laplace", "gaussian", "discrete_laplace", "discrete_gaussian")


# -- what is spent --------------------------------------------------------------------------------


@law(EVERYBODY)
def spends_what_it_declares(subject: Subject) -> None:
    """The ledger holds at most the guarantee, and .99 of it at least.

    By basic composition or by zCDP, whichever is the larger within the guarantee: the one that the
    budget is planned in. A protocol whose run may leave more says why in ``unspent``; a reference
    run, of infinite epsilon, has no budget.
    """
    promised, ledger = subject.protocol.guarantee, subject.estimate.ledger
    if ledger is None:
        raise AssertionError("The estimate has no ledger.")
    if not promised.private:
        passes_over("It is a reference that spends without end.")
    total = ledger.spent(promised.delta)
    budget = promised.epsilon
    demand(total.epsilon <= budget * (1 + 1e-9), f"It spends {total.epsilon:g} of {budget:g}.")
    sums = [total.epsilon]
    if total.basic_delta <= promised.delta * (1 + 1e-9):
        sums.append(total.basic_epsilon)
    if promised.delta > total.slack and math.isfinite(total.rho):
        sums.append(zcdp_epsilon(total.rho, promised.delta - total.slack))
    most = max(x for x in sums if x <= budget * (1 + 1e-9))
    if not subject.protocol.unspent:
        demand(most >= 0.99 * budget, f"It spends {most:g} of {budget:g}, and not why.")
    if promised.trust is Trust.AGGREGATE:
        demand(ledger.aggregation == "ideal (simulated)", f"It adds up by {ledger.aggregation!r}.")


@law(ANY_NODES)
def local_scripts_ask_local_queries(subject: Subject) -> None:
    """What asks users for a private answer costs them something, and what asks for more does not.

    A local protocol asks nothing that needs a trusted server.
    """
    local = subject.protocol.guarantee.trust is Trust.LOCAL
    for query, _ in subject.queries:
        own = query.trust is Trust.LOCAL
        demand(own or not local, f"{query.label!r} needs {query.trust.value} trust.")
        costs = query.trust is not Trust.CENTRAL
        demand((query.release.epsilon > 0) == costs, f"{query.label!r} costs {query.release}.")


# -- what pays for which noise --------------------------------------------------------------------


@law(SERVER_TRUSTED)
def noise_is_what_the_charge_pays_for(subject: Subject) -> None:
    """Every draw has the size that its sensitivity and its charge call for, by dp-accounting.

    A value leaves with one draw for all its entries, under a number of its own, and one charge.
    """
    numbers = [d.index for act in subject.watched.acts for d in act.draws[:1]]
    demand(len(numbers) == len(set(numbers)), f"Draws share numbers: {numbers}.")
    paid: dict[int, list[Act]] = {}
    for act in subject.watched.acts:
        if act.method == "series_release":
            demand(not act.charges, f"{act.label} is charged for a second time.")
            paid.setdefault(id(act.told["series"]), []).append(act)
            _check_values(act)
            continue
        demand(len(act.charges) == 1, f"{act.label} has {len(act.charges)} charges, not one.")
        if act.method not in _CHECKS:
            continue
        cost = act.charges[0].release
        if math.isfinite(cost.epsilon) or math.isfinite(cost.rho):
            _CHECKS[act.method](act, cost)
    for act in subject.watched.acts:
        if act.method == "gaussian_series":
            releases = paid.get(id(act), [])
            rounds = act.told["rounds"]
            demand(len(releases) <= rounds, f"{act.label} pays for {rounds}: {len(releases)} left.")
            if math.isfinite(act.charges[0].release.epsilon):
                _check_gaussian(releases, act.charges[0].release)


def _check_values(act: Act) -> None:
    """Demand one draw, for every entry, which is what the released value differs by."""
    exact = np.asarray(act.exact)
    if _declared(act) == 0:
        return
    demand(len(act.draws) == 1, f"{act.label} draws {len(act.draws)} times.")
    drawn = np.asarray(act.draws[0].values)
    demand(drawn.shape == exact.shape, f"{act.label}: noise {drawn.shape}, values {exact.shape}.")
    demand(np.array_equal(act.given, exact + drawn), f"{act.label} is not its value and its noise.")


def _check_laplace(act: Act, cost: Release) -> None:
    _check_values(act)
    _check_pure(act, cost)


def _check_pure(act: Act, cost: Release) -> None:
    for draw in act.draws:
        epsilon = act.told["l1_sensitivity"] / draw.size
        _demand_paid(act, Release(epsilon, 0.0, epsilon**2 / 2), cost)


def _check_noisy(act: Act, cost: Release) -> None:
    _check_values(act)
    _check_gaussian([act], cost)


def _check_gaussian(acts: Sequence[Act], cost: Release) -> None:
    """Add up what Gaussian draws cost: squares of the sensitivity over the std.

    A discrete Gaussian is its zCDP's, or a continuous one of two steps less, rounded.
    """
    shifts = [_shifts(act, rounded=False) for act in acts]
    rounded = [_shifts(act, rounded=True) for act in acts]
    rho = math.fsum(shifts) / 2
    told = ", ".join({act.label for act in acts})
    demand(rho <= cost.rho * ROUNDING, f"{told} costs rho = {rho:g}, and is charged {cost.rho:g}.")
    if not math.isfinite(cost.epsilon):
        return
    delta = gaussian_delta(math.sqrt(math.fsum(rounded)), cost.epsilon)
    discrete = any(d.kind == "discrete_gaussian" for act in acts for d in act.draws)
    if discrete and delta > cost.delta * ROUNDING:
        delta = zcdp_delta(rho, cost.epsilon)
    demand(
        delta <= cost.delta * (1 + 1e-3),
        f"{told} has delta = {delta:.3g} at epsilon = {cost.epsilon:g}, charged {cost.delta:g}.",
    )


def _shifts(act: Act, *, rounded: bool) -> float:
    """Square how far one user moves a release, in stds."""
    size = act.told.get("l2_sensitivity", 0.0)
    total = 0.0
    for draw in act.draws if size else ():
        less = 4.0 if rounded and draw.kind == "discrete_gaussian" else 0.0
        total += size**2 / (draw.size**2 - less) if draw.size**2 > less else math.inf
    return total


def _check_exponential(act: Act, cost: Release) -> None:
    """Demand logits that are the scores times epsilon over twice the sensitivity."""
    scores = np.atleast_2d(act.exact)
    each = act.told.get("epsilon_each", act.told.get("epsilon"))
    changed = act.told.get("changed", 1)
    demand(act.draws, f"{act.label} draws nothing.")
    logits = np.concatenate([np.atleast_2d(d.size) for d in act.draws])
    wanted = (scores - scores.max(axis=1, keepdims=True)) * each / (2 * act.told["sensitivity"])
    demand(
        np.shape(logits) == wanted.shape and np.allclose(logits, wanted, rtol=1e-9, atol=1e-12),
        f"{act.label} weighs its scores otherwise than epsilon = {each:g} says.",
    )
    _demand_paid(act, Release(changed * each, 0.0, changed * each**2 / 8), cost)


def _check_keys(act: Act, cost: Release) -> None:
    size = _key_weight(act)
    for draw in act.draws:
        steps = 4.0 if draw.kind == "discrete_gaussian" else 0.0
        delta = gaussian_delta(size / math.sqrt(draw.size**2 - steps), cost.epsilon)
        demand(delta <= cost.delta, f"{act.label} has delta = {delta:.3g} of {cost.delta:g}.")


def _check_sampler(act: Act, cost: Release) -> None:
    demand(cost == act.exact.release, f"{act.label} is charged {cost}, not {act.exact.release}.")


def _demand_paid(act: Act, needed: Release, cost: Release) -> None:
    for name in ("epsilon", "rho"):
        one, other = getattr(needed, name), getattr(cost, name)
        demand(one <= other * ROUNDING, f"{act.label} costs {name} = {one:g}, charged {other:g}.")


_CHECKS: dict[str, Callable[[Act, Release], None]] = {
    "laplace": _check_laplace,
    "discrete_laplace": _check_laplace,
    "gaussian": _check_noisy,
    "discrete_gaussian": _check_noisy,
    "gaussian_zcdp": _check_noisy,
    "exponential": _check_exponential,
    "exponential_rows": _check_exponential,
    "threshold": _check_pure,
    "keys": _check_keys,
    "sample": _check_sampler,
}


def gaussian_delta(shift: float, epsilon: float) -> float:
    """Return delta of a Gaussian that one user shifts by so many stds, by dp-accounting."""
    from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss

    if shift == 0:
        return 0.0
    if math.isinf(shift):
        return 1.0
    loss = GaussianPrivacyLoss(standard_deviation=1.0, sensitivity=shift)
    return float(loss.get_delta_for_epsilon(epsilon))


def zcdp_delta(rho: float, epsilon: float) -> float:
    """Return delta of rho-zCDP, by dp-accounting's conversion over many orders."""
    from dp_accounting.rdp.rdp_privacy_accountant import compute_delta

    orders = 1 + np.geomspace(1e-3, 1e4, 2000)
    return float(compute_delta(orders, rho * orders, epsilon)[0])


# -- whether the noise is as large as was asked ---------------------------------------------------


@law(SERVER_TRUSTED)
def draws_have_the_size_that_is_asked_for(subject: Subject) -> None:
    """4,096 more draws of each size agree with it in their mean square, or mean absolute value.

    False alarm: 1e-9 for each size, by the normal limit.
    """
    from scipy.stats import norm

    sizes = {
        (d.kind, float(d.size))
        for act in subject.watched.acts
        for d in act.draws
        if d.kind in ADDED and d.size
    }
    for number, (kind, size) in enumerate(sorted(sizes)):
        source = SimulatedNoise(SEED, (1 << 40) + number)
        off = away(getattr(source, kind)((DRAWS,), size), kind, size)
        told = f"Draws of {kind} of size {size:g} are {off:+.1f} standard errors off in mean size."
        demand(abs(off) <= norm.isf(FALSE_ALARM / 2), told)


def away(draws: Any, kind: str, size: float) -> float:
    """Say how many standard errors the mean of |x| over draws is away from that of the law."""
    mean, second = moments(kind, size)
    error = math.sqrt(max(second - mean**2, 1e-300) / len(draws))
    return float((np.abs(np.asarray(draws, np.float64)).mean() - mean) / error)


def moments(kind: str, size: float) -> tuple[float, float]:
    """Return the mean of |x| and of x^2 from the density, on a grid where it is continuous."""
    discrete = kind.startswith("discrete") and size <= 1000  # beyond, they are alike to 1 / size^2
    x = np.arange(math.ceil(60 * size) + 2.0) if discrete else size * np.arange(0.0, 60.0, 1e-3)
    p = np.exp(-x / size if "laplace" in kind else -((x / size) ** 2) / 2)
    p /= p[0] + 2 * p[1:].sum()
    return float(2 * (x * p).sum()), float(2 * (x * x * p).sum())


# -- how far a user reaches -----------------------------------------------------------------------


@law(SERVER_TRUSTED)
def a_user_moves_a_release_by_its_sensitivity_at_most(subject: Subject) -> None:
    """With another record of one user, and the same released before, no exact value moves further.

    Records are emptied, removed, and replaced by extreme ones of many kinds; ``moves``, where a
    release states them, bound the same under every adjacency.
    """
    if not subject.protocol.guarantee.private:
        passes_over("It is a reference that is not private.")
    for runs in subject.others:
        for number, act in enumerate(subject.watched.acts):
            exact = _distinct({name: w.acts[number].exact for name, w in runs.items()})
            _check_moves(subject.protocol.guarantee.adjacency, act, exact)


@law(SERVER_TRUSTED, once=True)
def sensitivities_hold_under_every_adjacency(subject: Subject) -> None:
    """The same under each adjacency that the protocol can be had with."""
    for variant in under_adjacencies(subject.protocol):
        if variant.guarantee.private and variant.guarantee.trust is Trust.CENTRAL:
            a_user_moves_a_release_by_its_sensitivity_at_most.check(Subject(variant, subject.users))


@law(SERVER_TRUSTED)
def choices_hold_among_extreme_records(subject: Subject) -> None:
    """The same for choices by scores where all others are extreme: scores reach their caps."""
    if not any("exponential" in act.method for act in subject.watched.acts):
        passes_over("It chooses nothing by scores.")
    records = subject.records(subject.rows[0]).values()
    alone = [replace(one, ids=one.ids + np.uint64(k)) for k, one in enumerate(records)]
    users = repeat_users(join(sorted(alone, key=lambda one: int(one.ids[0]))), 32)
    number = {"n_users": len(users)} if getattr(subject.made, "n_users", None) else {}
    a_user_moves_a_release_by_its_sensitivity_at_most.check(
        Subject(subject.replaced(**number), users)
    )


def _distinct(exact: dict[str, Any]) -> dict[str, Any]:
    """Leave out records that have the exact value of one before; the empty and the absent stay."""
    known: dict[Any, str] = {}
    for name, value in exact.items():
        keyed = hasattr(value, "keys")
        parts = (tuple(value.keys), value.values) if keyed else ((), np.asarray(value))
        key = name if name in (EMPTY, ABSENT) else (parts[0], parts[1].tobytes())
        known.setdefault(key, name)
    return {name: exact[name] for name in known.values()}


def _check_moves(adjacency: Adjacency, act: Act, exact: dict[str, Any]) -> None:
    declared = _declared(act)
    if declared is None:
        return
    moves = act.told.get("moves")
    limits = {adjacency: declared}
    if moves is not None and 0 < moves.under(adjacency) < math.inf:
        unit = declared / moves.under(adjacency)  # moves have a unit of their own
        limits |= {a: unit * moves.under(a) for a in USER_LEVEL}
    for under, limit in limits.items():
        for a, b in pairs(list(exact), under):
            away, rows = _distance(act, exact[a], exact[b])
            if away > limit * ROUNDING + 1e-12:
                raise AssertionError(
                    f"{act.label} moves by {away:g} between {a} and {b}, more than its sensitivity "
                    f"{limit:g} ({under.value})."
                )
            most = act.told.get("changed")
            if most is not None and under is adjacency:
                demand(rows <= most, f"{act.label}: {rows} rows change, of {most} ({a}, {b}).")


def _key_weight(act: Act) -> float:
    """Return how far one user moves the weights of keys, in l2."""
    return WEIGHT * (math.sqrt(2) if act.told["mechanism"].replaced else 1.0)


def _declared(act: Act) -> float | None:
    """Return the sensitivity that a release is told; None for those that are told none."""
    if act.method == "keys":
        return _key_weight(act)
    return next((float(v) for k, v in act.told.items() if k.endswith("sensitivity")), None)


def _distance(act: Act, a: Any, b: Any) -> tuple[float, int]:
    """Measure two exact values in the release's norm; with the number of rows that differ.

    Of scores half the range of their changes: what an exponential mechanism's law is moved by.
    """
    if act.method in ("threshold", "keys"):
        one, other = (dict(zip(x.keys, x.values.tolist(), strict=True)) for x in (a, b))
        difference = np.array([one.get(k, 0) - other.get(k, 0) for k in {*one, *other}], np.float64)
    else:
        difference = np.asarray(a, np.float64) - np.asarray(b, np.float64)
    if not difference.size:
        return 0.0, 0
    if not np.isfinite(difference).all():
        return math.inf, len(difference)
    if act.method in ("exponential", "exponential_rows"):
        rows = np.atleast_2d(difference)
        ranges = rows.max(axis=1) - rows.min(axis=1)
        return float(ranges.max()) / 2, int((ranges > 0).sum())
    order = 1 if "l1_sensitivity" in act.told else 2
    return float(np.linalg.norm(difference.ravel(), order)), 0


@law(SERVER_TRUSTED)
def data_leave_by_releases_alone(subject: Subject) -> None:
    """Given the same releases, another record of one user changes no question and no estimate."""
    if not subject.protocol.guarantee.private:
        passes_over("It is a reference that is not private.")
    base = subject.watched
    asked = [query_digest(q, i) for i, (q, _) in enumerate(base.asked)]
    for runs in subject.others:
        for name, run in runs.items():
            if name == ABSENT and subject.protocol.guarantee.adjacency in _PUBLIC_N:
                continue
            told = f"With {name} as a user's record"
            labels = [[act.label for act in w.acts] for w in (base, run)]
            demand(labels[0] == labels[1], f"{told} other values are released: {labels}.")
            digests = [query_digest(q, i) for i, (q, _) in enumerate(run.asked)]
            demand(digests == asked, f"{told} other questions are asked.")
            demand_same_estimate(run.estimate, base.estimate, told)
            demand(run.estimate.public == base.estimate.public, f"{told} other numbers are public.")


_PUBLIC_N = (Adjacency.ZERO_OUT_USER, Adjacency.REPLACE_USER, Adjacency.REPLACE_ITEM)


@law(EVERYBODY)
def integer_sums_move_by_their_stated_sensitivity_at_most(subject: Subject) -> None:
    """No record moves a query's integer sums further than ``integer_sensitivity`` says.

    In either norm and under every adjacency for which the query states one; where the nodes add
    the noise, it is sized by that.
    """
    for query, number in subject.queries:
        asked = query.inner
        limits = _stated(asked, subject.protocol.guarantee.adjacency)
        if not limits:
            continue
        for row in subject.rows:
            sums = {
                name: flat(asked.fold(subject.answer(asked, one.select(asked.cohort), number)).sums)
                for name, one in subject.records(row).items()
            }
            sums[ABSENT] = np.zeros_like(next(iter(sums.values())))
            for (norm, adjacency), limit in limits.items():
                for a, b in pairs(list(sums), adjacency):
                    away = float(np.linalg.norm(sums[a] - sums[b], norm))
                    demand(
                        away <= limit * ROUNDING,
                        f"{asked.label!r} moves by {away:g} in l{norm} between {a} and {b}, more "
                        f"than {limit:g} ({adjacency.value}).",
                    )
        if isinstance(query, Aggregated):
            demand(
                query.sensitivity >= limits[query.share.norm, query.adjacency] / ROUNDING,
                f"Shares are sized for {query.sensitivity:g}.",
            )


def _stated(query: Query, declared: Adjacency) -> dict[tuple[int, Adjacency], float]:
    """Collect what a query states, by norm and adjacency of the unit that is declared."""
    limits = {}
    for norm in (1, 2):
        for adjacency in USER_LEVEL if declared in USER_LEVEL else (declared,):
            try:
                limits[norm, adjacency] = float(query.integer_sensitivity(norm, adjacency))
            except ValueError:
                continue
    return limits
