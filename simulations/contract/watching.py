"""A run that is watched: what was asked, and what the Curator was told, drew, charged and gave."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedhist.base.chained_log import Line
from fedhist.model.protocol import Estimate, Protocol
from fedhist.model.query import Query, Summary
from fedhist.privacy.ledger import Entry, Ledger
from server.noise import SimulatedNoise
from server.session.curator import Curator
from server.session.journal import Journal


@dataclass(frozen=True)
class Draw:
    """One call of a noise source: its method, the size that was asked for, and what came.

    ``index`` is the number of the release that the source is for.
    """

    kind: str
    size: Any
    values: Any
    index: int


@dataclass
class Act:
    """One call of the Curator.

    Attributes
    ----------
    method : str
    exact : object
        The exact value, or the scores: the first argument. NOT PRIVATE.
    told : dict
        The other arguments; of a release of a series those of the series as well.
    draws : list of Draw
    charges : tuple of Entry
        What the call has added to the ledger.
    given : object
        What was released.
    """

    method: str
    exact: Any
    told: Mapping[str, Any]
    draws: list[Draw] = field(default_factory=list)
    charges: tuple[Entry, ...] = ()
    given: Any = None

    @property
    def label(self) -> str:
        """Name of the release."""
        return f"{self.told.get('label') or self.method!r}"


class WatchedNoise:
    """A noise source that notes its draws."""

    grade = "simulated"

    def __init__(self, index: int, seed: int, note: Callable[[Draw], None]) -> None:
        self._index, self._source, self._note = index, SimulatedNoise(seed, index), note

    def __getattr__(self, kind: str) -> Callable[..., Any]:
        """Return a method of the source that notes the last argument, and what is drawn."""

        def draw(*arguments: Any) -> Any:
            values = getattr(self._source, kind)(*arguments)
            self._note(Draw(kind, arguments[-1] if arguments else None, values, self._index))
            return values

        return draw


class WatchedCurator(Curator):
    """A Curator that notes what it is told, what it draws and what it charges."""

    def __init__(self, ledger: Ledger, seed: int, journal: Journal) -> None:
        super().__init__(ledger, self._source, journal)
        self._seed = seed
        self.acts: list[Act] = []

    def _source(self, index: int) -> Any:
        return WatchedNoise(index, self._seed, self._note)

    def _note(self, draw: Draw) -> None:
        self.acts[-1].draws.append(draw)

    def watched(self, act: Act, call: Callable[[], Any]) -> Any:
        """Make a call and note what comes of it."""
        before = len(self.ledger.entries)
        self.acts.append(act)
        act.given = call()
        act.charges = self.ledger.entries[before:]
        return act.given

    def gaussian_series(self, rounds: int, **told: Any) -> Callable[[Any, float], Any]:
        """Watch the charge, and each release with the number of its round."""
        act = Act("gaussian_series", None, {"rounds": rounds, **told})
        release = self.watched(
            act, lambda: super(WatchedCurator, self).gaussian_series(rounds, **told)
        )
        place = iter(range(rounds + 1))

        def one(value: Any, l2_sensitivity: float) -> Any:
            more = {"l2_sensitivity": l2_sensitivity, "place": next(place), "series": act}
            part = Act("series_release", _copy(value), {**act.told, **more})
            return self.watched(part, lambda: release(value, l2_sensitivity))

        return one


def _copy(value: Any) -> Any:
    return np.array(value) if isinstance(value, np.ndarray | list | tuple) else value


def _watch(name: str) -> Any:
    original = getattr(Curator, name)
    signature = inspect.signature(original)

    def call(self: WatchedCurator, *arguments: Any, **told: Any) -> Any:
        bound = signature.bind(self, *arguments, **told)
        bound.apply_defaults()
        _, first, *_ = bound.arguments
        others = {k: v for k, v in bound.arguments.items() if k not in ("self", first)}
        act = Act(name, _copy(bound.arguments[first]), others)
        return self.watched(act, lambda: original(self, *arguments, **told))

    return call


for _name in vars(Curator).keys() - vars(WatchedCurator).keys() - {"holds", "grade"}:
    if not _name.startswith("_"):
        setattr(WatchedCurator, _name, _watch(_name))


@dataclass(frozen=True)
class Watch:
    """What a watched run was.

    Attributes
    ----------
    estimate : Estimate
    asked : list of (Query, Summary)
        The summaries are copies. NOT PRIVATE.
    acts : list of Act
    journal : Journal
        Its releases alone: another run that is given it releases the same.
    """

    estimate: Estimate
    asked: list[tuple[Query, Summary]]
    acts: list[Act]
    journal: Journal

    def but_the_last_release(self) -> Journal:
        """Return a journal of all releases but the last."""
        lines: list[Line] = []
        while (line := self.journal.find("release", len(lines))) is not None:
            lines.append(line)
        journal = Journal()
        for line in lines[:-1]:
            journal.append(line)
        return journal


def watch(
    protocol: Protocol,
    ask: Callable[[Query, int], Summary],
    seed: int,
    journal: Journal | None = None,
) -> Watch:
    """Drive a script as a Session does, and note everything; what ``journal`` holds is released."""
    journal = Journal() if journal is None else journal
    curator = WatchedCurator(Ledger(protocol.guarantee), seed, journal)
    script = protocol.rounds(curator)
    asked: list[tuple[Query, Summary]] = []
    summary: Summary | None = None
    while True:
        try:
            query = next(script) if summary is None else script.send(summary)
        except StopIteration as stop:
            return Watch(stop.value, asked, curator.acts, journal)
        query = protocol.asks(query, len(asked))
        summary = ask(query, len(asked))
        asked.append((query, Summary.merge([summary])))
        curator.holds(query)
