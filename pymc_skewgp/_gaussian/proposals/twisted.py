r"""Sequential sampling of a truncated Gaussian, twisted by expectation propagation.

The coordinates of u ~ N(0, G), restricted to lower < u < upper, are drawn one after another, each
from its exact truncated conditional under the target in which all *later* restrictions are replaced
by their EP sites. EP writes N(u; 0, G) prod_i t_i(u_i) = Z N(u; m, S), so with S = C C' the step
for coordinate k is, given the earlier ones, N(c_k, C_kk^2) with its own site divided out and its
own interval put in. The weight of a whole draw is Z times the product of the steps' normalisers,
and its mean is an unbiased estimate of P(lower < u < upper).

Without the sites this is the separation of variables of Genz (1992); the sites let each step know
of the restrictions to come.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from pymc_skewgp._gaussian import linalg
from pymc_skewgp._gaussian.operators.covariance import Covariance
from pymc_skewgp._gaussian.proposals.ep import EPResult
from pymc_skewgp._gaussian.proposals.ep_dense import EPWithCovariance
from pymc_skewgp._gaussian.proposals.leading import (
    LeadingDirection,
    SiteGaussian,
    leading_direction,
)
from pymc_skewgp._gaussian.proposals.site_ratio import log_site_ratio
from pymc_skewgp._gaussian.proposals.tabulated import TabulatedDensity
from pymc_skewgp._gaussian.proposals.unseen import unseen_share
from pymc_skewgp._gaussian.univariate import draw_truncated
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._validation import FloatArray

_BLOCK = 32  # rows drawn between two matrix products
_LOG_SQRT_2PI = 0.5 * np.log(2.0 * np.pi)


class Steps(NamedTuple):
    """The conditional of each coordinate given the earlier ones, all of shape (n,).

    Of the centre c_k step k takes the cavity's mean gain c_k - shift, and its limits in units of
    `sd`. Its normaliser is exp(square c_k^2 - linear c_k + log_scale) times a Gaussian mass: p m^2
    - c^2/s^2 of the cavity's mean m, written without its cancellation for weak sites.

    Attributes
    ----------
    scale, sd : ndarray
        Of a coordinate under the twisting Gaussian, and of its cavity.
    shift, slope : ndarray
        Of the cavity's mean; gain over `sd`.
    low, high, width : ndarray
        Limits at c_k = 0 and their distance: narrow ones have no digits in high - low.
    square, linear, log_scale : ndarray
    """

    scale: FloatArray
    sd: FloatArray
    shift: FloatArray
    slope: FloatArray
    low: FloatArray
    high: FloatArray
    width: FloatArray
    square: FloatArray
    linear: FloatArray
    log_scale: FloatArray


@dataclass(frozen=True)
class TwistedProposal:
    """A sequential proposal for a truncated Gaussian; build it with `twist`.

    Attributes
    ----------
    order : ndarray of int, shape (n,)
        Rows of u in the order in which they are drawn.
    chol : ndarray, shape (n + q, n + q)
        Cholesky factor of the twisting Gaussian's covariance in that order, after the q = 0 or 1
        leading directions.
    mean, tau, nu, lower, upper : ndarray, shape (n + q,)
        Mean of the twisting Gaussian, sites and limits, in that order.
    log_constant : float
        log Z.
    first : TabulatedDensity or None
        What the standardised leading direction is drawn from; None without one.
    direction : LeadingDirection or None
        What is known of that direction, also where it is not drawn; None where nobody asked.
    """

    order: IntArray
    chol: FloatArray
    mean: FloatArray
    tau: FloatArray
    nu: FloatArray
    lower: FloatArray
    upper: FloatArray
    log_constant: float
    first: TabulatedDensity | None = None
    direction: LeadingDirection | None = None

    @property
    def n_dims(self) -> int:
        """Uniforms needed for one draw."""
        return self.mean.size

    def draw(
        self, points: FloatArray, *, overwrite_points: bool = False
    ) -> tuple[FloatArray, FloatArray]:
        """Map uniform points to draws.

        Parameters
        ----------
        points : ndarray, shape (n_dims, n_draws)
            Uniforms in (0, 1), a draw a column.
        overwrite_points : bool, default False
            Whether `points` may be lost: for thousands of draws fresh memory takes as long to get
            as the draws.

        Returns
        -------
        u : ndarray, shape (n, n_draws)
            Draws within the limits, rows in the caller's order.
        log_weights : ndarray, shape (n_draws,)
            Log of target density over proposal density; the mean weight estimates P.
        """
        n_dims, n_draws = points.shape
        n_latent = n_dims - self.order.size
        # Row k of the noise comes to be when row k of the points has been read.
        noise = points if overwrite_points else np.empty((n_dims, n_draws))
        u = np.empty((self.order.size, n_draws))
        log_weights = np.full(n_draws, self.log_constant)
        if self.first is not None:
            drawn = self.first.quantile(points[0])
            log_weights -= 0.5 * drawn**2 + _LOG_SQRT_2PI + self.first.log_pdf(drawn)
            noise[0] = drawn
        steps = self.steps
        scale, sd, shift, slope = steps.scale, steps.sd, steps.shift, steps.slope
        low, high, width = steps.low, steps.high, steps.width
        square, linear = steps.square, steps.linear
        log_weights += steps.log_scale[n_latent:].sum()
        for start in range(n_latent, n_dims, _BLOCK):
            stop = min(start + _BLOCK, n_dims)
            base = self.chol[start:stop, :start] @ noise[:start]
            for k in range(start, stop):
                centre = base[k - start]
                if k > start:
                    centre += self.chol[k, start:k] @ noise[start:k]
                shifted = slope[k] * centre
                above = high[k] if high[k] == np.inf else high[k] - shifted
                z, log_mass = draw_truncated(points[k], low[k] - shifted, above, width[k])
                value = sd[k] * (z + shifted) - shift[k]
                # The sum may round to the far side of a limit.
                row = u[self.order[k - n_latent]]
                np.add(value, self.mean[k], out=row)
                np.maximum(row, self.lower[k], out=row)
                if self.upper[k] != np.inf:
                    np.minimum(row, self.upper[k], out=row)
                noise[k] = (value - centre) / scale[k]
                log_weights += log_mass
                log_weights += (square[k] * centre - linear[k]) * centre
        return u, log_weights

    @cached_property
    def steps(self) -> "Steps":
        """What is the same for all draws."""
        scale = self.chol.diagonal()
        precision = 1.0 / scale**2 - self.tau
        sd = 1.0 / np.sqrt(precision)
        gain, shift = 1.0 / (scale**2 * precision), self.nu / precision
        return Steps(
            scale,
            sd,
            shift,
            gain / sd,
            (self.lower - self.mean + shift) / sd,
            (self.upper - self.mean + shift) / sd,
            (self.upper - self.lower) / sd,
            0.5 * gain * self.tau,
            gain * self.nu,
            0.5 * (np.log(gain) + gain * self.nu**2 * scale**2),
        )

    def unseen_share(self, n_draws: int) -> float:
        """Relative error of the probability from tails that `n_draws` draws hardly meet."""
        return unseen_share(self, n_draws)

    def log_weights_of(self, u: FloatArray) -> FloatArray:
        """Log weights of given points: target density over proposal density, as `draw` returns.

        All conditional centres of a point are known at once: with noise e = C^-1 (u - m), that of
        coordinate k lies C_kk e_k below u_k, so one triangular solve replaces the recursion.

        Parameters
        ----------
        u : ndarray, shape (n, k)
            Points as columns, rows in the caller's order.

        Returns
        -------
        ndarray, shape (k,)
            Minus infinity for points outside the limits.

        Raises
        ------
        ValueError
            For a proposal with a leading direction, whose value no point determines.
        """
        if self.n_dims != self.order.size:
            raise ValueError(
                "the weight of a point needs a proposal without a leading direction: build it "
                "with twist(..., power=None)."
            )
        columns = (self.mean, self.lower, self.upper, self.chol.diagonal(), self.tau, self.nu)
        mean, lower, upper, scale, tau, nu = (x[:, None] for x in columns)
        points = u[self.order]
        outside = ((points < lower) | (points > upper)).any(axis=0)
        value, low, high = points - mean, lower - mean, upper - mean
        noise = solve_triangular(self.chol, value, lower=True, check_finite=False)
        centre = value - scale * noise
        steps = log_site_ratio(centre, scale**2, tau, nu, low, high)
        return np.where(outside, -np.inf, self.log_constant + steps.sum(axis=0))


def twist(
    cov: Covariance,
    ep: EPResult,
    lower: FloatArray,
    upper: FloatArray,
    *,
    relax: float = 1.0,
    power: float | None = None,
    least_divergence: float = 0.0,
    order: IntArray | None = None,
) -> TwistedProposal:
    """Build the twisted proposal from EP's sites.

    Parameters
    ----------
    cov : Covariance
        Covariance of the untruncated Gaussian.
    ep : EPResult
        Sites to twist with.
    lower, upper : ndarray, shape (n,)
        Limits.
    relax : float in (0, 1], default 1
        Power to which the sites are raised. Below 1 the proposal is wider than EP's Gaussian:
        fewer effective draws where EP is accurate, a bounded tail of weights where it is not.
    power : float in (0, 1], optional
        Draw the direction that moves most sites at once before all coordinates, from its density
        under the target (`LeadingDirection`) to this power. Below 1 both tails are heavier than
        the target's, and the weights that this costs are a smooth function of the first point
        coordinate, which quasi-Monte Carlo integrates nearly exactly. None: no such direction.
    least_divergence : float, default 0
        No leading direction where its density is nearer than this to EP's Gaussian
        (`LeadingDirection.divergence`): there it only keeps the first coordinates from their exact
        conditionals.
    order : ndarray of int, shape (n,), optional
        Rows in the order in which to draw them. Default: the most informative first, which changes
        with the covariance and the limits.

    Returns
    -------
    TwistedProposal
    """
    tau, nu = relax * ep.tau, relax * ep.nu
    product = cov.site_product(tau, nu)
    posterior = cov.site_covariance(tau)
    if order is None:
        # The share of a row's variance that its own site takes: how much the restriction says.
        order = np.argsort(-ep.tau * ep.variance, kind="stable")
    # Measured from the Gaussian's mean m = G alpha, u = m + w, its density is N(m; 0, G) times
    # exp(-alpha'w - w'G^-1 w / 2), and sites exp(-tau w^2/2 + alpha w) make it N(w; 0, S). Sites
    # in u would bring terms in tau m^2, whose cancellation costs nats where m is many deviations.
    mean, nu = cov.multiply(product.weights), product.weights
    log_constant = -0.5 * float(nu @ mean) - 0.5 * product.log_det
    mean, tau, nu = mean[order], tau[order], nu[order]
    low, high = lower[order], upper[order]
    posterior = posterior[np.ix_(order, order)]
    direction = first = None
    if power is not None:
        gaussian = SiteGaussian(order, mean, posterior, tau, nu, low, high)
        direction = leading_direction(cov, gaussian)
    if power is not None and direction is not None and direction.divergence >= least_divergence:
        first = direction.density.flattened(power)
        row = direction.row
        posterior = np.block(
            [[np.array([[direction.variance]]), row[None]], [row[:, None], posterior]]
        )
        mean = np.append(direction.mean, mean)
        tau, nu = np.append(0.0, tau), np.append(0.0, nu)
        low, high = np.append(-np.inf, low), np.append(np.inf, high)
    chol, _ = linalg.cholesky("the posterior covariance", posterior)
    return TwistedProposal(
        order,
        np.ascontiguousarray(chol),
        mean,
        tau,
        nu,
        low,
        high,
        log_constant,
        first,
        direction,
    )


def twist_by_covariance(
    found: EPWithCovariance, lower: FloatArray, upper: FloatArray, order: IntArray | None = None
) -> TwistedProposal:
    """As `twist`, no leading direction, with nothing but a factor computed again."""
    ep, covariance, log_det = found
    if order is None:
        order = np.argsort(-ep.tau * ep.variance, kind="stable")
    chol, _ = linalg.cholesky("the posterior covariance", covariance[np.ix_(order, order)])
    log_constant = -0.5 * float(ep.weights @ ep.mean) - 0.5 * log_det
    mean, tau, nu, low, high = (x[order] for x in (ep.mean, ep.tau, ep.weights, lower, upper))
    return TwistedProposal(
        order, np.ascontiguousarray(chol), mean, tau, nu, low, high, log_constant
    )
