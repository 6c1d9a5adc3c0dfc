"""Log probabilities of rectangles and their gradients against exact oracles."""

import numpy as np
import pytest
from oracles import (
    brute_log_prob,
    equicorrelated_cov,
    equicorrelated_log_prob,
    finite_difference,
    ou_cov,
    ou_probit_log_evidence,
)
from scipy.stats import norm

from pymc_skewgp._gaussian.escalation import Rung, SamplerSettings
from pymc_skewgp._gaussian.log_prob_gradient import log_prob_and_gradient

INF = np.inf
# Where the oracle is smooth over several h, fourth-order differences at h = 1e-3 leave h^4 times a
# fifth derivative, about 1e-11, and 1e-13 of round-off over h.
DIFFERENCE = {"rtol": 1e-7, "atol": 1e-8}

COV2 = np.array([[2.0, -0.9], [-0.9, 1.0]])
COV3 = np.array([[1.5, 0.6, -0.3], [0.6, 1.0, 0.2], [-0.3, 0.2, 0.8]])
RECTANGLES3 = {
    "orthant": ([0.0, 0.0, 0.0], [INF, INF, INF]),
    "below": ([-INF, -INF, -INF], [0.4, -0.7, 1.0]),
    "box": ([-0.5, -1.0, 0.1], [1.0, 0.3, 1.5]),
    "mixed": ([-INF, 0.2, -0.4], [0.5, INF, 0.6]),
    "tail": ([2.0, 1.5, 1.0], [INF, INF, INF]),
}
RECTANGLES = {name: (low[:2], high[:2]) for name, (low, high) in RECTANGLES3.items()}
RECTANGLES |= {"strip": ([-1.0, -INF], [0.5, 0.1]), "one": ([-INF], [0.7]), "two": ([-3.0], [-2.0])}


def rbf_cov(x, lengthscale, variance):
    return variance * np.exp(-0.5 * ((x[:, None] - x) / lengthscale) ** 2)


def differences(function, lower, upper, cov):
    """Derivatives of function(lower, upper, cov) by finite differences, symmetric in cov."""
    lower, upper = np.asarray(lower, dtype=float), np.asarray(upper, dtype=float)
    n = lower.size

    def limit(which):
        def value(t):
            moved = [lower.copy(), upper.copy()]
            moved[which][finite] = t
            return function(*moved, cov)

        limits = (lower, upper)[which]
        finite = np.isfinite(limits)
        result = np.zeros(n)
        if finite.any():
            result[finite] = finite_difference(value, limits[finite])
        return result

    rows, columns = np.tril_indices(n)

    def matrix(t):
        step = np.zeros((n, n))
        step[rows, columns] = t
        return function(lower, upper, cov + 0.5 * (step + step.T))

    by_cov = np.zeros((n, n))
    by_cov[rows, columns] = by_cov[columns, rows] = finite_difference(matrix, np.zeros(rows.size))
    return limit(0), limit(1), by_cov


def assert_gradient(result, expected, **tolerance):
    for name, value in zip(("lower", "upper", "cov"), expected, strict=True):
        np.testing.assert_allclose(getattr(result, name), value, err_msg=name, **tolerance)


class TestExactCases:
    @pytest.mark.parametrize("name", RECTANGLES)
    @pytest.mark.parametrize("method", ["twisted", "ep"])
    def test_one_and_two_dimensions(self, name, method):
        lower, upper = RECTANGLES[name]
        cov = COV2[: len(lower), : len(lower)]
        result = log_prob_and_gradient(lower, upper, cov, method=method)
        assert result.value == pytest.approx(brute_log_prob(lower, upper, cov), abs=1e-11)
        assert_gradient(result, differences(brute_log_prob, lower, upper, cov), **DIFFERENCE)

    @pytest.mark.parametrize("rho", [-0.999999, -0.5, 0.0, 0.9, 0.999999])
    def test_orthant_by_sheppard(self, rho):
        # P = 1/4 + asin(rho) / 2 pi, written so that it keeps its digits near -1.
        result = log_prob_and_gradient([0, 0], [INF, INF], [[1.0, rho], [rho, 1.0]])
        s = np.sqrt((1 - rho) * (1 + rho))
        probability = np.arctan2(s, -rho) / (2 * np.pi)
        slope = 1.0 / (2 * np.pi * s) / probability
        assert result.value == pytest.approx(np.log(probability), rel=1e-12, abs=1e-11)
        assert 2 * result.cov[0, 1] == pytest.approx(slope, rel=1e-9)
        # The orthant does not depend on scales.
        variance_part = result.cov.diagonal() + rho * result.cov[0, 1]
        np.testing.assert_allclose(variance_part, 0.0, atol=1e-9 * abs(slope))

    @pytest.mark.parametrize("far", [5.0, 38.0, 300.0])
    def test_tails_of_one_dimension(self, far):
        # The hazard of the normal is x + 1/x - 2/x^3 + 10/x^5 - ... far out.
        result = log_prob_and_gradient([far], [INF], [[1.0]])
        hazard = norm.pdf(5.0) / norm.sf(5.0) if far == 5.0 else far + 1 / far - 2 / far**3
        assert result.lower[0] == pytest.approx(-hazard, rel=1e-7)
        assert result.cov[0, 0] == pytest.approx(0.5 * far * hazard, rel=1e-7)


