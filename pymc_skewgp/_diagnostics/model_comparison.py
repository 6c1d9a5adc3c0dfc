"""`compare`: models by their evidences, beside leave-one-out."""

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import softmax
from xarray import DataTree

from pymc_skewgp._errors import ComparisonWarning, warn
from pymc_skewgp._gaussian.weights import UNRELIABLE_K
from pymc_skewgp._learn import problem
from pymc_skewgp._learn.problem import HyperparameterFit
from pymc_skewgp._limits import progress, stage, steps
from pymc_skewgp._posterior.posterior import SkewGPPosterior
from pymc_skewgp._validation import FloatArray


class Evidence(NamedTuple):
    """What a result says of its evidence, and of what data.

    Attributes
    ----------
    value, std_error, pareto_k : float
    n_observed : int
    observed : ndarray, or None
        Numbers observed, in their order; None where they are not known.
    fractional : bool
        Whether factors have powers that are no whole numbers.
    improper : str
        Names of variables with density one.
    at_optimum : bool
        Whether hyperparameters were chosen by it.
    """

    value: float
    std_error: float
    pareto_k: float
    n_observed: int
    observed: FloatArray | None
    fractional: bool = False
    improper: str = ""
    at_optimum: bool = False


def compare(
    results: Mapping[str, Any], *, loo: bool = True, progressbar: bool = True
) -> pd.DataFrame:
    r"""Compare models of the same data by their evidences, with errors and weights.

    .. math:: w_i = p(M_i \mid y) = \frac{p(y \mid M_i)}{\sum_j p(y \mid M_j)}

    with equal prior probabilities of the models. Where all results have log likelihoods of as many
    observations, what ``az.compare`` says of leave-one-out stands beside it.

    Parameters
    ----------
    results : mapping
        By name, two or more: results of `integrate`, of `SkewGP.posterior` or of its ``sample``; or
        of `find_hyperparameters`, all of them.
    loo : bool, default True
        Whether leave-one-out is wanted, which takes a moment.
    progressbar : bool, default True
        Show progress.

    Returns
    -------
    DataFrame
        The best model first. ``rank``; ``log_evidence`` in nats with its Monte Carlo error
        ``log_evidence_se``; ``log_evidence_diff``, how much it is below the best, with
        ``log_evidence_dse``; ``weight``, the posterior probability of the model, with
        ``weight_se``; ``warning``, where an error is not to be trusted (Pareto k above .7).
        And of ``az.compare``: ``elpd``, ``p``, ``elpd_diff``, ``elpd_se``, ``elpd_dse``,
        ``elpd_weight``, of stacking, and ``elpd_warning``, how many observations have a
        Pareto k so high that ``elpd`` is not to be trusted; empty where none has.

    Raises
    ------
    TypeError
        For results that are none of these.
    ValueError
        For a result without an evidence, as of ``pm.sample``, by its name; for a composite
        likelihood; for evidences at an optimum beside others.

    Warns
    -----
    ComparisonWarning
        Where results are of different data; where likelihoods have powers that are not whole, so
        that an evidence is not that of a normalised density; where flat priors have density one in
        some of the evidences and not in the others, or ``pm.ICAR`` a density without its constant.

    Notes
    -----
    An evidence averages over the priors of all parameters, so that wide priors count against a
    model; leave-one-out hardly sees them. `find_hyperparameters` has the evidence at the optimum,
    which has no penalty for what was chosen: weights of these favour models with more
    hyperparameters.

    References
    ----------
    .. [1] R. E. Kass & A. E. Raftery (1995), Bayes factors, doi:10.1080/01621459.1995.10476572.
    .. [2] A. Vehtari, A. Gelman & J. Gabry (2017), Practical Bayesian model evaluation using
       leave-one-out cross-validation and WAIC, doi:10.1007/s11222-016-9696-4.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> x = np.linspace(0, 3, 12)[:, None]
    >>> y = np.sin(3 * x[:, 0])
    >>> noise = sg.likelihoods.Gaussian(0.1)
    >>> short, long = (
    ...     sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=ls)).posterior(x, y, likelihood=noise)
    ...     for ls in (0.7, 3.0)
    ... )
    >>> table = sg.compare({"long": long, "short": short})
    >>> table["log_evidence_diff"].round(0).to_dict()
    {'short': 0.0, 'long': -185.0}
    """
    if isinstance(results, DataTree) or not isinstance(results, Mapping):
        kind = type(results).__name__
        raise TypeError(f"results must be a mapping by name, {{name: result, ...}}, got {kind}.")
    if len(results) < 2:
        raise ValueError(f"two results at least are compared, got {len(results)}.")
    with progress(progressbar):
        names = steps(results, "Evidences", len(results))
        found = {name: _evidence(name, results[name]) for name in names}
        _refuse_optima(found)
        _warn_of_differences(found)
        table = _table(found)
        stage("Leave-one-out")
        beside = _leave_one_out(results) if loo else None
    return table if beside is None else table.join(beside)


