"""What the server of an aggregate run sees at its best: the least noise that it can be left with.

Of the N nodes as many drop out, and as many collude, as the trust allows; neither hold users, since
the server would subtract what a colluder tells it. All users are on the M other nodes. The
colluders' words are known and are taken off the total: M shares of noise stand before the users.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhist.model.aggregated import Aggregated
from fedhist.model.query import Summary
from fedhist.users.batch import Users
from fedhist.users.streams import SeededStreams

NodeHalf = Callable[[Any, Users, int, str, int], Summary]
"""What a node sends: for a query, its users, the run's seed, the digest and the node's index."""


def integers_of(query: Aggregated, words: Summary) -> NDArray[np.int64]:
    """Read words as signed integers, whoever has sent them: (d,), in the order of their names."""
    signed = f"int{8 * query.modular.itemsize}"
    parts = [a.view(signed).astype(np.int64).ravel() for _, a in sorted(words.sums.items())]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


def exact_integers(query: Aggregated, users: Users) -> NDArray[np.int64]:
    """Return the users' exact sums, in the same order: (d,)."""
    batch = users.select(query.cohort)
    sums = query.query.answer_folded(batch, lambda u: SeededStreams(u.ids, 0, "")).sums
    parts = [a.astype(np.int64).ravel() for _, a in sorted(sums.items())]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


def dealt(users: Users, n_nodes: int) -> list[Users]:
    """Deal users to nodes by their ids, which are public: a user who leaves moves nobody else."""
    at = users.ids % np.uint64(n_nodes)
    return [users.take(np.flatnonzero(at == i)) for i in range(n_nodes)]
