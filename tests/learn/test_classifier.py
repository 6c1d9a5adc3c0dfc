"""SkewGPClassifier: the exact posterior behind it, its searches, what it warns of."""

import copy
import pickle
import re
from dataclasses import replace

import joblib
import numpy as np
import pymc as pm
import pytest
from quick_search import QUICK, QuickClassifier
from scipy.special import expit
from scipy.stats import invgamma, multivariate_normal, norm
from sklearn.datasets import load_iris, make_moons

import pymc_skewgp as sg
from pymc_skewgp import BoundaryOptimumWarning, InterruptedSearchWarning, SkewGPClassifier
from pymc_skewgp._learn.estimator import Kernel
from pymc_skewgp._learn.optimizers import EvaluationLog, OptimizerSettings

X, Y = make_moons(70, noise=0.25, random_state=0)
NEW, NEW_Y = make_moons(60, noise=0.25, random_state=1)


def fast(**options):
    """Few searches: what they find is judged elsewhere."""
    return SkewGPClassifier(**{"n_restarts": 0, "random_state": 0, **options})


@pytest.fixture(scope="module")
def fitted():
    return fast().fit(X, Y)


@pytest.fixture(scope="module")
def iris():
    data, target = load_iris(return_X_y=True)
    rows = np.r_[0:25, 50:75, 100:125]
    names = np.array(["setosa", "versicolor", "virginica"])[target]
    return data[rows], names[rows], fast().fit(data[rows], names[rows])


