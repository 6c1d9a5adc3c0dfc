"""What is to be integrated: the objective, its prior draws and modes, the latent functions."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.pytensorf import compile as compile_graph
from pymc.pytensorf import find_rng_nodes, reseed_rngs
from pytensor.graph.replace import clone_replace
from xarray import Dataset, DataTree

from pymc_skewgp._errors import ImproperPriorError
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._learn.averaging.model_functions import (
    ModelFunctions,
    as_dataset,
    dataset_of,
    with_deterministics,
)
from pymc_skewgp._learn.averaging.points import EqualDraws, Task
from pymc_skewgp._learn.averaging.settings import ModeSettings
from pymc_skewgp._learn.coordinates import Bounds, Coordinates, Function, Pattern, Point, Searched
from pymc_skewgp._learn.objective import CompiledLogPrior, Objective, compile_objective
from pymc_skewgp._learn.optimizers import (
    Optimum,
    SearchSettings,
    maximize,
    negative_hessian,
    spread_starts,
    with_value,
)
from pymc_skewgp._learn.problem import (
    ProcessObjective,
    Start,
    TrainingData,
    coarse_part,
    process_objective,
)
from pymc_skewgp._model.gp.latent_draws import LatentDraws, LatentGivenData, latent_tree
from pymc_skewgp._model.gp.process import as_input_graph
from pymc_skewgp._model.gp.skewgp import SkewGP
from pymc_skewgp._model.gp.variables import DataOfModel, data_of_model
from pymc_skewgp._model.graph.collapsed import Collapsed, collapse_model
from pymc_skewgp._model.graph.joint_gaussian import in_covariance_coordinates
from pymc_skewgp._model.ops.plain_mode import PLAIN
from pymc_skewgp._observations.likelihood import as_inputs
from pymc_skewgp._posterior.draws_with_evidence import Case, log_prob_of_prior_signs
from pymc_skewgp._validation import FloatArray

# The prior of hyperparameters as a proposal: importance sampling draws a share from it for good.
#
# A target over its prior is the likelihood, which is bounded: no tail of it has large weights.

# A prior is drawn from where so many draws are all finite.
_TRIED = 32


class PriorDraws:
    """Draws of the continuous coordinates given binary ones, and their density.

    Potentials and other observations are no part of it.

    Parameters
    ----------
    coordinates : Coordinates
    pattern : tuple
        Of the binary ones.
    rng : numpy.random.Generator

    Raises
    ------
    NotImplementedError
        For a prior that cannot be drawn from.
    """

    def __init__(
        self, coordinates: Coordinates, pattern: Pattern, rng: np.random.Generator
    ) -> None:
        model, self._pattern = coordinates.model, pattern
        rvs = [model.values_to_rvs[value] for value in coordinates.continuous]
        self._log_prior = CompiledLogPrior(coordinates, model.logp(vars=rvs, jacobian=True))
        each = zip(rvs, (model.rvs_to_transforms[rv] for rv in rvs), strict=True)
        free = [rv if t is None else t.forward(rv, *rv.owner.inputs) for rv, t in each]
        binary = [model.values_to_rvs[value] for value in coordinates.binary]
        values = zip(binary, coordinates.binary_values(pattern), strict=True)
        known = {rv: pt.constant(value, dtype=rv.dtype) for rv, value in values}
        drawn = clone_replace(free, known)
        self._rng, self._generators = rng, find_rng_nodes(drawn)
        self._draw = compile_graph([], drawn, random_seed=int(rng.integers(2**31)), mode=PLAIN)

    def draw(self, count: int) -> FloatArray:
        """Rows; the few that are not finite are drawn again."""
        rows: list[FloatArray] = []
        while len(rows) < count:
            row = self.row()
            if np.isfinite(row).all():
                rows.append(row)
        return np.array(rows).reshape(count, -1)

    def row(self) -> FloatArray:
        """One draw; not finite where a vague prior is beyond double precision."""
        try:
            return np.concatenate([np.ravel(x) for x in self._draw()], dtype=np.float64)
        except (ArithmeticError, ValueError):  # of one that divides by a draw, or cannot use it
            # The call that failed has left the generators where they were.
            reseed_rngs(self._generators, int(self._rng.integers(2**31)))
            return np.full(1, np.nan)

    def log_density(self, x: FloatArray) -> FloatArray:
        """At rows."""
        return self._log_prior.values_at_rows(x, self._pattern)


def prior_draws(
    coordinates: Coordinates, pattern: Pattern, rng: np.random.Generator
) -> PriorDraws | None:
    """None where the prior cannot be drawn from, or has draws that are not finite."""
    try:
        found = PriorDraws(coordinates, pattern, rng)
        tried = [found.row() for _ in range(_TRIED)]
    except NotImplementedError:
        return None
    if not all(np.isfinite(row).all() for row in tried):
        return None
    return found if np.isfinite(found.log_density(np.array(tried))).all() else None


# The latent functions of a SkewGP given data, hyperparameter by hyperparameter.


class ProcessFunctions:
    """See `LatentFunctions`.

    Parameters
    ----------
    gp : SkewGP
    data : DataOfModel
    Xnew : ndarray, shape (t, d), or None
    objective : Objective
    coefficients : sequence of variables
        Of the mean, drawn as the functions are.
    """

    def __init__(
        self,
        gp: Any,
        data: DataOfModel,
        Xnew: FloatArray | None,
        objective: Objective,
        coefficients: Sequence[Any] = (),
    ) -> None:
        self._latent = LatentGivenData(gp, data, Xnew, coefficients)
        self._Xnew, self._objective = Xnew, objective
        self._likelihoods: dict[int, Any] = {}  # by identity of the point

    @property
    def size(self) -> int:
        """Values of the functions in one draw."""
        return self._latent.size

    @property
    def side_by_side(self) -> bool:
        """Whether draws may be made so: see `draws_of_many`."""
        return not self._latent.has_sites

    def tasks(self, points: Sequence[Point]) -> Iterator[list[Task]]:
        """See `LatentFunctions`."""
        trace = self._trace(points, np.arange(len(points))[None])
        n_signs = self._latent.n_signs
        for point, (_, at) in zip(points, self._latent.each(trace, "", False), strict=True):
            self._likelihoods[id(point)] = at.likelihoods
            log_prob = log_prob_of_prior_signs(*at.signs)
            yield [Case(at.given, n_signs, log_prob, at.sites)]

    def tree(
        self, points: Sequence[Point], draws: EqualDraws, rng: np.random.Generator
    ) -> DataTree:
        """See `LatentFunctions`."""
        likelihoods = np.empty(len(points), dtype=object)
        likelihoods[:] = [self._likelihoods[id(point)] for point in points]
        trace, f = self._with_coefficients(self._trace(points, draws.point), draws.f)
        drawn = LatentDraws("f", f, draws.relative_ess, likelihoods[draws.point], self._Xnew)
        return latent_tree(trace, self._latent.sets, drawn, rng)

    def _with_coefficients(self, trace: Dataset, f: FloatArray) -> tuple[Dataset, FloatArray]:
        """Draws of the functions, and of the coefficients with what is determined by them."""
        shapes = self._latent.coefficient_shapes
        if not shapes:
            return trace, f
        model = self._objective.coordinates.model
        sizes = [int(np.prod(shape, dtype=int)) for shape in shapes.values()]
        f, *parts = np.split(f, f.shape[2] - np.cumsum(sizes[::-1])[::-1], axis=2)
        named = zip(shapes.items(), parts, strict=True)
        values = {name: part.reshape(*f.shape[:2], *shape) for (name, shape), part in named}
        trace = trace.merge(as_dataset(model, values))
        return with_deterministics(model, trace), f

    def _trace(self, points: Sequence[Point], index: IntArray) -> Dataset:
        return dataset_of(self._objective, points, index)


_DIMENSIONS = ("chain", "draw")
_MOST_DRAWN = 10_000  # rows at which f is drawn


@dataclass(frozen=True, eq=False)
class Integrand:
    """What is to be integrated over hyperparameters.

    Attributes
    ----------
    objective : Objective or RowsObjective
        Log evidence by EP, and log prior, on the unconstrained scale.
    origins : list of Point
        Where to start, one for each pattern of binary values.
    coarse : Searched or None
        With some of the data, to try starts on; None where all are few enough.
    """

    objective: Searched
    origins: list[Point]
    coarse: Searched | None

    def prior_draws(self, pattern: Pattern, rng: np.random.Generator) -> PriorDraws | None:
        """The prior of the continuous coordinates; None where it cannot be drawn from."""
        return prior_draws(self.objective.coordinates, pattern, rng)

    @property
    def n_rows(self) -> int:
        """Of the largest evidence, each as often as it was observed."""
        every = list(self.objective.terms_at(self.origins[0]))
        if not every:
            return sys.maxsize  # many: in blocks
        return max(terms.n_rows for terms in every)

    @property
    def improper_priors(self) -> list[str]:
        """Names of variables with density one, be they integrated out or hyperparameters."""
        return improper_priors(self.objective)

    @property
    def n_distinct(self) -> int:
        """The same with equal ones once: the matrices that are factorised have as many.

        Or as many as would take as long.
        """
        return max(x.n_factorised for x in self.objective.terms_at(self.origins[0]))


@dataclass(frozen=True, eq=False)
class IntegrationProblem(Integrand):
    """And of whose functions draws are wanted.

    Attributes
    ----------
    latent : LatentFunctions
    """

    latent: ModelFunctions | ProcessFunctions

    @property
    def size(self) -> int:
        """Values of the functions in one draw."""
        return self.latent.size


class ManyRowsProblem(NamedTuple):
    """What is to be integrated, its objective to be made of a basis that is not placed yet.

    Attributes
    ----------
    data : TrainingData
    found : ProcessObjective
        With `rows`.
    origins : list of Point
        As of `Integrand`.
    Xnew : ndarray, shape (t, d), or None
    """

    data: TrainingData
    found: ProcessObjective
    origins: list[Point]
    Xnew: FloatArray | None

    @property
    def at_data(self) -> bool:
        """Whether the rows are not too many for draws of f there."""
        return self._n_rows <= _MOST_DRAWN

    @property
    def size(self) -> int:
        """Values of f in one draw."""
        new = 0 if self.Xnew is None else self.Xnew.shape[0]
        return new + (self._n_rows if self.at_data else 0)

    @property
    def improper_priors(self) -> list[str]:
        """As of `Integrand`."""
        return improper_priors(self.found.objective)

    @property
    def _n_rows(self) -> int:
        assert self.found.rows is not None
        return self.found.rows.X.shape[0]


def _refuse_names(model: pm.Model) -> None:
    clash = [x.name for x in model.unobserved_RVs if x.name in _DIMENSIONS]
    if clash:
        raise ValueError(
            f"a variable is called {clash[0]}, as a dimension of all draws is: give it another "
            "name."
        )


def improper_priors(objective: Searched) -> list[str]:
    """Names of variables with density one; of those integrated out first."""
    coordinates = objective.coordinates
    return [*objective.density_one, *dict.fromkeys(x.name for x in coordinates.flat)]


def problem_of_model(
    model: pm.Model, collapsed: Collapsed, start: Start, most_binary: int
) -> IntegrationProblem:
    """Of a model of which it is known what is integrated out.

    Raises
    ------
    ValueError
        As `integration_problem`.
    """
    _refuse_names(model)
    objective, origin = compile_objective(model, collapsed, averaged=True, start=start)
    origins = [Point(origin, p) for p in objective.coordinates.patterns(most_binary)]
    latent = ModelFunctions(model, collapsed, objective)
    return IntegrationProblem(objective, origins, None, latent)


def integration_problem(
    data: TrainingData,
    Xnew: Any,
    start: Start,
    most_binary: int,
    *,
    drawn: bool = True,
) -> IntegrationProblem | ManyRowsProblem:
    """Compile what is to be integrated.

    `drawn`: coefficients of the mean are, as f is, and no hyperparameters; see `process_objective`.

    Raises
    ------
    ImproperPriorError
        For flat priors of coefficients that no data bound.
    TypeError, ValueError
        For what is no model, data that are missing or do not belong.
    """
    model = data.model
    latent: ProcessFunctions
    many: ProcessObjective | None = None
    new: FloatArray | None = None
    coarse: Searched | None = None
    if isinstance(model, pm.Model):
        if any(x is not None for x in data[1:]) or Xnew is not None:
            raise ValueError(
                "X, y, likelihood, coregion and Xnew go with a SkewGP: a model has its data in it. "
                "Use integrate(gp, X, y, ...), or SkewGP.sample_latent(idata, Xnew=...) with the "
                "result of integrate(model)."
            )
        own = in_covariance_coordinates(model.root)
        return problem_of_model(own, collapse_model(own, drawn=drawn), start, most_binary)
    if isinstance(model, SkewGP):
        rng = np.random.default_rng(0)  # of the part that starts are tried on
        found = process_objective(data, None, rng, start, averaged=True, drawn=drawn)
        objective, origin = found.objective, found.origin
        new = (
            None
            if Xnew is None
            else as_input_graph("Xnew", as_inputs("Xnew", Xnew), model.n_columns)
        )
        if found.rows is not None:
            many = found
        else:
            given = data_of_model(model, data.X, data.y, data.likelihood, data.coregion)
            latent = ProcessFunctions(model, given, new, objective, found.coefficients)
            part = coarse_part(found, SearchSettings(), rng)
            coarse = None if part is None else part.objective
    else:
        raise TypeError(f"model must be a pm.Model or a SkewGP, got {type(model).__name__}.")
    origins = [Point(origin, p) for p in objective.coordinates.patterns(most_binary)]
    if many is not None:
        return ManyRowsProblem(data, many, origins, new)
    return IntegrationProblem(objective, origins, coarse, latent)


# Posterior modes of hyperparameters with their curvature: where importance sampling begins.


class Mode(NamedTuple):
    """A mode of the posterior by Laplace's method.

    Attributes
    ----------
    point : Point
    covariance : ndarray, shape (D, D)
        Inverse of the negative Hessian, bounded.
    log_mass : float
        Laplace's log integral over its surroundings.
    log_density : float
        There.
    """

    point: Point
    covariance: FloatArray
    log_mass: float
    log_density: float = -np.inf


def find_modes(
    problem: Integrand,
    function: Function,
    settings: ModeSettings,
    rng: np.random.Generator,
) -> list[Mode]:
    """The modes that count, the largest first.

    Parameters
    ----------
    problem : Integrand
    function : callable
        Value of its objective at a point, as it is to be counted.
    settings : ModeSettings
    rng : numpy.random.Generator

    Raises
    ------
    ValueError
        Where the posterior has no density at any start.
    ImproperPriorError
        Where it rises without end.
    """
    objective, origins = problem.objective, problem.origins
    first = origins[0]
    restarts = settings.restarts(first.x.size)
    vectors = spread_starts(problem.coarse or objective, first, restarts, settings.start, rng)
    optima = [
        climbed(function, origin.at(x), objective.coordinates, settings)
        for origin in origins
        for x in vectors
    ]
    return modes_of(function, optima, objective.coordinates, settings)


def climbed(
    function: Function, start: Point, coordinates: Coordinates, settings: ModeSettings
) -> Optimum:
    """An ascent whose box goes with it: a start may be many factors away from all mass."""
    for _ in range(settings.boxes):
        bounds = coordinates.bounds(start.x, settings.start.half_width)
        optimum = maximize(function, start, bounds, settings.optimizer)
        if not _at_an_end(optimum.point.x, bounds):
            break
        start = optimum.point
    return optimum


def _at_an_end(x: FloatArray, bounds: Bounds) -> bool:
    return any(value in ends for value, ends in zip(x.tolist(), bounds, strict=True))


def modes_of(
    function: Function, optima: list[Optimum], coordinates: Coordinates, settings: ModeSettings
) -> list[Mode]:
    """Where ascents have ended: the modes that count, the largest first."""
    found = with_value(optima, "posterior density of the hyperparameters")
    # A narrow mode has less mass than a wide one as high: some nats more than count in the end.
    highest = max(optimum.value.total for optimum in found)
    high = [optimum for optimum in found if optimum.value.total > highest - 2.0 * settings.margin]
    distinct = _distinct(high, settings)
    modes = [_mode(function, optimum, coordinates, settings) for optimum in distinct]
    return _counting(modes, settings)


def with_mode_from(
    modes: list[Mode],
    point: Point,
    objective: Searched,
    function: Function,
    settings: ModeSettings,
) -> list[Mode]:
    """The modes that count, with that to which an ascent from a point goes."""
    optimum = climbed(function, point, objective.coordinates, settings)
    return _counting(
        [*modes, _mode(function, optimum, objective.coordinates, settings)], settings
    )  # fmt: skip


def _counting(modes: list[Mode], settings: ModeSettings) -> list[Mode]:
    modes = sorted(modes, key=lambda mode: mode.log_mass, reverse=True)
    least = modes[0].log_mass - settings.margin
    if not least < modes[0].log_mass:  # nor where a nat is below round-off
        raise ImproperPriorError(
            "the posterior density of the hyperparameters has no mode: it rises until double "
            "precision ends. So it does where the model can fit the data without any error and "
            "nothing keeps a standard deviation from 0: give that a prior whose density vanishes "
            "at 0, such as pm.InverseGamma, or look at the data."
        )
    return [mode for mode in modes if mode.log_mass > least]


def _mode(
    function: Function, optimum: Optimum, coordinates: Coordinates, settings: ModeSettings
) -> Mode:
    bounds = coordinates.bounds(optimum.point.x, settings.start.half_width)
    hessian = negative_hessian(function, optimum.point, bounds, settings.optimizer)
    values, vectors = np.linalg.eigh(hessian)
    values = np.maximum(values, settings.least_curvature)
    log_mass = optimum.value.total + 0.5 * float((np.log(2.0 * np.pi) - np.log(values)).sum())
    return Mode(optimum.point, (vectors / values) @ vectors.T, log_mass, optimum.value.total)


def _distinct(optima: list[Optimum], settings: ModeSettings) -> list[Optimum]:
    kept: list[Optimum] = []
    for optimum in sorted(optima, key=lambda o: o.value.total, reverse=True):
        same = (
            other.point.pattern == optimum.point.pattern
            and abs(other.value.total - optimum.value.total) < settings.same_value
            and bool(np.abs(other.point.x - optimum.point.x).max(initial=0.0) < settings.same_place)
            for other in kept
        )
        if not any(same):
            kept.append(optimum)
    return kept
