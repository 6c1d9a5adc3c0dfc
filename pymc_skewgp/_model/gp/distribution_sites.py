"""Any PyMC distribution of independent values as a likelihood of sites."""

from typing import Any

import cloudpickle
import numpy as np
from numpy.typing import ArrayLike
from pymc.logprob.utils import ParameterValueError

from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._model.gp.distribution_graph import (
    Distribution,
    coupled,
    distribution_graph,
    parametric_graph,
)
from pymc_skewgp._model.gp.functions import Point
from pymc_skewgp._model.gp.site_functions import FunctionsAt, SiteFunctions
from pymc_skewgp._observations.arguments import as_integers, as_values
from pymc_skewgp._observations.averaged_forecasts import averaged_forecasts
from pymc_skewgp._observations.drawn_forecasts import drawn_forecasts, drawn_quantiles
from pymc_skewgp._observations.likelihood import Data
from pymc_skewgp._observations.mixture import Mixture
from pymc_skewgp._observations.predictive_quantiles import NewValues
from pymc_skewgp._observations.sites import SiteLikelihood
from pymc_skewgp._validation import FloatArray

# Functions of parameters, and the names of these.
ParametricFunctions = tuple[SiteFunctions, tuple[str, ...]]
# Predictors at which y has to be possible: y itself is added, as some supports move along.
_PLACES = (-10.0, -3.0, -1.0, 0.0, 1.0, 3.0, 10.0)
# By how much some predictors are moved, to see that the log p of the others stay.
_MOVES = (0.01, 1.0, 10.0)


