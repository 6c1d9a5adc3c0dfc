"""A latent vector with its observations, rows of it, at given hyperparameters.

Some observations are no rows but mixtures of them: given an *indicator* z for each they are. What
the rows of a sampler need is drawn as in any data augmentation: z given f, then rows given z.
"""

from collections.abc import Sequence
from dataclasses import fields
from typing import NamedTuple, Protocol

import numpy as np

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
        every = Rows(
            *(
                np.array(x)
                for x in (
                    observed.a,
                    observed.variances,
                    observed.lower,
                    observed.upper,
                    observed.value,
                )
            )
        )
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
