"""What is left of a model once its latent functions are integrated out: evidences, and the rest."""

from typing import Any, NamedTuple

import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.traversal import ancestors, graph_inputs

from pymc_skewgp._errors import NotConjugateError
from pymc_skewgp._model.distributions.marginal_probit import MarginalProbitRV
from pymc_skewgp._model.distributions.unified_skew_normal import UnifiedSkewNormalRV
from pymc_skewgp._model.gp.process import process_at
from pymc_skewgp._model.graph.analysis import analyse
from pymc_skewgp._model.graph.likelihoods.likelihood import Likelihood
from pymc_skewgp._model.graph.likelihoods.probit import PROBIT
from pymc_skewgp._model.graph.members import latent_dimensions
from pymc_skewgp._model.ops.plain_mode import PLAIN
from pymc_skewgp._model.ops.skew_normal import interval_limits, probit_limits
from pymc_skewgp._posterior.evidence_gradient import EvidenceTerms
from pymc_skewgp._sun.parameters import SunParameters


class Collapsed(NamedTuple):
    """A model without its latent functions.

    Attributes
    ----------
    evidences : list of EvidenceTerms
        One for each function, graphs of the model's value variables.
    rest : list of variables
        Everything else that has a density: priors, other observations, potentials.
    """

    evidences: list[EvidenceTerms]
    rest: list[Any]


def collapse_model(model: pm.Model) -> Collapsed:
    """Integrate out every latent function whose observations have a known likelihood.

    Raises
    ------
    ValueError
        Where there is none; the message says what is in the way.
    """
    evidences, gone, reasons = [], set(), []
    for rv in model.observed_RVs:
        if isinstance(rv.owner.op, MarginalProbitRV):
            evidences.append(_of_marginal(model, rv))
            gone.add(rv.name)
    for rv in model.free_RVs:
        if not isinstance(rv.owner.op, UnifiedSkewNormalRV) or rv.name in gone:
            continue
        try:
            evidences.append(_of_latent(model, rv, gone))
        except NotConjugateError as error:
            reasons.append(error.reason)
    if reasons or not evidences:
        raise ValueError(
            "find_hyperparameters needs labels with the latent function integrated out: "
            + (" ".join(reasons) or "the model has no marginal_likelihood and no SkewGP prior.")
            + " Use SkewGP.marginal_likelihood, or SkewGP.prior under BernoulliProbit."
        )
    rest = [x for x in [*model.basic_RVs, *model.potentials] if x.name not in gone]
    _refuse_shared_data(model, evidences, gone)
    return Collapsed(evidences, rest)


def collapse_process(model: pm.Model, gp: Any, X: Any, labels: Any) -> Collapsed:
    """A SkewGP at inputs `X` under labels (positive or not), and the priors of what it needs."""
    sun = process_at(gp, [X], 0.0)
    terms = _terms(sun, probit_limits(sun, labels))
    used = set(ancestors(list(terms)))
    rest = [rv for rv in model.free_RVs if rv in used]
    others = set(model.basic_RVs).difference(rest)
    # Potentials that tie these to other variables of the model say nothing without them.
    own = [p for p in model.potentials if others.isdisjoint(ancestors([p]))]
    return Collapsed([terms], rest + own)


def _of_marginal(model: pm.Model, rv: Any) -> EvidenceTerms:
    parameters = model.replace_rvs_by_values(list(rv.owner.op.dist_params(rv.owner)))
    if rv.type.ndim != 1:
        raise ValueError(f"{rv.name} has batch dimensions: give each data set a variable.")
    sun = _sun(SunParameters(*parameters), latent_dimensions(parameters))
    return _terms(sun, probit_limits(sun, _checked(rv.name, model.rvs_to_values[rv], PROBIT)))


def _of_latent(model: pm.Model, rv: Any, gone: set[str]) -> EvidenceTerms:
    latent = analyse(model, rv)
    prior = latent.prior
    offsets, designs, intervals = [], [], []
    for y in latent.observed:
        n, p = _checked(y.name, y.values, y.likelihood).size, prior.mu.shape[0]
        # Without a design eta is f itself, or its one entry for all rows.
        same = pt.switch(pt.eq(n, p), pt.eye(n, p), pt.ones((n, p)))
        designs.append(same if y.A is None else y.A)
        offsets.append(y.a)
        intervals.append((y.lower, y.upper, y.S))
    A, a = pt.concatenate(designs), pt.concatenate(offsets)
    predictor = prior._replace(
        mu=a + A @ prior.mu, scale=A @ prior.scale @ A.T, cross_cov=A @ prior.cross_cov
    )
    limits = (pt.concatenate(x) for x in zip(*intervals, strict=True))
    gone.update([*latent.names, *(y.name for y in latent.observed)])
    sun = _sun(predictor, latent.n_latent)
    return _terms(sun, interval_limits(sun, *limits))


def _checked(name: str, values: Any, likelihood: Likelihood) -> Any:
    likelihood.check(name, values.eval(mode=PLAIN))
    return values


def _refuse_shared_data(model: pm.Model, evidences: list[EvidenceTerms], gone: set[str]) -> None:
    """Data that see two latent functions would count twice, given one and given the other."""
    latent = {model.rvs_to_values[rv] for rv in model.free_RVs if rv.name in gone}
    graphs = model.replace_rvs_by_values([x for terms in evidences for x in terms])
    shared = sorted(value.name for value in latent.intersection(graph_inputs(graphs)))
    if shared:
        raise ValueError(
            f"labels depend on {' and '.join(shared)} together, which cannot be integrated out one "
            "by one: add the covariance functions, as in SkewGP(cov_func=cov1 + cov2)."
        )


def _sun(prior: SunParameters, n_latent: int | None) -> SunParameters:
    if n_latent is None:
        raise ValueError("the number of latent dimensions must be known before any evaluation.")
    return prior._replace(latent_cov=pt.specify_shape(prior.latent_cov, (n_latent, n_latent)))


def _terms(sun: SunParameters, limits: tuple[Any, Any, Any]) -> EvidenceTerms:
    unbounded = pt.full_like(sun.truncation, float("inf"), dtype=sun.truncation.dtype)
    return EvidenceTerms(*limits, -sun.truncation, unbounded, sun.latent_cov)
