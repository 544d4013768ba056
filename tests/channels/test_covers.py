"""Covers against brute force: every cube is tried, every centre is compared."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest

from fedhist.channels.covers import BallLattice, BoxGrid, Cover, SobolevLattice, SparseLattice

COVERS: list[Cover] = [
    BoxGrid(1, 2.0, 8),
    BoxGrid(3, 1.0, 5),
    BallLattice(1, 1.0, 5),
    BallLattice(2, 1.0, 4),
    BallLattice(3, 2.0, 5),
    BallLattice(5, 1.0, 3),
    SparseLattice(4, 1.0, 3, sparsity=2),
    SparseLattice(3, 2.0, 4, sparsity=3),
    SparseLattice(5, 1.0, 9, sparsity=1),
    SobolevLattice(4, 1.5, 4, smoothness=1.0),
    SobolevLattice(6, 1.0, 3, smoothness=0.6),
]


def points_of(cover: Cover, n: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    d = cover.dimension
    x = rng.uniform(-cover.bound, cover.bound, (n, d))
    if isinstance(cover, SparseLattice):
        keep = np.argsort(rng.random((n, d)), axis=1)[:, : cover.sparsity]
        mask = np.zeros((n, d), dtype=bool)
        np.put_along_axis(mask, keep, True, axis=1)
        return np.where(mask, x, 0.0)
    if isinstance(cover, BallLattice | SobolevLattice):
        u = rng.normal(size=(n, d))
        u /= np.linalg.norm(u, axis=1, keepdims=True)
        return u * (1 - 1e-6) * rng.random((n, 1)) ** (1 / d) * cover.semi_axes
    return x


@cache
def lattice_points(cover: BallLattice | SobolevLattice | SparseLattice) -> np.ndarray:
    """Try every lattice point of the box: those whose cube meets the interior of the set."""
    h, a, most = cover.spacing, cover.semi_axes, cover.per_axis // 2 + 1
    values = [0, *(v for k in range(1, most + 1) for v in (k, -k))]
    z = np.array(list(product(values, repeat=cover.dimension)))
    near = np.maximum(np.abs(z) - 0.5, 0) * h  # the cube's nearest point to the origin
    if isinstance(cover, SparseLattice):
        inside = (near < a * (1 - 1e-9)).all(axis=1) & ((z != 0).sum(axis=1) <= cover.sparsity)
    else:
        inside = np.square(near / a).sum(axis=1) < 1 - 1e-9
    return z[inside]


def brute_cells(cover: Cover, x: np.ndarray) -> np.ndarray:
    if isinstance(cover, BoxGrid):
        side = 2 * cover.bound / cover.per_axis
        axis = -cover.bound + (np.arange(cover.per_axis) + 0.5) * side
        middles = np.array(list(product(axis, repeat=cover.dimension)))
    else:
        side = cover.spacing
        middles = lattice_points(cover) * side
    inside = (np.abs(x[:, None, :] - middles) <= side / 2 + 1e-12).all(axis=2)
    assert inside.any(axis=1).all()
    return inside.argmax(axis=1)


def name_of(cover: Cover) -> str:
    return f"{cover.wire_name}-{cover.dimension}-{cover.per_axis}"


@pytest.mark.parametrize("cover", COVERS, ids=name_of)
def test_cells_are_those_of_the_definition(cover: Cover) -> None:
    """Any record has one but NaN; a cover of one cell has all points."""
    x = points_of(cover, 1000)
    cells = cover.cells(x)
    assert np.array_equal(cells, brute_cells(cover, x))
    assert len(np.unique(cells)) > min(2, cover.n_cells - 1)
    assert cover.cells(x[17:18]).tolist() == [cells[17]]
    if isinstance(cover, BoxGrid):
        assert cover.n_cells == cover.per_axis**cover.dimension
    else:
        assert cover.n_cells == len(lattice_points(cover))
    odd = np.tile([[1e300], [-np.inf], [5e-324], [np.nan], [0.0]], cover.dimension)
    odd[4, -1] = np.nan
    assert (cover.cells(odd) >= 0).tolist() == [True, True, True, False, False]
    one = replace(cover, per_axis=1)
    assert one.n_cells == 1
    assert (one.cells(x) == 0).all()
    assert one.radius == pytest.approx(cover.diameter / 2)


@pytest.mark.parametrize("cover", COVERS, ids=name_of)
def test_radius_and_diameter(cover: Cover) -> None:
    """No point is further from its centre than the radius, none from another than the diameter."""
    x = points_of(cover, 20000, seed=1)
    centres = cover.centres(np.arange(cover.n_cells))
    distance = np.linalg.norm(x - centres[cover.cells(x)], axis=1)
    assert distance.max() <= cover.radius * (1 + 1e-9)
    assert distance.max() > 0.5 * cover.radius  # the radius is not idle
    apart = np.linalg.norm(centres[:, None, :] - x[None, :200, :], axis=2)
    assert apart.max() <= cover.diameter * (1 + 1e-9)
    assert np.allclose(cover.project(centres), centres, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("cover", COVERS, ids=name_of)
def test_centres_belong_to_their_cells(cover: Cover) -> None:
    cells = np.arange(cover.n_cells)
    centres = cover.centres(cells)
    assert centres.shape == (cover.n_cells, cover.dimension)
    back = cover.cells(centres)
    assert (back >= 0).all()
    if isinstance(cover, BoxGrid):
        assert np.array_equal(back, cells)
    else:
        middles = lattice_points(cover) * cover.spacing
        own = np.isclose(cover.project(middles), middles, rtol=0, atol=1e-12).all(axis=1)
        assert own[0]
        assert np.array_equal(centres[own], middles[own])
        assert np.array_equal(back[own], cells[own])


def test_ties_go_to_the_lowest_number() -> None:
    """Points on faces, in coordinates that are exact in binary."""
    grid = BoxGrid(2, 1.0, 4)
    corners = np.array(list(product(np.linspace(-1, 1, 5), repeat=2)))
    assert np.array_equal(grid.cells(corners), brute_cells(grid, corners))
    assert grid.cells(np.array([[1.0, 1.0], [-1.0, -1.0], [0.0, 0.0]])).tolist() == [15, 0, 5]
    ball = BallLattice(2, 1.0, 4)  # spacing 1/2: faces at odd multiples of 1/4
    faces = np.array([x for x in product(np.arange(-3, 4) / 4, repeat=2) if np.hypot(*x) < 1])
    assert np.array_equal(ball.cells(faces), brute_cells(ball, faces))
    assert ball.cells(np.array([[0.25, -0.25]])).tolist() == [0]
    sparse = SparseLattice(3, 1.0, 2, sparsity=1)
    ends = np.array([[1.0, 0, 0], [0.5, 0, 0], [0, -1.0, 0]])
    assert np.array_equal(sparse.cells(ends), brute_cells(sparse, ends))


@pytest.mark.parametrize("cover", COVERS, ids=name_of)
def test_projection(cover: Cover) -> None:
    inside = points_of(cover, 300, seed=2)
    assert np.allclose(cover.project(inside), inside, rtol=0, atol=1e-12)
    outside = np.random.default_rng(3).normal(size=(300, cover.dimension)) * 2 * cover.bound
    moved = cover.project(outside)
    assert np.allclose(cover.project(moved), moved, rtol=1e-7, atol=1e-12)
    if not isinstance(cover, SparseLattice):  # that set is not convex
        before = np.linalg.norm(outside[:, None] - inside[None], axis=2)
        after = np.linalg.norm(moved[:, None] - inside[None], axis=2)
        assert (after <= before * (1 + 1e-8)).all()
    if isinstance(cover, BallLattice | SobolevLattice):
        assert (np.square(moved / cover.semi_axes).sum(axis=1) <= 1).all()
    if isinstance(cover, SparseLattice):
        assert (np.count_nonzero(moved, axis=1) <= cover.sparsity).all()


def test_sparse_projection_keeps_the_largest() -> None:
    """Against a stable sort, ties included: values on a coarse grid have many."""
    cover = SparseLattice(6, 1.0, 3, sparsity=2)
    x = np.random.default_rng(5).integers(-3, 4, size=(500, 6)) / 4
    order = np.argsort(-np.abs(x), axis=1, kind="stable")
    wanted = x.copy()
    np.put_along_axis(wanted, order[:, 2:], 0.0, axis=1)
    assert np.array_equal(cover.project(x), wanted)


def test_closed_forms_of_the_sizes() -> None:
    assert BallLattice(1, 1.0, 65535).n_cells == 65535
    for d, s, k in ((6, 2, 1), (40, 2, 1), (1000, 1, 16), (9, 9, 1)):
        count = sum(math.comb(d, i) * (2 * k) ** i for i in range(s + 1))
        cover = SparseLattice(d, 1.0, 2 * k + 1, sparsity=s)
        assert cover.n_cells == count
        assert cover.radius == pytest.approx(math.sqrt(s) / (2 * k + 1))
    # the volume of the ball bounds the number of cubes from below
    ball = BallLattice(3, 1.0, 40)
    assert ball.n_cells > 4 / 3 * math.pi / ball.spacing**3
    assert BoxGrid(2, 3.0, 6).radius == pytest.approx(math.sqrt(2) / 2)


@pytest.mark.parametrize("dimension", [10, 20, 40, 60])
def test_cells_of_many_coordinates_are_told_apart(dimension: int) -> None:
    """Every cell of sparse vectors holds its own centre: no two have one key."""
    cover = SparseLattice(dimension, 1.0, 5, sparsity=2)
    every = np.arange(cover.n_cells)
    assert np.array_equal(cover.cells(cover.centres(every)), every)
