"""Expectation propagation for a Gaussian times one factor for each of its rows.

One Gaussian site exp(-tau u^2/2 + nu u) stands in for each factor (Minka 2001). A factor is the
indicator of an interval, on u itself: the rectangular case, in which EP is accurate (Cunningham,
Hennig & Lacoste-Julien 2011, arXiv:1111.6832); or p(y_i | u_i) of any likelihood. EP's Gaussian is
the twist of the sequential sampler; its evidence is an approximation with a gradient.
"""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from pymc_skewgp._errors import EPConvergenceWarning, warn
from pymc_skewgp._gaussian.compiled import rows as r
from pymc_skewgp._gaussian.covariance import (
    Covariance,
    DenseCovariance,
    LowRankCovariance,
    WithSites,
)
from pymc_skewgp._gaussian.linalg import AndersonMixing
from pymc_skewgp._gaussian.tilted import Factors, Intervals, cavity, next_sites
from pymc_skewgp._gaussian.univariate import Edges
from pymc_skewgp._validation import FloatArray

# Expectation propagation one site at a time, for rectangles where all sites at once oscillate.
#
# Signs that a covariance hardly allows, such as those of a smooth function that alternate over
# short distances, have sites many orders stronger than those that EP begins with. On the way there
# the sites overshoot each other when they move together. One at a time each of them sees what those
# before it have changed, and some ten sweeps are enough.
#
# A block of rows at a time: with the Gaussian's moments of these rows alone the sites of the block
# move one by one, :math:`b^3` operations, and then all of the Gaussian follows at once,
#
# .. math:: S - S_{\cdot B} (I + \Delta_\tau S_{BB})^{-1} \Delta_\tau S_{B \cdot}, \qquad
#     m + S_{\cdot B} (I + \Delta_\tau S_{BB})^{-1} (\Delta_\nu - \Delta_\tau m_B),
#
# :math:`2 n^3` operations a sweep, as matrix products.

_BLOCK = 32
_MAX_SWEEPS = 30
# Of a variance: the least that a change of one site is taken to leave of it.
_LEAST_LEFT = 1e-3


class Sites(NamedTuple):
    """Precision and precision times mean of each site, and the largest residual before the last."""

    tau: FloatArray
    nu: FloatArray
    residual: float


def sequential_sites(
    cov: Covariance, lower: FloatArray, upper: FloatArray, near: float
) -> Sites | None:
    """Sites for lower < u < upper, u ~ N(0, cov), whose residual is below `near`; None if not soon.

    Where the residual is so small, all sites at once do the rest.

    Parameters
    ----------
    cov : Covariance
    lower, upper : ndarray, shape (n,)
        Limits, infinities allowed.
    near : float
        The residual as in `EPResult`.
    """
    with np.errstate(all="ignore"):
        try:
            return _sweeps(cov, lower, upper, near)
        except (np.linalg.LinAlgError, ArithmeticError, ValueError):  # beyond round-off
            return None


def _sweeps(cov: Covariance, lower: FloatArray, upper: FloatArray, near: float) -> Sites | None:
    """See `sequential_sites`."""
    prior, limits = cov.diagonal(), np.stack([lower, upper])
    moments, mean = cov.dense().copy(), np.zeros(cov.size)
    tau, nu = np.zeros(cov.size), np.zeros(cov.size)
    for _ in range(_MAX_SWEEPS):
        residual = 0.0
        for start in range(0, cov.size, _BLOCK):
            rows = slice(start, start + _BLOCK)
            before = tau[rows].copy(), nu[rows].copy()
            block = _Block(moments[rows, rows].copy(), mean[rows].copy(), tau[rows], nu[rows])
            residual = max(residual, _move(block, limits[:, rows], prior[rows]))
            _follow(moments, mean, rows, tau[rows] - before[0], nu[rows] - before[1])
        if residual < near:
            return Sites(tau, nu, residual)
        # Anew, for round-off adds up where sites become strong.
        moments = cov.site_covariance(tau)
        mean = moments @ nu
    return None


class _Block(NamedTuple):
    """Moments of some rows, and views of their sites."""

    moments: FloatArray
    mean: FloatArray
    tau: FloatArray
    nu: FloatArray


