"""What a shuffler is worth: errors under shuffle and under local trust at one budget. NOT PRIVATE.

Three tasks. *distribution*: one item of a user, Zipf(1) over k, the estimate projected onto the
simplex; l1 distance. *histogram*: ten distinct of 100 items of a user, drawn by Zipf(1) weights, of
which it reports one; totals floored at 0, l1 distance over all counts. *mean*: a value of a user,
Beta(2, 5); absolute error. All against the same users' own exact value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.base.hashing import digest64
from fedhist.model.protocol import Protocol
from fedhist.privacy.shuffler import Shuffling
from fedhist.protocols import FrequencyOracle, LocalHistogram, NaiveMean
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from simulations.experiments.base import Request, Result, mean_and_error
from simulations.experiments.findings import Findings
from simulations.experiments.settings import positive, positives, wholes
from simulations.runs.run import Options, execute

HELD, ITEMS = 10, 100
"""Distinct items of a user's histogram, and of the domain that they come from."""
LEVELS = ("shuffle", "local")


@dataclass(frozen=True)
class Case:
    """One budget, and the users it is for.

    Attributes
    ----------
    k, n : int
        Symbols of the distribution; users.
    epsilon, delta : float
        The target; under local trust delta is 0.
    """

    k: int
    n: int
    epsilon: float
    delta: float

    def __str__(self) -> str:
        return f"k = {self.k}, n = {self.n:,}, epsilon = {self.epsilon:g}"

    @property
    def shuffling(self) -> Shuffling:
        """Everybody reports, in one batch."""
        return Shuffling(self.epsilon, self.delta, self.n, tau=0.0)


@dataclass(frozen=True)
class Task:
    """One estimate: its users, its protocol under either trust, and its error."""

    users: Callable[[Case, np.random.Generator], Users]
    shuffled: Callable[[Case], Protocol]
    local: Callable[[Case], Protocol]
    error: Callable[[Floats, Floats], float]


def run(request: Request) -> Result:
    """Measure all tasks under both levels."""
    found, delta = Findings(request), positive(request, "delta")
    sizes = zip(
        *(wholes(request, x) for x in ("k", "n")), positives(request, "epsilon"), strict=True
    )
    cases = [Case(k, n, eps, delta) for k, n, eps in sizes]
    errors: dict[tuple[str, str], list[float]] = {}
    for name, task in TASKS.items():
        runs = wholes(request, f"{name}_runs")
        for case, repeats in zip(cases, runs, strict=True):
            for level in LEVELS:
                protocol = (task.shuffled if level == "shuffle" else task.local)(case)
                mean, error = mean_and_error(_errors(request, name, case, protocol, repeats))
                found.check(str(case), f"{name}, {level}", mean, error)
                errors.setdefault((name, level), []).append(mean)
                if level == "shuffle":
                    local = float(protocol.epsilon)  # type: ignore[attr-defined]
                    found.check(str(case), f"{name}, epsilon against the shuffler", local)
    at = np.arange(1, len(cases) + 1)
    for (name, level), means in errors.items():
        found.draw(name, level, at, means, marker="x", log="y")
    return found.result(
        "What a shuffler is worth",
        "trust between central and local, table D",
        x_label="setting, in the order of the table",
        y_label="error",
        log="",
        notes=(
            "NOT PRIVATE: errors are measured with the users' own exact values",
            "local reports are drawn as sums of the same law (clients = aggregate)",
            f"replacement, delta = {delta:g}; everybody reports, in one batch; the shuffled report "
            "is the best one for its own, local epsilon",
        ),
        population="users with one item of k, ten distinct of 100, or one value",
    )


def _errors(request: Request, name: str, case: Case, protocol: Protocol, runs: int) -> Floats:
    """Run on users drawn anew; both levels have the same."""
    out = []
    for r in range(runs):
        seed = digest64("shuffle-error", request.seed, name, str(case), r) >> 1
        users = TASKS[name].users(case, np.random.default_rng(seed))
        estimate = execute(protocol, users, Options(seed=seed, clients="aggregate")).estimate
        value = estimate.needed(f"{case}, {name}")
        out.append(TASKS[name].error(value, protocol.truth(users)))
    return np.array(out)


def zipf(k: int) -> Floats:
    """Return the probabilities of k items, falling as 1 / rank."""
    weights = 1 / np.arange(1, k + 1)
    return np.asarray(weights / weights.sum())


def _one_item(case: Case, rng: np.random.Generator) -> Users:
    n, item = case.n, rng.choice(case.k, case.n, p=zipf(case.k))
    ids, ones = np.arange(n, dtype=np.uint64), np.ones(n, dtype=np.int64)
    return Users.from_counts(ids, np.arange(n), item, ones, Keys.range(case.k))


def _ten_items(case: Case, rng: np.random.Generator) -> Users:
    """Draw without replacement, by the largest of log weights with Gumbel noise."""
    n = case.n
    keys = np.log(zipf(ITEMS)) + rng.gumbel(size=(n, ITEMS))
    item = np.argpartition(-keys, HELD, axis=1)[:, :HELD].ravel()
    ids, ones = np.arange(n, dtype=np.uint64), np.ones(n * HELD, dtype=np.int64)
    return Users.from_counts(ids, np.repeat(np.arange(n), HELD), item, ones, Keys.range(ITEMS))


def _one_value(case: Case, rng: np.random.Generator) -> Users:
    values = rng.beta(2, 5, (case.n, 1))
    return Users.from_samples(np.arange(case.n, dtype=np.uint64), np.arange(case.n + 1), values)


TASKS: Mapping[str, Task] = {
    "distribution": Task(
        _one_item,
        lambda c: FrequencyOracle.shuffled(c.shuffling, domain=Keys.range(c.k), project=True),
        lambda c: FrequencyOracle(
            c.epsilon, Keys.range(c.k), project=True, kind="krr" if c.epsilon >= 2 else "unary"
        ),
        lambda value, truth: float(np.abs(value - truth).sum()),
    ),
    "histogram": Task(
        _ten_items,
        lambda c: LocalHistogram.shuffled(c.shuffling, domain=Keys.range(ITEMS), clip=HELD),
        lambda c: LocalHistogram(Keys.range(ITEMS), c.epsilon, HELD, oracle="unary"),
        lambda value, truth: float(np.abs(value - truth).sum() / truth.sum()),
    ),
    "mean": Task(
        _one_value,
        lambda c: NaiveMean.shuffled(c.shuffling, n_users=c.n, low=0.0, high=1.0),
        lambda c: NaiveMean(c.epsilon, c.n, low=0.0, high=1.0),
        lambda value, truth: float(abs(value[0] - truth[0])),
    ),
}
