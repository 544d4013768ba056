from __future__ import annotations

import numpy as np

from clients.records.draws import ItemStreams, draw_one, each_alone
from fedhist.channels.bits import count_bits, tail_is_clear
from fedhist.users.batch import Users
from fedhist.users.streams import SeededStreams, SystemStreams

INDPTR = np.array([0, 2, 2, 5])


def streams() -> SeededStreams:
    return SeededStreams(np.arange(3, dtype=np.uint64), 4, "test")


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
    alone, indptr = each_alone(users)
    assert len(alone) == 5
    assert indptr.tolist() == INDPTR.tolist()


def test_every_item_has_its_own_stream_of_its_user() -> None:
    """The words are the user's, none is used twice, and other users do not matter."""
    items = ItemStreams(streams().substream("a"), INDPTR)
    words = items.words(2)
    assert words.shape == (5, 2)
    assert len(np.unique(words)) == 10
    assert items.n_users == 5
    alone = SeededStreams(np.array([2], dtype=np.uint64), 4, "test").substream("a")
    assert (ItemStreams(alone, np.array([0, 3])).words(2) == words[2:]).all()
    assert not np.intersect1d(words, items.substream("b").words(2)).size
    ragged = items.ragged_words(np.array([0, 1, 1, 4, 4, 6]))
    assert len(np.unique(ragged)) == 6


def test_bits_of_items() -> None:
    """Bernoulli(0.3) bits within 5 sigma, tails clear; both grades of streams."""
    n = 4000
    for users in (SeededStreams(np.arange(2, dtype=np.uint64), 0, "b"), SystemStreams(2)):
        bits = ItemStreams(users, np.array([0, 1000, n])).bernoulli_bits(70, 0.3)
        assert bits.shape == (n, 2)
        assert tail_is_clear(bits, 70)
        counts = count_bits(bits, 70)
        assert np.abs(counts - 0.3 * n).max() < 5 * np.sqrt(0.21 * n)
