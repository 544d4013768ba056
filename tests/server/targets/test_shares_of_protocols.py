"""Protocols whose nodes add the noise: quorum, dropped nodes, charges, refusals."""

from dataclasses import replace

import pytest

from clients.answers import fold_node
from fedhist import protocols as fp
from fedhist.model.codec import query_digest
from fedhist.privacy.shares import Aggregation
from fedhist.users.keys import Keys
from server.intake import Intake
from server.noise import SimulatedNoise
from server.session.session import Session

TEN = Aggregation(10)
COUNTS = fp.PoissonCounts(Keys.of(["お茶", "rye"]), 1.0, 400, clip=4, discrete=True, debias=False)
DRINKS = replace(fp.Distribution.example(), epsilon=4.0, project=False)
BOX = replace(fp.BoxMean.example(), discrete=True)
CURVE = replace(fp.CentralDensity.example(), discrete=True, shrink=False, project=False)
CHOSEN = fp.AdaptiveHistogram(
    fp.BoundedHistogram.example().domain, 4.0, 1e-6, threshold="dp-sgd", discrete=True
)
RISK = replace(fp.UserLevelErm.example(), discrete=True)


def ask(session, parts, seed=1, missing=()):
    """Ask all nodes but some, as the runtimes do."""
    query = session.query
    intake = Intake(query, query_digest(query, session.round_index), "stop")
    for i, users in enumerate(parts):
        if i not in missing:
            part = fold_node(query, users.select(query.cohort), seed, intake.digest, i)
            intake.add(i, part)
    return intake.total(len(parts), None).summary


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
    many = fp.Distribution(Keys.range(3000), 1.0, 2, 20_000, delta=1e-6, p_max=1e-3, trust=TEN)
    assert many.chosen.linear is not None
    assert replace(many, trust=Aggregation(1000)).chosen.name in ("laplace", "presence-laplace")
    few = replace(fp.Distribution.example(), trust=TEN)
    assert few.chosen.name == "laplace"


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
