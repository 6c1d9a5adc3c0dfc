"""Constraints beside rows in blocks, under a prior of finite rank, as without blocks.

Some 4 CPU seconds.
"""

import numpy as np
import pymc as pm
import pytest
from finite_rank_cases import agree
from numpy.testing import assert_allclose

import pymc_skewgp as sg
from pymc_skewgp._observations.likelihood import Derivative
from pymc_skewgp._posterior.features import FiniteRankKernel, finite_rank_prior
from pymc_skewgp._posterior.finite_rank_fit import FiniteRankFit
from pymc_skewgp._posterior.posterior import SkewGPPosterior
from pymc_skewgp.approximations import HSGP, Inducing
from pymc_skewgp.likelihoods import BernoulliProbit, Constraint, Gaussian, Selection

RNG = np.random.default_rng(8)
N = 120
X = np.sort(RNG.uniform(0.0, 3.0, N))[:, None]
Y = (RNG.standard_normal(N) < np.sin(X[:, 0] - 0.5)).astype(int)
AT = np.linspace(0.2, 2.8, 9)[:, None]
NEW = np.linspace(0.0, 3.0, 5)[:, None]
POINTS = np.linspace(0.0, 3.0, 7)[:, None]
KERNEL = 1.3**2 * pm.gp.cov.ExpQuad(1, ls=0.8)
MEAN = pm.gp.mean.Linear(0.2, 0.1)


def both(data, approximation, **more):
    """In blocks, and with the kernel of finite rank taken as any other."""
    gp = sg.SkewGP(cov_func=KERNEL, mean_func=MEAN, approximation=approximation, **more)
    one = gp.posterior(data)
    prior, features = finite_rank_prior(one.prior, np.vstack([part.X for part in one._sets]))
    one._fit = FiniteRankFit(prior, features, one._sets)
    signs = one.prior
    pseudo = {"pseudo_points": signs.pseudo_points, "phase": signs.phase} if more else {}
    other = SkewGPPosterior(
        data, cov_func=FiniteRankKernel(features), mean_func=signs.mean_func, n_draws=4096, **pseudo
    )
    return one, other


CASES = {
    "increasing": (Constraint.increasing(), {}),
    "above": (Constraint.bounds(-0.4, 2.5), {}),
    "concave, with a sign": (Constraint.concave(), {"pseudo_points": [[1.0]]}),
}


@pytest.mark.parametrize(
    ("name", "features"),
    [("increasing", "spectral"), ("above", "points"), ("concave, with a sign", "points")],
)
def test_as_without_blocks(name, features):
    constraint, more = CASES[name]
    approximation = Inducing(POINTS) if features == "points" else HSGP(8, 1.5)
    data = {"seen": (X, Y, BernoulliProbit()), "shape": (AT, None, constraint)}
    one, other = both(data, approximation, **more)
    agree(one, other, NEW)
    a, b = (x.sample(600, 2, random_seed=1)["posterior"]["f_shape"].values for x in (one, other))
    a, b = a.reshape(1200, -1), b.reshape(1200, -1)
    # False alarms: 1 in 10,000; of 1200 draws some 1000 count.
    gap = np.abs(a.mean(axis=0) - b.mean(axis=0))
    assert (gap < 5.0 * np.sqrt((a.var(axis=0) + b.var(axis=0)) / 1000)).all()
    # The limits hold in each draw, but for the nugget; f itself has e of its own.
    room = 1e-5
    derivative = constraint.derivative
    assert (a > constraint.lower - room).all()
    assert (a < constraint.upper + room).all()
    if derivative is not None:
        slopes = one.marginals(AT, derivative=derivative).moments.mean
        assert (np.sign(slopes) == (1 if constraint.upper == np.inf else -1)).all()


def test_features_of_derivatives_are_differences():
    h = 1e-3
    for approximation in (Inducing(POINTS), HSGP(6, 1.5)):
        posterior = sg.SkewGP(cov_func=KERNEL, approximation=approximation).posterior(X, Y)
        _, features = finite_rank_prior(posterior.prior, X)
        below, at, above = (features.at(AT + s * h)[0] for s in (-1.0, 0.0, 1.0))
        # Central differences err by h^2 times higher derivatives, some hundred here.
        np.testing.assert_allclose(
            features.derivative_at(AT, Derivative(0, 1)), (above - below) / (2.0 * h), atol=3e-4
        )
        np.testing.assert_allclose(
            features.derivative_at(AT, Derivative(0, 2)),
            (above - 2.0 * at + below) / h**2,
            atol=3e-3,
        )


