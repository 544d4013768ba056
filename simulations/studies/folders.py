"""Any folder that a command has written, as an object that shows itself."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from simulations.reporting.files import flat, kind_of, numbers
from simulations.reporting.numbers import shown
from simulations.reporting.shown import RESULT, Kept, Shown
from simulations.reporting.table import Column, Table, numeric
from simulations.runs.results import NOT_PRIVATE, RUN
from simulations.studies.compared import STUDY, Compared

TOP = 20
"""Entries of an estimate in its table."""


def open_folder(path: str | Path) -> Shown:
    """Read whatever results a folder holds; ValueError where it holds none."""
    folder = Path(path)
    if not folder.is_dir():
        old = folder.suffix == ".sqlite" and folder.is_file()
        why = " (files of sweeps up to 0.2.0 are not read: run the study again)" if old else ""
        raise ValueError(f"no such folder of results: {path}{why}")
    kind = kind_of(folder)
    if kind == STUDY:
        return Compared.open(folder)
    if kind == RUN:
        return RunFolder(folder)
    if (folder / RESULT).is_file():
        return Kept.open(folder)
    raise ValueError(f"{path} is not a folder of results: no command of fedhist wrote it")


@dataclass(frozen=True, repr=False)
class RunFolder(Shown):
    """What ``fedhist run`` wrote."""

    kind: ClassVar[str] = RUN
    not_private: ClassVar[str] = (
        "errors and what stands beside them; the estimate is as its guarantee says"
    )

    folder: Path

    def _read(self, name: str) -> dict[str, Any]:
        try:
            return dict(numbers(json.loads((self.folder / name).read_text(encoding="utf-8"))))
        except (OSError, ValueError) as e:
            raise ValueError(f"{self.folder / name} cannot be read: {e}") from None

    @property
    def title(self) -> str:
        """The protocol, the population, and how it ended."""
        config, metrics = self._read("config.json"), self._read("metrics.json")
        reason = f": {metrics['reason']}" if metrics.get("reason") else ""
        of = f"{config['protocol']['name']} on {config['population'].get('kind', 'users')}"
        return f"{of}: {metrics['status']}{reason}"

    def tables(self) -> Sequence[Table]:
        """Return the largest entries of the estimate, if something was released."""
        file = self.folder / "estimate.csv"
        text = file.read_text(encoding="utf-8") if file.is_file() else "item,estimate\n"
        header, *rows = csv.reader(text.splitlines())
        values: list[list[Any]] = [[key, *map(float, own)] for key, *own in rows]
        top = sorted(values, key=lambda row: -row[1])[:TOP]
        title = f"the {TOP} largest of {len(values):,}" if len(values) > TOP else ""
        return [Table.of([Column(header[0]), *numeric(header[1:])], top, title=title)]

    def sections(self) -> Sequence[tuple[str, Sequence[str]]]:
        """Return what was promised and spent, the error, warnings, settings."""
        config, metrics, ledger = map(self._read, ("config.json", "metrics.json", "ledger.json"))
        secret = metrics.get(NOT_PRIVATE, {})
        spent = f"spent: epsilon = {shown(ledger.get('spent epsilon'))}"
        charges = [
            f"{c['label']}: epsilon = {c['epsilon']:.6g}, delta = {c['delta']:.3g}"
            for c in ledger.get("charges", ())
        ]
        error = [
            f"{secret['loss']} {shown(secret['measured'])} in {secret['repeats']} run(s); "
            f"{shown(secret['predicted'])} expected ({secret['prediction is']})"
            for _ in range("measured" in secret)
        ]
        tables = {k: v for k, v in config.items() if k in ("run", "protocol", "population")}
        return [
            ("guarantee", [str(ledger.get("guarantee")), spent, *charges]),
            ("error (NOT PRIVATE)", [*error, *map(str, secret.get("facts", ()))]),
            ("public", [f"{k} = {shown(v, 6)}" for k, v in metrics.get("public", {}).items()]),
            ("warnings", list(map(str, metrics.get("warnings", ())))),
            ("chosen by looking at the data", list(map(str, secret.get("choices", ())))),
            ("settings", [f"{k} = {v}" for k, v in flat(tables).items() if v not in ("", [])]),
        ]
