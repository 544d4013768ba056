"""Which features of an answer to look at, and which event of a feature: learned from draws.

Everything here is a heuristic, on draws that nothing is certified on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhist.base.arrays import Floats
from simulations.audit.features import (
    Answer,
    Binned,
    Entry,
    Feature,
    Length,
    LowBit,
    Score,
    binned,
)

Counts = tuple[Floats, Floats]
MOST_ENTRIES, MOST_BITS = 512, 1 << 13
TOP_ENTRIES, TOP_FLOATS, SCORED_BITS = 12, 4, 64
MOST_SOLVED = 256


@dataclass(frozen=True, eq=False)
class Event:
    """A set of a feature's values, more likely under one input than under the other.

    ``chosen``: (size,) bool; ``first``: whether it is the first input that makes it likely;
    ``bound``: what it promised on the draws it was found on.
    """

    feature: Feature
    chosen: NDArray[np.bool_]
    first: bool
    bound: float


def signature(answer: Answer) -> tuple[Any, ...]:
    """Return what a message looks like from outside: names, types and shapes, lengths apart."""
    return tuple(
        tuple((n, a.dtype.str, a.shape[1:]) for n, a in sorted(report.arrays.items()))
        + tuple((n, v.dtype.str) for n, v in sorted(report.ragged.items()))
        for report in answer
    )


def propose(classes: Sequence[Answer]) -> list[Feature]:
    """Choose features in which answers to different inputs differ most.

    ``classes``: one for each input. For two, a linear score is learned as well.
    """
    first = classes[0]
    entries, bits = _top_entries(classes), _top_bits(classes)
    kinds = {e: _dtype(first, e).kind for e in entries}
    features: list[Feature] = [binned(e, _pool(e, classes)) for e in entries[:TOP_ENTRIES]]
    features += [LowBit(e) for e in entries if kinds[e] == "f"][:TOP_FLOATS]
    features += [Length(r) for r, report in enumerate(first) if report.indptr is not None]
    features += [binned(b, np.array([0.0, 1.0])) for b in bits[:SCORED_BITS]]
    if not features:
        raise ValueError("an answer holds no numbers that could be looked at")
    if len(classes) != 2:
        return features
    parts: list[Entry] = [*bits[:SCORED_BITS], *entries]
    score = _score(parts, classes) if parts else None
    return features if score is None else [*features, score]


def best_event(
    feature: Feature,
    counts: Counts,
    z: float,
    *,
    delta: float,
    epsilon: float = -1,
    ranking: Counts | None = None,
) -> Event:
    """Choose the values of a feature that promise the largest bound.

    Values are ranked by how much likelier the one input makes them. The candidates are every value
    alone, every set of the first so many, and the lower and upper ends of the values in their own
    order. Wilson's intervals stand in for the exact ones.

    ``counts``: pair of (size,) float64, how often each value was seen under the two inputs; ``z``:
    standard normal quantile of the intervals; ``epsilon``: ask for the largest delta at this
    epsilon; negative: for the largest epsilon at ``delta``; ``ranking``: pair of (size,) float64,
    optional, counts from other draws to rank by: by the same draws, the default, chance wins.
    """
    events: list[Event] = []
    for first in (True, False):
        c, o = counts if first else counts[::-1]
        rank_c, rank_o = (ranking or counts) if first else (ranking or counts)[::-1]
        order = np.argsort(-(rank_c + 0.5) / (rank_o + 0.5), kind="stable")
        ends = [(np.cumsum(x[order]), x[order], np.cumsum(x), np.cumsum(x[::-1])) for x in (c, o)]
        hits, misses = (np.concatenate(e) for e in ends)
        bound = _promise(hits, c.sum(), misses, o.sum(), z, delta, epsilon)
        best = int(np.argmax(bound))
        way, k = divmod(best, len(c))
        values = (order[: k + 1], order[k : k + 1], slice(0, k + 1), slice(len(c) - 1 - k, None))
        chosen = np.zeros(len(c), dtype=bool)
        chosen[values[way]] = True
        events.append(Event(feature, chosen, first, float(bound[best])))
    return max(events, key=lambda e: e.bound)


def best_of(
    features: Sequence[Feature],
    counts: Sequence[Sequence[Floats]],
    ranking: Sequence[Sequence[Floats]],
    z: float,
    **target: float,
) -> Event:
    """Choose the best event of several features, of each of which both inputs' values are counted.

    ``target``: delta, and epsilon where the largest delta is asked for; see :func:`best_event`.
    """
    events = (
        best_event(f, (a, b), z, ranking=(ranks_a, ranks_b), **target)
        for f, a, b, ranks_a, ranks_b in zip(features, *counts, *ranking, strict=True)
    )
    return max(events, key=lambda e: e.bound)


def separation(table: Floats, z: float) -> Floats:
    """Score every ordered pair of inputs by one feature: (k, k), from counts (k, size).

    The events are every value alone, and every lower and upper end of the values in their order.
    """
    n = table.sum(axis=1, keepdims=True)
    below = np.cumsum(table, axis=1)[:, :-1]
    hits = np.concatenate((table, below, n - below), axis=1)
    hits = hits[:, (hits > 0).any(axis=0)]
    low, high = wilson(hits, n, z)
    out = np.zeros((len(table), len(table)))
    for i in range(len(table)):
        out[i] = np.log(np.maximum(low[i] / high, 1.0)).max(axis=1)
    return out


def wilson(hits: Floats, n: Floats | float, z: float) -> tuple[Floats, Floats]:
    """Return the ends of Wilson's interval for a probability."""
    centre = (hits + z * z / 2) / (n + z * z)
    half = z / (n + z * z) * np.sqrt(hits * (n - hits) / n + z * z / 4)
    return np.maximum(centre - half, 0.0), np.maximum(centre + half, 1e-300)


