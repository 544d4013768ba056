"""What local protocols of one report share."""

from __future__ import annotations

from fedhist.model.protocol import Protocol
from fedhist.privacy.guarantee import Adjacency, Guarantee, Trust


class NonInteractive(Protocol):
    """A local protocol in which each user answers one query, at the field epsilon."""

    epsilon: float

    @property
    def max_rounds(self) -> int:
        """One."""
        return 1

    @property
    def guarantee(self) -> Guarantee:
        """epsilon-LDP for a user's whole record, non-interactively."""
        return Guarantee(self.epsilon, 0.0, Trust.LOCAL, Adjacency.REPLACE_USER)
