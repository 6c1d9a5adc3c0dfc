"""Regression, ordinal classes and preferences behind the interface of scikit-learn."""

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike, NDArray
from pymc.distributions.transforms import ordered
from scipy.special import ndtri
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.validation import validate_data
from xarray import DataTree

from pymc_skewgp._learn import estimator
from pymc_skewgp._observations.comparisons import Preference
from pymc_skewgp._observations.ordered import OrderedProbit, declared_order
from pymc_skewgp._observations.probability import Probability
from pymc_skewgp._observations.real_values import CensoredGaussian, Gaussian
from pymc_skewgp._observations.two_functions import HeteroscedasticGaussian
from pymc_skewgp._observations.weighted import as_weights
from pymc_skewgp._validation import FloatArray

Limits = tuple[float | None, float | None]


@dataclass(eq=False, repr=False, kw_only=True)
class SkewGPRegressor(RegressorMixin, estimator.ProcessEstimator):
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
        A lengthscale for each feature (automatic relevance determination) in a named kernel, all of
        them shrunk to a common scale.
    censoring : None or tuple (L, U), default None
        Limits, in the units of y, None for an open side. A y at a limit is censored there.
    batch_size : int, "auto" or None, default "auto"
        Rows in each batch of the composite likelihood by which hyperparameters are learnt (the
        posterior always has all data). None: all at once. "auto": all at once up to 1500 rows,
        batches of 500 beyond, and above 5000 all by inducing points.
    noise : {"constant", "varying"}, default "constant"
        Whether sigma is one number, or exp(g(x) + c) with another Gaussian process g, of the same
        lengthscales (`likelihoods.HeteroscedasticGaussian`); without censoring and batches.
    n_restarts : int, default 1
        Searches from random starts besides the first one.
    random_state : int, RandomState instance or None, default None
        Of restarts, batches and draws. An int makes `fit` reproducible.
    verbose : bool, default True
        Show progress of what takes more than two seconds, in a terminal or a notebook.
    hyperparameters : {"auto", "maximize", "average"}, default "auto"
        "auto" averages with `ard`, a named kernel and at most 300 rows, and maximises otherwise and
        with ``noise="varying"``.
        "maximize": the most probable ones. "average": the posterior averaged over them, as
        `integrate` does, by a mixture of posteriors at 32 points. Then priors are weaker than the
        notes say: one log ls is normal about log l + 1 with standard deviation 1.5, eta
        HalfNormal(25 s). Above 5000 rows 16 points or fewer, and some 150 evaluations of EP, a
        second each for 20,000 rows.

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
    HalfNormal(5 s), sigma HalfNormal(2 s), the level Normal(mean of y, s). With ``ard=True``
    lengthscales are shrunk together, as in `SkewGPClassifier`.

    With ``noise="varying"`` ``posterior_`` is of y less its mean, and has the functions "mean" and
    "log_sd". The level of the latter is Normal(log(s / 2), 1), its standard deviation
    HalfNormal(1): ``log_sigma`` and ``log_sigma_sd`` among the hyperparameters.

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

    censoring: Limits | None = None
    batch_size: int | str | None = "auto"
    noise: Literal["constant", "varying"] = "constant"

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
        sample_weight : array_like, shape (n,), optional
            Weights >= 0. Whole numbers say how often each row was observed: `fit` is to rows that
            repeat so often, and takes as long. Others are powers of the likelihood, with which the
            evidence is not that of a normalised density (`likelihoods.Weighted`). They are not
            those of noise that differs: for that see `likelihoods.Gaussian`.

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
        rows, powers = self._weighted(len(data), sample_weight)
        inputs, data = self._features(inputs[rows]), data[rows]
        points = not with_bounds and lower is None and upper is None
        settings = self._settings(inputs.shape[0], powers=powers)
        if points:  # where EP has nothing to approximate
            settings = replace(settings, method="ep")
        centre, scale = _location_and_scale(data)
        self._offset = 0.0
        if self.noise != "constant":
            noise: Any = self.noise
            if noise != "varying" or not points:
                raise ValueError(
                    'noise must be "constant" or, for values without limits, "varying"; got '
                    f"{self.noise!r}."
                )
            if self.hyperparameters == "average" and self.ard:
                raise ValueError(
                    'an average with noise="varying" and ard=True is over a lengthscale for each '
                    "input, with two functions at each point: it takes hours. Leave out one of the "
                    'three; hyperparameters="maximize" takes seconds.'
                )
            self._offset, data = centre, data - centre
            settings = replace(settings, method="twisted", batch_size=None)

        def varying(cov_func: Any) -> estimator.Definition:
            level = pm.Normal("log_sigma", np.log(0.5 * scale), 1.0)
            spread = pm.HalfNormal("log_sigma_sd", 1.0)
            ratio = spread**2 / cov_func(inputs[:1], diag=True)[0]
            variances = pm.math.stack([[1.0, 0.0], [0.0, ratio]])
            known, start = HeteroscedasticGaussian(level), {"log_sigma_sd": 0.5}
            return estimator.Definition(None, known, start, variances)

        def define(_: Any) -> estimator.Definition:
            sigma = pm.HalfNormal("sigma", 2.0 * scale)
            level = pm.Normal("level", centre, scale)
            noise: Any = Gaussian(sigma) if points else CensoredGaussian(sigma, lower, upper)
            return estimator.Definition(pm.gp.mean.Constant(level), noise, {"sigma": 0.5 * scale})

        made = define if self.noise == "constant" else varying
        self._keep(self._fitted(inputs, data, made, settings, scale=scale, powers=powers))
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
        mean, sd = self._summary(X, "y_mean", "y_sd").T
        mean = mean + self._offset
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


