"""A latent vector with its observations at given hyperparameters: rows, or mixtures of rows.

Some observations are no rows but mixtures of them: given an *indicator* z for each they are. What
the rows of a sampler need is drawn as in any data augmentation: z given f, then rows given z.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple, Protocol

import numpy as np
from scipy.special import gammaln, stdtr, stdtrit

from pymc_skewgp._gaussian.univariate import log_ndtr_interval
from pymc_skewgp._observations.observations import Observations
from pymc_skewgp._observations.sites import Sites
from pymc_skewgp._sun.parameters import SunParameters
from pymc_skewgp._validation import FloatArray


class Rows(NamedTuple):
    """Rows v = eta + offset + e with noise of their own, but for eta; arrays of shape (m,).

    Attributes
    ----------
    offset : ndarray
    variance : ndarray
        Of e.
    lower, upper : ndarray
        Limits of v. Infinite ones are of a row that says nothing.
    value : ndarray
        v at points; NaN elsewhere.
    """

    offset: FloatArray
    variance: FloatArray
    lower: FloatArray
    upper: FloatArray
    value: FloatArray


class Mixture(Protocol):
    """Observations that are rows given their indicators, one for each."""

    def draw(self, errors: Rows, rng: np.random.Generator) -> FloatArray:
        """Indicators given f, shape (m,), nothing else of the rows being known but the data.

        Parameters
        ----------
        errors : Rows
            The rows without indicators, less what f says of them: eta and the offset.
        rng : numpy.random.Generator
        """
        ...

    def given(self, rows: Rows, z: FloatArray) -> Rows:
        """The rows that the indicators make."""
        ...

    def log_density(self, z: FloatArray) -> FloatArray:
        """Log density of each indicator before any data; for limits, of the data that they allow.

        With the density of the rows given z it makes that of z and the data, given f.
        """
        ...


class Placed(NamedTuple):
    """A mixture, and which of the observations it is of."""

    mixture: Mixture
    where: slice


class ConjugateModel(NamedTuple):
    """A latent vector f at given hyperparameters, with its observations.

    Attributes
    ----------
    prior : SunParameters
        Of f, arrays.
    observations : Observations
    mixtures : tuple of Placed
        Which of the observations are mixtures of rows.
    sites : Sites or None
        Observations beside the rows that are functions of one predictor each.
    """

    prior: SunParameters
    observations: Observations
    mixtures: tuple[Placed, ...] = ()
    sites: Sites | None = None

    def equals(self, other: "ConjugateModel") -> bool:
        """Whether all numbers are the same; of models of rows without mixtures."""
        own, others = self.observations, other.observations
        pairs = [*zip(self.prior, other.prior, strict=True)]
        pairs += [(getattr(own, x.name), getattr(others, x.name)) for x in fields(own)]
        return all(
            np.array_equal(x, y, equal_nan=True)
            if isinstance(x, np.ndarray) and isinstance(y, np.ndarray)
            else x is y
            for x, y in pairs
        )

    def indicators(self, f: FloatArray, rng: np.random.Generator) -> list[FloatArray]:
        """Draw those of each mixture given f."""
        observed = self.observations
        eta = observed.of(f) + observed.a
        found = []
        for mixture, where in self.mixtures:
            centre = eta[where]
            errors = Rows(
                np.zeros(centre.size),
                observed.variances[where],
                observed.lower[where] - centre,
                observed.upper[where] - centre,
                observed.value[where] - centre,
            )
            found.append(mixture.draw(errors, rng))
        return found

    def given(self, indicators: Sequence[FloatArray]) -> "ConjugateModel":
        """The model whose observations are rows; those that say nothing are left out."""
        observed = self.observations
        limits = observed.lower, observed.upper
        columns = observed.a, observed.variances, *limits, observed.value
        every = Rows(*(np.array(x) for x in columns))
        for (mixture, where), z in zip(self.mixtures, indicators, strict=True):
            rows = mixture.given(Rows(*(x[where] for x in every)), z)
            for all_rows, own in zip(every, rows, strict=True):
                all_rows[where] = own
        S = every.variance
        if observed.S.ndim == 2:
            S = np.array(observed.S)
            S[np.diag_indices_from(S)] = every.variance
        found = Observations(observed.A, every.offset, S, *every[2:])
        says = found.is_point | np.isfinite(found.lower) | np.isfinite(found.upper)
        return ConjugateModel(self.prior, found if says.all() else found.rows(says))

    def log_indicators(self, indicators: Sequence[FloatArray]) -> float:
        """See `Mixture.log_density`."""
        pairs = zip(self.mixtures, indicators, strict=True)
        return float(sum(placed.mixture.log_density(z).sum() for placed, z in pairs))


# Noise that is normal given its variance: Student-t and asymmetric Laplace.
#
# An indicator z scales the variance S of a row, and shifts it where the noise is skewed. Given its
# error an indicator has a distribution in closed form. The error of an interval is not known given
# f: it is drawn first, from the noise within the limits.


@dataclass(frozen=True)
class StudentTNoise:
    r"""Errors of a Student-t distribution whose scale is the root of S.

    .. math:: e \mid z \sim N(0, S z), \qquad 1 / z \sim \mathrm{Gamma}(\nu / 2, \nu / 2)

    Attributes
    ----------
    nu : ndarray, shape (m,)
        Degrees of freedom.
    """

    nu: FloatArray

    def draw(self, errors: Rows, rng: np.random.Generator) -> FloatArray:
        """See `Mixture`: inverse gamma given the error."""
        sd = np.sqrt(errors.variance)
        e = errors.value / sd
        within = np.isnan(e)
        if within.any():
            lower, upper = (x[within] / sd[within] for x in (errors.lower, errors.upper))
            e[within] = _truncated_t(self.nu[within], lower, upper, rng)
        return 0.5 * (self.nu + e**2) / rng.standard_gamma(0.5 * (self.nu + 1.0))

    def given(self, rows: Rows, z: FloatArray) -> Rows:
        """See `Mixture`."""
        return rows._replace(variance=rows.variance * z)

    def log_density(self, z: FloatArray) -> FloatArray:
        """See `Mixture`."""
        a = 0.5 * self.nu
        density: FloatArray = a * np.log(a) - gammaln(a) - (a + 1.0) * np.log(z) - a / z
        return density


@dataclass(frozen=True)
class LaplaceNoise:
    r"""Errors of an asymmetric Laplace distribution, exponential on each side of 0.

    .. math:: e \mid z \sim N(\theta z, S z), \qquad z \sim \mathrm{Exponential}(1)

    The sides have the means :math:`\sqrt{\theta^2/4 + S/2} \pm \theta/2` (Kozumi & Kobayashi 2011,
    doi:10.1080/00949655.2010.496117). Points only.

    Attributes
    ----------
    shift : ndarray, shape (m,)
        Theta, 0 for the Laplace distribution.
    """

    shift: FloatArray

    def draw(self, errors: Rows, rng: np.random.Generator) -> FloatArray:
        """See `Mixture`: 1/z is inverse Gaussian given the error.

        By Michael, Schucany & Haas (1976), both roots written so that errors near 0 cost no digits.
        """
        shape = 2.0 + self.shift**2 / errors.variance
        inverse_mean = np.abs(errors.value) / np.sqrt(errors.variance * shape)
        chi2 = rng.standard_normal(errors.value.size) ** 2 / shape
        large = inverse_mean + 0.5 * chi2 + np.sqrt(chi2 * (inverse_mean + 0.25 * chi2))
        takes_large = rng.random(large.size) * (large + inverse_mean) <= large
        z: FloatArray = np.where(takes_large, large, inverse_mean**2 / large)
        return np.maximum(z, np.finfo(float).tiny)

    def given(self, rows: Rows, z: FloatArray) -> Rows:
        """See `Mixture`."""
        return rows._replace(offset=rows.offset + self.shift * z, variance=rows.variance * z)

    def log_density(self, z: FloatArray) -> FloatArray:
        """See `Mixture`."""
        return -z


def _truncated_t(
    nu: FloatArray, lower: FloatArray, upper: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Standard Student-t draws within limits, by the distribution function of the nearer tail."""
    right = lower > 0
    low, high = np.where(right, -upper, lower), np.where(right, -lower, upper)
    p, q = stdtr(nu, low), stdtr(nu, high)
    x = stdtrit(nu, p + rng.random(nu.size) * (q - p))
    x = np.where(np.isfinite(x), x, high)  # where the tail underflows, all of it is at its end
    x = np.clip(x, low, high)
    found: FloatArray = np.where(right, -x, x)
    return found


