import numpy as np

from clients.records.draws import draw_one
from fedhist.users.batch import Users
from fedhist.users.streams import SeededStreams

INDPTR = np.array([0, 2, 2, 5])


def test_draw_one_is_uniform() -> None:
    """Each of 5 samples of 50,000 like users within 5 sigma (false alarm 3e-6)."""
    n = 50_000
    values = np.tile(np.arange(5.0), n)
    users = Users.from_samples(np.arange(n), np.arange(n + 1) * 5, values)
    words = SeededStreams(users.ids, 0, "x").words(1)[:, 0]
    one = draw_one(users, words)
    assert (one.n_items() == 1).all()
    assert (one.ids == users.ids).all()
    counts = np.bincount(one.reals.values[:, 0].astype(int))
    assert np.abs(counts - n / 5).max() < 5 * np.sqrt(n * 0.16)


def test_draw_one_takes_the_user_s_own_samples() -> None:
    users = Users.from_samples([1, 2, 3], INDPTR, [[1.0], [2.0], [3.0], [4.0], [5.0]])
    least = draw_one(users, np.zeros(3, np.uint64))
    most = draw_one(users, np.full(3, 2**64 - 1, np.uint64))
    assert least.reals.values[:, 0].tolist() == [1.0, 3.0]
    assert most.reals.values[:, 0].tolist() == [2.0, 5.0]
    assert least.n_items().tolist() == [1, 0, 1]
