"""Priors that are flat, vague, or have random parameters, against closed forms and quadrature.

A coefficient inside the density of a walk or an autoregression is a hyperparameter, be it Gaussian
itself or not; a standard deviation is positive, whatever its prior says.
"""

import numpy as np
import pymc as pm
import pytest
from quick_search import averaged
from scipy.special import gammaln, logsumexp
from scipy.stats import gamma, invgamma, multivariate_normal, norm

import pymc_skewgp as sg
from pymc_skewgp._learn.averaging.problem import prior_draws
from pymc_skewgp._learn.coordinates import coordinates_of

QUIET = {"random_seed": 0, "progressbar": False}


class TestLine:
    """An intercept beside years: columns that agree to one part in a thousand."""

    X = np.c_[np.ones(12), 2000.0 + np.arange(12.0)]
    Y = 3.0 + 0.4 * np.arange(12.0) + 0.5 * np.random.default_rng(4).normal(size=12)
    BEST = np.linalg.lstsq(X, Y, rcond=None)[0]
    SQUARE, LOG_DET = np.sum((Y - X @ BEST) ** 2), np.linalg.slogdet(X.T @ X)[1]
    N_LEFT = 10

    @pytest.fixture(scope="class")
    @classmethod
    def model(cls):
        with pm.Model() as model:
            b, sigma = pm.Flat("b", shape=2), pm.HalfFlat("sigma")
            pm.Normal("y", pm.math.dot(cls.X, b), sigma, observed=cls.Y)
        return model

    def test_average(self, model):
        # The integral of sigma^-(n-p) exp(-square / 2 sigma^2) over sigma.
        power = 0.5 * (self.N_LEFT - 1)
        true = gammaln(power) - np.log(2.0) - power * np.log(0.5 * self.SQUARE)
        true -= 0.5 * self.N_LEFT * np.log(2 * np.pi) + 0.5 * self.LOG_DET
        found = averaged(model, true, floor=1e-4, draws=500)
        assert found.attrs["improper_priors"] == "b, sigma"
        # Of Student's distribution with n - p - 1 degrees of freedom.
        df = self.N_LEFT - 1
        variance = self.SQUARE / df * np.linalg.inv(self.X.T @ self.X)[1, 1] * df / (df - 2)
        slope, sd = found["b"].values[..., 1].ravel(), np.sqrt(variance)
        # 1000 draws at a thousand values of sigma, five standard errors of 256 of them; of the sd
        # eight hundredths.
        assert abs(slope.mean() - self.BEST[1]) < 5 * sd / 16
        assert abs(slope.std() / sd - 1) < 0.3

    def test_maximum_is_that_of_the_restricted_likelihood(self, model):
        fit = sg.find_hyperparameters(model, **QUIET)
        true = np.sqrt(self.SQUARE / self.N_LEFT)
        # The search ends where a step gains less than 2e-4 nats: relatively sqrt(2e-4 / (n - p)).
        assert abs(fit.point["sigma"] / true - 1) < 5e-3
        evidence = -self.N_LEFT * (0.5 * np.log(2 * np.pi) + np.log(true))
        evidence -= 0.5 * self.SQUARE / true**2 + 0.5 * self.LOG_DET
        # That gain.
        assert fit.log_marginal_likelihood.value == pytest.approx(evidence, abs=3e-4)
        assert fit.improper_priors == ["b"]
        assert "under density 1 of b" in str(fit)


Y = np.array([0.3, 1.0, 0.4, 2.0, 1.1, 1.7])
LINE = np.array([[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 0.0]])


def test_units_of_the_data():
    """Densities of six values, and of what has density 1."""
    found, unit = [], 1e-6
    for u in (1.0, unit):
        with pm.Model() as model:
            pm.Normal("y", pm.Flat("mu"), pm.HalfFlat("sigma"), observed=u * Y)
        found.append(sg.integrate(model, draws=200, **QUIET)["posterior"].attrs)
    here, there = found
    shift = (Y.size - 2) * np.log(unit)
    error = np.hypot(here["log_evidence_se"], there["log_evidence_se"])
    # Five standard errors, a false alarm in 2e6 seeds.
    assert abs(there["log_evidence"] + shift - here["log_evidence"]) < 5 * error


