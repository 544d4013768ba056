"""The report in a real headless browser: it draws, its controls work, it is silent and offline.

``make test-browser`` installs what this needs. Without playwright or a browser the tests are
skipped, and say so. FEDHIST_BROWSER names the browser to take, if it is in an unusual place.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from simulations.studies.records.store import Store
from simulations.studies.report.assemble import write_report
from tests.studies.test_report import record, run_folder

pytestmark = pytest.mark.browser

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
EVIL = "<img src=x onerror=document.title='broken'>"
WAIT = 30_000
"""Milliseconds for what should take one second: machines are busy."""


def browser_path() -> str | None:
    """Name a browser of this system; None leaves it to playwright's own."""
    asked = os.environ.get("FEDHIST_BROWSER")
    return asked or next(filter(None, map(shutil.which, NAMES)), None)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright: make test-browser")
    with api.sync_playwright() as p:
        path = browser_path()
        if path is None and not Path(p.chromium.executable_path).exists():
            pytest.skip("no chromium here: make test-browser installs one")
        # as root, which containers often are, chromium starts without its sandbox only
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        found = p.chromium.launch(executable_path=path, args=arguments)
        yield found
        found.close()


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home, rng = tmp_path_factory.mktemp("browser"), np.random.default_rng(5)
    with Store(home / "s.sqlite") as file:
        for label in ("one", f"two{EVIL}"):
            for n in (100, 1000, 10000):
                for m in (1, 10):
                    for epsilon in (0.5, 2.0):
                        for seed in (0, 1):
                            loss = float(rng.uniform(1, 1.2)) / (epsilon * n * m) ** 0.5
                            axes = {"n_users": n, "mean_items": m, "epsilon": epsilon}
                            file.put(record(label, loss, seed, **axes))
    write_report(home / "s.sqlite", home / "s.html")
    return home / "s.html"


@dataclass
class Opened:
    """A page, and what it said and asked for."""

    page: Any
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)


@pytest.fixture(scope="module", params=[1280, 390], ids=["desktop", "phone"])
def opened(browser: Any, page_file: Path, request: pytest.FixtureRequest) -> Iterator[Opened]:
    context = browser.new_context(viewport={"width": request.param, "height": 900})
    page = context.new_page()
    page.set_default_timeout(WAIT)
    found = Opened(page)
    page.on("console", lambda m: found.said.append(f"{m.type}: {m.text}"))
    page.on("pageerror", lambda e: found.said.append(str(e)))
    page.on("request", lambda r: found.asked.append(r.url))
    page.goto(page_file.as_uri())
    page.wait_for_function(
        "document.querySelectorAll('.plot[data-drawn]').length"
        " === document.querySelectorAll('.plot').length"
    )
    yield found
    context.close()


def of_first(page: Any, selector: str, figure: str) -> Any:
    return page.locator(f"figure.interactive:has(h3:text('{figure}')) {selector}")


def test_it_draws_and_is_silent_and_offline(opened: Opened, page_file: Path) -> None:
    page = opened.page
    figures = page.locator("figure.interactive")
    assert figures.count() >= 5
    for i in range(figures.count()):
        one = figures.nth(i)
        points, cells = one.locator(".scatterlayer .point"), one.locator(".heatmaplayer image")
        assert points.count() + cells.count() > 0, one.locator("h3").inner_text()
        box = one.locator(".plot .plotbg, .plot .bg, .plot .nsewdrag").first.bounding_box()
        assert box is not None
        assert box["width"] > 150
        assert box["height"] > 150
    assert opened.said == []
    inside = ("data:", "blob:")
    assert [u for u in opened.asked if not u.startswith(inside)] == [page_file.as_uri()]
    # nothing sticks out sideways
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_error_bars_and_theory_are_drawn(opened: Opened) -> None:
    one = "Error against epsilon"
    assert of_first(opened.page, ".errorbar", one).count() == 4  # two points of two series
    assert of_first(opened.page, ".scatterlayer .js-line", one).count() == 2


def test_names_are_shown_as_they_are(opened: Opened) -> None:
    assert "broken" not in opened.page.title()
    assert of_first(opened.page, ".legendtext", "Error against epsilon").all_text_contents() == [
        "one",
        f"two{EVIL}",
    ]
    assert opened.page.locator(".plot img, svg image[href='x']").count() == 0


