"""Protocol: a script of queries. Estimate: what it returns."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from reprlib import Repr
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np

from fedhist.base.arrays import Array, PlainArguments
from fedhist.base.errors import one_line, visible
from fedhist.model.display import Display
from fedhist.model.evaluation import Facts, measured, simulated
from fedhist.model.fields import check_fields
from fedhist.model.query import CHUNK, Query, Summary
from fedhist.model.truths import LowerBound, Prediction, Truth
from fedhist.privacy.guarantee import Guarantee
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from fedhist.users.shards import Shard

if TYPE_CHECKING:
    from fedhist import Curator
    from fedhist.privacy.ledger import Ledger

Status = Literal["ok", "refused", "failed"]
Script = Generator[Query, Summary, "Estimate"]
EXIT_CODES: Mapping[Status, int] = {"ok": 0, "refused": 3, "failed": 4}


_SHORT = Repr()
_SHORT.maxlevel, _SHORT.maxtuple, _SHORT.maxlist, _SHORT.maxstring = 2, 4, 4, 40
_SHORT.maxother = 60


def short(value: object) -> str:
    """Write a value in one line of some sixty letters."""
    return visible(" ".join(_SHORT.repr(value).split()))


@dataclass(frozen=True)
class Estimate:
    """What a run publishes; everything in it is private by the ledger or public by nature.

    Attributes
    ----------
    status : {"ok", "refused", "failed"}
        A refusal depends on public quantities only and spends nothing; a failure has spent.
    value : array or None
        The estimate, in the protocol's units; None unless ok.
    stderr : array or None
        Standard error of each entry of ``value`` from public quantities, where it is known.
    keys : Keys or None
        What the entries of ``value`` stand for.
    reason : str
        Why there is no value, in public terms.
    warnings : tuple of str
        What a reader should know before using the value.
    public : dict
        Other released or public numbers (threshold used, window mass, users who answered).
    ledger : Ledger or None
        What the run spent; attached by the session.
    truth : Truth or None
        Which statistic of the users it is about: attached by the session as the protocol's
        ``estimates`` says, unless the script has named one.
    """

    status: Status
    value: Array | None = None
    stderr: Array | None = None
    keys: Keys | None = None
    reason: str = ""
    warnings: tuple[str, ...] = ()
    public: Mapping[str, float] = field(default_factory=dict)
    ledger: Ledger | None = field(default=None, compare=False, repr=False)
    truth: Truth | None = None

    def __post_init__(self) -> None:
        if (self.value is not None) != (self.status == "ok"):
            raise ValueError(f"an estimate has a value exactly when it is ok, got {self.status}")
        if self.status != "ok" and not self.reason:
            raise ValueError(f"a {self.status} estimate needs a reason")
        if self.value is None:
            return
        shape = self.value.shape
        if self.stderr is not None and np.shape(self.stderr) != shape:
            raise ValueError(f"stderr has shape {np.shape(self.stderr)}, the value {shape}")
        if self.keys is not None and shape[:1] != (len(self.keys),):
            raise ValueError(f"{len(self.keys)} keys cannot name a value of shape {shape}")

    def __repr__(self) -> str:
        if self.value is None:
            return f"<Estimate {self.status}: {one_line(self.reason)}>"
        size = "x".join(map(str, self.value.shape)) or "1"
        size += " value" if size == "1" else " values"
        about = f", {self.truth.value}" if self.truth is not None else ""
        return f"<Estimate ok: {size}{about}>"

    @classmethod
    def ok(cls, value: Any, **details: Any) -> Self:
        """Return a usable estimate."""
        return cls("ok", np.asarray(value), **details)

    @classmethod
    def refused(cls, reason: str) -> Self:
        """Refuse before anything was asked or spent."""
        return cls("refused", reason=reason)

    @classmethod
    def failed(cls, reason: str, **details: Any) -> Self:
        """Report that the budget is spent and there is no value."""
        return cls("failed", reason=reason, **details)

    def needed(self, what: object) -> Array:
        """Return the value; ValueError, with ``what`` and the reason, where there is none."""
        if self.value is None:
            raise ValueError(f"{what}: {self.status}: {self.reason}")
        return self.value

    def over(self, keys: Keys, *, invented: bool = False) -> Self:
        """Return the same estimate with an entry for every key of ``keys``; 0 if not released.

        Names that are not among ``keys`` are left out where the protocol may have put them together
        itself: ``invented``.

        Raises
        ------
        ValueError
            If the estimate has no keys, or one that is not among ``keys``.
        """
        if self.value is None or self.keys is None:
            raise ValueError(f"an estimate with values by key is needed, got {self.status}")
        at = keys.positions(self.keys)
        mine = at >= 0
        if not (invented or mine.all()):
            raise ValueError(f"{self.keys[int(mine.argmin())]!r} is not among {keys}")

        def spread(a: Array | None) -> Array | None:
            if a is None:
                return None
            out = np.zeros(len(keys), dtype=a.dtype)
            out[at[mine]] = a[mine]
            return out

        return replace(self, keys=keys, value=spread(self.value), stderr=spread(self.stderr))


class Protocol(ABC, metaclass=PlainArguments):
    """A federated estimator. Subclasses are frozen dataclasses; fields ARE the configuration.

    Class attributes
    ----------------
    name : str
        kebab-case; the name in configurations and on the command line.
    paper : str
        Reference, one line.
    target : str
        What is estimated: "histogram", "mean", ... or a word of your own.
    loss_name : str
        Name of :meth:`loss`: "l1", "l2", "squared l2", or a word of your own.
    display : Display or None
        How estimates are shown; None: as those of other protocols of the target, if there are any.
    needs_server : str
        Of a protocol without the field ``trust``: why the server must see what no sum of the nodes'
        noisy numbers shows it, in words.
    biased : str
        Of a protocol with standard errors whose mean is not the truth: why, in words.
    revision : int
        Of the law of its estimates; raised whenever the same fields give others than they did.
    batch : int
        Users whom :meth:`sums` gets at a time.
    invents : bool
        Whether an estimate may name an item that nobody holds; losses leave it out.
    only_named : bool
        Whether comparisons and decisions about its target take it only where they name it.
    """

    name: ClassVar[str]
    paper: ClassVar[str]
    target: ClassVar[str]
    loss_name: ClassVar[str] = "loss"
    display: ClassVar[Display | None] = None
    needs_server: ClassVar[str] = ""
    biased: ClassVar[str] = ""
    revision: ClassVar[int] = 0
    batch: ClassVar[int] = CHUNK
    invents: ClassVar[bool] = False
    only_named: ClassVar[bool] = False

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if "__repr__" not in vars(cls):  # a dataclass's own may be as long as its domain
            cls.__repr__ = Protocol.__repr__  # type: ignore[method-assign]

    def __repr__(self) -> str:
        made: Any = self
        given = ((f, short(getattr(made, f.name))) for f in fields(made) if f.init)
        told = ", ".join(f"{f.name}={v}" for f, v in given if v != short(f.default))
        return f"{type(self).__name__}({told})"

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Make an object, of values that its fields can hold; ValueError with field and value."""
        if is_dataclass(cls):
            check_fields(cls, args, kwargs)
        return super().__new__(cls)

    @property
    def value_range(self) -> tuple[float, float]:
        """Least and largest number that an entry of the truth can be, whatever the data are."""
        return -math.inf, math.inf

    @property
    def estimates(self) -> Truth:
        """Which statistic of the users :meth:`truth` is; from public numbers only.

        Default, for protocols that do not say: their own.
        """
        return Truth.OWN

    @property
    @abstractmethod
    def max_rounds(self) -> int:
        """Most round trips the script may take."""

    @property
    @abstractmethod
    def guarantee(self) -> Guarantee:
        """What is provable."""

    @property
    def null_safe(self) -> bool:
        """Whether a user with an empty record changes the law of nothing that comes out.

        That is: releases, questions and the estimate neither use nor publish the exact number of
        users. A ledger states costs under other adjacencies by it; see
        :mod:`fedhist.privacy.guarantee`. Default, and always right: False.
        """
        return False

    @property
    def unspent(self) -> str:
        """Why a run may leave more than .01 of its budget, in words; by default it may not."""
        return ""

    @property
    def overstates(self) -> str:
        """Why standard errors may be above the spread of estimates, in words; by default not."""
        return ""

    @property
    def claimed(self) -> Guarantee:
        """What the paper states; a version as printed may really guarantee something else."""
        return self.guarantee

    @abstractmethod
    def rounds(self, server: Curator) -> Script:
        """Run the server script: yields queries, receives summaries, returns the estimate."""

    def asks(self, query: Query, round_index: int) -> Query:
        """Say what the nodes are asked for a query of the script: by default the query itself.

        A protocol under another trust asks for the same numbers in another way, so that its script
        stays as it is: it puts a query around the query.
        """
        return query

    @abstractmethod
    def loss(self, value: Array, truth: Array) -> float:
        """Measure values against the truth, entry by entry, in the loss of :meth:`error`."""

    def loss_of(
        self,
        estimate: Estimate,
        users: Shard,
        truth: Array | None = None,
        known: Facts | None = None,
    ) -> float:
        """Measure an estimate against the truth. NOT PRIVATE.

        Parameters
        ----------
        estimate : Estimate
        users : Shard
        truth : array, optional
            What it is held against; default: the protocol's own.
        known : Facts, optional
            What was measured of the users; default: they are measured here.

        Raises
        ------
        ValueError
            If the estimate has no value.
        """
        value = estimate.needed(self.name)
        known = measured(self, users) if known is None else known
        if known.support is not None:
            value = estimate.over(known.support, invented=self.invents).needed(self.name)
        return self.loss_in(value, known, truth)

    def loss_in(self, value: Array, known: Facts, truth: Array | None) -> float:
        """Measure values against a truth, or what is known of the users: by :meth:`loss`."""
        return self.loss(value, known.truth if truth is None else truth)

    # -- evaluation. NOT PRIVATE: of a known population, from its records or from sums over them

    def truth(self, users: Users) -> Array:
        """Compute what is being estimated, exactly."""
        return self.truth_of(Facts(self, users))

    def error(self, users: Users) -> Prediction:
        """Predict the error. Default: the mean of 30 runs (:mod:`server.predictor`)."""
        return self.error_of(Facts(self, users))

    def support(self, users: Users) -> Keys | None:
        """Return the keys of the truth's entries, where the domain is unbounded; else None."""
        return self.support_of(Facts(self, users))

    def resolution(self, users: Users) -> float:
        """Bound the loss that is left at epsilon = inf where nothing is clipped, beyond rounding.

        A protocol that draws one item of each user, or answers in bins, says here how far off it
        may be.
        """
        return self.resolution_of(Facts(self, users))

    def diagnostics(self, users: Users) -> Mapping[str, float]:
        """Count what a run may not say: records that were replaced by the null record, say."""
        return self.diagnostics_of(Facts(self, users))

    @property
    def empty_record(self) -> str:
        """What a user without usable data counts as; "" where it draws the estimate nowhere."""
        return ""

    def lower_bounds(self, users: Users) -> tuple[LowerBound, ...]:
        """Bound from below what any protocol of this guarantee can do for such users."""
        return self.lower_bounds_of(Facts(self, users))

    @property
    def adds_up(self) -> bool:
        """Whether evaluation needs :meth:`sums` over the users only, and not their records."""
        return type(self).sums is not Protocol.sums

    def sums(self, users: Users) -> Mapping[str, Array]:
        """Add up, for a batch of users, what the methods below read of all."""
        raise TypeError(f"{self.name} is evaluated from records")

    def truth_of(self, facts: Facts) -> Array:
        """Compute what is being estimated from sums."""
        raise TypeError("a protocol needs the method truth, or sums and truth_of")

    def error_of(self, facts: Facts) -> Prediction:
        """Predict the error from sums; default as in :meth:`error`."""
        return simulated(self, facts)

    def support_of(self, facts: Facts) -> Keys | None:
        """Return the keys of the truth's entries, from sums."""
        return None

    def resolution_of(self, facts: Facts) -> float:
        """Bound the loss that is left without noise, from sums."""
        return 0.0

    def diagnostics_of(self, facts: Facts) -> Mapping[str, float]:
        """Count what a run may not say, from sums."""
        return {}

    def lower_bounds_of(self, facts: Facts) -> tuple[LowerBound, ...]:
        """Bound from below what any protocol can do, from sums."""
        return ()

    @property
    def positions(self) -> Array | None:
        """Where the entries of an estimate stand on a figure's axis; None: they are numbered."""
        return None

    @property
    def n_nonzero(self) -> int:
        """How many entries of a sparse vector differ from 0, at most; 0: it is not sparse."""
        return 0

    @classmethod
    @abstractmethod
    def example(cls) -> Self:
        """Build a small instance that the contract tests run."""

    @classmethod
    @abstractmethod
    def example_users(cls) -> Users:
        """Make a small population that the example can be run on."""

    @classmethod
    def resolve(
        cls, parameters: Mapping[str, Any], users: Shard, domain: Keys | None
    ) -> tuple[dict[str, Any], list[str]]:
        """Complete a configuration from the population before the protocol is built.

        Returns
        -------
        parameters : dict
            Keyword arguments of the protocol.
        not_private : list of str
            What was computed from private data to do so, in words; empty if nothing was.
        """
        return dict(parameters), []
