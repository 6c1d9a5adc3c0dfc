"""What a model's graph says of a SkewGP variable: its block, and what observes it.

Its block, which is the variables that are jointly Gaussian with it; their prior and their
observations as graphs of value variables, the hyperparameters that they depend on, and which other
variables the density of the model has.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import IntEnum
from functools import partial
from itertools import accumulate, pairwise
from math import prod
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import graph_inputs

from pymc_skewgp._errors import NotConjugateError, NotSitesError
from pymc_skewgp._model.graph import affine, joint_gaussian, likelihoods
from pymc_skewgp._model.graph import members as kinds
from pymc_skewgp._model.graph import sites as graph_sites
from pymc_skewgp._model.ops.plain_mode import in_double
from pymc_skewgp._sun.parameters import SunParameters

# Which variables of a model are jointly Gaussian, but for truncated ones: its blocks.
#
# A block is a SkewGP variable with all SkewGP and Gaussian variables that enter the predictors of
# its observations, or the means of its Gaussian variables, jointly affinely and nothing else. Given
# the data and everything else it is one unified skew-normal vector.


class Block(NamedTuple):
    """Random variables that are drawn together, what observes them, and what they predict.

    Attributes
    ----------
    members : list of TensorVariable
    observed : list of Observed
        Those that are rows.
    predicted : list of TensorVariable
        Free variables that depend on members, and that nothing observed depends on, such as masked
        data, with what only they depend on.
    sites : sequence of ObservedSites
        Observations that are functions of one predictor each; see `site_blocks`.
    potentials : sequence of TensorVariable
        Those that are quadratic in members.
    """

    members: list[Any]
    observed: list[graph_sites.Observed]
    predicted: list[Any]
    sites: Sequence[graph_sites.ObservedSites] = ()
    potentials: Sequence[Any] = ()

    @property
    def below(self) -> set[str]:
        """Names of the variables that depend on members."""
        kids = [*self.observed, *self.sites, *self.predicted, *self.potentials]
        return {x.name for x in kids}


class Reach(IntEnum):
    """What of a block an observation may see: one predictor, several, or all entries together."""

    ONE = 0
    SEVERAL = 1
    COUPLED = 2


def find_blocks(model: pm.Model) -> list[Block]:
    """Blocks under rows alone, each with a SkewGP variable; no variable is in two of them."""
    free = [rv for rv in model.free_RVs if not graph_sites.is_prediction(model, rv)]
    free = [rv for rv in free if not kinds.is_function(rv) or _is_conjugate(model, rv)]
    found: list[Block] = []
    for rv in free:
        taken = [x for block in found for x in block.members]
        if kinds.is_function(rv) and rv not in taken:
            others = [
                x
                for x in free
                if x not in taken and (kinds.is_function(x) or kinds.is_gaussian(model, x))
            ]
            found.append(_grown(model, rv, others, rows_only=True))
    return found


def block_of(model: pm.Model, rv: Any) -> Block:
    """The block under rows that a variable is in.

    Raises
    ------
    NotConjugateError
        Where it is in none; the message names what is in the way.
    """
    for block in find_blocks(model):
        if rv in block.members:
            return block
    graph_sites.find_observed(model, rv)
    raise NotConjugateError(f"{rv.name} belongs to no SkewGP.")  # pragma: no cover


def part_of(model: pm.Model, block: Block, chosen: Sequence[Any]) -> Block:
    """Some members of a block, given the others.

    Raises
    ------
    NotConjugateError
        Where another member has one of them in its mean: its density would be left out.
    """
    members = [rv for rv in block.members if rv in chosen]
    if members == block.members:
        return block
    below = {rv: graph_sites.children(model, rv) for rv in members}
    for rv in members:
        for other in below[rv]:
            if other in block.members and other not in chosen:
                raise NotConjugateError(
                    f"the mean of {other.name} depends on {rv.name}, which is to move without it.",
                    "Give the step both, or neither.",
                )
    names = {other.name for kids in below.values() for other in kids}
    part = Block(
        members,
        [y for y in block.observed if y.name in names],
        graph_sites.predictions_of(model, members),
    )
    if block.sites or block.potentials:
        return part._replace(**_observed(model, members, below).made())
    return part


def blocks_under_rows_or_sites(model: pm.Model) -> list[Block]:
    """`find_blocks`, and those under sites of the functions that are in none of these.

    A function under rows alone that enters a predictor of sites as well is in the block of these.
    """
    under_rows = find_blocks(model)
    taken = {x for block in under_rows for x in block.members}
    found: list[Block] = []
    for rv in model.free_RVs:
        if kinds.is_function(rv) and rv not in taken:
            with suppress(NotSitesError):
                found.append(site_block_of(model, rv))
                taken.update(found[-1].members)
    own = {x for block in found for x in block.members}
    return [block for block in under_rows if own.isdisjoint(block.members)] + found


def refuse_with_reason(model: pm.Model, rv: Any) -> None:
    """Raise `NotConjugateError` for a function that is in no block; return for one that may be."""
    try:
        graph_sites.find_observed(model, rv)
    except graph_sites.NoRowsError as by_rows:
        try:
            site_block_of(model, rv)
        except NotSitesError as by_sites:
            reason = f"{by_rows.reason} Nor are they sites: {by_sites.reason}"
            raise NotConjugateError(reason, by_sites.remedy) from by_sites


def gaussian_blocks(
    model: pm.Model,
    taken: set[str],
    reasons: dict[str, ValueError],
    most: Reach = Reach.COUPLED,
    *,
    short: bool = False,
) -> list[Block]:
    """Blocks of variables with quadratic log densities alone, beside what is `taken` already.

    The largest first: of a product of two the smaller one is a hyperparameter. To `reasons` is
    added why variables are in none, by name. Observations see `most` of a block at most; `short`
    variables are no hyperparameters of those that see all of it.
    """
    seeds = [x for x in model.free_RVs if kinds.is_quadratic(model, x) and x.name not in taken]
    seeds.sort(key=lambda x: -int(np.prod(kinds.known_shape(x), dtype=int)))
    found: list[Block] = []
    gone = set(taken)
    for rv in seeds:
        if rv.name in gone or any(x.name in gone for x in graph_sites.children(model, rv)):
            continue
        try:
            found.append(site_block_of(model, rv))
        except NotSitesError as error:
            reasons[rv.name] = error
            continue
        names = {x.name for x in found[-1].members}
        gone |= names | found[-1].below
    for reach in (Reach.SEVERAL, Reach.COUPLED):
        if reach <= most:
            found = _with_others(model, found, seeds, reasons, reach, short)
    for block in found:
        for rv in block.members:
            reasons.pop(rv.name, None)
    return found


def _with_others(
    model: pm.Model,
    found: list[Block],
    seeds: list[Any],
    reasons: Mapping[str, ValueError],
    reach: Reach,
    short: bool,
) -> list[Block]:
    """Blocks with those variables that observations of more predictors leave no other place.

    They are in no block alone, or would be long hyperparameters. Short ones, which may be
    hyperparameters, join them where no observation has more predictors for that.
    """
    coupled = reach is Reach.COUPLED and not short
    for rv in seeds:
        if any(rv in block.members for block in found) or not _is_left(rv, reasons):
            continue
        if coupled and not _is_long(rv):
            continue
        kids = {x.name for x in graph_sites.children(model, rv)}
        near = [block for block in found if not kids.isdisjoint(block.below)]
        inside = [x for block in near for x in block.members]
        free = [x for x in seeds if not any(x in block.members for block in found)]
        others = inside + [x for x in free if _is_left(x, reasons)]
        if coupled:
            others = [x for x in others if x in inside or _is_long(x)]
        try:
            block = _grown(model, rv, others, reach=reach)
        except NotSitesError:
            continue
        for x in free if reach is Reach.SEVERAL else ():
            if x not in block.members:
                with suppress(NotSitesError):
                    wider = _grown(model, rv, [*block.members, x], reach=reach)
                    same = _n_predictors(wider) == _n_predictors(block)
                    block = wider if same and len(wider.members) > len(block.members) else block
        if set(inside) <= set(block.members):
            found = [x for x in found if x not in near] + [block]
    return found


def _is_left(rv: Any, reasons: Mapping[str, ValueError]) -> bool:
    return rv.name in reasons or _is_long(rv)


def _is_long(rv: Any) -> bool:
    return int(np.prod(kinds.known_shape(rv), dtype=int)) > _FEW


def _n_predictors(block: Block) -> int:
    return len(block.observed) + sum(y.width for y in block.sites)


def site_block_of(model: pm.Model, rv: Any) -> Block:
    """The block of a SkewGP or Gaussian variable, some of whose observations may be sites.

    That of a SkewGP variable has Gaussian variables by type beside it, and no potentials; mixtures
    of rows are sites too.

    Raises
    ------
    NotSitesError
        The message names what is in the way.
    """
    if not kinds.is_function(rv):
        others = [x for x in model.free_RVs if kinds.is_quadratic(model, x)]
    elif rv.type.ndim != 1 or model.rvs_to_transforms[rv] is not None:
        raise NotSitesError(f"{rv.name} has batch dimensions, or a transform.")
    else:
        others = [x for x in model.free_RVs if kinds.is_function(x) or kinds.is_gaussian(model, x)]
    return _grown(
        model, rv, [x for x in others if x is rv or not graph_sites.is_prediction(model, x)]
    )


class _Observations(NamedTuple):
    """What observes some members: rows, sites, and potentials that are quadratic in them."""

    observed: list[graph_sites.Observed]
    sites: list[Callable[[], graph_sites.ObservedSites]]
    potentials: list[Any]

    def made(self) -> dict[str, Any]:
        """By name, for `Block`; sites of several predictors are the last."""
        sites = sorted((make() for make in self.sites), key=lambda y: y.width > 1)
        return {**self._asdict(), "sites": sites}


def _is_conjugate(model: pm.Model, rv: Any) -> bool:
    try:
        graph_sites.find_observed(model, rv)
    except NotConjugateError:
        return False
    return True


def _grown(
    model: pm.Model,
    rv: Any,
    others: list[Any],
    *,
    rows_only: bool = False,
    reach: Reach = Reach.ONE,
) -> Block:
    """The block of a variable: others join it until none is left that can."""
    below = {x: graph_sites.children(model, x) for x in others}
    observed = partial(_observed, model, below=below, rows_only=rows_only, reach=reach)
    found, wanted = observed([rv]), [rv]  # alone it is a block, too
    while more := _beside(wanted, others, below):
        wanted += more
    members = [x for x in model.free_RVs if x in wanted]
    try:  # at once, which is one look at the observations in place of one for each
        found = found if len(wanted) == 1 else observed(members)
    except (NotSitesError, NotConjugateError):
        members, found = _grown_one_by_one(model, rv, wanted, below, observed)
    if not rows_only:  # what the mean of a function depends on is a hyperparameter
        means = [kinds.mean_and_spread(x)[0] for x in members if kinds.is_function(x)]
        kept = [x for x in members if kinds.is_function(x) or not affine.uses_values(means, x, [])]
        if len(kept) < len(members):
            members, found = kept, observed(kept)
    return Block(members, predicted=graph_sites.predictions_of(model, members), **found.made())


def _grown_one_by_one(
    model: pm.Model,
    rv: Any,
    others: list[Any],
    below: dict[Any, list[Any]],
    observed: Callable[[list[Any]], _Observations],
) -> tuple[list[Any], _Observations]:
    found, members = observed([rv]), [rv]
    grows = True
    while grows:
        grows = False
        for other in others:
            if not _beside(members, [other], below):
                continue
            joint = [x for x in model.free_RVs if x in members or x is other]
            # A hyperparameter, or a function with other observations, stays outside.
            with suppress(NotSitesError, NotConjugateError):
                found = observed(joint)
                members, grows = joint, True
    return members, found


def _beside(members: list[Any], others: list[Any], below: dict[Any, list[Any]]) -> list[Any]:
    """Those that share an observation with members, or are above or below one."""
    near = {x for member in members for x in [member, *below[member]]}
    return [x for x in others if x not in members and not near.isdisjoint([x, *below[x]])]


def _observed(
    model: pm.Model,
    members: list[Any],
    below: dict[Any, list[Any]],
    rows_only: bool = False,
    reach: Reach = Reach.ONE,
) -> _Observations:
    """Observations of members, and what of these they may see.

    Raises
    ------
    NotSitesError
        Where one is neither in all the members that it depends on.
    """
    found = _Observations([], [], [])
    kids = [x for x in [*model.basic_RVs, *model.potentials] if any(x in below[m] for m in members)]
    gaussian = not any(kinds.is_function(x) for x in members)
    for child in kids:
        used = [x for x in members if child in below[x]]
        if child in members:
            _refuse_other_means(model, child, used)
        elif graph_sites.is_prediction(model, child):
            continue
        elif child in model.potentials and gaussian:
            try:
                _refuse_other_potentials(model, child, used)
                found.potentials.append(child)
            except NotSitesError:
                if reach is not Reach.COUPLED:
                    raise
                found.sites.append(graph_sites.coupled_sites_of(model, child, used))
        elif child not in model.observed_RVs:
            raise NotSitesError(
                f"{child.name}, which depends on {used[0].name}, is not observed.",
                "Leave it to NUTS, with SkewGP.prior(..., reparameterize=True).",
            )
        else:
            rows = graph_sites.recognised(model, child)
            if rows is not None and _are_rows(rows, used, mixtures=rows_only):
                found.observed.append(rows)
            elif rows_only:
                raise NotSitesError(f"{child.name} is no rows in all of its variables.")
            else:
                found.sites.append(_sites_of(model, child, used, reach))
    if not found.observed and not found.sites:
        raise NotSitesError(f"{members[0].name} has no observations.")
    return found


def _sites_of(
    model: pm.Model, child: Any, used: list[Any], reach: Reach
) -> Callable[[], graph_sites.ObservedSites]:
    try:
        return graph_sites.sites_of(model, child, used, several=reach > Reach.ONE)
    except NotSitesError:
        if reach is not Reach.COUPLED:
            raise
        return graph_sites.coupled_sites_of(model, child, used)


def _are_rows(y: graph_sites.Observed, used: list[Any], mixtures: bool) -> bool:
    """Whether an observed variable is rows that are affine in members."""
    if y.rows.mixture is not None and not mixtures:
        return False
    outside = any(graph_sites.outside_predictor(y.rows, x) for x in used)
    return not outside and affine.why_not_affine(y.rows.predictor, used) is None


def _refuse_other_means(model: pm.Model, child: Any, used: list[Any]) -> None:
    """Refuse a member whose density is not jointly quadratic in it and in members above it."""
    if kinds.is_typed(child):
        mean, spread = kinds.mean_and_spread(child)
        apart = not any(affine.uses_values(spread, x, []) for x in used)
        joint = apart and affine.why_not_affine(mean, used) is None
    else:
        own = kinds.own_density(model, child)
        values = [model.rvs_to_values[x] for x in [*used, child]]
        joint = own is not None and kinds.why_not_quadratic(own, values) is None
        joint = joint and (not used or kinds.has_constant_integral(model, child, used))
    if not joint:
        names = " and ".join(x.name for x in used)
        raise NotSitesError(f"{child.name} does not depend affinely on {names}.")


def _refuse_other_potentials(model: pm.Model, potential: Any, used: list[Any]) -> None:
    (log_density,) = in_double(model.replace_rvs_by_values([potential]))
    reason = kinds.why_not_quadratic(log_density.sum(), [model.rvs_to_values[x] for x in used])
    if reason is not None:
        names = " and ".join(x.name for x in used)
        name = f"the potential {potential.name}"
        raise NotSitesError(f"{name} is not known to be quadratic in {names}: {reason}.")


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
    likelihood: likelihoods.Likelihood
    values: Any
    A: Any
    a: Any
    lower: Any
    upper: Any
    S: Any
    value: Any
    log_constant: Any
    mixture: likelihoods.MixtureGraphs | None
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
    sites: list[graph_sites.ObservedSites]
    hyperparameters: list[Any]
    likelihood_parameters: list[Any]
    predicted: list[Any]
    members: list[kinds.Member]
    rest: list[Any]
    log_constant: Any = None

    @property
    def moved(self) -> list[Any]:
        """Values of all that moves with the block."""
        return list(dict.fromkeys([*self.hyperparameters, *self.likelihood_parameters]))


def block_graph(model: pm.Model, block: Block) -> BlockGraph:
    """Graphs of a block that is known."""
    members = kinds.as_members(model, block.members)
    rows = [_observed_rows(model, y, members) for y in block.observed]
    prior = joint_gaussian.joint_prior(members)
    graphs = [graph for y in rows for graph in y.graphs]
    graphs += [graph for y in block.sites for graph in y.graphs]
    own = [member.name for member in members]
    if likelihoods.is_random(*prior, *graphs):
        raise NotConjugateError(
            f"a parameter or predictor of {' and '.join(own)} holds a random variable that the "
            "model does not know.",
            "Give it a name in the model, or leave the step to NUTS.",
        )
    gone = {*own, *block.below}
    sizes = [member.n_latent for member in members]
    ends = list(accumulate((pt.prod(x.shape) for x in members), initial=pt.zeros((), "int64")))
    return BlockGraph(
        own,
        [member.value for member in members],
        [slice(start, stop) for start, stop in pairwise(ends)],
        prior,
        None if None in sizes else sum(size for size in sizes if size is not None),
        [(x.prior.truncation, x.prior.latent_cov) for x in members if x.n_latent != 0],
        rows,
        list(block.sites),
        *_moved(model, prior, rows, block.sites, own),
        block.predicted,
        members,
        [other for other in [*model.basic_RVs, *model.potentials] if other.name not in gone],
    )


def _observed_rows(
    model: pm.Model, y: graph_sites.Observed, members: list[kinds.Member]
) -> ObservedRows:
    """Rows of the members' value variables."""
    known = y.rows.graphs
    by = dict(zip(known, model.replace_rvs_by_values(known), strict=True))
    rows = y.rows.replaced(by)
    values, origins = [x.value for x in members], [x.origin for x in members]
    A, a = affine.affine_coefficients(rows.predictor, values, origins, rows.shape)
    # Of the members' values the rest knows at most the shape.
    graphs, zeros = rows.graphs, dict(zip(values, origins, strict=True))
    rows = rows.replaced(dict(zip(graphs, clone_replace(graphs, zeros), strict=True)))
    rest = rows.lower, rows.upper, rows.noise, rows.value, rows.log_constant, rows.mixture
    return ObservedRows(y.name, y.likelihood, y.values, A, a, *rest, rows.counts)


