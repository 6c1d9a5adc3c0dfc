r"""Expectation propagation for sites of many rows, in blocks.

A sweep sends every block the Gaussian of the coordinates, r x r numbers, and gets as many back. It
is the parallel form of `fit_factors`, with its acceleration by inner products that blocks return.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.linalg import eigh
from scipy.linalg.blas import dsyrk, dtrsm
from scipy.linalg.lapack import dpotrf

from pymc_skewgp._errors import EPConvergenceWarning, warn
from pymc_skewgp._gaussian.blocks.rows import SiteSteps, SiteSums, Tilts
from pymc_skewgp._gaussian.compiled.rows import LEAST_CAVITY
from pymc_skewgp._gaussian.coordinate_gaussian import CoordinateGaussian
from pymc_skewgp._gaussian.tilted import TiltedMoments, next_sites
from pymc_skewgp._limits import few_blas_threads, n_blas_threads
from pymc_skewgp._validation import FloatArray

# Many blocks of rows: a method is called for all of them, and what they return is added up.


class Blocks(Protocol):
    """Blocks of rows of the same coordinates, wherever they are kept."""

    @property
    def n_rows(self) -> int:
        """Of all blocks."""
        ...

    @property
    def rank(self) -> int:
        """Number r of coordinates."""
        ...

    @property
    def here(self) -> bool:
        """Whether they are in this process, where many calls cost nothing but their work."""
        ...

    def total(self, method: str, *arguments: Any) -> Any:
        """Call a method of `RowBlock` for every block; the sum, or sums, of what they return."""
        ...


class LocalBlocks:
    """Blocks in this process.

    Results are added up in the order of the blocks: they do not depend on the threads.

    Parameters
    ----------
    blocks : sequence of SiteSteps
    n_threads : int, optional
        Default as many as BLAS may use.
    """

    def __init__(self, blocks: Sequence[SiteSteps], n_threads: int | None = None) -> None:
        self.blocks = tuple(blocks)
        self._n_threads = n_threads
        self.n_rows = sum(block.n_rows for block in blocks)
        self.rank = blocks[0].rank
        self.here = True

    def total(self, method: str, *arguments: Any) -> Any:
        """See `Blocks`."""

        def call(block: SiteSteps) -> Any:
            return getattr(block, method)(*arguments)

        return added(side_by_side(call, self.blocks, self._n_threads))


class JoinedBlocks:
    """Blocks of several kinds as one."""

    def __init__(self, parts: Sequence[Blocks]) -> None:
        self._parts = tuple(parts)
        self.n_rows = sum(part.n_rows for part in parts)
        self.rank = parts[0].rank
        self.here = all(part.here for part in parts)

    def total(self, method: str, *arguments: Any) -> Any:
        """See `Blocks`."""
        return added(part.total(method, *arguments) for part in self._parts)


def side_by_side[Item, Result](
    call: Callable[[Item], Result], items: Sequence[Item], n_threads: int | None = None
) -> Iterator[Result]:
    """Results of a call for each item, in their order, as it is made in threads.

    Each of them has one thread of BLAS: with more, matrices of some thousand rows take longer.
    """
    n_threads = min(n_threads or n_blas_threads(), len(items))
    with few_blas_threads(0):
        if n_threads <= 1:
            yield from map(call, items)
        else:
            with ThreadPoolExecutor(n_threads) as pool:
                yield from pool.map(call, items)


def added(results: Iterable[Any]) -> Any:
    """Sum of numbers, of arrays, or of tuples of these."""
    return reduce(_plus, results)


def _plus(a: Any, b: Any) -> Any:
    if a is None:
        return None
    if isinstance(a, tuple):
        return type(a)(*(x + y for x, y in zip(a, b, strict=True)))
    return a + b


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


def gaussian_of(sums: SiteSums) -> CoordinateGaussian:
    """N(0, I) of the coordinates times the sites with these sums."""
    with few_blas_threads(sums.pull.size):
        gaussian = CoordinateGaussian.of(sums.gram, sums.pull)
        _ = gaussian.spread
    return gaussian


def fit_blocks(
    blocks: Blocks,
    *,
    tol: float = 1e-2,
    max_sweeps: int = 200,
    times: Callable[[SiteSums], CoordinateGaussian] = gaussian_of,
) -> BlockEP:
    """Parallel EP from the sites that the blocks have: 2 n r^2 operations a sweep.

    The residual is that of all rows together: many small gaps of one sign are as bad as a large
    one. `times` makes the Gaussian of the prior and of sites with these sums.

    Warns
    -----
    EPConvergenceWarning
        When `max_sweeps` was not enough.
    """
    sums: SiteSums = blocks.total("sums")
    damping, previous, mixed = 1.0, np.inf, False
    for sweep in range(1, max_sweeps + 1):
        gaussian = times(sums)
        tilts: Tilts = blocks.total("tilt", gaussian.mean, gaussian.spread)
        residual = tilts.gap + gaussian.squared_length(tilts.pull)
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
    log_prob = tilts.log_scales + gaussian.log_integral(sums.pull)
    return BlockEP(gaussian, log_prob, sweep, residual)


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


# Many small problems side by side: the moments of a sweep are those of all of them at once, in
# whole arrays, of which matrices of some dozen rows would leave most of the time to Python.


class SideBySide(NamedTuple):
    """EP of P problems with n rows each.

    Attributes
    ----------
    tau, nu : ndarray, shape (P, n)
    log_prob, residual : ndarray, shape (P,)
        See `BlockEP`.
    mean, variance : ndarray, shape (P, n)
        Of the predictors.
    """

    tau: FloatArray
    nu: FloatArray
    log_prob: FloatArray
    residual: FloatArray
    mean: FloatArray
    variance: FloatArray


def fit_side_by_side(
    factor: FloatArray,
    sites: TiltedMoments,
    counts: FloatArray,
    begun: tuple[FloatArray, FloatArray],
    *,
    tol: float,
    max_sweeps: int,
) -> SideBySide:
    """`fit_blocks` for many problems, damped but not accelerated: residuals say which are done.

    Parameters
    ----------
    factor : ndarray, shape (P, n, r)
        F of each.
    sites : TiltedMoments
        Of all P n rows, one problem after the other.
    counts : ndarray, shape (P, n)
        How many equal rows each row stands for.
    begun : tuple of ndarray, shape (P, n)
        Tau and nu to begin with.
    tol, max_sweeps
        See `fit_blocks`.

    Raises
    ------
    numpy.linalg.LinAlgError
        Where the Gaussian of one is none.
    """
    shape, mean, variance = begun[0].shape, np.empty(begun[0].shape), np.empty(begun[0].shape)

    def sweep(tau: FloatArray, nu: FloatArray) -> Swept:
        white, constant, mean[:], variance[:] = _whitened(factor, counts * tau, counts * nu)
        flat = (x.ravel() for x in (mean, variance, tau, nu, LEAST_CAVITY / variance))
        new = next_sites(sites, *flat)
        new_tau, new_nu = new.tau.reshape(shape), new.nu.reshape(shape)
        drawn = counts * (new_nu - nu - (new_tau - tau) * mean)
        step = np.array([own @ to for own, to in zip(white, drawn, strict=True)])
        gap = (counts * new.variance_gap.reshape(shape)).sum(axis=1)
        log_scales = new.log_scales(tau.ravel(), nu.ravel()).reshape(shape)
        log_prob = (counts * log_scales).sum(axis=1) + constant
        return Swept(new_tau, new_nu, gap + (step**2).sum(axis=1), log_prob)

    return SideBySide(*damped(sweep, *begun, tol=tol, max_sweeps=max_sweeps), mean, variance)


def placed_side_by_side(
    factor: FloatArray, counts: FloatArray, sites: tuple[FloatArray, FloatArray]
) -> SideBySide:
    """Many problems with these sites, as if EP had ended there; no log evidences."""
    _, _, mean, variance = _whitened(factor, counts * sites[0], counts * sites[1])
    nothing = np.zeros(len(mean))
    return SideBySide(*sites, nothing, nothing, mean, variance)


def _whitened(
    factor: FloatArray, tau: FloatArray, nu: FloatArray
) -> tuple[list[FloatArray], FloatArray, FloatArray, FloatArray]:
    """L^-1 F' and log constant of each, and means and variances of the predictors."""
    white, constant = list[FloatArray](), np.empty(len(factor))
    mean, variance = np.empty(tau.shape), np.empty(tau.shape)
    for p, loadings in enumerate(factor):
        gram = dsyrk(1.0, loadings.T * np.sqrt(tau[p]), lower=1)
        known, mean[p], constant[p] = white_marginals(loadings, gram, nu[p])
        variance[p] = np.maximum(np.einsum("ij,ij->j", known, known), 1e-300)
        white.append(known)
    return white, constant, mean, variance


