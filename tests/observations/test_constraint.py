"""Constraints by virtual points: closed forms, quadrature, and rejection from a Gaussian."""

import numpy as np
import pymc as pm
import pytest
from approximation_oracles import rbf
from oracles import column, orthant
from scipy.stats import multivariate_normal, norm

import pymc_skewgp as sg
from pymc_skewgp._diagnostics.approximations import ep_posterior, laplace_posterior
from pymc_skewgp.likelihoods import BernoulliProbit, Constraint, Gaussian, Selection

ETA, LS = 1.3, 0.8
GP = sg.SkewGP(cov_func=ETA**2 * pm.gp.cov.ExpQuad(1, ls=LS))
# The nugget's share of the variance is 1.6e-14: closed forms without it are exact to 1e-9.
EXACT = 1e-7


def hermite(n, z):
    """(-1)^n exp(z^2/2) d^n/dz^n exp(-z^2/2)."""
    return {0: 1 + 0 * z, 1: z, 2: z**2 - 1, 3: z**3 - 3 * z, 4: z**4 - 6 * z**2 + 3}[n]


def joint_cov(x, order):
    """Covariance of the derivatives of f of these orders at x, for the RBF kernel.

    d^a/dx^a d^b/dt^b k = (-1)^a He_(a+b)(z) k / ls^(a+b), z = (x - t) / ls.
    """
    x, order = np.asarray(x, dtype=float), np.asarray(order)
    z = (x[:, None] - x) / LS
    total = order[:, None] + order
    he = np.array(
        [[hermite(int(n), v) for n, v in zip(*r, strict=True)] for r in zip(total, z, strict=True)]
    )
    return (-1.0) ** order[:, None] * he * ETA**2 * np.exp(-0.5 * z**2) / LS**total


@pytest.mark.parametrize("orders", [(1, 1), (2, 2), (0, 1), (1, 2)])
def test_two_signs_are_an_orthant_in_closed_form(orders):
    x = (0.1, 0.7)
    data = [
        (column(at), None, Constraint(lower=0.0, derivative=(0, order) if order else None))
        for at, order in zip(x, orders, strict=True)
    ]
    found = GP.posterior(data).log_marginal_likelihood
    assert found.value == pytest.approx(np.log(orthant(joint_cov(x, orders))), abs=EXACT)


def test_mean_functions_count():
    """P(f' > 0) = Phi(slope / sd(f')), and likewise for a limit of f."""
    slope, sd = 0.7, ETA / LS
    gp = sg.SkewGP(cov_func=GP.cov_func, mean_func=pm.gp.mean.Linear(slope, 0.2))
    found = gp.posterior(column(0.4), likelihood=Constraint.increasing())
    assert found.log_marginal_likelihood.value == pytest.approx(norm.logcdf(slope / sd), abs=EXACT)
    found = gp.posterior(column(0.4), likelihood=Constraint.bounds(upper=1.0))
    expected = norm.logcdf((1.0 - 0.2 - slope * 0.4) / ETA)
    assert found.log_marginal_likelihood.value == pytest.approx(expected, abs=EXACT)


def given_two_points_and_two_limits(y, sigma, pseudo=False):
    """Log evidence, mean and covariance of f at two data, under f' > .2 and -1 < f'' < 2.

    Joint Gaussian of (f1, f2, f', f''); y conditioned on in closed form; the two limited values by
    Gauss-Legendre quadrature of their bivariate density; f given them is linear. With `pseudo` the
    first limit is f(0.6) > 0, which is the prior's, instead.
    """
    order = [0, 0, 0 if pseudo else 1, 2]
    K = joint_cov([0.0, 1.0, 0.6, 0.9], order)
    G = K[:2, :2] + sigma**2 * np.eye(2)
    gain = np.linalg.solve(G, K[:2]).T
    mean, cov = gain @ y, K - gain @ K[:2]
    low = np.array([0.0 if pseudo else 0.2, -1.0])
    high = np.minimum([np.inf, 2.0], mean[2:] + 10 * np.sqrt(np.diag(cov)[2:]))
    nodes, weights = np.polynomial.legendre.leggauss(200)
    u = [0.5 * (h - lo) * nodes + 0.5 * (h + lo) for lo, h in zip(low, high, strict=True)]
    w = np.outer(*(0.5 * (h - lo) * weights for lo, h in zip(low, high, strict=True)))
    grid = np.stack(np.meshgrid(*u, indexing="ij"), axis=-1)
    density = w * multivariate_normal(mean[2:], cov[2:, 2:]).pdf(grid)
    total = density.sum()
    log_evidence = multivariate_normal(np.zeros(2), G).logpdf(y) + np.log(total)
    p = density / total
    first = np.einsum("ij,ijk->k", p, grid)
    off = grid - first
    second = np.einsum("ij,ijk,ijl->kl", p, off, off)
    back = np.linalg.solve(cov[2:, 2:], cov[2:, :2]).T
    f_mean = mean[:2] + back @ (first - mean[2:])
    f_cov = cov[:2, :2] - back @ cov[2:, :2] + back @ second @ back.T
    return log_evidence - (np.log(0.5) if pseudo else 0.0), f_mean, f_cov


