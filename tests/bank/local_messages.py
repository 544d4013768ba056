"""Local messages whose form tells what their noise hides; every number in them is private."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from bank_frame import LocalBank, LocalReport, means, noisy, protocol, query

import fedhist as fh


@query("bank-padded")
class Padded(LocalReport):
    """Correct: one report, in a message of a public number of places."""

    places: ClassVar[int] = 4

    def reports(self, users: fh.Users, rng: fh.Streams) -> fh.Array:
        out = np.zeros((len(users), self.places), dtype=np.int64)
        out[:, 0] = noisy(means(users), self.epsilon, rng)
        return out


@query("bank-skips-empty")
class SkipsEmpty(Padded):
    """Users without usable samples do not answer: taking part is the secret."""

    def answer(self, users: fh.Users, rng: fh.Streams) -> fh.Report:
        has = ~np.isnan(means(users))
        return fh.Report(users.ids[has], {"reports": self.reports(users, rng)[has]})


@query("bank-narrow-type")
class NarrowType(Padded):
    """A smaller type of number is sent where the exact value allows it."""

    def reports(self, users: fh.Users, rng: fh.Streams) -> fh.Array:
        out = super().reports(users, rng)
        small = bool((np.abs(np.nan_to_num(means(users))) < 0.5).all())
        return out.astype(np.int32) if small else out


@query("bank-raises-on-nan")
class RaisesOnNaN(Padded):
    """A record that cannot be used raises an error, and the node answers with that."""

    def reports(self, users: fh.Users, rng: fh.Streams) -> fh.Array:
        if np.isnan(users.reals.values).any():
            raise ValueError("a sample is not a number")
        return super().reports(users, rng)


@query("bank-hidden-state")
class HiddenState(Padded):
    """The query remembers whom it asked: state that is no field, and not what the server sent."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "seen", [])

    def reports(self, users: fh.Users, rng: fh.Streams) -> fh.Array:
        vars(self)["seen"].append(means(users))
        return super().reports(users, rng)


PROTOCOLS = tuple(
    LocalBank.of(made, name)
    for made, name in (
        (Padded, "bank-ok-padded"),
        (SkipsEmpty, "bank-skips-empty"),
        (NarrowType, "bank-narrow-type"),
        (RaisesOnNaN, "bank-raises-on-nan"),
        (HiddenState, "bank-hidden-state"),
    )
)


@protocol("bank-unknown-status")
class UnknownStatus(LocalBank):
    """Ends with a status of its own making, which no reader of results knows how to take."""

    def rounds(self, server: fh.Curator) -> fh.Script:
        yield Padded(self.epsilon)
        return fh.Estimate("garbage", reason="the sampler ended in its garbage bucket")
