"""Signs so improbable that round-off in their covariance decides their probability.

A smooth function has one sign over a lengthscale. Given others at points close by, it has to pass
through 0 between them again and again: its values there are of the size of the smallest
eigenvalues of their covariance, and once these are round-off, so is the probability.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dpotri

from pymc_skewgp._errors import (
    ContradictoryPseudoPointsError,
    DoublePrecisionError,
    NotPositiveDefiniteError,
    no_warnings,
)
from pymc_skewgp._gaussian import linalg
from pymc_skewgp._gaussian.limits import row_limits
from pymc_skewgp._gaussian.log_prob_gradient import (
    LARGEST_EFFECT,
    ROUND_OFF,
    log_prob_and_gradient,
)
from pymc_skewgp._gaussian.operators.dense import DenseCovariance
from pymc_skewgp._gaussian.proposals.ep import fit_ep
from pymc_skewgp._gaussian.proposals.ep_gradient import ep_gradient
from pymc_skewgp._validation import FloatArray

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
    >>> from pymc_skewgp._sun.contradiction import round_off_effect
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
            cov = DenseCovariance(matrix)
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