def test_the_legend_hides_and_shows_a_series(opened: Opened) -> None:
    one = "Error against epsilon"
    points = of_first(opened.page, ".scatterlayer .point", one)
    assert points.count() == 4
    toggle = of_first(opened.page, ".legendtoggle", one).first
    toggle.click()
    opened.page.wait_for_timeout(1000)  # plotly waits for a second click
    assert points.count() == 2
    assert of_first(opened.page, ".scatterlayer .js-line", one).count() == 1  # theory goes along
    toggle.click()
    opened.page.wait_for_timeout(1000)
    assert points.count() == 4
    assert opened.said == []


def test_the_log_buttons_change_the_axes(opened: Opened) -> None:
    one = "Error against n users"
    kind = "e => e.layout.{}axis.type"
    plot = of_first(opened.page, ".plot", one)
    for letter in "xy":
        button = of_first(opened.page, f"button[data-axis={letter}]", one)
        assert button.get_attribute("aria-pressed") == "true"
        assert plot.evaluate(kind.format(letter)) == "log"
        button.click()
        opened.page.wait_for_timeout(200)
        assert plot.evaluate(kind.format(letter)) == "linear"
        assert button.get_attribute("aria-pressed") == "false"
        button.click()
        opened.page.wait_for_timeout(200)
        assert plot.evaluate(kind.format(letter)) == "log"
    assert opened.said == []


def test_a_slice_can_be_chosen(opened: Opened) -> None:
    one = "Error against epsilon"
    plot = of_first(opened.page, ".plot", one)
    shown = "e => e.data.filter(t => t.visible === true).map(t => t.y.join()).join(';')"
    before = plot.evaluate(shown)
    of_first(opened.page, "select", one).select_option(index=3)
    opened.page.wait_for_timeout(300)
    assert plot.evaluate(shown) != before
    assert of_first(opened.page, ".scatterlayer .point", one).count() == 4


def test_the_winner_map_names_winners(opened: Opened) -> None:
    one = "Least error at each mean items and epsilon"
    assert of_first(opened.page, ".heatmaplayer image", one).count() == 1
    assert of_first(opened.page, ".legendtext", one).count() >= 1


def test_a_map_can_be_read(opened: Opened) -> None:
    """On a phone as well: letters in its cells, and in the legend what they stand for."""
    sizes = opened.page.evaluate(
        "[...document.querySelectorAll('.heatmap-label text, .heatmaplayer text')]"
        ".map((t) => parseFloat(getComputedStyle(t).fontSize) * "
        "t.getBoundingClientRect().height / Math.max(t.getBBox().height, 1))"
    )
    assert sizes
    assert min(sizes) >= 10


def test_it_prints_whole(opened: Opened) -> None:
    """Folded tables open, plots fit the paper; afterwards it is as it was."""
    page = opened.page
    folded = "document.querySelectorAll('details:not([open])').length"
    widest = "Math.max(...[...document.querySelectorAll('.main-svg')].map((s) => s.clientWidth))"
    before = page.evaluate(folded)
    assert before
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    page.wait_for_function(f"{widest} <= 680", timeout=WAIT)
    assert page.evaluate(folded) == 0
    cut = "[...document.querySelectorAll('.scroll')].filter((s) => getComputedStyle(s).overflow "
    assert page.evaluate(cut + "!== 'visible').length") == 0
    page.emulate_media(media="screen")
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(folded) == before


def test_texts_and_tables_do_without_javascript(browser: Any, page_file: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(page_file.as_uri())
    assert page.locator("h2").count() >= 5
    assert page.locator("tbody tr").count() > 24
    assert page.locator("noscript p").first.is_visible()
    assert page.locator("button").count() == 0  # no dead controls
    context.close()


def test_a_big_estimate_is_drawn(browser: Any, tmp_path: Path) -> None:
    n = 60_000
    folder = run_folder(tmp_path / "run", [f"item {i}" for i in range(n)], [1.0] * n)
    assert pl.read_parquet(folder / "estimate.parquet").height == n
    assert write_report(folder, tmp_path / "p.html") < 7_500_000
    page = browser.new_page()
    page.goto((tmp_path / "p.html").as_uri())
    page.wait_for_selector(".plot[data-drawn]", timeout=2 * WAIT)
    page.close()
