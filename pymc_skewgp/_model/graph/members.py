"""Variables that a block may hold, and all of a block as one vector m + F c.

They are known by type or by their quadratic log density.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.continuous import FlatRV
from pymc.distributions.dist_math import check_parameters
from pymc.distributions.multivariate import CARRV, ICARRV, ZeroSumNormalRV
from pymc.distributions.transforms import CholeskyCovPacked, ZeroSumTransform
from pymc.logprob.transforms import Transform
from pytensor.gradient import jacobian
from pytensor.graph.basic import Constant
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors, graph_inputs
from pytensor.sparse.variable import SparseVariable
from pytensor.tensor.random.basic import CategoricalRV, MvNormalRV, NormalRV
from pytensor.tensor.special import Softmax, log_softmax
from scipy.sparse import csr_array, triu
from scipy.sparse.csgraph import connected_components

from pymc_skewgp._errors import UnnormalizedPriorWarning, warn
from pymc_skewgp._model.distributions.unified_skew_normal import UnifiedSkewNormalRV
from pymc_skewgp._model.graph import affine
from pymc_skewgp._model.graph.initial_point import initial_point, inputs_at_start
from pymc_skewgp._model.graph.likelihoods import block_diagonal, required_of, symmetric
from pymc_skewgp._model.ops.densities import CARLogDet, sun_of_process
from pymc_skewgp._model.ops.plain_mode import PLAIN, as_real, in_double, plain_function
from pymc_skewgp._sun.parameters import SunParameters
from pymc_skewgp._validation import FloatArray

# Variables and potentials whose log density is quadratic in latent values, by their own density.
#
# .. math:: \log p(z) = c + b^\top z - \tfrac12 z^\top Q z
#
# with b the gradient at 0 and Q minus the Hessian, which is the same everywhere: so are random
# walks, autoregressions, CAR and ICAR fields and Gaussian custom distributions recognised, with no
# code for any of them. A white list decides, of operations that keep the gradient affine.

# Share of its terms by which the integral of a density may vary by round-off.
_ROUND_OFF = 1e-7
_SPREAD, _SEED = 0.3, 0


class Quadratic(NamedTuple):
    """A log density c + b' z - z' Q z / 2 of some values z, raveled one after the other.

    Attributes
    ----------
    constant : TensorVariable, shape ()
    slope : TensorVariable, shape (d,)
    precision : TensorVariable, shape (d, d)
    """

    constant: Any
    slope: Any
    precision: Any

    def integrated(self, factor: Any) -> tuple[Any, Any, Any]:
        r"""Mean and factor of F z, and the log of the integral but for (2 pi)^(d/2).

        With :math:`Q = L L^\top` and :math:`w = L^{-1} b` these are :math:`F L^{-\top} w`,
        :math:`F L^{-\top}` and :math:`c + w^\top w / 2 - \sum_i \log L_{ii}`.
        """
        chol = pt.linalg.cholesky(self.precision)
        white = pt.linalg.solve_triangular(chol, self.slope, lower=True)
        turned = pt.linalg.solve_triangular(chol, factor.T, lower=True).T
        log_det = pt.log(pt.diagonal(chol)).sum()
        return turned @ white, turned, self.constant + 0.5 * (white @ white) - log_det


# Of each variable: its density where the log of it is quadratic in its value, else None.
_KNOWN: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def own_density(model: pm.Model, rv: Any) -> Any:
    """Log density of a free variable without a transform; None where it is not quadratic in it."""
    if rv not in _KNOWN:
        _KNOWN[rv] = _own_density(model, rv)
    return _KNOWN[rv]


def _own_density(model: pm.Model, rv: Any) -> Any:
    if model.rvs_to_transforms[rv] is not None or not rv.dtype.startswith("float"):
        return None
    value = model.rvs_to_values[rv]
    try:
        log_density = log_density_of(model, rv).sum()
        (log_density,) = in_double([affine.entries_by_name(log_density)])
        slope = slopes_of(log_density, [value])[0]
    except Exception:  # what PyMC's many rules raise: it has no density, or no gradient
        return None
    return log_density if affine.why_not_affine(slope, [value]) is None else None


def log_density_of(model: pm.Model, rv: Any) -> Any:
    """Of a variable at its value, entry by entry, a graph of value variables."""
    # Values first: PyMC would copy random variables, and a copy is another one.
    inputs = model.replace_rvs_by_values(rv.owner.inputs)
    if isinstance(rv.owner.op, CARRV):
        known = _car_log_density(model.rvs_to_values[rv], *inputs[2:])
        if known is not None:
            return known
    if isinstance(rv.owner.op, CategoricalRV):
        known = _class_log_density(model.rvs_to_values[rv], inputs[-1])
        if known is not None:
            return known
    given = rv.owner.clone_with_new_inputs(inputs, strict=False).outputs[rv.owner.outputs.index(rv)]
    found = pm.logp(given, model.rvs_to_values[rv], warn_rvs=False)
    if isinstance(rv.owner.op, CARRV):  # without a constant, which an evidence has to have
        degrees = inputs[3].sum(axis=inputs[3].type.ndim - 2)
        found += 0.5 * pt.log(degrees).sum() - HALF_LOG_2PI * inputs[3].shape[-1]
    return found


def _class_log_density(value: Any, p: Any) -> Any:
    """Of a softmax, where PyMC takes the logarithm of what may be 0; None for other p."""
    op = getattr(p.owner, "op", None)
    if not isinstance(op, Softmax) or op.axis not in (-1, p.type.ndim - 1, (p.type.ndim - 1,)):
        return None
    each = log_softmax(p.owner.inputs[0], axis=-1)
    chosen = pt.eq(value[..., None], pt.arange(each.shape[-1]))
    found = pt.switch(chosen, each, 0.0).sum(axis=-1)
    return pt.switch(chosen.any(axis=-1), found, -np.inf)


def _car_log_density(value: Any, mu: Any, W: Any, alpha: Any, tau: Any, valid: Any) -> Any:
    """By a sparse factor, not by eigenvalues; None for unknown W, or batches of fields."""
    if value.type.ndim != 1 or any(not isinstance(x, Constant) for x in graph_inputs([W, valid])):
        return None
    W = plain_function([], W if isinstance(W, SparseVariable) else W.squeeze())()
    W = csr_array(W, dtype=np.float64)
    W.eliminate_zeros()
    degrees, alpha, tau = W.sum(axis=0), alpha.squeeze(), tau.squeeze()
    off, pairs = value - mu, triu(W).tocoo()  # not by sparse products, which do not vectorise
    if not (degrees > 0.0).all() or (W != W.T).nnz:  # is refused as a density that is nowhere
        return check_parameters(-0.5 * (off**2).sum(), pt.constant(False), msg="W is symmetric")
    # Indices as constants: PyTensor looks at each number of an array.
    ends = off[pt.constant(pairs.row)] * off[pt.constant(pairs.col)]
    near = (np.where(pairs.row < pairs.col, 2.0, 1.0) * pairs.data * ends).sum()
    quadratic = tau * ((degrees * off**2).sum() - alpha * near)
    log_det = CARLogDet(W)(alpha)[0] + W.shape[0] * pt.log(tau)
    log_det += np.log(degrees).sum() - 2.0 * HALF_LOG_2PI * W.shape[0]
    bounds = pt.gt(alpha, -1.0), pt.lt(alpha, 1.0), pt.gt(tau, 0.0)
    return check_parameters(0.5 * (log_det - quadratic), *bounds, msg="-1 < alpha < 1, tau > 0")


def slopes_of(log_density: Any, values: Sequence[Any]) -> list[Any]:
    """Gradient in some values."""
    found: list[Any] = pt.grad(
        log_density, list(values), disconnected_inputs="ignore", return_disconnected="zero"
    )
    return found


def first_quadratic(log_density: Any, values: Sequence[Any]) -> int | None:
    """The first of these variables that the sum is quadratic in, given the others; None: none."""
    total = log_density.sum()
    return next((i for i, x in enumerate(values) if why_not_quadratic(total, [x]) is None), None)


def why_not_quadratic(log_density: Any, values: Sequence[Any]) -> str | None:
    """First operation by which a log density is not known to be quadratic in values, or None."""
    reasons = (
        affine.why_not_affine(slope, list(values)) for slope in slopes_of(log_density, values)
    )
    return next((reason for reason in reasons if reason is not None), None)


def has_constant_integral(model: pm.Model, rv: Any, above: Sequence[Any]) -> bool:
    """Whether the integral of a density over its variable does not depend on others `above` it.

    As of a random walk on its drift. By value, near the model's initial point, of what is quadratic
    in all of them together; True where the density has no integral. At that point itself other
    coefficients are zero.
    """
    own, point = own_density(model, rv), initial_point(model)
    values = [model.rvs_to_values[x] for x in [rv, *above]]
    origins = [pt.as_tensor(np.zeros_like(point[x.name])) for x in values]
    found = quadratic_in(own, values, origins)
    inputs, near = inputs_at_start(model, [found.slope, found.precision])
    function = plain_function(inputs, [found.slope, found.precision])
    k = point[values[0].name].size
    rng = np.random.default_rng(_SEED)
    near = [x if x.dtype.kind != "f" else x + _SPREAD * rng.normal(size=x.shape) for x in near]
    try:
        slope, precision = function(*near)
        carried = np.linalg.solve(precision[:k, :k], np.c_[precision[:k, k:], slope[:k]])
    except np.linalg.LinAlgError:
        return True
    except ValueError:  # of parameters out of their range
        return False
    whole = np.c_[precision[k:, k:], slope[k:]]
    left = np.abs(whole - precision[k:, :k] @ carried).max(initial=0.0)
    return bool(left <= _ROUND_OFF * np.abs(whole).max(initial=0.0))


def quadratic_in(log_density: Any, values: Sequence[Any], origins: Sequence[Any]) -> Quadratic:
    """The coefficients of a log density for which `why_not_quadratic` is None; free of `values`."""
    zeros = dict(zip(values, origins, strict=True))
    pairs = zip(slopes_of(log_density, values), origins, strict=True)
    slopes = [pt.broadcast_to(slope, origin.shape).ravel() for slope, origin in pairs]
    constant, *at_zero = clone_replace([log_density, *slopes], zeros)
    rows = []
    for slope, origin in zip(slopes, origins, strict=True):
        own = []
        for value, other in zip(values, origins, strict=True):
            bend = jacobian(slope, value, vectorize=True, disconnected_inputs="ignore")
            own.append(-clone_replace(bend, zeros).reshape((origin.size, other.size)))
        rows.append(pt.concatenate(own, axis=1))
    return Quadratic(constant, pt.concatenate(at_zero), pt.concatenate(rows, axis=0))


# Gaussian variables whose log density PyMC leaves short: of deficient rank, or not normalised.


def is_intrinsic(model: pm.Model, rv: Any) -> bool:
    """Whether the precision of a variable is singular: the data alone bound some direction.

    So is that of areas with islands under ICAR, which keeps the sum over all areas at 0 and says
    nothing of the level of each part, and of a walk whose start has a flat prior.
    """
    if isinstance(rv.owner.op, ICARRV):
        W = np.asarray(rv.owner.op.dist_params(rv.owner)[0].eval(mode=PLAIN))
        return bool(connected_components(W, directed=False)[0] > 1)
    own = [x for x in ancestors([rv]) if isinstance(getattr(x.owner, "op", None), FlatRV)]
    return any(x not in model.basic_RVs for x in own)


def warn_of_scale(model: pm.Model, rv: Any, stacklevel: int) -> None:
    """Warn of an ICAR whose sigma is random: its normalising power is not in PyMC's density."""
    if not isinstance(rv.owner.op, ICARRV):
        return
    sigma = rv.owner.op.dist_params(rv.owner)[1]
    above = set(ancestors([sigma])).intersection(model.free_RVs)
    if not above:
        return
    names = " and ".join(sorted(x.name for x in above))
    warn(
        f"{rv.name} is pm.ICAR with a random sigma ({names}): PyMC's density lacks the power of "
        "sigma that would normalise it, so that the prior of sigma is multiplied by it, which "
        f"favours large sigma. Write sigma * pm.ICAR({rv.name!r}, W=W).",
        UnnormalizedPriorWarning,
        stacklevel=stacklevel,
    )


