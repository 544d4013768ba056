"""Audits from Python."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fedhist.base.checks import check_integer
from fedhist.model.protocol import Protocol
from simulations.api.inputs import files_of, short
from simulations.audit.audited import Audited, audit_all
from simulations.audit.bounds import ALPHA
from simulations.audit.checks import changed, chosen_protocols
from simulations.audit.finding import Settings

WHAT = "a protocol, its class or its name"


def audit(
    protocol: str | Protocol | type[Protocol] | Iterable[str | Protocol | type[Protocol]],
    *,
    plugins: str | Path | Sequence[str | Path] = (),
    inputs: Sequence[Any] | None = None,
    effort: float = 1.0,
    seed: int = 0,
    alpha: float = ALPHA,
    **parameters: Any,
) -> Audited:
    """Test whether protocols keep their privacy claims.

    Parameters
    ----------
    protocol : str, Protocol, class of one, or several of them
        Of a name and of a class, its example is audited; "all" takes every protocol.
    plugins : path or sequence of path
        Python files with protocols.
    inputs : sequence of two records, optional
        Compared in place of a search: ``[{"tea": 2}, {"rye": 1}]``, or samples.
    effort : float
        Multiplies the number of draws.
    seed : int
    alpha : float
        Error probability of each check that draws.
    **parameters
        Fields of the protocol that are changed: ``epsilon=2.0``.

    Returns
    -------
    Audited

    Raises
    ------
    TypeError
        For what is no protocol.
    ValueError
        For an unknown protocol or parameter, and where nothing can be audited.

    Examples
    --------
    >>> import fedhist as fh
    >>> audited = fh.audit("local-histogram", effort=0.01)
    >>> audited.violated
    False
    """
    for name, number in (("effort", effort), ("alpha", alpha)):
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise TypeError(f"{name} must be a number, got {short(number)}")
    check_integer("seed", seed, least=0)
    if not isinstance(inputs, Sequence | None):
        raise TypeError(f"inputs must be two records, got {short(inputs)}")
    records = () if inputs is None else tuple(inputs)
    settings = Settings(effort=effort, seed=seed, alpha=alpha, records=records)
    files = [Path(p) for p in files_of("plugins", plugins)]
    chosen: list[Protocol] = []
    if not isinstance(protocol, str | Protocol | type | Iterable):
        raise TypeError(f"protocol must be {WHAT}, got {type(protocol).__name__}: {protocol!r}")
    for one in [protocol] if isinstance(protocol, str | Protocol | type) else protocol:
        if isinstance(one, str):
            chosen += chosen_protocols(one, files, parameters)
            continue
        chosen.append(_made(one, parameters))
    return audit_all(chosen, settings)


def _made(protocol: object, changes: dict[str, Any]) -> Protocol:
    """Return a protocol, or a class's example, with fields changed."""
    if isinstance(protocol, type) and issubclass(protocol, Protocol):
        protocol = protocol.example()
    if not isinstance(protocol, Protocol):
        raise TypeError(f"protocol must be {WHAT}, got {type(protocol).__name__}: {protocol!r}")
    return changed(protocol, changes)
