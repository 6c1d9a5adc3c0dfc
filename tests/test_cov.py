"""The arcsine and the Matérn kernel against mpmath, definitions and rules, at any scale."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from mpmath import mp
from pytensor.compile.mode import Mode
from pytensor.graph.traversal import ancestors

import pymc_skewgp as sg
from pymc_skewgp.cov import Matern, NeuralNetwork

PLAIN = Mode(linker="py", optimizer="fast_run").excluding("fusion", "inplace")
LS = np.array([0.5, 3.0, 1e-3])
# Lengths of x/ℓ, and those beyond what the docstring promises most for.
SIZES = (1e-150, 1e-8, 1.0, 1e4, 9e7)
HUGE = (1e10, 1e150)


def points(size: float, n_columns: int = 3) -> np.ndarray:
    """A point with x/ℓ of this length, and such as nearly or exactly share its line; two others."""
    rng = np.random.default_rng(1)
    x, other = rng.standard_normal((2, n_columns))
    x *= 0.99 * size / np.linalg.norm(x)
    aside = np.abs(x).max() * rng.standard_normal(n_columns)
    rows = [x, x, -x, 0.5 * x, 0.0 * x, x * (1.0 - 1e-12)]
    rows += [x + 1e-13 * aside, x + 1e-8 * aside, -x + 1e-5 * aside, aside / 3.0, other]
    return np.array(rows) * LS[:n_columns]


def length(x: np.ndarray, ls: np.ndarray, bias: float) -> float:
    return float(np.linalg.norm([bias, *(x / ls)]))


def exact(x, y, ls, bias, slopes=True):
    """Kernel, and derivatives with regard to log |z| of the two points' z = (b, x/ℓ), by mpmath."""
    size = max(length(x, ls, bias), length(y, ls, bias), 1.0)
    # The smallest angle, squared, is of the order of 1/size^2.
    with mp.workdps(50 + 4 * int(np.log10(size))):
        scales = [mp.mpf(1), *map(mp.mpf, map(float, ls))]
        u, v = (
            [mp.mpf(float(p)) / s for p, s in zip([bias, *row], scales, strict=True)]
            for row in (x, y)
        )
        uu, vv = 1 + 2 * mp.fdot(u, u), 1 + 2 * mp.fdot(v, v)
        root = mp.sqrt(uu * vv)
        sine = 2 * mp.fdot(u, v) / root
        if not slopes:
            return float(2 / mp.pi * mp.asin(sine))
        slope = 2 / mp.pi / mp.sqrt(1 - sine**2)
        by_u, by_v = (
            [
                float(slope * 2 * (p * q / root - sine * r * r / rr))
                for p, q, r in zip(u, v, w, strict=True)
            ]
            for w, rr in ((u, uu), (v, vv))
        )
        return float(2 / mp.pi * mp.asin(sine)), np.array(by_u), np.array(by_v)


def exact_matrix(X, Xs, ls, bias):
    return np.array([[exact(x, y, ls, bias, False) for y in Xs] for x in X])


class Compiled:
    """Matrices as functions, and the gradients of one entry with regard to logarithms."""

    def __init__(self, n_columns):
        X, Xs = pt.dmatrix("X"), pt.dmatrix("Xs")
        ls, bias = pt.dvector("ls"), pt.dscalar("bias")
        kernel = NeuralNetwork(n_columns, ls=ls, bias=bias)
        cross, own, weights = kernel(X, Xs), kernel(X), pt.dmatrix("weights")
        self.cross = pytensor.function([X, Xs, ls, bias], cross, mode=PLAIN)
        self.own = pytensor.function([X, ls, bias], [own, kernel(X, diag=True)], mode=PLAIN)
        self._entry = pytensor.function(
            [X, Xs, ls, bias], pt.grad(cross[0, 0], [X, Xs, ls, bias]), mode=PLAIN
        )
        self.slopes = pytensor.function(
            [X, ls, bias, weights], pt.grad(pt.sum(weights * own), [X, ls, bias]), mode=PLAIN
        )

    def by_logarithms(self, x, y, ls, bias):
        by_x, by_y, by_ls, by_bias = self._entry(x[None], y[None], ls, bias)
        return np.concatenate([x * by_x[0], y * by_y[0], ls * by_ls, [bias * by_bias]])


