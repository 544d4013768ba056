"""``fedhist explain``: every word has an entry, every level of trust a page of at most a screen."""

from __future__ import annotations

import io

import pytest
from commands import Command
from rich.console import Console

from fedhist.privacy.guarantee import Trust
from simulations.cli.levels import LEVELS, print_level, print_levels

SCREEN = 40
"""Lines."""


def console() -> tuple[Console, io.StringIO]:
    body = io.StringIO()
    return Console(file=body, width=80, highlight=False), body


@pytest.mark.parametrize("trust", Trust)
def test_every_level_fits_a_screen(trust: Trust) -> None:
    to, body = console()
    print_level(to, trust)
    lines = body.getvalue().splitlines()
    assert len(lines) <= SCREEN
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith(f"{trust.value} trust")
    assert "if broken" in body.getvalue()


def test_the_ladder_has_every_level_in_order() -> None:
    to, body = console()
    print_levels(to)
    words = [line.split()[0] for line in body.getvalue().splitlines() if line.split()]
    assert [w for w in words if w in {t.value for t in Trust}] == [t.value for t in Trust]
    assert list(LEVELS) == list(Trust)


def test_what_masks_do_not_promise_is_said(fedhist: Command) -> None:
    found = fedhist("explain", "aggregate")
    assert found.status == 0
    told = " ".join(found.out.split())
    for claim in ("lies about who answered", "one corrupted node", "who took part"):
        assert claim in told


def test_a_word_and_its_other_spellings(fedhist: Command) -> None:
    for words in (["null", "record"], ["null-record"], ["Null record"]):
        found = fedhist("explain", *words)
        assert found.status == 0
        assert "nobody can be told by silence" in " ".join(found.out.split())
    assert fedhist("explain", "local", "trust").out.startswith("local trust: believe nobody")


def test_without_a_word_they_are_listed(fedhist: Command) -> None:
    told = " ".join(fedhist("explain").out.split())
    assert "must be honest" in told
    assert "window, winner map, witness, zCDP, zero-out-user." in told


def test_a_level_that_there_is_not(fedhist: Command) -> None:
    found = fedhist("explain", "shufle")
    assert found.status == 2
    assert "did you mean 'shuffle'?" in found.err
