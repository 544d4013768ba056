"""Query: one round trip. Report: what users answer. Summary: what the server adds up, in a Tree.

A Query is a frozen dataclass; every field is PUBLIC and travels to the clients, and nothing else
does. Its methods are the two halves of the round: ``answer`` runs where the data are, ``fold``
and the decoding helpers where messages arrive.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedhist.base.arrays import Array, Bounds, PlainArguments, Words
from fedhist.base.errors import FedhistError, WireError
from fedhist.model.finite import FiniteChannel
from fedhist.privacy.guarantee import EXACT, Adjacency, Moves, Release, Trust, pure
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from fedhist.users.keys import Keys, add_up
from fedhist.users.shards import Shard
from fedhist.users.streams import SeededStreams, Streams

if TYPE_CHECKING:
    from fedhist.privacy.shuffling import Hiding


CHUNK = 4096
"""Users per batch when a node is walked; fixed, because real-valued sums depend on it."""
MOST_KNOWN = 1 << 26
"""Coordinates of all users that a prediction keeps: half a gigabyte of doubles."""


@dataclass(frozen=True)
class Report:
    """The answers of a batch of users, one row each.

    Attributes
    ----------
    ids : (n,) uint64
        Public user ids.
    arrays : dict of str to (n, ...) array
        One row per user.
    ragged : dict of str to (total,) array
        Rows of differing length, described by ``indptr``.
    indptr : (n + 1,) int64 or None
    """

    ids: Words
    arrays: Mapping[str, Array] = field(default_factory=dict)
    ragged: Mapping[str, Array] = field(default_factory=dict)
    indptr: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        n = len(self.ids)
        for name, a in self.arrays.items():
            if a.ndim < 1 or len(a) != n:
                raise WireError(f"report array {name!r} has shape {a.shape} for {n} users")
        if (self.indptr is None) != (not self.ragged):
            raise WireError("ragged arrays and indptr come together")
        if self.indptr is not None:
            p = self.indptr
            if p.shape != (n + 1,) or p[0] != 0 or (p[1:] < p[:-1]).any():
                raise WireError(f"report indptr does not describe {n} users")
            for name, a in self.ragged.items():
                if a.ndim != 1 or len(a) != p[-1]:
                    raise WireError(f"ragged array {name!r} has shape {a.shape}, not ({p[-1]},)")

    @property
    def n_users(self) -> int:
        """Users who answered."""
        return len(self.ids)

    def row(self, i: int) -> dict[str, Array]:
        """Return what user i sent."""
        out = {name: a[i] for name, a in self.arrays.items()}
        if self.indptr is not None:
            a, b = self.indptr[i], self.indptr[i + 1]
            out |= {name: values[a:b] for name, values in self.ragged.items()}
        return out


@dataclass(frozen=True)
class Keyed:
    """Numbers or vectors by item key: the sparse part of a summary over an unbounded domain.

    Attributes
    ----------
    keys : Keys
        In byte order.
    values : (k, ...) array
    """

    keys: Keys
    values: Array

    @classmethod
    def merge(cls, parts: Iterable[Keyed]) -> Keyed:
        """Add values under equal keys; the result is in byte order, whatever the order of keys."""
        filled = [p for p in parts if len(p.keys)]
        if not filled:
            return cls(Keys.of(()), np.zeros(0, dtype=np.int64))
        shape, dtype = filled[0].values.shape[1:], filled[0].values.dtype
        for p in filled:
            _check_alike("keyed values", p.values, shape, dtype)
        return cls(*add_up([(p.keys, p.values) for p in filled]))


@dataclass(frozen=True)
class Summary:
    """What the server keeps of a round: a commutative monoid with three kinds of parts.

    Attributes
    ----------
    n_users : int
        Users who answered.
    sums : dict of str to array
        Arrays that add.
    keyed : dict of str to Keyed
        Sparse parts that add by key.
    rows : dict of str to (n_users, ...) array
        Every user's own row, for estimators that need it; ordered by user id.
    ids : (n_users,) uint64 or None
        User ids of the rows; present when there are rows.
    """

    n_users: int
    sums: Mapping[str, Array] = field(default_factory=dict)
    keyed: Mapping[str, Keyed] = field(default_factory=dict)
    rows: Mapping[str, Array] = field(default_factory=dict)
    ids: Words | None = None

    def __post_init__(self) -> None:
        if self.n_users < 0:
            raise WireError(f"a summary cannot cover {self.n_users} users")
        if (self.ids is None) != (not self.rows):
            raise WireError("rows and their user ids come together")
        for name, a in self.rows.items():
            if self.ids is None or not a.shape[:1] == self.ids.shape == (self.n_users,):
                raise WireError(f"rows {name!r} have shape {a.shape} for {self.n_users} users")

    @property
    def linear(self) -> bool:
        """Whether only sums were sent, so that secure aggregation could compute it."""
        return not self.keyed and not self.rows

    @classmethod
    def merge(cls, parts: Iterable[Summary]) -> Summary:
        """Add summaries in the order given (which fixes the rounding of real-valued sums).

        Raises
        ------
        WireError
            If the parts do not have the same names and shapes, or a user's row comes twice.
        """
        merged = list(parts)
        if not merged:
            raise WireError("no summaries to merge")
        first = merged[0]
        if len(merged) == 1 and first.linear:  # a block, a node: small sums come by the thousand
            return cls(first.n_users, {name: a.copy() for name, a in first.sums.items()})
        for p in merged[1:]:
            for kind in ("sums", "keyed", "rows"):
                one, other = sorted(getattr(first, kind)), sorted(getattr(p, kind))
                if one != other:
                    raise WireError(f"summaries disagree: {kind} {other} and {one}")
        sums = {}
        for name, a in first.sums.items():
            total = a if len(merged) > 1 else a.copy()
            for p in merged[1:]:
                b = p.sums[name][None]
                _check_alike(f"sums {name!r}", b, a.shape, a.dtype)
                total = np.add(total, b[0], out=np.empty_like(a) if total is a else total)
            sums[name] = total
        keyed = {name: Keyed.merge(p.keyed[name] for p in merged) for name in first.keyed}
        rows: dict[str, Array] = {}
        ids = None
        if first.rows:
            ids = np.concatenate([p.ids for p in merged if p.ids is not None])
            order = np.argsort(ids, kind="stable")
            ids = ids[order]
            if (ids[1:] == ids[:-1]).any():
                raise WireError("a user's row came from two nodes")
            for name, a in first.rows.items():
                for p in merged:
                    _check_alike(f"rows {name!r}", p.rows[name], a.shape[1:], a.dtype)
                rows[name] = np.concatenate([p.rows[name] for p in merged])[order]
        return cls(sum(p.n_users for p in merged), sums, keyed, rows, ids)


def _check_alike(what: str, a: Array, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Raise WireError unless the entries of ``a`` can be added to others of a shape and dtype."""
    if a.shape[1:] != shape or a.dtype != dtype:
        raise WireError(f"{what} disagree: {a.dtype}{a.shape[1:]} and {dtype}{shape}")