def _refuse_optima(found: Mapping[str, Evidence]) -> None:
    """Raise for evidences at an optimum beside others."""
    at_optimum = [name for name, x in found.items() if x.at_optimum]
    if at_optimum and len(at_optimum) < len(found):
        raise ValueError(
            f"{', '.join(at_optimum)} has the evidence at an optimum of the hyperparameters, and "
            "others have them integrated out, or given: use integrate for all."
        )


def _table(found: Mapping[str, Evidence]) -> pd.DataFrame:
    value = np.array([x.value for x in found.values()])
    error = np.array([x.std_error for x in found.values()])
    best = int(value.argmax())
    weight = softmax(value)
    # By the delta method: how a weight changes with each log evidence.
    slope = weight[:, None] * (np.eye(value.size) - weight)
    apart = np.hypot(error, error[best])
    apart[best] = 0.0
    table = pd.DataFrame(
        {
            "log_evidence": value,
            "log_evidence_se": error,
            "log_evidence_diff": value - value[best],
            "log_evidence_dse": apart,
            "weight": weight,
            "weight_se": np.sqrt(slope**2 @ error**2),
            "warning": [bool(x.pareto_k > UNRELIABLE_K) for x in found.values()],
        },
        index=list(found),
    )
    table = table.sort_values("log_evidence", ascending=False, kind="stable")
    table.insert(0, "rank", np.arange(len(table)))
    return table


_NO_EVIDENCE = (
    "{name} has no evidence: draws of pm.sample have none, and results of integrate, "
    "SkewGP.posterior and find_hyperparameters do. Use sg.integrate(model), or az.compare."
)


def _evidence(name: str, result: Any) -> Evidence:
    """Of one result.

    Raises
    ------
    TypeError, ValueError
    """
    if isinstance(result, SkewGPPosterior):
        value, error, _, k = result.log_marginal_likelihood
        values = [np.ravel(x.y) for x in result._sets if x.likelihood.has_data]
        fractional = any(
            problem.FRACTIONAL in problem.names_of_likelihoods(x.X, x.y, x.likelihood)
            for x in result._sets
        )
        return Evidence(value, error, k, sum(x.size for x in values), _ordered(values), fractional)
    if isinstance(result, HyperparameterFit):
        if result.kind != "evidence":
            raise ValueError(
                f"{name} maximised a {result.kind} likelihood, which is no evidence: leave "
                "batch_size out."
            )
        value, error, _, k = result.log_marginal_likelihood
        improper, n = ", ".join(result.improper_priors), result.n_observed
        of = n.of if isinstance(n, problem.Observed) else None
        known = None if of is None else _ordered([np.ravel(y) for y in problem.observed_values(of)])
        fractional = of is not None and problem.FRACTIONAL in _likelihoods(of)
        return Evidence(value, error, k, int(n), known, fractional, improper, True)
    if not isinstance(result, DataTree):
        raise TypeError(
            f"{name} must be a result of integrate, SkewGP.posterior or find_hyperparameters, got "
            f"{type(result).__name__}."
        )
    attrs = result["posterior"].attrs if "posterior" in result.children else {}
    kind = next((x for x in ("log_evidence", "log_marginal_likelihood") if x in attrs), None)
    if kind is None:
        raise ValueError(_NO_EVIDENCE.format(name=name))
    data = result["observed_data"].data_vars if "observed_data" in result.children else {}
    values = [np.ravel(x.to_numpy()) for x in data.values()]
    numbers = float(attrs[kind]), float(attrs[f"{kind}_se"])
    k = max(float(attrs.get(x, -np.inf)) for x in ("pareto_k", "pareto_k_exact"))
    fractional = problem.FRACTIONAL in str(attrs.get("likelihood", ""))
    improper = str(attrs.get("improper_priors", ""))
    n = sum(x.size for x in values)
    return Evidence(*numbers, k, n, _ordered(values), fractional, improper)