@pytest.mark.parametrize("pseudo", [False, True], ids=["GP", "SkewGP"])
def test_data_with_two_limits(pseudo):
    """Evidence exactly (two rows), moments within 5 errors of 2^14 draws with an ESS of a half."""
    y, sigma = np.array([0.8, 0.3]), 0.3
    data = {
        "y": (column(0.0, 1.0), y, Gaussian(sigma)),
        "curved": (column(0.9), None, Constraint(-1.0, 2.0, derivative=(0, 2))),
    }
    gp = GP
    if pseudo:
        gp = sg.SkewGP(cov_func=GP.cov_func, pseudo_points=column(0.6))
    else:
        data["up"] = (column(0.6), None, Constraint(lower=0.2, derivative=(0, 1)))
    posterior = gp.posterior(data, n_draws=2**14)
    log_evidence, mean, cov = given_two_points_and_two_limits(y, sigma, pseudo)
    found = posterior.log_marginal_likelihood
    assert found.value == pytest.approx(log_evidence, abs=EXACT)
    at = posterior.marginals(column(0.0, 1.0)).moments
    error = 5 * np.sqrt(2 / 2**14)
    sd = np.sqrt(np.diag(cov))
    assert np.all(np.abs(at.mean - mean) < error * sd)
    assert np.all(np.abs(at.sd - sd) < error * sd)
    f = posterior.sample(2**13, 2, random_seed=1)["posterior"]["f_y"].values.reshape(-1, 2)
    assert np.all(np.abs(np.cov(f.T) - cov) < 1.5 * error * np.outer(sd, sd))


def test_against_rejection():
    """Monotone regression with a bound: draws of the Gaussian posterior, those kept that comply.

    Every number within 5 of the two Monte Carlo errors together: 2 wrong in a million for one
    number, 2e-5 for the eleven here.
    """
    rng = np.random.default_rng(0)
    x, y, sigma = np.linspace(0, 2, 5), np.array([0.1, 0.3, 0.2, 0.6, 0.5]), 0.2
    virtual = np.linspace(0, 2, 4)
    order = np.repeat([0, 1, 0], [5, 4, 1])
    K = joint_cov(np.concatenate([x, virtual, [2.2]]), order)
    G = K[:5, :5] + sigma**2 * np.eye(5)
    gain = np.linalg.solve(G, K[:5]).T
    mean, cov = gain @ y, K - gain @ K[:5]
    z = mean + rng.standard_normal((400_000, 10)) @ np.linalg.cholesky(cov + 1e-12 * np.eye(10)).T
    kept = z[(z[:, 5:9] > 0).all(axis=1) & (z[:, 9] < 1.0)]
    share = kept.shape[0] / z.shape[0]
    assert 0.05 < share < 0.5
    data = {
        "y": (column(*x), y, Gaussian(sigma)),
        "up": (column(*virtual), None, Constraint.increasing()),
        "below": (column(2.2), None, Constraint.bounds(upper=1.0)),
    }
    posterior = GP.posterior(data, n_draws=8192)
    log_evidence = multivariate_normal(np.zeros(5), G).logpdf(y) + np.log(share)
    found = posterior.log_marginal_likelihood
    error = np.hypot(found.std_error, np.sqrt((1 - share) / share / z.shape[0]))
    assert found.value == pytest.approx(log_evidence, abs=5 * error)
    at = posterior.marginals(column(*x))
    error = np.hypot(at.moment_errors.mean, kept[:, :5].std(axis=0) / np.sqrt(kept.shape[0]))
    assert np.all(np.abs(at.moments.mean - kept[:, :5].mean(axis=0)) < 5 * error)
    drawn = posterior.sample(4000, 2, random_seed=3)["posterior"]
    drawn = np.hstack([drawn[f"f_{k}"].values.reshape(8000, -1) for k in ("up", "below")])
    error = kept[:, 5:].std(axis=0) * np.sqrt(1 / kept.shape[0] + 2 / 8000)
    assert np.all(np.abs(drawn.mean(axis=0) - kept[:, 5:].mean(axis=0)) < 5 * error)


