"""Many rows in blocks, under priors of finite rank, against quadrature and the exact posterior.

The exact posterior is that of the same kernel, taken as any other. Rows share noise, are about
several functions, or neither. Some 15 CPU seconds.
"""

import numpy as np
import pytest
from comparison_oracles import chosen, latent_posterior
from finite_rank_cases import Grid, GridFeatures, agree, in_blocks, of_all_rows, rbf, slope
from scipy import stats
from scipy.special import logsumexp

import pymc_skewgp as sg
from pymc_skewgp import _limits
from pymc_skewgp import likelihoods as lk
from pymc_skewgp._posterior import data_blocks as row_blocks
from pymc_skewgp._posterior import finite_rank_fit
from pymc_skewgp._posterior.finite_rank_fit import FiniteRankFit
from pymc_skewgp._posterior.posterior import SkewGPPosterior
from pymc_skewgp._posterior.prior import Prior, as_data_sets

RNG = np.random.default_rng(11)
FEW = np.linspace(0.0, 1.0, 5)[:, None]
EQUAL = FEW[[0, 0, 0, 2, 2, 2, 4, 4]]
# Rows that are equal count as one, each with what features leave of f as its own.
QUADRATURE = {
    "probit": (FEW, lk.BernoulliProbit(), [0, 1, 0, 1, 1]),
    "poisson": (FEW, lk.Poisson(exposure=np.array([1.0, 2, 0.5, 1, 1])), [0, 2, 1, 6, 3]),
    "binomial": (FEW, lk.BinomialProbit(np.array([3, 1, 2, 4, 2])), [1, 0, 2, 3, 2]),
    "student": (FEW, lk.StudentT(4.0, 0.5), [0.3, -0.9, 1.9, 0.8, 1.6]),
    "ordinal": (FEW, lk.OrderedProbit([-0.5, 0.8]), [0, 1, 1, 2, 2]),
    "equal labels": (EQUAL, lk.BernoulliProbit(), [0, 0, 0, 1, 1, 1, 1, 1]),
    "equal values": (
        EQUAL, lk.CensoredGaussian(0.4, lower=0.0), [0.0, 0, 0, 0.7, 0.7, 0.7, 0, 0]
    ),
}  # fmt: skip


def by_quadrature(X, likelihood, y):
    """Log evidence, and mean of f at the data, for one coordinate and e of each row."""
    phi, rest = GridFeatures(np.array([[0.5]]), False).at(X)
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


@pytest.mark.parametrize("name", QUADRATURE)
def test_few_rows_by_quadrature(name):
    X, likelihood, y = QUADRATURE[name]
    y = np.array(y)
    posterior = in_blocks(X, y, likelihood, Grid([0.5]), 4096)
    assert posterior._fit.data_blocks.n_rows == len(np.unique(X))
    wanted, mean = by_quadrature(X, likelihood, y)
    found = posterior.log_marginal_likelihood
    # False alarms: 1 in 10,000 each; quadrature over e errs by some 1e-6 where it is wide.
    assert abs(found.value - wanted) < 4.0 * found.std_error + 2e-5
    assert found.std_error < 0.03
    f = posterior.sample(4000, 1, random_seed=1)["posterior"]["f"].values[0]
    error = f.std(axis=0) / np.sqrt(4000 * min(found.relative_ess, 1.0))
    # False alarms: 1 in 2000; tables of e are exact to a thousandth of its deviation.
    assert (np.abs(f.mean(axis=0) - mean) < 4.5 * error + 2e-3).all()


def test_three_classes_by_quadrature():
    # One feature: three coordinates, on a grid.
    at = np.array([[0.5]])
    features, points = GridFeatures(at, True), Grid([[0.5]], True)
    inputs, y = np.array([[0.2], [0.7], [1.1]]), np.array([2, 0, 2])
    phi = features.at(inputs)[0][:, 0]

    def probability(c):
        parts = [c[:, [k]] - np.delete(c, k, axis=1) for k in y]
        return np.prod([chosen(d * p) for d, p in zip(parts, phi, strict=True)], axis=0)

    exact = latent_posterior(np.eye(3), probability)
    posterior = in_blocks(inputs, y, lk.MultinomialProbit(n_classes=3), points, 4096)
    found, marginals = posterior.log_marginal_likelihood, posterior.marginals(at)
    # False alarms: 1 in 10,000. The grid of normal densities is exact to 1e-5.
    assert abs(found.value - exact.log_evidence) < 4.0 * found.std_error + 2e-5
    assert found.std_error < 0.01
    mean = slope(at) + exact.mean * features.at(at)[0][0, 0]
    gap = np.abs(marginals.moments.mean - mean)
    assert (gap < 4.5 * marginals.moment_errors.mean + 1e-5).all()