_TYPED = (NormalRV, MvNormalRV, ZeroSumNormalRV)
HALF_LOG_2PI = float(0.5 * np.log(2.0 * np.pi))


class Member(NamedTuple):
    """One variable, raveled, its mean still a graph of other variables of the block.

    Attributes
    ----------
    name : str
        Of the random variable.
    value : TensorVariable
        Its value variable; of a `pm.ZeroSumNormal` the coordinates of the plane it lies in.
    mean : TensorVariable
        Of any shape that broadcasts to that of the value.
    shape : TensorVariable, shape (d,)
        Of the value, d known.
    prior : SunParameters
        Of the raveled value less its mean: location 0.
    n_latent : int or None
        Latent dimensions, where they are known before any evaluation.
    is_function : bool
        Whether it is a SkewGP's; its mean is a vector then.
    factor : TensorVariable, shape (d, k), or None
        F with F F' the covariance; None for a SkewGP.
    log_constant : TensorVariable, shape (), or None
        Log of the integral of its density, where that is not 1.
    is_flat : bool
        Whether it has the density 1 everywhere; `factor` is the identity then, to be scaled.
    own_potential : TensorVariable, shape (), or None
        Log density that density 1 is to be multiplied by, quadratic in members of the block; of a
        variable whose precision is singular.
    """

    name: str
    value: Any
    mean: Any
    shape: Any
    prior: SunParameters
    n_latent: int | None
    is_function: bool = False
    factor: Any = None
    log_constant: Any = None
    is_flat: bool = False
    own_potential: Any = None

    @property
    def origin(self) -> Any:
        """Zeros of the shape of the value."""
        known = self.value.type.shape
        if None not in known:
            return pt.zeros(known, dtype=self.value.dtype)
        if self.is_function:
            return pt.zeros_like(self.prior.scale[:, 0], dtype=self.value.dtype)
        return pt.zeros([self.shape[i] for i in range(len(known))], dtype=self.value.dtype)

    def mean_given(self, others: "list[Member]") -> tuple[Any, Any]:
        """M and k of its mean k + M z, z the values of `others`: graphs free of these."""
        values, origins = [x.value for x in others], [x.origin for x in others]
        return affine.affine_coefficients(self.mean, values, origins, self.shape)


