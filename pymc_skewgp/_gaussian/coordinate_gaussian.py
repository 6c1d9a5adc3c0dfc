"""EP's Gaussian of the coordinates c of a function, and sites as functions of them."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, solve_triangular
from scipy.linalg.lapack import dpotrs, dtrtri

from pymc_skewgp._gaussian import linalg
from pymc_skewgp._gaussian.compiled.rows import LEAST_CAVITY
from pymc_skewgp._gaussian.tabulated import HERMITE_NODES, missing_of_functions
from pymc_skewgp._gaussian.tilted import SiteFunction, TiltedMoments, cavity, next_sites
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._validation import FloatArray

_BLOCK = 2**16  # predictors at a time: what is done to them stays in the cache


@dataclass(frozen=True)
class SiteLogDensity:
    """Log density of all sites as a function of the coordinates.

    Attributes
    ----------
    log_prob : SiteFunction
    offset : ndarray, shape (n,)
        a.
    factor : ndarray, shape (n, r)
        F.
    """

    log_prob: SiteFunction
    offset: FloatArray
    factor: FloatArray

    def off(self, off: FloatArray) -> FloatArray:
        """Of each site, at predictors less their offset."""
        return self.log_prob(self.offset + off)

    def __call__(self, coordinates: FloatArray) -> FloatArray:
        """Of columns of coordinates, shape (r, N)."""
        size = max(1, _BLOCK // max(self.offset.size, 1))
        found = np.empty(coordinates.shape[1])
        for start in range(0, found.size, size):
            eta = coordinates[:, start : start + size].T @ self.factor.T
            eta += self.offset
            found[start : start + size] = self.log_prob(eta).sum(axis=-1)
        return found


@dataclass(frozen=True)
class CoordinateGaussian:
    """q = N(mean, P^-1) of the coordinates, with the Cholesky factor L of P."""

    mean: FloatArray
    chol: FloatArray

    @classmethod
    def of(cls, gram: FloatArray, pull: FloatArray) -> "CoordinateGaussian":
        """N(c; 0, I) times exp(pull' c - c' gram c / 2)."""
        precision = gram.copy()
        np.einsum("ii->i", precision)[:] += 1.0
        chol, _ = linalg.cholesky("the precision of the coordinates", precision)
        return cls(cho_solve((chol, True), pull), chol)

    @cached_property
    def spread(self) -> Any:
        """L^-T."""
        return np.asarray(dtrtri(self.chol.T)[0])

    @property
    def half_log_det(self) -> float:
        """Half of log |P|."""
        return float(np.log(self.chol.diagonal()).sum())

    def log_integral(self, pull: FloatArray) -> float:
        """Of N(c; 0, I) times the sites that `pull` is the linear term of, and q is made of."""
        return 0.5 * float(pull @ self.mean) - self.half_log_det

    def squared_length(self, pull: FloatArray) -> float:
        """Of the step that sites' `pull` makes, in deviations."""
        step = solve_triangular(self.chol, pull, lower=True)
        return float(step @ step)

    def beside(
        self, scale: FloatArray, factor: FloatArray, tau: FloatArray, nu: FloatArray
    ) -> "CoordinateGaussian":
        """With m more white coordinates u before these, under sites of scale_i u_i + factor_i c.

        They are independent given c: what is added to the Cholesky factor takes m r^2 operations.
        """
        precision = 1.0 + scale**2 * tau
        half = ((scale * tau / np.sqrt(precision))[:, None] * factor).T
        mean = scale * (nu - tau * (factor @ self.mean)) / precision
        chol = np.block([[np.diag(np.sqrt(precision)), np.zeros(half.T.shape)], [half, self.chol]])
        return CoordinateGaussian(np.concatenate([mean, self.mean]), chol)

    def of_white(self, white: FloatArray) -> FloatArray:
        """Coordinates mean + L^-T white, as columns."""
        coordinates: FloatArray = self.spread @ white
        coordinates += self.mean[:, None]
        return coordinates

    def log_ratio(self, coordinates: FloatArray, white: FloatArray) -> FloatArray:
        """Log N(c; 0, I) / q(c), for columns of coordinates and what they are the images of."""
        own, prior = (np.einsum("ij,ij->j", x, x) for x in (white, coordinates))
        return np.asarray(0.5 * (own - prior) - self.half_log_det)

    def white(self, coordinates: FloatArray) -> FloatArray:
        """What columns of coordinates are the images of."""
        return np.asarray(self.chol.T @ (coordinates - self.mean[:, None]))

    def log_over_prior(self, coordinates: FloatArray) -> FloatArray:
        """Log q(c) / N(c; 0, I) of columns."""
        return -self.log_ratio(coordinates, self.white(coordinates))


