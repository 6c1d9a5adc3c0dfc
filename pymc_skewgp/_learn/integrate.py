"""`integrate` and `correct`: the posterior of a model and its hyperparameters, without a chain."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike
from xarray import DataArray, Dataset, DataTree

from pymc_skewgp._errors import IntegrationWarning, no_warnings, warn
from pymc_skewgp._gaussian import weights
from pymc_skewgp._learn.averaging import average_process, importance, integration, points
from pymc_skewgp._learn.averaging.model_functions import without_initial_values
from pymc_skewgp._learn.averaging.problem import IntegrationProblem, integration_problem
from pymc_skewgp._learn.problem import TrainingData, attributes_of_data
from pymc_skewgp._limits import progress
from pymc_skewgp._model.gp.latent_draws import DrawFunction, data_as_sampled, posterior_draws
from pymc_skewgp._model.gp.skewgp import SkewGP
from pymc_skewgp._model.graph.collapsed import as_fitted, evidences_of_variables, pymc_model
from pymc_skewgp._model.graph.data import sites_at
from pymc_skewgp._model.ops.plain_mode import PLAIN
from pymc_skewgp._observations.likelihood import Likelihood
from pymc_skewgp._posterior.evidence_gradient import EvidenceTerms, evidence_estimate
from pymc_skewgp._posterior.posterior import DataOfOneKind, refuse_large
from pymc_skewgp._validation import FloatArray, Seed, as_count, as_generator

_DEFAULT = importance.IntegrationSettings()


def integrate(
    model: pm.Model | SkewGP | Any = None,
    X: ArrayLike | Sequence[DataOfOneKind] | Mapping[str, DataOfOneKind] | None = None,
    y: ArrayLike | None = None,
    *,
    likelihood: Likelihood | None = None,
    coregion: Any = None,
    Xnew: ArrayLike | None = None,
    draws: int = 1000,
    chains: int = 4,
    method: importance.Method = "auto",
    n_evidences: int | None = None,
    start: Mapping[str, Any] | None = None,
    n_jobs: int | None = None,
    random_seed: Seed = None,
    progressbar: bool = True,
) -> DataTree:
    r"""Posterior of the hyperparameters and of the latent functions, in seconds.

    .. math:: p(\theta \mid y) \propto p(y \mid \theta)\, p(\theta), \qquad
        p(y) = \int p(y \mid \theta)\, p(\theta)\, d\theta

    The latent functions are integrated out of :math:`p(y \mid \theta)`, first by expectation
    propagation (EP). From the posterior modes on, points :math:`\theta` are drawn from a mixture of
    Student t distributions that is fitted to the posterior in rounds (adaptive importance
    sampling); with more than five coordinates from a surrogate, a Gaussian process through EP's
    evidence and its gradient at some hundred points. Their weights are EP's evidence over what they
    were drawn from. At
    `n_evidences` of them, drawn with equal weights, the exact evidence is then estimated without
    bias, and its ratio to EP's is a further weight: EP's error is gone. The same run of the sampler
    draws f there, exactly. Up to three coordinates the points are spread evenly, by randomised
    quasi-Monte Carlo: over seeds the mean of a hyperparameter varies by less than ArviZ's
    ``mcse_mean``, which is that of draws.

    With up to five coordinates one or two hundred of EP's evidences are computed, or fewer where
    one takes long; at the other points they are predicted, by kriging, to a fiftieth of a nat or
    so, and the ratio is to what was predicted.

    What was read of a model, and compiled, is kept with it: a second call begins at once, unless
    its variables, coordinates or data have changed.

    With f go Gaussian variables that it is jointly Gaussian with: effects beside it in a model, and
    coefficients of a ``mean_func`` that is affine in them. They are drawn with it, and are no
    hyperparameters (but with f of finite rank, or `SkewGP.marginal_likelihood` in a model, whose
    function is not drawn: there coefficients of a mean are).

    A model without a SkewGP is taken as well: its latent variables are all those whose log density
    is quadratic and that enter the predictors of observations affinely, such as effects,
    coefficients, ``pm.gp.Latent``, random walks, AR and CAR; `explain` shows what they are.
    ``pm.Flat`` coefficients have density one in the evidence, and so have hyperparameters with a
    flat prior, ``pm.HalfFlat`` or ``pm.Flat``, where the posterior is proper: where its tails, with
    all other hyperparameters at their best, fall faster than an integral needs.

    It is meant for models in which all but the latent functions is up to some tens of continuous
    parameters, as a lengthscale for each input, where it does the work of ``pm.sample`` with no
    chain to tune.

    A SkewGP with an approximation, or with "auto" under more than 5000 rows or comparisons, is
    integrated with f of finite rank, for the data that `find_hyperparameters` learns from so. Modes
    are looked for with some hundred rows, then 5000, then all; the features, such as inducing
    points, are placed there and stay the same. Then each evaluation of EP takes as long as a few
    sweeps of it on all rows, a second or so for 20,000 rows and 200 points, and there are some
    tens of them, and 32 posteriors. What that takes is logged.

    Parameters
    ----------
    model : pymc.Model, bambi.Model or SkewGP, optional
        As `find_hyperparameters`: a model with `SkewGP.prior` under observations that
        `ConjugateStep` knows, or with `SkewGP.marginal_likelihood`; or a SkewGP, with `X` and `y`.
        Default the model in context. Of a model of Bambi, built or not, the result is as that of
        its ``fit``, for its ``predict`` and ``bambi.interpret``.
    X, y, likelihood, coregion : optional
        Data for a SkewGP, as for `SkewGP.posterior`. Then only the priors, and potentials, of what
        the SkewGP depends on are counted.
    Xnew : array_like, shape (t, d), optional
        New points for a SkewGP. `predict` has them later, with what new rows have of their own, and
        new rows of a model.
    draws, chains : int
        Draws with equal weights in each chain; chains. Chains are parts of the same points, so
        that they agree: what counts is the relative ESS and the Pareto k.
    method : {"auto", "importance", "surrogate", "nuts"}, default "auto"
        "importance": importance sampling from mixtures. "surrogate": importance sampling from a
        Gaussian process through the evidence. "nuts": PyMC's NUTS on the posterior with EP's
        evidence. Each with the same correction by exact evidences. "auto" climbs a ladder: up to
        five coordinates four rounds from mixtures, and up to twelve where the weights are poor;
        then, or with up to 80 coordinates, the surrogate; NUTS where its weights are poor as well.
    n_evidences : int, optional
        Points at which the exact evidence is estimated: the most different hyperparameters that the
        draws can have. Default 1024 where one takes a millisecond or two (up to 100 rows of a
        kernel, 900 of a few effects), 256 where it takes more, and where factors are not
        log-concave; up to 40 for each hyperparameter, 256 in all, where EP alone takes some ten
        milliseconds; 32 with f of finite rank. Each draw has its own f.
    start : mapping, optional
        Values of random variables by name, on their own scale, from which the modes are looked for.
        Default the model's initial point.
    n_jobs : int, optional
        Exact evidences that are computed side by side, by joblib, which comes with scikit-learn. A
        process takes seconds to start: it saves time from some hundred rows on. Default one.
    random_seed : int, Generator, SeedSequence or None
        Source of randomness. The result does not depend on `n_jobs`.
    progressbar : bool, default True
        Show progress.

    Returns
    -------
    DataTree
        ``posterior``: hyperparameters and Deterministics on their own scale, and f, with dimensions
        (chain, draw, ...); draws that share their hyperparameters stand side by side.
        ``sample_stats``: ``log_marginal_likelihood`` at the draw's hyperparameters, and
        ``relative_ess`` of the draws of u behind it. ``log_likelihood`` of each observation given
        f, ``observed_data``, ``constant_data``; new data of a model come from
        ``pm.sample_posterior_predictive``, masked data are in ``posterior``. For a SkewGP also
        what `SkewGP.sample_latent` gives: ``posterior_predictive``, and at `Xnew`
        ``predictions`` and ``predictions_summary``, as `predict` has them. With f of finite rank f
        at `Xnew` is drawn apart from f at the data, given the same hyperparameters; above 10,000
        rows there is no f at the data, nor what follows from it: ask for rows in `Xnew`.

        Attributes of ``posterior`` and ``sample_stats``: ``log_evidence`` of the model,
        hyperparameters integrated out, in nats, by which models and kernels are compared, with its
        standard error ``log_evidence_se``, which counts what tails of priors may hold beyond all
        draws of the surrogate; ``relative_ess`` and ``pareto_k`` of the weights with
        EP's evidence, ``relative_ess_exact`` and ``pareto_k_exact`` of those that correct it, or
        of the draws themselves where there are no hyperparameters;
        ``method``, the rung of the ladder that was reached, and ``rung``, its number;
        ``n_evaluations`` of EP and ``n_evidences``; ``sampling_time`` in seconds;
        ``n_observed``, how many numbers were observed (and, as long as this process runs, of what,
        for `predict`); ``likelihood`` of a SkewGP, by name;
        ``heavy_tails``, names of the hyperparameters whose means the draws do not give (see below);
        ``improper_priors``, names of the variables with density one in ``log_evidence``, or with
        one that lacks its constant, as ``pm.ICAR`` or what a ``transform=`` keeps from a part of
        its support, which then compares only with that of models with the same ones. Entries that
        are independent and alike, as cut-points, and kept in an order have their constant.

    Raises
    ------
    ApproximationError
        For an approximation that was asked for and that the data cannot be integrated with.
    ImproperPriorError
        For flat priors under which the posterior is improper: of a hyperparameter in which the
        posterior does not decay, or of coefficients that the data do not bound.
    DiscreteHyperparameterError
        For discrete parameters other than up to three binary ones, whose values are all tried.
    ValueError, TypeError
        A model without data of that kind, or data that do not fit.

    Warns
    -----
    UnnormalizedPriorWarning
        For ``pm.ICAR`` with a random sigma, of which PyMC's density lacks the power.
    IntegrationWarning
        Where the weights are so unequal that standard errors are not to be trusted, or where exact
        evidences are far from EP's: a relative ESS of these below .3.
    HeavyTailWarning
        Where the tail of a hyperparameter has an index above .7, as under vague priors of
        precisions: its mean may be far off. Its quantiles are right.
    PriorApproximationWarning
        Where the prior was approximated by itself, and that changes the log evidence at the mode by
        more than .1 nats.

    See Also
    --------
    find_hyperparameters : the maximum alone.
    explain : what of a model is integrated out, before anything runs.

    Notes
    -----
    Weights by unbiased estimates of the evidence are exact importance weights of hyperparameters
    and auxiliary draws together [2]_. The standard error has three parts: of the importance
    sampling, from sixteen parts of its points, of which each is as even as it can be and all
    together are more so: it is more than the error; a tenth of the points come from the prior so
    that no tail has large weights; of the correction, from the spread of the ratios, their own
    Monte Carlo error included; and of no other.

    References
    ----------
    .. [1] J.-M. Cornuet, J.-M. Marin, A. Mira & C. P. Robert (2012), Adaptive multiple importance
       sampling, doi:10.1111/j.1467-9469.2011.00756.x.
    .. [2] M.-N. Tran, M. Scharth, M. K. Pitt & R. Kohn (2013), Importance sampling squared for
       Bayesian inference in latent variable models, arXiv:1309.3339.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> x = np.linspace(-3, 3, 20)[:, None]
    >>> y = (np.sin(2 * x[:, 0]) > 0.3).astype(int)
    >>> with pm.Model() as model:
    ...     ls = pm.InverseGamma("ls", alpha=3, beta=2)
    ...     gp = sg.SkewGP(cov_func=2.0**2 * pm.gp.cov.ExpQuad(1, ls=ls))
    >>> dt = sg.integrate(gp, x, y, Xnew=[[0.5]], random_seed=0, progressbar=False)
    >>> print(f"log evidence {dt['posterior'].attrs['log_evidence']:.1f}")
    log evidence -11.1
    >>> dict(dt["predictions"]["f"].sizes)
    {'chain': 4, 'draw': 1000, 'pred_id': 1}
    """
    if method not in importance.METHODS:
        raise ValueError(f"method must be one of {importance.METHODS}, got {method!r}.")
    settings = replace(_DEFAULT, method=method)
    if n_evidences is not None:
        n_evidences = as_count("n_evidences", n_evidences)
        settings = replace(settings, n_evidences=n_evidences, many_rows_evidences=n_evidences)
    draws, chains = as_count("draws", draws), as_count("chains", chains)
    rng = as_generator(random_seed)
    given = pm.modelcontext(model) if model is None else model
    data = TrainingData(pymc_model(given), X, y, likelihood, coregion)
    began = time.perf_counter()
    with progress(progressbar):
        problem = integration_problem(data, Xnew, start)
        refuse_large(draws, chains, problem.size)
        if n_evidences is None and isinstance(problem, IntegrationProblem):
            settings = replace(settings, n_evidences=problem.evidences(settings.n_evidences))
        compiled = time.perf_counter()
        found = integration.average(problem, settings, draws * chains, rng, n_jobs)
    _, latent, integral, exact = found
    equal = exact.equal_draws(chains, draws, points.more_draws(latent, rng), rng)
    tree = as_fitted(given, latent.tree(exact.points, equal, rng))
    attributes = average_process.attributes_of(integral, exact, problem.objective)
    attributes["sampling_time"] = time.perf_counter() - compiled
    attributes |= {"compile_time": compiled - began, **attributes_of_data(data, given)}
    _add_statistics(tree, equal, attributes)
    average_process.warn_of(integral, exact, stacklevel=3)
    average_process.warn_of_tails(attributes["heavy_tails"], stacklevel=3)
    return tree


def _add_statistics(tree: DataTree, equal: points.EqualDraws, attributes: dict[str, Any]) -> None:
    """The group ``sample_stats``, and the attributes."""
    stats = tree["posterior"].to_dataset()[[]]
    stats["log_marginal_likelihood"] = ("chain", "draw"), equal.log_evidence
    stats["relative_ess"] = ("chain", "draw"), equal.relative_ess
    tree["sample_stats"] = DataTree(stats)
    for group in ("posterior", "sample_stats"):
        tree[group].attrs.update(attributes)


# `correct`: a trace of a model with an approximate evidence, weighted by the exact one.


def correct(
    idata: DataTree,
    *,
    model: pm.Model | None = None,
    n_evidences: int = _DEFAULT.n_evidences,
    random_seed: Seed = None,
    progressbar: bool = True,
) -> DataTree:
    r"""Draws of a model with an approximate marginal likelihood, made exact by importance weights.

    For models made with ``SkewGP.marginal_likelihood(..., method="ep")`` and sampled by
    ``pm.sample``, of which the evidence of expectation propagation (EP) is the only error. Of every
    chain draws at equal distances are kept, `n_evidences` in all. Each has the weight

    .. math:: w = \hat p(y \mid \theta) \, / \, p_{\mathrm{EP}}(y \mid \theta)

    with an unbiased estimate of the exact evidence above, and the chains are resampled to equal
    weights. `integrate` does the same for models that need no chain.

    Parameters
    ----------
    idata : DataTree
        Result of ``pm.sample``.
    model : pymc.Model, optional
        Default the model in context.
    n_evidences : int, default 256
        Exact evidences: draws that are kept. As many of each chain.
    random_seed : int, Generator, SeedSequence or None
        Source of randomness.
    progressbar : bool, default True
        Show progress.

    Returns
    -------
    DataTree
        The groups of `idata` with the dimensions chain and draw, of the draws kept; others as they
        are. Attributes of ``posterior``: ``relative_ess_exact`` and ``pareto_k_exact`` of the
        weights, ``n_evidences``, and ``log_evidence_ratio``, what the log evidence of the model,
        hyperparameters integrated out, is above EP's, with ``log_evidence_ratio_se``.

    Raises
    ------
    ValueError
        For a model without `SkewGP.marginal_likelihood`, or whose variables `idata` lacks.

    Warns
    -----
    IntegrationWarning
        Where the weights are very unequal.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> X = np.linspace(-2, 2, 6)[:, None]
    >>> with pm.Model() as model:
    ...     ls = pm.InverseGamma("ls", alpha=3, beta=2)
    ...     gp = sg.SkewGP(cov_func=4.0 * pm.gp.cov.ExpQuad(1, ls=ls))
    ...     labels = gp.marginal_likelihood("y", X, [0, 1, 1, 0, 0, 1], method="ep")
    ...     idata = pm.sample_prior_predictive(draws=100, random_seed=1)
    >>> idata["posterior"] = idata["prior"]  # in place of pm.sample
    >>> exact = sg.correct(idata, model=model, n_evidences=50, random_seed=1, progressbar=False)
    >>> dict(exact["posterior"].sizes)
    {'chain': 1, 'draw': 50}
    """
    model = pm.modelcontext(model)
    rng = as_generator(random_seed)
    trace = posterior_draws(idata)
    # At equal distances, the last one of each chain among them.
    n = trace.sizes["draw"]
    count = min(n, max(1, -(-as_count("n_evidences", n_evidences) // trace.sizes["chain"])))
    kept = (np.arange(1, count + 1) * n) // count - 1
    with data_as_sampled(idata, model.data_vars), progress(progressbar):
        log_ratio = _log_ratio(model, trace.isel(draw=kept), rng)
    flat = log_ratio.ravel()
    value = weights.log_mean_exp(flat)
    ratio = np.exp(flat - value)
    error = float(ratio.std(ddof=1) / np.sqrt(ratio.size)) if ratio.size > 1 else np.inf
    quality = weights.Estimate(value, error, weights.relative_ess(flat), weights.pareto_k(flat))
    if quality.heavy_tailed or quality.relative_ess < _DEFAULT.least_ess:
        warn(
            "the evidence that was sampled is far from the exact one "
            f"({weights.describe_weights(quality)} of the weights between them): raise "
            'n_evidences, or sample with method="twisted".',
            IntegrationWarning,
            stacklevel=2,
        )
    chosen = kept[weights.systematic_rows(log_ratio, kept.size, rng) % log_ratio.shape[1]]
    tree = _resampled(idata, chosen)
    tree["posterior"].attrs |= {
        "relative_ess_exact": quality.relative_ess,
        "pareto_k_exact": quality.pareto_k,
        "n_evidences": log_ratio.size,
        "log_evidence_ratio": quality.value,
        "log_evidence_ratio_se": quality.std_error,
    }
    return tree


def _log_ratio(model: pm.Model, trace: Dataset, rng: np.random.Generator) -> FloatArray:
    """Exact log evidences of draws less those that the model has."""
    known = evidences_of_variables(model)
    if not known:
        raise ValueError(
            "the model has no marginal_likelihood whose evidence could be corrected. Draws of f by "
            "ConjugateStep, and those of integrate, are exact already."
        )
    approximate = _approximate(model, trace, list(known))
    exact = np.zeros_like(approximate)
    for terms, parts in known.values():
        function = DrawFunction(trace, [*terms, *(x for part in parts for x in part.graphs)])
        for index, found in function.each("Exact evidences"):
            arrays = EvidenceTerms(*(np.asarray(x, dtype=np.float64) for x in found[: len(terms)]))
            sites = sites_at(parts, found[len(terms) :])
            with no_warnings():
                exact[index] += evidence_estimate(
                    arrays, points.N_CANDIDATES, int(rng.integers(2**31)), sites=sites
                ).value
    return exact - approximate


def _approximate(model: pm.Model, trace: Dataset, names: list[str]) -> FloatArray:
    """The log density of these variables as the model has it."""
    tree = DataTree.from_dict({"posterior": trace})
    with without_initial_values(model):
        found = pm.compute_log_likelihood(
            tree,
            var_names=names,
            extend_inferencedata=False,
            model=model,
            progressbar=False,
            compile_kwargs={"mode": PLAIN},
        )
    total = np.zeros((trace.sizes["chain"], trace.sizes["draw"]))
    for name in names:
        values = found[name].transpose("chain", "draw", ...).to_numpy()
        total += values.reshape(*total.shape, -1).sum(axis=-1)
    return total


def _resampled(idata: DataTree, chosen: weights.IntArray) -> DataTree:
    """Every group with chains and draws, at the draws `chosen`, (chain, draw)."""
    groups: dict[str, Any] = {}
    for name, node in idata.children.items():
        data = node.to_dataset()
        if {"chain", "draw"} <= set(data.dims):
            index = DataArray(chosen, dims=("chain", "draw"))
            where = DataArray(np.arange(chosen.shape[0]), dims="chain")
            data = data.isel(chain=where, draw=index)
            data = data.drop_vars("draw", errors="ignore").assign_coords(
                draw=np.arange(chosen.shape[1])
            )
        groups[name] = data
    return DataTree.from_dict(groups)
