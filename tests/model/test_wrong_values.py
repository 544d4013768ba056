"""Values that fields of plugins, premises and queries take, and those that are refused."""

from __future__ import annotations

import math
import typing
import warnings
from dataclasses import InitVar, dataclass, replace
from typing import Any, Literal

import numpy as np
import pytest

from clients.guard import Policy
from clients.localize.queries import BinVotes
from clients.records.functionals import Coordinates
from fedhist.flower.wire import decode_question, encode_question
from fedhist.privacy.shares import Aggregation
from fedhist.privacy.shuffling import Shuffler, Shuffling
from fedhist.protocols import BoundedHistogram, BoxMean
from fedhist.users.cohort import Cohort
from fedhist.users.keys import Keys


def test_premises_and_policies_take_numpy_scalars() -> None:
    whole, real = np.int64, np.float32
    assert Aggregation(whole(20), real(0.25), real(0.125), whole(99)) == Aggregation(
        20, 0.25, 0.125, 99
    )
    assert Shuffler(real(0.5), real(0.25), whole(3)).over(real(1), whole(900)) == Shuffling(
        1.0, 0.5, 900, 0.25, 3
    )
    assert Policy(min_users=whole(3), epsilon=real(2), simulated=np.bool_(True)) == Policy(
        min_users=3, epsilon=2.0, simulated=True
    )


def test_queries_and_parts_of_numpy_scalars_travel() -> None:
    own, numpys = (
        BinVotes(Coordinates(whole(2)), whole(8), real(1), cohort=Cohort(whole(1), real(0), 0.5))
        for whole, real in ((int, float), (np.int64, np.float32))
    )
    assert numpys == own
    assert decode_question(encode_question(numpys, 0)).query == own


@dataclass(frozen=True)
class Many(BoundedHistogram):
    """Annotations as plugins have them, and one that no isinstance can take."""

    norm: Literal[1, 2] = 2
    pair: tuple[int, str] = (1, "a")
    shown: Shown | None = None
    words: InitVar[str] = "x"

    def __post_init__(self, words: str) -> None:
        super().__post_init__()


class Shown(typing.Protocol):
    def show(self) -> str: ...


class Own(BoxMean):
    def __init__(self, label: str, *, budget: float) -> None:
        super().__init__(epsilon=budget, n_users=9, low=-1.0, high=1.0)


def test_what_a_plugin_may_write_is_taken() -> None:
    """Other literals than text, tuples of several types, own constructors, what nobody checks."""
    base: dict[str, Any] = {"domain": Keys.of(["a", "b"]), "epsilon": 1.0, "clip": 2.0}
    made = Many(**base, norm=1, pair=(2, "b"), shown=3, words="y")
    assert replace(made, epsilon=2.0, words="z").pair == (2, "b")
    assert Own("label", budget=1.0).epsilon == 1.0
    for name, value in (("norm", True), ("pair", (1, 2)), ("pair", (1,))):
        with pytest.raises(ValueError, match=name):
            Many(**base | {name: value})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert math.isinf(BoxMean(epsilon=np.float32("inf"), n_users=9, low=-1.0, high=1.0).epsilon)
