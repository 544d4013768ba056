"""The statistical check: known epsilons from below, broken mechanisms, coverage.

Unless a test says otherwise its false-alarm probability is that of its audits: ALPHA = 5e-10 each
where an honest mechanism is audited.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import fedhist as fh
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
