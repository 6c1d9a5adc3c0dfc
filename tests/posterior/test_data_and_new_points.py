"""Kernels that tell the data from new points: each row has noise of its own, which no other shares.

As PyMC has it: ``cov(X)`` has the white noise on its diagonal, also where two rows are equal;
``cov(X, Xs)`` has none, even where Xs equals X. So f at the data has the noise of their rows, and f
at new points another one, whatever their inputs.

Monte Carlo: `agree` takes 16 independent seeds and asks that their mean is within 5 of its own
standard errors of the truth, a t statistic of 15 degrees: false alarms 1.6e-4 a number for a new
seed, none for the seeds fixed here. Draws are compared by their own standard errors, as said there.
"""

from functools import cache
from typing import NamedTuple

import arviz as az
import numpy as np
import pymc as pm
import pytest
from approximation_oracles import ExactMarginals, exact_marginals
from numpy.testing import assert_allclose
from oracles import probit_posterior_quadrature
from scipy import stats
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import norm

import pymc_skewgp as sg
from pymc_skewgp import likelihoods as of
from pymc_skewgp._diagnostics.approximations import ep_posterior
from pymc_skewgp._model.gp.functions import ArrayCovariance
from pymc_skewgp._observations.forecasts import averaged_forecasts

N_SEEDS = 16
cov = pm.gp.cov


def smooth(A, B):
    return np.exp(-0.5 * (A - B.T) ** 2)


def noisy_function(X, Xs=None, diag=False):
    """A kernel on arrays with noise where Xs is missing, as PyMC's."""
    if diag:
        return np.full(len(X), 1.0 + 9.0)
    return smooth(X, X) + 9.0 * np.eye(len(X)) if Xs is None else smooth(X, Xs)


def shared_function(X, Xs=None, diag=False):
    """A function of two inputs and nothing else: what it has at equal inputs, they share."""
    if diag:
        return np.full(len(X), 1.0 + 9.0)
    Xs = X if Xs is None else Xs
    return smooth(X, Xs) + 9.0 * (Xs.T == X)


@cache
def on_arrays(function):
    """Compiled once."""
    return ArrayCovariance(function) if isinstance(function, cov.BaseCovariance) else function


class Kernel(NamedTuple):
    function: object  # a pm.gp.cov object, or a function of arrays
    own: object  # the matrix of one set of rows, from their smooth part S and the identity
    between: object  # of two sets, from S

    def posterior(self, x, y, **options):
        return sg.SkewGPPosterior(x, y, cov_func=on_arrays(self.function), **options)

    def joint(self, *blocks):
        """Prior covariance of f at blocks of rows, each of them a different one."""
        rows = [
            [
                self.own(smooth(a, a), np.eye(len(a))) if i == j else self.between(smooth(a, b))
                for j, b in enumerate(blocks)
            ]
            for i, a in enumerate(blocks)
        ]
        return np.block(rows)


KERNELS = {
    "sum": Kernel(
        cov.ExpQuad(1, ls=1.0) + cov.WhiteNoise(3.0), lambda S, one: S + 9.0 * one, lambda S: S
    ),
    "alone": Kernel(cov.WhiteNoise(1.5), lambda S, one: 2.25 * one, lambda S: 0.0 * S),
    "product": Kernel(
        cov.ExpQuad(1, ls=1.0) * cov.WhiteNoise(1.5) + 2.0 * cov.ExpQuad(1, ls=1.0),
        lambda S, one: 2.25 * one + 2.0 * S,
        lambda S: 2.0 * S,
    ),
    "power": Kernel(
        (cov.ExpQuad(1, ls=1.0) + cov.WhiteNoise(1.2)) ** 2,
        lambda S, one: (S + 1.44 * one) ** 2,
        lambda S: S**2,
    ),
    "function": Kernel(noisy_function, lambda S, one: S + 9.0 * one, lambda S: S),
}
SUM = KERNELS["sum"]
# Two rows with labels, apart or equal; the first of the new points is at the first row.
ROWS = {"apart": np.array([[0.3], [1.1]]), "tied": np.array([[0.3], [0.3]])}
NEW = np.array([[0.3], [0.3], [-0.8]])
Y = np.array([1, 0])
SIGN = np.array([1.0, -1.0])


def agree(values, truth):
    """The mean over seeds (first axis) is `truth`; see the head of this file."""
    values = np.asarray(values)
    error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
    # The floor is the oracle's own error, and all there is where nothing is random.
    gap = np.abs(values.mean(axis=0) - truth) / (5.0 * error + 1e-8)
    assert gap.max() < 1.0, f"{gap.max():.2f} tolerances off: {values.mean(axis=0)}, not {truth}"


