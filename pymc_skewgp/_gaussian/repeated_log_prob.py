r"""The log probability of rows that repeat, with its gradient: one row of algebra for each kind.

Rows u = z + e of one kind share the entry of z ~ N(0, K), and each has noise e of its own. EP with
one site for each kind, raised to the number of its rows, is EP of all rows: they have equal sites.
Draws are those of the coordinates c of z = F c, K = F F'.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.linalg import pinv

from pymc_skewgp._errors import no_warnings
from pymc_skewgp._gaussian import linalg
from pymc_skewgp._gaussian.edges import Edges
from pymc_skewgp._gaussian.log_prob_gradient import (
    LogProbGradient,
    LogProbMethod,
    log_prob_and_gradient,
)
from pymc_skewgp._gaussian.operators.repeated import RepeatedCovariance
from pymc_skewgp._gaussian.proposals.coordinates import CoordinateProposal, RowKinds
from pymc_skewgp._gaussian.proposals.ep import EPResult, fit_ep
from pymc_skewgp._gaussian.proposals.ep_gradient import cavities
from pymc_skewgp._gaussian.proposals.runs import SamplingResult
from pymc_skewgp._gaussian.row_factors import equal_predictors
from pymc_skewgp._gaussian.samplers.repeated import RepeatedRowsSampler
from pymc_skewgp._gaussian.weights import IntArray, normalized_weights
from pymc_skewgp._threads import few_blas_threads
from pymc_skewgp._validation import FloatArray, as_generator

_EP_TOLERANCE = 1e-8


@dataclass(frozen=True)
class RepeatedRectangle:
    """Rows between limits, so many of each kind.

    Attributes
    ----------
    cov : ndarray, shape (d, d)
        Of a row of each kind, its noise included.
    noise : ndarray, shape (d,)
        Variance of the noise of each row; 0 for a row whose noise is not known, or not its own.
    lower, upper : ndarray, shape (d,)
        Limits, infinities allowed.
    count : ndarray, shape (d,)
        Rows of each kind, 1 or more; 1 where `noise` is 0.
    """

    cov: FloatArray
    noise: FloatArray
    lower: FloatArray
    upper: FloatArray
    count: FloatArray

    @property
    def n_rows(self) -> int:
        """Rows of all kinds."""
        return int(self.count.sum())

    @cached_property
    def predictor_cov(self) -> FloatArray:
        """K."""
        return linalg.symmetric(self.cov - np.diag(self.noise))

    @cached_property
    def factor(self) -> FloatArray:
        """F."""
        return linalg.low_rank_factor(self.predictor_cov)

    def single(self) -> tuple["RepeatedRectangle", IntArray]:
        """The same with a kind for each row, and which kind each was of."""
        kind = np.repeat(np.arange(self.count.size), self.count.astype(np.intp))
        cov = self.predictor_cov[np.ix_(kind, kind)]
        noise = self.noise[kind]
        cov[np.diag_indices_from(cov)] += noise
        once = np.ones(kind.size)
        return RepeatedRectangle(cov, noise, self.lower[kind], self.upper[kind], once), kind

    def sampler(self) -> RepeatedRowsSampler:
        """Draws of the coordinates."""
        group, _ = equal_predictors(self.factor, np.zeros(self.count.size))
        return RepeatedRowsSampler(
            RowKinds(self.factor, self.noise, self.lower, self.upper, self.count, group)
        )


def log_prob_by_ep(
    rows: RepeatedRectangle, *, tol: float, max_sweeps: int = 200, start: EPResult | None = None
) -> tuple[LogProbGradient, EPResult]:
    """EP's log probability with its gradient, and the sites, one for each kind."""
    cov = RepeatedCovariance(rows.noise, rows.factor, rows.count)
    lower, upper, count = rows.lower, rows.upper, rows.count
    ep = fit_ep(cov, lower, upper, tol=tol, max_sweeps=max_sweeps, start=start, count=count)
    edges = Edges.of(lower, upper, *cavities(cov, ep))
    pull = count * ep.weights
    gradient = 0.5 * (np.outer(pull, pull) - cov.kind_precision(ep.tau))
    each = 0.5 * (ep.weights**2 - ep.tau + ep.tau**2 * ep.variance)  # in the noise of one row
    own = count * each - gradient.diagonal()
    found = LogProbGradient(
        ep.log_prob, -count * edges.lower, count * edges.upper, gradient, own_noise=own
    )
    return found, ep


