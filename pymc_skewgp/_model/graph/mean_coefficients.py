"""Gaussian variables in which the mean of a process is affine: integrated out together with it."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors

from pymc_skewgp._model.graph.affine import uses_values, why_not_affine
from pymc_skewgp._model.graph.joint_prior import design_and_offset, joint_prior
from pymc_skewgp._model.graph.members import Member, as_member, is_gaussian, mean_and_spread
from pymc_skewgp._sun.parameters import SunParameters


class OwnScale:
    """Free variables as inputs with their names, in place of PyMC's value variables.

    Attributes
    ----------
    rvs_to_values : dict
    """

    def __init__(self, variables: Sequence[Any]) -> None:
        self.rvs_to_values = {rv: rv.type(name=rv.name) for rv in variables}

    def replace_rvs_by_values(self, graphs: Sequence[Any]) -> list[Any]:
        """As ``pm.Model`` has it."""
        found: list[Any] = clone_replace(list(graphs), self.rvs_to_values)
        return found


def mean_coefficients(
    model: pm.Model, mean: Any, others: Sequence[Any], rest: Sequence[Any]
) -> list[Any]:
    """Free variables with which a process of this mean is jointly Gaussian.

    Those that their own means are affine in are among them.

    Parameters
    ----------
    model : pymc.Model
    mean : TensorVariable
        A graph of random variables.
    others : sequence of variables
        What else of process and data depends on variables: nothing of it may on the coefficients.
    rest : sequence of variables
        Random variables and potentials that count; the same holds for those that are no
        coefficients.
    """
    above = set(ancestors([mean]))
    candidates = [
        rv
        for rv in model.free_RVs
        if rv in above and is_gaussian(model, rv) and model.rvs_to_transforms[rv] is None
    ]
    chosen: list[Any] = []
    grows = True
    while grows:
        grows = False
        for rv in candidates:
            joined = [x for x in candidates if x in chosen or x is rv]
            if rv not in chosen and _are_coefficients(joined, mean, others, rest):
                chosen, grows = joined, True
    return chosen


def _are_coefficients(
    chosen: list[Any], mean: Any, others: Sequence[Any], rest: Sequence[Any]
) -> bool:
    below = [x for rv in rest if rv not in chosen for x in (rv.owner.inputs if rv.owner else ())]
    means = [mean]
    for rv in chosen:
        own, spread = mean_and_spread(rv)
        means.append(own)
        below += spread
    if any(uses_values([*others, *below], rv, chosen) for rv in chosen):
        return False
    return all(why_not_affine(graph, chosen) is None for graph in means)


def with_coefficients(
    model: pm.Model | OwnScale, coefficients: Sequence[Any], prior: SunParameters, n_latent: int
) -> SunParameters:
    """The values of a process, then coefficients of its mean, as one vector of value variables."""
    mean, *others = model.replace_rvs_by_values(list(prior))
    # Not from the mean, which coefficients are to be gone from.
    shape = pt.stack([others[0].shape[0]])
    about = SunParameters(pt.zeros(shape), *others)
    process = Member("", pt.vector(), mean, shape, about, n_latent, is_function=True)
    return joint_prior([process, *(as_member(model, rv) for rv in coefficients)])


class AffineMean(NamedTuple):
    """A mean k + M b whose coefficients b are Gaussian: graphs of the other variables.

    Attributes
    ----------
    design : TensorVariable, shape (n, p)
        M.
    mean : TensorVariable, shape (n,)
        With b at its own mean.
    cov : TensorVariable, shape (p, p)
        Of b.
    """

    design: Any
    mean: Any
    cov: Any


def affine_mean(variables: Sequence[Any], coefficients: Sequence[Any], mean: Any) -> AffineMean:
    """The mean of a process, a vector, without coefficients that it is affine in.

    `variables` are all the free ones of the model.
    """
    known = OwnScale(variables)
    (graph,) = known.replace_rvs_by_values([mean])
    members = [as_member(known, rv) for rv in coefficients]
    nothing = SunParameters(*(pt.zeros(0) for _ in SunParameters._fields))
    shape = pt.stack([graph.shape[0]])
    process = Member("", pt.vector(), graph, shape, nothing, 0, is_function=True)
    design, offset = design_and_offset(process, members)
    prior = joint_prior(members)
    back = {value: rv for rv, value in known.rvs_to_values.items()}
    found = clone_replace([design, offset + design @ prior.mu, prior.scale], back)
    return AffineMean(*found)