def groups(n_groups, scale):
    """Groups of four values with noise 1 about a level of density 1."""
    rng = np.random.default_rng(0)
    g = np.repeat(np.arange(n_groups), 4)
    y = rng.normal(size=n_groups)[g] + rng.normal(size=g.size)
    with pm.Model() as model:
        u = pm.Normal("u", pm.Flat("mu"), scale(), shape=n_groups)
        pm.Normal("y", u[g], 1.0, observed=y)
    return model, y.reshape(n_groups, 4)


def test_scale_of_few_groups_is_its_quadrature():
    # Of four s would have no variance: its tail is at the edge of what there is a warning of.
    model, y = groups(5, lambda: pm.HalfFlat("s"))
    # Means of groups are N(mu, s^2 + 1/4), mu of density one; the rest of the values is apart.
    x = np.linspace(-14.0, 14.0, 20001)
    means, var = y.mean(axis=1), np.exp(2.0 * x) + 0.25
    within = norm.logpdf(y).sum() - norm.logpdf(means, 0.0, 0.5).sum()
    logs = -2.0 * np.log(2 * np.pi * var) - 0.5 * means.var() * 5 / var - 0.5 * np.log(5.0)
    true = within + logsumexp(logs + x) + np.log(x[1] - x[0])
    found = averaged(model, true, floor=1e-4, draws=500)
    assert found.attrs["improper_priors"] == "mu, s"


def of_two_values():
    with pm.Model() as model:
        mean = pm.math.dot(np.array([[1.0, 0.3], [0.2, -1.0]]), pm.Flat("b", shape=2))
        pm.Normal("y", mean, pm.HalfFlat("sigma"), observed=[0.3, 1.0])
    return model


def with_a_column_of_zeros():
    with pm.Model() as model:
        mean = pm.Flat("a") + pm.Flat("b") * np.zeros(6)
        pm.Normal("y", mean, 1.0, observed=np.linspace(-1, 1, 6))
    return model


def separated():
    x = np.linspace(-1, 1, 10)
    with pm.Model() as model:
        u = pm.Normal("u", 0.0, pm.HalfNormal("tau", 1.0), shape=2)[np.arange(10) % 2]
        pm.Bernoulli("y", logit_p=u + pm.Flat("b") * x, observed=(x > 0).astype(int))
    return model


IMPROPER = [
    # The likelihood falls as s^-(J - 1).
    (lambda: groups(2, lambda: pm.HalfFlat("s"))[0], "s has a flat prior.*improper: as it goes to"),
    # It is not zero where there are no effects.
    (lambda: groups(5, lambda: pm.math.exp(pm.Flat("t")))[0], "t has a flat.*to minus infinity"),
    (lambda: groups(5, lambda: pm.HalfFlat("q") ** -0.5)[0], "q has a flat prior.*to infinity"),
    # Of all three: which of them is met first depends on the search.
    (of_two_values, "flat prior"),
    (with_a_column_of_zeros, "bound b, "),
]


@pytest.mark.parametrize(("make", "message"), IMPROPER)
def test_improper_posteriors_are_refused(make, message):
    with pytest.raises(sg.ImproperPriorError, match=message):
        sg.integrate(make(), draws=200, chains=2, **QUIET)


def test_improper_posteriors_are_refused_where_one_maximises():
    with pytest.raises(sg.ImproperPriorError, match=r"bound b, .*separated"):
        sg.find_hyperparameters(separated(), method="ep", n_restarts=0, quiet=True, **QUIET)


def test_a_potential_bounds_what_data_do_not():
    y = np.array([0.3, 1.0, 0.1])
    with pm.Model() as model:
        b = pm.Flat("b", shape=2)
        pm.Potential("known", pm.logp(pm.Normal.dist(0.5, 2.0), b[1]))
        pm.Normal("y", b[0], 1.0, observed=y)
    true = norm.logpdf(y - y.mean()).sum() + 0.5 * np.log(2 * np.pi / 3)
    # Round-off of a Gaussian wide by 1e6 beside the potential.
    found = averaged(model, true, 0.0, 1e-3, draws=500)
    drawn = found["b"].values[..., 1]
    # 1000 draws: five standard errors.
    assert abs(drawn.mean() - 0.5) < 5 * 2.0 / np.sqrt(1000)
    assert abs(drawn.std() / 2.0 - 1.0) < 5 / np.sqrt(2000)