def repeated_log_prob(
    rows: RepeatedRectangle,
    *,
    method: LogProbMethod = "twisted",
    n_draws: int = 256,
    random_seed: int = 0,
) -> LogProbGradient:
    """`log_prob_and_gradient` of rows that repeat: by draws of the coordinates, or by EP.

    Minus infinity, and zeros, where it cannot be computed.
    """
    d = rows.count.size
    try:
        with no_warnings(), np.errstate(all="ignore"), few_blas_threads(d):
            if method == "ep":
                found = log_prob_by_ep(rows, tol=_EP_TOLERANCE)[0]
            else:
                found = _by_draws(rows, n_draws, random_seed)
            if all(np.isfinite(x).all() for x in found):
                return found
    except (np.linalg.LinAlgError, ArithmeticError, ValueError):
        pass
    zero = np.zeros(d)
    return LogProbGradient(-np.inf, zero, zero, np.zeros((d, d)), own_noise=zero)


def folded(found: LogProbGradient, kind: IntArray, d: int) -> LogProbGradient:
    """The gradient in kinds from that in their single rows."""
    to_kind = np.zeros((d, kind.size))
    to_kind[kind, np.arange(kind.size)] = 1.0
    cov = to_kind @ found.cov @ to_kind.T
    own = to_kind @ found.cov.diagonal() - cov.diagonal()
    return found._replace(
        lower=to_kind @ found.lower, upper=to_kind @ found.upper, cov=cov, own_noise=own
    )


class _Means(NamedTuple):
    """Moments of z, as derivatives of the log probability in its mean and in its covariance."""

    mean: FloatArray
    cov: FloatArray


def _by_draws(rows: RepeatedRectangle, n_draws: int, random_seed: int) -> LogProbGradient:
    r"""The log of a mean weight at fixed points, and the gradient by Fisher's identity.

    .. math:: \frac{\partial \log P}{\partial K}
        = \frac12 K^{-1} \left(\mathrm E[z z'] - K\right) K^{-1}, \qquad
        \frac{\partial \log P}{\partial \mathrm E z} = K^{-1} \mathrm E z,

    z within the limits. Draws say only what these lack to the Gaussian that EP's sites make of z,
    cut off by the rows without noise: of it they are known.
    """
    sampler = rows.sampler()
    rng = as_generator(random_seed)
    result = sampler.coordinates(n_draws, rng, goal="probability")
    c, weights = result.u, normalized_weights(result.log_weights)
    tempered = result.method == "tempered"
    lower, upper = np.zeros(rows.count.size), np.zeros(rows.count.size)
    eye = np.eye(len(c))
    base = _Means(np.zeros(rows.count.size), np.zeros_like(rows.cov))
    # What the moments of c have beyond those of a Gaussian that is known; tempered draws have none.
    if tempered:
        more, spread = c @ weights, (c * weights) @ c.T - eye
    elif (rows.noise > 0.0).all():
        pairs = sampler.pairs
        q = pairs.gaussian
        white = q.chol.T @ (c - q.mean[:, None])
        log_target = q.log_ratio(c, white) + pairs.sites(c)
        change = weights - normalized_weights(result.log_weights - log_target)
        more = q.mean + c @ change
        spread = q.spread @ q.spread.T + np.outer(q.mean, q.mean) - eye + (c * change) @ c.T
    else:
        base, lower, upper = _gaussian_with_cuts(rows, sampler.ep)
        change = weights - normalized_weights(_base_log_weights(rows, sampler, result))
        more, spread = c @ change, (c * change) @ c.T
    back = pinv(rows.factor)
    mean = base.mean + back.T @ more
    cov = linalg.symmetric(base.cov + 0.5 * back.T @ spread @ back)
    noisy = rows.noise > 0
    value = rows.factor[noisy] @ c
    sd = np.sqrt(rows.noise[noisy])[:, None]
    edges = Edges.of(rows.lower[noisy, None], rows.upper[noisy, None], value, sd)
    count = rows.count[noisy]
    lower[noisy], upper[noisy] = -count * (edges.lower @ weights), count * (edges.upper @ weights)
    _shift_together(rows, lower, upper, mean)
    own = np.zeros(rows.count.size)
    own[noisy] = count * (edges.spread @ weights) / (2.0 * rows.noise[noisy])
    own[noisy] -= cov.diagonal()[noisy]
    noise = result.log_prob.std_error if tempered else 0.0
    return LogProbGradient(result.log_prob.value, lower, upper, cov, noise, own)


