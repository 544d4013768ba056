"""Event files: every way to write them, bad rows, domains; Sentiment140 and SNAP check-ins."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
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
    ("name", "separator"), [("a.csv", ","), ("A.TXT", "\t"), ("v1.2.tab", "\t"), ("a.dat", ";")]
)
def test_separators_and_gzip(tmp_path: Path, name: str, separator: str) -> None:
    path, more = tmp_path / name, {"separator": ";"} if separator == ";" else {}
    path.write_text(text(separator))
    check(load(path, **more))
    path.write_bytes(gzip.compress(text(separator).encode()))
    check(load(path, **more))
    if more:
        with pytest.raises(PopulationError, match="set separator"):
            load(path)


def test_positions_with_and_without_header(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text(header=False))
    check(load(path, user=0, item=1, count=2, header=False))
    path.write_text(text())
    check(load(path, user=0, item="item", count=2))
    with pytest.raises(PopulationError, match="no column 3"):
        load(path, count=3)
    with pytest.raises(PopulationError, match="column 'user' needs a header"):
        load(path, header=False)


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf8-lossy", "utf-8-sig"])
def test_encodings(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "a.csv"
    body = "user,item,n\nJosé,café, 2.0 \nann,tea,1e1\nann,tea,+4\n"
    path.write_bytes(body.encode("utf8" if encoding == "utf8-lossy" else encoding))
    loaded = load(path, encoding=encoding)
    assert by_name(loaded.users, ["José", "ann"]) == {"José": {"café": 2}, "ann": {"tea": 14}}
    if encoding == "latin-1":
        for wrong, why in (("utf8", '"latin-1"'), ("utf-16", "not utf-16 text")):
            with pytest.raises(PopulationError, match=why):
                load(path, encoding=wrong)


def test_quotes_and_windows_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b'"user",noise,item\r\n"a ""b"", c",?,"x\ny"\r\nann,,tea\r\n')
    got = by_name(load(path, count=None).users, ['a "b", c', "ann"])
    assert got == {'a "b", c': {"x\ny": 1}, "ann": {"tea": 1}}
    path.write_text('a"b,x\n"c,y\n')
    loaded = load(path, user=0, item=1, count=None, header=False, quote="")
    assert by_name(loaded.users, ['a"b', '"c']) == {'a"b': {"x": 1}, '"c': {"y": 1}}


FAULTS = {
    "ann,tea,1e300": "bad count",
    "ann,tea,1,2": "too many fields",
    ",tea,1": "missing user",
    "ann,,1": "missing item",
    "ann,tea,": "missing count",
    "ann,tea": "missing count",
}


@pytest.mark.parametrize("line", FAULTS)
def test_bad_rows(tmp_path: Path, line: str) -> None:
    """What a row lacks leaves it out; what is wrong in it is an error, unless it is skipped."""
    path, fault, lines = tmp_path / "a.csv", FAULTS[line], text().splitlines()
    path.write_text("\n".join([*lines[:3], line, *lines[3:]]) + "\n")
    wrong = not fault.startswith("missing")
    if wrong:
        with pytest.raises(PopulationError, match=rf"a\.csv: row 3: {fault}"):
            load(path)
    loaded = load(path, skip_bad_rows=wrong)
    assert by_name(loaded.users, ["ann", "bob", "日本"]) == EXPECTED
    assert loaded.dropped == {fault: 1}


def test_missing_file_and_columns(tmp_path: Path) -> None:
    (tmp_path / "events.csv").write_text("user,item,item\na,x,y\n")
    with pytest.raises(PopulationError, match=r"event\.csv \(there is events\.csv"):
        load(tmp_path / "event.csv")
    with pytest.raises(PopulationError, match="several columns 'item'"):
        load(tmp_path / "events.csv", count=None)


def test_top_breaks_ties_by_bytes_and_keeps_the_users_items(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    lines = ["a,z,5", "b,é,2", "a,b,2", "b,B,2", "a,rare,1", "b,z,1"]
    path.write_text("user,item,n\n" + "\n".join(lines))
    for d, expected in [(2, ["B", "z"]), (4, ["B", "b", "z", "é"])]:
        loaded = load(path, top=d)
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
    for body, why in ((b"tea\nrye\ntea\n", "line 3"), (b"\n", "empty"), (b"\xff\xfe", "UTF-8")):
        names.write_bytes(body)
        with pytest.raises(PopulationError, match=why):
            load(path, domain=names)
    with pytest.raises(PopulationError, match=r"none\.txt"):
        load(path, domain=tmp_path / "none.txt")


def test_max_users_is_a_subset_that_ignores_the_records(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("user,item\n" + "".join(f"u{k},x{k % 3}\n" for k in range(50)))
    every = load(path, count=None).users
    part = load(path, count=None, max_users=7).users
    np.testing.assert_array_equal(part.ids, every.ids[:7])
    assert len(load(path, count=None, max_users=500).users) == 50


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"top": True}, "got True"),
        ({"top": 3, "domain": "d.txt"}, "top or domain"),
        ({"item": ""}, "name or a position"),
        ({"separator": ",,"}, "got ',,'"),
        ({"quote": "''"}, "one byte"),
        ({"encoding": "utf-99"}, "utf-99"),
    ],
)
def test_parameters_are_checked_at_construction(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        population("events", **({"path": "no.csv", "user": "u", "item": "i"} | wrong))


def test_kinds() -> None:
    assert all(kind == spec.kind for kind, spec in KINDS.items())
    assert len(KINDS) == 13
    with pytest.raises(ValueError, match="no population kind 'event'; did you mean 'events'"):
        population("event")
    with pytest.raises(TypeError, match="no key 'usr'; did you mean 'user'"):
        population("events", path="a.csv", usr="u", item="i")
    with pytest.raises(TypeError, match="item"):
        population("events", path="a.csv", user="u")


TWEETS = [
    '"0","1","Mon","NO_QUERY","ann","@Bob I can\'t, can\'t! see http://x.io/A?b=C &amp; #Tea"',
    '4,2,Mon Apr 06,NO_QUERY,bob,"caf\xe9 www.x.org CAF\xc9, said &quot;tea&quot; 4x"',
    "4,3,Mon Apr 06,NO_QUERY,ann,tea...TEA;Tea mail@host.org",
    "0,4,Mon Apr 06,NO_QUERY,mute,@bob http://only.a/link !!!",
]


def write(path: Path, *lines: str) -> Path:
    path.write_bytes(("\n".join(lines) + "\n").encode("latin-1"))
    return path


def test_words_as_the_docstring_says(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", *TWEETS)
    loaded = population("sentiment140", path=path).load()
    assert len(loaded.users) == 3
    assert loaded.dropped == {}
    expected = {"i": 1, "can't": 2, "see": 1, "tea": 4, "mail": 1, "org": 1}
    said = by_name(loaded.users, ["ann", "bob", "mute"])
    assert said["ann"] == expected
    assert said["bob"] == {"café": 2, "said": 1, "tea": 1, "4x": 1}
    assert said["mute"] == {}
    assert "" not in loaded.users.vocabulary


CHECK_INS = [
    "0\t2010-10-19T23:55:27Z\t30.2359091167\t-97.7951395833\t22847",
    '1\t2010-10-18T22:17:43Z\t30.2\t-97.7\t"420315',
    "0\t2010-10-17T23:42:03Z\t30.2\t-97.7\t22847",
    "0\t2010-10-17T19:26:05Z\t30.2\t-97.7\tee78",
]


@pytest.mark.parametrize("zipped", [False, True])
def test_check_ins(tmp_path: Path, zipped: bool) -> None:
    body = ("\n".join(CHECK_INS) + "\n").encode()
    path = tmp_path / ("c.txt.gz" if zipped else "c.txt")
    path.write_bytes(gzip.compress(body) if zipped else body)
    loaded = population("snap", path=path, top=2).load()
    there = by_name(loaded.users, ["0", "1"])
    assert there == {"0": {"22847": 2, "ee78": 1}, "1": {'"420315': 1}}
    assert list(loaded.domain or ()) == ['"420315', "22847"]


def test_check_ins_without_a_place(tmp_path: Path) -> None:
    path = write(tmp_path / "c.txt", *CHECK_INS, "5\t\t0.0\t0.0\t", "\t\t\t\t")
    loaded = population("snap", path=path).load()
    assert loaded.dropped == {"missing item": 1, "missing user": 1}
    assert sorted(loaded.users.n_items()) == [0, 1, 2]
