"""The configuration that a plan starts from, by the name of a file or of a protocol."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fedhist.model.registry import load_builtin, protocols
from simulations.runs.config import (
    Config,
    builtin_configs,
    config_of,
    load_config,
    missing_keys,
    parse_tables,
)


def template_of(source: str, overrides: Iterable[str] = ()) -> Config:
    """Read a template: a configuration, or a protocol's first built-in one.

    Parameters
    ----------
    source : str
        A .toml file, a built-in configuration, or a registered protocol.
    overrides : iterable of str
        "table.key=VALUE". A protocol without a configuration takes all its tables from them.

    Raises
    ------
    ValueError
        For a name that is neither, and as :func:`simulations.runs.config.load_config` does.
    """
    load_builtin()
    if Path(source).suffix == ".toml" or source in builtin_configs() or source not in protocols():
        return load_config(source, overrides)
    for name in builtin_configs():
        config = load_config(name)
        if config.protocol["name"] == source and not missing_keys(config):
            return load_config(name, overrides)
    tables = parse_tables("", [f"protocol.name={source}", *overrides])
    if "population" not in tables:
        raise ValueError(
            f"no built-in configuration has {source}: give its population and parameters, "
            "--set population.kind=... and so on, or another configuration and "
            f"--protocols {source}"
        )
    return config_of(tables, source, source)
