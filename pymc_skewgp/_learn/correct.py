"""`correct`: a trace of a model with an approximate evidence, weighted by the exact one."""

from typing import Any

import numpy as np
import pymc as pm
from xarray import DataArray, Dataset, DataTree

from pymc_skewgp._errors import IntegrationWarning, no_warnings, warn
from pymc_skewgp._gaussian.weights import (
    Estimate,
    IntArray,
    describe_weights,
    log_mean_exp,
    pareto_k,
    relative_ess,
    systematic_resample,
)
from pymc_skewgp._learn.averaging.named_values import without_initial_values
from pymc_skewgp._learn.averaging.settings import IntegrationSettings
from pymc_skewgp._model.gp.trace import DrawFunction, data_as_sampled, posterior_draws
from pymc_skewgp._model.graph.data_sites import sites_at
from pymc_skewgp._model.graph.marginal_terms import evidences_of_variables
from pymc_skewgp._model.ops.plain_mode import PLAIN
from pymc_skewgp._posterior.evidence_gradient import evidence_estimate
from pymc_skewgp._posterior.evidence_terms import EvidenceTerms
from pymc_skewgp._validation import FloatArray, Seed, as_count, as_generator

_DEFAULT = IntegrationSettings()


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
    kept = _kept(trace, as_count("n_evidences", n_evidences))
    with data_as_sampled(idata, model.data_vars):
        log_ratio = _log_ratio(model, trace.isel(draw=kept), rng, progressbar)
    quality = _quality(log_ratio)
    if quality.heavy_tailed or quality.relative_ess < _DEFAULT.importance.least_ess:
        warn(
            "the evidence that was sampled is far from the exact one "
            f"({describe_weights(quality)} of the weights between them): raise n_evidences, or "
            'sample with method="twisted".',
            IntegrationWarning,
            stacklevel=2,
        )
    chosen = np.stack(
        [kept[np.sort(systematic_resample(row, kept.size, rng))] for row in log_ratio]
    )
    tree = _resampled(idata, chosen)
    tree["posterior"].attrs |= {
        "relative_ess_exact": quality.relative_ess,
        "pareto_k_exact": quality.pareto_k,
        "n_evidences": log_ratio.size,
        "log_evidence_ratio": quality.value,
        "log_evidence_ratio_se": quality.std_error,
    }
    return tree


def _log_ratio(
    model: pm.Model, trace: Dataset, rng: np.random.Generator, progressbar: bool
) -> FloatArray:
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
        for index, found in function.each("Exact evidences", progressbar):
            arrays = EvidenceTerms(*(np.asarray(x, dtype=np.float64) for x in found[: len(terms)]))
            sites = sites_at(parts, found[len(terms) :])
            with no_warnings():
                exact[index] += evidence_estimate(
                    arrays, _DEFAULT.n_candidates, int(rng.integers(2**31)), sites=sites
                ).value
    return exact - approximate


def _kept(trace: Dataset, n_evidences: int) -> IntArray:
    """Draws at equal distances, the last one of each chain among them."""
    draws, chains = trace.sizes["draw"], trace.sizes["chain"]
    count = min(draws, max(1, -(-n_evidences // chains)))
    return (np.arange(1, count + 1) * draws) // count - 1


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


def _quality(log_ratio: FloatArray) -> Estimate:
    flat = log_ratio.ravel()
    value = log_mean_exp(flat)
    ratio = np.exp(flat - value)
    error = float(ratio.std(ddof=1) / np.sqrt(ratio.size)) if ratio.size > 1 else np.inf
    return Estimate(value, error, relative_ess(flat), pareto_k(flat))


def _resampled(idata: DataTree, chosen: IntArray) -> DataTree:
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
