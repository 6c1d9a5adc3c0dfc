"""`compare_approximations`: what each way to the posterior of f gets wrong, and what it costs."""

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from xarray import DataTree

from pymc_skewgp._diagnostics.approximations import METHODS, Approximation, Problem
from pymc_skewgp._diagnostics.coverage import PROBS, mean_coverage
from pymc_skewgp._diagnostics.distances import skewness_error, wasserstein
from pymc_skewgp._diagnostics.marginals import DrawnMarginals
from pymc_skewgp._diagnostics.quiet_pymc import quiet_pymc
from pymc_skewgp._diagnostics.scores import brier_score, information_score
from pymc_skewgp._errors import no_warnings
from pymc_skewgp._model.gp.functions import as_point
from pymc_skewgp._model.gp.skewgp import SkewGP
from pymc_skewgp._observations.arguments import as_inputs, as_signs
from pymc_skewgp._observations.bernoulli_probit import Probability
from pymc_skewgp._posterior.latent_marginals import LatentMarginals
from pymc_skewgp._validation import FloatArray, as_count

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


def compare_approximations(
    X: ArrayLike,
    y: ArrayLike,
    cov_func: Any,
    *,
    mean_func: Any = None,
    point: Mapping[str, Any] | None = None,
    Xnew: ArrayLike | None = None,
    ynew: ArrayLike | None = None,
    methods: Sequence[str] | None = None,
    draws: int = 1000,
    tune: int = 1000,
    chains: int = 4,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    random_seed: int = 0,
    progressbar: bool = True,
) -> Comparison:
    r"""Run each approximation on one classification problem and measure it by the exact posterior.

    The model: f from the GP with `mean_func` and `cov_func`, :math:`P(y_i = 1) = \Phi(f(x_i))`,
    hyperparameters as they are given. The reference is the exact posterior as a mixture over 2048
    weighted draws of u, apart from the draws of the method "exact".

    Parameters
    ----------
    X : array_like, shape (n, d)
        Inputs.
    y : array_like, shape (n,)
        Labels, 0 and 1.
    cov_func : pymc.gp.cov.Covariance
        Covariance function.
    mean_func : pymc.gp.mean.Mean, optional
        Mean function. Default zero.
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
        (``pm.gp.HSGP``), "extras_laplace" and "extras_pathfinder" (pymc-extras). Default all,
        which takes minutes.
    draws, tune, chains : int
        Of methods that draw.
    options : mapping, optional
        More arguments by method, handed to ``posterior.sample``, ``pm.fit``, ``pm.sample``,
        ``pm.gp.HSGP`` (m, c, L), ``fit_laplace`` or ``fit_pathfinder``.
    random_seed : int, default 0
        Seed of all methods.
    progressbar : bool, default True
        Show the methods as they run.

    Returns
    -------
    Comparison
        ``table`` has for each method

        * ``evidence``, ``evidence_se``: log evidence; of variational methods the lower bound;
        * ``coverage_50``, ..., ``coverage_95`` and ``_se``: mean exact probability of its central
          intervals for f (see `coverage`);
        * ``wasserstein``, ``_se``: mean 1-Wasserstein distance of its marginals of f to the exact
          ones, in exact standard deviations;
        * ``skewness_error``, ``_se``: mean absolute error of the skewness of f;
        * ``p_error``, ``_se``: mean absolute error of the predictive probability;
        * ``information`` (bits beyond the base rate) and ``brier``, of `ynew`;
        * ``ess_per_second``: smallest bulk effective sample size of f at the data over the seconds
          of drawing, tuning included and compilation left out; of samplers only;
        * ``seconds``: of fitting, drawing and forecasting, the compilation of models included;
          what the comparison itself computes is not in it;
        * ``failure``: empty, or why there is nothing else in the row.

        Draws have noise: the row "exact", measured like the others by its `draws`, shows how
        much. A method without draws may well lie below it where its own error is less than that.

    Raises
    ------
    ValueError
        For an unknown method, or data as `SkewGPPosterior` refuses them.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> X = np.linspace(-2, 2, 9)[:, None]
    >>> y = (X[:, 0] > 0.3).astype(int)
    >>> table, trees = sg.compare_approximations(
    ...     X,
    ...     y,
    ...     9.0 * pm.gp.cov.ExpQuad(1, ls=1.0),
    ...     methods=["exact", "laplace"],
    ...     progressbar=False,
    ... )
    >>> bool(table.loc["laplace", "wasserstein"] > 5 * table.loc["exact", "wasserstein"])
    True
    """
    names = list(METHODS) if methods is None else _known("methods", methods)
    if not names:
        raise ValueError(f"methods is empty; there are {list(METHODS)}.")
    options = {} if options is None else options
    _known("options", options)
    gp = SkewGP(mean_func=mean_func, cov_func=cov_func)
    inputs = as_inputs("X", X)
    labels = (as_signs(y, inputs.shape[0]) > 0).astype(np.int64)
    new = np.zeros((0, inputs.shape[1]))
    if Xnew is not None:
        new = as_inputs("Xnew", Xnew, inputs.shape[1])
    elif ynew is not None:
        raise ValueError("ynew are the labels of Xnew: give that as well.")
    test = None
    if ynew is not None:
        test = (as_signs(ynew, new.shape[0], "ynew", "Xnew") > 0).astype(float)
    counts = {
        "draws": as_count("draws", draws, 4),
        "tune": as_count("tune", tune, 0),
        "chains": as_count("chains", chains),
    }
    seed = as_count("random_seed", random_seed, 0)
    point = as_point(point)
    exact = gp.posterior(
        inputs, labels, point=point, n_draws=_REFERENCE_DRAWS,
        random_seed=np.random.SeedSequence([seed, 2]),  # [seed] alone is what the method is given
    )  # fmt: skip
    reference = exact.marginals()
    if new.shape[0]:
        reference = reference.with_points(exact.marginals(new))
    rows: dict[str, dict[str, Any]] = {}
    trees: dict[str, DataTree] = {}
    columns = (TextColumn("{task.description}"), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, disable=not progressbar) as progress:
        task = progress.add_task("Comparing", total=len(names))
        for name in names:
            progress.update(task, description=f"Comparing: {name}")
            problem = Problem(
                gp, point, exact.prior, inputs, labels, new, **counts, seed=seed,
                options=dict(options.get(name, {})),
            )  # fmt: skip
            started = time.perf_counter()
            try:
                with no_warnings(), quiet_pymc():  # of convergence, say: the table shows it
                    found = METHODS[name](problem)
                rows[name] = {"seconds": time.perf_counter() - started, "failure": ""}
                rows[name] |= _measured(found, reference, labels, test)
                trees[name] = found.tree
            except Exception as error:
                seconds = time.perf_counter() - started
                rows[name] = {"seconds": seconds, "failure": f"{type(error).__name__}: {error}"}
            progress.advance(task)
    return Comparison(_table(rows), trees)


