"""A cell: one protocol on one population with one seed. A record: what came of it.

Both are plain data. A cell's key is a digest of all that its loss depends on, so the same cell has
the same key and the same loss in any study and process. (Versions and processors may differ in
the last bits of sums of real numbers.)
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Self

from threadpoolctl import threadpool_limits

from fedhist.base.errors import nearest
from simulations.adversaries import Adversary, as_tables, read_adversaries
from simulations.populations import Loaded, Plan, PopulationSpec
from simulations.reporting.json_files import canonical, numbers, whole
from simulations.runs.config import Config, Prepared, RunTable, prepare
from simulations.runs.options import NOT_SAFE
from simulations.runs.results import protocol_fields
from simulations.studies.records.identity import (
    file_digest,
    population_identity,
    revision_of,
    versions,
)
from simulations.studies.records.metrics import measure
from simulations.studies.records.scale import ZEROS, relative

NOT_OF_A_CELL = {
    *("runtime", "workers", "ray_address", "repeats", "timeout", "min_replies"),
    *("ledger", "journal", "out"),
}
"""Keys of [run] that say where and how often to run, not what: no result depends on them."""

MOST_POPULATIONS, MOST_BYTES = 4, 1 << 30
"""How many populations a process keeps, and about how much memory they may take."""

ERROR = "error"
"""Status of a cell that raised; the others are those of an Estimate."""


@dataclass(frozen=True)
class Cell:
    """One protocol on one population with one seed.

    Parameters
    ----------
    protocol, population : mapping
        The tables of a run configuration, with "name" and "kind".
    run : mapping
        The table [run]; "seed" is needed. Keys that no result depends on are dropped, and so are
        defaults.
    label : str
        How tables call the protocol; not part of the key. Default: the protocol's name.
    adversary : sequence of mapping
        The tables [[adversary]], of which defaults are dropped. One with fraction 0 does nothing,
        and yet is part of the key.
    asked : str
        The truth that the estimate is held against; empty for the protocol's own.
    """

    protocol: Mapping[str, Any]
    population: Mapping[str, Any]
    run: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""
    adversary: Sequence[Mapping[str, Any]] = ()
    asked: str = ""

    def __post_init__(self) -> None:
        protocol, population, run = map(whole, (self.protocol, self.population, self.run))
        for table, key in ((protocol, "name"), (population, "kind")):
            if key not in table:
                raise ValueError(f"a cell needs the key {key!r}, got {table}")
        usual = {f.name: whole(f.default) for f in fields(RunTable)}
        for key in run:
            if key not in usual:
                raise ValueError(f"unknown key of [run] {key!r}{nearest(key, usual)}")
        seed = run.get("seed")
        if type(seed) is not int or not 0 <= seed < 1 << 63:
            raise ValueError(f"a cell needs a run.seed in [0, 2^63), got {seed!r}")
        adversary = _sparse(self.adversary)
        # who is missing counts where somebody may be
        dropped = NOT_OF_A_CELL - {"min_replies"} if adversary else NOT_OF_A_CELL
        run = {k: v for k, v in run.items() if k not in dropped and (k == "seed" or v != usual[k])}
        object.__setattr__(self, "protocol", protocol)
        object.__setattr__(self, "population", population)
        object.__setattr__(self, "run", run)
        object.__setattr__(self, "label", self.label or str(protocol["name"]))
        object.__setattr__(self, "adversary", adversary)

    @classmethod
    def from_dict(cls, tables: Mapping[str, Any]) -> Self:
        """Rebuild a cell from :meth:`to_dict`, also from what :func:`canonical` wrote of it."""
        known = ("protocol", "population", "run", "adversary")
        asked = tables.get("truth", {}).get("asked", "")
        return cls(**{k: numbers(tables[k]) for k in known if k in tables}, asked=asked)

    def to_dict(self) -> dict[str, Any]:
        """Return the tables as plain data; "adversary", a list, only where there are any."""
        tables = {"protocol": self.protocol, "population": self.population, "run": self.run}
        more: dict[str, Any] = {"adversary": self.adversary} if self.adversary else {}
        more |= {"truth": {"asked": self.asked}} if self.asked else {}
        return {name: whole(table) for name, table in (tables | more).items()}

    @cached_property
    def key(self) -> str:
        """Digest of the tables, in which files are named by their contents; 32 hex digits.

        The format of the users and the revision of the protocol's law are part of it: a study that
        goes on under another law runs its cells again.

        Raises
        ------
        PopulationError
            If a file that the cell names does not exist.
        """
        return _key_now(self)

    @property
    def config(self) -> Config:
        """The cell as a run configuration, for the inline runtime."""
        run: dict[str, Any] = {
            "runtime": "inline",
            **{k: tuple(v) if isinstance(v, list) else v for k, v in self.run.items()},
        }
        adversaries = read_adversaries(list(self.adversary))
        return Config(self.label, RunTable(**run), self.protocol, self.population, adversaries)


def _sparse(tables: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], ...]:
    """Check the tables [[adversary]] and write each in one way, without defaults."""
    usual = {f.name: f.default for f in fields(Adversary)}
    found = as_tables(read_adversaries([dict(t) for t in tables]))
    return tuple({k: whole(v) for k, v in t.items() if v != usual[k]} for t in found)


@dataclass(frozen=True)
class Record:
    """What came of a cell. NOT PRIVATE: losses are computed from the truth.

    Attributes
    ----------
    key, label, protocol, target : str
    status : {"ok", "refused", "failed", "error"}
        "error": the cell raised, and ``reason`` is the message.
    reason : str
    loss_name : str
    loss : float or None
        None unless ok.
    losses : mapping of str to float
        Distances from the truth in "l1", "l2", "squared l2" and "linf", whatever the protocol's
        own loss: what protocols of one target are compared in.
    trivial : mapping of str to mapping
        The same distances of the answers that need no data, by name: "all zeros", "uniform",
        "midpoint of the range"; in the protocol's own loss too.
    items : mapping of str to float
        Of items: what :func:`~simulations.studies.records.scale.item_measures` says.
    entries : int
        Of the truth; 0 where it is not known.
    asked : str
        The truth that losses are about where it is not the protocol's own; then ``off`` is the
        distance of the two, and ``own_losses`` are about the protocol's own.
    predicted : float or None
        Theory's expected loss; ``predicted_exact`` says whether it is an exact formula.
    rounds : int
    bytes_per_user : float or None
        Bytes that a user sends, on average over cohorts: the encoded report of one user, or its
        folded summary where a report's length is private.
    seconds : float
        Wall time of the run, without loading the population.
    guarantee : str
        In words, with trust, adjacency and unit beside it; ``claimed`` where a paper says more.
    epsilon, delta : float or None
        The guarantee's.
    spent_epsilon, spent_delta, composed
        What the ledger says, and by which composition.
    charges : tuple of str
        The ledger's entries in words: how the budget was split.
    adversaries : tuple of str
        Who misbehaved, in words. NOT SAFE among ``warnings`` says that the server checked nothing.
    bias : float or None
        Of means: the estimate minus the truth, averaged over the coordinates. Its mean over seeds
        estimates the bias.
    diagnostics : mapping of str to int
        Messages tampered with and messages not used, over all rounds, by what and why: "injected:
        malformed", "dropped: no answer". NOT PRIVATE.
    truth : str
        Which statistic of the users is estimated: see :class:`fedhist.model.truths.Truth`.
    noise : {"simulated", "secure"}
    clients : str
        How reports were simulated.
    n_users, seed : int or None
    population : str
        In words.
    parameters : mapping
        The protocol's fields, as resolved.
    not_private, warnings : tuple of str
    reads : tuple of str
        Of ``not_private``, what the protocol's own settings took from the data: a reference.
    public : mapping of str to float
    versions : mapping of str to str
    cell : mapping
        The cell's tables.
    more : mapping
        What a newer version wrote and this one does not know; kept.
    """

    key: str
    label: str = ""
    protocol: str = ""
    target: str = ""
    status: str = ERROR
    reason: str = ""
    loss_name: str = ""
    loss: float | None = None
    losses: Mapping[str, float] = field(default_factory=dict)
    trivial: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    items: Mapping[str, float] = field(default_factory=dict)
    entries: int = 0
    asked: str = ""
    off: Mapping[str, float] = field(default_factory=dict)
    own_losses: Mapping[str, float] = field(default_factory=dict)
    predicted: float | None = None
    predicted_exact: bool = False
    predicted_source: str = ""
    rounds: int = 0
    bytes_per_user: float | None = None
    seconds: float = 0.0
    guarantee: str = ""
    claimed: str = ""
    trust: str = ""
    adjacency: str = ""
    unit: str = ""
    epsilon: float | None = None
    delta: float | None = None
    spent_epsilon: float | None = None
    spent_delta: float | None = None
    composed: str = ""
    charges: tuple[str, ...] = ()
    adversaries: tuple[str, ...] = ()
    bias: float | None = None
    diagnostics: Mapping[str, int] = field(default_factory=dict)
    truth: str = ""
    noise: str = "simulated"
    clients: str = "per-user"
    n_users: int | None = None
    seed: int | None = None
    population: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    not_private: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    public: Mapping[str, float] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    cell: Mapping[str, Any] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return strict JSON: infinities are spelled as strings."""
        body = asdict(self)
        return canonical({**body.pop("more"), **body})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read :meth:`to_json`; missing keys take their defaults, unknown ones go to ``more``."""
        texts = {f.name for f in fields(cls) if f.type == "str"}
        body = {k: v if k in texts else numbers(v) for k, v in json.loads(text).items()}
        known = {f.name for f in fields(cls)} - {"more"}
        given: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in body.items() if k in known
        }
        return cls(**given, more={k: v for k, v in body.items() if k not in known})

    @property
    def size(self) -> float | None:
        """Loss of the answer that is 0 everywhere; None where it is not known."""
        return self.trivial.get(ZEROS, {}).get(self.loss_name)

    @property
    def relative(self) -> float | None:
        """The loss as a share of the answer's size; see :func:`relative`."""
        return relative(self.loss, self.size, self.loss_name)

    @property
    def own_loss(self) -> float | None:
        """The loss about the protocol's own truth."""
        return self.own_losses.get(self.loss_name) if self.asked else self.loss

    @property
    def tables(self) -> Cell:
        """The cell again, under its label."""
        found = Cell.from_dict(self.cell)
        return replace(found, label=self.label)


