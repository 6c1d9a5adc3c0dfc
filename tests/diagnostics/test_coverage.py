"""Coverage against closed forms and quadrature; its errors against repetition."""

import numpy as np
import pytest
from approximation_oracles import normal_marginals as gaussian
from approximation_oracles import rbf, tree
from scipy.stats import norm
from xarray import DataTree

from pymc_skewgp import SkewGPPosterior, coverage
from pymc_skewgp._diagnostics.marginals import DrawnMarginals
from pymc_skewgp._diagnostics.measures import interval_coverage

PROBS = np.array([0.5, 0.8, 0.95])


class TestOfTheExactPosterior:
    def test_gaussians(self):
        """N(m, s) covers of N(0, 1) a difference of two normal probabilities."""
        mean, sd = np.array([0.0, 0.5, -2.0]), np.array([1.0, 0.5, 3.0])
        found = coverage(gaussian(mean, sd), gaussian(np.zeros(3), 1.0), probs=PROBS)
        reach = norm.ppf(0.5 + 0.5 * PROBS)[:, None] * sd
        wanted = norm.cdf(mean + reach) - norm.cdf(mean - reach)
        # Quantiles are solved to 1e-10 deviations.
        np.testing.assert_allclose(found["coverage"], wanted, atol=1e-9)
        np.testing.assert_allclose(found["mean"], wanted.mean(axis=1), atol=1e-9)
        np.testing.assert_allclose(found["coverage_se"], 0.0, atol=1e-15)
        np.testing.assert_allclose(found["mean_se"], 0.0, atol=1e-15)

    def test_few_draws_are_no_bias(self):
        """19 draws of a Gaussian: the mean coverage of 1000 such sets is the nominal probability.

        Each has a deviation below .2: four errors of the mean are .026. NumPy's own rule for
        quantiles gives .45 and .85.
        """
        draws = np.random.default_rng(3).normal(size=(1, 19, 1000))
        probs = np.array([0.5, 0.9])
        found = coverage(tree(draws), gaussian(np.zeros(1000), 1.0), probs=probs)
        np.testing.assert_allclose(found["mean"], probs, atol=0.026)

    @pytest.mark.slow(ci=True)
    def test_the_error_of_the_mean_is_honest(self):
        """Points that share all their noise, and points that share none, 200 sets of draws each.

        Squared errors over stated ones have F(1, 7), mean 1.4 and deviation 4: 200 of them average
        between .7 and 2.5 but for 1 in 1000.
        """
        rng = np.random.default_rng(5)
        alone = rng.normal(size=(200, 4, 100, 10))
        for draws in (alone, np.repeat(alone[..., :1], 10, axis=-1)):
            ratios = []
            for each in draws:
                found = coverage(tree(each), gaussian(np.zeros(10), 1.0), probs=[0.8])
                ratios.append(((found["mean"] - 0.8) / found["mean_se"]).item() ** 2)
            assert 0.7 < np.mean(ratios) < 2.5

    def test_draws_of_the_exact_posterior(self):
        """The mean over points within 6 of its error, a t of 7 degrees: false alarms 2e-3."""
        posterior = SkewGPPosterior(np.arange(6.0), [1, 1, 0, 1, 0, 0], cov_func=rbf(9.0))
        draws = posterior.sample(1000, random_seed=1)
        found = coverage(draws, posterior, probs=PROBS)
        assert found["coverage"].dims == ("prob", "obs_id")
        assert (np.abs(found["mean"] - PROBS) < 6 * found["mean_se"]).all()
        assert (found["mean_se"] < 0.03).all()
        # The other way round the exact marginals are the approximation of what the draws say.
        back = coverage(posterior, draws, probs=PROBS)
        assert (np.abs(back["mean"] - PROBS) < 4 * back["mean_se"]).all()

    @pytest.mark.parametrize("role", ["exact", "approximation"])
    def test_errors_of_both_sides_are_honest(self, role):
        """The same with the draws behind the exact posterior, whose own errors add up there.

        The errors of an interval's ends are added as if independent: of n draws behind the exact
        posterior the ratio is p (1 - p) / (2 q (1 - q)), q = (1 + p) / 2, that is .67 at p = .5 and
        .97 at .95. .3 for noise, as above.
        """
        noisy = DrawnMarginals(np.random.default_rng(2).normal(size=(4, 500, 400)))
        pair = (gaussian(np.zeros(400), 1.0), noisy)
        value, error = interval_coverage(*(pair if role == "exact" else pair[::-1]), PROBS)
        ratio = np.mean((value - PROBS[:, None]) ** 2, axis=1) / np.mean(error**2, axis=1)
        tail = 0.5 + 0.5 * PROBS
        ends = PROBS * (1.0 - PROBS) / (2.0 * tail * (1.0 - tail))
        np.testing.assert_allclose(ratio, ends if role == "exact" else 1.0, rtol=0.3)


