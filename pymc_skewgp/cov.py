"""Covariance functions that ``pm.gp.cov`` does not have."""

from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.gradient import disconnected_grad
from pytensor.tensor.variable import TensorConstant, TensorVariable
from scipy.special import gamma

# Products of multiples of 2^-25 are multiples of 2^-50, and those below 8 are floating-point
# numbers: sums of them carry no rounding error, in whatever order they are taken.
_GRID = 2.0**25
# Squared chords come with errors of about 2^-78. Below this one they say nothing any more, and the
# inverse of their root, which gradients contain, would be that of an error.
_LEAST = 2.0**-72
# Keeps a square root differentiable where what is under it underflows.
_TINY = 1e-300
# Of `Matern`: rougher ones would see the 1e-6 that PyMC adds to distances, and the Bessel functions
# of much smoother ones overflow there.
_ROUGHEST, _SMOOTHEST = 0.5, 20.0


class Matern(pm.gp.cov.Stationary):
    r"""Matérn kernel of any smoothness, such as 1, that of R-INLA's fields in the plane.

    .. math::

        k(x, x') = \frac{2^{1 - \nu}}{\Gamma(\nu)} s^\nu K_\nu(s), \qquad
        s = \sqrt{2 \nu}\, \lVert (x - x') / \ell \rVert

    With :math:`\nu` = 1/2, 3/2 and 5/2 it is ``pm.gp.cov.Matern12``, ``Matern32`` and ``Matern52``,
    which take less time. In two dimensions, :math:`\nu = 1` is the field that solves the equation
    :math:`(\kappa^2 - \Delta) f = w` of white noise w with :math:`\kappa = \sqrt 2 / \ell`; its
    range, at which the correlation is .14, is :math:`2 \ell`. With
    ``SkewGP(approximation=sg.approximations.Vecchia(10))`` it serves a hundred thousand places.

    Parameters
    ----------
    input_dim : int
        Number of columns of the inputs.
    nu : float
        Smoothness, from 0.5 to 20: f has derivatives of all orders below it.
    ls : tensor_like of float, optional
        Lengthscale, in units of the inputs: one, or one for each active dimension.
    ls_inv : tensor_like of float, optional
        1 / `ls` in its place. One of the two must be given.
    active_dims : sequence of int, optional
        Columns of the inputs that the kernel sees; by default all of them.

    Raises
    ------
    ValueError
        When `nu` is not a number from 0.5 to 20, or not one of `ls` and `ls_inv` is given.

    References
    ----------
    .. [1] Rasmussen, C. E. and Williams, C. K. I. (2006). Gaussian Processes for Machine Learning.
       MIT Press. Equation 4.14.
    .. [2] Lindgren, F., Rue, H. and Lindström, J. (2011). An explicit link between Gaussian fields
       and Gaussian Markov random fields. Journal of the Royal Statistical Society B 73(4), 423-498.
       doi:10.1111/j.1467-9868.2011.00777.x

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_skewgp.cov import Matern
    >>> X = np.array([[0.0, 0.0], [0.5, 0.0], [2.0, 0.0]])
    >>> print(Matern(2, nu=1.0, ls=1.0)(X).eval().round(3))
    [[1.    0.732 0.14 ]
     [0.732 1.    0.253]
     [0.14  0.253 1.   ]]
    """

    def __init__(
        self,
        input_dim: int,
        nu: Any,
        ls: Any = None,
        ls_inv: Any = None,
        active_dims: Any = None,
    ) -> None:
        super().__init__(input_dim, ls=ls, ls_inv=ls_inv, active_dims=active_dims)
        if not isinstance(nu, int | float) or not _ROUGHEST <= nu <= _SMOOTHEST:
            allowed = f"from {_ROUGHEST:g} to {_SMOOTHEST:g}"
            raise ValueError(f"nu must be a number {allowed}, found {nu!r}.")
        self.nu = float(nu)

    def full_from_distance(self, dist: Any, squared: bool = False) -> TensorVariable:
        """Covariance at distances in units of the lengthscale."""
        s = np.sqrt(2.0 * self.nu) * (self._sqrt(dist) if squared else dist)
        scaled: TensorVariable = 2.0 ** (1.0 - self.nu) / gamma(self.nu) * s**self.nu
        return scaled * pt.kv(self.nu, s)


