"""The members of a block as one unified skew-normal vector."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pytensor.tensor as pt
from pytensor.graph.traversal import ancestors

from pymc_skewgp._model.graph.members import Member
from pymc_skewgp._model.ops.skew_normal import sun_of_process
from pymc_skewgp._sun.parameters import SunParameters

# A matrix by blocks (row, column); those that are zero are left out.
Blocks = dict[tuple[int, int], Any]


class Placed(NamedTuple):
    """A member among those that its mean depends on.

    Attributes
    ----------
    mean : TensorVariable, shape (d,)
        Whatever their values are.
    above : list of int
        Which they are.
    design : TensorVariable, shape (d, p), or None
        M of its mean k + M z given their values z; None without any.
    sizes : list of TensorVariable
        Numbers of their values.
    """

    mean: Any
    above: list[int]
    design: Any = None
    sizes: Sequence[Any] = ()

    def carried(self, parts: Mapping[int, Any]) -> Any:
        """`design` times blocks of rows, one for each of those above; None where all are zero."""
        known = [part for part in parts.values() if part is not None]
        if not known:
            return None
        width = known[0].shape[1]
        filled = [
            pt.zeros((size, width)) if part is None else part
            for size, part in zip(self.sizes, parts.values(), strict=True)
        ]
        return self.design @ pt.concatenate(filled, axis=0)


def placed_members(members: list[Member]) -> dict[int, Placed]:
    """Members by their number, each after those that its mean depends on."""
    found: dict[int, Placed] = {}
    for i, above in _by_dependence(members):
        if not above:
            found[i] = Placed(_raveled_mean(members[i]), above)
            continue
        design, offset = design_and_offset(members[i], [members[j] for j in above])
        mean = offset + design @ pt.concatenate([found[j].mean for j in above])
        found[i] = Placed(mean, above, design, [pt.prod(members[j].shape) for j in above])
    return found


def joint_prior(members: list[Member]) -> SunParameters:
    r"""Joint parameters, from those of each member given the others that its mean depends on.

    With :math:`z_i` of mean :math:`k_i + M_i z_{a(i)}` and covariance :math:`\Omega_i` about it,
    a(i) being the members above it and taken before it,

    .. math:: m_i = k_i + M_i m_{a(i)}, \qquad \Sigma_{il} = M_i \Sigma_{a(i), l}, \qquad
        \Sigma_{ii} = \Omega_i + M_i \Sigma_{a(i), a(i)} M_i^\top

    and to the member's own cross-covariance :math:`M_i C_{a(i)}` is added.
    """
    if len(members) == 1:
        return members[0].prior._replace(mu=_raveled_mean(members[0]))
    cov: Blocks = {}
    cross: Blocks = {}
    latent = [i for i, member in enumerate(members) if member.n_latent != 0]
    placed = placed_members(members)
    done: list[int] = []
    for i, place in placed.items():
        member = members[i]
        cov[i, i] = member.prior.scale
        if i in latent:
            cross[i, i] = member.prior.cross_cov
        for other in done:
            moved = place.carried({j: cov.get((j, other)) for j in place.above})
            if moved is not None:
                cov[i, other], cov[other, i] = moved, moved.T
        own = {j: cov[i, j].T if (i, j) in cov else None for j in place.above}
        if place.above:
            cov[i, i] = cov[i, i] + place.carried(own)
        for column in latent:
            moved = place.carried({j: cross.get((j, column)) for j in place.above})
            if moved is not None:
                cross[i, column] = moved + cross.get((i, column), 0.0)
        done.append(i)
    every = range(len(members))
    rows = [pt.prod(member.shape) for member in members]
    columns = [members[j].prior.truncation.shape[0] for j in latent]
    own_latent = {(j, j): members[j].prior.latent_cov for j in latent}
    mean = pt.concatenate([placed[i].mean for i in every])
    scale = assembled(cov, every, every, rows, rows)
    if not latent:
        return sun_of_process(mean, scale, None, None, 0)
    return SunParameters(
        mean,
        scale,
        assembled(cross, every, latent, rows, columns),
        pt.concatenate([members[j].prior.truncation for j in latent]),
        assembled(own_latent, latent, latent, columns, columns),
    )


def design_and_offset(member: Member, above: list[Member]) -> tuple[Any, Any]:
    """M and k of a member's mean k + M z, z the values of those above it: graphs free of these."""
    design, offset = member.mean_given(above)
    if design is None:
        n, p = offset.shape[0], pt.prod(above[0].shape)
        design = pt.switch(pt.eq(n, p), pt.eye(n, p), pt.ones((n, p)))
    return design, offset


def _by_dependence(members: list[Member]) -> list[tuple[int, list[int]]]:
    """Members after those that their means depend on, with these."""
    upstream = [set(ancestors([member.mean])) for member in members]
    above = [[j for j, x in enumerate(members) if x.value in found] for found in upstream]
    order: list[int] = []
    while len(order) < len(members):
        ready = [i for i in range(len(members)) if i not in order and set(above[i]) <= set(order)]
        order += ready
    return [(i, above[i]) for i in order]


def _raveled_mean(member: Member) -> Any:
    if member.is_function:  # as it stands in the model
        return member.mean
    return pt.broadcast_to(member.mean, member.shape).ravel()


def assembled(
    blocks: Blocks, rows: Any, columns: Any, heights: list[Any], widths: list[Any]
) -> Any:
    """The matrix of these blocks."""
    return pt.concatenate(
        [
            pt.concatenate(
                [
                    blocks.get((i, j), pt.zeros((height, width)))
                    for j, width in zip(columns, widths, strict=True)
                ],
                axis=1,
            )
            for i, height in zip(rows, heights, strict=True)
        ],
        axis=0,
    )
