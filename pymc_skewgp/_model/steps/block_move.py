"""One block of a PyMC model, moved by a Markov chain on (f, u, hyperparameters)."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from pymc.pytensorf import compile
from pytensor.graph.traversal import ancestors, apply_ancestors, graph_inputs
from pytensor.scan.op import Scan
from scipy.sparse import csr_array, vstack

from pymc_skewgp._errors import NotPositiveDefiniteError
from pymc_skewgp._gaussian import linalg
from pymc_skewgp._gaussian.coordinates import OpenRows, are_alike, equal_predictors, squared_gaps
from pymc_skewgp._mcmc import site_chain as conjugate
from pymc_skewgp._mcmc import slices
from pymc_skewgp._mcmc.augmentation import Augmentation, ConjugateModel, Move, Placed
from pymc_skewgp._mcmc.site_chain import ConjugateInfo, ConjugateSampler, ConjugateState, SiteChain
from pymc_skewgp._mcmc.slices import HyperparameterMove, SliceMove, SliceState
from pymc_skewgp._model.graph.analysis import BlockGraph
from pymc_skewgp._model.graph.gaussian_terms import sites_of_data
from pymc_skewgp._model.ops.densities import pt_mvn_logcdf
from pymc_skewgp._model.ops.plain_mode import plain_function
from pymc_skewgp._observations import observations as row
from pymc_skewgp._observations.sites import Sites, SitesGiven, factors_of, joined_sites
from pymc_skewgp._sun.parameters import SunParameters
from pymc_skewgp._validation import FloatArray

# A block of variables of a model, and its observations, as numbers at a point.

# Sparse products beat dense ones below this share of entries, in matrices that are not small.
_SPARSE_SHARE, _LEAST_SPARSE = 0.1, 10_000

# Rows of one observed variable, and how many each interval stands for.
_Block = tuple[row.Observations, FloatArray | None]
# Numbers by name, and by number those of parameters.
_AtPoint = Mapping[Any, FloatArray]


# Of `RowGraphs`, what is evaluated.
_OF_ROWS = ("lower", "upper", "noise", "value", "counts")

# Nodes of a graph up to which it runs without being compiled: that takes seconds, and saves a
# tenth of a millisecond a call.
_FEW_NODES = 200


def _function_of(inputs: list[Any], outputs: Any, compile_kwargs: Mapping[str, Any] | None) -> Any:
    """A function of a chain."""
    nodes = list(apply_ancestors(outputs if isinstance(outputs, list) else [outputs]))
    loops = any(isinstance(node.op, Scan) for node in nodes)
    if compile_kwargs or loops or len(nodes) > _FEW_NODES:
        return compile(inputs, outputs, **(compile_kwargs or {}))
    return plain_function(inputs, outputs)


class LatentAtPoint:
    """Parameters of a unified skew-normal vector and of its observations, at a point.

    Parameters
    ----------
    model : pymc.Model
    latent : BlockGraph
        The variables that make the vector.
    compile_kwargs : dict, optional
        Of ``pymc.pytensorf.compile``.
    by_factors : bool, default False
        Whether intervals that repeat are to be factors of their predictors, as sites are: found
        where it is evaluated first, and kept until `forget`.

    Attributes
    ----------
    fixed : bool
        Whether no free variable of the model has a say in the parameters.
    """

    def __init__(
        self,
        model: pm.Model,
        latent: BlockGraph,
        compile_kwargs: Mapping[str, Any] | None = None,
        *,
        by_factors: bool = False,
    ) -> None:
        self._by_factors = by_factors
        known = [sites_of_data(sites, compile_kwargs or {}) for sites in latent.sites]
        self._families = [part.family for part in known]
        self._rows = [
            (y.name, y.likelihood.check, y.rows.mixture and y.rows.mixture.kind)
            for y in latent.observed
        ]
        parts: list[dict[Any, Any]] = [latent.prior._asdict()]
        for y in latent.observed:
            own: dict[Any, Any] = {"values": y.values, "A": y.A, "a": y.a}
            own |= {name: getattr(y.rows, name) for name in _OF_ROWS}
            own |= dict(enumerate(y.rows.parameters))
            parts.append({name: x for name, x in own.items() if x is not None})
        for sites, part in zip(latent.sites, known, strict=True):
            parts.append({"A": sites.A, "a": sites.a} | dict(enumerate(part.graphs)))
        outputs = [x for part in parts for x in part.values()]
        self._names = [list(part) for part in parts]
        self._dtypes = [[x.dtype for x in part.graphs] for part in known]
        used = set(graph_inputs(outputs))
        inputs = [value for value in model.value_vars if value in used]
        self._inputs = [value.name for value in inputs]
        self.fixed = not inputs
        # Most outputs are data: evaluated once in a chain, and not compiled for it.
        self._moving = [not set(graph_inputs([x])).isdisjoint(inputs) for x in outputs]
        pairs = list(zip(outputs, self._moving, strict=True))
        self._constants = plain_function([], [x for x, moves in pairs if not moves])
        self._function = None
        if inputs:
            moving = [x for x, moves in pairs if moves]
            self._function = _function_of(inputs, moving, compile_kwargs)
        self.forget()

    def forget(self) -> None:
        """Evaluate anew at the next call: data may have changed."""
        self._data: list[FloatArray] | None = None
        self._values: list[NDArray[Any]] | None = None
        self._last: ConjugateModel | None = None
        self._repeats: bool | None = None if self._by_factors else False

    def inputs(self, point: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """What of a point the parameters depend on."""
        return [point[name] for name in self._inputs]

    def model(self, point: Mapping[str, NDArray[Any]]) -> ConjugateModel:
        """Parameters at a point; the very object of the last call while they have not changed.

        Parameters
        ----------
        point : mapping
            Values of the model's value variables, by name.

        Returns
        -------
        ConjugateModel

        Raises
        ------
        ValueError
            Impossible data; the message names the variable.
        """
        values = self.inputs(point)
        if (
            self._last is None
            or self._values is None
            or not all(map(np.array_equal, values, self._values))
        ):
            self._last = self._evaluate(values)
            # Copies: the caller may write the next point where this one was.
            self._values = [np.array(value) for value in values]
        return self._last

    def _evaluate(self, values: list[NDArray[Any]]) -> ConjugateModel:
        if self._data is None:
            self._data = [np.asarray(x, dtype=np.float64) for x in self._constants()]
        constant = iter(self._data)
        moving = iter([] if self._function is None else self._function(*values))
        results = iter(
            np.asarray(next(moving), dtype=np.float64) if moves else next(constant)
            for moves in self._moving
        )
        parts: list[dict[Any, FloatArray]] = [
            {name: next(results) for name in names} for names in self._names
        ]
        prior, rows = SunParameters(**parts[0]), parts[1 : 1 + len(self._rows)]
        size, sites = prior.mu.size, parts[1 + len(self._rows) :]
        blocks = [self._block(own, at) for own, at in zip(self._rows, rows, strict=True)]
        mixtures = [
            None if kind is None else kind(*(at[i] for i in range(len(at)) if i in at))
            for (_, _, kind), at in zip(self._rows, rows, strict=True)
        ]
        if self._repeats is None:
            self._repeats = not any(mixtures) and _repeat(prior, blocks)
        if self._repeats:
            return self._with_factors(prior, blocks, sites)
        single = []
        for own_rows, times in blocks:
            if times is not None:
                own_rows = row.each_row(own_rows, times)
                own_rows = replace(own_rows, A=_design(own_rows.A))
            single.append(own_rows)
        ends = np.cumsum([0, *(rows.n_rows for rows in single)])
        placed = [
            Placed(mixture, slice(start, stop))
            for mixture, (start, stop) in zip(mixtures, pairwise(ends), strict=True)
            if mixture is not None
        ]
        joint = self._joined_sites(sites)
        return ConjugateModel(prior, _joined(single, size), tuple(placed), sites=joint)

    def _with_factors(
        self, prior: SunParameters, blocks: Sequence[_Block], parts: Sequence[_AtPoint]
    ) -> ConjugateModel:
        """Intervals with noise of their own as factors beside the sites, points as they are."""
        size = prior.mu.size
        observed, counts, moved = _every_row(blocks, size)
        rows = observed.rows(moved)
        design = csr_array(row.as_matrix(rows.A, rows.n_rows)).toarray()
        unit, first = equal_predictors(design, rows.a)
        sites = factors_of(rows, counts[moved], unit, first)
        sites = replace(sites, A=design[first])
        points = observed.rows(observed.is_point)
        return ConjugateModel(prior, points, sites=self._joined_sites(parts, sites))

    def _joined_sites(self, parts: Sequence[_AtPoint], rows: Sites | None = None) -> Sites | None:
        """All that are no rows, one observed variable after the other, and those made of rows."""
        designs, offsets = ([], []) if rows is None else ([rows.A], [rows.a])
        given = [] if rows is None else [SitesGiven(rows.size, rows.log_prob, rows.slopes)]
        for family, dtypes, at in zip(self._families, self._dtypes, parts, strict=True):
            designs.append(at["A"])
            offsets.append(at["a"])
            y, *parameters = [at[i].astype(dtype) for i, dtype in enumerate(dtypes)]
            given.append(family(y, parameters))
        if not given:
            return None
        joint = joined_sites(given)
        design = _design(np.vstack(designs))
        return Sites(design, np.concatenate(offsets), joint.log_prob, joint.slopes)

    def _block(self, own: tuple[str, Any, Any], at: _AtPoint) -> _Block:
        """One observed variable, and how many rows each interval stands for."""
        name, check, _ = own
        if self._last is None:  # data change between chains only
            check(name, at["values"])
        a, counts = at["a"], at.get("counts")
        A = _design(at["A"]) if counts is None else at["A"]
        value = at.get("value", np.full(a.size, np.nan))
        return row.Observations(A, a, at["noise"], at["lower"], at["upper"], value), counts


def _every_row(
    blocks: Sequence[_Block], size: int
) -> tuple[row.Observations, FloatArray, NDArray[np.bool_]]:
    """All rows, how many each interval stands for, and which are intervals of at least one."""
    observed = _joined([rows for rows, _ in blocks], size)
    each = [np.ones(rows.n_rows) if times is None else times for rows, times in blocks]
    counts = np.concatenate([np.zeros(0), *each])
    return observed, counts, ~observed.is_point & (counts > 0)


def _repeat(prior: SunParameters, blocks: Sequence[_Block]) -> bool:
    """Whether many intervals, with noise of their own, are of nearly one predictor.

    By the rule of a posterior, at the hyperparameters of this point.
    """
    observed, counts, moved = _every_row(blocks, prior.mu.size)
    if observed.S.ndim == 2 or not moved.any() or not (observed.S[moved] > 0).all():
        return False
    rows = observed.rows(moved)
    factor = rows.of(linalg.low_rank_factor(linalg.symmetric(prior.scale)))
    centre = rows.of(prior.mu) + rows.a
    variance = np.einsum("ij,ij->i", factor, factor)
    limits = OpenRows(rows.lower - centre, rows.upper - centre, variance)
    return are_alike(counts[moved], rows.S, squared_gaps(factor), limits=limits)


def _design(A: FloatArray) -> Any:
    """The form of a design whose products take the fewest operations."""
    n = np.count_nonzero(A)
    if A.shape == (n, n) and (A.diagonal() == 1.0).all():
        return None
    return csr_array(A) if A.size > _LEAST_SPARSE and n < _SPARSE_SHARE * A.size else A


def _joined(blocks: list[row.Observations], size: int) -> row.Observations:
    """Observations of the same f, one after the other."""
    if not blocks:
        nothing = np.zeros(0)
        return row.intervals(nothing, nothing, nothing)
    if len(blocks) == 1:
        return blocks[0]
    designs = [row.as_matrix(y.A, size) for y in blocks]
    dense = all(isinstance(A, np.ndarray) for A in designs)
    A = np.vstack(designs) if dense else vstack([csr_array(A) for A in designs], format="csr")
    return row.joined(blocks, A)


def with_values(
    names: Sequence[str], vector: FloatArray, point: Mapping[str, NDArray[Any]]
) -> dict[str, NDArray[Any]]:
    """`point` with the parts of a vector as the values of the variables `names`, in their order."""
    new, start = {}, 0
    for name in names:
        like = np.asarray(point[name])
        part = vector[start : start + like.size]
        new[name] = part.reshape(like.shape).astype(like.dtype, copy=False)
        start += like.size
    return {**point, **new}


Point = dict[str, NDArray[Any]]


class FreeVariables:
    """Continuous free variables of a model, moved as one vector on their unconstrained scale.

    Parameters
    ----------
    model : pymc.Model
    moved : sequence of TensorVariable
        Their value variables.
    terms : callable
        Of the log density; those that do not depend on the variables are left out.
    compile_kwargs : dict, optional
        Of ``pymc.pytensorf.compile``.
    """

    def __init__(
        self,
        model: pm.Model,
        moved: Sequence[Any],
        terms: Callable[[], list[Any]],
        compile_kwargs: Mapping[str, Any] | None,
    ) -> None:
        self.names = [value.name for value in moved]
        if not moved:
            return
        own = [term.sum() for term in terms() if not set(moved).isdisjoint(ancestors([term]))]
        total = sum(own[1:], start=own[0])
        used = set(graph_inputs([total]))
        inputs = [value for value in model.value_vars if value in used]
        self._inputs = [value.name for value in inputs]
        self._log_density = _function_of(inputs, total, compile_kwargs)

    def state(self, point: Point, last: SliceState | None) -> SliceState:
        """Their values at a point, with what was learnt until the last one."""
        values = np.concatenate([np.ravel(point[name]) for name in self.names]).astype(float)
        return slices.init(values) if last is None else last._replace(values=values)

    def point(self, values: FloatArray, around: Point) -> Point:
        """A point with these values."""
        return with_values(self.names, values, around)

    def log_density(self, point: Point) -> float:
        """Log of what the density has that depends on them."""
        return float(self._log_density(*(point[name] for name in self._inputs)))


_SWEEPS = 3  # of parameters of the likelihood: they cost little beside a draw of f


@dataclass(frozen=True)
class Kernel:
    """How a step moves its variables; see `ConjugateSampler`.

    Attributes
    ----------
    make_move, n_steps, n_sweeps
        As of `ConjugateSampler`.
    collapse : bool, default False
        Whether the step moves hyperparameters too, the variables integrated out.
    under_sites : bool, default False
        Whether observations may be sites, and intervals that repeat factors, which are the same;
        then `n_steps` is the number of pairs there.
    """

    make_move: Callable[[Augmentation], Move]
    n_steps: int
    n_sweeps: int = 1
    collapse: bool = False
    under_sites: bool = False


class BlockMove:
    """Moves the variables of one block, given everything else, and its hyperparameters.

    Parameters
    ----------
    model : pymc.Model
    block : BlockGraph
        Its `hyperparameters` are those to be moved.
    kernel : Kernel
    compile_kwargs : dict, optional
        Of ``pymc.pytensorf.compile``.

    Attributes
    ----------
    name : str
        Of the members, for messages.
    hyperparameters : FreeVariables
        Those moved with the variables of the block integrated out.
    moved : list of str
        Names of all hyperparameters, those of the likelihood among them.
    """

    def __init__(
        self,
        model: pm.Model,
        block: BlockGraph,
        kernel: Kernel,
        compile_kwargs: Mapping[str, Any] | None,
    ) -> None:
        self.name = ", ".join(block.names)
        self._values = [value.name for value in block.values]
        self._kernel = kernel
        by_factors = kernel.under_sites
        self._latent = LatentAtPoint(model, block, compile_kwargs, by_factors=by_factors)

        def without_f() -> list[Any]:
            """With f integrated out its own density leaves the constant that normalises it."""
            terms = model.logp(vars=block.rest, jacobian=True, sum=False)
            terms += [-pt_mvn_logcdf(*normaliser) for normaliser in block.normalisers]
            return terms if block.log_constant is None else [*terms, block.log_constant]

        def given_f() -> list[Any]:
            """Predictions are drawn afterwards: they are integrated out too."""
            known = [*model.basic_RVs, *model.potentials]
            known = [x for x in known if x not in block.predicted]
            return list(model.logp(vars=known, jacobian=True, sum=False))

        self.hyperparameters = FreeVariables(
            model, block.hyperparameters, without_f, compile_kwargs
        )
        self._parameters = FreeVariables(
            model, block.likelihood_parameters, given_f, compile_kwargs
        )
        self._learnt: SliceState | None = None
        self.moved = [model.values_to_rvs[value].name for value in block.moved]
        mixed = any(y.rows.mixture is not None for y in block.observed)
        self._fixed = self._latent.fixed and not mixed  # indicators make other rows at each step
        self._sampler: ConjugateSampler | SiteChain | None = None
        self._state: ConjugateState | None = None
        self._seen: list[NDArray[Any]] = []

    def prepare(self, point: Point) -> None:
        """Evaluate once: the first call compiles, here rather than in every process of a chain."""
        model = self._latent.model(point)
        if self.hyperparameters.names and model.sites is None and not model.mixtures:
            sampler = self._sampler_of(model)
            assert isinstance(sampler, ConjugateSampler)
            with suppress(NotPositiveDefiniteError, FloatingPointError):  # a chain says so
                sampler.prepare(model)

    def forget(self) -> None:
        """Begin a chain: nothing of the one before is left, and data are read anew."""
        self._latent.forget()
        if self._sampler is not None:
            self._sampler.forget()
        self._state, self._learnt = None, None

    def step(
        self, point: Point, rng: np.random.Generator, *, tune: bool, most: int | None
    ) -> tuple[Point, ConjugateInfo]:
        """Draw the variables, and move the hyperparameters.

        Parameters
        ----------
        point : dict
            Values of the model's value variables.
        rng : numpy.random.Generator
        tune : bool
            Whether to learn moments of what is moved.
        most : int, optional
            Steps to come, this one included.

        Returns
        -------
        point : dict
        info : ConjugateInfo
        """
        point = self._with_parameters(point, rng, tune)
        f = np.concatenate([np.ravel(point[name]) for name in self._values])
        hyperparameters = None
        state, inputs = self._state, self._latent.inputs(point)
        if state is None:
            state = conjugate.init(f)
        elif not np.array_equal(f, state.f):
            state = conjugate.init(f, state.theta)
        if state.model is not None and all(map(np.array_equal, inputs, self._seen)):
            model = state.model
        else:
            model = self._latent.model(point)
        if self.hyperparameters.names:
            theta, around = self.hyperparameters.state(point, state.theta), point

            def density(values: FloatArray) -> tuple[ConjugateModel, float]:
                """Of the hyperparameters, other variables staying as they are at the point."""
                there = self.hyperparameters.point(values, around)
                log_rest = self.hyperparameters.log_density(there)
                return (model if values is theta.values else self._latent.model(there)), log_rest

            hyperparameters = HyperparameterMove(density, tune)
            state = state._replace(theta=theta)
        state, info = self._sampler_of(model).step(
            state, model, rng, most=most, hyperparameters=hyperparameters
        )
        self._state = state
        if state.theta is not None:
            point = self.hyperparameters.point(state.theta.values, point)
            inputs = self._latent.inputs(point)
        # Copies: the caller may write the next point where this one is.
        self._seen = [np.array(x) for x in inputs]
        return with_values(self._values, state.f, point), info

    def _sampler_of(self, model: ConjugateModel) -> ConjugateSampler | SiteChain:
        """That of the last step, where the data have not changed to another kind."""
        kind = ConjugateSampler if model.sites is None else SiteChain
        if not isinstance(self._sampler, kind):
            known = self._kernel
            self._sampler = (
                ConjugateSampler(known.make_move, known.n_steps, known.n_sweeps, fixed=self._fixed)
                if model.sites is None
                else SiteChain(known.n_steps)
            )
        return self._sampler

    def _with_parameters(self, point: Point, rng: np.random.Generator, tune: bool) -> Point:
        """`point` with new parameters of mixtures, moved given f, indicators integrated out.

        Given the indicators some of them hardly move: degrees of freedom and rates of lapses are
        then known from as many indicators as there are data. With Student-t noise at n = 60
        effective draws of 800 were 138 for the scale and 27 for the degrees of freedom given
        indicators, 443 and 618 given f, 711 and 707 by both. Indicators are drawn right after
        these, so the order of the moves is a valid one (van Dyk & Park 2008,
        doi:10.1198/016214508000000409).
        """
        moved = self._parameters
        if not moved.names:
            return point
        state = moved.state(point, self._learnt)

        def locate(values: FloatArray) -> slices.Place:
            found = moved.log_density(moved.point(values, point))
            return slices.Place(values, -np.inf if np.isnan(found) else found)

        here = locate(state.values)
        if np.isfinite(here.log_density):  # else nothing to compare with: stay
            for _ in range(_SWEEPS):
                here, state = SliceMove(locate, tune).sweep(here, state, rng)
        self._learnt = state
        return moved.point(state.values, point)
