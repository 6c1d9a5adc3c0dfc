"""Compiled graphs of log p(y_i | eta_i) as sites whose parameters are learnt."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pymc_skewgp._model.gp.site_functions import SiteFunctions
from pymc_skewgp._observations.likelihood import Data
from pymc_skewgp._observations.slope_jumps import slope_jumps
from pymc_skewgp._validation import FloatArray


class CompiledFamily:
    """Sites by functions of y, predictors and parameters.

    Parameters
    ----------
    functions : SiteFunctions
    """

    def __init__(self, functions: SiteFunctions) -> None:
        self._functions = functions

    def at(self, y: Data, parameters: Sequence[FloatArray]) -> "CompiledSites":
        """See `SiteFamily`."""
        return CompiledSites(self._functions, y, parameters)


class CompiledSites:
    """`SitesGiven` of a `CompiledFamily`."""

    log_concave = False

    def __init__(self, functions: SiteFunctions, y: Data, parameters: Sequence[FloatArray]) -> None:
        self._functions, self._y = functions, y
        self._parameters = tuple(np.asarray(x, np.float64) for x in parameters)
        self.size, self.has_parameters = int(np.size(y)), bool(self._parameters)

    def log_prob(self, eta: FloatArray) -> FloatArray:
        """See `SitesGiven`."""
        return self._functions.log_prob(self._y, eta, self._parameters)

    def slopes(self, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """See `SitesGiven`."""
        return self._functions.slopes(self._y, eta, self._parameters)

    def kinked(self, eta: FloatArray) -> NDArray[np.bool_]:
        """See `SitesGiven`."""
        return slope_jumps(self.slopes, eta)

    def in_parameters(self, eta: FloatArray, weights: FloatArray) -> list[FloatArray]:
        """See `SitesGiven`."""
        return self._functions.in_parameters(self._y, eta, weights, self._parameters)