def truth(kernel, x, new=NEW) -> ExactMarginals:
    """By quadrature, at the rows and then at the new points."""
    return exact_marginals(kernel.joint(x, new), SIGN)


# Each kernel at rows that are apart or equal.
CASES = [
    ("sum", "tied"), ("alone", "apart"), ("product", "tied"), ("power", "apart"),
    ("function", "apart"),
]  # fmt: skip


class TestMarginals:
    @pytest.mark.parametrize(("name", "rows"), CASES)
    def test_at_the_data_and_at_new_points(self, name, rows):
        """At the data f ~ N(0, K) with the noise in K, by quadrature over f itself.

        New points have noise of their own, at the very inputs of the data, and no share of that of
        the data.
        """
        kernel, x = KERNELS[name], ROWS[rows]
        posteriors = [kernel.posterior(x, Y, random_seed=i) for i in range(N_SEEDS)]
        at_data = probit_posterior_quadrature(kernel.joint(x), Y)
        found = [p.marginals().moments for p in posteriors]
        agree([m.mean for m in found], at_data.mean)
        agree([m.sd for m in found], np.sqrt(at_data.cov.diagonal()))
        agree([m.skewness for m in found], at_data.skewness)
        wanted = truth(kernel, x)
        agree([p.probability(NEW).value for p in posteriors], wanted.p()[2:])
        found = [p.marginals(NEW) for p in posteriors]
        for moment, want in zip(("mean", "sd", "skewness"), wanted.moments(), strict=True):
            agree([getattr(at.moments, moment) for at in found], want[2:])
        agree([at.cdf(np.zeros(3)).value for at in found], wanted.cdf(np.zeros(5))[2:])

    def test_what_equal_inputs_share_new_points_share(self):
        """A function of two inputs tells no data from new points: the same f at both."""
        posterior = sg.SkewGPPosterior(ROWS["apart"], Y, cov_func=shared_function)
        at, new = posterior.marginals(), posterior.marginals(ROWS["apart"])
        # The covariance at the data is a product of factors: round-off.
        np.testing.assert_allclose(at.means, new.means, rtol=1e-10)
        np.testing.assert_allclose(at.variance, new.variance, rtol=1e-10)


class TestPseudoPoints:
    def test_a_pseudo_point_at_a_row_has_noise_of_its_own(self):
        """f(r) > 0 at the input of the one row, whose label is 0.

        With f(r) integrated out the density of f(x) is N(f; 0, v) Phi(-f) Phi(b f), b from the
        covariance 1 of the two, which have variance 10 each.
        """
        v, b = 10.0, 0.1 / np.sqrt(10.0 - 0.1)
        for function in (SUM.function, noisy_function):
            kernel = Kernel(function, SUM.own, SUM.between)

            def density(f):
                return norm.pdf(f, scale=np.sqrt(v)) * norm.cdf(-f) * norm.cdf(b * f)

            powers = [quad(lambda f, k=k: f**k * density(f), -40, 40)[0] for k in range(3)]
            mean = powers[1] / powers[0]
            sd = np.sqrt(powers[2] / powers[0] - mean**2)
            found = [
                kernel.posterior([[0.3]], [0], pseudo_points=[[0.3]], random_seed=i)
                for i in range(N_SEEDS)
            ]
            agree([[p.marginals().moments.mean[0]] for p in found], mean)
            agree([[p.marginals().moments.sd[0]] for p in found], sd)
            # P(f(r) > 0) is 1/2, and the label's row counts in the density above.
            agree([[p.log_marginal_likelihood.value] for p in found], np.log(2.0 * powers[0]))


@pytest.mark.parametrize("name", ["sum", "function"])
def test_joint_draws(name):
    """At the data and at new points, two of them one input of the data: 20000 draws each.

    Their effective sample size is 4 in 5 of them at least; 5 standard errors, 5 for deviations of a
    kurtosis up to 5, for ten numbers: false alarms 1e-5.
    """
    kernel, x = KERNELS[name], ROWS["apart"]
    posterior = kernel.posterior(x, Y, n_draws=16384)
    here = posterior.sample(5000, 4, random_seed=1)["posterior"]["f"].values.reshape(-1, 2)
    new = posterior.predict(NEW, draws=5000, random_seed=2)["predictions"]["f"]
    f = np.concatenate([here, new.values.reshape(-1, 3)], axis=1)
    mean, sd, _ = truth(kernel, x).moments()
    assert (np.abs(f.mean(axis=0) - mean) < 5 * sd / np.sqrt(16_000)).all()
    assert (np.abs(f.std(axis=0) / sd - 1) < 5 * 1.5 / np.sqrt(2 * 16_000)).all()
    # Equal inputs share the smooth part alone, of variance below 1: an error of .07 for a product
    # of two deviations of 3.2.
    assert np.cov(f[:, 2], f[:, 3])[0, 1] < 1.0 + 5 * 0.08


