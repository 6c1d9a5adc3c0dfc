"""Many rows in blocks, under priors of finite rank, against quadrature and the exact posterior.

Some 8 CPU seconds.
"""

import numpy as np
import pytest
from finite_rank_cases import Grid, GridFeatures, agree, in_blocks, of_all_rows, rbf, slope
from scipy import stats
from scipy.special import logsumexp

import pymc_skewgp as sg
from pymc_skewgp import _limits as _cost
from pymc_skewgp import likelihoods as lk
from pymc_skewgp._posterior.features import finite_rank_prior
from pymc_skewgp._posterior.finite_rank_fit import FiniteRankFit
from pymc_skewgp._posterior.posterior import SkewGPPosterior
from pymc_skewgp._posterior.prior import Prior, as_data_sets

RNG = np.random.default_rng(11)
FEW = np.linspace(0.0, 1.0, 5)[:, None]
SHARP = np.linspace(0.0, 1.0, 5)
POISSON_Y = np.array([0, 2, 1, 6, 3])
QUADRATURE = {
    "probit": (lk.BernoulliProbit(), np.array([0, 1, 0, 1, 1])),
    "poisson": (lk.Poisson(exposure=np.array([1.0, 2.0, 0.5, 1.0, 1.0])), POISSON_Y),
    "binomial": (lk.BinomialProbit(np.array([3, 1, 2, 4, 2])), np.array([1, 0, 2, 3, 2])),
    "student": (lk.StudentT(4.0, 0.5), np.array([0.3, -0.9, 1.9, 0.8, 1.6])),
    "ordinal": (lk.OrderedProbit([-0.5, 0.8]), np.array([0, 1, 1, 2, 2])),
    "tobit": (lk.CensoredGaussian(0.4, lower=0.0), np.array([0.0, 0.7, 0.0, 1.5, 0.9])),
}


def by_quadrature(likelihood, y, X=FEW):
    """Log evidence, and mean of f at the data, for one coordinate and e of each row."""
    features = GridFeatures(np.array([[0.5]]), False)
    phi, rest = features.at(X)
    c, step = np.linspace(-8.0, 8.0, 801), np.linspace(-8.0, 8.0, 401)
    log_c = stats.norm.logpdf(c) + np.log(c[1] - c[0])
    log_e = stats.norm.logpdf(step) + np.log(step[1] - step[0])
    g = slope(X) + c[:, None] * phi[:, 0]
    f = g[:, None] + step[:, None] * np.sqrt(rest)  # c, e, row
    joint = likelihood.log_likelihood(y, f) + log_e[:, None]
    given_c = logsumexp(joint, axis=1)
    inner = np.exp(joint - given_c[:, None])
    total = log_c + given_c.sum(axis=1)
    evidence = logsumexp(total)
    return evidence, np.exp(total - evidence) @ (inner * f).sum(axis=1)


def is_that_of_quadrature(posterior, wanted, mean):
    """Evidence, and mean of f at the data."""
    found = posterior.log_marginal_likelihood
    # False alarms: 1 in 10,000 each; quadrature over e errs by some 1e-6 where it is wide.
    assert abs(found.value - wanted) < 4.0 * found.std_error + 2e-5
    assert found.std_error < 0.03
    f = posterior.sample(4000, 1, random_seed=1)["posterior"]["f"].values[0]
    error = f.std(axis=0) / np.sqrt(4000 * min(found.relative_ess, 1.0))
    # False alarms: 1 in 2000; tables of e are exact to a thousandth of its deviation.
    assert (np.abs(f.mean(axis=0) - mean) < 4.5 * error + 2e-3).all()


@pytest.mark.parametrize("name", QUADRATURE)
def test_few_rows_by_quadrature(name):
    likelihood, y = QUADRATURE[name]
    posterior = in_blocks(FEW, y, likelihood, Grid([0.5]), 4096)
    is_that_of_quadrature(posterior, *by_quadrature(likelihood, y))


EQUAL = {
    "probit": (lk.BernoulliProbit(), np.array([0, 0, 0, 1, 1, 1, 1, 1])),
    "tobit": (lk.CensoredGaussian(0.4, lower=0.0), np.array([0.0, 0, 0, 0.7, 0.7, 0.7, 0, 0])),
}


