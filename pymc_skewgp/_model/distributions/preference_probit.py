"""Duels: which of two items has the greater value, seen with noise."""

from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.dist_math import check_parameters
from pymc.distributions.shape_utils import rv_size_is_none
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorConstant, TensorVariable

from pymc_skewgp._model.ops.double_precision import as_real
from pymc_skewgp._model.ops.log_ndtr import pt_log_ndtr
from pymc_skewgp._model.ops.log_normal_mass import pt_log_normal_mass

_ROOT_TWO = np.float64(np.sqrt(2.0))


class PreferenceProbitRV(RandomVariable):
    """Sign of a difference with normal noise; 0 where it is within the threshold.

    Its parameters are the difference of the values, the standard deviation of the noise of the
    difference, and the threshold.
    """

    name = "preference_probit"
    signature = "(),(),()->()"
    dtype = "int64"
    _print_name = ("PreferenceProbit", "\\operatorname{PreferenceProbit}")

    @classmethod
    def rng_fn(
        cls,
        rng: np.random.Generator,
        difference: NDArray[Any],
        noise: NDArray[Any],
        threshold: NDArray[Any],
        size: tuple[int, ...] | None,
    ) -> NDArray[np.int64]:
        """Draw; `size` None means the shape of the parameters."""
        if size is None:
            size = np.broadcast_shapes(*(np.shape(x) for x in (difference, noise, threshold)))
        v = difference + noise * rng.standard_normal(size)
        return (v > threshold).astype(np.int64) - (v < -threshold)


preference_probit = PreferenceProbitRV()


class PreferenceProbit(pm.Discrete):
    r"""Outcomes of duels between items: the item of greater value, seen with noise, wins.

    With :math:`\delta = f_i - f_j` for a pair (i, j), fresh noise of standard deviation
    :math:`\sigma` on each item in each duel, and a threshold d that a difference must exceed,

    .. math:: P(y = 1) = \Phi\Bigl(\frac{\delta - d}{\sqrt2 \sigma}\Bigr), \qquad
        P(y = -1) = \Phi\Bigl(\frac{-\delta - d}{\sqrt2 \sigma}\Bigr)

    and y = 0, a tie, else. So y is the sign of what was seen: 1 where the first item of the pair
    won, -1 where the second one did. For pairs that are given winner first y is 1 throughout.

    Parameters
    ----------
    f : tensor_like of float, shape (n,)
        Values of the items.
    pairs : tensor_like of int, shape (m, 2)
        Items that met, as indices of `f`.
    sigma : tensor_like of float, default 1
        Standard deviation of an item's noise, positive.
    threshold : tensor_like of float, default 0
        d, the least difference that is noticed, not negative. With 0 there are no ties.

    Raises
    ------
    ValueError, TypeError
        `f` that is no vector; constant `pairs` that are no whole numbers of shape (m, 2), are not
        indices of `f`, or have an item that meets itself.

    References
    ----------
    .. [1] W. Chu & Z. Ghahramani (2005), Preference learning with Gaussian processes,
       doi:10.1145/1102351.1102369.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> y = sg.PreferenceProbit.dist(f=[0.0, 1.0, 1.0], pairs=[[1, 0], [1, 2]], threshold=0.1)
    >>> print(*(f"{p:.4f}" for p in pm.logp(y, [1, 0]).exp().eval()))  # a win; a tie
    0.7377 0.0564

    In a model, with winners first:

    >>> with pm.Model():
    ...     f = pm.Normal("f", shape=3)
    ...     y = sg.PreferenceProbit("y", f, [[1, 0], [2, 0]], sigma=0.5, observed=[1, 1])
    """

    rv_op = preference_probit

    @classmethod
    def dist(
        cls, f: Any, pairs: Any, sigma: Any = 1.0, threshold: Any = 0.0, **kwargs: Any
    ) -> TensorVariable:
        """Unnamed variable; see the class."""
        f, pairs = as_real(f), pt.as_tensor_variable(pairs)
        if f.type.ndim != 1:
            raise ValueError(f"f must be a vector with a value for each item, got {f.type}.")
        _check_pairs(pairs, f.type.shape[0])
        difference = f[pairs[:, 0]] - f[pairs[:, 1]]
        noise = _ROOT_TWO * as_real(sigma)
        return super().dist([difference, noise, as_real(threshold)], **kwargs)

    def support_point(rv: Any, size: Any, difference: Any, noise: Any, threshold: Any) -> Any:
        """Sign of the difference; the first item where there is none."""
        likely = pt.switch(pt.lt(difference, 0.0), -1, 1)
        likely, *_ = pt.broadcast_arrays(likely, noise, threshold)
        return likely if rv_size_is_none(size) else pt.full(size, likely)

    def logp(value: Any, difference: Any, noise: Any, threshold: Any) -> Any:
        """Log probability, -inf for values other than -1, 0 and 1."""
        decided, tied = pt.eq(pt.abs(value), 1), pt.and_(pt.eq(value, 0), pt.gt(threshold, 0.0))
        # Each branch sees arguments of its own side only, so that gradients are finite.
        towards = pt.switch(pt.eq(value, -1), -difference, difference) - threshold
        won = pt_log_ndtr(pt.switch(decided, towards / noise, 0.0))
        low = pt.switch(tied, (-threshold - difference) / noise, -1.0)
        high = pt.switch(tied, (threshold - difference) / noise, 1.0)
        log_p = pt.switch(decided, won, pt.switch(tied, pt_log_normal_mass(low, high), -np.inf))
        return check_parameters(
            log_p, noise > 0, pt.ge(threshold, 0.0), msg="sigma > 0, threshold >= 0"
        )


def _check_pairs(pairs: Any, n_items: int | None) -> None:
    """Refuse pairs that are none, as far as that can be seen before any evaluation."""
    if pairs.type.dtype.startswith("float"):
        raise TypeError(f"pairs must hold indices of f, whole numbers; got {pairs.type.dtype}.")
    if pairs.type.ndim != 2 or pairs.type.shape[1] not in (2, None):
        raise ValueError(f"pairs must have shape (m, 2), a row for each duel; got {pairs.type}.")
    if not isinstance(pairs, TensorConstant):
        return
    numbers = pairs.data
    if (numbers[:, 0] == numbers[:, 1]).any():
        row = int(np.flatnonzero(numbers[:, 0] == numbers[:, 1])[0])
        raise ValueError(f"pairs: in row {row} item {numbers[row, 0]} meets itself.")
    if n_items is not None and ((numbers < 0) | (numbers >= n_items)).any():
        raise ValueError(
            f"pairs must hold indices of the {n_items} items of f, from 0; got "
            f"{numbers.min()} to {numbers.max()}."
        )
