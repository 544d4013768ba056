"""Run configurations: a TOML file with the tables [run], [protocol], [population], [[adversary]].

The same file may have parts for studies, which :mod:`simulations.config.reading` names.

The keys of [protocol] are the fields of the protocol, those of [population] the fields of the
population's kind, and those of [run] the fields of :class:`RunTable`. An unknown key is an error
that names the nearest known one.

Whom the users trust is written beside the protocol's own keys and becomes its field ``trust``:
``trust = "aggregate"`` with ``tau_d``, ``tau_c`` and ``max_users``, ``trust = "shuffle"`` with
``delta``, ``tau`` and ``colluders``. The number of parties is the run's number of nodes; how many
users hide each other, and with it the local epsilon, is found when the protocol is resolved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, get_args

from fedhist.base.checks import check_choice
from fedhist.model.evaluation import Facts, measured
from fedhist.model.protocol import Protocol
from fedhist.model.query import Summary
from fedhist.model.registry import load_plugin, parameters, protocol_class
from fedhist.privacy.guarantee import Guarantee, Trust
from fedhist.privacy.shares import Aggregation
from fedhist.privacy.shuffling import Shuffler, Shuffling
from simulations.adversaries import Adversary, as_tables, override_adversary, read_adversaries
from simulations.config.reading import (
    Must,
    Natural,
    Settings,
    Whole,
    as_table,
    built,
    builtin_names,
    check_keys,
    converted,
    hints,
    key_value,
    one_of,
    part_of,
    read,
    reading,
    required,
    settings_text,
    tables_of,
)
from simulations.populations import KINDS, Plan, PopulationSpec, population
from simulations.populations.facts import budget_doubts, facts_of_run
from simulations.runs.options import Options, RepeatTable
from simulations.runs.run import check_held

CHOICE = {"protocol": "name", "population": "kind"}
"""The key of a table that decides which other keys it has."""

REMOTE = "remote"
"""Kind of a population whose data only the nodes have; the protocol must be fully configured."""

FIELD = "trust"
SHUFFLE = "shuffle (ideal)"
"""Shuffling by whoever simulates it: what reaches the session has neither users nor nodes."""
PARTIES = 100
"""Nodes under aggregate trust where a run names no number."""

PREMISES: Mapping[str, type] = MappingProxyType(
    {Trust.AGGREGATE.value: Aggregation, Trust.SHUFFLE.value: Shuffler}
)
"""The parameters of a trust that is not the protocol's own."""

RESOLVED: Mapping[type, type] = MappingProxyType({Aggregation: Aggregation, Shuffler: Shuffling})
"""What the field then holds of it."""

COUNTED = "parties"
"""Field of a premise that is not a key: it is counted."""


