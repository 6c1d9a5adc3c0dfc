"""`SkewGPRegressor`: regression, also of censored values, behind the interface of scikit-learn."""

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin
from sklearn.utils.validation import validate_data

from pymc_skewgp._learn.estimator import OneProcessEstimator
from pymc_skewgp._learn.named_kernels import KernelFunction
from pymc_skewgp._learn.one_process import Definition, Kernel, fit_process
from pymc_skewgp._observations.censored_gaussian import CensoredGaussian
from pymc_skewgp._observations.gaussian import Gaussian
from pymc_skewgp._observations.likelihood import Likelihood
from pymc_skewgp._validation import FloatArray

Limits = tuple[float | None, float | None]


class SkewGPRegressor(RegressorMixin, OneProcessEstimator):
    r"""Gaussian process regression with learnt noise, exact for censored values too.

    .. math:: y = \min\{\max(v, L), U\}, \qquad v = f(x) + \sigma e, \qquad f \sim GP(b, k)

    Without `censoring`, L and U are infinite, and it is Gaussian process regression in closed
    form. With it (tobit models), or with values that are known to lie between bounds, the posterior
    of f is skewed: it is averaged over near-independent draws. Kernel and noise maximise the
    marginal likelihood times weak priors; the level b is integrated out with f.

    Parameters
    ----------
    kernel : {"rbf", "matern32", "matern52", "nn"} or callable, default "rbf"
        Kernel, times a variance; "nn" is the arcsine kernel (`cov.NeuralNetwork`). Or a function
        that takes the number of features and returns a ``pm.gp.cov`` object; random variables that
        it makes are learnt with their priors (it is called inside a ``pm.Model``).
    ard : bool, default False
        A lengthscale for each feature (automatic relevance determination) in a named kernel.
    censoring : None or tuple (L, U), default None
        Limits, in the units of y, None for an open side. A y at a limit is censored there.
    batch_size : int, "auto" or None, default "auto"
        Rows in each batch of the composite likelihood by which hyperparameters are learnt (the
        posterior always has all data). None: all at once. "auto": all at once up to 1500 rows,
        batches of 500 beyond, and above 5000 all by inducing points.
    n_restarts : int, default 1
        Searches from random starts besides the first one.
    random_state : int, RandomState instance or None, default None
        Of restarts, batches and draws. An int makes `fit` reproducible.
    hyperparameters : {"maximize", "average"}, default "maximize"
        The most probable ones; or the posterior averaged over them, as `integrate` does, by a
        mixture of posteriors at 32 points. Then priors are weaker than the notes say: log ls is
        normal about log l + 1 with standard deviation 1.5, eta HalfNormal(25 s). Above 5000 rows 16
        points or fewer, and some 150 evaluations of EP, a second each for 20,000 rows.

    Attributes
    ----------
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        One for each feature, when `X` has names of columns.
    posterior_ : SkewGPPosterior
        Exact posterior.
    hyperparameters_ : HyperparameterFit or DataTree
        With ``hyperparameters="average"`` draws of the hyperparameters; otherwise
        ``point`` has ``sigma`` and for named kernels ``eta``, the standard deviation of f, and
        ``ls``; ``std_error`` their standard errors; ``converged`` whether the search ended at an
        optimum. The level b is integrated out with f; with f of finite rank (more than 5000 rows)
        or in batches it is in ``point`` as ``level``.
    log_marginal_likelihood_ : Estimate
        Log evidence of all training data in nats, with its standard error.

    Raises
    ------
    ValueError
        From `fit`: NaN or infinite features or values, values beyond the limits, unknown kernels.

    See Also
    --------
    sklearn.gaussian_process.GaussianProcessRegressor : without censoring; level and scale of y by
        ``normalize_y``.

    Notes
    -----
    Features are taken as they are: put a ``StandardScaler`` before it when they have different
    units and `ard` is off. Priors are weak and in the units of the data: lengthscales InverseGamma(
    2, 3 l), with l the distance of two rows of X, about; with s the standard deviation of y, eta
    HalfNormal(5 s), sigma HalfNormal(2 s), the level Normal(mean of y, s).

    From 450 rows on the search begins with 300 of them.

    References
    ----------
    .. [1] C. E. Rasmussen & C. K. I. Williams (2006), Gaussian Processes for Machine Learning,
       chapter 2.
    .. [2] J. Tobin (1958), Estimation of relationships for limited dependent variables,
       doi:10.2307/1907382.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_skewgp import SkewGPRegressor
    >>> x = np.linspace(0, 6, 40)[:, None]
    >>> y = np.sin(x[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=40)
    >>> model = SkewGPRegressor(censoring=(0.0, None), random_state=0).fit(x, np.maximum(y, 0.0))
    >>> model.predict([[0.5], [4.5]]).round(1)
    array([0.5, 0. ])
    """

    def __init__(
        self,
        kernel: str | KernelFunction = "rbf",
        *,
        ard: bool = False,
        censoring: Limits | None = None,
        batch_size: int | str | None = "auto",
        n_restarts: int = 1,
        random_state: Any = None,
        hyperparameters: Literal["maximize", "average"] = "maximize",
    ) -> None:
        self.kernel = kernel
        self.ard = ard
        self.censoring = censoring
        self.batch_size = batch_size
        self.n_restarts = n_restarts
        self.random_state = random_state
        self.hyperparameters = hyperparameters

    def fit(
        self, X: ArrayLike, y: Any, sample_weight: ArrayLike | None = None
    ) -> "SkewGPRegressor":
        """Learn hyperparameters and condition on the values.

        Parameters
        ----------
        X : array_like, shape (n, d)
            Features.
        y : array_like, shape (n,) or (n, 2), or scipy.stats.CensoredData
            Values; or a lower and an upper bound of each, infinite for an open side, equal where
            the value was seen. ``CensoredData`` does not keep the order of its values: rows of X
            must be in its own order, as for `likelihoods.CensoredGaussian`.
        sample_weight : array_like of int, shape (n,), optional
            How often each row was observed: whole numbers, 0 to leave a row out. `fit` is to rows
            that repeat so often, and takes as long. Weights that are not whole are refused.
            They are not those of noise that differs: for that see `likelihoods.Gaussian`.

        Returns
        -------
        SkewGPRegressor
            Itself.
        """
        lower, upper = self._limits()
        with_bounds = _has_bounds(y)
        if with_bounds:
            inputs = validate_data(self, X, dtype="numeric")
        else:
            inputs, y = validate_data(self, X, y, dtype="numeric", y_numeric=True)
        data = CensoredGaussian(1.0, lower, upper).as_data(y, inputs.shape[0])
        rows = self._repeated(len(data), sample_weight)
        inputs, data = self._features(inputs[rows]), data[rows]
        points = not with_bounds and lower is None and upper is None
        settings = self._settings(inputs.shape[0])
        if points:  # where EP has nothing to approximate
            settings = replace(settings, method="ep")
        centre, scale = _location_and_scale(data)

        def define() -> Definition:
            sigma = pm.HalfNormal("sigma", 2.0 * scale)
            level = pm.Normal("level", centre, scale)
            noise: Likelihood = CensoredGaussian(sigma, lower, upper)
            if points:
                noise = Gaussian(sigma)
            return Definition(pm.gp.mean.Constant(level), noise, {"sigma": 0.5 * scale})

        kernel = Kernel(self.kernel, self.ard, scale, self._averages)
        seed = self._seed(self.random_state)
        self._keep(fit_process(inputs, data, kernel, define, settings, seed))
        return self

    def predict(
        self, X: ArrayLike, return_std: bool = False
    ) -> FloatArray | tuple[FloatArray, FloatArray]:
        """Mean of y, censored at the limits.

        Parameters
        ----------
        X : array_like, shape (t, d)
        return_std : bool, default False
            Whether the standard deviation of y, its noise included, is wanted too.

        Returns
        -------
        ndarray, shape (t,), or two of them
            Mean, and standard deviation, in the units of y.
        """
        mean, sd = self._summary(X, "y_mean", "y_sd")
        return (mean, sd) if return_std else mean

    def _limits(self) -> Limits:
        if self.censoring is None:
            return None, None
        limits: Any = self.censoring
        if not isinstance(limits, tuple | list) or len(limits) != 2:
            raise ValueError(f"censoring must be None or a tuple (lower, upper), got {limits!r}.")
        return limits[0], limits[1]


def _has_bounds(y: Any) -> bool:
    """Whether each value is given by two bounds."""
    if hasattr(y, "_uncensored"):
        return True
    shape = getattr(y, "shape", None)
    # As objects: lists of unequal lengths are refused later, by scikit-learn.
    return bool((np.asarray(y, dtype=object).shape if shape is None else shape)[1:] == (2,))


def _location_and_scale(data: FloatArray) -> tuple[float, float]:
    """Mean and standard deviation of values, a bound standing for what is not known."""
    values = data
    if data.ndim == 2:
        low, high = data.T
        inside = np.isfinite(low) & np.isfinite(high)
        values = np.where(np.isfinite(low), low, high)
        values[inside] = 0.5 * (low + high)[inside]
        values = values[np.isfinite(values)]  # no bound at all says nothing
    scale = float(np.std(values)) if values.size else 0.0
    centre = float(np.mean(values)) if values.size else 0.0
    return centre, scale if scale > 1e-12 * abs(centre) else 1.0