def _move(block: _Block, limits: FloatArray, prior: FloatArray) -> float:
    """Move the sites of a block one by one, and its moments with them; the largest residual.

    Raises
    ------
    FloatingPointError
        Where it is not finite.
    """
    moments, mean, tau, nu = block
    least = r.LEAST_CAVITY / prior
    residual, row = 0.0, np.zeros((r.N_ROWS, 1))
    for i in range(mean.size):
        variance = min(max(moments[i, i], r.LEAST_VARIANCE * prior[i]), prior[i])
        row[[r.TAU, r.NU, r.MEAN, r.VARIANCE], 0] = tau[i], nu[i], mean[i], variance
        gap = r.tilt(row, limits[:, i : i + 1].copy(), least[i : i + 1])
        if not math.isfinite(gap):
            raise FloatingPointError("the moments of a row are not finite.")
        residual = max(residual, gap)
        new_tau, new_nu = row[r.NEW_TAU, 0], row[r.NEW_NU, 0]
        by_tau, by_nu = new_tau - tau[i], new_nu - nu[i]
        share = 1.0 / max(1.0 + by_tau * variance, _LEAST_LEFT)
        own = moments[:, i].copy()
        mean += own * ((by_nu - by_tau * mean[i]) * share)
        moments -= np.outer(own, own * (by_tau * share))
        tau[i], nu[i] = new_tau, new_nu
    return residual


def _follow(
    moments: FloatArray, mean: FloatArray, rows: slice, by_tau: FloatArray, by_nu: FloatArray
) -> None:
    """Change all moments by what the sites of some rows have changed by."""
    columns = moments[:, rows].copy()
    inner = by_tau[:, None] * moments[rows, rows]
    inner[np.diag_indices_from(inner)] += 1.0
    pull = by_nu - by_tau * mean[rows]
    solved = np.linalg.solve(inner, np.column_stack([by_tau[:, None] * columns.T, pull]))
    moments -= columns @ solved[:, :-1]
    mean += columns @ solved[:, -1]


_LEAST_DAMPING = 0.1
# Share of its precision, old or new, below which mixing never takes a site: it must stay proper.
_LEAST_KEPT = 0.1
# Sweeps after which all sites at once have to be near the fixed point, and the residual there. Else
# they move one by one for a while, for which all of G has to be in memory.
_PATIENCE, _NEAR, _MOST_ONE_BY_ONE = 25, 0.3, 2000


@dataclass(frozen=True)
class EPResult:
    """Fixed point of expectation propagation.

    Attributes
    ----------
    tau, nu : ndarray, shape (n,)
        Precision and precision times mean of each site; zero for unbounded rows.
    mean, variance : ndarray, shape (n,)
        Marginals of the Gaussian approximation.
    weights : ndarray, shape (n,)
        G^-1 mean.
    log_prob : float
        EP's approximation of log P(lower < u < upper), or of the log expected product of factors.
    n_sweeps : int
        Sweeps over all sites at once.
    residual : float
        Disagreement between the sites' tilted moments and the Gaussian's, in standard deviations of
        the mean plus log variance: for intervals the largest one.
    """

    tau: FloatArray
    nu: FloatArray
    mean: FloatArray
    variance: FloatArray
    weights: FloatArray
    log_prob: float
    n_sweeps: int
    residual: float


