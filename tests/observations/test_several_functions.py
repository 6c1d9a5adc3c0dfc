"""Likelihoods of several functions, against SciPy's distributions, PyMC's and quadrature."""

from functools import cache, partial
from itertools import product

import numpy as np
import pymc as pm
import pytest
import scipy.stats as st
from scipy.special import expit, logsumexp

import pymc_skewgp as sg

LS = 1.0
X = np.array([0.0, 0.7])


def _zero_inflated(y, f, g):
    zero, mu = expit(g), np.exp(f)
    with np.errstate(divide="ignore"):  # of impossible counts
        return np.log(zero * (y == 0) + (1 - zero) * st.poisson(mu).pmf(y))


def _beta_binomial(y, f, g, n=10):
    phi = np.exp(g)
    return st.betabinom(n, phi * expit(f), phi * expit(-f)).logpmf(y)


# Named, and as PyMC's distribution; y at two inputs; log p(y | f, g) by SciPy; variances.
CASES = {
    "normal": (
        sg.likelihoods.HeteroscedasticGaussian(level=-0.5),
        lambda f, g: pm.Normal.dist(f, pm.math.exp(g - 0.5)),
        np.array([0.5, -1.2]),
        lambda y, f, g: st.norm(f, np.exp(g - 0.5)).logpdf(y),
        None,
    ),
    "zeros": (
        sg.likelihoods.ZeroInflatedPoisson(level=-0.3),
        lambda f, g: pm.ZeroInflatedPoisson.dist(pm.math.invlogit(0.3 - g), pm.math.exp(f)),
        np.array([0, 3]),
        lambda y, f, g: _zero_inflated(y, f, g - 0.3),
        np.diag([1.0, 2.0]),
    ),
    "precision": (
        sg.likelihoods.BetaBinomial(n=10, level=1.0),
        lambda f, g: pm.BetaBinomial.dist(
            n=10,
            alpha=pm.math.exp(g + 1.0) * pm.math.invlogit(f),
            beta=pm.math.exp(g + 1.0) * pm.math.invlogit(-f),
        ),
        np.array([2, 9]),
        lambda y, f, g: _beta_binomial(y, f, g + 1.0),
        np.diag([1.5, 1.0]),
    ),
    "classes": (
        sg.likelihoods.Softmax(n_classes=3),
        lambda f, g, h: pm.Categorical.dist(logit_p=pm.math.stack([f, g, h], axis=-1)),
        np.array([2]),
        lambda y, *f: np.choose(y, f) - logsumexp(f, axis=0),
        None,
    ),
}
EACH = pytest.mark.parametrize("name", CASES)


def _gp():
    return sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=LS))


def _prior(name):
    """Covariance of the functions, input by input."""
    _, _, y, _, coregion = CASES[name]
    k = 3 if name == "classes" else 2
    B = np.eye(k) if coregion is None else coregion
    at = X[: y.size]
    return np.kron(np.exp(-0.5 * np.subtract.outer(at, at) ** 2 / LS**2), B)


def _nodes(name, n_axes, nodes=24):
    """Standard normal nodes, (n_axes, N), and logs of their weights.

    24 nodes an axis are right to 1e-5 or better here: 32 change no digit that is compared.
    """
    x, w = np.polynomial.hermite_e.hermegauss(nodes)
    z = np.stack(np.meshgrid(*[x] * n_axes, indexing="ij")).reshape(n_axes, -1)
    return z, sum(np.meshgrid(*[np.log(w / w.sum())] * n_axes, indexing="ij")).ravel()


