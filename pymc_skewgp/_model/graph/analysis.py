"""What a model's graph says of a SkewGP variable: its block, and what observes it.

Its block, which is the variables that are jointly Gaussian with it; their prior and their
observations as graphs of value variables, the hyperparameters that they depend on, and which other
variables the density of the model has.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import IntEnum
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import graph_inputs

from pymc_skewgp._errors import NotConjugateError, NotSitesError
from pymc_skewgp._model.graph import affine, likelihoods
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


_CORE_NDIMS = (1, 2, 2, 1, 2)  # of the parameters of one unified skew-normal vector


def find_observed(model: pm.Model, rv: Any) -> list[graph_sites.Observed]:
    """Observations of a unified skew-normal variable, where it has no other children.

    Parameters
    ----------
    model : pymc.Model
    rv : TensorVariable
        A free random variable of it.

    Returns
    -------
    list of Observed
        Each has one of the `LIKELIHOODS`, and its `predictor` is affine in `rv`. Predictions are
        left out.

    Raises
    ------
    NotConjugateError
        The message names the first thing that is in the way, and the way out.
    """
    name = getattr(rv, "name", None)
    if rv not in model.free_RVs:
        raise NotConjugateError(f"{name} is not a free random variable of the model.")
    if not kinds.is_function(rv):
        raise NotConjugateError(
            f"{rv.name} is a {graph_sites.distribution_name(rv)} variable; ConjugateStep and "
            "LinESS sample latent functions made by SkewGP.prior or UnifiedSkewNormal."
        )
    parameters = rv.owner.op.dist_params(rv.owner)
    if rv.type.ndim != 1 or tuple(p.type.ndim for p in parameters) != _CORE_NDIMS:
        raise NotConjugateError(
            f"{rv.name} has batch dimensions: its {rv.type.ndim} are too many.",
            "Make a variable of each vector.",
        )
    if model.rvs_to_transforms[rv] is not None:
        raise NotConjugateError(f"{rv.name} has a transform.", "Leave transform out.")
    below = {rv: graph_sites.children(model, rv)}
    return _observed(model, [rv], below, rows_only=True).observed


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
    find_observed(model, rv)
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
    if block.sites or block.potentials:
        part = _observed(model, members, below)
    else:
        part = Block(members, [y for y in block.observed if y.name in names], [])
    return part._replace(predicted=graph_sites.predictions_of(model, members))


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
        find_observed(model, rv)
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


def _is_conjugate(model: pm.Model, rv: Any) -> bool:
    try:
        find_observed(model, rv)
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
        found = _grown_one_by_one(model, found, wanted, below, observed)
    if not rows_only:  # what the mean of a function depends on is a hyperparameter
        means = [kinds.mean_and_spread(x)[0] for x in found.members if kinds.is_function(x)]
        kept = [
            x for x in found.members if kinds.is_function(x) or not affine.uses_values(means, x, [])
        ]
        found = found if len(kept) == len(found.members) else observed(kept)
    return found._replace(predicted=graph_sites.predictions_of(model, found.members))


def _grown_one_by_one(
    model: pm.Model,
    found: Block,
    others: list[Any],
    below: dict[Any, list[Any]],
    observed: Callable[[list[Any]], Block],
) -> Block:
    grows = True
    while grows:
        grows = False
        for other in others:
            if not _beside(found.members, [other], below):
                continue
            joint = [x for x in model.free_RVs if x in found.members or x is other]
            # A hyperparameter, or a function with other observations, stays outside.
            with suppress(NotSitesError, NotConjugateError):
                found, grows = observed(joint), True
    return found


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
) -> Block:
    """Members with their observations, which may see so much of them.

    Raises
    ------
    NotSitesError
        Where one is neither in all the members that it depends on.
    """
    rows: list[graph_sites.Observed] = []
    sites: list[graph_sites.ObservedSites] = []
    potentials = []
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
                potentials.append(child)
            except NotSitesError:
                if reach is not Reach.COUPLED:
                    raise
                sites.append(graph_sites.coupled_sites_of(model, child, used))
        elif rows_only:
            rows.append(graph_sites.as_rows(model, child, used))
        elif child not in model.observed_RVs:
            raise NotSitesError(
                f"{child.name}, which depends on {used[0].name}, is not observed.",
                "Leave it to NUTS, with SkewGP.prior(..., reparameterize=True).",
            )
        else:
            known = graph_sites.recognised(model, child)
            if known and known.rows.mixture is None and known.why_not_rows(used) is None:
                rows.append(known)
                continue
            try:
                own = graph_sites.sites_of(model, child, used, several=reach > Reach.ONE)
            except NotSitesError:
                if reach is not Reach.COUPLED:
                    raise
                own = graph_sites.coupled_sites_of(model, child, used)
            sites.append(own)
    if not rows and not sites:
        if rows_only and kids:
            raise graph_sites.not_observed(members[0], kids[0])
        raise graph_sites.NoObservationsError(
            f"{members[0].name} has no observations.",
            "Its prior is drawn by pm.sample_prior_predictive; data belong into BernoulliProbit.",
        )
    # Sites of several predictors are the last.
    return Block(members, rows, [], sorted(sites, key=lambda y: y.width > 1), potentials)


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


class BlockGraph(NamedTuple):
    """A block of variables in its model, as graphs of value variables.

    Attributes
    ----------
    names : list of str
        Of the members, SkewGP and Gaussian variables, in the order of the model.
    values : list of TensorVariable
        Their value variables, which none of the graphs depends on.
    prior : SunParameters
        Of the vector f of all of them, raveled.
    n_latent : int or None
        Latent dimensions of the prior, where they are known before any evaluation.
    normalisers : list of (truncation, latent_cov)
        Of each member that has latent dimensions: probabilities that divide the prior's density.
    observed : list of Observed
        As graphs of value variables, with their predictors A f + a.
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
    prior: SunParameters
    n_latent: int | None
    normalisers: list[tuple[Any, Any]]
    observed: list[graph_sites.Observed]
    sites: list[graph_sites.ObservedSites]
    hyperparameters: list[Any]
    likelihood_parameters: list[Any]
    predicted: list[Any]
    members: list[kinds.Member]
    rest: list[Any]
    log_constant: Any = None

    @property
    def all_observed(self) -> list[Any]:
        """Rows, then sites."""
        return [*self.observed, *self.sites]

    @property
    def moved(self) -> list[Any]:
        """Values of all that moves with the block."""
        return list(dict.fromkeys([*self.hyperparameters, *self.likelihood_parameters]))