class Swept(NamedTuple):
    """Sites that a sweep of P problems finds, and what the old ones are; see `SideBySide`."""

    tau: FloatArray
    nu: FloatArray
    residual: FloatArray
    log_prob: FloatArray


def damped(
    sweep: Callable[[FloatArray, FloatArray], Swept],
    tau: FloatArray,
    nu: FloatArray,
    *,
    tol: float,
    max_sweeps: int,
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Sweeps of many problems until all are done: tau, nu, log evidences and residuals."""
    damping, previous = np.ones(len(tau)), np.full(len(tau), np.inf)
    for left in range(max_sweeps - 1, -1, -1):
        new = sweep(tau, nu)
        moves = ~(new.residual < tol)
        if not (left and moves.any()):
            break
        rises = moves & ~(new.residual <= previous)
        damping[rises] = np.maximum(_LEAST_DAMPING, 0.7 * damping[rises])
        previous = new.residual
        share = np.where(moves, damping, 0.0)[:, None]
        tau, nu = tau + share * (new.tau - tau), nu + share * (new.nu - nu)
    return tau, nu, new.log_prob, new.residual


def white_marginals(
    factor: FloatArray, gram: FloatArray, nu: FloatArray
) -> tuple[FloatArray, FloatArray, float]:
    """With L L' = I + `gram`: L^-1 F', the mean of F c under sites, and the log constant.

    The lower triangle of `gram` is overwritten.
    """
    np.einsum("ii->i", gram)[:] += 1.0
    chol, info = dpotrf(gram, lower=1, clean=0, overwrite_a=1)
    if info:
        raise np.linalg.LinAlgError("the precision of the coordinates is not positive definite")
    white = dtrsm(1.0, chol, factor.T, lower=1)
    pull = white @ nu
    constant = 0.5 * float(pull @ pull) - float(np.log(chol.diagonal()).sum())
    return white, pull @ white, constant


# Few of many rows, with EP's Gaussian sites in place of all others.
#
# Where labels are as good as separated, as those of a million rows often are, most rows say next to
# nothing: their probability is near 1 wherever the coordinates may be. To temper, which takes
# hundreds of passes over the rows, goes with those whose sites take a share of their predictors'
# variance. The others come in again at the end, by weights that are nearly equal.

# Share of its variance that a rough row's site takes. The weights of all others, thousands of them
# together, are off by some hundredths.
_LEVEL = 1e-3
# Share of all rows that are rough, up to which they are set apart; and rows from which on.
_MOST_ROUGH, _MANY = 0.5, 2000


class RoughBlocks:
    """Rough rows as they are, and all others as the Gaussian sites that EP has found.

    Parameters
    ----------
    blocks : Blocks
        In this process, after EP. They keep their rough rows.
    """

    here = False  # rough rows of rough rows would be without the others

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self.n_rows: int = blocks.total("n_rough", _LEVEL)
        self.rank = blocks.rank
        self._others: SiteSums = blocks.total("set_apart", _LEVEL)

    def total(self, method: str, *arguments: Any) -> Any:
        """See `Blocks`; of `log_prob` and `pair_log_probs`."""
        found = self._blocks.total("of_rough", method, *arguments)
        if method == "log_prob":
            return found + self._log_sites(*arguments)
        centre, off = arguments
        return found + [self._log_sites(centre[:, None] + x) for x in (off, -off)]

    def log_left_out(self, coordinates: FloatArray) -> FloatArray:
        """Log probability of all rows over that of these, for columns of coordinates."""
        return np.asarray(
            self._blocks.total("log_prob", coordinates) - self.total("log_prob", coordinates)
        )

    def _log_sites(self, coordinates: FloatArray) -> FloatArray:
        """Log of the product of the other sites."""
        gram, pull = self._others
        square = np.einsum("ij,ij->j", coordinates, gram @ coordinates)
        return np.asarray(pull @ coordinates - 0.5 * square)


def rough_blocks(blocks: Blocks) -> RoughBlocks | None:
    """Rough rows, where they are few among many."""
    if not (blocks.here and blocks.n_rows > _MANY):
        return None
    if blocks.total("n_rough", _LEVEL) > _MOST_ROUGH * blocks.n_rows:
        return None
    return RoughBlocks(blocks)
