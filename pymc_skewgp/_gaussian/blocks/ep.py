r"""Expectation propagation for sites of many rows, in blocks.

A sweep sends every block the Gaussian of the coordinates, r x r numbers, and gets as many back. It
is the parallel form of `fit_factors`, with its acceleration by inner products that blocks return.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_solve, eigh, solve_triangular

from pymc_skewgp._errors import EPConvergenceWarning, warn
from pymc_skewgp._gaussian import linalg
from pymc_skewgp._gaussian.blocks.blocks import Blocks
from pymc_skewgp._gaussian.blocks.site_steps import SiteSums, Tilts
from pymc_skewgp._gaussian.proposals.coordinate_gaussian import CoordinateGaussian
from pymc_skewgp._threads import few_blas_threads
from pymc_skewgp._validation import FloatArray

_LEAST_DAMPING = 0.1
# Rise of the residual from which on an accelerated step is taken back: where labels are as good as
# separated it may move the mean by a hundred deviations, from where nothing returns.
_LARGEST_RISE = 2.0
_ROUND_OFF = 1e-12  # of squares; see `AndersonMixing`


class BlockEP(NamedTuple):
    """Fixed point of EP; the blocks keep its sites.

    Attributes
    ----------
    gaussian : CoordinateGaussian
        N(0, I) of the coordinates times all sites.
    log_prob : float
        EP's log evidence.
    n_sweeps : int
    residual : float
        Sum over the rows of distances between log variances, tilted and marginal, and the squared
        length of the mean's next step in deviations of the Gaussian.
    """

    gaussian: CoordinateGaussian
    log_prob: float
    n_sweeps: int
    residual: float


def fit_blocks(blocks: Blocks, *, tol: float = 1e-2, max_sweeps: int = 200) -> BlockEP:
    """Parallel EP from the sites that the blocks have: 2 n r^2 operations a sweep.

    The residual is that of all rows together: many small gaps of one sign are as bad as a large
    one.

    Warns
    -----
    EPConvergenceWarning
        When `max_sweeps` was not enough.
    """
    sums: SiteSums = blocks.total("sums")
    damping, previous, mixed = 1.0, np.inf, False
    for sweep in range(1, max_sweeps + 1):
        gaussian = gaussian_of(sums)
        tilts: Tilts = blocks.total("tilt", gaussian.mean, gaussian.spread)
        step = solve_triangular(gaussian.chol, tilts.pull, lower=True)
        residual = tilts.gap + float(step @ step)
        if residual < tol or sweep == max_sweeps:
            break
        if mixed and not residual <= _LARGEST_RISE * previous:
            sums, mixed = blocks.total("back", damping), False
            continue
        shares = _shares(tilts.products)
        if not residual <= previous:
            if not mixed:
                damping = max(_LEAST_DAMPING, 0.7 * damping)
            shares = None
            blocks.total("forget")
        previous, mixed = residual, shares is not None
        sums = blocks.total("move", shares, damping)
    blocks.total("finish")
    if not residual < tol:
        warn(
            f"EP stopped after {max_sweeps} sweeps with residual {residual:.2g}, above {tol:.2g}: "
            "its evidence is rough. Draws stay exact, with a smaller effective sample size.",
            EPConvergenceWarning,
            stacklevel=2,
        )
    half_log_det = float(np.log(gaussian.chol.diagonal()).sum())
    constant = 0.5 * float(sums.pull @ gaussian.mean) - half_log_det
    return BlockEP(gaussian, tilts.log_scales + constant, sweep, residual)


def gaussian_of(sums: SiteSums) -> CoordinateGaussian:
    """N(0, I) of the coordinates times the sites with these sums."""
    precision = sums.gram.copy()
    precision[np.diag_indices_from(precision)] += 1.0
    with few_blas_threads(precision.shape[0]):
        chol, _ = linalg.cholesky("the precision of the coordinates", precision)
        gaussian = CoordinateGaussian(cho_solve((chol, True), sums.pull), chol)
        _ = gaussian.spread
    return gaussian


def _shares(products: FloatArray) -> FloatArray | None:
    """Of the last changes in the next step, by least squares; None without any."""
    k = products.shape[0]
    if not k:
        return None
    size = np.sqrt(products.diagonal())
    if not (size > 0.0).all():
        return None
    scaled = products[:, :k] / size / size[:, None]
    values, vectors = eigh(scaled)
    kept = values > _ROUND_OFF * values[-1]
    along = vectors[:, kept].T @ (products[:, k] / size)
    shares: FloatArray = (vectors[:, kept] @ (along / values[kept])) / size
    return shares
