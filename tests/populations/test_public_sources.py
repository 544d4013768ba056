"""The layouts of Sentiment140 and of SNAP's check-ins, on made files."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from simulations.populations import population
from tests.populations.test_event_files import by_name

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
