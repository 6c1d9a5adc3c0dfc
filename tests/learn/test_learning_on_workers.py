"""Learning with rows on the workers of a dask cluster, against the same rows in this process.

The objective of this process is checked by finite differences in `test_many_rows`. Here some 3 CPU
seconds without a cluster; with one 20 to 30 for each test, most of them for processes that import
the package.
"""

import importlib.util
import pickle
from concurrent.futures import Future
from dataclasses import replace
from functools import cache

import numpy as np
import pymc as pm
import pytest

import pymc_skewgp as sg
from pymc_skewgp._learn.coordinates import Point
from pymc_skewgp._learn.problem import TrainingData, process_objective
from pymc_skewgp._learn.rows import rows_objective as rows_on_workers
from pymc_skewgp._posterior import dask_blocks as dask_groups
from pymc_skewgp._posterior import data_blocks as row_blocks
from pymc_skewgp.approximations import HSGP, Inducing

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("distributed") is None, reason="the extra dask is not installed"
)

N = 3000
SIDE = np.linspace(-2.0, 2.0, 4)
POINTS = np.stack(np.meshgrid(SIDE, SIDE), axis=-1).reshape(-1, 2)
EXPOSURE = np.linspace(0.5, 1.5, N)


@cache
def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (N, 2))
    f = np.sin(2.0 * X[:, 0]) + X[:, 1]
    return X, (f + rng.standard_normal(N) > 0).astype(int), rng.poisson(EXPOSURE * np.exp(f)), f


def process(approximation):
    """A SkewGP, and a likelihood of counts: what is unknown of it, and a number for each row."""
    with pm.Model():
        ls = pm.InverseGamma("ls", 3, 2, shape=2, initval=[0.8, 1.2])
        kernel = pm.HalfNormal("sd", 2.0, initval=1.5) ** 2 * pm.gp.cov.Matern52(2, ls=ls)
        alpha = pm.Gamma("alpha", 2.0, 1.0, initval=1.5)
        gp = sg.SkewGP(cov_func=kernel, approximation=approximation)
    return gp, sg.likelihoods.NegativeBinomial(alpha, exposure=EXPOSURE)


def chunked(value):
    import dask.array as da

    # Columns apart, too: they are put together on the worker.
    return da.from_array(value, chunks=(900, 1) if value.ndim == 2 else 1300)


def objective(gp, X, y, likelihood=None, coregion=None):
    """Of all rows at a point, and that point."""
    rng = np.random.default_rng(0)
    found = process_objective(TrainingData(gp, X, y, likelihood, coregion), None, rng, None)
    point = Point(found.origin)
    return found.rows.on_all(point), point


def assert_same(found, wanted, point):
    """At two points, the second of which begins with the sites of the first."""
    for at in (point, point.at(point.x + 0.1)):
        one, other = found.by_ep(at), wanted.by_ep(at)
        # Round-off of some thousand terms, in an order that depends on the chunks.
        assert one.total == pytest.approx(other.total, abs=1e-8)
        np.testing.assert_allclose(one.gradient, other.gradient, rtol=1e-9, atol=1e-8)


class Actor:
    """An actor in this process, which is lost before a certain call."""

    lost_before, seen = ("", 0), 0

    def __init__(self, kept):
        self._kept, self._lost = kept, False

    def __getattr__(self, method):
        def call(*arguments):
            name = method if method != "call" else arguments[0]
            name = name if name != "total" else arguments[1]
            wanted, count = Actor.lost_before
            Actor.seen += name == wanted
            if Actor.seen == count and name == wanted:
                self._lost = True
            if self._lost:
                raise OSError("lost")
            future = Future()
            future.set_result(getattr(self._kept, method)(*map(travelled, arguments)))
            return future

        return call


def travelled(value):
    return pickle.loads(pickle.dumps(value))


class Client:
    """Two workers that are this process, until all of them are lost."""

    lost = False

    def scheduler_info(self, n_workers):
        return {"workers": {} if self.lost else dict.fromkeys("ab")}

    def nthreads(self):
        return {"a": 1, "b": 1}

    def wait_for_workers(self, n, timeout):
        if self.lost:
            raise TimeoutError

    def compute(self, chunks, **where):
        return chunks

    def submit(self, make, chunks, build, **where):
        future = Future()
        future.set_result(Actor(make(chunks, build)))
        return future


