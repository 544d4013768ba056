"""Sums under masks: the protocol by which a server learns a sum of vectors and no vector.

Two state machines over plain messages, without a network, a file or a clock: :class:`NodeAttempt`
has one method per round, :class:`ServerAttempt` one per collection of answers. Rounds, encodings
and what is and is not promised: ``fedhist/secagg/README.md``.
"""

from fedhist.secagg.errors import OutOfOrder, Refused, RoundFailed, SecaggError
from fedhist.secagg.messages import Message
from fedhist.secagg.node import NodeAttempt
from fedhist.secagg.server import ServerAttempt
from fedhist.secagg.terms import Terms

__all__ = [
    "Message",
    "NodeAttempt",
    "OutOfOrder",
    "Refused",
    "RoundFailed",
    "SecaggError",
    "ServerAttempt",
    "Terms",
]
