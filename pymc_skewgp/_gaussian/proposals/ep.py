"""Expectation propagation for a Gaussian times one factor for each of its rows.

One Gaussian site exp(-tau u^2/2 + nu u) stands in for each factor (Minka 2001). A factor is the
indicator of an interval, on u itself: the rectangular case, in which EP is accurate (Cunningham,
Hennig & Lacoste-Julien 2011, arXiv:1111.6832); or p(y_i | u_i) of any likelihood. EP's Gaussian is
the twist of the sequential sampler; its evidence is an approximation with a gradient.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np

from pymc_skewgp._errors import EPConvergenceWarning, warn
from pymc_skewgp._gaussian.anderson import AndersonMixing
from pymc_skewgp._gaussian.operators.covariance import SiteProduct, WithSites
from pymc_skewgp._gaussian.operators.dense import DenseCovariance
from pymc_skewgp._gaussian.operators.low_rank import LowRankCovariance
from pymc_skewgp._gaussian.proposals.ep_sequential import sequential_sites
from pymc_skewgp._gaussian.tilted import Factors, Intervals
from pymc_skewgp._validation import FloatArray

# Fraction of a row's variance that its site may take: keeps tau finite and non-negative.
SHRINKAGE = (1e-12, 1.0 - 1e-12)
_LEAST_DAMPING = 0.1
# Share of its precision, old or new, below which mixing never takes a site: it must stay proper.
_LEAST_KEPT = 0.1
# Sweeps after which all sites at once have to be near the fixed point, and the residual there. Else
# they move one by one for a while, for which all of G has to be in memory.
_PATIENCE, _NEAR, _MOST_ONE_BY_ONE = 25, 0.3, 2000


class HasSites(Protocol):
    """What EP can begin with."""

    @property
    def tau(self) -> FloatArray:
        """Precisions."""
        ...

    @property
    def nu(self) -> FloatArray:
        """Precisions times means."""
        ...


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


class _Cavities(NamedTuple):
    """The Gaussian without each site in turn, and its moments with the factor in its place.

    `shift` and `spread` are mean and variance in units of the cavity.
    """

    variance: FloatArray  # of the Gaussian with all sites
    cavity_mean: FloatArray
    cavity_var: FloatArray
    cavity_sd: FloatArray
    log_mass: FloatArray
    shift: FloatArray
    spread: FloatArray


def fit_ep(
    cov: WithSites,
    lower: FloatArray,
    upper: FloatArray,
    *,
    tol: float = 1e-3,
    max_sweeps: int = 200,
    start: HasSites | None = None,
    count: FloatArray | None = None,
) -> EPResult:
    r"""`fit_factors` for a rectangle, lower < u < upper, infinities allowed.

    Where all sites at once come no nearer, they move one by one for up to 30 sweeps and then
    together again: see `sequential_sites`. `max_sweeps` counts sweeps of all sites at once.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_skewgp._gaussian.operators.dense import DenseCovariance
    >>> from pymc_skewgp._gaussian.proposals.ep import fit_ep
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
    start: HasSites | None = None,
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
        Rows that each row stands for, where `cov` is a `RepeatedCovariance`.

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
    start: HasSites | None,
    count: FloatArray | None,
) -> EPResult:
    """See `fit_factors`."""
    prior, active = cov.diagonal(), factors.active
    tau, nu = (np.zeros(cov.size), np.zeros(cov.size)) if start is None else (start.tau, start.nu)
    damping, previous, mixing = 1.0, np.inf, AndersonMixing()
    work = cov.workspace()
    product = cov.site_product(tau, nu, work)
    residual = np.inf
    for sweep in range(1, max_sweeps + 1):
        cavities = _cavities(product, tau, nu, prior, factors)
        variance, cavity_mean, cavity_var, cavity_sd, _, shift, spread = cavities
        tilted_mean = cavity_mean + cavity_sd * shift
        residual = factors.residual(
            np.abs(tilted_mean - product.mean) / np.sqrt(variance),
            np.abs(np.log(cavity_var * spread / variance)),
        )
        if residual < tol or sweep == max_sweeps:
            break
        if residual > previous:
            damping = max(_LEAST_DAMPING, 0.7 * damping)
            mixing.forget()
        previous = residual
        taken = np.clip(1.0 - spread, *SHRINKAGE)
        kept = cavity_var * np.where(spread < 0.5, spread, 1.0 - taken)
        new_tau = np.where(active, taken / kept, 0.0)
        new_nu = np.where(active, (cavity_mean * taken + cavity_sd * shift) / kept, 0.0)
        sites, new = np.concatenate([tau, nu]), np.concatenate([new_tau, new_nu])
        mixed = mixing(sites, new, np.concatenate([variance, np.sqrt(variance)]))
        proper = mixed[: tau.size] >= _LEAST_KEPT * np.minimum(tau, new_tau)
        if mixed is new or not proper.all():
            mixed = (1.0 - damping) * sites + damping * new
        tau, nu = np.split(mixed, 2)
        product = cov.site_product(tau, nu, work)
    log_scales = _log_scales(cavities, tau, nu)
    if count is not None:
        log_scales = count * log_scales
    log_prob = float(log_scales[active].sum()) + product.log_constant
    return EPResult(
        tau, nu, product.mean, product.variance, product.weights, log_prob, sweep, residual
    )


def _cavities(
    product: SiteProduct,
    tau: FloatArray,
    nu: FloatArray,
    prior: FloatArray,
    factors: Factors,
) -> _Cavities:
    # Round-off may leave a marginal at its site's variance: the cavity must stay proper.
    variance = np.clip(product.variance, 1e-14 * prior, prior)
    cavity_precision = np.maximum(1.0 / variance - tau, 1e-10 / prior)
    cavity_var = 1.0 / cavity_precision
    cavity_mean = cavity_var * (product.mean / variance - nu)
    cavity_sd = np.sqrt(cavity_var)
    log_mass, shift, spread, _ = factors.tilted(cavity_mean, cavity_sd)
    # A site never says more than this: stronger ones would leave no digits of the cavity.
    spread = np.maximum(spread, SHRINKAGE[0])
    return _Cavities(variance, cavity_mean, cavity_var, cavity_sd, log_mass, shift, spread)


def _log_scales(cavities: _Cavities, tau: FloatArray, nu: FloatArray) -> FloatArray:
    """Log of each site's scale: mass of the tilted over that of cavity times unscaled site."""
    mean, var = cavities.cavity_mean, cavities.cavity_var
    ratio = 1.0 + tau * var
    quadratic = (mean**2 * tau - 2.0 * mean * nu - var * nu**2) / ratio
    log_scales: FloatArray = cavities.log_mass + 0.5 * np.log(ratio) + 0.5 * quadratic
    return log_scales
