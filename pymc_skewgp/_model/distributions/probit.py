"""Variables that PyMC lacks: labels, duels, choices, classes by probit; values in intervals."""

from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.dist_math import check_icdf_value, check_parameters
from pytensor.tensor.variable import TensorConstant, TensorVariable

from pymc_skewgp._model.distributions.unified_skew_normal import JointDrawsRV, of_size
from pymc_skewgp._model.ops.densities import pt_log_greatest, pt_log_ndtr, pt_log_normal_mass
from pymc_skewgp._model.ops.plain_mode import as_real


class BernoulliProbitRV(JointDrawsRV):
    """Draws of y = 1 where eta + e > 0, with e standard normal."""

    name = "bernoulli_probit"
    signature = "()->()"
    dtype = "int64"

    def draws(self, rng: np.random.Generator, size: Any, eta: Any) -> Any:
        """Draw."""
        return np.asarray(rng.standard_normal(size) > -eta, dtype=np.int64)


class BernoulliProbit(pm.Discrete):
    r"""Bernoulli distribution with success probability :math:`\Phi(\eta)`.

    .. math:: p(y \mid \eta) = \Phi\{(2 y - 1)\, \eta\}, \qquad y \in \{0, 1\}

    The same model as ``pm.Bernoulli(p=pm.math.invprobit(eta))``, with a log density and a gradient
    that stay exact in both tails, where that one's probability rounds to 0 or 1.

    Parameters
    ----------
    eta : tensor_like of float
        Linear predictor, any shape; y = 1 where eta plus standard normal noise is positive.

    Raises
    ------
    ValueError
        A constant `eta` that holds NaN. A NaN that turns up while sampling has log density -inf.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_skewgp._model.distributions.probit import BernoulliProbit
    >>> y = BernoulliProbit.dist(eta=[-40.0, 0.0, 2.0])
    >>> print(*(f"{log_p:.4f}" for log_p in pm.logp(y, [1, 1, 1]).eval()))
    -804.6084 -0.6931 -0.0230

    In a model, with observations:

    >>> with pm.Model():
    ...     f = pm.Normal("f", shape=3)
    ...     y = BernoulliProbit("y", eta=f, observed=[0, 1, 1])
    """

    rv_op = BernoulliProbitRV()

    @classmethod
    def dist(cls, eta: Any, **kwargs: Any) -> TensorVariable:
        """Unnamed variable; see the class."""
        eta = as_real(eta)
        if isinstance(eta, TensorConstant) and np.isnan(eta.data).any():
            count = int(np.isnan(eta.data).sum())
            raise ValueError(f"eta holds {count} NaN value(s): remove or impute them first.")
        return super().dist([eta], **kwargs)

    def support_point(rv: Any, size: Any, eta: Any) -> Any:
        """More probable value."""
        return of_size(size, pt.switch(pt.lt(eta, 0.0), 0, 1))

    def logp(value: Any, eta: Any) -> Any:
        """Log probability, -inf for values other than 0 and 1 and where eta is NaN."""
        possible = pt.or_(pt.eq(value, 0), pt.eq(value, 1))
        inside = pt.and_(possible, pt.invert(pt.isnan(eta)))
        # NaN times zero is NaN in a gradient: what is outside never reaches the tails.
        signed = pt.switch(inside, pt.switch(pt.eq(value, 1), eta, -eta), 0.0)
        return pt.switch(inside, pt_log_ndtr(signed), -np.inf)

    def logcdf(value: Any, eta: Any) -> Any:
        """Log distribution function."""
        known = pt.invert(pt.isnan(eta))
        below = pt_log_ndtr(-pt.switch(known, eta, 0.0))
        inside = pt.switch(pt.lt(value, 1), below, 0.0)
        return pt.switch(pt.and_(known, pt.ge(value, 0)), inside, -np.inf)

    def icdf(value: Any, eta: Any) -> Any:
        """Quantile; NaN outside [0, 1]."""
        zero = pt.le(value, pt.exp(pt_log_ndtr(-eta)))
        return check_icdf_value(pt.switch(zero, 0, 1).astype("int64"), value)