def is_function(rv: Any) -> bool:
    """Whether a variable is a SkewGP's, or any other unified skew-normal."""
    return isinstance(rv.owner.op, UnifiedSkewNormalRV)


def is_gaussian(model: pm.Model, rv: Any) -> bool:
    """Whether a free variable is Gaussian by its type, its value variable too."""
    if not isinstance(rv.owner.op, _TYPED) or not rv.dtype.startswith("float"):
        return False
    transform = model.rvs_to_transforms[rv]
    if isinstance(rv.owner.op, ZeroSumNormalRV):
        return isinstance(transform, ZeroSumTransform)
    return transform is None


def is_quadratic(model: pm.Model, rv: Any) -> bool:
    """Whether the log density of a free variable is quadratic in its value, by type or itself."""
    if is_typed(rv):
        return is_gaussian(model, rv)
    return own_density(model, rv) is not None


def is_typed(rv: Any) -> bool:
    """Whether a variable is known by its parameters, and not by its log density."""
    return is_function(rv) or isinstance(rv.owner.op, _TYPED)


def mean_and_spread(rv: Any) -> tuple[Any, list[Any]]:
    """What is affine in other variables of a block, and what does not depend on them.

    Mean, or location, of a variable of a known type, and its other parameters.
    """
    mean, *others = rv.owner.op.dist_params(rv.owner)
    if isinstance(rv.owner.op, ZeroSumNormalRV):
        return pt.zeros(()), [mean]
    return mean, others


