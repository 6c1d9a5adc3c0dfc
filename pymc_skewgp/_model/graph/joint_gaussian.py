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
    flat : TensorVariable, shape (p, q)
        Times z the coordinates of those with a flat prior, white under the Gaussian in its place.
    log_constant : TensorVariable, shape ()
    """

    mean: Any
    factor: Any
    flat: Any
    log_constant: Any


class JointPrior(NamedTuple):
    """Members of a block before potentials, those with a flat prior apart.

    Attributes
    ----------
    mean : TensorVariable, shape (q,)
    factor : TensorVariable, shape (q, r - p)
        Of white coordinates of the others.
    loose : TensorVariable, shape (q, p)
        What z moves by with the values of those with a flat prior.
    picked : TensorVariable, shape (p, q)
        Their values of z.
    log_constant : TensorVariable, shape ()
    """

    mean: Any
    factor: Any
    loose: Any
    picked: Any
    log_constant: Any


def joint_prior_of(members: list[Member]) -> JointPrior:
    r"""Of members whose means are affine in others.

    With :math:`z_i` of mean :math:`k_i + M_i z_{a(i)}` and factor :math:`F_i` about it the rows of
    the joint factor are :math:`M_i F_{a(i)}`, then :math:`F_i` for coordinates of its own.
    """
    rows: Blocks = {}
    placed = placed_members(members)
    done: list[int] = []
    for i, place in placed.items():
        rows[i, i] = members[i].factor
        for column in done:
            part = place.carried({j: rows.get((j, column)) for j in place.above})
            if part is not None:
                rows[i, column] = part
        done.append(i)
    every = range(len(members))
    flat = [i for i in every if members[i].is_flat]
    others = [i for i in every if not members[i].is_flat]
    heights = [pt.prod(member.shape) for member in members]

    def columns(chosen: list[int]) -> Any:
        if not chosen:
            return pt.zeros((sum(heights), 0))
        widths = [members[j].factor.shape[1] for j in chosen]
        return assembled(rows, every, chosen, heights, widths)

    own = {(i, i): members[i].factor for i in flat}
    picked = pt.zeros((0, sum(heights)))
    if flat:
        picked = assembled(own, flat, every, [heights[i] for i in flat], heights)
    constants = [x.log_constant for x in members if x.log_constant is not None]
    return JointPrior(
        pt.concatenate([placed[i].mean for i in every]),
        columns(others),
        columns(flat),
        picked,
        sum(constants, start=pt.constant(0.0, dtype="float64")),
    )


def potentials_of(
    model: pm.Model, members: list[Member], potentials: Sequence[Any]
) -> Quadratic | None:
    """Log density that a prior of members is to be multiplied by; None for none."""
    graphs = in_double(model.replace_rvs_by_values(list(potentials)))
    graphs += [x.own_potential for x in members if x.own_potential is not None]
    if not graphs:
        return None
    values, origins = [x.value for x in members], [x.origin for x in members]
    return quadratic_in(sum(graph.sum() for graph in graphs), values, origins)


def proper_joint(
    model: pm.Model, members: list[Member], potentials: Sequence[Any]
) -> JointGaussian:
    """Of members without flat ones, times potentials."""
    potential = potentials_of(model, members, potentials)
    return joint_gaussian(joint_prior_of(members), np.zeros((0, 0)), potential)


def joint_gaussian(
    prior: JointPrior, spread: FloatArray, potential: Quadratic | None
) -> JointGaussian:
    r"""A prior with a Gaussian in place of density 1, times a potential.

    A potential with gradient b and Hessian -P at m has :math:`L L^\top = I + F^\top P F`, and

    .. math:: m' = m + F L^{-\top} w, \quad F' = F L^{-\top}, \quad w = L^{-1} F^\top b

    `spread`, shape (p, p): a factor of the covariance in place of density 1, so large that its
    density hardly varies where the posterior is.
    """
    joint = JointGaussian(prior.mean, prior.factor, prior.picked, prior.log_constant)
    if spread.size:
        log_det = float(np.linalg.slogdet(spread)[1])
        joint = joint._replace(
            factor=pt.concatenate([prior.loose @ pt.as_tensor(spread), prior.factor], axis=1),
            flat=pt.as_tensor(np.linalg.inv(spread)) @ prior.picked,
            log_constant=prior.log_constant + log_det + HALF_LOG_2PI * len(spread),
        )
    if potential is None:
        return joint
    mean, factor = joint.mean, joint.factor
    gradient = potential.slope - potential.precision @ mean
    of_white = Quadratic(
        potential.constant + 0.5 * mean @ (potential.slope + gradient),
        factor.T @ gradient,
        pt.eye(factor.shape[1]) + factor.T @ potential.precision @ factor,
    )
    moved, turned, log_integral = of_white.integrated(factor)
    return JointGaussian(mean + moved, turned, joint.flat, joint.log_constant + log_integral)
