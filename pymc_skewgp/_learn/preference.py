"""`SkewGPPreference`: utilities learnt from comparisons of pairs."""

from typing import Any, Literal

import pymc as pm
from numpy.typing import ArrayLike
from sklearn.utils.validation import validate_data

from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._learn.estimator import OneProcessEstimator
from pymc_skewgp._learn.named_kernels import KernelFunction
from pymc_skewgp._learn.one_process import Definition, Kernel, fit_process
from pymc_skewgp._observations.preference import Preference
from pymc_skewgp._observations.probability import Probability
from pymc_skewgp._observations.weights import as_weights
from pymc_skewgp._validation import FloatArray

_SCALE = 2.0  # of utilities, in standard deviations of the noise


class SkewGPPreference(OneProcessEstimator):
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
        A lengthscale for each feature (automatic relevance determination) in a named kernel.
    noise : {"fresh", "item"}, default "fresh"
        Whether each comparison has noise of its own, or that of its two items; see
        `likelihoods.Preference`.
    threshold : float, default 0
        The just-noticeable difference d. Ties need a positive one.
    n_restarts : int, default 1
        Searches from random starts besides the first one.
    random_state : int, RandomState instance or None, default None
        Of restarts and draws. An int makes `fit` reproducible.
    hyperparameters : {"maximize", "average"}, default "maximize"
        The most probable ones; or the posterior averaged over them, as `integrate` does, by a
        mixture of posteriors at 32 points. Then priors are weaker than the notes say: log ls is
        normal about log l + 1 with standard deviation 1.5, eta HalfNormal(50). Above 5000 rows 16
        points or fewer, and some 150 evaluations of EP, a second each for 20,000 rows.

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

    def __init__(
        self,
        kernel: str | KernelFunction = "rbf",
        *,
        ard: bool = False,
        noise: Literal["fresh", "item"] = "fresh",
        threshold: float = 0.0,
        n_restarts: int = 1,
        random_state: Any = None,
        hyperparameters: Literal["maximize", "average"] = "maximize",
    ) -> None:
        self.kernel = kernel
        self.ard = ard
        self.noise = noise
        self.threshold = threshold
        self.n_restarts = n_restarts
        self.random_state = random_state
        self.hyperparameters = hyperparameters

    def fit(
        self,
        datapoints: ArrayLike,
        comparisons: ArrayLike,
        sample_weight: ArrayLike | None = None,
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
        weights = self._weights(len(duels), sample_weight)
        settings = self._settings(len(duels))
        kernel = Kernel(self.kernel, self.ard, _SCALE, self._averages)
        definition = Definition(pm.gp.mean.Zero(), likelihood, {})
        seed = self._seed(self.random_state)
        self._keep(fit_process(inputs, duels, kernel, lambda: definition, settings, seed, weights))
        return self

    def _weights(self, n: int, sample_weight: ArrayLike | None) -> IntArray | None:
        if sample_weight is None:
            return None
        if self.noise == "item":
            raise ValueError(
                'sample_weight does not go with noise="item": each item keeps its noise, so that a '
                'comparison that is made again comes out the same. Use noise="fresh".'
            )
        return as_weights("sample_weight", sample_weight, n)

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
        return self._summary(X, "f_mean")[0]

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
        a, b = self._checked(Xa), self._checked(Xb)
        return self.posterior_.preference_probability(a, b)

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
