"""A configuration with ``trust = "shuffle"``: from its keys to what is printed and written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedhist.model.codec import protocol_digest
from fedhist.privacy.guarantee import Trust
from fedhist.privacy.shuffler import Shuffling
from fedhist.protocols import FrequencyOracle
from simulations.runs.config import config_of, prepare
from simulations.runs.results import ledger_in_words
from simulations.runs.run import execute

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
    assert estimate.ledger is not None
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
