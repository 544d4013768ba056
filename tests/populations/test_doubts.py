"""Files that may mean something else than they are read as: refused, or said."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedhist.base.errors import PopulationError
from simulations.populations import Loaded, population
from simulations.populations.facts import facts_of


def load(path: Path, text: str, **settings: object) -> Loaded:
    """Write a file and read it, by default by the numbers of its columns."""
    path.write_text(text)
    kind = "samples" if "value" in settings else "events"
    usual: dict[str, object] = {"user": 0} | ({} if kind == "samples" else {"item": 1})
    return population(kind, path=str(path), **(usual | settings)).load()


@pytest.mark.parametrize(
    ("text", "settings", "what"),
    [
        ("ann,tea,3\nbob,rye,1\n", {"count": 2}, r"its count is the number '3'"),
        ("ann,3.5\nbob,1\n", {"value": 1}, r"its value \(column 1\) is the number '3.5'"),
        ("ann,tea\nann,rye\nbob,tea\n", {}, r"its user is a user of other rows and its item"),
        ("user,item\nann,tea\nuser,item\n", {"user": "user", "item": "item"}, "stands again"),
    ],
)
def test_a_first_line_that_is_data_is_refused(
    tmp_path: Path, text: str, settings: dict[str, object], what: str
) -> None:
    """With the line and the way out; and it is read where the file says that it has no header."""
    path = tmp_path / "events.csv"
    with pytest.raises(PopulationError, match=what) as error:
        load(path, text, **settings)
    assert "header" in str(error.value)
    assert str(path) in str(error.value)
    if "user" not in settings:
        assert load(path, text, header=False, **settings).warnings == ()


def test_a_first_line_that_may_be_data_is_quoted(tmp_path: Path) -> None:
    """Columns by number: it is said what was taken for names, and how sure that is."""
    path = tmp_path / "events.csv"
    (said,) = load(path, "who,what\nann,tea\nbob,rye\n").warnings
    assert "'who', 'what'" in said
    assert "header = false" in said
    (said,) = load(path, "ann,chai\nann,tea\nbob,rye\n").warnings
    assert "its user stands in other rows as well" in said
    loaded = load(path, "ann,tea\nbob,tea\n")
    assert "its item stands" in loaded.warnings[0]
    assert facts_of(loaded)[0] == loaded.warnings[0]


def test_names_of_columns_are_no_doubt(tmp_path: Path) -> None:
    """Whoever names the columns has seen the header."""
    path = tmp_path / "events.csv"
    text = "user,item,n\nann,tea,2\nbob,rye,1\n"
    assert load(path, text, user="user", item="item", count="n").warnings == ()


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        (("1.000", "2.500", "999"), None),
        (("1.000", "12.000"), "'1.000' was read as 1"),
        (("1", "2"), ""),
        (("1.0", "2.0"), ""),
        (("1.0000", "3"), ""),
    ],
)
def test_counts_with_a_point_between_thousands(
    tmp_path: Path, counts: tuple[str, ...], said: str | None
) -> None:
    """Surely thousands beside counts without a point; else a warning; other decimals are none."""
    text = "user,item,n\n" + "".join(f"u{i},tea,{c}\n" for i, c in enumerate(counts))
    path, names = tmp_path / "events.csv", {"user": "user", "item": "item", "count": "n"}
    if said is None:
        with pytest.raises(PopulationError, match="point between thousands"):
            load(path, text, **names)
        return
    warnings = load(path, text, **names).warnings
    assert (said in warnings[0]) if said else warnings == ()
