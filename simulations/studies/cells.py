"""A cell is one protocol on one population with one seed; a record is what came of it.

Both are plain data. A cell's key is a digest of all that its loss depends on, so the same cell has
the same key and the same loss in any study and process. (Versions and processors may differ in the
last bits of sums of real numbers.)
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property, lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self, get_args, get_type_hints

import fedhist
from fedhist.base.errors import nearest
from fedhist.model.registry import display_of, is_ours, protocol_class
from fedhist.users.tables import existing
from simulations.adversaries import Adversary, as_tables, read_adversaries
from simulations.populations import KINDS, Loaded, PopulationSpec
from simulations.reporting.files import canonical, numbers, plain, whole
from simulations.runs.config import Config, Prepared, RunTable, prepare
from simulations.studies.losses import AS_COUNTS, SQUARES, ZEROS, restated

NOT_OF_A_CELL = {
    *("runtime", "workers", "ray_address", "repeats", "timeout", "min_replies"),
    *("ledger", "journal", "out"),
}
"""Keys of [run] that say where and how often to run, not what: no result depends on them."""

MOST_POPULATIONS, MOST_BYTES = 4, 1 << 30
"""How many populations a process keeps, and about how much memory they may take."""


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
    """

    protocol: Mapping[str, Any]
    population: Mapping[str, Any]
    run: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""
    adversary: Sequence[Mapping[str, Any]] = ()

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
        standard = {f.name: f.default for f in fields(Adversary)}
        adversary = tuple(
            {k: whole(v) for k, v in t.items() if v != standard[k]}
            for t in as_tables(read_adversaries([dict(t) for t in self.adversary]))
        )
        # who is missing counts where somebody may be
        dropped = NOT_OF_A_CELL - {"min_replies"} if adversary else NOT_OF_A_CELL
        run = {k: v for k, v in run.items() if k not in dropped and (k == "seed" or v != usual[k])}
        object.__setattr__(self, "protocol", protocol)
        object.__setattr__(self, "population", population)
        object.__setattr__(self, "run", run)
        object.__setattr__(self, "label", self.label or str(protocol["name"]))
        object.__setattr__(self, "adversary", adversary)

    def to_dict(self) -> dict[str, Any]:
        """Return the tables as plain data; "adversary", a list, only where there are any."""
        tables = {"protocol": self.protocol, "population": self.population, "run": self.run}
        more: dict[str, Any] = {"adversary": self.adversary} if self.adversary else {}
        return {name: whole(table) for name, table in (tables | more).items()}

    @cached_property
    def key(self) -> str:
        """Digest of the tables, in which files are named by their contents; 32 hex digits.

        The format of the users and the revision of the protocol's law are part of it: a study that
        goes on under another law runs its cells again.

        Raises PopulationError if a file that the cell names does not exist.
        """
        return key_now(self.to_dict())

    @property
    def config(self) -> Config:
        """The cell as a run configuration, for the inline runtime."""
        run: dict[str, Any] = {
            "runtime": "inline",
            **{k: tuple(v) if isinstance(v, list) else v for k, v in self.run.items()},
        }
        adversaries = read_adversaries(list(self.adversary))
        return Config(self.label, RunTable(**run), self.protocol, self.population, adversaries)


# -- what a cell is known by -----------------------------------------------------------------------


def key_now(tables: dict[str, Any]) -> str:
    """Digest a cell's tables with the files as they are now; a cell keeps its first key."""
    tables["population"] = population_identity(tables["population"])
    tables["protocol"] |= revision_of(str(tables["protocol"]["name"]))
    if "plugins" in tables["run"]:
        tables["run"]["plugins"] = sorted(file_digest(p) for p in tables["run"]["plugins"])
    return hashlib.blake2b(canonical(tables).encode(), digest_size=16).hexdigest()


