"""What a PyMC model's graph says of a SkewGP variable, for steps and for learning alike.

Its block, which is the variables that are jointly Gaussian with it; their prior and their
observations as graphs of value variables, the hyperparameters that they depend on, and which other
variables the density of the model has.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors, graph_inputs
from pytensor.tensor.random.op import RNGConsumerOp

from pymc_skewgp._errors import NotConjugateError
from pymc_skewgp._model.graph.affine import affine_coefficients
from pymc_skewgp._model.graph.blocks import Block, block_of, part_of
from pymc_skewgp._model.graph.joint_prior import joint_prior
from pymc_skewgp._model.graph.likelihoods.likelihood import Likelihood, MixtureGraphs
from pymc_skewgp._model.graph.members import Member, as_members, is_function
from pymc_skewgp._model.graph.observed import Observed
from pymc_skewgp._model.graph.sites import ObservedSites
from pymc_skewgp._sun.parameters import SunParameters

# Entries that a variable may have which only shifts or scales predictors, to be moved with f
# integrated out.
_FEW = 8


class ObservedRows(NamedTuple):
    """One observed variable as rows v = A f + a + e, e ~ N(0, S), graphs of value variables.

    f is the vector of the block, its members one after the other.

    Attributes
    ----------
    name : str
    likelihood : Likelihood
    values : TensorVariable
        The data.
    A : TensorVariable, shape (m, p), or None
        None where eta is f plus the offset, entry by entry; in blocks of one member only.
    a, lower, upper : TensorVariable, shape (m,)
    S : TensorVariable, shape (m,) or (m, m)
    value : TensorVariable, shape (m,), or None
    log_constant : TensorVariable, shape (), or None
        See `RowGraphs`.
    mixture : MixtureGraphs, or None
    counts : TensorVariable, shape (m,), or None
        See `RowGraphs`.
    """

    name: str
    likelihood: Likelihood
    values: Any
    A: Any
    a: Any
    lower: Any
    upper: Any
    S: Any
    value: Any
    log_constant: Any
    mixture: MixtureGraphs | None
    counts: Any

    @property
    def graphs(self) -> list[Any]:
        """What the rows are computed from, but for the data: parameters of a mixture last."""
        found = (self.A, self.a, self.lower, self.upper, self.S, self.value, self.counts)
        found = (*found, *self.parameters)
        return [graph for graph in found if graph is not None]

    @property
    def parameters(self) -> tuple[Any, ...]:
        """Those of the mixture."""
        return () if self.mixture is None else self.mixture.parameters


class BlockGraph(NamedTuple):
    """A block of variables in its model, as graphs of value variables.

    Attributes
    ----------
    names : list of str
        Of the members, SkewGP and Gaussian variables, in the order of the model.
    values : list of TensorVariable
        Their value variables, which none of the graphs depends on.
    slices : list of slice
        Where each of them is in the vector f of all, raveled; their ends are graphs.
    prior : SunParameters
        Of f.
    n_latent : int or None
        Latent dimensions of the prior, where they are known before any evaluation.
    normalisers : list of (truncation, latent_cov)
        Of each member that has latent dimensions: probabilities that divide the prior's density.
    observed : list of ObservedRows
    sites : list of ObservedSites
        Observations that are no rows.
    hyperparameters : list of TensorVariable
        Values of the continuous free variables that the prior, the rows or sites depend on. Other
        SkewGP variables are not among them: they have steps of their own. Nor are long vectors that
        only shift or scale predictors.
    likelihood_parameters : list of TensorVariable
        Values of the continuous free variables that the noise or the indicators of mixtures depend
        on, but not the prior of f: to be moved given f as well, or alone.
    predicted : list of TensorVariable
        Free random variables that depend on members, and that nothing depends on.
    members : list of Member
    rest : list of TensorVariable
        All variables and potentials of the model but the members, their observations and what they
        predict: with f integrated out, what the density has besides the evidence.
    log_constant : TensorVariable, shape (), or None
        Log of the integral of what the prior stands for, where that is not 1.
    """

    names: list[str]
    values: list[Any]
    slices: list[slice]
    prior: SunParameters
    n_latent: int | None
    normalisers: list[tuple[Any, Any]]
    observed: list[ObservedRows]
    sites: list[ObservedSites]
    hyperparameters: list[Any]
    likelihood_parameters: list[Any]
    predicted: list[Any]
    members: list[Member]
    rest: list[Any]
    log_constant: Any = None

    @property
    def moved(self) -> list[Any]:
        """Values of all that moves with the block."""
        return list(dict.fromkeys([*self.hyperparameters, *self.likelihood_parameters]))


def analyse(model: pm.Model, rv: Any, only: Sequence[Any] | None = None) -> BlockGraph:
    """All that the model says of the block that a variable is in.

    Parameters
    ----------
    model : pymc.Model
    rv : TensorVariable
        A free random variable of it.
    only : sequence of TensorVariable, optional
        Members to integrate out, the others being given. Default all of them.

    Raises
    ------
    NotConjugateError
        See `find_observed`.
    """
    block = block_of(model, rv)
    return block_graph(model, block if only is None else part_of(model, block, only))


def block_graph(model: pm.Model, block: Block) -> BlockGraph:
    """Graphs of a block that is known."""
    members = as_members(model, block.members)
    rows = [_observed_rows(model, y, members) for y in block.observed]
    prior = joint_prior(members)
    graphs = [graph for y in rows for graph in y.graphs]
    graphs += [graph for y in block.sites for graph in y.graphs]
    own = [member.name for member in members]
    _refuse_randomness(" and ".join(own), [*prior, *graphs])
    gone = {*own, *block.below}
    sizes = [member.n_latent for member in members]
    return BlockGraph(
        own,
        [member.value for member in members],
        _slices(members),
        prior,
        None if None in sizes else sum(size for size in sizes if size is not None),
        [(x.prior.truncation, x.prior.latent_cov) for x in members if x.n_latent != 0],
        rows,
        list(block.sites),
        _hyperparameters(model, prior, rows, block.sites, own),
        _likelihood_parameters(model, prior, rows, own),
        block.predicted,
        members,
        [other for other in [*model.basic_RVs, *model.potentials] if other.name not in gone],
    )


def _observed_rows(model: pm.Model, y: Observed, members: list[Member]) -> ObservedRows:
    """Rows of the members' value variables."""
    known = y.rows.graphs
    by = dict(zip(known, model.replace_rvs_by_values(known), strict=True))
    rows = y.rows.replaced(by)
    values, origins = [x.value for x in members], [x.origin for x in members]
    A, a = affine_coefficients(rows.predictor, values, origins, rows.shape)
    # Of the members' values the rest knows at most the shape.
    graphs, zeros = rows.graphs, dict(zip(values, origins, strict=True))
    rows = rows.replaced(dict(zip(graphs, clone_replace(graphs, zeros), strict=True)))
    rest = rows.lower, rows.upper, rows.noise, rows.value, rows.log_constant, rows.mixture
    return ObservedRows(y.name, y.likelihood, y.values, A, a, *rest, rows.counts)