def _moved(
    model: pm.Model,
    prior: SunParameters,
    rows: list[ObservedRows],
    sites: Sequence[graph_sites.ObservedSites],
    own: list[str],
) -> tuple[list[Any], list[Any]]:
    """Hyperparameters, and parameters of noise and indicators of mixtures: see `BlockGraph`."""
    free = [
        value
        for other, value in model.rvs_to_values.items()
        if other in model.free_RVs
        and other.name not in own
        and other.dtype.startswith("float")
        and not kinds.is_function(other)
    ]
    of_prior = set(graph_inputs([*prior]))
    spread = [graph for y in rows for graph in (y.lower, y.upper, y.S)]
    upstream = of_prior.union(graph_inputs([*spread, *(y.log_prob for y in sites)]))
    pairs = [(y.A, y.a) for y in rows] + [(y.A, y.a) for y in sites]
    designs = [x for pair in pairs for x in pair if x is not None]
    upstream.update(value for value in graph_inputs(designs) if _is_short(value))
    mixed = [graph for y in rows if y.mixture for graph in (y.S, *y.parameters)]
    alone = set(graph_inputs(mixed)) - of_prior
    return [x for x in free if x in upstream], [x for x in free if x in alone]


def _is_short(value: Any) -> bool:
    known = getattr(value.type, "shape", (None,))
    return None not in known and prod(known) <= _FEW
