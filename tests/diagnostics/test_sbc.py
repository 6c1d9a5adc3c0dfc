"""Calibration by simulation: uniform where the method is right, and not where it is wrong.

Uniformity is judged at each of 8 points by the Kolmogorov-Smirnov test, at 1e-3 over 8: a right
method is called wrong with probability 1e-3 for a new seed, never for the seeds fixed here.
"""

import dataclasses
import re

import arviz as az
import numpy as np
import pymc as pm
import pytest
from scipy.stats import kstest

import pymc_skewgp as sg
from pymc_skewgp import SkewGP, sbc
from pymc_skewgp._diagnostics.approximations import METHODS

X = np.linspace(-2.0, 2.0, 8)[:, None]
SIZE = 1e-3
POINTS = np.array([[-0.6], [0.9]])
GAMMA = np.array([0.3, -0.2])


def process(s=0):
    cov = 4.0 * pm.gp.cov.ExpQuad(1, ls=1.0)
    if not s:
        return SkewGP(cov_func=cov)
    return SkewGP(
        mean_func=pm.gp.mean.Constant(0.5),
        cov_func=cov,
        pseudo_points=POINTS,
        phase=[1, -1],
        truncation=GAMMA,
    )


def smallest_p(places):
    """Over the points of an array (n_simulations, n)."""
    return min(kstest(column, "uniform").pvalue for column in places.T) * places.shape[1]


def run(gp, method="exact", n_simulations=200, **options):
    options = {"random_seed": 0, "progressbar": False, **options}
    tree = sbc(gp, X, method=method, n_simulations=n_simulations, **options)
    places = tree["prior_sbc"]["f"].values[0]
    assert places.shape == (n_simulations, len(X))
    assert ((places >= 0) & (places <= 1)).all()
    return tree, places


def a_third_as_wide(problem):
    """EP with a third of the deviations."""
    found = METHODS["ep"](problem)
    at = found.marginals
    return found._replace(marginals=dataclasses.replace(at, variance=at.variance / 9.0))


def shifted(problem):
    """EP half a prior deviation too high."""
    found = METHODS["ep"](problem)
    at = found.marginals
    return found._replace(marginals=dataclasses.replace(at, means=at.means + 1.0))


class TestMethods:
    def test_the_exact_posterior(self):
        """Calibrated, and its intervals hold the truth within 4.5 stated errors: 4 levels, 3e-5."""
        tree, places = run(process(2), n_simulations=100)
        assert smallest_p(places) > SIZE
        for name in ("f_mean", "log_likelihood"):
            assert kstest(tree["prior_sbc"][name].values[0], "uniform").pvalue > SIZE
        np.testing.assert_array_equal(tree["constant_data"]["X"], X)
        assert tree["prior_sbc"].attrs["n_simulations"] == 100
        found = sg.coverage(tree)
        assert found["coverage"].dims == ("prob", "obs_id")
        assert (np.abs(found["mean"] - found["prob"]) < 4.5 * found["mean_se"]).all()
        assert (found["mean_se"] < 0.07).all()

    @pytest.mark.parametrize("method", [a_third_as_wide, shifted])
    def test_wrong_methods_are_caught(self, method):
        """The largest gap of the distribution of places is above 2.2 / 100^.5 = .22."""
        tree, places = run(process(), method, n_simulations=100)
        assert smallest_p(places) < SIZE
        assert tree["prior_sbc"].attrs["method"] == method.__name__


class TestResults:
    def test_ranks_are_spread_within_their_cells(self):
        """Of 4 draws, 0 to 4 lie below the truth; places are in the fifth that this says."""
        tree, places = run(process(), n_simulations=20, draws=4)
        again, _ = run(process(), n_simulations=20, draws=4)
        np.testing.assert_array_equal(again["prior_sbc"]["f"], tree["prior_sbc"]["f"])
        assert np.unique(places).size == places.size
        assert np.unique((places * 5).astype(int)).tolist() == [0, 1, 2, 3, 4]

    def test_plot(self):
        matplotlib = pytest.importorskip("matplotlib")
        matplotlib.use("Agg")
        tree, _ = run(process(), "ep", 30)
        plots = az.plot_ecdf_pit(tree, group="prior_sbc", backend="matplotlib")
        assert plots.viz["ecdf_lines"]["f"].sizes == {"obs_id": 8}
        matplotlib.pyplot.close("all")

    def test_hyperparameters_at_a_point(self):
        with pm.Model():
            eta = pm.HalfNormal("eta")
            random = SkewGP(cov_func=eta**2 * pm.gp.cov.ExpQuad(1, ls=pm.HalfNormal("ls")))
        _, found = run(random, "ep", 5, point={"eta": 2.0, "ls": 1.0})
        # Another order of operations in the kernel: 1e-6 is what EP stops at.
        np.testing.assert_allclose(found, run(process(), "ep", 5)[1], atol=1e-5)


class TestElsewhere:
    """More simulations than one worker does at a time, so that several work."""

    @pytest.mark.slow(ci=True)
    @pytest.mark.parametrize("s", [0, 2])
    def test_results_do_not_depend_on_the_number_of_processes(self, s):
        """Of a process that hangs on a model, with random hyperparameters or pseudo-points."""
        pytest.importorskip("joblib")
        point = None
        with pm.Model():
            gp = process(s)
            if not s:
                point = {"ls": 1.0}
                gp = SkewGP(cov_func=4.0 * pm.gp.cov.ExpQuad(1, ls=pm.HalfNormal("ls")))
        _, one = run(gp, n_simulations=45, n_jobs=1, point=point)
        _, two = run(gp, n_simulations=45, n_jobs=2, point=point)
        np.testing.assert_allclose(two, one, atol=1e-9)

    @pytest.mark.slow(ci=True)
    def test_on_a_dask_cluster(self, dask_cluster):
        joblib = pytest.importorskip("joblib")
        _, here = run(process(2), n_simulations=45)
        with dask_cluster.get_client() as client, joblib.parallel_config(backend="dask"):
            _, there = run(process(2), n_simulations=45)
            assert len(client.scheduler_info()["workers"]) == 2
        np.testing.assert_allclose(there, here, atol=1e-9)


class TestErrors:
    def test_no_process(self):
        with pytest.raises(TypeError, match="gp must be a SkewGP, got Latent"):
            sbc(pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)), X)

    @pytest.mark.parametrize(
        ("options", "error", "message"),
        [
            ({"point": 1.0}, TypeError, "point must map names to values, got float"),
            ({"method": "nuts"}, ValueError, re.escape(f"one of {list(METHODS)}, got 'nuts'")),
            ({"n_simulations": 0}, ValueError, "n_simulations must be at least 1, got 0"),
            ({"draws": 0}, ValueError, "draws must be at least 1, got 0"),
        ],
    )
    def test_options(self, options, error, message):
        with pytest.raises(error, match=message):
            sbc(process(), X, **options)
