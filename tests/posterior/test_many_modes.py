"""Posteriors with several modes, under factors that are not log-concave, against quadrature.

Seeds are fixed. Of a new one, errors over standard errors have Student's t distribution with 15
degrees of freedom: beyond 5 in 1.6e-4 of all. Errors that are 0.01 and more would not hide the
modes' weights, which the tests ask for as well.
"""

import sys
from pathlib import Path

import numpy as np
import pytest
from approximation_oracles import rbf
from scipy.stats import norm
from site_oracles import (
    Counts,
    Kinds,
    Lapses,
    Student,
    TwoNormals,
    above,
    posterior_of_chain,
    posterior_of_coordinates,
    posterior_of_kinds,
)

import pymc_skewgp as sg
from pymc_skewgp._gaussian.blocks.pairs import BlockPairs
from pymc_skewgp._gaussian.coordinate_gaussian import SiteLogDensity
from pymc_skewgp._gaussian.gaussian_sum import DrawnSum
from pymc_skewgp._gaussian.pairs import PairProposal
from pymc_skewgp.approximations import Inducing

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
from honesty_problems import problem

X = np.linspace(-2.0, 2.0, 40)[:, None]


class Line:
    """Kernel of sd_1 c_1 + sd_2 c_2 x."""

    def __init__(self, *sd):
        self.sd = np.array(sd)

    def features(self, X):
        return np.concatenate([np.ones_like(X), X], axis=1)[:, : self.sd.size] * self.sd

    def __call__(self, X, Xs=None, diag=False):
        own = self.features(X)
        if diag:
            return (own**2).sum(axis=1)
        return own @ (own if Xs is None else self.features(Xs)).T


def halves(rng, share):
    """Values about two lines."""
    second = rng.random(X.size) < share
    y = np.where(second, -0.8 - 0.3 * X[:, 0], 1.0 + 0.3 * X[:, 0])
    return y + 0.2 * rng.standard_normal(X.size)


RNG = np.random.default_rng(7)
CASES = {
    "Student, two lines": (Line(1.5, 1.0), X, halves(RNG, 0.48), Student(0.2, 2.0)),
    "Student, one line and a few": (Line(1.5, 1.0), X, halves(RNG, 0.2), Student(0.2, 2.0)),
    "two normals at one place": (
        Line(1.5),
        np.zeros((10, 1)),
        1.5 + 0.1 * RNG.standard_normal(10),
        TwoNormals(),
    ),
    "two normals, line": (Line(1.0, 0.5), X[::2], np.full(20, 1.5), TwoNormals()),
    "lapses": (Line(2.0), np.zeros((9, 1)), np.array([1.0] * 5 + [0.0] * 4), Lapses()),
    "lapses, line": (Line(2.0, 2.0), X[::3], np.array([1.0, 1.0, 0.0] * 4 + [1.0] * 2), Lapses()),
}


@pytest.mark.parametrize("name", CASES)
def test_all_modes_are_met(name):
    kernel, x, y, likelihood = CASES[name]
    exact = posterior_of_coordinates(
        kernel.features(x), lambda f: likelihood.log_likelihood(y, f.T).sum(axis=-1)
    )
    posterior = sg.SkewGPPosterior(x, y, cov_func=kernel, likelihood=likelihood, random_seed=3)
    evidence = posterior.log_marginal_likelihood
    assert abs(evidence.value - exact.log_evidence) < 5.0 * evidence.std_error < 0.1
    found = posterior.predict(x)["predictions_summary"]
    for ours, theirs in ((found["f_mean"], exact.mean), (found["f_sd"], exact.sd)):
        error = found[f"{ours.name}_se"].to_numpy()
        assert (np.abs(ours - theirs) < 5.0 * error).all()
        assert (error < 0.1 * exact.sd).all()