# `SkewGPOrdinalClassifier`: classes that have an order, behind the interface of scikit-learn.

_FIRST_SD = 2.0  # of f, where the search starts
_WIDTH_RATE = 4.0  # of classes that data do not have, in standard deviations of the noise


@dataclass(eq=False, repr=False, kw_only=True)
class SkewGPOrdinalClassifier(ClassifierMixin, estimator.ProcessEstimator):
    r"""Gaussian process classification of ordered classes with the exact posterior.

    .. math:: y = c \text{ where } b_{c-1} < f(x) + e < b_c, \qquad e \sim N(0, 1), \quad
        f \sim GP(0, k)

    One latent function and K - 1 cut-points, which are learnt with the kernel: they maximise the
    marginal likelihood times weak priors. Probabilities are averaged over near-independent draws of
    the posterior of f.

    Parameters
    ----------
    kernel : {"rbf", "matern32", "matern52", "nn"} or callable, default "rbf"
        As for `SkewGPRegressor`.
    ard : bool, default False
        A lengthscale for each feature (automatic relevance determination) in a named kernel, all of
        them shrunk to a common scale.
    categories : array_like, shape (K,), optional
        Classes from the lowest to the highest; some may be missing in the data. Default the
        categories of y where it is an ordered ``pandas.Categorical``, or a column of such, and
        otherwise all that the data have, sorted.
    batch_size : int, "auto" or None, default "auto"
        Rows in each batch of the composite likelihood by which hyperparameters are learnt (the
        posterior always has all data). None: all at once. "auto": all at once up to 1500 rows,
        batches of 500 beyond, and above 5000 all by inducing points.
    n_restarts : int, default 1
        Searches from random starts besides the first one.
    random_state : int, RandomState instance or None, default None
        Of restarts, batches and draws. An int makes `fit` reproducible.
    verbose : bool, default True
        Show progress of what takes more than two seconds, in a terminal or a notebook.
    hyperparameters : {"auto", "maximize", "average"}, default "auto"
        "auto" averages with `ard`, a named kernel and at most 300 rows, and maximises otherwise.
        "maximize": the most probable ones. "average": the posterior averaged over them, as
        `integrate` does, by a mixture of posteriors at 32 points. Then priors are weaker than the
        notes say: one log ls is normal about log l + 1 with standard deviation 1.5, eta
        HalfNormal(25). Above 5000 rows 16 points or fewer, and some 150 evaluations of EP, a second
        each for 20,000 rows.

    Attributes
    ----------
    classes_ : ndarray, shape (K,)
        From the lowest to the highest.
    cutpoints_ : ndarray, shape (K-1,)
        In standard deviations of the noise.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        One for each feature, when `X` has names of columns.
    posterior_ : SkewGPPosterior
        Exact posterior.
    hyperparameters_ : HyperparameterFit or DataTree
        With ``hyperparameters="average"`` draws of the hyperparameters; otherwise
        ``point`` has ``cutpoints``, and for named kernels ``eta``, the standard deviation of f, and
        ``ls``; ``std_error`` their standard errors; ``converged`` whether the search ended at an
        optimum.
    log_marginal_likelihood_ : Estimate
        Log evidence of all training data in nats, with its standard error.

    Raises
    ------
    ValueError
        From `fit`: NaN or infinite features, a single class, classes that are not among the
        `categories`, unknown kernels.

    See Also
    --------
    SkewGPClassifier : classes without an order.

    Notes
    -----
    Features are taken as they are: put a ``StandardScaler`` before it when they have different
    units and `ard` is off. Priors are weak: lengthscales InverseGamma(2, 3 l), with l the distance
    of two rows of X, about; eta HalfNormal(5); cut-points Normal(0, 10), in order.

    Data say little of the width of a class between others that nobody chose. Its prior is
    Gamma(2, 4) in standard deviations of the noise, with mode 1/4 and mean 1/2, so that it has
    neither no width where hyperparameters are maximised nor any width where they are averaged. Of
    the lowest class that data have they say nothing of how far down it goes, where there are others
    below, and of the highest likewise. The prior of its width is exponential, with the standard
    deviation of f plus noise as its mean: of n rows near the edge a class beyond then gets a share
    of some 1 / n there, whether hyperparameters are maximised or averaged.

    From 450 rows on the search begins with 300 of them.

    References
    ----------
    .. [1] W. Chu & Z. Ghahramani (2005), Gaussian processes for ordinal regression, Journal of
       Machine Learning Research 6.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_skewgp import SkewGPOrdinalClassifier
    >>> x = np.linspace(-3, 3, 40)[:, None]
    >>> y = np.digitize(x[:, 0] + np.random.default_rng(0).normal(0, 0.5, 40), [-1.0, 1.0])
    >>> names = np.array(["low", "middle", "high"])
    >>> model = SkewGPOrdinalClassifier(categories=names, random_state=0).fit(x, names[y])
    >>> model.predict([[-2.5], [0.0], [2.5]])
    array(['low', 'middle', 'high'], dtype='<U6')
    """

    categories: ArrayLike | None = None
    batch_size: int | str | None = "auto"

    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> "SkewGPOrdinalClassifier":
        """Learn cut-points and kernel, and condition on the classes.

        Parameters
        ----------
        X : array_like, shape (n, d)
            Features.
        y : array_like, shape (n,)
            Classes; of an ordered ``pandas.Categorical`` those it declares, in its order.
        sample_weight : array_like, shape (n,), optional
            Weights >= 0. Whole numbers say how often each row was observed: `fit` is to rows that
            repeat so often, and takes as long. Others are powers of the likelihood, with which the
            evidence is not that of a normalised density (`likelihoods.Weighted`).

        Returns
        -------
        SkewGPOrdinalClassifier
            Itself.
        """
        inputs, labels, powers = self._labelled(X, y, sample_weight, None)
        settings = self._settings(inputs.shape[0], powers=powers)
        classes, codes = self._codes(labels, y)
        cuts = _first_cutpoints(codes, classes.size)

        def define(cov_func: Any) -> estimator.Definition:
            cutpoints = pm.Normal(
                "cutpoints", 0.0, 10.0, shape=cuts.size, transform=ordered, initval=cuts
            )
            _prior_of_unseen(cutpoints, codes, cov_func(inputs, diag=True))
            return estimator.Definition(None, OrderedProbit(cutpoints), {"cutpoints": cuts})

        self._keep(self._fitted(inputs, codes, define, settings, powers=powers))
        learnt: Any = self.hyperparameters_  # there are cut-points to learn
        if isinstance(learnt, DataTree):
            mean = learnt["posterior"]["cutpoints"].mean(("chain", "draw"))
            self.cutpoints_ = mean.to_numpy()
        else:
            self.cutpoints_ = learnt.point["cutpoints"]
        self.classes_ = classes
        return self

    def predict_proba(
        self, X: ArrayLike, return_std: bool = False
    ) -> FloatArray | tuple[FloatArray, FloatArray]:
        """Probability of each class.

        Parameters
        ----------
        X : array_like, shape (t, d)
        return_std : bool, default False
            Whether the standard deviation of the probability under the posterior is wanted too,
            from 4000 draws, to a hundredth of itself.

        Returns
        -------
        ndarray, shape (t, K), or two of them
            Probabilities, columns in the order of ``classes_``, which add up to 1; and their
            standard deviations.
        """
        p = self._probabilities(X)
        if not return_std:
            return p
        each = self._posteriors
        return p, self._by_rows(lambda new: estimator.drawn_sd(each, new), self._checked(X))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Most probable class.

        Parameters
        ----------
        X : array_like, shape (t, d)

        Returns
        -------
        ndarray, shape (t,)
        """
        chosen = self._probabilities(X).argmax(axis=1)
        labels: NDArray[Any] = self.classes_[chosen]
        return labels

    def _codes(self, labels: NDArray[Any], y: Any) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Classes in their order, which `y` may declare, and which of them each label is."""
        found, codes = np.unique(labels, return_inverse=True)
        given = y if self.categories is None else self.categories
        declared = declared_order(given)
        if declared is None:
            declared = found if self.categories is None else self.categories
        classes = np.asarray(declared)
        if classes.ndim != 1 or np.unique(classes).size < classes.size:
            raise ValueError(f"categories must be a vector without repeats, got {classes}.")
        unknown = found[~np.isin(found, classes)]
        if unknown.size:
            raise ValueError(f"y has {unknown[:5]}, which is not among the categories {classes}.")
        self._refuse_single(found)
        place = np.array([int(np.flatnonzero(classes == label)[0]) for label in found])
        return classes, place[codes].astype(np.int64)