def _slices(members: list[Member]) -> list[slice]:
    ends = [pt.zeros((), dtype="int64")]
    for member in members:
        ends.append(ends[-1] + pt.prod(member.shape))
    return [slice(start, stop) for start, stop in pairwise(ends)]


def _hyperparameters(
    model: pm.Model,
    prior: SunParameters,
    rows: list[ObservedRows],
    sites: Sequence[ObservedSites],
    own: list[str],
) -> list[Any]:
    spread = [graph for y in rows for graph in (y.lower, y.upper, y.S)]
    spread += [y.log_prob for y in sites]
    upstream = set(graph_inputs([*prior, *spread]))
    designs = [(y.A, y.a) for y in rows] + [(y.A, y.a) for y in sites]
    predictors = set(graph_inputs([x for pair in designs for x in pair if x is not None]))
    return [
        value
        for other, value in model.rvs_to_values.items()
        if (value in upstream or (value in predictors and _is_short(value)))
        and _may_move(model, other, own)
    ]


def _likelihood_parameters(
    model: pm.Model, prior: SunParameters, rows: list[ObservedRows], own: list[str]
) -> list[Any]:
    mixed = [y for y in rows if y.mixture is not None]
    upstream = set(graph_inputs([graph for y in mixed for graph in (y.S, *y.parameters)]))
    upstream.difference_update(graph_inputs(list(prior)))
    return [
        value
        for other, value in model.rvs_to_values.items()
        if value in upstream and _may_move(model, other, own)
    ]


def _may_move(model: pm.Model, other: Any, own: list[str]) -> bool:
    """Whether a variable is a hyperparameter: free, continuous, no function and no member."""
    return (
        other in model.free_RVs
        and other.name not in own
        and other.dtype.startswith("float")
        and not is_function(other)
    )


def _is_short(value: Any) -> bool:
    size = 1
    for length in value.type.shape:
        size *= _FEW + 1 if length is None else length
    return size <= _FEW


def _refuse_randomness(name: str, outputs: list[Any]) -> None:
    if any(isinstance(getattr(v.owner, "op", None), RNGConsumerOp) for v in ancestors(outputs)):
        raise NotConjugateError(
            f"a parameter or predictor of {name} holds a random variable that the model does not "
            "know.",
            "Give it a name in the model, or leave the step to NUTS.",
        )