def test_what_is_learnt_does_not_depend_on_the_order_of_rows():
    """On separable labels too, where the evidence has no maximum."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(20, 3))
    y = X[:, 0] > 0
    shuffled = rng.permutation(20)
    one, other = (fast().fit(X[rows], y[rows]) for rows in (np.arange(20), shuffled))
    for name, value in one.hyperparameters_.point.items():
        np.testing.assert_array_equal(value, other.hyperparameters_.point[name])


def test_a_random_state_of_scikit_learn():
    assert fast(random_state=np.random.RandomState(3)).fit(X, Y).score(NEW, NEW_Y) > 0.85


class TestManyClasses:
    def test_one_against_the_rest(self, iris):
        data, names, model = iris
        p = model.predict_proba(data)
        assert p.shape == (75, 3)
        np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
        single = fast().fit(data, names == "versicolor")
        one = model.posterior_[1].probability(data).value
        np.testing.assert_allclose(one, single.predict_proba(data)[:, 1], rtol=1e-12)
        score = model.decision_function(data)
        np.testing.assert_allclose(score[:, 1], norm.ppf(one), rtol=1e-6)
        np.testing.assert_array_equal(model.predict(data), model.classes_[score.argmax(axis=1)])
        assert model.score(data, names) > 0.93

    def test_data_trees(self, iris):
        data, _, model = iris
        assert len(model.posterior_) == len(model.hyperparameters_) == 3
        tree = model.to_datatree(draws=10, chains=2, random_state=0)
        assert tree["posterior"]["f"].dims == ("class", "chain", "draw", "obs_id")
        assert tree["posterior"]["class"].to_numpy().tolist() == model.classes_.tolist()
        assert tree["constant_data"]["X"].shape == (75, 4)
        tree = model.sample_latent(data[:2], draws=10, chains=2, random_state=0)
        assert tree["predictions"]["p"].sizes == {"class": 3, "chain": 2, "draw": 10, "pred_id": 2}
        assert tree["predictions_summary"]["p_mean"].dims == ("class", "pred_id")

    @pytest.mark.slow(ci=True)
    def test_on_a_dask_cluster(self, iris, dask_cluster):
        data, names, model = iris
        with dask_cluster.get_client() as client, joblib.parallel_config(backend="dask"):
            spread = fast().fit(data, names)
            assert len(client.scheduler_info()["workers"]) == 2
        np.testing.assert_allclose(spread.predict_proba(data), model.predict_proba(data), rtol=1e-6)


def test_two_classes_together_are_as_ever(fitted):
    model = fast(multi_class="exact").fit(X, Y)  # by one search and with one seed, as without it
    np.testing.assert_array_equal(model.predict_proba(NEW), fitted.predict_proba(NEW))


class TestKernels:
    @pytest.mark.parametrize(("kernel", "ard"), [("matern32", False), ("matern52", True)])
    def test_named(self, kernel, ard):
        model = fast(kernel=kernel, ard=ard, hyperparameters="maximize").fit(X, Y)
        assert model.score(NEW, NEW_Y) > 0.8
        assert model.hyperparameters_.point["ls"].shape == ((2,) if ard else ())

    @pytest.mark.parametrize(("kernel", "scale"), [("rbf", 1e-6), ("nn", 1e6)])
    def test_units_do_not_matter(self, kernel, scale):
        """Starts are at the scale of the inputs, so that the whole search is."""
        model, other = fast(kernel=kernel).fit(X, Y), fast(kernel=kernel).fit(scale * X, Y)
        p = model.predict_proba(NEW)
        np.testing.assert_allclose(other.predict_proba(scale * NEW), p, atol=1e-3)

    def test_far_from_the_origin(self, fitted):
        """Times of a day in seconds since 1970: distances must not drown in round-off."""
        model = fast().fit(X + 1e9, Y)
        np.testing.assert_allclose(
            model.predict_proba(NEW + 1e9), fitted.predict_proba(NEW), atol=1e-3
        )
        again = pickle.loads(pickle.dumps(model))
        assert again.score(NEW + 1e9, NEW_Y) > 0.85

    def test_constant_columns(self):
        padded = np.column_stack([X, np.full(70, 3.0)])
        options = {"ard": True, "hyperparameters": "maximize"}
        model = fast(**options).fit(padded, Y)
        p = model.predict_proba(np.column_stack([NEW, np.full(60, 3.0)]))
        # The same search, but for a coordinate that does not move.
        np.testing.assert_allclose(p, fast(**options).fit(X, Y).predict_proba(NEW), atol=0.01)
        assert np.isfinite(model.predict_proba(np.column_stack([NEW, np.zeros(60)]))).all()
        assert np.isfinite(fast().fit(np.ones((4, 2)), [0, 1, 0, 1]).predict_proba(X)).all()


class TestWarmStart:
    @pytest.mark.filterwarnings("ignore::pymc_skewgp.BoundaryOptimumWarning")
    def test_it_does_not_leave_the_box_of_the_first_search(self):
        """Labels that are separable would send the variance ever further, a fit at a time."""
        X = np.random.default_rng(1).normal(size=(30, 3))
        model = fast(warm_start=True)
        for n_pseudo_points in (0, 0, 1):
            model.set_params(n_pseudo_points=n_pseudo_points).fit(X, X[:, 0] > 0)
            # A thousand times the 2 that a search starts from; it once ended at 2834.
            assert model.hyperparameters_.point["eta"] <= 2000 * (1 + 1e-9)

    def test_goes_on_from_the_last_fit(self):
        model = SkewGPClassifier(warm_start=True, random_state=0).fit(X, Y)
        first = model.hyperparameters_
        model.fit(X, Y)
        again = model.hyperparameters_
        assert set(again.runs["method"].values) == {"ep", "twisted"}
        assert again.runs.sizes["run"] < first.runs.sizes["run"]  # no restarts
        # At the same optimum: a search stops within .02 nats.
        assert again.log_marginal_likelihood.value == pytest.approx(
            first.log_marginal_likelihood.value, abs=0.05
        )
        np.testing.assert_allclose(
            again.path["x"].values[0], np.log([first.point[k] for k in ("eta", "ls")]), rtol=1e-6
        )

    def test_pseudo_points_from_the_kernel_of_the_gp(self):
        model = fast(warm_start=True).fit(X, Y)
        kernel = np.log([model.hyperparameters_.point[k] for k in ("eta", "ls")])
        plain = model.log_marginal_likelihood_.value
        model.set_params(n_pseudo_points=2).fit(X, Y)
        np.testing.assert_allclose(model.hyperparameters_.path["x"].values[0, :2], kernel)
        cold = fast(n_pseudo_points=2).fit(X, Y)
        assert cold.hyperparameters_.point["pseudo_points"].shape == (2, 2)
        assert np.isfinite(cold.predict_proba(NEW)).all()
        # Two points from other rows: each finds half of what there is to gain, or more.
        gains = [m.log_marginal_likelihood_.value - plain for m in (model, cold)]
        assert min(gains) > max(0.5, max(gains) / 2)

    def test_every_class_from_its_own(self, iris):
        data, names, _ = iris
        # Two seeds in ten warn of few effective draws: the first class is separable.
        model = QuickClassifier(n_restarts=0, warm_start=True, random_state=2).fit(data, names)
        points = [fit.point for fit in model.hyperparameters_]
        model.fit(data, names)
        for point, fit in zip(points, model.hyperparameters_, strict=True):
            assert np.exp(fit.path["x"].values[0, 1]) == pytest.approx(float(point["ls"]))

    @pytest.mark.parametrize(
        ("data", "options", "message"),
        [
            ((X, Y + 1), {}, "of classes [0 1], and now it is [1 2]"),
            ((X[:, :1], Y), {}, "of n_features_in_ 2, and now it is 1"),
            ((X, Y), {"kernel": "nn"}, "of kernel rbf, and now it is nn"),
            ((X, Y), {"ard": True}, "of ard False, and now it is True"),
        ],
    )
    def test_of_another_process(self, data, options, message, fitted):
        model = copy.copy(fitted).set_params(warm_start=True, **options)
        with pytest.raises(ValueError, match=re.escape(message)):
            model.fit(*data)


class TestBatches:
    def test_points_leave_the_kernel_and_gain_evidence(self):
        rng = np.random.default_rng(1)
        x = rng.normal(size=(240, 2))
        y = x[:, 0] + 0.5 * rng.normal(size=240) > 0
        # Pseudo-points are of f without a level.
        plain = fast(batch_size=60, fit_intercept=False).fit(x, y)
        skew = fast(batch_size=60, n_pseudo_points=2).fit(x, y)
        fit = skew.hyperparameters_
        for name in ("eta", "ls"):
            np.testing.assert_allclose(fit.point[name], plain.hyperparameters_.point[name])
        assert fit.kind == "composite"
        assert fit.std_error == {}
        assert skew.posterior_.sun.mu.size == 240  # the posterior has all data
        prior = skew.posterior_.prior
        cov = prior.phase[:, None] * prior.phase * prior.covariance("X", prior.pseudo_points)
        # p(y, signs) <= p(y), so that the evidence gains at most -log P(signs).
        most = -multivariate_normal(cov=cov).logcdf(np.zeros(2))
        gain = skew.log_marginal_likelihood_.value - plain.log_marginal_likelihood_.value
        # Half of what is to be had, as a batch of 60 sees it; evidences are good to .03 nats.
        assert 0.5 * most < gain < most + 0.1

    def test_auto(self):
        sizes = [SkewGPClassifier()._settings(n).batch_size for n in (1500, 1501)]
        assert sizes == [None, 500]
        assert SkewGPClassifier(batch_size=100)._settings(100).batch_size is None


def test_optima_far_out_are_named():
    """Rare positives with large weights have no optimum; a box that is small shows it soon."""
    rng = np.random.default_rng(1)
    features, rare = rng.normal(size=(40, 2)), np.arange(40) < 2
    model = fast(fit_intercept=False)  # a level is enough for rare positives
    search = model._search
    model._search = replace(search, method="ep", half_width=2.0)
    with pytest.warns(BoundaryOptimumWarning, match=r"^eta = 14\.8: .*rare with large weights"):
        model.fit(features, rare, sample_weight=np.where(rare, 10, 1))
    assert model.hyperparameters_.at_bound == ["eta"]


def test_amplitudes_that_run_off_are_named():
    """Repeated positives among negatives: the less noise the better, without an end."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=(30, 1))
    rare = np.zeros(30, int)
    rare[np.argsort(-x[:, 0] - rng.normal(0, 0.7, 30))[:3]] = 1
    weights = np.where(rare, 10, 1)
    model = fast(fit_intercept=False)
    model._search = replace(QUICK, optimizer=OptimizerSettings(newton_gain=np.inf))
    said = r"^eta = 2e\+03, where the log evidence is 0\.4 above that at 100 and does not fall"
    with pytest.warns(BoundaryOptimumWarning, match=said):
        model.fit(x, rare, sample_weight=weights)
    # By draws from the posteriors, with errors of .06: from 100 to 2000, and hardly beyond.
    ls = float(model.hyperparameters_.point["ls"])
    at_100, far = [
        sg.SkewGP(cov_func=eta**2 * pm.gp.cov.ExpQuad(1, ls=ls))
        .posterior(x, rare, weights=weights)
        .log_marginal_likelihood.value
        for eta in (100.0, 20_000.0)
    ]
    here = model.log_marginal_likelihood_.value
    assert at_100 < here - 0.2
    assert far > here - 0.3


