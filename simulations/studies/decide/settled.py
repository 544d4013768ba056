"""Who takes part in a decision, with which settings, and what theory says of each.

Protocols are settled by the comparison's own rules (one adjacency, one budget, one truth, one
loss); what it would leave out or not rank is left out here, with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from fedhist.model.evaluation import measured
from fedhist.model.losses import SQUARED_L2
from fedhist.model.protocol import Protocol
from fedhist.model.registry import display_of, parameters, protocol_class
from fedhist.model.truths import Truth
from fedhist.privacy.guarantee import Adjacency, Trust
from simulations.populations import KINDS, Loaded
from simulations.runs.config import Config, population_spec
from simulations.studies.compare.config import Comparison, comparison_of
from simulations.studies.compare.ladder import Entry
from simulations.studies.compare.setup import Ready, set_up
from simulations.studies.decide.question import Question
from simulations.studies.decide.tuning import PREMISE, common_settings, variants
from simulations.studies.plan.population import Template, TooLarge, Unknown
from simulations.studies.plan.search import REASONS, Oracle, scale
from simulations.studies.profile.profile import Profile, profile_of
from simulations.studies.records.cells import load_once
from simulations.studies.records.levels import premise_keys, suffix
from simulations.studies.records.summary import unit_of

RANKS = "rank"
ADJACENCY = Adjacency.REPLACE_USER
"""Of all levels: the one that all can state."""
USUAL_EPSILON = 4.0
"""At which protocols are settled where epsilon is solved for."""
COARSE = (0.25, 1.0, 4.0, 16.0, 64.0)
KEPT = 3
"""Settings of a protocol that are planned, of those that were tried."""
USUAL_TRUTH = {"distribution": Truth.AVERAGE_OF_USERS}
"""What errors are about unless told: users' shares mean that every user weighs the same."""
MOST_ITEMS = 1000
"""Of the domain, where none is given: the most frequent items."""
NOT_READ = {*PREMISE, "levels", "project", "discrete"}
"""Common settings that no look at the users chose."""


@dataclass(frozen=True)
class Measure:
    """The loss of a decision, and how it is said.

    Attributes
    ----------
    loss : str
        In which theory and simulation are stated.
    zero : float
        Loss of an estimate that is 0 everywhere. NOT PRIVATE.
    relative : bool
    target : str
    entries : int
        Of the answer.
    """

    loss: str
    zero: float
    relative: bool
    target: str
    entries: int = 0

    @property
    def squared(self) -> bool:
        """Whether the loss is the square of what is said: its root is."""
        return self.loss == SQUARED_L2

    @property
    def ranked(self) -> bool:
        """Whether the loss is a share by itself, of the users' ranks."""
        return RANKS in self.loss

    @property
    def divides(self) -> bool:
        """Whether the planner shall divide by the answer's size."""
        return self.relative and not self.ranked

    def asked(self, error: float) -> float:
        """Return a target in the planner's numbers."""
        return error**2 if self.squared else error

    def shown(self, loss: float | None) -> float | None:
        """Return a loss as it is said: a share of the answer's size if relative, or itself."""
        if loss is None:
            return None
        share = loss / self.zero if self.divides and self.zero else loss
        return math.sqrt(share) if self.squared and share >= 0 else share

    def of_plan(self, predicted: float) -> float:
        """Return a planner's prediction, which is divided already, as it is said."""
        return math.sqrt(predicted) if self.squared else predicted

    @property
    def words(self) -> str:
        """Name the error and its unit."""
        if self.ranked:
            return "largest rank error, in per cent of the users" if self.relative else self.loss
        own = "root mean squared distance (l2)" if self.squared else f"{self.loss} distance"
        if not self.relative:
            unit = display_of(self.target).unit
            return f"{own}, in {unit}" if unit else own
        return f"{own}, in per cent of the answer's own (100% is what answering 0 everywhere costs)"

    def write(self, shown: float | None) -> str:
        """Write an error as it is said."""
        if shown is None or math.isnan(shown):
            return "-"
        if math.isinf(shown):
            return "none"
        if not self.relative:
            return f"{shown:,.0f}" if shown >= 1000 else f"{shown:.3g}"
        percent = 100 * shown
        return f"{percent:,.0f}%" if percent >= 99.95 else f"{percent:.3g}%"

    @property
    def axis(self) -> str:
        """Name the error for a figure."""
        return "error, % of the answer's size" if self.divides else unit_of(self.loss, self.target)


