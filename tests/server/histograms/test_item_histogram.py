"""The baseline that protects one record: its sensitivity, its noise, and what it says of itself."""

import fedhist as fh
from server.histograms.item_histogram import ItemHistogram

DOMAIN = fh.Keys.of(["a", "b"])


def test_it_promises_nothing_about_a_user() -> None:
    protocol = ItemHistogram(DOMAIN, 1.0)
    guarantee = protocol.guarantee
    assert (guarantee.unit, guarantee.trust) == ("item", fh.Trust.CENTRAL)
    assert guarantee.adjacency is fh.Adjacency.REPLACE_ITEM
    estimate = fh.run(protocol, fh.Users.from_records({"u": {"a": 3}}), seed=0)
    assert any("NOT for a user" in w for w in estimate.warnings)
