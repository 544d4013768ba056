"""A Flower strategy with a fedhist Session behind Flower's verbs."""

from __future__ import annotations

import inspect
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from logging import INFO
from pathlib import Path
from typing import ClassVar

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result
from flwr.serverapp.strategy import Strategy as FlowerStrategy

from fedhist.base.arrays import plain
from fedhist.base.checks import check_count, check_integer
from fedhist.base.errors import FedhistError, MissingReplies, WireError
from fedhist.flower.wire import MESSAGE_TYPE, READY, encode_question
from fedhist.model.aggregated import Aggregated
from fedhist.model.codec import query_digest
from fedhist.model.protocol import Estimate, Protocol
from fedhist.model.query import Query, check_parties
from fedhist.privacy.guarantee import Trust
from server.intake import Collected, Intake, opened
from server.masked import MaskedSum
from server.noise import noise_source
from server.session.journal import Journal
from server.session.session import Session

NODE_POLL_SECONDS = 0.2
DROPPED = "dropped: "
"""Before the reasons in a round's statistics."""


class SessionStrategy(FlowerStrategy):
    """Runs a protocol over a Grid; usable in anybody's own ServerApp.

    Each round asks every node the session's pending query, checks and merges the answers, and hands
    the summary to the session. Nodes are waited for ``node_timeout`` seconds; ``min_replies`` of
    them must answer (default: all). ``on_bad_reply``, and what ``intake`` makes of a query, its
    digest and that: see :class:`server.intake.Intake`. ``masked``: sums under aggregate trust are
    made under masks. ``shuffled``: a shuffler is there, or, in a simulation, taken to be;
    FedhistError for shuffle trust without. ``rounds`` has the statistics of each round. NOT PRIVATE
    where participation is.
    """

    asks_ahead: ClassVar[bool] = False
    """Whether nodes are asked whether they would answer, before they are asked."""

    def __init__(
        self,
        session: Session,
        n_nodes: int,
        *,
        fold: bool = True,
        min_replies: int | None = None,
        on_bad_reply: str = "drop",
        intake: Callable[[Query, str, str], Intake] = Intake,
        node_timeout: float = 60.0,
        masked: bool = False,
        shuffled: bool = False,
    ) -> None:
        check_count("n_nodes", n_nodes)
        if session.protocol.guarantee.trust is Trust.SHUFFLE and not shuffled:
            raise FedhistError(
                f"{session.protocol.name} promises {session.protocol.guarantee}, and there is no "
                "shuffler here: this server sees which node sends what"
            )
        if min_replies is not None and not 0 < min_replies <= n_nodes:
            raise ValueError(f"min_replies must lie in 1..{n_nodes}, got {min_replies}")
        self.session, self.n_nodes, self.fold = session, n_nodes, fold
        self.min_replies, self.node_timeout = min_replies, node_timeout
        self.on_bad_reply, self.intake, self.masked = on_bad_reply, intake, masked
        self.rounds: list[dict[str, float]] = []
        self._started = 0.0
        self._intake: Intake | None = None

    def ask_ahead(self, grid: Grid, timeout: float) -> None:
        """Ask all nodes whether they would answer the pending query; it costs no user anything."""
        query, index = self.session.query, self.session.round_index
        if query is None:
            return
        check_parties(query, self.n_nodes)
        digest = query_digest(query, index)
        record = encode_question(query, index, fold=self.fold, ahead=True)
        least = (self.min_replies if query.quorum is None else query.quorum) or self.n_nodes
        nodes = wait_for_nodes(grid, self.n_nodes, self.node_timeout, least)
        messages = [Message(record, node, MESSAGE_TYPE, group_id="ahead") for node in nodes]
        ready, said = set[int](), Counter[str]()
        for reply in grid.send_and_receive(messages, timeout=timeout):
            try:
                answer = opened(reply, (READY, "refusal"))
                if answer.digest != digest:
                    raise WireError(f"an answer to another query, {answer.digest}")
                if answer.node in ready:
                    raise WireError(f"another node is number {answer.node} (partition-id), too")
            except WireError as error:
                said[str(error)] += 1
            else:
                ready.add(answer.node)
        silent = self.n_nodes - len(ready) - said.total()
        said.update({"no reply": silent} if silent > 0 else {})
        if len(ready) < least:
            raise MissingReplies(self.n_nodes, len(ready), said, query.quorum or 0)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the pending query as one message per node; none when the session has ended."""
        query, self._started = self.session.query, time.perf_counter()
        if query is None:
            return []
        check_parties(query, self.n_nodes)
        digest = query_digest(query, self.session.round_index)
        self._intake = self.intake(query, digest, self.on_bad_reply)
        record = encode_question(query, self.session.round_index, fold=self.fold)
        group = str(self.session.round_index)
        least = self.min_replies if query.quorum is None else query.quorum
        nodes = wait_for_nodes(grid, self.n_nodes, self.node_timeout, least)
        self._intake.first = nodes[0]
        self.session.asked = True
        return (Message(record, node, MESSAGE_TYPE, group_id=group) for node in nodes)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Check and merge the replies and advance the session."""
        if self.session.query is None or self._intake is None:
            return None, None
        intake, self._intake = self._intake, None  # exact sums are kept by the session alone
        return None, self._take(intake.collect(replies, self.n_nodes, self.min_replies))

    def ask_under_masks(self, query: Aggregated, grid: Grid, timeout: float) -> MetricRecord:
        """Add up under masks what all nodes send for the query, and advance the session."""
        self._started, index = time.perf_counter(), self.session.round_index
        check_parties(query, self.n_nodes)
        noted = self.intake(query, query_digest(query, index), self.on_bad_reply)

        def send(records: Mapping[int, RecordDict]) -> Iterable[Message]:
            messages = [
                Message(record, node, MESSAGE_TYPE, group_id=str(index))
                for node, record in records.items()
            ]
            return grid.send_and_receive(messages, timeout=timeout)

        journal, least = self.session.journal, self.min_replies
        total = MaskedSum(query, index, journal, send, noted.dropped, least, noted.max_users)
        nodes = wait_for_nodes(grid, self.n_nodes, self.node_timeout, query.quorum)
        self.session.asked = True
        return self._take(total.collect(nodes))

    def _take(self, got: Collected) -> MetricRecord:
        """Keep a round's statistics and hand its summary to the session."""
        statistics: dict[str, float] = {
            "replies": got.replies,
            "missing": self.n_nodes - got.replies,
            "bytes_received": got.bytes_received,
        }
        statistics |= {f"{DROPPED}{reason}": n for reason, n in got.dropped.items()}
        self.rounds.append(statistics)
        for reason, count in got.dropped.items():
            log(INFO, "%d x %s", count, reason)
        metrics = MetricRecord({k: int(v) for k, v in statistics.items()})
        self.session.advance(got.summary)
        statistics["seconds_asking"] = got.last - self._started
        statistics["seconds_merging"] = time.perf_counter() - got.last
        return metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return no messages: an estimator has no evaluation phase."""
        return []

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Return nothing: an estimator has no evaluation phase."""
        return None

    def summary(self) -> None:
        """Log what is being run and what it guarantees."""
        protocol = self.session.protocol
        log(INFO, "%s over %d nodes: %s", protocol.name, self.n_nodes, protocol.guarantee)

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord | None = None,
        num_rounds: int = 0,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
        should_stop: Callable[[int, Result], bool] | None = None,
    ) -> Result:
        """Run until the protocol's script ends; it decides the number of rounds itself.

        ``should_stop`` is called after each round with its number and the result so far. If it says
        so, there is no estimate yet; starting again goes on. What else belongs to training is not
        used.
        """
        self.summary()
        result = Result()
        if should_stop is not None:
            inspect.signature(should_stop).bind(1, result)  # TypeError before anybody is asked
        if self.asks_ahead:
            self.ask_ahead(grid, timeout)
        config, arrays = train_config or ConfigRecord(), initial_arrays or ArrayRecord()
        done = 0
        while (query := self.session.query) is not None:
            if done and should_stop is not None and should_stop(done, result):
                break
            number = done = self.session.round_index + 1
            if self.masked and isinstance(query, Aggregated):
                result.train_metrics_clientapp[number] = self.ask_under_masks(query, grid, timeout)
                continue
            messages = self.configure_train(number, arrays, config, grid)
            if not getattr(grid, "walks_once", False):
                messages = list(messages)  # Flower's own grids walk them twice
            replies = grid.send_and_receive(messages, timeout=timeout)
            _, metrics = self.aggregate_train(number, replies)
            if metrics is not None:
                result.train_metrics_clientapp[number] = metrics
        return result


