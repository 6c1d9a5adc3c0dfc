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

import numpy as np
from scipy.linalg import solve_triangular
from scipy.sparse.linalg import eigsh
from scipy.special import ndtr, ndtri

from pymc_skewgp.kernels import linalg
from pymc_skewgp.kernels.covariance import Covariance
from pymc_skewgp.kernels.ep import EPResult
from pymc_skewgp.kernels.univariate import (
    draw_truncated,
    log_ndtr_interval,
    truncated_third_moment,
)
from pymc_skewgp.kernels.validation import FloatArray
from pymc_skewgp.kernels.weights import IntArray

_BLOCK = 32  # rows drawn between two matrix products


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
    widening, wide_share : float
        The leading direction is drawn from its Gaussian with probability 1 - wide_share, and with
        its standard deviation multiplied by `widening` otherwise (1 and 1 without one).
    log_constant : float
        log Z.
    """

    order: IntArray
    chol: FloatArray
    mean: FloatArray
    tau: FloatArray
    nu: FloatArray
    lower: FloatArray
    upper: FloatArray
    widening: float
    wide_share: float
    log_constant: float

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
        if n_latent:
            noise[0] = _widened_quantile(points[0], self.widening, self.wide_share)
            log_weights -= _log_widening(noise[0], self.widening, self.wide_share)
        scale = self.chol.diagonal()
        precision = 1.0 / scale**2 - self.tau
        sd = 1.0 / np.sqrt(precision)
        # Of the centre c_k step k takes the cavity's mean gain c_k - shift, and its limits in units
        # of sd. Scalars first: what is done to every draw is most of the time.
        gain, shift = 1.0 / (scale**2 * precision), self.nu / precision
        slope, low = gain / sd, (self.lower - self.mean + shift) / sd
        high = (self.upper - self.mean + shift) / sd
        # The normaliser of step k is exp(quadratic in c_k) times a Gaussian mass. It is p m^2 -
        # c^2/s^2 of the cavity's mean m, written without its cancellation for weak sites.
        square, linear = 0.5 * gain * self.tau, gain * self.nu
        log_weights += 0.5 * (np.log(gain) + gain * self.nu**2 * scale**2)[n_latent:].sum()
        for start in range(n_latent, n_dims, _BLOCK):
            stop = min(start + _BLOCK, n_dims)
            base = self.chol[start:stop, :start] @ noise[:start]
            for k in range(start, stop):
                centre = base[k - start]
                if k > start:
                    centre += self.chol[k, start:k] @ noise[start:k]
                shifted = slope[k] * centre
                above = high[k] if high[k] == np.inf else high[k] - shifted
                z, log_mass = draw_truncated(points[k], low[k] - shifted, above)
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
                "with twist(..., widening=None)."
            )
        columns = (self.mean, self.lower, self.upper, self.chol.diagonal(), self.tau, self.nu)
        mean, lower, upper, scale, tau, nu = (x[:, None] for x in columns)
        points = u[self.order]
        outside = ((points < lower) | (points > upper)).any(axis=0)
        value, low, high = points - mean, lower - mean, upper - mean
        noise = solve_triangular(self.chol, value, lower=True, check_finite=False)
        centre = value - scale * noise
        var = scale**2
        precision = 1.0 / var - tau
        sd = 1.0 / np.sqrt(precision)
        cavity = (centre / var - nu) / precision
        log_mass = log_ndtr_interval((low - cavity) / sd, (high - cavity) / sd)
        quadratic = (tau * centre - 2.0 * nu) * centre + nu**2 * var
        steps = log_mass + (0.5 / (precision * var)) * quadratic - 0.5 * np.log(var * precision)
        return np.where(outside, -np.inf, self.log_constant + steps.sum(axis=0))


def twist(
    cov: Covariance,
    ep: EPResult,
    lower: FloatArray,
    upper: FloatArray,
    *,
    relax: float = 1.0,
    widening: float | None = None,
    wide_share: float = 1.0,
    least_skewness: float = 0.0,
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
    widening : float, optional
        Draw the direction that moves most sites at once before all coordinates, from its
        Gaussian with the standard deviation multiplied by this. The first point coordinate then
        carries what all the weights have in common, and quasi-Monte Carlo integrates it nearly
        exactly. None: no such direction.
    wide_share : float in (0, 1], default 1
        Share of the draws whose leading direction is widened; the others keep its Gaussian. A
        small share costs few effective draws and still bounds the weights in that direction, which
        is where the target is most skewed (a defensive mixture, Hesterberg 1995,
        doi:10.1080/00401706.1995.10484303).
    least_skewness : float, default 0
        No leading direction where the target is predicted to be less skewed than this along it:
        there the direction only keeps the first coordinates from their exact conditionals.
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
    if not ep.tau.any():  # nothing is restricted: no direction matters
        widening = None
    if widening is not None:
        row, variance, centre = _leading_direction(cov, ep, order, posterior, mean)
        loading = row / np.sqrt(variance) / posterior.diagonal()
        if _skewness_bound(ep, lower, upper, order, loading) < least_skewness:
            widening = None
    if widening is not None:
        posterior = np.block([[np.array([[variance]]), row[None]], [row[:, None], posterior]])
        mean = np.append(centre, mean)
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
        1.0 if widening is None else widening,
        wide_share,
        log_constant,
    )


def _widened_quantile(u: FloatArray, widening: float, share: float) -> FloatArray:
    """Quantile of (1 - share) N(0, 1) + share N(0, widening^2)."""
    inner = np.asarray(ndtri(u))
    if share == 1.0:
        return widening * inner
    # Between the quantiles of the two; Newton steps where they stay between, else halving.
    low, high = np.sort([inner, widening * inner], axis=0)
    x = inner.copy()
    for _ in range(40):
        surplus = (1.0 - share) * ndtr(x) + share * ndtr(x / widening) - u
        low, high = np.where(surplus < 0, x, low), np.where(surplus < 0, high, x)
        step = x - surplus / np.exp(_log_widening(x, widening, share) + _log_normal(x))
        inside = (step > low) & (step < high)
        new = np.where(inside, step, 0.5 * (low + high))
        moved = np.abs(new - x).max()
        x = new
        if moved < 1e-12:
            break
    return x


def _log_widening(x: FloatArray, widening: float, share: float) -> FloatArray:
    """Log of the density of `_widened_quantile` over the standard normal's."""
    wide = 0.5 * x**2 * (1.0 - 1.0 / widening**2) + np.log(share / widening)
    return wide if share == 1.0 else np.logaddexp(np.log1p(-share), wide)