class Query(metaclass=PlainArguments):
    """One round trip. Subclasses are frozen dataclasses registered with ``@register_query``.

    Class attributes
    ----------------
    wire_name : str
        The name under which a message may ask for this query.
    trust : Trust
        LOCAL if ``answer`` is itself a randomizer; CENTRAL if the server must be trusted. The
        levels between are those of queries around a query (:mod:`fedhist.model.aggregated`).
    spare : tuple of str
        Substreams of which words may be left over: drawn for rejections, or for long records.
    """

    wire_name: ClassVar[str]
    trust: ClassVar[Trust]
    spare: ClassVar[tuple[str, ...]] = ()
    cohort: Cohort | None = None
    parties: int | None = None
    """Nodes that must be asked, neither more nor fewer; None: any number."""
    quorum: int | None = None
    """Fewest nodes whose answers may be added up, whatever the run asks for; None: all of them."""
    series: str | None = None
    """Names the questions that are paid for together, with the first of them."""

    @property
    def label(self) -> str:
        """Name of a charge for answering."""
        return self.wire_name

    @property
    def release(self) -> Release:
        """What answering costs one user: EXACT (nothing yet) for central queries."""
        return EXACT

    @property
    def moves(self) -> Moves | None:
        """How far one user moves what answering costs for, where it is known; for the ledger."""
        return None

    @property
    def exact(self) -> bool:
        """Whether a local answer keeps its promise as it is drawn, not only in real arithmetic.

        True for reports built from integers against integer thresholds. False, the default, for
        floating-point noise, whose low bits depend on the data, and for what is private per item
        only: real clients refuse both.
        """
        return False

    def integer_sensitivity(self, norm: int, adjacency: Adjacency) -> float:
        """Bound what one user moves the sums by, as they are sent: integers, in the l1 or l2 norm.

        A node sizes its share of noise by it, so it follows from the query's own fields.

        Raises
        ------
        ValueError
            If none is known (the default): no share of noise can be sized for such a query.
        """
        raise ValueError(
            f"{self.wire_name!r} states no l{norm} sensitivity of integer sums under "
            f"{adjacency.value}: no share of noise can be sized for it"
        )

    def finite_channel(self) -> FiniteChannel | None:
        """Return the exact law of a local answer, for every allowed input, if it is known."""
        return None

    @abstractmethod
    def answer(self, users: Users, rng: Streams) -> Report:
        """Run the client half for a batch of users; never raises for a user's data.

        Parameters
        ----------
        users : Users
        rng : Streams
            The same users' private randomness.
        """

    @abstractmethod
    def fold(self, report: Report) -> Summary:
        """Add up the reports of a batch; may run on the node or on the server."""

    @abstractmethod
    def check(self, report: Report) -> None:
        """Raise WireError unless every row could come from an honest user."""

    @abstractmethod
    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        """Say what each part of an honest folded summary of n_users can be, by name."""

    @property
    def inner(self) -> Query:
        """What users answer, without what is put around it."""
        return self

    @property
    def at_once(self) -> int:
        """Users who answer together; more than a chunk where sums are integers, reports short."""
        return CHUNK

    def answer_folded(self, users: Users, rng: Callable[[Users], Streams]) -> Summary:
        """Answer and fold a block of users without keeping reports; fused kernels may override it.

        The users are at most :data:`~fedhist.users.shards.BLOCK`: a node with more is walked by
        blocks, whose sums add up as a tree. The result must equal folding the answers chunk by
        chunk, bit for bit.
        """
        parts = [self.fold(self.answer(c, rng(c))) for c in users.blocks(self.at_once)]
        return Summary.merge(parts or [self.fold(self.answer(users, rng(users)))])

    def draw_summary(self, users: Users, rng: np.random.Generator) -> Summary:
        """Draw the folded summary of all users from its exact law.

        The aggregate path of the simulation, which no client takes: where the law is written down
        it costs as much as counting. By default answers are drawn from ``rng``, and folded.
        """
        key = int(rng.integers(1 << 62))
        return self.answer_folded(users, lambda chunk: SeededStreams(chunk.ids, key, "aggregate"))

    def draw_reports(self, users: Users, rng: np.random.Generator) -> Report | None:
        """Draw the reports where their sums would be mostly zeros; None, the default, elsewhere."""
        return None

    def summary_law(
        self, users: Shard, cache: dict[str, Any]
    ) -> Callable[[np.random.Generator], Summary] | None:
        """Prepare many draws of the summary of the same users, for predictions; None: nothing.

        The law may be an approximation. ``cache`` is what queries of the same users keep.
        """
        return None

    def check_summary(self, summary: Summary) -> None:
        """Raise WireError unless an honest node with that many users could send the summary."""
        bounds = self.bounds(summary.n_users)
        arrays: dict[tuple[str, str], Array] = {("sums", k): v for k, v in summary.sums.items()}
        arrays |= {("keyed", k): v.values for k, v in summary.keyed.items()}
        arrays |= {("rows", k): v for k, v in summary.rows.items()}
        expected = {(limits.part, name) for name, limits in bounds.items()}
        if arrays.keys() != expected:
            raise WireError(f"a summary of {sorted(expected)} is expected, got {sorted(arrays)}")
        for name, limits in bounds.items():
            a = arrays[limits.part, name]
            limits.check(name, a)
            if a.dtype.itemsize != 8:  # parts of one kind add up
                raise WireError(f"{name!r} has dtype {a.dtype}, expected 64 bits")
        if summary.ids is not None:
            self.check_cohort(summary.ids)

    def check_part(self, summary: Summary) -> None:
        """Raise WireError unless a node could send the summary; by default one like the total."""
        self.check_summary(summary)

    def lift(self, total: Summary, nodes: int) -> Summary:
        """Make the summary of what so many nodes sent, added up; by default it is that sum."""
        return total

    def check_cohort(self, ids: Words) -> None:
        """Raise WireError unless all users who answered belong to the cohort that was asked."""
        if self.cohort is not None:
            outside = ids[~self.cohort.contains(ids)]
            if len(outside):
                raise WireError(f"user {int(outside[0])} answered, but is not in {self.cohort}")


