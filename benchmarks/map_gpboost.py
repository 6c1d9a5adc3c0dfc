"""Hyperparameters of labels on a map by GPBoost, and forecasts: a line of JSON for `fields.py`.

python benchmarks/map_gpboost.py labels.npz NEIGHBOURS
"""

import json
import resource
import sys
import time

import gpboost
import numpy as np

data, m = np.load(sys.argv[1]), int(sys.argv[2])
X, y, n = data["X"], data["y"].astype(float), int(data["n"])
began = time.process_time(), time.perf_counter()
model = gpboost.GPModel(
    gp_coords=X[:n],
    cov_function="matern",
    cov_fct_shape=1.5,
    likelihood="bernoulli_probit",
    gp_approx="vecchia",
    num_neighbors=m,
    seed=1,
    matrix_inversion_method="iterative",  # of 100,000 places a Cholesky factor takes too long
)
model.fit(y=y[:n])
cpu, wall = time.process_time() - began[0], time.perf_counter() - began[1]
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
p = model.predict(gp_coords_pred=X[n:], predict_response=True)["mu"]
variance, range_ = np.ravel(model.get_cov_pars())[:2]
row = {
    "kind": f"gpboost_{m}",
    "nodes": n,
    "cpu": cpu,
    "wall": wall,
    "log_loss": -float(np.log(np.where(y[n:] > 0.0, p, 1.0 - p)).mean()),
    "range": float(range_),
    "deviation": float(np.sqrt(variance)),
    "memory": memory,
}
print(json.dumps(row))
