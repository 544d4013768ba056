"""Shares of 20 items by epsilon, with and without a trusted server, and the theory beside them."""

import sys

import fedhist as fh

compared = fh.compare(
    axes={"protocol.epsilon": [0.5, 1, 2, 4]},
    population={
        "kind": "zipf", "n_users": 10_000, "d": 20, "mean_items": 30, "tail": float("inf"),
    },
    target="distribution",
    protocol={"samples_per_user": 30},
    protocols=["distribution", "local-distribution", "frequency-oracle"],
    epsilon=1.0,
    delta=1e-6,
    seeds=3,
)  # fmt: skip
compared.figure().savefig(sys.argv[1])
