r"""f under factors at given hyperparameters: the target, pairs that integrate it out, jumps.

With the rows known, as points are, :math:`f = m + F c` with standard normal c. What is left of the
data are sites :math:`p(y_i \mid \eta_i)`, :math:`\eta = A f + a`.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import logsumexp

from pymc_skewgp._errors import no_warnings
from pymc_skewgp._gaussian import coordinate_gaussian as cg
from pymc_skewgp._gaussian import covariance, linalg, modes, tilted
from pymc_skewgp._gaussian import weights as of_draws
from pymc_skewgp._gaussian.ep import EPResult, fit_factors
from pymc_skewgp._gaussian.pairs import Pairs
from pymc_skewgp._mcmc.augmentation import ConjugateModel, StudentTNoise
from pymc_skewgp._observations.observations import Observations
from pymc_skewgp._observations.real_values import student_t
from pymc_skewgp._observations.sites import Sites
from pymc_skewgp._posterior.draws_with_evidence import sun_given
from pymc_skewgp._validation import FloatArray

# Of the largest variance, below which EP leaves a direction of f out.
_LEFT_OUT = 1e-5
_EP_SWEEPS = 60


class GaussianSites(NamedTuple):
    """Sites exp(nu eta - tau eta^2 / 2) in the predictors, offsets included; shape (m,) each."""

    tau: FloatArray
    nu: FloatArray

    def about(self, offset: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The same sites, tau and nu, in predictors less an offset."""
        return self.tau, self.nu - self.tau * offset

    def start(self, offset: FloatArray) -> EPResult:
        """What EP of predictors less an offset begins with."""
        zero = np.zeros(offset.size)
        return EPResult(*self.about(offset), zero, zero, zero, 0.0, 0, np.inf)


class SiteTarget:
    """f = mean + F c under sites.

    Parameters
    ----------
    model : ConjugateModel
        With sites.
    rows : ndarray, shape (s + m,)
        x0 + truncation and v of the intervals; of none an empty one.

    Attributes
    ----------
    mean : ndarray, shape (p,)
    factor : PivotedFactor
        F.
    density : SiteLogDensity
        Of the sites, as a function of c.
    """

    def __init__(self, model: ConjugateModel, rows: FloatArray) -> None:
        assert model.sites is not None
        self._sites: Sites = model.sites
        self.mean, matrix = _given_rows(model, rows)
        self.factor = linalg.pivoted_factor(linalg.symmetric(matrix))
        sites = self._sites
        offset = sites.of(self.mean) + sites.a
        self.density = cg.SiteLogDensity(sites.log_prob, offset, sites.of(self.factor.columns))

    @cached_property
    def n_leading(self) -> int:
        """Columns of F that explain f but for what does not matter to EP."""
        left = self.factor.left
        return int(np.count_nonzero(left > _LEFT_OUT * left.max(initial=0.0)))

    def factors(self) -> tilted.SiteFactors:
        """What EP asks."""
        return tilted.SiteFactors(self.density.log_prob, self._sites.slopes, self.density.offset)

    def ep(self, tol: float, start: GaussianSites | None) -> GaussianSites | None:
        """EP's sites, a function of its arguments alone; None where it breaks down."""
        density, leading = self.density, self.density.factor[:, : self.n_leading]
        with no_warnings(), np.errstate(all="ignore"):
            try:
                found = fit_factors(
                    covariance.predictor_covariance(leading),
                    self.factors(),
                    tol=tol,
                    start=None if start is None else start.start(density.offset),
                    max_sweeps=_EP_SWEEPS,
                )
            except (np.linalg.LinAlgError, ArithmeticError, ValueError):
                return None
        if not (np.isfinite(found.tau).all() and np.isfinite(found.nu).all()):
            return None
        return GaussianSites(found.tau, found.nu + found.tau * density.offset)

    def score(self, c: FloatArray, tau: FloatArray, nu: FloatArray) -> FloatArray:
        """Slopes of the log probability less those of sites about the offset, at leading c."""
        e = self.density.factor[:, : c.size] @ c
        with np.errstate(all="ignore"):
            slopes = self._sites.slopes(self.density.offset + e)[0]
        return slopes - (nu - tau * e)

    def coordinates(self, f: FloatArray) -> FloatArray:
        """The c of f."""
        return self.factor.coordinates(f - self.mean)

    def function(self, c: FloatArray) -> FloatArray:
        """The f of c."""
        f: FloatArray = self.mean + self.factor.columns @ c
        return f


