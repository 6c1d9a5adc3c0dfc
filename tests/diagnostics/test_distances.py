"""Distances of marginals against closed forms, a fine sum, and repetition of the draws."""

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import norm, skewnorm, wasserstein_distance

from pymc_skewgp import LatentMarginals
from pymc_skewgp._diagnostics.marginals import DrawnMarginals
from pymc_skewgp._diagnostics.measures import skewness_error, wasserstein


def gaussian(mean, sd):
    mean = np.asarray(mean, dtype=float)
    return LatentMarginals(mean[:, None], np.broadcast_to(sd, mean.shape) ** 2.0, np.ones(1))


class TestWasserstein:
    """The trapezoidal rule with steps h of 12 deviations / 200 errs where its integrand has a kink.

    There h^2 / 8 times the jump of the slope: 1e-3 for two Gaussians of one width.
    """

    @pytest.mark.parametrize("shift", [0.0, 0.05, 0.5, -3.0])
    def test_equal_deviations(self, shift):
        """|m1 - m2| over the deviation: F_a - F has one sign, so no kink; tails to 1e-9."""
        found = wasserstein(gaussian([2.0 * shift], 2.0), gaussian([0.0], 2.0))
        assert found.value == pytest.approx(abs(shift), abs=1e-8)
        assert found.std_error == 0.0

    @pytest.mark.parametrize("sd", [0.3, 0.9, 2.0])
    def test_equal_means(self, sd):
        """E |s1 z - s2 z| = |s1 - s2| (2/pi)^.5."""
        found = wasserstein(gaussian([1.0], 3.0 * sd), gaussian([1.0], 3.0))
        assert found.value == pytest.approx(abs(sd - 1.0) * np.sqrt(2.0 / np.pi), abs=2e-3)

    def test_by_quantiles(self):
        """The mean distance of quantiles of a mixture and a Gaussian, at 4000 probabilities."""
        means, weights = np.array([[-1.0, 0.5, 3.0]]), np.array([0.2, 0.7, 0.1])
        exact = LatentMarginals(means, np.array([0.5]), weights)
        p = (np.arange(4000) + 0.5) / 4000
        wide = np.abs(exact.quantile(p)[:, 0] - norm.ppf(p, 0.4, 0.8)).mean()
        found = wasserstein(gaussian([0.4], 0.8), exact)
        assert found.value == pytest.approx(wide / exact.moments.sd[0], abs=2e-3)

    def test_mean_over_points(self):
        found = wasserstein(gaussian([0.5, -1.5], [1.0, 2.0]), gaussian([0.0, 0.0], [1.0, 2.0]))
        assert found.value == pytest.approx(0.5 * (0.5 + 0.75), abs=1e-8)

    def test_draws_against_draws(self):
        """SciPy's distance of two samples; steps of both functions blur by h / 2 = .03 at most."""
        rng = np.random.default_rng(0)
        a, b = rng.normal(size=(2, 300, 1)) + 1.0, 1.3 * rng.normal(size=(2, 300, 1))
        found = wasserstein(DrawnMarginals(a), DrawnMarginals(b))
        wanted = wasserstein_distance(a.ravel(), b.ravel()) / b.std()
        assert found.value == pytest.approx(wanted, abs=0.03)

    def test_draws_of_the_exact_distribution(self):
        """Their distance is E |F_n - F| integrated: (2/pi)^.5 times the integral of sd, over n^.5.

        1000 points of 400 draws: the mean over points has a relative error of .4/1000^.5 = .013.
        """
        draws = np.random.default_rng(1).normal(size=(4, 100, 1000))
        found = wasserstein(DrawnMarginals(draws), gaussian(np.zeros(1000), 1.0))
        x = np.linspace(-9.0, 9.0, 2001)
        integral = np.trapezoid(np.sqrt(ndtr(x) * ndtr(-x)), x)
        wanted = np.sqrt(2.0 / np.pi) * integral / np.sqrt(400)
        assert found.value == pytest.approx(wanted, rel=0.06)

    def test_where_f_is_known(self):
        """No deviation to measure in: such a point counts as 0, and nothing warns."""
        found = wasserstein(gaussian([0.5, 0.0], [1.0, 0.0]), gaussian([0.0, 0.0], [1.0, 0.0]))
        assert found.value == pytest.approx(0.25, abs=1e-8)


class TestSkewness:
    def test_difference(self):
        means, weights = np.array([[-1.0, 0.5, 3.0], [0.0, 0.0, 1.0]]), np.array([0.2, 0.7, 0.1])
        exact = LatentMarginals(means, np.array([0.5, 0.1]), weights)
        off = means - (means @ weights)[:, None]
        skewness = off**3 @ weights / (off**2 @ weights + [0.5, 0.1]) ** 1.5
        found = skewness_error(gaussian([0.0, 0.0], 1.0), exact)
        assert found.value == pytest.approx(np.abs(skewness).mean(), rel=1e-12)
        assert found.std_error == 0.0


class TestErrors:
    """Over 200 sets of draws at a distance far beyond their noise: mean square of errors over that
    stated. Stated errors come from the spread of eight parts: together .1 of a relative error of
    the ratio (of squares), .4 is four of these.
    """

    def ratio(self, make, measure, truth):
        rng = np.random.default_rng(0)
        found = [measure(*make(rng)) for _ in range(200)]
        off = np.array([f.value for f in found]) - truth
        return np.mean(off**2) / np.mean([f.std_error**2 for f in found])

    @pytest.mark.parametrize("n_chains", [1, 4, 10])
    def test_draws(self, n_chains):
        def make(rng):
            draws = rng.normal(size=(n_chains, 800 // n_chains, 3)) + 1.0
            return DrawnMarginals(draws), gaussian(np.zeros(3), 1.0)

        assert self.ratio(make, wasserstein, 1.0) == pytest.approx(1.0, abs=0.4)

    @pytest.mark.parametrize("replicates", [None, 10])
    def test_draws_behind_the_exact_marginals(self, replicates):
        """In units of a deviation that is estimated from the same draws."""
        blocks = None if replicates is None else np.repeat(np.arange(10), 40)

        def make(rng):
            z = rng.normal(size=(2, 400))
            if blocks is not None:  # what the draws of one replicate share
                z = np.sqrt(0.9) * z + np.sqrt(0.1) * rng.normal(size=(2, 10))[:, blocks]
            exact = LatentMarginals(z, np.full(2, 0.5), np.full(400, 1 / 400), blocks)
            return gaussian(np.full(2, 1.5), np.sqrt(1.5)), exact

        truth = 1.5 / np.sqrt(1.5)
        # Few replicates estimate the deviation with a bias of a few hundredths.
        assert self.ratio(make, wasserstein, truth) == pytest.approx(1.0, abs=0.4)

    def test_skewness(self):
        exact_skewness = skewnorm(3.0).stats("s")

        def make(rng):
            draws = skewnorm(3.0).rvs(size=(4, 500, 2), random_state=rng)
            return DrawnMarginals(draws), gaussian(np.zeros(2), 1.0)

        assert self.ratio(make, skewness_error, exact_skewness) == pytest.approx(1.0, abs=0.4)

    def test_too_few_draws_for_parts(self):
        draws = np.random.default_rng(0).normal(size=(1, 10, 2))
        assert wasserstein(DrawnMarginals(draws), gaussian([0.0, 0.0], 1.0)).std_error == 0.0