@cache
def _posterior_nodes(name):
    """Functions at nodes, (n, K, N), log evidence, and posterior weights; of each, its variance.

    Under normal noise the mean is integrated out by its formula: no rule meets its spikes.
    """
    _, _, y, log_prob, _ = CASES[name]
    K = _prior(name)
    if name != "normal":
        z, logs = _nodes(name, len(K))
        f = (np.linalg.cholesky(K) @ z).reshape(y.size, -1, logs.size)
        logs = logs + sum(log_prob(y[i], *f[i]) for i in range(y.size))
        variance = np.zeros(f.shape)
    else:
        of_f, of_g = K[::2, ::2], K[1::2, 1::2]
        z, logs = _nodes(name, 2, 30)
        g = np.linalg.cholesky(of_g) @ z
        f, variance = np.zeros((2, 2, logs.size)), np.zeros((2, 2, logs.size))
        f[:, 1] = g
        for i in range(logs.size):
            whole = of_f + np.diag(np.exp(2 * (g[:, i] - 0.5)))
            squares = y @ np.linalg.solve(whole, y) + np.linalg.slogdet(2 * np.pi * whole)[1]
            logs[i] -= 0.5 * squares
            gain = of_f @ np.linalg.inv(whole)
            f[:, 0, i] = gain @ y
            variance[:, 0, i] = np.diag(of_f - gain @ of_f)
    evidence = logsumexp(logs)
    return f, variance, evidence, np.exp(logs - evidence)


@cache
def _posterior(name, of_pymc=False):
    named, function, y, _, coregion = CASES[name]
    options = {"coregion": coregion, "random_seed": 1}
    if name == "classes":
        options["n_draws"] = 4096
    return _gp().posterior(X[: y.size], y, likelihood=function if of_pymc else named, **options)


@EACH
def test_log_probability_and_slopes(name):
    """As SciPy's; derivatives by central differences of the log probability, right to 1e-5."""
    known, _, y, log_prob, _ = CASES[name]
    k = known.n_functions(y)
    rng = np.random.default_rng(0)
    y = y[rng.integers(y.size, size=6)]
    f = 1.5 * rng.standard_normal((4, 6, k))
    expected = log_prob(y, *np.moveaxis(f, -1, 0))
    np.testing.assert_allclose(known.log_likelihood(y, f), expected, rtol=1e-10, atol=1e-10)
    first, second = known.slopes(y, f)
    h = 1e-4
    for i, j in product(range(k), repeat=2):
        a, b = h * np.eye(k)[i], h * np.eye(k)[j]
        of = partial(known.log_likelihood, y)
        np.testing.assert_allclose(first[..., i], (of(f + a) - of(f - a)) / (2 * h), atol=1e-5)
        cross = of(f + a + b) - of(f + a - b) - of(f - a + b) + of(f - a - b)
        np.testing.assert_allclose(second[..., i, j], cross / (4 * h**2), atol=1e-4)


@EACH
@pytest.mark.parametrize("of_pymc", [False, True])
def test_evidence_and_moments_by_quadrature(name, of_pymc):
    """Within 4 standard errors: a false alarm in 16,000; errors of the evidence at most .002."""
    posterior = _posterior(name, of_pymc)
    f, variance, evidence, weights = _posterior_nodes(name)
    mean = f @ weights
    sd = np.sqrt((variance + (f - mean[..., None]) ** 2) @ weights)
    found = posterior.log_marginal_likelihood
    assert found.std_error <= 2e-3
    assert abs(found.value - evidence) < 4 * found.std_error + 1e-5
    at = posterior.marginals()
    moments, errors = at.moments, at.moment_errors
    # Marginals are weighted by as many draws: errors of the means are of the order of .01.
    assert (np.abs(moments.mean - mean.ravel()) < 4 * errors.mean + 1e-4).all()
    assert (np.abs(moments.sd - sd.ravel()) < 4 * errors.sd + 1e-4).all()
    assert errors.mean.max() < 0.03