def test_data_that_are_their_own_mirror_image():
    # y -> -y leaves them as they are: the mean is 0, and the modes are at +-.99.
    x = np.concatenate([X, X])
    y = np.concatenate([1.0 + 0.3 * X[:, 0], -1.0 - 0.3 * X[:, 0]])
    posterior = sg.SkewGPPosterior(
        x, y, cov_func=rbf(4.0, 3.0), likelihood=sg.likelihoods.StudentT(1.0, 0.1), random_seed=1
    )
    new = posterior.predict([[0.0]])["predictions_summary"]
    assert abs(new["f_mean"].item()) < 5.0 * new["f_mean_se"].item() < 0.15
    assert new["f_sd"].item() == pytest.approx(0.99, abs=0.01)
    drawn = posterior.sample(draws=500, chains=2, random_seed=2)
    assert drawn["sample_stats"].attrs["n_modes"] == posterior.latent.n_modes == 2
    # Of 1000 draws at a relative ESS of a half or more: sd .022.
    above = (drawn["posterior"]["f"].to_numpy()[..., 20] > 0).mean()
    assert abs(above - 0.5) < 0.12


def test_one_mode_stays_as_it_is():
    """A fifth of outliers, 200 rows, a smooth function: one mode, EP's proposal, as for counts."""
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(-2, 2, 200))[:, None]
    y = np.sin(2 * x[:, 0]) + 0.3 * rng.standard_normal(200)
    y = np.where(rng.random(200) < 0.2, rng.uniform(-10, 10, 200), y)
    for likelihood, data in (
        (sg.likelihoods.StudentT(2.0, 0.3), y),
        (Counts(), rng.poisson(np.exp(np.sin(x[:, 0]))).astype(float)),
    ):
        posterior = sg.SkewGPPosterior(
            x, data, cov_func=rbf(1.0, 0.7), likelihood=likelihood, random_seed=0
        )
        assert posterior.latent.n_modes == 1
        assert posterior.latent.relative_ess > 0.9
        assert isinstance(posterior._fit.sampler.proposal, PairProposal)


# Of each value it is not known of which kind it is: share, what was added, and noise.
THREE = Kinds((0.5, -4.0, 0.3), (0.3, 0.0, 0.5), (0.2, 5.0, 0.1))
SHARP = Kinds((0.6, -1.5, 0.05), (0.4, 1.5, 0.1))
SPIKE = Kinds((0.95, 0.0, 1.0), (0.05, 3.0, 0.01))
OUTLIERS = Kinds((0.8, 0.0, 0.1), (0.2, 0.0, 3.0))

PAIRED = np.concatenate([1.0 + 0.1 * np.linspace(-1.0, 1.0, 5)] * 2) * np.repeat([1.0, -1.0], 5)


@pytest.mark.parametrize("approximation", [None, Inducing(np.zeros((1, 1)))])
@pytest.mark.parametrize("truncation", [0.4, 1.0])
def test_modes_beside_a_sign(truncation, approximation):
    """One value of f, y -> -y, known to be above -truncation prior deviations."""
    likelihood, sd = Student(0.15, 1.0), 1.5
    posterior = sg.SkewGPPosterior(
        np.zeros((PAIRED.size, 1)),
        PAIRED,
        cov_func=Line(sd),
        likelihood=likelihood,
        pseudo_points=np.zeros((1, 1)),
        truncation=truncation,
        approximation=approximation,
        random_seed=1,
    )
    exact = posterior_of_coordinates(
        [[sd]], lambda f: likelihood.log_likelihood(PAIRED, f.T).sum(axis=-1), above(-truncation)
    )
    evidence = posterior.log_marginal_likelihood
    assert abs(evidence.value - exact.log_evidence) < 5.0 * evidence.std_error < 0.1
    at = posterior.marginals()
    assert abs(at.moments.mean[0] - exact.mean[0]) < 5.0 * at.moment_errors.mean[0] < 0.15
    assert at.moments.sd[0] == pytest.approx(exact.sd[0], rel=0.05)
    # At -.6 the sign is sharp beside the lower mode's flank, at -1.5 it leaves both whole.
    assert truncation < 1.0 or posterior.latent.n_modes == 2


