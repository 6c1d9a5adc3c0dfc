"""Adaptive multiple importance sampling over hyperparameters, from their posterior modes.

Each round draws quasi-random points from a mixture of Student t distributions that the points of
all rounds before it have been used to fit. A point's weight is the target over the average of all
rounds' mixtures (deterministic mixture weights), so that no round's mistakes count alone. The
integral is estimated from each round's own mixture instead: it was fitted before the round's points
were drawn, so that there is no bias.

References
----------
.. [1] J.-M. Cornuet, J.-M. Marin, A. Mira & C. P. Robert (2012), Adaptive multiple importance
   sampling, doi:10.1111/j.1467-9469.2011.00756.x.
"""

from collections.abc import Callable, Sequence

import numpy as np
from scipy.special import logsumexp

from pymc_skewgp._gaussian.points import uniform_points
from pymc_skewgp._gaussian.weights import IntArray, normalized_weights
from pymc_skewgp._learn.averaging.modes import Mode
from pymc_skewgp._learn.averaging.prior_draws import PriorDraws
from pymc_skewgp._learn.averaging.settings import ImportanceSettings
from pymc_skewgp._learn.averaging.student_mixture import StudentMixture
from pymc_skewgp._learn.averaging.weighted_points import WeightedPoints
from pymc_skewgp._learn.point import Pattern, Point
from pymc_skewgp._validation import FloatArray

# Log target and EP's log evidence at points.
Target = Callable[[Sequence[Point]], tuple[FloatArray, FloatArray]]
_TEMPERINGS = 30
# Of each mode at the start: place, in units of `spread_modes`, scale, and share. The last one is
# for tails that the curvature does not know of.
_COMPONENTS = ((0.0, 1.0, 0.45), (-1.0, 1.3, 0.2), (1.0, 1.3, 0.2), (0.0, 3.0, 0.15))


