"""Cells that would all be errors are refused before any is run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fedhist.base.errors import FedhistError, PopulationError
from fedhist.model.evaluation import by_records, check_rows
from fedhist.model.protocol import Protocol
from fedhist.model.registry import parameters, protocol_class
from fedhist.users.shards import check_in_memory
from simulations.config.reading import built, check_keys, required
from simulations.populations import PopulationSpec
from simulations.reporting.json_files import canonical
from simulations.runs.config import population_spec
from simulations.runs.trust import with_trust
from simulations.studies.records.cells import Cell, load_once, prepare_cell

REFUSALS = (ValueError, TypeError, KeyError, FedhistError)


def check_cells(cells: Iterable[Cell], axes: Sequence[str]) -> None:
    """Refuse what no population and no protocol takes, and more users than a cell may hold.

    Parameters
    ----------
    cells : iterable of Cell
    axes : sequence of str
        Those of the protocol's parameters: an error names the values on them.

    Raises
    ------
    ValueError, PopulationError
    """
    cells = list(cells)
    people = _check_populations(cells)
    _check_records(cells, people, _check_protocols(cells, axes))


def _check_populations(cells: Iterable[Cell]) -> dict[str, PopulationSpec]:
    """Refuse parameters that no population takes, and too many users, before anything is run."""
    found: dict[str, PopulationSpec] = {}
    for cell in cells:
        text = canonical(cell.population)
        if text not in found:
            found[text] = population_spec(cell.config)
            check_in_memory(found[text].stated or 0, f"{_named(cell)}: a cell of a study")
    return found


def _named(cell: Cell) -> str:
    """Name a cell and its population."""
    return f"{cell.label} on a population of kind {cell.population['kind']!r}"


def _check_protocols(cells: Iterable[Cell], axes: Sequence[str]) -> dict[str, Protocol]:
    """Refuse keys that a protocol does not know or misses, and values that it never takes.

    Each table is built once, on its protocol's own example. What fails there and, in the same
    words, on the first of its own populations is refused before anything is run; what only a
    population can say is left to the cells.

    Returns
    -------
    dict
        The protocols that could be built, by their tables.
    """
    first: dict[str, Cell] = {}
    built: dict[str, Protocol] = {}
    for cell in cells:
        first.setdefault(canonical(cell.protocol), cell)
    for text, cell in first.items():
        found = _on_example(cell.protocol)
        if isinstance(found, Protocol):
            built[text] = found
            continue
        try:
            prepare_cell(cell)
        except REFUSALS as e:
            if str(e) == found:
                named = [k for k in axes if k.partition(".")[2] in found] or axes
                at = [f"{k} = {cell.protocol[k.partition('.')[2]]!r}" for k in named]
                where = f"{', '.join(at) or cell.label}: "
                raise ValueError(where * (not found.startswith(tuple(axes))) + found) from None
    return built


def _on_example(table: Mapping[str, Any]) -> Protocol | str:
    """Build a protocol on its own example, or say why it cannot be built."""
    cls = protocol_class(str(table["name"]))
    try:
        given = with_trust(cls, {k: v for k, v in table.items() if k != "name"}, None)
    except REFUSALS as e:
        return str(e)
    users = cls.example_users()
    domain = users.vocabulary if "domain" in parameters(cls) else None
    try:
        resolved, _ = cls.resolve(given, users, domain)
    except REFUSALS as e:
        return str(e)
    # keys that resolve replaces are no parameters
    check_keys(given.keys() & resolved.keys(), parameters(cls), f"parameter of {cls.name}")
    for key in sorted(required(cls) - resolved.keys()):
        raise ValueError(f"{cls.name} needs {key}: give protocol.{key} or an axis of it")
    try:
        return built(cls, resolved, "protocol")
    except REFUSALS as e:
        return str(e)


def _check_records(
    cells: Iterable[Cell], people: Mapping[str, PopulationSpec], built: Mapping[str, Protocol]
) -> None:
    """Refuse more users than records may be held at once, of protocols evaluated by records."""
    for cell in cells:
        protocol = built.get(canonical(cell.protocol))
        if protocol is not None and by_records(protocol):
            spec = people[canonical(cell.population)]
            stated = spec.stated
            n_users = len(load_once(cell.population, spec).users) if stated is None else stated
            try:
                check_rows(protocol, n_users)
            except PopulationError as e:
                raise PopulationError(f"{_named(cell)}: {e}") from None