def test_ep():
    """Its moments are all but exact."""
    x = ROWS["apart"]
    found = ep_posterior(SUM.posterior(x, Y).prior, x, Y, NEW)
    mean, sd, _ = truth(SUM, x).moments()
    np.testing.assert_allclose(found.mean, mean, atol=0.01)
    np.testing.assert_allclose(np.sqrt(found.cov.diagonal()), sd, rtol=0.01)
    assert found.cov[2, 3] < 1.0


class TestOfAModel:
    def test_latent_draws(self):
        """f at two equal rows and at new points for each draw of a trace, by quadrature.

        300 independent draws: means to 5 errors, deviations to 5 of 1.5 / sqrt(2 N) for a
        kurtosis up to 5: 10 numbers, false alarms 1e-5.
        """
        x = ROWS["tied"]
        with pm.Model():
            gp = sg.SkewGP(cov_func=SUM.function)
            gp.marginal_likelihood("y", x, Y)
        trace = az.from_dict({"posterior": {"a": np.zeros((1, 300))}})
        tree = gp.sample_latent(trace, Xnew=NEW, random_seed=4, progressbar=False)
        f = np.concatenate(
            [tree[group]["f"].values.reshape(300, -1) for group in ("posterior", "predictions")],
            axis=1,
        )
        mean, sd, _ = truth(SUM, x).moments()
        assert (np.abs(f.mean(axis=0) - mean) < 5 * sd / np.sqrt(300)).all()
        assert (np.abs(f.std(axis=0) / sd - 1.0) < 5 * 1.5 / np.sqrt(600)).all()
        p = tree["predictions"]["p"].mean(("chain", "draw")).values
        # A probability has a deviation below 1/2.
        np.testing.assert_allclose(p, truth(SUM, x).p()[2:], atol=5 * 0.5 / np.sqrt(300))


# Forecasts where f has its prior alone, N(m, s^2): one-dimensional integrals of known functions.
#
# The posterior's draws are all alike there, so that what is allowed is round-off, and for quantiles
# the quadrature's error of a probability, 1e-5.


FAR, PROBS = [[1e3]], (0.055, 0.5, 0.945)


def far_away(likelihood, y, sd, mean=0.0, **settings):
    """Summaries at a point that the data, two of them, say nothing of."""
    kernel = sd**2 * pm.gp.cov.ExpQuad(1, ls=1.0)
    gp = sg.SkewGP(mean_func=pm.gp.mean.Constant(mean), cov_func=kernel)
    posterior = gp.posterior([[0.0], [1.0]], y, likelihood=likelihood, random_seed=3)
    summary = posterior.predict(FAR, quantiles=PROBS, random_seed=1, **settings)
    found = {k: v.values[..., 0] for k, v in summary["predictions_summary"].data_vars.items()}
    assert all(f"{name}_se" in found for name in found if not name.endswith("_se"))
    return found


def integral(function, sd, mean=0.0, power=0.0):
    """E g(f) by a trapezoid rule about f = mean + power s^2, where g(f) is about e^(power f)."""
    z = power * sd + np.linspace(-12.0, 12.0, 200_001)
    weights = np.exp(-0.5 * z**2) * (z[1] - z[0]) / np.sqrt(2.0 * np.pi)
    return float(np.sum(weights * function(mean + sd * z)))


def assert_moments(found, given, sd, power=0.0, centre=0.0):
    """`given` is the distribution of y given f; `power` as for `integral`."""
    first = integral(lambda f: given(f).mean(), sd, centre, power)
    second = integral(lambda f: given(f).var() + given(f).mean() ** 2, sd, centre, 2.0 * power)
    spread = np.sqrt(second - first**2)
    # The rules stop at 1e-6 of a standard deviation, and say so in the errors.
    for name, right in (("y_mean", first), ("y_sd", spread)):
        assert abs(found[name] - right) <= 2e-6 * spread + 2.0 * found[f"{name}_se"], name
        assert found[f"{name}_se"] <= 1e-5 * spread, name


