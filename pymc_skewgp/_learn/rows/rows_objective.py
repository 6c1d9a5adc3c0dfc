r"""Log evidence of many rows plus log prior as a function of a point, f having finite rank.

EP's evidence is stationary in its sites. So its gradient is that in the features of f, in what they
leave of its variances and in the numbers that sites are made of, block by block, each carried on to
the model's variables.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import cloudpickle
import numpy as np
import pymc as pm

from pymc_skewgp._errors import (
    ApproximationError,
    ClusterLostError,
    DoublePrecisionError,
    no_warnings,
)
from pymc_skewgp._gaussian.blocks.ep import (
    BlockEP,
    added,
    fit_blocks,
)
from pymc_skewgp._gaussian.weights import Estimate
from pymc_skewgp._learn import optimizers
from pymc_skewgp._learn.coordinates import Bounds, Coordinates, Point, Value
from pymc_skewgp._learn.objective import CompiledLogPrior, CompiledValues, Objective
from pymc_skewgp._learn.rows.program import (
    Chunk,
    CompiledNumbers,
    DataOfKind,
    Latent,
    LatentGraph,
    Rows,
    RowsOfField,
    blocks_of,
    functions_of,
    is_grouped,
    n_data,
    plus,
    rows_of,
    signs_of,
    some_blocks,
)
from pymc_skewgp._learn.search import Part, SearchResult, ascents, promising
from pymc_skewgp._limits import announce_rows
from pymc_skewgp._model.gp.exact_posterior import posterior_of
from pymc_skewgp._model.gp.functions import ArrayCovariance, ArrayMean, active_columns
from pymc_skewgp._model.graph.data import KnownData, KnownSites, known_of
from pymc_skewgp._observations.likelihood import Likelihood, as_inputs
from pymc_skewgp._posterior import dask_blocks
from pymc_skewgp._posterior.automatic import (
    FEW_ROWS,
    LIMIT,
    MANY_ROWS,
    MOST_ROWS,
    automatic,
    loss_of_fit,
    warn_of_loss,
)
from pymc_skewgp._posterior.blocks_at import Arrays
from pymc_skewgp._posterior.dask_blocks import current_client
from pymc_skewgp._posterior.data_blocks import MOST_LIMITS
from pymc_skewgp._posterior.distributed_posterior import ChunkedData, is_dask
from pymc_skewgp._posterior.evidence_gradient import EvidenceTerms
from pymc_skewgp._posterior.features import HSGP, Inducing, PivotedCholesky
from pymc_skewgp._posterior.finite_rank_fit import FiniteRankFit
from pymc_skewgp._posterior.prior import Approximation, Prior
from pymc_skewgp._posterior.row_groups import refuse_shared_noise
from pymc_skewgp._posterior.site_evidence import FactorTerms
from pymc_skewgp._posterior.vecchia import FEW_NEIGHBOURS, Vecchia, VecchiaPlaces
from pymc_skewgp._validation import FloatArray

if TYPE_CHECKING:
    from distributed import Client

_T = TypeVar("_T")

# EP's residual over all rows; the evidence is off by its square.
_TOLERANCE = 1e-2
_DIFFERENCE_TOLERANCE = 1e-4  # behind differences of gradients
_FEWEST_DRAWS, _NUMBERS = 64, 2 * 10**7  # behind an evidence, and coordinates of all of them
_MOST_SWEEPS, _LARGEST_RESIDUAL = 120, 1.0


@dataclass(frozen=True, eq=False)
class RowsObjective:
    """What `Objective` is for few rows, by expectation propagation alone.

    Attributes
    ----------
    coordinates : Coordinates
    latent : Latent
        The same basis at every point of the search.
    signs : Chunk or None
    log_prior : CompiledLogPrior
    named : CompiledValues
    rows : Rows
        The data.
    tolerance : float
        Of EP.
    """

    coordinates: Coordinates
    latent: Latent
    signs: Chunk | None
    log_prior: CompiledLogPrior
    named: CompiledValues
    rows: Rows
    tolerance: float = _TOLERANCE

    @property
    def density_one(self) -> tuple[str, ...]:
        """See `Objective`."""
        return ()

    def why_no_value(self, point: Point) -> str | None:
        """See `Objective`."""
        return None

    def on(self, blocks: Sequence[Chunk], basis: Any) -> "RowsObjective":
        """The same for other data and another basis, nothing compiled anew."""
        latent = replace(self.latent, basis=basis)
        kind = RowsOfField if isinstance(basis, VecchiaPlaces) else Rows
        return self.of(kind(latent, blocks, self.signs), latent)

    def of(self, rows: Rows, latent: Latent) -> "RowsObjective":
        """The same of rows that are of this latent process, wherever they are."""
        return replace(self, rows=rows, latent=latent)

    def with_few_neighbours(self) -> "RowsObjective | None":
        """The same of a coarser field; None where it is none, or has as few."""
        basis = self.latent.basis
        if not isinstance(basis, VecchiaPlaces) or basis.m <= FEW_NEIGHBOURS:
            return None
        return self.on(self.rows.blocks, replace(basis, m=FEW_NEIGHBOURS))

    def for_differences(self) -> "RowsObjective":
        """The same by a finer EP, for differences of its gradients."""
        return replace(self, tolerance=_DIFFERENCE_TOLERANCE)

    def terms_at(self, point: Point) -> Iterator[EvidenceTerms | FactorTerms]:
        """There are no matrices of all rows."""
        return iter(())

    def by_ep(self, point: Point) -> Value:
        """Value and gradient with the evidence of expectation propagation."""

        def with_gradient(rows: Rows, ep: BlockEP) -> tuple[float, Arrays]:
            return ep.log_prob + rows.log_constant, rows.gradient(ep.gaussian)

        nowhere = Value(-np.inf, -np.inf, np.zeros_like(point.x))
        log_prior, slopes = self.log_prior.with_slopes(point)
        known = self._of_fit(point, with_gradient) if np.isfinite(log_prior) else None
        if known is None:
            return nowhere
        log_evidence, gradient = known
        flat = np.concatenate([np.ravel(x) for x in plus(slopes, gradient)] or [np.zeros(0)])
        if not np.isfinite(flat).all():
            return nowhere
        return Value(log_evidence + log_prior, log_evidence, flat)

    def totals_by_ep(self, points: Sequence[Point]) -> tuple[FloatArray, FloatArray]:
        """See `Objective`."""

        def log_evidence(rows: Rows, ep: BlockEP) -> float:
            return ep.log_prob + rows.log_constant

        log_prior = self.log_prior.at(points)
        known = [
            self._of_fit(point, log_evidence) if np.isfinite(prior) else None
            for point, prior in zip(points, log_prior, strict=True)
        ]
        found = np.array([-np.inf if x is None else x for x in known])
        return found + log_prior, found

    def estimate(self, point: Point, n_draws: int, seed: int) -> Estimate:
        """Log evidence with its error, by mirrored pairs from EP's Gaussian.

        Raises
        ------
        DoublePrecisionError
            Where EP has none.
        """

        def by_pairs(rows: Rows, ep: BlockEP) -> Estimate:
            count = min(n_draws, max(_FEWEST_DRAWS, _NUMBERS // ep.gaussian.mean.size))
            draws = rows.sampler(ep.gaussian).members(count, np.random.default_rng(seed))
            assert draws.log_prob is not None
            return rows.of_data(draws.log_prob, count)

        found = self._of_fit(point, by_pairs)
        if found is None:
            raise DoublePrecisionError(
                "the marginal likelihood has no value at this point in double precision: check the "
                "priors and the scale of the inputs."
            )
        return found

    def _of_fit(self, point: Point, function: Callable[[Rows, BlockEP], _T]) -> _T | None:
        """Of the rows and of EP at a point; None where double precision ends."""

        def fitted(rows: Rows) -> _T | None:
            with no_warnings():
                ep = fit_blocks(rows, tol=self.tolerance, max_sweeps=_MOST_SWEEPS, times=rows.times)
            # Where EP goes round in circles the labels are as good as separated, far from any
            # optimum.
            if not (np.isfinite(ep.log_prob) and ep.residual < _LARGEST_RESIDUAL):
                return None
            rows.keep()
            return function(rows, ep)

        return self.rows.evaluate(point, fitted)


# From a SkewGP and its data to their objective with f of finite rank.

_LEARNT_WITH = Inducing, PivotedCholesky, HSGP, Vecchia


def why_not_by_rows(gp: Any, known: Sequence[Any], coregion: Any = None) -> str | None:
    """What keeps hyperparameters from being learnt with f of finite rank; None where nothing."""
    asked = gp.approximation
    if gp.n_pseudo_points and coregion is not None:
        return "it has pseudo-points, and coregion is given"
    if gp.n_pseudo_points and isinstance(asked, HSGP):
        return "HSGP has no pseudo-points: take Inducing"
    if asked not in (None, "auto") and not isinstance(asked, _LEARNT_WITH):
        names = ", ".join(kind.__name__ for kind in _LEARNT_WITH)
        return f"its approximation is {asked!r}, and only {names} are learnt with"
    if not any(data.likelihood.has_data for data in known):
        return "constraints alone have no rows that blocks are made of"
    if isinstance(asked, HSGP) and any(x.likelihood.derivative is not None for x in known):
        return "HSGP has no derivatives for constraints: take Inducing"
    if isinstance(asked, Vecchia) and (gp.n_pseudo_points or not all(map(_is_plain, known))):
        return (
            "Vecchia takes no pseudo-points and no constraints, and likelihoods about one function "
            "whose rows have noise of their own: take Inducing"
        )
    for data in known:
        if isinstance(data, KnownSites):
            continue
        likelihood = data.likelihood
        if not likelihood.has_data and data.X.shape[0] > MOST_LIMITS:
            return f"{likelihood!r} has more than {MOST_LIMITS} virtual points"
        by_row = [name for name, x in data.random.items() if x.ndim and name != "cutpoints"]
        if by_row:
            return f"{', '.join(by_row)} of the likelihood is learnt for each row"
        if is_grouped(data):
            try:
                refuse_shared_noise(data.whole.observations)
            except ApproximationError as error:
                return f"{type(likelihood).__name__} {error}"
    return None


def _is_plain(data: Any) -> bool:
    """Whether rows are about values of one function, as many in each."""
    if data.n_functions > 1 or not data.likelihood.has_data:
        return False
    if isinstance(data, KnownSites):
        return True
    design = data.whole.design
    return not is_grouped(data) and (design is None or np.ptp(np.diff(design.indptr)) == 0)


def why_not_on_workers(gp: Any, known: Sequence[Any]) -> str | None:
    """What, of all that is learnt by rows, is not on workers of a cluster; None where nothing."""
    if gp.n_pseudo_points:
        return "it has pseudo-points"
    if isinstance(gp.approximation, Vecchia):
        return "Vecchia needs all rows in one process"
    constraints = (data.likelihood for data in known if not data.likelihood.has_data)
    return next((f"{likelihood!r} is a constraint" for likelihood in constraints), None)


def approximation_of(gp: Any, known: Sequence[Any], coregion: Any = None) -> Approximation | None:
    """How hyperparameters are learnt from the data; None for the kernel as it is.

    Raises
    ------
    ApproximationError
        Where an approximation was asked for that they cannot be learnt with; or where the rows are
        to be on workers, and some of what is known of f has no place there.
    TooManyRowsError
        Where there are too many rows for the kernel as it is.
    """
    n = sum(max(data.X.shape[0], len(data.y)) for data in known)
    # Of the largest matrix that learning with the kernel as it is has.
    of_groups = [x for x in known if isinstance(x, KnownData) and is_grouped(x)]
    n_dense = sum(data.whole.columns[0].size for data in of_groups)
    n_dense = max(n_dense, sum(data.X.shape[0] for data in known))
    asked = gp.approximation
    if asked is None or (asked == "auto" and n <= MANY_ROWS):
        announce_rows(n_dense)
        return None
    reason = why_not_by_rows(gp, known, coregion)
    if reason is None:
        why = None if current_client() is None else why_not_on_workers(gp, known)
        if why is not None:
            raise ApproximationError(
                "hyperparameters of this SkewGP are not learnt from rows on the workers of a "
                f"cluster: {why}. Leave out rows_on."
            )
        return automatic(n, max(data.n_functions for data in known)) if asked == "auto" else asked
    if asked != "auto":
        raise ApproximationError(
            f"hyperparameters of this SkewGP are not learnt with approximation="
            f"{asked!r}: {reason}. Use approximation=None, or learn with batch_size."
        )
    announce_rows(n_dense, reason)
    return None


def latent_graph(
    model: pm.Model,
    gp: Any,
    approximation: Approximation,
    coordinates: Coordinates,
    coregion: Any,
    known: Sequence[Any],
) -> LatentGraph:
    """Functions of finite rank that data are known of."""
    m = None
    if isinstance(approximation, HSGP):
        m = approximation.sizes(active_columns(gp.cov_func))
    k = max(data.n_functions for data in known)
    as_field = isinstance(approximation, Vecchia)
    return LatentGraph(coordinates, model, gp, known[0].X.shape[1], coregion, k, m, as_field)


def rows_objective(graph: LatentGraph, objective: Objective) -> RowsObjective:
    """That of a SkewGP of finite rank, given that of matrices of all rows, which is not evaluated.

    Its basis, and blocks of the data, are still to come.
    """
    signs = signs_of(graph, graph.X.type.shape[1])
    latent = Latent(graph.common, len(graph.known))
    nothing = Rows(latent, [])
    return RowsObjective(
        objective.coordinates, latent, signs, objective.log_prior, objective.named, nothing
    )


# What the prior that "auto" learns hyperparameters with loses, where they were found: in a few
# neighbourhoods first, which may see a thirtieth of it, and on all rows where that is not next to
# none.
_NONE = 1e-3


def warn_of_learnt(data: Any, run: Any, stacklevel: int) -> None:
    """The same at the optimum of a `LearningRun`."""
    if isinstance(run.objective, RowsObjective) and data.model.approximation == "auto":
        basis = run.objective.latent.basis  # which are points
        warn_of_loss_at(data, Inducing(basis), run.values, stacklevel + 1)


def warn_of_loss_at(
    data: Any, approximation: Approximation, values: dict[str, Any], stacklevel: int
) -> None:
    """Warn where it would have stopped a posterior; `data` are `TrainingData` of a SkewGP.

    Nothing is known of rows on the workers of a cluster.
    """
    gp = data.model
    if gp.approximation != "auto" or is_dask(data.X) or current_client() is not None:
        return
    posterior = posterior_of(
        gp.approximated_by(approximation),
        data.X,
        data.y,
        data.likelihood,
        values,
        coregion=data.coregion,
        weights=data.weights,
    )
    fit = posterior._fit
    if isinstance(fit, FiniteRankFit):  # a warning is not to take longer than the search
        prior = replace(posterior.prior, approximation=None)
        for most in (FEW_ROWS, MOST_ROWS):
            loss = loss_of_fit(fit, prior, most_rows=most, of_more=FEW_ROWS)
            if loss is None or loss.largest < _NONE * LIMIT:
                break
        warn_of_loss(approximation, loss, stacklevel + 1)


# The search for hyperparameters with many rows: some hundred of them, some thousand, all.

# Many rows at a point of their hyperparameters, kept by the workers of a dask cluster.
#
# A point, EP's Gaussian of the coordinates and sums of r x r numbers travel. Each worker carries
# its own rows' part of the gradient back to the hyperparameters, and to what all rows have in
# common.


class InOnePiece:
    """A `Build` that travels as one string of bytes.

    By itself dask lets arrays travel beside what has them. They arrive as parts of a buffer, at
    places in it that compiled functions of PyTensor do not take.
    """

    def __init__(self, build: dask_blocks.Build[Rows]) -> None:
        self._build = build

    def __getstate__(self) -> bytes:
        found: bytes = cloudpickle.dumps(self._build)
        return found

    def __setstate__(self, state: bytes) -> None:
        self._build = cloudpickle.loads(state)

    def __call__(self, chunks: Sequence[Any]) -> Rows:
        """See `Build`."""
        return self._build(chunks)


class _RowsLostError(Exception):
    """Rows were lost with a worker, and are at no point on their new one."""


class RowsOnWorkers(Rows):
    """Data that workers keep, groups of which are a `Rows` there each.

    When a worker is lost all rows are built again. EP begins at the same point anew, from nothing:
    it ends at the same fixed point, within its tolerance.

    Parameters
    ----------
    client : distributed.Client
    groups : sequence of Group
    latent : Latent
    """

    here = False

    def __init__(
        self, client: "Client", groups: Iterable[dask_blocks.Group], latent: Latent
    ) -> None:
        super().__init__(latent, [])
        own = [(chunks, InOnePiece(build)) for chunks, build in groups]
        self._placed = False
        self._groups = dask_blocks.DaskGroups(client, own, self._restore)

    def _restore(self) -> None:
        if self._placed:  # sites of EP are lost
            raise _RowsLostError

    def evaluate(self, point: Point, function: Callable[[Rows], _T | None]) -> _T | None:
        """See `Rows`."""
        for _ in range(dask_blocks.MOST_LOSSES):
            try:
                return function(self) if self._place(point) else None
            except _RowsLostError:
                continue
        raise ClusterLostError(
            f"workers of the dask cluster were lost {dask_blocks.MOST_LOSSES} times at one value "
            "of the hyperparameters: see their logs. They may need more memory, or smaller chunks."
        )

    def _place(self, point: Point) -> bool:
        self._placed, self._at = False, self.latent.at(point)
        found = [] if self._at is None else self._groups.ask("place", point)
        self._placed = True
        if not found or any(own is None for own in found):
            return False
        n_rows, rank, log_constant = zip(*found, strict=True)
        self.n_rows, self.rank, self.log_constant = sum(n_rows), rank[0], sum(log_constant)
        return True

    def total(self, method: str, *arguments: Any) -> Any:
        """See `Blocks`."""
        return added(self._groups.ask("total", method, *arguments))

    def keep(self) -> None:
        """See `Rows`."""
        self._groups.ask("keep")

    def part_of_gradient(self, mean: FloatArray, spread: FloatArray) -> Arrays:
        """See `Rows`."""
        return reduce(plus, self._groups.ask("part_of_gradient", mean, spread))


def _kept(latent: Latent, blocks: Sequence[Chunk], _: Sequence[Any]) -> Rows:
    """Blocks that are sent to a worker: they are not lost with it."""
    return Rows(latent, blocks, n_threads=dask_blocks.n_threads_of_worker())


def sent_rows(client: "Client", latent: Latent, blocks: Sequence[Chunk]) -> RowsOnWorkers:
    """Blocks of this process on the workers, in contiguous parts of about as many rows."""
    n_parts = min(max(1, len(client.nthreads())), len(blocks))
    ends = np.cumsum([block.X.shape[0] for block in blocks])
    own = (ends - 1) * n_parts // ends[-1]
    parts = [[b for b, i in zip(blocks, own, strict=True) if i == k] for k in range(n_parts)]
    groups: list[dask_blocks.Group] = [((), partial(_kept, latent, part)) for part in parts if part]
    return RowsOnWorkers(client, groups, latent)


# Hyperparameters from data that are dask arrays: some rows come here, all are on the workers.

INSTEAD = "learn from NumPy arrays: a part of the rows, or all of them in rows_on(client)"


def approximation_of_chunks(data: ChunkedData, gp: Any, known: Any) -> Approximation:
    """How f is approximated, given the data that are here, checked.

    Raises
    ------
    ApproximationError
        Where hyperparameters are not learnt so.
    """
    asked = gp.approximation
    if asked is None:
        refuse_chunks(
            "the kernel as it is needs all rows at once",
            "give SkewGP an approximation, such as Inducing(300)",
        )
    reason = why_not_on_workers(gp, [known])
    if reason is not None:
        refuse_chunks(reason, "learn from NumPy arrays, without rows_on")
    reason = why_not_by_rows(gp, [known])
    if reason is None and isinstance(known, KnownData) and is_grouped(known):
        reason = f"{known.likelihood!r} is about several functions, or has noise that rows share"
    if reason is None and isinstance(known, KnownSites) and not known.divisible:
        reason = f"{known.likelihood!r} cannot be cut into rows"
    limits = [name for name in ("lower", "upper") if name in known.random]
    if reason is None and limits:
        reason = f"{', '.join(limits)} of the likelihood is learnt"
    if reason is not None:
        refuse_chunks(reason)
    found: Approximation = automatic(data.n_rows) if asked == "auto" else asked
    return found


def _of_chunks(
    likelihood: Likelihood, compiled: CompiledNumbers, latent: Latent, chunks: Sequence[Any]
) -> Rows:
    """From chunks (first row, X, y) to rows at points, on the worker that has them."""
    blocks = []
    for start, X, y in chunks:
        own = likelihood.of_observations(start + np.arange(len(y)), y)
        known = known_of(as_inputs("X", X), y, own)
        made: Any = functions_of if isinstance(known, KnownSites) else rows_of
        kind = made(known, compiled)
        blocks += kind.blocks(np.arange(kind.n_observations))
    return _kept(latent, blocks, chunks)


def refuse_chunks(reason: str, instead: str = INSTEAD) -> NoReturn:
    """Raise ApproximationError for what is not learnt from dask arrays."""
    raise ApproximationError(
        f"hyperparameters are not learnt from these dask arrays: {reason}. Instead, {instead}."
    )


@dataclass(frozen=True, eq=False)
class ManyRows:
    """A SkewGP of finite rank with its data.

    Attributes
    ----------
    gp : SkewGP
    approximation : Approximation
    kinds : sequence of DataOfKind
    X : ndarray, shape (n, d)
        Inputs of all data.
    objective : RowsObjective
        Without data.
    chunked : ChunkedData or None
        All data, where they are on the workers of a cluster: `kinds` and `X` are some of them then.
    """

    gp: Any
    approximation: Approximation
    kinds: Sequence[DataOfKind]
    X: FloatArray
    objective: RowsObjective
    chunked: ChunkedData | None = None

    def part(
        self, point: Point, settings: optimizers.SearchSettings, rng: np.random.Generator
    ) -> Part:
        """Some of the data, to try starts on; all where they cannot be taken apart.

        The basis is that of the kernel at `point`.
        """
        size = settings.rows_coarse_size
        objective, in_parts = self.on_some(size, point, rng)
        return Part(objective, size / n_data(self.kinds) if in_parts else 1.0)

    def search(
        self,
        part: Part,
        starts: list[Point],
        bounds: Bounds,
        settings: optimizers.SearchSettings,
        log: optimizers.EvaluationLog,
    ) -> tuple[RowsObjective, SearchResult]:
        """Maximise over the box: the objective of all rows, and its optimum.

        Every start is tried on `part`; the best of them go on with some thousand rows, and the best
        of these with all. The basis is placed by the kernel at the point where a stage begins, and
        stays there. Neighbours of `Vecchia` are few at first, and for second derivatives.
        """
        objective, (best, *_), in_parts = self.of_some(part, starts, bounds, settings, log)
        size = best.point.x.size
        wanted = 0 < size <= settings.rows_max_hessian and all(low < high for low, high in bounds)
        wanted = wanted and settings.hessian

        def hessian(of: RowsObjective) -> FloatArray | None:
            exact = of.for_differences().by_ep
            return optimizers.negative_hessian(exact, best.point, bounds) if wanted else None

        if not in_parts:
            return objective, SearchResult(best, hessian(objective))
        objective = self.on_all(best.point)
        optimizer = replace(_with_first_step(settings), tolerance=settings.rows_tolerance)
        few = objective.with_few_neighbours()
        first = few or objective
        best = optimizers.maximize(log.run("ep", first.by_ep), best.point, bounds, optimizer)
        known = hessian(first)
        if few:
            objective.rows.begin_at(few.rows)
            function = log.run("ep", objective.by_ep)
            if known is None:
                best = optimizers.maximize(function, best.point, bounds, optimizer)
            else:
                given = best.point, bounds, known, settings.optimizer.newton_gain
                best = optimizers.newton(function, *given)
        return objective, SearchResult(best, known)

    def of_some(
        self,
        part: Part,
        starts: list[Point],
        bounds: Bounds,
        settings: optimizers.SearchSettings,
        log: optimizers.EvaluationLog,
    ) -> tuple[RowsObjective, list[optimizers.Optimum], bool]:
        """The stages of the search before that of all rows.

        The objective of some thousand rows, or of all, where there are no more or they have no
        parts; different optima of it, the best first; and whether they are not all.
        """
        settings = replace(settings, optimizer=_with_first_step(settings))
        rng = np.random.default_rng(settings.seed)
        objective, in_parts = self.on_some(settings.rows_size, starts[0], rng)
        name = "ep, some of the rows" if in_parts else "ep"
        if part.share < 1.0:
            begin = partial(log.run, name, objective.by_ep)
            starts = promising(begin, part.objective, starts, bounds, settings, log)
        optima = ascents(objective.by_ep, starts, bounds, name, settings, log)
        return objective, optima, in_parts

    def on_some(
        self, size: int, point: Point, rng: np.random.Generator
    ) -> tuple[RowsObjective, bool]:
        """The objective of so many observations, in this process, and whether they are not all.

        Its basis is placed by the kernel at a point.
        """
        blocks = some_blocks(self.kinds, size, rng)
        own = blocks_of(self.kinds) if blocks is None else blocks
        X = None
        if isinstance(self.approximation, Vecchia):
            X = np.concatenate([block.X for block in own])
        return self.objective.on(own, self.basis(point, X)), blocks is not None

    def on_all(self, point: Point) -> RowsObjective:
        """The objective of all rows, its basis placed by the kernel at a point."""
        basis, client = self.basis(point), dask_blocks.current_client()
        latent = replace(self.objective.latent, basis=basis)
        if self.chunked is not None:
            kind, data = self.kinds[0], self.chunked
            build = partial(_of_chunks, data.likelihood, kind.compiled, latent)
            groups = [(chunks, build) for chunks in data.groups()]
            return self.objective.of(RowsOnWorkers(data.client, groups, latent), latent)
        blocks = blocks_of(self.kinds)
        if client is not None:
            return self.objective.of(sent_rows(client, latent, blocks), latent)
        return self.objective.on(blocks, basis)

    def basis(self, point: Point, X: FloatArray | None = None) -> Any:
        """Inducing points, a spectral basis' box, or places, for the kernel at a point."""
        X = self.X if X is None else X
        values: Mapping[str, Any] = self.objective.named(point)
        none = np.zeros(0)
        cov_func = ArrayCovariance(self.gp.cov_func, values)
        mean_func = ArrayMean(self.gp.mean_func, values)
        prior = Prior(cov_func, mean_func, np.zeros((0, X.shape[1])), none, none)
        if isinstance(self.approximation, Inducing | PivotedCholesky | Vecchia):
            return self.approximation.places(prior, X)
        return self.approximation.features(prior, X)


def _with_first_step(settings: optimizers.SearchSettings) -> optimizers.OptimizerSettings:
    return replace(settings.optimizer, first_step=settings.rows_first_step)
