"""Marginals from draws: moments, errors under autocorrelation, names; and what is refused."""

import numpy as np
import pytest
from approximation_oracles import rbf, tree
from scipy.integrate import quad
from scipy.special import ndtr
from scipy.stats import norm
from xarray import DataTree

from pymc_skewgp import SkewGPPosterior, posterior_skewness
from pymc_skewgp._diagnostics.marginals import DrawnMarginals, as_marginals, labelled_marginals


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
