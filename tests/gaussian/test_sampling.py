"""Draws of truncated normals: one by one, twisted, and led by a few coordinates."""

from dataclasses import replace

import numpy as np
import pytest
from oracles import equicorrelated_cov, equicorrelated_log_prob, equicorrelated_moments

from pymc_skewgp._errors import DoublePrecisionError, no_warnings
from pymc_skewgp._gaussian import escalation as runs
from pymc_skewgp._gaussian.covariance import DenseCovariance
from pymc_skewgp._gaussian.ep import EPResult, fit_ep
from pymc_skewgp._gaussian.escalation import (
    DEFAULT,
    N_REPLICATES,
    GoalSettings,
    RectangleSampler,
    Rung,
    SamplerSettings,
    first_accepted,
)
from pymc_skewgp._gaussian.tempering import TemperedDraws
from pymc_skewgp._gaussian.twisted import TwistedDraws
from pymc_skewgp._gaussian.weights import (
    Estimate,
    log_mean_exp,
    normalized_weights,
    relative_ess,
    uniform_points,
)

N = 6
COV = DenseCovariance(equicorrelated_cov(N, 0.5))
LOWER, UPPER = np.zeros(N), np.full(N, np.inf)
NEVER = 2.0  # a relative ESS that no run reaches
LAST = SamplerSettings(draws=GoalSettings(NEVER, NEVER))


def sample(goal="draws", n_draws=256, seed=0, **kwargs):
    rng = np.random.default_rng(seed)
    sampler = RectangleSampler(COV, LOWER, UPPER, kwargs.pop("settings", DEFAULT))
    return sampler.sample(n_draws, rng, goal=goal, **kwargs)


def fake_temper(log_probs):
    """Tempering whose replicates are named: draws of replicate r of batch b are 100 b + r."""
    batches = iter(range(100))

    def temper(proposal, points, n_replicates, rng):
        batch = next(batches)
        per_replicate = points.shape[1] // n_replicates
        names = 100 * batch + np.repeat(np.arange(n_replicates), per_replicate)
        return TemperedDraws(np.tile(names, (N, 1)), log_probs[batch], 0.1, 2, 5, 0.4)

    return temper


def test_tempered_draws_carry_the_weight_of_their_replicate(monkeypatch):
    """The standard error is that of the mean of 16 numbers; draws are weighted by their own one."""
    log_probs = np.log(np.tile([1.0, 1.2, 0.9, 1.1, 0.8, 1.0, 1.1, 0.9], 2))
    monkeypatch.setattr(runs, "temper", fake_temper([log_probs]))
    result = sample(settings=LAST)
    probs = np.exp(log_probs)
    assert result.method == "tempered"
    assert result.log_prob.value == pytest.approx(np.log(probs.mean()))
    error = probs.std(ddof=1) / probs.mean() / np.sqrt(N_REPLICATES)
    assert result.log_prob.std_error == pytest.approx(error)
    replicate = result.u[0].astype(int)
    np.testing.assert_allclose(result.log_weights, log_probs[replicate])
    assert set(replicate) == set(range(N_REPLICATES))
    assert result.log_prob.relative_ess == pytest.approx(1 / (1 + 256 * error**2))


def test_large_problems_temper_from_the_first_proposal():
    """Without a second factorisation; a draw of an equicorrelated Gaussian has a known mean."""
    # Without rungs to go on to, trying one would raise.
    settings = replace(LAST, large=N - 1, accept_large=NEVER, wider=(), wider_large=())
    result = sample(n_draws=4096, settings=settings)
    assert result.method == "tempered"
    log_prob = result.log_prob
    assert abs(log_prob.value + np.log(N + 1)) < 4 * log_prob.std_error + 1e-3
    mean = equicorrelated_moments(LOWER, UPPER, 0.5)[0]
    # Four standard errors of 4096 independent draws (a coordinate has a deviation of .6), doubled
    # for particles that share ancestors.
    found = result.u @ normalized_weights(result.log_weights)
    assert np.abs(found - mean).max() < 8 * 0.6 / np.sqrt(4096)


