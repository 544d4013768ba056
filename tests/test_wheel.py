"""The wheel, not only the editable install: built, installed elsewhere, run from another folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("fedhist", "clients", "server", "simulations")
LEAST_SETUPTOOLS = 77


def can_build() -> bool:
    try:
        return int(version("setuptools").split(".")[0]) >= LEAST_SETUPTOOLS and bool(version("pip"))
    except PackageNotFoundError:
        return False


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not can_build(), reason=f"needs pip and setuptools >= {LEAST_SETUPTOOLS} here, no network"
    ),
]


def call(*command: object, folder: Path) -> str:
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        [str(c) for c in command],
        cwd=folder,
        env=kept | {"COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tree = tmp_path_factory.mktemp("tree")
    for name in SOURCES:
        ignored = shutil.ignore_patterns("__pycache__", "*.nbi", "*.nbc")
        shutil.copytree(ROOT / name, tree / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree / name)
    options = ("--no-build-isolation", "--no-deps", "--no-index", "--quiet")
    call(sys.executable, "-m", "pip", "wheel", *options, "-w", tree / "dist", ".", folder=tree)
    return next((tree / "dist").glob("fedhist-*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install it into an environment of its own, which borrows the dependencies of this one."""
    home = tmp_path_factory.mktemp("environment")
    call(sys.executable, "-m", "venv", "--without-pip", home, folder=home)
    python = home / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "install")
    call(*pip, "--no-deps", "--no-index", "--quiet", wheel, folder=home)
    own = call(
        python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", folder=home
    ).strip()
    borrowed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    Path(own, "borrowed.pth").write_text("\n".join(sorted(borrowed)) + "\n")
    return home


def test_what_the_wheel_holds(wheel: Path) -> None:
    """Four packages, their data files, and nothing else at the top."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    top = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert top == set(SOURCES)
    assert {f"{name}/py.typed" for name in SOURCES} <= set(names)
    endings = (".py", ".toml", ".txt", ".css", ".js", ".html")  # of modules and of package data
    files = (p for name in SOURCES for p in (ROOT / name).rglob("*") if p.suffix in endings)
    assert {p.relative_to(ROOT).as_posix() for p in files} == {
        name for name in names if name.endswith(endings) and ".dist-info/" not in name
    }


def test_it_runs_from_another_folder(installed: Path, tmp_path: Path) -> None:
    python, fedhist = installed / "bin" / "python", installed / "bin" / "fedhist"
    code = "import fedhist, clients, server, simulations as s; print(fedhist.__file__, s.__file__)"
    for place in call(python, "-c", code, folder=tmp_path).split():
        assert Path(place).is_relative_to(installed)
    assert call(fedhist, "--version", folder=tmp_path) == f"fedhist {version('fedhist')}\n"
    listed = call(fedhist, "list", "protocols", folder=tmp_path)
    assert "bounded-histogram" in listed
    assert "mean" in listed
    said = call(fedhist, "run", "quickstart", "--runtime", "inline", "--out", "a", folder=tmp_path)
    assert "item-001" in said
    assert {p.name for p in (tmp_path / "a").iterdir()} >= {"estimate.csv", "chart.npz"}
    said = call(fedhist, "run", "mean", "--nodes", "20", "--workers", "1", folder=tmp_path)
    assert "20 replies" in said
