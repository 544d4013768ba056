"""Whom the users trust, on the command line and in configurations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import Command

from fedhist.privacy.aggregation import Aggregation
from fedhist.protocols import BoundedHistogram, FewUsersMean, Mean
from simulations.runs.config import check_trust, load_config, prepare, with_trust

SMALL = """
[run]
runtime = "inline"
seed = 3
[protocol]
name = "bounded-histogram"
epsilon = 1.0
clip = 10.0
[population]
kind = "zipf"
n_users = 300
d = 4
mean_items = 8
seed = 1
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "histogram.toml"
    path.write_text(SMALL)
    return path


def test_the_run_says_what_must_be_believed(fedhist: Command, config: Path) -> None:
    answer = fedhist(
        *("run", config, "--trust", "aggregate", "--nodes", 20, "--protocol.tau_c", 0.05),
        *("--out", "results"),
    )
    assert answer.status == 0, answer.err
    said = " ".join(answer.out.split())
    premise = "at most 10% of 20 nodes drop out, 5% collude"
    assert f"1-DP per user, aggregate trust ({premise}), zero-out-user" in said
    ledger = json.loads(Path("results/ledger.json").read_text())
    assert premise in ledger["guarantee"]
    assert (ledger["trust"], ledger["aggregation"]) == ("aggregate", "ideal (simulated)")
    assert [c["label"] for c in ledger["charges"]] == ["clipped-counts, by shares"]
    assert ledger["spent under"]["replace-user"]["epsilon"] == pytest.approx(2.0)


def test_a_configuration_names_margins_and_the_run_has_the_nodes(config: Path) -> None:
    def trust(*overrides: str) -> object:
        protocol = prepare(load_config(config, [*overrides])).protocol
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


def test_a_protocol_that_needs_the_server_is_refused(fedhist: Command, config: Path) -> None:
    """And so are reports that would leave one by one."""
    asked = ("run", "few-users", "--trust", "aggregate", "--runtime", "inline")
    assert fedhist(*asked).status == 2
    assert fedhist("run", config, "--trust", "aggregate", "--run.fold", "server").status == 2
    with pytest.raises(ValueError, match="mean does not run under aggregate trust"):
        with_trust(Mean, {"trust": "aggregate"}, 10)
    with pytest.raises(ValueError, match="few-users-mean does not run under local trust"):
        check_trust(FewUsersMean.example(), "local")


def test_nodes_that_drop_out_fail_the_run_below_the_quorum(fedhist: Command, config: Path) -> None:
    with config.open("a") as file:
        file.write('[[adversary]]\nkind = "dropout"\nfraction = 0.1\nlevel = "node"\n')
    told = ("run", config, "--trust", "aggregate", "--nodes", 20)
    answer = fedhist(*told)
    assert answer.status == 0, answer.err
    assert "18 replies" in " ".join(answer.out.split())
    answer = fedhist(*told, "--adversary.fraction", 0.15)
    assert answer.status == 1
    assert "3 of 20 replies are missing" in answer.err
