"""`SkewGPOrdinalClassifier`: classes that have an order, behind the interface of scikit-learn."""

from typing import Any, Literal

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike, NDArray
from pymc.distributions.transforms import ordered
from scipy.special import ndtri
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data
from xarray import DataTree

from pymc_skewgp._learn.estimator import OneProcessEstimator, probabilities
from pymc_skewgp._learn.named_kernels import KernelFunction
from pymc_skewgp._learn.one_process import Definition, Kernel, fit_process
from pymc_skewgp._observations.ordered_categories import declared_order
from pymc_skewgp._observations.ordered_probit import OrderedProbit
from pymc_skewgp._validation import FloatArray

_FIRST_SD = 2.0  # of f, where the search starts
_WIDTH_RATE = 4.0  # of classes that data do not have, in standard deviations of the noise


class SkewGPOrdinalClassifier(ClassifierMixin, OneProcessEstimator):
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
        A lengthscale for each feature (automatic relevance determination) in a named kernel.
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
    hyperparameters : {"maximize", "average"}, default "maximize"
        The most probable ones; or the posterior averaged over them, as `integrate` does, by a
        mixture of posteriors at 32 points. Then priors are weaker than the notes say: log ls is
        normal about log l + 1 with standard deviation 1.5, eta HalfNormal(25). Above 5000 rows 16
        points or fewer, and some 150 evaluations of EP, a second each for 20,000 rows.

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

    def __init__(
        self,
        kernel: str | KernelFunction = "rbf",
        *,
        ard: bool = False,
        categories: ArrayLike | None = None,
        batch_size: int | str | None = "auto",
        n_restarts: int = 1,
        random_state: Any = None,
        hyperparameters: Literal["maximize", "average"] = "maximize",
    ) -> None:
        self.kernel = kernel
        self.ard = ard
        self.categories = categories
        self.batch_size = batch_size
        self.n_restarts = n_restarts
        self.random_state = random_state
        self.hyperparameters = hyperparameters

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
        sample_weight : array_like of int, shape (n,), optional
            How often each row was observed: whole numbers, 0 to leave a row out. `fit` is to rows
            that repeat so often, and takes as long. Weights that are not whole are refused.

        Returns
        -------
        SkewGPOrdinalClassifier
            Itself.
        """
        inputs, labels = validate_data(self, X, y, dtype="numeric")
        check_classification_targets(labels)
        rows = self._repeated(len(labels), sample_weight)
        inputs, labels = self._features(inputs[rows]), labels[rows]
        settings = self._settings(inputs.shape[0])
        classes, codes = self._codes(labels, y)
        cuts = _first_cutpoints(codes, classes.size)

        def define() -> Definition:
            cutpoints = pm.Normal(
                "cutpoints", 0.0, 10.0, shape=cuts.size, transform=ordered, initval=cuts
            )
            return Definition(
                pm.gp.mean.Zero(),
                OrderedProbit(cutpoints),
                {"cutpoints": cuts},
                lambda cov_func: _prior_of_unseen(cutpoints, codes, cov_func(inputs, diag=True)),
            )

        kernel = Kernel(self.kernel, self.ard, average=self._averages)
        seed = self._seed(self.random_state)
        found = fit_process(inputs, codes, kernel, define, settings, seed)
        self._keep(found)
        assert found.fit is not None  # there are cut-points to learn
        if isinstance(found.fit, DataTree):
            mean = found.fit["posterior"]["cutpoints"].mean(("chain", "draw"))
            self.cutpoints_ = mean.to_numpy()
        else:
            self.cutpoints_ = found.fit.point["cutpoints"]
        self.classes_ = classes
        return self

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Probability of each class.

        Parameters
        ----------
        X : array_like, shape (t, d)

        Returns
        -------
        ndarray, shape (t, K)
            Columns in the order of ``classes_``; they add up to 1.
        """
        X = self._checked(X)
        return probabilities(self.posterior_, X)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Most probable class.

        Parameters
        ----------
        X : array_like, shape (t, d)

        Returns
        -------
        ndarray, shape (t,)
        """
        chosen = self.predict_proba(X).argmax(axis=1)
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
        if found.size < 2:
            raise ValueError(
                "SkewGPOrdinalClassifier requires 2 or more distinct classes; got 1 class "
                f"(only class {found[0]} is present)"
            )
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
