"""Probabilities and draws of a multivariate normal restricted to a rectangle: the public face."""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from pymc_skewgp._gaussian.operators.dense import DenseCovariance
from pymc_skewgp._gaussian.proposals.escalation import RectangleSampler
from pymc_skewgp._gaussian.rectangle import draws_by, lin_ess_draws_by, log_prob_rectangle
from pymc_skewgp._gaussian.truncated_draws import TruncatedDraws
from pymc_skewgp._gaussian.weights import Estimate
from pymc_skewgp._validation import (
    Seed,
    as_bounds,
    as_count,
    as_covariance,
    as_generator,
    as_positive,
    as_vector,
)


def mvn_logcdf(
    x: ArrayLike,
    cov: ArrayLike,
    *,
    lower: ArrayLike | None = None,
    n_draws: int = 1024,
    rtol: float | None = None,
    random_seed: Seed = 0,
) -> Estimate:
    r"""Log probability that a multivariate normal lies in a rectangle.

    .. math:: \log P(l < u \le x), \qquad u \sim N(0, \Sigma)

    Exact for N <= 2. Otherwise importance sampling: coordinates are drawn one after another, each
    truncated exactly, under a Gaussian "twist" from expectation propagation that stands for the
    limits still to come; the points are randomised quasi-Monte Carlo. Where the weights collapse
    (large correlations with steep limits), the sampler widens its proposal and then tempers.

    Parameters
    ----------
    x : array_like, shape (N,)
        Upper limits, in the units of the variable; infinite entries are allowed. A scalar is
        repeated.
    cov : array_like, shape (N, N)
        Covariance: symmetric, positive definite.
    lower : array_like, shape (N,), optional
        Lower limits, below `x`. Default: minus infinity.
    n_draws : int, default 1024
        Draws. Cost grows as N^2 `n_draws` + N^3.
    rtol : float, optional
        Standard error of the log probability (the relative error of the probability) to go on for,
        doubling the draws. Default: one run of `n_draws`, tempering until the error is 0.1.
    random_seed : int, Generator, SeedSequence or None, default 0
        Fixed by default, so that equal arguments give equal values.

    Returns
    -------
    Estimate
        ``value``, ``std_error`` (from 16 independent randomisations; 0 where exact),
        ``relative_ess``, ``pareto_k``.

    Raises
    ------
    ValueError
        NaN, shapes that do not fit, `cov` not symmetric, a lower limit not below its upper one,
        `n_draws` < 1.
    NotPositiveDefiniteError
        `cov` not positive definite; the message says by how much.

    Warns
    -----
    LowEffectiveSampleWarning
        When the standard error stayed above `rtol` (0.1 without it).
    JitterWarning
        When `cov` was singular to round-off and a jitter was added.

    References
    ----------
    .. [1] A. Genz (1992), Numerical computation of multivariate normal probabilities,
       doi:10.1080/10618600.1992.10477010.
    .. [2] Z. I. Botev (2017), The normal law under linear restrictions: simulation and estimation
       via minimax tilting, arXiv:1603.04166.
    .. [3] J. P. Cunningham, P. Hennig & S. Lacoste-Julien (2011), Gaussian probabilities and
       expectation propagation, arXiv:1111.6832.

    Examples
    --------
    All N variables equicorrelated with correlation 1/2 are negative with probability 1/(N + 1):

    >>> import numpy as np
    >>> from pymc_skewgp import mvn_logcdf
    >>> cov = 0.5 * np.eye(100) + 0.5
    >>> estimate = mvn_logcdf(np.zeros(100), cov)
    >>> print(f"{estimate.value:.3f}, exact {-np.log(101):.3f}")
    -4.615, exact -4.615
    """
    matrix = as_covariance("cov", cov)
    size = matrix.shape[0]
    high = as_vector("x", x, size, allow_inf=True)
    count = as_count("n_draws", n_draws)
    if rtol is not None:
        rtol = as_positive("rtol", rtol)
    rng = as_generator(random_seed)
    low = as_vector("lower", -np.inf if lower is None else lower, size, allow_inf=True)
    if (high == -np.inf).any():
        return Estimate(-np.inf, 0.0, 1.0, -np.inf)
    low, high = as_bounds(low, high, size, upper_name="x")
    return log_prob_rectangle(matrix, low, high, count, rtol, rng)


def truncated_mvn(
    cov: ArrayLike,
    lower: ArrayLike | None,
    upper: ArrayLike | None,
    *,
    n_draws: int = 1024,
    method: Literal["twisted", "lin_ess"] = "twisted",
    n_chains: int = 8,
    thin: int = 1,
    random_seed: Seed = None,
) -> TruncatedDraws:
    r"""Draws of a multivariate normal restricted to a rectangle.

    .. math:: u \sim N(0, \Sigma) \text{ given } l < u < x

    Parameters
    ----------
    cov : array_like, shape (N, N)
        Covariance: symmetric, positive definite.
    lower, upper : array_like, shape (N,), or None
        Limits, in the units of the variable; infinite entries and None (unbounded) are allowed.
    n_draws : int, default 1024
        Draws returned.
    method : {"twisted", "lin_ess"}
        "twisted": independent weighted draws by sequential sampling under EP's twist; falls back
        on tempering where the weights collapse. "lin_ess": linear elliptical slice sampling, a
        Markov chain that never rejects, but whose steps shrink like 1/N.
    n_chains : int, default 8
        Chains of lin-ess (fewer where that does not divide `n_draws`), started from resampled
        twisted draws, so that no burn-in is needed.
    thin : int, default 1
        Steps of lin-ess for each draw kept.
    random_seed : int, Generator, SeedSequence or None
        Source of randomness.

    Returns
    -------
    TruncatedDraws
        Draws with log weights and diagnostics; ``equally_weighted()`` resamples them.

    Raises
    ------
    ValueError, NotPositiveDefiniteError
        As `mvn_logcdf`.

    Warns
    -----
    LowEffectiveSampleWarning
        When the relative ESS of the draws is below a tenth.

    References
    ----------
    .. [1] A. Gessner, O. Kanjilal & P. Hennig (2020), Integrals over Gaussians under linear domain
       constraints, arXiv:1910.09328.
    .. [2] Z. I. Botev (2017), arXiv:1603.04166.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_skewgp import truncated_mvn
    >>> cov = 0.5 * np.eye(50) + 0.5
    >>> result = truncated_mvn(cov, 0.0, None, n_draws=500, random_seed=1)
    >>> bool((result.draws > 0).all()), result.method
    (True, 'twisted')
    """
    matrix = as_covariance("cov", cov)
    low, high = as_bounds(lower, upper, matrix.shape[0])
    count = as_count("n_draws", n_draws)
    rng = as_generator(random_seed)
    if method not in ("twisted", "lin_ess"):
        raise ValueError(f'method must be "twisted" or "lin_ess", got {method!r}.')
    chains = {"n_chains": as_count("n_chains", n_chains), "thin": as_count("thin", thin)}
    sampler = RectangleSampler(DenseCovariance(matrix), low, high)
    if method == "twisted":
        return draws_by(sampler, count, rng)
    return lin_ess_draws_by(sampler, count, rng, **chains)