@dataclass(frozen=True)
class RunTable(Settings):
    """The table [run].

    Parameters
    ----------
    runtime : {"inline", "ray"}
    nodes : int
        Flower nodes; 0 takes the runtime's default.
    workers : int
        Most Ray tasks at a time; 0 takes all CPUs.
    seed : int
        The simulation's seed; -1 draws one.
    noise : {"simulated", "secure"}
    fold : {"node", "server"}
        Where the reports of a node's users are added up.
    clients : {"per-user", "aggregate"}
        How local reports are simulated: one by one, as clients do, or as sums drawn from their
        exact law (inline only).
    min_replies : int
        Fewest nodes that must answer; 0 asks for all.
    max_users_per_node : int
        Most users that one node has: a reply that stands for more is malformed; 0 names no number.
    timeout : float
        Seconds to wait for the nodes of a round; on Ray, for the next reply.
    repeats : int
        Runs with seeds seed, seed + 1, ...; errors are reported with their standard error.
    ray_address : str
        Ray cluster to join; empty starts one in this machine.
    plugins : tuple of str
        Python files whose protocols may be used.
    ledger : str
        File that keeps what has been released from this data set; empty keeps none.
    on_bad_reply : {"drop", "stop"}
        What becomes of a user whose message fails its check: it is left out, or its node is refused
        ("stop"), which ends the run unless min_replies allows it.
    aggregation : {"ideal", "masked"}
        How sums under aggregate trust are made: "ideal", by a server that sees what each node sends
        and is trusted to forget it, or under masks, in four rounds of messages. A deployment's are
        always under masks.
    journal : str
        Folder that makes the run survive a restart; empty keeps none.
    out : str
        Folder for the results; empty names one after the protocol and the time.
    """

    table: ClassVar[str] = "run"
    runtime: str = "ray"
    nodes: Natural = 0
    workers: Natural = 0
    seed: Annotated[int, Must("a non-negative integer, or -1 to draw one", lambda s: s >= -1)] = -1
    noise: str = "simulated"
    fold: Annotated[str, one_of("node", "server")] = "node"
    clients: str = "per-user"
    min_replies: Natural = 0
    max_users_per_node: Natural = 0
    timeout: float = 3600.0
    repeats: Whole = 1
    ray_address: str = ""
    plugins: tuple[str, ...] = ()
    ledger: str = ""
    on_bad_reply: str = "drop"
    aggregation: str = "ideal"
    journal: str = ""
    out: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.repeats > 1 and self.journal:
            raise ValueError("a journal belongs to one run; run.repeats must be 1")
        try:
            self.options()
        except ValueError as e:
            raise ValueError(f"run.{e}") from None

    def options(self, **more: Any) -> Options:
        """Translate to the options of :func:`simulations.runs.run.execute`."""
        shared = {f.name for f in fields(self)} & {f.name for f in fields(Options)}
        given: dict[str, Any] = {name: getattr(self, name) for name in shared}
        for name, value in given.items():  # 0 and "" stand for what is not asked
            given[name] = value if isinstance(value, bool) else value or None
        given |= {"seed": self.seed if self.seed >= 0 else None, "fold": self.fold == "node"}
        given |= {"plugins": self.plugins, "timeout": self.timeout}
        return Options(**(given | more))