@pytest.fixture(scope="module")
def three():
    return Compiled(3)


@pytest.fixture(scope="module")
def one():
    return Compiled(1)


def expected_slopes(x, y, ls, bias):
    _, by_x, by_y = exact(x, y, ls, bias)
    return np.concatenate([by_x[1:], by_y[1:], -(by_x + by_y)[1:], [by_x[0] + by_y[0]]])


@pytest.mark.parametrize("size", SIZES + HUGE)
def test_values(three, one, size):
    # As the docstring says. Measured: 4e-15 and 8e-12.
    tolerance = 1e-14 if size < 1e8 else 1e-11
    for compiled, n in ((three, 3), (one, 1)):
        X, ls = points(size, n), LS[:n]
        for bias in (0.0, 300.0):
            expected = exact_matrix(X, X[:3], ls, bias)
            found = compiled.cross(X, X[:3], ls, bias)
            np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)


def test_small_values_keep_their_digits(three):
    X = points(1e-100)[:4]
    # Ten operations, each good to 2e-16, on sums whose terms have one sign.
    expected = exact_matrix(X, X, LS, 0.0)
    np.testing.assert_allclose(three.cross(X, X, LS, 0.0), expected, rtol=4e-15)
    assert np.abs(expected).max() < 1e-199


@pytest.mark.parametrize("size", SIZES + HUGE)
def test_gradients(three, one, size):
    for compiled, n in ((three, 3), (one, 1)):
        X, ls = points(size, n), LS[:n]
        for bias in (0.0, 1.0)[: 1 + (n > 1)]:
            for x in X[[0, -1]]:
                for i, y in enumerate(X):
                    found = compiled.by_logarithms(x, y, ls, bias)
                    assert np.isfinite(found).all()
                    # Rows 5 and 6 are so near a huge point's line that the kernel has its kink.
                    if size in HUGE and i in (5, 6):
                        continue
                    # As the docstring says. Measured: 2e-16 (1 + z). Of huge inputs zero on a line,
                    # and 1e-15 over the angle between others, 1e-8 at the least.
                    z = max(length(x, ls, bias), length(y, ls, bias))
                    tolerance = 1e-6 if size in HUGE else 1e-15 * (1.0 + z)
                    expected = expected_slopes(x, y, ls, bias)
                    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("size", [1e16, 1e150])
def test_no_error_is_amplified_on_a_line(three, size):
    """Of rounding errors in the angle, the inverse would be of any size."""
    for x in np.random.default_rng(9).standard_normal((20, 3)) * size * LS:
        for y in (x, -x, 0.3 * x, -0.7 * x):
            # True derivatives are of the order of 1/z. Roundings, of 1e-16, count once more for
            # each radian that points seen as different are apart, 1e-11 at the least.
            assert np.abs(three.by_logarithms(x, y, LS, 1.0)).max() < 1e-4


def check_sum(X, bias, weights, slopes):
    """Gradient of the sum of weights * k(X, X) against that of its entries by mpmath."""
    by_x, by_z = np.zeros_like(X), np.zeros(1 + X.shape[1])
    for i, x in enumerate(X):
        for j, y in enumerate(X):
            _, by_i, by_j = exact(x, y, LS, bias)
            by_x[i] += weights[i, j] * by_i[1:]
            by_x[j] += weights[i, j] * by_j[1:]
            by_z += weights[i, j] * (by_i + by_j)
    # n^2 entries, each with its error of at most 1e-15 (1 + z), if with random signs.
    atol = len(X) * 1e-15 * (1.0 + max(length(x, LS, bias) for x in X))
    np.testing.assert_allclose(X * slopes[0], by_x, rtol=0, atol=atol)
    np.testing.assert_allclose(-LS * slopes[1], by_z[1:], rtol=0, atol=atol)
    np.testing.assert_allclose(bias * slopes[2], by_z[0], rtol=0, atol=atol)


