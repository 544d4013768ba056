"""What a report is made from: the folder of a run, experiment or comparison, or a study's file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from simulations.reporting.json_files import numbers
from simulations.studies.compare.output import read_comparison
from simulations.studies.records.cells import Record
from simulations.studies.records.losses import in_one_loss
from simulations.studies.records.store import Store

COMPARISON = "comparison.json"


@dataclass(frozen=True)
class RunFolder:
    """What ``fedhist run --out`` wrote.

    Attributes
    ----------
    name : str
    config, metrics, ledger : mapping
        The JSON files.
    estimate : polars.DataFrame or None
        Columns key, estimate, and stderr where it is known.
    figure : bytes
        The PNG; empty if there is none.
    """

    name: str
    config: Mapping[str, Any]
    metrics: Mapping[str, Any]
    ledger: Mapping[str, Any]
    estimate: pl.DataFrame | None
    figure: bytes


@dataclass(frozen=True)
class ExperimentFolder:
    """What ``fedhist reproduce`` wrote.

    Attributes
    ----------
    title : str
    config : mapping
    population : str
    table : polars.DataFrame
        The checks.
    curves : polars.DataFrame or None
        Columns panel, label, x, y, stderr.
    notes : mapping of str to tuple of str
        The report's lists by their headings.
    figure : bytes
    """

    title: str
    config: Mapping[str, Any]
    population: str
    table: pl.DataFrame
    curves: pl.DataFrame | None
    notes: Mapping[str, tuple[str, ...]]
    figure: bytes


@dataclass(frozen=True)
class Study:
    """Records of a sweep or of a comparison.

    Attributes
    ----------
    name : str
    records : tuple of Record
        Losses and predictions in one loss; see :func:`in_one_loss`.
    loss : str
        Its name; empty if the records have no loss in common.
    comparison : mapping or None
        A comparison's summary, without its records.
    notes : tuple of str
        What was changed to make losses comparable.
    figure : bytes
    """

    name: str
    records: tuple[Record, ...]
    loss: str
    comparison: Mapping[str, Any] | None = None
    notes: tuple[str, ...] = ()
    figure: bytes = b""


Found = RunFolder | ExperimentFolder | Study


def read_results(path: Path) -> Found:
    """Read whatever kind of results a path holds.

    Raises
    ------
    ValueError
        If it holds none, or they cannot be read.
    """
    if path.is_file():
        with Store(path, create=False) as store:
            records = store.records()
        if not records:
            raise ValueError(f"{path} holds no records yet: nothing to report")
        return study_of(path.stem, records)
    if not path.is_dir():
        raise ValueError(f"no such folder or file of results: {path}")
    if (path / COMPARISON).is_file():
        summary, records = read_comparison(path)
        made = study_of(str(summary["name"]), records, str(summary["loss"]))
        return replace(made, comparison=summary, figure=_bytes(path / "figure.png"))
    if not (path / "config.json").is_file():
        raise ValueError(f"{path} is not a folder of fedhist results: it has no config.json")
    config = _json(path / "config.json")
    if "experiment" in config:
        return _experiment(path, config)
    if not (path / "ledger.json").is_file():
        raise ValueError(f"{path} is not a folder that fedhist run, reproduce or compare wrote")
    estimate = path / "estimate.parquet"
    return RunFolder(
        path.resolve().name,
        config,
        _json(path / "metrics.json"),
        _json(path / "ledger.json"),
        pl.read_parquet(estimate, glob=False) if estimate.is_file() else None,
        _bytes(path / "figure.png"),
    )


def study_of(name: str, records: Sequence[Record], asked: str = "") -> Study:
    """Gather records whose losses are comparable."""
    found, loss, notes = in_one_loss(records, asked)
    return Study(name, tuple(found), loss, notes=tuple(notes))


def _experiment(path: Path, config: Mapping[str, Any]) -> ExperimentFolder:
    curves = path / "curves.csv"
    return ExperimentFolder(
        config.get("title", path.name),
        config,
        config.get("users", ""),
        pl.read_csv(path / "table.csv", infer_schema_length=None, glob=False),
        pl.read_csv(curves, infer_schema_length=None, glob=False) if curves.is_file() else None,
        {"Notes": tuple(config.get("notes", ()))},
        _bytes(path / "figure.png"),
    )


def thin(n: int, most: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Choose at most ``most`` of n points: the first ones, and ever fewer of the others.

    >>> thin(5, 9).tolist()
    [0, 1, 2, 3, 4]
    >>> thin(10**6, 4).tolist()
    [0, 1, 2, 999999]
    """
    if n <= most:
        return np.arange(n)
    head = np.arange(most // 2)
    spread = np.geomspace(len(head) + 1, n, most - len(head)).astype(np.int64) - 1
    chosen: np.ndarray[Any, np.dtype[np.int64]] = np.unique(np.concatenate([head, spread, [n - 1]]))
    return chosen[-most:] if len(chosen) > most else chosen


def _json(path: Path) -> dict[str, Any]:
    try:
        body: dict[str, Any] = numbers(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, json.JSONDecodeError) as e:
        raise ValueError(f"{path} cannot be read: {e}") from None
    return body


def _bytes(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""
