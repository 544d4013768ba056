import math
from dataclasses import replace

import numpy as np
import pytest

from fedhist.model.registry import load_builtin, protocol_class
from fedhist.protocols import BoxMean, FewUsersMean, Mean, MeanLinf, UserLevelErm
from fedhist.users.batch import Users
from server.means.sparse_mean import SparseMean
from server.targets.lower_bounds import Sizes, coin_bound, coins, sizes_of, two_point_bound
from server.targets.sample_sizes import Held
from simulations.benchmarks import defaults
from simulations.populations import population
from tests.running import one_sample, sampled

load_builtin()
BOUNDLESS = ("local-histogram", "quantiles", "central-density")


TARGETS = [t for t in defaults.TARGETS if "prices" not in t]


@pytest.mark.parametrize("target", TARGETS)
def test_predicted_errors_are_above_the_explicit_bound(target: str) -> None:
    """What is predicted, less its uncertainty, is above what cannot be beaten."""
    setting = min(defaults.settings(target), key=lambda s: s.of("n"))
    users, protocol = setting.users(0)[0], setting.protocol()
    bounds, predicted = protocol.lower_bounds(users), protocol.error(users)
    for bound in bounds:
        assert bound.loss == predicted.loss
        assert bound.value >= 0
        assert bound.value <= predicted.expected + 3 * predicted.stderr
    histogram = type(protocol).target not in ("mean", "distribution", "parameters", "density")
    assert bounds or histogram or type(protocol).name in BOUNDLESS


def people(sizes: list[int], n: int = 1000, dimension: int = 1) -> Users:
    held = np.resize(sizes, n)
    return sampled(held, np.zeros((held.sum(), dimension)))


def test_sizes_are_those_held_or_planned() -> None:
    result = sizes_of(Held.of(people([1, 3, 0])), 0.0)
    assert (result.items.tolist(), result.users.tolist()) == ([1.0, 3.0], [334.0, 333.0])
    stand_in = sizes_of(Held.of(people([1])), 63.2)  # one sample stands for the mean of 63.2
    assert (stand_in.items.tolist(), stand_in.users.tolist()) == ([64.0], [1000.0])


def test_the_bounds_of_means() -> None:
    """The range scales them by its square; in more dimensions they are about one coordinate."""
    users, plane, space = (people([20], dimension=d) for d in (1, 4, 40))
    one = Mean(0.5, 1000, 20.0, low=-1.0, high=1.0)
    (bound,) = one.lower_bounds(users)
    sizes = Sizes(np.array([20.0]), np.array([1000.0]))
    assert bound.value == two_point_bound(sizes, 0.5, coins())
    wide = replace(one, low=0.0, high=6.0).lower_bounds(users)[0]
    assert wide.value == pytest.approx(9 * bound.value)
    # users who are known to be nearer than their samples say are worth more samples
    near = replace(one, mean_scale=0.01).lower_bounds(users)[0]
    assert near.value == two_point_bound(Sizes(np.array([1e4]), sizes.users), 0.5, coins())

    (same,) = MeanLinf(0.5, 1000, 4, 20.0, low=-1.0, high=1.0).lower_bounds(plane)
    assert same == bound
    (late,) = SparseMean(2.0, 1000, 40, 20.0, sparsity=3).lower_bounds(space)
    assert late.value == two_point_bound(sizes, 2.0, coins())


def test_what_no_bound_is_about() -> None:
    """Without noise a bound is about one message each."""
    few = protocol_class("few-users-mean").example()
    assert replace(few, epsilon=math.inf).lower_bounds(people([20], dimension=24)) == ()
    (free,) = MeanLinf(math.inf, 1000, 4, 20.0).lower_bounds(people([20], dimension=4))
    assert free.value == 0.0


def test_the_bounds_with_a_trusted_server() -> None:
    users = people([4], 400, dimension=50)
    few = FewUsersMean(epsilon=1.0, delta=1e-9, n_users=400, dimension=50, radius=0.3)
    (explicit,) = few.lower_bounds(users)
    one = Sizes(np.ones(1), np.array([400.0]))
    assert explicit.value == 0.3 * coin_bound(one, 1.0, 1e-9, power=1)

    box = BoxMean(epsilon=1.0, n_users=3, low=-1.0, high=1.0, delta=0.0)
    apart = one_sample([[0.0], [0.0], [0.6]])
    (bound,) = box.lower_bounds(apart)
    three = Sizes(np.ones(1), np.array([3.0]))
    assert bound.value == pytest.approx(0.08 * coin_bound(three, 1.0, 0.0))
    (hidden,) = replace(box, adjacency="zero-out-user").lower_bounds(apart)
    assert hidden.value == pytest.approx(0.08 * coin_bound(three, 1.0, 0.0, steps=2))
    assert box.lower_bounds(one_sample(np.zeros((3, 1)))) == ()


def test_the_bound_of_a_regression() -> None:
    """Its minimiser is a mean: none where the declared constants leave no such risk."""
    sizes = {"n_users": 2000, "samples_per_user": 20, "dimension": 10}
    users = population("regression", **sizes, noise=0.5).load().users
    protocol = UserLevelErm(
        epsilon=1.0, delta=1e-6, dimension=10, radius=3.0, spread=0.8, gradient_bound=5.0,
        smoothness=1.2, strong_convexity=0.8, steps=10, n_users=2000,
    )  # fmt: skip
    explicit = protocol.lower_bounds(users)[0]
    one = Sizes(np.ones(1), np.array([2000.0]))
    # curvature .8, gradients .8 apart, minimisers 1 apart: .4 times the error of their mean
    assert explicit.value == pytest.approx(0.4 * coin_bound(one, 1.0, 1e-6))
    assert replace(protocol, model="logistic").lower_bounds(users) == ()
    assert replace(protocol, gradient_bound=1.0).lower_bounds(users) == ()
    assert replace(protocol, spread=4.0).lower_bounds(users) == ()


@pytest.mark.parametrize(
    "name", ["few-users-mean", "central-mean", "distribution", "ragged-distribution"]
)
def test_a_few_users_stand_for_the_planned_number(name: str) -> None:
    """As a planner has it: half of the users are made, and the bound is that of all."""
    cls = protocol_class(name)
    users = cls.example_users()
    every = users.take(np.tile(np.arange(len(users)), 2))
    every = replace(every, ids=np.arange(len(every), dtype=np.uint64))
    protocol = replace(cls.example(), n_users=len(every), epsilon=0.5)
    result = protocol.lower_bounds(users)[0].value
    # users without an item are not counted where sizes are
    assert result == pytest.approx(protocol.lower_bounds(every)[0].value, rel=0.1)
    assert result < replace(protocol, n_users=len(users)).lower_bounds(users)[0].value
