"""What a search is given, and the run from data to report."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import NDArray

from pymc_skewgp._gaussian.weights import Estimate
from pymc_skewgp._learn import optimizers, search
from pymc_skewgp._learn.coordinates import Bounds, Point, Searched, initial_values
from pymc_skewgp._learn.objective import Objective, compile_objective
from pymc_skewgp._learn.rows import rows_objective as many_rows
from pymc_skewgp._learn.rows.program import kind_of
from pymc_skewgp._model.gp.exact_posterior import can_be_integrated, inputs_of
from pymc_skewgp._model.gp.process import as_coregion_graph
from pymc_skewgp._model.gp.skewgp import SkewGP
from pymc_skewgp._model.graph.collapsed import collapse_model, collapse_process, unwrapped
from pymc_skewgp._model.graph.data import KnownData, KnownSites, is_distribution, known_of
from pymc_skewgp._model.ops.plain_mode import PLAIN, untraced
from pymc_skewgp._observations.likelihood import Likelihood
from pymc_skewgp._observations.weighted import Weighted
from pymc_skewgp._posterior.data_blocks import Arrays
from pymc_skewgp._posterior.distributed_posterior import ChunkedData, as_chunked_data, is_dask
from pymc_skewgp._posterior.prior import as_likelihood, kinds_of
from pymc_skewgp._validation import FloatArray, as_count

Start = Mapping[str, Any] | None


class TrainingData(NamedTuple):
    """A model with its data in it; or a SkewGP, its inputs and data, and their likelihood.

    And the covariance of the functions, where that has several, and how often each observation was
    made, where that is not once.
    """

    model: Any
    X: Any = None
    y: Any = None
    likelihood: Any = None
    coregion: Any = None
    weights: Any = None


def observed_values(of: TrainingData) -> list[Any]:
    """Of each observed variable of a model, or of data of each kind."""
    model = unwrapped(of.model)
    if isinstance(model, pm.Model):
        return [model.rvs_to_values[rv].eval(mode=PLAIN) for rv in model.observed_RVs]
    if is_dask(of.y):
        return [of.y]
    every = (y for _, y, _ in kinds_of(of.X, of.y, of.likelihood).values())
    return [y for y in every if y is not None]


class Observed(int):
    """How many numbers a result is of; and of what, in the process that computed it.

    An attribute of a DataTree that stays with its parts and copies. Files and pickles have the
    number alone: what a model is made of, they could keep only as code of one version of PyMC.

    Attributes
    ----------
    of : TrainingData
    """

    of: TrainingData

    def __new__(cls, of: TrainingData) -> Self:
        """Of a model, or of a SkewGP and its data."""
        # Of chunks whose sizes are not known there is no number.
        sizes = (y.size if is_dask(y) else np.size(y) for y in observed_values(of))
        count = int(np.nan_to_num(sum(sizes)))
        found = super().__new__(cls, count)
        found.of = of
        return found

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> tuple[type, tuple[int]]:
        return int, (int(self),)


FRACTIONAL = "fractional weights"


def names_of_likelihoods(X: Any, y: Any, likelihood: Any, weights: Any = None) -> str:
    """Names of the classes, with those of data of several kinds; and of weights what they are."""
    found = []
    for kind, (_, _, own) in kinds_of(X, y, likelihood).items():
        known = own if callable(own) and not isinstance(own, Likelihood) else as_likelihood(own)
        of_each = known.weights if isinstance(known, Weighted) else weights
        name = type(known).__name__
        if isinstance(known, Weighted):
            name += f" {type(known.likelihood).__name__}"
        if of_each is not None and np.any(np.mod(np.asarray(of_each, np.float64), 1.0)):
            name += f" ({FRACTIONAL})"
        found.append(f"{kind}: {name}" if kind else name)
    return ", ".join(found)


def attributes_of_data(of: TrainingData, given: Any) -> dict[str, Any]:
    """What a result keeps of what it is of, by name; `given` may be what the model is inside of."""
    found: dict[str, Any] = {"n_observed": Observed(of._replace(model=given))}
    if of.X is not None:
        found["likelihood"] = names_of_likelihoods(of.X, of.y, of.likelihood)
    return found


class ProcessObjective(NamedTuple):
    """The objective of a SkewGP, or of a model, where to start, and its data.

    Attributes
    ----------
    objective : Objective
    origin : ndarray, shape (k,)
    arrays : tuple of ndarray
        All the data, as the objective takes them; none where `rows` are searched.
    parts : KnownData, KnownSites or None
        They can be taken apart where it is not None.
    rows : ManyRows or None
        The same with f of finite rank, where the SkewGP is approximated.
    coefficients : sequence of variables
        Of the mean, which are no coordinates: they are integrated out.
    """

    objective: Objective
    origin: FloatArray
    arrays: Arrays = ()
    parts: KnownData | KnownSites | None = None
    rows: many_rows.ManyRows | None = None
    coefficients: Sequence[Any] = ()


def coarse_part(
    found: ProcessObjective, settings: optimizers.SearchSettings, rng: np.random.Generator
) -> search.Part | None:
    """Some of the data, to try starts on; None where all are few enough."""
    objective, parts = found.objective, found.parts
    strata = None if parts is None else parts.strata
    if parts is not None and strata is not None:
        size = min(settings.coarse_size, settings.batch_size or settings.coarse_size)
        if strata.size > max(settings.coarse_above, size):
            rows = search.random_batches(strata, size, rng)[0]
            return search.Part(objective.on([parts.part(rows)]), rows.size / strata.size)
    if found.rows is None:
        return None
    pattern = objective.coordinates.patterns()[0]
    return found.rows.part(Point(found.origin, pattern), settings, rng)


@untraced()
def process_objective(
    data: TrainingData,
    batch_size: int | None,
    rng: np.random.Generator,
    start: Start,
    *,
    averaged: bool = False,
    drawn: bool = False,
) -> ProcessObjective:
    """The objective of a SkewGP: the evidence of all its data, or the sum over random batches.

    `averaged` as for `compile_objective`. Coefficients of the mean are integrated out where a
    posterior at a point has them in its kernel, or where they are `drawn` with f. They stay with f
    of finite rank, whose mean is a function, and in batches, which share them.
    """
    chunked = _chunked_rows(data, batch_size, averaged)
    if chunked is not None:
        data = _of_some_rows(data, chunked)
    gp, coregion = data.model, data.coregion
    if gp.model is None and not averaged:
        raise ValueError(
            "there is nothing to learn: the SkewGP was made outside of a model. Make it, and the "
            "random variables that its kernel is to depend on, inside ``with pm.Model():``."
        )
    # A nested model's variables are the root's as well.
    model = pm.Model() if gp.model is None else gp.model.root
    kinds = _known_kinds(data, model, "integrate" if averaged else "find_hyperparameters")
    approximation, arrays = None, ()
    if chunked is not None:
        approximation = many_rows.approximation_of_chunks(chunked, gp, kinds[0])
    elif batch_size is None:
        approximation = many_rows.approximation_of(gp, kinds, coregion)
    if approximation is None:
        arrays = tuple(array for kind in kinds for array in kind.arrays)
    k = max(kind.n_functions for kind in kinds)
    coregion = as_coregion_graph(coregion, k)
    only = kinds[0] if len(kinds) == 1 else None
    batches = [arrays]
    if batch_size is not None:
        strata = None if only is None else only.strata
        if only is None or strata is None:
            raise ValueError(
                "batch_size is for data of one kind with one observation for each row of X and "
                "noise of its own: leave it out."
            )
        parts = search.random_batches(strata, as_count("batch_size", batch_size), rng)
        batches = [only.part(chosen) for chosen in parts]
    inputs, graphs = zip(*(kind.rows() for kind in kinds), strict=True)
    without = approximation is None and batch_size is None
    without = without and (drawn or can_be_integrated(gp, k, coregion))
    collapsed = collapse_process(model, gp, list(graphs), coregion, without_coefficients=without)
    symbols = [symbol for own in inputs for symbol in own]
    objective, origin = compile_objective(
        model, collapsed, symbols, batches, start, averaged=averaged
    )
    if approximation is None:
        return ProcessObjective(objective, origin, arrays, only, None, collapsed.coefficients)
    X = np.concatenate([kind.X for kind in kinds])
    known = model, gp, approximation, objective.coordinates, coregion, kinds
    graph = many_rows.latent_graph(*known)
    by_rows = many_rows.rows_objective(graph, objective)
    of_rows = [kind_of(kind, graph) for kind in kinds]
    rows = many_rows.ManyRows(gp, approximation, of_rows, X, by_rows, chunked)
    return ProcessObjective(objective, origin, arrays, only, rows)


def _known_kinds(data: TrainingData, model: pm.Model, caller: str) -> list[Any]:
    """Data of each kind, checked."""
    gp, X, y, likelihood, _, weights = data
    without_y = isinstance(X, Mapping | list) or not getattr(likelihood, "has_data", True)
    if X is None or (y is None and not without_y):
        raise ValueError(f"a SkewGP needs its data: {caller}(gp, X, y).")
    given = kinds_of(X, y, likelihood)
    if weights is not None and list(given) != [""]:
        raise ValueError(
            "weights are for data of one kind: repeat the rows of X and y in those of several."
        )
    return [known_of(inputs_of(gp, X), y, known, model, weights) for X, y, known in given.values()]


def _of_some_rows(data: TrainingData, chunked: ChunkedData) -> TrainingData:
    """The rows that come here."""
    index = chunked.some_rows
    X, y = chunked.arrays(index)
    return data._replace(X=X, y=y, likelihood=chunked.likelihood.of_observations(index, y))


def _chunked_rows(data: TrainingData, batch_size: int | None, averaged: bool) -> ChunkedData | None:
    """Data that are dask arrays; None where they are none."""
    if not (is_dask(data.X) or is_dask(data.y)):
        return None
    options = {"weights": data.weights, "coregion": data.coregion, "batch_size": batch_size}
    for name, value in options.items():
        if value is not None:
            many_rows.refuse_chunks(f"{name} is given", f"leave it out, or {many_rows.INSTEAD}")
    if averaged:
        many_rows.refuse_chunks("integrate does not take them", "call find_hyperparameters")
    known = data.likelihood
    if is_distribution(known):
        many_rows.refuse_chunks("a function that gives a PyMC distribution cannot be cut into rows")
    return as_chunked_data(data.X, data.y, as_likelihood(known))


# `HyperparameterFit`: what a search for hyperparameters found, and how it got there.

# Entries of an array that a line shows.
_SHOWN = 4


@dataclass(frozen=True, repr=False)
class HyperparameterFit:
    """Result of `find_hyperparameters`.

    ``print`` shows values, standard errors and whether the search converged; ``repr`` the same in
    a line.

    Attributes
    ----------
    point : dict of arrays
        The optimum: random variables and Deterministics by name, on their own scale. What
        `SkewGP.posterior` and ``pm.sample(initvals=...)`` take.
    log_marginal_likelihood : Estimate
        At the optimum, in nats, with its standard error, from 1024 fresh draws; of the composite
        likelihood where `kind` says so, which does not compare with a marginal likelihood
        (`SkewGPClassifier` gives the marginal likelihood of all labels all the same). Priors are
        not in it.
    improper_priors : list of str
        Variables with a flat prior that are integrated out of it, as coefficients of ``pm.Flat``:
        of density 1, so that it is the restricted likelihood (REML) up to a constant, and compares
        only with that of models with the same ones.
    log_prior : float
        Log density of the priors (and of all else in the model), without Jacobians.
    std_error : dict of arrays
        Standard errors of what is in `point`, from the Hessian of EP's evidence and the derivatives
        of the transforms: a Gaussian approximation, infinite for what is not identified. Empty for
        more than 40 parameters, for a composite likelihood, whose Hessian ignores the dependence
        between batches, and where `SkewGPClassifier` searched on part of the data only.
    kind : {"evidence", "composite", "frechet"}
        What was maximised, besides the prior.
    converged : bool
        Whether the best ascent ended at an optimum. `maximize_frechet_bound` makes a fixed number
        of iterations and always says so.
    at_bound : list of str
        Coordinates at the bounds of the search, a factor of a thousand away from the start.
    flat : list of str
        Weakly identified coordinates: the objective hardly depends on them.
    runs : Dataset
        Dimension ``run``: ``method``, ``pattern`` of the binary variables, ``n_evaluations``,
        ``log_evidence`` and ``total`` (with the prior) of its best point.
    path : Dataset
        Dimension ``evaluation``: ``run``, ``log_evidence``, ``total`` and ``x``, the unconstrained
        parameters (``coordinate``).
    seconds : float
        Of the search, compilation included; the final evidence and the standard errors come after.
    n_observed : int
        How many numbers were observed. In the process of the search it is also known of what, which
        `predict` asks for.
    """

    point: dict[str, NDArray[Any]]
    log_marginal_likelihood: Estimate
    log_prior: float
    std_error: dict[str, NDArray[Any]]
    kind: str
    converged: bool
    at_bound: list[str]
    flat: list[str]
    runs: xr.Dataset
    path: xr.Dataset
    seconds: float
    improper_priors: list[str] = field(default_factory=list)
    n_observed: int = 0

    def __repr__(self) -> str:
        evidence = self.log_marginal_likelihood
        values = ", ".join(f"{name}={_short(value)}" for name, value in self.point.items())
        parts = [
            f"log {self._likelihood} {evidence.value:.2f} +- {evidence.std_error:.2g}{self._flat}",
            "converged" if self.converged else "not converged",
            *self._remarks(),
        ]
        return f"HyperparameterFit({values}; {'; '.join(parts)})"

    def __str__(self) -> str:
        lines = [f"log {self._likelihood} {self.log_marginal_likelihood}{self._flat}"]
        if self.kind != "frechet":  # which leaves priors out
            lines[0] += f", log prior {self.log_prior:.3f}"
        for name, value in self.point.items():
            error = self.std_error.get(name)
            shown = np.array2string(value, precision=4, threshold=8)
            if error is not None:
                shown += f" +- {np.array2string(error, precision=2, threshold=8)}"
            lines.append(f"  {name}: {shown}")
        lines += self._remarks()
        if not self.std_error:
            lines.append("no standard errors (see HyperparameterFit)")
        if not self.converged:
            lines.append("not converged: raise n_restarts, or give a start")
        lines.append(
            f"{'converged: ' if self.converged else ''}{self.path.sizes['evaluation']} evaluations "
            f"in {self.runs.sizes['run']} runs, {self.seconds:.1f} s"
        )
        return "\n".join(lines)

    @property
    def _likelihood(self) -> str:
        return "composite likelihood" if self.kind == "composite" else "marginal likelihood"

    @property
    def _flat(self) -> str:
        names = ", ".join(self.improper_priors)
        return f" (under density 1 of {names})" if names else ""

    def _remarks(self) -> list[str]:
        remarks = {"at the bounds of the search": self.at_bound, "weakly identified": self.flat}
        return [f"{remark}: {', '.join(found)}" for remark, found in remarks.items() if found]


def _short(value: NDArray[Any]) -> str:
    if value.size > _SHOWN:
        return f"<array {value.shape}>"
    return np.array2string(value, precision=4, separator=", ").replace("\n", "")


# A search for hyperparameters from the data to the report.

# How far out an objective is looked at, and what it has to lose there, in nats, to have a maximum.
_FURTHER, _FALL = 100.0, 0.1
EVIDENCE_DRAWS = 1024  # behind the reported evidence


@dataclass(frozen=True)
class LearningRun:
    """A search that has ended.

    Attributes
    ----------
    objective : Objective or RowsObjective
    result : SearchResult
    bounds : list of pairs
    log : EvaluationLog
    settings : SearchSettings
    in_batches : bool
        Whether a composite likelihood was maximised.
    seconds : float
    fixed_from : LearningRun or None
        The one before it, whose values it left as they were.
    interrupted : bool
        Whether it was ended by hand.
    """

    objective: Searched
    result: search.SearchResult
    bounds: Bounds
    log: optimizers.EvaluationLog
    settings: optimizers.SearchSettings
    in_batches: bool
    seconds: float
    fixed_from: "LearningRun | None" = None
    interrupted: bool = False

    @property
    def point(self) -> Point:
        """The optimum."""
        return self.result.optimum.point

    @property
    def values(self) -> dict[str, Any]:
        """The optimum by name."""
        return self.objective.named(self.point)

    @property
    def at_bound(self) -> list[str]:
        """Coordinates at the edge of the box."""
        labels = zip(
            self.objective.coordinates.labels,
            search.at_edge(self.point.x, self.bounds),
            strict=True,
        )
        own = [label for label, at in labels if at]
        return own + (self.fixed_from.at_bound if self.fixed_from else [])

    @property
    def flat(self) -> list[str]:
        """Coordinates that make up most of the directions with a small second derivative."""
        before = self.fixed_from.flat if self.fixed_from else []
        if self.result.hessian is None:
            return before
        values, vectors = np.linalg.eigh(self.result.hessian)
        share = (vectors[:, values < search.FLAT_HESSIAN] ** 2).sum(axis=1)
        labels = zip(self.objective.coordinates.labels, share, strict=True)
        at_bound = self.at_bound
        own = [label for label, part in labels if part > 0.5 and label not in at_bound]
        return own + before

    @property
    def converged(self) -> bool:
        """Whether it ended at an optimum, and the run before it did."""
        own = self.result.optimum.converged
        return own and (self.fixed_from is None or self.fixed_from.converged)

    def rise(self, name: str, away: float) -> float | None:
        """What the objective gains from a value of a positive variable on, if it has no maximum.

        All else is as found. None where it falls: by more than a tenth of a nat a hundredfold
        further out. So an optimum among values that do as well is one that a search happens to end
        at, but one that the objective still rises to, far out, is none.

        Parameters
        ----------
        name : str
            A coordinate that is a logarithm.
        away : float
            The value.
        """
        place = self.objective.coordinates.labels.index(name)
        here, low, high = self.point.x, self.point.x.copy(), self.point.x.copy()
        low[place] = min(np.log(away), here[place])
        high[place] += np.log(_FURTHER)
        points = [self.point.at(x) for x in (here, low, high)]
        best, before, beyond = self.objective.totals_by_ep(points)[0].tolist()
        return best - before if beyond > best - _FALL else None

    def estimate(self) -> Estimate:
        """Log evidence, or composite likelihood, at the optimum, from draws of its own."""
        return self.objective.estimate(self.point, EVIDENCE_DRAWS, self.settings.seed)

    def report(self, log_marginal_likelihood: Estimate) -> HyperparameterFit:
        """All of it, in the user's terms."""
        errors = {}
        # A composite likelihood counts batches as independent, which they are not: standard errors
        # from its Hessian would be a third of what they should be.
        if not self.in_batches:
            errors = search.standard_errors(self.objective.named, self.point, self.result.hessian)
        return HyperparameterFit(
            point=self.values,
            log_marginal_likelihood=log_marginal_likelihood,
            log_prior=self.objective.log_prior(self.point),
            std_error=errors,
            kind="composite" if self.in_batches else "evidence",
            converged=self.converged,
            at_bound=self.at_bound,
            flat=self.flat,
            runs=self.log.runs(),
            path=self.log.path(),
            seconds=self.seconds + (self.fixed_from.seconds if self.fixed_from else 0.0),
            improper_priors=list(self.objective.density_one),
        )


