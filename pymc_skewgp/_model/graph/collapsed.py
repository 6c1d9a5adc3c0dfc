"""What is left of a model once its latent functions are integrated out: orthants, and the rest."""

from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.traversal import ancestors, graph_inputs

from pymc_skewgp._model.distributions.marginal_probit import MarginalProbitRV
from pymc_skewgp._model.distributions.unified_skew_normal import UnifiedSkewNormalRV
from pymc_skewgp._model.gp.process import process_at
from pymc_skewgp._model.graph.probit_model import NotConjugateError, probit_graphs
from pymc_skewgp._model.ops.plain_mode import PLAIN
from pymc_skewgp._model.ops.skew_normal import SunGraph, probit_limits


class OrthantGraph(NamedTuple):
    """`Orthants` of labels as graphs."""

    limits: Any
    cov: Any
    truncation: Any
    latent_cov: Any


class Collapsed(NamedTuple):
    """A model without its latent functions.

    Attributes
    ----------
    orthants : list of OrthantGraph
        One for each set of labels.
    rest : list of variables
        Everything else that has a density: priors, other observations, potentials.
    """

    orthants: list[OrthantGraph]
    rest: list[Any]


def collapse_model(model: pm.Model) -> Collapsed:
    """Integrate out every latent function that has nothing but probit observations.

    Raises
    ------
    ValueError
        Where there is none; the message says what is in the way.
    """
    orthants, gone, reasons = [], set(), []
    for rv in model.observed_RVs:
        if isinstance(rv.owner.op, MarginalProbitRV):
            orthants.append(_of_marginal(model, rv))
            gone.add(rv.name)
    for rv in model.free_RVs:
        if not isinstance(rv.owner.op, UnifiedSkewNormalRV):
            continue
        try:
            orthants.append(_of_latent(model, rv, gone))
        except NotConjugateError as error:
            reasons.append(str(error))
    if reasons or not orthants:
        raise ValueError(
            "find_hyperparameters needs labels with the latent function integrated out: "
            + ("; ".join(reasons) or "the model has no marginal_likelihood and no SkewGP prior.")
            + " Use SkewGP.marginal_likelihood, or SkewGP.prior under BernoulliProbit."
        )
    everything = [*model.basic_RVs, *model.potentials]
    rest = [other for other in everything if other.name not in gone]
    _refuse_shared_labels(model, orthants, gone)
    return Collapsed(orthants, rest)


def collapse_process(model: pm.Model, gp: Any, X: Any, sign: Any) -> Collapsed:
    """A SkewGP at inputs `X` under labels `sign`, and the priors of what it depends on."""
    graph = _orthants(process_at(gp, [X], 0.0), sign)
    used = set(ancestors(list(graph)))
    rest = [rv for rv in model.free_RVs if rv in used]
    others = set(model.basic_RVs).difference(rest)
    # Potentials that tie these to other variables of the model say nothing without them.
    own = [p for p in model.potentials if others.isdisjoint(ancestors([p]))]
    return Collapsed([graph], rest + own)


def _of_marginal(model: pm.Model, rv: Any) -> OrthantGraph:
    parameters = model.replace_rvs_by_values(rv.owner.op.dist_params(rv.owner))
    if rv.type.ndim != 1:
        raise ValueError(f"{rv.name} has batch dimensions: give each data set a variable.")
    return _orthants(_sun(*parameters), _signs(rv.name, model.rvs_to_values[rv]))


def _of_latent(model: pm.Model, rv: Any, gone: set[str]) -> OrthantGraph:
    parameters, observations = probit_graphs(model, rv)
    sun = _sun(*parameters)
    offsets, designs, signs = [], [], []
    for y in observations:
        n, p = y.values.size, sun.mu.shape[0]
        # Without a design eta is f itself, or its one entry for all labels.
        same = pt.switch(pt.eq(n, p), pt.eye(n, p), pt.ones((n, p)))
        designs.append(same if y.design is None else y.design)
        offsets.append(y.offset)
        signs.append(_signs(y.name, y.values))
    design, offset = pt.concatenate(designs), pt.concatenate(offsets)
    eta = SunGraph(
        offset + design @ sun.mu,
        design @ sun.scale @ design.T,
        design @ sun.cross_cov,
        sun.truncation,
        sun.latent_cov,
        sun.n_latent,
    )
    gone.update([rv.name, *(y.name for y in observations)])
    return _orthants(eta, pt.concatenate(signs))


def _signs(name: str, values: Any) -> Any:
    """Labels as +-1; any others would pass for some sign or other."""
    found = np.unique(values.eval(mode=PLAIN))
    if not np.isin(found, (0, 1)).all():
        raise ValueError(f"the observations of {name} must be 0 or 1, got {found[:5]}.")
    return 2.0 * values.ravel().astype("float64") - 1.0


def _refuse_shared_labels(model: pm.Model, orthants: list[OrthantGraph], gone: set[str]) -> None:
    """Labels that see two latent functions would count twice, given one and given the other."""
    latent = {model.rvs_to_values[rv] for rv in model.free_RVs if rv.name in gone}
    graphs = model.replace_rvs_by_values([x for graph in orthants for x in graph])
    shared = sorted(value.name for value in latent.intersection(graph_inputs(graphs)))
    if shared:
        raise ValueError(
            f"labels depend on {' and '.join(shared)} together, which cannot be integrated out one "
            "by one: add the covariance functions, as in SkewGP(cov_func=cov1 + cov2)."
        )


def _sun(mu: Any, scale: Any, cross_cov: Any, truncation: Any, latent_cov: Any) -> SunGraph:
    n_latent = latent_cov.type.shape[-1]
    if n_latent is None:
        raise ValueError("the number of latent dimensions must be known before any evaluation.")
    return SunGraph(mu, scale, cross_cov, truncation, latent_cov, n_latent)


def _orthants(sun: SunGraph, sign: Any) -> OrthantGraph:
    limits, cov = probit_limits(sun, sign)
    return OrthantGraph(limits, cov, sun.truncation, sun.latent_cov)