# Kernel, constraint, and the prior deviation of what is constrained: the nugget is a share of it.
WITHIN = {
    "concave": (pm.gp.cov.ExpQuad(1, ls=0.5), Constraint.concave(), 2 * np.sqrt(3) / 0.5**2),
    "large nugget": (
        pm.gp.cov.Matern32(1, ls=0.3), Constraint.decreasing(nugget=1e-4), 2 * np.sqrt(3) / 0.3
    ),
    "bounds": (pm.gp.cov.Exponential(1, ls=0.3), Constraint.bounds(-0.5, 0.5), 2.0),
}  # fmt: skip


@pytest.mark.parametrize("name", WITHIN)
def test_no_draw_breaks_a_limit_by_more_than_the_nugget(name):
    """60 virtual points, 4000 draws, at data that go against most of the constraints."""
    kernel, constraint, sd = WITHIN[name]
    X, y = column(0.1, 0.3, 0.5, 0.7, 0.9), np.array([-0.4, 0.6, 0.3, 0.5, -0.1])
    virtual = np.linspace(0, 1, 60)[:, None]
    data = {"y": (X, y, Gaussian(0.3)), "shape": (virtual, None, constraint)}
    posterior = sg.SkewGP(cov_func=4.0 * kernel).posterior(data)
    values = posterior.sample(1000, 4, random_seed=1)["posterior"]["f_shape"].values
    most = constraint.nugget * sd
    assert values.min() > constraint.lower - most
    assert values.max() < constraint.upper + most
    # They are not all at the limit: it is the posterior that was drawn.
    assert values.std(axis=(0, 1)).min() > 100 * most


def test_the_units_of_a_feature_do_not_matter():
    """Second derivatives have 16 decades of variance between these: round-off of 1e-6 at most."""
    x, y = np.linspace(0, 1, 12), 2 * (np.linspace(0, 1, 12) - 0.4) ** 2
    virtual = np.linspace(0, 1, 15)

    def fitted(c):
        data = {
            "y": (column(*(c * x)), y, Gaussian(0.1)),
            "curved": (column(*(c * virtual)), None, Constraint.convex()),
            "down": (column(0.0), None, Constraint.decreasing()),
        }
        posterior = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=0.4 * c)).posterior(data)
        moments = posterior.marginals(c * column(0.3, 1.2)).moments
        return [posterior.log_marginal_likelihood.value, *moments.mean, *moments.sd]

    np.testing.assert_allclose(fitted(1e-2), fitted(1e2), rtol=1e-4, atol=1e-5)


def test_in_one_feature_of_two():
    """f' in feature 1 of an ARD kernel, with labels: one number by quadrature over (f, f')."""
    ls = np.array([0.8, 1.7])
    gp = sg.SkewGP(cov_func=ETA**2 * pm.gp.cov.ExpQuad(2, ls=ls))
    x, t = np.array([[0.2, 0.5]]), np.array([[0.6, -0.4]])
    data = [(x, [1], BernoulliProbit()), (t, None, Constraint.increasing(1))]
    k = ETA**2 * np.exp(-0.5 * (((x - t) / ls) ** 2).sum())
    cross = (x[0, 1] - t[0, 1]) / ls[1] ** 2 * k
    cov = np.array([[ETA**2 + 1.0, cross], [cross, ETA**2 / ls[1] ** 2]])
    found = gp.posterior(data).log_marginal_likelihood.value
    assert found == pytest.approx(np.log(orthant(cov)), abs=EXACT)


