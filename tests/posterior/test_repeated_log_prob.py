"""Log probability of rows that repeat, and its gradient: against quadrature over their two places.

The places' values are (eta_1, eta_2), and one row without noise may be correlated with them: given
the values it is a normal variable, so that its probability is in closed form.
"""

import numpy as np
import pytest
from likelihood_oracles import function_grid
from oracles import finite_difference
from scipy.linalg import block_diag
from scipy.special import log_ndtr, ndtr
from scipy.stats import norm

from pymc_skewgp._posterior.evidence_gradient import Rows, log_prob_by_draws, log_prob_by_ep

INF = np.inf
PLACE = np.array([0, 0, 1])


def problem(hard, many=True):
    """Above, below and between, at two places, after a row without noise."""
    values = np.array([[0.9, 0.6], [0.6, 1.4]])
    cross = np.array([0.5, 0.2])
    K = np.block([[np.ones((1, 1)), cross[PLACE][None]], [cross[PLACE][:, None], np.zeros((3, 3))]])
    K[1:, 1:] = values[np.ix_(PLACE, PLACE)]
    noise = np.array([0.0, 1.0, 1.0, 0.7])
    lower = np.array([-0.3, 0.1, -INF, -0.8])
    upper = np.array([INF, INF, 0.1, 0.2])
    count = np.array([1.0, 130.0, 40.0, 90.0] if many else [1.0, 2.0, 1.0, 3.0])
    rows = Rows(K + np.diag(noise), noise, lower, upper, count)
    return rows if hard else part(rows, np.arange(1, 4))


def part(rows, kinds):
    columns = (x[kinds] for x in (rows.noise, rows.lower, rows.upper, rows.counts))
    return Rows(rows.cov[np.ix_(kinds, kinds)], *columns)


def exact(rows):
    """By a grid over the values, in steps that are less than what they are given the rows."""
    s = rows.counts.size - 3
    K = rows.predictor_cov
    at = [s, s + 2]  # the first kind of each place has the place's value
    values = K[np.ix_(at, at)]

    def log_likelihood(eta):
        total = np.zeros(len(eta))
        for d in range(s, s + 3):
            sd, z = np.sqrt(rows.noise[d]), eta[:, PLACE[d - s]]
            mass = ndtr((rows.upper[d] - z) / sd) - ndtr((rows.lower[d] - z) / sd)
            total += rows.counts[d] * np.log(np.maximum(mass, 1e-300))
        if s:
            slope = np.linalg.solve(values, K[at, 0])
            sd = np.sqrt(K[0, 0] - slope @ K[at, 0])
            total += log_ndtr((eta @ slope - rows.lower[0]) / sd)
        return total

    return function_grid(np.zeros(2), values, log_likelihood, 301).log_evidence


@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("many", [False, True])
def test_values(hard, many):
    rows = problem(hard, many)
    truth = exact(rows)
    # EP is off by hundredths where a sign is known without noise, and less elsewhere.
    assert log_prob_by_ep(rows, tol=1e-6)[0].value == pytest.approx(truth, abs=0.02)
    # 4096 draws of two coordinates: a relative error of a thousandth.
    assert log_prob_by_draws(rows, 4096, 0).value == pytest.approx(truth, abs=2e-3)


def directions(rows):
    """Changes of K, the same for kinds of one place, of limits and of the noise."""
    rng = np.random.default_rng(3)
    s = rows.counts.size - 3
    owner = np.concatenate([np.arange(s), s + PLACE])
    small = rng.normal(size=(s + 2, s + 2)) * 0.1
    small = small + small.T
    yield "cov", small[np.ix_(owner, owner)]
    moved = rng.normal(size=s + 3) * 0.1
    yield "lower", np.where(np.isfinite(rows.lower), moved, 0.0)
    yield "upper", np.where(np.isfinite(rows.upper), moved, 0.0)
    yield "noise", np.where(rows.noise > 0, moved, 0.0)


def moved(rows, which, by):
    fields = dict(vars(rows))
    for name in ("predictor_cov", "factor", "own_noise"):
        fields.pop(name, None)
    fields[which] = fields[which] + by
    if which == "noise":
        fields["cov"] = fields["cov"] + np.diag(by)
    return Rows(**fields)


def along(found, which, direction):
    if which == "noise":
        return direction @ (found.own_noise + found.cov.diagonal())
    return np.sum(getattr(found, which) * direction)


@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("index", range(4))
def test_gradients(hard, index):
    rows = problem(hard)
    which, direction = list(directions(rows))[index]
    # Differences of the exact value, and of EP's own.
    slope = float(finite_difference(lambda t: exact(moved(rows, which, t * direction)), 0.0, 0.02))
    own = finite_difference(
        lambda t: log_prob_by_ep(moved(rows, which, t * direction), tol=1e-9)[0].value, 0.0, 0.02
    )
    by_ep = along(log_prob_by_ep(rows, tol=1e-9)[0], which, direction)
    assert by_ep == pytest.approx(float(own), abs=1e-5 + 1e-5 * abs(by_ep))
    drawn = along(log_prob_by_draws(rows, 4096, 0), which, direction)
    # Derivatives in limits and noise alone, mean and covariance of z being what they are, are means
    # over draws of sums over a hundred rows: their standard deviation is one, over 64.
    assert drawn == pytest.approx(slope, abs=5e-3 if which == "cov" else 0.05)


def test_rows_whose_predictors_are_known():
    """Fifty rows of a predictor without variance: their probability is that of their noise."""
    rows, sd = problem(False), np.sqrt(0.5)
    columns = ((rows.noise, 0.5), (rows.lower, -INF), (rows.upper, 0.3), (rows.counts, 50.0))
    wide = Rows(block_diag(rows.cov, 0.5), *(np.append(*x) for x in columns))
    found, more = (log_prob_by_draws(x, 1024, 0) for x in (rows, wide))
    # By the same draws.
    assert more.value - found.value == pytest.approx(50 * log_ndtr(0.3 / sd), abs=1e-9)
    hazard = norm.pdf(0.3 / sd) / norm.cdf(0.3 / sd) / sd
    np.testing.assert_allclose(more.upper, np.append(found.upper, 50 * hazard), atol=1e-9)
