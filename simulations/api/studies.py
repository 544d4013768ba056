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
from simulations.studies.compare.config import CompareTable
from simulations.studies.decide.question import DecideTable
from simulations.studies.sweep.config import SweepTable

if TYPE_CHECKING:
    from simulations.studies.compare.run import Compared
    from simulations.studies.decide.decision import Decision
    from simulations.studies.decide.profile import Profile
    from simulations.studies.sweep.swept import Swept


def _split(
    part: str, study: Any, given: dict[str, Any], table: type
) -> tuple[Study, dict[str, Any]]:
    """Open a function's study with what is shared, and return the keys of its own table."""
    checked(f"fedhist.{part}", given, SHARED, (f.name for f in fields(table)))
    shared = {k: v for k, v in given.items() if k in SHARED}
    own = {k: v for k, v in given.items() if k not in SHARED}
    return opened(study, part).given(**shared), own


@takes(CompareTable)
def compare(
    study: str | Path | Study | None = None,
    *,
    workers: int | None = 0,
    progress: bool = False,
    **given: Any,
) -> Compared:
    """Rank protocols of one target on the same users, at one budget and one adjacency.

    Parameters
    ----------
    study : path, str or Study, optional
        A .toml file, or a built-in comparison.
    workers : int, optional
        Processes on Ray; 0 runs in this process, None takes all cores.
    progress : bool
        Show a bar.
    **given
        Data, tables, and the keys of the table [compare]: see :class:`fedhist.Study`.
        Of ``protocols``, names do, and protocols, and their classes.

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
    found, own = _split("compare", study, given, CompareTable)
    return found.compare(workers=workers, progress=progress, **own)


@takes(SweepTable)
def sweep(
    study: str | Path | Study | None = None,
    axes: Mapping[str, Sequence[Any]] | None = None,
    *,
    out: str | Path | None = None,
    retry: bool = False,
    workers: int | None = 0,
    progress: bool = False,
    **given: Any,
) -> Swept:
    """Run all combinations of a grid.

    Parameters
    ----------
    study : path, str or Study, optional
        A .toml file, or a built-in sweep.
    axes : mapping, optional
        Values by "table.key": ``{"protocol.epsilon": [0.5, 1, 2]}``.
    out : path, optional
        File that keeps the records: what it has is not run again.
    retry : bool
        Run the cells again that were errors.
    workers : int, optional
        Processes on Ray; 0 runs in this process, None takes all cores.
    progress : bool
        Show a bar.
    **given
        Data, tables, and the keys of the table [sweep]: see :class:`fedhist.Study`.

    Returns
    -------
    Swept
        NOT PRIVATE: errors are measured against the truth.

    Raises
    ------
    TypeError, ValueError, PopulationError
        As :func:`compare`.
    """
    found, own = _split("sweep", study, given, SweepTable)
    return found.sweep(axes, out=out, retry=retry, workers=workers, progress=progress, **own)


def results(file: str | Path) -> Swept:
    """Open the file of a sweep, to which another process may be writing.

    Raises
    ------
    ValueError
        If there is no such file, or it has no records.
    """
    from simulations.studies.sweep.swept import Swept

    if not isinstance(file, str | os.PathLike):
        raise TypeError(f"file must be a path, got {short(file)}")
    return Swept.open(file)


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