@pytest.mark.parametrize("name", ["mixed", "tail"])
def test_three_dimensions(name):
    lower, upper = RECTANGLES3[name]
    exact = brute_log_prob(lower, upper, COV3)
    expected = differences(brute_log_prob, lower, upper, COV3)
    result = log_prob_and_gradient(lower, upper, COV3, n_draws=4096)
    # Five standard deviations of the worst case over 40 seeds.
    assert result.value == pytest.approx(exact, abs=2e-4)
    assert_gradient(result, expected, atol=7e-4)
    # EP in three dimensions is near the truth, no more: off by .003 and .008 in the worst case.
    result = log_prob_and_gradient(lower, upper, COV3, method="ep")
    assert result.value == pytest.approx(exact, abs=0.005)
    assert_gradient(result, expected, atol=0.015)


@pytest.mark.parametrize("n", [10, 200])
def test_probit_evidence_of_the_ornstein_uhlenbeck_process(n):
    rng = np.random.default_rng(n)
    x = rng.normal(size=n)
    y = (np.sin(3.0 * x) + rng.normal(size=n) > 0).astype(int)
    sign = 2.0 * y - 1.0

    def cov(t):
        return sign[:, None] * ou_cov(x, *np.exp(t)) * sign + np.eye(n)

    def exact(t):
        return ou_probit_log_evidence(x, y, *np.exp(t), points=200)  # to 1e-7 or so

    at = np.log([0.5, 2.0])
    value, expected = exact(at), finite_difference(exact, at, 1e-2)
    # Twisted: five standard deviations over seeds at n = 200. EP's error is its bias, .03 there.
    for method, tolerance in {"twisted": (0.0125, 0.057), "ep": (0.05, 0.06)}.items():
        result = log_prob_and_gradient(0.0, INF, cov(at), method=method)
        slope = np.einsum("ij,ijk->k", result.cov, finite_difference(cov, at, 1e-4))
        assert result.value == pytest.approx(value, abs=tolerance[0])
        np.testing.assert_allclose(slope, expected, atol=tolerance[1])


