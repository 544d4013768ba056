"""Places in a sum are the server's to give: a node that wants another one gets none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from flwr.app import RecordDict
from masked_grids import SEED, FaultyGrid, expected, start, total_of
from test_masked_sums import NODES, PROTOCOL, N, without

from fedhist import Users
from fedhist.base.errors import MissingReplies
from fedhist.flower.masked_wire import decode_told, encode_told
from fedhist.privacy.aggregation import Aggregation
from fedhist.protocols import BoundedHistogram
from fedhist.secagg.messages import seal

MANY = 104
CROWD = Users.from_records({f"user-{i}": {"tea": 1 + i % 3, "rye": i % 2} for i in range(MANY)})
SPARSE = BoundedHistogram(
    domain=CROWD.vocabulary, clip=2.0, epsilon=1.0, grid=0.01, trust=Aggregation(MANY, 0.05, 0.05)
)


def at_place(record: RecordDict, place: int) -> RecordDict:
    told = decode_told(record)
    m = told.message
    moved = seal("keys.answer", m["session"], place, keys=m["keys"], signed=m["signed"])
    return encode_told("keys", told.digest, moved)


def test_who_claims_anothers_place_loses_its_own() -> None:
    grid = FaultyGrid(NODES, SEED)
    grid.changed_reply = lambda r, i, record: (
        at_place(record, 3) if (r, i) == ("keys", 0) else record
    )
    session, _ = start(grid, PROTOCOL)
    line = session.journal.find("masked", 0)
    assert line is not None
    assert line["nodes"] == without(0)  # and not without 3, which came later
    np.testing.assert_array_equal(total_of(session), expected(PROTOCOL, NODES, without(0)))


def seats(grid: FaultyGrid) -> list[int]:
    return [int(grid.sent["keys"][i].content["fedhist"]["node"]) for i in range(grid.n_nodes)]


def test_in_a_sparse_graph_places_are_drawn_by_the_server_and_stay(tmp_path: Path) -> None:
    nodes = CROWD.split(MANY)
    grid = FaultyGrid(nodes, SEED)
    grid.unseen = {"masked": range(20)}
    with pytest.raises(MissingReplies):
        start(grid, SPARSE, tmp_path / "run")
    first = seats(grid)
    assert sorted(first) == list(range(MANY))
    assert first != list(range(MANY))  # by chance with probability 1 / 104!
    with pytest.raises(MissingReplies, match="when it sent its vector for this query"):
        start(grid, SPARSE)  # a server that has forgotten them, or wishes for other ones
    grid.unseen = {}
    session, _ = start(grid, SPARSE, tmp_path / "run")
    assert seats(grid) == first
    np.testing.assert_array_equal(total_of(session), expected(SPARSE, nodes, range(MANY)))


def test_back_under_another_id(tmp_path: Path) -> None:
    """After a restart a node speaks for a place whose id has gone, and for no other."""
    grid = FaultyGrid(NODES, SEED)
    grid.unseen = {"unmask": range(N)}
    with pytest.raises(MissingReplies):
        start(grid, PROTOCOL, tmp_path)
    journal = tmp_path / "journal.jsonl"
    assert journal.read_text().count('"kind":"seated"') == 1
    back = Renumbered(NODES, SEED)
    back._nodes = grid._nodes
    session, strategy = start(back, PROTOCOL, tmp_path)
    np.testing.assert_array_equal(total_of(session), expected(PROTOCOL, NODES, range(N)))
    assert strategy.rounds[0]["replies"] == N


class Renumbered(FaultyGrid):
    """The same nodes, to which the SuperLink has given other ids."""

    def get_node_ids(self) -> list[int]:
        return [1000 + i for i in super().get_node_ids()]

    def index_of(self, message: object) -> int:
        return int(message.metadata.dst_node_id) - 1000 - min(super().get_node_ids())  # type: ignore[attr-defined]