def _prior_of_unseen(cutpoints: Any, codes: NDArray[np.int64], variances: Any) -> None:
    """Weak priors of widths that data do not bound, as the notes of the estimator have them."""
    n_classes = cutpoints.type.shape[0] + 1
    unseen = np.setdiff1d(np.arange(1, n_classes - 1), codes)
    # The lowest and the highest class that data have, where these have neighbours beyond.
    ends = {int(codes.min()), int(codes.max())} - {0, n_classes - 1}
    for name, places, prior in (
        ("widths", unseen, pm.Gamma.dist(2.0, _WIDTH_RATE)),
        (
            "end_widths",
            np.array(sorted(ends), dtype=int),
            pm.Exponential.dist(scale=pm.math.sqrt(1.0 + variances.mean())),
        ),
    ):
        if places.size:
            pm.Potential(name, pm.logp(prior, cutpoints[places] - cutpoints[places - 1]).sum())


def _first_cutpoints(codes: NDArray[np.int64], n_classes: int) -> FloatArray:
    """Those of the frequencies of the classes, for f of some standard deviation."""
    counts = np.bincount(codes, minlength=n_classes) + 0.5
    below = np.cumsum(counts)[:-1] / counts.sum()
    cuts: FloatArray = np.sqrt(1.0 + _FIRST_SD**2) * ndtri(below)
    return cuts


