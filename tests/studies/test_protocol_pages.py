"""The pages of the protocols are those that the code writes."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from fedhist.protocols import Mean

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


def test_a_page_states_the_guarantee_and_the_parameters() -> None:
    text = page_of(Mean)
    assert str(Mean.example().guarantee) in text
    assert "| `samples_per_user` | required | Public planning value T." in text
    assert "| Rounds of its example | 2: `bin-votes`, `clipped-mean` |" in text


def test_parameters_share_a_description() -> None:
    text = "low, high : float\n    Range of the\n    samples.\nsalt : int\n    Public."
    assert parameters_of(text) == {
        "low": "Range of the samples.",
        "high": "Range of the samples.",
        "salt": "Public.",
    }
