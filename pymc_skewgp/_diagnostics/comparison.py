"""`compare_approximations`: what each way to the posterior of f gets wrong, and what it costs."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from xarray import DataTree

from pymc_skewgp._diagnostics.approximations import (
    METHODS,
    ROW_METHODS,
    SITE_METHODS,
    SKEW_PRIOR_METHODS,
    Problem,
)
from pymc_skewgp._diagnostics.marginals import as_number, quiet_pymc
from pymc_skewgp._diagnostics.measures import Standard, as_summary, as_table, measured
from pymc_skewgp._errors import no_warnings
from pymc_skewgp._limits import progress, stage
from pymc_skewgp._model.gp.functions import as_point
from pymc_skewgp._model.gp.skewgp import SkewGP
from pymc_skewgp._observations.binary import BernoulliProbit
from pymc_skewgp._observations.likelihood import Likelihood, as_inputs, as_labels
from pymc_skewgp._observations.sites import SiteLikelihood
from pymc_skewgp._posterior.output import LatentMarginals
from pymc_skewgp._posterior.posterior import SkewGPPosterior
from pymc_skewgp._posterior.prior import as_likelihood
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
        names = list(SKEW_PRIOR_METHODS if gp.n_pseudo_points else METHODS)
        if not (isinstance(likelihood, BernoulliProbit) and likelihood.independent):
            served = SITE_METHODS if isinstance(likelihood, SiteLikelihood) else ROW_METHODS
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
