"""What a distribution takes for a vector or a matrix, as far as is known when it is built."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.tensor.variable import TensorConstant

from pymc_skewgp import NotPositiveDefiniteError
from pymc_skewgp._model.distributions.unified_skew_normal import (
    as_covariance_parameter,
    as_parameter,
    as_vector_parameter,
    check_static_shape,
    known_value,
)


def test_integers_become_floats():
    constant = as_parameter("x", [1, 2], 1)
    assert isinstance(constant, TensorConstant)
    assert constant.type.dtype == pytensor.config.floatX
    assert as_parameter("x", pt.ivector(), 1).type.dtype == pytensor.config.floatX


@pytest.mark.parametrize("value", ["a", [[1.0], [1.0, 2.0]], object()])
def test_what_is_not_numeric_is_refused_by_name(value):
    with pytest.raises(TypeError, match="x must be numeric"):
        as_parameter("x", value, 1)


def test_complex_numbers_are_refused():
    with pytest.raises(TypeError, match="x must be real, got complex128"):
        as_parameter("x", np.ones(2, dtype=complex), 1)


@pytest.mark.parametrize("value", [0.5, [0.5], np.full((4, 1), 0.5)])
def test_one_number_is_repeated(value):
    vector = as_vector_parameter("x", value, pt.constant(np.eye(3)))
    assert vector.type.shape == (*np.shape(value)[:-1], 3)
    np.testing.assert_array_equal(known_value(vector), np.full(vector.type.shape, 0.5))


def test_one_symbolic_number_is_repeated():
    x, matrix = pt.dscalar(), pt.dmatrix()
    vector = as_vector_parameter("x", x, matrix)
    np.testing.assert_array_equal(vector.eval({x: 0.5, matrix: np.eye(3)}), [0.5] * 3)
    row = pt.dmatrix(shape=(None, 1))
    vector = as_vector_parameter("x", row, matrix)
    np.testing.assert_array_equal(
        vector.eval({row: [[1.0], [2.0]], matrix: np.eye(2)}), [[1.0, 1.0], [2.0, 2.0]]
    )


def test_a_vector_of_the_right_length_is_left_alone():
    x = pt.dvector(shape=(3,))
    assert as_vector_parameter("x", x, pt.constant(np.eye(3))) is x
    one = pt.dvector(shape=(1,))
    assert as_vector_parameter("x", one, pt.constant(np.eye(1))) is one


def test_symbolic_matrices_of_known_shape():
    with pytest.raises(ValueError, match=r"cov must be square, got shape \(2, 3\)"):
        as_covariance_parameter("cov", pt.dmatrix(shape=(2, 3)))
    matrix = pt.dmatrix()
    assert as_covariance_parameter("cov", matrix) is matrix


def test_shapes_that_are_known_in_part():
    x = pt.dmatrix(shape=(None, 2))
    check_static_shape("x", x, (3, 2))
    check_static_shape("x", x, (3, None))
    with pytest.raises(ValueError, match=r"x must have shape \(3, 4\), got \(None, 2\)"):
        check_static_shape("x", x, (3, 4))


def test_a_singular_constant_is_refused_without_a_warning():
    with pytest.raises(NotPositiveDefiniteError, match="numerically singular"):
        as_covariance_parameter("cov", np.ones((2, 2)))


def test_what_may_change_is_not_judged():
    shared = pytensor.shared(np.full((2, 2), np.nan))
    assert known_value(as_covariance_parameter("cov", shared)) is None