def _likelihoods(of: problem.TrainingData) -> str:
    return (
        "" if of.X is None else problem.names_of_likelihoods(of.X, of.y, of.likelihood, of.weights)
    )


def _ordered(values: list[Any]) -> FloatArray | None:
    """All numbers, in their order; None where some are none."""
    try:
        return np.sort(np.concatenate([np.asarray(x, dtype=np.float64) for x in values]))
    except (TypeError, ValueError):
        return None


def _warn_of_differences(found: Mapping[str, Evidence]) -> None:
    first, *others = found
    different = [name for name in others if not _same_data(found[first], found[name])]
    sizes = ", ".join(f"{name}: {x.n_observed}" for name, x in found.items())
    fractional = [name for name, x in found.items() if x.fractional]
    priors = "; ".join(f"{name}: {x.improper or 'none'}" for name, x in found.items())
    for wrong, message in (
        (
            different,
            f"{', '.join(different)} and {first} are of different data (numbers: {sizes}): "
            "evidences and leave-one-out compare models of the same data alone, in the same units.",
        ),
        (
            fractional,
            f"the likelihood of {', '.join(fractional)} has powers that are no whole numbers: it "
            "is no density of the data, and its integral compares only with that of models with "
            "the same likelihood and weights.",
        ),
        (
            len({x.improper for x in found.values()}) > 1,
            f"variables with density one in the evidence differ ({priors}): an evidence under a "
            "flat prior, or an intrinsic one such as pm.ICAR, has an arbitrary factor. Give them "
            "proper priors.",
        ),
    ):
        if wrong:
            warn(message, ComparisonWarning, stacklevel=3)


def _same_data(a: Evidence, b: Evidence) -> bool:
    if a.observed is None or b.observed is None:
        return a.n_observed == b.n_observed
    return np.array_equal(a.observed, b.observed, equal_nan=True)


# What is kept of ``az.compare``, and under what name.
_KEPT = {
    "elpd": "elpd",
    "p": "p",
    "elpd_diff": "elpd_diff",
    "se": "elpd_se",
    "dse": "elpd_dse",
    "weight": "elpd_weight",
    "diag_elpd": "elpd_warning",
}


def _leave_one_out(results: Mapping[str, Any]) -> pd.DataFrame | None:
    """``az.compare`` of them; None where it does not apply."""
    trees = [x for x in results.values() if isinstance(x, DataTree)]
    if len(trees) < len(results) or not all("log_likelihood" in x.children for x in trees):
        return None
    logs = [x["log_likelihood"].data_vars for x in trees]
    sizes = {x.size // (x.sizes["chain"] * x.sizes["draw"]) for own in logs for x in own.values()}
    if len(sizes) > 1 or any(len(own) != 1 for own in logs):
        return None
    import arviz as az  # seconds of import

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the table says it, by model
        table = az.compare(dict(results), round_to="none")
    return table[list(_KEPT)].rename(columns=_KEPT)
