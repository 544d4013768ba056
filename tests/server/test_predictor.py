"""What is predicted for every protocol against runs of it, and where the predictor refuses."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from walked_users import Walked

import fedhist as fh
from fedhist.model.registry import protocol_class
from fedhist.protocols import MeanL2
from fedhist.users.batch import PROBED
from server import predictor
from server.predictor import Repeated


def built(name: str, changes: dict[str, Any]) -> fh.Protocol:
    return replace(protocol_class(name).example(), **changes)


TEN, FORTY = fh.Aggregation(parties=10), fh.Aggregation(parties=40)


def test_users_who_do_not_answer_are_in_it() -> None:
    """Half of the votes: about twice the variance, and more for the counts that are missing."""
    protocol = built("frequency-oracle", {"project": False})
    users = protocol.example_users()
    known = fh.measured(protocol, users)
    whole = fh.simulated(protocol, users, known, runs=100)
    half = fh.simulated(protocol, users, known, 0.5, runs=100)
    assert half.expected > 1.5 * whole.expected


def test_other_users_answer_in_other_runs() -> None:
    """Half of them, and the noise of epsilon = 10^6 is far below one count."""
    protocol = built("bounded-histogram", {"epsilon": 1e6})
    asked = Repeated(protocol.example_users(), 0.5)
    values = [asked.run(protocol, run).value for run in (0, 1, 0)]
    assert np.array_equal(values[0], values[2])
    assert np.abs(values[0] - values[1]).max() > 1


def test_the_same_question_is_not_run_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    protocol = protocol_class("box-mean").example()
    users = protocol.example_users()
    known = fh.measured(protocol, users)
    first = fh.simulated(protocol, users, known)
    monkeypatch.setattr(predictor, "Repeated", None)
    assert fh.simulated(protocol, users, known) is first


def test_users_are_made_once_for_all_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """And once to see how many fit; the prediction is that of users in memory."""
    protocol = protocol_class("central-mean").example()
    users = protocol.example_users()
    known = fh.measured(protocol, users)
    monkeypatch.setattr(predictor, "_predicted", {})
    Walked.made = 0
    told = fh.simulated(protocol, Walked(users, 1), known)
    predictor._predicted.clear()
    assert len(users) <= Walked.made <= len(users) + PROBED
    assert told == fh.simulated(protocol, users, known)


def test_a_refusal_is_no_number() -> None:
    protocol = replace(protocol_class("few-users-mean").example(), epsilon=1e-6)
    users = protocol.example_users()
    told = fh.simulated(protocol, users, fh.measured(protocol, users))
    assert np.isinf(told.expected)
    assert "refused" in told.source or "end without" in told.source


def test_too_many_users_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predictor, "MOST_ANSWERS", 10)
    monkeypatch.setattr(predictor, "_predicted", {})
    protocol = protocol_class("box-mean").example()
    users = protocol.example_users()
    with pytest.raises(fh.PopulationError):
        fh.simulated(protocol, users, fh.measured(protocol, users))


def test_users_who_do_not_fit_in_memory_answer_for_their_own_cohort_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each stage asks a part of the users; of all of them errors would be five times too small.

    Means of 30 runs, each within a factor 1.6 of the other: a false alarm in 10^4 or less.
    """
    users = fh.population("gaussian", n_users=20_000, samples_per_user=5, dimension=32).plan().users
    protocol = MeanL2(epsilon=1.0, n_users=20_000, samples_per_user=5, dimension=32)
    inside = predictor.simulated(protocol, users, fh.measured(protocol, users)).expected
    monkeypatch.setattr(predictor, "_predicted", {})
    monkeypatch.setattr(predictor, "keep", lambda users, room: (users, 0))
    outside = predictor.simulated(protocol, users, fh.measured(protocol, users)).expected
    assert 1 / 1.6 < outside / inside < 1.6
