"""Variables that a block may hold, by type or by their quadratic log density."""

from collections.abc import Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.continuous import FlatRV
from pymc.distributions.multivariate import ICARRV, ZeroSumNormalRV
from pymc.distributions.transforms import ZeroSumTransform
from pytensor.gradient import jacobian
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors, graph_inputs
from pytensor.tensor.random.basic import MvNormalRV, NormalRV
from scipy.sparse.csgraph import connected_components

from pymc_skewgp._errors import UnnormalizedPriorWarning, warn
from pymc_skewgp._model.distributions.unified_skew_normal import UnifiedSkewNormalRV
from pymc_skewgp._model.graph import affine
from pymc_skewgp._model.graph.likelihoods import block_diagonal, required_of
from pymc_skewgp._model.ops.densities import sun_of_process
from pymc_skewgp._model.ops.plain_mode import PLAIN, as_real, in_double, plain_function
from pymc_skewgp._sun.parameters import SunParameters

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
    given = rv.owner.clone_with_new_inputs(inputs, strict=False).outputs[rv.owner.outputs.index(rv)]
    return pm.logp(given, model.rvs_to_values[rv], warn_rvs=False)


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
    own, point = own_density(model, rv), model.initial_point()
    values = [model.rvs_to_values[x] for x in [rv, *above]]
    origins = [pt.as_tensor(np.zeros_like(point[x.name])) for x in values]
    found = quadratic_in(own, values, origins)
    used = set(graph_inputs([found.slope, found.precision]))
    inputs = [x for x in model.value_vars if x in used]
    function = plain_function(inputs, [found.slope, found.precision])
    k = point[values[0].name].size
    rng = np.random.default_rng(_SEED)
    near = [point[x.name] for x in inputs]
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
    if not (is_function(rv) or isinstance(rv.owner.op, MvNormalRV)):
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
