"""What a plan says of its answer: what the error comes from, its size, what nobody can beat."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from fedhist.model.evaluation import measured
from fedhist.model.prediction import LowerBound
from fedhist.model.protocol import Protocol
from fedhist.model.registry import display_of
from fedhist.protocols.shared.mean_target import InRange
from server.means.localize import Plan as Localisation
from simulations.runs.config import Config
from simulations.studies.plan.population import Setting
from simulations.studies.plan.search import REASONS, SOME, Oracle, scale
from simulations.studies.records.metrics import norms
from simulations.studies.records.scale import relative


def share_of(
    oracle: Oracle, setting: Setting, protocol: Protocol, error: float, loss: str
) -> float | None:
    """Return an error as a share of the answer's size, from some users where those are many.

    None where the target is a share already, and where an answer has no size.
    """
    if oracle.relative:
        return None  # it is one already
    template, display = oracle.template, display_of(protocol.target)
    few = template.unknown == "n_users" and not template.resampled
    some = template.at(min(setting.n_users, SOME)) if few else setting
    if display.form == "quantiles" or template.entries(some) > template.most_entries:
        return None
    users = template.load(some).users
    times = setting.n_users / len(users) if display.unit == "counts" else 1.0
    known = measured(protocol, users)
    truth = np.asarray(known.truth, dtype=np.float64)
    sizes = norms(np.zeros_like(truth), truth)
    size = sizes[loss] if loss in sizes else scale(protocol, users, known)
    return relative(error, times * size, loss)


def least_of(oracle: Oracle, setting: Setting, protocol: Protocol) -> LowerBound | None:
    """Return the largest lower bound; from some users where the others only add to their number."""
    template = oracle.template
    few = isinstance(getattr(protocol, "n_users", None), int)
    users = template.sample(setting).users if few else template.lazy(setting)[0].users
    return max(protocol.lower_bounds(users), key=lambda b: b.value, default=None)


def limit(oracle: Oracle, setting: Setting, protocol: Protocol, error: float) -> str:
    """Say what an error mostly comes from: the same prediction without noise tells."""
    free = replace(setting, config=_without_noise(setting.config))
    try:
        left = oracle.predict(free, oracle.prepared(free).protocol)[0] / error if error else 0.0
    except REASONS:
        left = math.nan
    if left >= 0.5:
        clips = isinstance(protocol, InRange) or any("clip" in name for name in vars(protocol))
        return f"{'clipping' if clips else 'sampling'} {min(left, 1.0):.0%}"
    found, chosen = getattr(protocol, "plan", None), getattr(protocol, "chosen", "vote")
    if chosen == "vote" and isinstance(found, Localisation) and found.n_bins > 1 and found.risk > 0:
        # voters do not report, and a wrong window costs: a known window would need neither
        lost = 1 - found.variance * (1 - found.vote_share) / found.risk
        return f"localisation {lost:.0%}" if lost > 0.5 else f"noise {1 - lost:.0%}"
    return "noise" if math.isnan(left) else f"noise {1 - left:.0%}"


def _without_noise(config: Config) -> Config:
    return replace(config, protocol={**config.protocol, "epsilon": math.inf})
