"""A posterior's draws and forecasts as DataTrees: names, dimensions, coordinates."""

from typing import Any

import numpy as np
from xarray import DataTree

from pymc_skewgp._observations.likelihood import Data, Likelihood
from pymc_skewgp._posterior.datatree import as_datatree
from pymc_skewgp._posterior.latent_marginals import LatentMarginals
from pymc_skewgp._validation import FloatArray


def sample_tree(
    likelihood: Likelihood,
    X: FloatArray,
    y: Data,
    f: FloatArray,
    log_weight: FloatArray,
    rng: np.random.Generator,
    attrs: dict[str, Any],
) -> DataTree:
    """Draws f at the data, shape (chain, draw, n), and what follows from them."""
    log_likelihood = likelihood.log_likelihood(y, f)
    return as_datatree(
        {
            "posterior": {"f": f},
            "posterior_predictive": {"y": likelihood.replicate(y, f, log_likelihood, rng)},
            "sample_stats": {"log_weight": log_weight},
            "log_likelihood": {"y": log_likelihood},
            "observed_data": {"y": y},
            "constant_data": {"X": X},
        },
        dims={"f": ["obs_id"], "y": ["obs_id"], "X": ["obs_id", "feature"]},
        coords={"obs_id": np.arange(X.shape[0]), "feature": np.arange(X.shape[1])},
        attrs=attrs,
    )


def predictions_tree(
    likelihood: Likelihood,
    X: FloatArray,
    marginals: LatentMarginals,
    f: FloatArray | None,
    probs: FloatArray,
    rng: np.random.Generator,
    attrs: dict[str, Any],
) -> DataTree:
    """Summaries at new points and, where given, draws f of shape (chain, draw, t)."""
    mean, sd, skewness = marginals.moments
    mean_se, sd_se, skewness_se = marginals.moment_errors
    per_point = {
        "f_mean": mean,
        "f_sd": sd,
        "f_skewness": skewness,
        "f_mean_se": mean_se,
        "f_sd_se": sd_se,
        "f_skewness_se": skewness_se,
        **likelihood.predictive_summary(marginals),
    }
    summary = dict(per_point)
    if probs.size:
        summary["f_quantile"] = marginals.quantile(probs)
    groups: dict[str, dict[str, Any]] = {}
    if f is not None:
        groups["predictions"] = {"f": f, **likelihood.predictive_draws(f, rng)}
    drawn = groups.get("predictions", {})
    return as_datatree(
        {**groups, "predictions_summary": summary, "predictions_constant_data": {"X": X}},
        dims={
            **{name: ["pred_id"] for name in (*drawn, *per_point)},
            "f_quantile": ["quantile", "pred_id"],
            "X": ["pred_id", "feature"],
        },
        coords={
            "pred_id": np.arange(X.shape[0]),
            "quantile": probs,
            "feature": np.arange(X.shape[1]),
        },
        attrs=attrs,
    )
