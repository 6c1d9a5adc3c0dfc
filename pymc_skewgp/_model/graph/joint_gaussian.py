"""The members of a block without a SkewGP as one Gaussian vector m + F c of white coordinates."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from pymc_skewgp._model.graph.joint_prior import (
    Blocks,
    assembled,
    placed_members,
)
from pymc_skewgp._model.graph.members import HALF_LOG_2PI, Member
from pymc_skewgp._model.graph.quadratic import Quadratic, quadratic_in
from pymc_skewgp._model.ops.double_precision import in_double
from pymc_skewgp._validation import FloatArray


class JointGaussian(NamedTuple):
    """z = m + F c, c white, and the log of the integral of what the model says of z.

    Attributes
    ----------
    mean : TensorVariable, shape (q,)
    factor : TensorVariable, shape (q, r)
    scale : TensorVariable, shape (q,)
        Of those with a flat prior the deviation of the Gaussian in its place; infinite for others.
    log_constant : TensorVariable, shape ()
    """

    mean: Any
    factor: Any
    scale: Any
    log_constant: Any


def joint_gaussian(
    model: pm.Model,
    members: list[Member],
    potentials: Sequence[Any],
    flat_scales: dict[str, FloatArray],
) -> JointGaussian:
    r"""Of members whose means are affine in others, times potentials that are quadratic in them.

    With :math:`z_i` of mean :math:`k_i + M_i z_{a(i)}` and factor :math:`F_i` about it the rows of
    the joint factor are :math:`M_i F_{a(i)}`, then :math:`F_i` for coordinates of its own. A
    potential with gradient b and Hessian -P at m has :math:`L L^\top = I + F^\top P F`, and

    .. math:: m' = m + F L^{-\top} w, \quad F' = F L^{-\top}, \quad w = L^{-1} F^\top b

    `flat_scales`: of members with density 1, deviations of the Gaussian in its place, by name; they
    are to be so large that its density hardly varies where the posterior is.
    """
    rows: Blocks = {}
    log_constant: Any = pt.constant(0.0, dtype="float64")
    own, scales = [], []
    for member in members:
        if member.is_flat:
            scale = flat_scales[member.name]
            log_constant = log_constant + float(np.log(scale).sum() + HALF_LOG_2PI * scale.size)
            own.append(pt.diag(pt.as_tensor(scale)))
            scales.append(pt.as_tensor(scale))
            continue
        if member.log_constant is not None:
            log_constant = log_constant + member.log_constant
        own.append(member.factor)
        scales.append(pt.full((pt.prod(member.shape),), np.inf))
    placed = placed_members(members)
    done: list[int] = []
    for i, place in placed.items():
        rows[i, i] = own[i]
        for column in done:
            part = place.carried({j: rows.get((j, column)) for j in place.above})
            if part is not None:
                rows[i, column] = part
        done.append(i)
    every = range(len(members))
    heights = [pt.prod(member.shape) for member in members]
    joint = JointGaussian(
        pt.concatenate([placed[i].mean for i in every]),
        assembled(rows, every, every, heights, [x.shape[1] for x in own]),
        pt.concatenate(scales),
        log_constant,
    )
    return _times_potentials(model, members, potentials, joint) if potentials else joint


def _times_potentials(
    model: pm.Model, members: list[Member], potentials: Sequence[Any], joint: JointGaussian
) -> JointGaussian:
    graphs = in_double(model.replace_rvs_by_values(list(potentials)))
    found = quadratic_in(
        sum(graph.sum() for graph in graphs),
        [member.value for member in members],
        [member.origin for member in members],
    )
    mean, factor = joint.mean, joint.factor
    gradient = found.slope - found.precision @ mean
    of_white = Quadratic(
        found.constant + 0.5 * mean @ (found.slope + gradient),
        factor.T @ gradient,
        pt.eye(factor.shape[1]) + factor.T @ found.precision @ factor,
    )
    moved, turned, log_integral = of_white.integrated(factor)
    return JointGaussian(mean + moved, turned, joint.scale, joint.log_constant + log_integral)
