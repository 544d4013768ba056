"""What is to be decided: the table [decide] of a study file, or the options of the command.

[decide] holds

- ``target = "histogram"``: what shall be estimated;
- ``error = "10%"``: how far off it may be, as a share of the answer's own size (the error of
  answering 0 everywhere); of quantiles, of all users' ranks. ``error = 120`` is in the loss itself;
- ``epsilon = 1``: the budget that there is. With ``error`` too, users are solved for;
- ``delta = 1e-6``; ``trust``: levels of trust, all of them by default;
- ``effort``: "quick" or "usual"; ``theory = true`` stops before fresh runs;
- ``without = ["..."]``: protocols of the target that are left out.

[protocol] holds what is public or settled: ``clip``, ``low``, ``high``, ``levels``, ``tau_d``. What
it does not say is chosen by looking at the users: NOT PRIVATE. [population] and [run] are those of
a run. All levels are compared under replacement of one user's whole record.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar

from fedhist.base.errors import nearest
from fedhist.model.registry import protocols
from fedhist.privacy.guarantee import Trust
from simulations.config.reading import (
    Delta,
    Must,
    Positive,
    Settings,
    as_table,
    check_keys,
    one_of,
    part_of,
    read,
    reading,
    settings_text,
)
from simulations.runs.config import RunTable, parse_tables
from simulations.studies.levels import WORDS, levels_of
from simulations.studies.study import base_of

FOLDER = "decisions"
PUBLIC = ("low", "high", "levels", "tau_d", "tau_c", "max_users", "tau", "colluders")
"""What a decision takes of a run's table [protocol]; of a target of your own, all settings."""
DECIDED = ("epsilon", "delta", "adjacency", "trust")
SHARES = ("distribution", "quantiles")
"""Targets whose errors are shares by themselves."""
TARGETS = ("histogram", "distribution", "mean", "quantiles")
EFFORTS = ("quick", "usual")


