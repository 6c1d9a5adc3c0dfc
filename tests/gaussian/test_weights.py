"""Points, weights and mixtures: strata, resampling, diagnostics of known answers, root finding."""

import numpy as np
import pytest
from arviz_stats.base import array_stats
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import equicorrelated_cov, equicorrelated_log_prob
from scipy import special, stats
from scipy.optimize import brentq
from scipy.special import ndtr

from pymc_skewgp._gaussian.covariance import DenseCovariance
from pymc_skewgp._gaussian.ep import fit_ep
from pymc_skewgp._gaussian.tempering import temper
from pymc_skewgp._gaussian.twisted import Rung
from pymc_skewgp._gaussian.weights import (
    N_SOBOL,
    Estimate,
    GaussianMixture,
    _scrambled_net,
    chain_relative_ess,
    log_mean_exp,
    pareto_k,
    relative_ess,
    replicate_estimate,
    spread_of_replicates,
    systematic_resample,
    uniform_points,
    weighted_error,
)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 50), st.integers(1, 200))
def test_systematic_counts_are_floor_or_ceiling(seed, size, n):
    rng = np.random.default_rng(seed)
    log_weights = rng.normal(size=size) * 3 - 1e4  # far from zero: only ratios count
    chosen = systematic_resample(log_weights, n, rng)
    assert chosen.shape == (n,)
    weights = np.exp(log_weights - log_weights.max())
    expected = n * weights / weights.sum()
    counts = np.bincount(chosen, minlength=size)
    # 1e-9: the cumulative sum may round an expected count across an integer.
    assert (counts >= np.floor(expected - 1e-9)).all()
    assert (counts <= np.ceil(expected + 1e-9)).all()


@pytest.mark.parametrize("size", [50, 225, 226, 4000])
def test_pareto_k_is_what_arviz_finds(size):
    """To round-off, which the posterior over candidates magnifies to 1e-11 or so."""
    log_weights = 2.0 * np.random.default_rng(size).standard_t(4, size)
    expected = array_stats.psislw(-log_weights)[1]
    assert pareto_k(log_weights) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("n_dims", [1, 5, N_SOBOL])
def test_nets_are_those_of_scipy(n_dims):
    rng, other = np.random.default_rng(n_dims), np.random.default_rng(n_dims)
    expected = stats.qmc.Sobol(n_dims, bits=30, rng=other).random_base2(7).T * 2.0**30
    np.testing.assert_array_equal(_scrambled_net(n_dims, 100, rng), expected)


def test_pareto_k_without_a_tail():
    assert pareto_k(np.zeros(1000)) == -np.inf
    assert pareto_k(np.arange(5.0)) == -np.inf  # too few to tell
    assert pareto_k(np.log(np.random.default_rng(5).uniform(1, 2, 4000))) < 0.0


def test_relative_ess():
    assert relative_ess(np.full(7, -900.0)) == pytest.approx(1.0)
    assert relative_ess(np.array([0.0, -np.inf, -np.inf, -np.inf])) == pytest.approx(0.25)
    # Weights 1 and 3: (1 + 3)^2 / (1 + 9) / 2.
    assert relative_ess(np.log([1.0, 3.0])) == pytest.approx(0.8)


def test_replicate_estimate_by_hand():
    """Two blocks with means 2 and 4: mean 3, standard error of the ratio sqrt(2)/3/sqrt(2).

    To it a fifth of plain Monte Carlo's error is added, in squares.
    """
    estimate = replicate_estimate(np.log([1.0, 3.0, 4.0, 4.0]), 2)
    assert estimate.value == pytest.approx(np.log(3.0))
    plain = np.sqrt((4 * 42 / 144 - 1) / 4)
    assert estimate.std_error == pytest.approx(np.hypot(1.0 / 3.0, 0.2 * plain))
    assert estimate.relative_ess == pytest.approx(144 / 42 / 4)


def test_one_replicate_has_no_standard_error():
    assert replicate_estimate(np.zeros(4), 1).std_error == np.inf
    assert spread_of_replicates(np.zeros(1), 0.0) == np.inf


