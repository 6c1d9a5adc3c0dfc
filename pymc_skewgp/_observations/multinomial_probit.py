"""Labels of several classes under a probit link: exchangeable functions, the largest wins."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.special import log_ndtr

from pymc_skewgp._gaussian import linalg
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._observations.category_probability import (
    category_probabilities,
    log_bivariate,
    normal_probabilities,
)
from pymc_skewgp._observations.comparisons import differences
from pymc_skewgp._observations.likelihood import Data, Likelihood
from pymc_skewgp._observations.mixture import Mixture
from pymc_skewgp._observations.observations import Observations, intervals
from pymc_skewgp._observations.orthant import log_orthant_probability
from pymc_skewgp._observations.winner import log_win_probability, win_probabilities
from pymc_skewgp._validation import (
    FloatArray,
    as_count,
    as_covariance,
    refuse_masked,
    refuse_other_kinds,
)


@dataclass(frozen=True, eq=False)
class MultinomialProbit(Likelihood):
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

    n_classes: int | None = None
    categories: Sequence[Any] | None = None
    noise_cov: Any = None

    function_dim = "category"
    predicted_dims: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "p": ("category",),
        "p_mean": ("category",),
    }

    def __post_init__(self) -> None:
        counts = {}
        if self.n_classes is not None:
            counts["n_classes"] = as_count("n_classes", self.n_classes, 2)
        if self.categories is not None:
            object.__setattr__(self, "categories", tuple(self.categories))
            counts["categories"] = as_count("the number of categories", len(self.categories), 2)
        if self.noise_cov is not None:
            cov = as_covariance("noise_cov", self.noise_cov).copy()
            jitter = linalg.cholesky("noise_cov", cov)[1]  # refuses what is no covariance
            cov[np.diag_indices_from(cov)] *= 1.0 + jitter
            cov.flags.writeable = False
            object.__setattr__(self, "noise_cov", cov)
            counts["noise_cov"] = len(cov)
        if len(set(counts.values())) > 1:
            raise ValueError(f"the number of classes must be one, got {counts}.")

    def joined(self, y: Data, n: int, new: ArrayLike, n_new: int) -> Data:
        """Labels of both; the new ones are of the classes that there are, maybe not of all."""
        known = replace(self, n_classes=self.n_functions(y))
        return np.concatenate([y, known.as_data(new, n_new)])

    def as_data(self, y: ArrayLike, n: int) -> Data:
        """Labels as 0, 1, ..., K - 1."""
        refuse_masked("y", y)
        labels = np.asarray(y)
        refuse_other_kinds("y", labels)
        if labels.shape != (n,):
            raise ValueError(
                f"y must have shape ({n},), one label for each row of X; got {labels.shape}."
            )
        with np.errstate(invalid="ignore"):
            codes = labels.astype(np.intp)
        if labels.dtype.kind not in "iub" and not (labels == codes).all():
            raise ValueError("y must hold whole numbers, 0 for the first class.")
        known = self._known_classes
        if known is None:
            found = np.unique(codes)
            if found[0] != 0 or found[-1] != found.size - 1 or found.size < 2:
                raise ValueError(
                    f"y must hold two classes or more, coded 0, 1, 2 and so on; found {found}. "
                    "Where a class never occurs, say how many there are: n_classes=."
                )
        elif ((codes < 0) | (codes >= known)).any():
            outside = np.unique(codes[(codes < 0) | (codes >= known)])
            raise ValueError(
                f"y must be from 0 to {known - 1}, for {known} classes; got {outside}."
            )
        return codes

    def of_observations(self, index: IntArray, y: Data) -> "MultinomialProbit":
        """Of as many classes, some of which may be missing among the labels that are chosen."""
        return replace(self, n_classes=self.n_functions(y))

    def n_functions(self, y: Data) -> int:
        """K."""
        known = self._known_classes
        return int(y.max()) + 1 if known is None else known

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
        if self.noise_cov is None:
            return log_win_probability(ahead)
        contrast = _contrasts(k)
        cov = contrast @ self._cov(k) @ contrast.swapaxes(1, 2)
        if k > 3:
            found = np.empty(ahead.shape[:-1])
            for c in range(k):
                found[..., y == c] = log_orthant_probability(ahead[..., y == c, :], cov[c])
            return found
        ahead /= np.sqrt(np.einsum("cii->ci", cov))[y]
        if k == 2:
            return np.asarray(log_ndtr(ahead[..., 0]))
        rho = cov[:, 0, 1] / np.sqrt(cov[:, 0, 0] * cov[:, 1, 1])
        return log_bivariate(ahead[..., 0], ahead[..., 1], rho[y])

    def replicate(
        self, y: Data, f: FloatArray, log_likelihood: FloatArray, rng: np.random.Generator
    ) -> Data:
        """New labels at the rows of the data."""
        return self._drawn(f, rng)

    def coords(self, y: Data) -> dict[str, Sequence[Any]]:
        """Names of the classes."""
        return {"category": list(self.categories or range(self.n_functions(y)))}

    def predictive_draws(self, f: FloatArray, rng: np.random.Generator) -> dict[str, Data]:
        """``p``, the probabilities of the classes, and ``y``, labels."""
        if self.noise_cov is None:
            p = win_probabilities(f)
        else:
            p = normal_probabilities(f, self._cov(f.shape[-1])[None])
        return {"p": p, "y": self._drawn(f, rng)}

    def predictive_summary(self, mixture: Mixture) -> dict[str, FloatArray]:
        """``p_mean`` and ``p_mean_se``."""
        assert mixture.covariance is not None
        p, error = category_probabilities(mixture, self._cov(mixture.covariance.shape[-1]))
        return {"p_mean": p, "p_mean_se": error}

    @property
    def _known_classes(self) -> int | None:
        if self.n_classes is not None:
            return int(self.n_classes)
        if self.categories is not None:
            return len(self.categories)
        return None if self.noise_cov is None else len(self.noise_cov)

    def _cov(self, k: int) -> FloatArray:
        cov: FloatArray = np.eye(k) if self.noise_cov is None else self.noise_cov
        return cov

    def _drawn(self, f: FloatArray, rng: np.random.Generator) -> Data:
        noise = rng.standard_normal(f.shape)
        if self.noise_cov is not None:
            noise = noise @ np.linalg.cholesky(self.noise_cov).T
        noise += f
        return np.asarray(noise.argmax(axis=-1))


def _others(k: int) -> Data:
    """The classes other than each one, shape (k, k - 1)."""
    return np.array([[j for j in range(k) if j != c] for c in range(k)])


def _contrasts(k: int) -> FloatArray:
    """For each class its function less each other one, shape (k, k - 1, k)."""
    eye = np.eye(k)
    return np.stack([eye[c] - eye[_others(k)[c]] for c in range(k)])