def as_member(model: pm.Model, rv: Any) -> Member:
    """A variable of a block, its parameters replaced by graphs of value variables."""
    if not is_typed(rv):
        return _by_own_density(model, rv)
    mean, spread = mean_and_spread(rv)
    if isinstance(rv.owner.op, MvNormalRV):
        spread = [symmetric(rv, spread[0])]
    elif not is_function(rv):
        what = "the standard deviation of {} must be positive"
        spread = [required_of(rv, sd, what, pt.gt(sd, 0.0)) for sd in spread]
    # Values first: what follows copies graphs, and a copy of a random variable is another one.
    mean, shape, *spread = model.replace_rvs_by_values([mean, _value_shape(rv), *spread])
    mean, *spread = (as_real(x) for x in (mean, *spread))
    value = model.rvs_to_values[rv]
    if is_function(rv):
        scale, *latent = spread
        prior = SunParameters(pt.zeros_like(mean), scale, *latent)
        return Member(rv.name, value, mean, shape, prior, latent_dimensions(prior), True)
    if isinstance(rv.owner.op, MvNormalRV):
        scale = _repeated(spread[0], shape)
        factor = _repeated(pt.linalg.cholesky(spread[0]), shape)
    else:
        sd = pt.broadcast_to(spread[0], shape).ravel()
        eye = pt.eye(sd.size)  # many times faster to make than pt.diag
        scale, factor = eye * sd**2, eye * sd
    return Member(rv.name, value, mean, shape, _centred(scale), 0, factor=factor)


def as_members(model: pm.Model, rvs: Sequence[Any]) -> list[Member]:
    """Variables of one block, jointly affine: only means are functions of others' values.

    Graphs of those known by their log density may mention these all the same, without effect.
    """
    members = [as_member(model, rv) for rv in rvs]
    origins = {member.value: member.origin for member in members}

    def freed(member: Member) -> Member:
        if member.log_constant is None:
            return member
        graphs = [*member.prior, member.factor, member.log_constant]
        *prior, factor, log_constant = clone_replace(graphs, origins)
        return member._replace(
            prior=SunParameters(*prior), factor=factor, log_constant=log_constant
        )

    return [freed(member) for member in members]