def test_relative_ess_of_a_chain_too_short_for_an_estimate():
    noise = np.random.default_rng(7).normal(size=(8, 2, 1))
    assert chain_relative_ess(noise) == 0.5


@pytest.mark.parametrize("of_values", [np.asarray, lambda x: np.exp(2 * x)])
def test_worst_of_many_coordinates_is_found(of_values):
    """Among 100 that mix well there is one that does not, whatever its tails; others stand still.

    ArviZ finds the same of that coordinate alone.
    """
    rng = np.random.default_rng(8)
    noise = rng.normal(size=(4, 500, 100))
    for t in range(1, 500):
        noise[:, t, 41] = 0.95 * noise[:, t - 1, 41] + 0.95**0.5 * 0.2 * noise[:, t, 41]
    draws = of_values(noise)
    draws[..., 17] = 2.0
    alone = array_stats.ess(draws[..., 41], chain_axis=0, draw_axis=1) / 2000
    assert chain_relative_ess(draws) == pytest.approx(float(alone), rel=1e-12)


@pytest.mark.parametrize(
    ("ess", "k", "heavy", "said"),
    [
        (1.0, 0.94, False, "-1.0000 +- 0.1 (relative ESS 1.00)"),
        (0.5, 0.94, False, "-1.0000 +- 0.1 (relative ESS 0.50)"),
        (0.4, -np.inf, False, "-1.0000 +- 0.1 (relative ESS 0.40)"),
        (0.4, 0.69, False, "-1.0000 +- 0.1 (relative ESS 0.40, Pareto k 0.69)"),
        (0.4, 0.7, True, "from 0.7 on the error is unreliable)"),
        (0.4, np.inf, True, "Pareto k inf, and from 0.7 on"),
    ],
)
def test_the_tail_is_named_where_the_error_depends_on_it(ess, k, heavy, said):
    estimate = Estimate(-1.0, 0.1, ess, k)
    assert estimate.heavy_tailed == heavy
    assert said in str(estimate)


@pytest.mark.parametrize("size", [1, 4])
def test_error_of_draws_that_depend_on_each_other(size):
    """Equal numbers add up; numbers that cancel leave a fifth of independent draws' error."""
    x = np.random.default_rng(6).standard_normal((20, size))
    x -= x.mean()
    replicate = np.tile(np.repeat(np.arange(20), size), 2)  # in no order of its own
    weights = np.full(replicate.size, 1.0 / replicate.size)
    same, opposite = np.tile(x.ravel(), 2), np.concatenate([x.ravel(), -x.ravel()])
    found = weighted_error(np.stack([same, opposite]), weights, replicate)
    independent = np.sqrt(2.0 * np.square(x).sum()) / replicate.size
    # The standard error of a mean of 20 numbers, by its textbook formula.
    of_means = x.mean(axis=1).std(ddof=1) / np.sqrt(20)
    np.testing.assert_allclose(found, [of_means, 0.2 * independent])


def test_few_replicates_are_not_believed():
    x = np.array([1.0, -1.0, 1.0, -1.0])  # two that agree, by chance
    weights = np.full(4, 0.25)
    found = weighted_error(x, weights, np.array([0, 0, 1, 1]))
    np.testing.assert_allclose(found, weighted_error(x, weights, None))


@pytest.mark.parametrize(
    ("n_dims", "n_points", "n_replicates"), [(1, 1, 1), (3, 5, 2), (N_SOBOL + 6, 16, 3)]
)
def test_shape_and_range(n_dims, n_points, n_replicates):
    points = uniform_points(n_dims, n_points, n_replicates, np.random.default_rng(0))
    assert points.shape == (n_dims, n_replicates * n_points)
    assert points.min() > 0.0
    assert points.max() < 1.0


@pytest.mark.parametrize("n_points", [64, 128])
def test_every_coordinate_is_stratified(n_points):
    """A power of two of Sobol points, or a Latin hypercube, has one point in each stratum.

    This is what makes the points better than independent ones, in every replicate alone.
    """
    points = uniform_points(N_SOBOL + 5, n_points, 2, np.random.default_rng(1))
    strata = np.sort((points.reshape(-1, 2, n_points) * n_points).astype(int), axis=-1)
    assert (strata == np.arange(n_points)).all()