class TestOwnValue:
    """The gradient belongs to the value that comes with it."""

    LOWER = np.array([-0.5, -INF, 0.2, -1.0, -INF, 0.0])
    UPPER = np.array([INF, 0.8, 1.4, INF, 0.1, INF])

    def cov(self):
        factor = np.random.default_rng(4).normal(size=(6, 6))
        return factor @ factor.T / 3 + 0.2 * np.eye(6)

    def test_of_expectation_propagation_exactly(self):
        def value(*arguments):
            return log_prob_and_gradient(*arguments, method="ep").value

        result = log_prob_and_gradient(self.LOWER, self.UPPER, self.cov(), method="ep")
        expected = differences(value, self.LOWER, self.UPPER, self.cov())
        # EP stops at a residual of 1e-8: the gradient is as far off, the value by its square.
        assert_gradient(result, expected, rtol=1e-6, atol=1e-7)

    def test_of_twisted_draws(self):
        def value(*arguments):
            return log_prob_and_gradient(*arguments).value

        result = log_prob_and_gradient(self.LOWER, self.UPPER, self.cov())
        expected = differences(value, self.LOWER, self.UPPER, self.cov())
        # EP stops at a residual of 1e-4, and the gradient's error is that times what draws leave.
        assert_gradient(result, expected, rtol=1e-5, atol=1e-5)

    @pytest.mark.parametrize("kind", ["labels", "one label", "pseudo-points", "intervals"])
    @pytest.mark.parametrize(
        ("kernel", "n", "lengthscale", "variance"),
        [(ou_cov, 3, 0.05, 1.0), (rbf_cov, 10, 2.0, 1000.0), (ou_cov, 60, 0.3, 30.0)],
    )
    def test_along_hyperparameters(self, kernel, kind, n, lengthscale, variance):
        rng = np.random.default_rng(n)
        x = rng.normal(size=n)
        sign = np.ones(n) if kind == "one label" else np.sign(np.sin(3 * x) + rng.normal(size=n))
        noise = np.ones(n)
        if kind == "pseudo-points":
            x[:3], sign[:3], noise[:3] = [-1.0, 0.0, 1.0], [1.0, 1.0, -1.0], 1e-4
        lower = rng.normal(size=n) if kind == "intervals" else np.zeros(n)
        upper = lower + rng.uniform(0.3, 3.0, size=n) if kind == "intervals" else np.full(n, INF)

        def limits(t):
            return lower + t[2], upper + t[3]

        def cov(t):
            return sign[:, None] * kernel(x, *np.exp(t[:2])) * sign + np.diag(noise)

        def value(t):
            return log_prob_and_gradient(*limits(t), cov(t)).value

        at = np.array([np.log(lengthscale), np.log(variance), 0.0, 0.0])
        result = log_prob_and_gradient(*limits(at), cov(at))
        expected = finite_difference(value, at, 2e-4)
        by_cov = np.einsum("ij,ijk->k", result.cov, finite_difference(cov, at, 1e-4))
        found = by_cov + np.array([0.0, 0.0, result.lower.sum(), result.upper.sum()])
        # Of the largest derivative; 9e-5 was the worst of 288 such problems, where one label and
        # a large variance leave no other derivative of that size.
        np.testing.assert_allclose(found, expected, rtol=0, atol=3e-4 * np.abs(expected).max())

    def test_value_is_smooth_along_a_path(self):
        # Steps of .002 in two log parameters, over which EP's sweeps and the rows' order by
        # information change.
        n = 40
        rng = np.random.default_rng(1)
        x = rng.normal(size=n)
        sign = np.sign(np.sin(3 * x) + rng.normal(size=n))
        values, slopes = [], []
        path = np.arange(60) * 0.002

        def cov(t):
            return sign[:, None] * ou_cov(
                x, 0.5 * np.exp(t), 2.0 * np.exp(2.0 * t)
            ) * sign + np.eye(n)

        for t in path:
            result = log_prob_and_gradient(np.zeros(n), np.full(n, INF), cov(t))
            values.append(result.value)
            slopes.append((result.cov * finite_difference(cov, t, 1e-4)).sum())
        surprise = np.diff(values) - 0.5 * np.diff(path) * (np.array(slopes)[1:] + slopes[:-1])
        # The trapezium rule leaves h^3 / 12 times a third derivative of a few units.
        assert np.abs(surprise).max() < 1e-8


class TestLadder:
    @pytest.mark.parametrize(
        "rung",
        [Rung(0.6, accept=0.0), Rung(0.35, accept=0.0), Rung(1.0, accept=2.0)],
        ids=["relaxed", "more relaxed", "tempered or Fisher"],
    )
    def test_every_rung_is_right(self, rung):
        settings = SamplerSettings(gradient_rungs=(rung,))
        n, rho = 10, 0.5

        def exact(t):
            return equicorrelated_log_prob(np.full(n, t[1]), np.full(n, t[1] + 2.5), t[0])

        at = np.array([rho, -0.5])
        expected = finite_difference(exact, at)
        result = log_prob_and_gradient(
            at[1], at[1] + 2.5, equicorrelated_cov(n, rho), n_draws=4096, settings=settings
        )
        off = result.cov.sum() - np.trace(result.cov)
        # Five standard deviations of the worst rung over 40 seeds.
        assert result.value == pytest.approx(exact(at), abs=1.5e-4)
        total = (result.lower + result.upper).sum()
        np.testing.assert_allclose([off, total], expected, rtol=3.5e-3)

    def test_steep_problem_climbs_and_stays_right(self):
        # All labels alike under a variance of 100: EP is half a nat off.
        x = np.random.default_rng(100).normal(size=50)
        y = np.ones(50)
        cov = ou_cov(x, 2.0, 100.0) + np.eye(50)
        result = log_prob_and_gradient(np.zeros(50), np.full(50, INF), cov)
        # Five standard deviations over 40 seeds.
        assert result.value == pytest.approx(ou_probit_log_evidence(x, y, 2.0, 100.0), abs=0.11)


