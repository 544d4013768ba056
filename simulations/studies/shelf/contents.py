"""What a folder or a file of results holds, whatever command wrote it: settings and results."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from simulations.reporting.numbers import number
from simulations.reporting.targets import MARK, kind_of
from simulations.runs.results import NOT_PRIVATE
from simulations.studies.records.store import ENDINGS, Store

TIMES = ("seconds", "rounds", "bytes")
"""Words in the names of what no two runs have in common."""
KINDS: Mapping[str, str] = {
    "comparison.json": "comparison",
    "findings.json": "audit",
    "reproduction.md": "reproduction",
    "ledger.json": "run",
    "report.md": "experiment",
}
"""Which file tells the kind of a folder from before folders had marks."""


@dataclass(frozen=True)
class Contents:
    """What some results say of themselves.

    Attributes
    ----------
    path : Path
    kind : str
    when : float
        Seconds since 1970.
    what : str
        What was computed, on what.
    status : str
    error : str
        How far off it was, or why there is nothing. NOT PRIVATE.
    settings, results : mapping of str to plain values
    estimate : polars.DataFrame or None
        Of a run.
    """

    path: Path
    kind: str
    when: float
    what: str = ""
    status: str = "ok"
    error: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    results: Mapping[str, Any] = field(default_factory=dict)
    estimate: pl.DataFrame | None = None

    @property
    def at(self) -> str:
        """When it was written, in local time."""
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(self.when))


def contents_under(folder: Path) -> list[Contents]:
    """Read all results right under a folder, the newest first; what is none of ours is skipped."""
    found = []
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or not _kind_of(path):
            continue
        try:
            found.append(contents_of(path))
        except (ValueError, OSError, KeyError, TypeError, AttributeError) as e:
            said = str(e) or type(e).__name__
            found.append(
                Contents(path, _kind_of(path), path.stat().st_mtime, "", "unreadable", said)
            )
    return sorted(found, key=lambda c: -c.when)


def contents_of(path: Path) -> Contents:
    """Read what a folder or a file of results holds.

    Raises
    ------
    ValueError
        If it holds none, or they cannot be read.
    """
    kind = _kind_of(path)
    if not path.exists():
        raise ValueError(f"there are no results {path}")
    if not kind:
        raise ValueError(f"{path} holds no results of fedhist")
    if path.is_file():
        return _of_store(path) if kind == "records" else Contents(path, kind, path.stat().st_mtime)
    marked = path / MARK if (path / MARK).is_file() else path
    found = Contents(path, kind, marked.stat().st_mtime)
    read = {"run": _of_run, "comparison": _of_comparison, "experiment": _of_experiment}
    return read.get(kind, _of_any)(found)


def _kind_of(path: Path) -> str:
    if path.is_file():
        return "records" if path.suffix in ENDINGS else kind_of(path)
    old = (kind for name, kind in KINDS.items() if (path / name).is_file())
    return kind_of(path) or next(old, "")


def _of_run(found: Contents) -> Contents:
    config, metrics = _json(found.path / "config.json"), _json(found.path / "metrics.json")
    secret = metrics.get(NOT_PRIVATE, {})
    estimate = found.path / "estimate.parquet"
    measured = secret.get("measured")
    error = f"{secret.get('loss', 'error')} {_number(measured)}" if measured is not None else ""
    results = {k: metrics.get(k) for k in ("status", "reason", "estimates", "warnings", "public")}
    results |= {k: secret.get(k) for k in ("loss", "measured", "standard error", "predicted")}
    return Contents(
        found.path,
        "run",
        found.when,
        _what(config.get("protocol", {}), config.get("population", {})),
        str(metrics.get("status", "")),
        error or str(metrics.get("reason", "")),
        dict(flattened(config)),
        dict(flattened(results)),
        pl.read_parquet(estimate, glob=False) if estimate.is_file() else None,
    )


def _of_comparison(found: Contents) -> Contents:
    body = _json(found.path / "comparison.json")
    rows, results = body["rows"], {}
    for row in rows:
        where = [str(row[k]) for k in ("label", "trust", "fraction") if row.get(k) is not None]
        for name in ("rank", "loss", "half_width", "predicted", "runs"):
            results[f"{', '.join(where)}: {name}"] = row.get(name)
    missing = sum(sum(row.get("missing", {}).values()) for row in rows)
    best = next((r for r in rows if r.get("rank") == 1), None)
    config = _json(found.path / "config.json")
    return Contents(
        found.path,
        "comparison",
        found.when,
        f"{config.get('compare', {}).get('target', '')} of {body.get('population', '')}",
        f"{missing} runs without a result" if missing else "ok",
        f"{body['loss']} {_number(best['loss'])}: {best['label']}" if best else "",
        dict(flattened(config | {k: body.get(k) for k in ("versions", "revision")})),
        results,
    )


def _of_experiment(found: Contents) -> Contents:
    config = _json(found.path / "config.json")
    table = pl.read_csv(found.path / "table.csv", infer_schema_length=None, glob=False)
    verdicts = Counter(str(v) for v in table["verdict"].to_list() if v)
    results = {}
    for row in table.iter_rows(named=True):
        for name in ("ours", "verdict"):
            results[f"{row['setting']}, {row['quantity']}: {name}"] = row[name]
    return Contents(
        found.path,
        "experiment",
        found.when,
        f"{config.get('experiment')} on {config.get('population', {}).get('name')}",
        ", ".join(f"{n} {v}" for v, n in sorted(verdicts.items())) or "not judged",
        settings=dict(flattened(config)),
        results=results,
    )


def _of_store(path: Path) -> Contents:
    with Store(path, create=False) as store:
        records = store.records()
    counts = Counter(r.status for r in records)
    results: dict[str, Any] = {}
    for r in records:
        name = f"{r.label}, {r.population}, epsilon {r.epsilon}, {r.n_users} users, seed {r.seed}"
        results[f"{name} ({r.key[:8]})"] = r.loss if r.loss is not None else r.status
    return Contents(
        path,
        "records",
        path.stat().st_mtime,
        ", ".join(dict.fromkeys(r.label for r in records)),
        ", ".join(f"{n} {s}" for s, n in sorted(counts.items())) or "empty",
        results=results,
    )


def _of_any(found: Contents) -> Contents:
    """Read the JSON files and the tables of a folder of another kind."""
    settings: dict[str, Any] = {}
    results: dict[str, Any] = {}
    for file in sorted(found.path.glob("*.json")):
        if file.name != MARK:
            into = settings if file.name == "config.json" else results
            into |= dict(flattened(_json(file)))
    for file in sorted(found.path.glob("table*.csv")):
        for row in pl.read_csv(file, infer_schema_length=None, glob=False).iter_rows(named=True):
            first, *others = row.items()
            results |= {f"{first[1]}: {name}": value for name, value in others}
    what = str(settings.get("experiment") or settings.get("title") or "")
    return Contents(found.path, found.kind, found.when, what, settings=settings, results=results)


def flattened(body: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Name every plain value of nested data "table.key", without times and numbers of messages.

    >>> dict(flattened({"a": {"b": [1, 2]}, "seconds": 3}))
    {'a.b.0': 1, 'a.b.1': 2}
    """
    if isinstance(body, Mapping):
        pairs: Iterable[tuple[Any, Any]] = body.items()
    elif isinstance(body, list | tuple):
        pairs = enumerate(body)
    else:
        yield name, body
        return
    for key, value in pairs:
        if key not in TIMES:
            yield from flattened(value, f"{name}.{key}" if name else str(key))


def _what(protocol: Mapping[str, Any], population: Mapping[str, Any]) -> str:
    budget = f", epsilon {protocol['epsilon']}" if "epsilon" in protocol else ""
    data = population.get("path") or population.get("kind", "")
    return f"{protocol.get('name', '')}{budget}: {Path(str(data)).name}"


def _number(value: Any) -> str:
    return number(float(value)) if value is not None else "-"


def _json(path: Path) -> dict[str, Any]:
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError) as e:
        raise ValueError(f"{path} cannot be read: {e}") from None
    return body if isinstance(body, dict) else {"": body}