class DistributionSites(SiteLikelihood):
    r"""Values :math:`y_i \sim p(y_i \mid f(x_i))`, p being a PyMC distribution.

    `SkewGP.posterior` makes it of a function from a vector of predictors to an unnamed
    distribution of as many values.

    Parameters
    ----------
    distribution : callable
        Such as ``lambda eta: pm.Poisson.dist(pm.math.exp(eta))``. What is not a function of the
        predictor is a number, or has one value for each row of X.
    point : mapping
        Values, by name, of random variables that it depends on.
    shared : dict, optional
        Functions of the parameters by number of values, which other values of these use as well.
    """

    divisible = False  # what it depends on may have a value for each row

    def __init__(
        self,
        distribution: Distribution,
        point: Point,
        shared: dict[int, ParametricFunctions] | None = None,
    ) -> None:
        self._distribution, self._point, self._shared = distribution, dict(point), shared
        self._known: dict[int, FunctionsAt] = {}

    def __repr__(self) -> str:
        return f"DistributionSites({getattr(self._distribution, '__name__', self._distribution)})"

    def __getstate__(self) -> dict[str, Any]:
        return {"point": self._point, "distribution": cloudpickle.dumps(self._distribution)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(cloudpickle.loads(state["distribution"]), state["point"])  # type: ignore[misc]

    def at(self, point: Point) -> "DistributionSites":
        """The same with other values of random variables, nothing compiled anew."""
        return DistributionSites(self._distribution, {**self._point, **point}, self._shared)

    def as_data(self, y: ArrayLike, n: int) -> Data:
        """Values within the support, of a distribution that factorises."""
        functions = self._of(n)
        whole = functions.dtype.kind in "iub"
        data = as_integers(y, n, "value") if whole else as_values(y, n)
        try:
            _refuse_impossible(functions, data)
        except ParameterValueError as error:
            raise ValueError(
                f"a parameter of {functions.name} is outside of its range, which is "
                f"{str(error).splitlines()[0]}."
            ) from error
        _refuse_coupled(functions, data)
        return data

    def log_likelihood(self, y: Data, f: FloatArray) -> FloatArray:
        """Log p(y_i | f_i), every constant included, f of shape (..., n)."""
        return self._of(y.size).log_prob(y, f)

    def slopes(self, y: Data, f: FloatArray) -> tuple[FloatArray, FloatArray]:
        """First and second derivative of log p(y_i | f_i) in f_i."""
        return self._of(y.size).slopes(y, f)

    def replicate(
        self, y: Data, f: FloatArray, log_likelihood: FloatArray, rng: np.random.Generator
    ) -> Data | None:
        """New values at the rows of the data; None where PyMC cannot draw them."""
        functions = self._of(y.size)
        return functions.draws(f, rng) if functions.can_draw else None

    def predictive_draws(self, f: FloatArray, rng: np.random.Generator) -> dict[str, Data]:
        """``y``, where the distribution has no constants of its own for each row."""
        single = self._single
        if single is None or not single.can_draw:
            return {}
        return {"y": single.draws(f[..., None], rng)[..., 0]}

    def predictive_summary(self, mixture: Mixture) -> dict[str, FloatArray]:
        """``y_mean`` and ``y_sd`` with their errors, where there is a mean."""
        single = self._single
        if single is None or not single.has_mean:
            return {}
        if single.moments_each(np.zeros(1)) is not None:
            return averaged_forecasts(mixture, single.moments_each)
        return drawn_forecasts(mixture, single.draw_each) if single.can_draw else {}

    def predictive_quantiles(self, mixture: Mixture, probs: FloatArray) -> dict[str, FloatArray]:
        """``y_quantile`` with its error, where there is a distribution function or draws."""
        single = self._single
        if single is None:
            return {}
        if single.has_cdf:
            whole = single.dtype.kind in "iub"
            new = NewValues(mixture, single.cdf_each)
            return (new.whole_quantiles(probs) if whole else new.real_quantiles(probs)).named()
        return drawn_quantiles(mixture, single.draw_each, probs) if single.can_draw else {}

    def refuse_impossible_mean(self, y: ArrayLike, mean: FloatArray, where: str = "") -> None:
        """Refuse data that are impossible where the prior has its mean."""
        data = self.as_data(y, mean.size)
        log_prob = self.log_likelihood(data, mean)
        wrong = ~np.isfinite(log_prob)
        if wrong.any():
            i = int(np.argmax(wrong))
            raise ValueError(
                f"{where}the log likelihood is not finite at the prior mean in {int(wrong.sum())} "
                f"of {data.size} row(s): row {i} has y = {data[i]:.6g}, eta = {mean[i]:.6g} and "
                f"log p = {log_prob[i]:.6g}. Use a link under which every predictor is possible, "
                "such as pm.math.exp(eta), or another mean_func."
            )

    def functions_of(self, n: int) -> SiteFunctions:
        """Of `n` values, parameters not filled in, where these were asked for.

        Raises
        ------
        TypeError, ValueError
            Where a constant has one number for each row of the data.
        """
        self._of(n)
        assert self._shared is not None
        return self._shared[n][0]

    def is_same_of(self, index: IntArray, y: Data) -> bool:
        """Whether some of the rows by themselves have the log p that they have among all rows."""
        places = np.asarray(_PLACES)[:, None]
        try:
            own = self._of(index.size).log_prob(y[index], np.tile(places, index.size))
        except (TypeError, ValueError):
            return False
        among = self._of(y.size).log_prob(y, np.tile(places, y.size))[:, index]
        return bool(np.array_equal(own, among))

    def _of(self, n: int) -> FunctionsAt:
        if n not in self._known:
            self._known[n] = self._made(n)
        return self._known[n]

    def _made(self, n: int) -> FunctionsAt:
        if self._shared is None:
            graph = distribution_graph(self._distribution, n, self._point)
            return FunctionsAt(SiteFunctions(graph, self._distribution))
        if n not in self._shared:
            graph = parametric_graph(self._distribution, n)
            functions = SiteFunctions(graph, self._distribution)
            self._shared[n] = functions, tuple(v.name for v in graph.random)
        functions, names = self._shared[n]
        return FunctionsAt(functions, [np.asarray(self._point[x], np.float64) for x in names])

    @property
    def _single(self) -> FunctionsAt | None:
        """Of one value; None where a constant has one number for each row of the data."""
        try:
            return self._of(1)
        except (TypeError, ValueError):
            return None


def _refuse_impossible(functions: FunctionsAt, y: Data) -> None:
    """Refuse values that have no probability at any predictor."""
    with np.errstate(all="ignore"):
        own = [y * 1.0, np.log(np.abs(y) + (y == 0)), np.nan_to_num(1.0 / y)]
    places = np.stack([*(np.full(y.size, place) for place in _PLACES), *own])
    log_prob = functions.log_prob(y, places)
    wrong = ~np.isfinite(log_prob).any(axis=0)
    if wrong.any():
        i = int(np.argmax(wrong))
        raise ValueError(
            f"y is outside of the support of {functions.name} in {int(wrong.sum())} of {y.size} "
            f"row(s): row {i} has {y[i]:.6g}, whose log p is {log_prob[3, i]:.6g} at eta = 0 and "
            "finite at no predictor that was tried. Correct these values, or drop those rows."
        )


def _refuse_coupled(functions: FunctionsAt, y: Data) -> None:
    """Refuse a log probability of which an entry changes when other predictors do."""
    n = y.size
    if n == 1:
        return
    rng = np.random.default_rng(0)
    centre = rng.standard_normal(n)
    moved = rng.random((2 * len(_MOVES), n)) < 0.5
    moved[1::2] = ~moved[::2]
    moves = np.repeat(_MOVES, 2)[:, None] * rng.standard_normal(moved.shape)
    before = functions.log_prob(y, centre[None, :])
    after = functions.log_prob(y, np.where(moved, centre + moves, centre))
    changed = ~moved & (after != before)
    if changed.any():
        doubt = functions.doubt
        operation = "an operation" if doubt is None else doubt.operation
        raise coupled(functions.name, operation)