@pytest.mark.parametrize("approximation", [None, Inducing(np.array([[-1.0], [1.0]]))])
def test_modes_beside_labels(approximation):
    kernel, x, y, likelihood = CASES["Student, two lines"]
    at, labels = np.array([[-1.5], [0.3], [1.2]]), np.array([1, 0, 1])
    n = y.size

    def log_likelihood(f):
        of_y = likelihood.log_likelihood(y, f[:n].T).sum(axis=-1)
        return of_y + norm.logcdf((2.0 * labels - 1.0)[:, None] * f[n:]).sum(axis=0)

    exact = posterior_of_coordinates(kernel.features(np.vstack([x, at])), log_likelihood)
    posterior = sg.SkewGPPosterior(
        [(x, y, likelihood), (at, labels, sg.likelihoods.BernoulliProbit())],
        cov_func=kernel,
        approximation=approximation,
        random_seed=3,
    )
    evidence = posterior.log_marginal_likelihood
    assert abs(evidence.value - exact.log_evidence) < 5.0 * evidence.std_error < 0.1
    found = posterior.marginals()
    mean, sd, errors = (
        np.concatenate(list(z)) if isinstance(z, (list, tuple)) else z
        for z in (found.moments.mean, found.moments.sd, found.moment_errors.mean)
    )
    assert (np.abs(mean - exact.mean) < 5.0 * errors).all()
    assert sd == pytest.approx(exact.sd, rel=0.1)


@pytest.mark.parametrize("length", [0.05, 1.0])
def test_more_modes_than_can_be_kept(length):
    """Any of forty values may be an outlier: a log evidence was .75 too small, stated .17."""
    rng, sd, scale = np.random.default_rng(0), 3.0, 0.1
    x = 0.25 * np.arange(40)
    K = sd**2 * np.exp(-np.abs(x[:, None] - x) / length)
    y = np.linalg.cholesky(K) @ rng.standard_normal(40) + scale * rng.standard_t(1.0, 40)
    y = np.where(rng.random(40) < 0.2, rng.normal(0.0, 6.0, 40), y)
    likelihood = Student(scale, 1.0)

    def cov(A, B=None, diag=False):
        own = sd**2 * np.exp(-np.abs(A - (A if B is None else B).T) / length)
        return own.diagonal() if diag else own

    exact = posterior_of_chain(x, sd, length, lambda f: likelihood.log_likelihood(y, f))
    posterior = sg.SkewGPPosterior(
        x[:, None], y, cov_func=cov, likelihood=likelihood, random_seed=1
    )
    assert posterior.latent.method == "filtered"
    found, at = posterior.log_marginal_likelihood, posterior.marginals()
    assert abs(found.value - exact.log_evidence) < 5.0 * found.std_error < 0.5
    for ours, errors, theirs in zip(at.moments[:2], at.moment_errors[:2], exact[1:3], strict=True):
        # A thousandth: the rules of chains.
        np.testing.assert_array_less(np.abs(ours - theirs), 5.0 * errors + 1e-3 * exact.sd)
        assert (errors < 0.3 * exact.sd).all()


@pytest.mark.parametrize(("scale", "far"), [(0.05, -4.0), (0.3, -40.0)])
def test_sums_that_are_drawn(scale, far):
    """Of three values of two coordinates, by quadrature; few Gaussians, so that most are drawn.

    A value beyond the prior's reach had a Gaussian of height exp(245): an evidence was 1.5 off.
    """
    factor = np.array([[2.0, 0.0], [1.6, 1.2], [1.6, -1.2]])
    y, likelihood = np.array([1.0, 1.2, far]), Student(scale, 1.0)
    exact = posterior_of_coordinates(factor, lambda f: likelihood.log_likelihood(y, f.T).sum(-1))
    sites = SiteLogDensity(lambda f: likelihood.log_likelihood(y, f), np.zeros(3), factor)
    drawn = DrawnSum(sites)
    assert drawn.sums is not None
    drawn.most, rng = 6, np.random.default_rng(0)
    runs = [drawn.draw(256, rng) for _ in range(64)]
    log_weights = np.array([run.log_weights for run in runs])
    weights = np.exp(log_weights - exact.log_evidence)
    f = factor @ np.array([run.coordinates for run in runs])
    # Each run is unbiased: 1, and sums of f and f^2. 64 of them, 5 standard errors.
    known = (1.0, exact.mean, exact.sd**2 + exact.mean**2)
    for found, truth in zip((np.ones_like(f[:, :1]), f, f**2), known, strict=True):
        each = (weights[:, None] * found).mean(axis=2)
        error = each.std(axis=0, ddof=1) / 8.0
        assert (np.abs(each.mean(axis=0) - truth) < 5.0 * error + 1e-4).all()
        # Six Gaussians are few; an error that hides a mode is larger.
        assert error.max() < 0.4 * (exact.sd.max() if found is f else np.max(truth))


