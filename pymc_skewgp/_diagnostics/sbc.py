"""Simulation-based calibration of a way to the posterior of f."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import cloudpickle
import numpy as np
from numpy.typing import ArrayLike
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from scipy.special import ndtr
from xarray import DataTree

from pymc_skewgp._diagnostics.approximations import METHODS, Approximation, Problem
from pymc_skewgp._diagnostics.marginals import DrawnMarginals
from pymc_skewgp._diagnostics.quiet_pymc import quiet_pymc
from pymc_skewgp._diagnostics.seeds import as_number
from pymc_skewgp._errors import no_warnings
from pymc_skewgp._model.gp.functions import as_point
from pymc_skewgp._model.gp.skewgp import SkewGP
from pymc_skewgp._observations.arguments import as_inputs
from pymc_skewgp._posterior.prior import Prior
from pymc_skewgp._sun.draws import independent_sun_draws
from pymc_skewgp._sun.parameters import SunParameters
from pymc_skewgp._validation import FloatArray, Seed, as_count

_CHUNK = 20  # simulations that one worker does before it reports


def sbc(
    gp: SkewGP,
    X: ArrayLike,
    *,
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

    Again and again a function f is drawn from the prior, labels from
    :math:`P(y_i = 1) = \Phi(f(x_i))`, and the posterior of f given the labels is found by `method`.
    If that is right, the place of the true :math:`f(x_i)` in its posterior is uniform on (0, 1)
    (Talts et al. 2018).

    Parameters
    ----------
    gp : SkewGP
        The prior. Pseudo-points go with "exact", "lin_ess" and "ep"; other methods refuse them.
    X : array_like, shape (n, d)
        Inputs.
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
        Group ``prior_sbc`` with ``f`` (chain, draw, obs_id): for each simulation and point the
        share of draws below the truth (between the two shares next to it at random), or the
        approximation's distribution function there. ``az.plot_ecdf_pit(dt, group="prior_sbc")``
        and `coverage` take it. Group ``constant_data``: ``X``.

    Raises
    ------
    ValueError
        For an unknown method, and as `SkewGPPosterior`.
    TypeError
        When `gp` is not a SkewGP.

    References
    ----------
    .. [1] S. Talts, M. Betancourt, D. Simpson, A. Vehtari & A. Gelman (2018), Validating Bayesian
       inference algorithms with simulation-based calibration, arXiv:1804.06788.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> gp = sg.SkewGP(cov_func=4.0 * pm.gp.cov.ExpQuad(1, ls=1.0), pseudo_points=[[0.5]])
    >>> ranks = sg.sbc(gp, np.linspace(-1, 1, 4)[:, None], n_simulations=20, progressbar=False)
    >>> dict(ranks["prior_sbc"].sizes)
    {'chain': 1, 'draw': 20, 'obs_id': 4}
    """
    if not isinstance(gp, SkewGP):
        raise TypeError(f"gp must be a SkewGP, got {type(gp).__name__}.")
    if not callable(method) and method not in list(METHODS):  # a list of names is no key
        raise ValueError(f"method has to be one of {list(METHODS)}, got {method!r}.")
    inputs = as_inputs("X", X)
    n, count = inputs.shape[0], as_count("n_simulations", n_simulations)
    common: dict[str, Any] = {
        "draws": as_count("draws", draws),
        "chains": 1,
        "tune": as_count("tune", tune, 0),
        "options": dict(options or {}),
    }
    values = as_point(point)
    prior = gp.posterior(inputs, np.zeros(n, dtype=int), point=values).prior
    root = np.random.SeedSequence([as_number(random_seed)])
    rng = np.random.default_rng(root.spawn(1)[0])
    none = np.zeros((0, inputs.shape[1]))
    setting = _Setting(method, Problem(gp, values, prior, inputs, np.zeros(n), none, **common))
    truth = draw_prior(prior, inputs, count, rng)
    labels = (rng.random(truth.shape) < ndtr(truth)).astype(np.int64)
    seeds = root.spawn(count)
    chunks = [slice(start, start + _CHUNK) for start in range(0, count, _CHUNK)]
    work = [(setting, truth[c], labels[c], seeds[c]) for c in chunks]
    columns = (TextColumn("{task.description}"), MofNCompleteColumn(), TimeElapsedColumn())
    places: list[FloatArray] = []
    with Progress(*columns, disable=not progressbar) as progress:
        task = progress.add_task("Simulating", total=count)
        for done in _run_all(work, n_jobs):
            places += done
            progress.advance(task, sum(len(block) for block in done))
    from arviz_base import from_dict

    tree = from_dict(
        {
            "prior_sbc": {"f": np.concatenate(places)[None]},
            "constant_data": {"X": inputs},
        },
        dims={"f": ["obs_id"], "X": ["obs_id", "feature"]},
        coords={"obs_id": np.arange(n), "feature": np.arange(inputs.shape[1])},
        check_conventions=False,
    )
    name = method if isinstance(method, str) else getattr(method, "__name__", repr(method))
    tree["prior_sbc"].attrs.update({"method": name, "n_simulations": count, "draws": draws})
    return tree


