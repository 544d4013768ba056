"""The statistical check: known epsilons from below, broken mechanisms, coverage.

Unless a test says otherwise its false-alarm probability is that of its audits: ALPHA = 5e-10 each
where an honest mechanism is audited."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

import fedhist as fh
from simulations.audit import bounds
from simulations.audit.drawing import Drawer
from simulations.audit.features import Score
from simulations.audit.finding import Case, Settings
from simulations.audit.learning import propose
from simulations.audit.statistical import audit_query, certify
from tests.audit.mechanisms import Doubles, FailsOnEmpty, LongerForMore, Warner, people

LITTLE = Settings(effort=1 / 64)
LOG3 = math.log(3)


def drawers(query: fh.Query, n_seeds: int = 1) -> list[tuple[Drawer, Drawer]]:
    out = []
    for seed in range(n_seeds):
        case = Case("drawing", (1.0, 0.0))
        yes, no = (
            Drawer(
                lambda users, rng: (query.answer(users, rng),),
                fh.Users.from_samples([7], [0, 1], [x]),
                f"sample {x}",
                seed,
                case,
            )
            for x in (1.0, -1.0)
        )
        out.append((yes, no))
    return out


def test_randomized_response_is_found_from_below() -> None:
    result = audit_query(Warner(LOG3, keep=0.75), people(), "warner", LITTLE)
    assert result.verdict == "consistent"
    assert 0.9 <= result.certified <= LOG3
    assert result.kind == "statistical"
    assert result.witness.draws == (2**13, 2**13)


def test_sixty_correct_audits_are_covered() -> None:
    """At alpha = 0.05 each audit is wrong with probability at most 0.05, and here with less than
    0.01, since both limits have to be beaten at once: more than 6 of 60 with probability below
    1e-4; the seeds are fixed."""
    case = Case("warner", (LOG3, 0.0), Settings(alpha=0.05))
    result = [certify(pair, case, 512).certified for pair in drawers(Warner(LOG3, keep=0.75), 60)]
    assert sum(f > LOG3 for f in result) <= 6
    assert np.median(result) > 0.5


def test_a_length_that_depends_on_data_is_flagged() -> None:
    result = audit_query(LongerForMore(1.0), people(), "length", LITTLE)
    assert result.violated
    assert result.witness is not None
    assert result.certified > 5


@pytest.mark.parametrize("broken", [FailsOnEmpty(LOG3), Doubles(LOG3)])
def test_failures_and_types_that_depend_on_the_record_are_a_leak(broken: Warner) -> None:
    result = audit_query(broken, people(), "leaks", LITTLE)
    assert (result.kind, result.verdict) == ("structural", "violation")


def test_two_given_records_are_compared() -> None:
    settings = Settings(effort=1 / 64, records=([0.5], [0.25, 0.25]))
    result = audit_query(Warner(LOG3), people(), "alike", settings)
    assert result.certified < 0.2  # both positive: the same law
    assert sorted(result.witness.inputs) == [
        "user 100: 1 sample (0.5)",
        "user 100: 2 samples (0.25)",
    ]


@pytest.mark.parametrize("share", [0.2, 2e-4])
def test_only_ids_of_the_cohort_are_asked(share: float) -> None:
    """Whether there is somebody of it in the example population or nobody."""
    cohort = fh.Cohort(3, 0.0, share)
    assert (len(people().select(cohort)) > 0) == (share == 0.2)
    recorded: list[int] = []

    class Watching(Warner):
        def answer(self, users, rng):
            recorded.extend(np.unique(users.ids).tolist())
            return super().answer(users, rng)

    audit_query(Watching(LOG3, cohort), people(), "cohort", Settings(effort=1e-3))
    assert recorded
    assert cohort.contains(np.array(recorded, dtype=np.uint64)).all()


class Named(Warner):
    """Answers by the user's id, which is public, and by nothing else."""

    def answer(self, users: fh.Users, rng: fh.Streams) -> fh.Report:
        return fh.Report(users.ids, {"yes": users.ids % np.uint64(2) == 0})


def test_records_are_compared_under_one_id() -> None:
    assert audit_query(Named(LOG3), people(), "named", LITTLE).certified < 0.1


def test_what_promises_nothing_is_not_audited() -> None:
    with pytest.raises(ValueError, match="inf"):
        audit_query(Warner(math.inf), people(), "free", LITTLE)


def test_an_event_is_certified_on_answers_that_did_not_choose_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    purposes, count = list[str](), Drawer.count

    def noted(self: Drawer, features: Any, n: int, purpose: str) -> Any:
        purposes.append(purpose)
        return count(self, features, n, purpose)

    monkeypatch.setattr(Drawer, "count", noted)
    certify(drawers(Warner(LOG3))[0], Case("warner", (LOG3, 0.0)), 512)
    assert len(purposes) == 6
    assert len(set(purposes)) == 3