def run_cell(cell: Cell) -> Record:
    """Run a cell in this process; whatever it raises becomes a record of status "error".

    On one thread, as on Ray: sums of real numbers depend on how many threads BLAS splits them over.
    """
    known = _known(cell)
    try:
        with threadpool_limits(1):
            prepared = prepare_cell(cell)
            if prepared.plan is None:
                raise ValueError("the population is remote: a cell needs its users here")
            known |= _promises(prepared, prepared.plan)
            users = prepared.plan.users.in_memory("a cell")
            found = Record(**(known | measure(prepared, users, cell.asked)))
        if _key_now(cell) != cell.key:
            raise ValueError("a file that the cell names has changed since the study began")
        return found
    except Exception as e:
        return Record(**known, status=ERROR, reason=f"{type(e).__name__}: {e}")


def _key_now(cell: Cell) -> str:
    """Digest a cell's tables with the files as they are now; a cell keeps its first key."""
    tables = cell.to_dict()
    tables["population"] = population_identity(cell.population)
    tables["protocol"] |= revision_of(str(cell.protocol["name"]))
    if "plugins" in tables["run"]:
        tables["run"]["plugins"] = sorted(file_digest(p) for p in tables["run"]["plugins"])
    return hashlib.blake2b(canonical(tables).encode(), digest_size=16).hexdigest()


