"""What each way to the posterior gets wrong: by the exact one, and by simulated truths."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

import cloudpickle
import numpy as np
from numpy.typing import ArrayLike
from xarray import DataTree

from pymc_skewgp._diagnostics import approximations as ways
from pymc_skewgp._diagnostics.approximations import METHODS, ROW_METHODS, Approximation, Problem
from pymc_skewgp._diagnostics.marginals import DrawnMarginals, as_number, quiet_pymc
from pymc_skewgp._diagnostics.measures import Standard, as_summary, as_table, measured
from pymc_skewgp._errors import no_warnings
from pymc_skewgp._limits import progress, stage, steps
from pymc_skewgp._model.gp.functions import as_point
from pymc_skewgp._model.gp.skewgp import SkewGP
from pymc_skewgp._observations.binary import BernoulliProbit
from pymc_skewgp._observations.likelihood import Data, Likelihood, as_inputs, as_labels
from pymc_skewgp._observations.sites import SiteLikelihood
from pymc_skewgp._posterior.output import LatentMarginals, as_datatree
from pymc_skewgp._posterior.posterior import SkewGPPosterior
from pymc_skewgp._posterior.prior import DataSet, Prior, as_data_sets, as_likelihood
from pymc_skewgp._sun.parameters import SunParameters, sun_draws
from pymc_skewgp._validation import FloatArray, Seed, as_count

if TYPE_CHECKING:
    from pandas import DataFrame

# Weighted draws behind the reference, which the errors of everything else are measured by.
_REFERENCE_DRAWS = 2048


class Comparison(NamedTuple):
    """Result of `compare_approximations`.

    Attributes
    ----------
    table : pandas.DataFrame
        A row for each method.
    trees : dict of DataTree
        Draws, by method; without those that failed.
    """

    table: "DataFrame"
    trees: dict[str, DataTree]

    @property
    def summary(self) -> "DataFrame":
        """The columns of `table` that matter most, with their Monte Carlo errors, as text.

        The distance is the Wasserstein one, in exact standard deviations; "< ..." stands where
        Monte Carlo error alone explains a value.
        """
        return as_summary(self.table)

    def __repr__(self) -> str:
        return "\n".join([self.summary.to_string(), *self._notes()])

    def _repr_html_(self) -> str:
        notes = "".join(f"<div>{escape(note)}</div>" for note in self._notes())
        return f"{self.summary.to_html()}{notes}"

    def _notes(self) -> list[str]:
        failed = self.table["failure"]
        return [
            "± Monte Carlo standard error; < x: Monte Carlo error alone could give up to x",
            *(f"{name} failed: {why.splitlines()[0]}" for name, why in failed.items() if why),
        ]


def compare_approximations(
    gp: SkewGP,
    X: ArrayLike,
    y: ArrayLike,
    *,
    likelihood: Likelihood | None = None,
    point: Mapping[str, Any] | None = None,
    Xnew: ArrayLike | None = None,
    ynew: ArrayLike | None = None,
    methods: Sequence[str] | None = None,
    draws: int = 1000,
    tune: int = 1000,
    chains: int = 4,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    random_seed: Seed = None,
    progressbar: bool = True,
) -> Comparison:
    r"""Run each approximation on one data set and measure it by the exact posterior.

    The model: f from the prior `gp`, data by `likelihood`, by default labels with
    :math:`P(y_i = 1) = \Phi(f(x_i))`, hyperparameters as they are given. The reference is the
    exact posterior as a mixture over 2048 weighted draws of u, apart from the draws of the method
    "exact".

    Parameters
    ----------
    gp : SkewGP
        The prior. Pseudo-points go with "exact", "lin_ess" and "ep"; other methods refuse them.
    X : array_like, shape (n, d)
        Inputs.
    y : array_like, shape (n,)
        Labels, 0 and 1, or what `likelihood` asks for.
    likelihood : optional
        Of ``pymc_skewgp.likelihoods``. Default ``BernoulliProbit()``. Under others there are no
        scores. Those that are one distribution of PyMC and no rows of f (``BernoulliLogit``,
        ``BinomialLogit``, ``OrderedLogit``, ``Poisson``, ``NegativeBinomial``, ``Gamma``,
        ``StudentT``, ``Laplace``) have all methods but "lin_ess"; the others have "exact",
        "lin_ess", "ep" and "laplace". Where it is about several functions, f is the values of all
        of them.
    point : mapping, optional
        Values, by name, of random variables among the hyperparameters; for instance ``fit.point``
        of `find_hyperparameters`.
    Xnew, ynew : array_like, optional
        Test inputs, shape (t, d), and their labels. Latent marginals are compared at the data and
        at `Xnew` (new points, with noise of the kernel of their own), predictive probabilities at
        `Xnew` (without it at the data); scores need `ynew`.
    methods : sequence of str, optional
        Of "exact" (twisted sampler), "lin_ess", "ep" (expectation propagation), "laplace", "advi",
        "fullrank_advi" (``pm.fit``), "latent_nuts" (``pm.gp.Latent``), "hsgp_nuts"
        (``pm.gp.HSGP``), "extras_laplace" and "extras_pathfinder" (pymc-extras). Default all that
        take the prior, which takes minutes; under likelihoods other than labels those of "exact",
        "lin_ess", "ep" and "laplace" that take it.
    draws, tune, chains : int
        Of methods that draw.
    options : mapping, optional
        More arguments by method, handed to ``posterior.sample``, ``pm.fit``, ``pm.sample``,
        ``pm.gp.HSGP`` (m, c, L), ``fit_laplace`` or ``fit_pathfinder``.
    random_seed : int, Generator, SeedSequence or None
        Source of randomness of all methods.
    progressbar : bool, default True
        Show the methods as they run.

    Returns
    -------
    Comparison
        Printed, it is a summary; all numbers are in ``table``, which has for each method

        * ``evidence``, ``evidence_se``: log marginal likelihood; of variational methods the lower
          bound;
        * ``coverage_50``, ..., ``coverage_95`` and ``_se``: mean exact probability of its central
          intervals for f (see `coverage`);
        * ``wasserstein``, ``_se``, ``_noise``: mean 1-Wasserstein distance of its marginals of f to
          the exact ones, in exact standard deviations;
        * ``skewness_error``, ``_se``, ``_noise``: mean absolute error of the skewness of f;
        * ``p_error``, ``_se``, ``_noise``: mean absolute error of the predictive probability: of a
          label, or of every category or limit that the likelihood knows;
        * ``information`` (bits beyond the base rate) and ``brier``, of `ynew`;
        * ``ess_per_second``: smallest bulk effective sample size of f at the data over the seconds
          of drawing, tuning included and compilation left out; of samplers only;
        * ``seconds``: of fitting, drawing and forecasting, the compilation of models included;
          what the comparison itself computes is not in it;
        * ``failure``: empty, or why there is nothing else in the row.

        Columns in ``_se`` are Monte Carlo standard errors. Distances and errors of draws are not 0
        where the draws are exact: ``_noise`` is what Monte Carlo error alone comes to on average,
        for as many effective draws as there were. A value up to that and two standard errors says
        nothing against a method, and the summary shows it as "< ...".

    Raises
    ------
    TypeError
        When `gp` is not a SkewGP.
    ValueError
        For an unknown method, or data as `SkewGPPosterior` refuses them.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> X = np.linspace(-2, 2, 9)[:, None]
    >>> y = (X[:, 0] > 0.3).astype(int)
    >>> gp = sg.SkewGP(cov_func=9.0 * pm.gp.cov.ExpQuad(1, ls=1.0))
    >>> found = sg.compare_approximations(
    ...     gp, X, y, methods=["exact", "laplace"], random_seed=1, progressbar=False
    ... )
    >>> found.summary.columns.tolist()[:3]
    ['log marginal likelihood', 'coverage 50 %', 'coverage 95 %']
    >>> table = found.table
    >>> bool(table.loc["laplace", "wasserstein"] > 5 * table.loc["exact", "wasserstein"])
    True
    """
    if not isinstance(gp, SkewGP):
        raise TypeError(f"gp must be a SkewGP, got {type(gp).__name__}.")
    known = as_likelihood(likelihood)
    names = _methods(methods, gp, known)
    options = {} if options is None else options
    _known("options", options)
    inputs = as_inputs("X", X)
    data = as_labels(y, inputs.shape[0]) if isinstance(known, BernoulliProbit) else y
    new, test = _new_points(Xnew, ynew, inputs.shape[1])
    if test is not None and data is y:
        raise ValueError(f"scores are of labels: under {known!r} leave ynew out.")
    counts: dict[str, Any] = {
        "draws": as_count("draws", draws, 4),
        "tune": as_count("tune", tune, 0),
        "chains": as_count("chains", chains),
    }
    seed = as_number(random_seed)
    point = as_point(point)
    exact = gp.posterior(
        inputs,
        data,
        likelihood=known,
        point=point,
        n_draws=_REFERENCE_DRAWS,
        random_seed=np.random.SeedSequence([seed, 2]),  # [seed] alone is what methods are given
    )
    # Its parameters numbers, also where they are random variables of a model.
    known = as_likelihood(exact.likelihood)
    standard = Standard(_reference(exact, new), data, test, known)
    counts |= {"seed": seed, "likelihood": known}
    problem = Problem(gp, point, exact.prior, inputs, data, new, **counts)
    rows: dict[str, dict[str, Any]] = {}
    trees: dict[str, DataTree] = {}
    with progress(progressbar):
        for i, name in enumerate(names):
            stage(f"Comparing: {name}, method {i + 1} of {len(names)}")
            own = replace(problem, options=dict(options.get(name, {})))
            rows[name], tree = _run(name, own, standard)
            if tree is not None:
                trees[name] = tree
    return Comparison(as_table(rows), trees)


def _run(name: str, problem: Problem, standard: Standard) -> tuple[dict[str, Any], DataTree | None]:
    """Row of a method in the table, and its draws; a failure is part of the row."""
    started = time.perf_counter()
    try:
        with no_warnings(), quiet_pymc():  # of convergence, say: the table shows it
            found = METHODS[name](problem)
        row = {"seconds": time.perf_counter() - started, "failure": ""}
        return row | measured(found, standard), found.tree
    except Exception as error:
        seconds = time.perf_counter() - started
        return {"seconds": seconds, "failure": f"{type(error).__name__}: {error}"}, None


def _reference(exact: SkewGPPosterior, new: FloatArray) -> LatentMarginals:
    """Marginals at the data and at new points."""
    marginals = exact.marginals()
    return marginals.with_points(exact.marginals(new)) if new.shape[0] else marginals


def _methods(methods: Any, gp: SkewGP, likelihood: Likelihood) -> list[str]:
    """Those asked for, or all that take the prior and the likelihood."""
    if methods is not None:
        names = _known("methods", methods)
    else:
        names = list(ways.SKEW_PRIOR_METHODS if gp.n_pseudo_points else METHODS)
        if not (isinstance(likelihood, BernoulliProbit) and likelihood.independent):
            served = ways.SITE_METHODS if isinstance(likelihood, SiteLikelihood) else ROW_METHODS
            names = [name for name in names if name in served]
    if not names:
        raise ValueError(f"methods is empty; there are {list(METHODS)}.")
    return names


def _new_points(
    Xnew: ArrayLike | None, ynew: ArrayLike | None, n_columns: int
) -> tuple[FloatArray, FloatArray | None]:
    """New points, none without `Xnew`, and their labels 0 and 1 where there are any."""
    if Xnew is None:
        if ynew is not None:
            raise ValueError("ynew are the labels of Xnew: give that as well.")
        return np.zeros((0, n_columns)), None
    new = as_inputs("Xnew", Xnew, n_columns)
    if ynew is None:
        return new, None
    return new, as_labels(ynew, new.shape[0], "ynew", "Xnew").astype(float)


def _known(what: str, names: Any) -> list[str]:
    if isinstance(names, str):
        names = [names]
    unknown = [name for name in names if name not in METHODS]
    if unknown:
        raise ValueError(f"{what} has unknown names {unknown}; there are {list(METHODS)}.")
    return list(dict.fromkeys(names))


# Simulation-based calibration of a way to the posterior of f.

_SEVERAL_FUNCTIONS = ("exact", "lin_ess")
_CHUNK = 20  # simulations that one worker does before it reports


def sbc(
    gp: SkewGP,
    X: ArrayLike,
    y: ArrayLike | None = None,
    *,
    likelihood: Any = None,
    simulate: Callable[[FloatArray, np.random.Generator], ArrayLike] | None = None,
    method: str | Callable[[Problem], Approximation] = "exact",
    n_simulations: int = 500,
    draws: int = 99,
    tune: int = 1000,
    point: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    random_seed: Seed = None,
    n_jobs: int | None = None,
    progressbar: bool = True,
) -> DataTree:
    r"""Calibrate by simulation: whether the truth is a draw like any other.

    Again and again a function f is drawn from the prior, data from :math:`p(y \mid f)`, by default
    labels from :math:`P(y_i = 1) = \Phi(f(x_i))`, and the posterior of f given the data is found by
    `method`. If that is right, the place of the true :math:`f(x_i)` in its posterior is uniform on
    (0, 1) (Talts et al. 2018), and so is the place of any number that f and y decide.

    Parameters
    ----------
    gp : SkewGP
        The prior. Pseudo-points go with "exact", "lin_ess" and "ep"; other methods refuse them.
    X : array_like, shape (n, d)
        Inputs.
    y : array_like, optional
        Data of the form that is simulated, as `SkewGP.posterior` takes them: new data are drawn at
        their rows. They say, for instance, which items of X are compared with each other; else
        their values do not matter. Default zeros, one for each row of X.
    likelihood : optional
        Of ``pymc_skewgp.likelihoods``, default ``BernoulliProbit()``.
    simulate : callable, optional
        ``simulate(f, rng)`` draws one data set given the true f, shape (n,), or (n, K) where the
        likelihood is about K functions. Default by the likelihood itself. Data that it says
        otherwise of show what a wrong likelihood does.
    method : str or callable, default "exact"
        One of those of `compare_approximations`, or a function from a `Problem` to an
        `Approximation`.
    n_simulations : int, default 500
        Simulations.
    draws : int, default 99
        Draws behind each rank, a single chain. They should be nearly independent: ranks in a chain
        that mixes slowly are not uniform even where the chain is right.
    tune : int, default 1000
        Of samplers with NUTS.
    point : mapping, optional
        Values of random variables among the hyperparameters.
    options : mapping, optional
        More arguments for the method.
    random_seed : int, Generator, SeedSequence or None
        Source of randomness; results do not depend on `n_jobs`.
    n_jobs : int, optional
        Processes, through joblib where it is installed: ``joblib.parallel_config`` sets what None
        means, so that a dask cluster does the work. Each takes some ten seconds to start: for
        exact draws of few points one process is faster.
    progressbar : bool, default True
        Show progress.

    Returns
    -------
    DataTree
        Group ``prior_sbc`` with ``f`` (chain, draw, obs_id; and function, where there are several):
        for each simulation and point the share of draws below the truth (between the two shares
        next to it at random), or the approximation's distribution function there. The same for
        ``f_mean``, the mean of f over the points, and for ``log_likelihood``,
        :math:`\log p(y \mid f)` (chain, draw), both by draws: errors in the marginals of f may
        cancel from one data set to the next, as those of a method that gives back the prior do,
        and the log likelihood shows them (Modrak et al. 2023).
        ``az.plot_ecdf_pit(dt, group="prior_sbc")`` and `coverage` take it. Group
        ``constant_data``: ``X``.

    Raises
    ------
    ValueError
        For an unknown method, or one that does not know the likelihood, for data
        that are not of the likelihood's form, and as `SkewGPPosterior`.
    TypeError
        When `gp` is not a SkewGP, `simulate` not callable.

    References
    ----------
    .. [1] S. Talts, M. Betancourt, D. Simpson, A. Vehtari & A. Gelman (2018), Validating Bayesian
       inference algorithms with simulation-based calibration, arXiv:1804.06788.
    .. [2] M. Modrak, A. H. Moon, S. Kim, P. Burkner, N. Huurre, K. Faltejskova, A. Gelman & A.
       Vehtari (2023), Simulation-based calibration checking for Bayesian computation: the choice
       of test quantities shapes sensitivity, doi:10.1214/23-BA1404.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> gp = sg.SkewGP(cov_func=4.0 * pm.gp.cov.ExpQuad(1, ls=1.0), pseudo_points=[[0.5]])
    >>> ranks = sg.sbc(gp, np.linspace(-1, 1, 4)[:, None], n_simulations=20, progressbar=False)
    >>> dict(ranks["prior_sbc"].sizes)
    {'chain': 1, 'draw': 20, 'obs_id': 4}

    Under another likelihood:

    >>> ratings = sg.likelihoods.Gaussian(0.5)
    >>> ranks = sg.sbc(gp, [[0.0], [1.0]], likelihood=ratings, n_simulations=20, progressbar=False)
    >>> sorted(ranks["prior_sbc"])
    ['f', 'f_mean', 'log_likelihood']
    """
    if not isinstance(gp, SkewGP):
        raise TypeError(f"gp must be a SkewGP, got {type(gp).__name__}.")
    if not callable(method) and method not in list(METHODS):  # a list of names is no key
        raise ValueError(f"method has to be one of {list(METHODS)}, got {method!r}.")
    if simulate is not None and not callable(simulate):
        raise TypeError(f"simulate must be a function of f and rng, got {simulate!r}.")
    inputs = as_inputs("X", X)
    count = as_count("n_simulations", n_simulations)
    common: dict[str, Any] = {
        "draws": as_count("draws", draws),
        "chains": 1,
        "tune": as_count("tune", tune, 0),
        "options": dict(options or {}),
    }
    values = as_point(point)
    prior, form = _prior_and_form(gp, inputs, y, likelihood, values, method)
    known, k = form.likelihood, form.values.n_functions
    root = np.random.SeedSequence([as_number(random_seed)])
    rng = np.random.default_rng(root.spawn(1)[0])
    none = np.zeros((0, inputs.shape[1]))
    setting = Problem(gp, values, prior, inputs, form.y, none, likelihood=known, **common)
    run = METHODS[method] if isinstance(method, str) else method
    truth = draw_prior(prior, form.X, count * k, rng)
    truth = truth if k == 1 else truth.reshape(count, k, -1).swapaxes(1, 2)
    data = _simulated(form, truth, simulate, rng)
    seeds = root.spawn(count)
    chunks = [slice(start, start + _CHUNK) for start in range(0, count, _CHUNK)]
    work = [(run, setting, truth[c], data[c], seeds[c]) for c in chunks]
    simulated = _run_all(work, n_jobs)
    with progress(progressbar):
        places = list(steps(simulated, "Simulating", len(work)))
    name = method if isinstance(method, str) else getattr(method, "__name__", repr(method))
    attrs = {"method": name, "n_simulations": count, "draws": draws}
    return _as_tree(_together(places, np.concatenate), form, attrs)


def draw_prior(prior: Prior, X: FloatArray, n_draws: int, rng: np.random.Generator) -> FloatArray:
    """Independent draws of f at `X`, shape (n_draws, n), from a GP or a SkewGP prior."""
    cross = prior.covariance("X", X, prior.pseudo_points) * prior.scale
    sun = SunParameters(
        prior.mean("X", X), prior.covariance("X", X), cross, prior.truncation, prior.latent_cov
    )
    with no_warnings():  # of a jitter that the labels' noise drowns
        return sun_draws(sun, n_draws, rng)


def _prior_and_form(
    gp: SkewGP, X: FloatArray, y: Any, likelihood: Any, point: Mapping[str, Any], method: Any
) -> tuple[Prior, DataSet]:
    """The prior, and data of the form that is simulated."""
    if isinstance(likelihood, Likelihood) and not likelihood.has_data:
        raise ValueError(f"{likelihood!r} has no data to simulate: it is a statement about f.")
    form = np.zeros(X.shape[0]) if y is None else y
    try:
        posterior = gp.posterior(X, form, point=point, likelihood=likelihood)
    except (TypeError, ValueError) as error:
        if y is not None or likelihood is None:
            raise
        raise type(error)(
            "without y the form of the data is taken from zeros, which this likelihood refuses: "
            f"give y of the form that is simulated. {error}"
        ) from error
    (found,) = as_data_sets(X, form, posterior.likelihood)
    known = found.likelihood
    methods = ROW_METHODS if found.values.n_functions == 1 else _SEVERAL_FUNCTIONS
    is_plain = isinstance(known, BernoulliProbit) and known.independent
    if not (callable(method) or is_plain or method in methods):
        raise ValueError(
            f"method {method!r} does not know {known!r}: use one of {list(methods)}, or a "
            "function of your own."
        )
    return posterior.prior, found


def _simulated(
    form: DataSet,
    truth: FloatArray,
    simulate: Callable[[FloatArray, np.random.Generator], ArrayLike] | None,
    rng: np.random.Generator,
) -> list[Data]:
    """One data set for each true function."""
    likelihood = form.likelihood
    if simulate is not None:
        return [likelihood.as_data(simulate(f, rng), form.X.shape[0]) for f in truth]
    found = likelihood.replicate(form.y, truth, likelihood.log_likelihood(form.y, truth), rng)
    if found is None:
        raise TypeError(f"data of {likelihood!r} cannot be drawn: give simulate.")
    return list(found)


def _together(places: list[dict[str, FloatArray]], join: Any) -> dict[str, FloatArray]:
    return {name: join([block[name] for block in places]) for name in places[0]}


def _as_tree(found: dict[str, FloatArray], form: DataSet, attrs: dict[str, Any]) -> DataTree:
    functions = [form.likelihood.function_dim] if found["f"].ndim == 3 else []
    known = form.likelihood.coords(form.y)
    return as_datatree(
        {
            "prior_sbc": {name: block[None] for name, block in found.items()},
            "constant_data": {"X": form.X},
        },
        dims={"f": ["obs_id", *functions], "f_mean": functions, "X": ["obs_id", "feature"]},
        coords={
            "obs_id": np.arange(form.X.shape[0]),
            "feature": np.arange(form.X.shape[1]),
            **{name: known.get(name, np.arange(found["f"].shape[2])) for name in functions},
        },
        attrs=attrs,
    )


def _run_all(work: list[Any], n_jobs: int | None) -> Any:
    """Results of `_simulate`, as they come; the order is that of `work`."""
    try:
        import joblib
    except ImportError:
        if n_jobs not in (None, 1):
            raise ModuleNotFoundError(
                f"n_jobs={n_jobs} needs joblib: pip install joblib.", name="joblib"
            ) from None
        return map(_simulate, work)
    together = joblib.Parallel(n_jobs=n_jobs, return_as="generator")
    return together(joblib.delayed(_simulate)(_Work(each)) for each in work)


class _Work(tuple[Any, ...]):
    """Arguments that a model of PyMC may hang on: joblib's own pickling knows no such thing."""

    def __reduce__(self) -> Any:
        return cloudpickle.loads, (cloudpickle.dumps(tuple(self)),)


