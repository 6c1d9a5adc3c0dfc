"""What is left of a model once its latent functions are integrated out: evidences, and the rest."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.traversal import ancestors, graph_inputs

from pymc_skewgp._errors import NotConjugateError, NotSitesError
from pymc_skewgp._model.distributions.marginal_data import MarginalDataRV, rows_given
from pymc_skewgp._model.distributions.marginal_probit import MarginalProbitRV
from pymc_skewgp._model.gp.process import process_of_values
from pymc_skewgp._model.graph.analysis import BlockGraph, block_graph
from pymc_skewgp._model.graph.blocks import Block, block_of, part_of
from pymc_skewgp._model.graph.data_rows import RowsOfData
from pymc_skewgp._model.graph.data_sites import SitesOfData
from pymc_skewgp._model.graph.gaussian_terms import (
    SiteDesign,
    checked,
    gaussian_terms,
    noisy_rows,
    nowhere,
    predictors_of,
    zero,
)
from pymc_skewgp._model.graph.joined_rows import (
    NoisyRows,
    joined,
    joint_counts,
    joint_noise,
    predictor,
    rows_of_parts,
    sites_last,
)
from pymc_skewgp._model.graph.joint_gaussian import JointGaussian
from pymc_skewgp._model.graph.likelihoods.probit import PROBIT
from pymc_skewgp._model.graph.mean_coefficients import mean_coefficients, with_coefficients
from pymc_skewgp._model.graph.members import (
    is_function,
    latent_dimensions,
    mean_and_spread,
)
from pymc_skewgp._model.graph.observed_sites import site_design, sites_of_data
from pymc_skewgp._model.graph.site_blocks import gaussian_blocks, site_block_of
from pymc_skewgp._model.ops.skew_normal import (
    interval_limits,
    label_intervals,
    static_n_latent,
)
from pymc_skewgp._posterior.evidence_terms import EvidenceTerms
from pymc_skewgp._posterior.factor_terms import FactorTerms
from pymc_skewgp._sun.parameters import SunParameters

# Terms, and sites on their last rows.
Evidence = tuple[EvidenceTerms, tuple[SitesOfData, ...]]


class Collapsed(NamedTuple):
    """A model without its latent functions.

    Attributes
    ----------
    evidences : list of EvidenceTerms or FactorTerms
        One for each block, graphs of the model's variables or of their values; the second kind of
        blocks without a SkewGP.
    sites : list of tuples of SitesOfData
        Of each evidence: sites on its last rows, none where all are points or intervals.
    rest : list of variables
        Everything else that has a density: priors, other observations, potentials.
    blocks : list of BlockGraph or None
        What each of the evidences comes from; None where the model has it collapsed already.
    designs : list of SiteDesign, JointGaussian or None
        Of each block; None where it has no sites. Of one without a SkewGP its white coordinates.
    coefficients : list of variables
        Of the mean of a process, integrated out with it: see `mean_coefficients`.
    """

    evidences: list[EvidenceTerms | FactorTerms]
    sites: list[tuple[SitesOfData, ...]]
    rest: list[Any]
    blocks: Sequence[BlockGraph | None] = ()
    designs: Sequence[SiteDesign | JointGaussian | None] = ()
    coefficients: Sequence[Any] = ()


def collapse_model(model: pm.Model, *, drawn: bool = False) -> Collapsed:
    """Integrate out every latent function whose observations have a known likelihood.

    With it go the Gaussian variables that are jointly Gaussian with it given the data; those that
    its mean depends on where functions are `drawn` with them, or where a posterior at a point has
    them in its kernel.

    Raises
    ------
    ValueError
        Where there is none; the message says what is in the way.
    """
    evidences: list[EvidenceTerms | FactorTerms] = []
    sites: list[tuple[SitesOfData, ...]] = []
    blocks: list[BlockGraph | None] = []
    designs: list[SiteDesign | JointGaussian | None] = []
    reasons: list[str] = []
    coefficients: list[Any] = []
    gone: set[str] = set()
    for rv in model.observed_RVs:
        if isinstance(rv.owner.op, MarginalProbitRV | MarginalDataRV):
            terms, known, chosen = _of_marginal_without_coefficients(model, rv, drawn)
            coefficients += chosen
            evidences.append(terms)
            sites.append(known)
            blocks.append(None)
            designs.append(None)
            gone.update(x.name for x in (rv, *chosen))
    for rv in model.free_RVs:
        if not is_function(rv) or rv.name in gone:
            continue
        try:
            block = _block_of(model, rv, drawn)
        except (NotConjugateError, NotSitesError) as error:
            reasons.append(error.reason)
            continue
        evidences.append(_of_block(block))
        sites.append(tuple(sites_of_data(y) for y in block.sites))
        blocks.append(block)
        designs.append(_design_of_sites(block))
        gone.update([*block.names, *(y.name for y in block.observed)])
        gone.update(y.name for y in block.sites)
        gone.update(x.name for x in block.predicted)
    for found in gaussian_blocks(model, gone):
        block = block_graph(model, found)
        factor_terms, joint = gaussian_terms(model, block, found.potentials)
        evidences.append(factor_terms)
        sites.append(tuple(sites_of_data(y) for y in block.sites))
        blocks.append(block)
        designs.append(joint)
        gone.update([*block.names, *found.below])
    if reasons or not evidences:
        raise ValueError(
            "no evidence with the latent function integrated out: "
            + (" ".join(reasons) or "the model has no marginal_likelihood and no SkewGP prior.")
            + " Use SkewGP.marginal_likelihood, or SkewGP.prior under observations that are "
            "independent given predictors affine in f."
        )
    rest = [x for x in [*model.basic_RVs, *model.potentials] if x.name not in gone]
    graphs = [part.parameters for known in sites for part in known]
    _refuse_products(model, [*evidences, *graphs], gone)
    return Collapsed(evidences, sites, rest, blocks, designs, coefficients)


def collapse_process(
    model: pm.Model,
    gp: Any,
    parts: list[RowsOfData],
    coregion: Any | None = None,
    *,
    without_coefficients: bool = False,
) -> Collapsed:
    """A SkewGP under data of one kind or of several, and the priors of what it needs.

    With `without_coefficients` Gaussian coefficients of its mean are integrated out as well.
    """
    parts = sites_last(parts)
    sun = process_of_values(gp, [part.values for part in parts], 0.0, coregion)
    terms = _terms(*rows_of_parts(sun, parts))
    sites = tuple(part.sites for part in parts if part.sites is not None)
    parameters = [x for part in sites for x in part.parameters]
    used = set(ancestors([*terms, *parameters]))
    rest = [rv for rv in model.free_RVs if rv in used]
    others = set(model.basic_RVs).difference(rest)
    # Potentials that tie these to other variables of the model say nothing without them.
    rest += [p for p in model.potentials if others.isdisjoint(ancestors([p]))]
    if not without_coefficients:
        return Collapsed([terms], [sites], rest)
    found, chosen = _without_coefficients(
        model, sun, lambda x: _terms(*rows_of_parts(x, parts)), parameters, rest
    )
    rest = [x for x in rest if x not in chosen]
    return Collapsed([found], [sites], rest, coefficients=chosen)


def _without_coefficients(
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
    return terms_of(_sun(joint, n_latent)), chosen


def evidences_of_variables(
    model: pm.Model,
) -> dict[str, Evidence]:
    """Of each variable made by `SkewGP.marginal_likelihood`, graphs of the random variables."""
    return {
        rv.name: _of_marginal(model, rv)
        for rv in model.observed_RVs
        if isinstance(rv.owner.op, MarginalProbitRV | MarginalDataRV)
    }


def _of_marginal_without_coefficients(
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
    found, chosen = _without_coefficients(
        model, sun, lambda x: _of_marginal(model, rv, x)[0], learnt, rest
    )
    return found, sites, chosen


def _of_marginal(model: pm.Model, rv: Any, sun: SunParameters | None = None) -> Evidence:
    """Its evidence; or that with other parameters of the function."""
    parameters = list(rv.owner.op.dist_params(rv.owner))
    if sun is not None:
        parameters[: len(sun)] = sun
    if isinstance(rv.owner.op, MarginalDataRV):
        given = rows_given(rv.owner.op, model.rvs_to_values[rv], parameters)
        n_latent = latent_dimensions(parameters[: len(SunParameters._fields)])
        return _terms(_sun(given.sun, n_latent), given.rows), given.sites
    if rv.type.ndim != 1:
        raise ValueError(f"{rv.name} has batch dimensions: give each data set a variable.")
    sun = _sun(SunParameters(*parameters), latent_dimensions(parameters))
    labels = checked(rv.name, model.rvs_to_values[rv], PROBIT)
    lower, upper, noise = label_intervals(labels)
    return _terms(sun, NoisyRows(noise, lower, upper, nowhere(lower), zero())), ()


def _without_means(model: pm.Model, block: Block) -> Block:
    """A block without its Gaussian variables that the means of its functions depend on."""
    kept = {rv for rv in block.members if is_function(rv)}
    means = [mean_and_spread(rv)[0] for rv in kept]
    above = set(ancestors(means)).difference(kept)
    return part_of(model, block, [rv for rv in block.members if rv not in above])


def _block_of(model: pm.Model, rv: Any, drawn: bool) -> BlockGraph:
    """A block of rows alone, or of rows and sites."""
    try:
        block = block_of(model, rv)
        functions = [x.owner for x in block.members if is_function(x)]
        if not drawn and any(latent_dimensions(x.op.dist_params(x)) != 0 for x in functions):
            block = _without_means(model, block)
        if all(y.rows.mixture is None for y in block.observed):
            return block_graph(model, block)
    except NotConjugateError:  # sites say better what is in the way
        pass
    return block_graph(model, site_block_of(model, rv))


def _design_of_sites(block: BlockGraph) -> SiteDesign | None:
    sites = block.sites
    if not sites:
        return None
    return SiteDesign(joined([site_design(block, y) for y in sites]), joined([y.a for y in sites]))


def _of_block(block: BlockGraph) -> EvidenceTerms:
    A, a = predictors_of(block)
    sun = predictor(_sun(block.prior, block.n_latent), A, a)
    rows = [noisy_rows(y) for y in block.observed]
    rows += [_no_rows(known.a) for known in block.sites]
    lower, upper, value = (
        joined([getattr(x, name) for x in rows]) for name in NoisyRows._fields[1:4]
    )
    log_constant = sum(x.log_constant for x in rows)
    S = joint_noise([x.S for x in rows])
    counts = joint_counts([(x.counts, x.lower) for x in rows])
    return _terms(sun, NoisyRows(S, lower, upper, value, log_constant, counts=counts))


def _no_rows(a: Any) -> NoisyRows:
    """Predictors of sites: at 0, without noise."""
    origin = pt.zeros_like(a, dtype="float64")
    return NoisyRows(origin, origin, origin, nowhere(origin), zero())


def _refuse_products(model: pm.Model, evidences: list[tuple[Any, ...]], gone: set[str]) -> None:
    """Data that see a product of functions would count twice, given one and given the other."""
    latent = {model.rvs_to_values[rv] for rv in model.free_RVs if rv.name in gone}
    graphs = model.replace_rvs_by_values([x for terms in evidences for x in terms])
    shared = sorted(value.name for value in latent.intersection(graph_inputs(graphs)))
    if shared:
        raise ValueError(
            f"data depend on {' and '.join(shared)} together and not jointly affinely: neither can "
            "be integrated out without the other. Sums of functions can, products cannot."
        )


def _sun(prior: SunParameters, n_latent: int | None) -> SunParameters:
    if n_latent is None:
        raise ValueError("the number of latent dimensions must be known before any evaluation.")
    return prior._replace(latent_cov=pt.specify_shape(prior.latent_cov, (n_latent, n_latent)))


def _terms(sun: SunParameters, rows: NoisyRows) -> EvidenceTerms:
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
