"""Session: drives a protocol's script; the only place that calls ``.send``."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fedhist.base.errors import FedhistError, WireError, warned
from fedhist.model.codec import protocol_digest, query_digest
from fedhist.model.protocol import Estimate, Protocol
from fedhist.model.query import Query, Summary
from fedhist.model.registry import queries
from fedhist.model.shuffled import Shuffled
from fedhist.privacy.guarantee import Trust
from fedhist.privacy.ledger import Ledger
from fedhist.users.cohort import Cohort
from fedhist.users.keys import Keys
from server.session.curator import Curator, Noise
from server.session.journal import Journal

IDEAL = "ideal (simulated)"
"""Aggregation by a server that is trusted not to look at single nodes' numbers."""

Ask = Callable[[Query, int], Summary]
"""Asks a population one query in one round; hides who answers."""


class Session:
    """One run of a protocol, as a state machine: a query is pending, or there is an estimate.

    Local and aggregate releases are charged when their query leaves; central ones when the Curator
    draws. A central summary may be used until the script's next yield; its exact copy on disk is
    deleted there. Given a journal that already holds a part of the same run, the session continues
    after that part. ``asked`` says whether a question may have been sent, by this process, whose
    driver sets it before it asks, or by an earlier one; if not, nothing was spent.
    """

    def __init__(
        self,
        protocol: Protocol,
        noise: Noise,
        journal: Journal | None = None,
        aggregation: str = IDEAL,
    ) -> None:
        self.protocol = protocol
        self.ledger = Ledger(protocol.guarantee)
        self.journal = journal if journal is not None else Journal()
        self.query: Query | None = None
        self.estimate: Estimate | None = None
        self.round_index = -1
        self._series: dict[str, Cohort | None] = {}
        self._curator = Curator(self.ledger, noise, self.journal)
        self.ledger.noise, self.ledger.null_safe = self._curator.grade, protocol.null_safe
        if protocol.guarantee.trust is Trust.AGGREGATE:
            self.ledger.aggregation = aggregation
        self._script = protocol.rounds(self._curator)
        self.asked = not claim(self.journal, protocol, self._curator.grade)
        self._step(None)
        while self.query is not None:
            summary = self.journal.summary(self.round_index)
            if summary is None:
                break
            self._step(summary)

    def advance(self, summary: Summary) -> None:
        """Hand over the answer to the pending query."""
        query = self.query
        if query is None:
            raise FedhistError("the run has ended; no query is pending")
        self.asked = True
        self._check(query, summary)
        if query.trust is not Trust.CENTRAL:
            self.journal.keep_local(self.round_index, summary)
        else:
            self.journal.keep_exact(self.round_index, summary)
        self._step(summary)

    def run(self, ask: Ask) -> Estimate:
        """Ask until the script returns."""
        while self.query is not None:
            self.asked = True
            self.advance(ask(self.query, self.round_index))
        if self.estimate is None:
            raise FedhistError(f"the script of {self.protocol.name} returned no estimate")
        return self.estimate

    def _check(self, query: Query, summary: Summary) -> None:
        """Check what came; a server that believes everything overrides it."""
        query.check_summary(summary)
        if isinstance(query, Shuffled):
            query.check_sizes(summary)

    def _step(self, summary: Summary | None) -> None:
        answered, index = self.query, self.round_index
        self._curator.holds(answered)
        try:
            try:
                query = next(self._script) if summary is None else self._script.send(summary)
            except StopIteration as stop:
                self._conclude(stop.value)
            else:
                self._send_out(query)
        except Exception:
            self.journal.drop_exact(index)  # not forgotten: a replay has to ask for it again
            raise
        if answered is not None and answered.trust is Trust.CENTRAL and summary is not None:
            self.journal.forget_exact(index)
            _wipe(summary)
        if self.query is None:
            self.journal.close()

    def _conclude(self, returned: object) -> None:
        """End the run with what the script returned."""
        name = self.protocol.name
        if not isinstance(returned, Estimate):
            raise FedhistError(f"the script of {name} returned {returned!r}, not an Estimate")
        if returned.status == "refused" and (self.ledger.entries or self.round_index >= 0):
            raise FedhistError(
                f"the script of {name} refuses after it has asked or spent: that is a failure"
            )
        if not self.journal.ended:
            self.journal.append({"kind": "ended", "index": 0, "status": returned.status})
        ordered = in_key_order(self.protocol, _held_against_range(self.protocol, returned))
        truth = ordered.truth or self.protocol.estimates
        self.query, self.estimate = None, replace(ordered, truth=truth, ledger=self.ledger)

    def _send_out(self, query: Query) -> None:
        """Make a query pending: charge it if it is local, and journal which one it is."""
        self.round_index += 1
        if self.round_index >= self.protocol.max_rounds:
            raise FedhistError(
                f"{self.protocol.name} asks for round {self.round_index + 1}; its max_rounds is "
                f"{self.protocol.max_rounds}"
            )
        name, query = self.protocol.name, self.protocol.asks(query, self.round_index)
        if queries().get(query.wire_name) is not type(query):
            raise FedhistError(
                f"{name}: no client knows the query {type(query).__name__}, wire name "
                f"{query.wire_name!r}: register it with @fedhist.register_query"
            )
        promised = self.protocol.guarantee.trust
        if query.trust.rank < promised.rank:
            central = query.trust is Trust.CENTRAL
            raise FedhistError(
                f"{name} promises {promised.value} privacy, but {query.wire_name!r} needs "
                f"{'a trusted server' if central else f'{query.trust.value} trust'}"
            )
        self._charge(query)
        digest = query_digest(query, self.round_index)
        line = self.journal.find("query", self.round_index)
        if line is None:
            self.journal.append({"kind": "query", "index": self.round_index, "digest": digest})
        elif line["digest"] != digest:
            raise WireError(
                f"round {self.round_index} of the journal asked {line['digest']}, this run asks "
                f"{digest}: the journal belongs to another run or another configuration, or to a "
                "version that did not round numbers before it named a query by them (0.2.0)"
            )
        self.query = query

    def _charge(self, query: Query) -> None:
        """Charge what leaves its users private: all of a series with its first query."""
        if query.trust is Trust.CENTRAL:
            return
        if not query.release.epsilon > 0:
            kind = f"the {query.trust.value} query {query.label!r}"
            raise FedhistError(f"{self.protocol.name}: {kind} states no cost")
        if query.series is not None:
            going_on = query.series in self._series
            paid_by = self._series.setdefault(query.series, query.cohort)
            if paid_by != query.cohort:
                raise FedhistError(f"a series was paid for by {paid_by}, not by {query.cohort}")
            if going_on:
                return
        self.ledger.charge(query.label, query.release, query.cohort, query.moves)


