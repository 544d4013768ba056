"""Popular items that nobody listed, under local privacy: a search from prefix to prefix."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar, Self, get_args

import numpy as np

from clients.bounding.sampling import out_of_domain
from clients.heavy_hitters.codes import MOST_CODE_BITS, Code, code_lengths, decode
from clients.heavy_hitters.queries import CodeCounts, CodePieces, HoldsCode, packed
from fedhist.base.arrays import Array
from fedhist.base.checks import check_choice, check_integer, check_within
from fedhist.base.errors import warned
from fedhist.base.search import first_true
from fedhist.channels.hiding import hiding_of
from fedhist.model.evaluation import Facts
from fedhist.model.protocol import Estimate, Script
from fedhist.model.registry import register_protocol
from fedhist.model.truths import L1, Prediction, Truth
from fedhist.privacy.guarantee import Guarantee, check_budget
from fedhist.privacy.shares import Aggregation
from fedhist.privacy.shuffling import Shuffling
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort, salt_of_folds
from fedhist.users.keys import Keys
from server.heavy_hitters.plan import (
    COUNTED,
    SearchPlan,
    Stage,
    least_count,
    least_share,
    search_plan,
)
from server.targets.domains import UnboundedCounts
from server.targets.sample_sizes import PlannedUsers
from server.trust import Batch, Shuffles

if TYPE_CHECKING:
    from server.session.curator import Curator


@register_protocol
@dataclass(frozen=True)
class HeavyHitters(Shuffles, PlannedUsers, UnboundedCounts):
    """Items that many users have, and how many, where nobody can list the items: local privacy.

    Parameters
    ----------
    epsilon : float
        Budget of each user; inf switches noise off.
    n_users : int
        Public planning value.
    of : {"holders", "named"}
        What is counted. A user names one of its distinct items, drawn uniformly, and items are
        found by how many name them. "holders": how many hold the item, asked of half of those who
        count. "named": how many name it, with less noise; users of D items name each of them with
        probability 1 / D.
    n_bits : int
        B: bits of an item's code, at most 256. A longer item is cut: its name ends in an ellipsis.
    code : {"text", "bytes"}
        "text": letters of English take 3 to 7 bits, other bytes up to 14. "bytes": 8 bits a byte,
        for other scripts than Latin; an item with a zero byte is not found.
    level_bits : int
        The server decodes 2^level_bits counts at a level, in up to 170 bytes each: at most 22.
    alpha : float
        Expected number of false items among those that are found, at most.
    salt : int
        Public salt of the split into cohorts.
    exclude : Keys, optional
        A public list of items that are not looked for: users leave them out before they draw, as
        if they did not hold them. Give the list to ``frequency-oracle`` or ``local-histogram``.
    trust : Shuffling or Aggregation, optional
        With of = "named". Shuffle trust: the promise to whoever sees what an honest shuffler passes
        on; ``epsilon`` is then the users' own. Aggregate trust: nodes add noise to sums of pieces.

    Privacy
    -------
    epsilon-LDP for a user's whole record, sequentially interactive, exact as drawn. A hash of
    public ids splits the users into groups. Each user answers one query, which depends on public
    numbers and earlier groups' answers. :meth:`rounds` has the proof.

    Error
    -----
    An item that a share f* of the users names is found with probability 95%: ``found_from`` in the
    estimate, of order 1 / (sqrt(n) sinh(epsilon / 2)). With 95% probability no missed item of B
    bits is named by more than ``missed_below``; of users with at most D items, D times as many may
    hold it. Estimates below ``threshold`` are taken for noise. With "named", items near it are
    counted too high. A liar of m counters moves a count by n / (m (p - q)), where p - q =
    tanh(epsilon / 2) if they tell who holds it. Colluders of a share f* / 2 plant an item.

    Notes
    -----
    The first round asks for the first bits of the item's code, the next for more bits of codes that
    begin with a frequent prefix [1]_. Two thirds of the users answer these; the rest say which
    candidate is theirs.

    References
    ----------
    .. [1] Wang, Li & Jha, "Locally differentially private heavy hitter identification", IEEE TDSC
       2021, arXiv 1708.06674 (PEM).

    Examples
    --------
    >>> protocol = HeavyHitters(epsilon=4.0, n_users=1_000_000, of="named")
    >>> protocol.plan.levels, round(protocol.plan.reliable, 4)
    (4, 0.0043)
    """

    name: ClassVar[str] = "heavy-hitters"
    paper: ClassVar[str] = "Wang, Li & Jha, IEEE TDSC 2021 (prefix search); split and bounds: own"
    invents: ClassVar[bool] = True
    only_named: ClassVar[bool] = True
    occurring: ClassVar[str] = "holders"

    epsilon: float
    n_users: int
    of: str = "holders"
    n_bits: int = 64
    code: Code = "text"
    level_bits: int = 22
    alpha: float = 0.05
    salt: int = 1
    exclude: Keys | None = None
    trust: Shuffling | Aggregation | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_budget(self.epsilon)
        check_integer("n_users", self.n_users, 1 << 32)
        check_choice("of", self.of, ("holders", "named"))
        check_choice("code", self.code, get_args(Code))
        check_integer("n_bits", self.n_bits, MOST_CODE_BITS, least=4)
        check_within("alpha", self.alpha, 1e-9, 0.5)
        check_within("salt", self.salt, 0, 1 << 63, "[)")
        if self.level_bits > 22:
            raise ValueError(
                f"level_bits = {self.level_bits} has so many counts of 170 bytes to decode: at "
                "most 22, of 0.7 GB"
            )
        check_integer("level_bits", self.level_bits, 22, least=6)
        if isinstance(self.exclude, tuple):  # a list of names in a configuration
            object.__setattr__(self, "exclude", Keys.of(self.exclude))
        if not isinstance(self.exclude, Keys | None):
            raise ValueError(f"exclude must be Keys (Keys.of([...])), got {self.exclude!r}")
        if self.trust is not None and self.of != "named":
            raise ValueError(f'trust goes with of = "named", got {self.of!r}')
        _ = self.plan
        self.check_trust()

    @property
    def plan(self) -> SearchPlan:
        """Levels, and what is found, from public numbers."""
        epsilon, level_bits, scale = float(self.epsilon), self.level_bits, 0.0
        if isinstance(self.trust, Aggregation):
            level_bits, scale = min(level_bits, 16), 2 * self.trust.excess / epsilon
            epsilon = math.inf
        public = epsilon, self.n_bits, level_bits, float(self.alpha)
        return search_plan(self.n_users, *public, self.of == "holders", scale)

    @property
    def least_users(self) -> int:
        """Fewest users that are asked: half of them show an item. 2^32 + 1: no run has enough."""

        def enough(n: int) -> bool:
            trust = self.trust if isinstance(self.trust, Aggregation) else None
            return replace(self, n_users=n, trust=trust).plan.reliable <= 0.5

        return first_true(enough, 1 << 32) or (1 << 32) + 1

    @property
    def max_rounds(self) -> int:
        """The levels, and one or two that count."""
        return len(self.intervals)

    @property
    def guarantee(self) -> Guarantee:
        """epsilon-LDP for a user's whole record; or what a shuffler makes of it, or of sums."""
        return self.promise()

    @property
    def batches(self) -> Sequence[Batch]:
        """A cohort for each level, and those who count; all report through one oracle."""
        hiding = hiding_of(self.pieces([""], self.plan.first, (0.0, 1.0)).channel)
        return tuple(Batch(hi - lo, 1, hiding) for lo, hi in self.intervals)

    @property
    def intervals(self) -> list[tuple[float, float]]:
        """What is asked of whom: the levels, then the count."""
        g = self.plan.levels
        ends = [(1 - COUNTED) * j / g for j in range(g + 1)]
        ends += [1 - COUNTED / 2] * (self.of == "holders") + [1.0]
        return list(pairwise(ends))

    def pieces(self, prefixes: list[str], bits: int, ends: tuple[float, float]) -> CodePieces:
        """Ask for the next bits of codes with one of these prefixes, written in bits."""
        rows, first = packed(prefixes, len(prefixes[0])), len(prefixes[0])
        cohort, counted = Cohort(self.salt, *ends), isinstance(self.trust, Aggregation)
        size = 1 << self.plan.first if bits or isinstance(self.trust, Shuffling) else len(prefixes)
        asked, epsilon = (CodeCounts, math.inf) if counted else (CodePieces, self.epsilon)
        return asked(rows, first, bits, self.code, epsilon, size, cohort, self.exclude)

    # -- the script

    def rounds(self, server: Curator) -> Script:
        """Search, count, name.

        Privacy: let two populations differ in user u, of cohort j. The transcript's probability is
        a product over cohorts of P(answers | query), each query being fixed by the answers before
        it. Only factor j differs, where reports are independent given the query, and in it only
        that of u: by e^epsilon at most, whatever is asked, since the oracle's and the bit's laws do
        not depend on it. Under aggregate trust u moves two entries of the sums by 1, and the noise
        is for 2 in the l1 norm. The estimate is a function of the transcript and public numbers.
        """
        plan, intervals = self.plan, self.intervals
        if plan.reliable > 0.5:
            return Estimate.refused(
                f"{self.n_users} users are too few to find any item at epsilon "
                f"{self.epsilon:g}: {self.least_users} at least"
            )
        stages: list[Stage] = []
        candidates: list[str] = []
        prefixes, answered, asked = [""], 0, 0.0
        listed = self.exclude or ()
        for lo, hi in intervals[: plan.levels]:
            if not prefixes:
                break
            first = len(prefixes[0])
            bits = min(plan.step if first else plan.first, self.n_bits - first)
            query = self.pieces(prefixes, bits, (lo, hi))
            summary = yield query
            answered, asked = answered + summary.n_users, asked + hi - lo
            counts = query.counts(summary)
            most = min(plan.width, len(counts))
            least = max(float(np.partition(counts, -most)[-most]), 1.0)
            some = np.flatnonzero(counts >= least)
            best = some[np.argsort(-counts[some], kind="stable")][:most]
            enough = float(counts[best[-1]]) if len(best) == plan.width else 1.0
            p, q = query.channel.p, query.channel.q
            stages.append(Stage(summary.n_users, p, q, enough, plan.count.scale))
            tails = (format(i & ((1 << bits) - 1), f"0{bits}b") for i in best.tolist())
            longer = [prefixes[i >> bits] + tail for i, tail in zip(best, tails, strict=True)]
            prefixes = []
            for one in sorted(longer):
                text, whole = decode(one, self.code) or (None, False)
                if text is None or (whole and text in listed):
                    continue
                if whole or len(one) == self.n_bits:
                    candidates.append(one.ljust(self.n_bits, "0"))
                else:
                    prefixes.append(one)
        if not answered:
            return Estimate.failed("nobody answered")
        candidates.sort()
        chosen, shares, stderr = candidates[:0], np.zeros(0), np.zeros(0)
        if candidates:
            lo, hi = intervals[plan.levels]
            query = self.pieces(candidates, 0, (lo, hi))
            summary = yield query
            answered, asked = answered + summary.n_users, asked + hi - lo
            m, p, q = summary.n_users, query.channel.p, query.channel.q
            counts = query.counts(summary)
            enough = least_count(m, q, self.alpha / len(candidates), plan.count.scale)
            stages.append(Stage(m, p, q, enough, plan.count.scale))
            at = np.flatnonzero(counts >= enough)
            chosen, pi = [candidates[j] for j in at], counts[at] / max(m, 1)
            shares, stderr = (pi - q) / (p - q), stages[-1].stderr(pi)
        if chosen and self.of == "holders":
            lo, hi = intervals[-1]
            public = self.n_bits, self.code, self.epsilon, Cohort(self.salt, lo, hi)
            holds = HoldsCode(packed(chosen, self.n_bits), *public, salt_of_folds(self.salt))
            summary = yield holds
            answered, asked = answered + summary.n_users, asked + hi - lo
            shares, stderr = holds.shares(summary)
        n, order = answered / asked, np.argsort(-shares, kind="stable")
        found_from = max(plan.reliable, least_share(stages, lambda _: 0.05 / (plan.levels + 1)))
        few = warned(
            f"with so few users an item is found from a share of {found_from:.2f} on",
            "less popular ones are missed",
            "raise epsilon, or ask more users",
        )
        return Estimate.ok(
            n * shares[order],
            stderr=n * stderr[order],
            keys=Keys.of(names_of([chosen[j] for j in order], self.code)),
            public={
                "n_report": float(answered),
                "found_from": found_from,
                "missed_below": least_share(stages, lambda f: 0.05 * f / (plan.levels + 1)),
                "threshold": stages[-1].least,
                "candidates": float(len(candidates)),
            },
            warnings=(few,) if found_from > 0.1 else (),
        )

    # -- evaluation

    @property
    def estimates(self) -> Truth:
        """How many users hold an item; or name it, one distinct item each."""
        return Truth.HOLDERS if self.of == "holders" else Truth.ONE_ITEM

    def sums(self, users: Users) -> Mapping[str, Array]:
        """Add up who holds each item of the vocabulary, and who names it. NOT PRIVATE."""
        own = out_of_domain(users, self.exclude)
        sizes, item, k = own.n_items(), own.counts.item, len(own.vocabulary)
        share = np.repeat(1.0 / np.maximum(sizes, 1), sizes)
        return {
            "holders": np.bincount(item, minlength=k).astype(np.float64),
            "named": np.bincount(item, share, k).astype(np.float64),
        }

    def truth_of(self, facts: Facts) -> Array:
        """Return how many users hold, or name, every item that occurs: (k,)."""
        return np.asarray(facts[self.of][self.places(facts)])

    def error_of(self, facts: Facts) -> Prediction:
        """Predict the l1 distance: items are missed, or counted with noise. NOT PRIVATE."""
        n, places = facts.n_users, self.places(facts)
        shares, names = facts[self.of][places] / n, self.support_of(facts)
        lengths = code_lengths(names, self.code)
        chance = self.plan.chance(facts["named"][places] / n, lengths) * (lengths <= self.n_bits)
        noise = np.full(len(shares), self.plan.count.stderr(self.plan.count.q))
        if self.of == "holders":
            tau = math.tanh(self.epsilon / 2)
            m = n * COUNTED / 2 / max(chance.sum(), 1.0)
            noise = np.sqrt((1 - np.square(tau * (2 * shares - 1))) / m) / (2 * tau)
        noise = np.sqrt(np.square(noise) + shares * (1 - shares) / (n * COUNTED))
        lost = (1 - chance) * shares + chance * math.sqrt(2 / math.pi) * noise
        source = "levels and count by their binomial laws, a missed item by its whole count"
        return Prediction(L1, n * float(lost.sum()), "exact", source)

    def resolution_of(self, facts: Facts) -> float:
        """Bound what cohorts leave: items of few users are missed, others are sampled. NOT PRIVATE.

        Fewer than 20 expected reports at a level miss an item, more with probability e^-20 only;
        six standard deviations of a fold's draw are exceeded with probability 1e-9.
        """
        n, places = facts.n_users, self.places(facts)
        share, named = facts[self.of][places] / n, facts["named"][places] / n
        each = n * (1 - COUNTED) / self.plan.levels
        asked = 2 * np.minimum(named * n * COUNTED, 1.0).sum() + 10  # found items, but for e^-10
        fold = n * COUNTED / (2 * asked if self.of == "holders" else 1)
        drawn = 6 * np.sqrt(np.maximum(share * (1 - share), 1 / fold) / fold)
        missed = (named * each < 20) | (named < 1 / self.plan.width)
        return n * float(np.where(missed, np.maximum(share, drawn), drawn).sum())

    def diagnostics_of(self, facts: Facts) -> Mapping[str, float]:
        """Count the items whose code is longer than n_bits."""
        lengths = code_lengths(self.support_of(facts), self.code)
        return {"items cut": float((lengths > self.n_bits).sum())}

    @classmethod
    def example(cls) -> Self:
        """Build a small instance: codes of 32 bits, in levels of 10."""
        return cls(epsilon=5.0, n_users=600, n_bits=32, level_bits=10)

    @classmethod
    def example_users(cls) -> Users:
        """Make 600 users of up to two items; every tenth has none, some one of their own."""
        names = ["tea", "rye", "é", "?", "oats"]

        def row(u: int) -> dict[str, int]:
            own = {f"x{u}": 1} if u % 40 == 3 else {}
            return {} if u % 10 == 9 else {names[min((u * 7 % 100) // 30, 4)]: 1 + u % 3} | own

        return Users.from_records({f"user-{u}": row(u) for u in range(600)})


def names_of(codes: list[str], code: Code) -> list[str]:
    """Read codes; a cut one ends in an ellipsis, and in its last bits where two are alike."""
    out: list[str] = []
    for bits in codes:
        text, whole = decode(bits, code) or ("", False)
        name = text if whole else f"{text}…"
        out.append(name if name not in out else f"{name}[{bits[-14:]}]")
    return out