def on_grid(model, r, low, high, n):
    """Log evidence and mean of r: f by its Gaussian integral, from PyMC's own slopes."""
    options = {"jacobian": False, "mode": "FAST_COMPILE"}
    log_density = model.compile_logp(**options)
    slope = model.compile_dlogp([model["f"]], **options)
    grid, width = np.linspace(low, high, n, retstep=True)
    logs = []
    for value in grid:
        point = model.initial_point() | {r: value}
        point["f"] = np.zeros_like(point["f"])
        b = slope(point)
        Q = np.array([b - slope(point | {"f": step}) for step in np.eye(b.size)])
        gain = 0.5 * b @ np.linalg.solve(Q, b) - 0.5 * np.linalg.slogdet(Q)[1]
        logs.append(log_density(point) + gain + 0.5 * b.size * np.log(2 * np.pi))
    weights = np.exp(logs - logsumexp(logs))
    return logsumexp(logs) + np.log(width), weights @ grid


def start():
    return pm.Normal.dist(0.0, 1.0)


def walk(r):
    return pm.GaussianRandomWalk("f", sigma=pm.math.exp(r), init_dist=start(), shape=6)


def areas(r):
    """Of which the integral depends on r."""
    return pm.CAR("f", mu=np.zeros(4), W=LINE, alpha=r, tau=2.0)


@pytest.mark.parametrize(
    ("form", "grid"),
    [
        # Smooth, with a deviation of four steps or more: nothing is left.
        (walk, (-3.5, 4.0, 76)),
        # As the root of its distance to 1, beyond which PyMC's density is 0: some 1e-4.
        (areas, (-0.999, 0.999, 151)),
    ],
)
def test_a_normal_parameter_inside_the_density(form, grid):
    with pm.Model() as model:
        f = form(pm.Normal("r", 0.2, 0.6))
        pm.Normal("y", f, 0.5, observed=Y[:4] if form is areas else Y)
    true, mean = on_grid(model, "r", *grid)
    if form is areas:  # PyMC's density lacks a constant
        true += 0.5 * np.log(LINE.sum(axis=0)).sum() - 2.0 * np.log(2.0 * np.pi)
    found = averaged(model, true, floor=1e-4)
    # Of 200 points or more with equal weights, of sd below .6: five standard errors.
    assert abs(float(found["r"].mean()) - mean) < 5 * 0.6 / np.sqrt(200)


GROUP = np.arange(6) % 3
# What has the deviation s: effects and noise of these.
DEVIATIONS = {
    "by tau": (lambda s: ({"tau": s}, 0.5), lambda s: (s**-0.5, 0.5)),
    "of noise": (lambda s: ({"sigma": 1.0}, s), lambda s: (1.0, s)),
}


@pytest.mark.parametrize("kind", DEVIATIONS)
def test_a_standard_deviation_is_positive(kind):
    """As PyMC has it: the prior's other half counts for nothing."""
    given, deviations = DEVIATIONS[kind]
    with pm.Model() as model:
        effects, noise = given(pm.Normal("s", 0.0, 1.0))
        pm.Normal("y", pm.Normal("u", 0.0, shape=3, **effects)[GROUP], noise, observed=Y)
    grid, step = np.linspace(1e-3, 6.0, 3000, retstep=True)
    same, one = (GROUP[:, None] == GROUP).astype(float), np.eye(6)
    covs = [a**2 * same + b**2 * one for a, b in map(deviations, grid)]
    logs = [multivariate_normal(cov=cov).logpdf(Y) for cov in covs] + norm.logpdf(grid)
    found = averaged(model, logsumexp(logs) + np.log(step), floor=1e-4)
    assert float(found["s"].min()) > 0.0


