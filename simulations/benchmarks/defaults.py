"""The default of every target at some hundred settings, before and after a change.

``python -m simulations.benchmarks.defaults --out before.jsonl`` appends a line for each run, and
goes on where it ended; ``--compare before.jsonl after.jsonl`` prints ratios of root errors. Users,
truths and losses are made here, so that two versions of the library are measured by one ruler: for
another version run this file by its path, with that version on ``PYTHONPATH``.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

import fedhist as fh
from fedhist import protocols

Numbers = NDArray[np.float64]
Record = dict[str, Any]
RUNS, PREDICTION_RUNS = 20, 100


@dataclass(frozen=True)
class Target:
    """A protocol with the fields it takes, the loss, and settings: rows of what users are like.

    n users of T items or samples (or as many as ``sizes`` says: "p20" Poisson, "pareto"), k items
    or d coordinates; ``differ`` and ``between`` say how far users differ.
    """

    protocol: str
    takes: str
    loss: str
    rows: str
    others: Mapping[str, Any] = field(default_factory=dict)


RANGE: Mapping[str, Any] = {"low": -1.0, "high": 1.0}
LOCAL = "epsilon n_users samples_per_user"
ON_UNIT = {"low": 0.0, "high": 1.0, "levels": (0.1, 0.5, 0.9)}
TARGETS: Mapping[str, Target] = {
    "histogram": Target("AdaptiveHistogram", "domain epsilon delta", "total l1", """
        n=300 k=20 eps=1 sizes=p20 | n=2000 k=200 eps=1 sizes=p20 | n=20000 k=200 eps=.5 sizes=p20
        n=20000 k=200 eps=8 sizes=p20 | n=20000 k=2000 eps=1 sizes=p20
        n=100000 k=50 eps=1 sizes=p3 | n=20000 k=200 eps=1 delta=1e-6 sizes=pareto
        n=5000 k=1000 eps=1 delta=1e-6 sizes=pareto | n=20000 k=200 eps=1 delta=1e-6 T=1"""),
    "unbounded histogram": Target("UnboundedHistogram", "epsilon delta", "total l1", """
        n=2000 k=200 eps=1 delta=1e-6 sizes=pareto | n=20000 k=1000 eps=2 delta=1e-6 sizes=p20
        n=300 k=20 eps=8 delta=1e-6 sizes=p5"""),
    "poisson counts": Target("PoissonCounts", "domain epsilon n_users", "total l1", """
        n=2000 k=1 eps=1 sizes=p5 | n=20000 k=1 eps=.5 sizes=p20 | n=20000 k=1 eps=4 sizes=p100"""),
    "distribution": Target("Distribution", f"domain delta {LOCAL}", "l1", """
        n=300 k=5 T=100 eps=1 delta=1e-6 | n=5000 k=5 T=300 eps=1 delta=1e-6
        n=5000 k=20 T=100 eps=.5 | n=300 k=50 T=10 eps=2 differ=.3 | n=20000 k=50 T=1 eps=1
        n=5000 k=20 T=100 eps=1 delta=1e-6 differ=.1 | n=5000 k=20 T=100 eps=1 delta=1e-6 differ=.8
        n=20000 k=100 T=10 eps=1 | n=20000 k=100 T=10 eps=1 delta=1e-6 differ=.2
        n=20000 k=50 T=100 eps=1 delta=1e-6 | n=20000 k=50 T=100 eps=8 delta=1e-6 differ=.1
        n=20000 k=50 T=100 eps=1 differ=.8 | n=20000 k=1000 T=2 eps=1 delta=1e-6
        n=20000 k=1000 T=10 eps=4 delta=1e-6 differ=.2"""),
    "ragged": Target("RaggedDistribution", "domain epsilon delta n_users", "l1", """
        n=300 k=10 eps=1 delta=1e-6 sizes=pareto | n=5000 k=50 eps=1 delta=1e-6 sizes=pareto
        n=5000 k=50 eps=1 delta=1e-6 differ=.5 sizes=pareto | n=20000 k=50 eps=.5 sizes=pareto
        n=20000 k=10 eps=2 delta=1e-6 sizes=p100
        n=20000 k=50 eps=1 delta=1e-6 differ=.1 sizes=p100
        n=20000 k=500 eps=4 delta=1e-6 differ=.1 sizes=pareto
        n=20000 k=50 eps=8 delta=1e-6 differ=.8 sizes=p20"""),
    "local distribution": Target("LocalDistribution", f"domain {LOCAL}", "l1", """
        n=5000 k=10 T=1 eps=1 | n=5000 k=50 T=100 eps=2 | n=10000 k=20 T=100 eps=1 differ=.5
        n=20000 k=10 T=100 eps=.5 | n=5000 k=100 T=20 eps=4 differ=.1 | n=50000 k=10 T=10 eps=1"""),
    "frequency oracle": Target("FrequencyOracle", "domain epsilon", "l1", """
        n=5000 k=10 T=1 eps=.5 | n=20000 k=100 T=1 eps=1 | n=20000 k=1000 T=1 eps=4
        n=100000 k=50 T=1 eps=8"""),
    "mean": Target("Mean", LOCAL, "squared", """
        n=1000 T=20 eps=1 | n=4000 T=20 eps=1 | n=8000 T=20 eps=1 | n=16000 T=20 eps=1
        n=2000 T=1 eps=1 | n=2000 T=300 eps=1 | n=20000 T=1 eps=.5 | n=20000 T=100 eps=.5
        n=20000 T=300 eps=1 | n=20000 T=20 eps=4 | n=20000 T=20 eps=8 | n=500 T=100 eps=2
        n=2000 T=100 eps=1 between=.05 | n=20000 T=100 eps=1 between=.05 | n=100000 T=10 eps=1
        n=20000 T=100 eps=1 between=.3 | n=20000 T=300 eps=2 between=.1""", RANGE),
    "mean-l2": Target("MeanL2", f"dimension {LOCAL}", "squared", """
        n=2000 d=16 T=20 eps=2 | n=20000 d=4 T=20 eps=1 | n=10000 d=32 T=20 eps=1
        n=5000 d=16 T=20 eps=4 | n=20000 d=16 T=20 eps=1 between=.05 | n=20000 d=64 T=1 eps=1"""),
    "mean-linf": Target("MeanLinf", f"dimension {LOCAL}", "squared", """
        n=2000 d=16 T=20 eps=2 | n=20000 d=4 T=20 eps=1 | n=10000 d=32 T=20 eps=1
        n=5000 d=16 T=20 eps=4"""),
    "sparse mean": Target("SparseMean", f"dimension sparsity {LOCAL}", "squared", """
        n=5000 d=50 s=2 T=20 eps=2 | n=5000 d=200 s=3 T=6 eps=2 | n=10000 d=100 s=3 T=6 eps=1
        n=10000 d=20 s=4 T=20 eps=4 | n=10000 d=100 s=3 T=1 eps=8"""),
    "central mean": Target("CentralMean", "dimension epsilon n_users", "squared", """
        n=50 d=1 T=20 eps=1 | n=300 d=1 T=20 eps=1 | n=2000 d=1 T=20 eps=.5 | n=5000 d=1 T=100 eps=1
        n=20000 d=1 T=20 eps=8 between=.3 | n=2000 d=1 T=20 eps=1 between=.3
        n=1000 d=10 T=20 eps=1 | n=5000 d=50 T=20 eps=1 between=.05
        n=500 d=100 T=10 eps=4""", RANGE),
    "central mean of prices": Target("CentralMean", "epsilon n_users", "squared", """
        n=6000 T=5 eps=.0233 | n=6000 T=5 eps=.1 | n=6000 T=5 eps=.5 | n=1000 T=5 eps=2""",
        {"low": 0.0, "high": 1000.0}),
    "few users": Target("FewUsersMean", f"dimension {LOCAL}", "squared", """
        n=100 d=256 T=20 eps=1 | n=400 d=1000 T=20 eps=1 | n=1000 d=64 T=20 eps=1
        n=300 d=16 T=20 eps=4 | n=1000 d=64 T=20 eps=1 between=.05""", {"box": 10.0}),
    "few users distribution": Target("FewUsersDistribution", f"domain {LOCAL}", "l1", """
        n=400 k=50 T=2000 eps=1 | n=2000 k=20 T=300 eps=2"""),
    "density": Target("Density", LOCAL, "function", """
        n=2000 T=20 eps=2 | n=20000 T=1 eps=1 | n=20000 T=100 eps=1 | n=20000 T=50 eps=2 differ=1
        n=20000 T=20 eps=8"""),
    "central density": Target("CentralDensity", LOCAL, "function", """
        n=2000 T=20 eps=2 | n=20000 T=1 eps=1 | n=20000 T=100 eps=1 | n=20000 T=50 eps=2 differ=1
        n=300 T=20 eps=.5"""),
    "quantiles": Target("Quantiles", "epsilon n_users", "ranks", """
        n=1000 T=20 eps=.5 | n=2000 T=1 eps=.5 | n=2000 T=50 eps=1 differ=1 | n=300 T=20 eps=2""",
        ON_UNIT),
    "local quantiles": Target("LocalQuantiles", "epsilon n_users", "ranks", """
        n=2000 T=20 eps=2 | n=20000 T=1 eps=1 | n=20000 T=50 eps=1 differ=1 | n=20000 T=20 eps=8""",
        ON_UNIT),
}  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """A row of a target."""

    target: str
    row: str

    @cached_property
    def given(self) -> dict[str, str]:
        """What the row gives."""
        return dict(pair.split("=") for pair in self.row.split())

    def of(self, key: str, default: float = 0.0) -> float:
        """Return a number of the row."""
        return float(self.given.get(key, default))

    def protocol(self) -> fh.Protocol:
        """Build the protocol."""
        target = TARGETS[self.target]
        n, k, d, t = (int(self.of(key, 1)) for key in ("n", "k", "d", "T"))
        values: dict[str, Any] = {
            "epsilon": self.of("eps"), "delta": self.of("delta"), "n_users": n, "dimension": d,
            "domain": fh.Keys.range(k), "samples_per_user": t, "sparsity": int(self.of("s")),
        }  # fmt: skip
        fields = {name: values[name] for name in target.takes.split()} | dict(target.others)
        if self.target == "few users":
            fields["sample_radius"] = 0.1 * math.sqrt(d)
        built: fh.Protocol = getattr(protocols, target.protocol)(**fields)
        return built

    def users(self, run: int) -> tuple[fh.Users, Numbers]:
        """Make the users of a run, and the truth."""
        rng = np.random.default_rng([zlib.crc32(f"{self.target}: {self.row}".encode()), run])
        if "k" in self.given:
            return self.users_of_items(rng)
        x, truth = self.samples(rng)
        n, t = x.shape[:2]
        values = x.reshape(n * t, -1)
        return fh.Users.from_samples(np.arange(n), np.arange(n + 1) * t, values), truth

    def users_of_items(self, rng: np.random.Generator) -> tuple[fh.Users, Numbers]:
        """Make users of items, each of which is its user's favourite with probability ``differ``.

        The truth: totals; or the law that all users share; or the average of users' own shares.
        """
        n, k, differ = int(self.of("n")), int(self.of("k")), self.of("differ")
        sizes, loss = self.given.get("sizes", ""), TARGETS[self.target].loss
        m = np.full(n, int(self.of("T")))
        if sizes == "pareto":
            m = np.minimum(np.ceil(4.0 * (1.0 + rng.pareto(1.2, n))), 1000).astype(np.int64)
        elif sizes:
            m = rng.poisson(float(sizes[1:]), n)
        p = np.arange(1, k + 1, dtype=np.float64) ** (-1.0 if loss == "total l1" else -0.5)
        p /= p.sum()
        own = rng.binomial(m, differ)
        if m.mean() >= k:
            counts = rng.multinomial(m - own, p)
            (user, item), count = (i.ravel() for i in np.indices(counts.shape)), counts.ravel()
        else:
            user = np.repeat(np.arange(n), m - own)
            item, count = rng.choice(k, len(user), p=p), np.ones(len(user), np.int64)
        user = np.concatenate((user, np.arange(n)))
        item = np.concatenate((item, rng.choice(k, n, p=p)))
        count = np.concatenate((count, own))
        users = fh.Users.from_counts(np.arange(n), user, item, count, fh.Keys.range(k))
        if loss == "total l1":
            return users, np.bincount(item, count, minlength=k).astype(np.float64)
        if not differ and m.max() > 1:
            return users, p
        shares = np.bincount(item, count / np.maximum(m, 1)[user], minlength=k)
        return users, shares / np.count_nonzero(m)

    def samples(self, rng: np.random.Generator) -> tuple[Numbers, Numbers]:
        """Make n users of t vectors; the truth is their average, or a density, or all samples."""
        n, t, d = (int(self.of(key, 1)) for key in ("n", "T", "d"))
        if TARGETS[self.target].loss in ("function", "ranks"):  # two bumps; or each user has one
            left = rng.random((n, 1 if self.of("differ") else t)) < 0.4
            x = np.where(left, rng.beta(8, 20, (n, t)), rng.beta(30, 12, (n, t)))
            if TARGETS[self.target].loss == "ranks":
                return x, np.sort(x.ravel())
            share, edges = left.mean() if self.of("differ") else 0.4, np.linspace(0.0, 1.0, 1025)
            below = stats.beta.cdf([edges], [[8], [30]], [[20], [12]])
            return x, np.diff(share * below[0] + (1 - share) * below[1]) * 1024
        if "prices" in self.target:
            x = rng.lognormal(2.5, 0.8, (n, 1)) * rng.lognormal(0.0, 0.7, (n, t))
            x = np.minimum(x, 1000.0)
            return x, np.array([x.mean()])
        mean, within = np.full(d, 0.237), 0.1 if self.target == "few users" else 0.2
        if self.target in ("mean-l2", "mean-linf"):
            mean, within = np.pad([0.5, -0.25, 0.125], (0, d - 3)), 0.4 / math.sqrt(d)
        elif self.target == "sparse mean":
            mean = np.pad([0.6, -0.4, 0.5, 0.3][: int(self.of("s"))], (0, d - int(self.of("s"))))
        x = mean + self.of("between") * rng.standard_normal((n, 1, d))
        x = np.clip(x + within * rng.standard_normal((n, t, d)), -1.0, 1.0)
        if self.target == "mean-l2":
            x /= np.maximum(1.0, np.linalg.norm(x, axis=2, keepdims=True))
        return x, x.mean(axis=(0, 1))

    def loss_of(self, estimate: fh.Estimate, truth: Numbers) -> float:
        """Measure a value against the truth."""
        loss = TARGETS[self.target].loss
        if estimate.keys is not None:
            estimate = estimate.over(fh.Keys.range(len(truth)))
        value = np.asarray(estimate.value, dtype=np.float64).ravel()
        if loss == "ranks":  # of the whole bin around a value, so that its middle costs nothing
            half, levels = 1 / 512 + 1e-9, np.array(ON_UNIT["levels"])
            low, high = (np.searchsorted(truth, value + h) / len(truth) for h in (-half, half))
            return float(np.maximum(0.0, np.maximum(low - levels, levels - high)).mean())
        if value.shape != truth.shape:
            raise ValueError(f"{self}: the value has shape {value.shape}, not {truth.shape}")
        if loss.endswith("l1"):
            return float(np.abs(value - truth).sum())
        square = np.square(value - truth)
        return float(square.mean() if loss == "function" else square.sum())

    def run(self, run: int, predict: bool) -> Record:
        """Run the protocol on the users of a run; with predictions always on those of the first."""
        users, truth = self.users(0 if predict else run)
        protocol = self.protocol()
        estimate = fh.run(protocol, users, seed=run + 1, clients="aggregate")
        out: Record = {"target": self.target, "setting": self.row, "run": run}
        out["error"] = self.loss_of(estimate, truth) if estimate.status == "ok" else None
        if predict and estimate.status == "ok":
            out["own"] = protocol.loss_of(estimate, users)
            if run == 0:
                told = protocol.error(users)
                out |= {"predicted": told.expected, "loss": told.loss, "stderr": told.stderr}
        return out


def settings(target: str) -> list[Setting]:
    """Return the settings of a target."""
    rows = re.split(r"\||\n", TARGETS[target].rows)
    return [Setting(target, row.strip()) for row in rows if row.strip()]


def read(path: Path) -> dict[tuple[str, str], dict[int, Record]]:
    """Read records by target and setting, then by run."""
    out: dict[tuple[str, str], dict[int, Record]] = defaultdict(dict)
    for line in path.read_text().splitlines() if path.exists() else ():
        r = json.loads(line)
        out[r["target"], r["setting"]][r["run"]] = r
    return out


def measure(chosen: Iterable[Setting], runs: int, out: Path, predict: bool) -> None:
    """Append a record for every run that a file does not hold."""
    held = read(out)
    with out.open("a") as file:
        for setting in chosen:
            for run in sorted(set(range(runs)) - set(held[setting.target, setting.row])):
                file.write(json.dumps(setting.run(run, predict)) + "\n")
                file.flush()


def ratio(over: Numbers, under: Numbers, squared: bool, stderr: float = 0.0) -> tuple[float, str]:
    """Divide two root errors of paired runs: the ratio, and it with its 99% interval in words.

    By the delta method; ``stderr`` is a share of what is over.
    """
    a, b = float(over.mean()), float(under.mean())
    spread = float(np.std(over / a - under / b, ddof=1)) / math.sqrt(len(over))
    power = 0.5 if squared else 1.0
    wide = float(stats.t.ppf(0.995, len(over) - 1)) * math.hypot(spread, stderr) * power
    value, width = (a / b) ** power, math.exp(wide)
    return value, f"{value:.2f} ({value / width:.2f} to {value * width:.2f})"


def compare(before: Path, after: Path) -> None:
    """Print ratios of root errors, new over old, by setting and, as geometric means, by target."""
    old, new = read(before), read(after)
    by_target = defaultdict[str, list[float]](list)
    for key in (k for k in new if k in old):
        pairs = [(new[key][r]["error"], old[key][r]["error"]) for r in new[key] if r in old[key]]
        valued = np.array([pair for pair in pairs if None not in pair]).T
        if valued.size < 6 or not valued.any(axis=1).all():
            print(*key, "fewer than three runs with an error", sep=" | ")
            continue
        squared = TARGETS[key[0]].loss in ("squared", "function")
        value, told = ratio(valued[0], valued[1], squared)
        by_target[key[0]].append(value)
        print(*key, told, sep=" | ")
    for target, values in by_target.items():
        print(target, f"{len(values)} settings", f"{stats.gmean(values):.2f}", sep=" | ")


def predictions(path: Path) -> None:
    """Print predicted over measured root errors, against the protocol's own truth."""
    for key, runs in read(path).items():
        x, first = np.array([r["own"] for r in runs.values() if "own" in r]), runs[0]
        if len(x) > 2 and "predicted" in first:
            told = np.full(len(x), first["predicted"])
            squared, stderr = first["loss"].startswith("squared"), first["stderr"] / told[0]
            print(*key, ratio(told, x, squared, stderr)[1], sep=" | ")


def main() -> None:
    """Run, or compare what was run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, help="file of records, to which runs are appended")
    parser.add_argument("--only", default="", help="regular expression of 'target: setting'")
    parser.add_argument("--runs", type=int, default=0)
    parser.add_argument("--predictions", action="store_true", help="ask error(users) as well")
    parser.add_argument("--compare", type=Path, nargs=2, metavar=("BEFORE", "AFTER"))
    given = parser.parse_args()
    if given.compare:
        compare(*given.compare)
        return
    if given.out is None:
        parser.error("--out FILE or --compare BEFORE AFTER is needed")
    every = (s for target in TARGETS for s in settings(target))
    chosen = [s for s in every if re.search(given.only, f"{s.target}: {s.row}")]
    runs = given.runs or (PREDICTION_RUNS if given.predictions else RUNS)
    measure(chosen, runs, given.out, given.predictions)
    if given.predictions:
        predictions(given.out)


if __name__ == "__main__":
    main()