def test_one_output_of_two_by_a_column():
    """Under PyMC's Coregion: output 1 increases, output 0 has a label; an orthant."""
    B = np.array([[2.0, 0.9], [0.9, 1.2]])
    kernel = pm.gp.cov.ExpQuad(2, ls=LS, active_dims=[0])
    gp = sg.SkewGP(cov_func=kernel * pm.gp.cov.Coregion(2, B=B, active_dims=[1]))
    x, t = np.array([[0.0, 0.0]]), np.array([[0.5, 1.0]])
    found = gp.posterior([(x, [1], BernoulliProbit()), (t, None, Constraint.increasing(0))])
    k = joint_cov([0.5, 0.0], [1, 0]) / ETA**2
    cross = B[0, 1] * k[0, 1]
    cov = np.array([[B[1, 1] * k[0, 0], cross], [cross, B[0, 0] + 1.0]])
    expected = np.log(orthant(cov))
    assert found.log_marginal_likelihood.value == pytest.approx(expected, abs=EXACT)


def test_the_first_of_two_functions():
    """An outcome that increases and covaries with its selection: an orthant of (f1', f2 + e)."""
    B = np.array([[2.0, 0.9], [0.9, 1.2]])
    data = [
        (column(0.0), [np.nan], Selection(0.5, 0.3)),
        (column(0.5), None, Constraint.increasing()),
    ]
    k = joint_cov([0.5, 0.0], [1, 0]) / ETA**2
    gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=LS))
    found = gp.posterior(data, coregion=B).log_marginal_likelihood.value
    cross = -B[0, 1] * k[0, 1]
    cov = np.array([[B[0, 0] * k[0, 0], cross], [cross, B[1, 1] + 1.0]])
    assert found == pytest.approx(np.log(orthant(cov)), abs=EXACT)


def test_the_limits_of_each_point():
    lower = np.array([-np.inf, 0.1, -0.3])
    upper = np.array([0.2, np.inf, 0.4])
    constraint = Constraint(lower, upper)
    lower[:] = 9.0  # a copy was taken
    posterior = GP.posterior(column(0.0, 3.0, 30.0), likelihood=constraint)
    f = posterior.sample(500, 2, random_seed=1)["posterior"]["f"].values.reshape(-1, 3)
    assert np.all(f[:, 0] < 0.2 + 1e-5)
    assert np.all(f[:, 1] > 0.1 - 1e-5)
    assert np.all((f[:, 2] > -0.3 - 1e-5) & (f[:, 2] < 0.4 + 1e-5))


DOSES = {
    "dose": (column(0.0, 1.0), [0.1, 0.4], Gaussian(0.1)),
    "shape": (column(0.5), None, Constraint.increasing()),
}


def test_what_is_returned():
    posterior = GP.posterior(DOSES)
    dt = posterior.sample(20, 2, random_seed=1)
    assert set(dt["posterior"].data_vars) == {"f_dose", "f_shape"}
    assert set(dt["log_likelihood"].data_vars) == {"y_dose"}
    assert set(dt["observed_data"].data_vars) == {"y_dose"}
    assert set(dt["constant_data"].data_vars) == {"X_dose", "X_shape"}
    assert "y_shape" not in posterior.predict(column(0.5), draws=5)["predictions"].data_vars
    alone = GP.posterior(column(0.5), likelihood=Constraint.increasing()).sample(20, 2)
    assert set(alone.children) == {"posterior", "sample_stats", "constant_data"}


def test_an_update_of_data_or_of_virtual_points():
    posterior = GP.posterior(DOSES).update(column(2.0), [0.3], name="dose")
    posterior = posterior.update(column(1.5), None, name="shape")
    data = {
        "dose": (column(0.0, 1.0, 2.0), [0.1, 0.4, 0.3], Gaussian(0.1)),
        "shape": (column(0.5, 1.5), None, Constraint.increasing()),
    }
    expected = GP.posterior(data).log_marginal_likelihood.value
    assert posterior.log_marginal_likelihood.value == pytest.approx(expected, abs=1e-12)


