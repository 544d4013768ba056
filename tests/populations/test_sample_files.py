"""Sample files: ragged users, several dimensions, NaN, bad rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedhist.base.errors import PopulationError
from fedhist.users.keys import Keys, user_ids
from simulations.populations import population


def by_name(users: object, names: list[str]) -> dict[str, list[list[float]]]:
    ids, reals = users.ids.tolist(), users.reals
    places = [ids.index(u) for u in user_ids(Keys.of(names)).tolist()]
    assert len(places) == len(ids)
    return {
        name: reals.values[reals.indptr[k] : reals.indptr[k + 1]].tolist()
        for name, k in zip(names, places, strict=True)
    }


def test_ragged_users_from_interleaved_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("who,x,y\nann,1,9\nbob,2,8\nann,3,7\ncat,,1\n,3,1\nann,-4.5,1e-3\n")
    one = population("samples", path=path, user="who", value="x").load()
    whole = {"ann": [[1], [3], [-4.5]], "bob": [[2]], "cat": []}
    assert by_name(one.users, [*whole]) == whole
    assert one.dropped == {"missing value": 1, "missing user": 1}
    two = population("samples", path=path, user=0, value=["y", 1]).load()
    assert by_name(two.users, [*whole])["ann"] == [[9, 1], [7, 3], [1e-3, -4.5]]
    assert len(population("samples", path=path, user=0, value=1, max_users=1).load().users) == 1


def test_a_decimal_comma_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("who;x\nann;1,5\nann;-2\n")
    spec = {"path": path, "user": "who", "value": "x", "separator": ";"}
    with pytest.raises(PopulationError, match="decimal = "):
        population("samples", **spec).load()
    loaded = population("samples", **spec, decimal=",").load()
    assert by_name(loaded.users, ["ann"]) == {"ann": [[1.5], [-2]]}
    path.write_text("who;x\nann;1.234,5\n")  # points between thousands: not guessed
    with pytest.raises(PopulationError, match=r"bad value in 'ann, 1\.234,5'"):
        population("samples", **spec, decimal=",").load()


def test_parameters_are_checked() -> None:
    for wrong, why in (({"value": []}, r"got \(\)"), ({"value": [1.5]}, r"got 1\.5")):
        with pytest.raises(ValueError, match=why):
            population("samples", path="a.csv", user="u", **wrong)