@pytest.mark.parametrize("name", EQUAL)
def test_equal_rows_by_quadrature(name):
    """Rows that are equal count as one, each with what features leave of f as its own."""
    likelihood, y = EQUAL[name]
    X = FEW[[0, 0, 0, 2, 2, 2, 4, 4]]
    posterior = in_blocks(X, y, likelihood, Grid([0.5]), 4096)
    assert posterior._fit.data_blocks.n_rows == 3
    is_that_of_quadrature(posterior, *by_quadrature(likelihood, y, X))


def test_equal_rows_take_the_memory_of_different_ones(monkeypatch):
    monkeypatch.setattr(_cost, "available_bytes", lambda: 200 * 2**20)
    places = np.linspace(-1.0, 1.0, 480)[:, None]
    X = np.tile(places, (250, 1))
    grid = Grid(np.linspace(-1.0, 1.0, 300))
    posterior = in_blocks(X, (X[:, 0] > 0.0).astype(int), lk.BernoulliProbit(), grid, 64)
    # Features of all of them would be .27 GiB, and be refused.
    assert posterior._fit.data_blocks.n_rows == 480


N = 150
MANY = np.sort(RNG.uniform(-3.0, 3.0, N))[:, None]
SIGNAL = np.sin(2.0 * MANY[:, 0])
LABELS = (RNG.standard_normal(N) < SIGNAL).astype(int)
GRID = Grid(np.linspace(-3.0, 3.0, 6))


def test_labels_as_without_blocks():
    new = np.linspace(-4.0, 4.0, 9)[:, None]
    data = MANY, LABELS, lk.BernoulliProbit(), GRID
    agree(in_blocks(*data), of_all_rows(*data), new)


def test_pseudo_points_as_without_blocks():
    new = np.linspace(-3.0, 3.0, 7)[:, None]
    signs = {"pseudo_points": [[-2.0], [0.5], [1.0]], "phase": [1, 1, -1], "truncation": 0.2}
    data = MANY, LABELS, lk.BernoulliProbit(), GRID
    agree(in_blocks(*data, **signs), of_all_rows(*data, **signs), new)


@pytest.mark.parametrize("several", [False, True])
def test_duels_as_without_blocks(several):
    pairs = RNG.permutation(N).reshape(-1, 2)
    if several:  # of each item: f is then without what features leave
        pairs = np.vstack([pairs, np.roll(pairs[:, ::-1], 1, axis=0)])
    points = np.linspace(-3.0, 3.0, 6)
    one = in_blocks(MANY, pairs, lk.Preference(0.7), Grid(points))
    other = of_all_rows(MANY, pairs, lk.Preference(0.7), Grid(points, several))
    if several:
        a, b = one.log_marginal_likelihood, other.log_marginal_likelihood
        assert abs(a.value - b.value) < 4.0 * np.hypot(a.std_error, b.std_error)
        return
    agree(one, other, np.linspace(-2.0, 2.0, 5)[:, None])
    draws = [x.sample(2000, 1, random_seed=1)["posterior"]["f"].values[0] for x in (one, other)]
    gap = draws[0].mean(axis=0) - draws[1].mean(axis=0)
    # False alarms: 1 in 1000 for all items; draws are nearly independent.
    assert (np.abs(gap) < 5.0 * np.sqrt((draws[0].var(axis=0) + draws[1].var(axis=0)) / 1400)).all()
    a, b = (x.preference_probability([[1.0]], [[-1.0]]) for x in (one, other))
    assert abs(a.value - b.value)[0] < 4.0 * np.hypot(a.std_error, b.std_error)[0]


def test_weights_are_repeated_rows():
    weights = np.arange(N) % 3
    approximation = GRID
    found = SkewGPPosterior(
        MANY, LABELS, cov_func=rbf, mean_func=slope, weights=weights, approximation=approximation
    )
    prior, features = finite_rank_prior(found.prior, MANY)
    found._fit = FiniteRankFit(prior, features, found._sets)
    index = np.repeat(np.arange(N), weights)
    # The repeated rows share one e: as without blocks, the rows of a kernel that share it.
    other = of_all_rows(MANY, LABELS, lk.BernoulliProbit(), approximation)
    other = SkewGPPosterior(
        MANY, LABELS, cov_func=other.prior.cov_func, mean_func=slope, weights=weights, n_draws=4096
    )
    assert index.size == weights.sum()
    agree(found, other, np.linspace(-3.0, 3.0, 5)[:, None])


