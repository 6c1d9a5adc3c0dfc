"""The unified skew-normal distribution as an immutable value."""

from functools import cached_property
from operator import attrgetter
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import cho_solve, solve_triangular

from pymc_skewgp import _validation as check
from pymc_skewgp._gaussian import linalg
from pymc_skewgp._gaussian.linalg import symmetric
from pymc_skewgp._gaussian.truncated import latent_moments, log_orthant
from pymc_skewgp._gaussian.univariate import LatentMoments
from pymc_skewgp._gaussian.weights import Estimate, add_estimates
from pymc_skewgp._limits import refuse_too_many_draws
from pymc_skewgp._sun import parameters as algebra
from pymc_skewgp._sun.parameters import SunParameters
from pymc_skewgp._validation import FloatArray, Seed

_LOG_2PI = float(np.log(2.0 * np.pi))


def _parameter(name: str, doc: str) -> Any:
    return property(attrgetter(f"_parameters.{name}"), doc=doc)


class SUN:
    r"""Unified skew-normal distribution of p dimensions with s latent ones.

    A Gaussian seen through a condition: with :math:`C = D \Delta`,
    :math:`D = \mathrm{diag}(\Omega)^{1/2}`,

    .. math::

        \begin{pmatrix} x_0 \\ x_1 \end{pmatrix} \sim N\left(0,
        \begin{pmatrix} \Gamma & C^\top \\ C & \Omega \end{pmatrix}\right), \qquad
        z = \mu + x_1 \;\text{ given }\; x_0 + \gamma > 0,

        \log p(z) = \log N(z; \mu, \Omega)
        + \log \Phi_s\{\gamma + C^\top \Omega^{-1} (z - \mu);\, \Gamma - C^\top \Omega^{-1} C\}
        - \log \Phi_s(\gamma; \Gamma).

    With s = 0 it is the normal distribution, with p = s = 1 and gamma = 0 the skew-normal. It is
    closed under marginals, conditionals, affine maps and probit likelihoods.

    Parameters
    ----------
    mu : array_like, shape (p,)
        Location (not the mean); :math:`\xi` in the literature.
    scale : array_like, shape (p, p)
        :math:`\Omega`, symmetric and positive definite.
    skewness : array_like, shape (p, s)
        :math:`\Delta`. Zero entries leave the normal distribution alone.
    truncation : array_like, shape (s,)
        :math:`\gamma`; large positive values leave the normal distribution alone.
    latent_cov : array_like, shape (s, s)
        :math:`\Gamma`; a correlation matrix in the literature, any covariance here.

    Raises
    ------
    ValueError
        NaN, infinities or shapes that do not fit.
    NotPositiveDefiniteError
        When :math:`[[\Gamma, C^\top], [C, \Omega]]` is not positive definite.
    DoublePrecisionError
        From methods, when the orthant of the latent variable is so improbable, its covariance so
        nearly singular, that round-off decides its probability.

    References
    ----------
    .. [1] R. B. Arellano-Valle & A. Azzalini (2006), On the unification of families of skew-normal
       distributions, doi:10.1111/j.1467-9469.2006.00503.x.
    .. [2] D. Durante (2019), Conjugate Bayes for probit regression via unified skew-normal
       distributions, arXiv:1802.09565.
    .. [3] A. Benavoli, D. Azzimonti & D. Piga (2020), Skew Gaussian processes for classification,
       arXiv:2005.12987.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_skewgp import SUN
    >>> sun = SUN([0.0], [[1.0]], [[0.9]], [0.0], [[1.0]])
    >>> sun.mean().round(4), sun.skew().round(4)
    (array([0.7181]), array([0.4715]))
    """

    def __init__(
        self,
        mu: ArrayLike,
        scale: ArrayLike,
        skewness: ArrayLike,
        truncation: ArrayLike,
        latent_cov: ArrayLike,
    ) -> None:
        omega = check.as_covariance("scale", scale)
        delta = check.as_matrix("skewness", skewness, (omega.shape[0], None))
        cross = np.sqrt(np.maximum(omega.diagonal(), 0.0))[:, None] * delta
        found = algebra.checked_parameters(mu, omega, cross, truncation, latent_cov, "skewness")
        self._parameters = algebra.read_only(found)

    @classmethod
    def from_cross_cov(
        cls,
        mu: ArrayLike,
        scale: ArrayLike,
        cross_cov: ArrayLike,
        truncation: ArrayLike,
        latent_cov: ArrayLike,
    ) -> Self:
        """Build from the cross-covariance C (p, s) in place of the skewness.

        Parameters
        ----------
        mu, scale, truncation, latent_cov
            As for `SUN`.
        cross_cov : array_like, shape (p, s)
            Covariance of the variable with the latent one.

        Returns
        -------
        SUN
        """
        omega = check.as_covariance("scale", scale)
        cross = check.as_matrix("cross_cov", cross_cov, (omega.shape[0], None))
        return cls._of(
            algebra.checked_parameters(mu, omega, cross, truncation, latent_cov, "cross_cov")
        )

    @classmethod
    def _of(cls, parameters: SunParameters) -> Self:
        """Build without checks, for parameters that follow from valid ones."""
        sun = cls.__new__(cls)
        sun._parameters = algebra.read_only(parameters)
        return sun

    mu: FloatArray = _parameter("mu", "Location, shape (p,).")
    scale: FloatArray = _parameter("scale", "Scale matrix Omega, shape (p, p).")
    cross_cov: FloatArray = _parameter("cross_cov", "Covariance C with the latent one, (p, s).")
    truncation: FloatArray = _parameter("truncation", "Truncation gamma, shape (s,).")
    latent_cov: FloatArray = _parameter("latent_cov", "Latent covariance Gamma, shape (s, s).")

    @property
    def parameters(self) -> SunParameters:
        """All five, in cross-covariance form."""
        return self._parameters

    @property
    def skewness(self) -> FloatArray:
        """Skewness matrix Delta = D^-1 C, shape (p, s); not the third moment, which is `skew`."""
        return np.asarray(self.cross_cov / np.sqrt(self.scale.diagonal())[:, None])

    @property
    def n_dims(self) -> int:
        """Dimension p."""
        return self.mu.size

    @property
    def n_latent(self) -> int:
        """Latent dimension s."""
        return self.truncation.size

    def __repr__(self) -> str:
        return f"SUN(n_dims={self.n_dims}, n_latent={self.n_latent})"

    @cached_property
    def log_normalizer(self) -> Estimate:
        """Log Phi_s(gamma; Gamma) with its error: log P(x_0 + gamma > 0)."""
        algebra.refuse_contradictory_latent(self.latent_cov, self.truncation)
        return log_orthant(self.truncation, self.latent_cov, 1024, 0)

    def logpdf(
        self, z: ArrayLike, *, n_draws: int = 1024, random_seed: Seed = 0
    ) -> float | FloatArray:
        """Log density.

        Parameters
        ----------
        z : array_like, shape (p,) or (k, p)
            Where to evaluate.
        n_draws : int, default 1024
            Draws for the normal probabilities, exact when s <= 2.
        random_seed : int, Generator, SeedSequence or None, default 0
            Fixed, so that the density is a deterministic function.

        Returns
        -------
        float or ndarray, shape (k,)
            Log density; its error is that of `logpdf_estimate`.
        """
        points = check.as_real_array("z", z)
        if points.ndim == 1:
            return self.logpdf_estimate(points, n_draws=n_draws, random_seed=random_seed).value
        points = check.as_matrix("z", points, (None, self.n_dims))
        options: dict[str, Any] = {"n_draws": n_draws, "random_seed": random_seed}
        return np.array([self.logpdf_estimate(p, **options).value for p in points])

    def logpdf_estimate(
        self, z: ArrayLike, *, n_draws: int = 1024, random_seed: Seed = 0
    ) -> Estimate:
        """Log density at one point, shape (p,), with its Monte Carlo error."""
        point = check.as_vector("z", z, self.n_dims) - self.mu
        normalizer = self.log_normalizer  # first: it refuses what could not be computed
        chol = self._scale_chol
        white = solve_triangular(chol, point, lower=True)
        normal = -0.5 * (white @ white + point.size * _LOG_2PI) - np.log(chol.diagonal()).sum()
        half = solve_triangular(chol, self.cross_cov, lower=True)
        limits, cov = self.truncation + half.T @ white, self.latent_cov - half.T @ half
        inside = log_orthant(limits, cov, check.as_count("n_draws", n_draws), random_seed)
        return add_estimates(normal, inside, normalizer)

    def logcdf(self, z: ArrayLike, *, n_draws: int = 1024, random_seed: Seed = 0) -> Estimate:
        r"""Log distribution function, log P(Z <= z), with its error.

        .. math:: \log \Phi_{p+s}\left\{\begin{pmatrix} z - \mu \\ \gamma \end{pmatrix};
            \begin{pmatrix} \Omega & -C \\ -C^\top & \Gamma \end{pmatrix}\right\}
            - \log \Phi_s(\gamma; \Gamma)

        Parameters
        ----------
        z : array_like, shape (p,)
            Upper limits; infinite entries are allowed.
        n_draws, random_seed
            As for `logpdf`.

        Returns
        -------
        Estimate
        """
        point = check.as_vector("z", z, self.n_dims, allow_inf=True)
        joint = np.block([[self.scale, -self.cross_cov], [-self.cross_cov.T, self.latent_cov]])
        limits = np.concatenate([point - self.mu, self.truncation])
        if (limits == -np.inf).any():
            return Estimate(-np.inf, 0.0, 1.0, -np.inf)
        normalizer = self.log_normalizer  # first: it refuses what could not be computed
        below = log_orthant(limits, joint, check.as_count("n_draws", n_draws), random_seed)
        return add_estimates(0.0, below, normalizer)

    def sample(self, n: int, random_seed: Seed = None) -> FloatArray:
        """Draw from the distribution.

        The latent variable is drawn by the twisted sampler, at least four proposals for each draw,
        resampled by weight; given it the variable is Gaussian.

        Parameters
        ----------
        n : int
            Draws.
        random_seed : int, Generator, SeedSequence or None
            Source of randomness.

        Returns
        -------
        ndarray, shape (n, p)
        """
        count = check.as_count("n", n)
        refuse_too_many_draws("n", count, max(self.n_dims, 4 * self.n_latent))
        rng = check.as_generator(random_seed)
        return algebra.sun_draws(self._parameters, count, rng, evenly=True)

    def mean(self, *, n_draws: int = 16384, random_seed: Seed = 0) -> FloatArray:
        r"""Mean, shape (p,): :math:`\mu + C \Gamma^{-1} E[u]`.

        Exact for s <= 2; otherwise from `n_draws` weighted draws of the latent u.
        """
        return self.mu + self._regression.T @ self._moments(n_draws, random_seed).mean

    def cov(self, *, n_draws: int = 16384, random_seed: Seed = 0) -> FloatArray:
        r"""Covariance, shape (p, p): :math:`\Omega - C\Gamma^{-1}(\Gamma - V)\Gamma^{-1}C^\top`.

        V is the covariance of the latent u. Exact for s <= 2; otherwise from weighted draws.
        """
        lost = self.latent_cov - self._moments(n_draws, random_seed).cov
        return self.scale - self._regression.T @ lost @ self._regression

    def skew(self, *, n_draws: int = 16384, random_seed: Seed = 0) -> FloatArray:
        """Skewness (standardised third central moment) of each coordinate, shape (p,).

        Exact for s <= 2; otherwise from weighted draws.
        """
        moments = self._moments(n_draws, random_seed)
        lost = self.latent_cov - moments.cov
        taken = ((lost @ self._regression) * self._regression).sum(axis=0)
        variance = self.scale.diagonal() - taken
        return moments.third(self._regression) / variance**1.5

    def marginal(self, idx: ArrayLike | slice) -> "SUN":
        """Distribution of the coordinates `idx` (int, sequence, slice or boolean mask)."""
        return self._of(algebra.marginal(self._parameters, algebra.coordinates(self.n_dims, idx)))

    def conditional(self, idx: ArrayLike | slice, value: ArrayLike) -> "SUN":
        r"""Distribution of the other coordinates given that those in `idx` equal `value`.

        With the given coordinates as 1, the others as 2:

        .. math::

            \mu_2 + \Omega_{21}\Omega_{11}^{-1}(z_1 - \mu_1), \quad
            \Omega_{22} - \Omega_{21}\Omega_{11}^{-1}\Omega_{12}, \quad
            C_2 - \Omega_{21}\Omega_{11}^{-1} C_1,

            \gamma + C_1^\top\Omega_{11}^{-1}(z_1 - \mu_1), \quad
            \Gamma - C_1^\top\Omega_{11}^{-1}C_1.

        Parameters
        ----------
        idx : int, sequence of int, slice or boolean mask
            Coordinates given; at least one other must be left.
        value : array_like
            Their values.

        Returns
        -------
        SUN
        """
        given = algebra.coordinates(self.n_dims, idx)
        rest = np.setdiff1d(np.arange(self.n_dims), given)
        if rest.size == 0:
            raise ValueError(f"idx names all {self.n_dims} coordinates: leave at least one.")
        known = check.as_vector("value", np.atleast_1d(value), given.size)
        return self._of(algebra.conditional(self._parameters, given, rest, known))

    def affine(self, A: ArrayLike, b: ArrayLike = 0.0) -> "SUN":
        r"""Distribution of :math:`A z + b`, A of shape (q, p) and full row rank."""
        matrix = check.as_matrix("A", A, (None, self.n_dims))
        shift = check.as_vector("b", b, matrix.shape[0])
        return self.from_cross_cov(*algebra.affine(self._parameters, matrix, shift))

    def condition(self, W: ArrayLike, Z: ArrayLike, S: ArrayLike) -> "SUN":
        r"""Posterior under the likelihood :math:`\Phi_m(Z + W z; S)`: the conjugate update.

        .. math::

            \tilde\gamma = \begin{pmatrix}\gamma \\ Z + W\mu\end{pmatrix}, \quad
            \tilde C = (C, \Omega W^\top), \quad
            \tilde\Gamma = \begin{pmatrix}\Gamma & C^\top W^\top \\
            W C & W\Omega W^\top + S\end{pmatrix}.

        Probit classification of labels y in {0, 1} is ``W = diag(2 y - 1)``, ``Z = 0``,
        ``S = I``. The log evidence is the difference of the two `log_normalizer`.

        Parameters
        ----------
        W : array_like, shape (m, p)
            One row an observation.
        Z : array_like, shape (m,)
            Offsets.
        S : array_like, shape (m, m)
            Noise covariance.

        Returns
        -------
        SUN
            With s + m latent dimensions.
        """
        weights = check.as_matrix("W", W, (None, self.n_dims))
        m = weights.shape[0]
        offsets = check.as_vector("Z", Z, m)
        noise = check.as_covariance("S", S, m)
        linalg.cholesky("S", noise)  # refuses what is no covariance
        pull, cross = weights @ self.scale, weights @ self.cross_cov
        below = np.hstack([cross, symmetric(pull @ weights.T) + noise])
        return self._of(
            self._parameters._replace(
                cross_cov=np.hstack([self.cross_cov, pull.T]),
                truncation=np.concatenate([self.truncation, offsets + weights @ self.mu]),
                latent_cov=np.vstack([np.hstack([self.latent_cov, cross.T]), below]),
            )
        )

    @cached_property
    def _scale_chol(self) -> FloatArray:
        return linalg.cholesky("scale", self.scale)[0]

    @cached_property
    def _regression(self) -> FloatArray:
        """Gamma^-1 C', shape (s, p): coefficients of the latent variable in the mean of z."""
        if self.n_latent == 0:
            return np.zeros((0, self.n_dims))
        chol, _ = linalg.cholesky("latent_cov", self.latent_cov)
        return cho_solve((chol, True), self.cross_cov.T)

    def _moments(self, n_draws: int, random_seed: Seed) -> LatentMoments:
        count = check.as_count("n_draws", n_draws)
        algebra.refuse_contradictory_latent(self.latent_cov, self.truncation)
        return latent_moments(self.latent_cov, -self.truncation, count, random_seed)