def test_no_word_of_amplitudes_that_do_not_matter():
    """The first kind of iris is separable, and any eta above some 50 gives the same forecasts."""
    data, target = load_iris(return_X_y=True)
    model = fast(fit_intercept=False).fit(data, target == 0)
    eta = float(model.hyperparameters_.point["eta"])
    assert eta > 100
    ls = float(model.hyperparameters_.point["ls"])
    new = 0.5 * (data[:50] + data[50:100])  # between the two
    other = sg.SkewGP(cov_func=100.0**2 * pm.gp.cov.ExpQuad(4, ls=ls)).posterior(data, target == 0)
    # Monte Carlo errors of .01 each.
    np.testing.assert_allclose(
        model.predict_proba(new)[:, 1], other.probability(new).value, atol=0.05
    )


LEVEL_X = np.linspace(-1.0, 1.0, 30)[:, None]
RARE = np.arange(30) % 10 == 0  # three of them


def nothing(d):
    """A process of no variance: f is the level, and Phi of it uniform a priori."""
    return 1e-12 * pm.gp.cov.ExpQuad(d, ls=1.0)


def apart(d):
    """Of variance 4 and so short that rows know nothing of each other."""
    return 4.0 * pm.gp.cov.ExpQuad(d, ls=1e-3)


def level_alone(positives, negatives):
    """Shares and their weights where labels are of the level alone: Gauss-Hermite, 100 nodes.

    The level, over the standard deviation of f + noise, is N(sqrt(2) z, 1), Phi(z) being the share.
    """
    nodes, mass = np.polynomial.hermite_e.hermegauss(100)
    level = nodes + np.sqrt(2.0) * norm.ppf(positives / (positives + negatives))
    weights = mass * norm.cdf(level) ** positives * norm.cdf(-level) ** negatives
    return norm.cdf(level), weights / weights.sum()


