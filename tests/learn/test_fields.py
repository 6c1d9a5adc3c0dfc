"""Models whose Gaussian part has a sparse precision: walks, areas, many effects."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from arviz_stats.base import array_stats
from numpy.testing import assert_allclose
from scipy import sparse, stats

import pymc_skewgp as sg
from pymc_skewgp._model.graph.members import log_density_of
from pymc_skewgp._model.ops.plain_mode import plain_function

# Blocks of 300 values and more are looked at for a sparse precision.
N = 300
# Standard errors that a number may be off by: 6e-5 false alarms of each, seeds are fixed.
Z = 4.0


def chain_on_a_grid(log_prob, first, sd, reach=5.0, of=None):
    """Log evidence and means of z_1 ~ N(0, first^2), z_t ~ N(z_{t-1}, sd^2), by sums on a grid.

    `log_prob` has the shape (t, grid). Steps of a fifth of `sd`, of which the sum of a Gaussian
    function is right to 1e-12. Means of a function `of` z instead, such as a mean given z.
    """
    width = 0.2 * sd
    grid = np.arange(-reach, reach, width)
    step = stats.norm.pdf(grid[:, None], grid, sd) * width
    terms, level = log_prob(grid), 0.0
    wanted = np.broadcast_to(grid, terms.shape) if of is None else of(grid)
    ahead, states = stats.norm.pdf(grid, 0.0, first) * width, []
    for own in terms:
        here = ahead * np.exp(own - own.max())
        level += np.log(here.sum()) + own.max()
        states.append(here / here.sum())
        ahead = states[-1] @ step
    means, back = [], np.ones(grid.size)
    for here, own, values in zip(states[::-1], terms[::-1], wanted[::-1], strict=True):
        both = here * back
        means.append(both @ values / both.sum())
        back = step @ (back * np.exp(own - own.max()))
        back /= back.max()
    return level, np.array(means[::-1])


def close_to(dt, evidence):
    """Whether the log evidence is that, and known well."""
    known = dt["posterior"].attrs
    assert known["log_evidence_se"] < 0.15
    return abs(known["log_evidence"] - evidence) < Z * known["log_evidence_se"]


def errors_of(found, right):
    """Differences of means in standard errors, as if a tenth of the draws were independent.

    Resampled ones share ancestors.
    """
    mean, sd = found.mean(("chain", "draw")).values, found.std(("chain", "draw")).values
    return np.abs(mean - right) / sd * np.sqrt(0.1 * found.sizes["chain"] * found.sizes["draw"])


def test_counts_on_a_walk():
    """By pairs; part by part in `test_chains_see_ancestors`."""
    rng = np.random.default_rng(1)
    y = rng.poisson(np.exp(0.5 * np.sin(0.02 * np.arange(N))))
    with pm.Model() as model:
        walk = pm.GaussianRandomWalk("z", sigma=0.1, init_dist=pm.Normal.dist(0.0, 1.0), shape=N)
        pm.Poisson("y", pm.math.exp(walk), observed=y)

    def log_prob(grid):
        return stats.poisson.logpmf(y[:, None], np.exp(grid))

    evidence, mean = chain_on_a_grid(log_prob, 1.0, 0.1)
    dt = sg.integrate(model, random_seed=2, draws=500, progressbar=False)
    assert close_to(dt, evidence)
    assert errors_of(dt["posterior"]["z"], mean).max() < Z


def test_effects_of_single_rows_are_averaged_over():
    """Beside a walk: by pairs of the walk alone, effects given it; by 48 nodes of each effect."""
    rng, scale = np.random.default_rng(9), 0.8
    y = rng.poisson(np.exp(0.5 * np.sin(0.02 * np.arange(N)) + scale * rng.normal(size=N)))
    with pm.Model() as model:
        walk = pm.GaussianRandomWalk("z", sigma=0.1, init_dist=pm.Normal.dist(0.0, 1.0), shape=N)
        effect = pm.Normal("e", 0.3, scale, shape=N)
        pm.Poisson("y", pm.math.exp(walk + effect), observed=y)
    nodes, weights = np.polynomial.hermite_e.hermegauss(48)

    def shares(grid):
        rate = np.exp(grid[:, None] + 0.3 + scale * nodes)
        return stats.poisson.pmf(y[:, None, None], rate) * weights / np.sqrt(2.0 * np.pi)

    def log_prob(grid):
        return np.log(shares(grid).sum(axis=2))

    def effect_given(grid):
        return 0.3 + scale * (shares(grid) @ nodes) / shares(grid).sum(axis=2)

    evidence, of_walk = chain_on_a_grid(log_prob, 1.0, 0.1, reach=3.0)
    _, of_effect = chain_on_a_grid(log_prob, 1.0, 0.1, reach=3.0, of=effect_given)
    dt = sg.integrate(model, random_seed=2, draws=500, progressbar=False)
    assert close_to(dt, evidence)
    # Of pairs of all coordinates it was a fifth.
    assert dt["posterior"].attrs["relative_ess_exact"] > 0.8
    assert errors_of(dt["posterior"]["z"], of_walk).max() < Z
    assert errors_of(dt["posterior"]["e"], of_effect).max() < Z


def people(rng, size):
    who = rng.integers(0, size, 3 * size)
    return who, rng.binomial(1, 0.6, who.size)


@pytest.mark.parametrize("centred", [True, False])
def test_labels_of_people(centred):
    """Of effects alone the evidence is a product of integrals, by 64 Gauss-Hermite nodes each."""
    who, y = people(np.random.default_rng(3), N)
    with pm.Model() as model:
        if centred:
            effect = pm.Normal("u", 0.0, 1.5, shape=N)
        else:
            effect = 1.5 * pm.Normal("u", 0.0, 1.0, shape=N)
        pm.Bernoulli("y", logit_p=effect[who], observed=y)
    nodes, weights = np.polynomial.hermite_e.hermegauss(64)
    up, down = (np.bincount(who, side, minlength=N) for side in (y, 1 - y))
    logs = -up[:, None] * np.log1p(np.exp(-1.5 * nodes)) - down[:, None] * np.log1p(
        np.exp(1.5 * nodes)
    )
    shares = np.exp(logs) * weights / np.sqrt(2.0 * np.pi)
    evidence = np.log(shares.sum(axis=1)).sum()
    dt = sg.integrate(model, random_seed=4, draws=500, progressbar=False)
    assert close_to(dt, evidence)
    right = (shares @ nodes) / shares.sum(axis=1) * (1.5 if centred else 1.0)
    assert errors_of(dt["posterior"]["u"], right).max() < Z


def autoregression(y):
    with pm.Model() as model:
        sd = pm.HalfNormal("sd", 0.5)
        level = pm.Normal("level", 0.0, 2.0)
        z = pm.AR("z", rho=[0.9], sigma=sd, init_dist=pm.Normal.dist(0.0, 1.0), shape=y.size)
        pm.Normal("y", level + z, 0.3, observed=y)
    return model


def test_measured_autoregression_at_the_optimum():
    """Of Gaussian data the evidence is a Gaussian density, whose maximum SciPy finds."""
    rng = np.random.default_rng(5)
    y = rng.normal(size=N).cumsum() * 0.1 + rng.normal(0.0, 0.3, N) + 1.0
    found = sg.find_hyperparameters(autoregression(y), progressbar=False, random_seed=0)

    def covariance(sd):
        powers = np.tril(0.9 ** np.maximum(np.arange(N)[:, None] - np.arange(N), 0))
        scales = np.diag(np.r_[1.0, np.full(N - 1, sd**2)])
        return powers @ scales @ powers.T + 0.09 * np.eye(N) + 4.0

    sd = float(found.point["sd"])
    gaussian = stats.multivariate_normal(np.zeros(N), covariance(sd))
    assert_allclose(found.log_marginal_likelihood.value, gaussian.logpdf(y), rtol=1e-8)

    def total(x):
        prior = stats.halfnorm.logpdf(x, 0.0, 0.5)
        return stats.multivariate_normal.logpdf(y, np.zeros(N), covariance(x)) + prior

    # A search ends where the gradient is small: the curvature is some 1e3, so that steps of 1e-3
    # change the total by 5e-4.
    assert total(sd) > max(total(sd * 1.01), total(sd / 1.01))


def neighbours(k):
    edges = sparse.diags_array([np.ones(k - 1)] * 2, offsets=[-1, 1])
    return sparse.csr_matrix(
        sparse.kron(edges, sparse.eye_array(k)) + sparse.kron(sparse.eye_array(k), edges)
    )


@pytest.mark.parametrize("given", ["sparse", "dense"])
def test_density_of_areas(given):
    """By a sparse factor it is PyMC's, by eigenvalues, with the constant that that is short of."""
    W = neighbours(5) if given == "sparse" else neighbours(5).toarray()
    with pm.Model() as model:
        alpha, tau = pm.Beta("alpha", 2.0, 1.0), pm.Gamma("tau", 2.0, 1.0)
        z = pm.CAR("z", mu=np.full(25, 0.5), W=W, alpha=alpha, tau=tau)
    values = [model.rvs_to_values[x] for x in (alpha, tau, z)]
    own, theirs = log_density_of(model, z).sum(), model.logp(vars=[z])
    functions = [plain_function(values, [x, *pt.grad(x, values)]) for x in (own, theirs)]
    rng = np.random.default_rng(6)
    for _ in range(3):
        point = rng.normal(), rng.normal(), rng.normal(size=25)
        found, right = (np.concatenate([np.ravel(x) for x in f(*point)]) for f in functions)
        right[0] += 0.5 * np.log(neighbours(5).sum(axis=0)).sum() - 12.5 * np.log(2.0 * np.pi)
        assert_allclose(found, right, rtol=1e-9, atol=1e-9)


