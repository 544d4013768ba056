"""Studies as functions of data.

What all of them take stands at :class:`~simulations.api.study.Study`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simulations.api.inputs import SHARED, checked, short, takes
from simulations.api.study import Study, opened
from simulations.studies.decide.question import DecideTable
from simulations.studies.study import CompareTable, SweepTable

if TYPE_CHECKING:
    from simulations.reporting.shown import Shown
    from simulations.studies.compared import Compared
    from simulations.studies.decide.decision import Decision
    from simulations.studies.decide.profile import Profile


def _split(
    part: str, study: Any, given: dict[str, Any], table: type
) -> tuple[Study, dict[str, Any]]:
    """Open a function's study with what is shared, and return the keys of its own table."""
    checked(f"fedhist.{part}", given, SHARED, (f.name for f in fields(table)))
    shared = {k: v for k, v in given.items() if k in SHARED}
    own = {k: v for k, v in given.items() if k not in SHARED}
    return opened(study, part).given(**shared), own


@takes(CompareTable, SweepTable)
def compare(
    study: str | Path | Study | None = None,
    axes: Mapping[str, Sequence[Any]] | None = None,
    *,
    out: str | Path | None = None,
    workers: int | None = 0,
    force: bool = False,
    progress: bool = False,
    **given: Any,
) -> Compared:
    """Rank protocols of one target on the same users, at one budget; with axes, at each point.

    Parameters
    ----------
    study : path, str or Study, optional
        A .toml file, or a built-in study.
    axes : mapping, optional
        Values by "table.key": ``{"protocol.epsilon": [0.5, 1, 2]}``.
    out : path, optional
        Folder that keeps the study: cells that it has are not run again. Default: none.
    workers : int, optional
        Processes on Ray; 0 runs in this process, None takes all cores.
    force : bool
        Begin anew, whatever the folder holds.
    progress : bool
        Show a bar.
    **given
        Data, tables, and the keys of the tables [compare] and [sweep]: see :class:`fedhist.Study`.
        Of ``protocols``, names do, and protocols, and their classes. Without a common ``epsilon``
        nothing is ranked: [protocol] is run at each point of the grid.

    Returns
    -------
    Compared
        NOT PRIVATE: errors are measured against the truth.

    Raises
    ------
    TypeError
        For an argument that is not known, and for what is no data.
    ValueError, PopulationError
        For values that cannot be meant.

    Examples
    --------
    >>> import fedhist as fh
    >>> users = fh.Users.from_records({f"u{i}": {"tea": 1 + i % 3} for i in range(50)})
    >>> found = fh.compare(
    ...     data=users,
    ...     domain=["tea", "rye"],
    ...     protocols=["bounded-histogram"],
    ...     protocol={"clip": 3.0},
    ...     epsilon=1.0,
    ...     seeds=2,
    ... )
    >>> found.table["protocol"].to_list()[-1]
    'bounded-histogram'
    """
    known = [f.name for t in (CompareTable, SweepTable) for f in fields(t)]
    checked("fedhist.compare", given, SHARED, known)
    shared = {k: v for k, v in given.items() if k in SHARED}
    own = {k: v for k, v in given.items() if k not in SHARED}
    found = opened(study, "compare").given(**shared)
    return found.compare(axes, out=out, workers=workers, force=force, progress=progress, **own)


def show(folder: str | Path) -> Shown:
    """Open a folder that a command has written, to which another process may be writing.

    Raises
    ------
    ValueError
        If there are no results.
    """
    from simulations.studies.folders import open_folder

    if not isinstance(folder, str | os.PathLike):
        raise TypeError(f"folder must be a path, got {short(folder)}")
    return open_folder(folder)


@takes(DecideTable)
def decide(
    study: str | Path | Study | None = None,
    *,
    profile: bool = False,
    progress: bool = False,
    **given: Any,
) -> Decision | Profile:
    """From data to a decision: which protocol under which trust, at which epsilon.

    Parameters
    ----------
    study : path, str or Study, optional
        A file of data, whose columns ``user``, ``item`` or ``value`` name; a .toml file, or a
        built-in question.
    profile : bool
        Return what the users are like, and stop.
    progress : bool
        Show a bar.
    **given
        Data, tables, and the keys of the table [decide]: see :class:`fedhist.Study`.
        ``error="10%"`` is a share of the answer's own size; ``effort="quick"`` is for notebooks;
        ``theory=True`` stops after the search, before fresh runs.

    Returns
    -------
    Decision or Profile
        NOT PRIVATE: errors are measured against the truth. ``decision.best("local")`` is the
        protocol of a level's answer, which :func:`fedhist.run` takes.

    Raises
    ------
    TypeError, ValueError, PopulationError
        As :func:`compare`.

    Examples
    --------
    >>> import fedhist as fh
    >>> users = fh.Users.from_records({f"u{i}": {"tea": 1 + i % 3} for i in range(500)})
    >>> decision = fh.decide(data=users, domain=["tea", "rye"], error="20%", trust="central")
    >>> protocol = decision.best("central")
    >>> fh.run(protocol, users, seed=1).status
    'ok'
    """
    if isinstance(study, str | os.PathLike) and Path(study).suffix not in ("", ".toml"):
        given, study = {"data": Path(study), **given}, None
    found, own = _split("decide", study, given, DecideTable)
    return found.decide(profile=profile, progress=progress, **own)
