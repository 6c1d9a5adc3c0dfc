"""What is left of a model once its latent functions are integrated out: evidences, and the rest."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.model.fgraph import fgraph_from_model, model_from_fgraph
from pymc.pytensorf import toposort_replace
from pytensor.graph.replace import clone_replace, graph_replace
from pytensor.graph.traversal import ancestors, graph_inputs
from pytensor.tensor.random.basic import UniformRV
from xarray import DataTree

from pymc_skewgp._errors import NotConjugateError, NotSitesError
from pymc_skewgp._model.distributions.marginal import MarginalDataRV, MarginalRV, rows_given
from pymc_skewgp._model.gp.process import process_of_values
from pymc_skewgp._model.graph import affine, analysis, data, likelihoods
from pymc_skewgp._model.graph import gaussian_terms as of_block
from pymc_skewgp._model.graph import members as kinds
from pymc_skewgp._model.graph.fields import Field
from pymc_skewgp._model.graph.members import JointGaussian, joint_prior
from pymc_skewgp._model.graph.sites import distribution_name, recognised
from pymc_skewgp._model.ops import densities
from pymc_skewgp._model.ops.plain_mode import PLAIN
from pymc_skewgp._posterior.evidence_gradient import EvidenceTerms
from pymc_skewgp._posterior.site_evidence import FactorTerms, FieldTerms
from pymc_skewgp._sun.parameters import SunParameters

# Gaussian variables in which the mean of a process is affine: integrated out together with it.


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
        if rv in above and kinds.is_gaussian(model, rv) and model.rvs_to_transforms[rv] is None
    ]
    chosen: list[Any] = []
    grows = True
    while grows:
        grows = False
        for rv in candidates:
            both = [x for x in candidates if x in chosen or x is rv]
            if rv not in chosen and _are_coefficients(both, mean, others, rest):
                chosen, grows = both, True
    return chosen


def _are_coefficients(
    chosen: list[Any], mean: Any, others: Sequence[Any], rest: Sequence[Any]
) -> bool:
    below = [x for rv in rest if rv not in chosen for x in (rv.owner.inputs if rv.owner else ())]
    means = [mean]
    for rv in chosen:
        own, spread = kinds.mean_and_spread(rv)
        means.append(own)
        below += spread
    if any(affine.uses_values([*others, *below], rv, chosen) for rv in chosen):
        return False
    return all(affine.why_not_affine(graph, chosen) is None for graph in means)


class AffineMean(NamedTuple):
    """A mean k + M b whose coefficients b are Gaussian: graphs of the other variables.

    Attributes
    ----------
    design : TensorVariable, shape (n, p)
        M.
    mean : TensorVariable, shape (n,)
        With b at its own mean.
    own : TensorVariable, shape (p,)
        That of b.
    cov : TensorVariable, shape (p, p)
        Of b.
    """

    design: Any
    mean: Any
    own: Any
    cov: Any


def affine_mean(variables: Sequence[Any], coefficients: Sequence[Any], mean: Any) -> AffineMean:
    """The mean of a process, a vector, without coefficients that it is affine in.

    `variables` are all the free ones of the model.
    """
    # Inputs in place of variables on their own scale, where PyMC's values have transforms.
    values = {rv: rv.type(name=rv.name) for rv in variables}
    by_values = partial(clone_replace, replace=values)
    known: Any = SimpleNamespace(rvs_to_values=values, replace_rvs_by_values=by_values)
    graph = by_values(mean)
    members = [kinds.as_member(known, rv) for rv in coefficients]
    nothing = SunParameters(*(pt.zeros(0) for _ in SunParameters._fields))
    shape = pt.stack([graph.shape[0]])
    process = kinds.Member("", pt.vector(), graph, shape, nothing, 0, is_function=True)
    design, offset = process.mean_given(members)
    prior = joint_prior(members)
    back = {value: rv for rv, value in values.items()}
    found = [design, offset + design @ prior.mu, prior.mu, prior.scale]
    return AffineMean(*graph_replace(found, back, strict=False))  # clones no random variable


# Terms, and sites on their last rows.
Evidence = tuple[EvidenceTerms, tuple[data.SitesOfData, ...]]


def evidences_of_variables(model: pm.Model) -> dict[str, Evidence]:
    """Of each variable made by `SkewGP.marginal_likelihood`, graphs of the random variables."""
    return {
        rv.name: _of_marginal(model, rv)
        for rv in model.observed_RVs
        if isinstance(rv.owner.op, MarginalRV)
    }


def marginal_evidence(
    model: pm.Model, rv: Any, drawn: bool
) -> tuple[EvidenceTerms, tuple[data.SitesOfData, ...], list[Any]]:
    """With the coefficients of the mean that were integrated out; where all is `drawn` none are.

    Such a variable has no function to draw them with.
    """
    terms, sites = _of_marginal(model, rv)
    parameters = list(rv.owner.op.dist_params(rv.owner))
    sun = SunParameters(*parameters[: len(SunParameters._fields)])
    found = getattr(rv.owner.op, "kinds", None)
    several = found is not None and any(part.n_functions > 1 for part in found.parts)
    if drawn or several or kinds.latent_dimensions(sun) != 0:
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
    if set(model.free_RVs).isdisjoint(ancestors([sun.mu])):
        return terms_of(sun), []
    # What is left of the terms where the mean is zero depends on all but the mean.
    centred = terms_of(sun._replace(mu=pt.zeros(sun.scale.shape[:1])))
    chosen = mean_coefficients(model, sun.mu, [*centred, *parameters], rest)
    if not chosen:
        return terms_of(sun), chosen
    of = affine_mean(model.free_RVs, chosen, sun.mu)
    whole = sun._replace(mu=of.mean, scale=sun.scale + of.design @ of.cov @ of.design.T)
    return terms_of(known_sun(whole, densities.static_n_latent(sun))), chosen


def _of_marginal(model: pm.Model, rv: Any, sun: SunParameters | None = None) -> Evidence:
    """Its evidence; or that with other parameters of the function."""
    parameters = list(rv.owner.op.dist_params(rv.owner))
    if sun is not None:
        parameters[: len(sun)] = sun
    if isinstance(rv.owner.op, MarginalDataRV):
        own, rows, sites, _ = rows_given(rv.owner.op, model.rvs_to_values[rv], parameters)
        n_latent = kinds.latent_dimensions(parameters[: len(SunParameters._fields)])
        return evidence_terms(known_sun(own, n_latent), rows), sites
    if rv.type.ndim != 1:
        raise ValueError(f"{rv.name} has batch dimensions: give each data set a variable.")
    sun = known_sun(SunParameters(*parameters), kinds.latent_dimensions(parameters))
    labels = of_block.checked(rv.name, model.rvs_to_values[rv], likelihoods.labels)
    lower, upper, noise = densities.label_intervals(labels)
    return evidence_terms(sun, data.NoisyRows(noise, lower, upper, data.nowhere(lower))), ()


def evidence_of_values(model: pm.Model, rv: Any) -> EvidenceTerms | None:
    """Of an observed `pm.MvNormal`, as of ``pm.gp.Marginal``: its function is integrated out.

    None for any other variable, and where no parameters are free.
    """
    found = recognised(model, rv)
    if found is None or found.likelihood is not likelihoods.mvnormal:
        return None
    if set(model.free_RVs).isdisjoint(ancestors(found.rows.graphs)):
        return None
    value = of_block.checked(rv.name, model.rvs_to_values[rv], likelihoods.mvnormal)
    mean = pt.broadcast_to(found.rows.predictor, found.rows.shape).ravel()
    noise, y = found.rows.noise, pt.cast(value.ravel(), "float64")
    known = densities.sun_of_process(mean, pt.zeros_like(noise), None, None, 0)
    return evidence_terms(known, data.NoisyRows(noise, y, y, y))


def known_sun(prior: SunParameters, n_latent: int | None) -> SunParameters:
    if n_latent is None:
        raise ValueError("the number of latent dimensions must be known before any evaluation.")
    return prior._replace(latent_cov=pt.specify_shape(prior.latent_cov, (n_latent, n_latent)))


def evidence_terms(sun: SunParameters, rows: data.NoisyRows) -> EvidenceTerms:
    lower, upper, cov = densities.interval_limits(sun, rows.lower, rows.upper, rows.S)
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
        pt.concatenate([data.nowhere(truncation), rows.value - sun.mu]),
        cov,
        pt.concatenate([pt.zeros_like(truncation, dtype="float64"), own]),
        -truncation,
        pt.full_like(truncation, float("inf"), dtype=truncation.dtype),
        sun.latent_cov,
        rows.log_constant,
        pt.as_tensor_variable(counts),
    )


# Free variables that a refusal names.
_MOST_NAMED = 6


class Collapsed(NamedTuple):
    """A model without its latent functions.

    Attributes
    ----------
    evidences : list of EvidenceTerms, FactorTerms or FieldTerms
        One for each block, graphs of the model's variables or of their values; the second kind of
        blocks without a SkewGP.
    sites : list of tuples of SitesOfData
        Of each evidence: sites on its last rows, none where all are points or intervals.
    rest : list of variables
        Everything else that has a density: priors, other observations, potentials.
    blocks : list of BlockGraph or None
        What each of the evidences comes from; None where the model has it collapsed already.
    designs : list of SiteDesign, JointGaussian, Field or None
        Of each block; None where it has no sites. Of one without a SkewGP its white coordinates.
    coefficients : list of variables
        Of the mean of a process, integrated out with it: see `mean_coefficients`.
    """

    evidences: list[EvidenceTerms | FactorTerms | FieldTerms]
    sites: list[tuple[data.SitesOfData, ...]]
    rest: list[Any]
    blocks: list[analysis.BlockGraph | None]
    designs: list[of_block.SiteDesign | JointGaussian | Field | None]
    coefficients: list[Any]

    def add(
        self,
        terms: EvidenceTerms | FactorTerms | FieldTerms,
        sites: tuple[data.SitesOfData, ...] = (),
        block: analysis.BlockGraph | None = None,
        design: of_block.SiteDesign | JointGaussian | Field | None = None,
    ) -> None:
        """One more part; sites of a block are read from it."""
        self.evidences.append(terms)
        own = [] if block is None else [of_block.sites_of_data(y) for y in block.sites]
        self.sites.append((*sites, *own))
        self.blocks.append(block)
        self.designs.append(design)

    def warn(self, model: pm.Model) -> None:
        """See `collapse_model`."""
        for block in self.blocks:
            for name in [] if block is None else block.names:
                kinds.warn_of_scale(model, model[name], stacklevel=5)


class ModelParts(NamedTuple):
    """What of a model is integrated out, and what is in the way.

    Attributes
    ----------
    collapsed : Collapsed
        As far as it is known.
    reasons : dict of str to ValueError
        By variable that could be integrated out by its prior, why it is not.
    obstacle : ValueError or None
        Why the model is refused.
    """

    collapsed: Collapsed
    reasons: dict[str, ValueError]
    obstacle: ValueError | None


def collapse_model(model: pm.Model, *, drawn: bool = False) -> Collapsed:
    """Integrate out every latent function whose observations have a known likelihood.

    With it go the Gaussian variables that are jointly Gaussian with it given the data; those that
    its mean depends on where functions are `drawn` with them, or where a posterior at a point has
    them in its kernel.

    Raises
    ------
    ValueError
        Where there is none; the message says what is in the way.

    Warns
    -----
    UnnormalizedPriorWarning
        For `pm.ICAR` with a random sigma.
    """
    found = parts_of_model(model, drawn=drawn)
    if found.obstacle is not None:
        raise found.obstacle
    found.collapsed.warn(model)
    return found.collapsed


def parts_of_model(model: pm.Model, *, drawn: bool = False) -> ModelParts:
    """`collapse_model`, with what is known where it would raise."""
    found = Collapsed([], [], [], [], [], [])
    reasons: dict[str, ValueError] = {}
    gone: set[str] = set()
    try:
        _refuse_misfits(model)
        for rv in model.observed_RVs:
            if isinstance(rv.owner.op, MarginalRV):
                terms, known, chosen = marginal_evidence(model, rv, drawn)
                found.coefficients.extend(chosen)
                found.add(terms, known)
                gone.update(x.name for x in (rv, *chosen))
        for rv in model.free_RVs:
            if not kinds.is_function(rv) or rv.name in gone:
                continue
            try:
                block = _block_of(model, rv, drawn)
            except (NotConjugateError, NotSitesError) as error:
                reasons[rv.name] = error
                continue
            design = of_block.predictors_of(block.sites) if block.sites else None
            found.add(_of_block(block), (), block, design)
            kids = [*block.all_observed, *block.predicted]
            gone.update([*block.names, *(x.name for x in kids)])
        functions = list(reasons.values())
        _add_gaussian_blocks(model, found, gone, reasons)
        for rv in [] if functions or found.evidences else model.observed_RVs:
            values = evidence_of_values(model, rv)
            if values is not None:
                found.add(values)
                gone.add(rv.name)
        if not functions and not found.evidences:
            _add_gaussian_blocks(model, found, gone, reasons, short=True)
        found.rest.extend(x for x in [*model.basic_RVs, *model.potentials] if x.name not in gone)
        if functions or not found.evidences:
            raise _without_evidence(model, functions, reasons)
        graphs = [part.parameters for known in found.sites for part in known]
        _refuse_products(model, [*found.evidences, *graphs], gone)
    except ValueError as error:
        return ModelParts(found, reasons, error)
    return ModelParts(found, reasons, None)


def _add_gaussian_blocks(
    model: pm.Model,
    found: Collapsed,
    gone: set[str],
    reasons: dict[str, ValueError],
    *,
    short: bool = False,
) -> None:
    for own in analysis.gaussian_blocks(model, gone, reasons, short=short):
        block = analysis.block_graph(model, own)
        factor_terms, joint = of_block.gaussian_terms(model, block, own.potentials)
        found.add(factor_terms, (), block, joint)
        gone.update([*block.names, *own.below])


def _without_evidence(
    model: pm.Model, functions: Sequence[ValueError], reasons: Mapping[str, ValueError]
) -> ValueError:
    """Nothing is integrated out, or not every function that is to be."""
    beginning = "no evidence with the latent function integrated out: "
    if functions:
        why = " ".join(getattr(error, "reason", str(error)) for error in functions)
        return ValueError(
            f"{beginning}{why} Use SkewGP.marginal_likelihood, or SkewGP.prior under "
            "observations that are independent given predictors affine in f; or pm.sample."
        )
    if not reasons:
        named = [_described(model, rv) for rv in model.free_RVs]
        some = ", ".join([*named[:_MOST_NAMED], "..."] if len(named) > _MOST_NAMED else named)
        bounded = any(isinstance(rv.owner.op, UniformRV) for rv in model.free_RVs)
        advice = (
            "Coefficients of a predictor can have pm.Normal or pm.Flat in place of pm.Uniform, "
            "whose bounds no Gaussian has; otherwise use pm.sample."
        )
        return ValueError(
            f"{beginning}the model has no marginal_likelihood, no SkewGP prior and no Gaussian "
            "variable, such as pm.Normal, with a log density that is quadratic; its free variables "
            f"are {some or 'none'}. {advice if bounded else 'Use pm.sample.'}"
        )
    each = " ".join(dict.fromkeys(getattr(x, "reason", str(x)) for x in reasons.values()))
    return ValueError(
        f"{beginning}{each} Observations are to be independent given predictors that are affine "
        "in Gaussian variables; otherwise use pm.sample."
    )


def _described(model: pm.Model, rv: Any) -> str:
    transform = model.rvs_to_transforms[rv]
    is_bounded = transform and kinds.is_typed(rv)
    bounded = f", bounded by the transform {transform.name}" if is_bounded else ""
    return f"{rv.name} ({distribution_name(rv)}{bounded})"


def _refuse_misfits(model: pm.Model) -> None:
    """Refuse observed variables without rows, or with parameters of another shape."""
    for rv in model.observed_RVs:
        value = model.rvs_to_values[rv]
        shared = hasattr(value, "get_value")
        known = value.get_value(borrow=True) if shared else value.eval(mode=PLAIN)
        if not np.size(known):
            raise ValueError(f"{rv.name} has no rows: give it data, or leave it out of the model.")
        op, node = rv.owner.op, rv.owner
        elementwise = getattr(op, "ndims_params", None) or (1,)
        if rv.type.ndim == 0 or any(elementwise):
            continue
        for parameter in op.dist_params(node):
            shape = parameter.type.shape
            pairs = zip(shape[::-1], np.shape(known)[::-1], strict=False)
            if any(own not in (None, 1, n) for own, n in pairs) or len(shape) > np.ndim(known):
                raise ValueError(
                    f"{rv.name} has observations of shape {np.shape(known)} and a parameter of "
                    f"shape {shape}, which does not fit: give it a value for each observation."
                )


def collapse_process(
    model: pm.Model,
    gp: Any,
    parts: list[data.RowsOfData],
    coregion: Any | None = None,
    *,
    without_coefficients: bool = False,
) -> Collapsed:
    """A SkewGP under data of one kind or of several, and the priors of what it needs.

    With `without_coefficients` Gaussian coefficients of its mean are integrated out as well.
    """
    parts = sorted(parts, key=lambda part: part.sites is not None)  # their predictors are last
    sun = process_of_values(gp, [part.values for part in parts], 0.0, coregion)
    rows = data.rows_of_parts(sun, parts)
    is_one = all(part.sites is None or part.values.n_functions == 1 for part in parts)
    terms = evidence_terms(*rows) if is_one else _factor_terms(gp, parts, *rows)
    sites = tuple(part.sites for part in parts if part.sites is not None)
    parameters = [x for part in sites for x in part.parameters]
    used = set(ancestors([*terms, *parameters]))
    rest = [rv for rv in model.free_RVs if rv in used]
    others = set(model.basic_RVs).difference(rest)
    # Potentials that tie these to other variables of the model say nothing without them.
    rest += [p for p in model.potentials if others.isdisjoint(ancestors([p]))]
    chosen: list[Any] = []
    if without_coefficients and isinstance(terms, EvidenceTerms):
        given = terms

        def terms_of(own: SunParameters) -> EvidenceTerms:
            return given if own is sun else evidence_terms(*data.rows_of_parts(own, parts))

        terms, chosen = coefficients_out(model, sun, terms_of, parameters, rest)
    rest = [x for x in rest if x not in chosen]
    return Collapsed([terms], [sites], rest, [None], [None], chosen)


# Of the mean variance, which makes a covariance regular: exact evidences do without it.
_NUGGET = 1e-9


def _factor_terms(
    gp: Any, parts: list[data.RowsOfData], sun: SunParameters, rows: data.NoisyRows
) -> FactorTerms:
    """In white coordinates, where factors are about several functions.

    Raises
    ------
    NotSitesError
        With pseudo-points, or data of several kinds.
    """
    if gp.pseudo_points is not None or len(parts) > 1:
        found = "pseudo-points" if len(parts) == 1 else "data of several kinds"
        raise NotSitesError(
            f"hyperparameters are not learnt from a likelihood of several functions with {found}.",
            "Write a model: f and g each by gp.prior or pm.gp.Latent, and the data as variables.",
        )
    n, none = sun.scale.shape[0], pt.zeros(0, dtype="float64")
    nugget = _NUGGET * pt.diagonal(sun.scale).mean() * pt.eye(n)
    factor = pt.linalg.cholesky(sun.scale + nugget)
    one = pt.constant(1.0, dtype="float64")
    return FactorTerms(factor, sun.mu, *(none,) * 4, one, rows.log_constant)


def _block_of(model: pm.Model, rv: Any, drawn: bool) -> analysis.BlockGraph:
    """A block of rows alone, or of rows and sites."""
    try:
        block = analysis.block_of(model, rv)
        functions = [x for x in block.members if kinds.is_function(x)]
        parameters = [x.owner.op.dist_params(x.owner) for x in functions]
        if not drawn and any(kinds.latent_dimensions(x) != 0 for x in parameters):
            # Without what the means of functions depend on.
            above = set(ancestors([mean for mean, *_ in parameters])).difference(functions)
            block = analysis.part_of(model, block, [x for x in block.members if x not in above])
        if all(y.rows.mixture is None for y in block.observed):
            return analysis.block_graph(model, block)
    except NotConjugateError:  # sites say better what is in the way
        pass
    return analysis.block_graph(model, analysis.site_block_of(model, rv))


def _of_block(block: analysis.BlockGraph) -> EvidenceTerms:
    A, a = of_block.predictors_of(block.all_observed)
    sun = data.predictor(known_sun(block.prior, block.n_latent), A, a)
    rows = [of_block.noisy_rows(y) for y in block.observed]
    rows += [data.at_zero(known.a) for known in block.sites]
    return evidence_terms(sun, data.joined_rows(rows))


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


# Models of packages that build PyMC's, such as Bambi, known by attributes: none is imported.


def is_wrapped(model: Any) -> bool:
    """Whether an object builds a model of PyMC and keeps it in its ``backend``, as Bambi's do."""
    return hasattr(model, "backend") and callable(getattr(model, "build", None))


