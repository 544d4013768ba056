"""What a terminal shows of a docstring has no marks of reST."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from fedhist.model.registry import load_builtin, own_protocols
from simulations.cli.lists import print_protocol
from simulations.reporting.docstrings import as_plain

load_builtin()


@pytest.mark.parametrize("name", own_protocols())
def test_no_protocol_shows_marks(name: str) -> None:
    body = io.StringIO()
    print_protocol(Console(file=body, width=80), name)
    assert not re.search(r"`|:\w+:\w*`|\]_|^ *\.\. ", body.getvalue(), re.MULTILINE)


def test_references_and_roles() -> None:
    text = "See :meth:`~a.B.run` [2]_.\n\n.. [2] ``A``, B."
    assert as_plain(text) == "See run [2].\n\n[2] A, B."
