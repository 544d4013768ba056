"""Shuffle trust, attacked as the server that sees the multiset of a batch's reports.

*exact*, the users of a batch, who are those whose reports are read alike: how many reports fall
into one event is a function of the multiset, and its law is a shifted binomial; its hockey-stick
divergence at the claim is added up. Multisets of a few users are enumerated in tests/privacy.
*structural*: what the accountant is told of the randomizer is compared with its matrix; what passes
the shuffler has no user, node or order, and a batch that is too small does not pass.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
from scipy.stats import binom

from fedhist.base.arrays import Floats
from fedhist.base.errors import FedhistError
from fedhist.model.protocol import Protocol
from fedhist.model.query import Query
from fedhist.model.shuffled import Shuffled
from fedhist.privacy.guarantee import Trust
from fedhist.privacy.shuffling import Hiding
from fedhist.users.batch import Users
from fedhist.users.streams import SeededStreams
from simulations.audit.asked import asked_of
from simulations.audit.exact import audit_exact
from simulations.audit.finding import Case, Finding, Settings, Witness
from simulations.runtimes.inline import InlinePopulation
from tests.audit.trust.server_view import dealt

MOST_OUTPUTS, MOST_INPUTS = 8, 4
"""Of the part of a randomizer that is enumerated; what is beyond is one outcome more."""
MARGIN = 1e-9
"""Relative: doubles in place of fractions."""
TOLERANCE = 1e-12
"""Relative: what e^epsilon in doubles may be off."""
MOST_USERS = 512
MOST_ROWS, MOST_ENTRIES = 256, 1 << 20


def audit_shuffle(protocol: Protocol, settings: Settings) -> Iterator[Finding]:
    """Audit every kind of batch that a protocol under shuffle trust asks for."""
    guarantee = protocol.guarantee
    if guarantee.trust is not Trust.SHUFFLE or not guarantee.private:
        return
    users = protocol.example_users()
    asked = asked_of(protocol, users, settings.seed).queries
    batches = [q for q in asked if isinstance(q, Shuffled)]
    for query in {(q.query.wire_name, q.least, q.release): q for q in batches}.values():
        yield from audit_batch(query, users, f"{protocol.name}: {query.label}", settings)


def audit_batch(
    query: Shuffled, users: Users, subject: str, settings: Settings
) -> Iterator[Finding]:
    """Audit one kind of batch."""
    alone = audit_exact(query.query, f"{subject}, against the shuffler")
    if alone is not None:
        yield alone
    rows, hiding = rows_of(query.query), query.local.hiding
    claim = query.release.epsilon, query.release.delta
    if rows is not None and hiding is not None:
        groups = read_together(query, users.select(query.cohort))
        split = len(groups) > query.local.n_batches
        n = min(query.least, groups[0]) if split else query.least
        yield audit_counts(rows, n, Case(subject, claim, settings, "exact"))
    case = Case(subject, claim, settings, "structural")
    case.note = "what is known of the report, its matrix; ids, nodes, order, small batches"
    flaws: list[str] = []
    if rows is not None and hiding is not None:
        flaws += unproved(rows, query.query.release.epsilon, hiding)
    flaws += _passes(query, users)
    witness = Witness(("any record", "any other"), flaws[0]) if flaws else None
    yield case.found(math.inf if flaws else 0.0, 1.0, witness)


def rows_of(query: Query) -> Floats | None:
    """Return the law of a report for every input, (k, m), where it is small enough to be listed."""
    channel = query.finite_channel()
    if channel is None or len(channel.labels) > MOST_ROWS:
        return None
    first = channel.weights(np.zeros(1, dtype=np.int64))
    if len(channel.labels) * first.shape[1] > MOST_ENTRIES:
        return None
    weights = channel.weights(np.arange(len(channel.labels)))
    listed = [[int(w) / channel.total for w in row] for row in weights.tolist()]
    rows: Floats = np.unique(np.array(listed), axis=0)
    if rows.shape[1] == 2:  # one bit: inputs between the extremes are mixtures of them
        rows = rows[[int(np.argmin(rows[:, 0])), int(np.argmax(rows[:, 0]))]]
    return rows if len(rows) > 1 else None


def _hockey_stick(one: Floats, other: Floats, epsilon: float) -> float:
    gain = one - math.exp(epsilon) * other
    return float(gain[gain > 0].sum())


# -- exact, all users of a batch


def audit_counts(rows: Floats, n: int, case: Case) -> Finding:
    """Enumerate how many of n reports fall into an event, for two inputs of one user."""
    delta, best = case.claim[1], (0.0, "")
    for x0, x1, x, event, words in _events(rows):
        p0, p1, q = (float(rows[i][event].sum()) for i in (x0, x1, x))
        epsilon = _epsilon_of_counts(n, q, p0, p1, delta)
        best = max(best, (epsilon, f"how many of {n} reports are {words}, the others hold {x}"))
    case.note = f"counts of single outcomes and of likelier ones among {n} reports"
    witness = Witness(("one input", "another"), best[1]) if best[1] else None
    return case.found(best[0] * (1 - MARGIN), 1.0, witness)


def _events(rows: Floats) -> Iterator[tuple[int, int, int, Sequence[int], str]]:
    """List two inputs of the user, one of the others, and outcomes to count."""
    k = len(rows)
    for x0, x1 in ((0, 1), (0, k - 1), (k // 2, 0)):
        if x0 == x1:
            continue
        gain = rows[x0] - rows[x1]
        likelier = np.flatnonzero(gain > 0).tolist()
        for x in dict.fromkeys((x0, x1, k - 1, k // 2)):
            yield x0, x1, x, likelier, f"likelier under input {x0} than under {x1}"
            top = int(np.argmax(gain))
            yield x0, x1, x, [top], f"outcome {top}, likelier under input {x0} than under {x1}"


def _epsilon_of_counts(n: int, q: float, p0: float, p1: float, delta: float) -> float:
    """Least epsilon at which Bin(n - 1, q) + Bern(p0 or p1) keeps delta."""
    c = np.arange(*_window(n - 1, q))
    here, before = binom.pmf(c, n - 1, q), binom.pmf(c - 1, n - 1, q)
    one, other = (p * before + (1 - p) * here for p in (p0, p1))

    def broken(epsilon: float) -> bool:
        found = _hockey_stick(one, other, epsilon), _hockey_stick(other, one, epsilon)
        return max(found) > delta

    low, high = 0.0, 64.0
    if not broken(low):
        return 0.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if broken(middle) else (low, middle)
    return low


def _window(n: int, q: float) -> tuple[int, int]:
    reach = 12 * math.sqrt(n * q * (1 - q)) + 60
    return max(math.floor(n * q - reach), 0), min(math.ceil(n * q + reach), n) + 2


# -- structural


def unproved(rows: Floats, local: float, hiding: Hiding) -> list[str]:
    """Say what the accountant is told of a randomizer that its matrix does not bear out."""
    out = []
    if hiding.mixes:
        top = np.sort(rows, axis=0)[-2:].sum(axis=0)
        least = (math.exp(local) + 1) * rows.min(axis=0)
        if (least < top * (1 - TOLERANCE)).any():
            y = int(np.argmin(least - top))
            out.append(
                f"matrix: bound (C) does not hold: of outcome {y}, (e^epsilon0 + 1) times the "
                f"least probability is {least[y]:.6g}, and the two largest add up to {top[y]:.6g}"
            )
    if hiding.distances:
        pairs = combinations(range(min(len(rows), 64)), 2)
        far = max(float(np.abs(rows[a] - rows[b]).sum()) / 2 for a, b in pairs)
        if far > max(hiding.distances) * (1 + MARGIN):
            out.append(
                f"matrix: two inputs lie {far:.6g} apart, and bound (B) knows of "
                f"{max(hiding.distances):.6g}"
            )
    return out


def _passes(query: Shuffled, users: Users) -> list[str]:
    """Look at what passes the shuffler, for users in two orders and on two sets of nodes."""
    out, few = [], users.select(query.cohort)
    there = np.arange(len(few))
    one, other = (
        InlinePopulation(nodes, 0).ask(query, 0)
        for nodes in ([few], dealt(few.take(there[::-1]), 3))
    )
    if one.rows or one.keyed or len(one.ids if one.ids is not None else ()):
        out.append("shuffler: rows, keys or ids pass the shuffler")
    if any(not np.array_equal(one.sums[name], other.sums[name]) for name in one.sums):
        out.append("shuffler: what passes depends on the order of users, or on their nodes")
    needed = query.least + query.colluders
    groups, batches = read_together(query, few), query.local.n_batches
    if len(groups) > batches:
        out.append(
            f"batches: a report is read in {len(groups)} ways, by its user's id: {groups[0]} users "
            f"hide each other, and {needed} are counted on in each of {batches} batches"
        )
    if needed > 1 and _lifts(query, few.take(there[: needed - 1])):
        out.append(f"shuffler: {needed - 1} reports pass, of {needed} that are needed")
    return out


def read_together(query: Shuffled, users: Users) -> list[int]:
    """Tell users apart by what one and the same report becomes under their ids: sizes of groups."""
    if not len(users):
        return []
    one = query.answer(users.slice(0, 1), SeededStreams(users.ids[:1], 0, ""))
    sizes: Counter[bytes] = Counter()
    for i in users.ids[:MOST_USERS].tolist():
        sums = query.fold(replace(one, ids=np.array([i], dtype=np.uint64))).sums
        sizes[b"".join(sums[name].tobytes() for name in sorted(sums))] += 1
    return sorted(sizes.values())


def _lifts(query: Shuffled, users: Users) -> bool:
    try:
        InlinePopulation([users], 0).ask(query, 0)
    except FedhistError:
        return False
    return True
