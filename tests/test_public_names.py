"""The public names: a promise to plugins, notebooks and the documentation."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import fedhist as fh
import fedhist.protocols
import fedhist.secagg
from fedhist.model.registry import own_protocols, protocol_class

ROOT = Path(__file__).resolve().parents[1]
NAMES = """
Adjacency Aggregation Array Bounds BudgetExceeded Cohort Coordinates Curator Display ErrorBound
Estimate FedhistError FiniteChannel Floats Goal Guarantee Keyed Keys LocalQuery Loopback
Measure Measured MissingReplies PopulationError Protocol Query Release Report ResultsRow Script
SeededStreams Shard
Streams Study Summary Trust Truth UnaryChannel Users WireError __version__ approximate audit
bin_indices check_budget compare coordinate_points decide density_of draw_item draw_subset
flip_probability integer_threshold key_threshold measured plan population profile pure randomize
register_protocol register_query results run scalar_channel scalar_law sweep unary_law unary_votes
unit_interval user_means zcdp_rho
"""
PROTOCOLS = """
AdaptiveHistogram BoundedHistogram BoxCentre BoxMean CentralDensity CentralMean CoverSelect Dame
Density Distribution FewUsersDistribution FewUsersMean FrequencyOracle HadamardResponse HuberMean
IntervalMean ItemHistogram LocalDistribution LocalHistogram LocalQuantiles Mean MeanL2 MeanLinf
NaiveDensity NaiveMean PoissonCounts Quantiles RaggedDistribution SparseMean UnaryEncoding
UnboundedHistogram UserLevelErm WeightedMean
"""
SECAGG = "Message NodeAttempt OutOfOrder Refused RoundFailed SecaggError ServerAttempt Terms"
PROMISES = [
    (fh, NAMES.split()),
    (fedhist.protocols, PROTOCOLS.split()),
    (fedhist.secagg, SECAGG.split()),
]
PROMISED = {"fedhist": NAMES, "fedhist.protocols": PROTOCOLS, "fedhist.secagg": SECAGG}


@pytest.mark.parametrize(("package", "promised"), PROMISES)
def test_promised_names(package: object, promised: list[str]) -> None:
    newer = set(package.__all__) - set(promised) if package is fedhist.protocols else set()
    assert package.__all__ == sorted({*promised, *newer})  # a new protocol is promised later
    assert set(promised) <= set(dir(package))
    assert all(getattr(package, name) is not None for name in promised)
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
    """Every ``import`` of ours and every ``fh.name`` in the pages' Python is promised above."""
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
                promised = PROMISED[str(node.module)]
                assert {alias.name for alias in node.names} <= set(promised.split()), page
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert node.value.id not in {"fh", "fedhist"} or node.attr in NAMES, (
                    page,
                    node.attr,
                )
