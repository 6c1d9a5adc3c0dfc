"""Evidences of functions that are integrated out, as terms: of data, and of marginal variables."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors

from pymc_skewgp._model.distributions.marginal import MarginalDataRV, MarginalProbitRV, rows_given
from pymc_skewgp._model.graph.affine import uses_values, why_not_affine
from pymc_skewgp._model.graph.data_rows import NoisyRows
from pymc_skewgp._model.graph.data_sites import SitesOfData
from pymc_skewgp._model.graph.gaussian_terms import checked, nowhere, zero
from pymc_skewgp._model.graph.joint_gaussian import design_and_offset, joint_prior
from pymc_skewgp._model.graph.likelihoods.normal import MVNORMAL
from pymc_skewgp._model.graph.likelihoods.probit import PROBIT
from pymc_skewgp._model.graph.members import (
    Member,
    as_member,
    is_gaussian,
    latent_dimensions,
    mean_and_spread,
)
from pymc_skewgp._model.graph.sites import recognised
from pymc_skewgp._model.ops.densities import interval_limits, label_intervals, static_n_latent
from pymc_skewgp._posterior.evidence_gradient import EvidenceTerms
from pymc_skewgp._sun.parameters import SunParameters

# Gaussian variables in which the mean of a process is affine: integrated out together with it.


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


# Terms, and sites on their last rows.
Evidence = tuple[EvidenceTerms, tuple[SitesOfData, ...]]


def evidences_of_variables(
    model: pm.Model,
) -> dict[str, Evidence]:
    """Of each variable made by `SkewGP.marginal_likelihood`, graphs of the random variables."""
    return {
        rv.name: _of_marginal(model, rv)
        for rv in model.observed_RVs
        if isinstance(rv.owner.op, MarginalProbitRV | MarginalDataRV)
    }


def marginal_evidence(
    model: pm.Model, rv: Any, drawn: bool
) -> tuple[EvidenceTerms, tuple[SitesOfData, ...], list[Any]]:
    """With the coefficients of the mean that were integrated out; where all is `drawn` none are.

    Such a variable has no function to draw them with.
    """
    terms, sites = _of_marginal(model, rv)
    parameters = list(rv.owner.op.dist_params(rv.owner))
    sun = SunParameters(*parameters[: len(SunParameters._fields)])
    kinds = getattr(rv.owner.op, "kinds", None)
    several = kinds is not None and any(part.n_functions > 1 for part in kinds.parts)
    if drawn or several or latent_dimensions(sun) != 0:
        return terms, sites, []
    rest = [x for x in [*model.basic_RVs, *model.potentials] if x is not rv]
    learnt = [x for part in sites for x in part.parameters]
    found, chosen = coefficients_out(
        model, sun, lambda x: _of_marginal(model, rv, x)[0], learnt, rest
    )
    return found, sites, chosen


def coefficients_out(
    model: pm.Model,
    sun: SunParameters,
    terms_of: Callable[[SunParameters], EvidenceTerms],
    parameters: Sequence[Any],
    rest: Sequence[Any],
) -> tuple[EvidenceTerms, list[Any]]:
    """Terms of a process, Gaussian coefficients of its mean integrated out, and which they are.

    `parameters` are those of sites, `rest` as for `mean_coefficients`.
    """
    # What is left of the terms where the mean is zero depends on all but the mean.
    centred = terms_of(sun._replace(mu=pt.zeros(sun.scale.shape[:1])))
    chosen = mean_coefficients(model, sun.mu, [*centred, *parameters], rest)
    if not chosen:
        return terms_of(sun), chosen
    n_latent, n = static_n_latent(sun), sun.scale.shape[0]
    joint = with_coefficients(model, chosen, sun, n_latent or 0)
    joint = joint._replace(
        mu=joint.mu[:n], scale=joint.scale[:n, :n], cross_cov=joint.cross_cov[:n]
    )
    return terms_of(known_sun(joint, n_latent)), chosen


def _of_marginal(model: pm.Model, rv: Any, sun: SunParameters | None = None) -> Evidence:
    """Its evidence; or that with other parameters of the function."""
    parameters = list(rv.owner.op.dist_params(rv.owner))
    if sun is not None:
        parameters[: len(sun)] = sun
    if isinstance(rv.owner.op, MarginalDataRV):
        given = rows_given(rv.owner.op, model.rvs_to_values[rv], parameters)
        n_latent = latent_dimensions(parameters[: len(SunParameters._fields)])
        return evidence_terms(known_sun(given.sun, n_latent), given.rows), given.sites
    if rv.type.ndim != 1:
        raise ValueError(f"{rv.name} has batch dimensions: give each data set a variable.")
    sun = known_sun(SunParameters(*parameters), latent_dimensions(parameters))
    labels = checked(rv.name, model.rvs_to_values[rv], PROBIT)
    lower, upper, noise = label_intervals(labels)
    return evidence_terms(sun, NoisyRows(noise, lower, upper, nowhere(lower), zero())), ()


def evidence_of_values(model: pm.Model, rv: Any) -> EvidenceTerms | None:
    """Of an observed `pm.MvNormal`, as of ``pm.gp.Marginal``: its function is integrated out.

    None for any other variable, and where no parameters are free.
    """
    found = recognised(model, rv)
    if found is None or found.likelihood is not MVNORMAL:
        return None
    if set(model.free_RVs).isdisjoint(ancestors(found.rows.graphs)):
        return None
    value = checked(rv.name, model.rvs_to_values[rv], MVNORMAL)
    mean = pt.broadcast_to(found.rows.predictor, found.rows.shape).ravel()
    origin = pt.zeros_like(mean, dtype="float64")
    none = pt.zeros(0, dtype="float64")
    return EvidenceTerms(
        origin,
        origin,
        pt.cast(value.ravel(), "float64") - mean,
        found.rows.noise,
        origin,
        none,
        none,
        pt.zeros((0, 0), dtype="float64"),
        zero(),
        pt.as_tensor_variable(np.float64(1.0)),
    )


def known_sun(prior: SunParameters, n_latent: int | None) -> SunParameters:
    if n_latent is None:
        raise ValueError("the number of latent dimensions must be known before any evaluation.")
    return prior._replace(latent_cov=pt.specify_shape(prior.latent_cov, (n_latent, n_latent)))


def evidence_terms(sun: SunParameters, rows: NoisyRows) -> EvidenceTerms:
    lower, upper, cov = interval_limits(sun, rows.lower, rows.upper, rows.S)
    truncation = sun.truncation
    apart = rows.S.type.ndim == 1 and not rows.constrained  # a nugget must stay what it is
    own = rows.S if apart else pt.zeros_like(rows.value)
    counts = np.float64(1.0)
    if rows.counts is not None:
        counts = pt.concatenate([pt.ones_like(truncation, dtype="float64"), rows.counts])
        own = rows.S
        if own.type.ndim == 2:  # the noise of rows that repeat is their own all the same
            own = pt.switch(pt.gt(rows.counts, 1.0), pt.diagonal(own), np.float64(0.0))
    return EvidenceTerms(
        lower,
        upper,
        pt.concatenate([nowhere(truncation), rows.value - sun.mu]),
        cov,
        pt.concatenate([pt.zeros_like(truncation, dtype="float64"), own]),
        -truncation,
        pt.full_like(truncation, float("inf"), dtype=truncation.dtype),
        sun.latent_cov,
        rows.log_constant,
        pt.as_tensor_variable(counts),
    )