# Duels: which of two items has the greater value, seen with noise.

_ROOT_TWO = np.float64(np.sqrt(2.0))


class PreferenceProbitRV(JointDrawsRV):
    """Sign of a difference with normal noise; 0 where it is within the threshold.

    Its parameters are the difference of the values, the standard deviation of the noise of the
    difference, and the threshold.
    """

    name = "preference_probit"
    signature = "(),(),()->()"
    dtype = "int64"

    def draws(
        self, rng: np.random.Generator, size: Any, difference: Any, noise: Any, threshold: Any
    ) -> Any:
        """Draw."""
        v = difference + noise * rng.standard_normal(size)
        return (v > threshold).astype(np.int64) - (v < -threshold)


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

    rv_op = PreferenceProbitRV()

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
        return of_size(size, likely, noise, threshold)

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


# Choices: which of several alternatives has the greatest value, seen with noise.


class ChoiceProbitRV(JointDrawsRV):
    """Index of the greatest of several values, after independent normal noise was added."""

    name = "choice_probit"
    signature = "(k),()->()"
    dtype = "int64"

    def draws(self, rng: np.random.Generator, size: Any, eta: Any, sigma: Any) -> Any:
        """Draw."""
        noise = rng.standard_normal((*size, eta.shape[-1]))
        return np.asarray(np.argmax(eta + np.asarray(sigma)[..., None] * noise, axis=-1))


class ChoiceProbit(pm.Discrete):
    r"""Choice among k alternatives: the one of greatest value, seen with noise.

    With independent noise :math:`e_j \sim N(0, \sigma^2)` on the value of each alternative, fresh
    in each choice, y is the index of the greatest of :math:`\eta_j + e_j`:

    .. math:: P(y = c) = \int \phi(z) \prod_{j \ne c}
        \Phi\Bigl(\frac{\eta_c - \eta_j}{\sigma} + z\Bigr)\, dz

    The log density computes the integral by the trapezoid rule, with relative error below 1e-10.

    Parameters
    ----------
    eta : tensor_like of float, shape (..., k)
        Values of the alternatives, for each choice; ``f[sets]``, say, where `sets` has the indices
        of the items among which each choice was made.
    sigma : tensor_like of float, default 1
        Standard deviation of the noise, positive; one for all choices, or one each.

    Raises
    ------
    ValueError
        `eta` without a dimension of alternatives, or with fewer than two of them.

    See Also
    --------
    MultinomialProbit : The same for classes, with noise of variance 1.
    PreferenceProbit : Two alternatives, where ties may be.

    References
    ----------
    .. [1] J. A. Hausman & D. A. Wise (1978), A conditional probit model for qualitative choice,
       doi:10.2307/1913909.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> y = sg.ChoiceProbit.dist(eta=[1.0, 0.0, 0.0])
    >>> print(*(f"{p:.4f}" for p in pm.logp(y, np.arange(3)).exp().eval()))
    0.6337 0.1831 0.1831
    """

    rv_op = ChoiceProbitRV()

    @classmethod
    def dist(cls, eta: Any, sigma: Any = 1.0, **kwargs: Any) -> TensorVariable:
        """Unnamed variable; see the class."""
        return super().dist([check_alternatives(eta), as_real(sigma)], **kwargs)

    def support_point(rv: Any, size: Any, eta: Any, sigma: Any) -> Any:
        """Alternative of the greatest value."""
        return of_size(size, pt.argmax(eta, axis=-1), sigma)

    def logp(value: Any, eta: Any, sigma: Any) -> Any:
        """Log probability, -inf for values other than 0 to k - 1."""
        value = pt.as_tensor_variable(value)
        inside = pt.and_(pt.ge(value, 0), pt.lt(value, eta.shape[-1]))
        chosen = pt.switch(inside, value, 0)
        log_p = pt_log_greatest(eta / pt.shape_padright(sigma), chosen)
        return check_parameters(pt.switch(inside, log_p, -np.inf), sigma > 0, msg="sigma > 0")