@EACH
def test_forecasts_at_the_data(name):
    """Mean and sd of a new y at the first input, by the same quadrature of E(y | f), E(y^2 | f)."""
    new = _posterior(name).predict(X, draws=500, random_seed=3)
    first = new["predictions_summary"].isel(pred_id=0)
    f, variance, _, weights = _posterior_nodes(name)
    if name == "classes":
        p, error = np.exp(f[0] - logsumexp(f[0], axis=0)) @ weights, first["p_mean_se"].values
        # Four standard errors, a false alarm in 5,000 for three numbers.
        assert (np.abs(first["p_mean"].values - p) < 4 * error).all()
        assert error.max() < 0.01
        return
    a, b = f[0]
    if name == "normal":
        mean, square = a, variance[0, 0] + a**2 + np.exp(2 * (b - 0.5))
    elif name == "zeros":
        mu, share = np.exp(a), expit(-(b - 0.3))
        mean, square = share * mu, share * (mu + mu**2)
    else:
        p, phi = expit(a), np.exp(b + 1.0)
        mean = 10 * p
        square = 10 * p * (1 - p) * (phi + 10) / (phi + 1) + mean**2
    expected = mean @ weights
    sd = np.sqrt(square @ weights - expected**2)
    # Five standard errors, one comparison in a million by chance.
    assert abs(first["y_mean"].item() - expected) < 5 * first["y_mean_se"].item()
    assert abs(first["y_sd"].item() - sd) < 5 * first["y_sd_se"].item()
    assert first["y_mean_se"].item() < 0.1 * sd
    drawn = new["predictions"]["y"].isel(pred_id=0).values.ravel()
    assert abs(drawn.mean() - expected) < 5 * sd / np.sqrt(drawn.size) + 5 * first["y_mean_se"]
    if name == "zeros":
        p = weights @ (expit(b - 0.3) + expit(0.3 - b) * np.exp(-np.exp(a)))
        assert abs(first["p_zero_mean"].item() - p) < 5 * first["p_zero_mean_se"].item()
    if name == "precision":
        assert abs(first["p_mean"].item() - weights @ expit(a)) < 5 * first["p_mean_se"].item()


def test_weights_repeat_observations():
    """Twice as a weight, and as rows: an error of the difference by both."""
    x, y, known = np.arange(4.0), np.array([0, 2, 1, 0]), sg.likelihoods.Softmax(n_classes=3)
    once, twice = np.arange(3), np.array([0, 1, 1, 2])
    a = _gp().posterior(x, y, likelihood=known, weights=[1, 2, 1, 0])
    b = _gp().posterior(x[twice], y[twice], likelihood=known)
    error = np.hypot(*(p.log_marginal_likelihood.std_error for p in (a, b)))
    gap = a.log_marginal_likelihood.value - b.log_marginal_likelihood.value
    assert abs(gap) < 4 * error  # a false alarm in 16,000
    alone = _gp().posterior(x[once], y[once], likelihood=known).log_marginal_likelihood.value
    assert a.log_marginal_likelihood.value < alone - 0.5  # the second weight counts


def test_signs_at_pseudo_points():
    """By draws of the prior, which are turned until every function is positive at the point."""
    rng, x, y = np.random.default_rng(0), np.array([0.0, 1.5]), np.array([0, 2])
    at = np.append(x, 1.0)
    root = np.linalg.cholesky(np.exp(-0.5 * np.subtract.outer(at, at) ** 2 / LS**2))
    f = np.einsum("ij,njk->nik", root, rng.standard_normal((400_000, 3, 3)))
    f *= np.sign(f[:, 2:])
    p = np.exp(f[:, [0, 1], y] - logsumexp(f[:, :2], axis=2)).prod(axis=1)
    gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=LS), pseudo_points=[[1.0]])
    known = sg.likelihoods.Softmax(n_classes=3)
    found = gp.posterior(x, y, likelihood=known).log_marginal_likelihood
    error = np.hypot(found.std_error, p.std() / p.mean() / np.sqrt(p.size))
    assert abs(found.value - np.log(p.mean())) < 4 * error  # a false alarm in 16,000
    assert error < 0.01


@EACH
def test_gaussian_approximations_are_compared(name):
    """EP's and Laplace's evidence are near the exact one, Laplace's off by more."""
    likelihood, _, y, _, coregion = CASES[name]
    if coregion is not None:
        return
    found = sg.compare_approximations(
        _gp(), X[: y.size], y, likelihood=likelihood, draws=200, chains=1, progressbar=False
    )
    evidence = found.table["evidence"]
    exact = _posterior_nodes(name)[2]
    assert abs(evidence["ep"] - exact) < 0.05
    assert abs(evidence["ep"] - exact) < abs(evidence["laplace"] - exact) < 1.0