def test_full_rank_is_the_exact_posterior():
    # As many inducing points as rows: the prior is the kernel itself, to the jitter of its factor.
    X = np.linspace(-3.0, 3.0, 200)[:, None]
    y = (RNG.standard_normal(200) < np.sin(2.0 * X[:, 0])).astype(int)
    exact = SkewGPPosterior(X, y, cov_func=rbf, mean_func=slope, n_draws=4096)
    agree(in_blocks(X, y, None, Grid(X)), exact, np.linspace(-4.0, 4.0, 9)[:, None])


def test_automatic_between_few_and_many_rows():
    few = SkewGPPosterior(MANY[:20], LABELS[:20], cov_func=rbf, approximation=GRID)
    many = SkewGPPosterior(MANY, LABELS, cov_func=rbf, approximation=GRID)
    assert not isinstance(few._fit, FiniteRankFit)
    assert isinstance(many._fit, FiniteRankFit)
    assert "fitted=False" in repr(many)
    new = many.update([[0.1], [0.2]], [1, 0])
    assert new._fit is not many._fit
    assert new.log_marginal_likelihood.value < many.log_marginal_likelihood.value


def test_coordinates_are_kept_of_many_rows(monkeypatch):
    import pymc_skewgp._posterior.finite_rank_fit as module

    posterior = in_blocks(MANY, LABELS, None, Grid(GRID.points, True))
    whole = posterior.sample(500, 2, random_seed=3)
    monkeypatch.setattr(module, "_MOST_KEPT", 100)
    kept = posterior.sample(500, 2, random_seed=3)
    assert kept["posterior"]["coordinates"].shape == (2, 500, 6)
    assert "f" not in kept["posterior"]
    np.testing.assert_array_equal(kept["observed_data"]["y"], LABELS)
    some = posterior.at_rows(kept, [3, 140], random_seed=4)
    assert list(some["posterior"]["obs_id"]) == [3, 140]
    f = some["posterior"]["f"].values
    np.testing.assert_allclose(f, whole["posterior"]["f"].values[..., [3, 140]], rtol=1e-9)
    wanted = stats.norm.logcdf(np.where(LABELS[[3, 140]] > 0, 1, -1) * f)
    np.testing.assert_allclose(some["log_likelihood"]["y"].values, wanted, rtol=1e-10)
    direct = posterior.sample(500, 2, random_seed=3, rows=[3, 140])
    assert direct["posterior"]["f"].shape == (2, 500, 2)
    with pytest.raises(ValueError, match="rows must be whole numbers from 0 to 149"):
        posterior.at_rows(kept, [150])
    with pytest.raises(ValueError, match="have no coordinates"):
        posterior.at_rows(whole, [0])


def test_what_blocks_do_not_take():
    shape = lk.Constraint.bounds(0.0)
    prior = Prior(rbf, slope, np.zeros((0, 1)), np.zeros(0), np.zeros(0), None, GRID)
    with pytest.raises(sg.ApproximationError, match="constraints alone"):
        FiniteRankFit(prior, GRID.features(prior, MANY), as_data_sets(MANY, None, shape))
    posterior = in_blocks(MANY, LABELS, None, GRID)
    with pytest.raises(sg.ApproximationError, match="dimension for each row"):
        _ = posterior.sun
    with pytest.raises(sg.ApproximationError, match="not Gaussian where features leave"):
        posterior.marginals()
    with pytest.raises(sg.ApproximationError, match="wide beside what a row of the data says"):
        _ = in_blocks(FEW, SHARP, lk.Laplace(1e-3), Grid([0.5])).log_marginal_likelihood


def test_points_are_exact():
    y = SIGNAL + 0.3 * RNG.standard_normal(N)
    found = in_blocks(MANY, y, lk.Gaussian(0.3), GRID).log_marginal_likelihood
    phi, rest = GridFeatures(GRID.points, False).at(MANY)
    cov = phi @ phi.T + np.diag(rest + 0.09)
    wanted = stats.multivariate_normal(slope(MANY), cov).logpdf(y)
    assert found.value == pytest.approx(wanted, abs=1e-8)


