"""Laws of many answers and many runs: privacy, laws of sums, errors stated and predicted."""

from __future__ import annotations

import math

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.model.query import Summary
from fedhist.privacy.guarantee import Trust
from server.predictor import Repeated
from simulations.audit.checks import audit_queries
from simulations.audit.finding import Settings
from simulations.contract.estimates import (
    FALSE_ALARM,
    POSTPROCESSED,
    check_mean,
    check_spread,
    moving_entries,
    stacked,
)
from simulations.contract.law import ANY_NODES, Whom, demand, flat, law, passes_over
from simulations.contract.subject import Subject

LOCAL = Whom(
    "protocols whose users randomize their answers",
    lambda p: p.guarantee.trust in (Trust.LOCAL, Trust.SHUFFLE),
)
RUNS = 40
NUMBERS = 300
"""Whose spread is held against stated standard errors, in :data:`RUNS` runs at least."""
LEAST, WIDEST = 0.8, 10.0
"""How small the spread may be beside the stated one, and by how much a bound may be larger."""
EFFORT = 0.06
"""Of the auditor's draws: some 31,000 answers of each record, which see 1.2 times epsilon = 1."""
FACTOR = 1.5
"""By how much a prediction may differ from the measured root error (or mean l1 error)."""
FEW_RUNS, MANY_RUNS, MOST_ROUNDS = 30, 100, 12
"""Runs that a prediction is held against: few, or many where few leave a doubt; of a central
protocol, with so many rounds at most."""


@law(LOCAL, once=True)
def answers_tell_records_apart_by_no_more_than_is_charged(subject: Subject) -> None:
    """Of two records, no event of a whole answer is likelier by more than e^epsilon + delta.

    Every kind of local question, by the auditor: its law where it is enumerated, and events that
    are learned on some answers and certified on fresh ones. Everything that is sent counts. False
    alarm: 1e-7 for each kind.
    """
    settings = Settings(effort=EFFORT, alpha=FALSE_ALARM, seed=1)
    queries = [q for q, _ in subject.queries]
    for finding in audit_queries(subject.protocol, queries, subject.users, settings):
        demand(
            not finding.violated,
            f"{finding.subject} is charged epsilon = {finding.epsilon:g}, and {finding.kind} "
            f"{finding.certified:.3g} is certified: {finding.witness}",
        )


@law(LOCAL)
def stated_standard_errors_are_those_of_runs(subject: Subject) -> None:
    """Over many seeds, at its own epsilon, estimates spread as ``stderr`` says, around the truth.

    Runs on the aggregate path, 300 numbers in all. Their squared deviations add up to a chi-square,
    of entries that move together to one of fewer degrees. They spread no more than is stated, and
    .8 of it at least unless the protocol says why not in ``overstates``. The mean of 40 is held
    against the truth by what they spread, whatever they state. With the fields ``nonneg``,
    ``project`` and ``shrink`` off. False alarm: 1e-7 each.
    """
    protocol = subject.protocol
    if protocol.biased or subject.estimate.stderr is None:
        passes_over(protocol.biased or "Its estimate states no standard errors.")
    plain = subject.replaced(**{name: False for name in POSTPROCESSED if name in subject.fields})
    truth = np.asarray(plain.truth(subject.users), np.float64).ravel()
    population, numbers = Repeated(subject.users), math.ceil(NUMBERS / len(truth))
    runs = [population.run(plain, run) for run in range(max(RUNS, numbers))]
    sizes = {None if r.value is None or r.stderr is None else r.value.size for r in runs}
    if sizes != {len(truth)}:
        passes_over("What comes out is noise as well.")
    x, errors = stacked(runs)
    least = 1 / WIDEST if protocol.overstates else LEAST
    stated = np.where((errors > 0).all(axis=0), np.sqrt(np.mean(errors**2, axis=0)), 0.0)
    check_spread(x, stated, least=least)
    check_mean(x[:RUNS], np.zeros(len(truth)), truth, plain.resolution(subject.users))