def test_new_rows_with_exposures_of_their_own():
    """The mean of a count goes with its exposure: as of the same rows with 1, by their errors."""
    known = sg.likelihoods.ZeroInflatedPoisson(exposure=[1.0, 2.0])
    posterior = _gp().posterior(X, [0, 3], likelihood=known, random_seed=1)
    one, own = (
        sg.predict(posterior, [0.3, 1.0], exposure=e, random_seed=2) for e in (1.0, [1.0, 40.0])
    )
    a, b = (x["predictions_summary"] for x in (one, own))
    ratio = b["y_mean"].values / a["y_mean"].values
    # Five errors, a false alarm in a million.
    error = 5 * np.hypot(a["y_mean_se"] / a["y_mean"], b["y_mean_se"] / b["y_mean"]).values
    assert (np.abs(ratio / [1.0, 40.0] - 1) < error).all()
    drawn = own["predictions"]["y"].mean(("chain", "draw")).values
    assert drawn[1] > 10 * drawn[0]


@pytest.mark.parametrize(("size", "variance"), [(2, 9.0), (3, 4.0), (10, 1.0)])
def test_equal_values_at_one_place(size, variance):
    """The less noise, the likelier: there is a spike, which EP's Gaussian is narrower than.

    The log evidence of two was .11 too small, stated .011.
    """
    y = 0.3
    g = np.sqrt(variance) * np.linspace(-14.0, 14.0, 8001)
    # Given g the mean of the values is normal about 0, and what they are about it is 0.
    logs = st.norm(0.0, np.sqrt(1.0 + np.exp(2 * g) / size)).logpdf(y) - 0.5 * np.log(size)
    logs -= (size - 1) * (g + 0.5 * np.log(2 * np.pi))
    logs += st.norm(0.0, np.sqrt(variance)).logpdf(g) + np.log(g[1] - g[0])
    true = logsumexp(logs)
    mean = np.exp(logs - true) @ g
    gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=LS))
    known = sg.likelihoods.HeteroscedasticGaussian()
    posterior = gp.posterior(
        np.zeros(size), np.full(size, y), likelihood=known, coregion=np.diag([1.0, variance])
    )
    found = posterior.log_marginal_likelihood
    # Of six numbers one is off by 4.5 errors in 24,000 seeds.
    assert abs(found.value - true) < 4.5 * found.std_error
    assert found.std_error < 0.02
    f = posterior.predict([0.0], draws=0)["predictions_summary"]
    f_mean, error = (f[x].to_numpy().ravel()[1] for x in ("f_mean", "f_mean_se"))
    assert abs(f_mean - mean) < 4.5 * error
    assert error < 0.1


# EP goes round in circles where the posterior bends, and says so: draws are right all the same.
@pytest.mark.filterwarnings("ignore::pymc_skewgp.EPConvergenceWarning")
@pytest.mark.parametrize("correlation", [0.9, -0.9])
def test_mean_goes_with_its_deviation(correlation):
    """Of variance 25, at two places: log evidence and means of g, f by its formula given g.

    Values far apart bend the posterior: one that was drawn whole was .23 off, stated .02.
    """
    y, x = np.array([0.3, 8.0]), np.array([0.0, 0.5])
    K = 25.0 * np.exp(-0.5 * np.subtract.outer(x, x) ** 2 / LS**2)
    z = np.stack(np.meshgrid(*[np.linspace(-9.0, 9.0, 361)] * 2, indexing="ij")).reshape(2, -1)
    g = np.linalg.cholesky(K) @ z  # steps of .05: sums of smooth functions, right to 1e-6
    a, b = y[:, None] - correlation * g
    left, noise = (1.0 - correlation**2) * K, np.exp(2.0 * g)
    # Without differences of large numbers: noise may be next to none.
    det = left[0, 0] * left[1, 1] - left[0, 1] ** 2 + left[0, 0] * noise.sum(axis=0)
    det += noise[0] * noise[1]
    square = (
        (left[1, 1] + noise[1]) * a**2 + (left[0, 0] + noise[0]) * b**2 - 2 * left[0, 1] * a * b
    )
    logs = -0.5 * (square / det + np.log(det) + (z**2).sum(axis=0)) - 2 * np.log(2 * np.pi)
    true = logsumexp(logs) + 2 * np.log(0.05)
    mean = g @ np.exp(logs - logsumexp(logs))
    B = 25.0 * np.array([[1.0, correlation], [correlation, 1.0]])
    known = sg.likelihoods.HeteroscedasticGaussian()
    posterior = _gp().posterior(x, y, likelihood=known, coregion=B, random_seed=1)
    found, at = posterior.log_marginal_likelihood, posterior.marginals()
    # Of six numbers one is off by 4.5 errors in 24,000 seeds.
    assert abs(found.value - true) < 4.5 * found.std_error
    assert found.std_error < 0.03
    off = at.moments.mean.reshape(2, 2)[:, 1] - mean
    assert (np.abs(off) < 4.5 * at.moment_errors.mean.reshape(2, 2)[:, 1]).all()