class TestOfTheTruth:
    PLACES = np.random.default_rng(0).random((1, 40, 3))

    def test_by_counting(self):
        found = coverage(tree(self.PLACES, "prior_sbc"), probs=PROBS)
        for i, prob in enumerate(PROBS):
            hits = [
                [(1 - prob) / 2 <= u <= (1 + prob) / 2 for u in self.PLACES[0, :, j]]
                for j in range(3)
            ]
            at = found.sel(prob=prob)
            np.testing.assert_allclose(at["coverage"], np.mean(hits, axis=1), rtol=1e-13)
            p = (np.sum(hits, axis=1) + 2) / 44
            np.testing.assert_allclose(at["coverage_se"], np.sqrt(p * (1 - p) / 44), rtol=1e-13)
            share = np.mean(hits, axis=0)
            assert at["mean"].item() == pytest.approx(share.mean(), rel=1e-13)
            assert at["mean_se"].item() == pytest.approx(np.std(share, ddof=1) / np.sqrt(40))
            assert i < 3

    def test_one_simulation_has_no_spread(self):
        found = coverage(tree(self.PLACES[:, :1], "prior_sbc"), probs=0.8)
        np.testing.assert_array_equal(found["mean_se"], np.inf)


class TestErrors:
    DRAWS = np.random.default_rng(0).normal(size=(2, 50, 3))

    @pytest.mark.parametrize("probs", [[0.0], [0.5, 1.0], 1.2, [-0.1], [], [np.nan]])
    def test_probabilities(self, probs):
        with pytest.raises(ValueError, match=r"strictly between 0 and 1, got"):
            coverage(gaussian([0.0], 1.0), gaussian([0.0], 1.0), probs=probs)

    LETTERS = tree(DRAWS, obs_id=["a", "b", "c"]), tree(DRAWS, obs_id=["a", "c", "b"])
    MISFITS = {  # noqa: RUF012
        r"different points.*'obs_id': 3.*'pred_id': 2": (tree(DRAWS), gaussian(np.zeros(2), 1.0)),
        r"coordinate 'obs_id': \['a' 'b' 'c'\]\.\.\. and \[": LETTERS,
        "'obs_id' numbers the points, but out of order": (
            tree(DRAWS).isel(obs_id=[2, 1, 0]), gaussian(np.zeros(3), 1.0)
        ),
        "result of sbc.*give it alone": (
            tree(np.full((1, 4, 2), 0.5), "prior_sbc"), gaussian(np.zeros(2), 1.0)
        ),
    }  # fmt: skip

    @pytest.mark.parametrize("message", MISFITS)
    def test_points_that_do_not_fit(self, message):
        with pytest.raises(ValueError, match=message):
            coverage(*self.MISFITS[message])

    def test_coordinates_that_nobody_gave(self):
        """Some of the points of a trace, and marginals made for them."""
        some = tree(self.DRAWS).isel(obs_id=[0, 2])
        found = coverage(some, gaussian([0.0, 0.0], 1.0))
        assert found["obs_id"].values.tolist() == [0, 2]

    @pytest.mark.parametrize(
        ("source", "found"),
        [
            (DataTree(), r"a DataTree with the groups \[\]"),
            (tree(DRAWS), r"a DataTree with the groups \['posterior'\]"),
            (gaussian([0.0], 1.0), "a LatentMarginals"),
        ],
    )
    def test_no_reference(self, source, found):
        with pytest.raises(TypeError, match=f"exact posterior as its second argument.*{found}"):
            coverage(source)
