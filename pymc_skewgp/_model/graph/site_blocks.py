"""Variables that are jointly Gaussian, but for truncated ones, under observations that are sites.

As in `blocks`: a SkewGP variable with all SkewGP and Gaussian variables that enter the predictors
of its observations jointly affinely and nothing else. Here an observed variable may be rows, as
there, or sites; mixtures of rows are sites too.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm

from pymc_skewgp._errors import NotConjugateError, NotSitesError
from pymc_skewgp._model.graph.affine import uses_values, why_not_affine
from pymc_skewgp._model.graph.blocks import Block, find_blocks, part_of
from pymc_skewgp._model.graph.members import (
    is_function,
    is_gaussian,
    is_quadratic,
    is_typed,
    known_shape,
    mean_and_spread,
)
from pymc_skewgp._model.graph.observed import (
    NoRowsError,
    Observed,
    children,
    find_observed,
    is_prediction,
    outside_predictor,
    predictions_of,
    recognised,
)
from pymc_skewgp._model.graph.quadratic import (
    has_constant_integral,
    own_density,
    why_not_quadratic,
)
from pymc_skewgp._model.graph.sites import ObservedSites, sites_of
from pymc_skewgp._model.ops.double_precision import in_double

_CORE_NDIM = 1  # of one unified skew-normal vector


def blocks_under_rows_or_sites(model: pm.Model) -> list[Block]:
    """`find_blocks`, and those under sites of the functions that are in none of these.

    A function under rows alone that enters a predictor of sites as well is in the block of these.
    """
    under_rows = find_blocks(model)
    taken = {x for block in under_rows for x in block.members}
    found: list[Block] = []
    for rv in model.free_RVs:
        if not is_function(rv) or rv in taken:
            continue
        try:
            found.append(site_block_of(model, rv))
        except NotSitesError:
            continue
        taken.update(found[-1].members)
    own = {x for block in found for x in block.members}
    return [block for block in under_rows if own.isdisjoint(block.members)] + found


def refuse_with_reason(model: pm.Model, rv: Any) -> None:
    """Raise `NotConjugateError` for a function that is in no block; return for one that may be."""
    try:
        find_observed(model, rv)
    except NoRowsError as by_rows:
        try:
            site_block_of(model, rv)
        except NotSitesError as by_sites:
            reason = f"{by_rows.reason} Nor are they sites: {by_sites.reason}"
            raise NotConjugateError(reason, by_sites.remedy) from by_sites


def part_of_any(model: pm.Model, block: Block, chosen: Sequence[Any]) -> Block:
    """`part_of`, under sites and potentials too."""
    part = part_of(model, block, chosen)
    if not (block.sites or block.potentials) or part.members == block.members:
        return part
    below = {x: children(model, x) for x in part.members}
    rows, sites, potentials = _observed(model, part.members, below)
    return part._replace(observed=rows, sites=sites, potentials=potentials)


def gaussian_blocks(
    model: pm.Model, taken: set[str], reasons: dict[str, ValueError]
) -> list[Block]:
    """Blocks of variables with quadratic log densities alone, beside what is `taken` already.

    The largest first: of a product of two the smaller one is a hyperparameter. To `reasons` is
    added why variables are in none, by name.
    """
    seeds = [x for x in model.free_RVs if is_quadratic(model, x) and x.name not in taken]
    seeds.sort(key=lambda x: -int(np.prod(known_shape(x), dtype=int)))
    found: list[Block] = []
    gone = set(taken)
    for rv in seeds:
        if rv.name in gone or any(x.name in gone for x in children(model, rv)):
            continue
        try:
            found.append(site_block_of(model, rv))
        except NotSitesError as error:
            reasons[rv.name] = error
            continue
        gone.update(x.name for x in found[-1].members)
        gone |= found[-1].below
        for member in found[-1].members:
            reasons.pop(member.name, None)
    return found


def site_block_of(model: pm.Model, rv: Any) -> Block:
    """The block of a SkewGP or Gaussian variable, some of whose observations may be sites.

    That of a SkewGP variable has Gaussian variables by type beside it, and no potentials.

    Raises
    ------
    NotSitesError
        The message names what is in the way.
    """
    if is_function(rv):
        if rv.type.ndim != _CORE_NDIM or model.rvs_to_transforms[rv] is not None:
            raise NotSitesError(f"{rv.name} has batch dimensions, or a transform.")
        others = [x for x in model.free_RVs if is_function(x) or is_gaussian(model, x)]
    else:
        others = [x for x in model.free_RVs if is_quadratic(model, x)]
    below = {x: children(model, x) for x in others if x is rv or not is_prediction(model, x)}
    members = [rv]
    _observed(model, members, below)
    grows = True
    while grows:
        grows = False
        for other in below:
            if other in members or not _touches(other, members, below):
                continue
            joint = [x for x in model.free_RVs if x in members or x is other]
            try:
                _observed(model, joint, below)
            except NotSitesError:  # a hyperparameter, or a function with other observations
                continue
            members, grows = joint, True
    members = _without_means(members)
    rows, sites, potentials = _observed(model, members, below)
    predictions = predictions_of(model, members)
    return Block([x for x in model.free_RVs if x in members], rows, predictions, sites, potentials)


def _without_means(members: list[Any]) -> list[Any]:
    """Members but for those that the mean of a function depends on: they are hyperparameters."""
    means = [mean_and_spread(x)[0] for x in members if is_function(x)]
    return [x for x in members if is_function(x) or not uses_values(means, x, [])]


def _touches(other: Any, members: list[Any], below: dict[Any, list[Any]]) -> bool:
    """Whether a variable shares an observation with members, or is above or below one."""
    own = below[other]
    return any(x in own or x is other for member in members for x in [member, *below[member]])


def _observed(
    model: pm.Model, members: list[Any], below: dict[Any, list[Any]]
) -> tuple[list[Observed], list[ObservedSites], list[Any]]:
    """Observations of members, rows and sites, and potentials that are quadratic in them.

    Raises
    ------
    NotSitesError
        Where one is neither in all the members that it depends on.
    """
    rows: list[Observed] = []
    sites: list[ObservedSites] = []
    potentials: list[Any] = []
    kids = [x for x in [*model.basic_RVs, *model.potentials] if any(x in below[m] for m in members)]
    for child in kids:
        used = [x for x in members if child in below[x]]
        if child in members:
            _refuse_other_means(model, child, used)
        elif is_prediction(model, child):
            continue
        elif child in model.potentials and not any(is_function(x) for x in used):
            _refuse_other_potentials(model, child, used)
            potentials.append(child)
        elif child not in model.observed_RVs:
            raise NotSitesError(
                f"{child.name}, which depends on {used[0].name}, is not observed.",
                "Leave it to NUTS, with SkewGP.prior(..., reparameterize=True).",
            )
        else:
            found = _as_rows(model, child, used)
            if found is None:
                sites.append(sites_of(model, child, used))
            else:
                rows.append(found)
    if not rows and not sites:
        raise NotSitesError(f"{members[0].name} has no observations.")
    return rows, sites, potentials


def _as_rows(model: pm.Model, child: Any, used: list[Any]) -> Observed | None:
    """An observed variable as rows, where it is affine in members and no mixture."""
    found = recognised(model, child)
    if found is None or found.rows.mixture is not None:
        return None
    if any(outside_predictor(found.rows, x) for x in used):
        return None
    return None if why_not_affine(found.rows.predictor, used) is not None else found


def _refuse_other_means(model: pm.Model, child: Any, used: list[Any]) -> None:
    """Refuse a member whose density is not jointly quadratic in it and in members above it."""
    if is_typed(child):
        mean, spread = mean_and_spread(child)
        apart = not any(uses_values(spread, x, []) for x in used)
        if apart and why_not_affine(mean, used) is None:
            return
    else:
        own = own_density(model, child)
        values = [model.rvs_to_values[x] for x in [*used, child]]
        joint = own is not None and why_not_quadratic(own.log_density, values) is None
        if joint and (not used or has_constant_integral(model, child, used)):
            return
    names = " and ".join(x.name for x in used)
    raise NotSitesError(f"{child.name} does not depend affinely on {names}.")


def _refuse_other_potentials(model: pm.Model, potential: Any, used: list[Any]) -> None:
    (log_density,) = in_double(model.replace_rvs_by_values([potential]))
    reason = why_not_quadratic(log_density.sum(), [model.rvs_to_values[x] for x in used])
    if reason is not None:
        names = " and ".join(x.name for x in used)
        name = f"the potential {potential.name}"
        raise NotSitesError(f"{name} is not known to be quadratic in {names}: {reason}.")
