"""Counts of items from a trusted server, with intervals, beside the truth."""

import sys

import matplotlib.pyplot as plt
import numpy as np

import fedhist as fh
from fedhist.protocols import AdaptiveHistogram

data = fh.population("zipf", n_users=5_000, d=12, mean_items=10, seed=1).load()
protocol = AdaptiveHistogram(domain=data.domain, epsilon=1.0, delta=1e-6)
estimate = fh.run(protocol, data.users, seed=1)

place = np.arange(len(estimate.value))
plt.figure(figsize=(6, 3), layout="constrained")
plt.bar(place, protocol.truth(data.users), color="lightgrey", label="truth (NOT PRIVATE)")
plt.errorbar(place, estimate.value, 1.96 * estimate.stderr, fmt="o", capsize=3, label="estimate")
plt.xticks(place, list(estimate.keys), rotation=45)
plt.ylabel("count")
plt.title(str(protocol.guarantee), fontsize=9)
plt.legend()
plt.savefig(sys.argv[1])