@dataclass(frozen=True)
class DecideTable(Settings):
    """The table [decide]; what its keys mean stands above."""

    table: ClassVar[str] = "decide"
    target: Annotated[str, Must(f"a target ({', '.join(TARGETS)})", bool)] = "histogram"
    error: str | float | None = None
    epsilon: Positive | None = None
    delta: Delta = 1e-6
    trust: Any = WORDS
    effort: Annotated[str, one_of(*EFFORTS)] = "usual"
    theory: bool = False
    without: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Question(DecideTable):
    """What is asked, of which users: the table [decide] as it is meant, and the others.

    ``error``: the largest error that will do; a share if ``relative``; ``common``: the table
    [protocol].
    """

    name: str
    error: float | None
    relative: bool
    levels: tuple[Trust, ...]
    common: Mapping[str, Any]
    population: Mapping[str, Any]
    run: RunTable

    @property
    def asked(self) -> str:
        """The error in words."""
        if self.error is None:
            return ""
        return f"{100 * self.error:.4g}%" if self.relative else f"{self.error:g}"

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain data, as a study file has them."""
        table = {f.name: getattr(self, f.name) for f in fields(DecideTable)}
        table |= {"error": self.asked if self.relative else self.error}
        table |= {"trust": [t.value for t in self.levels], "without": list(self.without)}
        return {
            "decide": {k: v for k, v in table.items() if v is not None and v is not False},
            "protocol": dict(self.common),
            "population": dict(self.population),
            "run": {
                "seed": self.run.seed,
                "nodes": self.run.nodes,
                "plugins": list(self.run.plugins),
            },
        }


def question_text(source: str | Path) -> tuple[str, str]:
    """Return text and name of a study file, or of a built-in question; else ValueError.

    Of a file of data the text is empty: all that is asked of it are overrides.
    """
    path = Path(source)
    if path.suffix not in ("", ".toml") or (path.is_file() and path.suffix != ".toml"):
        return "", path.name.partition(".")[0]
    return settings_text(source, "file of data, study file or question", FOLDER)


def load_question(source: str | Path, overrides: Iterable[str] = ()) -> Question:
    """Read a study file with a table [decide], a built-in question, or what is asked of a file.

    ``source``: a .toml file, a name that ``fedhist list`` lists, or a file of data that the
    overrides make the population; ``overrides``: "decide.epsilon=2", "population.top=100". Raises
    ValueError for a missing file, malformed TOML, and keys and values that cannot be meant.
    """
    text, name = question_text(source)
    with reading(source):
        return question_of(parse_tables(text, overrides), source, name)


def check_columns(file: Path, user: str | None, item: str | None, value: str | None) -> None:
    """Refuse a file of data without the columns that are needed; the error names those it has."""
    from fedhist.users.tables import SEPARATORS, TableFormat, existing, first_row, is_parquet

    existing(file)
    if user is not None and (item is not None or value is not None):
        return
    missing = "--user" if user is None else "--item (or --value, of numbers)"
    has = ""
    if not is_parquet(file):
        suffix = next((s for s in reversed(file.suffixes) if s in SEPARATORS), ".csv")
        has = f"; its first line: {', '.join(first_row(file, SEPARATORS[suffix], TableFormat()))}"
    raise ValueError(f"{file}: name its columns: {missing} is missing{has}")


def question_of(tables: dict[str, Any], source: str | Path, name: str) -> Question:
    """Read the tables of a question; errors are those of :func:`load_question`."""
    tables, own = part_of(tables, "decide")
    table = read(DecideTable, own or {})
    common = dict(as_table(tables.pop("protocol", {}), "[protocol]"))
    if "name" in common:  # a run's: of what it sets, a decision takes what is public
        of_run = PUBLIC if table.target in TARGETS else common.keys() - {"name", *DECIDED}
        common = {k: v for k, v in common.items() if k in of_run}
    for key in DECIDED:
        if key in common:
            raise ValueError(f"protocol.{key} stands in [decide]: it is common to all protocols")
    base = base_of(tables, source, name)
    known = sorted({cls.target for cls in protocols().values()})
    if table.target not in known:
        raise ValueError(
            f"decide.target: unknown target {table.target!r}{nearest(table.target, known)}"
        )
    known = [name for name, cls in protocols().items() if cls.target == table.target]
    check_keys(table.without, known, "protocol in decide.without")
    if table.error is None and table.epsilon is None:
        raise ValueError('nothing is asked: give decide.error = "10%", decide.epsilon, or both')
    error, relative = (None, True) if table.error is None else error_of(table.error)
    if error is not None and error >= 1 and table.target in SHARES:
        own = f"{error:.4g}"
        raise ValueError(
            f"decide.error = {table.error} is no error of shares, which are 1 at most: "
            f'did you mean "{own.removesuffix("%")}%"?'
        )
    seed = base.run.seed if base.run.seed >= 0 else 1
    return Question(
        **{**vars(table), "error": error},
        name=name,
        relative=relative,
        levels=levels_of(table.trust, "decide.trust"),
        common=common,
        population=base.population,
        run=RunTable(runtime="inline", seed=seed, nodes=base.run.nodes, plugins=base.run.plugins),
    )


def error_of(given: str | float) -> tuple[float, bool]:
    """Read an error and whether it is a share of the answer's size.

    >>> error_of("10%"), error_of(120)
    ((0.1, True), (120.0, False))
    """
    text = str(given).strip()
    relative = text.endswith("%")
    try:
        value = float(text.removesuffix("%"))
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise ValueError(
            'decide.error must be a positive share such as "10%", or a number in the loss itself, '
            f"got {given!r}"
        )
    if not relative and isinstance(given, str) and value < 1:
        raise ValueError(
            f"decide.error: {text} could mean {100 * value:g}% or a distance of {value:g}: write "
            f'"{100 * value:g}%", or the number without quotation marks in a study file'
        )
    return (value / 100, True) if relative else (value, False)
