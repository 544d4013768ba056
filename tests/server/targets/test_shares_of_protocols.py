"""Protocols whose nodes add the noise: quorum, dropped nodes, charges, refusals."""

from dataclasses import replace

import numpy as np
import pytest

import fedhist
from clients.answers import fold_node
from clients.central_means.queries import STEPS, SummedMeans
from clients.distributions.queries import ItemCounts
from clients.histograms.contributions import NormHistogram
from fedhist.base.errors import MissingReplies
from fedhist.model.aggregated import Aggregated
from fedhist.model.codec import query_digest
from fedhist.privacy.aggregation import Aggregation
from fedhist.privacy.guarantee import Adjacency
from fedhist.protocols import (
    AdaptiveHistogram,
    BoundedHistogram,
    BoxMean,
    CentralDensity,
    Distribution,
    PoissonCounts,
    UserLevelErm,
)
from fedhist.users.keys import Keys
from server.intake import Intake
from server.noise import SimulatedNoise
from server.session.session import Session

TEN = Aggregation(10)
COUNTS = PoissonCounts(Keys.of(["お茶", "rye"]), 1.0, 400, clip=4, discrete=True, debias=False)
DRINKS = replace(Distribution.example(), epsilon=4.0, project=False)
BOX = replace(BoxMean.example(), discrete=True)
CURVE = replace(CentralDensity.example(), discrete=True, shrink=False, project=False)
CHOSEN = AdaptiveHistogram(
    BoundedHistogram.example().domain, 4.0, 1e-6, threshold="dp-sgd", discrete=True
)
RISK = replace(UserLevelErm.example(), discrete=True)
CASES = {
    "poisson-counts": COUNTS,
    "poisson-counts, gaussian": replace(COUNTS, delta=1e-6, debias=True),
    "laplace": replace(DRINKS, mechanism="laplace"),
    "one-item": replace(DRINKS, mechanism="one-item"),
    "presence-laplace": replace(DRINKS, mechanism="presence-laplace"),
    "gaussian": replace(DRINKS, mechanism="gaussian"),
    "box-mean": replace(BOX, delta=0.0),
    "box-mean, zero-out": replace(BOX, adjacency="zero-out-user"),
    "box-mean, gaussian": replace(BOX, dimension=40, delta=1e-5),
    "central-density": CURVE,
    "central-density, laplace": replace(CURVE, delta=0.0),
}
cases = pytest.mark.parametrize("central", CASES.values(), ids=CASES)


def people_of(protocol):
    if getattr(protocol, "dimension", 1) == 40:
        rows = np.random.default_rng(1).uniform(0.2, 0.3, (120, 40))
        return fedhist.Users.from_samples(
            np.arange(120, dtype=np.uint64), np.arange(121), rows, unusable=True
        )
    return protocol.example_users()


def ask(session, parts, seed=1, missing=()):
    """Ask all nodes but some, as the runtimes do."""
    query = session.query
    intake = Intake(query, query_digest(query, session.round_index), "stop")
    for i, users in enumerate(parts):
        if i not in missing:
            part = fold_node(query, users.select(query.cohort), seed, intake.digest, i)
            intake.add(i, part)
    return intake.total(len(parts), None).summary


@cases
def test_a_node_may_drop_out_and_two_may_not(central):
    """The estimate is then that of the users who are left, and the quorum is checked first."""
    shared = replace(central, trust=TEN, epsilon=float("inf"))
    users = people_of(central)
    parts = users.split(10)
    session = Session(shared, lambda i: SimulatedNoise(1, i))
    with pytest.raises(MissingReplies, match="2 of 10"):
        ask(session, parts, missing=(3, 7))
    session.advance(ask(session, parts, missing=(3,)))
    assert session.estimate.status == "ok"
    left = users.take(np.flatnonzero(~np.isin(users.ids, parts[3].ids)))
    if getattr(central, "mechanism", "") == "one-item":
        return  # each run draws one item of every user
    exact = replace(central, epsilon=float("inf"), n_users=len(left))
    found = fedhist.run(exact, left, seed=1)
    assert session.estimate.value == pytest.approx(found.value, abs=1e-6)