def _known(what: str, names: Any) -> list[str]:
    if isinstance(names, str):
        names = [names]
    unknown = [name for name in names if name not in METHODS]
    if unknown:
        raise ValueError(f"{what} has unknown names {unknown}; there are {list(METHODS)}.")
    return list(dict.fromkeys(names))


def _measured(
    found: Approximation,
    reference: LatentMarginals,
    labels: Any,
    test: FloatArray | None,
) -> dict[str, float]:
    n = labels.size
    row: dict[str, float] = {"evidence": found.evidence, "evidence_se": found.evidence_se}
    covered, error = mean_coverage(found.marginals, reference, np.array(PROBS))
    for prob, value, se in zip(PROBS, covered, error, strict=True):
        row |= {f"coverage_{prob * 100:.0f}": value, f"coverage_{prob * 100:.0f}_se": se}
    for name, measure in (("wasserstein", wasserstein), ("skewness_error", skewness_error)):
        value, se = measure(found.marginals, reference)
        row |= {name: value, f"{name}_se": se}
    p = found.probability
    p_exact = Probability(*(part[-p.value.size :] for part in reference.probability()))
    row["p_error"] = float(np.abs(p.value - p_exact.value).mean())
    row["p_error_se"] = float(np.hypot(p.std_error, p_exact.std_error).mean())
    if test is not None:
        row["information"] = information_score(test, p.value, float(labels.mean()))
        row["brier"] = brier_score(test, p.value)
    if found.drawing and isinstance(found.marginals, DrawnMarginals):
        row["ess_per_second"] = float(found.marginals.ess[:n].min()) / found.drawing
    return row


def _table(rows: dict[str, dict[str, Any]]) -> "DataFrame":
    import pandas as pd

    levels = [f"coverage_{prob * 100:.0f}" for prob in PROBS]
    measured = ["evidence", *levels, "wasserstein", "skewness_error", "p_error"]
    columns = [column for name in measured for column in (name, f"{name}_se")]
    columns += ["information", "brier", "ess_per_second", "seconds", "failure"]
    table = pd.DataFrame.from_dict(rows, orient="index").reindex(columns=columns)
    table.index.name = "method"
    return table