# Labels that a subject may give without looking: lapses, guesses, flips.


@dataclass(frozen=True)
class Lapses:
    r"""Intervals that say something of f with a probability only.

    .. math:: p(y \mid f) = c + |b| \, P(v \in I \mid f)

    with I an interval with one limit; its complement, for negative b. The indicator of a row is 1
    where it says nothing, 0 where it does.

    A label that is flipped with probability eps is one: it is drawn at random with probability
    2 eps, and tells the truth otherwise. This leaves f more room than to know which labels are
    flipped, so that a chain on f and indicators mixes faster.

    Attributes
    ----------
    lapse : ndarray, shape (m,)
        c, the probability that the row says nothing and is as it was observed.
    truth : ndarray, shape (m,)
        b: its absolute value is the probability that it says something.
    """

    lapse: FloatArray
    truth: FloatArray

    def draw(self, errors: Rows, rng: np.random.Generator) -> FloatArray:
        """See `Mixture`."""
        sd = np.sqrt(errors.variance)
        lower, upper = self._limits(errors.lower / sd, errors.upper / sd)
        with np.errstate(divide="ignore", invalid="ignore"):
            log_odds = np.log(self.lapse) - np.log(np.abs(self.truth))
            log_odds -= log_ndtr_interval(lower, upper)
        # The logistic distribution's draw is the log odds of a uniform one.
        return (rng.logistic(size=log_odds.size) < log_odds).astype(float)

    def given(self, rows: Rows, z: FloatArray) -> Rows:
        """See `Mixture`."""
        lower, upper = self._limits(rows.lower, rows.upper)
        return rows._replace(
            lower=np.where(z == 1.0, -np.inf, lower), upper=np.where(z == 1.0, np.inf, upper)
        )

    def log_density(self, z: FloatArray) -> FloatArray:
        """See `Mixture`."""
        with np.errstate(divide="ignore"):
            found: FloatArray = np.log(np.where(z == 1.0, self.lapse, np.abs(self.truth)))
        return found

    def _limits(self, lower: FloatArray, upper: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Those of the other label, on the other side of the only limit, where b is negative."""
        other = self.truth < 0
        return (
            np.where(other, np.where(np.isfinite(upper), upper, -np.inf), lower),
            np.where(other, np.where(np.isfinite(lower), lower, np.inf), upper),
        )


# What a Markov kernel on the rows u is, for the samplers that use one.


class Walk(NamedTuple):
    """Successive states of u, shape (n, s + m), and what is known of each, arrays of length n."""

    u: FloatArray
    stats: dict[str, FloatArray]

    def stats_at(self, i: int) -> dict[str, float]:
        """What is known of one of them."""
        return {name: float(values[i]) for name, values in self.stats.items()}


class Move(Protocol):
    """A Markov kernel that leaves N(0, G) restricted to its rectangle invariant.

    It belongs to one `Augmentation`, and what it keeps depends on that alone: neither on a state,
    nor on what a chain drew before.
    """

    def walk(self, u: FloatArray, n: int, rng: np.random.Generator, *, thin: int) -> Walk:
        """Every `thin`-th of `n` times `thin` states that follow `u`."""
        ...

    def adapt(self) -> int:
        """Prepare for a long run at these parameters, and choose steps between two draws of f."""
        ...
