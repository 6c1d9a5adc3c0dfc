"""GPflow's ordinal regression, in an interpreter that has it.

    python ordinal_gpflow.py FOLD OUT

FOLD is an .npz with X, y, new; OUT gets `p_gpflow`, class probabilities at `new`, and
`seconds_gpflow`, CPU time.

The model is ours without its priors, which are weak: f of mean zero with an isotropic RBF kernel,
noise of standard deviation 1, cut-points learnt with the kernel, the search started where ours
starts. A Gaussian q(f), all parameters by L-BFGS: of f at the training rows, or beyond 400 rows at
200 inducing points, which start at rows by chance and are learnt too.
"""

import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.likelihoods import scalar_discrete
from scipy.special import ndtri

FIRST_SD = 2.0  # of f, where the search starts
MOST_ROWS = 400  # of the q(f) at all training rows
INDUCING = 200
MOST_STEPS = 1000


def inv_probit(x):
    """GPflow's, at the infinite edges too, where TensorFlow 2.21 has erf(inf) = NaN."""
    return gpflow.likelihoods.utils.inv_probit(tf.clip_by_value(x, -1e3, 1e3))


scalar_discrete.inv_probit = inv_probit


def likelihood(y):
    """GPflow's, whose bin edges are constants, with edges that are learnt."""
    counts = np.bincount(y) + 0.5
    edges = np.sqrt(1.0 + FIRST_SD**2) * ndtri(np.cumsum(counts)[:-1] / counts.sum())
    found = gpflow.likelihoods.Ordinal(edges)
    found.bin_edges = gpflow.Parameter(edges, transform=tfp.bijectors.Ascending())
    gpflow.set_trainable(found.sigma, False)  # the edges and the kernel have the scale
    return found


def fitted(X, y):
    """The model of highest evidence bound."""
    n, d = X.shape
    kernel = gpflow.kernels.RBF(variance=FIRST_SD**2, lengthscales=d**0.5)
    data = X, y[:, None].astype(float)
    if n <= MOST_ROWS:
        model = gpflow.models.VGP(data, kernel, likelihood(y))
        loss = model.training_loss
    else:
        some = np.random.default_rng(0).choice(n, INDUCING, replace=False)
        model = gpflow.models.SVGP(kernel, likelihood(y), X[some])
        loss = model.training_loss_closure(data)
    found = gpflow.optimizers.Scipy().minimize(
        loss,
        model.trainable_variables,
        options={"maxiter": MOST_STEPS, "maxfun": 2 * MOST_STEPS},
    )
    print(f"{n} rows, {found.nit} steps, bound {-found.fun:.3f}: {found.message}", flush=True)
    return model


def forecasts(model, new, levels):
    """Probability of each level; as GPflow cuts a little off each, they are made to add up to 1."""
    mean, variance = model.predict_f(new)
    logs = [
        model.likelihood.predict_log_density(new, mean, variance, np.full((len(new), 1), level))
        for level in np.arange(levels, dtype=float)
    ]
    p = np.exp(np.column_stack(logs))
    return p / p.sum(axis=1, keepdims=True)


def main():
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    fold = np.load(sys.argv[1])
    started = time.process_time()
    p = forecasts(fitted(fold["X"], fold["y"]), fold["new"], int(fold["y"].max()) + 1)
    np.savez(sys.argv[2], p_gpflow=p, seconds_gpflow=time.process_time() - started)


if __name__ == "__main__":
    main()
