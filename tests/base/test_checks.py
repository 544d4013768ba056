"""What configurations are told; limits of doubles; the search for the first integer; kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedhist
from fedhist.base import lazy
from fedhist.base.checks import check_choice, check_integer, check_scale
from fedhist.base.search import first_true
from fedhist.protocols import BoundedHistogram, FrequencyOracle, ItemHistogram, Mean
from fedhist.users.keys import Keys, check_domain
from server.targets.domains import with_domain


@pytest.mark.parametrize("value", [True, 2.0, "2", None, 0, 11])
def test_integers(value: Any) -> None:
    for good in (1, 10):
        check_integer("n", good, 10)
    with pytest.raises(ValueError, match=rf"^n must be an integer in \[1, 10\], got {value!r}$"):
        check_integer("n", value, 10)
    for least in (0, 1, 2):
        check_integer("n", least, least=least)
        check_integer("n", 1 << 80, least=least)
        with pytest.raises(ValueError, match=f"got {least - 1}"):
            check_integer("n", least - 1, least=least)


@pytest.mark.parametrize("value", ["corrected", "", None, 1, ["paper"]])
def test_choices(value: Any) -> None:
    check_choice("mode", "paper", ("default", "paper"))
    with pytest.raises(ValueError, match="mode must be one of a, b, c, got"):
        check_choice("mode", value, ("a", "b", "c"))


@pytest.mark.parametrize("value", [0.0, -1.0, 2.0**-401, 2.0**401, float("nan")])
def test_scales(value: float) -> None:
    check_scale("clip", 2.0**400)
    with pytest.raises(ValueError, match="clip must be positive and lie in"):
        check_scale("clip", value)


@pytest.mark.parametrize("domain", [None, "ab", ["a", "b"], Keys.of([])])
def test_domains(domain: Any) -> None:
    check_domain(Keys.of(["a"]))
    with pytest.raises(ValueError, match="domain must be non-empty Keys"):
        check_domain(domain)


def test_the_domain_of_a_configuration_comes_first() -> None:
    public = Keys.of(["tea", "rye"])
    given = {"epsilon": 1.0}
    assert with_domain(given, public) == {"epsilon": 1.0, "domain": public}
    assert given == {"epsilon": 1.0}
    assert with_domain({"domain": ["a", "b"]}, public)["domain"] == Keys.of(["a", "b"])
    assert with_domain({"domain": None}, public)["domain"] is public
    with pytest.raises(ValueError, match="a bounded domain is needed, got None"):
        with_domain({}, None)


TEA = Keys.of(["tea", "rye"])


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: BoundedHistogram(TEA, clip=1e308, epsilon=1.0, delta=1e-6), "clip"),
        (lambda: BoundedHistogram(TEA, clip=1e-320, epsilon=1.0, delta=1e-6), "clip"),
        (lambda: BoundedHistogram(TEA, clip=1.0, epsilon=1.0, delta=1e-320), "delta"),
        (lambda: Mean(1.0, 3000, 4, low=-1e154, high=1e154), "high - low"),
        (lambda: Mean(1.0, 3000, 4, low=0.0, high=1e-300), "high - low"),
    ],
)
def test_by_name(make: Callable[[], object], name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must"):
        make()


@pytest.mark.parametrize("epsilon", [650.0, 710.0, 1400.0, 1e4])
def test_a_huge_epsilon_is_as_good_as_none(epsilon: float) -> None:
    users = fedhist.Users.from_records({f"u{i}": {"tea": 1} for i in range(200)})
    estimate = fedhist.run(FrequencyOracle(domain=TEA, epsilon=epsilon), users, seed=1)
    np.testing.assert_allclose(estimate.value, [1, 0], atol=1e-9)


def test_counts_beyond_the_limit_are_cut_and_that_is_said() -> None:
    users = fedhist.Users.from_records({f"u{i}": {"tea": 2**31} for i in range(3)})
    protocol = ItemHistogram(TEA, epsilon=1.0)
    estimate = fedhist.run(protocol, users, seed=1)
    assert estimate.value[0] == pytest.approx(3 * 2**30, abs=100)
    assert any("2^30" in w for w in estimate.warnings)
    assert list(protocol.diagnostics(users).values()) == [3 * 2**30]


@given(st.integers(-5, 70), st.integers(1, 60), st.integers(1, 50))
def test_it_is_what_a_walk_finds(border: int, most: int, least: int) -> None:
    asked: list[int] = []

    def holds(n: int) -> bool:
        asked.append(n)
        return n >= border

    walked = next((n for n in range(least, most + 1) if n >= border), None)
    assert first_true(holds, most, least) == walked
    assert all(least <= n <= most for n in asked)
    assert len(asked) == len(set(asked)) <= 14


def test_a_far_border_takes_two_questions_per_bit() -> None:
    asked: list[int] = []

    def holds(n: int) -> bool:
        asked.append(n)
        return n >= 10**12

    assert first_true(holds, 1 << 50) == 10**12
    assert len(asked) <= 2 * 41
    assert first_true(lambda n: False, 1 << 50) is None


def test_a_kernel_without_a_folder_for_its_cache_is_compiled(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of source that is in no file numba says the same as of a read-only installation."""
    scope: dict[str, object] = {}
    exec("def add(x, y):\n    return x + y", scope)
    lazy._warn_once.cache_clear()
    first, second = (lazy.kernel()(scope["add"]) for _ in range(2))
    assert first(1, 2) == second(1, 2) == 3
    assert capsys.readouterr().err.count("NUMBA_CACHE_DIR") == 1