def test_contradictions_and_constraints_alone():
    data = {
        "seen": (X, Y, BernoulliProbit()),
        "up": (AT, None, Constraint.increasing()),
        "down": (AT, None, Constraint(upper=-0.5, derivative=(0, 1))),
    }
    one, _ = both(data, Inducing(POINTS))
    with pytest.raises(sg.ContradictoryConstraintsError):
        _ = one.log_marginal_likelihood
    with pytest.raises(sg.ApproximationError, match="constraints alone"):
        both({"up": (AT, None, Constraint.increasing())}, Inducing(POINTS))


def test_limits_that_hold_by_what_features_leave_are_no_contradiction():
    y = np.sin(X[:, 0]) + 0.1 * RNG.standard_normal(N)
    bounds = Constraint.bounds(-0.1, 0.75)
    data = {"seen": (X, y, Gaussian(0.3)), "shape": (AT, None, bounds)}
    one, other = both(data, Inducing(POINTS[::2]))
    agree(one, other, NEW)


def test_a_constraint_is_of_the_first_function():
    y = np.where(Y > 0, np.sin(X[:, 0]), np.nan)
    data = {"seen": (X, y, Selection(0.5, 0.3)), "up": (AT, None, Constraint.increasing())}
    agree(*both(data, Inducing(POINTS)), NEW)


# Marginals of derivatives at new points: the closed form of regression, and differences of f.


ETA, LS = 1.3, 0.8
X1, Y1 = np.array([[0.0], [0.7], [1.5]]), np.array([0.2, 0.9, -0.3])
NEW1 = np.array([[0.0], [0.4], [2.0]])
GP = sg.SkewGP(cov_func=ETA**2 * pm.gp.cov.ExpQuad(1, ls=LS), mean_func=pm.gp.mean.Linear(0.5, 0.1))


def k(a, b):
    return ETA**2 * np.exp(-0.5 * ((a - b.T) / LS) ** 2)


def test_regression_in_closed_form():
    """cov(f', f) = -(x - t) / ls^2 k, var(f') = eta^2 / ls^2; to round-off."""
    at = GP.posterior(X1, Y1, likelihood=Gaussian(0.3)).marginals(NEW1, derivative=(0, 1))
    cross = -(NEW1 - X1.T) / LS**2 * k(NEW1, X1)
    gain = np.linalg.solve(k(X1, X1) + 0.09 * np.eye(3), cross.T).T
    assert_allclose(at.moments.mean, 0.5 + gain @ (Y1 - 0.1 - 0.5 * X1[:, 0]), atol=1e-10)
    variance = ETA**2 / LS**2 - np.einsum("ij,ij->i", gain, cross)
    assert_allclose(at.moments.sd**2, variance, atol=1e-10)


@pytest.mark.parametrize("order", [1, 2])
def test_means_are_differences_of_means(order):
    """Given draws of u the mean is a smooth function: central differences, off by h^2 = 1e-6.

    The second difference divides round-off of 1e-13 by h^2 as well: 1e-7.
    """
    gp = sg.SkewGP(cov_func=GP.cov_func, mean_func=GP.mean_func, pseudo_points=[[1.0]])
    posterior = gp.posterior(X1, [0, 1, 0])
    h = 1e-3
    below, at, above = (posterior.marginals(NEW1 + s * h).means for s in (-1, 0, 1))
    expected = (above - below) / (2 * h) if order == 1 else (above - 2 * at + below) / h**2
    found = posterior.marginals(NEW1, derivative=(0, order)).means
    assert_allclose(found, expected, atol=5e-5)


def test_a_constraint_holds_for_the_marginal():
    data = [(X1, Y1, Gaussian(0.5)), (NEW1, None, Constraint.increasing())]
    posterior = GP.posterior(data, n_draws=256)
    assert posterior.marginals(NEW1, derivative=(0, 1)).cdf([0.0] * 3).value.max() < 0.01


@pytest.mark.parametrize(
    ("new", "derivative", "message"),
    [
        (None, (0, 1), "give Xnew"),
        (NEW1, (1, 1), "feature 1, but X has 1"),
        (NEW1, (0, 3), "order 1 or 2"),
        (NEW1, 1, r"must be \(feature, order\)"),
    ],
)
def test_bad_input(new, derivative, message):
    posterior = GP.posterior(X1, Y1, likelihood=Gaussian(0.3))
    with pytest.raises((TypeError, ValueError), match=message):
        posterior.marginals(new, derivative=derivative)