def test_approximations():
    """EP takes constraints; Laplace's mode would be at the limits."""
    data = [
        (column(0.0, 1.0), [0.8, 0.3], Gaussian(0.3)),
        (column(0.6), None, Constraint.increasing()),
    ]
    posterior = GP.posterior(data)
    found = ep_posterior(posterior.prior, data, None, column(0.5)).log_evidence
    # One interval: EP is exact.
    assert found == pytest.approx(posterior.log_marginal_likelihood.value, abs=1e-6)
    with pytest.raises(ValueError, match="has only a nugget: use EP"):
        laplace_posterior(posterior.prior, data, None, column(0.5))


def test_a_function_of_arrays_has_bounds_but_no_derivatives():
    kernel, x = rbf(1.0), column(0.0)
    found = sg.SkewGPPosterior(x, likelihood=Constraint.bounds(lower=0.0), cov_func=kernel)
    assert found.log_marginal_likelihood.value == pytest.approx(np.log(0.5), abs=EXACT)
    with pytest.raises(sg.NotDifferentiableError, match=r"SkewGP\(cov_func=...\).posterior"):
        sg.SkewGPPosterior(x, likelihood=Constraint.increasing(), cov_func=kernel)
    with pytest.raises(sg.NotDifferentiableError, match="Exponential"):
        sg.SkewGP(cov_func=pm.gp.cov.Exponential(1, ls=1.0)).posterior(
            x, likelihood=Constraint.increasing()
        )


SMOOTH = sg.SkewGP(cov_func=4.0 * pm.gp.cov.ExpQuad(1, ls=0.5))
GRID = np.linspace(0, 1, 12)[:, None]
CONTRADICTIONS = {
    "one point": [(GRID[:1], Constraint(lower=1.0)), (GRID[:1], Constraint(upper=-1.0))],
    "up and down": [(GRID[:3], Constraint.increasing()), (GRID[:3], Constraint.decreasing())],
    "up, and lower at the end": [
        (np.linspace(0, 1, 40)[:, None], Constraint.increasing()),
        (GRID[:1], Constraint(lower=1.0)),
        (GRID[-1:], Constraint(upper=0.5)),
    ],
    "changes of sign": [(GRID[::2], Constraint(lower=0.5)), (GRID[1::2], Constraint(upper=-0.5))],
    "data without noise": [(GRID[:1], Constraint(lower=1.0)), (GRID[:1], Gaussian(1e-7))],
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_contradictions_are_named(name):
    data = [
        (X, [-1.0] if isinstance(kind, Gaussian) else None, kind)
        for X, kind in CONTRADICTIONS[name]
    ]
    posterior = SMOOTH.posterior(data)
    with pytest.raises(sg.ContradictoryConstraintsError, match="The log probability of that is"):
        _ = posterior.log_marginal_likelihood
    with pytest.raises(sg.ContradictoryConstraintsError):  # again, and from elsewhere
        posterior.sample(10, 1)


def test_a_contradicted_pseudo_point():
    gp = sg.SkewGP(cov_func=GP.cov_func, pseudo_points=column(0.5), phase=[-1.0])
    posterior = gp.posterior(column(0.5), likelihood=Constraint(lower=1.0))
    with pytest.raises(sg.ContradictoryConstraintsError, match="or the pseudo-points"):
        posterior.marginals()


def test_improbable_is_not_contradictory():
    """P(f > 6 sd) and noisy data far below a limit have their probability, not an error."""
    posterior = GP.posterior(column(0.0), likelihood=Constraint(lower=6 * ETA))
    assert posterior.log_marginal_likelihood.value == pytest.approx(norm.logcdf(-6), rel=1e-9)
    data = [(column(0.0), None, Constraint(lower=1.0)), (column(0.0), [-1.0], Gaussian(0.1))]
    gain = ETA**2 / (ETA**2 + 0.01)
    sd = np.sqrt(ETA**2 * 0.01 / (ETA**2 + 0.01))
    expected = norm.logpdf(-1.0, 0, np.hypot(ETA, 0.1)) + norm.logsf((1 + gain) / sd)
    found = GP.posterior(data).log_marginal_likelihood.value
    assert found == pytest.approx(expected, rel=1e-9)


def test_no_variance_to_constrain():
    gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(2, ls=1.0, active_dims=[0]))
    with pytest.raises(ValueError, match="does not depend on that feature"):
        gp.posterior({"a": (np.ones((2, 2)), None, Constraint.increasing(1))})