# `SkewGPPreference`: utilities learnt from comparisons of pairs.

_SCALE = 2.0  # of utilities, in standard deviations of the noise


@dataclass(eq=False, repr=False, kw_only=True)
class SkewGPPreference(estimator.ProcessEstimator):
    r"""Gaussian process preference learning with the exact posterior.

    .. math:: P(i \text{ over } j) = \Phi\{(f(x_i) - f(x_j) - d) / \sqrt 2\}, \qquad f \sim GP(0, k)

    Utilities f are in standard deviations of the noise of one of them, and known up to a constant.
    The kernel maximises the marginal likelihood times weak priors; the posterior of f is averaged
    over near-independent draws.

    Parameters
    ----------
    kernel : {"rbf", "matern32", "matern52", "nn"} or callable, default "rbf"
        As for `SkewGPRegressor`.
    ard : bool, default False
        A lengthscale for each feature (automatic relevance determination) in a named kernel, all of
        them shrunk to a common scale.
    noise : {"fresh", "item"}, default "fresh"
        Whether each comparison has noise of its own, or that of its two items; see
        `likelihoods.Preference`.
    threshold : float, default 0
        The just-noticeable difference d. Ties need a positive one.
    n_restarts : int, default 1
        Searches from random starts besides the first one.
    random_state : int, RandomState instance or None, default None
        Of restarts and draws. An int makes `fit` reproducible.
    verbose : bool, default True
        Show progress of what takes more than two seconds, in a terminal or a notebook.
    hyperparameters : {"auto", "maximize", "average"}, default "auto"
        "auto" averages with `ard`, a named kernel and at most 300 rows, and maximises otherwise.
        "maximize": the most probable ones. "average": the posterior averaged over them, as
        `integrate` does, by a mixture of posteriors at 32 points. Then priors are weaker than the
        notes say: one log ls is normal about log l + 1 with standard deviation 1.5, eta
        HalfNormal(50). Above 5000 rows 16 points or fewer, and some 150 evaluations of EP, a second
        each for 20,000 rows.

    Attributes
    ----------
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        One for each feature, when the data points have names of columns.
    posterior_ : SkewGPPosterior
        Exact posterior.
    hyperparameters_ : HyperparameterFit, DataTree or None
        Hyperparameters, their standard errors, and whether the search converged; None where the
        kernel has nothing to learn. With ``hyperparameters="average"`` draws of them.
    log_marginal_likelihood_ : Estimate
        Log evidence of all comparisons in nats, with its standard error.

    Raises
    ------
    ValueError
        From `fit`: NaN or infinite features, comparisons of an item with itself or of items that do
        not exist, ties without a threshold, unknown kernels.

    Notes
    -----
    `fit` takes data points and comparisons as BoTorch's ``PairwiseGP`` does. Features are taken as
    they are: put a ``StandardScaler`` before it when they have different units and `ard` is off.
    Priors are weak: lengthscales InverseGamma(2, 3 l), with l the distance of two data points,
    about; eta, the standard deviation of f, HalfNormal(10).

    More than 5000 comparisons, or items, are learnt from by inducing points, unless noise stays
    with the items.

    References
    ----------
    .. [1] W. Chu & Z. Ghahramani (2005), Preference learning with Gaussian processes,
       doi:10.1145/1102351.1102369.

    Examples
    --------
    >>> from pymc_skewgp import SkewGPPreference
    >>> items = [[0.0], [1.0], [2.0], [3.0]]
    >>> duels = [[1, 0], [2, 0], [2, 1], [2, 3], [1, 3], [2, 3]]  # the winner first
    >>> model = SkewGPPreference(random_state=0).fit(items, duels)
    >>> int(model.predict(items).argmax())
    2
    >>> bool(model.probability([[2.0]], [[0.0]]).value[0] > 0.5)
    True
    """

    noise: Literal["fresh", "item"] = "fresh"
    threshold: float = 0.0

    def fit(
        self, datapoints: ArrayLike, comparisons: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> "SkewGPPreference":
        """Learn the kernel and condition on the comparisons.

        Parameters
        ----------
        datapoints : array_like, shape (m, d)
            Features of the items.
        comparisons : array_like of int, shape (n, 2) or (n, 3)
            Row numbers of `datapoints`, the winner first; with a third column 1 for a tie and 0 for
            a win.
        sample_weight : array_like of int, shape (n,), optional
            How often each comparison came out so: whole numbers. Not with ``noise="item"``, where a
            comparison that is made again comes out the same. Default once.

        Returns
        -------
        SkewGPPreference
            Itself.
        """
        inputs = self._features(validate_data(self, datapoints, dtype="numeric"))
        likelihood = Preference(1.0, self.noise, self.threshold)
        duels = likelihood.as_data(comparisons, inputs.shape[0])
        weights = None
        if sample_weight is not None:
            if self.noise == "item":
                raise ValueError(
                    'sample_weight does not go with noise="item": each item keeps its noise, so '
                    "that a comparison that is made again comes out the same. Use "
                    'noise="fresh".'
                )
            weights = as_weights("sample_weight", sample_weight, len(duels))
        definition = estimator.Definition(likelihood=likelihood)
        given = inputs, duels, lambda _: definition, self._settings(len(duels))
        self._keep(self._fitted(*given, scale=_SCALE, weights=weights))
        return self

    def predict(self, X: ArrayLike) -> FloatArray:
        """Posterior mean of the utility.

        Parameters
        ----------
        X : array_like, shape (t, d)

        Returns
        -------
        ndarray, shape (t,)
            In standard deviations of the noise.
        """
        return self._summary(X, "f_mean")[:, 0]

    def probability(self, Xa: ArrayLike, Xb: ArrayLike) -> Probability:
        """Probability that an item is preferred to another one, row by row.

        Parameters
        ----------
        Xa, Xb : array_like, shape (t, d)

        Returns
        -------
        Probability
            ``value`` and its Monte Carlo ``std_error``, shape (t,) each.
        """
        Xa, Xb = self._checked(Xa), self._checked(Xb)
        return self.posterior_.preference_probability(Xa, Xb)

    def score(self, datapoints: ArrayLike, comparisons: ArrayLike) -> float:
        """Share of comparisons whose winner has the larger posterior mean.

        Parameters
        ----------
        datapoints : array_like, shape (m, d)
        comparisons : array_like of int, shape (n, 2)
            Row numbers of `datapoints`, the winner first.

        Returns
        -------
        float
        """
        utility = self.predict(datapoints)
        duels = Preference(1.0).as_data(comparisons, utility.size)
        return float((utility[duels[:, 0]] > utility[duels[:, 1]]).mean())