def test_tails_with_a_scale_of_their_own():
    """Student's t of PyMC, of variance 9, at one place: the spike at the datum is not all of it.

    EP's moments about that spike alone were without bounds, and raised an error.
    """
    f = 0.3 + 1e-9 * np.sinh(u := np.linspace(-24.0, 24.0, 4001))
    weights = 1e-9 * np.cosh(u) * (u[1] - u[0])
    g = np.linspace(-27.0, 27.0, 541)[:, None]
    logs = st.t(4).logpdf((0.3 - f) * np.exp(-g)) - g + st.norm(0.0, 3.0).logpdf(f)
    true = logsumexp(logs + st.norm(0.0, 3.0).logpdf(g) + np.log(0.1 * weights))
    posterior = _gp().posterior(
        X[:1],
        np.array([0.3]),
        likelihood=lambda f, g: pm.StudentT.dist(nu=4, mu=f, sigma=pm.math.exp(g)),
        coregion=9.0 * np.eye(2),
        random_seed=1,
    )
    found = posterior.log_marginal_likelihood
    assert abs(found.value - true) < 4.5 * found.std_error  # 6 seeds were within 1.9
    assert found.std_error < 0.05


def test_dispersion_of_counts():
    """PyMC's negative binomial, which checks a parameter that is of one function alone."""
    posterior = _gp().posterior(
        X,
        np.array([0, 3]),
        likelihood=lambda f, g: pm.NegativeBinomial.dist(mu=pm.math.exp(f), alpha=pm.math.exp(g)),
        random_seed=1,
    )
    z, logs = _nodes("zeros", 4)
    f = np.linalg.cholesky(np.kron(np.exp(-0.5 * np.subtract.outer(X, X) ** 2), np.eye(2))) @ z
    mu, alpha = np.exp(f.reshape(2, 2, -1)).swapaxes(0, 1)
    p = st.nbinom(alpha, alpha / (alpha + mu)).logpmf(np.array([[0], [3]]))
    found = posterior.log_marginal_likelihood
    assert abs(found.value - logsumexp(logs + p.sum(axis=0))) < 4 * found.std_error + 1e-5
    assert found.std_error < 2e-3


def test_digits_far_out():
    """A precision without end is binomial; differences of log gammas would lose all digits."""
    known, y = sg.likelihoods.BetaBinomial(n=10), np.array([3])
    f = (
        np.array([[[0.4, 0.0]]])
        + np.array([0.0, 1.0]) * np.array([25.0, 60.0, 800.0])[:, None, None]
    )
    expected = st.binom(10, expit(0.4)).logpmf(3)
    # Off by 1 / precision, 1e-11 at the first.
    np.testing.assert_allclose(known.log_likelihood(y, f)[:, 0], expected, rtol=1e-9)
    first, second = known.slopes(y, f)
    np.testing.assert_allclose(first[:, 0, 0], 3 - 10 * expit(0.4), rtol=1e-7)
    np.testing.assert_allclose(second[:, 0, 0, 0], -10 * expit(0.4) * expit(-0.4), rtol=1e-7)
    counts = sg.likelihoods.ZeroInflatedPoisson()
    away = np.array([[[800.0, 1.0]], [[-800.0, 1.0]], [[1.0, 800.0]], [[1.0, -800.0]]])
    for slope in counts.slopes(np.array([0]), away):
        assert np.isfinite(slope).all()


