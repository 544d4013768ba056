"""Records that reach far: what one user's record may become, to see how far it moves a sum."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from fedhist.privacy.guarantee import Adjacency
from fedhist.users.batch import Users
from simulations.audit.inputs import ItemSpace, space_of

EMPTY = "the empty record"


def extreme_records(users: Users, row: int, adjacency: Adjacency) -> dict[str, Users]:
    """Return batches of one user each, the user of a row with another record, by its name.

    Empty, and the records that the auditor compares. Under replacement of an item, its own record
    but for one.
    """
    if adjacency is Adjacency.REPLACE_ITEM:
        named = dict(_one_item(users, row))
    else:
        space = space_of((), users)
        records = enumerate(space.extremes(np.random.default_rng(row)))
        named = {f"record {i}: {space.words(x)}": space.user(x, 0) for i, x in records}
        named[EMPTY] = space.user(space.nothing, 0)
    return {name: replace(one, ids=users.ids[row : row + 1]) for name, one in named.items()}


def _one_item(users: Users, row: int) -> Iterator[tuple[str, Users]]:
    """Go through records with an item or a sample in place of one of the user's."""
    one = users.slice(row, row + 1)
    space = space_of((), one, single=True)
    yield "its own record", one
    if isinstance(space, ItemSpace):
        (own,) = space.real
        for other in {0, len(users.vocabulary) // 2, len(users.vocabulary) - 1} if own else ():
            changed = Counter(own) - Counter([next(iter(own))]) + Counter([other])
            yield (
                f"its own record with one {users.vocabulary[other]!r} more",
                space.user(changed, 0),
            )
        return
    for x in space.extremes(np.random.default_rng(row)) if one.n_items()[0] else ():
        if np.isfinite(x).all():
            record = np.concatenate([one.reals.values[1:], x])
            yield f"its own record with {space.words(x)}", space.user(record, 0)