def _model_objective(
    data: TrainingData, settings: optimizers.SearchSettings, start: Start
) -> ProcessObjective:
    if any(x is not None for x in data[1:]) or settings.batch_size is not None:
        raise ValueError(
            "X, y, likelihood and batch_size go with a SkewGP, as coregion and weights do: a "
            "model has its data in it. Use find_hyperparameters(gp, X, y, ...)."
        )
    root = data.model.root
    objective, origin = compile_objective(root, collapse_model(root), start=start)
    return ProcessObjective(objective, origin)


def _searched(
    problem: ProcessObjective,
    part: search.Part | None,
    starts: list[Point],
    bounds: Bounds,
    settings: optimizers.SearchSettings,
    log: optimizers.EvaluationLog,
) -> tuple[Searched, search.SearchResult, bool]:
    """What was searched, the best of it, and whether the search was interrupted."""
    objective = problem.objective
    try:
        if problem.rows is None:
            return objective, search.search(objective, part, starts, bounds, settings, log), False
        assert part is not None
        return *problem.rows.search(part, starts, bounds, settings, log), False
    except optimizers.NoValueError as error:
        why = None if problem.rows else objective.why_no_value(starts[0])
        raise optimizers.NoValueError(why or str(error)) from None
    except KeyboardInterrupt:
        best = log.best()
        if not settings.partial or best is None:
            raise
        optimum = optimizers.Optimum(*best, converged=False)
        return objective, search.SearchResult(optimum, None), True


