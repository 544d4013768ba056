"""Theory's error as a function of one number, and the search for where it meets a target."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedhist.base.errors import FedhistError
from fedhist.model.evaluation import Facts, measured
from fedhist.model.prediction import Prediction
from fedhist.model.protocol import Estimate, Protocol
from fedhist.model.registry import display_of
from fedhist.session.session import Session
from fedhist.users.keys import Keys
from fedhist.users.shards import Shard
from simulations.runs.config import Prepared, prepare
from simulations.runs.run import noise_source
from simulations.studies.plan.population import Setting, Template, TooLarge
from simulations.studies.records.metrics import restated

FINE, COARSE = 2.0, 4.0
"""Steps of the walk where theory needs public numbers only, and where it needs the users."""

STREAK = 2
"""Coarse steps in a row below the target, each less than the last, after which the walk ends."""

CLOSE = 0.99
"""A search that needs users ends at a prediction from this share of the target up to it."""

SOME = 2_000
"""Users of a made-up population who show how samples lie in the range."""

REASONS = (ValueError, FedhistError)


@dataclass(frozen=True)
class Point:
    """The prediction at one value of the unknown.

    Attributes
    ----------
    x : float
    error : float
        Infinite where the protocol refuses or cannot be configured; ``reason`` says why.
    reason : str
    """

    x: float
    error: float
    reason: str = ""


class Oracle:
    """Theory's error of one protocol as a function of the unknown.

    Parameters
    ----------
    template : Template
    relative : bool
    loss : str
        State predictions in this loss; empty leaves them in the protocol's own.

    Attributes
    ----------
    read : bool
        Whether a prediction has looked at users so far.
    cut : bool
        Whether a population was too large to make.
    points : dict of float to Point
        All that was asked; ``bounds`` has the predictions themselves.
    """

    def __init__(self, template: Template, *, relative: bool = False, loss: str = "") -> None:
        self.template, self.relative, self.loss = template, relative, loss
        self.read = self.cut = False
        self.points: dict[float, Point] = {}
        self.bounds: dict[float, Prediction] = {}

    def __call__(self, x: float) -> Point:
        """Predict the error at ``x``; TooLarge if that takes a population too large to make."""
        if x not in self.points:
            self.points[x] = self._point(x)
        return self.points[x]

    def prepared(self, setting: Setting) -> Prepared:
        """Build the protocol for a setting, on users that are not made yet."""
        loaded, users = self.template.lazy(setting)
        try:
            return prepare(setting.config, lambda _: loaded)
        finally:
            self.read |= users.made

    def refusal(self, x: float) -> str | None:
        """Say why the protocol does not run at ``x``; None if it does."""
        try:
            return refusal(self.prepared(self.template.at(x)).protocol)
        except REASONS as e:
            return str(e)

    def _point(self, x: float) -> Point:
        setting = self.template.at(x)
        try:
            protocol = self.prepared(setting).protocol
            reason = refusal(protocol)
            if reason is not None:
                return Point(x, math.inf, reason)
            error, self.bounds[x] = self.predict(setting, protocol)
        except REASONS as e:
            return Point(x, math.inf, str(e))
        return Point(x, error)

    def predict(self, setting: Setting, protocol: Protocol) -> tuple[float, Prediction]:
        """Return the predicted error, as a share if relative, and what theory says as it is."""
        loaded, lazy = self.template.lazy(setting)
        try:
            known = measured(protocol, loaded.users)
            bound = self._stated(protocol, known.error)
            error = float(bound.expected)
            if self.relative:
                size = scale(protocol, loaded.users, known)
                error = error / size if size > 0 else math.inf  # nobody holds anything: no share
        finally:
            self.read |= lazy.made
        return error if not math.isnan(error) else math.inf, bound

    def _stated(self, protocol: Protocol, bound: Prediction) -> Prediction:
        """State a prediction in the common loss.

        Raises
        ------
        ValueError
            If it does not follow from the protocol's own.
        """
        wanted = self.loss or bound.loss
        if bound.loss == wanted:
            return bound
        form = display_of(protocol.target).form
        found = restated(bound.expected, bound.loss, wanted, _entries(protocol), form)
        if found is None:
            raise ValueError(f"its theory, in {bound.loss}, cannot be stated in {wanted}")
        source = f"{bound.source}; from {bound.loss}, as if errors were normal"
        return Prediction(wanted, found, "bound", source)


def _entries(protocol: Protocol) -> int:
    """Count the entries of an estimate, where public numbers say it; 0 where they do not."""
    domain = getattr(protocol, "domain", None)
    return len(domain) if isinstance(domain, Keys) else int(getattr(protocol, "dimension", 0) or 0)


def refusal(protocol: Protocol) -> str | None:
    """Say why a script ends before it asks anybody, in its own words; None if it does not."""
    estimate = Session(protocol, noise_source("simulated", 0, protocol)).estimate
    return estimate.reason if estimate is not None and estimate.status == "refused" else None


def scale(protocol: Protocol, users: Shard, known: Facts) -> float:
    """Return the loss of an estimate that is 0 everywhere. NOT PRIVATE."""
    zero = Estimate.ok(np.zeros_like(known.truth, dtype=np.float64), keys=known.support)
    return protocol.loss_of(zero, users, known=known)


def walk(oracle: Oracle, target: float, low: float, high: float, *, whole: bool) -> list[Point]:
    """Look at the range in steps, coarse ones from where theory needs the users."""
    out: list[Point] = []
    x, streak = low, 0
    while True:
        try:
            out.append(oracle(x))
        except TooLarge:
            oracle.cut = True
            out += _up_to(oracle, target, out, x, whole=whole)
            break
        falls = len(out) > 1 and out[-1].error < out[-2].error
        streak = streak + 1 if falls and out[-1].error <= target else 0
        # more samples meet the clip: only their whole range tells
        early = oracle.read and oracle.template.unknown != "samples_per_user"
        if x >= high or (early and streak >= STREAK):
            break
        step = FINE if not oracle.read else COARSE if oracle.template.unknown == "n_users" else 2.0
        x = min(high, max(x + 1, math.ceil(x * step)) if whole else x * step)
    return out


def _up_to(
    oracle: Oracle, target: float, seen: list[Point], limit: float, *, whole: bool
) -> list[Point]:
    """Look between the last value and one that is too large, up to where the target is met."""
    out: list[Point] = []
    x = seen[-1].x if seen else limit
    while seen and limit > 1.05 * x:
        middle = math.sqrt(x * limit)
        middle = math.floor(middle) if whole else middle
        if middle <= x:
            break
        try:
            out.append(oracle(middle))
        except TooLarge:
            limit = middle
            continue
        x = middle
        if out[-1].error <= target:
            break
    return out


def refine(oracle: Oracle, target: float, above: Point, below: Point, *, whole: bool) -> Point:
    """Find where the prediction crosses the target between two points.

    To the last user where theory is cheap; otherwise to a per cent of the error or half of x.
    """
    tight = 1.005 if oracle.read else 1.000001
    while below.x > above.x * tight and not (whole and below.x - above.x <= 1):
        if oracle.read and below.error >= CLOSE * target:
            break
        share = 0.5
        if oracle.read and below.error > 0 and math.isfinite(above.error):
            # the power law through both points, aimed a little below the target
            drop = math.log(above.error / below.error)
            share = math.log(above.error / (0.995 * target)) / drop if drop > 0 else 0.5
            share = min(max(share, 0.05), 0.95)
        x = above.x * (below.x / above.x) ** share
        if whole:
            x = min(max(round(x), above.x + 1), below.x - 1)
        middle = oracle(x)
        if middle.error <= target:
            below = middle
        else:
            above = middle
    return below


def first_asked(oracle: Oracle, walked: list[Point]) -> float | None:
    """Find the least value at which the script asks, if it does not at smaller ones."""
    asked = next((i for i, p in enumerate(walked) if not p.reason), None)
    if not asked:
        return None
    no, yes = walked[asked - 1].x, walked[asked].x
    whole = oracle.template.unknown != "epsilon"
    while yes - no > 1 if whole else yes > 1.0001 * no:
        x = (no + yes) // 2 if whole else math.sqrt(no * yes)
        if oracle.refusal(x) is None:
            yes = x
        else:
            no = x
    return yes


def local_slope(points: dict[float, Point], x: float) -> float:
    """Estimate d log error / d log x from the nearest points at least a fifth away on each side."""
    known = sorted(p.x for p in points.values() if 0 < p.error < math.inf)
    a = points[max((k for k in known if k <= x / 1.2), default=x)]
    b = points[min((k for k in known if k >= x * 1.2), default=x)]
    if a.x == b.x or not (a.error > 0 and b.error > 0):
        return math.nan
    return math.log(b.error / a.error) / math.log(b.x / a.x)
