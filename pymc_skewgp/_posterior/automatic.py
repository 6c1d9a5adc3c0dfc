"""When a prior is approximated by itself, what that loses, and what it changes in forecasts."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import xarray as xr
from scipy.linalg import eigh, solve_triangular

from pymc_skewgp._errors import ApproximationError, PriorApproximationWarning, warn
from pymc_skewgp._gaussian import linalg
from pymc_skewgp._gaussian.blocks.rows import RowBlock
from pymc_skewgp._gaussian.blocks.several import SeveralBlock
from pymc_skewgp._gaussian.weights import Estimate, IntArray
from pymc_skewgp._limits import announce_kernel, cost_of_kernel, is_easily_kept
from pymc_skewgp._observations.observations import add_noise, as_matrix, one_of_each
from pymc_skewgp._observations.sites import SiteLikelihood
from pymc_skewgp._posterior import features as bases
from pymc_skewgp._posterior import finite_rank_fit as fits
from pymc_skewgp._posterior import prior as priors
from pymc_skewgp._posterior.data_blocks import DataBlock, n_repeated, refuse_other_data
from pymc_skewgp._posterior.finite_rank_fit import FiniteRankFit, are_values, finite_rank_fit
from pymc_skewgp._posterior.prior import Approximation, DataSet, Features, Prior, n_functions
from pymc_skewgp._validation import FloatArray, as_count

# What a prior of finite rank loses: log evidence of Gaussian values, exact less approximate.
#
# With :math:`P = \Phi \Phi^\top + \Lambda` for values under features and :math:`P + E` under the
# kernel itself, :math:`M = P^{-1/2} E P^{-1/2}` and :math:`a = P^{-1/2} y`,
#
# .. math:: L = \tfrac12 a^\top M (I + M)^{-1} a - \tfrac12 \mathrm{tr} \log(I + M).
#
# Where it matters whether L is small, M is small, and a few products with the kernel are enough:
# Lanczos' quadrature, of the trace with random signs (Gardner et al. 2018, arXiv:1809.11165; Wenger
# et al. 2022, arXiv:2107.00243). No n x n matrix is kept.

_PROBES, _RUNS = 32, 8  # random signs behind the trace, and sets of these, at most
_STEPS = 12  # products with the kernel, at most
# Nats that a product changes, from which on there are no more: or this share of a large loss.
_CHANGE, _SHARE, _LARGE = 0.005, 0.05, 5.0
_ROWS_AT_ONCE = 512
_SEED = 0
_ROUND_OFF = 1e-12


class NoisyValues(NamedTuple):
    """Values of f with Gaussian noise, or what stands for them: EP's sites.

    Attributes
    ----------
    X : ndarray, shape (n, d)
    value : ndarray, shape (n,)
        Less their mean.
    variance : ndarray, shape (n,)
        Of the noise with what features leave of f, as the approximated prior has it, of one.
    counts : ndarray, shape (n,)
        How many equal ones there are of each, over which `value` is the mean.
    """

    X: FloatArray
    value: FloatArray
    variance: FloatArray
    counts: FloatArray

    def rows(self, index: IntArray) -> "NoisyValues":
        """Some of them."""
        return NoisyValues(*(x[index] for x in self))


class ApproximationLoss(NamedTuple):
    """Nats that an approximated prior loses.

    Attributes
    ----------
    value : float
        Log evidence under the kernel itself, less that under the approximated prior.
    std_error : float
        Of that estimate; of more than five nats half of it, as only their size matters.
    divergence : float
        Kullback-Leibler divergence of the values, exact from approximate: what `value` is on
        average over values drawn from the prior.
    """

    value: float
    std_error: float
    divergence: float

    def __str__(self) -> str:
        if abs(self.value) > _LARGE:
            return f"some {self.value:.2g} nats"
        return f"{self.value:.3g} +- {self.std_error:.2g} nats"

    @property
    def largest(self) -> float:
        """What it may be, in size, within two standard errors."""
        return abs(self.value) + 2.0 * self.std_error


def loss_of_values(
    prior: Prior, features: Features, values: NoisyValues, limit: float
) -> ApproximationLoss:
    """By Lanczos' quadrature: n^2 evaluations of the kernel for each of its few steps.

    There are more random signs where it is not clear yet whether the loss is below the limit.
    """
    whitened, rng = _Whitened(prior, features, values), np.random.default_rng(_SEED)
    runs: list[ApproximationLoss] = []
    while True:
        runs.append(_by_signs(whitened, values, rng))
        value, std_error, divergence = np.mean(runs, axis=0).tolist()
        found = ApproximationLoss(value, std_error / len(runs) ** 0.5, divergence)
        clear = abs(abs(found.value) - limit) > 2.0 * found.std_error
        if clear or len(runs) == _RUNS:
            break
    if abs(found.value) <= _LARGE:
        return found
    # Where much is lost the rule converges slowly: changes do not tell what is missing.
    return found._replace(std_error=float(np.hypot(found.std_error, 0.5 * found.value)))


def _by_signs(
    whitened: "_Whitened", values: NoisyValues, rng: np.random.Generator
) -> ApproximationLoss:
    n = values.value.size
    signs = rng.choice([-1.0, 1.0], size=(n, _PROBES))
    own = whitened.half(values.value[:, None])
    start = np.hstack([own, signs])
    size = np.maximum(np.einsum("ij,ij->j", start, start), np.finfo(float).tiny)
    vectors, before = start / np.sqrt(size), np.zeros(start.shape)
    diagonal, off = np.zeros((0, size.size)), np.zeros((0, size.size))
    last = np.inf
    while True:
        # One step of the recurrence for each column by itself.
        after = whitened.product(vectors)
        diagonal = np.vstack([diagonal, np.einsum("ij,ij->j", after, vectors)])
        after -= vectors * diagonal[-1]
        if len(off):
            after -= before * off[-1]
        norm = np.sqrt(np.einsum("ij,ij->j", after, after))
        found = _quadrature(diagonal, off, size)
        ahead = 0.5 * max(float(size[0] * norm[0] ** 2), float(np.mean((size * norm**2)[1:])))
        change = ahead if len(diagonal) == 1 else abs(found.value - last)
        enough = max(_CHANGE, _SHARE * abs(found.value) if abs(found.value) > _LARGE else 0.0)
        if change < enough or len(diagonal) == _STEPS:
            return found._replace(std_error=float(np.hypot(found.std_error, min(change, enough))))
        last, before = found.value, vectors
        vectors = after / np.maximum(norm, np.finfo(float).tiny)
        off = np.vstack([off, norm])


def _quadrature(diagonal: FloatArray, off: FloatArray, size: FloatArray) -> ApproximationLoss:
    """Gauss' rule of each column: eigenvalues of its tridiagonal matrix, and their weights."""
    k = np.arange(len(diagonal))
    matrix = np.zeros((size.size, k.size, k.size))
    matrix[:, k, k], matrix[:, k[1:], k[:-1]] = diagonal.T, off.T
    nodes, rows = np.linalg.eigh(matrix)  # which reads what is below the diagonal
    nodes = np.maximum(nodes, _ROUND_OFF - 1.0)
    weights = 0.5 * size[:, None] * rows[:, 0] ** 2
    fit = float(weights[0] @ (nodes[0] / (1.0 + nodes[0])))
    volume, trace = (np.sum(weights[1:] * x[1:], axis=1) for x in (np.log1p(nodes), nodes))
    error = float(volume.std(ddof=1) / np.sqrt(volume.size))
    return ApproximationLoss(fit - float(volume.mean()), error, float((trace - volume).mean()))


