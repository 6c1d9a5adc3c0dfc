"""Labels of several classes: a function each, exchangeable, under a probit or a logit link."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.special import ndtri, softmax

from pymc_skewgp import _validation as check
from pymc_skewgp._gaussian import linalg
from pymc_skewgp._gaussian.weights import IntArray, mean_probability, uniform_points, weighted_error
from pymc_skewgp._observations import probability
from pymc_skewgp._observations.comparisons import differences
from pymc_skewgp._observations.likelihood import Data, Likelihood, Mixture, as_integers, refuse_rows
from pymc_skewgp._observations.observations import Observations, intervals
from pymc_skewgp._observations.sites import ClosedFormSites, FactorFunctions
from pymc_skewgp._validation import FloatArray

# Probabilities of classes, averaged over what is known of the functions.
#
# Given u the functions and their noise are Gaussian, :math:`f + e \sim N\{m(u), V + \Sigma\}`. A
# class wins with the probability of K - 1 differences to be positive: a univariate or bivariate
# normal one for two or three classes. For more, a function common to all
# classes is of no matter, so that
#
# .. math:: V + \Sigma \simeq s I + L L^\top
#
# on the differences, with s the smallest eigenvalue there: f is drawn from N(m(u), L L'), and what
# is left is noise of variance s. Far from the data, where the functions are independent, L is 0.

_OTHERS = 64  # draws for the Gaussian of equal mean and variance, beyond three classes


def normal_probabilities(means: FloatArray, cov: FloatArray) -> FloatArray:
    """Probability of each of several normal variables to be the largest.

    Beyond three variables to a thousandth or so: see `orthant`.

    Parameters
    ----------
    means : ndarray, shape (..., K)
    cov : ndarray, shape (1, K, K) or (K, K)

    Returns
    -------
    ndarray, shape (..., K)
    """
    cov = cov.reshape(cov.shape[-2:])
    k = means.shape[-1]
    found = np.empty(means.shape)
    for c, others in enumerate(_others(k)):
        contrast = np.eye(k)[c] - np.eye(k)[others]
        ahead = means[..., [c]] - means[..., others]
        found[..., c] = np.exp(probability.log_all_positive(ahead, contrast @ cov @ contrast.T))
    found /= found.sum(axis=-1, keepdims=True)
    return found


@dataclass(frozen=True, eq=False)
class _Classes(Likelihood):
    """Labels 0 to K - 1, where there is a function for each class."""

    n_classes: int | None = None
    categories: Sequence[Any] | None = None

    function_dim = "category"
    predicted_dims: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "p": ("category",),
        "p_mean": ("category",),
    }

    def __post_init__(self) -> None:
        counts = self._counts()
        if len(set(counts.values())) > 1:
            raise ValueError(f"the number of classes must be one, got {counts}.")

    def _counts(self) -> dict[str, int]:
        """The number of classes, by what says it."""
        counts = {}
        if self.n_classes is not None:
            counts["n_classes"] = check.as_count("n_classes", self.n_classes, 2)
        if self.categories is not None:
            object.__setattr__(self, "categories", tuple(self.categories))
            counts["categories"] = check.as_count(
                "the number of categories", len(self.categories), 2
            )
        return counts

    @abstractmethod
    def probabilities(self, f: FloatArray) -> FloatArray:
        """Probabilities of the classes given f, shape (..., K)."""

    @abstractmethod
    def averaged(self, means: FloatArray, cov: FloatArray, rng: np.random.Generator) -> FloatArray:
        """The same averaged over N(mean, cov), for means of shape (S, K)."""

    def predictive_draws(self, f: FloatArray, rng: np.random.Generator) -> dict[str, Data]:
        """``p``, the probability of each class, and ``y``, classes."""
        return {"p": self.probabilities(f), "y": np.asarray(self.draw(f, rng))}

    def predictive_summary(self, mixture: Mixture) -> dict[str, FloatArray]:
        """``p_mean``, probabilities of the classes, with their errors ``p_mean_se``."""
        covariance, weights = mixture.covariance, mixture.weights
        assert covariance is not None
        t, k = covariance.shape[:2]
        by_point = mixture.means.reshape(t, k, -1).swapaxes(1, 2)  # (t, S, K)
        share = 1.0 / (1.0 + 1.0 / float(weights @ weights))
        value, error = np.empty((t, k)), np.zeros((t, k))
        rng = np.random.default_rng(0)  # summaries are the same for every seed of draws
        for i, means in enumerate(by_point):  # a point at a time: S K numbers each
            p = self.averaged(means, covariance[i], rng)
            mean = mean_probability(p.T, weights)
            centre = weights @ means
            off = means - centre
            spread = covariance[i] + (off * weights[:, None]).T @ off
            other = self.averaged(np.tile(centre, (_OTHERS, 1)), spread, rng).mean(axis=0)
            value[i] = mean + share * (other - mean)
            if not mixture.exact:
                own = weighted_error((p - mean).T, weights, mixture.replicate)
                error[i] = np.sqrt(own**2 + share**2 * other * (1.0 - other))
        return {"p_mean": value, "p_mean_se": error}

    def joined(self, y: Data, n: int, new: ArrayLike, n_new: int) -> Data:
        """Labels of both; the new ones are of the classes that there are, maybe not of all."""
        known = replace(self, n_classes=self.n_functions(y))
        return np.concatenate([y, known.as_data(new, n_new)])

    def as_data(self, y: ArrayLike, n: int) -> Data:
        """Labels as 0, 1, ..., K - 1."""
        codes = as_integers(y, n, "class, 0 for the first")
        known = self._known_classes
        if known is None:
            found = np.unique(codes)
            if found[0] != 0 or found[-1] != found.size - 1 or found.size < 2:
                raise ValueError(
                    f"y must hold two classes or more, coded 0, 1, 2 and so on; found {found}. "
                    "Where a class never occurs, say how many there are: n_classes=."
                )
        else:
            must = f"be from 0 to {known - 1}, for {known} classes"
            refuse_rows("y", codes, (codes < 0) | (codes >= known), must)
        return codes

    def of_observations(self, index: IntArray, y: Data) -> "_Classes":
        """Of as many classes, some of which may be missing among the labels that are chosen."""
        return replace(self, n_classes=self.n_functions(y))

    def n_functions(self, y: Data) -> int:
        """K."""
        known = self._known_classes
        return int(y.max()) + 1 if known is None else known

    def coords(self, y: Data) -> dict[str, Sequence[Any]]:
        """Names of the classes."""
        return {"category": list(self.categories or range(self.n_functions(y)))}

    @property
    def _known_classes(self) -> int | None:
        return next(iter(self._counts().values()), None)


@dataclass(frozen=True, eq=False)
class MultinomialProbit(_Classes):
    r"""Labels of K classes: :math:`y_i` is the class whose noisy function is the largest.

    .. math:: y_i = \operatorname{arg\,max}_k \{f_k(x_i) + e_{ik}\}, \qquad e_i \sim N(0, \Sigma)

    There are K functions, independent copies of the process, pseudo-points included. No class is a
    reference: the data do not see a function that is common to all classes, and its posterior is
    its prior. With :math:`\Sigma = I`, the default, two classes are probit classification of the
    difference of two functions, with noise of variance 2.

    Each label is K - 1 rows, so that n labels take as long as n (K - 1) labels of two classes.

    Parameters
    ----------
    n_classes : int, optional
        K, where not every class is among the data. Default the number of classes that are.
    categories : sequence, optional
        Names of the classes 0, 1, ..., coordinates of the dimension ``category``.
    noise_cov : array_like, shape (K, K), optional
        :math:`\Sigma`; default the identity. A part that is common to all classes changes nothing.

    Raises
    ------
    ValueError
        Labels other than 0 to K - 1, a class that never occurs where K was not given, numbers of
        names or of noise variances other than K.

    Notes
    -----
    f has a dimension ``category``. Predictions: ``p`` and ``p_mean``, dims (pred_id, category), and
    labels ``y``. Probabilities are univariate or bivariate normal ones given f and given u for
    two and three classes, and integrals over the noise of the winner for more. With correlated
    noise of four classes and more, those given f are quasi-Monte Carlo means of 64 points, which
    are off by a thousandth or so of themselves, and by some hundredths where a class has almost no
    chance; those averaged over f have their own randomisation, and its error in ``p_mean_se``.

    References
    ----------
    .. [1] J. H. Albert & S. Chib (1993), Bayesian analysis of binary and polychotomous response
       data, doi:10.1080/01621459.1993.10476321.
    .. [2] M. Girolami & S. Rogers (2006), Variational Bayesian multinomial probit regression with
       Gaussian process priors, doi:10.1162/neco.2006.18.8.1790.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> gp = sg.SkewGP(cov_func=4.0 * pm.gp.cov.ExpQuad(1, ls=1.0))
    >>> kinds = sg.likelihoods.MultinomialProbit(categories=["low", "middle", "high"])
    >>> posterior = gp.posterior([0.0, 1.0, 2.0], [0, 1, 2], likelihood=kinds)
    >>> new = posterior.predict([0.0], draws=0)["predictions_summary"]
    >>> print(f"{new['p_mean'].sel(category='low').item():.2f}")
    0.62
    """

    noise_cov: Any = None

    def _counts(self) -> dict[str, int]:
        counts = super()._counts()
        if self.noise_cov is not None:
            counts["noise_cov"] = len(self.noise_cov)
        return counts

    def __post_init__(self) -> None:
        if self.noise_cov is not None:
            cov = check.as_covariance("noise_cov", self.noise_cov).copy()
            jitter = linalg.cholesky("noise_cov", cov)[1]  # refuses what is no covariance
            cov[np.diag_indices_from(cov)] *= 1.0 + jitter
            cov.flags.writeable = False
            object.__setattr__(self, "noise_cov", cov)
        super().__post_init__()

    def observations(self, y: Data, n: int) -> Observations:
        """K - 1 intervals a label: its function, with noise, is above each other one."""
        k = self.n_functions(y)
        first = np.arange(n) * k
        above = np.repeat(first + y, k - 1)
        below = (first[:, None] + _others(k)[y]).ravel()
        W = differences(above, below, n * k)
        noisy = W if self.noise_cov is None else W @ sparse.kron(sparse.eye_array(n), self._cov(k))
        zeros = np.zeros(above.size)
        return intervals(zeros, zeros + np.inf, sparse.csr_array(noisy @ W.T), A=W)

    def log_likelihood(self, y: Data, f: FloatArray) -> FloatArray:
        """Log probability of each label."""
        k = f.shape[-1]
        row = np.arange(y.size)
        ahead = f[..., row, y][..., None] - f[..., row[:, None], _others(k)[y]]
        # For each class its function less each other one, shape (k, k - 1, k).
        contrast = np.eye(k)[:, None] - np.eye(k)[_others(k)]
        cov = contrast @ self._cov(k) @ contrast.swapaxes(1, 2)
        found = np.empty(ahead.shape[:-1])
        for c in range(k):
            own = y == c
            found[..., own] = probability.log_all_positive(ahead[..., own, :], cov[c])
        return found

    def probabilities(self, f: FloatArray) -> FloatArray:
        """Of the largest noisy value."""
        if self.noise_cov is None:
            return probability.win_probabilities(f)
        return normal_probabilities(f, self._cov(f.shape[-1])[None])

    def averaged(self, means: FloatArray, cov: FloatArray, rng: np.random.Generator) -> FloatArray:
        """By orthants; of four classes and more by draws of what they do not share."""
        cov = cov + self._cov(cov.shape[-1])
        n_draws, k = means.shape
        if k < 4:
            return normal_probabilities(means, cov)
        centred = np.eye(k) - 1.0 / k
        eigenvalue, vector = np.linalg.eigh(centred @ cov @ centred)
        # The first is 0, of what is common to all; the second the smallest that matters.
        least = eigenvalue[1]
        factor = vector[:, 2:] * np.sqrt(np.maximum(eigenvalue[2:] - least, 0.0))
        points = ndtri(uniform_points(k - 2, n_draws, 1, rng))
        return probability.win_probabilities((means + (factor @ points).T) / np.sqrt(least))

    def _cov(self, k: int) -> FloatArray:
        cov: FloatArray = np.eye(k) if self.noise_cov is None else self.noise_cov
        return cov

    def draw(self, f: FloatArray, rng: np.random.Generator) -> Data:
        """New labels."""
        noise = rng.standard_normal(f.shape)
        if self.noise_cov is not None:
            noise = noise @ np.linalg.cholesky(self.noise_cov).T
        noise += f
        return np.asarray(noise.argmax(axis=-1))


def _others(k: int) -> Data:
    """The classes other than each one, shape (k, k - 1)."""
    return np.array([[j for j in range(k) if j != c] for c in range(k)])


# Classes under a logit link.

_VALUES, _COPIES = 2**12, 4  # draws of f at least: in all, and given each component


@dataclass(frozen=True, eq=False)
class Softmax(_Classes, ClosedFormSites):
    r"""Labels of K classes: :math:`P(y_i = k) = e^{f_k(x_i)} / \sum_l e^{f_l(x_i)}`.

    There are K functions, independent copies of the process, pseudo-points included. No class is a
    reference: the data do not see a function that is common to all classes, and its posterior is
    its prior. `MultinomialProbit` is the same with normal noise, in rows.

    Parameters
    ----------
    n_classes : int, optional
        K, at most 6, where not every class is among the data. Default the number that are.
    categories : sequence, optional
        Names of the classes 0, 1, ..., coordinates of the dimension ``category``.

    Raises
    ------
    ValueError
        Labels other than 0 to K - 1, a class that never occurs where K was not given, numbers of
        names other than K.

    Notes
    -----
    f has a dimension ``category``. Predictions: ``p`` and ``p_mean``, dims (pred_id, category), and
    labels ``y``.

    References
    ----------
    .. [1] C. K. I. Williams & D. Barber (1998), Bayesian classification with Gaussian processes,
       doi:10.1109/34.735807.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> gp = sg.SkewGP(cov_func=4.0 * pm.gp.cov.ExpQuad(1, ls=1.0))
    >>> kinds = sg.likelihoods.Softmax(categories=["low", "middle", "high"])
    >>> posterior = gp.posterior([0.0, 1.0, 2.0], [0, 1, 2], likelihood=kinds)
    >>> new = posterior.predict([0.0], draws=0)["predictions_summary"]
    >>> print(f"{new['p_mean'].sel(category='low').item():.1f}")
    0.6
    """

    def functions(self, y: Data) -> FactorFunctions:
        """Of arrays (..., n, K)."""
        k = self.n_functions(y)
        chosen = np.eye(k)[y]

        def below_largest(f: FloatArray) -> FloatArray:
            x = np.ascontiguousarray(np.moveaxis(f, -1, 0))  # sums over few classes are slow
            return x - x.max(axis=0)

        def log_prob(f: FloatArray) -> FloatArray:
            x = below_largest(f)
            return np.choose(y, x) - np.log(np.exp(x).sum(axis=0))

        def slopes(f: FloatArray) -> tuple[FloatArray, FloatArray]:
            each = np.exp(below_largest(f))
            p = np.moveaxis(each / each.sum(axis=0), 0, -1)
            second = p[..., :, None] * p[..., None, :]
            np.einsum("...kk->...k", second)[:] -= p
            return chosen - p, second

        return FactorFunctions(log_prob, slopes)

    def draw(self, f: FloatArray, rng: np.random.Generator) -> Data:
        """New labels: the largest of f with Gumbel noise."""
        return np.asarray((f + rng.gumbel(size=f.shape)).argmax(axis=-1))

    def probabilities(self, f: FloatArray) -> FloatArray:
        """The softmax of f."""
        return np.asarray(softmax(f, axis=-1))

    def averaged(self, means: FloatArray, cov: FloatArray, rng: np.random.Generator) -> FloatArray:
        """By draws of f around each mean."""
        values, vectors = np.linalg.eigh(cov)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        size, k = means.shape
        copies = max(_COPIES, -(-_VALUES // size))
        # Evenly spaced, in no order: that of the components is one of theirs.
        white = ndtri(uniform_points(k, copies * size, 1, rng)).T
        f = means + rng.permutation(white).reshape(copies, size, k) @ root.T
        return np.asarray(softmax(f, axis=-1).mean(axis=0))
