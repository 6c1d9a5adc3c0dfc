"""Variables that a block may hold: SkewGP and Gaussian ones, as graphs of value variables."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.continuous import FlatRV
from pymc.distributions.multivariate import ZeroSumNormalRV
from pymc.distributions.transforms import ZeroSumTransform
from pytensor.graph.replace import clone_replace
from pytensor.tensor.random.basic import MvNormalRV, NormalRV

from pymc_skewgp._model.distributions.unified_skew_normal import UnifiedSkewNormalRV
from pymc_skewgp._model.graph.affine import Affine, affine_coefficients
from pymc_skewgp._model.graph.intrinsic import is_intrinsic
from pymc_skewgp._model.graph.likelihoods.block_noise import block_diagonal
from pymc_skewgp._model.graph.likelihoods.likelihood import required_of
from pymc_skewgp._model.graph.quadratic import own_density, quadratic_in
from pymc_skewgp._model.ops.double_precision import as_real
from pymc_skewgp._model.ops.plain_mode import PLAIN
from pymc_skewgp._model.ops.skew_normal import sun_of_process
from pymc_skewgp._sun.parameters import SunParameters

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

    def mean_given(self, others: "list[Member]") -> Affine:
        """Mean as an affine function of the values of `others`."""
        values, origins = [x.value for x in others], [x.origin for x in others]
        return affine_coefficients(self.mean, values, origins, self.shape)


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
        spread = [required_of(rv.name, sd, what, pt.gt(sd, 0.0)) for sd in spread]
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
        scale, factor = pt.diag(sd**2), pt.diag(sd)
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
    assert own is not None
    if isinstance(rv.owner.op, FlatRV) or is_intrinsic(model, rv):
        eye = pt.eye(bare.origin.size)
        flat = bare._replace(mean=bare.origin, prior=_centred(eye), factor=eye, is_flat=True)
        own_potential = None if isinstance(rv.owner.op, FlatRV) else own.log_density
        return flat._replace(own_potential=own_potential)
    found = quadratic_in(own.log_density, [value], [bare.origin])
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
