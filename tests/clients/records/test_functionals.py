"""Functionals against loops in plain Python; any record stays in the public range."""

import math

import numpy as np
import pytest
from scipy.linalg import hadamard

from clients.records.functionals import Coordinates, Fourier, HadamardRows, Rotated
from fedhist.base.errors import PopulationError
from fedhist.model.part import Functional
from fedhist.users.batch import Users
from fedhist.users.keys import Keys, public_signs
from tests.running import sampled

HUGE = [1e300, -1e300, np.finfo(float).max, math.inf, -math.inf, math.nan, 5e-324, 0.0, -0.0]


def real_users(d: int, n: int = 60, seed: int = 0, absurd: bool = False) -> Users:
    """Ragged users, some without samples; if wanted, a quarter of the entries breaks things."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, 6, n)
    values = rng.normal(scale=0.6, size=(int(sizes.sum()), d))
    if absurd:
        where = rng.random(values.shape) < 0.25
        values[where] = rng.choice(HUGE, int(where.sum()))
    return sampled(sizes, values)


def item_users(n: int = 60, seed: int = 0) -> Users:
    """Ragged users over 13 items, some without any; a few counts are large."""
    rng = np.random.default_rng(seed)
    size = rng.integers(0, 7, n)
    count = rng.choice(
        [1, 2, 9, 1 << 40, (1 << 61) + 1], int(size.sum()), p=[0.5, 0.2, 0.1, 0.1, 0.1]
    )
    user = np.repeat(np.arange(n), size)
    pairs = np.unique(np.stack((user, rng.integers(0, 13, len(user)))), axis=1)
    return Users.from_counts(np.arange(n), *pairs, count[: pairs.shape[1]], Keys.range(13))


DOMAIN = Keys.of(["7", "3", "12", "none of them", "0", "5", "11"])  # K = 8
CASES: list[tuple[Functional, Users]] = [
    (Coordinates(3), real_users(3)),
    (Coordinates(3, -0.5, 0.25, np.array([2, 0, 2, 1]), 2), real_users(3)),
    (Rotated(5, 1.0, 3), real_users(5)),
    (Rotated(5, 2.0, 9, 0.3, 2), real_users(5)),
    (Rotated(1, 0.5, 1), real_users(1)),
    (Fourier(9), real_users(1)),
    (HadamardRows(DOMAIN), item_users()),
    (HadamardRows(Keys.range(13)), item_users()),
]
BROKEN: list[tuple[Functional, Users]] = [
    (f, real_users(u.reals.values.shape[1], absurd=True)) for f, u in CASES if u.samples
]


def slow(functional: Functional, users: Users, fold: np.ndarray) -> list[float]:
    """One user after the other, by the definition, with correctly rounded sums."""
    out = []
    for u, f in enumerate(fold.tolist()):
        if isinstance(functional, HadamardRows):
            items = users.counts
            total = signed = 0
            for k in range(items.indptr[u], items.indptr[u + 1]):
                name, c = items.vocabulary[items.item[k]], int(items.count[k])
                if name in functional.domain:
                    total += c
                    x = functional.domain.position(name)
                    signed += c * (-1) ** ((f + 1) & x).bit_count()
            out.append(signed / total if total else math.nan)
            continue
        rows = users.reals.values[users.reals.indptr[u] : users.reals.indptr[u + 1]].tolist()
        rows = rows[: getattr(functional, "max_items", 0) or None]
        if not rows:
            out.append(math.nan)
        elif isinstance(functional, Coordinates):
            column = f if functional.columns is None else functional.columns[f]
            kept = [min(max(row[column], functional.low), functional.high) for row in rows]
            out.append(math.fsum(kept) / len(rows))
        elif isinstance(functional, Fourier):
            j = f + 2
            wave = math.cos if j % 2 == 0 else math.sin
            kept = [min(max(row[0], 0.0), 1.0) for row in rows]
            out.append(math.fsum(wave(2 * math.pi * (j // 2) * x) for x in kept) / len(rows))
        elif isinstance(functional, Rotated):
            d2 = functional.n_folds
            rotation = hadamard(d2) * public_signs(functional.sign_salt, (d2,)) / math.sqrt(d2)
            short = [np.array(r) * min(1, functional.radius / math.hypot(*r)) for r in rows]
            z = rotation[f, : functional.dimension] @ np.mean(short, axis=0)
            out.append(float(np.clip(z, functional.low, functional.high)))
    return out


@pytest.mark.parametrize(("functional", "users"), CASES)
def test_scalars_are_what_they_say(functional: Functional, users: Users) -> None:
    for fold in range(functional.n_folds):
        folds = np.full(len(users), fold)
        got = functional.scalars(users, folds)
        assert np.allclose(got, slow(functional, users, folds), rtol=0, atol=1e-14, equal_nan=True)
        assert np.isnan(got).any()
        assert not np.isnan(got).all()


@pytest.mark.parametrize(("functional", "users"), BROKEN)
def test_no_record_leaves_the_range(functional: Functional, users: Users) -> None:
    for fold in range(functional.n_folds):
        z = functional.scalars(users, np.full(len(users), fold))
        usable = ~np.isnan(z)
        assert usable.any()
        assert ((z[usable] >= functional.low) & (z[usable] <= functional.high)).all()


def test_unusable_records() -> None:
    """A NaN spoils the coordinate that it is in, and every rotated one; so does an infinity."""
    rows = np.array([[0.5, math.nan], [0.5, math.inf], [1e300, -1e300], [0.25, 0.0]])
    users = Users.from_samples(np.arange(5), [0, 1, 2, 3, 4, 4], rows, unusable=True)
    for fold, expected in ((0, [0.5, 0.5, 1, 0.25, math.nan]), (1, [math.nan, 1, -1, 0, math.nan])):
        got = Coordinates(2).scalars(users, np.full(5, fold))
        assert np.array_equal(got, expected, True)
    z = np.array([Rotated(2, 1.0, 0).scalars(users, np.full(5, f)) for f in (0, 1)])
    assert np.isnan(z[:, [0, 1, 4]]).all()
    assert np.linalg.norm(z[:, 2:4], axis=0) == pytest.approx([1.0, 0.25])


def test_only_the_first_samples_count_and_their_absence_is_no_sample() -> None:
    users = Users.from_samples([1, 2, 3], [0, 3, 4, 4], [1.0, 0.0, math.nan, 0.5], unusable=True)
    for functional in (Coordinates(1, max_items=2), Rotated(1, 1.0, 0, max_items=2)):
        got = np.abs(functional.scalars(users, np.zeros(3, dtype=np.int64)))
        assert np.array_equal(got, [0.5, 0.5, math.nan], True)


@pytest.mark.parametrize("size", [1e-160, 1e-100, 1.0, 1e100, 1e160, 1e300])
def test_the_norm_is_safe_at_any_size(size: float) -> None:
    """A sample beyond the ball keeps its direction, one inside stays: also where squares fail."""
    x = np.array([3.0, -4.0, 12.0, 0.0, 84.0]) * size  # norm 85
    users = Users.from_samples([1], [0, 1], x[None, :], unusable=True)
    for radius in (17 * size, 85.5 * size):
        z = [Rotated(5, radius, 4).scalars(users, np.array([f]))[0] for f in range(8)]
        back = (hadamard(8) @ np.array(z)) * public_signs(4, (8,)) / math.sqrt(8)
        expected = np.append(x * min(1.0, radius / (85 * size)), np.zeros(3))
        assert back / radius == pytest.approx(expected / radius, abs=1e-12)


def test_high_frequencies_lose_no_whole_turns() -> None:
    """At x = 1/4 and frequency 2^20 + 1 the angle is a quarter turn exactly."""
    users = Users.from_records({"ann": [0.25]})
    j = 2 * ((1 << 20) + 1)  # its cosine; the sine is j + 1
    functional = Fourier(j + 1)
    got = [functional.scalars(users, np.array([f]))[0] for f in (j - 2, j - 1)]
    assert got == pytest.approx([0.0, 1.0], abs=1e-15)


@pytest.mark.parametrize(("functional", "users"), CASES)
def test_folds_are_checked_before_any_loop_runs(functional: Functional, users: Users) -> None:
    for bad in (functional.n_folds, -1):
        with pytest.raises(ValueError, match=f"{functional.n_folds}\\)"):
            functional.scalars(users, np.full(len(users), bad))
    with pytest.raises(ValueError, match="each of 60 users"):
        functional.scalars(users, np.zeros(3, dtype=np.int64))


def test_other_kinds_of_users_are_refused() -> None:
    fold = np.zeros(60, dtype=np.int64)
    for functional, users in (
        (Coordinates(2), real_users(3)),
        (Rotated(4, 1.0, 0), real_users(3)),
        (Fourier(3), real_users(2)),
        (HadamardRows(DOMAIN), real_users(1)),
        (Coordinates(1), item_users()),
    ):
        with pytest.raises(PopulationError):
            functional.scalars(users, fold)
