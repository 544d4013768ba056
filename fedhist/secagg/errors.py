"""What can go wrong in an attempt, by name. Whatever is raised, nothing has been unmasked."""

from __future__ import annotations

from collections.abc import Mapping

from fedhist.base.errors import FedhistError


class SecaggError(FedhistError):
    """Base of the failures of secure aggregation."""


class Refused(SecaggError):
    """A message is damaged, not meant for this attempt, or asks for what would not be safe."""


class OutOfOrder(SecaggError):
    """A round was asked for before its turn, or a second time."""


class RoundFailed(SecaggError):
    """Too few usable answers came: the attempt is over, and a retry needs a fresh one.

    In the round ``round_name`` ``got`` usable answers came of those ``needed``; ``missing`` has the
    reason by node, and ``why`` says what else is wrong, where enough came.
    """

    def __init__(
        self,
        round_name: str,
        got: int,
        needed: int,
        missing: Mapping[int, str] | None = None,
        why: str = "",
    ) -> None:
        self.round_name, self.got, self.needed = round_name, got, needed
        self.missing = dict(missing or {})
        shown = list(self.missing.items())[:10]
        named = "".join(f"\n  node {node}: {reason}" for node, reason in shown)
        more = len(self.missing) - len(shown)
        named += f"\n  and {more} more" if more else ""
        super().__init__(
            f"round {round_name!r} needs {needed} nodes, {got} gave a usable answer; "
            f"nothing was unmasked{f' ({why})' if why else ''}{named}"
        )
