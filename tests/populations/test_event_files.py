"""Event files: every way to write them, every kind of bad row, domains."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fedhist.base.errors import PopulationError
from fedhist.users.batch import Users
from fedhist.users.keys import Keys, user_ids
from simulations.populations import KINDS, Loaded, population

ROWS = [
    ("ann", "tea", 2),
    ("bob", "rye", 1),
    ("ann", "rye", 3),
    ("日本", "é", 4),
    ("ann", "tea", 5),
]
EXPECTED = {"ann": {"rye": 3, "tea": 7}, "bob": {"rye": 1}, "日本": {"é": 4}}


def load(path: Path, **more: object) -> Loaded:
    options = {"user": "user", "item": "item", "count": "n"} | more
    return population("events", path=path, **options).load()


def by_name(users: Users, names: list[str]) -> dict[str, dict[str, int]]:
    items, ids = users.counts, users.ids.tolist()
    out = {}
    for name, user in zip(names, user_ids(Keys.of(names)).tolist(), strict=True):
        if user in ids:
            a, b = items.indptr[ids.index(user)], items.indptr[ids.index(user) + 1]
            pairs = zip(items.item[a:b], items.count[a:b], strict=True)
            out[name] = {items.vocabulary[int(j)]: int(c) for j, c in pairs}
    assert len(out) == len(users)
    return out


def text(separator: str = ",", header: bool = True) -> str:
    lines = [separator.join(map(str, row)) for row in ROWS]
    return "\n".join(([separator.join(["user", "item", "n"])] if header else []) + lines) + "\n"


def check(loaded: Loaded) -> None:
    assert by_name(loaded.users, ["ann", "bob", "日本"]) == EXPECTED
    assert loaded.dropped == {}
    assert loaded.not_private == ()
    assert loaded.domain is None


@pytest.mark.parametrize(
    ("name", "separator"), [("a.csv", ","), ("a.tsv", "\t"), ("A.TXT", "\t"), ("v1.2.tab", "\t")]
)
def test_separator_from_the_extension(tmp_path: Path, name: str, separator: str) -> None:
    path = tmp_path / name
    path.write_text(text(separator))
    check(load(path))
    zipped = tmp_path / (name + ".gz")
    zipped.write_bytes(gzip.compress(text(separator).encode()))
    check(load(zipped))


def test_given_separator_and_unknown_extension(tmp_path: Path) -> None:
    path = tmp_path / "a.dat"
    path.write_text(text(";"))
    check(load(path, separator=";"))
    with pytest.raises(PopulationError, match="set separator"):
        load(path)


def test_gzip_is_recognized_by_its_content(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(gzip.compress(text().encode()))
    check(load(path))
    path.write_bytes(gzip.compress(text().encode())[:-20])
    with pytest.raises(PopulationError, match=r"a\.csv"):
        load(path)


def test_positions_with_and_without_header(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text(header=False))
    check(load(path, user=0, item=1, count=2, header=False))
    path.write_text(text())
    check(load(path, user=0, item="item", count=2))
    with pytest.raises(PopulationError, match="no column 3: there are 3, from 0"):
        load(path, count=3)
    with pytest.raises(PopulationError, match="column 'user' needs a header"):
        load(path, header=False)


def test_parquet(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pl.DataFrame(ROWS, schema=["user", "item", "n"], orient="row").write_parquet(path)
    check(load(path))
    check(load(path, user=0, item=1, count=2))
    with pytest.raises(PopulationError, match="no column 'itm'; did you mean 'item'"):
        load(path, item="itm")
    path.write_bytes(b"not parquet at all")
    with pytest.raises(PopulationError, match="not a Parquet file"):
        load(path)


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf8-lossy", "utf-8-sig"])
def test_encodings(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "a.csv"
    body = "user,item\nJosé,café\nann,tea\n"
    path.write_bytes(body.encode("utf8" if encoding == "utf8-lossy" else encoding))
    loaded = load(path, count=None, encoding=encoding)
    assert by_name(loaded.users, ["José", "ann"]) == {"José": {"café": 1}, "ann": {"tea": 1}}


def test_wrong_encoding(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("user,item\nJosé,café\n".encode("latin-1"))
    with pytest.raises(PopulationError, match=r'a\.csv: .*utf-8.*set encoding = "latin-1"'):
        load(path, count=None)
    assert list(load(path, count=None, encoding="utf8-lossy").users.vocabulary) == ["caf\ufffd"]
    with pytest.raises(PopulationError, match="not utf-16 text"):
        load(path, count=None, encoding="utf-16")


def test_byte_order_mark_quotes_and_windows_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b'\xef\xbb\xbf"user",item\r\n"a ""b"", c","x\ny"\r\nann,tea\r\n')
    got = by_name(load(path, count=None).users, ['a "b", c', "ann"])
    assert got == {'a "b", c': {"x\ny": 1}, "ann": {"tea": 1}}
    path.write_text('a"b,x\n"c,y\n')
    got = by_name(
        load(path, user=0, item=1, count=None, header=False, quote="").users, ['a"b', '"c']
    )
    assert got == {'a"b': {"x": 1}, '"c': {"y": 1}}


def test_unused_columns_and_one_column_for_both(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("user,noise,item\nann,???,tea\nbob,,rye\n")
    assert by_name(load(path, count=None).users, ["ann", "bob"])["bob"] == {"rye": 1}
    assert by_name(load(path, item="user", count=None).users, ["ann", "bob"])["bob"] == {"bob": 1}


@pytest.mark.parametrize(
    ("line", "fault", "shown"),
    [
        ("ann,tea,x", "bad count", "'ann, tea, x'"),
        ("ann,tea,-1", "bad count", "-1'"),
        ("ann,tea,1.5", "bad count", "1.5'"),
        ("ann,tea,1e300", "bad count", "1e300'"),
        ("ann,tea,1,2", "too many fields", "'ann, tea, 1'"),
        ("ann,tea,1,2,3,4", "too many fields", "'ann, tea, 1'"),
    ],
)
def test_bad_rows(tmp_path: Path, line: str, fault: str, shown: str) -> None:
    path = tmp_path / "a.csv"
    lines = text().splitlines()
    path.write_text("\n".join([*lines[:3], line, *lines[3:]]) + "\n")
    with pytest.raises(PopulationError) as caught:
        load(path)
    for part in ("a.csv", f"row 3: {fault}", shown):
        assert part in str(caught.value)
    loaded = load(path, skip_bad_rows=True)
    assert by_name(loaded.users, ["ann", "bob", "日本"]) == EXPECTED
    assert loaded.dropped == {fault: 1}


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (",tea,1", "missing user"),
        ('"",tea,1', "missing user"),
        ("ann,,1", "missing item"),
        ("ann,tea,", "missing count"),
        ("ann,tea", "missing count"),
        ("ann,tea,nan", "missing count"),
        (",tea,x", "missing user"),
    ],
)
def test_rows_that_lack_something_are_left_out(
    tmp_path: Path, line: str, fault: str, skip: bool
) -> None:
    path = tmp_path / "a.csv"
    lines = text().splitlines()
    path.write_text("\n".join([*lines[:3], line, *lines[3:]]) + "\n")
    loaded = load(path, skip_bad_rows=skip)
    assert by_name(loaded.users, ["ann", "bob", "日本"]) == EXPECTED
    assert loaded.dropped == {fault: 1}


def test_counts_in_many_spellings(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("user,item,n\na,x, 1 \na,x,2.0\na,x,1e1\na,x,+4\na,x,0\n")
    assert by_name(load(path).users, ["a"]) == {"a": {"x": 17}}


def test_empty_files(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("")
    with pytest.raises(PopulationError, match=r"a\.csv: no rows"):
        load(path)
    path.write_text("user,item,n\n")
    with pytest.raises(PopulationError, match=r"a\.csv: no rows"):
        load(path)


def test_missing_file_and_columns(tmp_path: Path) -> None:
    (tmp_path / "events.csv").write_text("user,item,item\na,x,y\n")
    with pytest.raises(PopulationError, match=r"no such file: .*event\.csv \(there is events\.csv"):
        load(tmp_path / "event.csv")
    with pytest.raises(PopulationError, match="no such file"):
        load(tmp_path / "nowhere" / "event.csv")
    with pytest.raises(PopulationError, match="several columns 'item'"):
        load(tmp_path / "events.csv", count=None)
    with pytest.raises(PopulationError, match="no column 'usr'; did you mean 'user'"):
        load(tmp_path / "events.csv", user="usr", item=1, count=None)


def test_unclosed_quote(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('user,item\nann,tea\n"bob,rye\nann,tea\n')
    with pytest.raises(PopulationError, match=r"a\.csv"):
        load(path, count=None)


# -- domains and parts ---------------------------------------------------------------------------


def test_top_breaks_ties_by_bytes_and_keeps_the_users_items(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    lines = ["a,z,5", "b,é,2", "a,b,2", "b,B,2", "a,rare,1", "b,z,1"]
    path.write_text("user,item,n\n" + "\n".join(lines))
    for d, expected in [
        (1, ["z"]),
        (2, ["B", "z"]),
        (3, ["B", "b", "z"]),
        (4, ["B", "b", "z", "é"]),
    ]:
        loaded = load(path, top=d)
        assert loaded.domain is not None
        assert list(loaded.domain) == expected
        assert f"{d} most frequent items" in loaded.not_private[0]
        assert "rare" in loaded.users.vocabulary
        assert loaded.users.counts.count.sum() == 13
    with pytest.raises(PopulationError, match="top = 6, but there are 5 items"):
        load(path, top=6)


def test_public_domain_from_a_file(tmp_path: Path) -> None:
    path, names = tmp_path / "a.csv", tmp_path / "domain.txt"
    path.write_text(text())
    names.write_bytes("\ufefftea\r\nnobody's\r\n\r\né\r\n".encode())
    loaded = load(path, domain=names)
    assert list(loaded.domain or ()) == ["tea", "nobody's", "é"]
    assert loaded.not_private == ()
    assert "rye" in loaded.users.vocabulary  # the client half drops it, not the loader
    names.write_text("tea\nrye\ntea\n")
    with pytest.raises(PopulationError, match="'tea' stands on line 1 and on line 3"):
        load(path, domain=names)
    names.write_text("\n")
    with pytest.raises(PopulationError, match="the domain is empty"):
        load(path, domain=names)
    names.write_bytes(b"\xff\xfe\xfd")
    with pytest.raises(PopulationError, match="UTF-8"):
        load(path, domain=names)
    with pytest.raises(PopulationError, match="no such file"):
        load(path, domain=tmp_path / "none.txt")


def test_max_users_is_a_subset_that_ignores_the_records(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("user,item\n" + "".join(f"u{k},x{k % 3}\n" for k in range(50)))
    every = load(path, count=None).users
    part = load(path, count=None, max_users=7).users
    np.testing.assert_array_equal(part.ids, every.ids[:7])
    assert len(load(path, count=None, max_users=500).users) == 50


# -- specifications ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"top": 0}, "top must be a positive integer, got 0"),
        ({"top": True}, "top must be a positive integer, got True"),
        ({"max_users": -3}, "max_users must be a positive integer, got -3"),
        ({"top": 3, "domain": "d.txt"}, "top or domain, not both"),
        ({"user": -1}, "name or a position from 0, got -1"),
        ({"item": ""}, "name or a position"),
        ({"count": 1.5}, "got 1.5"),
        ({"separator": ",,"}, "one byte, got ',,'"),
        ({"quote": "''"}, "one byte or empty"),
        ({"header": "yes"}, "true or false, got 'yes'"),
        ({"encoding": "utf-99"}, "unknown encoding 'utf-99'"),
    ],
)
def test_parameters_are_checked_at_construction(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        population("events", **({"path": "no.csv", "user": "u", "item": "i"} | wrong))


def test_kinds() -> None:
    assert all(kind == spec.kind for kind, spec in KINDS.items())
    assert len(KINDS) == 15
    with pytest.raises(ValueError, match="no population kind 'event'; did you mean 'events'"):
        population("event")
    with pytest.raises(TypeError, match="no key 'usr'; did you mean 'user'"):
        population("events", path="a.csv", usr="u", item="i")
    with pytest.raises(TypeError, match="item"):
        population("events", path="a.csv", user="u")
