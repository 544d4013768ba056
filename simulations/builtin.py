"""Files of settings: one of the user's, or one that comes with fedhist, by name."""

from __future__ import annotations

from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from fedhist.errors import nearest

PACKAGE = "simulations.configs"


def builtin_names(folder: str = "") -> list[str]:
    """Return the names of the files that come with fedhist, of one folder."""
    files = _place(folder).iterdir()
    return sorted(f.name.removesuffix(".toml") for f in files if f.name.endswith(".toml"))


def settings_text(source: str | Path, what: str, folder: str = "") -> tuple[str, str]:
    """Return the text and the name of a file of settings.

    Parameters
    ----------
    source : path or str
        A .toml file, or a name from :func:`builtin_names`.
    what : str
        What it is, for errors: "sweep".
    folder : str

    Raises
    ------
    ValueError
        If there is none.
    """
    path = Path(source)
    if path.suffix == ".toml":
        if not path.is_file():
            raise ValueError(f"no such {what} file: {path}")
        return path.read_text(encoding="utf-8"), path.stem
    name, known = str(source), builtin_names(folder)
    if name not in known:
        raise ValueError(f"unknown {what} {name!r}{nearest(name, known)}")
    return _place(folder).joinpath(f"{name}.toml").read_text(encoding="utf-8"), name


def _place(folder: str) -> Traversable:
    place = resources.files(PACKAGE)
    return place.joinpath(folder) if folder else place
