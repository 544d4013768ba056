"""What ``mechanism = "auto"`` runs: a private test of fit, then what the users allow.

Selection among binomials is much better than noise on counts where all users draw from one
distribution, and silently wrong where they do not. So a twentieth of the budget says whether they
do (:mod:`server.distributions.fit_statistic`): only then a hypothesis is selected. If they do not,
the statistic says how much wider than binomial their counts are, and with it whether centred counts
or counts with noise are the better average of the users' own distributions. Where selection and
centred counts cannot be better than counts whatever the users have, public numbers say so, and
nothing is tested.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from fedhist.base.arrays import Floats, Integers
from fedhist.base.text import warned
from fedhist.model.truths import Truth
from fedhist.privacy.guarantee import zcdp_rho
from fedhist.protocols.distributions import mechanisms as simple
from fedhist.protocols.distributions.centred_mechanism import CENTRED, ROUNDING, centred_error
from fedhist.protocols.distributions.centred_release import CLUSTER, HARM, missed
from fedhist.protocols.distributions.exceedance_counts import ExceedanceCounts
from fedhist.protocols.distributions.mechanisms import (
    Additive,
    DistributionTask,
    Learned,
    Mechanism,
    Search,
)
from fedhist.protocols.distributions.rare_items import (
    MARGIN,
    RARE_SHARE,
    largest_share,
    presence_and_counts,
    release_largest,
    tells,
)
from fedhist.protocols.distributions.selection import (
    KS,
    MECHANISMS,
    choose,
    corrected,
)
from fedhist.protocols.shared.distribution_target import SeenShares
from fedhist.session.curator import Curator
from server.distributions.binomial_grid import MOST_CELLS, pick_eta
from server.distributions.fit_statistic import (
    CAUTION,
    FALSE_ALARM,
    MOST_STEPS,
    NOTHING,
    OWN_AVERAGE,
    STEPS,
    FitPlan,
    fit_eta,
    fit_limit,
    fit_sampling,
    misfit,
    spread_ratio,
)
from server.distributions.ks_scores import arcsine_thresholds

LEAST_FIT, MOST_FIT = 0.05, 0.15
"""Part of epsilon for the statistic of fit: more than the least where users are few."""

PUBLIC_GAIN, KS_GAIN, CENTRED_GAIN = 0.81, 0.9, 0.95
"""A mechanism is taken for one that costs or assumes less only if its predicted error is below
this part of the other's: to be tested at all, against counts; selection against centred counts;
centred counts against counts."""

PRESENCE, PURE_PRESENCE = Additive("presence", True), Additive("presence", False)
PRESENT = {
    PRESENCE.gaussian: next(f for f in simple.MECHANISMS if f.name == "presence"),
    PURE_PRESENCE.gaussian: next(f for f in simple.MECHANISMS if f.name == "presence-laplace"),
}
"""Presence with Gaussian noise (True) and with Laplace noise (False)."""

HALVES, HIDDEN = 0.45, 3.0
"""Part of the users that the statistic of two far halves reaches at least: .5, less sampling; and
scales of noise by which that shall pass the limit: it stays below with probability .025."""

COUNTS = tuple(found for found in simple.MECHANISMS if found.name in ("laplace", "gaussian"))
SELECTION = next(found for found in MECHANISMS if found.name == "ks")


@dataclass(frozen=True)
class Options:
    """Mechanisms for what a budget leaves, with their predicted errors at p uniform."""

    counts: Mechanism
    counts_error: float
    ks_error: float
    task: DistributionTask

    @classmethod
    def of(cls, task: DistributionTask) -> Options:
        """Compare the two kinds of noise on counts, and predict the selection."""
        return _options(task)

    def centred(self, ratio: float) -> float:
        """Predict centred counts of users whose counts are so many times as wide as binomial."""
        return centred_error(self.task, ratio) if self.task.delta else math.inf


@lru_cache(maxsize=256)
def _options(task: DistributionTask) -> Options:
    uniform = np.full(task.k, 1 / task.k)
    errors = {
        found: found.error(task, uniform, True) for found in COUNTS if found.pure or task.delta
    }
    counts = min(errors, key=lambda found: errors[found])
    fine = task.n_users >= SELECTION.floor(task)
    ks = SELECTION.error(task, uniform, True) if fine else math.inf
    return Options(counts, errors[counts], ks, task)


def selects(task: DistributionTask, options: Options) -> bool:
    """Say whether selection may be chosen at all: users elsewhere would be seen.

    Or else what is lost on alike users without it, a factor of counts / ks, is more than what is
    lost with it on such users, (ks + .06) / counts; and the halves of a divided population would be
    seen, whose statistic is about s / 2.
    """
    ks, counts = options.ks_error, options.counts_error
    if sees(task):
        return True
    halves_seen = _needed_for_halves(task) <= MOST_FIT * task.epsilon
    return halves_seen and (ks + HARM) * ks < counts**2


def fit_epsilon(task: DistributionTask) -> float:
    """Epsilon of the statistic of fit: so much that one user in twenty elsewhere would be seen.

    Where that takes more than the most, so much that the halves of a divided population would be;
    the least, where that does as well.
    """
    for need in (_needed(task), _needed_for_halves(task)):
        if need <= MOST_FIT * task.epsilon:
            return max(need, LEAST_FIT * task.epsilon)
    return LEAST_FIT * task.epsilon


def _needed_for_halves(task: DistributionTask) -> float:
    """Epsilon with which two far halves are seen; inf where sampling hides them."""
    eta = fit_eta(task.m)
    room = HALVES * task.n_users - 2 * fit_sampling(task.k, task.n_users, eta)
    return (math.log(0.5 / FALSE_ALARM) + HIDDEN) / room if room > 0 else math.inf


def _needed(task: DistributionTask) -> float:
    """Epsilon with which such users are seen; inf where their sampling hides them.

    Five in a hundred users far from the others make a statistic of about .0475 s. How often noise
    may hide that depends on what counts would lose.
    """
    room = 0.95 * CLUSTER * task.n_users - fit_sampling(task.k, task.n_users, fit_eta(task.m))
    counts = 2 * task.k / (task.n_users * task.epsilon)
    noise = math.log(0.5 / CAUTION) + math.log(0.5 / missed(counts))
    return noise / room if room > 0 else math.inf


def sees(task: DistributionTask) -> bool:
    """Say whether the statistic sees one user in twenty who are elsewhere."""
    return _needed(task) <= MOST_FIT * task.epsilon


def limits(task: DistributionTask) -> tuple[float, float]:
    """Largest noisy statistics without a warning, and with which a hypothesis may be selected.

    The second is the smaller one. Where clusters are not seen anyway it is twice the sampling's
    part of the first and all of the noise's: users who differ a little are then better served by
    what assumes that they do not.
    """
    eta, epsilon = fit_eta(task.m), fit_epsilon(task)
    warns = fit_limit(task.k, task.n_users, eta, epsilon)
    if sees(task):
        return warns, fit_limit(task.k, task.n_users, eta, epsilon, CAUTION)
    return warns, warns + fit_sampling(task.k, task.n_users, eta)


def rare_epsilon(task: DistributionTask) -> float:
    """Epsilon of the most widespread symbol's number of users; 0 where nobody needs to ask.

    Asked for where presence would be best if all symbols were equally probable, and ``p_max`` does
    not say how rare they are.
    """
    asks = sees(task) and _may_be_rare(task) and not tells(task, task.p_max)
    return RARE_SHARE * task.epsilon if asks else 0.0


def _presence(task: DistributionTask) -> Additive:
    return PRESENCE if task.delta else PURE_PRESENCE


@lru_cache(maxsize=256)
def _may_be_rare(task: DistributionTask) -> bool:
    if not tells(task, 1 / task.k):
        return False
    uniform, others = np.full(task.k, 1 / task.k), Options.of(task)
    best = min(PUBLIC_GAIN * others.counts_error, others.ks_error, others.centred(1.0))
    return _presence(task).error(task, uniform, True) < best


def rest(task: DistributionTask) -> DistributionTask:
    """Return what is left after the test: of epsilon by basic composition, of rho in zCDP.

    The statistic is pure, and so is the most widespread symbol's number of users: they cost half
    of their squared epsilon of rho. What was released decides which composition the run holds by,
    so each has a half of delta: see :class:`fedhist.privacy.ledger.Ledger`.
    """
    fit, rare = fit_epsilon(task), rare_epsilon(task)
    rho, delta = task.rho, task.delta / 2
    if task.delta and task.private:
        rho = max(ROUNDING * zcdp_rho(task.epsilon, delta) - (fit**2 + rare**2) / 2, 0.0)
    return replace(task, epsilon=task.epsilon - fit - rare, delta=delta, rho=rho)


def testable(task: DistributionTask) -> bool:
    """Say whether the statistic's table and counts fit into memory; from public numbers."""
    fits = not math.isinf(fit_eta(task.m)) and task.n_users * STEPS <= MOST_STEPS
    return fits and task.k * len(arcsine_thresholds(task.m)) <= MOST_CELLS