def draw_prior(prior: Prior, X: FloatArray, n_draws: int, rng: np.random.Generator) -> FloatArray:
    """Independent draws of f at `X`, shape (n_draws, n), from a GP or a SkewGP prior."""
    cross = prior.covariance("X", X, prior.pseudo_points) * prior.scale
    sun = SunParameters(
        prior.mean("X", X), prior.covariance("X", X), cross, prior.truncation, prior.latent_cov
    )
    with no_warnings():  # of a jitter that the labels' noise drowns
        return independent_sun_draws(sun, n_draws, rng)


def _run_all(work: list[Any], n_jobs: int | None) -> Any:
    """Results of `_simulate`, in groups as they come; the order is that of `work`."""
    try:
        import joblib
    except ImportError:
        if n_jobs not in (None, 1):
            raise ModuleNotFoundError(
                f"n_jobs={n_jobs} needs joblib: pip install joblib.", name="joblib"
            ) from None
        for arguments in work:
            yield [_simulate(*arguments)]
        return
    together = joblib.Parallel(n_jobs=n_jobs)
    size = max(1, joblib.effective_n_jobs(n_jobs))
    for start in range(0, len(work), size):
        some = work[start : start + size]
        yield together(joblib.delayed(_simulate_parcel)(_Parcel(a)) for a in some)


class _Setting(NamedTuple):
    """What all simulations share: the method, and the problem without its labels and seed."""

    method: str | Callable[[Problem], Approximation]
    problem: Problem


class _Parcel:
    """Arguments that a model of PyMC may hang on: joblib's own pickling knows no such thing."""

    def __init__(self, arguments: Any) -> None:
        self.arguments = arguments

    def __getstate__(self) -> dict[str, Any]:
        return {"arguments": cloudpickle.dumps(self.arguments)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.arguments = cloudpickle.loads(state["arguments"])


def _simulate_parcel(parcel: _Parcel) -> FloatArray:
    return _simulate(*parcel.arguments)


def _simulate(
    setting: _Setting, truth: FloatArray, labels: Any, seeds: list[np.random.SeedSequence]
) -> FloatArray:
    """Place of the truth in each posterior, shape (n_simulations, n)."""
    method, problem = setting
    run = METHODS[method] if isinstance(method, str) else method
    places = np.empty(truth.shape)
    for i, seed in enumerate(seeds):
        number, tie = (int(x) for x in seed.generate_state(2))
        with no_warnings(), quiet_pymc():
            marginals = run(replace(problem, labels=labels[i], seed=number)).marginals
        places[i] = marginals.cdf_values(truth[i])
        if isinstance(marginals, DrawnMarginals):
            # Of L draws r are below: uniform between r / (L + 1) and (r + 1) / (L + 1).
            n_draws = marginals.draws.shape[0] * marginals.draws.shape[1]
            within = np.random.default_rng(tie).random(truth.shape[1])
            places[i] = (places[i] * n_draws + within) / (n_draws + 1)
    return places
