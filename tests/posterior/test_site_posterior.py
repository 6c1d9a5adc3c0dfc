"""Posteriors under sites, beside rows and pseudo-points, against a trapezoid rule over f."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytest
from approximation_oracles import rbf
from scipy import stats
from site_oracles import Counts, log_signs, posterior_of_chain, site_posterior

import pymc_skewgp as sg
from pymc_skewgp import SkewGPPosterior
from pymc_skewgp import likelihoods as of
from pymc_skewgp._gaussian.escalation import DEFAULT, GoalSettings
from pymc_skewgp._gaussian.weights import (
    GaussianMixture,
    normalized_weights,
    weighted_error,
)

X = np.array([[-1.0], [0.2], [1.1], [2.5]])
POINTS = np.array([[-0.4], [1.8]])


kernel = rbf(2.0)


def line(X):
    return 0.3 * X[:, 0]


def given(likelihood, y):
    return lambda f: likelihood.log_likelihood(np.asarray(y), f.T).sum(axis=-1)


def compare(posterior, exact, shape=slice(None)):
    """Evidence, means, deviations and skewness, each within four and a half standard errors.

    Some dozens of comparisons a run at a false-alarm rate of some 4e-4 each (Student's t with 15
    degrees of freedom); seeds are fixed.
    """
    evidence = posterior.log_marginal_likelihood
    assert abs(evidence.value - exact.log_evidence) < 4.5 * evidence.std_error
    assert evidence.std_error < 0.05
    found = posterior.marginals()
    for value, error, wanted in zip(found.moments, found.moment_errors, exact[1:], strict=True):
        value, error = value[shape], error[shape]
        assert (np.abs(value - wanted) < 4.5 * error + 1e-9).all()
        assert (error < 0.2).all()


def test_sites_beside_a_point_and_a_label():
    kinds = [
        (X[:1], [0.6], of.Gaussian(0.4)),
        (X[1:2], [1], of.BernoulliProbit()),
        (X[2:3], [3.0], Counts()),
    ]

    def log_likelihood(f):
        point = stats.norm.logpdf(0.6, f[0], 0.4)
        return point + stats.norm.logcdf(f[1]) + given(Counts(), [3.0])(f[2:])

    exact = site_posterior(np.zeros(3), kernel(X[:3]), log_likelihood)
    compare(SkewGPPosterior(kinds, cov_func=kernel, n_draws=4096), exact)
    # The order of the kinds does not matter.
    turned = SkewGPPosterior(kinds[::-1], cov_func=kernel, n_draws=4096)
    compare(turned, exact, slice(None, None, -1))


def test_sites_under_two_signs():
    inputs, y = X[:2], [0.0, 4.0]
    everything = np.vstack([inputs, POINTS])
    cov = kernel(everything)
    exact = site_posterior(
        np.zeros(2), cov[:2, :2], lambda f: given(Counts(), y)(f) + log_signs(f, cov, 2), 401
    )
    prior = np.log(0.25 + np.arcsin(cov[2, 3] / 2.0) / (2 * np.pi))
    posterior = SkewGPPosterior(
        inputs, y, cov_func=kernel, likelihood=Counts(), pseudo_points=POINTS, n_draws=4096
    )
    compare(posterior, exact._replace(log_evidence=exact.log_evidence - prior))


def test_tempered_draws_agree_with_quadrature():
    inputs, y = X[:2], [0.0, 7.0]
    exact = site_posterior(line(inputs), kernel(inputs), given(Counts(), y), 401)
    posterior = SkewGPPosterior(inputs, y, cov_func=kernel, mean_func=line, likelihood=Counts())
    always = replace(DEFAULT, draws=GoalSettings(accept=2.0, temper=2.0))
    sampler = replace(posterior._fit.sampler, settings=always)
    found = sampler.members(2048, np.random.default_rng(0))
    assert found.method == "tempered"
    # 4.5 standard errors, of which sixteen replicates tell the size.
    evidence = found.log_prob
    assert abs(evidence.value - exact.log_evidence) < 4.5 * evidence.std_error
    at = posterior._fit.regression(None)
    f = at.centre + found.draws @ at.solved
    weights = normalized_weights(found.log_weights)
    mean = weights @ f
    error = weighted_error((f - mean).T, weights, found.replicate)
    assert (np.abs(mean - exact.mean) < 4.5 * error).all()


FAR = {
    "Cauchy": (1.0, 0.05, [0.0, 0.05, -0.05, 8.0, 8.05]),
    "two degrees of freedom": (2.0, 0.1, [0.0, 0.05, 8.0, 8.05]),
}


@pytest.mark.parametrize("name", FAR)
def test_modes_160_and_80_scales_apart(name):
    """One value of f: the mode that EP's Gaussian is not at has its share of evidence and draws."""
    nu, sigma, y = FAR[name]
    f = np.linspace(-15.0, 25.0, 400_001)
    log_density = stats.norm.logpdf(f, 0.0, 5.0) + sum(stats.t.logpdf(v, nu, f, sigma) for v in y)
    largest = log_density.max()
    density = np.exp(log_density - largest)
    log_evidence = largest + np.log(density.sum() * (f[1] - f[0]))
    far = density[f > 4.0].sum() / density.sum()
    posterior = SkewGPPosterior(
        np.zeros((len(y), 1)),
        y,
        cov_func=rbf(25.0),
        likelihood=of.StudentT(nu, sigma),
        random_seed=1,
    )
    evidence = posterior.log_marginal_likelihood
    # A dozen standard errors apart before; a false alarm in 1e4 (t, 15 degrees of freedom).
    assert abs(evidence.value - log_evidence) < 5 * evidence.std_error
    assert evidence.std_error < 0.1
    means, weights = posterior.marginals().means[0], posterior.marginals().weights
    assert weights[means > 4.0].sum() == pytest.approx(far, abs=0.05)