@pytest.mark.parametrize("size", [1e-8, 1e4])
def test_gradients_with_the_points_themselves(three, size):
    """Every entry of k(X, X) at once, with diagonal and duplicates."""
    X = points(size)
    weights = np.random.default_rng(2).standard_normal((len(X), len(X)))
    check_sum(X, 2.0, weights, three.slopes(X, LS, 2.0, weights)[:3])


@pytest.mark.parametrize("size", SIZES + HUGE)
def test_matrix_of_a_set(three, size):
    X = points(size)
    for bias in (0.0, 1.0):
        matrix, variances = three.own(X, LS, bias)
        np.testing.assert_array_equal(matrix, matrix.T)
        # Both are arctan2 of the same cosine, and of sines summed in another order.
        np.testing.assert_allclose(matrix.diagonal(), variances, rtol=1e-15)
        cross = three.cross(X, X, LS, bias)
        atol = 1e-14 if size < 1e8 else 1e-11
        np.testing.assert_allclose(matrix, cross, rtol=0, atol=atol)
        # Errors of entries move eigenvalues by n times as much.
        assert np.linalg.eigvalsh(matrix).min() >= -len(X) * atol


def test_inputs_without_information(three):
    """All zero, all the same, and none at all."""
    value = 2.0 / np.pi * np.arcsin(2.0 / 3.0)
    for X in (np.zeros((3, 3)), np.zeros((0, 3))):
        for entry in three.own(X, LS, 1.0):
            np.testing.assert_allclose(entry, np.full_like(entry, value), rtol=1e-15)
        assert not three.own(X, LS, 0.0)[0].any()
        for bias in (0.0, 1.0):
            by_x, by_ls, by_bias = three.slopes(X, LS, bias, np.ones((len(X), len(X))))
            assert not by_x.any()
            assert not by_ls.any()
            assert np.isfinite(by_bias)
    for scale in (1e-200, 1.0, 1e200):
        X = np.full((3, 3), scale)
        matrix = three.own(X, LS, 0.0)[0]
        np.testing.assert_allclose(matrix, np.full((3, 3), matrix[0, 0]), rtol=0, atol=1e-11)
        assert all(np.isfinite(s).all() for s in three.slopes(X, LS, 0.0, np.ones((3, 3))))


@pytest.mark.slow(ci=True)
def test_compiled_by_numba():
    """Numba may take sums in another order and approximate functions."""
    X, ls, bias, weights = pt.dmatrix(), pt.dvector(), pt.dscalar(), pt.dmatrix()
    matrix = NeuralNetwork(3, ls=ls, bias=bias)(X)
    slopes = pt.grad(pt.sum(weights * matrix), [X, ls, bias])
    compiled = pytensor.function([X, ls, bias, weights], [matrix, *slopes], mode="NUMBA")
    for size in (1e-8, 1.0, 9e7, 1e150):
        inputs = points(size)
        factors = np.random.default_rng(2).standard_normal((len(inputs), len(inputs)))
        found, *slopes = compiled(inputs, LS, 2.0, factors)
        expected = exact_matrix(inputs, inputs, LS, 2.0)
        atol = 1e-14 if size < 1e8 else 1e-11
        np.testing.assert_allclose(found, expected, rtol=0, atol=atol)
        assert all(np.isfinite(slope).all() for slope in slopes)
        if size < 1e8:
            check_sum(inputs, 2.0, factors, slopes)


def test_no_array_holds_all_differences():
    X = pt.dmatrix("X")
    value = NeuralNetwork(5, ls=1.0)(X)
    graph = ancestors([value, pt.grad(value.sum(), X)])
    assert max(getattr(node.type, "ndim", 0) for node in graph) == 2