def block_graph(model: pm.Model, block: Block) -> BlockGraph:
    """Graphs of a block that is known."""
    members = kinds.as_members(model, block.members)
    prior = kinds.joint_prior(members)
    origins = {x.value: x.origin for x in members}

    def predictor(graph: Any, shape: Any) -> dict[str, Any]:
        A, a = affine.affine_coefficients(graph, list(origins), list(origins.values()), shape)
        return {"A": A, "a": a}

    rows, graphs = [], []
    for y in block.observed:
        by_values = y.rows.mapped(model.replace_rvs_by_values)
        own = predictor(by_values.predictor, by_values.shape)
        eta = pt.broadcast_to(by_values.predictor, by_values.shape).ravel()
        # Of the members' values the rest knows at most the shape.
        by_values = by_values.mapped(partial(clone_replace, replace=origins))
        rows.append(y._replace(rows=by_values, predictor=eta, **own))
        graphs += [*own.values(), *by_values.graphs]
    sites = [y._replace(**predictor(y.predictor, y.shape)) for y in block.sites]
    for known in sites:
        graphs += [known.A, known.a, known.log_prob]
    names = [member.name for member in members]
    if likelihoods.is_random(*prior, *graphs):
        raise NotConjugateError(
            f"a parameter or predictor of {' and '.join(names)} holds a random variable that the "
            "model does not know.",
            "Give it a name in the model, or leave the step to NUTS.",
        )
    gone = {*names, *block.below}
    sizes = [member.n_latent for member in members]
    return BlockGraph(
        names,
        [member.value for member in members],
        prior,
        None if None in sizes else sum(size for size in sizes if size is not None),
        [(x.prior.truncation, x.prior.latent_cov) for x in members if x.n_latent != 0],
        rows,
        sites,
        *_moved(model, prior, rows, sites, names),
        block.predicted,
        members,
        [other for other in [*model.basic_RVs, *model.potentials] if other.name not in gone],
    )


def _moved(
    model: pm.Model,
    prior: SunParameters,
    rows: list[graph_sites.Observed],
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
    spread = [x for y in rows for x in (y.rows.lower, y.rows.upper, y.rows.noise)]
    upstream = of_prior.union(graph_inputs([*spread, *(y.log_prob for y in sites)]))
    designs = [x for own in (rows, sites) for y in own for x in (y.A, y.a)]
    shapes = {value: getattr(value.type, "shape", (None,)) for value in graph_inputs(designs)}
    upstream.update(x for x, own in shapes.items() if None not in own and prod(own) <= _FEW)
    mixed = [x for y in rows if y.rows.mixture for x in (y.rows.noise, *y.rows.parameters)]
    alone = set(graph_inputs(mixed)) - of_prior
    return [x for x in free if x in upstream], [x for x in free if x in alone]