class TestLevelAndWeights:
    @pytest.mark.parametrize(
        ("kernel", "options", "weights", "a", "b"),
        [
            (nothing, {}, None, 3.0, 27.0),
            (apart, {}, None, 3.0, 27.0),
            (nothing, {}, np.where(RARE, 2.5, 0.3), 3 * 2.5, 27 * 0.3),
            (nothing, {"class_weight": "balanced"}, None, 15.0, 15.0),
            (nothing, {"class_weight": {True: 0.5}}, np.where(RARE, 3, 2), 4.5, 54.0),
        ],
    )
    def test_probabilities_and_their_deviation(self, kernel, options, weights, a, b):
        """Within .003: of draws some ten-thousandths, of z in steps of .05 as much."""
        model = SkewGPClassifier(kernel, random_state=0, **options)
        p, sd = model.fit(LEVEL_X, RARE, sample_weight=weights).predict_proba(
            [[0.02], [70.0]], return_std=True
        )
        share, weight = level_alone(a, b)
        mean = weight @ share
        np.testing.assert_allclose(p, [[1.0 - mean, mean]] * 2, atol=3e-3)
        if kernel is nothing:  # where f has a variance, that of the probability has more parts
            np.testing.assert_allclose(sd, np.sqrt(weight @ (share - mean) ** 2), atol=3e-3)

    def test_deviations_of_several_classes(self):
        """One against the rest, normalised; 4000 draws know a deviation to 2 %."""
        y = np.arange(30) % 3 + (np.arange(30) % 5 == 0)  # 8, 10, 10 and 2
        model = SkewGPClassifier(nothing, random_state=0).fit(LEVEL_X, y)
        p, sd = model.predict_proba([[0.0]], return_std=True)
        counts = np.bincount(y)
        rng, each = np.random.default_rng(0), [level_alone(k, 30 - k) for k in counts]
        drawn = np.column_stack([rng.choice(x, 200_000, p=weight) for x, weight in each])
        drawn /= drawn.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(sd[0], drawn.std(axis=0), rtol=0.07)
        together = SkewGPClassifier(nothing, random_state=0, multi_class="exact").fit(LEVEL_X, y)
        _, spread = together.predict_proba([[0.0]], return_std=True)
        # Of a share of n rows, roughly.
        np.testing.assert_allclose(spread[0], np.sqrt(p[0] * (1 - p[0]) / 32), rtol=0.3)

    def test_far_from_the_data_is_the_base_rate(self):
        rng = np.random.default_rng(2)
        x = rng.uniform(-3.0, 3.0, (150, 1))
        y = np.abs(x[:, 0] - 2.5) + 0.2 * rng.normal(size=150) < 0.2
        far = [[1000.0]]
        level, none = fast().fit(x, y), fast(fit_intercept=False).fit(x, y)
        assert none.predict_proba(far)[0, 1] == pytest.approx(0.5, abs=1e-9)
        # One cluster of positives, some .1 of the lengthscales that are seen.
        assert abs(level.predict_proba(far)[0, 1] - y.mean()) < 0.04

    def test_averages_have_deviations(self):
        model = SkewGPClassifier(random_state=0, hyperparameters="average").fit(X[:30], Y[:30])
        _, sd = model.predict_proba(NEW[:3], return_std=True)
        drawn = model.sample_latent(NEW[:3], draws=2000, random_state=0)["predictions"]["p"]
        # 8000 draws, in proportion to the weights of 32 points.
        np.testing.assert_allclose(sd[:, 1], drawn.std(("chain", "draw")), rtol=0.1)


