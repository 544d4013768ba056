"""A server that believes what it is told. NOT SAFE: for evaluation only."""

from __future__ import annotations

import numpy as np

from fedhist.base.errors import WireError
from fedhist.model.query import Query, Report, Summary
from fedhist.session.session import Session
from server.intake import Intake

UNFIT = "cannot be added up, users"
INDEX_NAMES, MOST_INDEX = ("item", "index"), 1 << 24
"""A server that counts by index without looking makes a table as long as the largest one."""


class UncheckedSession(Session):
    """A session whose server believes what it is told. NOT SAFE: for evaluation only."""

    def _check(self, query: Query, summary: Summary) -> None:
        """Check nothing."""


class UncheckedIntake(Intake):
    """Uses whatever can be added up, however often and to whatever question it comes. NOT SAFE."""

    def use(
        self, node: int, digest: str, body: Summary | Report, source: int | None = None
    ) -> bool:
        """Keep what can be folded."""
        try:
            with np.errstate(all="ignore"):
                summary = body if isinstance(body, Summary) else _folded(self.query, body)
        except Exception:  # whatever a server that does not check stumbles over
            self.dropped[UNFIT] += body.n_users
            return False
        source = node if source is None else source
        self._index.setdefault(source, node)
        self._wait(source, summary)
        return True

    def _merged(self, leaves: dict[int, list[Summary]]) -> Summary:
        """Add up whatever can be added to the first that looks honest."""
        parts = [(index, part) for index, found in leaves.items() for part in found]
        with np.errstate(all="ignore"):
            first = min(parts, key=lambda at: not _fits(self.query, at[1]))
            total = Summary.merge([first[1]])
            kept: dict[int, list[Summary]] = {}
            for index, part in parts:
                try:
                    if part is not first[1]:
                        total = Summary.merge([total, part])
                except WireError:
                    self.dropped[UNFIT] += part.n_users
                else:
                    kept.setdefault(index, []).append(part)
            return super()._merged(kept)


def _folded(query: Query, report: Report) -> Summary:
    for name, a in (*report.arrays.items(), *report.ragged.items()):
        if name in INDEX_NAMES and a.size and not a.max() <= MOST_INDEX:
            raise WireError(f"{name!r} needs a table of {a.max()} counts")
    return query.fold(report)


def _fits(query: Query, summary: Summary) -> bool:
    try:
        query.check_part(summary)
    except WireError:
        return False
    return True