def prepare_cell(cell: Cell) -> Prepared:
    """Build a cell's protocol for its population, which is loaded once per process."""
    return prepare(cell.config, lambda spec: load_once(cell.population, spec))


def error_record(cell: Cell, reason: str) -> Record:
    """Return the record of a cell that could not be run."""
    return Record(**_known(cell), status=ERROR, reason=reason)


def _known(cell: Cell) -> dict[str, Any]:
    """Return what a cell says of itself."""
    return {
        "key": cell.key,
        "label": cell.label,
        "protocol": str(cell.protocol["name"]),
        "noise": str(cell.run.get("noise", "simulated")),
        "clients": str(cell.run.get("clients", "per-user")),
        "seed": int(cell.run["seed"]),
        "adversaries": tuple(a.in_words for a in read_adversaries(list(cell.adversary))),
        "warnings": () if cell.run.get("checks", True) else (NOT_SAFE,),
        "versions": versions() | revision_of(str(cell.protocol["name"])),
        "cell": cell.to_dict(),
    }


def _promises(prepared: Prepared, plan: Plan) -> dict[str, Any]:
    """Return what is known before anybody is asked."""
    protocol = prepared.protocol
    g, claimed = protocol.guarantee, protocol.claimed
    return {
        "target": protocol.target,
        "guarantee": str(g),
        "claimed": "" if claimed == g else str(claimed),
        "trust": g.trust.value,
        "adjacency": g.adjacency.value,
        "unit": g.unit,
        "epsilon": g.epsilon,
        "delta": g.delta,
        "n_users": len(plan.users),
        "population": plan.title,
        "parameters": protocol_fields(protocol),
        "not_private": prepared.not_private,
        "reads": tuple(n for n in prepared.not_private if n not in plan.not_private),
    }


# -- populations -----------------------------------------------------------------------------------

_cache: OrderedDict[str, Loaded] = OrderedDict()


def load_once(tables: Mapping[str, Any], spec: PopulationSpec) -> Loaded:
    """Load a population once per process; the ones used last are kept."""
    name = canonical(population_identity(tables))
    if name not in _cache:
        _cache[name] = spec.plan().loaded()
    _cache.move_to_end(name)
    while len(_cache) > 1 and (
        len(_cache) > MOST_POPULATIONS or sum(p.users.nbytes for p in _cache.values()) > MOST_BYTES
    ):
        _cache.popitem(last=False)
    return _cache[name]