def _by_own_density(model: pm.Model, rv: Any) -> Member:
    """A variable whose log density is quadratic in it: precision Q, and Q times mean is b."""
    value = model.rvs_to_values[rv]
    shape = pt.as_tensor(np.array(known_shape(rv), dtype="int64"))
    nothing: Any = None
    bare = Member(rv.name, value, nothing, shape, nothing, 0)
    own = own_density(model, rv)
    if isinstance(rv.owner.op, FlatRV) or is_intrinsic(model, rv):
        eye = pt.eye(bare.origin.size)
        flat = bare._replace(mean=bare.origin, prior=_centred(eye), factor=eye, is_flat=True)
        own_potential = None if isinstance(rv.owner.op, FlatRV) else own
        return flat._replace(own_potential=own_potential)
    found = quadratic_in(own, [value], [bare.origin])
    mean, factor, log_constant = found.integrated(pt.eye(bare.origin.size))
    return bare._replace(
        mean=mean.reshape(shape, ndim=value.type.ndim),
        prior=_centred(factor @ factor.T),
        factor=factor,
        log_constant=log_constant + HALF_LOG_2PI * bare.origin.size,
    )


def known_shape(rv: Any) -> tuple[int, ...]:
    """Of a free variable, in numbers."""
    if None not in rv.type.shape:
        return tuple(rv.type.shape)
    return tuple(int(n) for n in rv.shape.eval(mode=PLAIN))


def labels_of(name: str, shape: tuple[int, ...]) -> list[str]:
    """Names of the entries of a variable."""
    if shape == ():
        return [name]
    return [f"{name}[{', '.join(map(str, index))}]" for index in np.ndindex(shape)]


def _centred(scale: Any) -> SunParameters:
    return sun_of_process(pt.zeros_like(scale[:, 0]), scale, None, None, 0)


def latent_dimensions(parameters: Any) -> int | None:
    """Number of latent dimensions, where one of the parameters says it."""
    *_, cross_cov, truncation, latent_cov = parameters
    sizes = [x.type.shape[-1] for x in (latent_cov, truncation, cross_cov)]
    return next((size for size in sizes if size is not None), None)


def _value_shape(rv: Any) -> Any:
    """Shape of the value variable, from the parameters: its own value is to be integrated out."""
    op, node = rv.owner.op, rv.owner
    ndim = rv.type.ndim
    if not ndim:
        return pt.zeros(0, dtype="int64")
    less = np.zeros(ndim, dtype="int64")
    if isinstance(op, ZeroSumNormalRV):
        less[-op.ndim_supp :] = 1
    if None not in rv.type.shape:
        return pt.as_tensor(np.array(rv.type.shape) - less)
    if isinstance(op, ZeroSumNormalRV):
        sigma, support = op.dist_params(node)
        size = op.size_param(node)
        batch = list(sigma.shape)[: -op.ndim_supp] if _is_none(size) else [size]
        whole = pt.concatenate([pt.atleast_1d(x) for x in [*batch, support]])
        return pt.specify_shape(whole, (ndim,)) - less
    parameters = op.dist_params(node)
    if isinstance(op, UnifiedSkewNormalRV):
        return pt.stack([parameters[0].shape[-1]])
    return pt.stack(list(op._infer_shape(op.size_param(node), parameters)))


def _is_none(size: Any) -> bool:
    return bool(size is None or size.type.shape == (0,) or not hasattr(size.type, "dtype"))


def _repeated(cov: Any, shape: Any) -> Any:
    """Covariance of vectors drawn independently of each other, raveled."""
    if shape.type.shape == (1,) and cov.type.ndim == 2:
        return cov
    k = cov.shape[-1]
    n = pt.prod(shape) // k
    each = pt.broadcast_to(cov, pt.concatenate([shape, [k]])).reshape((n, k, k))
    return block_diagonal(each)


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

    def of_white(self, c: FloatArray) -> FloatArray:
        """Draws of z, (N, q), from those of c."""
        return np.asarray(c @ self.factor.T + self.mean)

    def white(self, z: FloatArray) -> FloatArray:
        """A c of one z; what z leaves open moves no predictor."""
        return np.asarray(np.linalg.lstsq(self.factor, z - self.mean)[0])


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