def test_blocks_elsewhere_are_warned_of():
    class Elsewhere:
        here = False

        def __init__(self, blocks):
            self.n_rows, self.rank, self.total = blocks.n_rows, blocks.rank, blocks.total

    kernel, x, y, likelihood = CASES["Student, two lines"]
    points = Inducing(np.array([[-1.0], [1.0]]))
    student, counts = (
        sg.SkewGPPosterior(x, data, cov_func=kernel, likelihood=own, approximation=points)._fit
        for own, data in ((likelihood, y), (Counts(), np.ones(y.size)))
    )
    fit = student
    with pytest.warns(sg.SeveralModesWarning, match="workers"):
        BlockPairs(fit.gaussian, Elsewhere(fit.data_blocks)).with_modes()
    fit = counts  # log-concave
    BlockPairs(fit.gaussian, Elsewhere(fit.data_blocks)).with_modes()


def test_a_saddle_hides_no_modes():
    """EP's mean is 0, where the gradient is exactly 0."""
    sd = 0.9
    posterior = sg.SkewGPPosterior(
        np.zeros((6, 1)),
        PAIRED[[0, 2, 4, 5, 7, 9]],
        cov_func=Line(sd),
        likelihood=Student(0.15, 1.0),
        random_seed=1,
    )
    assert posterior.latent.n_modes == 2
    assert posterior.latent.relative_ess > 0.5  # .24 without


IN_BLOCKS = Inducing(np.linspace(-1.5, 1.5, 3)[:, None])


@pytest.mark.parametrize(
    ("index", "more"),
    [(index, {}) for index in (45, 79, 219, 233)]
    # Rank three at most: three inducing points leave nothing. Deviations were .05 to 2.6 times.
    + [(index, {"approximation": IN_BLOCKS}) for index in (1, 18, 37)],
)
def test_problems_that_were_wrong(index, more):
    """Plateaus that draws hardly met, which 2 to 3 % of the deviation hung on, at 4 to 7 errors.

    EP of groups of factors that diverged (log evidence 9e130), and a mode of 2 % not found.
    """
    case = problem("many modes", index)
    truth = case.whole()
    posterior = sg.SkewGPPosterior(**case.prior, random_seed=index, **more)
    found, at = posterior.log_marginal_likelihood, posterior.marginals()
    # Of some 20 numbers each the worst, with room for the digits of the rule.
    assert found.value == pytest.approx(truth.log_evidence, abs=5 * found.std_error)
    error = np.hypot(at.moment_errors.mean, 1e-4)
    assert (np.abs(at.moments.mean - truth.mean) < 5 * error).all()
    assert at.moments.sd == pytest.approx(truth.sd, rel=0.1 if more else 0.05)
    # Of 1440 such problems and seeds one was beyond 4.2.
    error = (5.0 if more else 4.2) * np.hypot(at.moment_errors.sd, 1e-4)
    assert (np.abs(at.moments.sd - truth.sd) < error).all()


def values_of_kinds(K, kinds, rng):
    f = np.linalg.cholesky(K) @ rng.standard_normal(len(K))
    own = rng.choice(kinds.share.size, size=len(K), p=kinds.share)
    return f + kinds.shift[own] + kinds.scale[own] * rng.standard_normal(len(K))


def check(posterior, exact):
    """Within five errors, and errors that do not hide a mode."""
    evidence = posterior.log_marginal_likelihood
    assert abs(evidence.value - exact.log_evidence) < 5.0 * evidence.std_error < 0.2
    at = posterior.marginals()
    for ours, errors, theirs in zip(at.moments[:2], at.moment_errors[:2], exact[1:3], strict=True):
        # A tenth of a per cent: the rules of chains.
        np.testing.assert_array_less(np.abs(ours - theirs), 5.0 * errors + 1e-3 * exact.sd)
        assert (errors < 0.3 * exact.sd).all()


