"""Under masks every protocol of aggregate trust gives the bits that it gives without."""

from __future__ import annotations

import pytest
from test_aggregate_contract import WHO, has_field, shared
from test_protocols import assert_same_estimate

from fedhist.model.registry import own_protocols, protocol_class
from simulations.runs.options import Options
from simulations.runs.run import execute

SEED = 20


@pytest.mark.parametrize("name", [name for name in own_protocols() if has_field(name)])
def test_same_estimate_under_masks(name: str) -> None:
    users = protocol_class(name).example_users()
    for protocol in shared(name)[:2]:
        ideal, masked = (
            execute(protocol, users, Options(seed=SEED, nodes=WHO.parties, aggregation=how))
            for how in ("ideal", "masked")
        )
        assert_same_estimate(masked.estimate, ideal.estimate)
        assert [r["replies"] for r in masked.rounds] == [WHO.parties] * len(ideal.rounds)
        assert masked.estimate.ledger is not None
        assert masked.estimate.ledger.aggregation == "masked"
