"""Simulation-based calibration of a way to the posterior of f."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import cloudpickle
import numpy as np
from numpy.typing import ArrayLike
from xarray import DataTree

from pymc_skewgp._diagnostics.approximations import METHODS, ROW_METHODS, Approximation, Problem
from pymc_skewgp._diagnostics.marginals import DrawnMarginals, as_number, quiet_pymc
from pymc_skewgp._errors import no_warnings
from pymc_skewgp._limits import progress, steps
from pymc_skewgp._model.gp.functions import as_point
from pymc_skewgp._model.gp.skewgp import SkewGP
from pymc_skewgp._observations.binary import BernoulliProbit
from pymc_skewgp._observations.likelihood import Data, Likelihood, as_inputs
from pymc_skewgp._posterior.output import as_datatree
from pymc_skewgp._posterior.prior import DataSet, Prior, as_data_sets
from pymc_skewgp._sun.parameters import SunParameters, sun_draws
from pymc_skewgp._validation import FloatArray, Seed, as_count

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
