"""The public names: a promise to plugins, notebooks and the documentation."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from types import ModuleType

import pytest

import fedhist as fh
import fedhist.flower
import fedhist.protocols
import fedhist.testing
from fedhist.model.registry import own_protocols, protocol_class

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {p.__name__: p for p in (fh, fedhist.flower, fedhist.protocols, fedhist.testing)}


@pytest.mark.parametrize("package", PACKAGES.values(), ids=list(PACKAGES))
def test_every_public_name_is_there(package: ModuleType) -> None:
    assert package.__all__ == sorted(package.__all__)
    assert set(package.__all__) <= set(dir(package))
    for name in package.__all__:
        getattr(package, name)
    assert not {"annotations", "Path", "public_names", "TYPE_CHECKING"} & set(dir(package))


def test_a_protocol_is_found_by_name_alone() -> None:
    """The class of "mean-l2" is MeanL2: a single run imports that protocol's file only."""
    by_class = {cls.__name__: name for name, cls in own_protocols().items()}
    assert sorted(by_class) == fedhist.protocols.__all__
    for class_name, name in by_class.items():
        assert "".join(word.capitalize() for word in name.split("-")) == class_name
        assert protocol_class(name) is getattr(fedhist.protocols, class_name)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'fedhist' has no attribute 'nothing'"):
        _ = fh.nothing
    with pytest.raises(AttributeError, match=r"'fedhist\.protocols' has no attribute 'Median'"):
        _ = fedhist.protocols.Median


def _is_ours(module: str) -> bool:
    return module.split(".")[0] in {"fedhist", "clients", "server", "simulations"}


def test_the_documentation_imports_public_names_only() -> None:
    """Every ``import`` of ours and every ``fh.name`` in the pages' Python is public."""
    pages = [*ROOT.glob("docs/**/*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    blocks = [
        (page, code)
        for page in pages
        for code in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    ]
    assert len(blocks) > 3
    for page, code in blocks:
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and _is_ours(str(node.module)):
                public = PACKAGES[str(node.module)].__all__
                assert {alias.name for alias in node.names} <= set(public), page
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                ours = node.value.id in {"fh", "fedhist"}
                assert not ours or node.attr in fh.__all__, (page, node.attr)