def test_draws_are_independent_and_repeatable() -> None:
    pair = drawers(Warner(LOG3))[0]
    one, same, other = (pair[0].sample(4096, p)[0].arrays["reports"] for p in ("a", "a", "b"))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)
    assert pair[0].case.draws == 3 * 4096


def test_a_vector_is_told_apart_by_a_linear_score() -> None:
    """Sixteen entries that share a part of their noise: their differences are what tells."""
    rng = np.random.default_rng(0)
    ids = np.arange(4000, dtype=np.uint64)
    sent = []
    for shift in (0.0, 0.5):
        noise = rng.normal(size=(4000, 16)) + 10 * rng.normal(size=(4000, 1))
        noise[:, 0] += shift
        sent.append((fh.Report(ids, {"z": noise}),))
    (score,) = (f.value for f in propose(sent) if isinstance(getattr(f, "value", None), Score))
    a, b = (score.of(x) for x in sent)
    gap = abs(a.mean() - b.mean()) / np.sqrt((a.var() + b.var()) / 2)
    # 0.5 / sqrt(1 + 1 / 15) at best
    assert gap == pytest.approx(0.48, abs=0.07)


@pytest.mark.parametrize("alpha", [0.05, bounds.ALPHA / 8])
@pytest.mark.parametrize(("hits", "n"), [(1, 10), (9, 10), (10, 10), (37, 1000), (400_000, 10**6)])
def test_limits_are_where_the_tail_is_alpha(hits: int, n: int, alpha: float) -> None:
    low = float(bounds.proportion_low(hits, n, alpha))
    assert binom.sf(hits - 1, n, low) == pytest.approx(alpha, rel=1e-3)
    assert binom.sf(hits - 1, n, low) <= alpha  # outwards, also in doubles
    if hits < n:
        high = float(bounds.proportion_high(hits, n, alpha))
        assert binom.cdf(hits, n, high) == pytest.approx(alpha, rel=1e-3)
        assert binom.cdf(hits, n, high) <= alpha


def test_nothing_seen_and_everything_seen() -> None:
    assert bounds.proportion_low(0, 5, 0.1) == 0
    assert bounds.proportion_high(5, 5, 0.1) == 1
    assert float(bounds.proportion_high(0, 5, 0.1)) == pytest.approx(1 - 0.1 ** (1 / 5), rel=1e-6)


@pytest.mark.parametrize(
    ("p", "q", "delta"), [(0.75, 0.25, 0.0), (0.3, 0.01, 0.1), (0.02, 0.01, 0)]
)
def test_epsilon_is_covered(p: float, q: float, delta: float) -> None:
    """40,000 repetitions at alpha = 0.05: more than 2,000 wrong with probability below 1/2 even if
    each were wrong with probability exactly 0.05; in fact, both limits must be beaten at once, and
    the true rate is below 0.01: P(more than 2,000) < 1e-100."""
    rng = np.random.default_rng(3)
    truth = math.log((p - delta) / q)
    a, b = rng.binomial(2000, p, 40_000), rng.binomial(2000, q, 40_000)
    result = bounds.epsilon_low(a, 2000, b, 2000, delta=delta, alpha=0.05)
    assert (result > truth).sum() <= 2000
    assert (result > 0).any()


def test_an_event_that_one_input_never_makes() -> None:
    """1000 of 1000 against 0 of 1000: the limits are alpha / 2 to the power 1 / 1000."""
    tail = (0.01 / 2) ** (1 / 1000)
    result = float(bounds.epsilon_low(1000, 1000, 0, 1000, alpha=0.01))
    assert result == pytest.approx(math.log(tail / (1 - tail)), rel=1e-6)


def test_delta_is_a_curve_below_the_truth() -> None:
    grid = [0.0, 0.5, 1.0, 2.0]
    result = bounds.delta_low(750_000, 10**6, 250_000, 10**6, grid)
    truth = np.maximum(0.75 - np.exp(grid) * 0.25, 0)
    assert (result <= truth).all()
    assert result == pytest.approx(truth, abs=0.011)


def test_a_claim_allows_what_randomized_response_does() -> None:
    """(epsilon, 0): the hockey-stick divergence of randomized response is the largest."""
    e = math.log(3)
    assert bounds.claimed_delta([0.0, 0.5], e, 0.0) == pytest.approx(
        [0.5, 0.75 - math.exp(0.5) / 4], rel=1e-12
    )
    assert bounds.claimed_delta(9.0, e, 0.01) == pytest.approx(0.01)


def test_all_false_alarms_together() -> None:
    assert pytest.approx(bounds.TOTAL_ALPHA) == bounds.ALPHA * bounds.MOST_CHECKS
    assert bounds.TOTAL_ALPHA <= 1e-6