@dataclass(frozen=True)
class Config:
    """A configuration as written, before its population is loaded.

    ``name``: built-in name or file name, for titles and folders; ``protocol``: "name" and the
    protocol's parameters; ``population``: "kind" and the population's parameters; ``adversaries``:
    the tables [[adversary]]: who misbehaves; ``repeat``: the table [repeat]: how often it is asked.
    """

    name: str
    run: RunTable
    protocol: Mapping[str, Any]
    population: Mapping[str, Any]
    adversaries: tuple[Adversary, ...] = ()
    repeat: RepeatTable | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the tables as plain data."""
        run = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self.run).items()}
        tables: dict[str, Any] = {
            "run": run,
            "protocol": dict(self.protocol),
            "population": dict(self.population),
        }
        if self.adversaries:
            tables["adversary"] = as_tables(self.adversaries)
        if self.repeat is not None:
            tables["repeat"] = asdict(self.repeat)
        return tables


@dataclass(frozen=True)
class Prepared:
    """A configuration with its population planned and its protocol built.

    ``plan``: the population; None for "remote": the users' data are elsewhere (a deployment);
    ``not_private``: what was chosen by looking at private data, in words; ``total``: what the users
    add up to for the protocol's measure, where that was found as they answered.
    """

    config: Config
    plan: Plan | None
    protocol: Protocol
    not_private: tuple[str, ...] = field(default=())
    total: Summary | None = None

    @cached_property
    def known(self) -> Facts | None:
        """What evaluation knows of the users; None where they are elsewhere. NOT PRIVATE."""
        here = self.plan
        return None if here is None else measured(self.protocol, here.users, self.total)

    @cached_property
    def facts(self) -> tuple[str, ...]:
        """What matters about the users beside an estimate; empty elsewhere. NOT PRIVATE."""
        return () if self.plan is None else facts_of_run(self.plan, self.protocol)

    @property
    def doubts(self) -> tuple[str, ...]:
        """Where the budget protects nobody."""
        g, plan = self.protocol.guarantee, self.plan
        return budget_doubts(g.epsilon, g.delta, 0 if plan is None else len(plan.users))


def configs_of(protocol: str) -> list[str]:
    """Return the names of the built-in configurations of a protocol."""
    return [n for n in builtin_names() if load_config(n).protocol["name"] == protocol]


def load_config(source: str | Path, overrides: Iterable[str] = ()) -> Config:
    """Read a configuration file, or a built-in configuration by name.

    ``source``: a .toml file, or a name from :func:`builtin_names`; ``overrides``:
    "protocol.epsilon=0.5": values are TOML; a bare word is a string. Raises ValueError for a
    missing file, malformed TOML, unknown tables and keys.
    """
    text, name = settings_text(source, "configuration")
    with reading(source):
        return config_of(parse_tables(text, overrides), source, name)


def parse_tables(text: str, overrides: Iterable[str] = ()) -> dict[str, Any]:
    """Read TOML and set the overridden keys (ValueError)."""
    tables = tables_of(text)
    for override in sorted(overrides, key=_chooses, reverse=True):
        _override(tables, override)  # another kind first: it clears the keys of the old one
    return tables


def config_of(tables: Mapping[str, Any], source: str | Path, name: str) -> Config:
    """Check the common tables, beside which studies may have theirs.

    Plugins are relative to the source.
    """
    path = Path(source)
    tables, again = part_of(tables, RepeatTable.table)
    for table, key in CHOICE.items():
        if not isinstance(tables.get(table), dict) or key not in tables[table]:
            raise ValueError(f"{source} needs a table [{table}] with the key {key!r}")
    run = read(RunTable, tables.get("run", {}))
    if path.suffix == ".toml":
        run = replace(run, plugins=tuple(str(path.parent / p) for p in run.plugins))
    adversaries = read_adversaries(tables["adversary"]) if "adversary" in tables else ()
    repeat = None if again is None else read(RepeatTable, again)
    return Config(name, run, tables["protocol"], tables["population"], adversaries, repeat)


def prepare(config: Config, load: Callable[[PopulationSpec], Plan] | None = None) -> Prepared:
    """Plan the population and build the protocol.

    ``load``: plans or loads the population; default: plans it, and keeps users who take little
    memory.

    Raises ValueError, PopulationError with the offending key or value.
    """
    for plugin in config.run.plugins:
        load_plugin(plugin)
    try:
        cls = protocol_class(str(config.protocol["name"]))
    except ValueError as e:
        raise ValueError(
            f"protocol.name: {e} (--plugin FILE loads a protocol of your own)"
        ) from None
    table = {k: v for k, v in config.protocol.items() if k != "name"}
    given = with_trust(cls, table, config.run.nodes or None)
    if config.population["kind"] == REMOTE:
        if isinstance(given.get(FIELD), Shuffler | Shuffling):
            raise ValueError(
                "no shuffler stands between remote nodes and this server, which sees what each "
                "node sends: shuffle trust is simulated only"
            )
        plan = None
        resolved, notes = given, list[str]()
    else:
        spec = population_spec(config)
        plan = spec.plan().kept() if load is None else load(spec)
        check_held(len(plan.users), config.run.options(adversaries=config.adversaries))
        if "domain" in required(cls) - given.keys() and plan.domain is None:
            raise ValueError(
                f"{cls.name} needs a public domain: give population.domain=FILE (one item per "
                "line), or --top D for the D most frequent items, which is not private"
            )
        resolved, notes = cls.resolve(given, plan.users, plan.domain)
    check_keys(resolved, parameters(cls), f"parameter of {cls.name}")
    if missing := sorted(required(cls) - resolved.keys()):
        raise ValueError(
            f"{cls.name} needs {', '.join(missing)}: give --set protocol.{missing[0]}=... "
            f"(fedhist list protocols {cls.name} says what it is)"
        )
    protocol = built(cls, resolved, "protocol")
    check_trust(protocol, table.get("trust"))
    looked_at = plan.not_private if plan is not None else ()
    return Prepared(config, plan, protocol, (*looked_at, *notes))


def population_spec(config: Config) -> PopulationSpec:
    """Build the population's specification without loading it."""
    kind = str(config.population["kind"])
    given = {k: v for k, v in config.population.items() if k != "kind"}
    missing = missing_keys(config)
    if missing and given.keys() <= {f.name for f in fields(KINDS[kind])}:
        remedy = f"--set population.{missing[0]}=..."
        if missing[0] in ("user", "item", "value"):
            remedy = f"--{missing[0]} COLUMN beside --data"
        if "path" in missing:
            remedy = "--set population.path=FILE, or --data FILE with the names of its columns"
        raise ValueError(f"population {kind!r} needs {', '.join(missing)}: give {remedy}")
    try:
        return population(kind, **given)
    except TypeError as e:
        raise ValueError(str(e)) from None