@lru_cache(maxsize=256)
def options_left(task: DistributionTask) -> Options:
    """Return the options after the test; selection only where :func:`selects` allows it."""
    found = Options.of(rest(task))
    return found if selects(task, found) else replace(found, ks_error=math.inf)


def automatic(task: DistributionTask) -> Mechanism:
    """Choose from public numbers whether anything is tested; counts if nothing can be gained."""
    whole = Options.of(task)
    if not testable(task):
        centred = whole.centred(1.0) < CENTRED_GAIN * whole.counts_error
        return CENTRED if centred else whole.counts
    left = options_left(task)
    gained = min(left.ks_error, left.centred(1.0)) <= PUBLIC_GAIN * left.counts_error
    return TESTED if gained or (sees(task) and _may_be_rare(task)) else whole.counts


def decide(options: Options, noisy: float, limit: float, largest: float = math.inf) -> Mechanism:
    """Choose from what was released: presence or what may be selected, else what averages.

    A selection needs so many users who fit, :attr:`Mechanism.floor`, to tell the best hypothesis
    from the others at all.

    Parameters
    ----------
    options : Options
    noisy : float
        Statistic of fit, in users.
    limit : float
        Up to which nothing speaks against one distribution.
    largest : float
        Bound on every symbol's probability; inf: presence is not considered.
    """
    task = options.task
    ratio = spread_ratio(noisy, task.k, task.n_users)
    centred, counts = options.centred(ratio), options.counts_error
    if noisy <= limit and tells(task, largest):
        noise = Additive("counts", options.counts.name == "gaussian")
        present, counted = presence_and_counts(task, _presence(task), noise, largest)
        if present < min(counted, options.ks_error, centred):
            return PRESENT[bool(task.delta)]
    fitting = task.n_users - max(noisy, 0.0)
    selects = noisy <= limit and fitting >= SELECTION.floor(task)
    if selects and options.ks_error < min(KS_GAIN * centred, counts):
        return SELECTION
    return CENTRED if centred < CENTRED_GAIN * counts else options.counts


