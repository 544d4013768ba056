"""The auditor against broken mechanisms: every one is flagged, and no correct one is.

The probability that a correct mechanism is flagged, anywhere in this file, is at most 10^-6; see
``bank_entries``. Seeds are fixed, so that what passes once passes again.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from bank_entries import ENTRIES, FILES, QUICK_TWINS, TWINS, Entry

from fedhist.model import registry
from fedhist.model.protocol import Protocol
from fedhist.privacy.guarantee import Trust
from simulations.audit.asked import asked_of
from simulations.audit.bounds import ALPHA, MOST_CHECKS, TOTAL_ALPHA
from simulations.audit.central import audit_central
from simulations.audit.checks import audit_protocol
from simulations.audit.exact import audit_exact
from simulations.audit.finding import Finding, Settings
from simulations.audit.statistical import audit_query
from simulations.audit.structural import audit_structure

HERE = Path(__file__).parent
STATISTICAL = ("statistical", "end to end")
BANK_FINDINGS, REGISTRY_FINDINGS = 6, 16
"""Most statistical findings about one protocol of the bank, and of the registry."""
LOCAL, RUN = 1 / 16, 1 / 4
"""Effort of the quick subset."""


@pytest.fixture(scope="module")
def bank() -> Iterator[dict[str, type[Protocol]]]:
    registry.load_builtin()
    tables = (registry._protocols, registry._queries, registry._parts)
    before = [dict(t) for t in tables]
    modules = set(sys.modules)
    for name in FILES:
        registry.load_plugin(HERE / f"{name}.py")
    yield {n: c for n, c in registry.protocols().items() if n not in before[0]}
    for table, old in zip(tables, before, strict=True):
        table.clear()
        table.update(old)
    for name in set(sys.modules) - modules:
        if name.startswith("fedhist_plugin_"):
            del sys.modules[name]


def quick_findings(protocol: Protocol, checks: tuple[str, ...]) -> list[Finding]:
    result: list[Finding] = []
    settings = Settings(effort=LOCAL)
    if {"structural", "wire"} & set(checks):
        result += audit_structure(protocol, settings)
    if "end to end" in checks:
        result += audit_central(protocol, Settings(effort=RUN))
    if {"exact", "statistical", "floating point"} & set(checks):
        users = protocol.example_users()
        query = asked_of(protocol, users, 0).queries[0]
        exact = audit_exact(query, protocol.name) if "exact" in checks else None
        result += [exact] if exact is not None else []
        if checks != ("exact",):
            result.append(audit_query(query, users, protocol.name, settings))
    return result


def all_findings(protocol: Protocol) -> list[Finding]:
    return list(audit_protocol(protocol, Settings()))


def caught(entry: Entry, findings: list[Finding]) -> bool:
    kind = "statistical" if entry.check == "floating point" else entry.check
    return any(
        f.violated
        and f.kind in (kind, entry.check)
        and f.certified > f.epsilon
        and f.witness is not None
        and entry.event in f.witness.event
        for f in findings
    )


def test_the_list_and_the_plugins_agree(bank: dict[str, type[Protocol]]) -> None:
    names = [e.name for e in ENTRIES]
    assert sorted([*names, *TWINS]) == sorted(bank)
    assert len(names) == len(set(names)) == 19
    assert all(e.wrong and e.source for e in ENTRIES)
    for cls in bank.values():
        assert cls.example().guarantee.private
        delta = cls.example().guarantee.delta
        assert delta == 0 or delta >= 1e-3  # leaks of delta kind can be seen


def test_false_alarms_are_budgeted() -> None:
    """The union bound over all statistical findings is at most 10^-6; the slow tests count them."""
    registered = [n for n in registry.protocols() if not n.startswith("bank-")]
    most = (len(ENTRIES) + len(TWINS)) * BANK_FINDINGS + len(registered) * REGISTRY_FINDINGS
    quick = sum(e.quick for e in ENTRIES) + len(QUICK_TWINS) + 16
    assert most + quick <= MOST_CHECKS
    assert (most + quick) * ALPHA <= TOTAL_ALPHA <= 1e-6


@pytest.mark.parametrize("entry", [e for e in ENTRIES if e.cheap or e.quick], ids=lambda e: e.name)
def test_quick(entry: Entry, bank: dict[str, type[Protocol]]) -> None:
    assert caught(entry, quick_findings(bank[entry.name].example(), (entry.check,)))


@pytest.mark.parametrize("name", TWINS)
def test_quick_twins(name: str, bank: dict[str, type[Protocol]]) -> None:
    protocol = bank[name].example()
    checks = ["structural"]
    central = protocol.guarantee.trust is Trust.CENTRAL
    if name in QUICK_TWINS:
        checks += ["end to end"] if central else ["exact", "statistical"]
    result = quick_findings(protocol, tuple(checks))
    assert result
    assert not [f for f in result if f.violated]


def test_registered_protocols_have_no_structural_flaw(protocol_name: str) -> None:
    result = list(audit_structure(registry.protocols()[protocol_name].example(), Settings()))
    assert result
    assert not [f for f in result if f.violated]


@pytest.mark.slow
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e.name)
def test_every_broken_mechanism_is_flagged(entry: Entry, bank: dict[str, type[Protocol]]) -> None:
    result = all_findings(bank[entry.name].example())
    assert caught(entry, result), [(f.kind, f.verdict, f.certified) for f in result]
    assert sum(f.kind in STATISTICAL for f in result) <= BANK_FINDINGS


@pytest.mark.slow
@pytest.mark.parametrize("name", TWINS)
def test_no_correct_twin_is_flagged(name: str, bank: dict[str, type[Protocol]]) -> None:
    result = all_findings(bank[name].example())
    assert result
    assert not [f for f in result if f.violated]
    assert sum(f.kind in STATISTICAL for f in result) <= BANK_FINDINGS