@pytest.mark.parametrize(("hair", "width"), [(1e-7, 1e-8), (1e-8, 1e-12), (1e-8, 1e-7)])
def test_limits_beyond_double_precision_are_refused_by_name(hair, width):
    """Slabs about a point of a singular covariance: log probabilities of 1e13 came out."""
    rng = np.random.default_rng(0)
    root = rng.normal(size=(30, 3))
    cov = root @ root.T + hair * np.eye(30)
    centre = np.linalg.cholesky(cov) @ rng.normal(size=30)
    low, high = centre - width, centre + width
    with (
        no_warnings(),
        np.errstate(all="ignore"),
        pytest.raises(DoublePrecisionError, match="double precision"),
    ):
        RectangleSampler(DenseCovariance(cov), low, high).sample(256, rng, goal="draws")


@pytest.mark.parametrize(("variance", "n"), [(9.0, 30), (30.0, 60), (100.0, 100)])
def test_errors_of_draws_are_honest_where_the_target_is_skewed(variance, n):
    """One class only, one long lengthscale: beyond the data's reach the tail is the prior's.

    Evidence and mean over 16 seeds against quadrature. Errors over stated errors have Student's t
    with 15 degrees of freedom at most: a mean square of 15/13, which the mean of 16 exceeds 3 of
    with probability under 1e-3. EP's Gaussian alone, unwidened, gives 8 to 18.
    """
    rho = variance / (1.0 + variance)
    lower, upper = np.zeros(n), np.full(n, np.inf)
    exact = equicorrelated_log_prob(lower, upper, rho)
    mean = float(np.ravel(equicorrelated_moments(lower, upper, rho)[0])[0])
    cov = DenseCovariance(equicorrelated_cov(n, rho))
    ratios, means = [], []
    for seed in range(16):
        rng = np.random.default_rng(seed)
        result = RectangleSampler(cov, lower, upper).sample(1024, rng, goal="draws")
        ratios.append((result.log_prob.value - exact) / result.log_prob.std_error)
        means.append(normalized_weights(result.log_weights) @ result.u.mean(axis=0))
    assert np.mean(np.square(ratios)) < 3.0
    # The mean of 16 runs, by its own spread; floor .1 % for what all runs lack.
    error = np.std(means, ddof=1) / 4.0
    assert abs(np.mean(means) - mean) < 5.0 * error + 1e-3 * mean


class TestPolicy:
    """Its rules, by estimates made up."""

    def test_the_first_rung(self):
        poor = Estimate(-1.0, 0.01, 0.4, 0.5)
        assert DEFAULT.accepts_first(poor._replace(relative_ess=0.5), "draws", 10)
        assert not DEFAULT.accepts_first(poor, "draws", 10)
        assert DEFAULT.accepts_first(poor, "draws", DEFAULT.large + 1)
        assert not DEFAULT.accepts_first(poor._replace(pareto_k=0.7), "draws", DEFAULT.large + 1)
        assert not DEFAULT.accepts_first(poor, "probability", 10)
        small = poor._replace(std_error=DEFAULT.target_se)
        assert DEFAULT.accepts_first(small, "probability", 10)
        assert not DEFAULT.accepts_first(small._replace(pareto_k=0.7), "probability", 10)
        equal = poor._replace(relative_ess=0.95, pareto_k=2.0)
        assert DEFAULT.accepts_first(equal, "probability", 10)

    def test_tempering_by_the_pilot(self):
        pilot = Estimate(-1.0, 0.1, 0.2, 0.5)
        assert DEFAULT.tempers(pilot, "draws")
        assert not DEFAULT.tempers(pilot, "probability")
        assert DEFAULT.tempers(pilot._replace(pareto_k=0.7), "probability")

    def test_the_first_rung_that_is_accepted_ends_the_search(self):
        tried = []

        def run(rung):
            tried.append(rung.relax)
            return rung.relax, {1.0: 0.2, 0.6: 0.8, 0.35: 0.9}[rung.relax]

        rungs = [Rung(relax, accept=0.7) for relax in (1.0, 0.6, 0.35)]
        assert first_accepted(rungs, run) == (0.6, 0.8, True)
        assert tried == [1.0, 0.6]
        # Without a score to reach all are tried, and the best is taken.
        assert first_accepted([Rung(relax) for relax in (1.0, 0.35, 0.6)], run) == (
            0.35,
            0.9,
            False,
        )