def test_chains_are_as_good_as_independent_draws():
    """Means of f in chains of 500: no further from the truth than those of independent draws.

    Members of pairs were picked by a coordinate of their evenly spaced points: means of a chain
    were off by five standard errors now and then. Twelve seeds, four chains, some ten directions of
    f: one of 480 is beyond 4.5 once in 300 sets of seeds.
    """
    rng = np.random.default_rng(8927)
    x = np.sort(rng.uniform(80.0, 100.0, 120))[:, None]
    quality = 3.4 * np.exp(-0.5 * ((x[:, 0] - 92.0) / 4.0) ** 2) - 1.9
    known = of.OrderedProbit([-1.5, -1.0, 0.0, 1.5])
    y = np.searchsorted(known.cutpoints, quality + rng.standard_normal(120))
    gp = sg.SkewGP(cov_func=1.5**2 * pm.gp.cov.ExpQuad(1, ls=4.0))
    posterior = gp.posterior(x, y, likelihood=known)
    at = posterior.marginals().moments
    worst = 0.0
    for seed in [8927, *range(11)]:
        f = posterior.sample(500, 4, random_seed=seed)["posterior"]["f"].values
        worst = max(worst, float(np.abs((f.mean(axis=1) - at.mean) / at.sd).max()))
    assert worst * np.sqrt(500) < 4.5


class TestTwelveCounts:
    """What a posterior under sites gives, and what it refuses."""

    X = np.linspace(-2.0, 2.0, 12)[:, None]
    Y = np.array([0, 1, 0, 2, 3, 5, 9, 6, 4, 1, 0, 1.0])
    NEW = np.array([[-3.0], [-0.7], [0.0], [1.3]])

    @staticmethod
    def make(X=X, y=Y, likelihood=None, **more):
        known = likelihood or (Counts() if y is not None else None)
        return SkewGPPosterior(X, y, cov_func=rbf(2.0, 0.8), likelihood=known, **more)

    @pytest.fixture(scope="class")
    @classmethod
    def posterior(cls):
        return cls.make(n_draws=2048)

    def test_draws_have_the_moments_of_marginals_and_forecasts(self, posterior):
        f = posterior.sample(draws=1000, chains=4, random_seed=1)["posterior"]["f"].values
        assert f.shape == (4, 1000, 12)
        tree = posterior.predict(self.NEW, draws=1000, chains=4, random_seed=2)
        new, summary = tree["predictions"]["f"].values, tree["predictions_summary"]
        at = posterior.marginals().moments
        # Near-independent draws; resampling makes a few copies. Four standard errors for 32
        # numbers: a false alarm once in five hundred seeds.
        for drawn, mean, sd in (
            (f.reshape(-1, 12), at.mean, at.sd),
            (new.reshape(-1, 4), summary["f_mean"].values, summary["f_sd"].values),
        ):
            assert (np.abs(drawn.mean(axis=0) - mean) < 4.0 * sd / np.sqrt(3500)).all()
            assert (np.abs(drawn.std(axis=0) / sd - 1.0) < 4.0 / np.sqrt(2 * 3500) * 1.2).all()

    def test_what_is_no_row_is_refused_by_name(self, posterior):
        with pytest.raises(ValueError, match="no SUN"):
            _ = posterior.sun
        with pytest.raises(ValueError, match="leave method at its default"):
            posterior.sample(draws=5, method="lin_ess")
        with pytest.raises(TypeError, match="label 1"):
            posterior.probability(self.NEW)

    def test_impossible_data_at_the_prior_mean_are_refused(self):
        class Positive(Counts):
            def log_likelihood(self, y, f):
                return np.where(f > 0, -f, -np.inf) + 0.0 * y

        with pytest.raises(ValueError, match="not finite in 12 of 12 rows at the mean"):
            _ = self.make(likelihood=Positive()).log_marginal_likelihood

    def test_density_where_draws_leave_nothing_open_is_smooth(self):
        one = self.make([[0.0]], [3.0], n_draws=4096)
        at = np.linspace(-1.0, 3.0, 41)
        f = np.linspace(-9.0, 9.0, 20001)
        log_density = 3.0 * f - np.exp(f) - 0.25 * f**2
        p = np.exp(log_density - log_density.max())
        wanted = np.interp(at, f, p / p.sum() / (f[1] - f[0]))
        found = one.marginals().density(at[:, None])[:, 0]
        # A kernel of a sixth of the deviation flattens the peak by two hundredths; and noise of
        # draws.
        assert np.abs(found - wanted).max() < 0.05 * wanted.max()