class AdaptiveImportance:
    """Rounds of importance sampling.

    Parameters
    ----------
    target : callable
    modes : list of Mode
        At least one.
    settings : ImportanceSettings
    rng : numpy.random.Generator
    prior : callable, optional
        Draws from the prior given a pattern of binary values, where there are any: every round has
        a share of them. Default none.
    """

    def __init__(
        self,
        target: Target,
        modes: list[Mode],
        settings: ImportanceSettings,
        rng: np.random.Generator,
        prior: Callable[[Pattern], PriorDraws | None] = lambda _: None,
    ) -> None:
        self._target, self._settings, self._rng = target, settings, rng
        self.patterns: list[Pattern] = list(dict.fromkeys(mode.point.pattern for mode in modes))
        self._samplers = [
            _OnePattern(
                [mode for mode in modes if mode.point.pattern == pattern], prior(pattern), settings
            )
            for pattern in self.patterns
        ]
        self.n_rounds = 0

    def round(self, n_points: int | None = None) -> WeightedPoints:
        """Another round, of `n_points` or more; all points so far, with their weights."""
        if self.n_rounds:
            self._adapt()
        self.n_rounds += 1
        each = -(-(n_points or 0) // len(self.patterns))
        for pattern, sampler in zip(self.patterns, self._samplers, strict=True):
            x = sampler.draw(each, self._rng)
            sampler.take(*self._target([Point(row, pattern) for row in x]))
        return self.points

    @property
    def points(self) -> WeightedPoints:
        """All points so far."""
        parts = self._samplers
        return WeightedPoints(
            np.concatenate([part.x for part in parts]),
            np.repeat(np.arange(len(parts)), [len(part.x) for part in parts]),
            self.patterns,
            np.concatenate([part.log_target for part in parts]),
            np.concatenate([part.log_evidence for part in parts]),
            # Every pattern has its own points: the integral is the sum over patterns.
            np.concatenate([part.log_weights for part in parts]) + np.log(len(parts)),
            np.concatenate([part.replicate for part in parts]),
            np.concatenate([part.log_ratio for part in parts]) + np.log(len(parts)),
        )

    @property
    def last_relative_ess(self) -> float:
        """Of the last round alone, by its own weights, the worst pattern's."""
        return min(part.last_relative_ess for part in self._samplers)

    def _adapt(self) -> None:
        for part in self._samplers:
            part.adapt()


class _OnePattern:
    """Rounds with one pattern of binary values."""

    def __init__(
        self, modes: list[Mode], prior: PriorDraws | None, settings: ImportanceSettings
    ) -> None:
        self._settings, self._prior = settings, prior
        self._share = 0.0 if prior is None else settings.prior_share
        self._mixtures = [mixture_of_modes(modes, settings)]
        d = modes[0].point.x.size
        self._least = settings.points_of_round(d)
        self._sizes: list[int] = []
        self.x = np.zeros((0, d))
        self.log_target, self.log_evidence = np.zeros(0), np.zeros(0)
        self._log_prior = np.zeros(0)

    def draw(self, n_points: int, rng: np.random.Generator) -> FloatArray:
        """Points of a round, no fewer than the settings say."""
        replicates = self._settings.n_replicates
        mixture = self._mixtures[-1]
        each = -(-max(n_points, self._least) // replicates)
        self._sizes.append(each * replicates)
        uniforms = uniform_points(mixture.n_uniforms, each, replicates, rng)
        of_prior = uniforms[0] < self._share
        uniforms[0] = (uniforms[0] - self._share) / (1.0 - self._share)
        new = np.empty((uniforms.shape[1], mixture.means.shape[1]))
        new[~of_prior] = mixture.draw(uniforms[:, ~of_prior])
        log_prior = np.full(len(new), -np.inf)
        if self._prior is not None:
            new[of_prior] = self._prior.draw(int(of_prior.sum()))
            log_prior = self._prior.log_density(new)
        self.x = np.concatenate([self.x, new])
        self._log_prior = np.concatenate([self._log_prior, log_prior])
        return new

    def take(self, log_target: FloatArray, log_evidence: FloatArray) -> None:
        """What the target is at these points."""
        self.log_target = np.concatenate([self.log_target, log_target])
        self.log_evidence = np.concatenate([self.log_evidence, log_evidence])

    @property
    def replicate(self) -> IntArray:
        """Of each point."""
        n = self._settings.n_replicates
        return np.concatenate([np.repeat(np.arange(n), size // n) for size in self._sizes])

    @property
    def log_weights(self) -> FloatArray:
        """Target over the average of all mixtures."""
        every = slice(None)
        proposals = np.array([self._log_proposal(mixture, every) for mixture in self._mixtures])
        shares = np.array(self._sizes) / sum(self._sizes)
        found: FloatArray = self.log_target - logsumexp(proposals, axis=0, b=shares[:, None])
        return found

    @property
    def log_ratio(self) -> FloatArray:
        """Target over each round's own mixture, of all rounds but the first if there are others."""
        counted = self._sizes[1:] or self._sizes
        found = np.full(self.log_target.size, np.nan)
        begin = found.size - sum(counted)
        for mixture, size in zip(self._mixtures[-len(counted) :], counted, strict=True):
            own = slice(begin, begin + size)
            found[own] = self.log_target[own] - self._log_proposal(mixture, own)
            begin += size
        return found

    def _log_proposal(self, mixture: StudentMixture, own: slice) -> FloatArray:
        """At points, with the share of the prior."""
        found = np.log1p(-self._share) + mixture.log_density(self.x[own])
        with np.errstate(divide="ignore"):
            return np.logaddexp(found, np.log(self._share) + self._log_prior[own])

    @property
    def last_relative_ess(self) -> float:
        """Of the last round alone."""
        last = self.log_ratio[-self._sizes[-1] :]
        return _effective(last) / last.size

    def adapt(self) -> None:
        """Fit the next round's mixture."""
        settings = self._settings
        log_weights = self.log_weights
        # Few effective points make a poor mixture: powers of the weights until there are enough.
        wanted = min(10.0 * (self.x.shape[1] + 2), 0.2 * log_weights.size)
        power = 1.0
        for _ in range(_TEMPERINGS):
            if _effective(power * log_weights) >= wanted:
                break
            power *= 0.8
        next_mixture = self._mixtures[-1].fitted(
            self.x,
            normalized_weights(power * log_weights),
            widen=settings.widen,
            least_share=settings.least_share,
            steps=settings.em_steps,
        )
        self._mixtures.append(next_mixture)


def _effective(log_weights: FloatArray) -> float:
    weights = normalized_weights(log_weights)
    return float(1.0 / (weights @ weights))


def mixture_of_modes(
    modes: list[Mode],
    settings: ImportanceSettings,
    components: Sequence[tuple[float, float, float]] = _COMPONENTS,
) -> StudentMixture:
    """Each mode with its curvature, with others beside it and around it."""
    means, chols, log_shares = [], [], []
    for mode in modes:
        _, vectors = np.linalg.eigh(mode.covariance)
        chol = np.linalg.cholesky(mode.covariance)
        width = np.sqrt(vectors[:, -1:].T @ mode.covariance @ vectors[:, -1:])[0]
        shift = settings.spread_modes * width * vectors[:, -1]
        for place, scale, share in components:
            means.append(mode.point.x + place * shift)
            chols.append(scale * chol)
            log_shares.append(mode.log_mass + np.log(share))
    shares = np.maximum(normalized_weights(np.array(log_shares)), settings.least_share)
    return StudentMixture(shares / shares.sum(), np.array(means), np.array(chols), settings.df)
