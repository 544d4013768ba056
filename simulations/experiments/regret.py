"""Regret of defaults over a grid of settings. NOT PRIVATE.

At every cell the default, the other methods of its protocol and what else there is run on the same
users. Regret is the default's mean loss over the least mean loss: 1 where the default is the best
of them. The least of several noisy means is too low, so that regret is overstated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.base.hashing import digest64
from fedhist.model.measures import measured
from fedhist.model.protocol import Estimate, Protocol
from fedhist.model.registry import parameters, protocol_class
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from simulations.experiments.base import Request, Result
from simulations.experiments.findings import Findings
from simulations.experiments.heat_maps import HeatMap, Square
from simulations.experiments.regret_axes import Axis
from simulations.experiments.regret_cells import DEFAULT, Area, Cell, Measured
from simulations.experiments.settings import whole
from simulations.runs.run import Options, execute

WITHIN = 1.25
"""Regret that nine cells of ten shall stay within."""
SMALL = 1.05
"""A regret that is none."""
UNDECIDED = 0.1
"""Relative standard error of a regret above which more runs are made."""
AGAIN = 3
"""Times the most runs: more of the default, on the users that a prediction which looks wrong was
made for. Losses are skewed, and few runs miss the rare ones that make their mean."""


def measure_area(area: Area, request: Request) -> Result:
    """Measure the cells of every target."""
    found, maps, every, s = Findings(request), [], list[Measured](), request.settings
    for target in s["targets"]:
        if target not in area.targets:
            raise ValueError(f"targets must be among {', '.join(area.targets)}, got {target!r}")
        methods = s["methods"][target]
        all_of_it = [measure(request, c, methods, area) for c in area.cells(target, request)]
        judge(found, target, all_of_it)
        maps.append(map_of(area, target, all_of_it))
        every += all_of_it
    share = float(np.mean([m.least <= WITHIN for m in every]))
    found.show("all targets", f"share of {len(every)} cells with regret <= {WITHIN}", share)
    said = float(np.mean([m.close for m in every]))
    found.show("all targets", "share of the cells said to be close calls", said)
    return found.result(
        area.title,
        area.paper,
        x_label="share of the cells",
        y_label="regret",
        log="y",
        maps=tuple(maps),
        notes=(
            "NOT PRIVATE: errors are measured with the truth",
            "regret: mean loss of the default over the least mean loss of all methods, on the same "
            "users in each run; the least of noisy means is too low, so that regret is overstated",
            "regrets are shown with their standard errors, and judged less two of them; a cell is "
            "a close call where the default's prediction says that two methods are close",
            "where the default refuses, the answer that needs no users stands in",
            "measured / predicted: as a run states both, from the truth that it takes from users; "
            "in more runs of the default where the first ones disagree with its prediction",
            "stated errors: of the default's estimates, against the truth of the cell",
            *area.notes,
        ),
        population=area.population,
    )


def protocols_of(cell: Cell, methods: Mapping[str, Mapping[str, Any]]) -> dict[str, Protocol]:
    """Build the methods that have a place in a cell: a protocol may refuse its public numbers.

    Raises
    ------
    ValueError
        If there is no default.
    """
    if DEFAULT not in methods:
        raise ValueError(f"methods of {cell.target} need a {DEFAULT!r}, got {list(methods)}")
    found = {}
    for label, how in methods.items():
        given = dict(how)
        cls = protocol_class(str(given.pop("protocol")))
        names = set(parameters(cls)) - set(cell.not_meant)
        public = {k: v for k, v in cell.public.items() if k in names}
        try:
            found[label] = cls(**{**public, **given})
        except ValueError:
            if label == DEFAULT:
                raise
    return found


def measure(
    request: Request, cell: Cell, methods: Mapping[str, Mapping[str, Any]], area: Area
) -> Measured:
    """Run every method on the same users, until the regret is known or runs are used up."""
    protocols = protocols_of(cell, methods)
    default = protocols[DEFAULT]
    losses: dict[str, list[float]] = {label: [] for label in protocols}
    own: list[float] = []
    errors: list[tuple[float, float, float]] = []
    predicted: list[float] = []
    trivial: list[float] = []
    refused, close, flagged = 0, False, False
    few, many = whole(request, "repeats", 2), whole(request, "most_repeats", 2)
    for r in range(many):
        tag = digest64(area.name, request.seed, repr(cell), r)
        users, truth = cell.draw(np.random.default_rng(tag))
        known = measured(default, users)
        trivial.append(cell.trivial(truth))
        for label, protocol in protocols.items():
            estimate = one_run(protocol, users, tag, area.options)
            value = value_of(estimate, protocol, users, cell.keys)
            loss = math.nan if value is None else cell.loss(value, truth)
            if label == DEFAULT:
                refused += value is None
                stderr = estimate.stderr
                if value is not None and stderr is not None and stderr.shape == truth.shape:
                    errors.append(squares(cell, estimate, truth))
                loss = trivial[-1] if value is None else loss
                mine = math.nan if value is None else default.loss_of(estimate, users, None, known)
                own.append(mine)
                if r < few:
                    bound = known.error
                    close |= bound.is_close
                    flagged = bound.is_bound
                    predicted.append(bound.expected)
            losses[label].append(loss)
        if r + 1 >= few:
            usable = {m: np.array(x) for m, x in losses.items() if not np.isnan(x).any()}
            expected = float(np.mean(predicted)) if predicted and not refused else math.nan
            found = Measured(
                cell, usable, np.array(own), expected, in_loss_of(expected, own, losses[DEFAULT]),
                flagged, float(np.mean(trivial)), refused, close, np.reshape(errors, (-1, 3)),
            )  # fmt: skip
            if found.regret < SMALL or found.stderr < UNDECIDED * found.regret:
                break
    if found.mispredicted:
        runs = AGAIN * many // few
        again = [x for r in range(few) for x in _again(default, cell, request, area, r, runs)]
        found = replace(found, own=np.array(again))
    return found


def squares(cell: Cell, estimate: Estimate, truth: Floats) -> tuple[float, float, float]:
    """Return the squared error, what is stated of it, and what unseen users may add to that.

    Of a density all of it is stated, with what its series leaves out; of others by standard errors.
    """
    off = np.asarray(estimate.value) - truth
    stated, public = cell.squared(np.asarray(estimate.stderr)), estimate.public
    return cell.squared(off), public.get("predicted_ise", stated), public.get("unseen", 0.0) ** 2


def in_loss_of(expected: float, own: Sequence[float], losses: Sequence[float]) -> float:
    """Turn what a run predicts of its own loss into the cell's: squared, or in proportion.

    >>> in_loss_of(2.0, [1.0, 3.0], [1.0, 9.0]), in_loss_of(2.0, [1.0, 3.0], [10.0, 30.0])
    (4.0, 20.0)
    """
    if math.isnan(expected):
        return expected
    if np.allclose(np.square(own), losses):
        return expected**2
    return float(expected * np.mean(losses) / max(float(np.mean(own)), 1e-300))


def _again(
    default: Protocol, cell: Cell, request: Request, area: Area, r: int, runs: int
) -> list[float]:
    """Run the default on the users of run r, with other coins: its losses as runs state them.

    Under another public salt each, where there is one: a prediction is for all of them, and of one
    salt the same users vote in every run.
    """
    tag = digest64(area.name, request.seed, repr(cell), r)
    users, _ = cell.draw(np.random.default_rng(tag))
    known = measured(default, users)
    salted = "salt" in parameters(type(default))
    those = [replace(cast(Any, default), salt=i + 1) if salted else default for i in range(runs)]
    made = (one_run(p, users, digest64(tag, i), area.options) for i, p in enumerate(those))
    return [default.loss_of(e, users, known=known) for e in made if e.value is not None]


def one_run(protocol: Protocol, users: Users, tag: int, options: Mapping[str, Any]) -> Estimate:
    """Run a method once."""
    seeded = Options(seed=digest64("coins", tag) >> 1, **options)
    return execute(protocol, users, seeded).estimate


def value_of(
    estimate: Estimate, protocol: Protocol, users: Users, keys: Keys | None = None
) -> Floats | None:
    """Return the value over all keys that the truth has; None where there is none."""
    if estimate.value is None:
        return None
    keys = protocol.support(users) if keys is None else keys
    return np.asarray((estimate if keys is None else estimate.over(keys)).value)


def judge(found: Findings, target: str, cells: Sequence[Measured]) -> None:
    """Judge a target, and show its worst cells."""
    regrets = np.array([m.least for m in cells])
    found.check(target, "share of the cells with regret <= 1.25", float((regrets <= WITHIN).mean()))
    surprising = [m.least for m in cells if not m.close]
    quantity = "largest regret, close calls apart, - 2 stderr"
    found.check(target, quantity, max(surprising, default=1.0))
    worse = sum(m.worse_than_trivial for m in cells)
    found.check(target, "cells worse than the trivial answer", float(worse))
    off = sum(m.mispredicted for m in cells)
    quantity = "share of the cells predicted within 15 %, or flagged"
    found.check(target, quantity, 1 - off / len(cells))
    low = sum(m.understated for m in cells)
    found.check(target, "cells whose squared error passes the stated one by 15 %", float(low))
    worst = sorted(cells, key=lambda m: -m.least)[: whole(found.request, "shown")]
    for m in worst:
        if m.least > 1.0:
            found.show(target, f"{m.cell}: regret, best {m.best}", m.regret, m.stderr)
    for m in sorted(cells, key=lambda m: -abs(math.log(m.ratio)) if m.mispredicted else 0.0)[:3]:
        if m.mispredicted:
            found.show(target, f"{m.cell}: measured / predicted", m.ratio, m.ratio_error)
    for m in [m for m in cells if m.understated][:3]:
        found.show(target, f"{m.cell}: squared error over the stated one", m.stated_ratio)
    share = (np.arange(len(cells)) + 1) / len(cells)
    plain = np.sort([m.regret for m in cells])
    found.draw("regret at most", target, share, plain, style="-")


def map_of(area: Area, target: str, cells: Sequence[Measured]) -> HeatMap:
    """Draw the largest regret over what two axes leave open."""
    squares = tuple(square(cells, x, y) for x, y in area.axes(target))
    title = f"{target}: largest regret of the default, and the best method there (NOT PRIVATE)"
    return HeatMap(target, title, squares, [m.row for m in cells])


def square(cells: Sequence[Measured], x: Axis, y: Axis) -> Square:
    """Lay the cells out on two axes; in each field the largest regret less two errors counts."""
    columns, rows = ([name for _, name in sorted({at(m.cell) for m in cells})] for _, at in (x, y))
    values = np.full((len(rows), len(columns)), math.nan)
    words = [[""] * len(columns) for _ in rows]
    for m in cells:
        i, j = rows.index(y[1](m.cell)[1]), columns.index(x[1](m.cell)[1])
        if not values[i, j] >= m.least:
            values[i, j] = m.least
            words[i][j] = (m.best if m.least > SMALL else "") + " *" * m.close
    return Square(
        "the largest over all else; *: said to be a close call",
        x[0],
        y[0],
        columns,
        rows,
        values,
        words,
    )
