"""What configurations are told: the field, what it must be, and what was given."""

from __future__ import annotations

from typing import Any

import pytest

from fedhist.base.checks import check_choice, check_integer, check_scale
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