# The leading direction's density against exact moments, and what draws of it give.


LEVELS = (np.arange(20_000) + 0.5) / 20_000


def direction_of(cov, lower, upper):
    dense = DenseCovariance(cov)
    return Rung(power=1.0).twist(dense, fit_ep(dense, lower, upper), lower, upper).direction


@pytest.mark.parametrize(("variance", "n"), [(1.0, 20), (9.0, 40), (30.0, 60)])
def test_one_factor_is_known_nearly_exactly(variance, n):
    """Rows share one factor: the direction is their mean and some noise, moments by quadrature.

    The rows are not quite independent given it, a share of 1/n of the noise: 2 % of the deviation.
    """
    rho = variance / (1.0 + variance)
    lower, upper = np.zeros(n), np.full(n, np.inf)
    cov = equicorrelated_cov(n, rho)
    direction = direction_of(cov, lower, upper)
    # By symmetry a = rho_a 1'u / sd(1'u) + (1 - rho_a^2)^.5 e.
    total = cov.sum()
    shared = 1.0 - (n / np.linalg.inv(cov)[0, 0]) / total
    exact = equicorrelated_moments(lower, upper, rho)
    mean = np.sqrt(shared / total) * exact.first.sum()
    second = shared / total * exact.second.sum() + 1.0 - shared
    sd = np.sqrt(second - mean**2)
    x = direction.density.quantile(LEVELS)
    # An eigenvector has no sign.
    a = np.sign(direction.row.sum()) * (direction.mean + np.sqrt(direction.variance) * x)
    assert abs(a.mean() - mean) < 0.02 * sd
    assert a.std() == pytest.approx(sd, rel=0.02)


def test_dependent_rows_do_not_make_a_mode_of_their_own():
    """Forty neighbours of an AR(1) in a far tail: the product counts their limits many times."""
    lag = np.abs(np.subtract.outer(np.arange(40), np.arange(40)))
    lower = np.full(40, 2.0)
    lower[::9] = 5.0
    direction = direction_of(0.9**lag, lower, np.full(40, np.inf))
    x = direction.density.quantile(LEVELS)
    # EP's own moments are good to a few hundredths: nothing may be a deviation away.
    assert abs(x.mean()) < 1.0
    assert 0.3 < x.std() < 2.0


@pytest.mark.parametrize(("rho", "n"), [(0.5, 20), (0.8, 120)])
def test_errors_of_probabilities_under_one_strong_factor(rho, n):
    """Upper limits and one factor: reported errors were up to ten times too small.

    24 seeds: errors over stated errors have Student's t with 15 degrees of freedom at most, a mean
    square of 15/13; above 2.5 with probability under 1e-3.
    """
    rng = np.random.default_rng(n)
    lower, upper = np.full(n, -np.inf), rng.normal(0.7, 0.7, n)
    exact = equicorrelated_log_prob(lower, upper, rho)
    sampler = RectangleSampler(DenseCovariance(equicorrelated_cov(n, rho)), lower, upper)
    assert sampler.first.first is not None
    ratios = []
    for seed in range(24):
        estimate = sampler.sample(1024, np.random.default_rng(seed), goal="probability").log_prob
        ratios.append((estimate.value - exact) / estimate.std_error)
        assert estimate.pareto_k < 0.7
    assert np.mean(np.square(ratios)) < 2.5


