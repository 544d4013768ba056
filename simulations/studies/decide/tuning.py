"""Settings that somebody must choose, and values of them worth trying on given users. NOT PRIVATE.

A clip, a number of slots, a number of samples and a range are public numbers of a protocol. Where
nobody has settled them, a decision tries several that suit the users in memory, and takes those
that theory likes best. That looks at the data, and is said.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.model.registry import parameters, protocol_class, protocols
from fedhist.protocols.shared.clipped_totals import user_norms
from fedhist.users.keys import Keys
from simulations.populations import Loaded

QUARTILES = (0.25, 0.5, 0.75)
PREMISE = {"tau_d": 0.1, "tau_c": 0.1}
"""Of the nodes, the shares that may drop out and collude, unless told otherwise."""


def common_settings(
    target: str, loaded: Loaded, suggested: Mapping[str, float], given: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what all protocols of a target are told, each what it has.

    ``suggested`` is the profile's; ``given`` is kept as it is.
    """
    known = {k for c in protocols().values() if c.target == target for k in parameters(c)}
    found: dict[str, Any] = dict(PREMISE)
    sizes = user_sizes(loaded)
    if len(sizes):
        found["samples_per_user"] = max(1, int(suggested.get("samples_per_user", 1)))
        found["m_max"] = max(1, int(sizes.max()))
    if "clip" in known and loaded.domain is not None:
        found["clip"] = max(1, math.ceil(float(np.median(sizes))))
    if loaded.users.samples is not None and loaded.value_range is None:
        found |= {k: suggested[k] for k in ("low", "high") if k in suggested}
    if "levels" in known:
        found["levels"] = list(QUARTILES)
    found["project"] = True  # free, and what anybody would do with shares
    found["discrete"] = True  # what a deployment draws, and what nodes can add
    kept = {k: v for k, v in found.items() if k in known or k in PREMISE}
    return {**kept, **given}


def user_sizes(loaded: Loaded) -> Floats:
    """Return how many samples, or items of the domain, each user has who has any."""
    users = loaded.users
    if users.samples is not None:
        sizes = np.diff(users.samples.indptr).astype(float)
    elif loaded.domain is not None:
        sizes = user_norms(users, loaded.domain)[0]
    else:
        items = users.counts
        sizes = np.add.reduceat(np.append(items.count, 0), items.indptr[:-1]).astype(float)
        sizes[np.diff(items.indptr) == 0] = 0
    return sizes[sizes > 0]


def variants(
    name: str, loaded: Loaded, delta: float, given: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return settings of a protocol that are worth trying; one empty dict where none is open."""
    known = parameters(protocol_class(name))
    if "clip" in known and "clip" not in given and loaded.domain is not None:
        return _clips(known, loaded, loaded.domain, delta)
    if "samples_per_user" in known and "samples_per_user" not in given:
        sizes = user_sizes(loaded)
        tried = {max(1, int(np.quantile(sizes, q))) for q in (0.0, 0.1, 0.5)} if len(sizes) else {1}
        if loaded.users.samples is not None and len(sizes):
            tried = {max(1, round(len(sizes) / float((1 / sizes).sum())))}
        return [{"samples_per_user": m} for m in sorted(tried)]
    return [{}]


def _clips(
    known: Sequence[str], loaded: Loaded, domain: Keys, delta: float
) -> list[dict[str, Any]]:
    """Return clips from the largest user's size downwards, each half of the last."""
    l1, l2 = user_norms(loaded.users, domain)
    if "delta" not in known:  # slots of a local protocol
        return [{"clip": int(c)} for c in sorted({math.ceil(x) for x in _halves(l1)})]
    laplace = [{"clip": c, "delta": 0.0} for c in _halves(l1)]
    return [*([{"clip": c} for c in _halves(l2)] if delta else []), *laplace]


def _halves(sizes: Floats) -> list[float]:
    """Return the largest size and its halves, down to a fourth of the median, in three digits."""
    sizes = sizes[sizes > 0]
    if not len(sizes):
        return [1.0]
    top, bottom = float(sizes.max()), max(float(np.median(sizes)) / 4, 1.0)
    steps = max(0, math.ceil(math.log2(top / bottom))) + 1
    found = [max(top / 2**i, 1.0) for i in range(steps)]
    return sorted({math.ceil(x) if i == 0 else float(f"{x:.3g}") for i, x in enumerate(found)})
