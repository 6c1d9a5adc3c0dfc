"""Likelihoods with values for the random variables among their parameters."""

from dataclasses import fields, is_dataclass, replace
from typing import Any

from pytensor.graph.basic import Variable

from pymc_skewgp._model.gp.distribution_sites import DistributionSites
from pymc_skewgp._model.gp.functions import Point, compile_at
from pymc_skewgp._observations.likelihood import Likelihood


def likelihood_at(likelihood: Any, point: Point) -> Any:
    """`likelihood` with every parameter that is a graph replaced by its value at `point`.

    A function from a predictor to a PyMC distribution becomes a likelihood of sites.

    Raises
    ------
    ValueError
        When `point` lacks a value.
    """
    if callable(likelihood) and not isinstance(likelihood, type | Likelihood):
        return DistributionSites(likelihood, point)
    if isinstance(likelihood, type) or not is_dataclass(likelihood):  # none, or refused later
        return likelihood
    found: dict[str, Any] = {}
    for field in fields(likelihood):
        value = getattr(likelihood, field.name)
        if isinstance(value, Variable):
            found[field.name] = compile_at([], value, point)()
        elif isinstance(value, Likelihood) or callable(value):  # the one that has weights
            found[field.name] = likelihood_at(value, point)
    known: Any = likelihood
    return replace(known, **found) if found else known