def test_mirrored_rows_have_the_mirrored_direction():
    """Rows times -1, limits and all, are the same problem.

    With half of equicorrelated rows mirrored the direction is orthogonal to a vector of ones, from
    which no search would find it. The search stops at 1e-3 of the eigenvalue, here at once.
    """
    cov, found = equicorrelated_cov(12, 0.9), []
    for side in (np.ones(12), np.tile([1.0, -1.0], 6)):
        lower, upper = np.where(side > 0, 0.3, -np.inf), np.where(side > 0, np.inf, -0.3)
        found.append(direction_of(side[:, None] * cov * side, lower, upper))
    np.testing.assert_allclose(np.abs(found[1].row), np.abs(found[0].row), rtol=1e-6)
    assert found[1].divergence == pytest.approx(found[0].divergence, rel=1e-6)


# The twisted sampler: unbiased weights and right draws, whatever the twist.
#
# Stochastic tests: expectations are within 5 standard errors that come from 16 independent
# replicates, a Student t with 15 degrees of freedom: false-alarm rate 1.6e-4 a statistic for
# Monte Carlo on its own; seeds are fixed, so an alarm is a change of the code.


REPLICATES = 16
SIGMAS = 5.0
TWISTS = [(1.0, None), (0.6, None), (0.2, None), (1.0, 0.64), (0.35, 0.64), (0.6, 0.4)]


def draw(cov, lower, upper, *, relax=1.0, power=None, n=256, seed=0, ep=None):
    form = DenseCovariance(cov) if isinstance(cov, np.ndarray) else cov
    ep = fit_ep(form, lower, upper) if ep is None else ep
    proposal = Rung(relax=relax, power=power).twist(form, ep, lower, upper)
    points = uniform_points(proposal.n_dims, n, REPLICATES, np.random.default_rng(seed))
    return proposal.draw(points)


def replicate_ratios(log_weights, exact):
    """Each replicate's estimate of P over P."""
    return np.array([np.exp(log_mean_exp(b) - exact) for b in log_weights.reshape(REPLICATES, -1)])


def assert_unbiased(log_weights, exact, unseen=0.0):
    ratios = replicate_ratios(log_weights, exact)
    error = ratios.std(ddof=1) / np.sqrt(REPLICATES)
    # 1e-11: quadrature and round-off, where the weights are all but constant.
    assert abs(ratios.mean() - 1.0) < SIGMAS * error + unseen + 1e-11


def limits(kind, n):
    rng = np.random.default_rng(n)
    lower, upper = np.zeros(n), np.full(n, np.inf)
    if kind == "orthant":
        return lower, upper
    if kind == "upper":
        return -upper, rng.normal(size=n)
    if kind == "two-sided":
        lower = rng.normal(-0.5, 0.7, n)
        return lower, lower + rng.uniform(0.3, 2.0, n)
    lower, upper = rng.normal(-1.0, 1.0, n), np.full(n, np.inf)  # mixed
    lower[::3], upper[::3] = -np.inf, rng.normal(0.5, 0.5, upper[::3].size)
    upper[1::3] = lower[1::3] + 0.5
    lower[2] = -np.inf
    return lower, upper


@pytest.mark.parametrize(("relax", "power"), TWISTS)
@pytest.mark.parametrize("kind", ["orthant", "upper", "two-sided", "mixed"])
@pytest.mark.parametrize(("n", "rho"), [(12, 0.5), (70, 0.8)])
def test_mean_weight_is_unbiased(n, rho, kind, relax, power):
    """70 rows cross the border between two blocks of rows. 48 cases.

    At rho = .8 with limits at random the weights are skewed (Pareto k .3 to .6): draws rarer than 1
    in 4096 hold .1% of the mean, and quasi-random replicates that all lack them agree too well.
    """
    lower, upper = limits(kind, n)
    exact = equicorrelated_log_prob(lower, upper, rho)
    cov = equicorrelated_cov(n, rho)
    _, log_weights = draw(cov, lower, upper, relax=relax, power=power)
    assert_unbiased(log_weights, exact, unseen=3e-3 if rho == 0.8 else 0.0)