class SiteMarginals(NamedTuple):
    """EP's Gaussian of each predictor and the site that is in it, for what draws leave out.

    Attributes
    ----------
    mean, variance, tau, nu : ndarray, shape (n,)
        Of predictors less their offset.
    """

    mean: FloatArray
    variance: FloatArray
    tau: FloatArray
    nu: FloatArray

    def missing(self, log_prob: SiteFunction, n_draws: int, power: int = 0) -> FloatArray:
        """Share of the evidence in tails of each predictor that draws hardly meet, shape (n,).

        Or, with a power, what is there of a moment; see `missing_of_functions`.
        """
        off = self.mean + np.sqrt(self.variance) * HERMITE_NODES[:, None]
        with np.errstate(over="ignore"):
            log_ratio = log_prob(off)
        log_ratio -= (self.nu - 0.5 * self.tau * off) * off
        return missing_of_functions(log_ratio.T, n_draws, power)

    def before_noise(self, sites: TiltedMoments, noise: FloatArray) -> "SiteMarginals":
        """Of predictors that have this noise beside; `sites` without it.

        Their sites follow from these, but for digits where a site takes all that noise leaves.
        """
        centre, left = cavity(*self, LEAST_CAVITY / self.variance)
        wide, none, noisy = left + noise, np.zeros(noise.size), noise > 0.0
        new = next_sites(sites, centre, wide, none, none, none)
        tau, nu = np.where(noisy, new.tau, self.tau), np.where(noisy, new.nu, self.nu)
        variance = wide / (1.0 + wide * tau)
        return SiteMarginals(variance * (centre / wide + nu), variance, tau, nu)


def coordinate_gaussian(factor: FloatArray, tau: FloatArray, nu: FloatArray) -> CoordinateGaussian:
    """N(0, I) of the coordinates c times sites exp(-tau e^2/2 + nu e), with e = F c."""
    return CoordinateGaussian.of(factor.T @ (tau[:, None] * factor), factor.T @ nu)


def coordinate_gaussians(
    factor: FloatArray, tau: FloatArray, nu: FloatArray
) -> list[CoordinateGaussian]:
    """The same of many factors, shape (P, n, r); LinAlgError where one precision is none."""
    across = factor.swapaxes(1, 2)
    precision = (across * tau[:, None]) @ factor
    np.einsum("pii->pi", precision)[:] += 1.0
    pull = (across @ nu[:, :, None])[..., 0]
    chols = np.linalg.cholesky(precision)
    each = zip(chols, pull, strict=True)
    return [CoordinateGaussian(dpotrs(chol, b, lower=1)[0], chol) for chol, b in each]


# Sites of factors that share a direction, as wide as their product asks for.
#
# EP matches the moments of one factor at a time. Where hundreds of factors are functions of nearly
# one predictor, each of them says little, and what EP makes of all is narrower than their product
# with its long tail. Here the factors of one direction g are one: with EP's Gaussian q in white
# coordinates w, its sites t_i, and predictors :math:`\eta_i` as they move with :math:`z = g^\top
# w`,
#
# .. math:: R(z) = \prod_{i \in g} \frac{p(y_i \mid \eta_i(z))}{t_i(\eta_i(z))}
#
# is a factor of z whose moments are known by quadrature, and EP over the few directions gives each
# a Gaussian site, which is shared out among its factors. (Minka 2001, Expectation propagation for
# approximate Bayesian inference, arXiv:1301.2294, with groups of factors as factors.)

# Directions at most; alike from this cosine on.
MOST, ALIKE = 16, 0.9
TAIL = 8.7  # deviations, beyond which a Gaussian has nothing left
_NODES = 161
# Sweeps at most; a residual in deviations and log variances above the second leaves EP as it was.
_SWEEPS, _TOLERANCE, _LARGEST_RESIDUAL = 50, 1e-3, 0.05
_LEAST_LEFT = 0.05  # of a site's precision
# Each so many of the nodes say whether there is anything to do: moments that are off by more than
# this, in deviations and log variances.
_EACH, _MATTERS = 4, 0.01


def with_grouped_sites(
    gaussian: CoordinateGaussian, sites: SiteLogDensity, marginals: SiteMarginals
) -> tuple[CoordinateGaussian, SiteMarginals]:
    """Both with sites of groups; as they are where no two factors share a direction.

    Or where EP has the moments along each direction: 41 evaluations of each factor, otherwise 202.
    """
    along = solve_triangular(gaussian.chol, sites.factor.T, lower=True)
    length = np.linalg.norm(along, axis=0)
    own = np.maximum(marginals.tau, 0.0) * length**2
    unit = along / np.maximum(length, 1e-300)
    directions = unit[:, directions_apart(unit, np.argsort(-own), MOST)]
    cosine = directions.T @ unit
    group = np.abs(cosine).argmax(axis=0)
    rows = np.arange(group.size)
    member = (np.abs(cosine[group, rows]) >= ALIKE) & (own > 0.0)
    several = np.bincount(group[member], minlength=directions.shape[1]) > 1
    member &= several[group]
    if not member.any():
        return gaussian, marginals
    directions, group = directions[:, several], (np.cumsum(several) - 1)[group]
    nodes = nodes_along(gaussian, directions.T)
    mean, slope = sites.factor @ gaussian.mean, length * cosine[several][group, rows]
    known = sites, marginals, mean, slope, group, member
    few = nodes[:, ::_EACH]
    if _gap(*_moments(few, _log_ratio(*known, few) - 0.5 * few**2), 0.0, 1.0) < _MATTERS:
        return gaussian, marginals
    found = _sites_of(directions.T @ directions, nodes, _log_ratio(*known, nodes))
    if found is None:
        return gaussian, marginals
    tau, nu = found
    # Each site of a group to the same power: its share of the precision stays as it was.
    total = np.bincount(group[member], (marginals.tau * slope**2)[member], minlength=tau.size)
    power = np.maximum(1.0 + tau / total, _LEAST_LEFT)[group]
    share = np.where(member, (marginals.tau * slope**2) / total[group], 0.0)
    precision = np.where(member, marginals.tau * power, marginals.tau)
    more = precision - marginals.tau
    pull = marginals.nu + more * mean
    pull += np.where(member, share * nu[group] / np.where(member, slope, 1.0), 0.0)
    moved = coordinate_gaussian(sites.factor, precision, pull)
    half = solve_triangular(moved.chol, sites.factor.T, lower=True)
    variance = np.einsum("ij,ij->j", half, half)
    return moved, SiteMarginals(sites.factor @ moved.mean, variance, precision, pull)


