"""The posterior against quadrature, the Ornstein-Uhlenbeck filter, the SUN calculus and itself.

Most comparisons go through `agree`: 16 posteriors with independent seeds, their mean within 5 of
its own standard errors of the truth. That is a t statistic of 15 degrees: false alarms 1.6e-4 a
number compared for a new seed, none for the seeds fixed here. The floor of 1e-3 posterior standard
deviations is the accuracy of the oracles' grids and the 1/n_draws bias of normalised weights.
"""

from functools import cache
from typing import Any

import arviz as az
import numpy as np
import pytest
import xarray as xr
from approximation_oracles import ou, rbf, slope
from likelihood_oracles import function_grid
from oracles import Posterior, brute_log_prob, ou_probit_log_evidence, ou_probit_marginals
from scipy.special import log_ndtr, ndtr
from scipy.stats import norm, skew
from site_oracles import log_signs

from pymc_skewgp import SUN, SkewGPPosterior
from pymc_skewgp._gaussian.escalation import GoalSettings, RectangleSampler, Rung, SamplerSettings

N_SEEDS = 16
# Settings under which every run ends on the last rung, or on a poor first one.
NEVER = 2.0  # a relative ESS that no run reaches
SETTINGS = {
    "twisted": SamplerSettings(),
    "tempered": SamplerSettings(draws=GoalSettings(NEVER, NEVER)),
    "poor": SamplerSettings(first=Rung(0.35, 0.64), draws=GoalSettings(0.0, 0.0)),
}


def under(settings: SamplerSettings, posterior: SkewGPPosterior) -> SkewGPPosterior:
    """The same posterior, its latent draws made under other thresholds."""
    sampler = posterior._fit.sampler
    posterior._fit.sampler = RectangleSampler(sampler.cov, sampler.lower, sampler.upper, settings)
    return posterior


def linear(X, Xs=None, diag=False):
    return (X**2).sum(axis=1) if diag else X @ (X if Xs is None else Xs).T


def agree(values, truth, unit=1.0) -> None:
    """The mean over seeds (first axis) is `truth`; see the head of this file."""
    values, truth = np.asarray(values, dtype=float), np.asarray(truth, dtype=float)
    error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
    gap = np.abs(values.mean(axis=0) - truth)
    worst = np.max(gap / (5.0 * error + 1e-3 * np.asarray(unit)))
    assert worst < 1.0, f"{worst:.2f} tolerances off: {values.mean(axis=0)} against {truth}"