def unwrapped(model: Any) -> Any:
    """The model of PyMC inside, built where that was to come; anything else as it is."""
    if not is_wrapped(model):
        return model
    if not model.built:
        model.build()
    return model.backend.model


def pymc_model(model: Any) -> Any:
    """`unwrapped`, in which functions by `SkewGP.prior` may be Gaussian variables.

    They are where data see them in a product, or as several predictors.
    """
    model = unwrapped(model)
    if not isinstance(model, pm.Model):
        return model
    plain = [
        rv
        for rv in model.free_RVs
        if kinds.is_function(rv) and kinds.latent_dimensions(rv.owner.op.dist_params(rv.owner)) == 0
    ]
    if len(plain) < 2 or not any(_sees_apart(model, y, plain) for y in model.observed_RVs):
        return model
    if any(x is not None for x in model.rvs_to_initial_values.values()):
        return model  # which PyMC does not copy
    whole, memo = fgraph_from_model(model)
    found = []
    for rv in plain:
        own = memo[rv].owner.inputs[0]
        mean, scale = own.owner.op.dist_params(own.owner)[:2]
        found.append((own, pm.MvNormal.dist(mean, scale)))
    toposort_replace(whole, found)
    return model_from_fgraph(whole, mutate_fgraph=True)


def _sees_apart(model: pm.Model, y: Any, functions: list[Any]) -> bool:
    """Whether an observed variable sees several functions, and not by one affine predictor."""
    above = set(ancestors([y]))
    seen = [rv for rv in functions if rv in above]
    if len(seen) < 2:
        return False
    try:
        return not set(seen) <= set(analysis.site_block_of(model, seen[0]).members)
    except (NotConjugateError, NotSitesError):
        return True


def as_fitted(model: Any, tree: DataTree) -> DataTree:
    """What ``fit`` of such a model returns for draws of the one inside; else the tree as it is.

    Its own last step: the intercept is moved to where predictors are not centred, and offsets of
    group-specific effects and parameters of the likelihood are left out.
    """
    if not is_wrapped(model):
        return tree
    inside: pm.Model = model.backend.model
    of_rows = {x.name for x in inside.deterministics} & set(model.family.likelihood.params)
    posterior = tree["posterior"].to_dataset()
    tree["posterior"] = DataTree(posterior.drop_vars(of_rows, errors="ignore"))
    found: DataTree = model.backend._clean_results(tree, True, False)
    model.backend.fit = True
    return found
