"""The members of a block as one unified skew-normal vector."""

from typing import Any

import pytensor.tensor as pt
from pytensor.graph.traversal import ancestors

from pymc_skewgp._model.graph.members import Member
from pymc_skewgp._model.ops.skew_normal import sun_of_process
from pymc_skewgp._sun.parameters import SunParameters

# A matrix by blocks (row, column); those that are zero are left out.
Blocks = dict[tuple[int, int], Any]


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
    means: dict[int, Any] = {}
    cov: Blocks = {}
    cross: Blocks = {}
    latent = [i for i, member in enumerate(members) if member.n_latent != 0]
    for i, above in by_dependence(members):
        member = members[i]
        cov[i, i] = member.prior.scale
        if i in latent:
            cross[i, i] = member.prior.cross_cov
        if not above:
            means[i] = _raveled_mean(member)
            continue
        design, offset = design_and_offset(member, [members[j] for j in above])
        sizes = [pt.prod(members[j].shape) for j in above]
        for other in means:
            moved = carried(design, sizes, [cov.get((j, other)) for j in above])
            if moved is not None:
                cov[i, other], cov[other, i] = moved, moved.T
        own = carried(design, sizes, [cov[i, j].T if (i, j) in cov else None for j in above])
        cov[i, i] = cov[i, i] + own
        for column in latent:
            moved = carried(design, sizes, [cross.get((j, column)) for j in above])
            if moved is not None:
                cross[i, column] = moved + cross.get((i, column), 0.0)
        means[i] = offset + design @ pt.concatenate([means[j] for j in above])
    every = range(len(members))
    rows = [pt.prod(member.shape) for member in members]
    columns = [members[j].prior.truncation.shape[0] for j in latent]
    own_latent = {(j, j): members[j].prior.latent_cov for j in latent}
    mean = pt.concatenate([means[i] for i in every])
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


def by_dependence(members: list[Member]) -> list[tuple[int, list[int]]]:
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


def carried(design: Any, sizes: list[Any], parts: list[Any]) -> Any:
    """`design` times blocks one below the other; None where all are zero."""
    known = [part for part in parts if part is not None]
    if not known:
        return None
    width = known[0].shape[1]
    filled = [
        pt.zeros((size, width)) if part is None else part
        for size, part in zip(sizes, parts, strict=True)
    ]
    return design @ pt.concatenate(filled, axis=0)


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
