"""Parameters of a unified skew-normal distribution, in cross-covariance form; algebra."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cho_solve
from scipy.linalg.lapack import dpotri

from pymc_skewgp._errors import (
    ContradictoryPseudoPointsError,
    DoublePrecisionError,
    NotPositiveDefiniteError,
    no_warnings,
)
from pymc_skewgp._gaussian import covariance, escalation, independent, linalg, truncated
from pymc_skewgp._gaussian.ep import ep_gradient, fit_ep
from pymc_skewgp._gaussian.escalation import LARGEST_EFFECT
from pymc_skewgp._gaussian.linalg import cholesky, low_rank_factor, row_limits, symmetric
from pymc_skewgp._gaussian.log_prob_gradient import ROUND_OFF, log_prob_and_gradient
from pymc_skewgp._gaussian.weights import systematic_resample
from pymc_skewgp._validation import FloatArray, as_covariance, as_vector


class SunParameters(NamedTuple):
    r"""One record of the parameters, for arrays and for graphs of them alike.

    .. math:: \begin{pmatrix} x_0 \\ x_1 \end{pmatrix} \sim N\left(0,
        \begin{pmatrix} \Gamma & C^\top \\ C & \Omega \end{pmatrix}\right), \qquad
        z = \mu + x_1 \;\text{ given }\; x_0 > -\gamma

    The skewness matrix :math:`\Delta = \mathrm{diag}(\Omega)^{-1/2} C` of the literature is an
    argument or an attribute of what users see, and nowhere else.

    Attributes
    ----------
    mu : (p,)
        Location.
    scale : (p, p)
        Omega.
    cross_cov : (p, s)
        C, covariance with the latent variable x_0.
    truncation : (s,)
        gamma.
    latent_cov : (s, s)
        Gamma, covariance of the latent variable.
    """

    mu: Any
    scale: Any
    cross_cov: Any
    truncation: Any
    latent_cov: Any


def checked_parameters(
    mu: ArrayLike,
    scale: FloatArray,
    cross_cov: FloatArray,
    truncation: ArrayLike,
    latent_cov: ArrayLike,
    cross_name: str,
) -> SunParameters:
    """Parameters of the right shapes, whose covariances are positive definite.

    Raises
    ------
    ValueError, NotPositiveDefiniteError
        The message calls the cross-covariance what the caller gave it as.
    """
    p, s = cross_cov.shape
    location = as_vector("mu", mu, p)
    gamma = as_vector("truncation", truncation, s)
    if s == 0:
        linalg.cholesky("scale", scale)
        return SunParameters(location, scale, cross_cov, gamma, np.zeros((0, 0)))
    latent = as_covariance("latent_cov", latent_cov, s)
    linalg.cholesky("scale", scale)
    linalg.cholesky("latent_cov", latent)
    joint = np.block([[latent, cross_cov.T], [cross_cov, scale]])
    linalg.cholesky(f"[[latent_cov, C'], [C, scale]] (C from {cross_name})", joint)
    return SunParameters(location, scale, cross_cov, gamma, latent)


def read_only(sun: SunParameters) -> SunParameters:
    """Copies that cannot be written to."""
    copies = [np.array(parameter) for parameter in sun]
    for copy in copies:
        copy.flags.writeable = False
    return SunParameters(*copies)


# Marginals, conditionals and affine maps of SUN parameters.

Rows = NDArray[np.intp]


def marginal(sun: SunParameters, rows: Rows) -> SunParameters:
    """Of the coordinates `rows`."""
    return sun._replace(
        mu=sun.mu[rows], scale=sun.scale[np.ix_(rows, rows)], cross_cov=sun.cross_cov[rows]
    )


def conditional(sun: SunParameters, given: Rows, rest: Rows, value: FloatArray) -> SunParameters:
    r"""Of the coordinates `rest`, given that those in `given` equal `value`.

    Of many values, (m, n), `mu` and `truncation` have a row each. With the given coordinates as 1,
    the others as 2:

    .. math::

        \mu_2 + \Omega_{21}\Omega_{11}^{-1}(z_1 - \mu_1), \quad
        \Omega_{22} - \Omega_{21}\Omega_{11}^{-1}\Omega_{12}, \quad
        C_2 - \Omega_{21}\Omega_{11}^{-1} C_1,

        \gamma + C_1^\top\Omega_{11}^{-1}(z_1 - \mu_1), \quad
        \Gamma - C_1^\top\Omega_{11}^{-1}C_1.
    """
    offset = value - sun.mu[given]
    known, shared = sun.scale[np.ix_(given, given)], sun.scale[np.ix_(given, rest)]
    chol, _ = linalg.cholesky("scale of the given coordinates", known)
    weights = cho_solve((chol, True), shared)
    cross = sun.cross_cov[given]
    pull = cho_solve((chol, True), cross)
    return SunParameters(
        sun.mu[rest] + offset @ weights,
        symmetric(sun.scale[np.ix_(rest, rest)] - shared.T @ weights),
        sun.cross_cov[rest] - weights.T @ cross,
        sun.truncation + offset @ pull,
        symmetric(sun.latent_cov - cross.T @ pull),
    )


def draws_beyond(sun: SunParameters, values: FloatArray, rng: np.random.Generator) -> FloatArray:
    """A draw of the last coordinates, (m, t), given each of many values of the first, (m, n)."""
    first, rest = np.split(np.arange(sun.mu.size), [values.shape[1]])
    given = conditional(sun, first, rest, values)
    if not sun.truncation.size:
        factor = low_rank_factor(given.scale)
        return given.mu + rng.standard_normal((len(values), factor.shape[1])) @ factor.T
    each = zip(given.mu, given.truncation, strict=True)
    own = (given._replace(mu=mu, truncation=truncation) for mu, truncation in each)
    return np.concatenate([sun_draws(one, 1, rng) for one in own])


def affine(sun: SunParameters, A: FloatArray, b: FloatArray) -> SunParameters:
    """Of A z + b."""
    return sun._replace(
        mu=A @ sun.mu + b, scale=symmetric(A @ sun.scale @ A.T), cross_cov=A @ sun.cross_cov
    )


def coordinates(n_dims: int, idx: ArrayLike | slice) -> Rows:
    """What `idx` names among so many coordinates: at least one, and each once."""
    try:
        rows = np.atleast_1d(np.arange(n_dims)[idx])  # type: ignore[index]
    except IndexError as error:
        raise IndexError(f"idx does not fit {n_dims} coordinates: {error}.") from error
    if rows.size == 0 or np.unique(rows).size != rows.size:
        raise ValueError(f"idx must name at least one coordinate, each once; got {idx!r}.")
    return rows


# Signs so improbable that round-off in their covariance decides their probability.
#
# A smooth function has one sign over a lengthscale. Given others at points close by, it has to pass
# through 0 between them again and again: its values there are of the size of the smallest
# eigenvalues of their covariance, and once these are round-off, so is the probability.

# Trace of the inverse of a correlation matrix up to which round-off is harmless: the derivative of
# a log probability in the variances is half of E|v|^2, v = Gamma^-1 u, and that at most this trace
# times the squared length of white noise, s plus twice the log probability or so.
_SAFE_INVERSE = 1e8
_EP_TOLERANCE = 1e-3
_CERTAIN = 10.0 * LARGEST_EFFECT  # nats: an effect that EP need not have converged for
# Added to the variances until a probability can be computed, which is then too large.
_COARSE = (1e-12, 1e-10, 1e-8)


class RoundOffEffect(NamedTuple):
    """What double precision leaves of a log probability.

    Attributes
    ----------
    nats : float
        What the log probability changes by when round-off is added to the variances; infinite
        where it cannot be computed at all.
    log_prob : float
        The log probability, roughly; where `nats` is large, what it is below. NaN: not known.
    """

    nats: float
    log_prob: float


def round_off_effect(
    latent_cov: FloatArray, truncation: FloatArray, added: float = 0.0
) -> RoundOffEffect:
    r"""What round-off does to the log probability that u + truncation > 0, u ~ N(0, latent_cov).

    .. math:: \delta \left| \mathrm{tr}\, \frac{\partial \log P}{\partial \Gamma} \right|,
        \qquad \delta = \max(10^{-13}, \text{jitter})

    for a covariance scaled to unit variances, with the jitter that its factorisation takes. By
    expectation propagation; where that does not converge, by the sampler.

    Parameters
    ----------
    latent_cov : ndarray, shape (s, s)
    truncation : ndarray, shape (s,)
    added : float, default 0
        A larger jitter that the variances get elsewhere, in units of the smallest.

    Returns
    -------
    RoundOffEffect

    Examples
    --------
    Three signs that alternate, a tenth or a thousandth of a lengthscale apart:

    >>> import numpy as np
    >>> from pymc_skewgp._sun.parameters import round_off_effect
    >>> x, phase = np.arange(3), np.array([1.0, -1.0, 1.0])
    >>> for spacing in (1e-1, 1e-3):
    ...     cov = np.exp(-0.5 * (spacing * (x - x[:, None])) ** 2) * phase * phase[:, None]
    ...     print(f"{round_off_effect(cov, np.zeros(3)).nats:.1f}")
    0.0
    0.2
    """
    s = truncation.size
    if s <= 2:  # in closed form, and coincident points are refused by themselves
        return RoundOffEffect(0.0, np.nan)
    sd = np.sqrt(latent_cov.diagonal())
    correlation = latent_cov / sd / sd[:, None]
    try:
        with no_warnings():
            chol, jitter = linalg.cholesky("latent_cov", correlation)
    except NotPositiveDefiniteError:  # no round-off, and refused where it is used
        return RoundOffEffect(0.0, np.nan)
    delta = max(ROUND_OFF, jitter, added)
    if delta * np.trace(dpotri(chol, lower=1)[0]) < ROUND_OFF * _SAFE_INVERSE:
        return RoundOffEffect(0.0, np.nan)
    return _effect(correlation, truncation / sd, delta)


def refuse_contradictory_points(
    latent_cov: FloatArray, truncation: FloatArray, added: float = 0.0
) -> None:
    """Refuse pseudo-points whose signs have a probability that double precision cannot hold.

    Raises
    ------
    ContradictoryPseudoPointsError
        It says how improbable they are.
    """
    effect = round_off_effect(latent_cov, truncation, added)
    if not effect.nats <= LARGEST_EFFECT:
        known = _how_improbable(effect, latent_cov, truncation)
        raise ContradictoryPseudoPointsError(
            "pseudo_points and phase contradict each other: f changes its sign between points too "
            f"close together for its kernel. {known} Take fewer pseudo_points, a shorter "
            "lengthscale, or phases that agree between neighbours."
        )


def refuse_contradictory_latent(latent_cov: FloatArray, truncation: FloatArray) -> None:
    """The same for a unified skew-normal distribution, with its own names.

    Raises
    ------
    DoublePrecisionError
        It says how improbable the orthant is.
    """
    effect = round_off_effect(latent_cov, truncation)
    if not effect.nats <= LARGEST_EFFECT:
        known = _how_improbable(effect, latent_cov, truncation)
        raise DoublePrecisionError(
            "latent_cov is singular to round-off, and truncation asks for an orthant that it "
            f"hardly allows. {known} Drop latent dimensions that are nearly "
            "functions of the others, or raise truncation."
        )


@contextmanager
def naming_the_labels(n_pseudo_points: int) -> Iterator[None]:
    """Say of a sampler's failure that labels and pseudo-points are what it failed at.

    For pseudo-points that have passed `refuse_contradictory_points`.

    Raises
    ------
    DoublePrecisionError
        In place of what was raised, where there are pseudo-points.
    """
    try:
        yield
    except NotPositiveDefiniteError:
        raise
    except (FloatingPointError, np.linalg.LinAlgError) as error:
        if not n_pseudo_points:
            raise
        raise DoublePrecisionError(
            "the labels y contradict pseudo_points and phase: that both hold is so improbable that "
            f"it is beyond double precision ({error}) Lower the kernel's variance, or move "
            "pseudo_points away from labels of the other sign."
        ) from error


def _how_improbable(effect: RoundOffEffect, latent_cov: FloatArray, truncation: FloatArray) -> str:
    log_probs = [effect.log_prob]
    for coarse in _COARSE:
        if not np.isfinite(log_probs[-1]):
            log_probs.append(round_off_effect(latent_cov, truncation, coarse).log_prob)
    known = f" (it is below about {log_probs[-1]:.0f})" if np.isfinite(log_probs[-1]) else ""
    return (
        f"The log prior probability of that cannot be computed in double precision{known}: "
        "round-off in the covariance decides it."
    )


def _effect(correlation: FloatArray, truncation: FloatArray, delta: float) -> RoundOffEffect:
    """The effect of `delta` on the variances, where `delta` has been added to them."""
    matrix = correlation.copy()
    matrix[np.diag_indices_from(matrix)] += delta
    lower, upper = row_limits(-truncation, np.inf, truncation.size)
    with no_warnings(), np.errstate(all="ignore"):
        try:
            cov = covariance.DenseCovariance(matrix)
            ep = fit_ep(cov, lower, upper, tol=_EP_TOLERANCE)
            trace = float(np.trace(ep_gradient(cov, ep, lower, upper).cov))
            log_prob = ep.log_prob
            # Before it converges it may miss a large effect, but does not invent one.
            converged = ep.residual < _EP_TOLERANCE or delta * abs(trace) > _CERTAIN
        except (np.linalg.LinAlgError, ArithmeticError, ValueError):
            converged = False
        if not converged:
            sampled = log_prob_and_gradient(lower, upper, matrix)
            log_prob, trace = sampled.value, float(np.trace(sampled.cov))
    if not (np.isfinite(log_prob) and np.isfinite(trace)):
        return RoundOffEffect(np.inf, np.nan)
    return RoundOffEffect(delta * abs(trace), log_prob)


# Draws of a unified skew-normal vector: spread evenly for means, or independent of each other.
#
# .. math:: z = \mu + C \Gamma^{-1} u + (\Omega - C \Gamma^{-1} C^\top)^{1/2} e, \qquad
#     u \sim N(0, \Gamma) \text{ given } u > -\gamma, \quad e \sim N(0, I)

# Weighted draws to resample from, at least: a few would still be the proposal's.
_LEAST_WEIGHTED = 512


def sun_draws(
    sun: SunParameters, n_draws: int, rng: np.random.Generator, *, evenly: bool = False
) -> FloatArray:
    """Draws independent of each other, shape (n_draws, p): rows of a data set.

    Or draws whose latent u are spread `evenly`, for means over the draws: at least four proposals
    by the twisted sampler for each, resampled by weight.

    See `independent_draws` for u.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_skewgp import SUN
    >>> from pymc_skewgp._sun.parameters import sun_draws
    >>> sun = SUN([0.0, 0.0], np.eye(2), [[0.9], [0.0]], [0.0], [[1.0]])
    >>> sun_draws(sun.parameters, 3, np.random.default_rng(0)).shape
    (3, 2)
    """
    if not sun.truncation.size:
        noise = rng.standard_normal((n_draws, sun.mu.size))
        return sun.mu + noise @ cholesky("scale", sun.scale)[0].T
    refuse_contradictory_latent(sun.latent_cov, sun.truncation)
    latent_cov = covariance.DenseCovariance(sun.latent_cov, "latent_cov")
    if evenly:
        sampler = escalation.RectangleSampler(latent_cov, -sun.truncation, np.inf)
        latent = truncated.draws_by(sampler, max(4 * n_draws, _LEAST_WEIGHTED), rng)
        u = latent.draws[systematic_resample(latent.log_weights, n_draws, rng)]
    else:
        u = independent.independent_draws(latent_cov, -sun.truncation, np.inf, n_draws, rng)
    regression = cho_solve((latent_cov.chol, True), sun.cross_cov.T)
    residual = low_rank_factor(sun.scale - sun.cross_cov @ regression)
    noise = rng.standard_normal((n_draws, residual.shape[1]))
    return sun.mu + u @ regression + noise @ residual.T
