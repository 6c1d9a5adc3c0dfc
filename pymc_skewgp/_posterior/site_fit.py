r"""A process under sites, functions p(y_i | eta_i) of one predictor each, beside rows or without.

With the functions given the points z = m + F c, c ~ N(0, I), and predictors :math:`\eta = A z + a`.
The latent vector is c: EP's Gaussian of it under all sites and rows, draws of it in mirrored
pairs, and everything else is Gaussian given c.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pymc_skewgp._gaussian.proposals.coordinate_gaussian import CoordinateGaussian
from pymc_skewgp._gaussian.proposals.ep import EPResult
from pymc_skewgp._gaussian.samplers.sites import SiteSampler
from pymc_skewgp._gaussian.truncated_draws import TruncatedDraws
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._observations.observations import Observations
from pymc_skewgp._observations.sites import SitesOfParts
from pymc_skewgp._observations.values import Values
from pymc_skewgp._posterior.conditioning import Conditioning, Regression
from pymc_skewgp._posterior.function_fit import FunctionFit
from pymc_skewgp._posterior.latent import equal_singles
from pymc_skewgp._posterior.prior import Prior
from pymc_skewgp._posterior.site_draws import SiteDraws
from pymc_skewgp._sun.parameters import SunParameters
from pymc_skewgp._validation import FloatArray, Seed, as_generator


class SiteFit(FunctionFit):
    """Functions given sites, and rows where there are some: the latent vector is c.

    Parameters
    ----------
    prior : Prior
        Of each function.
    parts : sequence of Values
        What the data are about.
    given : Observations or Conditioning
        Rows of these values, none of them where all data are sites; or f given these.
    sites : SitesOfParts
    constrained : ndarray of bool, shape (m,)
        Which of the rows that are intervals are constraints.
    single_rows : FunctionFit, optional
        The same with a row for each interval, where sites are made of them.
    """

    def __init__(
        self,
        prior: Prior,
        parts: Sequence[Values],
        given: Observations | Conditioning,
        sites: SitesOfParts,
        constrained: NDArray[np.bool_],
        single_rows: FunctionFit | None = None,
    ) -> None:
        super().__init__(prior, parts)
        self._rows, self._sites, self._constrained = given, sites, constrained
        self._single_rows = single_rows

    @cached_property
    def conditioning(self) -> Conditioning:
        """See `FunctionFit`: u are the signs at pseudo-points, and the intervals of the data."""
        return self._rows if isinstance(self._rows, Conditioning) else self._given(self._rows)

    @property
    def of_single_rows(self) -> FunctionFit:
        """See `FunctionFit`."""
        return self._single_rows or self

    @cached_property
    def _draws(self) -> SiteDraws:
        return SiteDraws(self.conditioning, self._sites, self.n_latent, self._constrained)

    @property
    def ep(self) -> EPResult:
        """EP's fixed point for [u, predictors less their offset]."""
        return self._draws.ep

    @property
    def gaussian(self) -> CoordinateGaussian:
        """N(0, I) of c times EP's sites of the likelihood, but not of the rows."""
        return self._draws.gaussian

    @cached_property
    def sampler(self) -> SiteSampler:
        """Proposals, which the evidence and all draws share."""
        return self._draws.sampler

    @property
    def fitted(self) -> bool:
        """See `FunctionFit`."""
        return "sampler" in vars(self)

    def latent(self, n_draws: int, random_seed: Seed) -> TruncatedDraws:
        """Both members of `n_draws` pairs, columns c."""
        return self.sampler.members(n_draws, as_generator(random_seed))

    def equal_draws(
        self, shape: tuple[int, int], method: str, rng: np.random.Generator, thin: int = 1
    ) -> tuple[TruncatedDraws, IntArray]:
        """See `FunctionFit`.

        Raises
        ------
        ValueError
            For a `method` that knows rows only.
        """
        if method != "twisted":
            raise ValueError(
                f"method={method!r} draws rows within limits, which {self._sites.size} of these "
                'observations are not: leave method at its default, "twisted".'
            )
        return equal_singles(self.sampler, shape, rng)

    def draw(
        self,
        latent: TruncatedDraws,
        chosen: IntArray,
        rng: np.random.Generator,
        rows: IntArray | None = None,
    ) -> FloatArray:
        """See `FunctionFit`: c says all of f at the data."""
        given, s = self.conditioning, self.n_latent
        at = slice(s, None) if rows is None else s + rows
        f = latent.draws[chosen.ravel()] @ given.factor[at].T
        f += given.mean[at]
        return f.reshape(*chosen.shape, -1)

    def sun(self) -> SunParameters:
        """ValueError where it is none."""
        if self._single_rows is not None:
            return self._single_rows.sun()
        raise ValueError(
            "under a likelihood that is not made of intervals the posterior of f is no SUN: use "
            "sample, predict or marginals."
        )

    def _here(self, joint: bool, group: int) -> Regression:
        given, s = self.conditioning, self.n_latent
        mean, factor = given.mean[s:], given.factor[s:]
        shape = (mean.size // group, group, group)
        covariance = None if group == 1 else np.zeros(shape)
        taken = factor @ factor.T if joint else None
        return Regression(mean, np.zeros(mean.size), factor.T, taken, covariance)

    def _there(
        self, mean: FloatArray, variance: FloatArray, cross: FloatArray, joint: bool = False
    ) -> Regression:
        return self.conditioning.regression_on_coordinates(mean, variance, cross, joint=joint)
