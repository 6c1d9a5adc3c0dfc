"""Every refusal names the argument, says what was found, and is of the kind callers expect."""

import numpy as np
import pytest

from pymc_skewgp._errors import NotPositiveDefiniteError
from pymc_skewgp._validation import (
    as_bounds,
    as_count,
    as_covariance,
    as_float_array,
    as_matrix,
    as_vector,
)

nan, inf = np.nan, np.inf
GOOD = [[2.0, 0.5], [0.5, 1.0]]


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: as_float_array("arg", "text", 1), TypeError, "arg must be numeric, got str"),
        (lambda: as_float_array("arg", [1j], 1), TypeError, "arg must be numeric"),
        (lambda: as_float_array("arg", [[1.0], [1.0, 2.0]], 2), TypeError, "arg must be numeric"),
        (lambda: as_float_array("arg", [1.0], 2), ValueError, r"arg must have 2 .* \(1,\)"),
        (lambda: as_float_array("arg", [nan, nan, 1], 1), ValueError, "arg holds 2 NaN"),
        (lambda: as_vector("arg", [1.0, 2.0], 3), ValueError, "arg must have length 3, got 2"),
        (lambda: as_vector("arg", nan, 3), ValueError, "arg holds 3 NaN"),
        (lambda: as_vector("arg", [inf, 1.0]), ValueError, "arg holds 1 infinite"),
        (lambda: as_vector("arg", [[1.0]]), ValueError, r"arg must have 1 .* \(1, 1\)"),
        (lambda: as_vector("arg", 1.0), ValueError, "arg must have 1"),
        (lambda: as_matrix("arg", np.ones((2, 3)), (None, 2)), ValueError, r"arg .* \(any, 2\)"),
        (lambda: as_matrix("arg", [[inf]]), ValueError, "arg holds 1 infinite"),
        (lambda: as_covariance("arg", np.ones((2, 3))), ValueError, "arg must be square"),
        (lambda: as_covariance("arg", np.ones((0, 0))), ValueError, "arg is empty"),
        (lambda: as_covariance("arg", GOOD, 3), ValueError, r"arg must have shape \(3, 3\)"),
        (lambda: as_covariance("arg", [[1, nan], [nan, 1]]), ValueError, "arg holds 2 NaN"),
        (
            lambda: as_covariance("arg", [[2.0, 0.5], [0.25, 1.0]]),
            ValueError,
            r"arg is not symmetric: .* differ by 0.25 .*\(arg \+ arg.T\) / 2",
        ),
        (
            lambda: as_covariance("arg", np.diag([1.0, -2.0])),
            NotPositiveDefiniteError,
            "arg is not positive definite: diagonal entry 1 is -2",
        ),
        (lambda: as_bounds([0, 2], [1, 1], 2), ValueError, "row 1 has lower 2 and upper 1"),
        (lambda: as_bounds(1.0, 1.0, 2), ValueError, "lower must be below upper.*2 such"),
        (lambda: as_bounds(0.0, [1.0, nan], 2), ValueError, "upper holds 1 NaN"),
        (lambda: as_bounds(inf, inf, 1), ValueError, "lower must be below upper"),
        (lambda: as_bounds([0.0], None, 2), ValueError, "lower must have length 2, got 1"),
        (lambda: as_count("arg", 0), ValueError, "arg must be at least 1, got 0"),
        (lambda: as_count("arg", 1, 2), ValueError, "arg must be at least 2, got 1"),
        (lambda: as_count("arg", 2.0), TypeError, "arg must be an integer, got float"),
        (lambda: as_count("arg", None), TypeError, "arg must be an integer, got NoneType"),
    ],
)
def test_refusal(call, error, match):
    with pytest.raises(error, match=match):
        call()


def test_scalars_are_repeated():
    assert as_vector("arg", 2, 3).tolist() == [2.0, 2.0, 2.0]
    low, high = as_bounds(None, 1.0, 2)
    assert low.tolist() == [-inf, -inf]
    assert high.tolist() == [1.0, 1.0]


def test_round_off_asymmetry_is_cleared():
    matrix = np.array([[1.0, 0.5], [0.5 + 1e-12, 1.0]])
    result = as_covariance("arg", matrix)
    assert np.array_equal(result, result.T)
    np.testing.assert_allclose(result, matrix, atol=1e-12)
