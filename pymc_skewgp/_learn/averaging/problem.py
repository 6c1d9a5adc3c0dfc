"""What is to be integrated: the objective, draws from its prior, the latent functions."""

import pickle
import sys
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.pytensorf import compile as compile_graph
from pymc.pytensorf import find_rng_nodes, reseed_rngs
from pytensor import config
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import graph_inputs
from xarray import DataTree

from pymc_skewgp._gaussian.weights import in_cells
from pymc_skewgp._learn import problem
from pymc_skewgp._learn.averaging import model_functions as named
from pymc_skewgp._learn.averaging.points import EqualDraws, Task
from pymc_skewgp._learn.coordinates import Coordinates, Pattern, Point, Searched, free_variable
from pymc_skewgp._learn.factor_evidence import is_slow, operations_of_draws
from pymc_skewgp._learn.objective import CompiledLogPrior, Objective, compile_objective
from pymc_skewgp._learn.optimizers import SearchSettings
from pymc_skewgp._model.gp.latent_draws import LatentDraws, LatentGivenData, latent_tree
from pymc_skewgp._model.gp.process import as_input_graph
from pymc_skewgp._model.gp.skewgp import SkewGP
from pymc_skewgp._model.gp.variables import DataOfModel, data_of_model
from pymc_skewgp._model.graph.collapsed import Collapsed, parts_of_model
from pymc_skewgp._model.graph.members import in_covariance_coordinates
from pymc_skewgp._model.ops.plain_mode import PLAIN, untraced
from pymc_skewgp._observations.likelihood import as_inputs
from pymc_skewgp._observations.new_rows import NewRows
from pymc_skewgp._posterior.evidence_gradient import EvidenceTerms
from pymc_skewgp._posterior.output import as_probabilities
from pymc_skewgp._validation import FloatArray

# The prior of hyperparameters as a proposal: importance sampling draws a share from it for good.
#
# A target over its prior is the likelihood, which is bounded: no tail of it has large weights.

