"""The older form of a prediction; goes with the last family that makes one."""

from __future__ import annotations

import re

from fedhist.model.prediction import Kind, LowerBound, Prediction

__all__ = ["ErrorBound", "LowerBound"]


class ErrorBound(Prediction):
    """A :class:`Prediction` that says with a boolean whether it is exact."""

    def __init__(
        self,
        loss: str,
        expected: float,
        exact: bool = False,
        source: str = "",
        kind: Kind | None = None,
        stderr: float = 0.0,
    ) -> None:
        super().__init__(loss, expected, kind or ("exact" if exact else "bound"), source, stderr)

    @property
    def is_close(self) -> bool:
        """Whether the source says that another choice may be as good."""
        return bool(re.search(r"\bclose:", self.source))

    @property
    def is_bound(self) -> bool:
        """Whether the source says that the expected loss may be less."""
        return bool(re.search(r"\ba bound\b", self.source))