@pytest.fixture(scope="module")
def in_three_blocks():
    """Of labels, with EP to round-off: rows that are lost begin anew, and end at one point."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_blocks, "ROWS_IN_BLOCK", 400)
        X, labels, *_ = data()
        here, point = objective(process(Inducing(POINTS))[0], X[:1200], labels[:1200])
    assert len(here.rows.blocks) == 3
    return replace(here, tolerance=1e-10), point


@pytest.mark.parametrize(
    "lost_before", [("", 0), ("place", 2), ("tilt", 5), ("part_of_gradient", 2)]
)
def test_a_lost_worker_changes_nothing(monkeypatch, in_three_blocks, lost_before):
    monkeypatch.setattr(dask_groups, "n_threads_of_worker", lambda: 1)
    monkeypatch.setattr(dask_groups, "_PAUSE", 0.0)
    here, point = in_three_blocks
    Actor.lost_before, Actor.seen = lost_before, 0
    rows = rows_on_workers.sent_rows(Client(), here.latent, here.rows.blocks)
    found, wanted = here.of(rows, here.latent).by_ep(point), here.by_ep(point)
    assert Actor.seen > lost_before[1] or not lost_before[0]  # once more, elsewhere
    assert found.total == pytest.approx(wanted.total, abs=1e-8)
    np.testing.assert_allclose(found.gradient, wanted.gradient, rtol=1e-7, atol=1e-7)


def test_workers_that_are_always_lost(monkeypatch, in_three_blocks):
    monkeypatch.setattr(dask_groups, "n_threads_of_worker", lambda: 1)
    here, point = in_three_blocks
    rows = rows_on_workers.sent_rows(Client(), here.latent, here.rows.blocks)

    def lost(_):
        return rows._restore()

    with pytest.raises(sg.ClusterLostError, match="10 times at one value"):
        rows.evaluate(point, lost)


def test_a_cluster_without_workers(monkeypatch, in_three_blocks):
    monkeypatch.setattr(dask_groups, "n_threads_of_worker", lambda: 1)
    here, point = in_three_blocks
    rows = rows_on_workers.sent_rows(Client(), here.latent, here.rows.blocks)
    monkeypatch.setattr(Client, "lost", True)
    with pytest.raises(sg.ClusterLostError, match="start workers"):
        here.of(rows, here.latent).by_ep(point)


def test_several_functions_on_workers(monkeypatch):
    """Groups of rows, and a covariance of the functions that is learnt."""
    monkeypatch.setattr(dask_groups, "n_threads_of_worker", lambda: 1)
    monkeypatch.setattr(row_blocks, "ROWS_IN_BLOCK", 12)
    Actor.lost_before = "", 0
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (60, 2))
    f = X + rng.normal(size=X.shape)
    gp, _ = process(Inducing(POINTS))
    with gp.model:
        likelihood = sg.likelihoods.Selection(0.5, pm.Uniform("rho", -1.0, 1.0, initval=0.3))
        a = pm.HalfNormal("a", initval=1.2)
        between = pm.math.stack([pm.math.stack([a**2 + 0.3, a]), pm.math.stack([a, 1.5])])
    y = np.where(f[:, 1] > 0.0, f[:, 0], np.nan)
    here, point = objective(gp, X, y, likelihood, between)
    here = replace(here, tolerance=1e-10)
    assert len(here.rows.blocks) > 2
    there = here.of(rows_on_workers.sent_rows(Client(), here.latent, here.rows.blocks), here.latent)
    assert_same(there, here, point)
    one, other = there.estimate(point, 64, 0), here.estimate(point, 64, 0)
    assert one.value == pytest.approx(other.value, abs=1e-8)


def test_refusals_in_rows_on():
    X, labels, *_ = data()
    gp, _ = process(Inducing(POINTS))
    with gp.model:
        options = {"pseudo_points": [[0.0, 0.0]], "approximation": gp.approximation}
        signed = sg.SkewGP(cov_func=gp.cov_func, **options)
    bound = sg.likelihoods.Constraint(lower=-5.0)
    limited = {"labels": (X, labels, None), "bound": (POINTS, None, bound)}
    refused = {"it has pseudo-points": (signed, X, labels), "is a constraint": (gp, limited)}
    for match, arguments in refused.items():
        match = f"(?s){match}.*Leave out rows_on"
        with sg.rows_on(Client()), pytest.raises(sg.ApproximationError, match=match):
            sg.find_hyperparameters(*arguments)


def test_refusals_without_a_cluster():
    X, labels, counts, _ = data()
    gp, likelihood = process(Inducing(POINTS))
    X, y = chunked(X), chunked(labels)
    function = {"likelihood": lambda eta: pm.Poisson.dist(pm.math.exp(eta))}
    for match, arguments, options in (
        ("weights is given.*rows_on", (gp, X, y), {"weights": labels}),
        ("coregion is given", (gp, X, y), {"coregion": [[2.0]]}),
        ("batch_size is given", (gp, X, y), {"batch_size": 100}),
        ("cannot be cut into rows", (gp, X, y), function),
        ("several kinds cannot be dask", (gp, [(X, counts, likelihood)]), {}),
    ):
        with pytest.raises(sg.ApproximationError, match=match):
            sg.find_hyperparameters(*arguments, **options)
    with pytest.raises(sg.ApproximationError, match="call find_hyperparameters"):
        sg.integrate(gp, X, y)
    with pytest.raises(ValueError, match="make a client first"):
        sg.find_hyperparameters(gp, X, y)


@pytest.mark.slow(ci=True)
def test_two_workers_learn_what_one_process_does(dask_cluster):
    X, labels, counts, f = data()
    chunks = chunked(X)
    with dask_cluster.get_client() as client:
        gp, _ = process(Inducing(POINTS))
        here, point = objective(gp, X, labels)
        assert_same(objective(gp, chunks, chunked(labels))[0], here, point)
        gp, likelihood = process(HSGP([4, 4]))
        here, point = objective(gp, X, counts, likelihood)
        assert_same(objective(gp, chunks, chunked(counts), likelihood)[0], here, point)
        # A worker with several kinds of data, which only `rows_on` takes.
        kinds = [(X, labels, None), (X[:1000], f[:1000], sg.likelihoods.Gaussian(0.3))]
        here, point = objective(gp, kinds, None)
        with sg.rows_on(client):
            assert_same(objective(gp, kinds, None)[0], here, point)
        # And with several functions.
        classes = sg.likelihoods.MultinomialProbit()
        kinds = [(X[:1300], labels[:1300], None), (X[:400], np.arange(400) % 3, classes)]
        here, point = objective(gp, kinds, None, coregion=np.eye(3) + 0.2)
        with sg.rows_on(client):
            assert_same(objective(gp, kinds, None, coregion=np.eye(3) + 0.2)[0], here, point)

        gp, _ = process(Inducing(POINTS))
        options = {"n_restarts": 0, "random_seed": 0, "progressbar": False}
        one = sg.find_hyperparameters(gp, X, labels, **options)
        two = sg.find_hyperparameters(gp, chunks, chunked(labels), **options)
        for name, value in one.point.items():
            # The same search: all rows are among the 20,000 that come here.
            np.testing.assert_allclose(two.point[name], value, rtol=1e-6)
            np.testing.assert_allclose(two.std_error[name], one.std_error[name], rtol=1e-4)
        evidence = two.log_marginal_likelihood.value
        assert evidence == pytest.approx(one.log_marginal_likelihood.value, abs=1e-5)

        with gp.model:
            exact = sg.SkewGP(cov_func=gp.cov_func, approximation=None)
            censored = sg.likelihoods.CensoredGaussian(0.5, lower=pm.Normal("lower"))
        for own, y, known, match in (
            (exact, labels, None, "the kernel as it is"),
            (gp, np.where(f < -1.0, -np.inf, f), censored, "lower of the likelihood is learnt"),
            (gp, labels, sg.likelihoods.MultinomialProbit(), "several functions"),
        ):
            with pytest.raises(sg.ApproximationError, match=match):
                sg.find_hyperparameters(own, chunks, chunked(y), likelihood=known)
