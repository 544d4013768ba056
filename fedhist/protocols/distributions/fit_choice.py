"""What ``mechanism = "auto"`` runs: a private test of fit, then what the users allow.

Selection among binomials is much better than noise on counts where all users draw from one
distribution, and silently wrong where they do not. So a twentieth of the budget says whether they
do (:mod:`server.distributions.fit_statistic`): only then, and where clusters of users would be
seen, a hypothesis is selected. If they do not, the statistic says how much wider than binomial
their counts are, and with it whether centred counts or counts with noise are the better average of
the users' own distributions. Where neither selection nor centred counts can be better than counts,
public numbers say so, and nothing is tested. Few users have a test of their own:
:mod:`fedhist.protocols.distributions.agreement_choice`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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
from fedhist.protocols.distributions.given_users import noise_of
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

PUBLIC_GAIN, KS_GAIN, CENTRED_GAIN = 0.81, 0.9, 0.85
"""A mechanism is taken for one that costs or assumes less only if its predicted error is below
this part of the other's: to be tested at all, against counts; selection against centred counts;
centred counts against counts, of users whose spread the fit shows a seventh too small."""

PRESENCE, PURE_PRESENCE = Additive("presence", True), Additive("presence", False)
PRESENT = {
    PRESENCE.gaussian: next(f for f in simple.MECHANISMS if f.name == "presence"),
    PURE_PRESENCE.gaussian: next(f for f in simple.MECHANISMS if f.name == "presence-laplace"),
}
"""Presence with Gaussian noise (True) and with Laplace noise (False)."""

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


def fit_epsilon(task: DistributionTask) -> float:
    """Epsilon of the statistic of fit: so much that one user in twenty elsewhere would be seen.

    The least where that takes more than the most.
    """
    need = _needed(task)
    return max(need if sees(task) else 0.0, LEAST_FIT * task.epsilon)


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

    The second is the smaller one.
    """
    how = task.k, task.n_users, fit_eta(task.m), fit_epsilon(task)
    return fit_limit(*how, FALSE_ALARM), fit_limit(*how, CAUTION)


def rare_epsilon(task: DistributionTask) -> float:
    """Epsilon of the most widespread symbol's number of users; 0 where nobody needs to ask.

    Asked for where presence would be best if all symbols were equally probable, and ``p_max`` does
    not say how rare they are.
    """
    asks = asks_for_rare(task) and not tells(task, task.p_max)
    return RARE_SHARE * task.epsilon if asks else 0.0


def asks_for_rare(task: DistributionTask) -> bool:
    """Say whether presence may be chosen: best at p uniform, and a fit would be seen."""
    return sees(task) and _may_be_rare(task)


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
    """Return what is left after the test."""
    return remaining(task, fit_epsilon(task), rare_epsilon(task))


def remaining(task: DistributionTask, *spent: float) -> DistributionTask:
    """Return what pure releases leave: of epsilon by basic composition, of rho in zCDP.

    Each costs half of its squared epsilon of rho. What was released decides which composition the
    run holds by, so each has a half of delta: see :class:`fedhist.privacy.ledger.Ledger`.
    """
    rho, delta = task.rho, task.delta / 2
    if task.delta and task.private:
        squares = sum(epsilon**2 for epsilon in spent)
        rho = max(ROUNDING * zcdp_rho(task.epsilon, delta) - squares / 2, 0.0)
    return replace(task, epsilon=task.epsilon - sum(spent), delta=delta, rho=rho)


def testable(task: DistributionTask) -> bool:
    """Say whether the statistic's table and counts fit into memory; from public numbers."""
    fits = not math.isinf(fit_eta(task.m)) and task.n_users * STEPS <= MOST_STEPS
    return fits and task.k * len(arcsine_thresholds(task.m)) <= MOST_CELLS


@lru_cache(maxsize=256)
def options_left(task: DistributionTask) -> Options:
    """Return the options after the test; selection only where clusters would be seen."""
    found = Options.of(rest(task))
    return found if sees(task) else replace(found, ks_error=math.inf)


def automatic(task: DistributionTask) -> Mechanism:
    """Choose from public numbers whether anything is tested; counts if nothing can be gained."""
    whole = Options.of(task)
    if not testable(task):
        centred = whole.centred(1.0) < CENTRED_GAIN * whole.counts_error
        return CENTRED if centred else whole.counts
    left = options_left(task)
    gained = min(left.ks_error, left.centred(1.0)) <= PUBLIC_GAIN * left.counts_error
    return TESTED if gained or asks_for_rare(task) else whole.counts


def decide(
    options: Options,
    noisy: float,
    limit: float,
    largest: float = math.inf,
    elsewhere: float = 0.0,
) -> Mechanism:
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
    elsewhere : float
        Part of the users who are known to be elsewhere, and whom centred counts may clip.
    """
    task = options.task
    ratio = spread_ratio(noisy, task.k, task.n_users)
    centred = options.centred(ratio) + HARM / CLUSTER * elsewhere
    counts = options.counts_error
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
    noisy = released(plan.statistic(below), task, server, fit_epsilon(task), "fit")
    warns, limit = limits(task)
    present = summary.n_users - below[:, 0]  # the first threshold is 0
    largest, public = _largest(task, server, present)
    chosen = decide(left, noisy, limit, largest)
    if chosen in PRESENT.values():
        learned = _presence(task).release(left.task, server, present, "presence")
    elif chosen is SELECTION:
        learned = selected(left.task, server, below)
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
    if not asks_for_rare(task):
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


def released(
    steps: int, task: DistributionTask, server: Curator, epsilon: float, label: str
) -> float:
    """Add noise to a statistic in steps that one user moves by :data:`STEPS`; in users."""
    draw = server.discrete_laplace if task.discrete else server.laplace
    noisy = draw(np.array([steps]), l1_sensitivity=STEPS, epsilon=epsilon, label=label)
    return float(noisy[0]) / STEPS


def selected(task: DistributionTask, server: Curator, below: Integers) -> Learned:
    """Select a hypothesis for every symbol, with the whole budget of the task."""
    each = corrected(task).each
    plan = KS.build(task.m, pick_eta(task.n_users, each))
    p, public = choose(task, server, plan, below, each, "selection")
    return Learned(p, (), public)


# -- theory ----------------------------------------------------------------------------------------


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
    if asks_for_rare(task):
        most = float((seen.n_users - below[:, 0]).max())
        largest = largest_share(task, most + MARGIN / rare) if rare else task.p_max
    limit = limits(task)[1]
    noise = noise_of(fit_epsilon(task))
    decided = [decide(left, exact + z, limit, largest) for z in noise]
    return averaged(decided, left.task, seen, project)


def averaged(
    decided: Sequence[Mechanism], task: DistributionTask, seen: SeenShares, project: bool
) -> float:
    """Average the predictions on known users over equally probable decisions. NOT PRIVATE."""
    total = 0.0
    for mechanism in dict.fromkeys(decided):
        predict = mechanism.given
        if predict is None:
            raise TypeError(f"{mechanism.name} has no prediction on known users")
        total += decided.count(mechanism) / len(decided) * predict(task, seen, project)
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
