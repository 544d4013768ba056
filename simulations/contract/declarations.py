"""Laws of what a class says of itself, and of the values that its fields take."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from fedhist.flower.wire import decode_question, encode_question
from fedhist.model.codec import protocol_digest, query_digest
from fedhist.model.fields import fits, hints
from fedhist.model.registry import is_ours, protocols
from fedhist.model.truths import Truth
from fedhist.privacy.shares import Aggregation
from fedhist.privacy.shuffling import Shuffling
from fedhist.users.keys import Keys
from server.session.session import Session
from simulations.contract.law import EVERYBODY, Whom, demand, law, refused
from simulations.contract.subject import Subject, noise

WRONG = ("x", math.nan, None, [1.0], 1.5, True, 10**400)
OURS = Whom("protocols that come with fedhist", lambda p: is_ours(type(p)))


@law(EVERYBODY, once=True)
def says_what_it_is(subject: Subject) -> None:
    """It is a frozen dataclass with a registered name, a reference, a target and a docstring."""
    cls: Any = type(subject.protocol)
    registered = protocols().get(cls.name)
    demand(registered is not None, f"The name {cls.name!r} is not registered.")
    demand(len(cls.paper) > 5, f"The reference is {cls.paper!r}.")
    demand(cls.target, "It has no target.")
    written = cls.__doc__ and not cls.__doc__.startswith(f"{cls.__name__}(")  # by @dataclass itself
    demand(written, "It has no docstring.")
    names = [f.name for f in dataclasses.fields(cls)]
    demand(names, "It has no fields.")
    with refused(dataclasses.FrozenInstanceError, f"A new value of {names[0]}"):
        setattr(subject.protocol, names[0], None)


@law(OURS)
def names_its_truth(subject: Subject) -> None:
    """``estimates`` says which statistic of the users it is."""
    truth = subject.protocol.estimates
    demand(isinstance(truth, Truth) and truth is not Truth.OWN, f"It says {truth}.")


@law(EVERYBODY, once=True)
def claims_what_it_guarantees(subject: Subject) -> None:
    """The example is private, and claims what it guarantees."""
    protocol = subject.protocol
    demand(math.isfinite(protocol.guarantee.epsilon), f"It promises {protocol.guarantee}.")
    same = protocol.claimed == protocol.guarantee
    demand(same, f"It claims {protocol.claimed}, and guarantees {protocol.guarantee}.")


@law(EVERYBODY, once=True)
def refuses_a_bad_epsilon(subject: Subject) -> None:
    """0, negative and not a number: a ValueError that names epsilon, of protocol and questions."""
    made: list[Any] = [subject.protocol, *(query.inner for query, _ in subject.queries)]
    for one in made:
        for bad in (0.0, -1.0, math.nan, -math.inf) if "epsilon" in values_of(one) else ():
            told = f"{type(one).__name__} with epsilon = {bad}"
            with refused(ValueError, told, "epsilon", "nan" if math.isnan(bad) else f"{bad:g}"):
                dataclasses.replace(one, epsilon=bad)


@law(EVERYBODY, once=True)
def a_value_of_another_type_is_refused(subject: Subject) -> None:
    """A value that a field cannot hold is a ValueError with the field's name and the value."""
    for name, hint in hints(type(subject.protocol)).items():
        for value in WRONG if hint is not Keys and name in subject.fields else ():
            if not fits(value, hint):
                told = f"{name} = {str(value)[:20]}"
                with refused(ValueError, told, f"{name} must be ", ", got "):
                    subject.replaced(**{name: value})


@law(EVERYBODY, once=True)
def an_unknown_word_brings_the_nearest(subject: Subject) -> None:
    """A field or a word that is not known is refused with the one that is nearest."""
    for name in sorted({"adjacency", "mode"} & subject.fields):
        value = getattr(subject.protocol, name)
        words = f"{name} must be one of ", f"did you mean {value!r}"
        with refused(ValueError, f"{name} = {value + 'x'!r}", *words):
            subject.replaced(**{name: value + "x"})
    cls: Any = type(subject.protocol)
    if "epsilon" in subject.fields:
        with refused(TypeError, "epsiln", "argument 'epsiln'; did you mean 'epsilon'?"):
            cls(epsiln=1.0)


@law(EVERYBODY, once=True)
def numpy_scalars_are_taken(subject: Subject) -> None:
    """As Python's own: they are reckoned with in full, and what is asked travels."""
    protocol = subject.protocol
    made = subject.replaced(**{k: numpy_scalar(v) for k, v in values_of(protocol).items()})
    demand(protocol_digest(made) == protocol_digest(protocol), "The digest is another.")
    held, wanted = (repr(values_of(p)) for p in (made, protocol))
    demand(held == wanted, f"Fields hold {held}, not {wanted}.")
    asked, given = (Session(p, noise(1)).query for p in (made, protocol))
    if asked is None or given is None:
        return
    changes = {k: numpy_scalar(v) for k, v in values_of(asked).items()}
    again: Any = dataclasses.replace(asked, **changes)  # type: ignore[type-var]
    digest = decode_question(encode_question(again, 0)).digest
    demand(digest == query_digest(given, 0), f"{given.label!r} of NumPy's scalars is another.")


def numpy_scalar(value: Any) -> Any:
    """Make numbers and words NumPy's, in tuples and in a premise of trust as well."""
    kinds = {bool: np.bool_, int: np.int64, float: np.float64, str: np.str_}
    if type(value) is tuple:
        return tuple(map(numpy_scalar, value))
    if isinstance(value, Aggregation | Shuffling):
        return dataclasses.replace(value, **{k: numpy_scalar(v) for k, v in vars(value).items()})
    return kinds[type(value)](value) if type(value) in kinds else value


def values_of(fielded: Any) -> dict[str, Any]:
    """Return the values that a dataclass was made with."""
    return {f.name: getattr(fielded, f.name) for f in dataclasses.fields(fielded) if f.init}