def tally(feature: Feature, answer: Answer) -> Floats:
    """Count the values of a feature: (size,) float64."""
    return np.bincount(feature.code(answer), minlength=feature.size).astype(np.float64)


def _promise(
    hits: Floats, n: float, misses: Floats, m: float, z: float, delta: float, epsilon: float
) -> Floats:
    low, high = wilson(hits, n, z)[0], wilson(misses, m, z)[1]
    if epsilon >= 0:
        return np.asarray(low - np.exp(epsilon) * high)
    # of events that promise nothing, the one that nearly does
    return np.asarray(np.where(low > delta, np.log(np.maximum(low - delta, 1e-300) / high), -700.0))


def _dtype(answer: Answer, entry: Entry) -> np.dtype[Any]:
    report = answer[entry.round_index]
    return (report.ragged if entry.ragged else report.arrays)[entry.name].dtype


def _pool(part: Entry | Score, classes: Sequence[Answer]) -> Floats:
    return np.concatenate([part.of(a).astype(np.float64) for a in classes])


def _top_entries(classes: Sequence[Answer]) -> list[Entry]:
    """Rank numbers by how far their means, or their spreads, lie apart."""
    entries: list[Entry] = []
    for r, report in enumerate(classes[0]):
        for name, a in sorted(report.arrays.items()):
            if a.dtype.kind in "biuf" and not (a.dtype == np.uint64 and a.ndim > 1):
                width = int(np.prod(a.shape[1:], dtype=np.int64))
                entries += [Entry(r, name, j) for j in _columns(a, min(width, MOST_ENTRIES))]
        numeric = [n for n, v in sorted(report.ragged.items()) if v.dtype.kind in "biuf"]
        entries += [Entry(r, name, None, ragged=True) for name in numeric]
    scores = []
    for entry in entries:
        columns = [np.nan_to_num(entry.of(a).astype(np.float64)) for a in classes]
        scale = max(float(np.median(np.abs(np.concatenate([c[:256] for c in columns])))), 1e-150)
        squashed = [np.tanh(np.clip(c / scale, -9, 9)) for c in columns]
        means = [s.mean() for s in squashed]
        spreads = [np.abs(s).mean() for s in squashed]
        scores.append(max(np.std(means), np.std(spreads)))
    return [entries[i] for i in np.argsort(-np.array(scores), kind="stable").tolist()]


def _top_bits(classes: Sequence[Answer]) -> list[Entry]:
    """Rank bits of unsigned integers by how far their means lie apart."""
    bits: list[Entry] = []
    scores: list[float] = []
    for r, report in enumerate(classes[0]):
        for name, a in sorted(report.arrays.items()):
            if a.dtype.kind != "u":
                continue
            lanes = a.dtype.itemsize * 8
            width = min(int(np.prod(a.shape[1:], dtype=np.int64)), MOST_BITS // lanes)
            means = np.stack([_bit_means(c[r].arrays[name], width) for c in classes])
            places = product(_columns(a, width), range(lanes))
            bits += [Entry(r, name, column, shift=shift) for column, shift in places]
            scores += means.std(axis=0).tolist()
    order = np.argsort(-np.array(scores), kind="stable").tolist()
    return [bits[i] for i in order]


def _columns(a: NDArray[Any], width: int) -> Sequence[int | None]:
    """List the columns of an array with one row for each user; None stands for its only one."""
    return [None] if a.ndim == 1 else range(width)


def _bit_means(a: NDArray[Any], width: int) -> Floats:
    rows = np.ascontiguousarray(a.reshape(len(a), -1)[:, :width])
    little = rows.astype(rows.dtype.newbyteorder("<"), copy=False)
    total = np.zeros(width * rows.dtype.itemsize * 8)
    for start in range(0, len(rows), 1024):
        raw = little[start : start + 1024].view(np.uint8)
        total += np.unpackbits(raw, axis=1, bitorder="little").sum(axis=0)
    return total / len(rows)


def _score(parts: Sequence[Entry], classes: Sequence[Answer]) -> Binned | None:
    """Learn Fisher's linear discriminant, of many parts with their variances alone."""
    values = [
        np.stack([np.nan_to_num(p.of(a).astype(np.float64)) for p in parts], axis=1)
        for a in classes
    ]
    limits = np.quantile(np.concatenate(values), [0.001, 0.999], axis=0).T
    limits[:, 1] = np.maximum(limits[:, 1], limits[:, 0] + 1e-300)
    limits = np.clip(limits, -1e150, 1e150)
    clipped = [np.clip(v, limits[:, 0], limits[:, 1]) for v in values]
    with np.errstate(over="ignore", invalid="ignore"):
        gap = clipped[0].mean(axis=0) - clipped[1].mean(axis=0)
        scale = np.sqrt(sum(c.var(axis=0) for c in clipped) / 2)
    usable = (scale > 0) & np.isfinite(scale) & np.isfinite(gap)
    if not usable.any():
        return None
    weights = gap[usable] / scale[usable]
    if 1 < usable.sum() <= MOST_SOLVED:
        scaled = [c[:, usable] / scale[usable] for c in clipped]
        covariance = sum(np.cov(s, rowvar=False) for s in scaled) / 2
        weights = np.linalg.solve(covariance + 1e-3 * np.eye(len(weights)), weights)
    full = np.zeros(len(parts))
    full[usable] = weights / scale[usable]
    score = Score(tuple(parts), full, limits)
    return binned(score, _pool(score, classes))
