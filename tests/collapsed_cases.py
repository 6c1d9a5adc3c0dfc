"""Small data under every likelihood, and their log likelihoods as functions of f, by hand.

Nothing here knows of rows or intervals. Integrated over f by `comparison_oracles.latent_posterior`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
from comparison_oracles import chosen, latent_posterior, ranked
from likelihood_oracles import one_sign
from scipy.special import ndtr

from pymc_skewgp import likelihoods as of

INF, NAN = np.inf, np.nan
X = np.array([[-0.8], [0.1], [0.9]])
ETA, LS = 1.3, 0.8
PSEUDO = np.array([[0.4]])


class Case(NamedTuple):
    """Data, their likelihood, and the same by hand.

    Attributes
    ----------
    make : callable
        Inside of a model: X, y, likelihood and coregion.
    theta : dict
        Values of the likelihood's random variables as the model has them, transformed.
    probability : callable
        Of the data given f, shape (N, q), and `theta`.
    cov : callable
        Prior covariance of f from the variance, the lengthscale and `theta`.
    step : float
        Of the trapezoid rule.
    signed : bool
        Whether f > 0 at `PSEUDO`.
    """

    make: Callable[[], tuple[Any, Any, Any, Any]]
    theta: dict[str, Any]
    probability: Callable[[Any, dict[str, Any]], Any]
    cov: Callable[[float, float, dict[str, Any]], Any]
    step: float = 0.25
    signed: bool = False

    def truth(self, eta, ls, theta):
        """Posterior of f, with the evidence, by quadrature."""
        sign = None
        cov = self.cov(eta, ls, theta)
        if self.signed:
            inputs = self.make_inputs()
            sign = one_sign(cov, rbf(inputs, PSEUDO, eta, ls)[:, 0], eta**2, 1.0, 0.0)
        return latent_posterior(cov, lambda f: self.probability(f, theta), sign, self.step)

    def make_inputs(self):
        """X, without a model."""
        with pm.Model():
            return self.make()[0]


def rbf(x, t, eta, ls):
    return eta**2 * np.exp(-0.5 * ((x - t.T) / ls) ** 2)


def normal(z, sd):
    return np.exp(-0.5 * (z / sd) ** 2) / (np.sqrt(2.0 * np.pi) * sd)


def at(n):
    return lambda eta, ls, theta: rbf(X[:n], X[:n], eta, ls)


def sigma():
    return pm.HalfNormal("sigma", 1.0)


def sigma_at(value):
    return {"sigma_log__": np.log(value)}


def ordered():
    def probability(f, theta):
        low, high = theta["cuts"]
        return ndtr(low - f[:, 0]) * (ndtr(high - f[:, 1]) - ndtr(low - f[:, 1]))

    def make():
        return X[:2], [0, 1], of.OrderedProbit(pm.Normal("cuts", 0.0, 2.0, shape=2)), None

    return Case(make, {"cuts": np.array([-0.4, 0.7])}, probability, at(2))


def binomial():
    def probability(f, theta):
        p = ndtr(f)
        return 3.0 * p[:, 0] ** 2 * (1.0 - p[:, 0]) * (1.0 - p[:, 1])

    return Case(lambda: (X[:2], [2, 0], of.BinomialProbit([3, 1]), None), {}, probability, at(2))


def tobit():
    """A value and one at the limit, under a skew prior."""

    def probability(f, theta):
        sd = np.exp(theta["sigma_log__"])
        return normal(f[:, 0] - 0.6, sd) * ndtr((0.0 - f[:, 1]) / sd)

    def make():
        return X[:2], [0.6, 0.0], of.CensoredGaussian(sigma(), lower=0.0), None

    return Case(make, sigma_at(0.6), probability, at(2), signed=True)


def bounds():
    def probability(f, theta):
        sd = np.exp(theta["sigma_log__"])
        between = ndtr((0.9 - f[:, 0]) / sd) - ndtr((0.2 - f[:, 0]) / sd)
        return between * ndtr((-0.1 - f[:, 1]) / sd)

    def make():
        return X[:2], [[0.2, 0.9], [-INF, -0.1]], of.CensoredGaussian(sigma()), None

    return Case(make, sigma_at(0.6), probability, at(2))


def duels():
    """A win and a tie of the same two items."""

    def probability(f, theta):
        sd, d = np.sqrt(2.0) * np.exp(theta["sigma_log__"]), np.exp(theta["d_log__"])
        ahead = f[:, 0] - f[:, 1]
        return ndtr((ahead - d) / sd) * (ndtr((d - ahead) / sd) - ndtr((-d - ahead) / sd))

    def make():
        d = pm.HalfNormal("d", 1.0)
        return X[:2], [[0, 1, 0], [1, 0, 1]], of.Preference(sigma(), threshold=d), None

    return Case(make, {**sigma_at(0.6), "d_log__": np.log(0.5)}, probability, at(2))


def choice():
    def probability(f, theta):
        return chosen((f[:, [1]] - f[:, [0, 2]]) / np.exp(theta["sigma_log__"]))

    return Case(
        lambda: (X, [[1, 0, 2]], of.Choice(sigma()), None),
        sigma_at(0.8),
        probability,
        at(3),
        step=0.5,
    )


def ranking():
    def probability(f, theta):
        sd = np.exp(theta["sigma_log__"])
        return ranked((f[:, 2] - f[:, 0]) / sd, (f[:, 0] - f[:, 1]) / sd)

    return Case(
        lambda: (X, [[2, 0, 1]], of.Ranking(sigma()), None),
        sigma_at(0.8),
        probability,
        at(3),
        step=0.5,
    )


def between(scale, r):
    """A covariance of two functions."""
    return [[scale**2, r * scale], [r * scale, 1.0]]


def coregion():
    B = between(pm.HalfNormal("scale", 1.0), pm.Normal("r", 0.0, 0.5))
    return pm.math.stack([pm.math.stack(row) for row in B])


def of_two(eta, ls, theta):
    B = between(np.exp(theta["scale_log__"]), theta["r"])
    return np.kron(rbf(X[:2], X[:2], eta, ls), B)


def classes():
    def probability(f, theta):
        return ndtr((f[:, 1] - f[:, 0]) / np.sqrt(2.0)) * ndtr((f[:, 2] - f[:, 3]) / np.sqrt(2.0))

    def make():
        return X[:2], [1, 0], of.MultinomialProbit(), coregion()

    return Case(make, {"scale_log__": 0.2, "r": 0.3}, probability, of_two, step=0.7)


def selection():
    """Heckman's likelihood of an outcome that is seen and of one that is not."""

    def probability(f, theta):
        sd, rho = np.exp(theta["sigma_log__"]), np.tanh(theta["rho_interval__"] / 2.0)
        z = (0.6 - f[:, 0]) / sd
        seen = normal(z, 1.0) / sd * ndtr((f[:, 1] + rho * z) / np.sqrt(1.0 - rho**2))
        return seen * ndtr(-f[:, 3])

    def make():
        rho = pm.Uniform("rho", -1.0, 1.0)
        return X[:2], [0.6, NAN], of.Selection(sigma(), rho), coregion()

    theta = {**sigma_at(0.9), "rho_interval__": -0.8, "scale_log__": 0.2, "r": 0.3}
    return Case(make, theta, probability, of_two, step=0.7)