# Draws of the prior of which one is taken, the others near it, of so many or fewer.
_SPREAD, _FEW = 4, 64
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

    Raises
    ------
    NotImplementedError
        For a prior that cannot be drawn from.
    """

    def __init__(self, coordinates: Coordinates, pattern: Pattern) -> None:
        model, self._pattern = coordinates.model, pattern
        self._size = sum(int(np.prod(shape, dtype=int)) for shape in coordinates.shapes)
        rvs = [model.values_to_rvs[value] for value in coordinates.continuous]
        self._log_prior = CompiledLogPrior(coordinates, model.logp(vars=rvs, jacobian=True))
        free = [free_variable(model, rv) for rv in rvs]
        values = zip(coordinates.binary, coordinates.binary_values(pattern), strict=True)
        known = {model.values_to_rvs[x]: pt.constant(value, dtype=x.dtype) for x, value in values}
        drawn = clone_replace(free, known)
        self._generators = find_rng_nodes(drawn)
        self._draw = compile_graph([], drawn, random_seed=0, mode=PLAIN)

    def seeded(self, rng: np.random.Generator) -> "PriorDraws":
        """The same: its draws are by these random numbers from here on."""
        self._rng = rng
        reseed_rngs(self._generators, int(rng.integers(2**31)))
        return self

    def draw(self, count: int) -> FloatArray:
        """Rows; the few that are not finite are drawn again."""
        rows: list[FloatArray] = []
        spread = _SPREAD if count <= _FEW else 1
        while len(rows) < spread * count:
            row = self.row()
            if np.isfinite(row).all():
                rows.append(row)
        x = np.array(rows).reshape(-1, self._size)
        chosen = in_cells(x)[self._rng.integers(spread) :: spread]
        return x[self._rng.permutation(chosen)]

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
    coordinates: Coordinates,
    pattern: Pattern,
    rng: np.random.Generator,
    known: dict[Pattern, PriorDraws] | None = None,
) -> PriorDraws | None:
    """None where the prior cannot be drawn from, or has draws that are not finite.

    Those that are `known` are not compiled anew.
    """
    known = {} if known is None else known
    try:
        if pattern not in known:
            known[pattern] = PriorDraws(coordinates, pattern)
        found = known[pattern].seeded(rng)
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

    def tasks(self, points: Sequence[Point]) -> Iterator[list[Task]]:
        """See `LatentFunctions`."""
        trace = named.dataset_of(self._objective, points, np.arange(len(points))[None])
        each = self._latent.each(trace, weighed=True)
        for point, (_, likelihoods, case) in zip(points, each, strict=True):
            self._likelihoods[id(point)] = likelihoods
            yield [case]

    def tree(
        self, points: Sequence[Point], draws: EqualDraws, rng: np.random.Generator
    ) -> DataTree:
        """See `LatentFunctions`."""
        trace = named.dataset_of(self._objective, points, draws.point)
        f, model = draws.f, self._objective.coordinates.model
        shapes = self._latent.coefficient_shapes
        if shapes:  # with what is determined by the coefficients
            sizes = [int(np.prod(shape, dtype=int)) for shape in shapes.values()]
            f, *parts = np.split(f, f.shape[2] - np.cumsum(sizes[::-1])[::-1], axis=2)
            each = zip(shapes.items(), parts, strict=True)
            values = {name: part.reshape(*f.shape[:2], *shape) for (name, shape), part in each}
            trace = named.with_deterministics(model, trace.merge(named.as_dataset(model, values)))
        likelihoods = likelihoods_of(draws, [self._likelihoods[id(point)] for point in points])
        new = None if self._Xnew is None else NewRows(self._Xnew)
        probs = as_probabilities(None)
        drawn = LatentDraws("f", f, draws.relative_ess, likelihoods, new, probs=probs)
        return latent_tree(trace, self._latent.sets, drawn, rng)


def likelihoods_of(draws: EqualDraws, at_points: Sequence[Any]) -> Any:
    """Of each draw, as an array of objects."""
    found = np.empty(len(at_points), dtype=object)
    found[:] = at_points
    return found[draws.point]


_DIMENSIONS = ("chain", "draw")
_MOST_DRAWN = 10_000  # rows at which f is drawn
# Exact evidences where one takes no more operations than these.
_QUICK_EVIDENCES, _QUICK = 1024, 10**6
_FEW_EVIDENCES = 40  # exact ones for each hyperparameter, where one takes long


@dataclass(frozen=True, eq=False)
class IntegrationProblem:
    """What is to be integrated over hyperparameters.

    Attributes
    ----------
    objective : Objective or RowsObjective
        Log evidence by EP, and log prior, on the unconstrained scale.
    origins : list of Point
        Where to start, one for each pattern of binary values.
    coarse : Searched or None
        With some of the data, to try starts on; None where all are few enough.
    latent : ModelFunctions, ProcessFunctions or None
        The functions of which draws are wanted.
    data : TrainingData or None
        Of a SkewGP.
    modes : sequence of Mode
        Where these are known.
    n_evaluations : int
        Of EP, before.
    priors : dict
        By pattern, what has been compiled.
    """

    objective: Searched
    origins: list[Point]
    coarse: Searched | None = None
    latent: Any = None
    data: problem.TrainingData | None = None
    modes: Sequence[Any] = ()
    n_evaluations: int = 0
    priors: dict[Pattern, PriorDraws] = field(default_factory=dict)

    def afresh(self) -> "IntegrationProblem":
        """The same, EP with nothing to begin from: results do not depend on what ran before."""
        assert isinstance(self.objective, Objective)
        objective = self.objective.on(self.objective.batches)
        return replace(self, objective=objective, latent=self.latent.at_ends_of(objective))

    def prior_draws(self, pattern: Pattern, rng: np.random.Generator) -> PriorDraws | None:
        """The prior of the continuous coordinates; None where it cannot be drawn from."""
        return prior_draws(self.objective.coordinates, pattern, rng, self.priors)

    @property
    def n_rows(self) -> int:
        """Of the largest evidence, each as often as it was observed."""
        every = [terms.n_rows for terms in self.objective.terms_at(self.origins[0])]
        return max(every, default=sys.maxsize)  # many: in blocks

    @cached_property
    def is_slow(self) -> bool:
        """Whether an evidence takes long enough for few of them."""
        if not isinstance(self.objective, Objective):
            return True  # of many rows in blocks
        return any(is_slow(*own) for own in self.objective.known_at(self.origins[0]))

    @property
    def size(self) -> int:
        """Values of the functions in one draw."""
        return int(self.latent.size)

    def evidences(self, least: int) -> int:
        """Exact ones, where nothing is asked for.

        More where draws at many hyperparameters are made side by side, the fewer the more they
        take, so that the time stays about the same. Where one takes long fewer for one or a few
        hyperparameters: points are spread evenly.
        """
        if self.is_slow:
            return min(least, _FEW_EVIDENCES * max(self.origins[0].x.size, 1))
        assert isinstance(self.objective, Objective)
        known = list(self.objective.known_at(self.origins[0]))
        if len(known) > 1 and any(isinstance(terms, EvidenceTerms) for terms, _ in known):
            return least
        share = min(1.0, _QUICK / sum(operations_of_draws(*own) for own in known))
        return max(least, int(share * _QUICK_EVIDENCES))

    @property
    def n_distinct(self) -> int:
        """The same with equal ones once: the matrices that are factorised have as many.

        Or as many as would take as long.
        """
        return max(x.n_factorised for x in self.objective.terms_at(self.origins[0]))


class ManyRowsProblem(NamedTuple):
    """What is to be integrated, its objective to be made of a basis that is not placed yet.

    Attributes
    ----------
    data : TrainingData
    found : ProcessObjective
        With `rows`.
    origins : list of Point
        As of `IntegrationProblem`.
    Xnew : ndarray, shape (t, d), or None
    """

    data: problem.TrainingData
    found: problem.ProcessObjective
    origins: list[Point]
    Xnew: FloatArray | None

    @property
    def objective(self) -> Searched:
        """Without its rows."""
        return self.found.objective

    @property
    def at_data(self) -> bool:
        """Whether the rows are not too many for draws of f there."""
        assert self.found.rows is not None
        return self.found.rows.X.shape[0] <= _MOST_DRAWN

    @property
    def size(self) -> int:
        """Values of f in one draw."""
        assert self.found.rows is not None
        new = 0 if self.Xnew is None else self.Xnew.shape[0]
        return new + (self.found.rows.X.shape[0] if self.at_data else 0)


def improper_priors(objective: Searched) -> list[str]:
    """Names of variables with no normalised density; of those integrated out first."""
    flat = dict.fromkeys(x.name for x in objective.coordinates.flat)
    return [*objective.density_one, *flat, *objective.coordinates.cut_off]


def problem_of_model(
    model: pm.Model, collapsed: Collapsed, start: problem.Start
) -> IntegrationProblem:
    """Of a model of which it is known what is integrated out.

    Raises
    ------
    ValueError
        As `integration_problem`.
    """
    clash = [x.name for x in model.unobserved_RVs if x.name in _DIMENSIONS]
    if clash:
        raise ValueError(
            f"a variable is called {clash[0]}, as a dimension of all draws is: give it another "
            "name."
        )
    objective, origin = compile_objective(model, collapsed, averaged=True, start=start)
    latent = named.ModelFunctions(model, collapsed, objective)
    return IntegrationProblem(objective, objective.coordinates.each_pattern(origin), latent=latent)


@untraced()
def integration_problem(
    data: problem.TrainingData, Xnew: Any, start: problem.Start, *, drawn: bool = True
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
    if isinstance(model, pm.Model):
        if any(x is not None for x in data[1:]) or Xnew is not None:
            raise ValueError(
                "X, y, likelihood, coregion and Xnew go with a SkewGP: a model has its data in it. "
                "Use integrate(gp, X, y, ...), or predict with the result of integrate(model)."
            )
        root = model.root

        def read() -> tuple[IntegrationProblem, Collapsed]:
            own = in_covariance_coordinates(root)
            found = parts_of_model(own, drawn=drawn)
            if found.obstacle is not None:
                raise found.obstacle
            return problem_of_model(own, found.collapsed, start), found.collapsed

        read_before, collapsed = kept_with(root, drawn, read) if start is None else read()
        collapsed.warn(root)
        return read_before.afresh()
    if not isinstance(model, SkewGP):
        raise TypeError(
            f"model must be a pm.Model or a SkewGP, got {type(model).__name__}. For a pm.gp.Latent "
            "give the model with its prior and the data, or write sg.SkewGP in its place."
        )
    rng = np.random.default_rng(0)  # of the part that starts are tried on
    found = problem.process_objective(data, None, rng, start, averaged=True, drawn=drawn)
    origins = found.objective.coordinates.each_pattern(found.origin)
    if Xnew is not None:
        Xnew = as_input_graph("Xnew", as_inputs("Xnew", Xnew), model.n_columns)
    if found.rows is not None:
        return ManyRowsProblem(data, found, origins, Xnew)
    given = data_of_model(model, data.X, data.y, data.likelihood, data.coregion)
    latent = ProcessFunctions(model, given, Xnew, found.objective, found.coefficients)
    part = problem.coarse_part(found, SearchSettings(), rng)
    coarse = None if part is None else part.objective
    return IntegrationProblem(found.objective, origins, coarse, latent, data)


# What was made of a model, kept with the model as long as that stays as it is.

# Where it is in the model: it goes with the model, of which it has references.
_NAME = "_pymc_skewgp_kept"


class _Kept:
    """By key, of a model in one state; a copy of the model, or a pickled one, has none of it."""

    def __init__(self, state: "_State | None" = None) -> None:
        self.state = state
        self.found: dict[Hashable, Any] = {}

    def __reduce__(self) -> Any:
        return _Kept, ()


class _State:
    """A model's variables, coordinates and data, and the thread: compiled functions are its own.

    Variables are the same where they are the same objects, for a graph does not change; data where
    their values are.
    """

    def __init__(self, model: pm.Model) -> None:
        known = (
            dict(model.named_vars),
            model.rvs_to_values,
            model.rvs_to_transforms,
            model.rvs_to_initial_values,
            model.coords,
            model.named_vars_to_dims,
        )
        roles = model.free_RVs, model.observed_RVs, model.potentials, model.deterministics
        self._objects = [x for pairs in known for pair in pairs.items() for x in pair]
        self._objects += [x for group in roles for x in (*group, None)]
        graphs = [*model.named_vars.values(), *model.value_vars, *model.dim_lengths.values()]
        data = (_data_of(x) for x in graph_inputs(graphs))
        arrays = (hash(pickle.dumps(x)) for x in data if hasattr(x, "dtype"))
        self._values = config.floatX, threading.get_ident(), *arrays

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _State) or self._values != other._values:
            return False
        mine, others = self._objects, other._objects
        return len(mine) == len(others) and all(
            x is y or (isinstance(x, str) and x == y) for x, y in zip(mine, others, strict=True)
        )

    __hash__ = None  # type: ignore[assignment]


def _data_of(x: Any) -> Any:
    """The value of a constant or a shared variable."""
    return x.get_value(borrow=True) if hasattr(x, "get_value") else getattr(x, "data", None)


def kept_with[T](model: pm.Model, key: Hashable, make: Callable[[], T]) -> T:
    """Made once while the model stays as it is.

    Parameters
    ----------
    model : pymc.Model
    key : hashable
        What of several things.
    make : callable
    """
    state = _State(model)
    kept = vars(model).get(_NAME)
    if kept is None or kept.state != state:
        kept = _Kept(state)
        vars(model)[_NAME] = kept
    if key not in kept.found:
        kept.found[key] = make()
    found: T = kept.found[key]
    return found