def test_errors_of_deviations_with_many_modes():
    """Forty heavy-tailed values along a chain: errors of deviations were 1.26 times too small.

    By forward and backward sums on a grid. Root mean square of error over standard error, of 8 runs
    of 256 draws: it is .8, and 1 where the larger of two errors stands for both. In a bootstrap of
    24 runs 7 of 20,000 have .9, and with the larger error 4 have less.
    """
    x, rng = np.linspace(0.0, 4.0, 40), np.random.default_rng([1, 3])

    def cov(A, B=None, diag=False):
        own = 9.0 * np.exp(-np.abs(A - (A if B is None else B).T) / 3.0)
        return own.diagonal() if diag else own

    f = np.linalg.cholesky(cov(x[:, None])) @ rng.standard_normal(40)
    y = f + 0.3 * rng.standard_t(2.0, 40)
    exact = posterior_of_chain(x, 3.0, 3.0, lambda f: stats.t.logpdf(y, 2.0, f, 0.3))
    posterior = SkewGPPosterior(x[:, None], y, cov_func=cov, likelihood=of.StudentT(2.0, 0.3))
    at, off = posterior._fit.regression(None), []
    for seed in range(8):
        found = posterior._fit.sampler.members(256, np.random.default_rng(seed))
        assert found.method == "filtered"
        f = at.solved.T @ found.draws.T + at.centre[:, None]
        weights = normalized_weights(found.log_weights)
        mixture = GaussianMixture(f, at.variance, weights, found.replicate)
        error = mixture._moment_errors_of_rows()[1]
        off.append((mixture._moments_of_rows()[1] - exact.sd) / error)
    assert np.sqrt(np.mean(np.square(off))) < 0.9


# Data of several kinds on one function, by a grid over the function, and data given later.


X1, X2 = np.array([[0.0], [1.0]]), np.array([[0.4]])
LABELS, VALUES, SIGMA = np.array([0, 1]), np.array([0.3]), 0.5


squared = rbf(1.5)


KINDS = {"labels": (X1, LABELS, of.BernoulliProbit()), "values": (X2, VALUES, of.Gaussian(SIGMA))}


def test_names_and_order():
    posterior = sg.SkewGPPosterior(KINDS, cov_func=squared)
    dt = posterior.sample(50, 2, random_seed=1)
    assert dict(dt["posterior"].sizes) == {
        "chain": 2,
        "draw": 50,
        "obs_id_labels": 2,
        "obs_id_values": 1,
    }
    assert set(dt["log_likelihood"].data_vars) == {"y_labels", "y_values"}
    summary = posterior.predict(X2, draws=0)["predictions_summary"]
    assert {"p_mean_labels", "p_mean_labels_se", "y_mean_values", "y_sd_values"} <= set(
        summary.data_vars
    )
    assert posterior.likelihood == tuple(kind[2] for kind in KINDS.values())