def test_areas_are_explained():
    """Areas and a level: the block is a field, and its posterior mean that of dense algebra."""
    rng, W = np.random.default_rng(7), neighbours(18)
    y = rng.normal(1.0, 1.0, 324)
    with pm.Model() as model:
        level = pm.Normal("level", 0.0, 1.0)
        z = pm.CAR("z", mu=np.zeros(324), W=W, alpha=0.9, tau=1.0)
        pm.Normal("y", level + z, 0.5, observed=y)
    assert "324 predictors of 325 values with sparse precision" in str(sg.explain(model))
    dt = sg.integrate(model, random_seed=8, draws=500, progressbar=False)
    Q = np.diag(np.asarray(W.sum(axis=0)).ravel()) - 0.9 * W.toarray()
    A = np.c_[np.ones(324), np.eye(324)]
    prior = np.block([[np.eye(1), np.zeros((1, 324))], [np.zeros((324, 1)), Q]])
    mean = np.linalg.solve(prior + 4.0 * A.T @ A, 4.0 * A.T @ y)
    found = np.concatenate(
        [dt["posterior"]["level"].values[..., None], dt["posterior"]["z"]], axis=-1
    )
    error = found.std(axis=(0, 1)) / np.sqrt(found[..., 0].size)  # independent draws
    assert (np.abs(found.mean(axis=(0, 1)) - mean) < 4.5 * error).all()  # 3e-3 false alarms