def test_active_dims():
    X = np.random.default_rng(6).standard_normal((4, 3))
    part = NeuralNetwork(3, ls=[0.5, 2.0], active_dims=[2, 0])
    whole = NeuralNetwork(2, ls=[0.5, 2.0])
    for arguments in ({}, {"Xs": X[:2]}, {"diag": True}):
        other = {k: v[:, [2, 0]] if k == "Xs" else v for k, v in arguments.items()}
        np.testing.assert_array_equal(
            part(X, **arguments).eval(mode=PLAIN), whole(X[:, [2, 0]], **other).eval(mode=PLAIN)
        )
    # By inverse lengthscales, and a bias whose sign does not matter.
    inverse = NeuralNetwork(3, ls_inv=[2.0, 0.5], bias=-0.3, active_dims=[2, 0])(X)
    expected = NeuralNetwork(2, ls=[0.5, 2.0], bias=0.3)(X[:, [2, 0]])
    np.testing.assert_allclose(inverse.eval(mode=PLAIN), expected.eval(mode=PLAIN), rtol=1e-15)


def test_precision_of_the_result():
    X = np.array([[1.0, 2.0], [3.0, -1.0]])
    expected = NeuralNetwork(2, ls=2.0)(X).eval(mode=PLAIN)
    whole = NeuralNetwork(2, ls=2)(X.astype(int)).eval(mode=PLAIN)
    np.testing.assert_array_equal(whole, expected)
    single = NeuralNetwork(2, ls=np.float32(2.0))(X.astype(np.float32)).eval(mode=PLAIN)
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, expected, rtol=1e-7)


