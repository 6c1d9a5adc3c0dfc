"""Many small matrices at once, and precisions with one factor, beside NumPy's of each."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from pymc_skewgp._gaussian import linalg
from pymc_skewgp._gaussian.compiled.rows import factorise, solve

# Round-off of matrices whose condition is some hundreds.
TOLERANCE = {"rtol": 1e-11, "atol": 1e-11}


@pytest.mark.parametrize("k", [1, 2, 3])
def test_algebra_is_that_of_numpy(k):
    rng = np.random.default_rng(k)
    a, b = rng.standard_normal((2, 50, k, k))
    spd, vectors = a @ a.swapaxes(1, 2) + 0.1 * np.eye(k), rng.standard_normal((7, 50, k))
    values, turned = linalg.eigh(spd)
    assert_allclose(values, np.linalg.eigvalsh(spd), **TOLERANCE)
    assert_allclose((turned * values[:, None]) @ turned.swapaxes(1, 2), spd, **TOLERANCE)
    assert_allclose(linalg.inverse(spd) @ spd, np.broadcast_to(np.eye(k), spd.shape), atol=1e-10)
    assert_allclose(linalg.cholesky_of_many(spd), np.linalg.cholesky(spd), **TOLERANCE)
    assert_allclose(linalg.log_size(a), np.linalg.slogdet(a)[1], **TOLERANCE)
    assert_allclose(linalg.product(a, b), a @ b, **TOLERANCE)
    assert_allclose(linalg.times(a, vectors), np.einsum("nij,snj->sni", a, vectors), **TOLERANCE)
    with pytest.raises(np.linalg.LinAlgError):
        linalg.cholesky_of_many(-spd)


def test_factors_of_precisions():
    rng = np.random.default_rng(0)
    rows, diagonals = rng.standard_normal((9, 4)), rng.gamma(0.5, 1e3, (6, 9))
    diagonals[0] = -10.0  # no precision
    chol, log_det, x = np.empty((6, 4, 4)), np.empty(6), rng.standard_normal((6, 4))
    factorise(rows, diagonals, 0.0, chol, log_det)
    precisions = np.eye(4) + np.einsum("ni,sn,nj->sij", rows, diagonals, rows)
    assert np.isnan(log_det[0])
    assert_allclose(chol[1:], np.linalg.cholesky(precisions[1:]), **TOLERANCE)
    assert_allclose(log_det[1:], np.linalg.slogdet(precisions[1:])[1], **TOLERANCE)
    found = x[1:].copy()
    for transposed in (False, True):
        solve(chol[1:], found, transposed)
    assert_allclose(found, np.linalg.solve(precisions[1:], x[1:, :, None])[..., 0], **TOLERANCE)
