"""Whom the users trust, on the command line and in configurations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import Command

from fedhist.privacy.aggregation import Aggregation
from fedhist.protocols import BoundedHistogram, FewUsersMean, Mean
from simulations.runs.config import check_trust, load_config, prepare, with_trust

RUN = ("run", "quickstart", "--runtime", "inline", "--set", "protocol.delta=0")
RUN += ("--population.n_users", "300", "--protocol.clip", "10", "--trust", "aggregate")


def test_the_run_says_what_must_be_believed(fedhist: Command) -> None:
    answer = fedhist(*RUN, "--nodes", 20, "--protocol.tau_c", 0.05, "--out", "results")
    assert answer.status == 0, answer.err
    said = " ".join(answer.out.split())
    premise = "at most 10% of 20 nodes drop out, 5% collude"
    assert f"1-DP per user, aggregate trust ({premise}), zero-out-user" in said
    ledger = json.loads(Path("results/ledger.json").read_text())
    assert premise in ledger["guarantee"]
    assert (ledger["trust"], ledger["aggregation"]) == ("aggregate", "ideal (simulated)")
    assert [c["label"] for c in ledger["charges"]] == ["clipped-counts, by shares"]
    assert ledger["spent under"]["replace-user"]["epsilon"] == pytest.approx(2.0)


def test_a_configuration_names_margins_and_the_run_has_the_nodes() -> None:
    def trust(*overrides: str) -> object:
        protocol = prepare(load_config("quickstart", ["run.nodes=100", *overrides])).protocol
        assert isinstance(protocol, BoundedHistogram)
        assert protocol.grid or protocol.trust is None  # nodes add integers
        return protocol.trust

    word = "protocol.trust=aggregate"
    assert trust() is None
    assert trust("protocol.trust=central") is None
    assert trust(word) == Aggregation(100)
    assert trust(word, "run.nodes=12", "protocol.max_users=5000") == Aggregation(12, max_users=5000)
    assert trust(word, "protocol.tau_d=0.29", "protocol.tau_c=0") == Aggregation(100, 0.29, 0.0)
    for overrides, why in (
        (["protocol.tau_c=0.2"], "protocol.tau_c"),
        ([word, "protocol.tau_d=0.5"], "got 0.5"),
        ([word, "protocol.tau_c=a"], "got 'a'"),
        ([word, "protocol.tau_d=0.4", "protocol.tau_c=0.3"], "at least half"),
        (["protocol.trust=agregate"], "got 'agregate'"),
        (["protocol.trust=local"], "local trust"),
        ([word, "protocol.max_users=1.5"], "max_users"),
    ):
        with pytest.raises(ValueError, match=why):
            trust(*overrides)


def test_a_protocol_that_needs_the_server_is_refused(fedhist: Command) -> None:
    asked = ("run", "few-users", "--trust", "aggregate", "--runtime", "inline")
    assert fedhist(*asked).status == 2
    assert fedhist(*RUN, "--run.fold", "server").status == 2
    with pytest.raises(ValueError, match="mean does not run under aggregate trust"):
        with_trust(Mean, {"trust": "aggregate"}, 10)
    with pytest.raises(ValueError, match="few-users-mean does not run under local trust"):
        check_trust(FewUsersMean.example(), "local")


def test_nodes_that_drop_out_fail_the_run_below_the_quorum(fedhist: Command) -> None:
    text = fedhist("list", "configurations", "quickstart").out
    dropout = '[[adversary]]\nkind = "dropout"\nfraction = 0.1\nlevel = "node"\n'
    Path("mine.toml").write_text(text + dropout)
    told = ("run", "mine.toml", *RUN[2:], "--nodes", 20)
    answer = fedhist(*told)
    assert answer.status == 0, answer.err
    assert "18 replies" in " ".join(answer.out.split())
    answer = fedhist(*told, "--adversary.fraction", 0.15)
    assert answer.status == 1
    assert "3 of 20 replies are missing" in answer.err
