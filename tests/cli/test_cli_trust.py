"""Whom the users trust, on the command line and in configurations; ``trust = "shuffle"``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from commands import Command

from fedhist.model.codec import protocol_digest
from fedhist.privacy.guarantee import Trust
from fedhist.privacy.shares import Aggregation
from fedhist.privacy.shuffling import Shuffling
from fedhist.protocols import FewUsersMean, FrequencyOracle, Mean
from simulations.runs.config import check_trust, config_of, load_config, prepare, with_trust
from simulations.runs.results import ledger_in_words
from simulations.runs.run import execute

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


PEOPLE = {"kind": "zipf", "n_users": 3000, "d": 20, "exponent": 1.0, "mean_items": 1}
SAMPLES = {"kind": "gaussian", "n_users": 3000, "samples_per_user": 4, "mean": 0.2}
ORACLE = {"name": "frequency-oracle", "epsilon": 1, "delta": 1e-5, "trust": "shuffle"}


def prepared(protocol: dict[str, Any], people: dict[str, Any] = PEOPLE, **run: Any) -> Any:
    tables = {"run": {"seed": 1, **run}, "protocol": protocol, "population": people}
    return prepare(config_of(tables, "made.toml", "made"))


def test_the_target_becomes_a_local_epsilon() -> None:
    protocol = prepared(ORACLE).protocol
    trust = Shuffling(1.0, 1e-5, 3000)
    assert protocol.trust == trust
    assert protocol == FrequencyOracle.shuffled(trust, domain=protocol.domain)
    assert protocol.kind == "krr"
    assert protocol.epsilon > 4
    more = prepared({**ORACLE, "tau": 0.2, "colluders": 7}).protocol
    assert (more.trust.tau, more.trust.colluders) == (0.2, 7)
    assert more.epsilon < protocol.epsilon
    assert protocol_digest(more) != protocol_digest(protocol)


@pytest.mark.parametrize(
    ("protocol", "people"),
    [
        (ORACLE | {"kind": "hadamard"}, PEOPLE),
        (ORACLE | {"name": "naive-mean"}, SAMPLES),
        (ORACLE | {"name": "cover-select", "per_axis": 5}, SAMPLES),
    ],
    ids=lambda x: x.get("name"),
)
def test_runs_end_well(protocol: dict[str, Any], people: dict[str, Any]) -> None:
    ready = prepared(protocol, people)
    assert ready.protocol.guarantee.trust is Trust.SHUFFLE
    options = ready.config.run.options(runtime="inline")
    estimate = execute(ready.protocol, ready.plan.users, options).estimate
    assert estimate.status == "ok"
    assert 0.98 < estimate.ledger.spent().epsilon <= 1 + 1e-9


def test_the_ledger_names_both_sides() -> None:
    ready = prepared(ORACLE)
    options = ready.config.run.options(runtime="inline")
    estimate = execute(ready.protocol, ready.plan.users, options).estimate
    words = ledger_in_words(ready, estimate.ledger)
    local = f"{ready.protocol.epsilon:.4g}"
    assert "2700 users of each cohort report honestly and" in words["shuffle (ideal)"]
    assert f"{local}-DP against it" in words["shuffle (ideal)"]
    assert words["trust"] == "shuffle"
    # replacement only: nobody knows what adding a user does
    totals = words["spent under"]
    assert "epsilon" in str(totals["replace-user"])
    json.dumps(words)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"delta": None}, "protocol.delta"),
        ({"epsilon": None}, "epsilon, a number, got None"),
        ({"delta": 0.0}, "got 0"),
        ({"tau": 0.7}, "got 0.7"),
        ({"colluders": -3}, "-3"),
        ({"tau_d": 0.1}, "protocol.tau_d"),
        ({"trust": "shuffel"}, "shuffel"),
        ({"trust": "local"}, 'trust = "shuffle"'),
        ({"name": "quantiles"}, "quantiles"),
        ({"name": "sparse-mean", "sparsity": 2}, "sparse-mean"),
        ({"name": "local-quantiles"}, "local-quantiles"),
    ],
)
def test_what_cannot_be_meant_is_refused(change: dict[str, Any], said: str) -> None:
    table = {k: v for k, v in (ORACLE | change).items() if v is not None}
    with pytest.raises(ValueError, match=said):
        prepared(table)


def test_no_shuffler_stands_before_real_nodes(tmp_path: Path) -> None:
    from simulations.runs.flower_host import HOST

    file = tmp_path / "remote.toml"
    file.write_text(
        '[run]\nnodes = 3\n[protocol]\nname = "naive-mean"\nepsilon = 1.0\n'
        '[population]\nkind = "remote"\n'
    )
    overrides = json.dumps(["protocol.trust=shuffle", "protocol.delta=1e-5", "protocol.n_users=90"])
    with pytest.raises(ValueError, match="no shuffler stands between remote nodes"):
        HOST.server({"config": str(file), "overrides": overrides})