class LocalQuery(Query):
    """A query whose answer is itself a randomizer of a user's whole record.

    Subclasses have the field ``epsilon``: what an answer costs its user.
    """

    trust: ClassVar[Trust] = Trust.LOCAL
    epsilon: float

    @property
    def release(self) -> Release:
        return pure(self.epsilon)

    # -- reports among others, for a shuffler: see fedhist.model.shuffled

    @property
    def hiding(self) -> Hiding | None:
        """How well a report hides among others of its batch; None, the default: it does not.

        A batch is the users whose reports have one law and are read alike, whoever sends them. A
        report that is read with its user's id names its user.
        """
        return None

    @property
    def n_batches(self) -> int:
        """Groups of users, by public ids, who report about different things: folds."""
        return 1

    def batch_sizes(self, total: Summary) -> NDArray[np.int64]:
        """Count the users of each batch in a summary: (n_batches,)."""
        return np.array([total.n_users])


class Around(Query):
    """A query around another one, whose client half is the other's."""

    query: Query

    @property
    def inner(self) -> Query:
        return self.query

    def answer(self, users: Users, rng: Streams) -> Report:
        return self.query.answer(users, rng)

    def answer_folded(self, users: Users, rng: Callable[[Users], Streams]) -> Summary:
        return self.query.answer_folded(users, rng)

    def fold(self, report: Report) -> Summary:
        return self.query.fold(report)


