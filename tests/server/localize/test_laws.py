"""Laws of the protocols that vote and then refine, fold by fold, in both modes."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fedhist as fh
from fedhist.protocols import Density, LocalDistribution, Mean, MeanL2, MeanLinf, SparseMean
from server.localize.script import FoldProtocol
from server.modes import TwoModes
from tests.running import run


def by_folds(cls: type[Any]) -> Any:
    """The example, with a scalar a user."""
    example = cls.example()
    if isinstance(example, Mean):
        return example
    if isinstance(example, Density):
        return replace(example, method="folds", basis="fourier")
    return replace(example, method="folds") if hasattr(example, "method") else example


MEANS: list[type[Any]] = [Mean, MeanLinf, MeanL2]
ALL: list[type[Any]] = [*MEANS, Density, LocalDistribution]
N_FOLDS = {Mean: 1, MeanLinf: 3, MeanL2: 4, Density: 4, LocalDistribution: 7}


@pytest.mark.parametrize(
    ("cls", "mode"),
    [
        (c, m)
        for c in ALL
        for m in ("default", "paper")
        if m == "default" or issubclass(c, TwoModes)
    ],
)
def test_every_user_answers_one_query_about_one_scalar(cls: type[Any], mode: str) -> None:
    protocol, users = by_folds(cls), cls.example_users()
    if mode == "paper":
        protocol = replace(cls.example() if cls is Mean else protocol, mode=mode)
    estimate, (vote, refine), (voters, reporters) = run(protocol, users)
    assert vote.cohort.disjoint(refine.cohort)
    assert vote.cohort.share + refine.cohort.share == pytest.approx(1)
    assert voters.n_users + reporters.n_users == len(users)
    assert estimate.public["n_vote"] == voters.n_users
    assert estimate.public["n_report"] == reporters.n_users
    assert vote.functional == refine.functional
    assert vote.functional.n_folds == N_FOLDS[cls]
    assert vote.fold_salt == refine.fold_salt != protocol.salt
    if cls in MEANS:
        # five standard errors in at most three coordinates: false alarm 2e-6
        assert (np.abs(estimate.value - protocol.truth(users)) < 5 * estimate.stderr).all()


@pytest.mark.parametrize(
    ("protocol", "step"),
    [
        (Mean(0.1, 50, 64, -1.0, 1.0), 1),
        (MeanLinf(0.1, 50, 7, 64), 1),
        (MeanL2(0.1, 50, 7, 64, method="folds"), 1),
        (MeanL2(1.0, 64 * 60, 64, 100, method="folds"), 1),
        (Density(0.5, 300, 100, level=21, basis="fourier", method="folds"), 20),
        (LocalDistribution(fh.Keys.range(64), 0.5, 500, 100, method="folds"), 63),
    ],
    ids=lambda p: getattr(p, "name", ""),
)
def test_refusal_names_the_least_n(protocol: FoldProtocol, step: int) -> None:
    estimate, queries, _ = run(protocol, type(protocol).example_users())
    assert estimate.status == "refused"
    assert not queries

    def feasible(n: int) -> bool:
        at: Any = replace(protocol, n_users=n)
        return bool(getattr(at, "feasible", at.plan.feasible))

    least = int(estimate.reason.split("at least ")[1].split()[0])
    assert feasible(least)
    assert not feasible(least - step)


@pytest.mark.parametrize("cls", [*MEANS, SparseMean, Density])
def test_resolve_takes_public_numbers(cls: type[Any]) -> None:
    users = fh.Users.from_records({"ann": [0.1] * 4, "bob": [0.2] * 12, "eve": []})
    fixed, notes = cls.resolve({"samples_per_user": 5}, users, None)
    assert (fixed, notes) == ({"samples_per_user": 5, "n_users": 3}, [])
    asked = {"samples_per_user": "harmonic-mean", "n_users": 9}
    result, notes = cls.resolve(asked, users, None)
    assert result == {"samples_per_user": pytest.approx(6.0), "n_users": 9}
    assert len(notes) == 1
    for declared in ({"samples_public": True}, asked | {"samples_public": True}):
        result, notes = cls.resolve(declared, users, None)
        assert result["samples_per_user"] == pytest.approx(6.0)
        assert "samples_public" not in result
        assert notes == []
    with pytest.raises(fh.PopulationError, match="samples"):
        cls.resolve({"samples_public": True}, fh.Users.from_records({"eve": [], "ann": []}), None)