@pytest.mark.parametrize(
    ("X", "y", "likelihood", "message"),
    [
        (X1, None, None, "y is missing"),
        ([], None, None, "there are no data"),
        ([(X1, LABELS)], None, None, "must be a tuple"),
        ({"a": (X1, LABELS, None)}, None, of.BernoulliProbit(), "has its own"),
        ({"a": (X1, [0, 2], None)}, None, None, "in the data 'a': y must hold two classes"),
        ([(X1, LABELS, None), (np.zeros((2, 2)), LABELS, None)], None, None, "number of columns"),
    ],
)
def test_bad_input(X, y, likelihood, message):
    with pytest.raises((TypeError, ValueError), match=message):
        sg.SkewGPPosterior(X, y, likelihood=likelihood, cov_func=squared)


X3, NEW = np.array([[0.0], [0.7], [2.0]]), np.array([[1.4], [3.0]])


@pytest.mark.parametrize(
    ("likelihood", "y", "new", "both"),
    [
        (None, [0, 1, 1], [-1, 1], [0, 1, 1, 0, 1]),
        (of.Gaussian(0.3), [0.1, 0.2, 0.3], [0.4, 0.5], [0.1, 0.2, 0.3, 0.4, 0.5]),
        (of.MultinomialProbit(3), [0, 1, 1], [2, 0], [0, 1, 1, 2, 0]),
        (of.Preference(0.5), [[0, 1], [2, 1]], [[3, 0], [4, 3]], [[0, 1], [2, 1], [3, 0], [4, 3]]),
        (of.Preference(0.5, threshold=0.3), [[0, 1]], [[3, 0, 1]], [[0, 1, 0], [3, 0, 1]]),
        (of.Choice(0.5), [[0, 1]], [[3, 0, 4]], [[0, 1, -1], [3, 0, 4]]),
        (of.Ranking(0.5), [[0, 1, 2]], [[3, 0]], [[0, 1, 2], [3, 0, -1]]),
    ],
)
def test_more_data_are_the_same_as_all_at_once(likelihood, y, new, both):
    first = sg.SkewGPPosterior(
        X3, y, likelihood=likelihood, cov_func=squared, pseudo_points=[[1.0]], random_seed=4
    )
    before = first.log_marginal_likelihood
    second = first.update(NEW, new)
    whole = sg.SkewGPPosterior(
        np.vstack([X3, NEW]),
        both,
        likelihood=likelihood,
        cov_func=squared,
        pseudo_points=[[1.0]],
        random_seed=4,
    )
    assert second.log_marginal_likelihood == whole.log_marginal_likelihood
    np.testing.assert_array_equal(second.marginals().means, whole.marginals().means)
    assert first.log_marginal_likelihood == before
    assert first.marginals().size == len(X3) * (
        3 if isinstance(likelihood, of.MultinomialProbit) else 1
    )


def test_more_comparisons_of_known_items():
    first = sg.SkewGPPosterior(X3, [[0, 1]], likelihood=of.Preference(), cov_func=squared)
    second = first.update(None, [[1, 2]])
    whole = sg.SkewGPPosterior(X3, [[0, 1], [1, 2]], likelihood=of.Preference(), cov_func=squared)
    assert second.log_marginal_likelihood == whole.log_marginal_likelihood


def test_more_data_of_one_of_several_kinds():
    kinds = {
        "labels": (X3, [0, 1, 1], of.BernoulliProbit()),
        "values": (NEW, [0.1, 0.2], of.Gaussian(1.0)),
    }
    first = sg.SkewGPPosterior(kinds, cov_func=squared)
    second = first.update([[5.0]], [1.0], name="values")
    kinds["values"] = (np.vstack([NEW, [[5.0]]]), [0.1, 0.2, 1.0], of.Gaussian(1.0))
    whole = sg.SkewGPPosterior(kinds, cov_func=squared)
    assert second.log_marginal_likelihood == whole.log_marginal_likelihood
    with pytest.raises(ValueError, match="name must say which"):
        first.update([[5.0]], [1.0])


@pytest.mark.parametrize(
    ("likelihood", "y", "new", "message"),
    [
        (None, [0, 1, 1], [0, 2], "in the new data: y must hold two classes"),
        (of.Gaussian([0.1, 0.2, 0.3]), [0.0, 0.1, 0.2], [0.4, 0.5], "in the new data: sigma"),
        (of.Preference(), [[0, 1]], [[5, 0]], "in the new data: y names item 5"),
        (of.Choice(), [[0, 1]], [[0, 0]], "in the new data: a choice compares different items"),
    ],
)
def test_bad_new_data(likelihood, y, new, message):
    first = sg.SkewGPPosterior(X3, y, likelihood=likelihood, cov_func=squared)
    with pytest.raises(ValueError, match=message):
        first.update(NEW, new)
