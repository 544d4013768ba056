"""The checks that apply to a protocol, in order; and which protocols an audit is about."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedhist.model.protocol import Protocol
from fedhist.model.query import Query
from fedhist.model.registry import load_builtin, load_plugin, parameters, protocol_class, protocols
from fedhist.privacy.guarantee import Trust
from fedhist.users.batch import Users
from simulations.audit.asked import asked_of, kinds_of
from simulations.audit.central import audit_central
from simulations.audit.exact import audit_exact
from simulations.audit.finding import Finding, Settings
from simulations.audit.statistical import audit_query
from simulations.audit.structural import audit_structure
from simulations.config.reading import check_keys
from simulations.runs.config import check_trust, with_trust


def audit_local(protocol: Protocol, settings: Settings) -> Iterator[Finding]:
    """Audit every kind of local query that a protocol asks in its example run."""
    if protocol.guarantee.trust is Trust.LOCAL and protocol.guarantee.private:
        users = protocol.example_users()
        queries = asked_of(protocol, users, settings.seed).queries
        yield from audit_queries(protocol, queries, users, settings)


def audit_queries(
    protocol: Protocol, queries: Sequence[Query], users: Users, settings: Settings
) -> Iterator[Finding]:
    """Audit every kind of local query of these.

    Queries that differ in their cohort only are one kind, and so are those of one name and one
    cost that are asked again with other numbers; each kind is audited once.
    """
    single = protocol.guarantee.unit == "item"
    for query in kinds_of(queries):
        if query.trust is Trust.LOCAL and math.isfinite(query.release.epsilon):
            subject = f"{protocol.name}: {query.wire_name}"
            enumerated = audit_exact(query, subject)
            if enumerated is not None:
                yield enumerated
            yield audit_query(query, users, subject, settings, single=single)


def audit_protocol(protocol: Protocol, settings: Settings) -> Iterator[Finding]:
    """Make all findings that apply to a protocol."""
    yield from audit_local(protocol, settings)
    yield from audit_structure(protocol, settings)
    yield from audit_central(protocol, settings)


ALL = "all"
"""In place of a protocol's name: every registered one."""


def chosen_protocols(
    name: str | None,
    plugins: Sequence[Path],
    changes: Mapping[str, Any],
) -> list[Protocol]:
    """Build the protocols to audit: their examples, with parameters changed.

    ``name``: a protocol, or "all" of them; by default those of the plugins. Raises ValueError if
    nothing is named; for an unknown protocol or parameter, or a change that an audited protocol
    does not take.
    """
    load_builtin()
    before = set(protocols())
    for file in plugins:
        load_plugin(file)
    if name == ALL:
        names = sorted(protocols())
    elif name is not None:
        names = [name]
    elif not plugins:
        raise ValueError(
            "name a protocol or a --plugin, or give all (some twenty minutes); there are "
            + ", ".join(sorted(protocols()))
        )
    else:
        names = sorted(set(protocols()) - before)
        if not names:
            raise ValueError("the plugins register no new protocol; name the one to audit")
    classes = [protocol_class(n) for n in names]
    return [changed(cls.example(), changes) for cls in classes]


def changed(protocol: Protocol, changes: Mapping[str, Any]) -> Protocol:
    """Return a protocol with fields changed; ValueError for one that it does not have."""
    given = with_trust(type(protocol), changes, None)
    check_keys(given, parameters(type(protocol)), f"parameter of {protocol.name}")
    other: Protocol = replace(protocol, **given) if given else protocol  # type: ignore[type-var]
    check_trust(other, changes.get("trust"))
    return other
