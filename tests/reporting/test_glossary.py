"""The glossary: one file of data, its page, and what a page links of it."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from fedhist.privacy.guarantee import Adjacency, gaussian, gaussian_multiplier
from simulations.reporting.glossary import find, glossary, plain
from simulations.reporting.glossary_pages import PAGE, first_uses, hand_written, linked, page

TEXT = """# Folds and clips

<!-- a clip -->
Noise `clip = 2`, a
frequency
oracle and an oracle, see [this clip](central.md), [Folds](glossary.md#fold) and clips.

```text
zCDP of a window
```
"""


def test_the_page_is_made_of_the_data() -> None:
    """Run ``make docs`` after a change of glossary.toml."""
    assert PAGE.read_text(encoding="utf-8") == page()


def test_entries_are_in_order_and_lead_to_others() -> None:
    words = glossary()
    assert list(words) == sorted(words, key=plain)
    for entry in words.values():
        assert set(entry.see) <= words.keys() - {entry.word}, entry.word
        assert (PAGE.parent / entry.page).exists(), entry.word
    spellings = [s for e in words.values() for s in {plain(s) for s in e.spellings}]
    assert len(spellings) == len(set(spellings))


def test_every_adjacency_of_users_is_there() -> None:
    for adjacency in Adjacency:
        assert adjacency.value in find("adjacency").means


def test_an_unknown_word_names_the_nearest() -> None:
    with pytest.raises(ValueError, match="no word 'windo'; did you mean 'window'"):
        find("windo")
    with pytest.raises(ValueError, match="did you mean 'shuffle'"):
        find("shufle", "shuffle")


def test_first_uses_are_found_outside_code_headings_and_other_links() -> None:
    found = {u.entry.word: (TEXT[u.start : u.end], u.linked) for u in first_uses(TEXT)}
    assert found == {
        "frequency oracle": ("frequency\noracle", False),
        "fold": ("Folds", True),
        "clip": ("clips", False),
    }
    new = linked(TEXT, "../glossary.md")
    assert "a\n[frequency\noracle](../glossary.md#frequency-oracle) and an oracle" in new
    assert "and [clips](../glossary.md#clip)." in new
    assert all(u.linked for u in first_uses(new))
    assert linked(new, "../glossary.md") == new


@pytest.mark.parametrize(("path", "to"), list(hand_written()), ids=lambda p: str(p)[-24:])
def test_every_page_links_the_first_use_of_a_word(path: Path, to: str) -> None:
    """Run ``make docs``, which puts the links in."""
    text = path.read_text(encoding="utf-8")
    assert [text[u.start : u.end] for u in first_uses(text) if not u.linked] == []
    targets = {line.split(")")[0] for line in text.split("](") if "glossary.md" in line[:24]}
    slugs = {e.slug for e in glossary().values()}
    assert {t.partition("#")[2] for t in targets if t.startswith(to)} - {""} <= slugs


def test_what_it_says_of_zcdp_is_what_the_ledger_charges() -> None:
    """Rho = 1 / (2 m^2), and k Gaussian releases cost some sqrt(k) times the epsilon of one."""
    m = gaussian_multiplier(0.1, 1e-6)
    assert gaussian(m, 0.1, 1e-6).rho == 1 / (2 * m * m)
    together = gaussian_multiplier(1.0, 1e-6)  # 100 releases of m are one of m / 10
    assert together == pytest.approx(m / math.sqrt(100), rel=0.3)
