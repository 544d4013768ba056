"""Protocols that are also there as their paper prints them: the field ``mode`` says which is built.

The version as printed is a subclass of the proven one, in :mod:`server.printed`, with
the same fields, and so the same digest for the same configuration. It says itself what it really
guarantees (``guarantee``) and what the paper states (``claimed``).
"""

from __future__ import annotations

import importlib
from typing import Any, Literal, Self, TypeVar

from fedhist.model.protocol import Protocol
from fedhist.model.registry import parameters, protocols

Mode = Literal["default", "paper"]
"""Whether a protocol runs as it is proven here, or as its paper prints it."""

P = TypeVar("P", bound=type[Protocol])

_printed: dict[str, type[Protocol]] = {}


def register_printed(cls: P) -> P:
    """Register what ``mode = "paper"`` builds for the protocol of this name (class decorator)."""
    _printed[cls.name] = cls
    return cls


def printed_class(name: str) -> type[Protocol] | None:
    """Look up the version of a protocol as its paper prints it; None if there is none."""
    if name not in _printed:  # these subclass the protocols, which import this module
        importlib.import_module("server.printed")
    return _printed.get(name)


class TwoModes(Protocol):
    """A protocol with the field ``mode``; either class, called with the other's mode, builds it.

    >>> from fedhist.protocols import Mean
    >>> type(Mean(1.0, 2000, 64, -1.0, 1.0, mode="paper")).__name__
    'MeanAsPrinted'
    """

    mode: Mode

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Make an object of the class that the mode asks for."""
        mode = (dict(zip(parameters(cls), args, strict=False)) | kwargs).get("mode")
        proven: type[Any] | None = protocols().get(cls.name)
        wanted: type[Any] = cls
        if mode == "paper" and cls is proven:
            wanted = printed_class(cls.name) or cls
        elif mode == "default" and cls is not proven and cls is printed_class(cls.name):
            wanted = proven or cls
        # what is no object of cls comes back as it is; what is one, its own class initializes
        make = super().__new__ if issubclass(wanted, cls) else type.__call__
        made: Self = make(wanted, *args, **kwargs)
        return made

    def check_mode(self) -> None:
        """Raise ValueError, with the value, unless this class runs in the mode."""
        if self.mode == "paper" and not isinstance(self, printed_class(self.name) or ()):
            raise ValueError(f"{self.name} has no version as printed, got mode {self.mode!r}")