class Strategy(SessionStrategy):
    """Runs a protocol over the nodes of your own ServerApp: ``Strategy(...).start(grid)``.

    Before the first question all nodes are asked whether they would answer it, which costs no user
    anything. MissingReplies, with what the nodes say, if fewer than ``min_replies`` would: data are
    missing or of another kind, a policy forbids it, a budget is spent.

    Sums under aggregate trust are made under masks. FedhistError for shuffle trust: there is no
    shuffler.

    Parameters
    ----------
    protocol : Protocol
    nodes : int
        Nodes to wait for, ``node_timeout`` seconds, and to ask.
    seed : int, optional
        For simulations: makes the server's noise reproducible. Default: exact samplers on system
        entropy; a protocol that has none refuses.
    journal : path, optional
        Folder that makes the run survive a restart.
    min_replies : int, optional
        Fewest nodes that must answer; default: all.
    """

    asks_ahead = True

    def __init__(
        self,
        protocol: Protocol,
        nodes: int,
        *,
        seed: int | None = None,
        journal: str | Path | None = None,
        min_replies: int | None = None,
        node_timeout: float = 60.0,
    ) -> None:
        if not isinstance(protocol, Protocol):
            raise ValueError(f"protocol must be a protocol such as Mean(...), got {protocol!r}")
        nodes, seed = plain_integers(nodes, seed)
        noise = noise_source("secure" if seed is None else "simulated", seed or 0, protocol)
        session = Session(protocol, noise, Journal(journal), "masked")
        super().__init__(
            session, nodes, min_replies=min_replies, node_timeout=node_timeout, masked=True
        )

    @property
    def estimate(self) -> Estimate:
        """What the run has found; FedhistError before its end."""
        if self.session.estimate is None:
            raise FedhistError("the run has not ended: there is no estimate yet")
        return self.session.estimate


def plain_integers(nodes: int, seed: int | None) -> tuple[int, int | None]:
    """Return a number of nodes and a seed as Python has them; ValueError for what is none."""
    nodes, seed = plain(nodes), plain(seed)
    check_integer("nodes", nodes)
    if seed is not None:
        check_integer("seed", seed, least=0)
    return nodes, seed


def wait_for_nodes(grid: Grid, n_nodes: int, timeout: float, least: int | None = None) -> list[int]:
    """Wait until n_nodes are connected; get_node_ids() is empty or partial for a moment.

    MissingReplies if fewer than ``least`` (default: all) come within ``timeout`` seconds, or if
    more than expected are still there (a node that was killed stays listed for a while).
    """
    end = time.monotonic() + timeout
    while True:
        nodes = sorted(grid.get_node_ids())
        late = time.monotonic() > end
        if len(nodes) == n_nodes or (late and (least or n_nodes) <= len(nodes) < n_nodes):
            return nodes
        if late:
            raise MissingReplies(
                n_nodes, len(nodes), {f"{len(nodes)} nodes are connected, {n_nodes} expected": 1}
            )
        time.sleep(NODE_POLL_SECONDS)
