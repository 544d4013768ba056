"""What a shell completes names with; nothing heavy is imported, or each tab would take a second."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

from typer import Context

from simulations.config.named_files import builtin_names

STUDY = (".toml",)
DATA = (".csv", ".tsv", ".tab", ".dat", ".txt", ".parquet", ".pq", ".gz", ".zst")


def _fitting(incomplete: str, names: list[str], endings: tuple[str, ...] = STUDY) -> list[str]:
    """Return the names, and the files of settings or others, that begin so."""
    folder, _, start = incomplete.rpartition("/")
    place = Path(f"{folder}/") if folder else Path()
    files = [str(p) for p in sorted(place.glob("*")) if _fits(p, start, endings)]
    return [*(n for n in names if n.startswith(incomplete)), *files]


def _fits(path: Path, start: str, endings: tuple[str, ...]) -> bool:
    return path.name.startswith(start) and path.suffix.lower() in endings


def configs(incomplete: str) -> list[str]:
    """Complete a configuration.

    >>> configs("quick")
    ['quickstart']
    """
    return _fitting(incomplete, builtin_names())


def studies(incomplete: str) -> list[str]:
    """Complete a study."""
    return _fitting(incomplete, builtin_names("studies"))


def kinds(incomplete: str) -> list[str]:
    """Complete what ``fedhist list`` lists.

    >>> kinds("e")
    ['experiments']
    """
    known = ("protocols", "configurations", "studies", "experiments")
    return [k for k in known if k.startswith(incomplete)]


def of_kind(ctx: Context, incomplete: str) -> list[str]:
    """Complete the name of one of them."""
    found = {
        "protocols": protocols,
        "configurations": configs,
        "experiments": experiments,
        "studies": studies,
    }.get(str(ctx.params.get("kind")))
    return [] if found is None else found(incomplete)


def decisions(incomplete: str) -> list[str]:
    """Complete what is decided on: a question, a study, or data."""
    return _fitting(incomplete, builtin_names("decisions"), STUDY + DATA)


def experiments(incomplete: str) -> list[str]:
    """Complete a table or figure of a paper.

    >>> experiments("figure")[:2]
    ['figure1', 'figure2']
    """
    # not as a package of its own: importing that one brings NumPy
    files = resources.files("simulations").joinpath("experiments", "configs").iterdir()
    names = sorted(f.name.removesuffix(".toml") for f in files if f.name.endswith(".toml"))
    return [n for n in ("all", *names) if n.startswith(incomplete)]


def protocols(incomplete: str) -> list[str]:
    """Complete a protocol of this package.

    >>> protocols("mean-l")
    ['mean-l2', 'mean-linf']
    """
    import fedhist.protocols as ours

    names = [re.sub(r"(?<!^)(?=[A-Z])", "-", c).lower() for c in vars(ours)["__all__"]]
    return sorted(n for n in names if n.startswith(incomplete))