def test_few_rows_of_many_lengthscales_are_averaged():
    of = SkewGPClassifier(ard=True)
    assert of._averages(300)
    assert not of._averages(301)
    assert not SkewGPClassifier()._averages(300)
    others = {"kernel": nothing}, {"warm_start": True}, {"n_pseudo_points": 1}
    for options in (*others, {"multi_class": "softmax"}, {"hyperparameters": "maximize"}):
        assert not SkewGPClassifier(**{"ard": True, **options})._averages(300)
    assert not sg.SkewGPRegressor(ard=True, noise="varying")._averages(300)
    assert sg.SkewGPRegressor(ard=True)._averages(300)


def test_softmax_of_a_level_alone_by_quadrature():
    """The difference of two levels is N(0, 2): Gauss-Hermite rule of 100 nodes."""
    nodes, mass = np.polynomial.hermite_e.hermegauss(100)
    p = expit(np.sqrt(2.0) * nodes)
    for powers in (None, np.where(RARE, 2.5, 0.3)):
        k, n = (3, 27) if powers is None else (7.5, 8.1)
        weights = mass * p**k * (1.0 - p) ** n / mass.sum()
        model = SkewGPClassifier(nothing, random_state=0, multi_class="softmax")
        model.fit(LEVEL_X, RARE, sample_weight=powers)
        evidence = model.log_marginal_likelihood_
        # Four standard errors, of which each is below .02.
        assert abs(evidence.value - np.log(weights.sum())) < 4 * evidence.std_error + 1e-6
        assert evidence.std_error < 0.02
        share, (found, sd) = weights / weights.sum(), model.predict_proba([[0.0]], True)
        np.testing.assert_allclose(found[0, 1], share @ p, atol=5e-3)
        spread = np.sqrt(share @ p**2 - (share @ p) ** 2)
        np.testing.assert_allclose(sd[0], spread, rtol=0.1)  # of 4000 draws


