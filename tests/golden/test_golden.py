"""Nothing has changed since the golden record: answers, digests, and files that others keep.

``record.py`` says what is recorded and when it may be rewritten.
"""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import record

from fedhist.model.registry import load_builtin, own_protocols
from simulations.runs.data_ledger import DataLedger

TOLERANCE = 1e-9
"""Of floating-point numbers, of an array's by its largest entry: processors round differently."""

load_builtin()


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Stand in a copy of the recorded files; returns what reading them must give."""
    shutil.copytree(record.FILES, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    body: dict[str, Any] = json.loads(record.READ.read_text(encoding="utf-8"))
    return body


def assert_same(now: Any, wanted: Any, where: str = "", scale: float = 0.0) -> None:
    """Compare digests, whole numbers and texts exactly, floats to :data:`TOLERANCE`."""
    if isinstance(wanted, dict):
        assert now.keys() == wanted.keys(), where
        sizes = [abs(x) for x in wanted.get("floats", ()) if math.isfinite(x)]
        for key, body in wanted.items():
            assert_same(now[key], body, f"{where}/{key}", max(sizes, default=0.0))
    elif isinstance(wanted, list):
        assert len(now) == len(wanted), where
        for i, (a, b) in enumerate(zip(now, wanted, strict=True)):
            assert_same(a, b, f"{where}/{i}", scale)
    elif isinstance(wanted, float):
        near = math.isclose(now, wanted, rel_tol=TOLERANCE, abs_tol=TOLERANCE * scale)
        assert near or (math.isnan(now) and math.isnan(wanted)), (where, now, wanted)
    else:
        assert now == wanted, where


def test_every_protocol_has_its_record() -> None:
    assert {f.stem for f in record.PROTOCOLS.iterdir()} == set(own_protocols())


@pytest.mark.parametrize("name", own_protocols())
def test_estimates(name: str) -> None:
    try:
        assert_same(record.estimates(name), record.recorded(name))
    except AssertionError as error:
        error.add_note(f"If its law is to change: raise {own_protocols()[name].__name__}.revision")
        raise


@pytest.mark.parametrize("name", record.JOURNALLED)
def test_a_journal_goes_on_and_draws_nothing_again(name: str, files: dict[str, Any]) -> None:
    """Under another seed: a number that were drawn again would be another."""
    example, usual = own_protocols()[name].example(), record.recorded(name)["runs"][0]
    wanted = {"ended": [0, usual["estimate"]], "unfinished": files["resumed"][name]}
    for state, (n_asked, estimate) in wanted.items():
        journal = Path(f"{name}-{state}/journal.jsonl")
        before = journal.read_bytes()
        result, asked = record.run(example, journal=journal.parent, seed=record.OTHER_SEED)
        assert_same(record.estimated(result), estimate)
        assert len(asked) == n_asked < len(usual["queries"])
        assert journal.read_bytes().startswith(before)
        assert state == "unfinished" or journal.read_bytes() == before


def test_a_guard_remembers(files: dict[str, Any]) -> None:
    """Without a seed: answers that were drawn again would be others."""
    before = {f.name: f.read_bytes() for f in Path("guard").iterdir()}
    assert_same(record.guarded(), files["guard"])
    assert {f.name: f.read_bytes() for f in Path("guard").iterdir() if f.name in before} == before
    assert len(list(Path("guard").glob("reply-*"))) == 2


def test_a_ledger_goes_on(files: dict[str, Any]) -> None:
    assert_same(record.booked(DataLedger("ledger.json")), files["ledger"])
    assert "the cap is 4" in files["ledger"]["over"]


def test_a_study_is_read_and_runs_nothing_again(files: dict[str, Any]) -> None:
    """The seconds in its records would differ."""
    before = Path("study/records.jsonl").read_bytes()
    assert_same(record.cells("study"), files["cells"])
    assert_same(record.results("study"), files["results"])
    record.command(*record.SWEEP)
    assert Path("study/records.jsonl").read_bytes() == before
    shutil.rmtree("study")
    record.command(*record.SWEEP)
    assert_same(record.cells("study"), files["cells"])


def test_no_file_names_this_machine_or_a_module() -> None:
    for file in (f for f in record.FILES.rglob("*") if f.is_file()):
        text = file.read_bytes()
        for name in (
            b"/tmp",
            b"/work",
            b"/home",
            b"fedhist.",
            b"clients.",
            b"server.",
            b"\x80\x04",
        ):
            assert name not in text, (file, name)
