"""What a plan is asked, and the configuration that it starts from.

The table [plan] of a configuration holds

- ``error = 1e-4``: the target, in the protocol's loss; with ``relative = true`` it is a share of
  the error of an estimate that is 0 everywhere;
- ``solve``: "n_users" (if nothing is said), "samples_per_user" or "epsilon";
- ``protocols = ["mean", "naive-mean"]``: planned instead of the one of [protocol];
- ``trust = "all"``, or a list of levels of trust: those that the protocols have are planned;
- ``most``: the largest value to look at, however long it takes;
- ``verify = true``: the answers are simulated, ``seeds`` times.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from fedhist.model.registry import load_builtin, load_plugin, protocol_class, protocols
from fedhist.privacy.guarantee import Trust
from simulations.config.named_files import settings_text, toml_value
from simulations.config.parts import part_of
from simulations.config.reading import Must, Positive, Settings, read, reading
from simulations.runs.config import (
    Config,
    builtin_configs,
    config_of,
    load_config,
    missing_keys,
    parse_tables,
)
from simulations.studies.plan.population import Unknown
from simulations.studies.plan.verify import USUAL_SEEDS
from simulations.studies.records.levels import levels_of


@dataclass(frozen=True)
class PlanTable(Settings):
    """The table [plan]; what its keys mean stands above."""

    table: ClassVar[str] = "plan"
    error: Positive | None = None
    relative: bool = False
    solve: Unknown = "n_users"
    protocols: tuple[str, ...] = ()
    trust: Any = None
    most: Positive | None = None
    verify: bool = False
    seeds: Annotated[int, Must("a number of runs, at least 2", lambda n: n >= 2)] = USUAL_SEEDS

    @property
    def levels(self) -> tuple[Trust, ...]:
        """Levels of trust that are planned; empty takes every protocol as it is."""
        if self.trust is None:
            return ()
        return tuple(Trust) if self.trust == "all" else levels_of(self.trust, "plan.trust")


def load_plan(source: str, overrides: Iterable[str] = ()) -> tuple[Config, PlanTable]:
    """Read a template, a configuration or a protocol's first built-in one, and what is asked of it.

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
    text, name = plan_text(source)
    with reading(source):
        tables = parse_tables(text, overrides)
        if source in protocols() and "population" not in tables:
            raise ValueError(
                f"no built-in configuration has {source}: give its population and parameters, "
                "--set population.kind=... and so on, or another configuration and "
                f"--protocols {source}"
            )
        return plan_of(tables, source, name)


def plan_text(source: str) -> tuple[str, str]:
    """Return text and name of a configuration, or of what a protocol's plan starts from.

    Of a protocol without a built-in configuration the text says its name only.
    """
    load_builtin()
    if Path(source).suffix == ".toml" or source in builtin_configs() or source not in protocols():
        return settings_text(source, "configuration")
    for started in builtin_configs():
        config = load_config(started)
        if config.protocol["name"] == source and not missing_keys(config):
            return settings_text(started, "configuration")
    return f"[protocol]\nname = {toml_value(source)}\n", source


def plan_of(tables: Mapping[str, Any], source: str | Path, name: str) -> tuple[Config, PlanTable]:
    """Read the tables of a plan; errors are those of :func:`load_plan`."""
    common, own = part_of(tables, "plan")
    asked = read(PlanTable, own or {})
    protocol = common.get("protocol", {})
    if asked.protocols and isinstance(protocol, dict) and "name" not in protocol:
        common["protocol"] = {"name": asked.protocols[0], **protocol}
    config = config_of(common, source, name)
    for plugin in config.run.plugins:
        load_plugin(plugin)
    with reading("plan.protocols"):
        for named in asked.protocols:
            protocol_class(named)
    return config, asked


def template_of(source: str, overrides: Iterable[str] = ()) -> Config:
    """Read a template alone, as :func:`load_plan` does."""
    return load_plan(source, overrides)[0]
