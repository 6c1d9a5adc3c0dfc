r"""The sequential sampler of a truncated Gaussian, twisted by EP's sites, with its gradient.

The coordinates of u ~ N(0, G), restricted to lower < u < upper, are drawn one after another, each
from its exact truncated conditional under the target in which all *later* restrictions are replaced
by their EP sites. EP writes N(u; 0, G) prod_i t_i(u_i) = Z N(u; m, S), so with S = C C' the step
for coordinate k is, given the earlier ones, N(c_k, C_kk^2) with its own site divided out and its
own interval put in. The weight of a whole draw is Z times the product of the steps' normalisers,
and its mean is an unbiased estimate of P(lower < u < upper).

Without the sites this is the separation of variables of Genz (1992); the sites let each step know
of the restrictions to come.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_solve, solve_triangular

from pymc_skewgp._gaussian import linalg, tabulated
from pymc_skewgp._gaussian.compiled import one_sided as c
from pymc_skewgp._gaussian.covariance import Covariance, DenseCovariance
from pymc_skewgp._gaussian.ep import EPResult
from pymc_skewgp._gaussian.ep_dense import DenseEP, site_motion
from pymc_skewgp._gaussian.linalg import symmetric
from pymc_skewgp._gaussian.univariate import draw_truncated, edge_densities
from pymc_skewgp._gaussian.weights import IntArray, log_mean_exp, normalized_weights
from pymc_skewgp._validation import FloatArray

_ROWS_A_PRODUCT = 32  # rows drawn between two matrix products
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
    """A sequential proposal for a truncated Gaussian; build it with `Rung.twist`.

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
    first: tabulated.TabulatedDensity | None = None
    direction: tabulated.LeadingDirection | None = None

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
        # Row k of the noise comes to be when row k of the points has been read.
        noise = points if overwrite_points else points.copy()
        log_weights = np.full(points.shape[1], self.log_constant)
        if self.first is not None:
            noise[0] = drawn = self.first.quantile(points[0])
            log_weights -= 0.5 * drawn**2 + _LOG_SQRT_2PI + self.first.log_pdf(drawn)
        limits = self.mean, self.lower, self.upper
        return _drawn(self.order, noise, self.chol, self.steps, limits, log_weights), log_weights

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
        return tabulated.unseen_share(self, n_draws)

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
                "with Rung(power=None)."
            )
        columns = (self.mean, self.lower, self.upper, self.chol.diagonal(), self.tau, self.nu)
        mean, lower, upper, scale, tau, nu = (x[:, None] for x in columns)
        points = u[self.order]
        outside = ((points < lower) | (points > upper)).any(axis=0)
        value, low, high = points - mean, lower - mean, upper - mean
        noise = solve_triangular(self.chol, value, lower=True, check_finite=False)
        centre = value - scale * noise
        steps = tabulated.log_site_ratio(centre, scale**2, tau, nu, low, high)
        return np.where(outside, -np.inf, self.log_constant + steps.sum(axis=0))