@pytest.mark.parametrize(
    ("kinds", "n", "sd", "length", "seed"),
    [
        *((THREE, 7, 3.0, 1.0, seed) for seed in (3, 4, 5)),
        (SHARP, 8, 2.0, 0.7, 0),
        (SHARP, 8, 2.0, 0.7, 4),
        (SPIKE, 9, 1.0, 0.5, 3),
        (OUTLIERS, 9, 1.0, 1.0, 2),
    ],
)
def test_every_value_is_of_one_of_several_kinds(kinds, n, sd, length, seed):
    """Kinds of correlated values change together: log evidences were up to 1.3 off, stated .001."""
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(0.0, 5.0, n))[:, None]
    K = sd**2 * np.exp(-0.5 * ((x - x.T) / length) ** 2) + 1e-6 * np.eye(n)
    y = values_of_kinds(K, kinds, rng)
    exact = posterior_of_kinds(K, y, kinds)

    class Known:
        def __call__(self, A, B=None, diag=False):
            own = K[
                np.ix_(*(np.searchsorted(x[:, 0], z[:, 0]) for z in (A, A if B is None else B)))
            ]
            return own.diagonal() if diag else own

    check(sg.SkewGPPosterior(x, y, cov_func=Known(), likelihood=kinds, random_seed=0), exact)


def along_a_chain(sd):
    """Kernel of an Ornstein-Uhlenbeck process of length 3."""

    def cov(A, B=None, diag=False):
        own = sd**2 * np.exp(-np.abs(A - (A if B is None else B).T) / 3.0)
        return own.diagonal() if diag else own

    return cov


def chain_of_kinds(kinds, n, sd, seed):
    """Places, their covariance, values, and the posterior."""
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(0.0, 5.0, n))
    K = along_a_chain(sd)(x[:, None])
    y = values_of_kinds(K, kinds, rng)
    return x, K, y, posterior_of_chain(x, sd, 3.0, lambda f: kinds.log_likelihood(y, f))


@pytest.mark.parametrize(
    ("kinds", "n", "sd", "seed"),
    [(SHARP, 60, 2.0, 101), (OUTLIERS, 20, 1.0, 102), (THREE, 20, 3.0, 101)],
)
def test_kinds_along_a_chain(kinds, n, sd, seed):
    """Sixty values of two kinds: a log evidence was 27 too small, stated 1e-5."""
    x, _, y, exact = chain_of_kinds(kinds, n, sd, seed)
    cov = along_a_chain(sd)
    check(sg.SkewGPPosterior(x[:, None], y, cov_func=cov, likelihood=kinds, random_seed=3), exact)


def test_tempered_populations_agree_too_well(monkeypatch):
    """Of forty seeds two were three errors off, this one 3.5; of 250 values three of six were."""
    monkeypatch.setattr(DrawnSum, "sums", None)
    x, _, y, exact = chain_of_kinds(OUTLIERS, 20, 1.0, 102)
    posterior = sg.SkewGPPosterior(
        x[:, None], y, cov_func=along_a_chain(1.0), likelihood=OUTLIERS, random_seed=10
    )
    assert posterior.latent.method == "tempered"
    found = posterior.log_marginal_likelihood
    assert abs(found.value - exact.log_evidence) < 3.0 * found.std_error < 0.5


@pytest.mark.parametrize(
    ("kinds", "sd", "each"), [(OUTLIERS, 1.0, 1), (THREE, 3.0, 1), (OUTLIERS, 1.0, 15)]
)
def test_filters_of_few_kinds_agree(kinds, sd, each):
    """Log evidences scattered by .65 and 2.4, of Gaussians that were moved; tempered ones erred.

    Of those an outlier had no sum of Gaussians: its tail was off by a factor of 2.4. Three hundred
    values of twenty numbers take no longer than twenty: there was no filter of so many.
    """
    x, K, y, exact = chain_of_kinds(kinds, 20, sd, 102)
    factor = np.repeat(np.linalg.cholesky(K), each, axis=0)
    if each > 1:
        rng = np.random.default_rng(0)
        y = values_of_kinds(factor @ factor.T + 1e-12 * np.eye(20 * each), kinds, rng)
        exact = posterior_of_chain(
            x, sd, 3.0, lambda f: sum(kinds.log_likelihood(y[i::each], f) for i in range(each))
        )
    sites = SiteLogDensity(lambda f: kinds.log_likelihood(y, f), np.zeros(y.size), factor)
    drawn, rng = DrawnSum(sites), np.random.default_rng(0)
    log_weights = np.array([drawn.draw(64, rng).log_weights for _ in range(16)])
    weights = np.exp(log_weights - exact.log_evidence)
    # Of 1024 draws whose weights have a relative ESS of .6: .026. Four of these.
    assert weights.mean() == pytest.approx(1.0, abs=0.1)
    assert np.log(weights.mean(axis=1)).std() < 0.2
