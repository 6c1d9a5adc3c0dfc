"""Results of `integrate` for models without a SkewGP, used as those of ``pm.sample`` are."""

import numpy as np
import pymc as pm
import pytest
from pymc.exceptions import ImputationWarning
from quick_search import averaged
from scipy import stats
from scipy.special import logsumexp

import pymc_skewgp as sg
from pymc_skewgp._learn.coordinates import Point
from pymc_skewgp._learn.objective import compile_objective
from pymc_skewgp._model.graph.collapsed import collapse_model

X = np.linspace(-1.5, 1.5, 10)
Y = np.array([0, 2, 0, 1, 3, 2, 4, 1, 3, 5])
WAITS = np.array([0.3, 0.5, 0.2, 0.9, 1.2, 0.8, 1.1, 1.2, 1.2, 0.7])


def _waits(b, x):
    return pm.math.exp(b * x)


OBSERVED = {
    "censored waits": lambda b: pm.Censored(
        "y", pm.Weibull.dist(alpha=2.0, beta=_waits(b, X)), None, 1.2, observed=WAITS
    ),
    "truncated counts": lambda b: pm.Truncated(
        "y", pm.Poisson.dist(_waits(b, X)), lower=1, observed=np.maximum(Y, 1)
    ),
    "hurdle": lambda b: pm.HurdlePoisson("y", psi=0.8, mu=_waits(b, X), observed=Y),
    "mixture of scales": lambda b: pm.Mixture(
        "y",
        w=[0.7, 0.3],
        comp_dists=[pm.Normal.dist(b * X, 0.5), pm.Normal.dist(b * X, 3.0)],
        observed=X,
    ),
}


@pytest.mark.parametrize("kind", OBSERVED)
def test_observations_of_one_predictor_are_their_quadrature(kind):
    with pm.Model() as model:
        b = pm.Normal("b", 0.0, 1.0)
        OBSERVED[kind](b)
    log_density = model.compile_logp(mode="FAST_COMPILE")
    grid = np.linspace(-4, 4, 801)
    logs = np.array([log_density({"b": value}) for value in grid])
    true = logsumexp(logs) + np.log(grid[1] - grid[0])
    found = averaged(model, true, floor=1e-3, random_seed=2)  # for the errors of errors
    # Of the draws of the one point; -inf only where all weigh alike.
    alike = found.attrs["relative_ess_exact"] > 0.99
    assert alike or np.isfinite(found.attrs["pareto_k_exact"])
    weights = np.exp(logs - logsumexp(logs))
    mean = weights @ grid
    sd = np.sqrt(weights @ (grid - mean) ** 2)
    assert abs(float(found["b"].mean()) - mean) < 5 * sd / np.sqrt(400)


def test_no_evidence_is_above_the_density_of_all_data():
    """Where EP does not converge: Student t far from the data on its scale."""
    rng = np.random.default_rng(0)
    group, x = rng.integers(0, 8, 100), rng.normal(size=100)
    y = 0.3 + 0.6 * x + 0.7 * rng.normal(size=8)[group] + 0.4 * rng.standard_t(3, size=100)
    with pm.Model() as model:
        sigma = pm.HalfNormal("sigma", 1.0)
        b = pm.Normal("b", 0.0, 3.0, shape=2)
        u = pm.Normal("u", 0.0, 1.0, shape=8)
        pm.StudentT("y", nu=70.0, mu=b[0] + b[1] * x + u[group], sigma=sigma, observed=y)
    collapsed = collapse_model(model)
    objective, origin = compile_objective(model, collapsed, averaged=True)
    pattern = objective.coordinates.patterns(3)[0]
    for log_sigma in (0.0, -4.0, -5.0, -6.0):  # one begins where the last one ended
        point = Point(np.full_like(origin, log_sigma), pattern)
        value = objective.totals_by_ep([point])[1][0]
        highest = 100 * (0.0 - log_sigma)  # a density is at most 1 / sigma there
        assert np.isfinite(value)
        assert value < highest


def test_masked_counts_of_one_level():
    """The level is one number under all counts: the evidence is an integral over it."""
    counts = np.array([2, 0, 3, 1, 4, 2])
    masked = np.ma.masked_array(counts, mask=np.arange(6) < 2)
    with pm.Model() as model, pytest.warns(ImputationWarning):
        pm.Poisson("y", pm.math.exp(pm.Normal("b", 0.0, 1.0)), observed=masked)
    grid = np.linspace(-6.0, 6.0, 1001)
    log_p = stats.norm.logpdf(grid) + stats.poisson.logpmf(counts[2:, None], np.exp(grid)).sum(0)
    expected = logsumexp(log_p) + np.log(grid[1] - grid[0])
    averaged(model, expected, floor=1e-8, draws=1000)  # the trapezoidal rule is exact here


def test_masked_data_are_drawn_and_what_is_observed_stays():
    """Of masked values with noise sd .5 about an effect, which has a closed form."""
    x = np.linspace(-1.0, 1.0, 6)
    masked = np.ma.masked_array(x, mask=[True, False, False, False, False, True])
    with pm.Model() as model:
        b = pm.Normal("b", 0.0, 1.0)
        with pytest.warns(ImputationWarning):
            y = pm.Normal("y", b, 0.5, observed=masked)
        pm.Deterministic("twice", 2.0 * y)
    found = sg.integrate(model, draws=1000, chains=2, random_seed=0, progressbar=False)["posterior"]
    precision = 1.0 + 4 / 0.25
    mean, sd = x[1:5].sum() / 0.25 / precision, np.sqrt(1.0 / precision + 0.25)
    drawn = found["y_unobserved"].values.reshape(-1, 2)
    # Five standard errors of 2000 independent draws: one false alarm in 4e5 seeds.
    assert (np.abs(drawn.mean(0) - mean) < 5 * sd / np.sqrt(2000)).all()
    assert (np.abs(drawn.std(0) / sd - 1.0) < 5 / np.sqrt(4000)).all()
    np.testing.assert_array_equal(
        found["y"].values[..., 1:5], np.broadcast_to(x[1:5], (2, 1000, 4))
    )
    np.testing.assert_allclose(found["twice"].values, 2.0 * found["y"].values)
    np.testing.assert_array_equal(found["y"].values[..., [0, 5]], found["y_unobserved"].values)