def test_several_modes_are_looked_for():
    """Student-t data are not log-concave: blocks that dense algebra can do stay with it."""
    y = np.random.default_rng(9).standard_t(2.0, N)
    with pm.Model() as model:
        z = pm.GaussianRandomWalk("z", sigma=0.1, init_dist=pm.Normal.dist(0.0, 1.0), shape=N)
        pm.StudentT("y", nu=3.0, mu=z, sigma=0.5, observed=y)
    assert "sparse" not in str(sg.explain(model))


@pytest.mark.parametrize("contrasts", [False, True])  # which leave the level to the prior
def test_areas_whose_sum_is_held_at_zero(contrasts):
    """Measured `pm.ICAR`: a Gaussian integral, by dense algebra and PyMC's own log density at 0."""
    rng, W = np.random.default_rng(10), neighbours(18).toarray().astype(int)
    y, other = rng.normal(0.0, 1.0, 324), rng.permutation(324)
    A = np.eye(324) - np.eye(324)[other] if contrasts else np.eye(324)
    with pm.Model() as model:
        z = pm.ICAR("z", W=W, sigma=0.7)
        pm.Normal("y", z - z[other] if contrasts else z, 0.5, observed=y)
    Q = (np.diag(W.sum(axis=0)) - W) / 0.49 + np.ones((324, 324)) / 0.324**2
    P, y = Q + 4.0 * A.T @ A, A.T @ y
    origin = float(model.compile_logp(mode="FAST_COMPILE")({"z": np.zeros(324)}))
    log_det = np.linalg.slogdet(P)[1]
    # Round-off of 1e5 in P: sums of 324 numbers to 1e-7.
    right = origin + 8.0 * y @ np.linalg.solve(P, y) - 0.5 * log_det + 162.0 * np.log(2.0 * np.pi)
    dt = sg.integrate(model, random_seed=11, draws=500, progressbar=False)
    assert "sparse precision" in str(sg.explain(model))
    assert_allclose(dt["posterior"].attrs["log_evidence"], right, rtol=1e-7)
    found = dt["posterior"]["z"]
    error = found.std(("chain", "draw")).values / np.sqrt(found[..., 0].size)  # independent draws
    off = found.mean(("chain", "draw")).values - np.linalg.solve(P, 4.0 * y)
    assert (np.abs(off) < 4.5 * error).all()  # 3e-3 false alarms