# -- the script ------------------------------------------------------------------------------------


def search(task: DistributionTask, server: Curator) -> Search:
    """Test, decide, and run what was decided; at most four rounds.

    Privacy
    -------
    The statistic has sensitivity 1 under replacement and gets Lap(1 / epsilon_t): epsilon_t-DP. So
    does the number of users who have the most widespread symbol, where that is asked for, at
    :func:`rare_epsilon`. Given these, one mechanism runs with :func:`rest`. Counts, presence and
    offsets have what they leave of epsilon, and half of delta: these runs are (epsilon, delta / 2)
    by basic composition. A selection has what they leave of the rho that implies (epsilon,
    delta / 2), and so have offsets where that gives less noise: these runs are within that rho.
    An event splits into its outcomes of the first kind and of the second, and either half of
    delta covers its own: whatever is decided, the whole is (epsilon, delta)-DP.
    """
    plan = FitPlan.of(task.m, task.n_users)
    left = options_left(task)
    query = ExceedanceCounts(task.domain, task.m, plan.thresholds)
    summary = yield query
    below = query.below(summary)
    noisy = _release(plan.statistic(below), task, server)
    warns, limit = limits(task)
    present = summary.n_users - below[:, 0]  # the first threshold is 0
    largest, public = _largest(task, server, present)
    chosen = decide(left, noisy, limit, largest)
    if chosen in PRESENT.values():
        learned = _presence(task).release(left.task, server, present, "presence")
    elif chosen is SELECTION:
        each = corrected(left.task).each
        selection = KS.build(task.m, pick_eta(task.n_users, each))
        p, found = choose(left.task, server, selection, below, each, "selection")
        learned = Learned(p, (), found)
    else:
        del below, present
        learned = yield from chosen.search(left.task, server)
    warnings = learned.warnings
    if noisy > warns:
        warnings = (differ_in_words(noisy, warns, chosen), *warnings)
    public |= {"fit": noisy, "fit_limit": warns, **learned.public}
    return Learned(learned.p, warnings, public)


