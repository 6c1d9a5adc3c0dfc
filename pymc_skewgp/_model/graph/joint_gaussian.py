"""The members of a block as one Gaussian vector m + F c, and coordinates of covariance factors."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.transforms import CholeskyCovPacked
from pymc.logprob.transforms import Transform
from pytensor.graph.traversal import ancestors

from pymc_skewgp._model.graph.members import HALF_LOG_2PI, Member, Quadratic, quadratic_in
from pymc_skewgp._model.ops.densities import sun_of_process
from pymc_skewgp._model.ops.plain_mode import PLAIN, in_double
from pymc_skewgp._sun.parameters import SunParameters
from pymc_skewgp._validation import FloatArray

# The members of a block as one unified skew-normal vector.

# A matrix by blocks (row, column); those that are zero are left out.
Blocks = dict[tuple[int, int], Any]


def _means_and_moves(members: list[Member]) -> tuple[list[Any], Blocks]:
    r"""Means of all, and what each moves by with the deviations of those that it depends on.

    With :math:`z_i = k_i + M_i z_{a(i)} + w_i`, a(i) being the members that its mean depends on,
    all are :math:`z = m + T w`; of T the identities on the diagonal are left out.
    """
    means: dict[int, Any] = {}
    moves: Blocks = {}
    for i, above in _by_dependence(members):
        if not above:
            means[i] = _raveled_mean(members[i])
            continue
        design, offset = members[i].mean_given([members[j] for j in above])
        means[i] = offset + design @ pt.concatenate([means[j] for j in above])
        start: Any = 0
        for j in above:
            stop = start + pt.prod(members[j].shape)
            part, start = design[:, start:stop], stop
            terms = {k: part @ move for (own, k), move in moves.items() if own == j} | {j: part}
            for k, term in terms.items():
                moves[i, k] = moves[i, k] + term if (i, k) in moves else term
    return [means[i] for i in range(len(members))], moves


def _carried(moves: Blocks, own: Mapping[int, Any]) -> Blocks:
    """T times a matrix that has these blocks on its diagonal."""
    found = {(i, i): x for i, x in own.items()}
    return found | {(i, j): move @ own[j] for (i, j), move in moves.items() if j in own}


def joint_prior(members: list[Member]) -> SunParameters:
    r"""Joint parameters, from those of each member given the others that its mean depends on.

    With :math:`\Omega` and C the covariances and cross-covariances of all deviations these are
    :math:`T \Omega T^\top` and :math:`T C`.
    """
    if len(members) == 1:
        return members[0].prior._replace(mu=_raveled_mean(members[0]))
    means, moves = _means_and_moves(members)
    every = range(len(members))
    cov: Blocks = {}
    for (i, j), half in _carried(moves, {i: members[i].prior.scale for i in every}).items():
        terms = {k: half @ move.T for (k, own), move in moves.items() if own == j} | {j: half}
        for k, term in terms.items():
            cov[i, k] = cov[i, k] + term if (i, k) in cov else term
    rows = [pt.prod(member.shape) for member in members]
    scale, mean = assembled(cov, every, every, rows, rows), pt.concatenate(means)
    latent = [i for i in every if members[i].n_latent != 0]
    if not latent:
        return sun_of_process(mean, scale, None, None, 0)
    cross = _carried(moves, {j: members[j].prior.cross_cov for j in latent})
    columns = [members[j].prior.truncation.shape[0] for j in latent]
    own_latent = {(j, j): members[j].prior.latent_cov for j in latent}
    return SunParameters(
        mean,
        scale,
        assembled(cross, every, latent, rows, columns),
        pt.concatenate([members[j].prior.truncation for j in latent]),
        assembled(own_latent, latent, latent, columns, columns),
    )


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


def _length(x: Any, axis: int) -> Any:
    """As a number where the type has it: of a graph each block of zeros would look for one."""
    known = x.type.shape[axis]
    return x.shape[axis] if known is None else known


def assembled(
    blocks: Blocks, rows: Any, columns: Any, heights: list[Any], widths: list[Any]
) -> Any:
    """The matrix of these blocks."""
    columns = list(zip(columns, widths, strict=True))
    lines = [
        [blocks[i, j] if (i, j) in blocks else pt.zeros((height, width)) for j, width in columns]
        for i, height in zip(rows, heights, strict=True)
    ]
    return pt.concatenate([pt.concatenate(line, axis=1) for line in lines], axis=0)


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
    """Of members whose means are affine in others; see `_means_and_moves`."""
    means, moves = _means_and_moves(members)
    rows = _carried(moves, {i: member.factor for i, member in enumerate(members)})
    every = range(len(members))
    flat = [i for i in every if members[i].is_flat]
    others = [i for i in every if not members[i].is_flat]
    heights = [_length(member.factor, 0) for member in members]

    def columns(chosen: list[int]) -> Any:
        if not chosen:
            return pt.zeros((sum(heights), 0))
        widths = [_length(members[j].factor, 1) for j in chosen]
        return assembled(rows, every, chosen, heights, widths)

    own = {(i, i): members[i].factor for i in flat}
    picked = pt.zeros((0, sum(heights)))
    if flat:
        picked = assembled(own, flat, every, [heights[i] for i in flat], heights)
    constants = [x.log_constant for x in members if x.log_constant is not None]
    return JointPrior(
        pt.concatenate(means),
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


# Coordinates of Cholesky factors of covariance matrices in which posteriors have no funnel.
#
# PyMC's are the factor's own entries, with the logarithm of its diagonal. Where a standard
# deviation may be near zero, all entries of its row are, and their range is as narrow as the
# deviation is small. Here a row is its standard deviation and its correlations, which are
# independent of it in the prior (Lewandowski, Kurowicka & Joe 2009,
# doi:10.1016/j.jmva.2009.04.008).


class CovarianceCoordinates(Transform):
    r"""Of each row the canonical partial correlations' :math:`y`, and the log deviation.

    With :math:`t_0` the deviation, :math:`L_{ij} = t_j \tanh y_j` and
    :math:`t_{j+1} = t_j / \cosh y_j`; :math:`L_{ii} = t_i`.

    Parameters
    ----------
    n : int
        Rows of the factor.
    """

    name = CholeskyCovPacked.name  # so that values have the names that PyMC gives
    ndim_supp = 1

    def __init__(self, n: int) -> None:
        self._n = n

    def _rows(self, value: Any) -> list[list[Any]]:
        """Entries by row. One by one, so that no graph of PyMC's start needs a C compiler."""
        ends = [i * (i + 1) // 2 for i in range(self._n + 1)]
        return [[value[..., k] for k in range(a, b)] for a, b in pairwise(ends)]

    def forward(self, value: Any, *inputs: Any) -> Any:
        """Coordinates of the packed factor."""
        found: list[Any] = []
        for row in self._rows(value):
            t, own = row[-1], []
            for entry in reversed(row[:-1]):
                own.append(pt.arcsinh(entry / t))
                t = pt.sqrt(t**2 + entry**2)
            found += [*reversed(own), pt.log(t)]
        return pt.stack(found, axis=-1)

    def backward(self, value: Any, *inputs: Any) -> Any:
        """The packed factor."""
        found: list[Any] = []
        for row in self._rows(value):
            t = [pt.exp(x) for x in _log_t(row)]
            found += [a * pt.tanh(y) for a, y in zip(t, row[:-1], strict=False)] + t[-1:]
        return pt.stack(found, axis=-1)

    def log_jac_det(self, value: Any, *inputs: Any) -> Any:
        """Log determinant of the derivative of `backward`."""
        return sum(x for row in self._rows(value) for x in _log_t(row))


def _log_t(row: list[Any]) -> list[Any]:
    """Log of what the correlations so far leave of the deviation, from all of it on."""
    found = [row[-1]]
    for y in row[:-1]:
        log_cosh = y + pt.softplus(-2.0 * y) - np.log(2.0)
        found.append(found[-1] - log_cosh)
    return found


def in_covariance_coordinates(model: pm.Model) -> pm.Model:
    """The model, its variables the same, with these coordinates of factors in place of PyMC's."""
    new = {
        rv: CovarianceCoordinates(len(transform.diag_idxs.eval(mode=PLAIN)))
        for rv, transform in model.rvs_to_transforms.items()
        if isinstance(transform, CholeskyCovPacked)
    }
    if not new:
        return model
    found = object.__new__(type(model))
    vars(found).update(vars(model))
    found.rvs_to_transforms = model.rvs_to_transforms | new
    return found