@law(LOCAL)
def sums_are_drawn_by_the_law_of_the_reports(subject: Subject) -> None:
    """What ``draw_summary`` draws has the mean and the variance of folded reports, entry by entry.

    Over 40 seeds of each, for each question of the run. Means by Student's test of two samples,
    with the degrees of one of them; variances by their ratio. False alarm: 1e-7 each.
    """
    checked = 0
    for query, number in subject.queries:
        chosen = subject.users.select(query.cohort)
        if query.trust is Trust.CENTRAL or not len(chosen):
            continue
        seeded = (np.random.default_rng([7, seed]) for seed in range(RUNS))
        drawn = [_flat(query.draw_summary(chosen, rng)) for rng in seeded]
        reports = (subject.answer(query, chosen, number, 5000 + seed) for seed in range(RUNS))
        folded = [_flat(query.fold(report)) for report in reports]
        _check_same_law(np.array(drawn), np.array(folded), query.wire_name)
        checked += 1
    if not checked:
        passes_over("No question of it has a law of sums.")


def _flat(summary: Summary) -> Floats:
    """Write the sums as one row, and of parts by key what they add up to."""
    return flat(
        {**summary.sums} | {k: part.values.sum(axis=0) for k, part in summary.keyed.items()}
    )


def _check_same_law(drawn: Floats, folded: Floats, what: str) -> None:
    from scipy.stats import f

    demand(drawn.shape == folded.shape, f"{what} draws {drawn.shape[1]} of {folded.shape[1]} sums.")
    if not drawn.size:
        return
    variance = (drawn.var(axis=0, ddof=1) + folded.var(axis=0, ddof=1)) / 2
    rounding = 1e-9 * max(1.0, float(np.abs(folded).max()))
    nothing = np.zeros(drawn.shape[1])
    check_mean(drawn - folded, nothing, nothing, rounding, f"{what}: drawn less reported sums")
    random = variance > rounding**2
    if not random.any():
        return
    both = np.concatenate([x - x.mean(axis=0) for x in (drawn, folded)])[:, random]
    both /= np.sqrt(variance[random])
    spreads = [float(np.square(x).sum()) for x in np.split(both, 2)]
    ratio = spreads[0] / max(spreads[1], 1e-300)
    degrees = (len(drawn) - 1) * moving_entries(both)
    widest = f.isf(FALSE_ALARM / 2, degrees, degrees)
    demand(
        1 / widest <= ratio <= widest,
        f"{what}: the sums that are drawn have {ratio:.2f} times the variance of those of reports.",
    )


@law(ANY_NODES)
def the_predicted_error_is_that_of_runs(subject: Subject) -> None:
    """The mean loss of runs is what ``error`` predicts, within 1.5 in roots; a bound is above.

    The factor is exceeded where the interval of 100 runs lies beyond it; of one squared number,
    that is 2 in roots. False alarm: .005, by Student's law, under other seeds; these are fixed.
    Where 30 runs are within the factor by a standard error, they are enough: of what 100 would see
    in half of the cases, that lets .01 pass.
    """
    from scipy.stats import t

    protocol, users = subject.protocol, subject.users
    if protocol.guarantee.trust is Trust.CENTRAL and protocol.max_rounds > MOST_ROUNDS:
        passes_over("Its runs are long.")
    predicted = protocol.error(users)
    if not math.isfinite(predicted.expected):
        passes_over("No error is predicted.")
    factor = FACTOR**2 if "squared" in predicted.loss else FACTOR
    most = factor * predicted.expected
    least = 0.0 if predicted.kind == "bound" else predicted.expected / factor
    truth = protocol.truth(users)
    losses, mean, error = list[float](), 0.0, math.inf
    for n in (FEW_RUNS, MANY_RUNS):
        if least <= mean - error and mean + error <= most:
            return
        runs = [subject.walk(seed=7000 + seed)[0] for seed in range(len(losses), n)]
        if any(run.value is None for run in runs):
            passes_over("Some runs have no estimate.")
        losses += [protocol.loss_of(run, users, truth) for run in runs]
        mean, error = float(np.mean(losses)), float(np.std(losses, ddof=1)) / math.sqrt(n)
    half = error * float(t.isf(0.005 / 2, MANY_RUNS - 1)) + 4 * predicted.stderr
    told = f"The mean loss of {MANY_RUNS} runs is {mean:g}, {predicted.expected:g} is predicted"
    demand(mean - half <= most, f"{told}.")
    demand(mean + half >= least, f"{told} ({predicted.kind}).")