def test_hyperparameter_found_and_integrated_out():
    """A level under N(-.3, 1), by quadrature over functions and level: 9 nodes, right to 1e-4."""
    y = np.array([0, 3])
    z, log_w = _nodes("zeros", 4, 16)
    a, b, c, d = np.linalg.cholesky(_prior("zeros")) @ z

    def log_joint(level):
        logs = log_w + _zero_inflated(y[0], a, b + level) + _zero_inflated(y[1], c, d + level)
        return logsumexp(logs) + st.norm(-0.3, 1.0).logpdf(level)

    x, w = np.polynomial.hermite_e.hermegauss(9)
    levels = x - 0.3
    logs = np.array([log_joint(level) for level in levels]) + 0.5 * x**2 + np.log(w)
    evidence = logsumexp(logs)
    mean = np.exp(logs - evidence) @ levels
    with pm.Model():
        level = pm.Normal("level", -0.3, 1.0)
        gp = _gp()
    known = sg.likelihoods.ZeroInflatedPoisson(level=level)
    options = {"likelihood": known, "coregion": np.diag([1.0, 2.0]), "progressbar": False}
    fit = sg.find_hyperparameters(gp, X, y, random_seed=1, **options)
    best = fit.point["level"].item()
    # Flat at its top: within a tenth of a deviation by what EP and draws are off.
    assert log_joint(best) > max(log_joint(best - 0.1), log_joint(best + 0.1))
    found = sg.integrate(gp, X, y, n_evidences=64, random_seed=1, Xnew=[0.3], **options)
    attrs = found["posterior"].attrs
    # Four standard errors, a false alarm in 16,000; of the mean by 64 levels of deviation 1.
    assert abs(attrs["log_evidence"] - evidence) < 4 * attrs["log_evidence_se"]
    assert attrs["log_evidence_se"] < 0.02
    assert abs(found["posterior"]["level"].mean().item() - mean) < 4 / np.sqrt(64)
    assert found["predictions"]["f"].sizes["function"] == 2


def test_functions_of_a_model():
    """Two by `SkewGP.prior`, which data see as mean and log sd: evidence by the same quadrature."""
    y = CASES["normal"][2]
    _, _, evidence, _ = _posterior_nodes("normal")
    with pm.Model() as model:
        f, g = (_gp().prior(name, X[:, None]) for name in "fg")
        pm.Normal("y", f, pm.math.exp(g - 0.5), observed=y)
    found = sg.integrate(model, draws=250, random_seed=1, progressbar=False)["posterior"]
    error = found.attrs["log_evidence_se"]
    # Four standard errors, a false alarm in 16,000.
    assert abs(found.attrs["log_evidence"] - evidence) < 4 * error
    assert error < 0.02  # of 1,000 draws
    assert found["f"].sizes["f_dim_0"] == 2


def test_refused_beside_others():
    with pm.Model():
        ls = pm.HalfNormal("ls")
        gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=ls), pseudo_points=[[0.0]])
    known = sg.likelihoods.ZeroInflatedPoisson()
    with pytest.raises(sg.NotSitesError, match="with pseudo-points"):
        sg.find_hyperparameters(gp, X, [0, 3], likelihood=known)


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        (
            lambda f, g: pm.Normal.dist(f, pm.math.exp(g)),
            {"coregion": np.eye(3)},
            "about 2 function",
        ),
        (lambda f, g: pm.Normal.dist(f, 1.0), {}, "each of the 2 predictors"),
        (lambda *f: pm.Normal.dist(f[0], pm.math.exp(f[1])), {}, "any number of predictors"),
        (lambda f, g: pm.Normal.dist(f, pm.math.exp(g.mean())), {}, "does not factorise"),
    ],
)
def test_bad_input(function, options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        _gp().posterior(X, np.array([0.5, -1.2]), likelihood=function, **options)


def test_classes_never_seen():
    with pytest.raises(ValueError, match="must hold two classes or more"):
        _gp().posterior(X, np.array([0, 2]), likelihood=sg.likelihoods.Softmax())
    with pytest.raises(ValueError, match="be from 0 to 1"):
        _gp().posterior(X, np.array([0, 2]), likelihood=sg.likelihoods.Softmax(n_classes=2))