def test_sums_and_products_with_random_hyperparameters():
    X = np.random.default_rng(8).standard_normal((4, 2))
    with pm.Model():
        ls = pm.InverseGamma("ls", 3, 2, shape=2)
        eta, bias = pm.HalfNormal("eta", 2), pm.HalfNormal("bias", 2)
        kernel = eta**2 * NeuralNetwork(2, ls=ls, bias=bias) + pm.gp.cov.Constant(0.5)
    values = {ls: np.array([0.7, 1.5]), eta: np.array(3.0), bias: np.array(0.8)}
    matrix = kernel(X)
    outputs = [matrix, kernel(X, diag=True), *pt.grad(matrix.sum(), [eta, ls])]
    found, variances, by_eta, by_ls = pytensor.function(
        [], outputs, givens=list(values.items()), mode=PLAIN
    )()
    base = exact_matrix(X, X, values[ls], 0.8)
    np.testing.assert_allclose(found, 9.0 * base + 0.5, rtol=1e-14)
    np.testing.assert_allclose(variances, found.diagonal(), rtol=1e-15)
    assert by_eta == pytest.approx(6.0 * base.sum(), rel=1e-13)
    by_log_ls = sum(expected_slopes(x, y, values[ls], 0.8)[4:6] for x in X for y in X)
    np.testing.assert_allclose(values[ls] * by_ls, 9.0 * by_log_ls, rtol=1e-12)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"ls": None}, "give either ls or ls_inv, found neither"),
        ({"ls_inv": 1.0}, "give either ls or ls_inv, found both"),
        ({"ls": [1.0, 0.0]}, r"ls must be positive, found \[1. 0.\]"),
        ({"ls": None, "ls_inv": -1.0}, "ls_inv must be positive, found -1.0"),
        ({"ls": [1.0, 2.0, 3.0]}, r"vector of length 2, .* found shape \(3,\)"),
        ({"bias": [1.0, 2.0]}, r"bias must be a scalar, found 1 dimension"),
        ({"bias": np.inf}, "bias must be finite, found inf"),
        ({"input_dim": 0}, "input_dim must be a positive integer, found 0"),
        ({"active_dims": [2]}, r"from 0 to input_dim - 1 = 1, found \[2\]"),
        ({"active_dims": [0, 0]}, r"different column numbers .* found \[0, 0\]"),
        ({"active_dims": [0.0]}, "must be a list of column numbers"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        NeuralNetwork(**{"input_dim": 2, "ls": 1.0, **arguments})


def test_wrong_inputs():
    kernel = NeuralNetwork(1, ls=1.0)
    with pytest.raises(ValueError, match=r"X must have two dimensions.* found 1"):
        kernel(np.zeros(3))
    with pytest.raises(ValueError, match=r"Xs must have two dimensions.* found 3"):
        kernel(np.zeros((3, 1)), pt.dtensor3())
    with pytest.warns(UserWarning, match=r"Only 1 column\(s\) out of 2 are being used"):
        kernel(np.zeros((3, 2)))


@pytest.mark.parametrize("nu", [0.5, 1.0, 2.7, 20.0])
def test_matern(nu):
    """Values and slopes in the lengthscale, at distances to which PyMC adds 1e-6 as it does."""
    X, ls, log_ls = np.array([[0.0], [1e-5], [0.2], [1.0], [40.0]]), 0.7, pt.scalar("log_ls")
    value = Matern(1, nu=nu, ls=pt.exp(log_ls))(X[:1], X[1:])[0]
    found = pytensor.function([log_ls], [value, pt.jacobian(value, log_ls)], mode=PLAIN)

    def exact(x, log_ls):
        s = mp.sqrt(2 * nu) * mp.sqrt((x / mp.exp(log_ls)) ** 2 + mp.mpf("1e-12"))
        return 2 ** (1 - mp.mpf(nu)) / mp.gamma(nu) * s**nu * mp.besselk(nu, s)

    at = mp.log(ls)
    values = [float(exact(x, at)) for (x,) in X[1:]]
    slopes = [float(mp.diff(lambda t, x=x: exact(x, t), at)) for (x,) in X[1:]]
    # The Bessel function's rounding, some 1e-14; in slopes next to 0 it is that of 1e6.
    np.testing.assert_allclose(found(float(at))[0], values, rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(found(float(at))[1], slopes, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("nu", "name"), [(0.5, "Matern12"), (1.5, "Matern32"), (2.5, "Matern52")])
def test_matern_of_half_integers(nu, name):
    X, ls = np.random.default_rng(0).normal(size=(6, 3)), [0.5, 2.0]
    ours, theirs = (
        kernel(3, ls=ls, active_dims=[0, 2])(X).eval(mode=PLAIN)
        for kernel in (lambda d, **given: Matern(d, nu, **given), getattr(pm.gp.cov, name))
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_matern_solves_the_equation_of_its_field():
    """The field with the precision (kappa^2 - Laplacian)^2 on a torus, by its Fourier series."""
    k, kappa = 1024, 0.05
    wave = 2.0 - 2.0 * np.cos(2.0 * np.pi * np.arange(k) / k)
    cov = np.fft.ifft2((kappa**2 + wave[:, None] + wave) ** -2.0).real
    lags = np.arange(120.0)[:, None]
    found = Matern(1, nu=1.0, ls=np.sqrt(2.0) / kappa)(lags, lags[:1]).eval(mode=PLAIN)
    # Differences in place of derivatives err by the order of (kappa times a step) squared.
    np.testing.assert_allclose(found[:, 0], cov[0, :120] / cov[0, 0], rtol=0.0, atol=kappa**2)


def test_matern_under_vecchia():
    rng = np.random.default_rng(1)
    X, y = rng.random((150, 2)), rng.poisson(2.0, 150)
    given = {"likelihood": sg.likelihoods.Poisson(), "random_seed": 1, "progressbar": False}
    kernel = Matern(2, nu=1.0, ls=0.2)
    vecchia = sg.approximations.Vecchia(40)
    whole, sparse = (
        sg.SkewGP(cov_func=kernel, approximation=a).posterior(X, y, **given).log_marginal_likelihood
        for a in (None, vecchia)
    )
    # 40 neighbours of 150 leave some thousandths of a nat.
    error = np.hypot(whole.std_error, sparse.std_error)
    assert abs(whole.value - sparse.value) < 0.02 + 4.0 * error


@pytest.mark.parametrize("nu", [0.3, np.nan, 21.0, "1"])
def test_refused_smoothness(nu):
    with pytest.raises(ValueError, match=r"nu must be a number from 0\.5 to 20, found"):
        Matern(1, nu, ls=1.0)
