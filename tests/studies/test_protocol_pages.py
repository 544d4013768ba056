"""The pages of the protocols are those that the code writes."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
FOLDER = DOCS / "protocols"
made = runpy.run_path(str(DOCS / "protocol_pages.py"))
page_of, pages, parameters_of = (made[n] for n in ("page_of", "pages", "parameters_of"))


@pytest.fixture(scope="module")
def written() -> dict[str, str]:
    return dict(pages())


def test_the_pages_are_up_to_date(written: dict[str, str]) -> None:
    """Run ``make docs`` after a change of a docstring, a parameter or a message."""
    assert {p.name for p in FOLDER.glob("*.md")} == set(written)
    for name, text in written.items():
        assert (FOLDER / name).read_text(encoding="utf-8") == text, name


def test_a_page_is_short(written: dict[str, str]) -> None:
    """At most 250 words stand beside the tables of a page."""
    words = {n: len(re.sub(r"(?m)^\|.*$", "", text).split()) for n, text in written.items()}
    assert {n: w for n, w in words.items() if w > 250} == {}