N = 120
X = np.sort(RNG.uniform(-3.0, 3.0, N))[:, None]
NEW = np.linspace(-4.0, 4.0, 7)[:, None]
SIGNAL = np.sin(2.0 * X[:, 0])
LABELS = (RNG.standard_normal(N) < SIGNAL).astype(int)
VALUES = SIGNAL + 0.3 * RNG.standard_normal(N)
F = np.stack([np.sin(X[:, 0] + k) for k in range(4)], axis=1)
GRID = Grid(np.linspace(-3.0, 3.0, 6))
WHOLE = Grid(GRID.points, True)
NOISE = np.array([[1.0, 0.5, 0.0], [0.5, 1.0, 0.2], [0.0, 0.2, 2.0]])
JOINED = np.array([[1.0, 0.4, 0.0], [0.4, 1.0, 0.2], [0.0, 0.2, 2.0]])


def classes(k):
    return (F[:, :k] + RNG.standard_normal((N, k))).argmax(axis=1)


def sets_of(k):
    """Each item in one set, ordered by noisy values; some sets are smaller."""
    sets = RNG.permutation(N - N % k).reshape(-1, k)
    noisy = SIGNAL[sets] + 0.7 * RNG.standard_normal(sets.shape)
    sets = np.take_along_axis(sets, np.argsort(-noisy, axis=1), axis=1)
    sets[::5, -1] = -1
    return sets


def selected():
    seen = F[:, 1] + RNG.standard_normal(N) > 0
    return np.where(seen, F[:, 0] + 0.4 * RNG.standard_normal(N), np.nan)


LABELLED, CLASSES = lk.BernoulliProbit(), lk.MultinomialProbit()
THREE = classes(3)
PAIRS = RNG.permutation(N).reshape(-1, 2)
KINDS = {
    "seen": (X[::2], VALUES[::2], lk.Gaussian(0.3)),
    "labels": (X[1::2], LABELS[1::2], LABELLED),
}
CASES = {
    "labels": (LABELLED, LABELS, {}),
    "labels under signs": (
        LABELLED,
        LABELS,
        {"pseudo_points": [[-2.0], [0.5], [1.0]], "phase": [1, 1, -1], "truncation": 0.2},
    ),
    "duels": (lk.Preference(0.7), PAIRS, {}),
    "joined classes": (lk.MultinomialProbit(noise_cov=NOISE), classes(3), {"coregion": JOINED}),
    "classes under signs": (CLASSES, THREE, {"pseudo_points": [[-2.0], [0.5]], "phase": [1, -1]}),
    "choices": (lk.Choice(0.7), sets_of(4), {}),
    "rankings of three": (lk.Ranking(0.7), sets_of(3), {}),
    "selection": (lk.Selection(0.4, 0.6), selected(), {"coregion": JOINED[:2, :2]}),
}


@pytest.mark.parametrize("name", CASES)
def test_as_without_blocks(name):
    likelihood, y, more = CASES[name]
    one = in_blocks(X, y, likelihood, GRID, **more)
    other = of_all_rows(X, y, likelihood, GRID, 2048, **more)
    agree(one, other, NEW)
    if name == "duels":
        p, q = (x.preference_probability(NEW[:3], NEW[4:]) for x in (one, other))
        assert (np.abs(p.value - q.value) < 4.5 * np.hypot(p.std_error, q.std_error)).all()
    # Of f at the data means and deviations within errors of nearly independent draws.
    some = None if np.ndim(y) > 1 else np.arange(0, N, 6)
    a, b = (x.sample(600, 2, random_seed=1, rows=some)["posterior"]["f"] for x in (one, other))
    a, b = a.values.reshape(1200, -1), b.values.reshape(1200, -1)
    # False alarms: 1 in 2000 for a few hundred values; of 1200 draws some 1000 count.
    gap = np.abs(a.mean(axis=0) - b.mean(axis=0))
    assert (gap < 5.0 * np.sqrt((a.var(axis=0) + b.var(axis=0)) / 1000)).all()
    # Deviations of so many draws err by 2.2 % each.
    assert (np.abs(np.log(a.std(axis=0) / b.std(axis=0))) < 5.0 * 0.022 * np.sqrt(2.0)).all()


