"""The search for the first integer against a walk, and what it asks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fedhist.base.search import first_true


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
