"""Quantiles with and without a trusted server, over the exact distribution."""

import sys

import matplotlib.pyplot as plt
import numpy as np

import fedhist as fh
from fedhist.protocols import LocalQuantiles, Quantiles

data = fh.population(
    "gaussian", n_users=20_000, samples_per_user=1, mean=0.2, spread=0.3, low=-1.0, high=1.0, seed=1
).load()
levels = (0.1, 0.25, 0.5, 0.75, 0.9)
common = {"n_users": 20_000, "low": -1.0, "high": 1.0, "levels": levels, "epsilon": 1.0}
values = np.sort(data.users.samples.values[:, 0])

plt.figure(figsize=(5, 3.5), layout="constrained")
plt.plot(values, np.linspace(0, 1, len(values)), color="grey", label="exact (NOT PRIVATE)")
for label, protocol in [
    ("trusted server", Quantiles(delta=0.0, **common)),
    ("nobody trusted", LocalQuantiles(**common)),
]:
    estimate = fh.run(protocol, data.users, seed=1)
    plt.plot(estimate.value, levels, "o", label=label)
plt.xlabel("value")
plt.ylabel("share of users below")
plt.legend()
plt.savefig(sys.argv[1])