@pytest.mark.parametrize("grid", [GRID, WHOLE], ids=["dense", "low rank"])
def test_data_of_two_kinds(grid):
    one, other = in_blocks(KINDS, None, None, grid), of_all_rows(KINDS, None, None, grid)
    agree(one, other, NEW)
    tree = one.sample(50, 2, random_seed=1)
    assert tree["posterior"]["f_seen"].shape == tree["posterior"]["f_labels"].shape == (2, 50, 60)
    with pytest.raises(ValueError, match="rows= is for data of one kind"):
        one.sample(50, 2, rows=[0])


class Scaled:
    """Features ten times as large."""

    def __init__(self, features):
        self.features, self.rank = features, features.rank

    def at(self, X):
        phi, rest = self.features.at(X)
        return 10.0 * phi, 100.0 * rest


def test_steep_labels_as_without_blocks():
    # Prior variance 150 and labels of one sign on each side: the weights of pairs are poor, and
    # the ladder has to say so.
    steep = Grid(GRID.points, True)
    steep.features = lambda prior, X: Scaled(GridFeatures(GRID.points, True))
    data = X, (X[:, 0] > 0.1).astype(int), LABELLED, steep
    agree(in_blocks(*data), of_all_rows(*data), np.linspace(-3.0, 3.0, 5)[:, None], 0.0)


def same_evidence(one, other):
    a, b = one.log_marginal_likelihood, other.log_marginal_likelihood
    assert abs(a.value - b.value) < 4.0 * np.hypot(a.std_error, b.std_error)


def twice(sets):
    """Each item in two of them."""
    sets = np.concatenate([sets, np.roll(sets[:, ::-1], 1, axis=0)])
    return sets[(sets >= 0).all(axis=1)]


def long_rankings():
    rankings = sets_of(5)
    rankings[::3, 3:] = -1  # of three items, beside those of four and five
    return rankings


SHARED = {
    "duels": (lk.Preference(0.7), twice(PAIRS)),
    "choices": (lk.Choice(0.7), twice(sets_of(3))),
    "longer rankings": (lk.Ranking(0.7), long_rankings()),
}


@pytest.mark.parametrize("name", SHARED)
def test_items_that_share_more_are_without_what_features_leave(name):
    likelihood, y = SHARED[name]
    one, other = in_blocks(X, y, likelihood, GRID), of_all_rows(X, y, likelihood, WHOLE)
    same_evidence(one, other)
    if name == "longer rankings":
        p, q = (x.marginals(NEW) for x in (one, other))
        error = np.hypot(p.moment_errors.mean, q.moment_errors.mean)
        assert (np.abs(p.moments.mean - q.moments.mean) < 4.5 * error).all()
        draws = one.sample(50, 1, random_seed=1)["posterior"]["f"].values[0]
        # f is in the span of the features.
        phi, off = GridFeatures(GRID.points, True).at(X)[0], draws.T - slope(X)[:, None]
        np.testing.assert_allclose(phi @ np.linalg.lstsq(phi, off)[0], off, atol=1e-8)


@pytest.mark.parametrize(
    ("likelihood", "y", "grid"), [(LABELLED, LABELS, GRID), (CLASSES, THREE, WHOLE)]
)
def test_weights_are_repeated_rows(likelihood, y, grid):
    weights = np.arange(N) % 3
    index = np.repeat(np.arange(N), weights)
    one = in_blocks(X, y, likelihood, grid, weights=weights)
    if grid is WHOLE:
        agree(one, in_blocks(X[index], y[index], likelihood, grid), NEW)
    else:  # The repeated rows share one e, as rows of a kernel do.
        agree(one, of_all_rows(X, y, likelihood, grid, weights=weights), NEW)