@cases
def test_one_charge_for_what_left(central):
    shared = replace(central, trust=TEN)
    session = Session(shared, lambda i: SimulatedNoise(1, i))
    assert isinstance(session.query, Aggregated)
    (charge,) = session.ledger.entries
    assert charge.release == session.query.release
    assert session.query.release.epsilon == shared.epsilon


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("dimension", [1, 3])
def test_vectors_of_means_stay_in_their_ball(norm, dimension):
    """Rounded towards zero: no vector is longer than 2^24, wherever the means lie."""
    rng = np.random.default_rng(4)
    values = rng.normal(0, 2, (3000, dimension)) / np.sqrt(dimension)
    values[:6, 0] = [1.0, -1.0, 1 - 2**-53, 3e300, np.nan, -np.inf]
    users = fedhist.Users.from_samples(
        np.arange(3000, dtype=np.uint64), np.arange(3001), values, unusable=True
    )
    query = SummedMeans(np.zeros(dimension), 1.0)
    rows = query.answer(users, None).arrays["points"].astype(object)
    query.check(query.answer(users, None))
    squares = (rows**2).sum(axis=1)
    assert max(squares) <= STEPS**2
    assert max(squares) > 0.999 * STEPS**2
    assert not rows[[4, 5]].any()
    sizes = abs(rows).sum(axis=1) if norm == 1 else np.sqrt(squares.astype(np.float64))
    for adjacency, times in ((Adjacency.REPLACE_USER, 2), (Adjacency.ZERO_OUT_USER, 1)):
        most = query.integer_sensitivity(norm, adjacency)
        assert times * max(sizes) <= most
        assert most <= times * STEPS * dimension ** (0.5 if norm == 1 else 0) * (1 + 2e-9)
    if dimension == 1:
        exact = np.clip(np.nan_to_num(values[:, 0], nan=0.0, neginf=0.0), -1, 1) * STEPS
        assert (np.abs(rows[:, 0].astype(np.float64)) <= np.abs(exact)).all()
        assert (np.abs(exact - rows[:, 0].astype(np.float64)) < 1).all()


def test_item_counts_state_their_sensitivity_under_replacement_alone():
    query = ItemCounts(Keys.range(4), 3)
    assert query.integer_sensitivity(1, Adjacency.REPLACE_USER) == 6
    assert query.integer_sensitivity(2, Adjacency.REPLACE_USER) == pytest.approx(18**0.5)
    with pytest.raises(ValueError, match="item-counts"):
        query.integer_sensitivity(1, Adjacency.ADD_REMOVE_USER)


@pytest.mark.parametrize(
    ("protocol", "change", "told"),
    [
        (COUNTS, {"clip": None, "domain": Keys.of(["お茶"])}, "clip"),
        (COUNTS, {"discrete": False}, "discrete"),
        (DRINKS, {"mechanism": "ks"}, "'ks'"),
        (DRINKS, {"mechanism": "gaussian", "samples_per_user": 1}, "grid"),
        (BOX, {"adjacency": "add-remove-user"}, "add-remove-user"),
        (BOX, {"discrete": False}, "integers"),
        (CURVE, {"discrete": False}, "integers"),
        (CHOSEN, {"threshold": "em-slope"}, "'em-slope'"),
        (RISK, {"discrete": False}, "integers"),
        (RISK, {"epsilon": float("inf")}, "noise"),
        (RISK, {"oracle": "few-users", "discrete": False}, "integers"),
    ],
)
def test_what_nodes_cannot_add_is_refused_with_its_reason(protocol, change, told):
    with pytest.raises(ValueError, match=told):
        replace(protocol, trust=Aggregation(100), **change)


def test_auto_takes_a_mechanism_whose_noise_nodes_can_add():
    """Ten items a user: Gaussian shares of 100 nodes would be too small, so Laplace it is."""
    many = Distribution(Keys.range(3000), 1.0, 2, 20_000, delta=1e-6, p_max=1e-3, trust=TEN)
    assert many.chosen.linear is not None
    assert replace(many, trust=Aggregation(1000)).chosen.name in ("laplace", "presence-laplace")
    few = replace(Distribution.example(), trust=TEN)
    assert few.chosen.name == "laplace"


def test_the_sensitivity_of_bins_is_that_of_all_pairs_of_users():
    """Weights at both ends: a user weighs in one bin or none, and one who is replaced in two."""
    plain = NormHistogram(CHOSEN.domain, (1.0, 2.0, 4.0, 8.0, 16.0), 2, 1.5)
    bins = plain.most * np.eye(6, 5, dtype=object)  # and no bin
    for adjacency in (Adjacency.REPLACE_USER, Adjacency.ZERO_OUT_USER, Adjacency.ADD_REMOVE_USER):
        other = bins if adjacency is Adjacency.REPLACE_USER else bins[-1:]
        apart = [a - b for a in bins for b in other]
        for norm in (1, 2):
            moved = max((abs(x) ** norm).sum() for x in apart)
            assert plain.integer_sensitivity(norm, adjacency) ** norm == pytest.approx(moved)


def test_gradients_are_one_series():
    """One charge, T questions of one series."""
    protocol, users = replace(RISK, trust=TEN), RISK.example_users()
    session = Session(protocol, lambda i: SimulatedNoise(1, i))
    asked = set()
    while session.query is not None:
        asked.add((session.query.series, session.query.share.place))
        session.advance(ask(session, users.split(10)))
    assert len({series for series, _ in asked}) == 1
    assert sorted(place for _, place in asked) == list(range(protocol.steps))
    (charge,) = session.ledger.entries
    assert (charge.release.epsilon, charge.release.delta) == (protocol.epsilon, protocol.delta)