def _largest(
    task: DistributionTask, server: Curator, present: Integers
) -> tuple[float, dict[str, float]]:
    """Bound the largest probability: publicly, privately, or not at all (inf)."""
    if not (_may_be_rare(task) and sees(task)):
        return math.inf, {}
    epsilon = rare_epsilon(task)
    if not epsilon:
        return task.p_max, {}
    largest = release_largest(task, server, present, epsilon)
    return largest, {"largest_share": largest}


def differ_in_words(noisy: float, limit: float, chosen: Mechanism) -> str:
    """Say that the test failed, and what that means."""
    if chosen is SELECTION:
        means = "the estimate is right for what most of them share only"
        return warned(misfit(noisy, limit), means, 'for their average take mechanism = "centred"')
    return warned(misfit(noisy, limit), OWN_AVERAGE, NOTHING)


def _release(steps: int, task: DistributionTask, server: Curator) -> float:
    """Add noise to the statistic; in users."""
    draw = server.discrete_laplace if task.discrete else server.laplace
    noisy = draw(np.array([steps]), l1_sensitivity=STEPS, epsilon=fit_epsilon(task), label="fit")
    return float(noisy[0]) / STEPS


# -- theory ----------------------------------------------------------------------------------------

QUANTILES = 64


def error(task: DistributionTask, p: Floats, pooled: bool) -> float:
    """Predict the error of alike users at p: that of what is decided without noise."""
    left = options_left(task)
    return decide(left, 0.0, 0.0).error(left.task, p, pooled)


def given(task: DistributionTask, seen: SeenShares, project: bool) -> float:
    """Predict the error on known users: of what is decided, over the noise of the statistic.

    NOT PRIVATE. The exact statistic of the users (one draw stands for all where some hold more
    than m items), 64 quantiles of its noise, and each decision's own prediction.
    """
    plan, left = FitPlan.of(task.m, task.n_users), options_left(task)
    query = ExceedanceCounts(task.domain, task.m, plan.thresholds)
    (summary,) = seen.answers([query])
    below = query.below(summary)
    exact = plan.statistic(below) / STEPS
    largest, rare = math.inf, rare_epsilon(task)
    if sees(task) and _may_be_rare(task):
        most = float((seen.n_users - below[:, 0]).max())
        largest = largest_share(task, most + MARGIN / rare) if rare else task.p_max
    limit = limits(task)[1]
    u = (np.arange(QUANTILES) + 0.5) / QUANTILES - 0.5
    noise = -np.sign(u) * np.log(1 - 2 * np.abs(u)) / fit_epsilon(task)
    decided = [decide(left, exact + z, limit, largest) for z in noise.tolist()]
    total = 0.0
    for mechanism in dict.fromkeys(decided):
        predict = mechanism.given
        if predict is None:
            raise TypeError(f"{mechanism.name} has no prediction on known users")
        total += decided.count(mechanism) / QUANTILES * predict(left.task, seen, project)
    return total


TESTED = Mechanism(
    "tested",
    search,
    error,
    rounds=4,
    pure=True,
    source="this project's own: a private test of fit, then the best of three",
    given=given,
    automatic=False,
    estimates=Truth.AVERAGE_OF_USERS,
)
"""The automatic mechanism where public numbers do not decide; it has no name of its own."""