def test_equal_rows_take_the_memory_of_different_ones(monkeypatch):
    monkeypatch.setattr(_limits, "available_bytes", lambda: 200 * 2**20)
    inputs = np.tile(np.linspace(-1.0, 1.0, 480)[:, None], (250, 1))
    grid = Grid(np.linspace(-1.0, 1.0, 300))
    posterior = in_blocks(inputs, (inputs[:, 0] > 0.0).astype(int), LABELLED, grid, 64)
    # Features of all of them would be .27 GiB, and be refused.
    assert posterior._fit.data_blocks.n_rows == 480


def test_automatic_between_few_and_many_rows():
    few = SkewGPPosterior(X[:20], LABELS[:20], cov_func=rbf, approximation=GRID)
    many = SkewGPPosterior(X, LABELS, cov_func=rbf, approximation=GRID)
    assert not isinstance(few._fit, FiniteRankFit)
    assert isinstance(many._fit, FiniteRankFit)
    assert "fitted=False" in repr(many)
    new = many.update([[0.1], [0.2]], [1, 0])
    assert new._fit is not many._fit
    assert new.log_marginal_likelihood.value < many.log_marginal_likelihood.value
    # What blocks do not take goes without, as their refusal says.
    banded = lk.MultinomialProbit(noise_cov=BANDED)
    known = {"cov_func": rbf, "approximation": GRID, "likelihood": banded}
    assert not isinstance(SkewGPPosterior(X[:40], np.arange(40) % 5, **known)._fit, FiniteRankFit)


def test_coordinates_are_kept_of_many_rows(monkeypatch):
    posteriors = [in_blocks(X, *data, WHOLE) for data in ((LABELS, None), (THREE, CLASSES))]
    every = [p.sample(500, 2, random_seed=3) for p in posteriors]
    monkeypatch.setattr(finite_rank_fit, "_MOST_KEPT", 100)
    for posterior, whole, k in zip(posteriors, every, (1, 3), strict=True):
        kept = posterior.sample(500, 2, random_seed=3)
        assert kept["posterior"]["coordinates"].shape == (2, 500, 6 * k)
        assert "f" not in kept["posterior"]
        some = posterior.at_rows(kept, [3, 90], random_seed=4)
        assert list(some["posterior"]["obs_id"]) == [3, 90]
        f = some["posterior"]["f"].values
        np.testing.assert_allclose(f, whole["posterior"]["f"].values[:, :, [3, 90]], rtol=1e-9)
        if k == 1:
            np.testing.assert_array_equal(kept["observed_data"]["y"], LABELS)
            wanted = stats.norm.logcdf(np.where(LABELS[[3, 90]] > 0, 1, -1) * f)
            np.testing.assert_allclose(some["log_likelihood"]["y"].values, wanted, rtol=1e-10)
            direct = posterior.sample(500, 2, random_seed=3, rows=[3, 90])
            assert direct["posterior"]["f"].shape == (2, 500, 2)
    with pytest.raises(ValueError, match="rows must be whole numbers from 0 to 119"):
        posterior.at_rows(kept, [150])
    with pytest.raises(ValueError, match="have no coordinates"):
        posterior.at_rows(whole, [0])


class NotDivisible(lk.Poisson):
    """Counts whose likelihood is known of all rows together alone."""

    divisible = False


EXPOSURE, TRIALS = np.linspace(0.5, 2.0, N), np.arange(N) % 3 + 1
COUNTS = RNG.poisson(np.exp(SIGNAL))
PARTS = {
    "labels": (LABELLED, LABELS),
    "counts": (lk.Poisson(EXPOSURE), COUNTS),
    "weighted": (lk.Weighted(lk.BernoulliLogit(), EXPOSURE), LABELS),
    "trials": (lk.BinomialProbit(TRIALS), np.minimum(COUNTS, TRIALS)),
}


