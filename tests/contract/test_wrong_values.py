"""Every field of every protocol: a value that it cannot hold is a ValueError with its name."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from fedhist.model.fields import fits, hints
from fedhist.model.protocol import Protocol
from fedhist.model.registry import own_protocols
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