def learn(
    data: TrainingData,
    settings: optimizers.SearchSettings,
    rng: np.random.Generator,
    *,
    start: Start = None,
    centre: Start = None,
    fixed_from: LearningRun | None = None,
) -> LearningRun:
    """`find_hyperparameters` for checked settings, without the evidence's own estimate.

    Parameters
    ----------
    data : TrainingData
    settings : SearchSettings
        The seed of the twisted draws is drawn from `rng`.
    rng : numpy.random.Generator
        Of batches, restarts and draws.
    start, centre : mapping, optional
        Values by name. The box lies around `centre`, `start` where none is given: a search that
        goes on from another is not to leave its box.
    fixed_from : LearningRun, optional
        Its continuous variables stay as it has found them.
    """
    began = time.perf_counter()
    places: search.Places = []
    of_process = isinstance(data.model, SkewGP)
    if of_process:
        problem = process_objective(data, settings.batch_size, rng, start)
    elif isinstance(data.model, pm.Model):
        problem = _model_objective(data, settings, start)
    else:
        found = type(data.model).__name__
        raise TypeError(
            f"model must be a pm.Model or a SkewGP, got {found}. For a pm.gp.Latent give the model "
            "with its prior and the data, or write sg.SkewGP in its place."
        )
    part = coarse_part(problem, settings, rng)
    coordinates = problem.objective.coordinates
    if of_process:
        places = search.pseudo_point_places(coordinates, data.model)
    origin = search.separate_coincident(problem.origin, places, rng)
    middle = origin
    if centre is not None:
        model, continuous = coordinates.model, coordinates.continuous
        middle = coordinates.vector(initial_values(model, continuous, centre))
    fixed = fixed_from.values if fixed_from else ()
    bounds = coordinates.bounds(middle, settings.half_width, fixed)
    origin = np.clip(origin, *np.transpose(bounds)) if bounds else origin
    patterns = coordinates.patterns()
    cheap: Searched = problem.objective if part is None else part.objective
    first = Point(origin, patterns[0])
    vectors = optimizers.spread_starts(cheap, first, settings.n_restarts, rng)
    settings = replace(settings, seed=int(rng.integers(2**31)))
    for pattern in patterns:
        search.refuse_other_phases(cheap, Point(origin, pattern), of_process)
    patterns = search.distinct_patterns(cheap, origin, patterns, places)
    starts = [Point(x, pattern) for pattern in patterns for x in vectors]
    log = optimizers.EvaluationLog(coordinates.labels)
    learnt, result, interrupted = _searched(problem, part, starts, bounds, settings, log)
    seconds = time.perf_counter() - began
    in_batches = settings.batch_size is not None
    return LearningRun(
        learnt, result, bounds, log, settings, in_batches, seconds, fixed_from, interrupted
    )