@pytest.mark.parametrize("kind", PARTS)
def test_parts_of_the_rows_do_not_matter(kind, monkeypatch):
    likelihood, y = PARTS[kind]
    wanted = in_blocks(X, y, likelihood, GRID, 256).log_marginal_likelihood.value
    monkeypatch.setattr(row_blocks, "ROWS_IN_BLOCK", 30)
    parts = in_blocks(X, y, likelihood, GRID, 256)
    # The same points; sites differ by what EP and quadrature stop at, which weights make up for.
    assert parts.log_marginal_likelihood.value == pytest.approx(wanted, abs=1e-3)
    assert len(parts._fit.data_blocks.blocks) == 4
    if kind == "counts":
        whole = in_blocks(X, y, NotDivisible(EXPOSURE), GRID, 256)
        assert whole.log_marginal_likelihood.value == pytest.approx(wanted, abs=1e-6)
        assert len(whole._fit.data_blocks.blocks) == 1


def test_many_new_points():
    posterior = in_blocks(X, LABELS, None, GRID, 256)
    new = np.linspace(-3.0, 3.0, 1200)[:, None]
    found = posterior.predict(new, draws=300, chains=2, random_seed=2)
    f, summary = found["predictions"]["f"].values, found["predictions_summary"]
    # Without an array of 1200 x 1200; 600 draws have errors of a twenty-fifth of a deviation.
    gap = np.abs(f.reshape(-1, 1200).mean(axis=0) - summary["f_mean"].values)
    assert (gap < 5.0 * summary["f_sd"].values / np.sqrt(600)).all()
    p = posterior.probability(new)
    np.testing.assert_allclose(p.value, summary["p_mean"].values, rtol=1e-10)


def test_joint_draws_at_new_points_have_the_covariance_of_the_functions():
    far = np.array([[-60.0], [60.0]])  # of nothing but the prior
    likelihood, y, more = CASES["joined classes"]
    posterior = in_blocks(X, y, likelihood, GRID, **more)
    f = posterior.predict(far, draws=2000, chains=2, random_seed=1)["predictions"]["f"].values
    found = np.cov(f.reshape(4000, -1).T)
    # Covariances of 4000 draws err by some .03 here.
    np.testing.assert_allclose(found, 1.5 * np.kron(np.eye(2), JOINED), atol=0.2)


class Twice(Grid):
    """Of half as many points than it could have."""

    def __init__(self, grid):
        super().__init__(grid.points[::2])

    def doubled(self):
        return GRID


def test_report_of_several_functions():
    # By the kernel itself, whose values at six points leave much.
    approximation = Twice(GRID)
    posterior = SkewGPPosterior(
        X, THREE, cov_func=rbf, likelihood=CLASSES, approximation=approximation
    )
    with pytest.warns(sg.PriorApproximationWarning):
        report = posterior.prior_report(60)
    assert (report["kl_u"] > 0.0).all()
    assert np.isnan(report["p"]).all()


def constraints_alone():
    prior = Prior(rbf, slope, np.zeros((0, 1)), np.zeros(0), np.zeros(0), None, GRID)
    sets = as_data_sets(X, None, lk.Constraint.bounds(0.0))
    return FiniteRankFit(prior, GRID.features(prior, X), sets)


def labelled():
    return in_blocks(X, LABELS, None, GRID)


CHAIN = np.stack([np.arange(N - 1), np.arange(1, N)], axis=1)
BANDED = np.eye(5) + 0.3 * np.diag(np.ones(4), 1) + 0.3 * np.diag(np.ones(4), -1)
REFUSED = {
    "constraints alone": constraints_alone,
    "a column for each row": lambda: labelled().sun,
    "not Gaussian where features leave": lambda: labelled().marginals(),
    "no derivatives": lambda: labelled().marginals(NEW, derivative=(0, 1)),
    "wide beside what a row of the data says": lambda: (
        in_blocks(FEW, FEW[:, 0], lk.Laplace(1e-3), Grid([0.5])).log_marginal_likelihood
    ),
    "rows share in more than one way": lambda: in_blocks(
        X, np.arange(N) % 5, lk.MultinomialProbit(noise_cov=BANDED), GRID
    ),
    "has 119 rows that share noise": lambda: in_blocks(
        X, CHAIN, lk.Preference(0.5, noise="item"), GRID
    ),
    "give a diagonal coregion": lambda: in_blocks(
        X, THREE, CLASSES, GRID, coregion=JOINED, pseudo_points=[[0.0]]
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_blocks_do_not_take(message):
    with pytest.raises(sg.ApproximationError, match=message):
        REFUSED[message]()