def only_array(report: Report, name: str) -> Array:
    """Return the one array of a report; WireError if there is another or none."""
    if report.arrays.keys() != {name} or report.ragged:
        names = [*report.arrays, *report.ragged]
        raise WireError(f"a report of {name!r} is expected, got {names}")
    return report.arrays[name]


def check_parties(query: Query, n_nodes: int) -> None:
    """Raise FedhistError unless a query may be asked of so many nodes."""
    if query.parties not in (None, n_nodes):
        parties = f"{query.label!r} is for {query.parties} parties, whose shares of noise add up"
        raise FedhistError(f"{parties}, but {n_nodes} nodes are asked")


class Tree:
    """A sum of summaries by number: of all leaves, in whatever order they come.

    It has the shape of a tree, so that who added what, and when, changes no digit: the sum of
    leaves 0, 1, ... is that of aligned pairs, of aligned pairs of pairs, and so on; a leaf that is
    not there is passed over. Blocks of a node's users are leaves, and so are nodes by index.
    """

    def __init__(self) -> None:
        self._parts: dict[tuple[int, int], Summary] = {}

    def __len__(self) -> int:
        """Count the partial sums that wait for their neighbours."""
        return len(self._parts)

    def add(self, index: int, part: Summary, level: int = 0) -> None:
        """Add leaf ``index``, or the sum of leaves ``index 2^level`` to ``(index + 1) 2^level``."""
        while (level, index ^ 1) in self._parts:
            other = self._parts[level, index ^ 1]
            part = Summary.merge([other, part] if index & 1 else [part, other])
            del self._parts[level, index ^ 1]
            level, index = level + 1, index >> 1
        if (level, index) in self._parts:
            raise ValueError(f"part {index} of level {level} was added already")
        self._parts[level, index] = part

    def join(self, other: Tree) -> None:
        """Add what another tree holds, of other leaves."""
        for (level, index), part in other._parts.items():
            self.add(index, part, level)

    def total(self) -> Summary:
        """Return the sum of what was added; nothing is taken out."""
        return Summary.merge([self.own_total()])

    def own_total(self) -> Summary:
        """Return the sum as :meth:`total` does; the part itself, if one was added and has sums."""
        parts, level = dict(self._parts), 0
        while len(parts) > 1:
            here = sorted(i for at, i in parts if at == level)
            for index in here:
                if (level, index) not in parts:
                    continue  # its neighbour took it along
                joined = parts.pop((level, index))
                other = parts.pop((level, index ^ 1), None)
                if other is not None:  # the smaller index comes first
                    joined = Summary.merge([joined, other])
                parts[level + 1, index >> 1] = joined
            level += 1
        only = next(iter(parts.values()), None)
        return only if only is not None and only.linear else Summary.merge(parts.values())