def assert_quantiles(found, given, sd, mean=0.0, atol=3e-5):
    """P(y <= quantile) is the probability, of whole numbers the least that is enough."""
    for q, p in zip(found["y_quantile"], PROBS, strict=True):
        step = 1.0 if float(q).is_integer() else 1e-6 * abs(q)
        above, below = (integral(lambda f, y=y: given(f).cdf(y), sd, mean) for y in (q, q - step))
        assert above > p - atol
        assert below < p + atol


class ZeroInflated(NamedTuple):
    """Poisson's distribution with the probability .4, and 0 else."""

    rate: np.ndarray

    def mean(self):
        return 0.4 * self.rate

    def var(self):
        return 0.4 * self.rate + 0.24 * self.rate**2

    def cdf(self, y):
        return 0.6 * (y >= 0) + 0.4 * stats.poisson.cdf(y, self.rate)


def shares(f):
    return stats.beta(5.0 * expit(f), 5.0 * expit(-f))


ZERO_INFLATED, BETA = pm.ZeroInflatedPoisson.dist, pm.Beta.dist
EXP, LOGISTIC = pm.math.exp, pm.math.invlogit
# Data, the distribution of y given f, and the power of e that its mean grows by.
NAMED = {
    of.Poisson(3.0): ([1, 5], lambda f: stats.poisson(3.0 * np.exp(f)), 1.0),
    of.NegativeBinomial(1.7): ([1, 5], lambda f: stats.nbinom(1.7, 1.7 / (1.7 + np.exp(f))), 1.0),
    of.Gamma(2.5): ([1.0, 5.0], lambda f: stats.gamma(2.5, scale=np.exp(f) / 2.5), 1.0),
    of.StudentT(4.0, 0.3): ([1.0, 5.0], lambda f: stats.t(4.0, f, 0.3), 0.0),
    of.Laplace(0.3): ([1.0, 5.0], lambda f: stats.laplace(f, 0.3), 0.0),
    of.Gaussian(0.3): ([1.0, 5.0], lambda f: stats.norm(f, 0.3), 0.0),
}


@pytest.mark.parametrize("likelihood", NAMED, ids=repr)
def test_named_likelihoods(likelihood):
    y, given, power = NAMED[likelihood]
    sd = 5.0
    found = far_away(likelihood, y, sd, mean=0.7, draws=0)
    assert_moments(found, given, sd, power, 0.7)
    assert_quantiles(found, given, sd, 0.7)


def trials(e):
    return pm.Binomial.dist(100_000, LOGISTIC(e))


def successes(f):
    return stats.binom(100_000, expit(f))


# The same of functions to PyMC's distributions.
WRITTEN = {
    "lognormal": (
        lambda e: pm.LogNormal.dist(e, 0.5), [1.0, 2.0],
        lambda f: stats.lognorm(0.5, scale=np.exp(f)), 1.0,
    ),
    # Of a wide predictor: 24 nodes were off by a hundredth.
    "binomial": (trials, [500, 200], successes, 0.0),
    "falling rate": (
        lambda e: pm.Exponential.dist(EXP(e)), [1.0, 2.0],
        lambda f: stats.expon(scale=np.exp(-f)), -1.0,
    ),
    # Not monotone in f, and both sides of 0.
    "scale": (
        lambda e: pm.Normal.dist(0.3, EXP(e)), [1.0, 2.0],
        lambda f: stats.norm(0.3, np.exp(f)), 1.0,
    ),
    "zero-inflated": (
        lambda e: ZERO_INFLATED(0.4, EXP(e)), [1, 2], lambda f: ZeroInflated(np.exp(f)), 1.0
    ),
    "beta": (lambda e: BETA(mu=LOGISTIC(e), nu=5.0), [0.5, 0.2], shares, 0.0),
}  # fmt: skip


@pytest.mark.parametrize("name", WRITTEN)
def test_written_distributions(name):
    function, y, given, power = WRITTEN[name]
    sd, mean = (11.0, 1.0) if name == "binomial" else (2.0, 0.0)
    found = far_away(function, y, sd, mean=mean, draws=0)
    assert_moments(found, given, sd, power, mean)
    assert_quantiles(found, given, sd, mean)


def test_moments_of_huge_spread():
    """Log-normal moments whose squares overflow: exact logarithms, to round-off of the rule."""
    found = far_away(lambda e: pm.Poisson.dist(pm.math.exp(e)), [1, 5], 15.0, draws=0)
    assert_allclose(np.log(found["y_mean"]), 112.5, rtol=1e-12)
    assert_allclose(np.log(found["y_sd"]), 225.0, rtol=1e-12)