class _Whitened:
    """Products with M = P^-1/2 E P^-1/2, the kernel evaluated anew for each."""

    def __init__(self, prior: Prior, features: Features, values: NoisyValues) -> None:
        self._prior, self._X = prior, values.X
        self._phi, _ = features.at(values.X)
        # What equal rows share of f under the kernel is noise of their own under the features.
        self._own = bases.residual_variances(prior, features, values.X) / values.counts
        self._root = np.sqrt(values.variance / values.counts)
        scaled = self._phi / self._root[:, None]
        roots, vectors = eigh(scaled.T @ scaled)
        kept = roots > _ROUND_OFF * max(float(roots[-1]), 1.0)
        self._basis = scaled @ (vectors[:, kept] / np.sqrt(roots[kept]))
        self._shrinkage = 1.0 - 1.0 / np.sqrt(1.0 + roots[kept])

    def half(self, x: FloatArray) -> FloatArray:
        """P^-1/2 x, but for a rotation: (I + B B')^-1/2 of x over the noise's deviations."""
        return self._shrunk(x / self._root[:, None])

    def product(self, x: FloatArray) -> FloatArray:
        """M x."""
        x = self._shrunk(x) / self._root[:, None]
        found = -self._phi @ (self._phi.T @ x) - self._own[:, None] * x
        n = self._X.shape[0]
        for start in range(0, n, _ROWS_AT_ONCE):
            # Of a symmetric matrix the part right of the diagonal's blocks.
            rows, size = slice(start, start + _ROWS_AT_ONCE), min(_ROWS_AT_ONCE, n - start)
            block = self._prior.covariance("X", self._X[rows], self._X[start:])
            found[rows] += block @ x[start:]
            found[start + size :] += block[:, size:].T @ x[rows]
        return self.half(found)

    def _shrunk(self, x: FloatArray) -> FloatArray:
        return x - self._basis @ (self._shrinkage[:, None] * (self._basis.T @ x))


