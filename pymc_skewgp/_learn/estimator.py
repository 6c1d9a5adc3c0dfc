"""What the estimators have in common: checked arguments, settings of the search, draws."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass, field, replace
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from pymc.gp.cov import BaseCovariance
from scipy.special import ndtri
from sklearn.base import BaseEstimator, is_classifier
from sklearn.utils import check_random_state, gen_batches
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from xarray import DataTree

from pymc_skewgp import _errors, cov
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._learn.averaging.average_process import AveragedPosterior, averaged_process
from pymc_skewgp._learn.optimizers import SearchSettings
from pymc_skewgp._learn.problem import HyperparameterFit, LearningRun, TrainingData, learn
from pymc_skewgp._learn.rows.rows_objective import warn_of_learnt, why_not_by_rows
from pymc_skewgp._learn.search import random_batches
from pymc_skewgp._limits import progress, refuse_too_many_rows, stage, steps
from pymc_skewgp._model.gp.skewgp import SkewGP
from pymc_skewgp._model.graph.data import known_of
from pymc_skewgp._observations.binary import BernoulliProbit, probability_sd
from pymc_skewgp._observations.likelihood import refuse_rows
from pymc_skewgp._observations.weighted import Weighted
from pymc_skewgp._posterior.automatic import MANY_ROWS, never_stopping
from pymc_skewgp._posterior.features import spread_rows
from pymc_skewgp._posterior.posterior import SkewGPPosterior
from pymc_skewgp._validation import FloatArray, as_real_array

# The kernels that estimators know by name.

KernelFunction = Callable[[int], Any]

_STATIONARY = {
    "rbf": pm.gp.cov.ExpQuad,
    "matern32": pm.gp.cov.Matern32,
    "matern52": pm.gp.cov.Matern52,
}
KERNELS = (*_STATIONARY, "nn")
_FAR = 100.0  # standard deviations from 0
_WIDE = 5.0  # of a weak prior's standard deviation, in units of what it is about
# For an average: labels with hardly any noise ask for eta far above 5, and an input without any
# effect for a lengthscale far above the start. Normal tails of log(ls) keep weights good.
_WIDEST = 25.0
_LOG_LS, _LOG_LS_SD = 1.0, 1.5
# Of lengthscales about their common scale, in logarithms: scale of tau, and its degrees of freedom.
_APART, _APART_DF = 0.7, 4.0
# Below this share of the start a lengthscale says nothing more, and squared distances between equal
# inputs are round-off in units of it, until the kernel is not positive definite.
_LEAST_LS = 1e-3
# Rows up to which maxima of one lengthscale an input lose most, and averages take seconds.
_MOST_AVERAGED = 300
_ROWS_OF_VARIANCE = 1000  # over which the variance of f is averaged, about
# Of the level's mean, in standard deviations: it is rounded, so that folds of a cross-validation
# are of one compiled function, and the share changes by a hundredth at most; and no further out.
_STEP, _FURTHEST = 0.05, 5.0


def lengthscale(size: FloatArray, ard: bool) -> Any:
    """Of each input, or of all: distances between rows come out as 1 or so."""
    varies = size > 0
    if not varies.any():
        return np.ones(size.size) if ard else 1.0
    if not ard:
        return float(np.sqrt((size**2).sum()))
    # The lengthscale of a constant column has no effect.
    return np.where(varies, size, 1.0) * np.sqrt(varies.sum())


def _shrunk_together(centre: FloatArray) -> Any:
    r"""A lengthscale for each input: :math:`\log l_j = c_j + \tau (1.5 / .7\, \mu + d_j)`.

    With mu and d_j standard normal and an inverse gamma prior of tau^2, integrated out, that is a
    Student t distribution, which has a mode and no funnel.
    """
    scale = _APART**2 * np.eye(centre.size) + _LOG_LS_SD**2
    log_ls = pm.MvStudentT("log_ls", nu=_APART_DF, mu=centre, scale=scale)
    least = centre - _LOG_LS + np.log(_LEAST_LS)
    return pm.Deterministic("ls", pt.exp(pt.maximum(log_ls, least)))


def _minus(X: Any, centre: FloatArray) -> Any:
    return X - centre


# One process under one likelihood: hyperparameters learnt, then its posterior given all data.


class FittedProcess(NamedTuple):
    """A posterior, and what was learnt of hyperparameters.

    Attributes
    ----------
    posterior : SkewGPPosterior or AveragedPosterior
    fit : HyperparameterFit, DataTree or None
        A search, None where there was nothing to learn; or draws of them, under a mixture.
    rise : float or None
        Of a named kernel with flat priors: nats by which the evidence is above that at an amplitude
        that is `LARGE`; None where it has a maximum in the amplitude, or that is not larger.
    interrupted : bool
        Whether a search was ended by hand.
    """

    posterior: SkewGPPosterior | AveragedPosterior
    fit: HyperparameterFit | DataTree | None
    rise: float | None = None
    interrupted: bool = False


class Definition(NamedTuple):
    """A process and a likelihood with what is to be learnt of them as variables.

    Attributes
    ----------
    mean_func : pymc.gp.mean.Mean, optional
    likelihood : Likelihood
    start : mapping
        Where these variables start.
    coregion : graph, optional
        The covariance of several functions.
    """

    mean_func: Any = None
    likelihood: Any = None
    start: Mapping[str, Any] = MappingProxyType({})
    coregion: Any = None


class Kernel(NamedTuple):
    """What an estimator was asked for.

    Attributes
    ----------
    kernel : str or callable
    ard : bool
    scale : float or None
        Of f, that weak priors are about; None for flat ones.
    average : bool
        Whether its hyperparameters are averaged over.
    share : float or None
        Of labels 1 a priori, where f has a constant level; None where it has none.
    """

    kernel: str | KernelFunction
    ard: bool
    scale: float | None = 1.0
    average: bool = False
    share: float | None = None

    def made(self, X: FloatArray) -> tuple[Any, Any, dict[str, Any]]:
        """Kernel, mean, and starts of hyperparameters; to be called inside a ``pm.Model``.

        A level b ~ N(m, 1 + var f) is integrated out as a part of the kernel, m of the mean. As f +
        b ~ N(m, 1 + 2 var f), the probability of a label 1 is Phi(m / {2 + 2 var f}^1/2) a priori.
        """
        kernel, start = self._without_level(X)
        if self.share is None:
            return kernel, pm.gp.mean.Zero(), start
        some = X[:: len(X) // _ROWS_OF_VARIANCE + 1]
        variance = 1.0 + kernel(some, diag=True).mean()
        z = _STEP * round(np.clip(ndtri(self.share), -_FURTHEST, _FURTHEST) / _STEP)
        # A shared variable is an argument: other shares ask for no other function.
        mean = pm.gp.mean.Constant(pytensor.shared(z) * pt.sqrt(2.0 * variance))
        return kernel + pm.gp.cov.Constant(variance), mean, start

    def _without_level(self, X: FloatArray) -> tuple[Any, dict[str, Any]]:
        """The kernel by itself.

        A named one is eta^2 times the kernel, and starts at the scale of the inputs. Priors are
        weak, in units of the starts of lengthscales and of the `scale` of f; flat without one;
        weaker still where hyperparameters are averaged over.
        """
        d, name, scale = X.shape[1], self.kernel, self.scale
        if callable(name):
            return name(d), {}
        if name == "nn":
            first = lengthscale(np.sqrt(np.mean(X**2, axis=0)), self.ard) / 2.0
        else:
            spread = np.std(X, axis=0)
            # Round-off leaves a constant column a deviation that is tiny, not zero.
            spread[np.ptp(X, axis=0) == 0] = 0.0
            first = lengthscale(spread, self.ard)
        start = {"eta": 2.0 if scale is None else 2.0 * scale, "ls": first}
        if scale is None:
            eta = pm.HalfFlat("eta")
        else:
            eta = pm.HalfNormal("eta", (_WIDEST if self.average else _WIDE) * scale)
        if self.ard:
            ls = _shrunk_together(np.log(first) + _LOG_LS)
            start["log_ls"] = np.log(start.pop("ls"))
        elif scale is None:
            ls = pm.HalfFlat("ls")
        elif self.average:
            ls = pm.LogNormal("ls", np.log(first) + _LOG_LS, _LOG_LS_SD)
        else:
            ls = pm.InverseGamma("ls", 2.0, 3.0 * first)
        if name == "nn":
            bias = pm.HalfFlat("bias") if scale is None else pm.HalfNormal("bias", _WIDE)
            start["bias"] = 1.0
            return eta**2 * cov.NeuralNetwork(d, ls=ls, bias=bias), start
        kernel, centre = _STATIONARY[name](d, ls=ls), X.mean(axis=0)
        if (np.abs(centre) > _FAR * spread).any():
            # Squared distances are differences of squares, which far from 0 have no digits left.
            kernel = pm.gp.cov.WarpedInput(d, kernel, _minus, (centre,))
        return eta**2 * kernel, start


def fit_process(
    X: FloatArray,
    y: Any,
    kernel: Kernel,
    define: Callable[[Any], Definition],
    settings: SearchSettings,
    seed: int,
    weights: IntArray | None = None,
    powers: FloatArray | None = None,
) -> FittedProcess:
    """Learn hyperparameters, then condition on all data.

    Parameters
    ----------
    X : ndarray, shape (n, d)
    y
        As the likelihood takes it.
    kernel : Kernel
    define : callable
        Called with the kernel inside a ``pm.Model``.
    settings : SearchSettings
    seed : int
    weights : ndarray of int, optional
        How often each observation was made. Default once.
    powers : ndarray, shape (n,), optional
        Of the likelihood of each.
    """
    with pm.Model() as model:
        cov_func, level, own = kernel.made(X)
        mean_func, likelihood, start, coregion = define(cov_func)
        likelihood = likelihood if powers is None else Weighted(likelihood, powers)
        gp = SkewGP(mean_func=mean_func or level, cov_func=cov_func)
        _refuse_without_blocks(gp, X, y, likelihood)  # now, and not after the search
    if kernel.average:
        if weights is not None:
            y = np.repeat(y, weights, axis=0)
        data = TrainingData(gp, X, y, likelihood, coregion)
        return FittedProcess(*averaged_process(data, {**start, **own}, seed))
    data = TrainingData(gp, X, y, likelihood, coregion, weights)
    run = None
    # A level alone is integrated out, but for f of finite rank.
    if {rv.name for rv in model.free_RVs} - {"level"} or (model.free_RVs and len(X) > MANY_ROWS):
        run = learn(data, settings, np.random.default_rng(seed), start={**start, **own})
    return _conditioned(data, run, seed)


def _conditioned(data: TrainingData, run: LearningRun | None, seed: int) -> FittedProcess:
    """The posterior given all data, at what a search has found."""
    if run is not None:
        warn_of_learnt(data, run, stacklevel=3)
    stage("Posterior given all data")
    with never_stopping(quiet=run is not None):  # a search is not thrown away
        posterior = data.model.posterior(
            data.X,
            data.y,
            likelihood=data.likelihood,
            coregion=data.coregion,
            weights=data.weights,
            point=run.values if run else None,
            random_seed=seed,
        )
    # Its draws belong to the fit, not to the first prediction.
    evidence = posterior.log_marginal_likelihood
    if run is None:
        return FittedProcess(posterior, None)
    return FittedProcess(posterior, run.report(evidence), interrupted=run.interrupted)


def _refuse_without_blocks(gp: SkewGP, X: FloatArray, y: Any, likelihood: Any) -> None:
    """Raise for rows that are too many, in a posterior, for the kernel as it is."""
    if X.shape[0] <= MANY_ROWS or (likelihood.n_functions(y) == 1 and likelihood.y_dim == "obs_id"):
        return
    reason = why_not_by_rows(gp, [known_of(X, y, likelihood)])
    if reason is not None:
        refuse_too_many_rows(X.shape[0], reason)


# Pseudo-points whose places are learnt: where they start, and the prior that keeps them apart.

# Phases that are tried out; more take the labels of the rows that they start at.
_MOST_TRIED = 3
_ROUND_OFF = 1e-9


def log_volume(kernel: Any, points: Any) -> Any:
    """Half the log determinant of the correlations at the pseudo-points, which keeps them apart.

    Without it opposite phases would close in on one point: f would be known to cross zero exactly
    there, an optimum of the marginal likelihood that no data justify.
    """
    matrix = kernel(points)
    sd = pt.sqrt(pt.diagonal(matrix))
    correlation = matrix / sd / sd[:, None]
    chol = pt.linalg.cholesky(correlation + _ROUND_OFF * pt.eye(matrix.shape[0]))
    return pt.log(pt.diagonal(chol)).sum()


# One class against the rest: kernel, start, hyperparameters, posterior.

# An amplitude of which the noise of labels is a hundredth.
LARGE = 100.0


def fit_binary(
    X: FloatArray,
    y: Any,
    kernel: Kernel,
    settings: SearchSettings,
    seed: int,
    n_pseudo_points: int = 0,
    before: Mapping[str, Any] | None = None,
    powers: FloatArray | None = None,
) -> FittedProcess:
    """Learn hyperparameters, then condition on all labels.

    Parameters
    ----------
    X : ndarray, shape (n, d)
    y : ndarray of bool, shape (n,)
    kernel : Kernel
    settings : SearchSettings
    seed : int
    n_pseudo_points : int, default 0
    before : mapping, optional
        Hyperparameters of an earlier fit with this kernel, to go on from.
    powers : ndarray, shape (n,), optional
        Of the likelihood of each label.
    """
    rng = np.random.default_rng(seed)
    if kernel.share is not None:
        kernel = kernel._replace(share=float(np.average(y, weights=powers)))

    def labels(gp: SkewGP, rows: Any = slice(None)) -> TrainingData:
        own = None if powers is None else Weighted(BernoulliProbit(), powers[rows])
        return TrainingData(gp, X[rows], y[rows], own)

    if kernel.average:
        gp, centre = _process(X, kernel)
        return FittedProcess(*averaged_process(labels(gp), centre, seed))
    # The search is of rows in one order, whatever order they came in: on labels that are separable
    # the evidence has no maximum, and round-off would decide where it ends.
    order = np.lexsort((y, *X.T))
    gp, centre = _process(X[order], kernel)
    data = labels(gp, order)
    learnt = {rv.name for rv in gp.model.free_RVs}
    start = centre | {name: value for name, value in (before or {}).items() if name in learnt}
    run = None
    # With pseudo-points all is learnt once more, from the kernel of the GP on.
    known = before is not None and n_pseudo_points > 0 and settings.batch_size is None
    if learnt and not known:
        own = settings if before is None else replace(settings, n_restarts=0)
        # A first search starts at its centre: to work that out again would be a compilation.
        box = None if before is None else centre
        run = learn(data, own, rng, start=start, centre=box)
        start = {name: value for name, value in run.values.items() if name in learnt}
    if n_pseudo_points:
        given = data, kernel, settings, n_pseudo_points
        gp, run = _with_pseudo_points(*given, start, centre, run, rng)
    found = _conditioned(labels(gp), run, seed)
    if run is not None and not callable(kernel.kernel) and run.values["eta"] > LARGE:
        return found._replace(rise=(run.fixed_from or run).rise("eta", LARGE))
    return found


def _with_pseudo_points(
    data: TrainingData,
    kernel: Kernel,
    settings: SearchSettings,
    n_pseudo_points: int,
    start: dict[str, Any],
    centre: dict[str, Any],
    run: LearningRun | None,
    rng: np.random.Generator,
) -> tuple[SkewGP, LearningRun]:
    """The process with pseudo-points, and the search for them that goes on from `start`."""
    X, y = data.X, data.y
    n_different, sd = np.unique(X, axis=0).shape[0], np.std(X, axis=0)
    if n_different < n_pseudo_points:
        raise ValueError(
            f"n_pseudo_points={n_pseudo_points}, but X has only {n_different} different rows."
        )
    rows = spread_rows(X / np.where(sd > 0, sd, 1.0), n_pseudo_points, rng)
    gp, _ = _process(X, kernel, X[rows], np.where(y[rows], 1.0, -1.0))
    points = {"pseudo_points": X[rows]}
    own = replace(settings, n_restarts=0, batch_size=None)
    if settings.batch_size is None:
        data = data._replace(model=gp)
        return gp, learn(data, own, rng, start=start | points, centre=centre | points)
    # On one batch, and with the kernel fixed: in a composite likelihood the prior at the points
    # counts once for each batch, and all else moves to make the most of it.
    seen = random_batches(y, settings.batch_size, rng)[0]
    data = TrainingData(gp, X[seen], y[seen])
    run = learn(data, own, rng, start=start | points, fixed_from=run)
    return gp, replace(run, in_batches=True)


def _process(
    X: FloatArray,
    kernel: Kernel,
    points: FloatArray | None = None,
    labels: FloatArray | None = None,
) -> tuple[SkewGP, dict[str, Any]]:
    """The SkewGP with what is to be learnt of it as variables, and where these start.

    Pseudo-points start at `points`; `labels` are phases of those that are too many to be tried out.
    """
    with pm.Model():
        cov_func, level, start = kernel.made(X)
        if points is None:
            return SkewGP(mean_func=level, cov_func=cov_func), start
        s, places = points.shape[0], pm.Flat("pseudo_points", shape=points.shape)
        if s > 1:
            pm.Potential("apart", log_volume(cov_func, places))
        phase: Any = labels
        if s <= _MOST_TRIED:
            phase = 2 * pm.Bernoulli("positive", 0.5, shape=s) - 1
        return SkewGP(cov_func=cov_func, pseudo_points=places, phase=phase), start


ROWS_AT_ONCE = 1000
# Nats by which an evidence says that an amplitude is too small.
_RISE = 0.08
# Differences of inputs whose squares, and squares of these, are far from over- and underflow.
_LEAST_INPUT, _LARGEST_INPUT = 1e-100, 1e100


@dataclass(eq=False, repr=False)
class ProcessEstimator(BaseEstimator):
    """An estimator with a kernel whose hyperparameters are learnt."""

    # No parameters. Benchmarks and tests set other settings on an instance.
    _search: ClassVar[SearchSettings] = SearchSettings(n_draws=256)
    _posteriors: list[SkewGPPosterior | AveragedPosterior] = field(init=False)
    # One each, or a list of one for each class.
    posterior_: Any = field(init=False)
    hyperparameters_: Any = field(init=False)
    log_marginal_likelihood_: Any = field(init=False)

    kernel: str | KernelFunction = "rbf"
    _: KW_ONLY
    ard: bool = False
    n_restarts: int = 1
    random_state: Any = None
    hyperparameters: Literal["auto", "maximize", "average"] = "auto"
    verbose: bool = True

    def sample_latent(
        self, X: ArrayLike, draws: int = 1000, chains: int = 4, random_state: Any = None
    ) -> DataTree:
        """Draw the latent function at new points, jointly.

        Parameters
        ----------
        X : array_like, shape (t, d)
        draws, chains : int
        random_state : int, RandomState instance or None

        Returns
        -------
        DataTree
            As `SkewGPPosterior.predict` returns it: ``predictions`` with ``f``, ``p`` and ``y``
            (chain, draw, pred_id), and ``predictions_summary``. Of a `SkewGPClassifier` with more
            than two classes all of them have a dimension ``class``, each class against the rest;
            with ``multi_class="exact"`` `f` and `p` have a dimension ``category``.
        """
        X = self._checked(X)
        return self._by_class(lambda x, **own: x.predict(X, **own), draws, chains, random_state)

    def to_datatree(self, draws: int = 1000, chains: int = 4, random_state: Any = None) -> DataTree:
        """Posterior at the training data, for ArviZ.

        Parameters
        ----------
        draws, chains : int
        random_state : int, RandomState instance or None

        Returns
        -------
        DataTree
            As `SkewGPPosterior.sample` returns it, with a dimension ``class`` where a
            `SkewGPClassifier` has more than two.
        """
        check_is_fitted(self)
        return self._by_class(lambda x, **own: x.sample(**own), draws, chains, random_state)

    def _by_class(
        self, drawn: Callable[..., DataTree], draws: int, chains: int, random_state: Any
    ) -> DataTree:
        """Draws of each posterior, with a dimension of classes where there are several."""
        own = {"draws": draws, "chains": chains, "random_seed": self._seed(random_state)}
        with self._progress():
            stage("Draws")
            trees = [drawn(x, **own) for x in self._posteriors]
        if len(trees) == 1:
            return trees[0]
        groups = {}
        for name, first in trees[0].children.items():
            groups[name] = first.to_dataset()
            if not name.endswith("constant_data"):  # what all classes share
                groups[name] = xr.concat(
                    [tree[name].to_dataset() for tree in trees],
                    dim=xr.IndexVariable("class", self.classes_),
                    data_vars="all",
                    combine_attrs="drop_conflicts",
                )
        return DataTree.from_dict(groups)

    def _checked(self, X: ArrayLike) -> FloatArray:
        check_is_fitted(self)
        checked = validate_data(self, X, dtype="numeric", reset=False)
        return np.asarray(checked, dtype=np.float64)

    @staticmethod
    def _features(X: ArrayLike) -> FloatArray:
        """As doubles, refused where squares of their differences over- or underflow."""
        inputs = np.asarray(X, dtype=np.float64)
        size, spread = np.abs(inputs).max(axis=0), np.ptp(inputs / 2.0, axis=0)
        wrong = (size > _LARGEST_INPUT) | ((spread > 0) & (spread < _LEAST_INPUT))
        if wrong.any():
            column = int(np.argmax(wrong))
            raise ValueError(
                f"feature {column} of X has values of size {size[column]:.0e}, whose distances are "
                "beyond double precision: multiply it by a power of ten, then scale it by a "
                "StandardScaler in front of the estimator."
            )
        return inputs

    def _keep(self, *found: FittedProcess) -> None:
        """One process, or one for each class."""
        self._posteriors = [own.posterior for own in found]
        fits = [own.fit for own in found]
        evidences = [posterior.log_marginal_likelihood for posterior in self._posteriors]
        self.posterior_, self.hyperparameters_, self.log_marginal_likelihood_ = (
            own if len(found) > 1 else own[0] for own in (self._posteriors, fits, evidences)
        )
        _warn_of(found, is_classifier(self))

    def _summary(self, X: ArrayLike, *names: str) -> FloatArray:
        """Variables of the forecast of one process at new points, as columns."""
        X = self._checked(X)  # first: it asks whether there is a posterior

        def of(new: FloatArray) -> FloatArray:
            found = self.posterior_.predict(new, draws=0)["predictions_summary"]
            return np.stack([found[name].to_numpy() for name in names], axis=1)

        return self._by_rows(of, X)

    def _by_rows(self, function: Callable[[FloatArray], FloatArray], X: FloatArray) -> FloatArray:
        """Of the rows of `X`, so many at once."""
        batches = list(gen_batches(len(X), ROWS_AT_ONCE))
        with self._progress():
            parts = [function(X[rows]) for rows in steps(batches, "Predictions", len(batches))]
        return np.concatenate(parts)

    def _progress(self) -> AbstractContextManager[None]:
        """A bar that leaves nothing behind: of cross-validation there is one a fold."""
        return progress(self.verbose, transient=True)

    def _probabilities(self, X: ArrayLike) -> FloatArray:
        """Of classes, shape (t, K), in the unit interval and adding up to 1 to the last digit."""
        p = np.clip(self._summary(X, "p_mean")[:, 0], 0.0, 1.0)
        p /= p.sum(axis=1, keepdims=True)
        return p

    def _seed(self, random_state: Any) -> int:
        return int(check_random_state(random_state).randint(2**31 - 1))

    def _fitted(
        self,
        X: FloatArray,
        y: Any,
        define: Callable[[Any], Definition],
        settings: SearchSettings,
        scale: float = 1.0,
        weights: IntArray | None = None,
        powers: FloatArray | None = None,
        share: float | None = None,
    ) -> FittedProcess:
        kernel = Kernel(self.kernel, self.ard, scale, self._averages(X.shape[0]), share)
        seed = self._seed(self.random_state)
        with self._progress():
            return fit_process(X, y, kernel, define, settings, seed, weights, powers)

    def _labelled(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, class_weight: Any
    ) -> tuple[FloatArray, NDArray[Any], FloatArray | None]:
        """Features and classes, checked, and powers of these: see `_weighted`."""
        inputs, labels = validate_data(self, X, y, dtype="numeric")
        check_classification_targets(labels)
        if class_weight is not None:
            each = compute_sample_weight(class_weight, labels)
            sample_weight = each if sample_weight is None else each * np.asarray(sample_weight)
        rows, powers = self._weighted(len(labels), sample_weight)
        return self._features(inputs[rows]), labels[rows], powers

    def _refuse_single(self, classes: NDArray[Any]) -> None:
        if classes.size < 2:
            raise ValueError(
                f"{type(self).__name__} requires 2 or more distinct classes; got 1 class (only "
                f"class {classes[0]} is present)"
            )

    def _weighted(
        self, n: int, sample_weight: ArrayLike | None
    ) -> tuple[IntArray | slice, FloatArray | None]:
        """Which of `n` rows to fit to, and the powers of their likelihoods.

        Whole weights are rows that repeat so often, and have no powers.
        """
        if sample_weight is None:
            return slice(None), None
        weights = as_real_array("sample_weight", sample_weight)
        if weights.shape != (n,) or not np.isfinite(weights).all():
            raise ValueError(
                f"sample_weight must have shape ({n},) and be finite, got shape {weights.shape}."
            )
        refuse_rows("sample_weight", weights, weights < 0, "be 0 or more")
        if not weights.any():
            raise ValueError("sample_weight are all zero: no observation is left.")
        if (weights == np.floor(weights)).all():
            return np.repeat(np.arange(n), weights.astype(np.intp)), None
        rows = np.flatnonzero(weights)
        return rows, weights[rows]

    def _averages(self, n: int) -> bool:
        """Whether hyperparameters are averaged over, X having `n` rows."""
        if self.hyperparameters != "auto":
            return bool(self.hyperparameters == "average")
        # Several functions take minutes, and the others no averages.
        several = getattr(self, "noise", "") == "varying" or getattr(self, "multi_class", "") in (
            "exact",
            "softmax",
        )
        other = getattr(self, "n_pseudo_points", 0) or getattr(self, "warm_start", False)
        plain = self.ard and not callable(self.kernel) and not several and not other
        return bool(plain and n <= _MOST_AVERAGED)

    def _settings(
        self, n: int, rows_each: int = 1, powers: FloatArray | None = None
    ) -> SearchSettings:
        """Of the search with `n` observations of so many rows, from the parameters, checked."""
        if isinstance(self.kernel, BaseCovariance) or hasattr(self.kernel, "get_params"):
            raise TypeError(
                f"kernel must be a name or a function, got the object {self.kernel!r}: pass a "
                "function of the number of features, as in lambda d: pm.gp.cov.ExpQuad(d, ls=1.0). "
                "Kernels of scikit-learn are not taken."
            )
        if not (callable(self.kernel) or self.kernel in KERNELS):
            raise ValueError(
                f"kernel must be one of {', '.join(KERNELS)} or a function of the number of "
                f"features, got {self.kernel!r}."
            )
        if self.hyperparameters not in ("auto", "maximize", "average"):
            raise ValueError(
                'hyperparameters must be "auto", "maximize" or "average", got '
                f"{self.hyperparameters!r}."
            )
        for name in ("n_pseudo_points", "n_restarts"):
            value = getattr(self, name, 0)
            if not isinstance(value, int | np.integer) or value < 0:
                raise ValueError(f"{name} must be an integer >= 0, got {value!r}.")
        size: Any = getattr(self, "batch_size", None)
        n_rows = n * rows_each
        if size == "auto" and powers is not None:
            size = None  # powers are of rows, which batches would have to share
        elif size == "auto":
            # Many rows are learnt from all together, with f of finite rank.
            size = None if n > MANY_ROWS else self._search.batch_size_for(n_rows)
        elif size is not None and (not isinstance(size, int | np.integer) or size < 2):
            raise ValueError(f'batch_size must be an integer > 1, "auto" or None, got {size!r}.')
        if size is not None and size >= n_rows:
            size = None
        # A composite likelihood is off by more than expectation propagation is.
        return replace(
            self._search,
            method="twisted" if size is None else "ep",
            batch_size=size,
            partial=True,
            n_restarts=self.n_restarts,
        )


_OTHERWISE = (
    "A sigma near 0 is of data without noise, a lengthscale far out of a feature without effect."
)


def _warn_of(found: Sequence[FittedProcess], of_classes: bool) -> None:
    """Name hyperparameters at the edge of the box of a search, and amplitudes far out.

    An amplitude near 0, of labels that features say nothing of, is as it should be; and so are
    lengthscales of single features without effect, and an amplitude so large that the evidence,
    and with it every forecast, is the same for all that are larger.
    """
    if any(one.interrupted for one in found):
        _errors.warn(
            "the search was interrupted: hyperparameters are the best ones so far, and what "
            "was not begun stays at its start. The estimator is fitted with them; fit it again "
            "for an optimum.",
            _errors.InterruptedSearchWarning,
            stacklevel=4,
        )
    shown: dict[str, str] = {}
    for one in found:
        fit, rise = one.fit, one.rise
        if not isinstance(fit, HyperparameterFit):
            continue
        names = [x for x in fit.at_bound if x in fit.point]
        if "eta" in names and fit.point["eta"] < 1.0:
            continue
        if rise is not None:
            names = [x for x in names if x != "eta"]
        shown |= {x: f"{x} = {float(fit.point[x]):.3g}" for x in names}
        if rise is not None and rise > _RISE:
            shown["eta"] = (
                f"eta = {float(fit.point['eta']):.3g}, where the log evidence is {rise:.2g} "
                f"above that at {LARGE:.0f} and does not fall further out"
            )
    if shown:
        why = (
            "Where classes are separable, or rare with large weights, probabilities are then "
            'nearly 0 or 1. hyperparameters="average" has priors that bound it.'
        )
        _errors.warn(
            f"{', '.join(shown.values())}: far away from where the search began, as neither "
            f"data nor prior bound it. {why if of_classes else _OTHERWISE}",
            _errors.BoundaryOptimumWarning,
            stacklevel=4,
        )


def drawn_sd(posteriors: list[SkewGPPosterior | AveragedPosterior], X: FloatArray) -> FloatArray:
    """Standard deviations of probabilities of classes, shape (t, K), from 4000 draws of f."""
    trees = [x.predict(X, random_seed=seed) for seed, x in enumerate(posteriors)]
    p = np.stack([tree["predictions"]["p"].to_numpy() for tree in trees], axis=-1)
    p = p[..., 0] if len(trees) == 1 else p / p.sum(axis=-1, keepdims=True)
    sd: FloatArray = p.std(axis=(0, 1))
    return sd


def binary_sd(posterior: SkewGPPosterior | AveragedPosterior, X: FloatArray) -> FloatArray:
    """Standard deviation of the probability of a label 1 at the rows of `X`, shape (t,)."""
    if isinstance(posterior, SkewGPPosterior):
        return probability_sd(posterior.marginals(X))
    each = np.array([binary_sd(part, X) for part in posterior.posteriors])
    means = np.array([part.probability(X).value for part in posterior.posteriors])
    off = means - posterior.weights @ means
    sd: FloatArray = np.sqrt(posterior.weights @ (each**2 + off**2))
    return sd