def test_any_sites_are_unbiased():
    """Unbiasedness is an identity, not a property of EP's fixed point: sites at random."""
    n, rho = 8, 0.5
    lower, upper = limits("mixed", n)
    rng = np.random.default_rng(5)
    cov = DenseCovariance(equicorrelated_cov(n, rho))
    tau, nu = rng.uniform(0.0, 2.0, n), rng.normal(size=n)
    product = cov.site_product(tau, nu)
    ep = EPResult(tau, nu, product.mean, product.variance, product.weights, 0.0, 0, 0.0)
    _, log_weights = draw(cov, lower, upper, ep=ep, n=2048)
    assert_unbiased(log_weights, equicorrelated_log_prob(lower, upper, rho))


def test_a_given_order():
    """Rows drawn in a given order are permuted rows drawn as they come."""
    n = 12
    lower, upper = limits("mixed", n)
    factor = np.random.default_rng(3).normal(size=(n, n))
    cov = factor @ factor.T + np.eye(n)
    ep = fit_ep(DenseCovariance(cov), lower, upper)
    p = np.random.default_rng(4).permutation(n)
    points = uniform_points(n, 64, 1, np.random.default_rng(5))
    given = Rung().twist(DenseCovariance(cov), ep, lower, upper, order=p)
    u, log_weights = given.draw(points)
    np.testing.assert_array_equal(given.order, p)
    sites = replace(ep, tau=ep.tau[p], nu=ep.nu[p], mean=ep.mean[p], variance=ep.variance[p])
    permuted = DenseCovariance(cov[np.ix_(p, p)])
    v, others = Rung().twist(permuted, sites, lower[p], upper[p], order=np.arange(n)).draw(points)
    # Round-off, over a condition number of a few hundred.
    np.testing.assert_allclose(u[p], v, atol=1e-10)
    np.testing.assert_allclose(log_weights, others, atol=1e-10)


def test_twist_is_worth_its_while():
    """Relative effective sample sizes: near 1 with EP's sites, far below with none."""
    n = 40
    lower, upper = limits("orthant", n)
    cov = DenseCovariance(equicorrelated_cov(n, 0.2))
    ep = fit_ep(cov, lower, upper)
    assert relative_ess(draw(cov, lower, upper)[1]) > 0.75
    assert relative_ess(draw(cov, lower, upper, relax=1e-9, ep=ep)[1]) < 0.2


def test_a_prior_of_condition_number_1e9_does_not_blur_the_mean():
    """G^-1 m has to come from a solve: as nu - tau m, G would magnify its round-off by 1e8, and the
    proposal would sit beside EP's mean (relative ESS .4)."""
    rng = np.random.default_rng(3)
    x, sign = np.sort(rng.uniform(size=60)), rng.choice([-1.0, 1.0], 60)
    kernel = 1e7 * np.exp(-0.5 * (x[:, None] - x) ** 2)
    cov = sign[:, None] * kernel * sign + np.eye(60)
    _, log_weights = draw(cov, np.zeros(60), np.full(60, np.inf))
    assert relative_ess(log_weights) > 0.95


@pytest.mark.parametrize(
    ("limit", "skewed"), [(np.inf, True), (0.3, False)], ids=["one-sided", "narrow"]
)
def test_leading_direction_only_where_the_target_is_not_gaussian(limit, skewed):
    """All rows of one sign with one long lengthscale is skewed (skewness about 1 by weighted
    draws); thirty short intervals about the mean make a density that is nearly Gaussian."""
    cov = DenseCovariance(equicorrelated_cov(30, 0.9))
    upper = np.full(30, limit)
    lower = np.zeros(30) if skewed else -upper
    ep = fit_ep(cov, lower, upper)
    proposal = DEFAULT.first.twist(cov, ep, lower, upper)
    assert proposal.n_dims == 30 + skewed