# What an approximated prior loses on data: their rows as noisy values of f, by EP's sites.
#
# EP's evidence is stationary in its sites. So what another prior changes of it is, to first order,
# the change of the evidence of Gaussian values, which the sites are.

# Rows of which every pair is met; of more some neighbourhoods, as rows share what features leave
# of f with those near them.
MOST_ROWS, FEW_ROWS, _NEIGHBOURHOOD = 20_000, 5000, 2500
LIMIT = 0.1  # nats that are as good as none, two standard errors included
_SILENT = 1e-12  # of the largest precision: rows that say nothing


def loss_of_fit(
    fit: "FiniteRankFit", prior: Prior, most_rows: int = MOST_ROWS, of_more: int = MOST_ROWS
) -> ApproximationLoss | None:
    """Nats that the fit's evidence lacks to that of a prior with the kernel itself.

    Of rows about several values each, and of more than `most_rows`, of which only `of_more` are
    met, the evidence itself is not compared. Then the value is what labels lose on average at
    most, the Kullback-Leibler divergence D of noisy values, and the error what it scatters by,
    sqrt(2 D).

    None where the rows are on the workers of a cluster.
    """
    if fit.predictors is None:
        return None
    _ = fit.ep  # whose sites the blocks have
    features, known, parts = fit.features, True, []
    for data, rows in fit.predictors:
        if any(part.X is None for part in rows):
            parts.append(_information(data, features))
        else:
            parts += [_sites(part, features) for part in rows]
        known = known and all(
            part.X is not None and part.design is None and isinstance(part.block, RowBlock)
            for part in rows
        )
    scale = float(features.between.diagonal().max())
    X, value, variance, counts = (np.concatenate(x) for x in zip(*parts, strict=True))
    values = NoisyValues(X, value / np.sqrt(scale), variance / scale, counts)
    n, copies = value.size, float(fit.n_functions)
    if not n:
        return ApproximationLoss(0.0, 0.0, 0.0)
    if n > most_rows:
        values = values.rows(_neighbourhoods(prior, X, min(of_more, most_rows)))
        copies, known = copies * n / values.value.size, False
    found = loss_of_values(prior, features.single, values, LIMIT if known else np.inf)
    if known:
        return found
    divergence = copies * max(found.divergence, 0.0)
    return ApproximationLoss(divergence, float(np.sqrt(2.0 * divergence)), divergence)


def _sites(part: DataBlock, features: bases.FunctionFeatures) -> NoisyValues:
    """EP's, of the values of f themselves; those that say nothing are left out."""
    assert part.X is not None
    block = part.block
    if part.design is not None:  # of each value as if the others of a predictor were known
        precision: FloatArray = part.design.power(2).T @ np.maximum(block.tau, 0.0)
        return _seen(part.X, precision, features)
    if isinstance(block, SeveralBlock):  # of the function of which most is said
        return _seen(part.X, block.precisions.max(axis=1), features)
    assert isinstance(block, RowBlock)
    counts = np.broadcast_to(block.sites.counts, block.tau.shape)
    kept = block.tau > _SILENT * block.tau.max(initial=0.0)
    tau, nu = block.tau[kept], block.nu[kept]
    return NoisyValues(part.X[kept], nu / tau, 1.0 / tau, counts[kept])


def _information(data: DataSet, features: bases.FunctionFeatures) -> NoisyValues:
    """What rows would say of each value if they were seen to the last digit."""
    rows = data.rows()
    design = abs(as_matrix(rows.A, rows.n_rows)).power(2)
    precision = np.zeros(data.values.size)
    precision[: design.shape[1]] = design.T @ (1.0 / rows.variances)
    return _seen(data.X, precision.reshape(data.X.shape[0], -1).max(axis=1), features)