def missing_keys(config: Config) -> list[str]:
    """Return the keys of [population] that the configuration leaves to whoever runs it."""
    spec = KINDS.get(str(config.population["kind"]))
    return sorted(required(spec) - config.population.keys()) if spec is not None else []


def _chooses(override: str) -> bool:
    """Say whether an override names another protocol, or another kind of population."""
    table, _, name = override.partition("=")[0].strip().partition(".")
    return CHOICE.get(table) == name


def _override(tables: dict[str, Any], text: str) -> None:
    key, parsed = key_value(text, "table.key=value")
    table, dot, name = key.partition(".")
    if not (dot and name):
        raise ValueError(f"--set reads table.key=value, got {text!r}")
    if table == "adversary":
        override_adversary(tables, name, parsed)
        return
    as_table(tables.setdefault(table, {}), f"[{table}]")
    if CHOICE.get(table) == name and tables[table].get(name) != parsed:
        tables[table] = {}  # another kind has other keys; the old ones mean nothing to it
    tables[table][name] = parsed


# -- whom the users trust: protocol.trust, and what goes with it -----------------------------------


def with_trust(cls: type[Protocol], given: Mapping[str, Any], nodes: int | None) -> dict[str, Any]:
    """Turn the keys that say whom the users trust into the protocol's field.

    ``given``: the protocol's table, without its name. A trust that is the protocol's own, "central"
    or "local", leaves the field out; see :func:`check_trust`; ``nodes``: of the run; None where it
    names no number. Raises ValueError if the protocol has no form for that trust, with its reason,
    or a key belongs to another.
    """
    rest = dict(given)
    word = rest.pop(FIELD, None)
    if word is not None and not isinstance(word, str | int | float | list):
        return {**rest, FIELD: word}  # from Python: the field itself
    if word is not None:
        check_choice("protocol.trust", word, [t.value for t in Trust])
    premise = PREMISES.get(str(word))
    known = [f.name for f in fields(premise) if f.name != COUNTED] if premise else []
    for other, kind in PREMISES.items():
        own = {f.name for f in fields(kind)} - set(parameters(cls)) - set(known)
        for key in rest.keys() & own:
            raise ValueError(f'protocol.{key} goes with trust = "{other}", which is not set')
    if premise is None:
        return rest
    if FIELD not in parameters(cls) or RESOLVED[premise] not in get_args(hints(cls)[FIELD]):
        why = unshuffled(cls) if premise is Shuffler else reason(cls)
        raise ValueError(f"{cls.name} does not run under {word} trust: {why}")
    keys = {k: rest.pop(k) for k in known if k in rest}
    missing = sorted(required(premise) - {COUNTED} - keys.keys())
    if missing:
        raise ValueError(f"protocol.{missing[0]} is needed under {word} trust")
    counted = {COUNTED: nodes or PARTIES} if COUNTED in hints(premise) else {}
    return {**rest, FIELD: premise(**counted, **converted(premise, keys, "protocol"))}


def reason(cls: type[Protocol]) -> str:
    """Say why a protocol has no form for another trust."""
    if cls.needs_server:
        return cls.needs_server
    if cls.example().guarantee.trust is Trust.LOCAL:
        return "its users' messages are private before they leave, so nobody has to be trusted"
    return "it releases more than sums of integers, to which nodes could add the noise"


def unshuffled(cls: type[Protocol]) -> str:
    """Say why a protocol's reports cannot pass a shuffler."""
    if cls.example().guarantee.trust is not Trust.LOCAL:
        return "a shuffler takes reports that users have randomized, and its users send none"
    from server.trust import Shuffles

    why = cls.unshuffled if issubclass(cls, Shuffles) else ""
    return why or "no report of its users is read alike, whoever sends it"


def check_trust(protocol: Protocol, word: Any) -> None:
    """Raise ValueError unless a protocol, as it was built, has the trust that was written."""
    has = protocol.guarantee.trust.value
    if isinstance(word, str) and word != has:
        why = reason(type(protocol))
        raise ValueError(f"{protocol.name} does not run under {word} trust, but {has}: {why}")


def shuffle_in_words(guarantee: Guarantee) -> str:
    """Say what a shuffler is worth, and what is left where it is not to be believed."""
    return f"({guarantee.epsilon:g}, {guarantee.delta:g})-DP if {guarantee.premise}"
