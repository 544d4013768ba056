"""What a decision is about: the users, the one error, and who may answer. NOT PRIVATE.

A candidate is a protocol on a level of trust, with its settings. It is asked two things: the
expected error at one epsilon (its closed form, or a few simulated runs), and fresh runs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.base.errors import FedhistError
from fedhist.base.origin import in_words
from fedhist.model.evaluation import Facts, measured
from fedhist.model.protocol import Estimate, Protocol
from fedhist.model.registry import display_of, parameters, protocols
from fedhist.model.truths import L1, L2, SQUARED_L2, Truth, l1, l2, squared_l2
from fedhist.privacy.guarantee import Adjacency, Trust
from fedhist.users.batch import Users
from server.predictor import Repeated
from server.targets.domains import user_norms
from server.targets.sample_sizes import samples_held
from simulations.populations import KINDS, Loaded, numbered_ids
from simulations.populations.facts import bins_of_whole_numbers, facts_of
from simulations.runs.config import Config, RunTable, population_spec, prepare
from simulations.studies.cells import load_once
from simulations.studies.decide.profile import Profile, profile_of
from simulations.studies.decide.question import Question
from simulations.studies.levels import (
    NOBODY_THERE,
    OF_NATIVE,
    excess_of,
    flags_of,
    methods_of,
    other_adjacency,
    premise_keys,
    setting_of,
)
from simulations.studies.losses import SQUARES, Exact, of_items, over

ADJACENCY = Adjacency.REPLACE_USER
"""Of all levels: the one that all can state."""
NORMS = {L1: l1, L2: l2, SQUARED_L2: squared_l2}
RANKS = "rank error"
"""The loss that is a share by itself."""
MOST_ITEMS = 1000
"""Of the domain, where none is given: the most frequent items."""
QUARTILES = (0.25, 0.5, 0.75)
PREMISE = {"tau_d": 0.1, "tau_c": 0.1}
"""Of the nodes, the shares that may drop out and collude, unless told otherwise."""
TRIED = (1.0, 8.0, 0.125)
"""Values of epsilon at which a protocol must be buildable to be a candidate: one of them."""
MOST_CLIPS = 8
"""Settings of one protocol and kind of noise that are tried."""
FRESH = 1 << 20
"""Runs of verification have these numbers and up: other coins than any run of the search."""


@dataclass(frozen=True)
class Measure:
    """The error of a decision: one object from the search to the sentence. NOT PRIVATE.

    Attributes
    ----------
    loss : str
        Of one run. Errors are its mean, or the root of the mean of a squared loss.
    about : Truth
    truth : Exact
        What every protocol's estimate is held against.
    relative : bool
        Whether errors are shares of ``size``.
    size : float
        Error of answering 0 everywhere; 1 for ranks, which are shares by themselves.
    target : str
    """

    loss: str
    about: Truth
    truth: Exact
    relative: bool
    size: float
    target: str

    @property
    def squared(self) -> bool:
        """Whether an error is the root of the mean loss."""
        return self.loss in SQUARES

    def of_run(
        self, protocol: Protocol, estimate: Estimate, users: Users, known: Facts | None
    ) -> float:
        """Return the loss of one run."""
        norm = NORMS.get(self.loss)
        if norm is None:
            return protocol.loss_of(estimate, users, known=known)
        value = np.asarray(estimate.value, dtype=np.float64)
        value = over(value, estimate.keys, self.truth.keys)
        if value.shape != self.truth.value.shape:
            raise ValueError(
                f"{protocol.name} answers {value.shape}, the truth has {self.truth.value.shape}"
            )
        return norm(value, self.truth.value)

    def stated(self, loss: float) -> float:
        """Return the error that a mean loss is."""
        error = math.sqrt(max(loss, 0.0)) if self.squared else loss
        if not self.relative:
            return error
        return error / self.size if self.size > 0 else math.inf

    @property
    def words(self) -> str:
        """Name the error and its unit."""
        if self.loss == RANKS:
            return "largest rank error, in per cent of the users"
        own = "root mean squared error (l2)" if self.squared else f"{self.loss} error"
        if self.relative:
            size = "the truth's own norm" if self.loss != "ise" else "the density's norm"
            return f"{own}, in per cent of {size}"
        unit = display_of(self.target).unit
        return f"{own}, in {unit}" if unit else own

    def write(self, error: float | None) -> str:
        """Write an error as it is said."""
        if error is None or math.isnan(error):
            return "-"
        if math.isinf(error):
            return "none"
        if not self.relative:
            return f"{error:,.0f}" if error >= 1000 else f"{error:.3g}"
        percent = 100 * error
        return f"{percent:,.0f}%" if percent >= 99.95 else f"{percent:.3g}%"


@dataclass(frozen=True)
class Candidate:
    """A protocol on a level, with its settings.

    ``name``: the protocol's, and its method where it has several; ``table``: the table [protocol],
    but for epsilon; ``chosen``: what was chosen by looking at the users. NOT PRIVATE; ``closed``:
    whether its closed form is about the common truth, so that it may be asked.
    """

    name: str
    level: Trust
    table: Mapping[str, Any]
    chosen: Mapping[str, Any] = field(default_factory=dict)
    closed: bool = True

    @property
    def place(self) -> str:
        """Name it with its level."""
        return f"{self.name}, {self.level.value}"

    @property
    def words(self) -> str:
        """Name it with what was chosen."""
        chosen = [f"{k} {v:,.6g}" for k, v in self.chosen.items() if k != "delta"]
        if "clip" in self.chosen and self.table["name"] == "bounded-histogram":
            chosen.append("Gaussian noise" if self.table.get("delta") else "Laplace noise")
        return self.name + (f" ({', '.join(chosen)})" if chosen else "")


@dataclass(frozen=True)
class Runs:
    """Losses of some runs of a candidate at one value of the unknown.

    ``missing``: why a run gave no estimate; empty if all did; ``warnings``: what the estimates
    warned of, and how many.
    """

    losses: tuple[float, ...]
    missing: str = ""
    warnings: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Expected:
    """The expected error of a candidate at one value of the unknown, as it is stated.

    ``error``: infinite where the protocol refuses; ``reason`` says why; ``exact``: whether it is a
    closed form.
    """

    error: float
    exact: bool = False
    reason: str = ""


class Problem:
    """Users, the measure, and the candidates of every level. NOT PRIVATE.

    ``settled``: who takes part, of a problem that other users are asked of; default: every protocol
    of the target with the settings that are worth trying.
    """

    def __init__(
        self, question: Question, loaded: Loaded, settled: Sequence[Candidate] = ()
    ) -> None:
        self.question, self.loaded, self.users = question, loaded, loaded.users
        self.left_out: dict[str, str] = {}
        self.read = list(loaded.not_private)
        self._expected: dict[tuple[int, float, int], Expected] = {}
        self._asked: dict[int, Repeated] = {}
        self._protocols: dict[str, Protocol] = {}
        self._facts: dict[int, Facts] = {}
        _check_target(question.target, loaded)
        self._run = RunTable(runtime="inline", seed=question.run.seed, nodes=question.run.nodes)
        self.measure, self.candidates = self._measured(self._built(settled or self._proposed()))
        if not self.candidates:
            why = "; ".join(f"{k}: {v}" for k, v in self.left_out.items())
            raise ValueError(f"no protocol of {question.target} can answer: {why}")

    @cached_property
    def profile(self) -> Profile:
        """What the users are like."""
        return profile_of(self.loaded)

    @cached_property
    def facts(self) -> tuple[str, ...]:
        """What undermines every answer about these users: rows and items left out. NOT PRIVATE."""
        return facts_of(self.loaded, value_range=self.value_range)

    @property
    def value_range(self) -> tuple[float, float] | None:
        """The range of samples that candidates are told."""
        tables = (c.table for c in self.candidates if {"low", "high"} <= c.table.keys())
        table = next(tables, None)
        return None if table is None else (float(table["low"]), float(table["high"]))

    def of(self, level: Trust) -> list[Candidate]:
        """Return the candidates of a level."""
        return [c for c in self.candidates if c.level is level]

    def nearby(self, c: Candidate) -> list[Candidate]:
        """Return a candidate with a clip a little smaller, and a little larger."""
        out = list[Candidate]()
        for factor in (2**-0.5, 2**0.5) if "clip" in c.chosen else ():
            clip = c.chosen["clip"]
            near = round(clip * factor) if isinstance(clip, int) else float(f"{clip * factor:.3g}")
            if near >= 1 and near != clip:
                changed = {"clip": near}
                table, chosen = {**c.table, **changed}, {**c.chosen, **changed}
                out.append(replace(c, table=table, chosen=chosen))
        self.candidates += out
        return out

    def with_users(self, n: int) -> Problem:
        """Return the problem of another number of such users, who are drawn from these."""
        if n == len(self.users):
            return self
        rng = np.random.default_rng((self.question.run.seed, n))
        again = n > len(self.users)
        rows = np.sort(rng.choice(len(self.users), n, replace=again))
        users = self.users.take(rows)
        if again:
            users = replace(users, ids=numbered_ids(0, n))
        loaded = replace(self.loaded, users=users)
        return Problem(self.question, loaded, self.candidates)

    def why_none(self, level: Trust) -> str:
        """Say why a level has no candidate."""
        mark = f", {level.value}"
        told = [f"{k.removesuffix(mark)}: {v}" for k, v in self.left_out.items() if mark in k]
        return "; ".join(told) or NOBODY_THERE[level]

    def build(self, c: Candidate, epsilon: float) -> Protocol:
        """Build a candidate; ValueError or FedhistError where it cannot be had."""
        key = json.dumps([c.place, dict(c.table), epsilon], default=str)
        if key not in self._protocols:  # a shuffled protocol searches for its local epsilon
            table = {**c.table, "epsilon": epsilon}
            config = Config(c.name, self._run, table, self.question.population)
            self._protocols[key] = prepare(config, lambda _: self.loaded).protocol
        return self._protocols[key]

    def known(self, protocol: Protocol) -> Facts:
        """Measure the users for a protocol that was built here, once."""
        if id(protocol) not in self._facts:
            self._facts[id(protocol)] = measured(protocol, self.users)
        return self._facts[id(protocol)]

    def expected(self, c: Candidate, epsilon: float, runs: int) -> Expected:
        """Return the expected error: the closed form, or the mean of so many runs."""
        key = id(c), epsilon, runs
        if key not in self._expected:
            self._expected[key] = self._predict(c, epsilon, runs)
        return self._expected[key]

    def asked_of(self, c: Candidate) -> tuple[tuple[float, float], ...]:
        """Return expected errors that were asked for, by epsilon: those of most runs, far apart."""
        told: dict[float, float] = {}
        for (who, x, _), e in sorted(self._expected.items(), key=lambda item: -item[0][2]):
            near = any(abs(math.log(x / other)) < math.log(1.3) for other in told)
            if who == id(c) and 0 < e.error < math.inf and not near:
                told[x] = e.error
        return tuple(sorted(told.items()))

    def _predict(self, c: Candidate, epsilon: float, runs: int) -> Expected:
        try:
            protocol = self.build(c, epsilon)
            if c.closed and _has_closed_form(protocol):
                prediction = self.known(protocol).error
                if prediction.kind == "exact" and prediction.loss == self.measure.loss:
                    return Expected(self.measure.stated(prediction.expected), exact=True)
            told = self.run(c, epsilon, range(runs))
        except Exception as e:
            return Expected(math.inf, reason=words_of(e))
        if told.missing or not told.losses:
            return Expected(math.inf, reason=told.missing)
        return Expected(self.measure.stated(float(np.mean(told.losses))))

    def run(self, c: Candidate, epsilon: float, numbers: Iterable[int]) -> Runs:
        """Run a candidate with the coins of these numbers; it stops at the first refusal."""
        protocol = self.build(c, epsilon)
        known = None if self.measure.loss in NORMS else self.known(protocol)
        asked = self._asked.setdefault(id(c), Repeated(self.users))
        losses, warnings = list[float](), dict[str, int]()
        for number in numbers:
            estimate = asked.run(protocol, number)
            if estimate.value is None:
                return Runs(tuple(losses), estimate.reason, warnings)
            losses.append(self.measure.of_run(protocol, estimate, self.users, known))
            if math.isnan(losses[-1]):
                return Runs(tuple(losses[:-1]), "its error is not a number", warnings)
            for line in estimate.warnings:
                warnings[line] = warnings.get(line, 0) + 1
        return Runs(tuple(losses), "", warnings)

    def _proposed(self) -> list[Candidate]:
        """List the protocols of each level with the settings that are worth trying."""
        q, candidates = self.question, list[Candidate]()
        common, unknown = self._common(), set(q.common)
        for name, cls in protocols().items():
            if cls.target != q.target or name in q.without or cls.only_named:
                continue
            native = cls.example().guarantee.trust
            for level in OF_NATIVE.get(native, (native,)):
                known = {*parameters(cls), *premise_keys(cls, level)}
                unknown -= known
                for own in self._variants(cls) if level in q.levels else ():
                    settings = {k: v for k, v in {**common, **own}.items() if k in known}
                    title = f"{name} {own['method']}" if "method" in own else name
                    table = {"name": name, **settings, **setting_of(level)}
                    chosen = {k: v for k, v in own.items() if k != "method"}
                    candidates.append(Candidate(title, level, table, chosen))
        if unknown:
            raise ValueError(f"no protocol of {q.target} has the parameter {sorted(unknown)[0]!r}")
        return candidates

    def _built(self, proposed: Sequence[Candidate]) -> list[tuple[Candidate, Protocol]]:
        """Build candidates at some epsilon; who cannot be had is left out, with the reason."""
        q, pairs = self.question, list[tuple[Candidate, Protocol]]()
        for c in proposed:
            reason = ""
            for epsilon in TRIED if q.epsilon is None else (q.epsilon,):
                try:
                    protocol = self.build(c, epsilon)
                except Exception as e:
                    reason = reason or words_of(e)
                    continue
                reason = excess_of(protocol.guarantee, epsilon, q.delta)
                reason = reason or "; ".join(flags_of(protocol))
                reason = reason or other_adjacency(ADJACENCY, protocol)
                if not reason:
                    pairs.append((c, protocol))
                break
            if reason:
                self.left_out.setdefault(c.place, reason)
        for c, _ in pairs:  # other settings of it could be had
            self.left_out.pop(c.place, None)
        for key, value in q.common.items():
            takers = [c for c in proposed if key in c.table]
            if takers and not any(key in c.table for c, _ in pairs):
                why = self.left_out[takers[0].place]
                raise ValueError(f"nobody takes protocol.{key} = {value}: {why}")
        return pairs

    def _measured(self, pairs: list[tuple[Candidate, Protocol]]) -> tuple[Measure, list[Candidate]]:
        """Settle the truth and the loss, and drop who answers about another truth.

        The truth is that of a protocol which estimates what is asked. Of items every protocol is
        held against it; its closed form counts only where it is about the same numbers.
        """
        q = self.question
        asked = Truth.TOTAL if q.target == "histogram" else Truth.AVERAGE_OF_USERS
        if pairs and not any(asked is p.estimates for _, p in pairs):
            asked = pairs[0][1].estimates
        pairs = sorted(pairs, key=lambda item: item[1].estimates is not asked)
        exact, loss, taken = None, display_of(q.target).loss, list[Candidate]()
        own = dict[str, Exact | str]()
        for c, protocol in pairs:
            if protocol.name not in own:
                try:
                    own[protocol.name] = whole = Exact.of(protocol, self.known(protocol))
                    held = whole.over(self.loaded.domain)
                    exact, loss = exact or held, loss or protocol.loss_name
                    other = not (of_items(protocol) or held.same(exact))
                    if other or (loss not in NORMS and protocol.loss_name != loss):
                        own[protocol.name] = f"estimates {protocol.estimates}, not {asked}"
                except Exception as e:
                    own[protocol.name] = words_of(e)
            truth = own[protocol.name]
            if isinstance(truth, str):
                self.left_out[c.place] = truth
            elif exact is not None:
                taken.append(replace(c, closed=truth.same(exact)))
        if exact is None:
            why = "; ".join(f"{k}: {v}" for k, v in self.left_out.items()) or "there is none"
            raise ValueError(f"no protocol of {q.target} can answer: {why}")
        answers = next(p for _, p in pairs if not isinstance(own[p.name], str))
        norm = NORMS.get(loss, answers.loss)
        size = 1.0 if loss == RANKS else norm(np.zeros_like(exact.value), exact.value)
        size = math.sqrt(size) if loss in SQUARES else size
        if q.relative and size == 0:
            raise ValueError("the truth is 0 everywhere, so that no error is a share of it")
        return Measure(loss, asked, exact, q.relative, size, q.target), taken

    def _common(self) -> dict[str, Any]:
        """Return what all protocols are told, where they have it; see ``read``."""
        q, loaded = self.question, self.loaded
        told: dict[str, Any] = {"delta": q.delta, "adjacency": ADJACENCY.value, **PREMISE}
        told |= {"project": True, "discrete": True}  # free, and what a deployment draws
        looked = []
        if loaded.users.samples is not None:
            told["dimension"] = loaded.users.samples.values.shape[1]
            told["levels"] = list(QUARTILES)
            if loaded.value_range is not None:
                told["low"], told["high"] = loaded.value_range
            elif not {"low", "high"} <= q.common.keys():
                told |= self._range()
                looked += ["low", "high"]
        sizes = self._sizes
        if len(sizes):
            told["samples_per_user"] = max(
                1, int(self.profile.suggested.get("samples_per_user", 1))
            )
            told["m_max"] = max(1, int(sizes.max()))
            looked += ["samples_per_user", "m_max"]
        looked = [k for k in looked if k not in q.common]
        known = {k for c in protocols().values() if c.target == q.target for k in parameters(c)}
        looked = [k for k in looked if k in known]
        if looked or "clip" in known - q.common.keys():
            names = ", ".join([*looked, *["clip"] * ("clip" in known - q.common.keys())])
            self.read.append(
                f"{names}: chosen by looking at these users; a deployment takes them as public"
            )
        return {**told, **q.common}

    def _range(self) -> dict[str, Any]:
        """Return a range for samples; of few whole numbers, one bin for each of them."""
        suggested = self.profile.suggested
        return bins_of_whole_numbers(self.users.reals.values) or {
            k: suggested[k] for k in ("low", "high") if k in suggested
        }

    @cached_property
    def _norms(self) -> tuple[Floats, Floats]:
        """The l1 and l2 norms of users' counts in the domain, if there is one."""
        domain = self.loaded.domain
        return (np.empty(0), np.empty(0)) if domain is None else user_norms(self.users, domain)

    @cached_property
    def _sizes(self) -> Floats:
        """How many samples, or items of the domain, users have who have any."""
        of_items = self.users.samples is None and self.loaded.domain is not None
        sizes = self._norms[0] if of_items else samples_held(self.users)
        return sizes[sizes > 0]

    def _variants(self, cls: type[Protocol]) -> list[dict[str, Any]]:
        """Return settings worth trying: methods, clips, slots, samples of a user."""
        known, given, delta = parameters(cls), self.question.common, self.question.delta
        if "method" not in given and (methods := methods_of(cls)):
            return [{"method": m} for m in methods]
        if "clip" in known and "clip" not in given and self.loaded.domain is not None:
            norms = self._norms
            if "delta" not in known:  # slots of a local protocol
                return [{"clip": int(c)} for c in sorted({math.ceil(x) for x in _clips(norms[0])})]
            gaussian = [{"clip": c} for c in _clips(norms[1])] if delta else []
            return [*gaussian, *({"clip": c, "delta": 0.0} for c in _clips(norms[0]))]
        sizes = self._sizes
        if "samples_per_user" in known and "samples_per_user" not in given and len(sizes):
            quantiles = {max(1, int(np.quantile(sizes, q))) for q in (0.0, 0.1, 0.5)}
            if self.users.samples is not None:  # its noise is that of so many samples each
                quantiles = {max(1, round(len(sizes) / float((1 / sizes).sum())))}
            return [{"samples_per_user": m} for m in sorted(quantiles)]
        return [{}]


