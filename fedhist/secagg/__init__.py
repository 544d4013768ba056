"""Sums under masks: the protocol by which a server learns a sum of vectors and no vector.

Two state machines over plain messages, without a network, a file or a clock: :class:`NodeAttempt`
has one method per round, :class:`ServerAttempt` one per collection of answers. Rounds, encodings
and what is and is not promised: ``fedhist/secagg/README.md``.
"""

from fedhist.secagg.errors import OutOfOrder as OutOfOrder
from fedhist.secagg.errors import Refused as Refused
from fedhist.secagg.errors import RoundFailed as RoundFailed
from fedhist.secagg.errors import SecaggError as SecaggError
from fedhist.secagg.messages import Message as Message
from fedhist.secagg.node import NodeAttempt as NodeAttempt
from fedhist.secagg.server import ServerAttempt as ServerAttempt
from fedhist.secagg.terms import Terms as Terms
