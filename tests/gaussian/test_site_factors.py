"""Moments of a Gaussian times p(y | eta): a trapezoid rule against composite rules."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.special import expit, gammaln

from pymc_skewgp._gaussian.tilted import SiteFactors

# Mean and deviation of the Gaussian.
GAUSSIANS = [(0.0, 1.0), (1.5, 3.0), (-4.0, 0.3), (2.0, 12.0), (0.3, 0.01)]


def logit(y):
    """Labels, 0 or 1, with P(1) = 1 / (1 + exp(-eta))."""
    return (
        lambda x: -np.logaddexp(0.0, (1.0 - 2.0 * y) * x),
        lambda x: (y - expit(x), -expit(x) * expit(-x)),
    )


def poisson(y):
    """Counts, with mean exp(eta)."""
    return (lambda x: y * x - np.exp(x) - gammaln(y + 1.0), lambda x: (y - np.exp(x), -np.exp(x)))


def student(y, scale, df=4.0):
    """A value with noise of heavy tails, without the constant."""

    def slopes(x):
        off = (y - x) / scale
        below = df + off**2
        second = (df + 1.0) * (off**2 - df) / below**2 / scale**2
        return (df + 1.0) * off / below / scale, second

    return (lambda x: -0.5 * (df + 1.0) * np.log1p(((y - x) / scale) ** 2 / df), slopes)


SITES = {
    "logit": logit(1.0),
    "no counts": poisson(0.0),
    "few counts": poisson(3.0),
    "many counts": poisson(1e4),
    "student": student(0.7, 0.3),
    "an outlier": student(9.0, 0.5),
    "little noise": student(1.0, 1e-3),
}


def exact(log_prob, mean, sd, peak):
    """Log mass, mean and variance by Gauss-Legendre rules on panels graded around the peak."""
    widths = 1e-4 * 2.0 ** np.arange(30)
    ends = np.concatenate(
        [mean + sd * np.linspace(-12, 12, 49), [peak], peak - widths, peak + widths]
    )
    ends = np.unique(ends[np.abs(ends - mean) <= 12 * sd])
    x, w = np.polynomial.legendre.leggauss(30)
    half = 0.5 * np.diff(ends)[:, None]
    at, mass = (ends[:-1, None] + half * (1.0 + x)).ravel(), (half * w).ravel()
    logs = log_prob(at) - 0.5 * ((at - mean) / sd) ** 2
    mass = mass * np.exp(logs - logs.max()) / sd
    total = mass.sum()
    first = (at - mean) @ mass / total
    second = (at - mean - first) ** 2 @ mass / total
    return np.log(total / np.sqrt(2 * np.pi)) + logs.max(), first / sd, second / sd**2


PEAKS = {"few counts": np.log(3.0), "many counts": np.log(1e4), "student": 0.7, "an outlier": 9.0}


@pytest.mark.parametrize("name", SITES)
def test_moments_agree_with_a_composite_rule(name):
    log_prob, slopes = SITES[name]
    means, sds = np.array(GAUSSIANS).T
    if name == "many counts":  # the oracle looks within twelve deviations
        means, sds = np.array([[9.0, 0.3], [8.0, 3.0], [0.0, 3.0]]).T
    factors = SiteFactors(log_prob, slopes, np.zeros(means.size))
    found = factors.tilted(means, sds)
    peak = PEAKS.get(name, 1.0)
    wanted = np.array([exact(log_prob, *g, peak) for g in zip(means, sds, strict=True)]).T
    # The rule ends where halving its step changed the moments by 1e-4, whose square is the error
    # that is left; ten times that for the variance under heavy tails.
    np.testing.assert_allclose(found.log_mass, wanted[0], atol=1e-8)
    np.testing.assert_allclose(found.shift, wanted[1], rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(found.spread, np.minimum(wanted[2], 1.0), rtol=1e-7)


@pytest.mark.parametrize("name", SITES)
def test_moments_by_the_nodes_of_the_last_question(name):
    log_prob, slopes = SITES[name]
    asked = []

    def counted(x):
        asked.append(x.shape)
        return log_prob(x)

    factors = SiteFactors(counted, slopes, np.zeros(1))
    ends = [(8.0, 3.0), (9.0, 0.3)] if name == "many counts" else GAUSSIANS[:4]
    silent = 0
    for (m, s), (to_m, to_s) in pairwise(ends):
        for t in np.linspace(0.0, 1.0, 13):
            mean, sd = m + t * (to_m - m), s * (to_s / s) ** t
            before = len(asked)
            found = factors.tilted(np.array([mean]), np.array([sd]))
            silent += len(asked) == before
            log_mass, shift, spread = exact(log_prob, mean, sd, PEAKS.get(name, 1.0))
            # Ten times the square of the change that ends the rule, a hundred for the variance of
            # heavy tails; nodes of another Gaussian are as good as new ones.
            np.testing.assert_allclose(found.log_mass, log_mass, atol=1e-7)
            np.testing.assert_allclose(found.shift, shift, rtol=1e-7, atol=1e-7)
            np.testing.assert_allclose(found.spread, np.minimum(spread, 1.0), rtol=1e-6)
    assert silent >= 7


def test_a_site_that_says_nothing_leaves_the_gaussian_as_it_is():
    zero = np.zeros_like
    factors = SiteFactors(zero, lambda x: (zero(x), zero(x)), np.array([1.0, -2.0]))
    found = factors.tilted(np.array([0.5, 1e3]), np.array([2.0, 1e-3]))
    np.testing.assert_allclose(found.log_mass, 0.0, atol=1e-8)
    np.testing.assert_allclose(found.shift, 0.0, atol=1e-8)
    np.testing.assert_allclose(found.spread, 1.0, rtol=1e-7)


@pytest.mark.parametrize("name", ["logit", "no counts", "many counts", "student", "an outlier"])
def test_moments_do_not_depend_on_what_was_asked_before(name):
    near, far = (np.array([0.4]), np.array([1.1])), (np.array([-3.0]), np.array([5.0]))
    fresh = SiteFactors(*SITES[name], np.zeros(1))
    wanted = fresh.tilted(*near)
    used = SiteFactors(*SITES[name], np.zeros(1))
    used.tilted(*far)
    used.tilted(near[0] + 0.1, near[1])
    begun = SiteFactors(*SITES[name], np.zeros(1))
    begun.known = used.known
    for factors in (used, begun):
        found = factors.tilted(*near)
        # What the rule leaves, 1e-8, on either side.
        for one, other in zip(found[:3], wanted[:3], strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)