class NeuralNetwork(pm.gp.cov.Covariance):
    r"""Arcsine kernel: a network with one layer of infinitely many sigmoid units.

    .. math::

        k(x, x') = \frac{2}{\pi} \arcsin
            \frac{2\, a(x, x')}{\sqrt{\{1 + 2\, a(x, x)\} \{1 + 2\, a(x', x')\}}}, \qquad
        a(x, x') = b^2 + \sum_j \frac{x_j x'_j}{\ell_j^2}

    It is the expectation of erf(u'z) erf(u'z'), where z = (1, x), z' = (1, x') and u is normal with
    variances b² and 1/ℓ². So a draw is a sum of smooth steps. In one dimension half of them have
    their middle within bℓ of the origin, and a typical one makes half of its way within 0.7 ℓ of
    its middle. Far out, where draws from stationary kernels return to the mean, it stays constant
    along each ray. Centre the inputs: the origin matters.

    Parameters
    ----------
    input_dim : int
        Number of columns of the inputs.
    ls : tensor_like of float, optional
        Length scale ℓ > 0: one, or one for each active dimension.
    ls_inv : tensor_like of float, optional
        1/ℓ in its place. One of the two must be given.
    bias : tensor_like of float, default 1.0
        Standard deviation b of the units' offsets, a scalar. With 0 every draw is odd in x.
    active_dims : sequence of int, optional
        Columns of the inputs that the kernel sees; by default all of them.

    Raises
    ------
    ValueError
        When `input_dim`, `active_dims`, the shape of `ls` or `bias`, or a constant among them is
        not as above, when both `ls` and `ls_inv` are given or neither is, and, as the kernel is
        evaluated, when inputs are not two-dimensional.

    Notes
    -----
    Accuracy, with r the length of (b, x/ℓ), from 1e-150 to 1e150. Values have an absolute error
    below 1e-14 up to r = 1e8, and below 1e-11 beyond. Gradients are finite everywhere; those of a
    value with regard to log x, log ℓ and log b have an absolute error below 1e-15 (1 + r) up to
    r = 1e8, r being that of the longer of its two points. This is what rounding of the inputs
    does to nearly parallel points; others, and all in one dimension, fare better. Beyond 1e10, the
    gradient takes points that an angle below 1e-11 separates for points on one ray.

    Everything is computed in double precision and returned in that of inputs and length scales.

    References
    ----------
    .. [1] Williams, C. K. I. (1998). Computation with infinite neural networks. Neural Computation
       10(5), 1203-1216. doi:10.1162/089976698300017412
    .. [2] Rasmussen, C. E. and Williams, C. K. I. (2006). Gaussian Processes for Machine Learning.
       MIT Press. Equation 4.29.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_skewgp.cov import NeuralNetwork
    >>> X = np.array([[0.0], [1.0], [1e8]])
    >>> print(NeuralNetwork(1, ls=0.5)(X).eval().round(3))
    [[0.465 0.226 0.   ]
     [0.226 0.726 0.65 ]
     [0.    0.65  1.   ]]

    Times a variance, and with length scales to be learned:

    >>> import pymc as pm
    >>> with pm.Model():
    ...     ls = pm.InverseGamma("ls", 3, 2, shape=2)
    ...     eta = pm.HalfNormal("eta", 2)
    ...     cov = eta**2 * NeuralNetwork(2, ls=ls)
    """

    def __init__(
        self,
        input_dim: int,
        ls: Any = None,
        ls_inv: Any = None,
        bias: Any = 1.0,
        active_dims: Any = None,
    ) -> None:
        _check_dims(input_dim, active_dims)
        super().__init__(input_dim, active_dims)
        if (ls is None) == (ls_inv is None):
            found = "neither" if ls is None else "both"
            raise ValueError(f"give either ls or ls_inv, found {found}.")
        if ls is not None:
            self.ls = _as_scales(ls, "ls", self.n_dims)
        else:
            self.ls = 1.0 / _as_scales(ls_inv, "ls_inv", self.n_dims)
        self.bias = pt.as_tensor_variable(bias)
        if self.bias.ndim != 0:
            raise ValueError(f"bias must be a scalar, found {self.bias.ndim} dimension(s).")
        if isinstance(self.bias, TensorConstant) and not np.isfinite(self.bias.data):
            raise ValueError(f"bias must be finite, found {self.bias.data}.")

    def full(self, X: Any, Xs: Any = None) -> TensorVariable:
        """Covariance of the rows of `X` with those of `Xs`, by default with themselves."""
        _check_inputs(X, "X")
        if Xs is not None:
            _check_inputs(Xs, "Xs")
        X, Xs = self._slice(X, Xs)
        left = self._rows(X)
        right = left if Xs is None else self._rows(Xs)
        sine, squared_chord = _sine_and_squared_chord(left, right)

        # 1 - |sine|, without the cancellation that this difference would bring.
        radial = left.rest[:, None] ** 2 + right.rest[None, :] ** 2
        seen = pt.gt(squared_chord + radial, _LEAST)
        if Xs is None:
            # The chord between a point and itself: not left to rounding.
            seen = pt.and_(seen, pt.eq(pt.eye(X.shape[0]), 0.0))
        versine = 0.5 * pt.switch(seen, squared_chord + radial, radial)

        cosine = pt.sqrt(pt.maximum(versine * (2.0 - versine), _TINY))
        return self._angle(sine, cosine, X, Xs)

    def diag(self, X: Any) -> TensorVariable:
        """Variances at the rows of `X`."""
        _check_inputs(X, "X")
        X, _ = self._slice(X)
        rows = self._rows(X)
        cosine = rows.rest * pt.sqrt(2.0 - rows.rest**2)
        return self._angle(pt.sum(rows.unit**2, axis=1), cosine, X)

    def _angle(self, sine: Any, cosine: Any, *inputs: Any) -> TensorVariable:
        """Kernel, in the precision of inputs and length scales."""
        # Unlike that of arcsin, the gradient of arctan2 has no pole where the sine is 1.
        value = (2.0 / np.pi) * pt.arctan2(sine, cosine)
        dtype = np.result_type(*(x.dtype for x in (*inputs, self.ls) if x is not None))
        return value.astype(dtype) if dtype.kind == "f" else value

    def _rows(self, X: Any) -> "_Rows":
        """Each row scaled to unit length."""
        offset = pt.full((X.shape[0], 1), self.bias)
        z = pt.concatenate([offset, X / self.ls], axis=1).astype("float64")
        # No square overflows after division by the largest entry; the result does not depend on it.
        size = disconnected_grad(pt.maximum(pt.max(pt.abs(z), axis=1, keepdims=True), 1.0))
        z = z / size
        length = pt.sqrt((1.0 / size) ** 2 + 2.0 * pt.sum(z**2, axis=1, keepdims=True))
        unit = np.sqrt(2.0) * z / length
        coarse = disconnected_grad(pt.round(unit * _GRID) / _GRID)
        return _Rows(unit, coarse, unit - coarse, (1.0 / (size * length))[:, 0])