def draw_side_by_side(
    proposals: Sequence[TwistedProposal], points: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Draws of several proposals: of thousands, one alone would take most of its time in Python.

    Parameters
    ----------
    proposals : sequence of TwistedProposal
        B of them, with as many rows in the same order, none with a leading direction.
    points : ndarray, shape (n, B, n_draws)
        Uniforms in (0, 1), which are lost.

    Returns
    -------
    u : ndarray, shape (B, n, n_draws)
    log_weights : ndarray, shape (B, n_draws)
    """
    chol = np.stack([x.chol for x in proposals])
    steps = Steps(*(_columns(x) for x in zip(*(own.steps for own in proposals), strict=True)))
    limits = [
        _columns([getattr(x, name) for x in proposals]) for name in ("mean", "lower", "upper")
    ]
    log_weights = np.zeros(points.shape[1:])
    log_weights += np.array([x.log_constant for x in proposals])[:, None]
    u = _drawn(proposals[0].order, points, chol, steps, limits, log_weights)
    return u.transpose(1, 0, 2), log_weights


def _drawn(
    order: IntArray,
    noise: FloatArray,
    chol: FloatArray,
    steps: Steps,
    limits: Sequence[FloatArray],
    log_weights: FloatArray,
) -> FloatArray:
    """Draws, their weights added to. Uniforms in `noise`, (n, ..., N), become the draws' own."""
    mean, lower, upper = limits
    n_dims, n_latent = len(noise), len(noise) - order.size
    u, each = np.empty((order.size, *noise.shape[1:])), np.moveaxis(noise, 0, -2)
    # One limit for all: half of the time.
    above = (upper == np.inf).reshape(n_dims, -1).all(axis=1)
    below = (lower == -np.inf).reshape(n_dims, -1).all(axis=1)
    log_weights += steps.log_scale[n_latent:].sum(axis=0)
    for start in range(n_latent, n_dims, _ROWS_A_PRODUCT):
        stop = min(start + _ROWS_A_PRODUCT, n_dims)
        base = chol[..., start:stop, :start] @ each[..., :start, :]
        for k in range(start, stop):
            centre = base[..., k - start, :]
            if k > start:
                centre += (chol[..., k, None, start:k] @ each[..., start:k, :])[..., 0, :]
            shifted = steps.slope[k] * centre
            low = np.float64(-np.inf) if below[k] else steps.low[k] - shifted
            high = np.float64(np.inf) if above[k] else steps.high[k] - shifted
            z, log_mass = draw_truncated(noise[k], low, high, steps.width[k])
            value = steps.sd[k] * (z + shifted) - steps.shift[k]
            row = u[order[k - n_latent]]
            np.add(value, mean[k], out=row)
            # The sum may round to the far side of a limit.
            if not below[k]:
                np.maximum(row, lower[k], out=row)
            if not above[k]:
                np.minimum(row, upper[k], out=row)
            noise[k] = (value - centre) / steps.scale[k]
            log_weights += log_mass
            log_weights += (steps.square[k] * centre - steps.linear[k]) * centre
    return u


def _columns(rows: Sequence[FloatArray]) -> FloatArray:
    """Vectors of n, one for each of B, as an array (n, B, 1)."""
    return np.ascontiguousarray(np.stack(rows, axis=-1))[..., None]


@dataclass(frozen=True)
class Rung:
    """How wide a twisted proposal is, and the score of its run from which it is accepted.

    Attributes
    ----------
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
    accept : float
        Score (a relative ESS, where nothing else is said) from which the rungs that follow are not
        tried. Infinite by default: all rungs are tried, and the best one is taken.
    """

    relax: float = 1.0
    power: float | None = None
    least_divergence: float = 0.0
    accept: float = np.inf

    def twist(
        self,
        cov: Covariance,
        ep: EPResult,
        lower: FloatArray,
        upper: FloatArray,
        order: IntArray | None = None,
    ) -> TwistedProposal:
        """The proposal from EP's sites.

        Parameters
        ----------
        cov : Covariance
            Covariance of the untruncated Gaussian.
        ep : EPResult
            Sites to twist with.
        lower, upper : ndarray, shape (n,)
            Limits.
        order : ndarray of int, shape (n,), optional
            Rows in the order in which to draw them. Default: the most informative first, which
            changes with the covariance and the limits.
        """
        tau, nu = self.relax * ep.tau, self.relax * ep.nu
        product = cov.site_product(tau, nu)
        posterior = cov.site_covariance(tau)
        if order is None:
            # The share of a row's variance that its own site takes: how much the restriction says.
            order = np.argsort(-ep.tau * ep.variance, kind="stable")
        # Measured from the Gaussian's mean m = G alpha, u = m + w, its density is N(m; 0, G) times
        # exp(-alpha'w - w'G^-1 w / 2), and sites exp(-tau w^2/2 + alpha w) make it N(w; 0, S).
        # Sites in u would bring terms in tau m^2, whose cancellation costs nats where m is many
        # deviations.
        mean, nu = cov.multiply(product.weights), product.weights
        log_constant = -0.5 * float(nu @ mean) - 0.5 * product.log_det
        mean, tau, nu = mean[order], tau[order], nu[order]
        low, high = lower[order], upper[order]
        posterior = posterior[np.ix_(order, order)]
        direction, first, power = None, None, self.power
        if power is not None:
            gaussian = tabulated.SiteGaussian(order, mean, posterior, tau, nu, low, high)
            direction = tabulated.leading_direction(cov, gaussian)
        least = self.least_divergence
        if power is not None and direction is not None and direction.divergence >= least:
            first, row = direction.density.flattened(power), direction.row
            posterior = np.block(
                [[np.array([[direction.variance]]), row[None]], [row[:, None], posterior]]
            )
            mean = np.append(direction.mean, mean)
            tau, nu = np.append(0.0, tau), np.append(0.0, nu)
            low, high = np.append(-np.inf, low), np.append(np.inf, high)
        chol, _ = linalg.cholesky("the posterior covariance", posterior)
        sites = mean, tau, nu, low, high, log_constant
        return TwistedProposal(order, np.ascontiguousarray(chol), *sites, first, direction)


def twist_by_covariance(
    found: DenseEP, lower: FloatArray, upper: FloatArray, order: IntArray | None = None
) -> TwistedProposal:
    """As `Rung.twist`, no leading direction, with nothing but a factor computed again."""
    ep = found.ep
    if order is None:
        order = np.argsort(-ep.tau * ep.variance, kind="stable")
    chol, _ = linalg.cholesky("the posterior covariance", found.covariance[order][:, order])
    log_constant = -0.5 * float(ep.weights @ ep.mean) - 0.5 * found.log_det
    mean, tau, nu, low, high = (x[order] for x in (ep.mean, ep.tau, ep.weights, lower, upper))
    return TwistedProposal(
        order, np.ascontiguousarray(chol), mean, tau, nu, low, high, log_constant
    )


# Draws of the twisted sampler, and what they say of its steps: the reverse of their recursion.
#
# Step k of the sampler is a function of the conditional mean :math:`c_k = C_{k,<k} e_{<k}` and of
# :math:`C_{kk}`: its noise :math:`e_k` and its term of the log weight. Backwards from the last
# step, the adjoint of :math:`e_k` collects :math:`C_{jk} \bar c_j` from the later steps j and gives
# :math:`\bar c_k`.


class StepDerivatives(NamedTuple):
    """Of the log mean weight, in what the steps are made of, in their order."""

    lower: FloatArray
    upper: FloatArray
    mean: FloatArray  # at fixed nu, that is with alpha = nu - tau mean
    alpha: FloatArray  # G^-1 mean: what the proposal calls nu
    tau: FloatArray  # at fixed alpha, mean and chol
    chol: FloatArray


class TwistedDraws:
    """Draws of a proposal at uniform points.

    Parameters
    ----------
    proposal : TwistedProposal
        Without a leading direction.
    points : ndarray, shape (n, N)
    compiled : bool
        Whether loops of `compiled.one_sided` are to draw, where each row has one limit for which
        its formulas hold.

    Attributes
    ----------
    log_weights : ndarray, shape (N,)
    compiled : bool
        Whether they did.
    """

    def __init__(self, proposal: TwistedProposal, points: FloatArray, compiled: bool) -> None:
        self._proposal, self._points, steps = proposal, points, proposal.steps
        self._below = below = np.isfinite(proposal.lower)
        self._both = below & np.isfinite(proposal.upper)
        limit, sign = np.where(below, steps.low, steps.high), np.where(below, 1.0, -1.0)
        # In the order of `one_sided`.
        own = steps.scale, steps.sd, steps.shift, steps.slope, limit, steps.square, steps.linear
        self._of_steps = np.stack([*own, sign])
        self.compiled = False
        if compiled and (below ^ np.isfinite(proposal.upper)).all():
            self._kept = np.empty((c.N_KEPT, *points.shape))
            constant = proposal.log_constant + steps.log_scale.sum()
            self.log_weights = np.full(points.shape[1], constant)
            given = points, proposal.chol, self._of_steps, self._kept, self.log_weights
            self.compiled = bool(c.draw_one_sided(*given))
        if not self.compiled:
            self._u, self.log_weights = proposal.draw(points)

    def draw(self, k: int) -> FloatArray:
        """One of them, rows in the caller's order."""
        if not self.compiled:
            return self._u[:, k]
        own, kept = self._proposal, self._kept
        value = own.mean + kept[c.CENTRE, :, k] + self._of_steps[c.SCALE] * kept[c.NOISE, :, k]
        return _unordered(np.clip(value, own.lower, own.upper), own.order)

    def derivatives(self, weights: FloatArray) -> StepDerivatives:
        """Of draws with these weights, which sum to one."""
        own, both = self._proposal, self._both
        upper = None if self.compiled else self._keep()
        chol, tau, nu, kept = own.chol, own.tau, own.nu, self._kept
        scale, columns = chol.diagonal(), np.ascontiguousarray(chol.T)
        centre_bar, sums = np.empty(kept.shape[1:]), np.empty((c.N_SUMS, kept.shape[1]))
        c.sum_one_sided(columns, self._of_steps, tau, nu, weights, kept, centre_bar, sums)
        sd_bar, limit_bar = sums[c.SD_BAR], sums[c.LIMIT_BAR]
        upper_bar = np.where(self._below, 0.0, limit_bar)
        if upper is not None and both.any():
            density, follows = upper
            # The sums are those of lower limits, and of both in one: the upper ones by themselves.
            noise_bar = np.tril(chol, -1)[:, both].T @ centre_bar
            upper_bar[both] = np.einsum("ij,ij->i", noise_bar, follows) / scale[both]
            upper_bar[both] += density @ weights / own.steps.sd[both]
            sd_bar[both] -= own.steps.width[both] * upper_bar[both]
        first, second, total, product = sums[[c.FIRST, c.SECOND, c.CAVITY_BAR, c.CAVITY_PRODUCT]]
        var = scale**2
        left = 1.0 - tau * var
        sd = scale / np.sqrt(left)
        quadratic = (tau * second - 2.0 * nu * first + nu**2 * var) / left
        var_bar = nu**2 + quadratic * tau + tau + sd_bar / (sd * left)
        var_bar += 2.0 * (tau * product - nu * total)
        var_bar /= 2.0 * left
        tau_bar = (second + var * (quadratic + 1.0 + 2.0 * product + sd_bar * sd)) / (2.0 * left)
        nu_bar = (nu * var - first - var * total) / left
        chol_bar = np.tril(centre_bar @ kept[c.NOISE].T, -1)
        chol_bar[np.diag_indices_from(chol_bar)] = (
            2.0 * scale * var_bar - sums[c.NOISE_PRODUCT] / scale
        )
        # log Z = -alpha'm/2 - log det(I + GT)/2, whose determinant is left to the caller.
        alpha_bar = nu_bar - 0.5 * own.mean
        mean_bar = -tau * alpha_bar - 0.5 * nu - limit_bar
        lower_bar = limit_bar - upper_bar
        return StepDerivatives(lower_bar, upper_bar, mean_bar, alpha_bar, tau_bar, chol_bar)

    def _keep(self) -> tuple[FloatArray, FloatArray]:
        """What the loops keep of their draws; of rows with two limits that of the upper one."""
        own, points = self._proposal, self._points
        known = own.steps.scale, own.steps.sd, own.steps.shift, own.steps.slope
        scale, sd, shift, slope = (x[:, None] for x in known)
        value = self._u[own.order] - own.mean[:, None]
        noise = solve_triangular(own.chol, value, lower=True, check_finite=False)
        centre = value - scale * noise
        shifted = slope * centre
        draw = (value + shift) / sd - shifted
        low, high = own.steps.low[:, None] - shifted, own.steps.high[:, None] - shifted
        at_low, at_high = edge_densities(low, high)
        follows = points * np.exp(0.5 * (draw - high) * (draw + high))
        both = follows + (1.0 - points) * np.exp(0.5 * (draw - low) * (draw + low))
        bound = np.where(self._below[:, None], low, high)
        self._kept = np.stack([noise, centre, bound, draw, at_high - at_low, both])
        return at_high[self._both], follows[self._both]


# The twisted sampler's log probability, differentiated along its own draws.
#
# At fixed points the log of the mean weight is a smooth function of the limits and of the
# covariance G: directly, and through EP's sites. The derivative of that function is the reverse of
# the recursion by which the draws were made, and of EP's fixed point. Its noise is that of the
# *value*, which is small because the weights are nearly equal; averages of scores over the draws
# (Fisher's identity) have the noise of the draws.

# Nats. EP's residual leaves a thousandth of this; more, or what is not a number, is the round-off
# of a covariance that has next to no digits, and the sites count as constants.
_LARGEST_CORRECTION = 0.01


def weight_gradient(
    cov: DenseCovariance,
    proposal: TwistedProposal,
    drawn: TwistedDraws,
    *,
    ep: EPResult | None,
    relax: float,
) -> tuple[float, FloatArray, FloatArray, FloatArray]:
    r"""Derivative of the log of the mean weight in the limits and the covariance.

    With the adjoints of the steps, `StepDerivatives`: :math:`\bar C = \bar c e'`, through
    :math:`C C' = S`, and :math:`\mathrm dS = S (G^{-1}\, \mathrm dG\, G^{-1} - \mathrm dT)\, S`,
    T being the sites' precisions.

    Parameters
    ----------
    cov : DenseCovariance
    proposal : TwistedProposal
        Without a leading direction.
    drawn : TwistedDraws
        At fixed points.
    ep : EPResult or None
        The fixed point behind the proposal: its sites are functions of the limits and the
        covariance, and count as such. None: the sites are constants.
    relax : float
        Power of EP's sites that the proposal was made with.

    Returns
    -------
    value : float
        Log of the mean weight; where EP's sites count, as they are at the fixed point.
    lower, upper : ndarray, shape (n,)
    cov : ndarray, shape (n, n)
        Symmetric.

    References
    ----------
    .. [1] S. P. Smith (1995), Differentiation of the Cholesky algorithm,
       doi:10.1080/10618600.1995.10474671.
    """
    order, chol = proposal.order, proposal.chol
    log_weights = drawn.log_weights
    steps = drawn.derivatives(normalized_weights(log_weights))
    # S S_bar S = C phi C', phi the lower triangle of C' C_bar with half its diagonal.
    phi = np.tril(chol.T @ steps.chol)
    phi[np.diag_indices_from(phi)] *= 0.5
    half = cho_solve((cov.chol, True), _unordered(chol, order), check_finite=False)  # G^-1 C
    inverse = np.empty_like(chol)
    inverse[:, order] = half @ chol.T  # G^-1 S
    tau, alpha = _unordered(proposal.tau, order), _unordered(proposal.nu, order)
    by_mean = np.outer(half @ (chol.T @ steps.mean), alpha)
    gradient = half @ phi @ half.T + by_mean - 0.5 * inverse * tau
    value = log_mean_exp(log_weights)
    lower, upper = _unordered(steps.lower, order), _unordered(steps.upper, order)
    if ep is not None:
        # In sites exp(nu w - tau w^2 / 2), w = u - mean, the mean fixed: dS = -S dT S, and
        # d log det(I + G T) = tr(S dT).
        by_nu = _unordered(steps.alpha + chol @ (chol.T @ steps.mean), order)
        taken = np.einsum("ij,ij->i", chol @ phi + 0.5 * chol, chol)
        by_tau = _unordered(steps.tau - taken, order)
        if relax == 1.0:
            posterior = np.empty_like(chol)
            posterior[np.ix_(order, order)] = chol @ chol.T
        else:
            # By EP's sites, not their power, and about EP's mean, not the proposal's.
            by_tau = relax * (by_tau + (ep.mean - _unordered(proposal.mean, order)) * by_nu)
            by_nu = relax * by_nu
            posterior = cov.site_covariance(ep.tau)
            inverse = cho_solve((cov.chol, True), posterior, check_finite=False)
        limits = _unordered(proposal.lower, order), _unordered(proposal.upper, order)
        motion = site_motion(ep, posterior, *limits, by_nu, by_tau)
        if abs(motion.value) < _LARGEST_CORRECTION:
            gradient += np.outer(inverse @ motion.mean, ep.weights)
            gradient += (inverse * motion.variance) @ inverse.T
            lower, upper, value = lower + motion.lower, upper + motion.upper, value + motion.value
    return value, lower, upper, symmetric(gradient)


def _unordered(x: FloatArray, order: IntArray) -> FloatArray:
    """Rows put back where the caller has them."""
    result = np.empty_like(x)
    result[order] = x
    return result