class TestBadInput:
    NOTHING = (
        ([0.0, 1.0, 0.0], [1.0, 1.0, 1.0], np.eye(3)),  # an empty row
        ([0.0, 2.0, 0.0], [1.0, 1.0, 1.0], np.eye(3)),
        ([0.0, 0.0, 0.0], [1.0, np.nan, 1.0], np.eye(3)),
        ([0.0, 0.0, 0.0], [1.0, -INF, 1.0], np.eye(3)),
        ([0.0, INF, 0.0], [1.0, INF, 1.0], np.eye(3)),
        ([0.0, 0.0, 0.0], [1.0, 1.0, 1.0], np.full((3, 3), np.nan)),
        ([0.0, 0.0, 0.0], [1.0, 1.0, 1.0], np.diag([1.0, INF, 1.0])),
        ([0.0, 0.0, 0.0], [1.0, 1.0, 1.0], np.zeros((3, 3))),
        ([0.0, 0.0, 0.0], [1.0, 1.0, 1.0], np.eye(3) - 0.9 * (1 - np.eye(3))),
        ([0.0, 0.0], [1.0, 1.0], np.array([[1.0, 2.0], [2.0, 1.0]])),
        ([0.0, 0.0], [1.0, 1.0], np.array([[1.0, 1e300], [1e300, 1.0]])),
        ([0.0], [1.0], np.array([[-1.0]])),
        ([0.0], [1.0], np.array([[np.nan]])),
    )

    @pytest.mark.parametrize("method", ["twisted", "ep"])
    @pytest.mark.parametrize("case", range(len(NOTHING)))
    def test_minus_infinity_and_no_gradient(self, case, method):
        lower, upper, cov = self.NOTHING[case]
        result = log_prob_and_gradient(lower, upper, cov, method=method)
        assert result.value == -INF
        assert_gradient(result, (np.zeros(len(lower)), np.zeros(len(lower)), np.zeros(cov.shape)))

    @pytest.mark.parametrize(("method", "tolerance"), [("twisted", 0.1), ("ep", 0.3)])
    def test_numerically_singular_is_quiet(self, method, tolerance):
        # Rank 1: only jitter makes it positive definite, and nobody wants to hear of it here. Four
        # times the same restriction is EP's worst case, and no easy one for its twist.
        result = log_prob_and_gradient([0.0] * 4, [INF] * 4, np.ones((4, 4)), method=method)
        assert result.value == pytest.approx(np.log(0.5), abs=tolerance)
        assert all(np.isfinite(x).all() for x in result)

    @pytest.mark.parametrize("method", ["twisted", "ep"])
    def test_random_nonsense_is_a_number_or_minus_infinity(self, method):
        rng = np.random.default_rng(8)
        for _ in range(60):
            n = rng.integers(1, 7)
            factor = rng.normal(size=(n, n + 1)) * 10.0 ** rng.uniform(-5, 5, size=(n, 1))
            cov = factor @ factor.T
            lower = np.sqrt(cov.diagonal()) * rng.normal(size=n) * 10.0 ** rng.uniform(-2, 2)
            upper = lower + 10.0 ** rng.uniform(-12, 4, size=n)
            lower[rng.random(n) < 0.3] = -INF
            upper[rng.random(n) < 0.3] = INF
            result = log_prob_and_gradient(lower, upper, cov, method=method, n_draws=32)
            assert result.value <= 1e-6
            assert all(np.isfinite(x).all() for x in result[1:])

    def test_shapes_and_options_are_the_callers_mistakes(self):
        with pytest.raises(ValueError, match=r"\(2,\), \(3,\) and \(2, 2\)"):
            log_prob_and_gradient([0, 0], [1, 1, 1], np.eye(2))
        with pytest.raises(ValueError, match="method must be one of"):
            log_prob_and_gradient([0, 0], [1, 1], np.eye(2), method="laplace")
        with pytest.raises(ValueError, match="n_draws must be at least 1"):
            log_prob_and_gradient([0, 0], [1, 1], np.eye(2), n_draws=0)
