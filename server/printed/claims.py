"""Central versions as printed claim what is asked for, and spend something else."""

from __future__ import annotations

from fedhist.privacy.guarantee import Guarantee
from server.trust import Central


class AsPrinted(Central):
    """A version whose ``guarantee`` says what it really spends."""

    @property
    def claimed(self) -> Guarantee:
        return super().guarantee