def check_alternatives(eta: Any) -> TensorVariable:
    """`eta` as a graph whose last dimension can hold alternatives."""
    eta = as_real(eta)
    if not eta.type.ndim or eta.type.shape[-1] in (0, 1):
        raise ValueError(
            f"eta must have two alternatives or more in its last dimension, got {eta.type}."
        )
    return eta


# Classes of which each has a latent function: the greatest, seen with noise, is the class.


class MultinomialProbitRV(ChoiceProbitRV):
    """Choice with noise of variance 1, under a name of its own.

    Draws, log density and support point are dispatched on the class: they are those of a choice.
    """

    name = "multinomial_probit"


class MultinomialProbit(pm.Discrete):
    r"""Classes 0 to K - 1, each with a latent function of its own.

    The class is that of the greatest of :math:`\eta_k + e_k` with independent standard normal
    :math:`e_k`:

    .. math:: P(y = c) = \int \phi(z) \prod_{k \ne c} \Phi(\eta_c - \eta_k + z)\, dz

    With two classes :math:`P(y = 1) = \Phi\{(\eta_1 - \eta_0) / \sqrt 2\}`. What is common to all
    functions is not seen: take K exchangeable ones.

    Parameters
    ----------
    eta : tensor_like of float, shape (..., K)
        Values of the K functions, for each observation; ``pm.math.stack([f0, f1, f2], axis=1)``,
        say.

    Raises
    ------
    ValueError
        `eta` without a dimension of classes, or with fewer than two of them.

    See Also
    --------
    ChoiceProbit : The log density's accuracy; noise of another variance.

    References
    ----------
    .. [1] M. Girolami & S. Rogers (2006), Variational Bayesian multinomial probit regression with
       Gaussian process priors, doi:10.1162/neco.2006.18.8.1790.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> y = sg.MultinomialProbit.dist(eta=[[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    >>> print(*(f"{p:.4f}" for p in pm.logp(y, [0, 2]).exp().eval()))
    0.6337 0.3333
    """

    rv_op = MultinomialProbitRV()

    @classmethod
    def dist(cls, eta: Any, **kwargs: Any) -> TensorVariable:
        """Unnamed variable; see the class."""
        return super().dist([check_alternatives(eta), 1.0], **kwargs)


# Normal values of which some are known to be in an interval, and no more.

_LOG_2PI = np.float64(np.log(2.0 * np.pi))


class IntervalNormalRV(JointDrawsRV):
    """Draws of a normal, with one number for all values within the limits."""

    name = "interval_normal"
    signature = "(),(),(),()->()"
    dtype = "floatX"

    def draws(
        self, rng: np.random.Generator, size: Any, mu: Any, sigma: Any, lower: Any, upper: Any
    ) -> Any:
        """Draw."""
        v = mu + sigma * rng.standard_normal(size)
        low, high = (np.broadcast_to(x, size) for x in (lower, upper))
        both = np.isfinite(low) & np.isfinite(high)
        end = np.where(np.isfinite(low), low, np.where(np.isfinite(high), high, 0.0))
        middle = np.where(both, 0.5 * (np.where(both, low, 0.0) + np.where(both, high, 0.0)), end)
        return np.asarray(np.where((v > low) & (v < high), middle, v))


