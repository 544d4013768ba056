"""README, docs and examples are true: they run, and print what they show."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from PIL import Image

from docs.printed import BLOCK, EXAMPLES, PAGES, ROOT, outputs, renewed, run_example, run_page, same
from fedhist.model import registry

OTHERS = [
    *(ROOT / name for name in ("CONTRIBUTING.md", "SECURITY.md", "fedhist/secagg/README.md")),
    *sorted((ROOT / "docs").glob("*/*.md")),
]

QUICK = ("histogram", "quantiles")
GALLERY = [
    pytest.param(e, id=e.stem, marks=() if e.stem in QUICK else pytest.mark.slow) for e in EXAMPLES
]


@pytest.fixture(autouse=True)
def own_protocols_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages list what fedhist has: other tests' protocols are in this process, too."""
    monkeypatch.setattr(registry, "_protocols", dict(registry.own_protocols()))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
@pytest.mark.usefixtures("one_ray")
def test_a_page_prints_what_it_shows(page: Path, tmp_path: Path) -> None:
    text = page.read_text(encoding="utf-8")
    now = run_page(page, tmp_path.resolve())
    for shown, printed in zip(outputs(text), outputs(now), strict=True):
        assert shown == printed, "make docs writes what is printed now"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_other_numbers_are_noticed(page: Path) -> None:
    for shown in outputs(page.read_text(encoding="utf-8")):
        assert same(shown, shown)
        assert not re.search(r"\d", shown) or not same(shown, re.sub(r"\d", "7", shown))


@pytest.mark.parametrize("script", GALLERY)
def test_an_example_draws_its_picture(script: Path, tmp_path: Path) -> None:
    assert len(script.read_text(encoding="utf-8").splitlines()) < 40
    run_example(script, tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as drawn:
        assert min(drawn.size) >= 200


def test_the_documentation_is_short() -> None:
    """At most 15 pages and 20,000 words, README and CONTRIBUTING among them."""
    pages = [*PAGES, ROOT / "CONTRIBUTING.md"]
    assert len(pages) <= 15
    assert sum(len(p.read_text(encoding="utf-8").split()) for p in pages) <= 20_000
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150
    newest = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split("\n## ")[1]
    assert len(newest.splitlines()) <= 60


def test_numbers_in_the_text_of_the_readme_are_printed_in_it() -> None:
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```.*?^```", page, re.DOTALL | re.MULTILINE)
    printed = re.sub("[_,]", "", "".join(blocks))
    told = re.findall(r"\d+\.\d+%|\d+,\d{3}", re.sub(r"(?s)```.*?```", "", page))
    assert len(told) > 2
    assert [n for n in told if n.replace(",", "") not in printed] == []


def test_the_glossary_has_the_words_of_the_field() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    entries = re.findall(r"^- ([^:]+):", text, re.MULTILINE)
    assert len(entries) <= 80
    wanted = {"differential privacy", "epsilon", "histogram", "noise", "mean"}
    assert wanted | {"confidence interval"} <= set(entries)


def test_times_may_differ_and_columns_may_be_wider() -> None:
    assert same("a 1\nread in 2.00 s\n────\n", "a    1\nread in 13.14 s  \n──────\n")
    assert not same("read in 2.00 s\n", "read in 777.77 s\n")
    assert not same("a 1\n", "a 2\n")
    assert not same("a 1\n", "b 1\n")


def test_what_a_page_leaves_out_stays_left_out() -> None:
    printed = "one 1\ntwo 2\n\nthree 3\nin 9.00 s\nfour 4\n"
    assert renewed("...\ntwo 0\n...\nin 1.00 s\n", printed) == "...\ntwo 2\n...\nin 1.00 s\n"
    assert renewed("one 0\n", printed) == printed
    with pytest.raises(ValueError, match="no line 'five'"):
        renewed("...\nfive\n", printed)


def test_every_link_leads_somewhere() -> None:
    """Links to files exist, and so do the headings that they name."""
    for page in [*PAGES, *OTHERS]:
        text = page.read_text(encoding="utf-8")
        for target in re.findall(r"\]\((?!https?:)([^)]+)\)", BLOCK.sub("", text)):
            name, _, heading = target.partition("#")
            file = (page.parent / name) if name else page
            assert file.exists(), f"{page.name} links to {target}"
            if heading:
                titles = re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
                known = {re.sub(r"[^\w\- ]", "", t.lower()).replace(" ", "-") for t in titles}
                assert heading in known, f"{page.name} links to {target}"


def test_every_file_that_a_page_names_is_there() -> None:
    names = re.compile(r"`((?:fedhist|clients|server|simulations|tests|docs)/[a-z0-9_/.-]+)`")
    for page in [*PAGES, *OTHERS]:
        named = names.findall(page.read_text(encoding="utf-8"))
        assert [n for n in named if not (ROOT / n).exists()] == [], page.name