class _Rows(NamedTuple):
    """Rows (1, √2 b, √2 x/ℓ) / √(1 + 2 a(x, x)): `unit` is all but the first column, `rest`."""

    unit: TensorVariable
    # `unit` rounded to multiples of 1/_GRID, a constant to gradients, and what remains.
    coarse: TensorVariable
    fine: TensorVariable
    rest: TensorVariable


def _sine_and_squared_chord(left: _Rows, right: _Rows) -> tuple[TensorVariable, TensorVariable]:
    """Products v'w of the rows with each other, and the smaller of |v - w|² and |v + w|².

    |v|² + |w|² - 2 v'w loses every digit where v and w agree to eight. Here what is large in it is
    free of error, and what is left is small: its rounding errors are of the order of 2^-78.
    """
    exact = pt.dot(left.coarse, right.coarse.T)
    # fine'coarse + coarse'fine + fine'fine, as one matrix and its transpose where v and w are of
    # the same set: so the result is symmetric to the last digit.
    correction = pt.dot(left.fine, (right.coarse + 0.5 * right.fine).T)
    if left is right:
        correction = correction + correction.T
    else:
        correction = correction + pt.dot(left.coarse + 0.5 * left.fine, right.fine.T)
    sine = exact + correction

    same_side = pt.ge(sine, 0.0)
    exact_chord = _expand_square(
        pt.sum(left.coarse**2, axis=1),
        pt.sum(right.coarse**2, axis=1),
        pt.switch(same_side, exact, -exact),
    )
    correction_of_chord = _expand_square(
        pt.sum(left.fine * (left.coarse + left.unit), axis=1),
        pt.sum(right.fine * (right.coarse + right.unit), axis=1),
        pt.switch(same_side, correction, -correction),
    )
    # The first is a square and the maximum leaves it as it is. But it keeps compilers, which may
    # take sums in another order, from mixing large with small terms before the large ones cancel.
    return sine, pt.maximum(exact_chord, 0.0) + correction_of_chord


def _expand_square(left: Any, right: Any, product: Any) -> TensorVariable:
    """Squared distances from squared lengths and products."""
    return (left[:, None] + right[None, :]) - 2.0 * product


def _check_dims(input_dim: Any, active_dims: Any) -> None:
    """Raise ValueError unless `active_dims` names columns out of `input_dim`."""
    if not isinstance(input_dim, int | np.integer) or input_dim < 1:
        raise ValueError(f"input_dim must be a positive integer, found {input_dim!r}.")
    if active_dims is None:
        return
    dims = np.asarray(active_dims)
    if dims.ndim != 1 or dims.size == 0 or dims.dtype.kind not in "iu":
        raise ValueError(f"active_dims must be a list of column numbers, found {active_dims!r}.")
    if dims.min() < 0 or dims.max() >= input_dim or np.unique(dims).size < dims.size:
        raise ValueError(
            f"active_dims must be different column numbers from 0 to input_dim - 1 = "
            f"{input_dim - 1}, found {dims.tolist()}."
        )


def _as_scales(value: Any, name: str, n_dims: int) -> TensorVariable:
    """`value` as a tensor: a scalar, or a vector of one positive number for each dimension."""
    scales = pt.as_tensor_variable(value)
    if scales.ndim > 1 or (scales.ndim == 1 and scales.type.shape[0] not in (None, 1, n_dims)):
        raise ValueError(
            f"{name} must be a scalar or a vector of length {n_dims}, the number of active "
            f"dimensions; found shape {scales.type.shape}."
        )
    if isinstance(scales, TensorConstant) and not np.all(scales.data > 0.0):
        raise ValueError(f"{name} must be positive, found {scales.data}.")
    return scales


def _check_inputs(X: Any, name: str) -> None:
    """Raise ValueError unless `X` has rows and columns."""
    ndim = np.ndim(X)
    if ndim != 2:
        raise ValueError(
            f"{name} must have two dimensions, one row for each point, found {ndim}: "
            f"{name}[:, None] makes one column of a vector."
        )