def fit_ep(
    cov: WithSites,
    lower: FloatArray,
    upper: FloatArray,
    *,
    tol: float = 1e-3,
    max_sweeps: int = 200,
    start: "EPResult | None" = None,
    count: FloatArray | None = None,
) -> EPResult:
    r"""`fit_factors` for a rectangle, lower < u < upper, infinities allowed.

    Where all sites at once come no nearer, they move one by one for up to 30 sweeps and then
    together again: see `sequential_sites`. `max_sweeps` counts sweeps of all sites at once.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_skewgp._gaussian.covariance import DenseCovariance
    >>> from pymc_skewgp._gaussian.ep import fit_ep
    >>> cov = DenseCovariance(np.full((3, 3), 0.5) + 0.5 * np.eye(3))
    >>> result = fit_ep(cov, np.zeros(3), np.full(3, np.inf), tol=1e-8)
    >>> print(f"{result.log_prob:.3f} (exact {-np.log(4):.3f})")
    -1.390 (exact -1.386)
    """
    factors = Intervals(lower, upper)
    if (
        count is None
        and isinstance(cov, DenseCovariance | LowRankCovariance)
        and cov.size <= _MOST_ONE_BY_ONE
        and max_sweeps > _PATIENCE
    ):
        found = _iterated(cov, factors, tol, _PATIENCE, start, None)
        if not found.residual < tol:
            near = found.residual < _NEAR
            again = found if near else sequential_sites(cov, lower, upper, _NEAR) or found
            found = _iterated(cov, factors, tol, max_sweeps - _PATIENCE, again, None)
            found = replace(found, n_sweeps=_PATIENCE + found.n_sweeps)
    else:
        found = _iterated(cov, factors, tol, max_sweeps, start, count)
    _warn_of_residual(found, tol)
    return found


def fit_factors(
    cov: WithSites,
    factors: Factors,
    *,
    tol: float = 1e-3,
    max_sweeps: int = 200,
    start: "EPResult | None" = None,
    count: FloatArray | None = None,
) -> EPResult:
    r"""Parallel EP, damped and accelerated.

    With cavity :math:`N(c_i, v_i)` (the Gaussian without site i) and tilted moments
    :math:`\hat m_i, \hat v_i` of the cavity times factor i,

    .. math:: \tau_i = \frac{1}{\hat v_i} - \frac{1}{v_i} = \frac{k_i}{v_i (1 - k_i)}, \qquad
        \nu_i = \frac{\hat m_i}{\hat v_i} - \frac{c_i}{v_i}, \qquad k_i = 1 - \hat v_i / v_i,

    all sites at once. Where a tilted variance exceeds the cavity's, which factors that are not
    log-concave bring about, :math:`\tau_i` is (almost) 0 and the site meets the mean alone: the
    Gaussian stays proper. For large prior variances the parallel form oscillates: when the residual
    grows, Anderson's acceleration begins anew and steps that it does not take are damped. Where
    classes are separable it needs half the sweeps or fewer.

    Parameters
    ----------
    cov : WithSites
        Covariance of the Gaussian, which has mean zero.
    factors : Factors
        One for each row.
    tol : float, default 1e-3
        Residual at which to stop. For sampling 1e-3 is more than enough; for gradients ask 1e-8.
    max_sweeps : int, default 200
        Sweeps after which to stop all the same.
    start : EPResult, optional
        Of a similar problem, whose sites to begin with: a half or a third of the sweeps.
    count : ndarray, shape (n,), optional
        Rows that each row stands for, as `cov` has them.

    Returns
    -------
    EPResult

    Warns
    -----
    EPConvergenceWarning
        When `max_sweeps` was not enough.

    References
    ----------
    .. [1] T. P. Minka (2001), Expectation propagation for approximate Bayesian inference,
       arXiv:1301.2294.
    .. [2] J. P. Cunningham, P. Hennig & S. Lacoste-Julien (2011), Gaussian probabilities and
       expectation propagation, arXiv:1111.6832.
    .. [3] D. G. Anderson (1965), doi:10.1145/321296.321305.
    """
    found = _iterated(cov, factors, tol, max_sweeps, start, count)
    _warn_of_residual(found, tol)
    return found


def _warn_of_residual(found: EPResult, tol: float) -> None:
    if not found.residual < tol:
        warn(
            f"EP stopped after {found.n_sweeps} sweeps with residual {found.residual:.2g}, above "
            f"{tol:.2g}: its evidence is rough. Draws stay exact, with a smaller effective sample "
            "size.",
            EPConvergenceWarning,
            stacklevel=3,
        )


