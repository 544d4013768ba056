"""The command ``fedhist explain``: words of the glossary, and the levels of trust on a screen."""

from __future__ import annotations

from typing import Annotated

import typer

from simulations.cli import terminal


def explain(
    word: Annotated[
        list[str] | None,
        typer.Argument(
            help="A word of the glossary, such as fold, or a level of trust; none lists them."
        ),
    ] = None,
) -> None:
    """Say what WORD means: fold, window, zCDP, ...; of a level of trust, who must be believed.

    The levels are central, aggregate, shuffle and local.
    """
    from simulations.cli import levels  # brings NumPy, which no other command's help shall wait for

    levels.show(terminal.console, word or [])