def _given_rows(model: ConjugateModel, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and covariance of f given the points and rows with these values."""
    prior, observed = model.prior, model.observations
    if not observed.n_rows and not rows.size:
        return prior.mu, prior.scale
    s = prior.truncation.size
    value = observed.value.copy()
    value[~observed.is_point] = rows[s:]
    given = sun_given(prior, replace(observed, value=value), rows[:s] - prior.truncation)
    factor = given.factor[s:]
    return given.mean[s:], factor @ factor.T


# A step on (theta, f) under sites by mirrored pairs, hyperparameters moved with f integrated out.
#
# At each theta EP's Gaussian of f makes a map :math:`f = f_\theta(x)` from white coordinates x ~
# N(0, I), and weights :math:`W_\theta(x)`: the density of f and the data over that of EP's
# Gaussian. The step adds N vectors x_j, a place k and a sign s to the state, with the density
#
# .. math:: \tilde\pi(\theta, x_1, \dots, x_N, k, s) \propto p(\theta) \prod_j N(x_j; 0, I)\;
#     W_\theta(s x_k), \qquad f = f_\theta(s x_k).
#
# *It has the right marginal.* Integrate out the other vectors: given any k and s, (theta, s x_k)
# has the density :math:`p(\theta) N(x; 0, I) W_\theta(x)`, N(0, I) being symmetric. Under the map
# :math:`f_\theta` that is the density of theta, f and the data, whatever EP's Gaussian is.
#
# *The step leaves it as it is.* In three moves, each on some of the variables given the others:
#
# 1. All but theta and f are drawn anew: (k, s) is uniform on its 2 N values and independent of
#    (theta, s x_k), so it may be put to (1, +), with :math:`x_1 = f_\theta^{-1}(f)`; the other
#    vectors are independent of it, N(0, I).
# 2. theta given all vectors, k and s integrated out: their sum makes of the density
#    :math:`p(\theta) \hat Z_\theta(x)`, with the mean weight :math:`\hat Z` of the members
#    :math:`\pm x_j`. Slices at fixed vectors are on a function without noise (Murray & Graham 2016,
#    arXiv:1510.02958).
# 3. (k, s) given theta and the vectors: a member drawn by its weight, and with it f.
#
# Without 2 it is iterated sampling importance resampling in pairs (Andrieu, Lee & Vihola 2018,
# doi:10.3150/15-BEJ785); with one vector and no sign, 1 and 2 are a slice at a fixed whitened f.
# :math:`\hat Z` is an estimate of the evidence (Andrieu & Roberts 2009, doi:10.1214/07-AOS574)
# whose error is that of few pairs, hundredths of a nat as a rule: nearly the chain with f
# integrated out.
#
# The map must be a function of theta alone during a step. It is one of the covariance at theta and
# of sites that are fixed meanwhile, learnt while widths of slices are; where they do not serve, EP
# begins with them, and need not reach its fixed point: the weights make up for all of it. Of a
# covariance at its numerical rank r < p the map uses the first r entries of x; the others have no
# say in the weights, and stay N(0, I).

# Residuals of EP where known sites do not serve, and where they are learnt.
_TOLERANCE, REFERENCE_TOLERANCE = 0.5, 1e-2
# Of Newton's method from the mean of EP's Gaussian, squared, up to which known sites serve.
_DECREMENT = 0.5
# Of what was learnt, at each further theta; penalty on slopes; thetas that have squares.
_KEPT, _RIDGE, _MOST_SQUARED = 0.98, 1e-3, 4
# Precision that all sites together may add to a direction of f that is left as in the prior.
_LEFT_OUT_OF_PAIRS = 1e-2


@dataclass(frozen=True)
class SiteMap:
    """The map from x to c, and the weights, at one theta.

    Attributes
    ----------
    target : SiteTarget
    gaussian : CoordinateGaussian
        EP's of the leading coordinates; the others are as in the prior.
    """

    target: SiteTarget
    gaussian: cg.CoordinateGaussian

    def pairs(self, white: FloatArray) -> Pairs:
        """Both members of pairs, `white` of shape (p, N)."""
        rank, leading = self.target.factor.pivots.size, self.gaussian.mean.size
        own, rest = white[:leading], white[leading:rank]
        off = solve_triangular(self.gaussian.chol, own, lower=True, trans="T", check_finite=False)
        c = np.concatenate([np.hstack([off, -off]), np.hstack([rest, -rest])])
        c[:leading] += self.gaussian.mean[:, None]
        log_weights = self.gaussian.log_ratio(c[:leading], np.hstack([own, own]))
        with np.errstate(all="ignore"):
            log_weights += self.target.density(c)
        log_weights[np.isnan(log_weights)] = -np.inf
        n = white.shape[1]
        return Pairs(c[:, :n], c[:, n:], log_weights[:n], log_weights[n:])

    def white(self, c: FloatArray) -> FloatArray:
        """The x of coordinates c, as many entries as they have."""
        leading = self.gaussian.mean.size
        own = self.gaussian.chol.T @ (c[:leading] - self.gaussian.mean)
        return np.concatenate([own, c[leading:]])


def site_map(target: SiteTarget, known: GaussianSites | None) -> SiteMap:
    """The map, a function of the target and of sites that are `known`, by these where they do.

    They do where the mean of the Gaussian that they make is near the mode of f: the decrement of a
    step of Newton's method says so. Elsewhere EP begins with them.
    """
    if known is not None:
        tau, nu = known.about(target.density.offset)
        gaussian = _gaussian(target, tau, nu)
        score = target.score(gaussian.mean, tau, nu)
        pull = target.density.factor[:, : gaussian.mean.size].T @ score
        step = solve_triangular(gaussian.chol, pull, lower=True, check_finite=False)
        if step @ step < _DECREMENT:
            return SiteMap(target, gaussian)
    found = target.ep(_TOLERANCE, known)
    size = target.density.offset.size
    if found is None:
        return SiteMap(target, _gaussian(target, np.zeros(size), np.zeros(size)))
    return SiteMap(target, _gaussian(target, *found.about(target.density.offset)))


def _gaussian(target: SiteTarget, tau: FloatArray, nu: FloatArray) -> cg.CoordinateGaussian:
    """Of the coordinates that the sites have a say in."""
    leading = int(np.count_nonzero(target.factor.left * tau.sum() > _LEFT_OUT_OF_PAIRS))
    return cg.coordinate_gaussian(target.density.factor[:, :leading], tau, nu)


class Reference:
    """Sites at any theta: a regression on EP's along a chain, while it is tuned."""

    def __init__(self) -> None:
        self._origin = np.empty(0)
        self._moments: list[FloatArray] = []
        self._ends: list[FloatArray] = []
        self._slopes: FloatArray | None = None

    def learn(self, values: FloatArray, found: GaussianSites | None) -> None:
        """Of one more theta; None teaches nothing."""
        if found is None:
            return
        sites = np.concatenate(found)
        if not self._moments:
            self._origin, self._ends = values, [sites, sites]
            self._moments = [np.zeros((1, 1)), np.zeros((1, 1))]
        terms = self._terms(values)
        new = np.outer(terms, terms), np.outer(terms, sites)
        self._moments = [_KEPT * x + y for x, y in zip(self._moments, new, strict=True)]
        low, high = self._ends
        self._ends = [np.minimum(low, sites), np.maximum(high, sites)]
        self._slopes = None

    def at(self, values: FloatArray) -> GaussianSites | None:
        """Within the range of those that were learnt from; None before any."""
        if not self._moments:
            return None
        if self._slopes is None:
            squares, products = self._moments
            scale = np.sqrt(np.where(squares.diagonal() > 0.0, squares.diagonal(), 1.0))
            ridge = np.diag(_RIDGE * (np.arange(scale.size) > 0))
            inner = squares / scale / scale[:, None] + ridge
            self._slopes = np.linalg.solve(inner, products / scale[:, None]) / scale[:, None]
        return GaussianSites(
            *np.clip(self._terms(values) @ self._slopes, *self._ends).reshape(2, -1)
        )

    def _terms(self, values: FloatArray) -> FloatArray:
        off = values - self._origin
        few = off.size <= _MOST_SQUARED
        squares = np.outer(off, off)[np.tri(off.size, dtype=bool)] if few else np.empty(0)
        return np.concatenate([[1.0], off, squares])


class Weighed(NamedTuple):
    """The members of all pairs at one theta."""

    target: SiteTarget
    pairs: Pairs

    @property
    def log_evidence(self) -> float:
        """Log of the mean weight."""
        weights = _log_weights(self.pairs)
        return of_draws.log_mean_exp(weights) if np.isfinite(weights.max()) else -np.inf

    def pick(self, rng: np.random.Generator) -> tuple[FloatArray, dict[str, float]]:
        """The f of a member drawn by its weight, and what is known of the step."""
        c, stats = pick(self.pairs, rng)
        return self.target.function(c), stats


def _log_weights(pairs: Pairs) -> FloatArray:
    """Of both members, shape (2 N,)."""
    found = np.concatenate([pairs.log_plus, pairs.log_minus])
    return np.where(np.isnan(found), -np.inf, found)


def pick(pairs: Pairs, rng: np.random.Generator) -> tuple[FloatArray, dict[str, float]]:
    """The coordinates of a member drawn by its weight; statistics, the first being the state's."""
    i, stats = picked(_log_weights(pairs), 0, rng)
    stats["relative_ess"] = of_draws.relative_ess(pairs.log_weights)
    return np.concatenate([pairs.plus, pairs.minus], axis=1)[:, i], stats


def picked(
    log_weights: FloatArray, own: int, rng: np.random.Generator
) -> tuple[int, dict[str, float]]:
    """One of several by weight, and statistics; `own` is the state's."""
    i = int(rng.choice(log_weights.size, p=of_draws.normalized_weights(log_weights)))
    return i, {
        "accept": float(i != own),
        "log_weight": float(log_weights[i]) - of_draws.log_mean_exp(log_weights),
        "relative_ess": of_draws.relative_ess(log_weights),
    }


@dataclass(frozen=True)
class SitePairs:
    """The vectors x_j of a step, the first that of the state; see the module.

    Attributes
    ----------
    white : ndarray, shape (p, N)
    known : Reference
        Of the sites of `site_map`.
    """

    white: FloatArray
    known: Reference

    @classmethod
    def around(
        cls,
        c: FloatArray,
        here: SiteMap,
        known: Reference,
        n: int,
        rng: np.random.Generator,
    ) -> "SitePairs":
        """Drawn given the coordinates of f, `here` being the map at its theta."""
        white = rng.standard_normal((here.target.mean.size, n))
        own = here.white(c)
        white[: own.size, 0] = own
        return cls(white, known)

    def at(self, values: FloatArray, target: SiteTarget) -> Weighed:
        """Their members' weights at another theta."""
        return self.weighed(site_map(target, self.known.at(values)))

    def weighed(self, there: SiteMap) -> Weighed:
        """The same, the map being known."""
        return Weighed(there.target, there.pairs(self.white))


# Moves of f between modes, at given hyperparameters, for factors that are not log-concave.
#
# Candidates from a mixture of Gaussians about the modes and the prior join the state, and one of
# all is picked by its weight, the density over that of the mixture (iterated sampling importance
# resampling; Andrieu, Lee & Vihola 2018, doi:10.3150/15-BEJ785). The modes are known by their
# sites, which serve at other hyperparameters too; they are looked for ever more rarely.

_NOTHING = Observations(None, *(np.zeros(0) for _ in range(5)))
_JUMPS = 12  # parts of the posterior, at most
_LATER = 4  # times the steps before, after which modes are looked for anew


class ModeJumps:
    """The modes that are known along a chain."""

    def __init__(self) -> None:
        self._modes: list[GaussianSites] = []
        self._count, self._next = 0, 1

    def due(self) -> bool:
        """Whether this step is to look for modes."""
        self._count += 1
        if self._count < self._next:
            return False
        self._next *= _LATER
        return True

    def learn(self, c: FloatArray, target: SiteTarget) -> None:
        """Look for modes, c being the state."""
        leading, factors = _leading(target), target.factors()
        factors.look_around(np.zeros(leading.offset.size), np.linalg.norm(leading.factor, axis=1))
        if factors.log_concave:
            return
        found = modes.find_modes(modes.Target(leading, factors.slopes), c[: target.n_leading])
        offset = target.density.offset
        self._modes = [
            GaussianSites(mode.tau, mode.nu + mode.tau * offset) for mode in found[:_JUMPS]
        ] or self._modes

    def step(
        self, c: FloatArray, target: SiteTarget, n: int, rng: np.random.Generator
    ) -> FloatArray:
        """The coordinates c, or others from n candidates."""
        if not self._modes:
            return c
        factor = _leading(target).factor
        zero = np.zeros(factor.shape[0])
        sites = [mode.about(target.density.offset) for mode in self._modes]
        parts = [cg.coordinate_gaussian(factor, *own) for own in [*sites, (zero, zero)]]
        leading = factor.shape[1]
        candidates = np.column_stack([c, rng.standard_normal((c.size, n))])
        which = rng.integers(len(parts), size=n)
        for k, gaussian in enumerate(parts):
            own = 1 + np.flatnonzero(which == k)
            candidates[:leading, own] = gaussian.of_white(candidates[:leading, own])
        log_mixture = logsumexp([x.log_over_prior(candidates[:leading]) for x in parts], axis=0)
        with np.errstate(all="ignore"):
            log_weights = target.density(candidates) - log_mixture
        log_weights[np.isnan(log_weights)] = -np.inf
        if not np.isfinite(log_weights[0]):
            return c
        return candidates[:, rng.choice(n + 1, p=of_draws.normalized_weights(log_weights))]

    def through_noise(
        self, f: FloatArray, model: ConjugateModel, n: int, rng: np.random.Generator
    ) -> FloatArray:
        """f, or another draw, where all observations have Student-t noise: given no indicators."""
        due = self.due()
        if not due and not self._modes:
            return f
        sites = _student_sites(model)
        if sites is None:
            return f
        target = SiteTarget(ConjugateModel(model.prior, _NOTHING, sites=sites), np.zeros(0))
        c = target.coordinates(f)
        if due:
            self.learn(c, target)
        moved = self.step(c, target, n, rng)
        return f if moved is c else target.function(moved)


def _student_sites(model: ConjugateModel) -> Sites | None:
    """Observations with Student-t noise as functions of f; None where some are not such points."""
    observed, noises = model.observations, [own.mixture for own in model.mixtures]
    size = sum(own.where.stop - own.where.start for own in model.mixtures)
    if (
        model.prior.truncation.size
        or observed.S.ndim == 2
        or size < observed.value.size
        or not observed.is_point.all()
    ):
        return None
    nu = np.empty(size)
    for noise, where in zip(noises, (own.where for own in model.mixtures), strict=True):
        if not isinstance(noise, StudentTNoise):
            return None
        nu[where] = noise.nu
    return Sites(
        observed.A, observed.a, *student_t(observed.value, nu, np.sqrt(observed.variances))
    )


def _leading(target: SiteTarget) -> cg.SiteLogDensity:
    """The density as a function of the coordinates that matter."""
    density = target.density
    return cg.SiteLogDensity(
        density.log_prob, density.offset, density.factor[:, : target.n_leading]
    )
