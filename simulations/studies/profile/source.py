"""Where a profile's population comes from: a data file, or the population of a configuration."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from simulations.config.named_files import settings_text
from simulations.config.reading import reading
from simulations.populations import Loaded
from simulations.populations.tables import TableFormat, first_row, is_parquet, separator_of
from simulations.runs.config import (
    REMOTE,
    Config,
    RunTable,
    missing_keys,
    parse_tables,
    population_spec,
)


def load_source(config: str | None, overrides: Sequence[str]) -> Loaded:
    """Load the population of a configuration, or the one that overrides alone describe.

    Parameters
    ----------
    config : str or None
        A .toml file, or the name of a built-in configuration.
    overrides : sequence of str
        "population.top=100" and so on.

    Raises
    ------
    ValueError, PopulationError
        With the offending key or value; where columns are missing, with those that there are.
    """
    text, name = "", "profile"
    if config is not None:
        text, name = settings_text(config, "configuration")
    with reading(config) if config else nullcontext():
        table: Any = parse_tables(text, overrides).get("population")
        if not isinstance(table, dict) or "kind" not in table:
            raise ValueError("there is no table [population] with the key 'kind' to profile")
        if table["kind"] == REMOTE:
            raise ValueError("the population is remote: its data are on the nodes, not here")
        made = Config(name, RunTable(), {"name": ""}, table)
        if config is None and missing_keys(made):
            raise ValueError(_missing(table))
        spec = population_spec(made)
    return spec.load()


def _missing(table: dict[str, Any]) -> str:
    """Say which options a data file needs, and what its columns are called."""
    wanted = "give --user with --item, or with --value for real samples"
    path = Path(str(table["path"]))
    if not path.is_file():
        return f"no such file: {path}"
    names = _columns(path, TableFormat(separator=table.get("separator")))
    return f"{wanted}; the columns of {path} are {', '.join(map(repr, names))}"


def _columns(path: Path, form: TableFormat) -> list[str]:
    if is_parquet(path):
        import polars as pl

        return list(pl.scan_parquet(path, glob=False).collect_schema())
    return first_row(path, separator_of(path, form), form)