def test_what_does_not_exist_is_not_a_small_error():
    infinite = far_away(lambda e: pm.Pareto.dist(pm.math.exp(e), 1.0), [1.5, 2.0], 1.0, draws=0)
    assert infinite["y_mean"] == infinite["y_sd"] == np.inf  # alpha is below 1 half of the time
    heavy = far_away(lambda e: pm.StudentT.dist(1.5, mu=e, sigma=1.0), [1.5, 2.0], 1.0, draws=0)
    assert abs(heavy["y_mean"]) < 1e-6
    assert heavy["y_sd"] == np.inf
    none = far_away(lambda e: pm.StudentT.dist(0.9, mu=e, sigma=1.0), [1.5, 2.0], 1.0, draws=0)
    assert np.isnan(none["y_mean"])
    assert not none["y_sd"] < np.inf
    cauchy = far_away(lambda e: pm.Cauchy.dist(e, 1.0), [1.5, 2.0], 1.0, draws=0)
    assert "y_mean" not in cauchy

    def own(eta):  # of which PyMC knows neither a mean nor a distribution function
        return pm.CustomDist.dist(
            eta,
            logp=lambda y, eta: -pm.math.log(np.pi * (1.0 + (y - eta) ** 2)),
            random=lambda eta, rng=None, size=None: (
                eta + rng.standard_cauchy(np.shape(eta) if size is None else size)
            ),
        )

    drawn = far_away(own, [1.5, 2.0], 1.0, draws=0)
    assert drawn["y_mean_se"] == drawn["y_sd_se"] == np.inf
    assert_quantiles(cauchy, stats.cauchy, 1.0)
    # By 2^15 draws at nodes: 5 standard errors, 3 numbers, false alarm 2e-6.
    assert np.all(np.abs(drawn["y_quantile"] - cauchy["y_quantile"]) < 5 * drawn["y_quantile_se"])


def test_by_draws_where_nothing_is_known():
    """A CustomDist that is LogNormal: 5 of its errors, 5 numbers, false alarm 3e-6."""

    def own(eta):
        return pm.CustomDist.dist(
            eta,
            logp=lambda y, eta: pm.logp(pm.LogNormal.dist(eta, 0.5), y),
            random=lambda eta, rng=None, size=None: rng.lognormal(eta, 0.5, size),
        )

    found = far_away(own, [1.0, 2.0], 2.0, draws=0)
    right = far_away(WRITTEN["lognormal"][0], [1.0, 2.0], 2.0, draws=0)
    for name in ("y_mean", "y_sd", "y_quantile"):
        error = found[f"{name}_se"]
        assert np.all(np.abs(found[name] - right[name]) < 5 * error), name
        assert np.all(error < 0.1 * np.abs(right[name])), name


def test_errors_of_quantiles():
    """Against the spread over 15 posteriors, itself known to 19 %: a factor of 1.8 is 3.5 sd."""
    gp = sg.SkewGP(cov_func=4.0 * pm.gp.cov.ExpQuad(1, ls=1.0))
    x, y = np.linspace(0.0, 4.0, 6)[:, None], np.array([0.1, 1.3, 0.2, 9.0, 2.1, 0.3])
    runs = []
    for seed in range(15):
        posterior = gp.posterior(x, y, likelihood=of.Gamma(1.0), n_draws=256, random_seed=seed)
        runs.append(posterior.predict([[2.2], [6.0]], draws=0)["predictions_summary"])
    for name in ("f_quantile", "y_quantile"):
        values, errors = (np.array([r[n].values for r in runs]) for n in (name, f"{name}_se"))
        spread, error = values.std(axis=0, ddof=1), np.sqrt((errors**2).mean(axis=0))
        assert np.all(spread < 1.8 * error), (name, spread, error)
        # Errors are no less than a fifth of independent draws'.
        assert np.all(error < 4.0 * spread), (name, spread, error)


def test_narrow_components_are_drawn():
    """A log-normal mean of y with as large a deviation: closed forms of 400 narrow components.

    Their spread is a thousandth of a mean, drawn 11 times each: the error is some 2e-5.
    """
    m, v = np.random.default_rng(1).normal(size=(1, 400)), np.full(1, 1e-6)
    mixture = sg.LatentMarginals(m, v, np.full(400, 1 / 400))
    found = averaged_forecasts(mixture, lambda f: (np.exp(f), np.exp(f)))
    first, second = np.exp(m + v / 2).mean(), 2 * np.exp(2 * m + 2 * v).mean()
    assert_allclose(found["y_mean"], first, rtol=2e-4)
    assert_allclose(found["y_sd"], np.sqrt(second - first**2), rtol=2e-4)
    # Of 400 independent components.
    assert_allclose(found["y_mean_se"], np.exp(m).std() / 20, rtol=0.01)