def test_counts_that_say_more_than_quadrature_of_a_flat_prior_sees():
    """A level with density 1 and effects with a flat scale under large, all but exact counts."""
    rng, alpha = np.random.default_rng(0), 1e4
    y = rng.negative_binomial(5, 5 / (5 + np.exp(10 + 0.3 * rng.normal(size=20))))
    with pm.Model() as model:
        level, s = pm.Flat("level"), pm.HalfFlat("s")
        u = pm.Normal("u", 0.0, s, shape=20)
        pm.NegativeBinomial("y", mu=pm.math.exp(level + u), alpha=alpha, observed=y)
    # Predictors are N(level, s^2), each under its count alone, all but Gaussian in log(y).
    nodes, weights = np.polynomial.hermite_e.hermegauss(30)
    sd = np.sqrt(1 / alpha + 1 / y)[:, None]
    eta = np.log(y)[:, None] + sd * nodes
    p = alpha / (alpha + np.exp(eta))
    known = pm.logp(pm.NegativeBinomial.dist(n=alpha, p=p), y[:, None]).eval(mode="FAST_COMPILE")
    known = known + np.log(weights) + 0.5 * nodes**2 + np.log(sd)
    levels, log_s = np.linspace(8.5, 11.5, 41), np.linspace(-2.5, 1.5, 61)
    logs = [
        logsumexp(known + norm(level, np.exp(x)).logpdf(eta), axis=1).sum() + x
        for level in levels
        for x in log_s
    ]
    true = logsumexp(logs) + np.log((levels[1] - levels[0]) * (log_s[1] - log_s[0]))
    # The grid's own error is below 1e-3.
    found = averaged(model, true, floor=1e-3)
    assert found.attrs["relative_ess_exact"] > 0.9


VAGUE = np.array([2.1, -0.4, 1.3, -2.2, 0.7, 3.0])


def hierarchy(sd):
    """Values with noise 0.5 about effects, whose variance has a prior on many orders."""
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("u", 0.0, sd(), shape=VAGUE.size), 0.5, observed=VAGUE)
    return model


def log_likelihood(variance):
    return norm(0.0, np.sqrt(variance + 0.25)[:, None]).logpdf(VAGUE).sum(axis=1)


def test_a_vague_prior_of_a_precision():
    """On a grid of the logarithm, with as much of the tails as counts."""
    x, step = np.linspace(-60.0, 60.0, 40_001, retstep=True)
    logs = log_likelihood(np.exp(-x)) + gamma(1e-3, scale=1e3).logpdf(np.exp(x)) + x
    model = hierarchy(lambda: 1.0 / pm.math.sqrt(pm.Gamma("tau", 1e-3, 1e-3)))
    averaged(model, logsumexp(logs) + np.log(step))


def test_the_search_begins_under_a_vague_prior():
    model = hierarchy(lambda: pm.math.sqrt(pm.InverseGamma("variance", 1e-3, 1e-3)))
    found = sg.find_hyperparameters(model, start={"variance": 1.0}, progressbar=False)
    x = np.linspace(-5.0, 5.0, 10_001)
    # No Jacobian: the density is the prior's, on its own scale.
    total = log_likelihood(np.exp(x)) + invgamma(1e-3, scale=1e-3).logpdf(np.exp(x))
    # The grid's step is .001; an optimum is found within .01 where the curvature is about one.
    highest = x[np.argmax(total)]
    assert np.log(float(found.point["variance"])) == pytest.approx(highest, abs=0.02)


def test_draws_of_a_prior_that_underflows_now_and_then_are_all_finite():
    # A draw of gamma(.005) is below the smallest number with probability .024: some of 2000 are
    # drawn again. The first 32 are all finite for every second generator or so.
    with pm.Model() as model:
        sd = pm.math.sqrt(pm.InverseGamma("v", 0.005, 1.0))
        pm.Normal("y", 0.0, sd, observed=VAGUE)
    coordinates, _ = coordinates_of(model, [model.logp()])
    rng = np.random.default_rng(1)
    tried = (prior_draws(coordinates, (), rng) for _ in range(20))
    found = next(drawn for drawn in tried if drawn is not None)
    drawn = found.draw(2000)
    assert drawn.shape == (2000, 1)
    assert np.isfinite(found.log_density(drawn)).all()
