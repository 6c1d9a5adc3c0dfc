"""Draws and summaries as a DataTree with named dimensions."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from xarray import DataTree

from pymc_skewgp._gaussian.truncated_draws import TruncatedDraws
from pymc_skewgp._gaussian.weights import Estimate


def as_datatree(
    groups: dict[str, dict[str, Any]],
    *,
    dims: dict[str, list[str]],
    pred_dims: dict[str, list[str]] | None = None,
    coords: dict[str, Any],
    attrs: dict[str, Any],
    dims_of: Mapping[str, dict[str, list[str]]] = MappingProxyType({}),
) -> DataTree:
    """Pack groups of arrays; those named ``*_summary`` have no chain and draw dimensions.

    Parameters
    ----------
    groups : dict
        Arrays by variable by group.
    dims, coords : dict
        Dimensions of each variable after chain and draw, and their coordinates.
    pred_dims : dict, optional
        Dimensions in the groups of predictions, where they differ from `dims`.
    attrs : dict
        Attributes of the groups that hold draws or summaries.
    dims_of : mapping, optional
        Groups whose variables have other dimensions than `dims` says, with these.

    Returns
    -------
    DataTree
    """
    from arviz_base import from_dict  # heavy to import, and only needed with draws in hand

    summaries = {name: group for name, group in groups.items() if name.endswith("_summary")}
    apart = {name: group for name, group in groups.items() if name in dims_of}
    draws = {name: group for name, group in groups.items() if name not in {*summaries, *apart}}
    described = {name: attrs for name in ("posterior", "sample_stats", "predictions")}
    tree = from_dict(
        draws,
        dims=dims,
        coords=coords,
        pred_dims=dims if pred_dims is None else pred_dims,
        pred_coords=coords,
        check_conventions=False,  # more inputs or chains than draws are nothing to warn of
        attrs={name: value for name, value in described.items() if name in draws},
    )
    for name, group in apart.items():
        own = from_dict({name: group}, dims=dims_of[name], coords=coords, check_conventions=False)
        tree[name] = own[name]
    if summaries:
        extra = from_dict(
            summaries,
            pred_dims=dims if pred_dims is None else pred_dims,
            pred_coords=coords,
            sample_dims=[],
            check_conventions=False,
            attrs={name: attrs for name in summaries},
        )
        for name in summaries:
            tree[name] = extra[name]
    return tree


def sampling_attributes(latent: TruncatedDraws, evidence: Estimate | None) -> dict[str, Any]:
    """How draws were made and how good they are: attributes of a group."""
    attributes: dict[str, Any] = {
        "method": latent.method,
        "relative_ess": latent.relative_ess,
        "pareto_k": latent.pareto_k,
        "n_modes": latent.n_modes,
    }
    if evidence is not None:
        attributes["log_marginal_likelihood"] = evidence.value
        attributes["log_marginal_likelihood_se"] = evidence.std_error
    return attributes
