"""Options of ``fedhist run`` as overrides of its configuration."""

from __future__ import annotations

from pathlib import Path

from simulations.config.named_files import toml_value


def data_overrides(
    data: Path | None,
    user: str | None,
    item: str | None,
    count: str | None,
    value: str | None,
    top: int | None,
) -> list[str]:
    """Return the overrides that make a file the population; ValueError for columns without it."""
    columns = {"user": user, "item": item, "count": count, "value": value, "top": top}
    given = {k: _column(v) for k, v in columns.items() if v is not None}
    if data is None:
        if given:
            raise ValueError(f"--{next(iter(given))} describes --data, which is not given")
        return []
    kind = "samples" if value is not None else "events"
    found = {"path": str(data), **given}
    return [
        "run.nodes=0",  # the configuration's number of nodes belongs to its own population
        f"population.kind={toml_value(kind)}",
        *(f"population.{k}={toml_value(v)}" for k, v in found.items()),
    ]


def _column(name: str | int) -> str | int:
    """Read a column's number; anything else is its name."""
    return int(name) if isinstance(name, str) and name.isdecimal() else name


def dotted(args: list[str]) -> list[str]:
    """Read --table.key VALUE and --table.key=VALUE; ValueError for other options."""
    out, rest = [], list(args)
    while rest:
        head = rest.pop(0)
        if not head.startswith("--") or "." not in head.partition("=")[0]:
            raise ValueError(f"unknown option {head!r}; see fedhist run --help")
        if "=" not in head:
            if not rest:
                raise ValueError(f"{head!r} needs a value")
            head = f"{head}={rest.pop(0)}"
        out.append(head.removeprefix("--"))
    return out
