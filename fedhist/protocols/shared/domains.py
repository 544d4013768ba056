"""Public domains of items: what they are, and where a configuration's comes from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedhist.model.protocol import Protocol
from fedhist.users.keys import Keys
from fedhist.users.shards import Shard


def check_domain(domain: Any) -> None:
    """Raise ValueError unless the domain is Keys, and not empty."""
    if not isinstance(domain, Keys) or not len(domain):
        raise ValueError(f"domain must be non-empty Keys (Keys.of([...])), got {domain!r}")


def with_domain(parameters: Mapping[str, Any], public: Keys | None) -> dict[str, Any]:
    """Complete a configuration with its domain, from strings if it names any.

    Otherwise with the population's public one.
    """
    given = parameters.get("domain")
    given = public if given is None else given
    if given is None:
        raise ValueError("a bounded domain is needed, got None: the population names none either")
    return {**parameters, "domain": given if isinstance(given, Keys) else Keys.of(given)}


class OnDomain(Protocol):
    """A protocol about the items of a public domain."""

    domain: Keys

    @classmethod
    def resolve(
        cls, parameters: Mapping[str, Any], users: Shard, domain: Keys | None
    ) -> tuple[dict[str, Any], list[str]]:
        """Fill the domain from the population's public one."""
        out, not_private = super().resolve(parameters, users, domain)
        return with_domain(out, domain), not_private
