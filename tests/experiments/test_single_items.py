"""Figure 4 and Table 2: small runs, and the parts they are made of."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from simulations.experiments.experiment import experiment
from simulations.experiments.single_items import compare, protocol_for
from simulations.populations import population

SETTINGS = SimpleNamespace(epsilon=1.0, epsilon_choice=0.1, clip_max=64)


def poisson_users(n=3000, alpha=math.inf):
    return population("paper-poisson", n_users=n, alpha=alpha, mean_items=2.0).load().users


def tweets(path, rows):
    lines = (f'"0","{k}","d","q","{user}","{text}"' for k, (user, text) in enumerate(rows))
    path.write_text("\n".join(lines) + "\n", encoding="latin-1")
    return path


def test_runs_scatter_around_the_predicted_error():
    """400 runs and 30; within 5 standard errors, a false alarm has probability 1e-6."""
    users = poisson_users()
    protocol = protocol_for(users, SETTINGS, clip=2)
    pair = compare(protocol, users, runs=400, seed=0)
    total, told = float(protocol.truth(users)[0]), protocol.error(users)
    error = math.hypot(pair.runs[1].std(ddof=1) / 20, told.stderr / total)
    assert abs(pair.debiasing - told.expected / total) <= 5 * error
    assert pair.ratio < 0.1
    assert (pair.clips == 2).all()


def test_table2_on_tweets_compares_with_the_papers_numbers(tmp_path):
    rng = np.random.default_rng(0)
    words = np.array(["the", "today", "you", "cat"])
    rows = [(f"u{k % 60}", " ".join(rng.choice(words, 4))) for k in range(200)]
    what = experiment("table2")
    data = tweets(tmp_path / "tweets.csv", rows)
    few = {"population": "sentiment140", "data": data, "quick": True}
    result = what.run(what.request(**few, overrides=["clips=[60, 60, 60]"]))
    paper = {(c.setting, c.quantity): c.paper for c in result.checks if c.paper is not None}
    assert not any(c.judged for c in result.checks if c.paper is not None)
    assert any("60 users" in n for n in result.not_judged)
    ratios = [c.ours for c in result.checks if c.quantity == "debiasing / clipping"]
    assert ratios == pytest.approx([1, 1, 1], abs=1e-3)  # nobody has a word 60 times
    assert sum("cannot differ" in n for n in result.notes) == 3
    claims = [c for c in result.checks if "performs better" in c.claim]
    assert [c.high for c in claims] == [0.99] * 3
    assert paper == {
        ("the", "clipping"): 0.0289, ("the", "debiasing"): 0.0257,
        ("today", "clipping"): 0.0381, ("today", "debiasing"): 0.0155,
        ("you", "clipping"): 0.0745, ("you", "debiasing"): 0.0671,
    }  # fmt: skip
    for wrong, named in (('words=["the", "dog"]', "'dog'"), ("clips=[1]", "one C per word")):
        with pytest.raises(ValueError, match=named):
            what.run(what.request(**few, overrides=[wrong]))