class TestInterruption:
    """From the keyboard, after some evaluations."""

    def interrupted(self, monkeypatch, after):
        left, run = [after], EvaluationLog.run

        def patched(self, method, function):
            logged = run(self, method, function)

            def evaluated(point):
                left[0] -= 1
                if left[0] == -1:
                    raise KeyboardInterrupt
                return logged(point)

            return evaluated

        monkeypatch.setattr(EvaluationLog, "run", patched)

    def test_the_best_point_so_far(self, monkeypatch, iris):
        data, names, _ = iris
        self.interrupted(monkeypatch, 4)
        with pytest.warns(InterruptedSearchWarning, match="hyperparameters are the best ones so"):
            model = fast().fit(data, names)
        first, *others = model.hyperparameters_
        assert first.path["total"].size == 4
        best = first.path["x"].values[first.path["total"].values.argmax()]
        np.testing.assert_allclose(np.log(first.point["eta"]), best[0])
        assert not first.converged
        for fit in others:  # at the start
            assert float(fit.point["eta"]) == pytest.approx(2.0)
        assert model.predict_proba(data).shape == (75, 3)

    def test_before_the_first_evaluation(self, monkeypatch):
        self.interrupted(monkeypatch, 0)
        with pytest.raises(KeyboardInterrupt):
            fast().fit(X, Y)

    def test_other_estimators(self, monkeypatch):
        self.interrupted(monkeypatch, 3)
        with pytest.warns(InterruptedSearchWarning):
            model = sg.SkewGPRegressor(random_state=0).fit(X, X[:, 0])
        assert np.isfinite(model.predict(NEW)).all()


def test_lengthscales_that_are_shrunk_together():
    """Their prior is that of log ls_j = c + tau (1.5 / .7 mu + d_j), by quadrature over tau."""
    with pm.Model() as model:
        Kernel("rbf", ard=True).made(np.random.default_rng(0).normal(size=(20, 3)))
    at = np.array([0.3, 1.7, -0.4])
    density = model.compile_logp(vars=model["log_ls"], mode="FAST_COMPILE")
    found = density({"log_ls": at, "eta_log__": 0.0})
    centre = model["log_ls"].owner.inputs[3].eval(mode="FAST_COMPILE")
    # tau^2 / .7^2 is inverse gamma with shape and scale 2: four degrees of freedom.
    tau = np.linspace(1e-3, 60.0, 200_001)
    prior = invgamma(2.0, scale=2.0).pdf(tau**2) * 2.0 * tau
    cov = 0.7**2 * np.eye(3) + 1.5**2
    off = at - centre
    square = off @ np.linalg.solve(cov, off)
    normal = np.exp(-0.5 * square / tau**2) / np.sqrt(np.linalg.det(2 * np.pi * cov)) / tau**3
    expected = np.log(np.trapezoid(prior * normal, tau))
    assert found == pytest.approx(expected, abs=1e-5)
    # Rows that are equal in what has a tiny lengthscale: squared distances would be round-off.
    X = np.random.default_rng(0).integers(0, 3, (60, 3)) - 1.1
    with pm.Model() as model:
        K = Kernel("rbf", ard=True).made(X)[0](X)
    tiny = np.log([1e-6, 1.0, 1e-9])
    K = K.eval({model["log_ls"]: tiny, model["eta"]: 1.0}, mode="FAST_COMPILE")
    same = (X[:, None, [0, 2]] == X[:, [0, 2]]).all(axis=-1)
    exact = same * np.exp(-0.5 * (X[:, None, 1] - X[:, 1]) ** 2)
    np.testing.assert_allclose(K, exact, atol=1e-9)