def _simulate(work: tuple[Any, ...]) -> dict[str, FloatArray]:
    """Place of the truth in each posterior, (n_simulations, ...), by quantity.

    Of the method, the problem without its data and seed, and the functions, data and seeds.
    """
    run, problem, truth, data, seeds = work
    places = []
    for f, y, seed in zip(truth, data, seeds, strict=True):
        number, tie = (int(x) for x in seed.generate_state(2))
        with no_warnings(), quiet_pymc():
            found = run(replace(problem, labels=y, seed=number))
        rng = np.random.default_rng(tie)
        drawn = np.asarray(found.tree["posterior"].dataset["f"].values).reshape(-1, *f.shape)
        place = found.marginals.cdf_values(f.ravel()).reshape(f.shape)
        if isinstance(found.marginals, DrawnMarginals):
            place = _within(place, len(drawn), rng)
        at = {"f": place}
        values = _quantities(problem.likelihood, drawn, y)
        for name, value in _quantities(problem.likelihood, f, y).items():
            at[name] = _within((values[name] < value).mean(axis=0), len(drawn), rng)
        places.append(at)
    return _together(places, np.stack)


def _quantities(likelihood: Likelihood, f: FloatArray, y: Data) -> dict[str, FloatArray]:
    """Numbers that f, shape (..., n) or (..., n, K), and the data decide together."""
    points = -1 if likelihood.n_functions(y) == 1 else -2
    log_likelihood = likelihood.log_likelihood(y, f).sum(axis=-1)
    return {"f_mean": f.mean(axis=points), "log_likelihood": np.asarray(log_likelihood)}


def _within(share: FloatArray, n_draws: int, rng: np.random.Generator) -> FloatArray:
    """Of L draws r are below: uniform between r / (L + 1) and (r + 1) / (L + 1)."""
    within = rng.random(np.shape(share))
    return np.asarray((share * n_draws + within) / (n_draws + 1))