def test_replicates_are_independent():
    """Means of two replicates are uncorrelated: |r| of 400 pairs is below 5/sqrt(400) = .25
    but for a false-alarm rate of 6e-7 a coordinate."""
    rng = np.random.default_rng(2)
    means = np.array([uniform_points(3, 7, 2, rng).reshape(3, 2, 7).mean(-1) for _ in range(400)])
    for dim in range(3):
        assert abs(np.corrcoef(means[:, dim, 0], means[:, dim, 1])[0, 1]) < 0.25


def test_order_within_a_replicate_is_random():
    """The first half alone is a fair sample: Sobol points in their own order are not.

    The mean of 64 of 128 points without replacement has standard error .29 sqrt(1/128) = .0255;
    5 of them, over 10 coordinates: false-alarm rate 6e-6.
    """
    points = uniform_points(10, 128, 1, np.random.default_rng(3))
    assert np.abs(points[:, :64].mean(axis=1) - 0.5).max() < 5 * 0.0255
    # In Sobol order neighbours fall in opposite halves; shuffled, half of them do.
    # 127 pairs a row: 64 +- 5.6, five of them.
    opposite = ((points[:, 1:] > 0.5) != (points[:, :-1] > 0.5)).sum(axis=1)
    assert (np.abs(opposite - 63.5) < 5 * 5.7).all()


def test_seeded():
    a = uniform_points(70, 8, 2, np.random.default_rng(5))
    assert np.array_equal(a, uniform_points(70, 8, 2, np.random.default_rng(5)))
    assert not np.array_equal(a, uniform_points(70, 8, 2, np.random.default_rng(6)))


PROBS = np.array([0.001, 0.025, 0.25, 0.5, 0.9, 0.999])


def mixture(seed, n_components, n=3):
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.ones(n_components))
    return rng.normal(size=(n, n_components)), rng.uniform(0.01, 4.0, n), weights


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 30),
    st.sampled_from([1e-6, 1e-2, 1.0, 100.0]),
    st.sampled_from([1e-3, 1.0, 1e3]),
)
def test_quantiles_against_brentq(seed, n_components, variance, scale):
    means, _, weights = mixture(seed, n_components, n=2)
    means = means * scale
    made = GaussianMixture(means, np.full(2, variance), weights)
    got, sd, spread = made._quantiles_at(PROBS), np.sqrt(variance), made._moments_of_rows()[1]
    for i in range(2):

        def surplus(x, prob, row=i):
            return ndtr((x - means[row]) / sd) @ weights - prob

        for j, prob in enumerate(PROBS):
            low, high = means[i].min() - 10 * sd, means[i].max() + 10 * sd
            root = brentq(surplus, low, high, args=(prob,), xtol=1e-13 * spread[i], rtol=1e-14)
            # The documented accuracy, but where the distribution function is flat to round-off
            # (between far components) any point there has the right probability.
            near = abs(got[j, i] - root) <= 2e-10 * spread[i] + 1e-13 * abs(root)
            assert near or abs(surplus(got[j, i], prob)) < 1e-13


def test_point_masses():
    """Zero variance: the quantile is one of the points, up to the invisible width."""
    means, weights = np.array([[1.0, 2.0, 5.0]]), np.array([0.2, 0.5, 0.3])
    made = GaussianMixture(means, np.zeros(1), weights)
    got = made._quantiles_at(np.array([0.1, 0.45, 0.9]))
    np.testing.assert_allclose(got[:, 0], [1.0, 2.0, 5.0], atol=1e-10)
    made = GaussianMixture(np.full((1, 3), 0.7), np.zeros(1), weights)
    mean, sd, skewness = made._moments_of_rows()
    assert mean[0] == pytest.approx(0.7)
    assert sd[0] < 1e-15
    assert skewness[0] == 0.0 or not np.isnan(skewness[0])


def test_replicates_that_are_parts_of_one_net():
    """In every interval of so many equal ones a point, of all and of each replicate."""
    points = uniform_points(3, 32, 16, np.random.default_rng(0), together=True)
    for own in [points, *points.reshape(3, 16, 32).transpose(1, 0, 2)]:
        n = own.shape[1]
        assert (np.sort((own * n).astype(int), axis=1) == np.arange(n)).all()