def population_identity(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table [population] with files named by their contents, not by their paths.

    The format of a kind's users stands beside it: under another one they are others.
    """
    spec = KINDS.get(str(table["kind"]))
    hints = get_type_hints(spec) if spec is not None else {}
    made = {"format": spec.format} if spec is not None and spec.format else {}
    return made | {
        k: file_digest(v) if isinstance(v, str) and Path in get_args(hints.get(k)) else plain(v)
        for k, v in table.items()
    }


@lru_cache(maxsize=64)
def revision_of(name: str) -> dict[str, str]:
    """Return the revision of the law of one of this package's protocols, where it had others.

    A plugin's law is that of its file, which a cell names by its contents.
    """
    try:
        cls = protocol_class(name)
    except ValueError:  # a plugin's, not loaded yet
        return {}
    return {"revision": str(cls.revision)} if cls.revision and is_ours(cls) else {}


def file_digest(path: str) -> str:
    """Digest the contents of a file; PopulationError if there is none."""
    file = existing(Path(path)).resolve()
    state = file.stat()
    return _digest(file, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=64)
def _digest(file: Path, size: int, changed: int) -> str:
    """Read a file once for as long as its size and time stay."""
    with file.open("rb") as f:
        digest = hashlib.file_digest(f, lambda: hashlib.blake2b(digest_size=16))
    return f"contents:{digest.hexdigest()}"


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """Return the versions that a loss may depend on in its last bits."""
    own = {"fedhist": fedhist.__version__, "python": platform.python_version()}
    return own | {name: version(name) for name in ("numpy", "numba", "scipy")}


# -- what a cell needs -----------------------------------------------------------------------------

_populations: OrderedDict[str, Loaded] = OrderedDict()


def load_once(tables: Mapping[str, Any], spec: PopulationSpec) -> Loaded:
    """Load a population once per process; the ones used last are kept."""
    name = canonical(population_identity(tables))
    if name not in _populations:
        _populations[name] = spec.plan().loaded()
    _populations.move_to_end(name)
    while len(_populations) > MOST_POPULATIONS or (
        len(_populations) > 1 and sum(p.users.nbytes for p in _populations.values()) > MOST_BYTES
    ):
        _populations.popitem(last=False)
    return _populations[name]


def prepare_cell(cell: Cell) -> Prepared:
    """Build a cell's protocol for its population, which is loaded once per process."""
    return prepare(cell.config, lambda spec: load_once(cell.population, spec))


# -- what came of a cell ---------------------------------------------------------------------------

ERROR = "error"
"""Status of a cell that raised; the others are those of an Estimate."""


@dataclass(frozen=True)
class Record:
    """What came of a cell. NOT PRIVATE: losses are computed from the truth.

    Attributes
    ----------
    key, label, target : str
    status : {"ok", "refused", "failed", "error"}
        "error": the cell raised, and ``reason`` is the message.
    reason : str
    loss : float or None
        None unless ok.
    loss_name : str
    losses : mapping of str to float
        Distances from the truth in "l1", "l2", "squared l2" and "linf", whatever the protocol's
        own loss: what protocols of one target are compared in.
    trivial : mapping of str to mapping
        The same distances of the answers that need no data, by name, in the protocol's own loss
        too.
    predicted : float or None
        Theory's expected loss.
    predicted_kind : {"", "exact", "simulated", "bound"}
    truth : str
        Which statistic of the users the estimate is about: see :class:`fedhist.Truth`.
    guarantee : mapping
        "text", "epsilon", "delta", "trust", "adjacency", "unit"; "claimed" where a paper says more.
    n_users : int or None
    rounds : int
    bytes_per_user : float or None
        Bytes that a user sends, on average over cohorts.
    seconds : float
        Wall time of the run, without loading the population.
    warnings : tuple of str
    cell : mapping
        The cell's tables.
    versions : mapping of str to str
    more : mapping
        What not every study shows: "population" in words, "entries" of the truth, "items" (see
        :func:`~simulations.studies.losses.item_measures`), "bias" of means, "public" numbers,
        "spent" epsilon, delta and by which composition, "not_private" notes and "reads" (of them
        what a setting took from the data), "diagnostics" of adversaries, "source" of the
        prediction, "traceback" of an error.
    """

    key: str
    label: str = ""
    target: str = ""
    status: str = ERROR
    reason: str = ""
    loss: float | None = None
    loss_name: str = ""
    losses: Mapping[str, float] = field(default_factory=dict)
    trivial: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    predicted: float | None = None
    predicted_kind: str = ""
    truth: str = ""
    guarantee: Mapping[str, Any] = field(default_factory=dict)
    n_users: int | None = None
    rounds: int = 0
    bytes_per_user: float | None = None
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()
    cell: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return strict JSON in one line: infinities are spelled as strings."""
        return canonical(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read :meth:`to_json`; what a newer version wrote besides goes to ``more``."""
        body = json.loads(text)
        texts = {f.name for f in fields(cls) if f.type == "str"}
        body = {k: v if k in texts else numbers(v) for k, v in body.items()}
        known = {f.name for f in fields(cls)}
        given: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in body.items() if k in known
        }
        new = {k: v for k, v in body.items() if k not in known}
        given["more"] = {**given.get("more", {}), **new}
        return cls(**given)

    @property
    def trust(self) -> str:
        """Whom the guarantee trusts; empty where it is not known."""
        return str(self.guarantee.get("trust", ""))

    @property
    def size(self) -> float | None:
        """Loss of the answer that is 0 everywhere; None where it is not known."""
        return self.trivial.get(ZEROS, {}).get(self.loss_name)

    def in_counts(self) -> Record:
        """State what is about shares of the users as counts of users."""
        n = self.n_users or 0
        squares = dict.fromkeys(SQUARES, n**2)

        def scaled(losses: Mapping[str, float]) -> dict[str, float]:
            return {name: x * squares.get(name, n) for name, x in losses.items()}

        own = {"loss": self.loss, "predicted": self.predicted}
        own = {k: None if x is None else x * squares.get(self.loss_name, n) for k, x in own.items()}
        items = dict(self.more.get("items", {}))
        items |= {"per item": n * items["per item"]} if items else {}
        return replace(
            self,
            **own,  # type: ignore[arg-type]
            target=AS_COUNTS[1],
            losses=scaled(self.losses),
            trivial={name: scaled(losses) for name, losses in self.trivial.items()},
            more={**self.more, "items": items},
        )

    def in_loss(self, loss: str) -> Record:
        """State the record in another loss.

        Theory's prediction goes along where the protocol's own loss is the same number, or where
        it follows (:func:`~simulations.studies.losses.restated`). Otherwise it is dropped.
        """
        if self.loss is None or self.loss_name == loss:
            return self
        if loss not in self.losses:
            reason = f"its loss, {self.loss_name}, cannot be stated as {loss}"
            told = {"status": ERROR, "reason": reason, "loss_name": loss}
            return replace(self, **told, loss=None, predicted=None)  # type: ignore[arg-type]
        value, predicted, kind = self.losses[loss], self.predicted, self.predicted_kind
        if predicted is not None and not math.isclose(self.loss, value, rel_tol=1e-9):
            if math.isclose(self.loss**2, value, rel_tol=1e-9):
                predicted = predicted**2  # the square of an expected distance stands for its own
            else:
                form, entries = display_of(self.target).form, int(self.more.get("entries", 0))
                predicted = restated(predicted, self.loss_name, loss, entries, form)
            kind = "simulated" if kind == "exact" else kind
        return replace(
            self,
            loss=value,
            loss_name=loss,
            predicted=predicted,
            predicted_kind=kind if predicted is not None else "",
        )
