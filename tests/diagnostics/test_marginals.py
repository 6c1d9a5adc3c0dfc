"""Marginals from draws: moments, errors under autocorrelation, names; and what is refused."""

import numpy as np
import pytest
from approximation_oracles import normal_marginals as gaussian
from approximation_oracles import rbf, tree
from scipy.integrate import quad
from scipy.special import ndtr
from scipy.stats import norm
from xarray import DataTree

from pymc_skewgp import SkewGPPosterior, coverage, posterior_skewness
from pymc_skewgp._diagnostics.marginals import DrawnMarginals, as_marginals, labelled_marginals
from pymc_skewgp._diagnostics.measures import interval_coverage


def chains(rho, shape, seed=0):
    """Stationary autoregressions with standard normal margins, (n_chains, n_draws, t)."""
    rng = np.random.default_rng(seed)
    z = rng.standard_normal(shape)
    for i in range(1, shape[1]):
        z[:, i] = rho * z[:, i - 1] + np.sqrt(1.0 - rho**2) * z[:, i]
    return z


class TestDraws:
    DRAWS = np.random.default_rng(0).gamma(2.0, size=(3, 50, 4))

    def test_a_single_draw_has_errors_without_bound(self):
        at = DrawnMarginals(self.DRAWS[:1, :1])
        assert all((error == np.inf).all() for error in at.moment_errors)

    def test_distribution_function(self):
        at = DrawnMarginals(self.DRAWS)
        # Values at draws and between them.
        values = np.stack([self.DRAWS[0, 7], self.DRAWS[1, 3] + 0.1, np.zeros(4)])[:, None]
        share = np.array(
            [[(self.DRAWS[..., i] <= row[0, i]).mean() for i in range(4)] for row in values]
        )
        np.testing.assert_allclose(at.cdf(values).value[:, 0], share, rtol=1e-14)
        np.testing.assert_allclose(at.cdf_values(values)[:, 0], share, rtol=1e-14)

    def test_quantiles(self):
        found = DrawnMarginals(self.DRAWS).quantile([0.1, 0.5])
        flat = np.sort(self.DRAWS.reshape(-1, 4), axis=0)
        # Between order statistics, at (n + 1) p of the first to the last: 15.1 and 75.5.
        np.testing.assert_allclose(found[0], 0.9 * flat[14] + 0.1 * flat[15], rtol=1e-13)
        np.testing.assert_allclose(found[1], 0.5 * (flat[74] + flat[75]), rtol=1e-13)

    def test_density(self):
        """10000 draws: a kernel of width h = n^-.2 = .16 blurs by h^2 / 2 |f''| <= .005.

        Its noise is (f / (2 sqrt(pi) n h))^.5 <= .009; four of these and the blur.
        """
        at = DrawnMarginals(np.random.default_rng(0).normal(size=(4, 2500, 2)))
        values = np.repeat(np.linspace(-3.0, 3.0, 7)[:, None], 2, axis=1)
        np.testing.assert_allclose(at.density(values), norm.pdf(values), atol=0.04)

    def test_a_point_where_all_draws_are_equal(self):
        draws = np.random.default_rng(0).normal(size=(2, 20, 2))
        draws[..., 1] = 0.3
        at = DrawnMarginals(draws)
        assert at.moments.skewness[1] == 0.0
        for error in (*at.moment_errors, at.probability().std_error):
            assert error[0] > 0.0
            assert error[1] == pytest.approx(0.0, abs=1e-16)

    @pytest.mark.parametrize("n_draws", [1, 3])
    def test_a_few_draws(self, n_draws):
        """Too few to estimate autocorrelation from: as if independent."""
        draws = np.random.default_rng(0).normal(size=(2, n_draws, 3))
        flat = draws.reshape(-1, 3)
        at = DrawnMarginals(draws)
        np.testing.assert_array_equal(at.ess, 2 * n_draws)
        wanted = flat.std(axis=0) / np.sqrt(2 * n_draws)
        np.testing.assert_allclose(at.moment_errors.mean, wanted, rtol=1e-12)


def test_errors_are_honest():
    """4 chains of 1000 at 400 points, each an autoregression of its own, transformed to be skewed.

    Mean squares of errors over those stated: the ratio has a relative error of sqrt(2/400) = .07,
    and some .05 more of the estimated effective sample sizes and the delta method; .35 is three
    times what both may come to: false alarms about 1e-3 for a new seed.
    """
    z = chains(0.7, (4, 1000, 400))
    at = DrawnMarginals(z + 0.15 * z**2)
    second, third = 1.0 + 2 * 0.15**2, 6 * 0.15 + 8 * 0.15**3
    truth = (0.15, np.sqrt(second), third / second**1.5)
    for value, error, right in zip(at.moments, at.moment_errors, truth, strict=True):
        assert np.mean((value - right) ** 2) / np.mean(error**2) == pytest.approx(1.0, abs=0.35)

    def expected(g):
        return quad(lambda x: norm.pdf(x) * g(x + 0.15 * x**2), -10.0, 10.0, points=[0.64])[0]

    for got, right in (
        (at.probability(), expected(ndtr)),
        # z + .15 z^2 <= .7 between the roots of a parabola.
        (at.cdf(np.full(400, 0.7)), np.diff(norm.cdf(np.sort(np.roots([0.15, 1.0, -0.7]))))[0]),
    ):
        ratio = np.mean((got.value - right) ** 2) / np.mean(got.std_error**2)
        assert ratio == pytest.approx(1.0, abs=0.35)


class TestNames:
    def test_any_order_of_dimensions(self):
        draws = np.random.default_rng(0).normal(size=(2, 10, 3))
        source = tree(draws)
        dataset = source["posterior"].dataset.transpose("obs_id", "draw", "chain")
        turned = DataTree.from_dict({"posterior": dataset})
        np.testing.assert_array_equal(as_marginals(turned).draws, draws)

    def test_a_single_number(self):
        points = labelled_marginals(tree(np.arange(20.0).reshape(2, 10), dims=()))
        assert points.dims == points.shape == ()
        assert points.dataset(a=points.marginals.moments.mean)["a"].item() == 9.5


DRAWS = np.zeros((2, 5, 3))
POSTERIOR = SkewGPPosterior([0.0], [1], cov_func=rbf(4.0))


INFINITE = r"'f' of group 'posterior' .* NaN or infinite"
REFUSED = [
    (tree(DRAWS), {"var": np.zeros((2, 1))}, r"var must be the name.*posterior.marginals\(Xnew\)"),
    (tree(DRAWS)["posterior"], {}, "give the whole tree"),
    ([1.0], {}, "got list"),
    (tree(DRAWS), {"group": "predictions"}, r"no group 'predictions'; it has \['posterior'\]"),
    (tree(DRAWS), {"var": "g"}, r"'posterior' has no variable 'g'; it has \['f'\]"),
    (tree(DRAWS).isel(draw=slice(0)), {}, r"holds no draws: its sizes are .*'draw': 0"),
    (tree(DRAWS * np.nan), {}, INFINITE),
    (tree(DRAWS + np.inf), {}, INFINITE),
    (tree(DRAWS).isel(chain=0), {}, r"needs the dimensions chain and draw, got \('draw'"),
    (POSTERIOR, {"group": "predictions"}, "'predictions' names a group of a DataTree.*marginals"),
]


@pytest.mark.parametrize(("source", "options", "message"), REFUSED)
def test_what_has_no_marginals(source, options, message):
    with pytest.raises((TypeError, KeyError, ValueError), match=message):
        posterior_skewness(source, **options)


# Coverage against closed forms and quadrature; its errors against repetition.


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
