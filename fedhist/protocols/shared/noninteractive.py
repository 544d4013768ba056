"""What local protocols of one report share."""

from __future__ import annotations

from fedhist.privacy.guarantee import Guarantee
from fedhist.protocols.shared.shuffles import Shuffles


class NonInteractive(Shuffles):
    """A local protocol in which each user answers one query, at the field epsilon."""

    epsilon: float

    @property
    def max_rounds(self) -> int:
        """One."""
        return 1

    @property
    def guarantee(self) -> Guarantee:
        """epsilon-LDP for a user's whole record; or what a shuffler makes of it."""
        return self.promise()
