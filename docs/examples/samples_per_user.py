"""What more samples of each user buy: the error of a local mean, and of today's baseline."""

import sys

import matplotlib.pyplot as plt
import numpy as np

import fedhist as fh
from fedhist.protocols import Mean, NaiveMean

samples, runs = [1, 4, 16, 64, 256], 20
plt.figure(figsize=(5, 3.5), layout="constrained")
for label, make in [("mean", Mean), ("naive-mean", NaiveMean)]:
    errors = []
    for m in samples:
        data = fh.population(
            "gaussian", n_users=10_000, samples_per_user=m, mean=0.237, spread=0.25, low=-1.0,
            high=1.0, seed=m,
        ).load()  # fmt: skip
        more = {"samples_per_user": m} if make is Mean else {}
        protocol = make(low=-1.0, high=1.0, epsilon=1.0, n_users=10_000, **more)
        off = [
            fh.run(protocol, data.users, seed=s, clients="aggregate").value
            - protocol.truth(data.users)
            for s in range(runs)
        ]
        errors.append(np.sqrt(np.mean(np.square(off))))
    plt.loglog(samples, errors, "o-", label=label)
plt.xlabel("samples of each user")
plt.ylabel("root mean squared error")
plt.title("10,000 users, epsilon = 1, nobody trusted", fontsize=9)
plt.legend()
plt.savefig(sys.argv[1])
