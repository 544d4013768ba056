"""What evaluation knows of shares adds up: the same for any slices and blocks, and slowly."""

import numpy as np
import pytest

import fedhist as fh
from fedhist.protocols import LocalDistribution
from server.targets.lower_bounds import sizes_of
from server.targets.sample_sizes import Held, samples_held
from tests.running import count_table, table_users

N, K = 420, 6
DOMAIN = fh.Keys.of([f"i{j}" for j in range(K)])


def crowd(sizes: list[int], seed: int) -> fh.Users:
    """Dirichlet users; some hold nothing, and two items are outside the domain."""
    rng = np.random.default_rng(seed)
    held = rng.choice(sizes, N) * (rng.random(N) > 0.05)
    shares = rng.dirichlet(np.full(K + 2, 0.8), N)
    counts = np.array([rng.multinomial(m, p) for m, p in zip(held, shares, strict=True)])
    counts[5, :K] = 0  # only others
    return table_users(counts, fh.Keys.of(f"i{j}" for j in range(K + 2)))


PEOPLE = crowd([1, 3, 20, 64, 5000], 1)
PROTOCOL = LocalDistribution(DOMAIN, 6.0, N, 20, method="folds")


def _facts(users: fh.Users) -> fh.Facts:
    return fh.measured(PROTOCOL, users)


def test_the_sums_by_slow_formulas() -> None:
    counts = count_table(PEOPLE, DOMAIN)
    sizes, known = counts.sum(axis=1), _facts(PEOPLE)
    some = counts[sizes > 0] / sizes[sizes > 0][:, None]
    assert known.truth == pytest.approx(some.mean(axis=0), rel=1e-12)
    assert known.diagnostics == {"users without items in the domain": np.count_nonzero(sizes == 0)}


def test_nobody_and_nothing() -> None:
    empty = fh.Users.from_counts(np.arange(3), [0], [K], [2], fh.Keys.of([*DOMAIN, "other"]))
    assert _facts(empty).truth.tolist() == [0.0] * K
    assert _facts(PEOPLE.none).truth.tolist() == [0.0] * K


def test_numbers_of_samples_are_counted_exactly_up_to_4096() -> None:
    held = samples_held(PEOPLE)
    items, users = np.unique(held[held > 0], return_counts=True)
    result = sizes_of(Held.of(PEOPLE), 0.0)
    assert (result.items.tolist(), result.users.tolist()) == (items.tolist(), users.tolist())
    rng = np.random.default_rng(3)
    many = fh.Users.from_counts(
        np.arange(200), np.arange(200), np.zeros(200), rng.integers(4000, 10**6, 200), DOMAIN
    )
    wide, exact = Held.of(many).some, samples_held(many)
    assert wide[1].sum() == 200
    assert wide[0] @ wide[1] == pytest.approx(exact.sum(), rel=1e-4)
    cell = np.abs(np.log2(exact[:, None] / wide[0])).min(axis=1)
    assert cell.max() < 1 / 64


def test_counts_of_blocks_add_up() -> None:
    blocks = [fh.Summary(len(b), Held.sums(b)) for b in PEOPLE.blocks(41)]
    result, whole = Held.read(fh.Summary.merge(blocks)), Held.of(PEOPLE)
    assert (result.n_users, result.users.tolist()) == (N, whole.users.tolist())
    assert result.samples == pytest.approx(whole.samples, rel=1e-12)