class NotDivisible(lk.Poisson):
    """Counts whose likelihood is known of all rows together alone."""

    divisible = False


@pytest.mark.parametrize("kind", ["labels", "counts", "weighted", "trials"])
def test_parts_of_the_rows_do_not_matter(kind, monkeypatch):
    import pymc_skewgp._posterior.row_predictors as module

    exposure = np.linspace(0.5, 2.0, N)
    counts = RNG.poisson(np.exp(SIGNAL))
    trials = np.arange(N) % 3 + 1
    likelihood, y = {
        "labels": (lk.BernoulliProbit(), LABELS),
        "counts": (lk.Poisson(exposure), counts),
        "weighted": (lk.Weighted(lk.BernoulliLogit(), exposure), LABELS),
        "trials": (lk.BinomialProbit(trials), np.minimum(counts, trials)),
    }[kind]
    one = in_blocks(MANY, y, likelihood, GRID, 256)
    wanted = one.log_marginal_likelihood.value
    monkeypatch.setattr(module, "ROWS_AT_ONCE", 37)
    parts = in_blocks(MANY, y, likelihood, GRID, 256)
    # The same points; sites differ by what EP and quadrature stop at, which weights make up for.
    assert parts.log_marginal_likelihood.value == pytest.approx(wanted, abs=1e-3)
    assert len(parts._fit.data_blocks.blocks) == 5
    if kind == "counts":
        whole = in_blocks(MANY, y, NotDivisible(exposure), GRID, 256)
        assert whole.log_marginal_likelihood.value == pytest.approx(wanted, abs=1e-6)
        assert len(whole._fit.data_blocks.blocks) == 1


def test_steep_labels_as_without_blocks():
    # Prior variance 150 and labels of one sign on each side: the weights of pairs are poor, and
    # the ladder has to say so.
    steep = Grid(GRID.points, True)
    steep.features = lambda prior, X: Scaled(GridFeatures(GRID.points, True))
    labels = (MANY[:, 0] > 0.1).astype(int)
    data = MANY, labels, lk.BernoulliProbit(), steep
    agree(in_blocks(*data), of_all_rows(*data), np.linspace(-3.0, 3.0, 5)[:, None], 0.0)


class Scaled:
    """Features ten times as large."""

    def __init__(self, features):
        self.features, self.rank = features, features.rank

    def at(self, X):
        phi, rest = self.features.at(X)
        return 10.0 * phi, 100.0 * rest


def test_data_of_two_kinds():
    y = SIGNAL + 0.3 * RNG.standard_normal(N)
    first, second = slice(0, N, 2), slice(1, N, 2)
    data = {
        "seen": (MANY[first], y[first], lk.Gaussian(0.3)),
        "labels": (MANY[second], LABELS[second], lk.BernoulliProbit()),
    }
    one, other = in_blocks(data, None, None, GRID), of_all_rows(data, None, None, GRID)
    agree(one, other, np.linspace(-3.0, 3.0, 5)[:, None])
    tree = one.sample(50, 2, random_seed=1)
    assert tree["posterior"]["f_seen"].shape == tree["posterior"]["f_labels"].shape == (2, 50, 75)
    with pytest.raises(ValueError, match="rows= is for data of one kind"):
        one.sample(50, 2, rows=[0])


def test_many_new_points():
    posterior = in_blocks(MANY, LABELS, None, GRID, 256)
    new = np.linspace(-3.0, 3.0, 1200)[:, None]
    found = posterior.predict(new, draws=300, chains=2, random_seed=2)
    f, summary = found["predictions"]["f"].values, found["predictions_summary"]
    # Without an array of 1200 x 1200; 600 draws have errors of a twenty-fifth of a deviation.
    gap = np.abs(f.reshape(-1, 1200).mean(axis=0) - summary["f_mean"].values)
    assert (gap < 5.0 * summary["f_sd"].values / np.sqrt(600)).all()
    p = posterior.probability(new)
    np.testing.assert_allclose(p.value, summary["p_mean"].values, rtol=1e-10)
    derivative = pytest.raises(sg.ApproximationError, match="no derivatives")
    with derivative:
        posterior.marginals(new, derivative=(0, 1))
