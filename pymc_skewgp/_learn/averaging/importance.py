"""Mixtures of Student t distributions, and adaptive importance sampling from them, by rounds.

Each round draws quasi-random points from a mixture of Student t distributions that the points of
all rounds before it have been used to fit. A point's weight is the target over the average of all
rounds' mixtures (deterministic mixture weights), so that no round's mistakes count alone. The
integral is estimated from each round's own mixture instead: it was fitted before the round's
points were drawn, so that there is no bias [1]_. The update of a mixture is the Rao-Blackwellised
one: that which is nearest to weighted points in Kullback-Leibler divergence, by EM [2]_.

References
----------
.. [1] J.-M. Cornuet, J.-M. Marin, A. Mira & C. P. Robert (2012), Adaptive multiple importance
   sampling, doi:10.1111/j.1467-9469.2011.00756.x.
.. [2] O. Cappe, R. Douc, A. Guillin, J.-M. Marin & C. P. Robert (2008), Adaptive importance
   sampling in general mixture classes, doi:10.1007/s11222-008-9059-x.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy.linalg import cho_solve, solve_triangular
from scipy.special import gammaln, logsumexp, stdtr, stdtrit

from pymc_skewgp._gaussian.linalg import symmetric
from pymc_skewgp._gaussian.weights import Estimate, normalized_weights, relative_ess, uniform_points
from pymc_skewgp._learn.averaging.modes import Mode
from pymc_skewgp._learn.averaging.points import WeightedPoints
from pymc_skewgp._learn.averaging.problem import PriorDraws
from pymc_skewgp._learn.coordinates import Point
from pymc_skewgp._validation import FloatArray

Method = Literal["auto", "importance", "surrogate", "nuts"]
METHODS: tuple[Method, ...] = ("auto", "importance", "surrogate", "nuts")

# Independent randomisations in each round, whose spread is the standard error.
_REPLICATES = 16
# Of each round's points, drawn from the prior whatever was learnt: tails that no round has seen
# have bounded weights.
_PRIOR_SHARE = 0.1
# Degrees of freedom of all mixtures: tails heavier than the target's.
DF = 6.0
# Weight that no component of a mixture falls below.
LEAST_SHARE = 0.02
# Of each mode at the start: place, in units of `_SPREAD` standard deviations, scale, and share. The
# last one is for tails that the curvature does not know of.
_COMPONENTS = ((0.0, 1.0, 0.45), (-1.0, 1.3, 0.2), (1.0, 1.3, 0.2), (0.0, 3.0, 0.15))
_SPREAD = 0.8
_TEMPERINGS = 30
# Smallest eigenvalue of a covariance, relative to the largest.
_LEAST_EIGENVALUE = 1e-8
# Coordinates up to which each draw is a smooth function of its uniform numbers.
_MOST_SMOOTH = 3
# Quantiles beyond which infinity would come out, to what they are found, in so many steps at most.
_EDGE, _TO, _STEPS = 1e-12, 1e-9, 60


@dataclass(frozen=True)
class IntegrationSettings:
    """How hyperparameters are integrated out.

    Attributes
    ----------
    method : {"auto", "importance", "surrogate", "nuts"}
        Which rungs of the ladder are tried.
    n_evidences : int
        Points at which the exact evidence is estimated, and f drawn.
    many_rows_evidences : int
        In place of it with many rows, each of which has a posterior of its own.
    most_coordinates : int
        Above it importance sampling from mixtures is not tried, unless it is asked for.
    most_rows_of_chains : int
        Above it NUTS is not tried, unless it is asked for: some thousands of evaluations of EP with
        its gradient, each of which costs as the cube of the rows.
    n_points, points_per_coordinate : int
        Points of a round: the first, or the second times the number of coordinates if that is more.
    enough : int
        Effective sample size at which no further round is made, in place of the points at which
        the evidence is corrected where these are more.
    enough_interpolated : int
        The same, where nearly all of the evidences are interpolated.
    more_rounds : int
        Of importance sampling, where four have not been enough.
    least_ess : float
        Relative ESS below which a rung is not accepted.
    learnt : int
        Points that a surrogate learns from, from which on no further round is made.
    good : float
        Relative ESS of a round's points below which the surrogate learns from another one.
    portion : int
        Of the surrogate's last draws in each group, evaluated at once.
    chains, tune, draws : int
        Chains are shared out among the modes in proportion to their mass, two to each at least.
    largest_r_hat : float
        From here on the chains have not converged.
    least_effective : int
        Effective draws that they must have, at least.
    """

    method: Method = "auto"
    n_evidences: int = 256
    many_rows_evidences: int = 32
    most_coordinates: int = 5
    most_rows_of_chains: int = sys.maxsize
    n_points: int = 64
    points_per_coordinate: int = 32
    enough: int = 320
    enough_interpolated: int = 4096
    more_rounds: int = 12
    least_ess: float = 0.15
    learnt: int = 400
    good: float = 0.25
    portion: int = 8
    chains: int = 4
    tune: int = 250
    draws: int = 250
    largest_r_hat: float = 1.05
    least_effective: int = 100

    def for_many_rows(self) -> "IntegrationSettings":
        """With few points: an evaluation takes a second, and many rows have a normal posterior."""
        return replace(
            self,
            n_evidences=self.many_rows_evidences,
            most_rows_of_chains=0,
            n_points=64,
            points_per_coordinate=16,
            enough=64,
            more_rounds=8,
            least_ess=0.1,
            learnt=192,
            good=0.15,
            portion=4,
        )

    def points_of_round(self, n_coordinates: int) -> int:
        """A multiple of the replicates."""
        wanted = max(self.n_points, self.points_per_coordinate * n_coordinates)
        return -(-wanted // _REPLICATES) * _REPLICATES

    def accepts(self, estimate: Estimate) -> bool:
        """Whether weights are good enough to be used."""
        return estimate.relative_ess >= self.least_ess and not estimate.heavy_tailed


@dataclass(frozen=True, eq=False)
class StudentMixture:
    """Components t(df, mean_k, L_k L_k') with weights.

    Attributes
    ----------
    weights : ndarray, shape (K,)
        They sum to one.
    means : ndarray, shape (K, D)
    chols : ndarray, shape (K, D, D)
        Lower triangular.
    df : float
        Degrees of freedom.
    """

    weights: FloatArray
    means: FloatArray
    chols: FloatArray
    df: float = DF

    @property
    def n_uniforms(self) -> int:
        """Uniform numbers behind one draw: one a coordinate, and the component where many are."""
        return self.means.shape[1] + (self.means.shape[1] > _MOST_SMOOTH)

    def log_density(self, x: FloatArray) -> FloatArray:
        """At the rows of `x`."""
        found: FloatArray = logsumexp(self.components(x)[0], axis=0)
        return found

    def slope(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Log density at the rows of `x`, and its gradient."""
        joint, precision = self.components(x)
        value = logsumexp(joint, axis=0)
        gradient = np.zeros_like(x)
        for f, m, c in zip(np.exp(joint - value) * precision, self.means, self.chols, strict=True):
            gradient -= f[:, None] * cho_solve((c, True), (x - m).T).T
        return value, gradient

    def draw(self, uniforms: FloatArray) -> FloatArray:
        """Rows, one for each column of `uniforms`, `n_uniforms` x N.

        Of few coordinates each is the quantile given those before it (Rosenblatt 1952): points that
        are spread evenly over the cube stay so, and the error of a mean falls faster than that of
        independent draws. Of many the component comes first.
        """
        means, chols, log_shares = self.means, self.chols, np.log(self.weights)
        d, n = means.shape[1], uniforms.shape[1]
        means, chols, log_shares = means[:, None], chols[:, None], log_shares[:, None]
        if d > _MOST_SMOOTH:
            own = np.searchsorted(np.cumsum(self.weights[:-1]), uniforms[0], side="right")
            means, chols, log_shares = self.means[own][None], self.chols[own][None], np.zeros(1)
            uniforms = uniforms[1:]
        x, white = np.empty((n, d)), np.zeros((len(means), n, d))
        square = np.zeros((len(means), n))
        for j, u in enumerate(np.clip(uniforms, _EDGE, 1.0 - _EDGE)):
            # A t given some of its coordinates is one of more degrees of freedom.
            df = self.df + j
            place = means[..., j] + np.einsum("...j,...j->...", chols[..., j, :j], white[..., :j])
            scale = chols[..., j, j] * np.sqrt((self.df + square) / df)
            x[:, j] = _quantile(u, log_shares, place, scale, df)
            z = (x[:, j] - place) / scale
            log_shares = log_shares - 0.5 * (df + 1.0) * np.log1p(z**2 / df) - np.log(scale)
            white[..., j] = (x[:, j] - place) / chols[..., j, j]
            square += white[..., j] ** 2
        return x

    def fitted(
        self, x: FloatArray, weights: FloatArray, widen: float, steps: int, least: float
    ) -> "StudentMixture":
        """The mixture after some steps of EM towards weighted points.

        Parameters
        ----------
        x : ndarray, shape (N, D)
        weights : ndarray, shape (N,)
            Normalised.
        widen : float
            Factor of the covariances of the last step.
        steps : int
        least : float
            Weight below which no component falls.
        """
        d, mixture = x.shape[1], self
        away = x - weights @ x
        whole = (away * weights[:, None]).T @ away
        for step in range(steps):
            joint, precision = mixture.components(x)
            shares = np.exp(joint - logsumexp(joint, axis=0)) * weights
            sums = shares.sum(axis=1)
            # Given its component a point's precision is a Gamma variable with this mean.
            scaled = shares * precision
            effective = sums**2 / np.maximum((shares**2).sum(axis=1), 1e-300)
            means, chols = mixture.means.copy(), mixture.chols.copy()
            for k in np.flatnonzero(effective >= 1.0):
                means[k] = scaled[k] @ x / scaled[k].sum()
                own = ((x - means[k]) * scaled[k][:, None]).T @ (x - means[k]) / sums[k]
                # As many points more as there are coordinates, of the covariance of all.
                pull = (d + 2.0) / (effective[k] + d + 2.0)
                wider = widen if step == steps - 1 else 1.0
                chols[k] = _root(wider * ((1.0 - pull) * own + pull * whole))
            found = np.maximum(sums, least)
            mixture = StudentMixture(found / found.sum(), means, chols, self.df)
        return mixture

    def beside(self, other: "StudentMixture", share: float) -> "StudentMixture":
        """With the components of another one, of as many degrees of freedom."""
        return StudentMixture(
            np.concatenate([(1.0 - share) * self.weights, share * other.weights]),
            np.concatenate([self.means, other.means]),
            np.concatenate([self.chols, other.chols]),
            self.df,
        )

    def components(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Log of weight times density, and mean precision there, (K, N) each."""
        d, df = self.means.shape[1], self.df
        constant = gammaln(0.5 * (df + d)) - gammaln(0.5 * df) - 0.5 * d * np.log(df * np.pi)
        heads = np.log(self.weights) + constant - np.log(np.einsum("kii->ki", self.chols)).sum(1)
        squares = [
            np.square(solve_triangular(chol, (x - mean).T, lower=True, check_finite=False)).sum(0)
            for mean, chol in zip(self.means, self.chols, strict=True)
        ]
        distances = np.array(squares)
        joint = heads[:, None] - 0.5 * (df + d) * np.log1p(distances / df)
        return joint, (df + d) / (df + distances)


def _quantile(
    u: FloatArray, log_shares: FloatArray, places: FloatArray, scales: FloatArray, df: float
) -> FloatArray:
    """Of mixtures of Student t distributions, (K, N): one for each of the levels `u`, by Newton."""
    shares = np.exp(log_shares - logsumexp(log_shares, axis=0)) + np.zeros_like(places)
    ends = places + scales * stdtrit(df, u)
    low, high = ends.min(axis=0), ends.max(axis=0)  # between those of the components
    found = np.clip((shares * ends).sum(axis=0), low, high)
    constant = gammaln(0.5 * (df + 1.0)) - gammaln(0.5 * df) - 0.5 * np.log(df * np.pi)
    left = np.arange(u.size if len(ends) > 1 else 0)
    for _ in range(_STEPS):
        if not left.size:
            break
        x, own, scale = found[left], shares[:, left], scales[:, left]
        z = (x - places[:, left]) / scale
        off = (own * stdtr(df, z)).sum(axis=0) - u[left]
        low[left] = np.where(off < 0.0, x, low[left])
        high[left] = np.where(off > 0.0, x, high[left])
        density = np.exp(constant - 0.5 * (df + 1.0) * np.log1p(z**2 / df)) / scale
        x = x - off / (own * density).sum(axis=0)
        inside = (low[left] < x) & (x < high[left])
        found[left] = np.where(inside, x, 0.5 * (low[left] + high[left]))
        left = left[np.abs(off) > _TO]
    return found


def _root(matrix: FloatArray) -> FloatArray:
    """Cholesky factor, of a matrix with its smallest eigenvalues raised."""
    values, vectors = np.linalg.eigh(symmetric(matrix))
    raised = np.maximum(values, max(_LEAST_EIGENVALUE * values[-1], 1e-12))
    factor: FloatArray = np.linalg.cholesky(symmetric((vectors * raised) @ vectors.T))
    return factor


def mixture_of_modes(
    modes: list[Mode], components: Sequence[tuple[float, float, float]] = _COMPONENTS
) -> StudentMixture:
    """Each mode with its curvature, with others beside it and around it."""
    means, chols, log_shares = [], [], []
    for mode in modes:
        values, vectors = np.linalg.eigh(mode.covariance)
        chol = np.linalg.cholesky(mode.covariance)
        for place, scale, share in components:
            means.append(mode.point.x + place * _SPREAD * np.sqrt(values[-1]) * vectors[:, -1])
            chols.append(scale * chol)
            log_shares.append(mode.log_mass + np.log(share))
    shares = np.maximum(normalized_weights(np.array(log_shares)), LEAST_SHARE)
    return StudentMixture(shares / shares.sum(), np.array(means), np.array(chols))


# Log target and EP's log evidence at points.
Target = Callable[[Sequence[Point]], tuple[FloatArray, FloatArray]]


class AdaptiveImportance:
    """Rounds of importance sampling, with one pattern of binary values.

    Parameters
    ----------
    target : callable
    modes : list of Mode
        Of one pattern, at least one.
    settings : IntegrationSettings
    rng : numpy.random.Generator
    prior : PriorDraws, optional
        Every round has a share of its draws.
    """

    def __init__(
        self,
        target: Target,
        modes: list[Mode],
        settings: IntegrationSettings,
        rng: np.random.Generator,
        prior: PriorDraws | None = None,
    ) -> None:
        self._target, self._rng = target, rng
        self._pattern, self._prior = modes[0].point.pattern, prior
        self._share = 0.0 if prior is None else _PRIOR_SHARE
        self._mixtures = [mixture_of_modes(modes)]
        self._rounds: list[tuple[FloatArray, ...]] = []  # points, target, evidence, prior
        self._n_coordinates = modes[0].point.x.size
        self._least = settings.points_of_round(self._n_coordinates)
        self.points: WeightedPoints

    @property
    def n_rounds(self) -> int:
        """How many there were."""
        return len(self._rounds)

    def round(self, n_points: int = 0) -> WeightedPoints:
        """Another round, of about `n_points` or more; all points so far, with their weights.

        They are from a mixture that those before are used to fit.
        """
        # A power of two: fewer of Sobol's points are not as evenly spread, by far.
        each = 2 ** round(np.log2(max(n_points, self._least, _REPLICATES) / _REPLICATES))
        if self._rounds:
            self._mixtures.append(self._fitted())
        mixture = self._mixtures[-1]
        uniforms = uniform_points(mixture.n_uniforms, each, _REPLICATES, self._rng, together=True)
        of_prior = uniforms[0] < self._share
        uniforms[0] = (uniforms[0] - self._share) / (1.0 - self._share)
        x = np.empty((uniforms.shape[1], self._n_coordinates))
        x[~of_prior] = mixture.draw(uniforms[:, ~of_prior])
        log_prior = np.full(len(x), -np.inf)
        if self._prior is not None:
            x[of_prior] = self._prior.draw(int(of_prior.sum()))
            log_prior = self._prior.log_density(x)
        found = self._target([Point(row, self._pattern) for row in x])
        self._rounds.append((x, *found, log_prior))
        self.points = self._weighted()
        return self.points

    def _weighted(self) -> WeightedPoints:
        x, log_target, log_evidence, log_prior = map(
            np.concatenate, zip(*self._rounds, strict=True)
        )
        sizes = np.array([own[1].size for own in self._rounds])
        of_mixtures = np.array([mixture.log_density(x) for mixture in self._mixtures])
        with np.errstate(divide="ignore"):
            of_prior = np.log(self._share) + log_prior
        proposals = np.logaddexp(np.log1p(-self._share) + of_mixtures, of_prior)
        averaged = logsumexp(proposals, axis=0, b=(sizes / sizes.sum())[:, None])
        # By each round's own mixture, of all rounds but the first if there are others.
        which = np.repeat(np.arange(sizes.size), sizes)
        own = log_target - proposals[which, np.arange(which.size)]
        own[which < sizes.size - max(sizes.size - 1, 1)] = np.nan
        replicate = [np.repeat(np.arange(_REPLICATES), size // _REPLICATES) for size in sizes]
        arrays = log_target, log_evidence, log_target - averaged, np.concatenate(replicate), own
        return WeightedPoints.of(self._pattern, x, *arrays)

    @property
    def last_relative_ess(self) -> float:
        """Of the last round alone, by its own weights."""
        ratio = self.points.log_ratio
        assert ratio is not None
        return relative_ess(ratio[-self._rounds[-1][1].size :])

    def _fitted(self) -> StudentMixture:
        """The next round's mixture."""
        x, log_weights = self.points.x, self.points.log_weights
        # Few effective points make a poor mixture: powers of the weights until there are enough.
        wanted = min(10.0 * (self._n_coordinates + 2), 0.2 * len(x))
        power = 1.0
        for _ in range(_TEMPERINGS):
            if relative_ess(power * log_weights) * len(x) >= wanted:
                break
            power *= 0.8
        weights = normalized_weights(power * log_weights)
        return self._mixtures[-1].fitted(x, weights, 1.1, 3, LEAST_SHARE)
