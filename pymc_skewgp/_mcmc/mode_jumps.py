r"""Moves of f between modes, at given hyperparameters, for factors that are not log-concave.

Candidates from a mixture of Gaussians about the modes and the prior join the state, and one of all
is picked by its weight, the density over that of the mixture (iterated sampling importance
resampling; Andrieu, Lee & Vihola 2018, doi:10.3150/15-BEJ785). The modes are known by their sites,
which serve at other hyperparameters too; they are looked for ever more rarely.
"""

import numpy as np
from scipy.special import logsumexp

from pymc_skewgp._gaussian.proposals.coordinate_gaussian import SiteLogDensity, coordinate_gaussian
from pymc_skewgp._gaussian.proposals.modes import Target, find_modes
from pymc_skewgp._gaussian.weights import normalized_weights
from pymc_skewgp._mcmc.model import ConjugateModel
from pymc_skewgp._mcmc.scale_mixtures import StudentTNoise
from pymc_skewgp._mcmc.site_target import GaussianSites, SiteTarget
from pymc_skewgp._observations.observations import Observations
from pymc_skewgp._observations.sites import Sites
from pymc_skewgp._observations.student_t import student_t
from pymc_skewgp._validation import FloatArray

_NOTHING = Observations(None, *(np.zeros(0) for _ in range(5)))
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
        found = find_modes(Target(leading, factors.slopes), c[: target.n_leading])
        offset = target.density.offset
        self._modes = [
            GaussianSites(mode.tau, mode.nu + mode.tau * offset) for mode in found
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
        parts = [coordinate_gaussian(factor, *own) for own in [*sites, (zero, zero)]]
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
        return candidates[:, rng.choice(n + 1, p=normalized_weights(log_weights))]

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


def _leading(target: SiteTarget) -> SiteLogDensity:
    """The density as a function of the coordinates that matter."""
    density = target.density
    return SiteLogDensity(density.log_prob, density.offset, density.factor[:, : target.n_leading])
