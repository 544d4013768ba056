"""A round under way, kept at intervals: a run that is killed asks only who is not in its sums yet.

What is kept may be exact. It lies in the journal's folder as exact summaries do, and no longer: see
:meth:`fedhist.session.journal.Journal.keep_partial`.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedhist.base.errors import WireError
from fedhist.model.trees import Tree
from fedhist.session.codec import array_from_json, array_to_json, summary_arrays, summary_of_arrays
from fedhist.session.journal import Journal

FORMAT = 2
EVERY = 15.0
"""Seconds between two writes, at least."""
COST = 20
"""So many times what a write took pass before the next: keeping costs 5 % at most."""
SHARE = 0.01
"""Of the round, that must be new."""
SEAL = 64
"""Characters of the hash that what is kept begins with."""


@dataclass(frozen=True)
class State:
    """The sums of a round so far.

    Attributes
    ----------
    nodes : Tree
        Over the indices of the nodes that are in.
    done : frozenset of int
        Which these are.
    sizes : dict of str to int
        Largest sizes of what was added up, by part.
    n_bytes : int
        Received.
    at, walked, blocks
        A node under way, the number of its blocks that are in, and their tree; -1: there is none.
    """

    nodes: Tree
    done: frozenset[int]
    sizes: Mapping[str, int] = field(default_factory=dict)
    n_bytes: int = 0
    at: int = -1
    walked: int = 0
    blocks: Tree = field(default_factory=Tree)


class PartialRound:
    """Keeps one round's sums, and finds those that a killed process has kept.

    Parameters
    ----------
    journal : Journal
    index : int
        Of the round.
    digest : str
        Of its query.
    of : str
        Names who is asked and how; sums of others are not gone on from.
    """

    def __init__(self, journal: Journal, index: int, digest: str, of: str) -> None:
        self._journal, self._index, self._digest = journal, index, digest
        self._of = f"{journal.drawn_name} {of}"
        self._share, self._pause, self._last = 0.0, EVERY, time.monotonic()

    def offer(self, share: float, state: Callable[[], State]) -> None:
        """Keep the sums of so large a share of the round, if it is time for it."""
        if time.monotonic() - self._last < self._pause or share - self._share < SHARE:
            return
        started = time.monotonic()
        text = json.dumps(self._body(state())).encode()
        self._journal.keep_partial(self._index, _sealed(text) + text)
        self._last = time.monotonic()
        self._share, self._pause = share, max(EVERY, COST * (self._last - started))

    def found(self) -> State | None:
        """Return what this run kept of this very round, of the same users, unaltered; else None."""
        raw = self._journal.partial(self._index)
        if raw is None or raw[:SEAL] != _sealed(raw[SEAL:]):
            return None
        try:
            body = json.loads(raw[SEAL:])
            if [body[k] for k in ("format", "digest", "of")] != [FORMAT, self._digest, self._of]:
                return None
            edges = np.array(body["done"], dtype=np.int64).reshape(-1, 2).tolist()
            state = State(
                _tree(body["nodes"]),
                frozenset(i for a, b in edges for i in range(a, b)),
                body["sizes"],
                body["n_bytes"],
                body["at"],
                body["walked"],
                _tree(body["blocks"]),
            )
        except (ValueError, KeyError, TypeError, WireError):  # of another version: all are asked
            return None
        self._share = 0.0
        return state

    def _body(self, state: State) -> dict[str, Any]:
        done = np.array(sorted(state.done), dtype=np.int64)
        cuts = np.flatnonzero(np.diff(done) != 1) + 1
        runs = [[int(run[0]), int(run[-1]) + 1] for run in np.split(done, cuts) if len(run)]
        return {
            "format": FORMAT,
            "digest": self._digest,
            "of": self._of,
            "done": runs,
            "sizes": dict(state.sizes),
            "n_bytes": state.n_bytes,
            "nodes": _parts(state.nodes),
            "at": state.at,
            "walked": state.walked,
            "blocks": _parts(state.blocks),
        }


def _sealed(text: bytes) -> bytes:
    return hashlib.sha256(text).hexdigest().encode()


def _parts(tree: Tree) -> list[list[Any]]:
    return [
        [level, index, s.n_users, {k: array_to_json(a) for k, a in summary_arrays(s).items()}]
        for (level, index), s in tree.parts.items()
    ]


def _tree(parts: list[list[Any]]) -> Tree:
    tree = Tree()
    for level, index, n_users, arrays in parts:
        read = {k: array_from_json(a) for k, a in arrays.items()}
        tree.add(index, summary_of_arrays(n_users, read), level)
    return tree
