"""Records that reach far: what one user's record may become, to see how far it moves a sum."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedhist.base.arrays import Floats, Integers
from fedhist.privacy.guarantee import Adjacency
from fedhist.users.batch import Users

HUGE = 1 << 32
FAR = 1e6
EMPTY = "the empty record"


def extreme_records(users: Users, row: int, adjacency: Adjacency) -> dict[str, Users]:
    """Return batches of one user each, the user of a row with another record, by its name.

    Empty; all that it has in one place, in every place, in either half of them; little of it and
    much; what no honest user has. Under replacement of an item, its own record but for one.
    """
    ids = users.ids[row : row + 1]
    by_item = adjacency is Adjacency.REPLACE_ITEM
    if users.items is not None:
        named = _one_item_of_counts(users, row) if by_item else _counts(users, row)
        words = users.vocabulary
        return {
            name: Users.from_counts(ids, np.zeros(len(item), np.int64), item, count, words)
            for name, item, count in named
        }
    samples = _one_sample(users, row) if by_item else _samples(users, row)
    return {name: Users.from_samples(ids, [0, len(x)], x, unusable=True) for name, x in samples}


def _own_counts(users: Users, row: int) -> tuple[Integers, Integers]:
    c = users.counts
    own = slice(c.indptr[row], c.indptr[row + 1])
    return c.item[own].astype(np.int64), c.count[own].astype(np.int64)


def _counts(users: Users, row: int) -> Iterator[tuple[str, Integers, Integers]]:
    d = len(users.vocabulary)
    total = max(1, int(_own_counts(users, row)[1].sum()))
    every = np.arange(d)
    places = {
        "the first item": every[:1],
        "the middle item": every[d // 2 : d // 2 + 1],
        "the last item": every[-1:],
        "every item": every,
        "the first half": every[: (d + 1) // 2],
        "the second half": every[(d + 1) // 2 :],
        "even items": every[::2],
        "odd items": every[1::2],
    }
    yield EMPTY, every[:0], every[:0]
    for name, item in places.items():
        k = len(item)
        if k:
            yield f"{name} once", item, np.ones(k, np.int64)
            spread = np.full(k, total // k) + (np.arange(k) < total % k)
            yield f"{name} as often as before", item, spread
            yield f"{name} {HUGE} times", item, np.full(k, HUGE)


def _one_item_of_counts(users: Users, row: int) -> Iterator[tuple[str, Integers, Integers]]:
    d = len(users.vocabulary)
    item, count = _own_counts(users, row)
    yield "its own record", item, count
    if not len(item):
        return
    for other in {0, d // 2, d - 1}:
        yield (
            f"its own record with one {users.vocabulary[other]!r} more",
            np.append(item, other),
            np.append(count - (np.arange(len(item)) == 0), 1),
        )


def _points(d: int, row: int) -> dict[str, Floats]:
    """Name samples: constants, signs, axes, directions; near 0 and far away."""
    points = {f"{x:g}": np.full(d, x) for x in (-FAR, -1.0, 0.0, 0.3, 0.5, 0.75, 1.0, FAR)}
    for size in (1.0, FAR):
        signs = np.where(np.arange(d) % 2, -size, size)
        points |= {f"{size:g} with signs": signs, f"{size:g} with other signs": -signs}
        for axis in {0, d - 1}:
            one = np.zeros(d)
            one[axis] = size
            points |= {f"{size:g} on axis {axis}": one, f"{-size:g} on axis {axis}": -one}
    rng = np.random.default_rng(row)
    for number in range(4):
        away = rng.normal(size=d)
        points[f"direction {number}"] = away / np.linalg.norm(away)
        points[f"far in direction {number}"] = FAR * away
    return points


def _samples(users: Users, row: int) -> Iterator[tuple[str, Floats]]:
    own = _own_samples(users, row)
    T, d = max(1, len(own)), own.shape[1]
    yield EMPTY, own[:0]
    for name, x in _points(d, row).items():
        yield f"samples of {name}", np.tile(x, (T, 1))
    yield "samples far apart", np.where(np.arange(T)[:, None] % 2, -FAR, FAR) * np.ones(d)
    yield "one sample", np.ones((1, d))
    yield "many samples", np.ones((50 * T, d))
    yield "infinite samples", np.full((T, d), np.inf)


def _one_sample(users: Users, row: int) -> Iterator[tuple[str, Floats]]:
    own = _own_samples(users, row)
    yield "its own record", own
    for name, x in _points(own.shape[1], row).items() if len(own) else ():
        yield f"its own record with a sample of {name}", np.vstack([own[1:], x])


def _own_samples(users: Users, row: int) -> Floats:
    s = users.reals
    return s.values[s.indptr[row] : s.indptr[row + 1]]
