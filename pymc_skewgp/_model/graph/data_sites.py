"""Data under factors, for graphs: compiled log probabilities, closed forms recognised."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import ArrayLike, NDArray
from pymc.initial_point import make_initial_point_fn

from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._model.gp.distribution_graph import distribution_graph
from pymc_skewgp._model.gp.process import ValuesAt
from pymc_skewgp._model.gp.site_functions import DistributionSites, SiteFunctions
from pymc_skewgp._model.graph.data_rows import Known, RowsOfData, known_data, stand_in
from pymc_skewgp._model.ops.plain_mode import softplus
from pymc_skewgp._observations import sites as factors
from pymc_skewgp._observations.binary import logistic_with_slope
from pymc_skewgp._observations.likelihood import Data, Likelihood
from pymc_skewgp._observations.weighted import Weighted
from pymc_skewgp._posterior.data_blocks import Arrays
from pymc_skewgp._posterior.prior import as_likelihood
from pymc_skewgp._validation import FloatArray

_ROWS_TRIED = 100


class SitesOfData(NamedTuple):
    """Sites of one kind of data, in graphs.

    Attributes
    ----------
    family : SiteFamily
    y : TensorVariable
        The data.
    parameters : tuple of TensorVariable
        What `family` is to be taken at.
    """

    family: factors.SiteFamily
    y: Any
    parameters: tuple[Any, ...]

    @property
    def graphs(self) -> list[Any]:
        """Data, then parameters."""
        return [self.y, *self.parameters]


def sites_at(parts: Sequence[SitesOfData], values: Sequence[Any]) -> factors.SitesGiven | None:
    """Sites of all parts at values of their `graphs`; None of none."""
    if not parts:
        return None
    rest = iter(values)
    given = [(part, [next(rest) for _ in part.graphs]) for part in parts]
    return factors.joined_sites([part.family.at(own[0], own[1:]) for part, own in given])


@dataclass(frozen=True, eq=False)
class KnownSites(Known):
    """Data under a likelihood of sites.

    Attributes
    ----------
    family : SiteFamily
        Of the random parameters.
    in_parts : bool
        Whether some of the data are of this family as well.
    """

    family: factors.SiteFamily
    in_parts: bool

    @property
    def arrays(self) -> Arrays:
        """What `inputs` of the rows are, for all the data."""
        return self.X, self.y

    @property
    def strata(self) -> NDArray[Any] | None:
        """See `KnownData`: neighbours in y, or in its first column, are dealt out in turn."""
        first = self.y if self.y.ndim == 1 else self.y[:, 0]
        return first * 1.0 if self.in_parts else None

    def part(self, chosen: NDArray[Any]) -> Arrays:
        """The same for some of the data."""
        return self.X[chosen], self.y[chosen]

    @cached_property
    def divisible(self) -> bool:
        """Whether any of the data, by themselves, have sites of `family_of`."""
        if self.by_row:
            return False
        if not isinstance(self.likelihood, DistributionSites):
            return bool(self.likelihood.divisible)
        n = self.y.size
        every_other = np.arange(1, n, 2)[:_ROWS_TRIED]
        return n > 1 and self.likelihood.is_same_of(every_other, self.y)

    def family_of(self, index: IntArray) -> factors.SiteFamily:
        """Of some of the data."""
        if isinstance(self.likelihood, DistributionSites):
            return self.likelihood.functions_of(index.size)
        assert isinstance(self.family, factors.LikelihoodFamily)
        own = self.family.likelihood.of_observations(index, self.y)
        assert isinstance(own, factors.SiteLikelihood)
        return replace(self.family, likelihood=own)

    def rows(self) -> tuple[list[Any], RowsOfData]:
        """Graphs of the rows, and the inputs of these graphs."""
        X = pt.matrix("X", shape=(None, self.X.shape[1]), dtype="float64")
        y = pt.tensor("y", dtype=self.y.dtype, shape=(None,) * self.y.ndim)
        return [X, y], self.rows_of([X, y], self.random)

    def rows_of(self, inputs: Sequence[Any], random: Mapping[str, Any]) -> RowsOfData:
        """Predictors as rows without noise at 0, and the sites on them."""
        X, y = inputs
        values = ValuesAt(X, self.n_functions)
        zero = pt.zeros((values.n_functions * values.n_rows,))
        nowhere = pt.full_like(zero, pt.constant(float("nan"), dtype="float64"))
        parameters = tuple(pt.cast(x, "float64") for x in random.values())
        sites = SitesOfData(self.family, y, parameters)
        nothing = pt.constant(0.0, dtype="float64")
        return RowsOfData(values, None, zero, zero, zero, nowhere, nothing, False, sites=sites)


def known_of(
    X: FloatArray, y: Any, likelihood: Any, model: Any = None, weights: ArrayLike | None = None
) -> Any:
    """Check data under any likelihood: `KnownSites` of one of sites, `KnownData` of any other.

    Parameters
    ----------
    X : ndarray, shape (n, d)
    y : array_like
    likelihood : object
        Also a function from predictors to a PyMC distribution.
    model : pymc.Model, optional
        That of the random variables that such a function depends on.
    weights : array_like, shape (n,), optional
        How often each observation was made; of sites, powers.

    Raises
    ------
    TypeError, ValueError
        As `known_data`; weights under a function that gives a distribution.
    """
    if _is_distribution(likelihood):
        if weights is not None:
            raise ValueError(
                "weights go with the likelihoods of pymc_skewgp.likelihoods: under a function that "
                "gives a PyMC distribution repeat the rows of X and y instead."
            )
        return _of_distribution(X, y, likelihood, model)
    known = as_likelihood(likelihood)
    if not isinstance(known, factors.SiteLikelihood):
        return known_data(X, y, likelihood, weights)
    if weights is not None:
        known = Weighted(known, weights)
    random = known.graphs
    for name, x in random.items():
        if name == "weights" or not x.dtype.startswith("float"):
            raise ValueError(
                f"{name} of {type(known).__name__} is a random variable, which is not learnt from "
                "data here: give numbers."
            )
    numbers: Any = known.with_parameters({name: stand_in(name, x) for name, x in random.items()})
    data = numbers.as_data(y, X.shape[0])
    family = factors.LikelihoodFamily(numbers, tuple(random))
    return KnownSites(X, data, numbers, random, family, in_parts=known.single)


def is_of_sites(likelihood: Any) -> bool:
    """Whether `known_of` makes `KnownSites` of data under it."""
    return isinstance(likelihood, factors.SiteLikelihood) or _is_distribution(likelihood)


def _is_distribution(likelihood: Any) -> bool:
    return callable(likelihood) and not isinstance(likelihood, type | Likelihood)


def _of_distribution(X: FloatArray, y: Any, distribution: Any, model: Any) -> KnownSites:
    graph = distribution_graph(distribution, X.shape[0])
    random = {rv.name: rv for rv in graph.random}
    here = _initial_values(random, model)
    functions = SiteFunctions(graph, distribution)
    likelihood = DistributionSites(distribution, here, {X.shape[0]: functions})
    data = likelihood.as_data(y, X.shape[0])
    return KnownSites(X, data, likelihood, random, functions, in_parts=False)


def _initial_values(random: Mapping[str, Any], model: Any) -> dict[str, Any]:
    """Values of random variables where a search begins."""
    if not random:
        return {}
    model = pm.modelcontext(model).root
    unknown = [name for name, rv in random.items() if rv not in model.free_RVs]
    if unknown:
        raise ValueError(
            f"the likelihood depends on {', '.join(unknown)}, which the model of the SkewGP does "
            "not know: make both inside one ``with pm.Model():``."
        )
    point = make_initial_point_fn(model=model, return_transformed=False)(0)
    return {name: point[name] for name in random}


# Sites of a model that are those of labels, trials or counts under their canonical link.
#
# .. math:: \log p(y_i \mid \eta_i) = c_i + s_i \eta_i - n_i \kappa(\eta_i), \qquad
#     \kappa(\eta) = \log(1 + e^\eta) \text{ or } e^\eta
#
# A few passes over the predictors in place of a graph's thirty.

# Predictors at which the form is to hold, of a log probability that is analytic: see `analytic`.
_FARTHEST, _TRIED, _SEED = 30.0, 64, 0
# Round-off of a graph's values, as a share of the terms.
_ROUND_OFF, _WHOLE = 1e-11, 1e-9


def _canonical_sites(
    linear: FloatArray,
    trials: FloatArray,
    constant: FloatArray,
    kappa: Callable[[FloatArray], FloatArray],
    slopes_of_kappa: Callable[[FloatArray], tuple[FloatArray, FloatArray]],
) -> factors.SitesGiven:
    """Sites of that form: `linear`, `trials` and `constant` are s, n and c."""

    def log_prob(eta: FloatArray) -> FloatArray:
        found = kappa(eta)
        found *= -trials
        found += linear * eta
        found += constant
        return found

    def slopes(eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        first, second = slopes_of_kappa(eta)
        return linear - trials * first, -trials * second

    return factors.SitesGiven(linear.size, log_prob, slopes, log_concave=True)


class RecognisedFamily:
    """`SiteFunctions`, without parameters, whose sites may be canonical for the first data.

    Parameters
    ----------
    functions : SiteFunctions
    """

    def __init__(self, functions: SiteFunctions) -> None:
        self._functions = functions
        self._known: tuple[Data, factors.SitesGiven | None] | None = None

    def at(self, y: Data, parameters: Sequence[FloatArray]) -> factors.SitesGiven:
        """See `SiteFamily`."""
        sites = self._functions.at(y, parameters)
        if self._known is None:
            self._known = np.array(y), canonical(sites)
        seen, found = self._known
        return sites if found is None or not np.array_equal(seen, y) else found


def canonical(sites: factors.SitesGiven) -> factors.SitesGiven | None:
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
        constant = here + n * k[1]
        found = _canonical_sites(s, n, constant, kappa, slopes)
        with np.errstate(invalid="ignore"):
            off = np.abs(found.log_prob(eta) - values)
        size = np.abs(constant) + np.abs(s * eta) + np.abs(n * kappa(eta)) + 1.0
        if (off <= _ROUND_OFF * size).all() and (n >= 0.0).all():
            return found
    return None


def _exp_with_slope(eta: FloatArray) -> tuple[FloatArray, FloatArray]:
    mean = np.exp(eta)
    return mean, mean


def _rounded(x: Any) -> FloatArray:
    whole = np.rint(x)
    return np.where(np.abs(x - whole) < _WHOLE * (1.0 + np.abs(x)), whole, x)