def _check_target(target: str, loaded: Loaded) -> None:
    """Refuse data that the target is not about."""
    samples = loaded.users.samples
    if target in ("mean", "quantiles", "density") and samples is None:
        raise ValueError(f"a {target} is of numbers: name their column by --value, not --item")
    if target in ("histogram", "distribution") and samples is not None:
        raise ValueError(f"a {target} is of items: name their column by --item, not --value")


def load(question: Question) -> tuple[Question, Loaded]:
    """Load the users; items without a domain get the most frequent ones, and that is said."""
    config = Config(question.name, question.run, {"name": ""}, question.population)
    loaded = load_once(question.population, population_spec(config))
    keys = {f.name for f in fields(KINDS[str(question.population["kind"])])}
    if loaded.domain is not None or loaded.users.samples is not None or "top" not in keys:
        return question, loaded
    items = loaded.users.counts
    if not len(items.item):
        raise ValueError("no user has an item: there is nothing to decide about")
    held = np.bincount(items.item, weights=items.count, minlength=len(items.vocabulary))
    top = min(MOST_ITEMS, int(np.count_nonzero(held)))
    question = replace(question, population={**question.population, "top": top})
    config = replace(config, population=question.population)
    return question, load_once(question.population, population_spec(config))


def _has_closed_form(protocol: Protocol) -> bool:
    """Whether a protocol says its error by itself: by default it is run 30 times."""
    cls = type(protocol)
    return cls.error is not Protocol.error or cls.error_of is not Protocol.error_of


def _clips(sizes: Floats) -> list[float]:
    """Return clips from a fourth of the median user to the largest, by factors of 2 or more."""
    sizes = sizes[sizes > 0]
    if not len(sizes):
        return [1.0]
    top, bottom = float(sizes.max()), max(float(np.median(sizes)) / 4, 1.0)
    steps = min(max(0, math.ceil(math.log2(top / bottom))), MOST_CLIPS - 1)
    tried = np.geomspace(bottom, top, steps + 1) if steps else [top]
    return sorted({math.ceil(top), *(float(f"{x:.3g}") for x in tried[:-1])})


def words_of(e: Exception) -> str:
    """Return an error's message; of what is no refusal, its class and its author's line, too."""
    return str(e) if isinstance(e, ValueError | FedhistError) else in_words(e)
