"""Posteriors of data that are dask arrays against those of NumPy arrays.

Some 15 CPU seconds, of which most are two processes that import the package.
"""

import importlib.util
import os
import signal

import numpy as np
import pymc as pm
import pytest

import pymc_skewgp as sg

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("distributed") is None, reason="the extra dask is not installed"
)

N = 12_000
KERNEL = 2.0 * pm.gp.cov.ExpQuad(2, ls=1.0)


def inputs():
    return np.random.default_rng(0).uniform(-2.0, 2.0, (N, 2))


def points():
    side = np.linspace(-2.0, 2.0, 4)
    return np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)


def chunked(value):
    import dask.array as da

    # Columns apart, too: they are put together on the worker. A chunk has no rows.
    rows = *((2500,) * (N // 2500)), 0, N % 2500
    return da.from_array(value, chunks=(rows, 1) if value.ndim == 2 else 4000)


def assert_alike(found, wanted):
    """Evidence and draws of two posteriors."""
    # The same sums over the rows in another order.
    assert found.log_marginal_likelihood.value == pytest.approx(
        wanted.log_marginal_likelihood.value, abs=1e-7
    )
    draws, same = (x.sample(10, 2, random_seed=1) for x in (found, wanted))
    one, other = (x["posterior"]["coordinates"].values for x in (draws, same))
    np.testing.assert_allclose(one, other, atol=1e-8)
    rows = [3, N - 1]
    one, other = (
        posterior.at_rows(x, rows, random_seed=2)
        for posterior, x in ((found, draws), (wanted, same))
    )
    np.testing.assert_allclose(one["posterior"]["f"], other["posterior"]["f"], atol=1e-8)
    np.testing.assert_array_equal(one["observed_data"]["y"], other["observed_data"]["y"])
    assert one["posterior"]["obs_id"].values.tolist() == rows


@pytest.mark.slow(ci=True)
def test_rows_on_two_workers(dask_cluster):
    X, rng = inputs(), np.random.default_rng(1)
    f = np.sin(2.0 * X[:, 0]) + X[:, 1]
    y = (f + rng.standard_normal(N) > 0).astype(int)
    exposure = rng.uniform(0.5, 1.5, N)
    counts, likelihood = rng.poisson(exposure * np.exp(f)), sg.likelihoods.Poisson(exposure)
    gp = sg.SkewGP(
        cov_func=KERNEL,
        pseudo_points=[[0.5, 0.5]],
        approximation=sg.approximations.Inducing(points()),
    )
    spectral = sg.SkewGP(cov_func=KERNEL, approximation=sg.approximations.HSGP([4, 4]))
    with dask_cluster.get_client() as client:
        labels = gp.posterior(chunked(X), chunked(y), n_draws=128)
        assert isinstance(labels, sg.DistributedPosterior)
        here = gp.posterior(X, y, n_draws=128)
        assert_alike(labels, here)
        new = (x.predict(X[:3], draws=0)["predictions_summary"] for x in (labels, here))
        summaries = [x["p_mean"].values for x in new]
        np.testing.assert_allclose(*summaries, atol=1e-9)
        options = {"likelihood": likelihood, "n_draws": 128}
        assert_alike(
            spectral.posterior(chunked(X), chunked(counts), **options),
            spectral.posterior(X, counts, **options),
        )
        with sg.rows_on(client):
            assert_alike(gp.posterior(X, y, n_draws=128), here)
            duels = np.arange(N).reshape(-1, 2)
            many = gp.posterior(X, duels, likelihood=sg.likelihoods.Preference(0.5))
            with pytest.raises(sg.ApproximationError, match="cannot be cut into rows"):
                _ = many.log_marginal_likelihood
        options = {"likelihood": sg.likelihoods.Gaussian(0.5)}
        values = spectral.posterior(chunked(X), chunked(f), **options)
        assert_alike(values, spectral.posterior(X, f, **options))
        assert values.log_marginal_likelihood.std_error == 0.0
        for what in (
            lambda: labels.sun,
            labels.marginals,
            labels.prior_report,
            lambda: labels.update(X, y),
        ):
            with pytest.raises(sg.ApproximationError, match="on the workers"):
                what()
        one, other = (x.sample(10, 2, random_seed=3, rows=[1]) for x in (labels, here))
        np.testing.assert_allclose(one["posterior"]["f"], other["posterior"]["f"], atol=1e-8)
        with pytest.raises(ValueError, match="leave method at its default"):
            labels.sample(method="lin_ess")
        with pytest.raises(ValueError, match=f"0 to {N - 1}"):
            labels.at_rows(labels.sample(2, 1), [N])
        # Beyond the rows that are looked at beforehand, or among them.
        y[-1] = 7
        with pytest.raises(ValueError, match="two classes coded 0 and 1"):
            _ = gp.posterior(chunked(X), chunked(y)).log_marginal_likelihood


@pytest.mark.slow
@pytest.mark.parametrize("dask_cluster", [2, 4], indirect=True)
def test_a_killed_worker_is_survived(dask_cluster):
    X = inputs()
    gp = sg.SkewGP(cov_func=KERNEL, approximation=sg.approximations.Inducing(points()))
    here, there = (gp.posterior(X, (X[:, 0] > 0.3).astype(int), n_draws=128) for _ in range(2))
    with dask_cluster.get_client() as client, sg.rows_on(client):
        _ = there._fit.ep
        os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
        assert_alike(there, here)


def test_refusals_without_a_cluster():
    import dask.array as da

    gp = sg.SkewGP(cov_func=KERNEL)
    X, y = chunked(inputs()), chunked(np.zeros(N))
    function = {"likelihood": lambda eta: pm.Poisson.dist(pm.math.exp(eta))}
    for error, match, data, options in (
        (ValueError, "make a client first", (X, y), {}),
        (TypeError, "both be dask arrays", (X, np.zeros(N)), {}),
        (TypeError, "both be dask arrays", (inputs(), y), {}),
        (ValueError, "compute_chunk_sizes", (X, y[y == 0]), {}),
        (ValueError, r"shape \(n, d\)", (X, y[1:]), {}),
        (sg.ApproximationError, "weights=", (X, y), {"weights": y}),
        (sg.ApproximationError, "several kinds", ([(X, da.zeros(N), None)],), {}),
        (sg.ApproximationError, "cannot be cut into rows", (X, y), function),
    ):
        with pytest.raises(error, match=match):
            gp.posterior(*data, **options)
    with pytest.raises(sg.ApproximationError, match="the kernel as it is"):
        sg.SkewGP(cov_func=KERNEL, approximation=None).posterior(X, y)
    with pytest.raises(sg.ApproximationError, match="Vecchia"):
        sg.SkewGP(cov_func=KERNEL, approximation=sg.approximations.Vecchia(3)).posterior(X, y)