def _iterated(
    cov: WithSites,
    factors: Factors,
    tol: float,
    max_sweeps: int,
    start: "EPResult | Sites | None",
    count: FloatArray | None,
) -> EPResult:
    """See `fit_factors`."""
    prior, active = cov.diagonal(), factors.active
    tau, nu = (np.zeros(cov.size), np.zeros(cov.size)) if start is None else (start.tau, start.nu)
    damping, previous, mixing = 1.0, np.inf, AndersonMixing()
    work, least = cov.workspace(), r.LEAST_CAVITY / prior
    product = cov.site_product(tau, nu, work)
    for sweep in range(1, max_sweeps + 1):
        variance = np.clip(product.variance, r.LEAST_VARIANCE * prior, prior)
        new = next_sites(factors, product.mean, variance, tau, nu, least)
        residual = factors.residual(new.mean_gap(product.mean, variance), new.variance_gap)
        if residual < tol or sweep == max_sweeps:
            break
        if residual > previous:
            damping = max(_LEAST_DAMPING, 0.7 * damping)
            mixing.forget()
        previous = residual
        sites = np.concatenate([tau, nu])
        asked = np.concatenate([np.where(active, new.tau, 0.0), np.where(active, new.nu, 0.0)])
        mixed = mixing(sites, asked, np.concatenate([variance, np.sqrt(variance)]))
        proper = mixed[: tau.size] >= _LEAST_KEPT * np.minimum(tau, asked[: tau.size])
        if mixed is asked or not proper.all():
            mixed = (1.0 - damping) * sites + damping * asked
        tau, nu = np.split(mixed, 2)
        product = cov.site_product(tau, nu, work)
    log_scales = new.log_scales(tau, nu)
    if count is not None:
        log_scales = count * log_scales
    log_prob = float(log_scales[active].sum()) + product.log_constant
    return EPResult(
        tau, nu, product.mean, product.variance, product.weights, log_prob, sweep, residual
    )


# The gradient of expectation propagation's evidence at its fixed point.
#
# There the evidence is stationary in the sites (Minka 2001), so that only explicit dependence on
# the limits and the covariance counts.
#
# Rows and factors that are log-concave take from a cavity's variance. Where another factor, such as
# Student's t, would add to it, EP cuts its site at nearly none: moments are then not matched, the
# evidence is not stationary in that site, and these derivatives are not those of its value.


class EPGradient(NamedTuple):
    """Derivatives of EP's log probability."""

    lower: FloatArray  # (n,)
    upper: FloatArray  # (n,)
    cov: FloatArray  # (n, n), symmetric


def ep_gradient(cov: Covariance, ep: EPResult, lower: FloatArray, upper: FloatArray) -> EPGradient:
    r"""Derivatives of ``ep.log_prob``, exact at the fixed point and off by the residual near it.

    With sites :math:`T = \mathrm{diag}(\tau)` and mean :math:`m`,

    .. math:: \frac{\partial \log Z}{\partial G}
        = \frac12 \left\{\alpha\alpha^\top - (G + T^{-1})^{-1}\right\}, \qquad
        \alpha = G^{-1} m,

    and in a limit the density of the cavity's truncated normal there.

    Parameters
    ----------
    cov : Covariance
    ep : EPResult
        ``fit_ep(cov, lower, upper)``.
    lower, upper : ndarray, shape (n,)

    Returns
    -------
    EPGradient

    References
    ----------
    .. [1] J. P. Cunningham, P. Hennig & S. Lacoste-Julien (2011), Gaussian probabilities and
       expectation propagation, arXiv:1111.6832.
    """
    edges = Edges.of(lower, upper, *cavities(cov, ep))
    return EPGradient(-edges.lower, edges.upper, ep_cov_gradient(cov, ep))


def ep_cov_gradient(cov: WithSites, ep: EPResult) -> FloatArray:
    """That in the covariance, whatever the factors; ``ep.weights`` is that in the mean."""
    gradient = cov.site_precision(ep.tau)
    gradient *= -0.5
    gradient += np.outer(0.5 * ep.weights, ep.weights)
    return gradient


def cavities(cov: WithSites, ep: EPResult) -> tuple[FloatArray, FloatArray]:
    """Means and deviations of the Gaussian without each site in turn.

    Where a factor has a parameter, the derivative in it is the mean of that of the log factor under
    cavity times factor (`SiteFactors.nodes`).
    """
    mean, variance = cavity(ep.mean, ep.variance, ep.tau, ep.nu, r.LEAST_CAVITY / cov.diagonal())
    return mean, np.sqrt(variance)
