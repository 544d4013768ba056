"""Popular words that nobody listed, without a trusted server."""

import sys

import matplotlib.pyplot as plt
import numpy as np

import fedhist as fh
from fedhist.protocols import HeavyHitters

rng = np.random.default_rng(1)
words = np.array(["".join(rng.choice(list("abcdefghij"), 6)) for _ in range(2_000)])
shares = 1 / np.arange(1, 2_001) ** 1.3
said = rng.choice(words, 200_000, p=shares / shares.sum())
users = fh.Users.from_records({f"user {u}": {word: 1} for u, word in enumerate(said)})

protocol = HeavyHitters(epsilon=4.0, n_users=200_000)
estimate = fh.run(protocol, users, seed=1)
order = np.argsort(-estimate.value)[:15]
truth = {word: np.sum(said == word) for word in estimate.keys}

plt.figure(figsize=(6, 3.5), layout="constrained")
place = np.arange(len(order))
plt.bar(place, [truth[estimate.keys[i]] for i in order], color="lightgrey", label="truth")
plt.errorbar(
    place,
    estimate.value[order],
    1.96 * estimate.stderr[order],
    fmt="o",
    capsize=3,
    label="estimate",
)
for name, style in [("threshold", "--"), ("missed_below", ":")]:
    plt.axhline(estimate.public[name] * len(users), linestyle=style, color="black", label=name)
plt.xticks(place, [estimate.keys[i] for i in order], rotation=45)
plt.ylabel("users")
plt.legend()
plt.savefig(sys.argv[1])
