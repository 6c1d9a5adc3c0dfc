r"""Sites of a model that are those of labels, trials or counts under their canonical link.

.. math:: \log p(y_i \mid \eta_i) = c_i + s_i \eta_i - n_i \kappa(\eta_i), \qquad
    \kappa(\eta) = \log(1 + e^\eta) \text{ or } e^\eta

A few passes over the predictors in place of a graph's thirty.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pymc_skewgp._model.gp.site_functions import SiteFunctions
from pymc_skewgp._model.graph.compiled_sites import CompiledFamily
from pymc_skewgp._model.ops.plain_functions import softplus
from pymc_skewgp._observations.learnt_sites import SitesGiven
from pymc_skewgp._observations.likelihood import Data
from pymc_skewgp._observations.logistic import logistic_with_slope
from pymc_skewgp._validation import FloatArray

# Predictors at which the form is to hold, of a log probability that is analytic: see `analytic`.
_FARTHEST, _TRIED, _SEED = 30.0, 64, 0
# Round-off of a graph's values, as a share of the terms.
_ROUND_OFF, _WHOLE = 1e-11, 1e-9


@dataclass(frozen=True, eq=False)
class CanonicalSites:
    """`SitesGiven` of that form.

    Attributes
    ----------
    linear, trials, constant : ndarray, shape (m,)
        s, n and c.
    kappa : callable
    slopes_of_kappa : callable
        First and second derivative.
    """

    linear: FloatArray
    trials: FloatArray
    constant: FloatArray
    kappa: Callable[[FloatArray], FloatArray]
    slopes_of_kappa: Callable[[FloatArray], tuple[FloatArray, FloatArray]]

    has_parameters = False
    log_concave = True

    @property
    def size(self) -> int:
        """See `SitesGiven`."""
        return self.linear.size

    def log_prob(self, eta: FloatArray) -> FloatArray:
        """See `SitesGiven`."""
        found = self.kappa(eta)
        found *= -self.trials
        found += self.linear * eta
        found += self.constant
        return found

    def slopes(self, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """See `SitesGiven`."""
        first, second = self.slopes_of_kappa(eta)
        return self.linear - self.trials * first, -self.trials * second

    def kinked(self, eta: FloatArray) -> NDArray[np.bool_]:
        """See `SitesGiven`."""
        return np.zeros(self.size, dtype=bool)

    def in_parameters(self, eta: FloatArray, weights: FloatArray) -> list[FloatArray]:
        """See `SitesGiven`."""
        return []


class RecognisedFamily:
    """`CompiledFamily`, without parameters, whose sites may be canonical for the first data.

    Parameters
    ----------
    functions : SiteFunctions
    """

    def __init__(self, functions: SiteFunctions) -> None:
        self._family = CompiledFamily(functions)
        self._known: tuple[Data, CanonicalSites | None] | None = None

    def at(self, y: Data, parameters: Sequence[FloatArray]) -> SitesGiven:
        """See `SiteFamily`."""
        sites = self._family.at(y, parameters)
        if self._known is None:
            self._known = np.array(y), canonical(sites)
        seen, found = self._known
        return sites if found is None or not np.array_equal(seen, y) else found


def canonical(sites: SitesGiven) -> CanonicalSites | None:
    """Sites in that form, where their values have it."""
    rng = np.random.default_rng(_SEED)
    tried = np.sort(np.append(rng.uniform(-_FARTHEST, _FARTHEST, _TRIED), [-_FARTHEST, _FARTHEST]))
    eta = np.broadcast_to(np.append([-1.0, 0.0, 1.0], tried)[:, None], (tried.size + 3, sites.size))
    values = sites.log_prob(eta)
    if not np.isfinite(values[:3]).all():
        return None
    below, here, above = values[:3]
    for kappa, slopes in ((softplus, logistic_with_slope), (np.exp, _exp_with_slope)):
        k = kappa(np.array([-1.0, 0.0, 1.0]))
        n = _rounded(-(above + below - 2.0 * here) / (k[2] + k[0] - 2.0 * k[1]))
        s = _rounded(0.5 * (above - below + n * (k[2] - k[0])))
        found = CanonicalSites(s, n, here + n * k[1], kappa, slopes)
        with np.errstate(invalid="ignore"):
            off = np.abs(found.log_prob(eta) - values)
        size = np.abs(found.constant) + np.abs(s * eta) + np.abs(n * kappa(eta)) + 1.0
        if (off <= _ROUND_OFF * size).all() and (n >= 0.0).all():
            return found
    return None


def _exp_with_slope(eta: FloatArray) -> tuple[FloatArray, FloatArray]:
    mean = np.exp(eta)
    return mean, mean


def _rounded(x: Any) -> FloatArray:
    whole = np.rint(x)
    return np.where(np.abs(x - whole) < _WHOLE * (1.0 + np.abs(x)), whole, x)