@dataclass(frozen=True)
class Candidate:
    """One protocol on one level, with one choice of its settings.

    Attributes
    ----------
    title : str
        The protocol's name, and its method where it has several rows.
    level : Trust
    entry : Entry
        For the comparison.
    table : mapping
        The complete table [protocol], for the planner.
    chosen : mapping
        What was chosen by looking at the users; empty for what needs nothing.
    """

    title: str
    level: Trust
    entry: Entry
    table: Mapping[str, Any]
    chosen: Mapping[str, Any]

    @property
    def settings(self) -> str:
        """Say what was chosen, in a few words."""
        said = []
        for key, value in self.chosen.items():
            if key == "delta":
                continue
            said.append(
                f"{key} = {value:,.6g}" if isinstance(value, float | int) else f"{key} = {value}"
            )
        if "clip" in self.chosen and "delta" in parameters(protocol_class(str(self.table["name"]))):
            laplace = not self.table.get("delta")
            said.append("Laplace, l1" if laplace else "Gaussian, l2")
        return ", ".join(said)


@dataclass(frozen=True)
class Settled:
    """A question whose participants are known.

    Attributes
    ----------
    question : Question
    comparison : Comparison
        Which simulations are taken from.
    ready : Ready
    measure : Measure
    loaded : Loaded
    profile : Profile
    candidates : tuple of Candidate
    left_out : tuple of (str, str)
        Protocols, and why they are not considered.
    read : tuple of str
        What was chosen by looking at the users.
    asked : dict
        What theory has said already.
    """

    question: Question
    comparison: Comparison
    ready: Ready
    measure: Measure
    loaded: Loaded
    profile: Profile
    candidates: tuple[Candidate, ...]
    left_out: tuple[tuple[str, str], ...]
    read: tuple[str, ...]
    asked: dict[tuple[str, str, float], float] = field(default_factory=dict, compare=False)

    def titles(self, level: Trust) -> list[str]:
        """Name the protocols of a level."""
        return list(dict.fromkeys(c.title for c in self.candidates if c.level is level))

    def of(self, level: Trust, title: str) -> list[Candidate]:
        """Return the settings of a protocol on a level."""
        return [c for c in self.candidates if c.level is level and c.title == title]

    def config(self, candidate: Candidate, epsilon: float | None = None) -> Config:
        """Return a candidate as a configuration."""
        table = dict(candidate.table) | ({} if epsilon is None else {"epsilon": epsilon})
        return Config(candidate.title, self.question.run, table, self.question.population)

    def oracle(self, candidate: Candidate, unknown: Unknown = "epsilon") -> Oracle:
        """Return theory's error of a candidate as a function of the unknown."""
        m = self.measure
        return Oracle(Template(self.config(candidate), unknown), relative=m.divides, loss=m.loss)

    def predicted(self, candidate: Candidate, epsilon: float) -> float:
        """Return theory's error as it is said; infinite where there is none."""
        place = candidate.entry.label, candidate.settings, epsilon
        if place not in self.asked:
            try:
                self.asked[place] = self.measure.of_plan(self.oracle(candidate)(epsilon).error)
            except (TooLarge, *REASONS):
                self.asked[place] = math.inf
        return self.asked[place]


def runs_of(seeds: int, entries: int) -> int:
    """Return how many runs it takes: a mean of one number says less than one of many entries.

    >>> runs_of(5, 1), runs_of(5, 4), runs_of(5, 1000)
    (20, 10, 5)
    """
    return math.ceil(seeds * max(1.0, 4 / math.sqrt(entries)))


