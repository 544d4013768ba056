"""What predictions know of shares adds up: the same for any slices and blocks, and slowly."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from walked_users import Walked

from fedhist.model.measures import Measured, measured
from fedhist.model.query import Summary
from fedhist.model.trees import Tree
from fedhist.protocols import (
    Distribution,
    FewUsersDistribution,
    LocalDistribution,
    RaggedDistribution,
)
from fedhist.protocols.distributions.theory import presence_moments
from fedhist.protocols.shared.distribution_target import DistributionTarget, SeenShares
from fedhist.protocols.shared.lower_bounds import sizes_of
from fedhist.protocols.shared.sample_sizes import Held, samples_held
from fedhist.users.batch import Users
from fedhist.users.keys import Keys, user_ids
from tests.protocols.running import count_table

N, K = 420, 6
DOMAIN = Keys.of([f"i{j}" for j in range(K)])


def crowd(sizes: list[int], seed: int) -> Users:
    """Dirichlet users; some hold nothing, and two items are outside the domain."""
    rng = np.random.default_rng(seed)
    held = rng.choice(sizes, N) * (rng.random(N) > 0.05)
    shares = rng.dirichlet(np.full(K + 2, 0.8), N)
    counts = np.array([rng.multinomial(m, p) for m, p in zip(held, shares, strict=True)])
    counts[5, :K] = 0  # only others
    user, item = np.nonzero(counts)
    names = Keys.of([f"i{j}" for j in range(K + 2)])
    return Users.from_counts(user_ids(Keys.range(N)), user, item, counts[user, item], names)


PEOPLE = crowd([1, 3, 20, 64, 5000], 1)
CENTRAL: dict[str, Any] = {"epsilon": 6.0, "delta": 1e-6, "n_users": N}
PROTOCOLS: dict[str, DistributionTarget] = {
    **{f"distribution {m}": Distribution(DOMAIN, samples_per_user=20, mechanism=m, **CENTRAL)
       for m in ("auto", "laplace", "presence", "ks", "sparse", "centred")},
    **{f"ragged {m}": RaggedDistribution(DOMAIN, m_max=256, mechanism=m, **CENTRAL)
       for m in ("auto", "frequencies", "centred", "presence", "ks")},
    "ragged, of one law": RaggedDistribution(DOMAIN, assume="same-distribution", **CENTRAL),
    "ragged as printed": RaggedDistribution(
        DOMAIN, m_max=64, median="dyadic", mode="paper", **CENTRAL
    ),
    **{f"local {m}": LocalDistribution(DOMAIN, 6.0, N, 20, method=m) for m in ("centred", "folds")},
    "few users": FewUsersDistribution(domain=DOMAIN, samples_per_user=20, **CENTRAL),
    "few users, noise": FewUsersDistribution(
        domain=DOMAIN, samples_per_user=20, method="large-n", **CENTRAL
    ),
}  # fmt: skip


def parts(known: Measured) -> list[float]:
    bounds = [b.value for b in known.lower_bounds]
    noted = [*known.diagnostics.values(), known.resolution]
    return [*known.truth.tolist(), known.error.expected, *bounds, *noted]


@pytest.mark.parametrize("name", PROTOCOLS)
def test_any_slices_and_blocks_tell_the_same(name: str) -> None:
    protocol = PROTOCOLS[name]
    found = parts(whole := measured(protocol, PEOPLE))
    assert math.isfinite(whole.error.expected)
    assert found == pytest.approx(parts(measured(protocol, Walked(PEOPLE, 37))), rel=1e-12)
    assert found[:K] == protocol.truth(PEOPLE).tolist()
    assert whole.error == protocol.error(PEOPLE)
    measure = protocol.measure()
    for cuts in ([N], [1, 7, N], [3, 50, 51, 200, 201, 419, N]):
        tree = Tree()
        for i, (a, b) in enumerate(zip([0, *cuts[:-1]], cuts, strict=True)):
            tree.add(i, measure.of(PEOPLE.slice(a, b)))
        other = measure.finish(tree.total())
        assert isinstance(other, SeenShares)
        assert other.truth == pytest.approx(whole.truth, rel=1e-12)
        assert other.classes(9).tolist() == _seen(PEOPLE).classes(9).tolist()


def _seen(users: Users) -> SeenShares:
    found = measured(PROTOCOLS["local folds"], users)
    assert isinstance(found, SeenShares)
    return found


def test_the_sums_by_slow_formulas() -> None:
    counts = count_table(PEOPLE, DOMAIN)
    sizes, known = counts.sum(axis=1), _seen(PEOPLE)
    some = counts[sizes > 0] / sizes[sizes > 0][:, None]
    assert known.truth == pytest.approx(some.mean(axis=0), rel=1e-12)
    assert known.diagnostics == {"users without items in the domain": np.count_nonzero(sizes == 0)}
    edges = [0, 1, 2, 4, 8, 16, np.inf]
    assert known.classes(6).tolist() == np.histogram(sizes, edges)[0].tolist()
    held = sizes[sizes > 0]
    for size in (1, 2, 16, 64, 8192):
        large = held[held >= size]
        assert known.large(size) == len(large)
        both = (1 / large).sum() / (len(held) * max(len(large), 1))
        slow = 2 * both - (1 / held).sum() / len(held) ** 2 if len(large) else 0.0
        assert known.shared_variance(size) == pytest.approx(slow, rel=1e-12)
    moments = known.moments(lambda users: presence_moments(users, DOMAIN, 3))
    for one, all_at_once in zip(moments, presence_moments(PEOPLE, DOMAIN, 3), strict=True):
        assert one == pytest.approx(all_at_once, rel=1e-12)


def test_users_of_one_size_share_what_they_hold() -> None:
    users = Users.from_counts(np.arange(10), np.arange(10), np.zeros(10), np.full(10, 4), DOMAIN)
    assert _seen(users).shared_variance(4) == pytest.approx(1 / 40, rel=1e-12)


def test_nobody_and_nothing() -> None:
    empty = Users.from_counts(np.arange(3), [0], [K], [2], Keys.of([*DOMAIN, "other"]))
    assert _seen(empty).truth.tolist() == [0.0] * K
    assert _seen(empty).shared_variance(1) == 0.0
    assert _seen(PEOPLE.none).truth.tolist() == [0.0] * K


def test_numbers_of_samples_are_counted_exactly_up_to_4096() -> None:
    held = samples_held(PEOPLE)
    items, users = np.unique(held[held > 0], return_counts=True)
    found = sizes_of(Held.of(PEOPLE), 0.0)
    assert (found.items.tolist(), found.users.tolist()) == (items.tolist(), users.tolist())
    rng = np.random.default_rng(3)
    many = Users.from_counts(
        np.arange(200), np.arange(200), np.zeros(200), rng.integers(4000, 10**6, 200), DOMAIN
    )
    wide, exact = Held.of(many).some, samples_held(many)
    assert wide[1].sum() == 200
    assert wide[0] @ wide[1] == pytest.approx(exact.sum(), rel=1e-4)
    cell = np.abs(np.log2(exact[:, None] / wide[0])).min(axis=1)
    assert cell.max() < 1 / 64


def test_counts_of_blocks_add_up() -> None:
    blocks = [Summary(len(b), Held.sums(b)) for b in PEOPLE.blocks(41)]
    found, whole = Held.read(Summary.merge(blocks)), Held.of(PEOPLE)
    assert (found.n_users, found.users.tolist()) == (N, whole.users.tolist())
    assert found.samples == pytest.approx(whole.samples, rel=1e-12)