def moments(f: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, covariance and skewness of draws (n_draws, n)."""
    return f.mean(axis=0), np.cov(f.T, ddof=0).reshape(f.shape[1], -1), skew(f)


def flat(dt: xr.DataTree, group: str = "posterior", name: str = "f") -> np.ndarray:
    values = dt[group][name].values
    return values.reshape(-1, values.shape[-1])


def problem(n: int, seed: int = 0, width: float = 6.0) -> tuple[np.ndarray, np.ndarray]:
    """Inputs, and labels that mostly follow a sine."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.0, width, n)
    return x, (rng.random(n) < ndtr(2.0 * np.sin(x))).astype(int)


def covariance_gap(draws: np.ndarray, cov: np.ndarray) -> float:
    """Largest error of a sample covariance in standard errors (Gaussian ones, times 1.3).

    1.3 covers an excess kurtosis up to 1.4, more than these posteriors have.
    """
    sd = np.sqrt((np.outer(cov.diagonal(), cov.diagonal()) + cov**2) / len(draws))
    return float(np.max(np.abs(np.cov(draws.T) - cov) / (1.3 * sd)))


def check_against(truth: Posterior, x, y, **prior) -> None:
    """Evidence; moments by `marginals`, by `predict` at the data, by `sample` and by `sun`."""
    sd = np.sqrt(truth.cov.diagonal())
    posteriors = [
        SkewGPPosterior(x, y, mean_func=slope, n_draws=512, random_seed=seed, **prior)
        for seed in range(N_SEEDS)
    ]
    agree([p.log_marginal_likelihood.value for p in posteriors], truth.log_evidence)
    summaries = [
        p.predict(x, draws=1, chains=1, quantiles=0.5)["predictions_summary"] for p in posteriors
    ]
    agree([g["f_mean"].values for g in summaries], truth.mean, sd)
    agree([g["f_sd"].values for g in summaries], sd, sd)
    agree([g["f_skewness"].values for g in summaries], truth.skewness)
    at_data = [p.marginals().moments for p in posteriors]
    agree([m.mean for m in at_data], truth.mean, sd)
    agree([m.sd for m in at_data], sd, sd)
    # 3000 draws each, of which one seed gives means to 2% and covariances to 4%.
    drawn = [moments(flat(p.sample(750, random_seed=i))) for i, p in enumerate(posteriors)]
    for values, target, unit in zip(
        zip(*drawn, strict=True),
        (truth.mean, truth.cov, truth.skewness),
        (sd, np.outer(sd, sd), 1.0),
        strict=True,
    ):
        agree(values, target, unit)
    # 4096 quasi-random draws: errors were under .003 deviations; .02 is 1.3 plain standard errors.
    sun = posteriors[0].sun
    np.testing.assert_allclose(sun.mean(n_draws=4096) / sd, truth.mean / sd, atol=0.02)
    np.testing.assert_allclose(
        sun.cov(n_draws=4096) / np.outer(sd, sd), truth.cov / np.outer(sd, sd), atol=0.03
    )
    np.testing.assert_allclose(sun.skew(n_draws=4096), truth.skewness, atol=0.06)


class TestGaussianProcess:
    def test_ornstein_uhlenbeck_by_filter(self):
        variance = 25.0
        x, y = problem(60, seed=60)
        truth = ou_probit_marginals(x, y, 2.0, variance, mean=-0.3)
        sd = np.sqrt(truth.variance)
        prior = {"cov_func": ou(2.0, variance), "mean_func": lambda X: np.full(len(X), -0.3)}
        posteriors = [SkewGPPosterior(x, y, random_seed=k, **prior) for k in range(N_SEEDS)]
        evidence = ou_probit_log_evidence(x, y, 2.0, variance, mean=-0.3)
        agree([p.log_marginal_likelihood.value for p in posteriors], evidence)
        summaries = [
            p.predict(x[::5], draws=1, chains=1, quantiles=0.5)["predictions_summary"]
            for p in posteriors
        ]
        agree([g["f_mean"].values for g in summaries], truth.mean[::5], sd[::5])
        agree([g["f_sd"].values for g in summaries], sd[::5], sd[::5])
        skewness = truth.third / sd**3
        agree([g["f_skewness"].values for g in summaries], skewness[::5])
        drawn = [flat(p.sample(250, random_seed=i)) for i, p in enumerate(posteriors)]
        # About the true mean: the skewness of 1000 draws is biased towards 0, here by .006 to .03.
        for power, moment in ((1, 0.0 * sd), (2, truth.variance), (3, truth.third)):
            values = [((f - truth.mean) ** power).mean(axis=0) for f in drawn]
            agree(values, moment, 10.0 * sd**power if power > 1 else sd)

    def test_stated_errors_of_the_moments(self):
        """Errors over stated ones: a t of 15 degrees, whose root mean square is 1.07.

        Over 40 seeds and 40 points, some eight of them independent, it varies by .05: the bounds
        are four deviations off on either side, and .15 more above for third powers. Errors of
        independent draws would give .3 for the mean, which mirrored points know better.
        """
        x, y = problem(40, seed=3)
        mean, variance, _ = ou_probit_marginals(x, y, 2.0, 9.0)
        off = []
        for seed in range(40):
            posterior = SkewGPPosterior(x, y, cov_func=ou(2.0, 9.0), random_seed=seed)
            assert np.array_equal(np.bincount(posterior.latent.replicate), np.full(16, 64))
            marginals = posterior.marginals(x)
            found, errors = marginals.moments, marginals.moment_errors
            off.append(
                [(found.mean - mean) / errors.mean, (found.sd - np.sqrt(variance)) / errors.sd]
            )
        size = np.sqrt(np.square(off).mean(axis=(0, 2)))
        assert (size > 0.87).all()
        assert (size < 1.42).all()


# Pseudo-points, their phases and truncation, and labels.
SKEWED = {
    "none": ([], [], [], [0, 1]),
    "two": ([0.9, 2.0], [1.0, -1.0], [0.4, -0.2], [0]),
    "two, alike": ([-0.4, 0.3], [-1.0, -1.0], [0.0, 0.7], [1]),
}


class TestPseudoPoints:
    @pytest.mark.parametrize("name", SKEWED)
    def test_by_quadrature(self, name):
        r, phase, truncation, y = SKEWED[name]
        x, n = np.array([0.2, 1.4])[: len(y)], len(y)
        kernel, side = rbf(4.0), np.append(np.ones(n), phase)
        cov = side[:, None] * kernel(np.append(x, r)[:, None]) * side
        mean, shift = slope(x[:, None]), 2.0 * np.array(truncation)

        def log_p(f):
            labels = log_ndtr((2.0 * np.array(y) - 1.0) * f).sum(axis=1)
            return labels + log_signs((f - mean).T, cov, n, shift) if r else labels

        grid = function_grid(mean, cov[:n, :n], log_p)
        before = brute_log_prob(-shift, np.inf, cov[n:, n:]) if r else 0.0
        truth = Posterior(grid.log_evidence - before, grid.mean, grid.cov, grid.skewness)
        signs = {"pseudo_points": r, "phase": phase, "truncation": truncation} if r else {}
        check_against(truth, x, y, cov_func=kernel, **signs)

    @pytest.mark.parametrize("signs", [0, 2])
    def test_sun_is_the_conditioned_prior(self, signs):
        x, y = problem(20, seed=2)
        X, R = x[:, None], np.array([[0.5], [3.0]])[:signs]
        phase, gamma = np.array([-1.0, 1.0])[:signs], np.array([0.2, -0.4])[:signs]
        kernel, scale = ou(2.0, 3.0), phase / np.sqrt(3.0)
        latent_cov = scale[:, None] * kernel(R) * scale if signs else [[]]
        prior = SUN.from_cross_cov(slope(X), kernel(X), kernel(X, R) * scale, gamma, latent_cov)
        expected = prior.condition(np.diag(2.0 * y - 1.0), np.zeros(20), np.eye(20))
        given = {"pseudo_points": R, "phase": phase, "truncation": gamma} if signs else {}
        posterior = SkewGPPosterior(x, y, cov_func=kernel, mean_func=slope, n_draws=4096, **given)
        for name in ("mu", "scale", "cross_cov", "truncation", "latent_cov"):
            found = getattr(posterior.sun, name)
            np.testing.assert_allclose(found, getattr(expected, name), atol=1e-11)
        evidence = posterior.log_marginal_likelihood
        before = prior.log_normalizer.value if signs else 0.0
        error = np.hypot(evidence.std_error, expected.log_normalizer.std_error)
        # t of 7 degrees: 1.6e-3.
        assert abs(evidence.value - expected.log_normalizer.value + before) < 5 * error + 1e-9

    def test_many_close_points_are_survived(self):
        """Eight pseudo-points within one lengthscale: Gamma has condition number 1e13."""
        x, y = problem(40, seed=7)
        posterior = SkewGPPosterior(x, y, cov_func=rbf(), pseudo_points=np.linspace(1, 2, 8))
        estimate = posterior.log_marginal_likelihood
        one = SkewGPPosterior(x, y, cov_func=rbf(), pseudo_points=[1.0, 2.0])
        # Two at the ends ask for nearly the same: f > 0 between them (they differ by what dips).
        assert estimate.std_error < 0.1
        assert abs(estimate.value - one.log_marginal_likelihood.value) < 0.5
        f = flat(posterior.sample(100, random_seed=1))
        assert np.isfinite(f).all()


def summary(posterior: SkewGPPosterior, new: Any, name: str) -> np.ndarray:
    tree = posterior.predict(new, draws=1, chains=1, quantiles=0.5)
    return tree["predictions_summary"][name].values


SKEWED_PRIOR = {"pseudo_points": [1.0, 4.0], "phase": [1, -1], "truncation": [0.2, -0.3]}


class TestPrediction:
    def test_probability_is_a_ratio_of_evidences(self):
        """p(y* = 1 | y) = p(y, y* = 1) / p(y), and the two labels' evidences add up."""
        x, y = problem(20, seed=8)
        new = 2.7
        kwargs = {"cov_func": ou(2.0, 5.0), "mean_func": slope, **SKEWED_PRIOR}

        def make(seed, *label):
            return SkewGPPosterior(
                np.append(x, [new] * len(label)), [*y, *label], random_seed=seed, **kwargs
            )

        direct = np.array([summary(make(i), [new], "p_mean")[0] for i in range(N_SEEDS)])
        log_p = np.array(
            [
                [make(k, *label).log_marginal_likelihood.value for label in ((), (1,), (0,))]
                for k in range(100, 100 + N_SEEDS)
            ]
        )
        agree(direct - np.exp(log_p[:, 1] - log_p[:, 0]), 0.0)
        agree(np.exp(log_p[:, 1] - log_p[:, 0]) + np.exp(log_p[:, 2] - log_p[:, 0]), 1.0)
        # Corollary 2 of the paper as printed gives 1/2 wherever one looks.
        assert abs(direct.mean() - 0.5) > 0.1

    def test_far_from_everything_is_the_prior(self):
        x, y = problem(20, seed=9)
        posterior = SkewGPPosterior(x, y, cov_func=rbf(3.0), mean_func=slope, **SKEWED_PRIOR)
        tree = posterior.predict([-60.0, 70.0], draws=10_000, random_seed=0)
        group = tree["predictions_summary"]
        mean = slope(np.array([[-60.0], [70.0]]))
        np.testing.assert_allclose(group["f_mean"], mean, rtol=1e-12)
        np.testing.assert_allclose(group["f_sd"], np.sqrt(3.0), rtol=1e-12)
        np.testing.assert_allclose(group["f_skewness"], 0.0, atol=1e-12)
        np.testing.assert_allclose(group["p_mean"], ndtr(mean / 2.0), rtol=1e-12)
        expected = mean + np.sqrt(3.0) * norm.ppf([[0.055], [0.5], [0.945]])
        np.testing.assert_allclose(group["f_quantile"], expected, rtol=1e-9)
        # 40000 independent draws, 5 standard errors (6e-7 each).
        f = flat(tree, "predictions")
        assert np.all(np.abs(f.mean(axis=0) - mean) < 5 * np.sqrt(3.0 / len(f)))
        assert covariance_gap(f, 3.0 * np.eye(2)) < 4.5

    @pytest.mark.parametrize("route", ["twisted", "tempered"])
    def test_stated_error_of_the_probabilities(self, route):
        """The spread over seeds is at most what p_mean_se says, on every route.

        Exact errors would give a ratio of 1 +- .18 at one point (16 seeds) and less over nine
        partly correlated ones: 1.45 is 3 deviations. Quasi-random draws do better than stated.
        """
        x, y = problem(30, seed=11)
        new = np.linspace(-1.0, 8.0, 9)
        p_mean, p_mean_se = [], []
        for seed in range(16):
            posterior = SkewGPPosterior(x, y, cov_func=ou(2.0, 9.0), n_draws=128, random_seed=seed)
            under(SETTINGS[route], posterior)
            group = posterior.predict(new, draws=1, chains=1, quantiles=0.5)["predictions_summary"]
            assert posterior.latent.method == route
            p_mean.append(group["p_mean"].values)
            p_mean_se.append(group["p_mean_se"].values)
        ratio = np.var(p_mean, axis=0, ddof=1) / np.mean(np.square(p_mean_se), axis=0)
        assert np.sqrt(ratio.mean()) < 1.45
        assert np.all(np.array(p_mean_se) > 0)

    def test_no_draws(self):
        """Summaries alone do not need the covariance of the new points among themselves."""
        x, y = problem(8)

        def kernel(X, Xs=None, diag=False):
            assert diag or len(X) == 8
            return rbf()(X, Xs, diag)

        new = np.linspace(0.0, 6.0, 20)
        tree = SkewGPPosterior(x, y, cov_func=kernel).predict(new, draws=0)
        assert "predictions" not in tree.children
        full = SkewGPPosterior(x, y, cov_func=rbf()).predict(new)
        xr.testing.assert_equal(
            tree["predictions_summary"].to_dataset(), full["predictions_summary"].to_dataset()
        )
        assert tree["predictions_summary"].attrs["method"] == "twisted"

    def test_zero_prior_variance(self):
        """A linear kernel at 0 knows that f = 0: nothing to divide by, no NaN."""
        tree = SkewGPPosterior([0.0, 1.0], [1, 0], cov_func=linear).predict([0.0, -1.0])
        for name, value in tree["predictions_summary"].data_vars.items():
            assert np.isfinite(value).all(), name
        # The quantile search gives a point mass a width of 1e-12.
        np.testing.assert_allclose(tree["predictions_summary"]["f_quantile"][:, 0], 0, atol=1e-11)
        assert (flat(tree, "predictions")[:, 0] == 0).all()


@cache
def covariance_of_eight() -> np.ndarray:
    x, y = problem(8, seed=12)
    return SkewGPPosterior(x, y, cov_func=ou(2.0, 9.0)).sun.cov(n_draws=2**15)


class TestMethods:
    @pytest.mark.parametrize("method", ["twisted", "lin_ess", "tempered"])
    def test_each_is_right(self, method):
        x, y = problem(8, seed=12)
        truth = ou_probit_marginals(x, y, 2.0, 9.0)
        sd = np.sqrt(truth.variance)
        posterior = SkewGPPosterior(x, y, cov_func=ou(2.0, 9.0))
        cov = covariance_of_eight()
        if method == "tempered":
            under(SETTINGS[method], posterior)
        asked = "twisted" if method == "tempered" else method
        trees = [posterior.sample(1000, 2, asked, random_seed=i) for i in range(N_SEEDS)]
        assert {tree["posterior"].attrs["method"] for tree in trees} == {method}
        drawn = [moments(flat(tree)) for tree in trees]
        agree([m[0] for m in drawn], truth.mean, sd)
        # Floors of 1%: the reference covariance is a Monte Carlo value good to .3%, and centring
        # on the mean of few effective draws takes off as much.
        agree([m[1] for m in drawn], cov, 10 * np.outer(sd, sd))
        agree([m[1].diagonal() for m in drawn], truth.variance, 10 * truth.variance)
        agree([m[2] for m in drawn], truth.third / sd**3, 20.0)

    def test_short_chains_are_draws_of_the_posterior(self):
        """One draw a chain must be weighted like any other, however poor the proposal.

        Root mean square z over 30 inputs, correlated, of some 8 degrees: 1.8 has probability 1e-3.
        Draws of this proposal as they are give 4.
        """
        x, y = problem(30, seed=14)
        truth = ou_probit_marginals(x, y, 3.0, 16.0)
        posterior = under(SETTINGS["poor"], SkewGPPosterior(x, y, cov_func=ou(3.0, 16.0)))
        f = flat(posterior.sample(1, 1500, random_seed=3))
        z = (f.mean(axis=0) - truth.mean) / np.sqrt(truth.variance / len(f))
        assert np.sqrt(np.mean(z**2)) < 1.8

    def test_predictive_draws_are_weighted(self):
        """Their mean is that of the summaries, within 5 errors of both.

        Those of 40000 weighted draws, and the stated ones. Unweighted they would be off by .2
        standard deviations, some 20 errors.
        """
        x, y = problem(30, seed=14)
        posterior = SkewGPPosterior(x, y, cov_func=ou(3.0, 16.0), n_draws=2**15)
        under(SETTINGS["poor"], posterior)
        tree = posterior.predict(x, draws=10_000, random_seed=3)
        group = tree["predictions_summary"]
        gap = flat(tree, "predictions").mean(axis=0) - group["f_mean"].values
        own = group["f_sd"].values / np.sqrt(40_000 * group.attrs["relative_ess"])
        assert np.max(np.abs(gap) / np.hypot(own, group["f_mean_se"].values)) < 5


@pytest.fixture(scope="module")
def posterior() -> SkewGPPosterior:
    x, y = problem(9, seed=15)
    return SkewGPPosterior(np.column_stack([x, x**2]), y, cov_func=rbf(2.0, 2.0))


@pytest.fixture(scope="module")
def tree(posterior) -> xr.DataTree:
    return posterior.sample(200, 3, random_seed=1)


class TestDataTree:
    def test_groups(self, tree, posterior):
        assert set(tree.children) == {
            "posterior",
            "posterior_predictive",
            "sample_stats",
            "log_likelihood",
            "observed_data",
            "constant_data",
        }
        f = tree["posterior"]["f"]
        assert f.dims == ("chain", "draw", "obs_id")
        assert f.shape == (3, 200, 9)
        assert f.dtype == np.float64
        assert tree["observed_data"]["y"].dtype.kind == "i"
        assert tree["constant_data"]["X"].dims == ("obs_id", "feature")
        assert tree["sample_stats"]["log_weight"].shape == (3, 200)
        for name in ("chain", "draw", "obs_id", "feature"):
            size = tree["constant_data" if name == "feature" else "posterior"].sizes[name]
            group = tree["constant_data" if name == "feature" else "posterior"]
            np.testing.assert_array_equal(group[name], np.arange(size))

    def test_predictions(self, posterior):
        tree = posterior.predict(np.ones((4, 2)), draws=5, chains=2, quantiles=0.5)
        assert set(tree.children) == {
            "predictions",
            "predictions_summary",
            "predictions_constant_data",
        }
        for name, kind in (("f", "f"), ("p", "f"), ("y", "i")):
            assert tree["predictions"][name].dims == ("chain", "draw", "pred_id")
            assert tree["predictions"][name].shape == (2, 5, 4)
            assert tree["predictions"][name].dtype.kind == kind
        assert tree["predictions_summary"]["f_quantile"].dims == ("quantile", "pred_id")
        np.testing.assert_array_equal(tree["predictions_summary"]["quantile"], [0.5])
        for name in ("f_mean", "f_sd", "f_skewness", "p_mean", "p_mean_se"):
            assert tree["predictions_summary"][name].dims == ("pred_id",)
        assert tree["predictions_constant_data"]["X"].dims == ("pred_id", "feature")
        assert tree["predictions"].attrs["method"] == "twisted"
        f = tree["predictions"]["f"].values
        # Equal inputs are one value of f in every draw, up to round-off.
        assert np.ptp(f, axis=-1).max() < 1e-5

    @pytest.mark.filterwarnings("ignore:Estimated shape parameter of Pareto")  # nine points
    def test_arviz_reads_it(self, tree):
        table = az.summary(tree)
        assert len(table) == 9
        assert table["r_hat"].astype(float).max() < 1.05
        assert az.ess(tree)["f"].min() > 250  # of 600
        loo = az.loo(tree)
        assert np.isfinite(loo.elpd)
        assert loo.n_data_points == 9

    def test_netcdf_round_trip(self, tree, posterior, tmp_path):
        for name, saved in (("a", tree), ("b", posterior.predict(np.ones((2, 2)), draws=3))):
            path = tmp_path / f"{name}.nc"
            saved.to_netcdf(path, engine="h5netcdf")
            read = xr.open_datatree(path, engine="h5netcdf")
            read.load()
            assert set(read.children) == set(saved.children)
            for group in saved.children:
                xr.testing.assert_equal(read[group].to_dataset(), saved[group].to_dataset())
            for key in ("method", "relative_ess", "pareto_k"):
                group = "posterior" if name == "a" else "predictions"
                assert read[group].attrs[key] == saved[group].attrs[key]
            read.close()

    @pytest.mark.parametrize("method", ["twisted", "lin_ess"])
    def test_seeds(self, posterior, method):
        first, again, other = (
            posterior.sample(20, 2, method, random_seed=seed)["posterior"]["f"].values
            for seed in (5, 5, 6)
        )
        np.testing.assert_array_equal(first, again)
        assert not np.isin(first, other).any()
        assert not np.isin(first[0], first[1]).any()
        drawn = [
            posterior.predict([[1.0, 1.0]], draws=20, random_seed=seed)["predictions"]["f"].values
            for seed in (5, 5, 6)
        ]
        np.testing.assert_array_equal(drawn[0], drawn[1])
        assert not np.isin(drawn[0], drawn[2]).any()


X3, Y3 = np.array([0.0, 1.0, 2.0]), [0, 1, 1]


def points(*places, **more):
    return {"pseudo_points": list(places), **more}


def matrix(*rows):
    return {"cov_func": lambda X, Xs=None, diag=False: np.array(rows)}


REFUSED = [
    ({"X": np.zeros((3, 0))}, ValueError, "X is empty"),
    ({"X": np.zeros((3, 1, 1))}, ValueError, "X must have 2 dim"),
    ({"y": [[0], [1], [1]]}, ValueError, r"y must have shape \(3,\)"),
    ({"y": ["0", "1", "1"]}, ValueError, "y must hold two classes"),
    ({"y": [0, 1, None]}, TypeError, "y must hold numbers"),
    (points([0.0, 1.0]), ValueError, "pseudo_points must have"),
    (points(0.5, 0.5, phase=[1, -1]), ValueError, "0 and 1 coincide with opposite phases"),
    (points(3.0, 0.5, 0.5 + 1e-9), ValueError, "pseudo_points 1 and 2 coincide .* remove one"),
    (points(0.5, 0.5, phase=[1, -1], truncation=1.0), ValueError, "pseudo_points 0 and 1 coincide"),
    (points(0.5, phase=[1, 1]), ValueError, "phase must have"),
    (points(0.5, truncation=[0, 0]), ValueError, "truncation must"),
    (points(0.0, cov_func=linear), ValueError, "no variance at some of pseudo_points"),
    ({"n_draws": 0}, ValueError, "n_draws must be at least 1"),
]
FUNCTIONS = [
    (matrix(*np.full((3, 3), np.nan)), "cov_func gave"),
    (matrix(1.0, 1.0, 1.0), "cov_func gave shape"),
    ({"mean_func": lambda X: np.full(3, np.nan)}, "mean_func gave NaN"),
    ({"mean_func": lambda X: np.ones((3, 1))}, "mean_func gave shape"),
    (matrix([1.0, 0.9, -0.9], [0.9, 1.0, 0.9], [-0.9, 0.9, 1.0]), "cov_func is not positive"),
]
CALLS = [
    (lambda p: p.predict(np.zeros((2, 2))), ValueError, "Xnew must have shape"),
    (lambda p: p.predict([]), ValueError, "Xnew is empty"),
    (lambda p: p.predict(X3, quantiles=[np.nan]), ValueError, "quantiles holds 1 NaN"),
    (lambda p: p.predict(X3, draws=-1), ValueError, "draws must be at least 0"),
    (lambda p: p.predict(X3, chains=0), ValueError, "chains must be at least 1"),
    (lambda p: p.sample(chains=0), ValueError, "chains must be at least 1"),
]


class TestInput:
    @pytest.mark.parametrize(("given", "error", "message"), REFUSED)
    def test_refused_at_once(self, given, error, message):
        with pytest.raises(error, match=message):
            SkewGPPosterior(**{"X": X3, "y": Y3, "cov_func": rbf(), **given})

    @pytest.mark.parametrize(("given", "message"), FUNCTIONS)
    def test_functions_are_refused_when_used(self, given, message):
        posterior = SkewGPPosterior(X3, Y3, **{"cov_func": rbf(), **given})
        for use in (lambda: posterior.sample(2), lambda: posterior.predict([0.0])):
            with pytest.raises(ValueError, match=message):
                use()
        for name in ("log_marginal_likelihood", "sun"):
            with pytest.raises(ValueError, match=message):
                getattr(posterior, name)

    @pytest.mark.parametrize(("call", "error", "message"), CALLS)
    def test_calls_are_refused(self, call, error, message):
        with pytest.raises(error, match=message):
            call(SkewGPPosterior(X3, Y3, cov_func=rbf()))

    def test_later_changes_of_the_arrays_do_not_matter(self):
        X, R = X3[:, None].copy(), np.array([[4.0]])
        expected = SkewGPPosterior(X, Y3, cov_func=rbf(), pseudo_points=R).log_marginal_likelihood
        posterior = SkewGPPosterior(X, Y3, cov_func=rbf(), pseudo_points=R)
        X[:], R[:] = 7.0, -9.0
        assert posterior.log_marginal_likelihood == expected

    def test_legal_extremes(self):
        # One point, zero mean: 1/2 exactly, by symmetry.
        one = SkewGPPosterior([1.0], [1], cov_func=rbf())
        assert one.log_marginal_likelihood.value == pytest.approx(np.log(0.5), abs=1e-14)
        # Four labels at one input: a single f, integrated by a 200-point Hermite rule.
        nodes, weights = np.polynomial.hermite_e.hermegauss(200)
        f = np.sqrt(2.0) * nodes
        truth = np.log(weights / weights.sum() @ (ndtr(f) ** 3 * ndtr(-f)))
        same = SkewGPPosterior([1.0] * 4, [1, 0, 1, 1], cov_func=rbf()).log_marginal_likelihood
        assert abs(same.value - truth) < 6 * same.std_error
        # One class only, a constant column: defined, and the second changes nothing.
        only = SkewGPPosterior(X3, [1, 1, 1], cov_func=rbf()).log_marginal_likelihood
        assert only.value > np.log(1 / 8)  # positively correlated: more likely than independent
        wide = SkewGPPosterior(np.c_[X3, np.ones(3)], [1, 1, 1], cov_func=rbf())
        assert wide.log_marginal_likelihood.value == pytest.approx(only.value, abs=1e-12)

    def test_labels_against_a_strong_mean(self):
        """Evidence Phi(-80/sqrt 3) = e^-1071, far beyond what exp can hold: all in logs.

        The sampler's weight is a difference of terms of 1e7, good to 1e-6.
        """
        posterior = SkewGPPosterior(
            [0.0], [0], cov_func=rbf(), mean_func=lambda X: np.full(len(X), 80.0)
        )
        expected = log_ndtr(-80.0 / np.sqrt(3.0))
        assert posterior.log_marginal_likelihood.value == pytest.approx(expected, abs=2e-6)
        assert np.isfinite(flat(posterior.sample(10, random_seed=0))).all()
        assert 0.0 <= summary(posterior, [0.0], "p_mean")[0] <= 1.0