def _gaussian_with_cuts(
    rows: RepeatedRectangle, ep: EPResult
) -> tuple[_Means, FloatArray, FloatArray]:
    """Of z under EP's sites, within the limits of rows without noise; derivatives in these limits.

    With precisions T of the sites, P = (K + T^-1)^-1 and B = I - P K, the mean of z moves by
    B' dK a with a = K^-1 E z, and its covariance by B' dK B.
    """
    noisy = rows.noise > 0
    tau, nu = np.where(noisy, ep.tau, 0.0), np.where(noisy, ep.nu, 0.0)
    cov = RepeatedCovariance(rows.noise, rows.factor, rows.count)
    pull = rows.count * cov.site_product(tau, nu).weights
    precision = cov.kind_precision(tau)
    gradient = 0.5 * (np.outer(pull, pull) - precision)
    lower, upper = np.zeros(noisy.size), np.zeros(noisy.size)
    hard = np.flatnonzero(~noisy)
    if not hard.size:
        return _Means(pull, gradient), lower, upper
    K = rows.predictor_cov
    left = (np.eye(noisy.size) - precision @ K)[:, hard]
    here = linalg.symmetric(K[hard] @ left)
    centre = K[hard] @ pull
    cut = log_prob_and_gradient(
        rows.lower[hard] - centre, rows.upper[hard] - centre, here, n_draws=1024
    )
    if not np.isfinite(cut.value):
        raise ArithmeticError("round-off decides the probability of the signs at pseudo-points.")
    lower[hard], upper[hard] = cut.lower, cut.upper
    moved = -left @ (cut.lower + cut.upper)
    gradient += 0.5 * (np.outer(moved, pull) + np.outer(pull, moved)) + left @ cut.cov @ left.T
    return _Means(pull + moved, gradient), lower, upper


def _base_log_weights(
    rows: RepeatedRectangle, sampler: RepeatedRowsSampler, result: SamplingResult
) -> FloatArray:
    """Of the draws as draws of the Gaussian that EP's sites make, cut off."""
    noisy = rows.noise > 0
    value, ep = rows.factor[noisy] @ result.u, sampler.ep
    shrink = (rows.count / (1.0 + ep.tau * rows.noise))[noisy]
    sites = (shrink * ep.nu[noisy]) @ value - 0.5 * (shrink * ep.tau[noisy]) @ value**2
    assert isinstance(sampler.first, CoordinateProposal)
    limits = rows.count[noisy] @ sampler.first.log_masses(value)
    return result.log_weights - limits + sites


def _shift_together(
    rows: RepeatedRectangle, lower: FloatArray, upper: FloatArray, mean: FloatArray
) -> None:
    """Make derivatives in limits add up to that in the mean, which draws say more exactly.

    That of a predictor, which is shared out among its kinds of rows, where all have noise.
    """
    low, high = np.isfinite(rows.lower), np.isfinite(rows.upper)
    unit = np.arange(mean.size)
    if (rows.noise > 0.0).all():
        unit, _ = equal_predictors(rows.factor, np.zeros(mean.size))
    sides = np.maximum(np.bincount(unit, low.astype(float) + high), 1.0)
    missing = (np.bincount(unit, -mean - lower - upper) / sides)[unit]
    lower += np.where(low, missing, 0.0)
    upper += np.where(high, missing, 0.0)