def test_counts_of_areas_in_parts():
    """A row of areas: the tie of their sum is an integral of chains on a grid over a frequency.

    exp(-x^2 / (2 s^2)) is s / sqrt(2 pi) times the integral of exp(i w x - s^2 w^2 / 2). Steps are
    0.4 of a deviation, by which the sum of a Gaussian function is right to 1e-12.
    """
    n, sd = 800, 1.0
    rng = np.random.default_rng(14)
    y = rng.poisson(np.exp(1.5 * np.sin(0.05 * np.arange(n)) - 0.5))
    W = sparse.diags_array([np.ones(n - 1)] * 2, offsets=[-1, 1]).toarray().astype(int)
    with pm.Model() as model:
        areas = pm.ICAR("z", W=W, sigma=sd)
        pm.Poisson("y", pm.math.exp(areas - 0.5), observed=y)
    width, tie = 0.4 * sd, 0.001 * n
    grid = np.arange(-25.0, 10.0, width)
    logs = stats.poisson.logpmf(y[:, None], np.exp(grid - 0.5))
    frequency = np.linspace(0.0, 0.15, 121)
    step = np.exp(-0.5 * ((grid[:, None] - grid) / sd) ** 2) * width
    turn, level = np.exp(1j * frequency[:, None] * grid), 0.0
    ahead: np.ndarray = np.full(turn.shape, width, dtype=complex)
    for own in logs:
        here = ahead * turn * np.exp(own - own.max())
        size = np.abs(here[0]).sum()
        level += np.log(size) + own.max()
        ahead = here / size @ step
    of_sums = here.sum(axis=1).real / size * np.exp(-0.5 * (tie * frequency) ** 2)
    assert abs(of_sums[-1]) < 1e-9 * of_sums[0]  # all of the integral
    origin = float(model.compile_logp(mode="FAST_COMPILE")({"z": np.zeros(n)}))
    origin -= stats.poisson.logpmf(y, np.exp(-0.5)).sum()
    integral = 2.0 * np.trapezoid(of_sums, frequency) * tie / np.sqrt(2.0 * np.pi)
    dt = sg.integrate(model, random_seed=15, draws=500, progressbar=False)
    assert "sparse precision" in str(sg.explain(model))
    assert close_to(dt, origin + level + np.log(integral))
    sums = dt["posterior"]["z"].sum("z_dim_0").values
    assert np.abs(sums).max() < 6.0 * tie


@pytest.mark.parametrize("of", ["change point", "coefficient"])
def test_places_that_depend_on_hyperparameters(of):
    """Entries that are 0 at some hyperparameters alone are not seen at others: dense algebra."""
    n = N // 2
    with pm.Model() as model:
        first = pm.Normal("first", 0.0, 1.0, shape=n)
        second = pm.GaussianRandomWalk("second", sigma=0.1, init_dist=pm.Normal.dist(), shape=n)
        if of == "change point":
            point = pm.Uniform("point", 0.0, n)
            eta = pm.math.switch(np.arange(n) < point, first, second)
        else:
            eta = second + pt.maximum(pm.Normal("slope", -1.0, 1.0), 0.0) * first[::-1]
        pm.Normal("y", eta, 0.5, observed=np.zeros(n))
    assert "sparse" not in str(sg.explain(model))


def test_parameters_that_cannot_be_moved_far():
    """Places are looked for about the initial point, by smaller steps where these are invalid."""
    with pm.Model() as model:
        sd = pm.Normal("sd", 0.02, 0.001, shape=2)  # without a transform
        walk = pm.GaussianRandomWalk("z", sigma=sd[0], init_dist=pm.Normal.dist(), shape=N)
        effect = pm.Normal("u", 0.0, sd[1], shape=N)
        eta = walk + pm.Uniform("scale", 0.5, 2.0) * effect
        pm.Poisson("y", pm.math.exp(eta), observed=np.ones(N, dtype=int))
    assert "sparse precision" in str(sg.explain(model))