def _log_normal(x: FloatArray) -> FloatArray:
    return -0.5 * x**2 - 0.5 * np.log(2.0 * np.pi)


def _skewness_bound(
    ep: EPResult, lower: FloatArray, upper: FloatArray, order: IntArray, loading: FloatArray
) -> float:
    """Skewness of a direction under the target, to first order, without its cancellations.

    Each site lends its tilted marginal's third cumulant times the cube of the direction's
    regression on it; in absolute values, for rows that cancel here need not in the tails.
    """
    variance = 1.0 / (1.0 / ep.variance - ep.tau)
    mean = variance * (ep.mean / ep.variance - ep.nu)
    sd = np.sqrt(variance)
    third = sd**3 * truncated_third_moment((lower - mean) / sd, (upper - mean) / sd)
    return float(np.abs(loading) ** 3 @ np.abs(third[order]))


def _leading_direction(
    cov: Covariance, ep: EPResult, order: IntArray, posterior: FloatArray, mean: FloatArray
) -> tuple[FloatArray, float, float]:
    """Covariance with u, variance and mean of a = rho w'u / sd(w'u) + (1 - rho^2)^.5 e.

    w is the leading eigenvector of T^.5 S T^.5 scaled by T^.5. The independent part e keeps what
    the coordinates do not share, without which u given a would be degenerate.
    """
    root = np.sqrt(ep.tau[order])
    scaled = posterior * root * root[:, None]
    if root.size < 3:
        vector = np.linalg.eigh(scaled)[1][:, -1:]
    else:
        _, vector = eigsh(scaled, k=1, v0=np.ones(root.size), tol=1e-3)
    w = root * vector[:, 0]
    unordered = np.empty_like(w)
    unordered[order] = w
    prior = float(unordered @ cov.multiply(unordered))
    own = float(unordered**2 @ cov.conditional_variances()) / prior
    shared = 1.0 - min(max(own, 1e-6), 0.5)
    row = np.sqrt(shared / prior) * (posterior @ w)
    variance = shared / prior * float(w @ posterior @ w) + 1.0 - shared
    return row, variance, float(np.sqrt(shared / prior) * (w @ mean))