def settle(question: Question) -> Settled:
    """Load the users, and settle who takes part.

    Raises
    ------
    ValueError, PopulationError
        If the users cannot be read, or nothing estimates the target.
    """
    question, loaded = _loaded(question)
    profile = profile_of(
        loaded, epsilon=question.epsilon or 1.0, delta=question.delta, adjacency=ADJACENCY
    )
    common = common_settings(question.target, loaded, profile.suggested, question.common)
    if Trust.AGGREGATE not in question.levels:
        common = {k: v for k, v in common.items() if k not in PREMISE or k in question.common}
    usual = USUAL_TRUTH.get(question.target)
    truth = question.truth or (usual.value if usual else "")
    tables = {
        "compare": {
            "target": question.target,
            "epsilon": question.epsilon or USUAL_EPSILON,
            "delta": question.delta,
            "trust": [t.value for t in question.levels],
            "seeds": question.seeds,
            "without": [*question.without],
            **({"truth": truth} if truth else {}),
        },
        "protocol": common,
        "population": dict(question.population),
        "run": {
            "runtime": "inline",
            "seed": question.run.seed,
            "nodes": question.run.nodes,
            "plugins": list(question.run.plugins),
        },
    }
    comparison = comparison_of(tables, question.name, question.name)
    ready = set_up(comparison)
    out = [(x.label, x.reason) for x in ready.left_out]
    measure = _measure(question, ready, loaded)
    runs = runs_of(question.seeds, measure.entries)
    question = replace(question, seeds=runs)
    first = comparison.seeds[0]
    comparison = replace(comparison, seeds=tuple(range(first, first + runs)))
    found = []
    for c in ready.contenders:
        if c.flags or c.level is None:
            out.append((c.label, "; ".join(c.flags)))
            continue
        entry = next(e for e in comparison.entries if e.label == c.label)
        for own in variants(str(c.table["name"]), loaded, question.delta, question.common):
            entry_now = replace(entry, table={**entry.table, **own}, named=True)
            title = c.label.removesuffix(suffix(c.level))
            found.append(Candidate(title, c.level, entry_now, {**c.table, **own}, own))
    read = [*loaded.not_private]
    looked = sorted(common.keys() - question.common.keys() - NOT_READ)
    looked += sorted({k for c in found for k in c.chosen} - {*looked, "delta"})
    if looked:
        read.append(
            f"{', '.join(looked)}: chosen by looking at these users; a deployment takes them as "
            "public numbers"
        )
    return Settled(
        question,
        comparison,
        ready,
        measure,
        loaded,
        profile,
        tuple(found),
        _merged(out),
        tuple(read),
    )


def _loaded(question: Question) -> tuple[Question, Loaded]:
    """Load the users; items without a domain get the most frequent ones, and that is said."""
    config = Config(question.name, question.run, {"name": ""}, question.population)
    loaded = load_once(question.population, population_spec(config))
    keys = {f.name for f in fields(KINDS[str(question.population["kind"])])}
    if loaded.domain is not None or loaded.users.samples is not None or "top" not in keys:
        return question, loaded
    items = loaded.users.counts
    held = np.bincount(items.item, weights=items.count, minlength=len(items.vocabulary))
    most = min(MOST_ITEMS, int(np.count_nonzero(held)))
    asked = replace(question, population={**question.population, "top": most})
    return asked, load_once(
        asked.population, population_spec(replace(config, population=asked.population))
    )


def taken_by(common: Mapping[str, Any], candidates: Sequence[Candidate]) -> dict[str, Any]:
    """Return the common settings that some candidate has, on its level."""
    known: set[str] = set()
    for c in candidates:
        cls = protocol_class(str(c.table["name"]))
        known |= {*parameters(cls), *premise_keys(cls, c.level), *c.table}
    return {k: v for k, v in common.items() if k in known}


def _measure(question: Question, ready: Ready, loaded: Loaded) -> Measure:
    first = next((c for c in ready.contenders if not c.asked), ready.contenders[0])
    protocol: Protocol = first.protocol
    users = loaded.users
    known = measured(protocol, users)
    zero = scale(protocol, users, known)
    truth = np.asarray(known.truth, dtype=np.float64)
    if known.error.loss != ready.loss:
        sizes = {
            "l1": float(np.abs(truth).sum()),
            "l2": float(np.sqrt(np.square(truth).sum())),
            "squared l2": float(np.square(truth).sum()),
            "linf": float(np.abs(truth).max(initial=0.0)),
        }
        zero = sizes[ready.loss]
    return Measure(ready.loss, zero, question.relative, question.target, truth.size)


def _merged(out: list[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Put together what is left out for one reason."""
    of: dict[str, list[str]] = {}
    for label, reason in out:
        of.setdefault(reason, []).append(label)
    return tuple(("; ".join(dict.fromkeys(labels)), reason) for reason, labels in of.items())