# Tempering: right where importance weights are poor, with an honest error.
#
# The problem: 20 equicorrelated rows above 0, and a proposal whose sites are raised to the power
# .02: its relative ESS is .25 to .33 (at correlation .95 it would be .77: one coordinate then says
# nearly all, and it is drawn from its exact conditional). Exact answers are by quadrature.


N, RHO, REPLICATES = 20, 0.2, 8
LOWER, UPPER = np.zeros(N), np.full(N, np.inf)


def poor_proposal(rho=RHO, relax=0.02):
    cov = DenseCovariance(equicorrelated_cov(N, rho))
    return Rung(relax=relax).twist(cov, fit_ep(cov, LOWER, UPPER), LOWER, UPPER)


def run(proposal, seed, per_replicate=100):
    rng = np.random.default_rng(seed)
    points = uniform_points(proposal.n_dims, per_replicate, REPLICATES, rng)
    return temper(proposal, points, REPLICATES, rng)


@pytest.fixture(scope="module", params=[0.2, 0.5])
def runs(request):
    """Correlation, plain relative ESS, and 20 runs of tempering."""
    rho = request.param
    proposal = poor_proposal(rho)
    points = uniform_points(N, 100, REPLICATES, np.random.default_rng(99))
    plain = relative_ess(proposal.draw(points)[1])
    return rho, plain, [run(proposal, seed) for seed in range(20)]


def test_the_problem_is_hard_enough(runs):
    _, plain, batches = runs
    assert plain < 0.5
    assert all(batch.n_stages >= 2 for batch in batches)


def test_evidence_is_unbiased_and_its_error_honest(runs):
    """160 replicates: their mean within 5 standard errors of the truth (6e-7 false alarms).

    20 runs of 8 replicates: |error|/SE is about Student t with 7 degrees of freedom, above 4.8 once
    in 500; of 20 at most 3 may lie above its 90% point: binomial(20, .1) beyond 7 is 4e-4.
    """
    rho, _, batches = runs
    exact = equicorrelated_log_prob(LOWER, UPPER, rho)
    ratios = np.exp(np.array([batch.log_probs for batch in batches]) - exact)
    error = ratios.std(ddof=1) / np.sqrt(ratios.size)
    assert abs(ratios.mean() - 1.0) < 5 * error
    scores = []
    for batch in batches:
        value = log_mean_exp(batch.log_probs)
        scores.append(abs(value - exact) / spread_of_replicates(batch.log_probs, value))
    scores = np.array(scores)
    assert (scores > stats.t(7).ppf(0.95)).sum() <= 7
    assert scores.max() < stats.t(7).ppf(1 - 1e-5)


class Narrow:
    """A proposal whose target is N(0, 1 / (1 + p)): log P is -N/2 log(1 + p)."""

    n_dims = N

    def __init__(self, precision):
        self.precision = precision

    def draw(self, points):
        z = special.ndtri(points)
        return z, -0.5 * self.precision * (z**2).sum(axis=0)


def test_it_ends_where_the_target_is_out_of_reach():
    """A target a ten thousandth as wide: 60 stages at the most, and no error that looks small."""
    batch = run(Narrow(1e8), 0, per_replicate=48)
    assert batch.n_stages == 60
    assert np.isfinite(batch.log_probs).all()
    value = log_mean_exp(batch.log_probs)
    exact = -0.5 * N * np.log1p(1e8)
    assert value < exact  # the particles never got there
    assert spread_of_replicates(batch.log_probs, value) > 1e5
    assert batch.pareto_k == np.inf


def test_patience_is_enough_for_what_can_be_done():
    """Targets ten times narrower: the stages that their weights ask for, and the right answer."""
    exact = -0.5 * N * np.log1p(100.0)
    batch = run(Narrow(1e2), 0, per_replicate=256)
    value = log_mean_exp(batch.log_probs)
    error = spread_of_replicates(batch.log_probs, value)
    assert batch.n_stages < 30
    # Student t with 7 degrees of freedom: 1e-4.
    assert abs(value - exact) < 7.9 * error
