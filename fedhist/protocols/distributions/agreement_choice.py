"""Whether few users may be taken for users of one distribution: by those who do not agree.

A statistic of fit (:mod:`fedhist.protocols.distributions.fit_choice`) needs thousands of users
before a few far ones stand out from sampling. Where every user's row fits into the server's memory,
users are compared with each other instead: how many have to be left out for the others to agree
(:mod:`server.distributions.agreement`) does not grow by sampling. A selection runs if that number,
with noise, is small; else what :mod:`fedhist.protocols.distributions.fit_choice` takes for users
who differ.

What is spent on the test, and how often alike users may fail it, balance two losses, both relative
to the better method. Alike users who fail get counts in place of a selection. Users of whom a part
f is elsewhere, and who pass, get a selection that is off by 1.2 f. Noise of 1 / epsilon_t hides f n
users with a probability that no test of the same budget undercuts: if P(0) of alike users pass, at
least 1 - (1 - P(0)) e^(epsilon_t f n) of the others do, and as long as that is more than a half,
this is what a count with Laplace noise has; afterwards it falls by e^-epsilon_t with each user, as
fast as it may. So the balance, :attr:`Terms.worst`, is a limit on all tests of a part of the
budget: about 1.6 for five symbols at any number of users, 1.2 for twenty, and 1.1 for fifty.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fedhist.base.arrays import Floats, Integers
from fedhist.base.text import warned
from fedhist.model.query import Summary
from fedhist.model.truths import Truth
from fedhist.protocols.distributions import fit_choice
from fedhist.protocols.distributions.centred_release import CLUSTER, HARM
from fedhist.protocols.distributions.count_rows import MOST_NUMBERS, MOST_ROWS, CountRows
from fedhist.protocols.distributions.fit_choice import (
    CENTRED_GAIN,
    KS_GAIN,
    SELECTION,
    Options,
    averaged,
    decide,
    released,
    remaining,
    selected,
)
from fedhist.protocols.distributions.given_users import noise_of
from fedhist.protocols.distributions.mechanisms import (
    DistributionTask,
    Learned,
    Mechanism,
    Search,
)
from fedhist.protocols.shared.distribution_target import SeenShares
from fedhist.session.curator import Curator
from server.distributions.agreement import left_out
from server.distributions.fit_statistic import (
    FALSE_ALARM,
    NOTHING,
    OWN_AVERAGE,
    STEPS,
    FitPlan,
    fit_sampling,
    kappa,
    spread_ratio,
)

SHARES = (0.03, 0.05, 0.075, 0.1, 0.125, 0.15, 0.2)
"""Parts of epsilon that the test may have."""

ALARMS = (0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3)
"""How often alike users may fail it."""

PARTS = np.linspace(0.0, 0.5, 101)
"""Parts of the users that may be elsewhere."""

SPREAD, CLUSTERED = 0.5, 1.5
"""Users agree up to this part of the spread at which a selection loses as much as counts; and a
spread of so many times that explains any number of users who do not."""

SPREAD_SHARE = 0.02
"""Part of epsilon for how much users differ, asked for where the test fails."""

CLOSE = 1.25
"""A balance above which predictions say that two methods are close."""


@dataclass(frozen=True)
class Terms:
    """A test of agreement; from public numbers.

    Attributes
    ----------
    task : DistributionTask
    epsilon : float
        Of the statistic.
    alarm : float
        How often alike users fail.
    worst : float
        Larger of the two losses, relative to the better of selection and counts.
    radius : float
        How many times as wide as binomial the counts of users who agree may be.
    """

    task: DistributionTask
    epsilon: float
    alarm: float
    worst: float
    radius: float

    @property
    def limit(self) -> float:
        """Largest noisy statistic that passes, in users."""
        return math.log(0.5 / self.alarm) / self.epsilon

    @property
    def warns(self) -> float:
        """Largest one without a warning."""
        return max(self.limit, math.log(0.5 / FALSE_ALARM) / self.epsilon)

    @property
    def plan(self) -> FitPlan:
        """The table of the fit."""
        return FitPlan.of(self.task.m, self.task.n_users)

    def statistic(self, query: CountRows, summary: Summary, below: Integers) -> int:
        """Compute the users who do not agree, in steps. NOT PRIVATE.

        Or, if it is more, by how many users a hypothesis that fits, up to the radius, misses a
        symbol's average: clusters within the radius are seen by that where they do harm.

        Privacy
        -------
        Sensitivity :data:`STEPS` under replacement, as both have it.
        """
        s, k = self.task.n_users, self.task.k
        apart = left_out(query.shuffled(summary), self.radius)
        slack = math.ceil(STEPS * (fit_sampling(k, s, self.plan.eta) + kappa(self.radius) * s))
        totals = summary.rows["counts"].sum(axis=0)
        return max(apart * STEPS, self.plan.off_mean(below, totals, slack))


@lru_cache(maxsize=256)
def terms_of(task: DistributionTask) -> Terms | None:
    """Choose a test that balances its losses; None where none is worth its budget, or possible."""
    if task.n_users > min(MOST_ROWS, MOST_NUMBERS // task.k) or not fit_choice.testable(task):
        return None
    whole = Options.of(task)
    ks, counts = whole.ks_error, whole.counts_error
    if ks >= min(KS_GAIN * whole.centred(1.0), counts):
        return None
    found = None
    for share in SHARES:
        epsilon = share * task.epsilon
        left = Options.of(remaining(task, epsilon))
        for alarm in ALARMS:
            worst = _worst(passing(epsilon * task.n_users * PARTS, alarm), left, whole)
            if worst < (found.worst if found else counts / ks):
                found = Terms(task, epsilon, alarm, worst, _radius(left, counts / ks))
    return found


def _radius(left: Options, gain: float) -> float:
    """Choose how wide counts may be: a selection needs so many users who fit as it needs at all."""
    n = left.task.n_users
    fitting = spread_ratio(n - SELECTION.floor(left.task), left.task.k, n)
    return max(1.0, min(SPREAD * gain, fitting))


def _worst(passed: Floats, left: Options, whole: Options) -> float:
    """Compute the largest expected loss over parts of the users who are elsewhere."""
    harm = HARM / CLUSTER * PARTS
    expected = passed * (left.ks_error + harm) + (1 - passed) * left.counts_error
    return float((expected / np.minimum(whole.ks_error + harm, whole.counts_error)).max())


def passing(scaled: Floats, alarm: float) -> Floats:
    """Chance to pass of users of whom ``scaled`` / epsilon do not agree.

    >>> passing(np.array([0.0, 1e9]), 0.1).tolist()
    [0.9, 0.0]
    """
    room = math.log(0.5 / alarm) - np.asarray(scaled)
    tail = 0.5 * np.exp(-np.abs(room))
    return np.where(room > 0, 1 - tail, tail)


def automatic(task: DistributionTask) -> Mechanism:
    """Choose from public numbers what is tested, if anything."""
    rare = fit_choice.asks_for_rare(task)
    return AGREEING if not rare and terms_of(task) else fit_choice.automatic(task)


def doubt(task: DistributionTask) -> str:
    """Say where no test can tell which of two methods is better; else empty."""
    chosen, whole = automatic(task), Options.of(task)
    if chosen is fit_choice.TESTED:
        return ""
    terms = terms_of(task) if chosen is AGREEING else None
    worst = terms.worst if terms else whole.counts_error / min(whole.ks_error, whole.centred(1.0))
    if worst <= CLOSE:
        return ""
    return (
        "; close: no test of a part of the budget tells alike users from users of whom a few are "
        f"elsewhere, and errors may be {worst:.2g} times the better method's"
    )


def _terms(task: DistributionTask) -> Terms:
    terms = terms_of(task)
    if terms is None:
        raise ValueError("no test of agreement for these numbers")
    return terms


# -- the script ------------------------------------------------------------------------------------


def search(task: DistributionTask, server: Curator) -> Search:
    """Test, and select or take an average of the users' own; at most four rounds.

    Privacy
    -------
    The statistic has sensitivity 1 under replacement and gets Lap(1 / epsilon_t); so does, if the
    test failed, that of the fit. The rest is as in :func:`fit_choice.search`.
    """
    terms = _terms(task)
    query = CountRows(task.domain, task.m)
    summary = yield query
    below = query.below(summary, terms.plan.thresholds)
    steps = terms.statistic(query, summary, below)
    noisy = released(steps, task, server, terms.epsilon, "agreement")
    public = {"apart": noisy, "apart_limit": terms.warns}
    if noisy <= terms.limit:
        learned = selected(remaining(task, terms.epsilon), server, below)
        return Learned(learned.p, (), public | dict(learned.public))
    left = _failed(terms)
    if spread := _spread_epsilon(terms):
        public["fit"] = released(terms.plan.statistic(below), task, server, spread, "fit")
    chosen = _otherwise(terms, left, public.get("fit", 0.0), noisy)
    del below, summary
    learned = yield from chosen.search(left.task, server)
    warnings = learned.warnings
    if noisy > terms.warns:
        warnings = (differ_in_words(noisy, terms.warns), *warnings)
    return Learned(learned.p, warnings, public | dict(learned.public))


def _spread_epsilon(terms: Terms) -> float:
    """Epsilon of the statistic of fit after a failed test; 0 where counts are taken anyway."""
    left = Options.of(remaining(terms.task, terms.epsilon))
    gains = left.centred(1.0) < CENTRED_GAIN * left.counts_error
    return SPREAD_SHARE * terms.task.epsilon if gains else 0.0


def _failed(terms: Terms) -> Options:
    """Return what is left after a failed test."""
    return Options.of(remaining(terms.task, terms.epsilon, _spread_epsilon(terms)))


def _otherwise(terms: Terms, left: Options, fit: float, apart: float) -> Mechanism:
    """Choose what averages the users' own, by both statistics.

    More users apart than their spread explains are a cluster, which offsets would clip.
    """
    s = terms.task.n_users
    spread = spread_ratio(fit, terms.task.k, s) >= CLUSTERED * terms.radius
    return decide(left, fit, -math.inf, elsewhere=0.0 if spread else max(apart, 0.0) / s)


def differ_in_words(noisy: float, limit: float) -> str:
    """Say that the test failed, and what that means."""
    found = (
        "the users do not look as if they all drew from one distribution (about "
        f"{noisy:.4g} would have to be left out for the others to agree, where {limit:.4g} would "
        "pass)"
    )
    return warned(found, OWN_AVERAGE, NOTHING)


# -- theory ----------------------------------------------------------------------------------------


def error(task: DistributionTask, p: Floats, pooled: bool) -> float:
    """Predict the error of alike users at p."""
    terms = _terms(task)
    left, failed = remaining(task, terms.epsilon), _failed(terms)
    counts = _otherwise(terms, failed, 0.0, 0.0).error(failed.task, p, pooled)
    return (1 - terms.alarm) * SELECTION.error(left, p, pooled) + terms.alarm * counts


def given(task: DistributionTask, seen: SeenShares, project: bool) -> float:
    """Predict the error on known users, over the noise of both statistics. NOT PRIVATE."""
    terms = _terms(task)
    query = CountRows(task.domain, task.m)
    (summary,) = seen.answers([query])
    below = query.below(summary, terms.plan.thresholds)
    apart = terms.statistic(query, summary, below) / STEPS
    passed = float(passing(np.array([apart * terms.epsilon]), terms.alarm)[0])
    left, spread = _failed(terms), _spread_epsilon(terms)
    exact = terms.plan.statistic(below) / STEPS
    fits = [exact + z for z in noise_of(spread)] if spread else [0.0]
    decided = [_otherwise(terms, left, fit, apart) for fit in fits]
    total = (1 - passed) * averaged(decided, left.task, seen, project) if passed < 1 else 0.0
    return total + passed * averaged([SELECTION], remaining(task, terms.epsilon), seen, project)


AGREEING = Mechanism(
    "agreeing",
    search,
    error,
    rounds=4,
    pure=True,
    source="this project's own: a private test of agreement, then the best of three",
    given=given,
    automatic=False,
    estimates=Truth.AVERAGE_OF_USERS,
)
"""The automatic mechanism of few users; it has no name of its own."""