def _seen(X: FloatArray, precision: FloatArray, features: bases.FunctionFeatures) -> NoisyValues:
    """Values of which nothing is known but their precision."""
    kept = precision > 0.0
    X = X[kept]
    rest = features.single.at(X)[1] * float(features.between.diagonal().max())
    ones = np.ones(X.shape[0])
    return NoisyValues(X, 0.0 * ones, 1.0 / precision[kept] + rest, ones)


def _neighbourhoods(prior: Prior, X: FloatArray, size: int) -> IntArray:
    """About so many rows: those around a few, in units of the kernel."""
    rng = np.random.default_rng(_SEED)
    some = X[rng.choice(X.shape[0], 5000)]
    scaled = X * bases.column_scales(prior, some, rng)
    chosen, each = [], min(size, _NEIGHBOURHOOD)
    for centre in rng.choice(X.shape[0], size // each, replace=False):
        square = np.square(scaled - scaled[centre]).sum(axis=1)
        chosen.append(np.argpartition(square, each)[:each])
    return np.unique(np.concatenate(chosen))


_log = logging.getLogger("pymc.pymc_skewgp")

# What `approximation` may be; "auto" is the kernel as it is up to `MANY_ROWS`.
Asked = Approximation | Literal["auto"] | None
# Above it exact algebra takes minutes for smooth kernels, and hours for rough ones.
MANY_ROWS = 5000
_MOST_POINTS, _LEAST_POINTS = 300, 100
_MOST_COORDINATES = 1200  # of all functions together
_ROUGH = 0.5  # share of the loss that twice the points leave, from which on more are not tried
_BYTES = 2**30  # of the features, up to which there are as many points
# How many times the points that are tried first are tried next.
_TIMES = (1, 2, 4)
# Values with Gaussian noise up to which the kernel itself is taken where no approximation is near
# enough: up to a minute, and 2.4 GiB.
_ROWS_OF_VALUES = 8000
_OPERATIONS = 5e11  # of a sweep of EP, up to which all different inputs are inducing points
# What is done where a prior is not near enough to the kernel. After a search for hyperparameters
# the posterior has the points that it was made with: its work would be lost.
_at_a_loss: ContextVar[Literal["stop", "warn", "go on"]] = ContextVar("_at_a_loss", default="stop")


class Choice(NamedTuple):
    """What a posterior is made with, and what is known of it where that was tried.

    Attributes
    ----------
    approximation : Approximation or None
    fit : FiniteRankFit or None
    loss : ApproximationLoss or None
    """

    approximation: Approximation | None
    fit: FiniteRankFit | None = None
    loss: ApproximationLoss | None = None

    def __str__(self) -> str:
        if self.loss is None:
            return repr(self.approximation)
        return f"{self.approximation!r}, which changes the log evidence by {self.loss}"

    @property
    def computed(self) -> dict[str, Any]:
        """Attributes of the posterior that are known already."""
        if self.fit is None:
            return {}
        return {"_fit_of_rows": self.fit, "_fit": self.fit, "approximation_loss": self.loss}

    @property
    def largest_loss(self) -> float:
        """Two standard errors included."""
        return 0.0 if self.loss is None else self.loss.largest


@contextmanager
def never_stopping(*, quiet: bool) -> Iterator[None]:
    """Take as many points as hyperparameters are learnt with; unless quiet say what is lost."""
    token = _at_a_loss.set("go on" if quiet else "warn")
    try:
        yield
    finally:
        _at_a_loss.reset(token)


def as_approximation(value: Any) -> Asked:
    """`value` as what `SkewGP` and its posterior take.

    Raises
    ------
    ApproximationError
    """
    if value is None or (isinstance(value, str) and value == "auto") or hasattr(value, "features"):
        found: Asked = value
        return found
    raise ApproximationError(
        'approximation must be "auto", None or one of pymc_skewgp.approximations, such as '
        f"Inducing(300); got {value!r}."
    )


def chosen(asked: Asked, sets: tuple[DataSet, ...], prior: Prior) -> Choice:
    """What was asked for, or what "auto" is for these data, which is logged.

    Raises
    ------
    ApproximationError
        Where "auto" finds nothing that is near enough to the kernel: with the figures, and what
        there is to choose from.
    """
    n = sum(data.X.shape[0] for data in sets)
    if asked != "auto":
        return Choice(asked)
    if n <= MANY_ROWS:
        return Choice(None)
    try:
        refuse_other_data(sets, prior)
    except ApproximationError:
        return Choice(None)
    few = _every_input(sets, prior)
    if few is not None:
        return few
    if _at_a_loss.get() != "stop":
        return _without_stopping(sets, prior, n)
    tried = _tried(sets, prior, n)
    best, values = min(tried, key=lambda one: one.largest_loss), are_values(sets, prior)
    if best.largest_loss <= LIMIT:
        _log.info(
            f"{n} rows: the prior is approximated by {best}. prior_report() says what that "
            "changes; SkewGP(approximation=None) takes the kernel as it is."
        )
        return best
    figures = ", ".join(f"{one.approximation!r} is off by {one.loss}" for one in tried)
    if values and n <= _ROWS_OF_VALUES and is_easily_kept(n):
        announce_kernel(n, f"nearest to it is {best}")
        return Choice(None)
    assert best.approximation is not None
    twice = best.approximation.doubled()
    raise ApproximationError(
        f"{n} rows are too many for the kernel as it is to be taken by itself, and no approximated "
        f"prior that was tried is within {LIMIT:g} nats of its log evidence "
        f"({figures}): choose by SkewGP(approximation=...) one with more points, such as "
        f"{twice!r}, of which posterior.approximation_loss says the loss; Vecchia(20), of full "
        "rank, for one function of at most three columns; or None, the kernel as "
        f"it is, which takes {cost_of_kernel(n, values)}."
    )


def automatic(n: int, n_functions: int = 1) -> bases.Inducing:
    """Inducing points that so many rows are begun with: 300, and fewer from half a million on.

    And fewer for more than four functions, each of which has coordinates of its own.
    """
    return bases.Inducing(_most_points(n, n_functions, 1))


def warn_of_loss(
    approximation: Approximation, loss: ApproximationLoss | None, stacklevel: int
) -> None:
    """Where a posterior would have stopped.

    Warns
    -----
    PriorApproximationWarning
    """
    if loss is None or loss.largest <= LIMIT:
        return
    warn(
        f"{approximation!r}, which replaced the kernel by itself, changes the log evidence by "
        f"{loss}: hyperparameters, evidence and forecasts are those of another prior. Give SkewGP "
        f"an approximation with more points, such as {approximation.doubled()!r}, or None for the "
        "kernel as it is; or take fewer rows.",
        PriorApproximationWarning,
        stacklevel=stacklevel,
    )


def _without_stopping(sets: tuple[DataSet, ...], prior: Prior, n: int) -> Choice:
    """What hyperparameters are learnt with."""
    asked = automatic(n, n_functions(sets))
    _log.info(
        f"{n} rows: the prior is approximated by {asked!r}, as the kernel itself takes n^3 "
        "operations. SkewGP(approximation=...) has another, and None the kernel as it is."
    )
    if _at_a_loss.get() == "go on":
        return Choice(asked)
    found = _fitted(asked, sets, prior, of_more=FEW_ROWS)
    warn_of_loss(asked, found.loss, stacklevel=6)
    return found


def _fitted(asked: Approximation, sets: tuple[DataSet, ...], prior: Prior, **rows: int) -> Choice:
    X = np.vstack([data.X for data in sets])
    fit = finite_rank_fit(*bases.finite_rank_prior(replace(prior, approximation=asked), X), sets)
    return Choice(asked, fit, loss_of_fit(fit, prior, **rows))


def _every_input(sets: tuple[DataSet, ...], prior: Prior) -> Choice | None:
    """The kernel itself, where rows have few different inputs."""
    X = np.vstack([data.X for data in sets])
    n, n_different = X.shape[0], one_of_each(X).size
    if n_different > MANY_ROWS:
        return None
    asked = bases.EveryInput()
    approximated, features = bases.finite_rank_prior(replace(prior, approximation=asked), X)
    n -= sum(map(n_repeated, sets))
    rank = features.rank * n_functions(sets)
    if 2.0 * n * rank**2 > _OPERATIONS:
        return None
    fit = finite_rank_fit(approximated, features, sets)
    _log.info(
        f"{X.shape[0]} rows with {n_different} different inputs: the kernel as it is, in "
        f"{rank} coordinates."
    )
    return Choice(asked, fit, ApproximationLoss(0.0, 0.0, 0.0))


def _tried(sets: tuple[DataSet, ...], prior: Prior, n: int) -> list[Choice]:
    """Approximations of more and more points, up to one that is near enough."""
    found: list[Choice] = []
    failed: ApproximationError | None = None
    for size in sorted({_most_points(n, n_functions(sets), times) for times in _TIMES}):
        try:
            asked = bases.Inducing(size)
            found.append(_fitted(asked, sets, prior, most_rows=MOST_ROWS))
        except ApproximationError as error:  # of a site that is too narrow for what is left of f
            failed = error
            continue
        if found[-1].largest_loss <= LIMIT:
            break
        # Where twice the points leave more than half of the loss, as many more do not do.
        losses = [one.loss for one in found[-2:] if one.loss is not None]
        if len(losses) == 2 and losses[0].divergence > 0.0:
            left = losses[1].divergence / losses[0].divergence
            if left > _ROUGH and losses[1].largest * left > LIMIT:
                break
    if not found:
        assert failed is not None
        raise failed
    return found


def _most_points(n: int, n_functions: int, times: int) -> int:
    """As many as are tried first, or several times that, where coordinates and memory allow."""
    most = min(times * _MOST_POINTS, _MOST_COORDINATES // n_functions)
    return int(max(_LEAST_POINTS, min(most, _BYTES // (8 * n))))


# What an approximated prior changes: exact against approximate on parts of the data.

_MOST_IN_A_PART = 2000
# Rows at which variances are compared, and rows at which forecasts are, left out of a part.
_ROWS_OF_VARIANCES, _ROWS_OF_FORECASTS = 20_000, 200
# Nats a row, and difference of probabilities, from which on it is warned of: differences of log
# loss between methods are of that size.
_LARGEST_LOSS, _LARGEST_DIFFERENCE = 0.005, 0.02
_ERRORS = 3.0


class Part(NamedTuple):
    """Rows of the data, and other rows at which forecasts are compared."""

    name: str
    seen: IntArray
    new: IntArray


class ReportsPrior:
    """The part of `SkewGPPosterior` that compares its prior with the kernel as it is."""

    @cached_property
    def approximation_loss(self: Any) -> ApproximationLoss | None:
        r"""Log evidence under the kernel itself, less that under the approximated prior: in nats.

        The standard error of `log_marginal_likelihood` is of the evidence *under the approximated
        prior*. What that differs by from the kernel's own is estimated here, from all rows, by
        products with the kernel (for sites and limits to first order, by EP's sites of them). Of
        more than 20,000 rows, and of rows about several values of f each, ``value`` is its mean
        over such data, the divergence, and ``std_error`` how much data scatter around it.

        Has ``value``, ``std_error`` (of this estimate; of more than five nats only the size is
        known, and it is half of the value), and ``divergence``, the Kullback-Leibler
        divergence in nats of the noisy values, exact from approximate. 0 where the prior is the
        kernel as it is. None where it is not known: rows on workers, `Vecchia`, and less than five
        rows a coordinate up to 5000 rows, of which `prior_report` says more.

        References
        ----------
        .. [1] J. Gardner, G. Pleiss, D. Bindel, K. Q. Weinberger & A. G. Wilson (2018), GPyTorch:
           Blackbox matrix-matrix Gaussian process inference with GPU acceleration,
           arXiv:1809.11165.

        Examples
        --------
        >>> import numpy as np
        >>> import pymc as pm
        >>> import pymc_skewgp as sg
        >>> X = np.linspace(0.0, 9.0, 400)[:, None]
        >>> gp = sg.SkewGP(
        ...     cov_func=pm.gp.cov.ExpQuad(1, ls=1.0), approximation=sg.approximations.Inducing(12)
        ... )
        >>> known = sg.likelihoods.Gaussian(0.5)
        >>> posterior = gp.posterior(X, np.sin(X[:, 0]), likelihood=known)
        >>> print(f"{posterior.approximation_loss.value:.0f} nat")
        1 nat
        """
        if self.prior.approximation is None:
            return ApproximationLoss(0.0, 0.0, 0.0)
        if not isinstance(self._fit, FiniteRankFit) or isinstance(self._fit, fits.VecchiaFit):
            return None
        return loss_of_fit(self._fit, replace(self.prior, approximation=None))

    def prior_report(self: Any, n_rows: int = 1000, *, random_seed: int = 0) -> xr.Dataset:
        """What the approximation of the prior changes, compared on parts of the data.

        Two parts are taken, the neighbourhood of a row and random rows. Given each of them alone
        the kernel as it is and its approximation are compared, at 200 rows that were left out.

        Parameters
        ----------
        n_rows : int, default 1000
            Rows of each part, at most 2000: matrices of them are factorised.
        random_seed : int, default 0
            Which rows.

        Returns
        -------
        Dataset
            ``residual_variance_mean``, ``_max`` and ``residual_share_mean``: variance of f that
            the features leave. By ``part``: ``kl_u``, the Kullback-Leibler divergence in nats of
            the noisy values that the labels limit (NaN under sites); ``log_evidence_exact`` and
            ``log_evidence``, with standard errors ``_se``; ``f_mean_difference``, in posterior
            standard deviations; ``p_difference_mean`` and ``p_difference_max`` of labels; at each
            ``point`` ``p_exact``, ``p``, ``f_mean_exact``, ``f_mean`` (of several functions their
            values follow each other, and p is NaN). ``ep_log_evidence``: expectation
            propagation's on all rows, with these features and with twice as many; of `Vecchia`
            with twice as many neighbours.
            `plot_prior_report` draws it.

        Raises
        ------
        ApproximationError
            Where the prior is not approximated, and for data of several kinds.

        Warns
        -----
        PriorApproximationWarning
            Where the evidence is off by more than .005 nats a row, or probabilities by more than
            .02 on average: forecasts would show it.
        """
        return _report(self, as_count("n_rows", n_rows), as_count("random_seed", random_seed, 0))


def _report(posterior: Any, n_rows: int, seed: int) -> xr.Dataset:
    asked, data = posterior.prior.approximation, _only(posterior)
    if asked is None:
        raise ApproximationError(
            "the prior of this posterior is the kernel as it is: there is nothing to report."
        )
    exact = replace(posterior.prior, approximation=None)
    X = data.X
    features, twice = asked.features(exact, X), asked.doubled().features(exact, X)
    # What the features leave of the variance of f, at many rows.
    some, rng = X, np.random.default_rng(seed)
    if X.shape[0] > _ROWS_OF_VARIANCES:
        some = X[np.sort(rng.choice(X.shape[0], _ROWS_OF_VARIANCES, replace=False))]
    left = bases.residual_variances(exact, features, some)
    share = left / np.maximum(bases.function_variances(exact, some), np.finfo(float).tiny)
    variances = {
        "residual_variance_mean": left.mean(),
        "residual_variance_max": np.abs(left).max(),
        "residual_share_mean": share.mean(),
    }
    parts = _parts(exact, data.X, min(n_rows, _MOST_IN_A_PART), np.random.default_rng(seed))
    names = xr.IndexVariable("part", [part.name for part in parts])
    by_part = xr.concat([_of_part(posterior, part, features) for part in parts], dim=names)
    # EP's evidence on all rows, with these features and with twice as many.
    known_fits: Any = [
        finite_rank_fit(replace(exact, cov_func=bases.FiniteRankKernel(x)), x, (data,))
        for x in (features, twice)
    ]
    rank = [features.rank, twice.rank]
    ranks = {
        "ep_log_evidence": xr.DataArray(
            [fit.ep_log_evidence for fit in known_fits], dims="features", attrs={"ranks": rank}
        ),
        "rank": xr.DataArray(rank, dims="features"),
    }
    found = xr.merge([xr.Dataset(variances), by_part, xr.Dataset(ranks)])
    found.attrs = {"approximation": repr(asked), "n_rows": data.X.shape[0]}
    _warn(found)
    return found


def _only(posterior: Any) -> DataSet:
    sets = posterior._sets
    if len(sets) > 1 or sets[0].likelihood.y_dim != "obs_id":
        raise ApproximationError(
            "prior_report compares posteriors given some of the rows, and needs data of one kind "
            "in which each observation is one row of X."
        )
    return sets[0]


def _parts(exact: Prior, X: FloatArray, n_rows: int, rng: np.random.Generator) -> list[Part]:
    """A neighbourhood of a row, in units of the kernel, and a random part."""
    n = X.shape[0]
    size = min(n, n_rows + _ROWS_OF_FORECASTS)
    new = max(1, min(_ROWS_OF_FORECASTS, size // 5))
    some = X[rng.choice(n, min(n, 5000), replace=False)]
    scaled = (X - X[rng.integers(n)]) * bases.column_scales(exact, some, rng)
    near = np.argsort(np.einsum("ij,ij->i", scaled, scaled), kind="stable")[:size]
    anywhere = rng.choice(n, size, replace=False)
    parts = []
    for name, chosen in (("neighbourhood", near), ("random", anywhere)):
        mixed = rng.permutation(chosen)
        parts.append(Part(name, np.sort(mixed[new:]), np.sort(mixed[:new])))
    return parts


def _of_part(posterior: Any, part: Part, features: Features) -> xr.Dataset:
    """Evidence, forecasts and KL, given these rows alone."""
    data = _only(posterior)
    seen, new = data.part(part.seen), data.X[part.new]
    with_kernel = replace(posterior.prior, approximation=None)
    with_features = replace(with_kernel, cov_func=bases.FiniteRankKernel(features))
    found: dict[str, Any] = {"n_seen": part.seen.size, "kl_u": _kl(with_kernel, features, seen)}
    f, p = [], []
    for suffix, prior in (("_exact", with_kernel), ("", with_features)):
        own = posterior._given(prior, (seen,))
        evidence: Estimate = own.log_marginal_likelihood
        f.append(own.marginals(new).moments)
        p.append(_probability(own, new, f[-1].mean.size))
        found |= {
            f"log_evidence{suffix}": evidence.value,
            f"log_evidence{suffix}_se": evidence.std_error,
            f"p{suffix}": ("point", p[-1]),
            f"f_mean{suffix}": ("point", f[-1].mean),
        }
    difference = np.abs(p[0] - p[1])
    found["p_difference_mean"], found["p_difference_max"] = difference.mean(), difference.max()
    square = np.mean((f[0].mean - f[1].mean) ** 2)
    return xr.Dataset(found | {"f_mean_difference": np.sqrt(square / np.mean(f[0].sd ** 2))})


def _probability(posterior: Any, new: FloatArray, size: int) -> FloatArray:
    """Of a label 1; NaN for each value of f where there are no such labels."""
    try:
        return posterior.probability(new).value
    except TypeError:
        return np.full(size, np.nan)


def _kl(exact: Prior, features: Features, data: DataSet) -> float:
    """KL of u, the noisy values that rows limit, exact from approximate; NaN where there are none.

    It is what labels are expected to lose, at most, in nats.
    """
    if isinstance(data.likelihood, SiteLikelihood):
        return float("nan")
    rows = data.rows()
    design = as_matrix(rows.A, rows.n_rows)
    noise = np.zeros((rows.n_rows, rows.n_rows))
    add_noise(noise, rows.S)
    between = priors.between_functions(exact, data.values.n_functions)
    factors = []
    for matrix in (exact.covariance("X", data.X), bases.FiniteRankKernel(features)(data.X)):
        values = np.kron(matrix, between)
        cov = np.asarray(design @ (design @ values).T) + noise
        factors.append(linalg.cholesky("the covariance of u", linalg.symmetric(cov))[0])
    ratio = solve_triangular(factors[1], factors[0], lower=True)
    log_det = np.log(factors[1].diagonal()).sum() - np.log(factors[0].diagonal()).sum()
    return float(0.5 * ((ratio**2).sum() - rows.n_rows) + log_det)


def _warn(report: xr.Dataset) -> None:
    """Where the approximation would be seen in forecasts."""
    loss = np.abs(report["log_evidence"] - report["log_evidence_exact"])
    error = np.hypot(report["log_evidence_se"], report["log_evidence_exact_se"])
    loss = np.maximum(loss - _ERRORS * error, 0.0) / report["n_seen"]
    gain = float(np.diff(report["ep_log_evidence"])[0]) / report.attrs["n_rows"]
    off = float(report["p_difference_mean"].max())
    reasons = []
    if float(loss.max()) > _LARGEST_LOSS:
        worst = str(report["part"].values[int(np.argmax(np.asarray(loss)))])
        reasons.append(f"its evidence is off by {float(loss.max()):.3f} nats a row ({worst})")
    if abs(gain) > _LARGEST_LOSS:
        reasons.append(f"twice as many features change EP's evidence by {gain:+.3f} nats a row")
    if off > _LARGEST_DIFFERENCE:
        reasons.append(f"probabilities of labels are off by {off:.3f} on average")
    if reasons:
        warn(
            f"{report.attrs['approximation']} differs from the kernel as it is: "
            f"{'; '.join(reasons)}. Raise the rank (of HSGP also c, of Vecchia m), or take a "
            "smoother kernel.",
            PriorApproximationWarning,
            stacklevel=4,
        )