def test_prior_that_is_no_density_at_some_hyperparameters():
    """A potential that pulls neighbours together without bound: there is no evidence there."""
    rng = np.random.default_rng(12)
    y = rng.normal(0.0, 1.0, N)
    with pm.Model() as model:
        k = pm.Normal("k", 0.0, 1.0)
        z = pm.Normal("z", 0.0, 1.0, shape=N)
        pm.Potential("together", (k * z[1:] * z[:-1]).sum())
        pm.Normal("y", z, 0.3, observed=y)
    with pytest.warns(sg.OptimumConvergenceWarning):  # the best is at the end of what is allowed
        found = sg.find_hyperparameters(model, progressbar=False, random_seed=0)
    # 2 cos(pi / 401) |k| < 1 for a positive definite precision.
    assert abs(found.point["k"]) < 0.5 / np.cos(np.pi / (N + 1))


def test_chains_see_ancestors():
    """Draws part by part share them: errors by ArviZ of the means were 1.31 times too small.

    Root mean square of error over standard error, of 3000 means of which a hundred are as good as
    independent: 1.2 is three standard errors above 1.
    """
    n, sd = 3000, 0.5
    rng = np.random.default_rng(1)
    walk = 2.0 * np.sin(0.3 * np.cumsum(sd * rng.standard_normal(n)))
    y = rng.binomial(1, 1.0 / (1.0 + np.exp(-walk)))
    with pm.Model() as model:
        walk = pm.GaussianRandomWalk("z", sigma=sd, init_dist=pm.Normal.dist(0.0, 1.0), shape=n)
        pm.Bernoulli("y", logit_p=walk, observed=y)

    def log_prob(grid):
        return -np.logaddexp(0.0, np.where(y == 1, -1.0, 1.0)[:, None] * grid)

    evidence, mean = chain_on_a_grid(log_prob, 1.0, sd, reach=14.0)
    dt = sg.integrate(model, random_seed=0, draws=500, progressbar=False)
    assert close_to(dt, evidence)
    found = dt["posterior"]["z"].to_numpy()
    error = array_stats.mcse(found, chain_axis=0, draw_axis=1, method="mean")
    assert np.sqrt(np.mean(np.square((found.mean(axis=(0, 1)) - mean) / error))) < 1.2


def test_a_matern_field_on_a_lattice():
    """Lindgren, Rue & Lindstrom 2011 with alpha = 2: 13 entries a row, by its own log density."""
    k, kappa, y = 24, 0.5, np.random.default_rng(0).normal(size=(24, 24))
    wave = 2.0 - 2.0 * np.cos(np.pi * np.arange(k) / k)

    def logp(z, sd):
        tall, wide = pt.concatenate([z[:1], z, z[-1:]]), z.T
        wide = pt.concatenate([wide[:1], wide, wide[-1:]])
        laplacian = tall[2:] + tall[:-2] + (wide[2:] + wide[:-2]).T - 4.0 * z
        scale = sd * kappa * np.sqrt(4.0 * np.pi)
        log_det = np.log(kappa**2 + wave[:, None] + wave).sum() - k * k * pt.log(scale)
        square = (((kappa**2 * z - laplacian) / scale) ** 2).sum()
        return log_det - 0.5 * square - 0.5 * k * k * np.log(2.0 * np.pi)

    with pm.Model() as model:
        z = pm.CustomDist("z", 1.3, logp=logp, shape=(k, k))
        pm.Normal("y", z, 0.5, observed=y)
    assert "sparse precision" in str(sg.explain(model))
    dt = sg.integrate(model, draws=50, chains=2, random_seed=0, progressbar=False)
    line = np.diag(2.0 * np.ones(k)) - np.eye(k, k=1) - np.eye(k, k=-1)
    line[0, 0] = line[-1, -1] = 1.0
    B = kappa**2 * np.eye(k * k) + np.kron(line, np.eye(k)) + np.kron(np.eye(k), line)
    scale = 1.3 * kappa * np.sqrt(4.0 * np.pi)
    cov = scale**2 * np.linalg.inv(B.T @ B) + 0.25 * np.eye(k * k)
    true = stats.multivariate_normal(cov=cov).logpdf(y.ravel())
    # Gaussian throughout: round-off.
    assert_allclose(dt["posterior"].attrs["log_evidence"], true, rtol=1e-9)