@pytest.mark.parametrize("relax", [1.0, 0.6])
@pytest.mark.parametrize("kind", ["orthant", "upper", "two-sided", "mixed"])
@pytest.mark.parametrize(("n", "rho"), [(1, 0.0), (12, 0.5), (70, 0.8)])
def test_weights_of_given_points(n, rho, kind, relax):
    """Those that came with the draws. 1e-9: round-off of a solve with condition number 1e3."""
    lower, upper = limits(kind, max(n, 3))
    lower, upper = lower[:n], upper[:n]
    cov = DenseCovariance(equicorrelated_cov(n, rho))
    proposal = Rung(relax=relax).twist(cov, fit_ep(cov, lower, upper), lower, upper)
    u, log_weights = proposal.draw(np.random.default_rng(n).random((n, 50)))
    np.testing.assert_allclose(proposal.log_weights_of(u), log_weights, rtol=0, atol=1e-9)


def test_weights_of_points_outside_and_under_a_leading_direction():
    cov, upper = DenseCovariance(equicorrelated_cov(3, 0.5)), np.full(3, np.inf)
    ep = fit_ep(cov, np.zeros(3), upper)
    points = np.array([[1.0, 1.0], [1.0, -1e-9], [1.0, 1.0]])
    log_weights = Rung().twist(cov, ep, np.zeros(3), upper).log_weights_of(points)
    assert np.isfinite(log_weights[0])
    assert log_weights[1] == -np.inf
    with pytest.raises(ValueError, match="without a leading direction"):
        Rung(power=0.64).twist(cov, ep, np.zeros(3), upper).log_weights_of(points)


# Limits of the rows, given the number of each over that of all.
SIDES = {
    "lower": lambda x: (1.5 * x - 1.0, np.inf),
    "upper": lambda x: (-np.inf, 1.5 * x - 0.5),
    "either": lambda x: (np.where(x < 0.5, -0.3, -np.inf), np.where(x < 0.5, np.inf, 0.8)),
    "above": lambda x: (3.0 * x + 0.5, np.inf),  # in the tail, as far as the formulas hold
    "both": lambda x: (1.5 * x - 1.5, 2.0 * x + 0.1),
    "far": lambda x: (12.0, np.inf),
}


def on_sides(sides, n, relax=1.0):
    """A proposal, and uniform points for it."""
    factor = np.random.default_rng(n).normal(size=(n, n))
    cov = DenseCovariance(np.eye(n) if sides == "far" else factor @ factor.T / n + 0.3 * np.eye(n))
    low, high = (np.broadcast_to(x, n).astype(float) for x in SIDES[sides](np.arange(n) / n))
    proposal = Rung(relax=relax).twist(cov, fit_ep(cov, low, high, tol=1e-8), low, high)
    return proposal, uniform_points(n, 64, 1, np.random.default_rng(0))


@pytest.mark.parametrize("sides", ["lower", "upper", "either", "above"])
@pytest.mark.parametrize("relax", [1.0, 0.5])
def test_compiled_draws_are_those_of_numpy(sides, relax):
    made = on_sides(sides, 35, relax)  # more than one block
    expected, found = TwistedDraws(*made, False), TwistedDraws(*made, True)
    assert found.compiled
    np.testing.assert_allclose(found.draw(3), expected.draw(3), atol=1e-9)
    # Round-off of a recursion of 35 steps, and of differences of products.
    np.testing.assert_allclose(found.log_weights, expected.log_weights, atol=1e-10)
    weights = np.random.default_rng(1).dirichlet(np.ones(64))
    pairs = zip(found.derivatives(weights), expected.derivatives(weights), strict=True)
    for ours, theirs in pairs:
        np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-8 * np.abs(theirs).max())


@pytest.mark.parametrize("sides", ["both", "far"])
def test_two_limits_or_a_far_tail_are_not_drawn_by_compiled_loops(sides):
    assert not TwistedDraws(*on_sides(sides, 6), True).compiled