def several():
    """A label, a value, and a slope above 0 up to a nugget of two deviations, for quadrature."""

    def probability(f, theta):
        sd = np.exp(theta["sigma_log__"])
        variance = theta["eta"] ** 2 / theta["ls"] ** 2
        slope = ndtr(f[:, 2] / np.sqrt(variance / 16.0))
        return ndtr(f[:, 0]) * normal(f[:, 1] - 0.4, sd) * slope

    def make():
        kinds = {
            "label": (X[:1], [1], None),
            "value": (X[1:2], [0.4], of.Gaussian(sigma())),
            "rising": (X[2:], None, of.Constraint(lower=0.0, derivative=(0, 1), nugget=2.0)),
        }
        return kinds, None, None, None

    def cov(eta, ls, theta):
        x, v = X[:2], X[2:]
        theta |= {"eta": eta, "ls": ls}
        cross = (x - v.T) / ls**2 * rbf(x, v, eta, ls)
        return np.block([[rbf(x, x, eta, ls), cross], [cross.T, eta**2 / ls**2 * np.eye(1)]])

    return Case(make, sigma_at(0.6), probability, cov)


MAKERS = (ordered, binomial, tobit, bounds, duels, choice, ranking, classes, selection, several)
CASES = {make.__name__: make() for make in MAKERS}
