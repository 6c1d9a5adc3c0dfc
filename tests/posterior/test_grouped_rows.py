"""Many rows that share noise, or are about several functions, in blocks under finite rank.

Against quadrature, and against the exact posterior under the same kernel, taken as any other. Some
8 CPU seconds.
"""

import numpy as np
import pytest
from finite_rank_cases import Grid, GridFeatures, agree, in_blocks, of_all_rows, rbf, slope
from scipy import stats
from scipy.special import logsumexp, ndtr

import pymc_skewgp as sg
from pymc_skewgp import likelihoods as lk
from pymc_skewgp._posterior.posterior import SkewGPPosterior

RNG = np.random.default_rng(5)
N = 120
X = np.sort(RNG.uniform(-3.0, 3.0, N))[:, None]
F = np.stack([np.sin(X[:, 0] + k) for k in range(4)], axis=1)
NEW = np.linspace(-3.0, 3.0, 5)[:, None]
GRID = Grid(np.linspace(-3.0, 3.0, 6))
NOISE = np.array([[1.0, 0.5, 0.0], [0.5, 1.0, 0.2], [0.0, 0.2, 2.0]])
JOINED = np.array([[1.0, 0.4, 0.0], [0.4, 1.0, 0.2], [0.0, 0.2, 2.0]])


def classes(k):
    return (F[:, :k] + RNG.standard_normal((N, k))).argmax(axis=1)


def sets_of(k):
    """Each item in one set, ordered by noisy values; some sets are smaller."""
    signal = np.sin(2.0 * X[:, 0])
    sets = RNG.permutation(N - N % k).reshape(-1, k)
    noisy = signal[sets] + 0.7 * RNG.standard_normal(sets.shape)
    sets = np.take_along_axis(sets, np.argsort(-noisy, axis=1), axis=1)
    sets[::5, -1] = -1
    return sets


def selected():
    seen = F[:, 1] + RNG.standard_normal(N) > 0
    return np.where(seen, F[:, 0] + 0.4 * RNG.standard_normal(N), np.nan)


CASES = {
    "three classes": (lk.MultinomialProbit(), classes(3), {}),
    "four classes": (lk.MultinomialProbit(), classes(4), {"coregion": np.diag([1, 0.5, 2, 1])}),
    "joined classes": (lk.MultinomialProbit(noise_cov=NOISE), classes(3), {"coregion": JOINED}),
    "signs": (
        lk.MultinomialProbit(),
        classes(3),
        {"pseudo_points": [[-2.0], [0.5]], "phase": [1, -1]},
    ),
    "choices": (lk.Choice(0.7), sets_of(4), {}),
    "rankings of three": (lk.Ranking(0.7), sets_of(3), {}),
    "selection": (lk.Selection(0.4, 0.6), selected(), {"coregion": JOINED[:2, :2]}),
}


def same_at_the_data(one, other):
    """Means and deviations of drawn f within errors of nearly independent draws."""
    some = None if one.likelihood.y_dim in ("choice", "ranking") else np.arange(0, N, 6)
    a, b = (x.sample(600, 2, random_seed=1, rows=some)["posterior"]["f"] for x in (one, other))
    a, b = a.values.reshape(1200, -1), b.values.reshape(1200, -1)
    # False alarms: 1 in 2000 for a few hundred values; of 1200 draws some 1000 count.
    gap = np.abs(a.mean(axis=0) - b.mean(axis=0))
    assert (gap < 5.0 * np.sqrt((a.var(axis=0) + b.var(axis=0)) / 1000)).all()
    # Deviations of so many draws err by 2.2 % each.
    assert (np.abs(np.log(a.std(axis=0) / b.std(axis=0))) < 5.0 * 0.022 * np.sqrt(2.0)).all()


@pytest.mark.parametrize("name", CASES)
def test_as_without_blocks(name):
    likelihood, y, more = CASES[name]
    one = in_blocks(X, y, likelihood, GRID, **more)
    other = of_all_rows(X, y, likelihood, GRID, **more)
    agree(one, other, NEW)
    same_at_the_data(one, other)


def test_three_labels_by_quadrature():
    # Three classes, one feature: three coordinates, on a grid.
    points = Grid([[0.5]], True)
    inputs, y = np.array([[0.2], [0.7], [1.1]]), np.array([2, 0, 2])
    phi = GridFeatures(np.array([[0.5]]), True).at(inputs)[0][:, 0]
    c = np.linspace(-5.0, 5.0, 41)
    grid = np.stack(np.meshgrid(c, c, c, indexing="ij"), axis=-1).reshape(-1, 3)
    z = np.linspace(-7.0, 7.0, 57)
    log_p = stats.norm.logpdf(grid).sum(axis=1) + 3.0 * np.log(c[1] - c[0])
    for i, label in enumerate(y):
        f = grid * phi[i]
        others = [k for k in range(3) if k != label]
        inside = ndtr(f[:, [label], None] - f[:, others, None] + z).prod(axis=1)
        log_p += np.log((inside * stats.norm.pdf(z)).sum(axis=1) * (z[1] - z[0]))
    wanted = logsumexp(log_p)
    mean = np.exp(log_p - wanted) @ grid
    posterior = in_blocks(inputs, y, lk.MultinomialProbit(n_classes=3), points, 4096)
    found = posterior.log_marginal_likelihood
    # False alarms: 1 in 10,000. The grid of normal densities is exact to 1e-5.
    assert abs(found.value - wanted) < 4.0 * found.std_error + 2e-5
    assert found.std_error < 0.01
    at = posterior.marginals(np.array([[0.5]]))
    sd = GridFeatures(np.array([[0.5]]), True).at(np.array([[0.5]]))[0][0, 0]
    f_mean = slope(np.array([[0.5]])) + mean * sd
    assert (np.abs(at.moments.mean - f_mean) < 4.5 * at.moment_errors.mean + 1e-5).all()


