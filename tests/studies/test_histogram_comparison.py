"""The built-in comparison of histograms: what is lost without a server, and what is not private."""

from __future__ import annotations

from fedhist.privacy.guarantee import Trust
from simulations.studies.compare.config import load_comparison
from simulations.studies.compare.setup import set_up


def test_it_has_every_kind() -> None:
    ready = set_up(load_comparison("histogram", ["population.n_users=300", "compare.seeds=1"]))
    local = [c for c in ready.contenders if c.protocol.guarantee.trust is Trust.LOCAL]
    assert {getattr(c.protocol, "oracle", "") for c in local} == {"auto", "hadamard"}
    assert not any(c.flags for c in local)
    central = [c for c in ready.contenders if c.protocol.guarantee.trust is Trust.CENTRAL]
    assert {c.protocol.name for c in central if not c.flags} >= {
        "adaptive-histogram",
        "bounded-histogram",
        "unbounded-histogram",
    }
    (item,) = [c for c in ready.contenders if c.protocol.guarantee.unit == "item"]
    assert item.protocol.name == "item-histogram"
    assert item.flags == ("item-level: does not protect a user",)
    assert any(not c.protocol.guarantee.private for c in ready.contenders)
