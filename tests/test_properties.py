"""Laws about all inputs: the codec, the wire, adding up, and conversions of adjacency.

Those of clipping stand in tests/clients/bounding, those of frames in tests/populations, those of
mutated messages in tests/flower. Every search is derandomized: a failure comes again.
"""

from __future__ import annotations

import io
import json
import math
from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import fedhist as fh
from fedhist.flower.wire import pack_array, unpack_array
from fedhist.model.codec import array_from_json, array_to_json, summary_arrays, summary_of_arrays
from fedhist.privacy.guarantee import USER_LEVEL, Moves, NoTotalError, convert, zcdp_epsilon

law = settings(max_examples=150, deadline=None, derandomize=True)

dtypes = st.sampled_from(
    ["bool", "int8", "uint16", "int32", "int64", "uint64", "float32", "float64"]
)
arrays = dtypes.flatmap(
    lambda dtype: hnp.arrays(
        dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
    )
)
words = st.text(st.characters(codec="utf-8"), max_size=5)
parts = st.lists(st.dictionaries(words, st.integers(-(2**40), 2**40), max_size=6), max_size=6)


def same(a: fh.Array, b: fh.Array) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def keyed(counts: dict[str, int]) -> fh.Keyed:
    names = sorted(counts, key=str.encode)
    return fh.Keyed(fh.Keys.of(names), np.array([counts[n] for n in names], dtype=np.int64))


def of_counts(counts: dict[str, int], user: int) -> fh.Summary:
    return fh.Summary(
        1,
        {"total": np.array([sum(counts.values()), len(counts)])},
        {"by item": keyed(counts)},
        {"row": np.array([[float(user)]])},
        np.array([user], dtype=np.uint64),
    )


@law
@given(arrays)
def test_an_array_is_read_as_it_was_written(a: fh.Array) -> None:
    assert same(array_from_json(json.loads(json.dumps(array_to_json(a)))), a)
    packed = pack_array(a)
    assert same(unpack_array("x", packed), a)
    assert same(np.load(io.BytesIO(packed.data), allow_pickle=False), a)  # NumPy reads the same


@law
@given(parts)
def test_a_summary_is_read_as_it_was_written(records: list[dict[str, int]]) -> None:
    for user, counts in enumerate(records):
        written = summary_arrays(of_counts(counts, user))
        again = summary_arrays(summary_of_arrays(1, written))
        assert written.keys() == again.keys()
        assert all(same(again[name], a) for name, a in written.items())


@law
@given(parts.filter(bool), st.data())
def test_summaries_add_in_any_order_and_any_grouping(
    records: list[dict[str, int]], data: st.DataObject
) -> None:
    leaves = [of_counts(counts, user) for user, counts in enumerate(records)]
    order = data.draw(st.permutations(leaves))
    cut = data.draw(st.integers(0, len(order)))
    groups = [fh.Summary.merge(g) for g in (order[:cut], order[cut:]) if g]
    total = fh.Summary.merge(groups)

    by_hand: Counter[str] = Counter()
    for counts in records:
        for name, count in counts.items():
            by_hand[name] += count
    names = sorted(set().union(*records), key=str.encode)
    assert total.n_users == len(records)
    assert total.sums["total"].tolist() == [by_hand.total(), sum(map(len, records))]
    assert list(total.keyed["by item"].keys) == names
    assert total.keyed["by item"].values.tolist() == [by_hand[n] for n in names]
    assert total.rows["row"][:, 0].tolist() == list(range(len(records)))


costs = st.floats(1e-6, 20.0)
adjacencies = st.sampled_from(USER_LEVEL)
moved = st.tuples(costs, costs, costs).map(lambda m: Moves(*m))


@law
@given(costs, costs, adjacencies, adjacencies, st.booleans(), moved | st.none())
def test_a_larger_cost_stays_larger(
    a: float,
    b: float,
    source: fh.Adjacency,
    target: fh.Adjacency,
    null_safe: bool,
    moves: Moves | None,
) -> None:
    small, large = fh.pure(min(a, b)), fh.pure(max(a, b))
    try:
        low, high = (
            convert(r, source, target, null_safe=null_safe, moves=moves) for r in (small, large)
        )
    except NoTotalError:
        assert target is fh.Adjacency.ADD_REMOVE_USER
        assert not null_safe
        return
    assert low.epsilon <= high.epsilon
    assert low.rho <= high.rho
    if moves is None:  # the table alone never makes a release cheaper
        assert low.epsilon >= small.epsilon
        assert low.rho >= small.rho


@law
@given(costs, st.floats(1e-9, 0.1), adjacencies, adjacencies, moved)
def test_noise_of_known_moves_costs_what_its_formula_says(
    rho: float, delta: float, source: fh.Adjacency, target: fh.Adjacency, moves: Moves
) -> None:
    """Laplace: epsilon by the ratio of the moves; Gaussian: rho by its square."""
    ratio = moves.under(target) / moves.under(source)
    laplace = convert(fh.pure(rho), source, target, null_safe=True, moves=moves)
    assert math.isclose(laplace.epsilon, rho * ratio, rel_tol=1e-12)
    gaussian = fh.Release(zcdp_epsilon(rho, delta), delta, rho)
    there = convert(gaussian, source, target, null_safe=True, moves=moves)
    assert math.isclose(there.rho, rho * ratio**2, rel_tol=1e-12)
    assert there.delta == delta
    assert there.epsilon >= zcdp_epsilon(there.rho, delta) * (1 - 1e-12)
