"""Every field of every protocol: a value that it cannot hold is a ValueError with its name."""

from __future__ import annotations

import math
import typing
import warnings
from dataclasses import InitVar, dataclass, replace
from typing import Any, Literal

import numpy as np
import pytest

from clients.records.functionals import Coordinates
from fedhist.flower.wire import decode_question, encode_question
from fedhist.model.fields import fits, hints
from fedhist.model.protocol import Protocol
from fedhist.model.registry import own_protocols
from fedhist.protocols import BoundedHistogram, BoxMean
from fedhist.protocols.localize.queries import BinVotes
from fedhist.session.codec import protocol_digest
from fedhist.users.cohort import Cohort
from fedhist.users.keys import Keys

WRONG = ("x", math.nan, None, [1.0], 1.5, True, 10**400)
EVERY = tuple(own_protocols().values())


@pytest.mark.parametrize("cls", EVERY, ids=lambda cls: cls.__name__)
def test_a_value_of_another_type_is_refused(cls: type[Protocol]) -> None:
    example: Any = cls.example()
    for name, hint in hints(cls).items():
        for value in WRONG if hint is not Keys else ():
            if not fits(value, hint):
                with pytest.raises(ValueError, match=rf"^{name} must be .*, got "):
                    replace(example, **{name: value})


@pytest.mark.parametrize("cls", EVERY, ids=lambda cls: cls.__name__)
def test_a_word_that_is_not_known_brings_the_nearest(cls: type[Protocol]) -> None:
    example: Any = cls.example()
    for name in {"adjacency", "mode"} & hints(cls).keys():
        value = getattr(example, name)
        with pytest.raises(ValueError, match=f"^{name} must be one of .*; did you mean {value!r}"):
            replace(example, **{name: value + "x"})
    with pytest.raises(TypeError, match=r"argument 'epsiln'; did you mean 'epsilon'\?"):
        cls(epsiln=1.0)


def numpy_scalar(value: Any) -> Any:
    kinds = {bool: np.bool_, int: np.int64, float: np.float64, str: np.str_}
    return kinds[type(value)](value) if type(value) in kinds else value


@pytest.mark.parametrize("cls", EVERY, ids=lambda cls: cls.__name__)
def test_numpy_scalars_are_taken(cls: type[Protocol]) -> None:
    """As Python's own: they are reckoned with in full, and travel."""
    example: Any = cls.example()
    given = {name: numpy_scalar(getattr(example, name)) for name in hints(cls)}
    made = replace(example, **given)
    assert protocol_digest(made) == protocol_digest(example)
    assert not any(isinstance(getattr(made, name), np.generic) for name in given)


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

    norm: Literal[1, 2] = 2  # type: ignore[assignment]
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
    for name, value, told in (
        ("norm", True, "norm must be one of 1, 2, got True"),
        ("pair", (1, 2), r"pair must be a list of a whole number, text, got \(1, 2\)"),
        ("pair", (1,), "pair must be a list of a whole number, text"),
    ):
        with pytest.raises(ValueError, match=told):
            Many(**base | {name: value})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert math.isinf(BoxMean(epsilon=np.float32("inf"), n_users=9, low=-1.0, high=1.0).epsilon)