def test_an_item_in_two_sets_is_without_what_features_leave():
    sets = sets_of(3)
    sets = np.concatenate([sets, np.roll(sets[:, ::-1], 1, axis=0)])
    sets = sets[(sets[:, 0] >= 0) & (sets[:, 2] >= 0)]
    one = in_blocks(X, sets, lk.Choice(0.7), GRID)
    other = of_all_rows(X, sets, lk.Choice(0.7), Grid(GRID.points, True))
    a, b = one.log_marginal_likelihood, other.log_marginal_likelihood
    assert abs(a.value - b.value) < 4.0 * np.hypot(a.std_error, b.std_error)


def test_longer_rankings_are_without_what_features_leave():
    rankings = sets_of(5)
    rankings[::3, 3:] = -1  # of three items, beside those of four and five
    one = in_blocks(X, rankings, lk.Ranking(0.7), GRID, 512)
    other = of_all_rows(X, rankings, lk.Ranking(0.7), Grid(GRID.points, True))
    a, b = one.log_marginal_likelihood, other.log_marginal_likelihood
    assert abs(a.value - b.value) < 4.0 * np.hypot(a.std_error, b.std_error)
    p, q = (x.marginals(NEW) for x in (one, other))
    error = np.hypot(p.moment_errors.mean, q.moment_errors.mean)
    assert (np.abs(p.moments.mean - q.moments.mean) < 4.5 * error).all()
    draws = one.sample(50, 1, random_seed=1)["posterior"]["f"].values[0]
    phi = GridFeatures(GRID.points, True).at(X)[0]
    # f is in the span of the features.
    off = draws.T - slope(X)[:, None]
    np.testing.assert_allclose(phi @ np.linalg.lstsq(phi, off)[0], off, atol=1e-8)


def test_weights_are_repeated_labels():
    y, weights = classes(3), np.arange(N) % 3
    whole = Grid(GRID.points, True)
    one = SkewGPPosterior(
        X, y, cov_func=of_all_rows(X, y, lk.MultinomialProbit(), whole).prior.cov_func,
        likelihood=lk.MultinomialProbit(), weights=weights, approximation=whole,
    )  # fmt: skip
    index = np.repeat(np.arange(N), weights)
    other = in_blocks(X[index], y[index], lk.MultinomialProbit(), whole, mean_func=None)
    a, b = one.log_marginal_likelihood, other.log_marginal_likelihood
    assert abs(a.value - b.value) < 4.0 * np.hypot(a.std_error, b.std_error)


def test_kept_coordinates_of_several_functions(monkeypatch):
    import pymc_skewgp._posterior.finite_rank_fit as module

    posterior = in_blocks(X, classes(3), lk.MultinomialProbit(), Grid(GRID.points, True))
    whole = posterior.sample(100, 2, random_seed=3)
    monkeypatch.setattr(module, "_MOST_KEPT", 100)
    kept = posterior.sample(100, 2, random_seed=3)
    assert kept["posterior"]["coordinates"].shape == (2, 100, 18)
    some = posterior.at_rows(kept, [3, 90], random_seed=4)["posterior"]["f"].values
    np.testing.assert_allclose(some, whole["posterior"]["f"].values[:, :, [3, 90]], rtol=1e-9)


def test_joint_draws_at_new_points_have_the_covariance_of_the_functions():
    far = np.array([[-60.0], [60.0]])  # of nothing but the prior
    likelihood, y, more = CASES["joined classes"]
    posterior = in_blocks(X, y, likelihood, GRID, **more)
    f = posterior.predict(far, draws=2000, chains=2, random_seed=1)["predictions"]["f"].values
    found = np.cov(f.reshape(4000, -1).T)
    # Covariances of 4000 draws err by some .03 here.
    np.testing.assert_allclose(found, 1.5 * np.kron(np.eye(2), JOINED), atol=0.2)


def test_report_of_several_functions():
    # By the kernel itself, whose values at six points leave much.
    posterior = SkewGPPosterior(
        X, classes(3), cov_func=rbf, likelihood=lk.MultinomialProbit(), approximation=Twice(GRID)
    )
    with pytest.warns(sg.PriorApproximationWarning):
        report = posterior.prior_report(60)
    assert (report["kl_u"] > 0.0).all()
    assert np.isnan(report["p"]).all()


class Twice(Grid):
    """Of half as many points than it could have."""

    def __init__(self, grid):
        super().__init__(grid.points[::2])

    def doubled(self):
        return GRID


def test_what_is_refused_by_name():
    noise = np.eye(5) + 0.3 * np.diag(np.ones(4), 1) + 0.3 * np.diag(np.ones(4), -1)
    with pytest.raises(sg.ApproximationError, match="rows share in more than one way"):
        in_blocks(X, np.arange(N) % 5, lk.MultinomialProbit(noise_cov=noise), GRID)
    duels = np.stack([np.arange(N - 1), np.arange(1, N)], axis=1)
    with pytest.raises(sg.ApproximationError, match="has 119 rows that share noise"):
        in_blocks(X, duels, lk.Preference(0.5, noise="item"), GRID)
    with pytest.raises(sg.ApproximationError, match="give a diagonal coregion"):
        in_blocks(
            X, classes(3), lk.MultinomialProbit(), GRID, coregion=JOINED, pseudo_points=[[0.0]]
        )