class IntervalNormal(pm.Continuous):
    r"""Normal values that are not seen within an interval: interval-censored data.

    .. math:: v \sim N(\mu, \sigma^2), \qquad y = \begin{cases}
        v & v \notin (l, h) \\ \text{any number in } [l, h] & v \in (l, h) \end{cases}

    Where l < h, a y in [l, h] says only that v is there: its log density is that of the interval,
    :math:`\log[\Phi\{(h - \mu)/\sigma\} - \Phi\{(l - \mu)/\sigma\}]`, whichever number it is. Any
    other y is v itself. For data that are intervals give them as limits, with equal ones where a
    value is known, and any number of the interval as y. Left and right censored data are intervals
    with an infinite end.

    Random draws have the middle of the interval for values in it, or its finite end.

    Parameters
    ----------
    mu : tensor_like of float
        Mean.
    sigma : tensor_like of float
        Standard deviation, positive.
    lower, upper : tensor_like of float
        Limits l <= h, infinities allowed; one for all values, or one each.

    Raises
    ------
    ValueError
        Constant limits with lower > upper, or that are NaN.

    References
    ----------
    .. [1] J. Tobin (1958), Estimation of relationships for limited dependent variables,
       doi:10.2307/1907382.

    Examples
    --------
    Three values: one in (0, 1), one above 2, and one that is known.

    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> lower, upper = np.array([0.0, 2.0, 0.4]), np.array([1.0, np.inf, 0.4])
    >>> y = sg.IntervalNormal.dist(mu=0.0, sigma=1.0, lower=lower, upper=upper)
    >>> print(*(f"{log_p:.4f}" for log_p in pm.logp(y, [0.0, 2.0, 0.4]).eval()))
    -1.0748 -3.7832 -0.9989
    """

    rv_op = IntervalNormalRV()

    @classmethod
    def dist(cls, mu: Any, sigma: Any, lower: Any, upper: Any, **kwargs: Any) -> TensorVariable:
        """Unnamed variable; see the class."""
        numbers = [x for x in (lower, upper) if not hasattr(x, "owner")]
        if any(np.isnan(np.asarray(x, dtype=float)).any() for x in numbers):
            raise ValueError("lower and upper must not be NaN: use infinities for no limit.")
        if len(numbers) == 2 and (np.asarray(lower) > np.asarray(upper)).any():
            count = int((np.asarray(lower) > np.asarray(upper)).sum())
            raise ValueError(f"lower must not exceed upper; it does for {count} value(s).")
        parameters = [pt.as_tensor_variable(x) for x in (mu, sigma, lower, upper)]
        return super().dist([pt.cast(x, "floatX") for x in parameters], **kwargs)

    def support_point(rv: Any, size: Any, mu: Any, sigma: Any, lower: Any, upper: Any) -> Any:
        """Mean."""
        return of_size(size, mu, sigma, lower, upper)

    def logp(value: Any, mu: Any, sigma: Any, lower: Any, upper: Any) -> Any:
        """Log density outside the interval, log probability of it inside."""
        inside = within(value, lower, upper)
        # What is not in the interval gets one that has a finite gradient.
        low = pt.switch(inside, _standardised(lower, mu, sigma), -1.0)
        high = pt.switch(inside, _standardised(upper, mu, sigma), 1.0)
        z = (value - mu) / sigma
        density = -0.5 * (pt.sqr(z) + _LOG_2PI) - pt.log(sigma)
        log_p = pt.switch(inside, pt_log_normal_mass(low, high), density)
        return check_parameters(
            log_p, sigma > 0, pt.le(lower, upper), msg="sigma > 0, lower <= upper"
        )


def within(value: Any, lower: Any, upper: Any) -> Any:
    """Whether a value stands for an interval, as a graph."""
    return pt.and_(pt.lt(lower, upper), pt.and_(pt.ge(value, lower), pt.le(value, upper)))


def _standardised(limit: Any, mu: Any, sigma: Any) -> Any:
    """A limit less mu over sigma; an infinite one as it is, out of reach of gradients."""
    endless = pt.isinf(limit)
    return pt.switch(endless, limit, (pt.switch(endless, mu, limit) - mu) / sigma)
