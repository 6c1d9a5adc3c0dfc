"""`find_hyperparameters`, and the Frechet bound's procedure of the paper."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike

from pymc_skewgp import _errors
from pymc_skewgp._learn import optimizers, problem
from pymc_skewgp._learn.averaging.model_functions import ModelFunctions
from pymc_skewgp._learn.averaging.points import run_tasks
from pymc_skewgp._learn.coordinates import Bounds, Function, Point, Value
from pymc_skewgp._learn.objective import Objective
from pymc_skewgp._learn.rows.rows_objective import warn_of_learnt
from pymc_skewgp._limits import progress, stage
from pymc_skewgp._model.gp.skewgp import SkewGP
from pymc_skewgp._model.graph.collapsed import collapse_model, pymc_model
from pymc_skewgp._observations.likelihood import Likelihood
from pymc_skewgp._posterior.posterior import DataOfOneKind
from pymc_skewgp._validation import Seed, as_count, as_generator

_DRAWS = 256  # by which coefficients are seen to be bounded


def find_hyperparameters(
    model: pm.Model | SkewGP | Any,
    X: ArrayLike | Sequence[DataOfOneKind] | Mapping[str, DataOfOneKind] | None = None,
    y: ArrayLike | None = None,
    *,
    likelihood: Likelihood | Callable[[Any], Any] | None = None,
    coregion: Any = None,
    weights: ArrayLike | None = None,
    method: optimizers.Method = "twisted",
    batch_size: int | None = None,
    start: Mapping[str, Any] | None = None,
    n_restarts: int = 2,
    n_draws: int = 256,
    random_seed: Seed = None,
    quiet: bool = False,
    progressbar: bool = True,
) -> problem.HyperparameterFit:
    r"""Hyperparameters that maximise the marginal likelihood times their prior.

    .. math:: \hat\theta = \arg\max_\theta \; \log p(y \mid \theta) + \log p(\theta), \qquad
        p(y \mid \theta) = N(y_P; m_P, G_{PP}) \, P(l < u < h \mid y_P) / P(\text{signs})

    The latent function is integrated out: P are rows where a value was seen, u the rows of which
    limits are known, and the signs are those at pseudo-points. Under a probit likelihood this is
    a ratio of two normal distribution functions. Densities of priors are taken on the variables'
    own scale (no Jacobians, as in ``pm.find_MAP``), so that ``pm.HalfFlat`` and ``pm.Flat`` make it
    the maximum of the marginal likelihood alone (empirical Bayes, type II maximum likelihood).

    A SkewGP with an approximation, or with "auto" under more than 5000 rows or comparisons, is
    learnt with f of finite rank: some hundred rows first, then 5000, then all, in n r^2 operations
    an evidence, n K^2 r^2 for K functions. That is for data of one kind or of several, constraints
    and pseudo-points among them, with all that is learnt of their likelihoods. It is not for rows
    that all share noise with each other, as duels with ``noise="item"`` do, for a ``noise_cov`` of
    five classes or more but for one factor, for pseudo-points of functions that depend on each
    other, and for parameters of single rows: "auto" leaves these to the kernel as it is, where
    there is memory for it. With more than twelve hyperparameters there are no standard errors then.

    Everything that is a random variable is learnt: kernel parameters of any ``pm.gp.cov``
    expression, means, pseudo-points, truncation, noise and cut-points of the likelihood; binary
    variables, such as those behind a `phase`, by trying every value. Numbers stay as they are.

    Gaussian variables that are jointly Gaussian with f are integrated out with it: coefficients of
    a ``mean_func`` that is affine in them, and in a model those of predictors, such as random
    effects. ``point`` has no values for them, and `SkewGP.posterior` at it has them integrated out
    too. `integrate` draws them: of a SkewGP with the numbers of ``point`` for all else, exactly as
    they are there. Coefficients are learnt, though, where such a posterior cannot be had: beside
    pseudo-points, with several functions, with f of finite rank and in batches.

    Parameters
    ----------
    model : pymc.Model, bambi.Model or SkewGP
        A model whose latent functions can be integrated out: with `SkewGP.marginal_likelihood`, or
        with `SkewGP.prior` under observations that are independent given predictors affine in f:
        those that `ConjugateStep` knows (``pm.Normal``, ``pm.Censored``, ``pm.OrderedProbit``,
        ``pm.Binomial`` and `BernoulliProbit` among them), and any others, such as ``pm.Poisson``.
        Or a SkewGP made inside a model, with `X` and `y`.
    X, y : array_like, shapes (n, d) and (n,)
        Inputs and data, for a SkewGP; data of several kinds as for `SkewGP.posterior`. Then only
        the priors, and potentials, of what the SkewGP depends on are counted. To count other
        observations too, pass the model. Or dask arrays in chunks of rows, which stay on the
        workers of the current ``dask.distributed.Client``: 20,000 random rows come here, for the
        first stages of the search. In `rows_on` the rows of NumPy arrays are sent to the workers.
    likelihood : optional
        Of ``pymc_skewgp.likelihoods``, for a SkewGP; default ``BernoulliProbit()``. Its ``sigma``,
        ``cutpoints``, ``threshold``, ``rho``, ``lower`` and ``upper``, and those of likelihoods
        such as ``NegativeBinomial`` or ``StudentT``, may be random variables, and are learnt then.
        Or a function from predictors to a PyMC distribution, as for `SkewGP.posterior`; so are
        the random variables that it depends on.
    coregion : array_like or tensor, shape (K, K), optional
        B, for a likelihood of K functions, as for `SkewGP.posterior`; what is random in it is
        learnt. Default the identity.
    weights : array_like of int, shape (n,), optional
        How often each observation was made, as for `SkewGP.posterior`: whole numbers. Observations
        that are intervals cost no more for being made more often. Default once each.
    method : {"twisted", "ep"}, default "twisted"
        L-BFGS maximises the evidence of expectation propagation (EP), an approximation. "ep" stops
        there, and so does either with an approximated prior. "twisted" goes on by Newton steps on
        the evidence of the sampler that draws the posterior (importance sampling, twisted by EP; of
        sites such as Poisson counts, mirrored pairs from EP's Gaussian), which is right up to its
        standard error.
    batch_size : int, optional
        For data too large for one factorisation: the composite likelihood
        :math:`\sum_b \log p(y_b \mid \theta)` of random batches of so many labels, in which labels
        of different batches count as independent. Needs a SkewGP. Not for pseudo-points that are
        to be learnt: their prior would count once for each batch.
    start : mapping, optional
        Values of random variables by name, on their own scale. Default the model's initial point.
    n_restarts : int, default 2
        Extra searches. Sixteen candidates for each are drawn from the priors, or within a factor of
        twenty of `start` where a prior is flat; the best of them are starts.
    n_draws : int, default 256
        Quasi-random draws behind "twisted".
    random_seed : int, Generator, SeedSequence or None, default None
        Of restarts, batches and draws; give one for the same result each time.
    quiet : bool, default False
        Whether to leave out the warnings below; the result has ``flat``, ``at_bound`` and
        ``converged`` all the same.
    progressbar : bool, default True
        Show the evidence reached so far.

    Returns
    -------
    HyperparameterFit
        ``point`` (as `SkewGP.posterior` takes it), ``log_marginal_likelihood`` with its standard
        error, ``std_error`` of the hyperparameters, ``runs``, ``path``.

    Raises
    ------
    ValueError
        A model without data of that kind, nothing to learn, unknown names in `start`, more than
        three binary entries, weights that are no whole numbers.
    ImproperPriorError
        For coefficients with a flat prior that the data do not bound.
    ApproximationError
        For an approximation that was asked for and that cannot be learnt with; for dask arrays with
        weights, batches, the kernel as it is, or what has to be learnt from all rows together; for
        pseudo-points and constraints with rows on workers.
    TooManyRowsError
        For more rows than there is memory for with the kernel as it is; it says why it is that.
    ClusterLostError
        Where the workers of a cluster are lost, and no others come.

    Warns
    -----
    FlatOptimumWarning
        Where a parameter is weakly identified: a wide range of values does as well.
    BoundaryOptimumWarning
        Where a parameter went a thousandfold away from its start.
    OptimumConvergenceWarning
        Where the best search ended before it was at an optimum.
    PriorApproximationWarning
        Where the prior was approximated by itself, and that changes the log evidence at the optimum
        by more than .1 nats: the optimum is that of another prior. `SkewGP.posterior` stops there.

    References
    ----------
    .. [1] C. E. Rasmussen & C. K. I. Williams (2006), Gaussian Processes for Machine Learning,
       chapter 5.
    .. [2] A. Benavoli, D. Azzimonti & D. Piga (2020), arXiv:2005.12987.
    .. [3] C. Varin, N. Reid & D. Firth (2011), An overview of composite likelihood methods,
       Statistica Sinica 21.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> x = np.linspace(-3, 3, 40)[:, None]
    >>> y = (np.sin(2 * x[:, 0]) > 0.3).astype(int)
    >>> with pm.Model() as model:
    ...     ls = pm.InverseGamma("ls", alpha=3, beta=2)
    ...     gp = sg.SkewGP(cov_func=2.0**2 * pm.gp.cov.ExpQuad(1, ls=ls))
    >>> fit = sg.find_hyperparameters(gp, x, y, random_seed=0, progressbar=False)
    >>> print(f"ls {fit.point['ls']:.2f}")
    ls 0.53
    >>> posterior = gp.posterior(x, y, point=fit.point)
    """
    if method not in optimizers.METHODS:
        raise ValueError(f"method must be one of {optimizers.METHODS}, got {method!r}.")
    settings = optimizers.SearchSettings(
        method=method,
        batch_size=batch_size,
        n_restarts=as_count("n_restarts", n_restarts, 0),
        n_draws=as_count("n_draws", n_draws),
    )
    data = problem.TrainingData(pymc_model(model), X, y, likelihood, coregion, weights)
    rng = as_generator(random_seed)
    with progress(progressbar):
        run = problem.learn(data, settings, rng, start=start)
        stage("Log evidence at the optimum")
        report = run.report(run.estimate())
    if run.objective.density_one:
        # Coefficients are bounded by the data, as draws at the optimum show, or refused.
        root = data.model.root
        with _errors.no_warnings():
            assert isinstance(run.objective, Objective)
            latent = ModelFunctions(root, collapse_model(root), run.objective)
            list(run_tasks(latent, [run.point], [1], _DRAWS, np.random.default_rng(0)))
    if not quiet:
        warn_of(run)
        warn_of_learnt(data, run, stacklevel=2)
    return replace(report, n_observed=problem.Observed(data))


def warn_of(run: problem.LearningRun) -> None:
    at_bound, flat = ", ".join(run.at_bound), ", ".join(run.flat)
    known = {
        _errors.BoundaryOptimumWarning: at_bound
        and f"{at_bound} went a thousandfold away from the start (or as near to an end of the "
        "support): neither data nor prior bound it. It may belong to an irrelevant input, or the "
        "labels are perfectly separable. Give a prior.",
        _errors.FlatOptimumWarning: flat
        and f"{flat} is weakly identified: a factor of e changes the log marginal likelihood by "
        "less than a hundredth of a nat, so that the value found is one of many. Give a prior, or "
        "use pm.sample.",
        _errors.OptimumConvergenceWarning: not run.converged
        and "the search ended before it was at an optimum: raise n_restarts, or give a start.",
    }
    for kind, message in known.items():
        if message:
            _errors.warn(message, kind, stacklevel=3)


# The procedure of the paper, for replication: SPSA on a Frechet lower bound. Do not use it to fit.
#
# The bound is negative, and so has no information, unless the labels of every batch are almost
# certain: with B batches of probability p it is B p - (B - 1), and p is 1e-5 or so for thirty
# labels. A negative bound is flat as well, so that SPSA makes a random walk. `find_hyperparameters`
# does better with the same batches (``batch_size=``).

# Spall's (1998) exponents of the gains, and the share of iterations that steps stay long for.
_ALPHA, _GAMMA, _STABILITY = 0.602, 0.101, 0.1
# What the first step moves each coordinate by, about, which sets a; and c.
_FIRST_STEP, _PERTURBATION = 0.1, 0.1


def frechet_lower_bound(log_evidences: ArrayLike) -> float:
    r"""Lower bound of the evidence of all labels from those of its batches.

    .. math:: p(y) \ge \sum_{b=1}^{B} p(y_b) - (B - 1)

    Parameters
    ----------
    log_evidences : array_like, shape (B,)
        Log evidence of each batch.

    Returns
    -------
    float
        At most 1. Zero or negative, it has no information.

    References
    ----------
    .. [1] M. Frechet (1935), Generalisation du theoreme des probabilites totales, Fundamenta
       Mathematicae 25.
    .. [2] A. Benavoli, D. Azzimonti & D. Piga (2020), arXiv:2005.12987.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_skewgp._learn.hyperparameters import frechet_lower_bound
    >>> print(f"{frechet_lower_bound(np.log([0.9, 0.95])):.2f}")
    0.85
    >>> print(f"{frechet_lower_bound(np.log([0.1, 0.1, 0.1])):.2f}")
    -1.70
    """
    logs = np.atleast_1d(np.asarray(log_evidences, dtype=np.float64))
    # Each less 1 first: near certainty the sum would lose its digits.
    return float(1.0 + np.expm1(logs).sum())


def spsa(
    function: Function, start: Point, bounds: Bounds, n_iterations: int, rng: np.random.Generator
) -> tuple[Point, Value]:
    r"""Simultaneous perturbation stochastic approximation, maximising.

    .. math:: x_{k+1} = x_k + a_k \frac{F(x_k + c_k \delta) - F(x_k - c_k \delta)}{2 c_k}
        \delta^{-1}, \qquad a_k = \frac{a}{(A + k)^{.602}}, \quad c_k = \frac{c}{k^{.101}},

    with independent signs in :math:`\delta`.

    Parameters
    ----------
    function : callable
        Gradients are not used.
    start : Point
    bounds : list of pairs
    n_iterations : int
        Of two evaluations each.
    rng : numpy.random.Generator

    Returns
    -------
    point : Point
        The last one.
    value : Value

    References
    ----------
    .. [1] J. C. Spall (1998), An overview of the simultaneous perturbation method for efficient
       optimization, Johns Hopkins APL Technical Digest 19.
    """
    x = start.x.copy()
    low, high = np.transpose(bounds) if x.size else (x, x)
    stability = _STABILITY * n_iterations
    gain = None
    for k in range(1, n_iterations + 1):
        away = _PERTURBATION / k**_GAMMA
        signs = rng.choice([-1.0, 1.0], x.size)
        ahead, behind = np.clip(x + away * signs, low, high), np.clip(x - away * signs, low, high)
        change = function(start.at(ahead)).total - function(start.at(behind)).total
        slope = change / (2.0 * away) * signs
        size = float(np.abs(slope).max(initial=0.0))
        if gain is None and np.isfinite(size) and size > 0:
            gain = _FIRST_STEP / size * (stability + k) ** _ALPHA
        if gain is not None and np.isfinite(size):
            x = np.clip(x + gain / (stability + k) ** _ALPHA * slope, low, high)
    point = start.at(x)
    return point, function(point)


def maximize_frechet_bound(
    gp: SkewGP,
    X: ArrayLike,
    y: ArrayLike,
    *,
    batch_size: int = 30,
    n_iterations: int = 200,
    start: Mapping[str, Any] | None = None,
    random_seed: Seed = None,
    progressbar: bool = True,
) -> problem.HyperparameterFit:
    """Hyperparameters by the procedure of Benavoli, Azzimonti & Piga (2020), for replication only.

    SPSA on `frechet_lower_bound` of random batches. Priors are left out, as they are there. Use
    `find_hyperparameters` to fit a model.

    Parameters
    ----------
    gp : SkewGP
        Made inside a model, as for `find_hyperparameters`; it must not have binary variables.
    X, y : array_like, shapes (n, d) and (n,)
        Inputs and labels.
    batch_size : int, default 30
        Labels in a batch.
    n_iterations : int, default 200
        Of simultaneous perturbation stochastic approximation (SPSA); each evaluates all batches
        twice.
    start : mapping, optional
        Values of random variables by name, on their own scale.
    random_seed : int, Generator, SeedSequence or None, default None
        Of batches and perturbations; give one for the same result each time.
    progressbar : bool, default True
        Show progress.

    Returns
    -------
    HyperparameterFit
        ``kind`` is "frechet"; ``path["total"]`` is the bound, a probability, and
        ``path["log_evidence"]`` the composite likelihood of the same batches.
        ``log_marginal_likelihood`` is that of all labels.

    Raises
    ------
    ValueError
        As `find_hyperparameters`, and for binary variables.

    References
    ----------
    .. [1] A. Benavoli, D. Azzimonti & D. Piga (2020), arXiv:2005.12987.
    """
    began = time.perf_counter()
    rng = as_generator(random_seed)
    data = problem.TrainingData(gp, X, y)
    found = problem.process_objective(data, as_count("batch_size", batch_size), rng, start)
    objective, coordinates = found.objective, found.objective.coordinates
    if coordinates.binary:
        raise ValueError(
            f"{', '.join(coordinates.binary_names)} cannot be perturbed: give the phases as "
            "numbers."
        )
    bounds = coordinates.bounds(found.origin)

    def bound(point: Point) -> Value:
        logs = np.array([x.value for x in objective.estimates(point, _DRAWS, 0)])
        unknown = np.full(point.x.size, np.nan)
        return Value(frechet_lower_bound(logs), float(logs.sum()), unknown)

    log = optimizers.EvaluationLog(coordinates.labels)
    n_iterations = as_count("n_iterations", n_iterations)
    with progress(progressbar):
        point, _ = spsa(log.run("spsa", bound), Point(found.origin), bounds, n_iterations, rng)
    whole = objective.on([found.arrays])
    return problem.HyperparameterFit(
        point=objective.named(point),
        log_marginal_likelihood=whole.estimate(point, problem.EVIDENCE_DRAWS, 0),
        log_prior=objective.log_prior(point),
        std_error={},
        kind="frechet",
        converged=True,
        at_bound=[],
        flat=[],
        runs=log.runs(),
        path=log.path(),
        seconds=time.perf_counter() - began,
    )
