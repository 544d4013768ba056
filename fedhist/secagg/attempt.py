"""What both sides of an attempt have in common: four rounds in order, and a state that is kept."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from fedhist.secagg.errors import SecaggError
from fedhist.secagg.terms import Terms

ROUNDS = ("keys", "shares", "masked", "unmask")


class AttemptState(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What a side keeps between rounds."""

    nonce: bytes
    terms: bytes
    done: int = 0


K = TypeVar("K", bound=AttemptState)


class Attempt(Generic[K]):
    """One side of an attempt.

    Parameters
    ----------
    terms : Terms
    state : AttemptState
    """

    def __init__(self, terms: Terms, state: K) -> None:
        self.terms = terms
        self._state = state

    @property
    def next_round(self) -> str | None:
        """The round that is not over yet; None after the last."""
        return ROUNDS[self._state.done] if self._state.done < len(ROUNDS) else None

    def state(self) -> bytes:
        """Return what is to be kept on disk, readable by its owner only.

        A node's is SECRET until it has unmasked.
        """
        return msgspec.msgpack.encode(self._state)


def read_state(state: bytes, kind: type[K], terms: Terms) -> K:
    """Read an attempt's :meth:`Attempt.state`.

    Raises
    ------
    SecaggError
        If the state is damaged or of other terms.
    """
    try:
        kept = msgspec.msgpack.decode(state, type=kind)
    except msgspec.MsgspecError as e:
        raise SecaggError(f"the state of an attempt cannot be read: {e}") from None
    if kept.terms != terms.fingerprint:
        raise SecaggError("the state of an attempt is of other terms")
    return kept


__all__ = ["ROUNDS", "Attempt", "AttemptState", "read_state"]