def claim(journal: Journal, protocol: Protocol, grade: str) -> bool:
    """Write into a new journal whose it is; returns whether it was new.

    Raises FedhistError if it is another protocol's journal, another configuration's, of another
    grade of noise, or of another law that may have shared the budget otherwise: what is left of it
    is then unknown. Version 0.2.0 did not note the law; its ended journals can be read, and those
    that have released nothing go on, since every question states its own epsilon.
    """
    run = {"digest": protocol_digest(protocol), "grade": grade}
    line, law = journal.find("run", 0), {"revision": type(protocol).revision}
    if line is None:
        journal.append({"kind": "run", "index": 0, "name": secrets.token_hex(16)} | run | law)
        return True
    if {k: line.get(k) for k in run} != run:
        raise FedhistError(
            "the journal belongs to another run, another configuration, a version whose "
            f"protocol had other fields or another grade of noise than {grade} noise for {protocol}"
        )
    same = line.get("revision", law["revision"]) == law["revision"]
    told = "revision" in line or journal.find("release", 0) is None
    if not (journal.ended or (same and told)):
        raise FedhistError(
            f"the journal is of a version in which {protocol.name} may have shared its budget "
            "otherwise: going on could spend more than the guarantee; end the run with the version "
            "that began it, or book what it has spent and start anew"
        )
    return False


def in_key_order(protocol: Protocol, estimate: Estimate) -> Estimate:
    """Sort the entries of an estimate over an unbounded domain by their keys' bytes.

    Privacy: which keys come out, and their values, is what the ledger accounts for; the order in
    which a script found them is not, and may tell exact counts.
    """
    keys, cls = estimate.keys, type(protocol)
    finds = cls.support is not Protocol.support or cls.support_of is not Protocol.support_of
    if keys is None or not finds:
        return estimate
    order = keys.byte_order
    if (order[1:] > order[:-1]).all():
        return estimate
    value, stderr = (None if a is None else a[order] for a in (estimate.value, estimate.stderr))
    ordered = Keys.of(keys[i] for i in order.tolist())
    return replace(estimate, keys=ordered, value=value, stderr=stderr)


def _wipe(summary: Summary) -> None:
    """Zero an exact summary in place: a script that kept it has nothing left to release."""
    keyed = (part.values for part in summary.keyed.values())
    for a in (*summary.sums.values(), *summary.rows.values(), *keyed):
        if a.flags.writeable:
            a.fill(0)


def _held_against_range(protocol: Protocol, estimate: Estimate) -> Estimate:
    """Warn where an estimate lies further outside what is possible than noise can explain."""
    if estimate.value is None or estimate.stderr is None or not np.size(estimate.value):
        return estimate
    low, high = protocol.value_range
    value, spread = (np.asarray(a, dtype=np.float64) for a in (estimate.value, estimate.stderr))
    rounding = 1e-9 * max((abs(x) for x in (low, high) if math.isfinite(x)), default=0.0)
    beyond = np.maximum(low - value, value - high) - 10 * spread - rounding  # noise: below 1e-22
    if not (beyond > 0).any():
        return estimate
    at = int(np.argmax(beyond))
    warning = warned(
        f"a check failed: the estimate holds {value.flat[at]:g}, more than 10 standard "
        f"errors outside its possible range [{low:g}, {high:g}]",
        "somebody has sent what no honest users send, or the parameters do not fit the data, and "
        "the estimate is of no use",
        "compare the range with the data, and look at which nodes answered",
    )
    return replace(estimate, warnings=(*estimate.warnings, warning))
