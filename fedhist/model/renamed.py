"""Names that are gone, and what to write instead: for configurations, plugins and scripts."""

from __future__ import annotations

from collections.abc import Mapping

GONE: Mapping[str, str] = {
    # protocols
    "box-centre": 'name = "central-mean"',
    "dame": 'name = "mean"',
    "hadamard-response": 'name = "frequency-oracle" with kind = "hadamard"',
    "huber-mean": 'name = "central-mean"',
    "interval-mean": 'name = "central-mean"; what was "scale" is "radius", in l2',
    "naive-density": 'name = "density"',
    "unary-encoding": 'name = "frequency-oracle" with kind = "unary"',
    "weighted-mean": 'name = "central-mean", where every user counts alike',
    # values of fields
    "method = box": 'the protocol "box-mean"',
    "method = box-centre": 'the protocol "central-mean"',
    "method = drawn": 'the protocol "central-mean"',
    # public names of fedhist.protocols
    "BoxCentre": "CentralMean",
    "Dame": "Mean",
    "HadamardResponse": 'FrequencyOracle(..., kind="hadamard")',
    "HuberMean": "CentralMean",
    "IntervalMean": "CentralMean",
    "NaiveDensity": "Density",
    "UnaryEncoding": 'FrequencyOracle(..., kind="unary")',
    "WeightedMean": "CentralMean",
    # public names of fedhist
    "Measure": "Protocol.sums(users) and Protocol.truth_of(facts)",
    "Measured": "fedhist.Facts",
    "ErrorBound": 'fedhist.Prediction(loss, expected, "exact", source)',
    "Loopback": "flower-superlink and flower-supernode, as docs/deployment.md says",
    "Goal": "fedhist.decide(..., error=...)",
    "plan": "fedhist.decide(..., error=..., theory=True)",
    "profile": "fedhist.decide(..., profile=True)",
    "ResultsRow": "a row of simulations/benchmarks/defaults.py",
    "sweep": "fedhist.compare(study, axes), which reads the table [sweep] too",
    "results": "fedhist.show(folder)",
    "Study": "the path or the name of the study: fedhist.compare(study, data=...)",
    # fields and values of protocols: "NAME.FIELD", "NAME.FIELD=VALUE"
    "adaptive-histogram.delta_choice": "nothing: half of delta, for a rule that needs some",
    "adaptive-histogram.per_octave": "nothing: it is 4",
    "[run].checks": "nothing: the server checks every message",
    "[run].raw_csv": "nothing: estimate.parquet has the names as they are",
    "[run].shared": "nothing: whose a folder is can be changed",
    "[compare].fractions": 'an axis "adversary.fraction" of [sweep]',
    "[sweep].zip": 'samples_per_user = "harmonic-mean", which follows the population',
    "ragged-distribution.median": 'nothing for "em", and mode = "paper" for "dyadic"',
    "mean.refine": 'method = "vote" for refine = "clip"',
    "mean-l2.c_sigma": 'nothing, or method = "centred", which learns how far users are apart',
    "mean-l2.clip_mass": "nothing: the radius is chosen by what the votes see",
    "mean-l2.method=auto": 'method = "centred", the default, or "folds"',
    "density.clip_mass": "nothing: the radius is chosen by what the votes see",
    "local-distribution.clip_mass": "nothing: the radius is chosen by what the votes see",
    "local-distribution.method=auto": 'method = "centred", the default, or "folds"',
    "sparse-mean.method=auto": 'method = "vectors", the default, or a procedure by its name',
    "distribution.samples_per_user=min": "a number, of which nearly all users have as many items",
    "distribution.samples_per_user=max": "a number, of which nearly all users have as many items",
    "ragged-distribution.adjacency": "nothing: it is replace-user, and n_users is public",
    "ragged-distribution.beta": "nothing: it is 0.05",
    "ragged-distribution.cmax": "nothing: presence is read up to m p = 4",
    "frequency-oracle.max_message_bits": "nothing: auto takes messages of at most 4,096 bits",
    "sparse-mean.hash": "nothing: signs are independent",
    "sparse-mean.min_signal": "max_votes, if signals are weak",
    "local-quantiles.kind": "nothing: there is one method, of pooled answers",
    "naive-mean.method=item-level": 'method = "one-item", or "user-mean" for all samples',
    "few-users-mean.early_exit": "nothing: every round of a draw is executed",
    "few-users-distribution.early_exit": "nothing: every round of a draw is executed",
    "adaptive-histogram.debias": "nothing: no total is scaled up any more",
    "adaptive-histogram.epsilon_ratio": "nothing: no total is scaled up any more",
    "adaptive-histogram.threshold=slope-curve": 'threshold = "dp-sgd"',
    "adaptive-histogram.threshold=em-slope-point": 'threshold = "em-slope"',
    "adaptive-histogram.threshold=huang-quantile": 'threshold = "adaptive-quantile"',
    "adaptive-histogram.threshold=em-quantile": 'threshold = "em-slope", or "adaptive-quantile"',
    "bounded-histogram.clip=best": 'clip = "c-star", within a factor 2 of it',
    "unbounded-histogram.threshold=ramp": 'threshold = "exact-range", or nothing',
    "unbounded-histogram.threshold=ramp-fixed-range": 'threshold = "exact-range"',
}
"""Protocols, public names and settings of earlier versions."""


def instead(name: str) -> str:
    """Say what to write for a name that is gone, as the end of a message; empty for others.

    >>> instead("ErrorBound").startswith("; it is gone: write fedhist.Prediction(")
    True
    """
    return f"; it is gone: write {GONE[name]}" if name in GONE else ""