def directions_apart(along: FloatArray, order: IntArray, most: int) -> list[int]:
    """The first columns in `order` that are not nearly parallel, at most so many."""
    chosen: list[int] = []
    left, ordered = np.ones(order.size, dtype=bool), along[:, order].T
    while left.any() and len(chosen) < most:
        chosen.append(int(order[left.argmax()]))
        left &= np.abs(ordered @ along[:, chosen[-1]]) < ALIKE
    return chosen


def nodes_along(gaussian: CoordinateGaussian, directions: FloatArray) -> FloatArray:
    """Places along each direction in deviations of q, as far as the prior reaches, (k, nodes)."""
    step = solve_triangular(gaussian.chol, directions.T, lower=True, trans="T")
    length = np.linalg.norm(step, axis=0)
    reach = (TAIL + np.abs(gaussian.mean @ step) / length) / length
    return np.asarray(np.sinh(np.linspace(-1.0, 1.0, _NODES) * np.arcsinh(reach)[:, None]))


def _log_ratio(
    sites: SiteLogDensity,
    marginals: SiteMarginals,
    mean: FloatArray,
    slope: FloatArray,
    group: IntArray,
    member: NDArray[np.bool_],
    nodes: FloatArray,
) -> FloatArray:
    """Log of the product of each group's factors over their sites, shape (k, nodes)."""
    off = mean + slope * nodes[group].T
    off[:, ~member] = mean[~member]
    with np.errstate(over="ignore"):
        logs = sites.log_prob(sites.offset + off)
    logs -= (marginals.nu - 0.5 * marginals.tau * off) * off
    found = np.zeros(nodes.shape)
    np.add.at(found, group[member], logs.T[member])
    return found


def _sites_of(
    cov: FloatArray, nodes: FloatArray, log_ratio: FloatArray
) -> tuple[FloatArray, FloatArray] | None:
    """EP's sites exp(nu z - tau z^2 / 2) of factors of z ~ N(0, cov), known at nodes.

    None where EP does not converge, as it may under factors that are not log-concave.
    """
    k = len(cov)
    tau, nu, damping, previous = np.zeros(k), np.zeros(k), 0.7, np.inf
    for _ in range(_SWEEPS):
        joint = np.linalg.solve(np.eye(k) + cov * tau, cov)
        variance, mean = joint.diagonal(), joint @ nu
        precision = 1.0 / variance - tau
        pull = mean / variance - nu
        well = (precision > 0.0) & (variance > 0.0)
        left = np.where(well, precision, 1.0)[:, None]
        logs = log_ratio - 0.5 * left * nodes**2 + pull[:, None] * nodes
        new_mean, new_variance = _moments(nodes, logs)
        well &= new_variance > 0.0
        new_mean = np.where(well, new_mean, mean)
        new_variance = np.where(well, new_variance, variance)
        gap = _gap(new_mean, new_variance, mean, variance)
        if not np.isfinite(gap):
            return None
        if gap < _TOLERANCE:
            break
        if gap > previous:
            damping *= 0.7
        previous = gap
        tau += damping * np.where(well, 1.0 / new_variance - precision - tau, 0.0)
        nu += damping * np.where(well, new_mean / new_variance - pull - nu, 0.0)
    return (tau, nu) if well.all() and gap < _LARGEST_RESIDUAL else None


def _moments(nodes: FloatArray, logs: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of each log density."""
    weights = np.exp(logs - logs.max(axis=1, keepdims=True)) * np.gradient(nodes, axis=1)
    weights /= weights.sum(axis=1, keepdims=True)
    mean = (weights * nodes).sum(axis=1)
    return mean, (weights * (nodes - mean[:, None]) ** 2).sum(axis=1)


def _gap(
    new_mean: FloatArray,
    new_variance: FloatArray,
    mean: FloatArray | float,
    variance: FloatArray | float,
) -> float:
    """The largest difference in deviations, or of log variances."""
    with np.errstate(divide="ignore"):
        of_variance = np.abs(np.log(new_variance / variance)).max()
    return max(float((np.abs(new_mean - mean) / np.sqrt(variance)).max()), float(of_variance))
