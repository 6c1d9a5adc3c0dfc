"""Labels and trials under probit and logit links."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.special import bdtr, expit, gammaln, log_ndtr, ndtr

from pymc_skewgp._gaussian import linalg
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._observations import likelihood as base
from pymc_skewgp._observations import observations as row
from pymc_skewgp._observations import probability as probabilities
from pymc_skewgp._observations.likelihood import Data
from pymc_skewgp._observations.sites import ClosedFormSites, FactorFunctions
from pymc_skewgp._validation import FloatArray, as_covariance

# Labels and numbers of successes, whose probability is a function of f: what they have in common.


class _Labels(base.Likelihood):
    # Of a label 1, or of a success, given f: that f with some noise is positive.
    probability: ClassVar[Any] = staticmethod(ndtr)
    noise: ClassVar[Any] = 1.0

    def as_data(self, y: ArrayLike, n: int) -> Data:
        """Labels as 0 and 1."""
        return base.as_labels(y, n)

    def replicate(
        self, y: Data, f: FloatArray, log_likelihood: FloatArray, rng: np.random.Generator
    ) -> Data:
        """New labels at the rows of the data."""
        # An exponential variable exceeds -log p with probability p: the label is drawn again.
        again = rng.standard_exponential(log_likelihood.shape, dtype=np.float32) > -log_likelihood
        return np.where(again, y, 1 - y)

    def predictive_draws(self, f: FloatArray, rng: np.random.Generator) -> dict[str, Data]:
        """``p``, the probability of a label 1, and ``y``, labels."""
        p = self.probability(f)
        return {"p": p, "y": (rng.random(p.shape) < p).astype(np.int64)}

    def predictive_summary(self, mixture: base.Mixture) -> dict[str, FloatArray]:
        """``p_mean``, the probability of a label 1, with its Monte Carlo error ``p_mean_se``."""
        found = probabilities.interval_probability(mixture, 0.0, np.inf, self.noise)
        return dict(zip(("p_mean", "p_mean_se"), found, strict=True))


class _Trials(_Labels):
    n: Any
    row_parameters = ("n",)

    def as_data(self, y: ArrayLike, n: int) -> Data:
        """Successes as integers, with the trials checked."""
        return as_successes(y, self.n, n)

    def draw(self, f: FloatArray, rng: np.random.Generator) -> Data:
        """New numbers of successes."""
        return rng.binomial(as_trials(self.n, f.shape[-1]), self.probability(f))

    def replicate(
        self, y: Data, f: FloatArray, log_likelihood: FloatArray, rng: np.random.Generator
    ) -> Data:
        """New numbers of successes at the rows of the data."""
        return self.draw(f, rng)

    def predictive_draws(self, f: FloatArray, rng: np.random.Generator) -> dict[str, Data]:
        """``p``, the probability of a success, and ``y``, successes of n trials."""
        return {"p": self.probability(f)} | ({"y": self.draw(f, rng)} if self.single else {})


# What a variance may be off 1 by, as after rounding.
_ROUNDED = 1e-8


@dataclass(frozen=True, eq=False)
class BernoulliProbit(_Labels):
    r"""Labels 0 and 1: :math:`P(y_i = 1) = \Phi(f(x_i))`.

    A label says on which side of 0 the noisy function :math:`f(x_i) + e_i` is, with standard
    normal :math:`e_i`: the interval :math:`(0, \infty)` for 1 and :math:`(-\infty, 0)` for 0.

    Labels may be 0 and 1, -1 and 1, or booleans.

    Parameters
    ----------
    noise_cov : array_like, shape (n, n), optional
        Covariance of :math:`(e_1, \dots, e_n)`, for labels that share noise, such as those of one
        person. Its diagonal is 1, as the noise of a probit link has variance 1. Default the
        identity.

    Raises
    ------
    ValueError
        Labels of another kind; a `noise_cov` that is no covariance, that has not 1 on its diagonal,
        or not a row for each label.

    Notes
    -----
    With `noise_cov` each label by itself still has the probability :math:`\Phi(f(x_i))`. That is
    what ``p`` and ``p_mean`` are at new points, whose noise is independent of that of the data,
    and of each other, and has variance 1; and what ``log_likelihood`` has for each label, so that
    the sum over labels is not the log probability of all of them together. The evidence, draws of f
    and replicates ``y`` of the data have the shared noise. A block of labels that share noise with
    no others takes the algebra of low rank, where the kernel is smooth.

    References
    ----------
    .. [1] J. H. Albert & S. Chib (1993), Bayesian analysis of binary and polychotomous response
       data, doi:10.1080/01621459.1993.10476321.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0))
    >>> posterior = gp.posterior([[0.0]], [1], likelihood=sg.likelihoods.BernoulliProbit())
    >>> print(f"{posterior.log_marginal_likelihood.value:.4f}")  # log 1/2
    -0.6931

    Two labels at one place, whose noise has the correlation 1/2: both are 1 with probability 1/3 a
    priori where f is 0.

    >>> likelihood = sg.likelihoods.BernoulliProbit(noise_cov=[[1.0, 0.5], [0.5, 1.0]])
    >>> flat = sg.SkewGP(cov_func=1e-8 * pm.gp.cov.ExpQuad(1, ls=1.0))
    >>> posterior = flat.posterior([[0.0], [0.0]], [1, 1], likelihood=likelihood)
    >>> print(f"{posterior.log_marginal_likelihood.value:.4f}")  # log 1/3
    -1.0986
    """

    noise_cov: Any = None

    def __post_init__(self) -> None:
        if self.noise_cov is None:
            return
        cov = as_covariance("noise_cov", self.noise_cov)
        off = np.abs(cov.diagonal() - 1.0)
        if off.max() > _ROUNDED:
            i = int(off.argmax())
            raise ValueError(
                f"noise_cov must have 1 on its diagonal, the variance of the noise of a probit "
                f"link; entry {i} is {cov[i, i]:.6g}. Where all variances are equal, divide "
                "noise_cov and the variance of the kernel by them."
            )
        linalg.cholesky("noise_cov", cov)  # refuses what is no covariance
        object.__setattr__(self, "noise_cov", base.frozen_copy(cov))

    def __repr__(self) -> str:
        shared = "" if self.noise_cov is None else f"noise_cov={self.noise_cov!r}"
        return f"{type(self).__name__}({shared})"

    def as_data(self, y: ArrayLike, n: int) -> Data:
        """Labels as 0 and 1."""
        if self.noise_cov is not None and len(self.noise_cov) != n:
            raise ValueError(
                f"noise_cov must have a row for each of the {n} labels, got {len(self.noise_cov)}."
            )
        return base.as_labels(y, n)

    def of_observations(self, index: IntArray, y: Data) -> "BernoulliProbit":
        """Each label of its own; labels that share noise are not made more than once."""
        if self.noise_cov is not None and not np.array_equal(index, np.arange(y.size)):
            raise ValueError(
                "weights are for labels with noise of their own: with noise_cov, repeat or drop "
                "rows of X and y, and say in noise_cov what noise the copies share."
            )
        return self

    def joined(self, y: Data, n: int, new: ArrayLike, n_new: int) -> Data:
        """Labels of both; the noise of new ones is their own."""
        return np.concatenate([y, base.as_labels(new, n_new)])

    def observations(self, y: Data, n: int) -> row.Observations:
        """One interval a label."""
        return _of_labels(y == 1, self._noise(y.size))

    @property
    def independent(self) -> bool:
        """Whether each label has noise of its own."""
        return self.noise_cov is None

    def in_pymc(self, f: Any, exp: Any) -> tuple[str, dict[str, Any]] | None:
        """Where each label has noise of its own."""
        return ("BernoulliProbit", {"eta": f}) if self.independent else None

    def _noise(self, n: int) -> row.Noise:
        """Of the labels: those of the data, then labels that came later."""
        if self.noise_cov is None:
            return np.ones(n)
        known = len(self.noise_cov)
        return (
            row.stacked_noise([self.noise_cov, np.ones(n - known)]) if n > known else self.noise_cov
        )

    def replicate(
        self, y: Data, f: FloatArray, log_likelihood: FloatArray, rng: np.random.Generator
    ) -> Data:
        """New labels at the rows of the data."""
        if self.noise_cov is not None:
            factor = row.noise_factor(self._noise(y.size))
            noise = rng.standard_normal((*f.shape[:-1], factor.shape[1])) @ factor.T
            return (f + noise > 0).astype(np.int64)
        return super().replicate(y, f, log_likelihood, rng)


def _of_labels(positive: Any, noise: row.Noise, A: row.Design = None) -> row.Observations:
    """Signs of predictors with noise."""
    lower, upper = np.where(positive, 0.0, -np.inf), np.where(positive, np.inf, 0.0)
    return row.intervals(lower, upper, noise, A=A)


def probability_sd(mixture: base.Mixture) -> FloatArray:
    r"""Standard deviation of :math:`p = \Phi(f)`, shape (t,): second-order uncertainty.

    .. math:: \mathrm{var}\{\Phi(f)\} = \sum_j w_j\, \mathrm E\{\Phi(f)^2 \mid u_j\} - p^2
    """
    p = ndtr(mixture.means / np.sqrt(1.0 + mixture.variance)[:, None])
    within = probabilities.probability_variance(
        p, (mixture.variance / (1.0 + mixture.variance))[:, None]
    )
    between = (p - (p @ mixture.weights)[:, None]) ** 2
    sd: FloatArray = np.sqrt((within + between) @ mixture.weights)
    return sd


# Numbers of trials and of successes, checked.

IntegerArray = NDArray[np.int64]


def as_successes(y: ArrayLike, given: Any, n: int) -> IntegerArray:
    """Successes as integers, one a row, none above the number of trials `given`."""
    successes, trials = base.as_counts(y, n, "number of successes"), as_trials(given, n)
    base.refuse_rows("y", successes, trials < successes, "not exceed the number of trials n")
    return successes


def as_trials(given: Any, n: int) -> IntegerArray:
    """Trials of n rows; a number stands for all."""
    each = given if np.ndim(given) else np.full(n, given)
    trials = base.as_integers(each, n, "number of trials", "n")
    base.refuse_rows("n", trials, trials < 0, "hold numbers of trials, 0 or more")
    return trials


def log_choose(n: IntegerArray, k: IntegerArray) -> FloatArray:
    """Log of the binomial coefficient."""
    return np.asarray(gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0))


# Successes of several trials under a probit link.


@dataclass(frozen=True, eq=False)
class BinomialProbit(_Trials):
    r"""Successes of n trials: :math:`y_i \sim \mathrm{Binomial}(n_i, \Phi(f(x_i)))`.

    Each trial is a row of its own, with standard normal noise: the interval :math:`(0, \infty)`
    for each of the y successes and :math:`(-\infty, 0)` for each of the n - y failures. The log
    marginal likelihood is that of the counts, :math:`\log \binom{n_i}{y_i}` included, as that
    of ``pm.Binomial`` is; labels of single trials in their order have it without.

    Parameters
    ----------
    n : int or array_like of int, shape (n_rows,)
        Trials at each row of X, 0 or more; a number stands for all. New counts ``y`` are predicted
        only where it is one number.

    Raises
    ------
    ValueError
        When used: fewer trials than successes, negative or fractional counts, another length.

    Notes
    -----
    `SkewGPPosterior.predict` gives ``p_mean`` with its Monte Carlo error ``p_mean_se``, the
    probability that a new trial is a success, draws ``p``, and draws ``y`` of n trials.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0))
    >>> posterior = gp.posterior([[0.0]], [1], likelihood=sg.likelihoods.BinomialProbit(1))
    >>> print(f"{posterior.log_marginal_likelihood.value:.4f}")  # log 1/2
    -0.6931
    """

    n: Any

    def observations(self, y: Data, n: int) -> row.Observations:
        """One interval a trial."""
        trials = as_trials(self.n, n)
        index = np.repeat(np.arange(n), trials)
        first = np.repeat(np.cumsum(trials) - trials, trials)
        success = np.arange(index.size) - first < y[index]
        design = sparse.csr_array(
            (np.ones(index.size), (np.arange(index.size), index)), shape=(index.size, n)
        )
        return replace(
            _of_labels(success, np.ones(index.size), design),
            log_constant=float(log_choose(trials, y).sum()),
        )

    def log_likelihood(self, y: Data, f: FloatArray) -> FloatArray:
        """Log p(y_i | f_i), the binomial coefficient included."""
        trials = as_trials(self.n, y.size)
        return y * log_ndtr(f) + (trials - y) * log_ndtr(-f) + log_choose(trials, y)


# The logistic function: log probabilities with all their digits, and averages over f.

# Logistic noise is normal with a random standard deviation, twice a variable of Kolmogorov's
# distribution (Andrews & Mallows 1974, Scale mixtures of normal distributions). These are the nodes
# and weights of the Gauss rule for the logarithm of it: the logistic function is their sum of
# normal distribution functions to 1e-9.
_SDS, _SHARES = np.array(
    [
        (0.5548478053499108, 6.515685897160737e-06),
        (0.6777496876670535, 0.0006346896509566042),
        (0.8228364187501018, 0.01105455980537635),
        (1.0041473214264671, 0.06680358879068217),
        (1.236246505662781, 0.1863462002371431),
        (1.5354389994498454, 0.282582675525386),
        (1.9174732126862424, 0.25666119491647055),
        (2.3929056562185513, 0.14306435005320164),
        (2.966914693941203, 0.045497712993248694),
        (3.648127316433865, 0.006963766499944875),
        (4.461650803276587, 0.0003809414074949087),
        (5.488531415255486, 3.804434197589465e-06),
    ]
).T
LOGISTIC_NOISE = probabilities.NormalParts(_SDS**2, _SHARES / _SHARES.sum())


def logistic_with_slope(x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The logistic function and its derivative."""
    p = expit(x)
    return p, p * expit(-x)


def log_logistic(x: FloatArray) -> FloatArray:
    """Log of the logistic function, infinities allowed; SciPy's takes twice as long."""
    return np.minimum(x, 0.0) - np.log1p(np.exp(-np.abs(x)))


def log_odds_functions(
    ahead: FloatArray, behind: FloatArray, constant: FloatArray, offset: FloatArray | float = 0.0
) -> FactorFunctions:
    """Of ``ahead log L(x) + behind log L(-x) + constant``, x being eta + offset."""
    total = ahead + behind

    def log_prob(eta: FloatArray) -> FloatArray:
        x = eta + offset
        least = np.log1p(np.exp(-np.abs(x)))
        least *= total
        return ahead * np.minimum(x, 0.0) - behind * np.maximum(x, 0.0) - least + constant

    def slopes(eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        p, slope = logistic_with_slope(eta + offset)
        return ahead - total * p, -total * slope

    return FactorFunctions(log_prob, slopes)


# Binary labels under a logit link.


@dataclass(frozen=True)
class BernoulliLogit(_Labels, ClosedFormSites):
    r"""Labels 0 and 1: :math:`P(y_i = 1) = 1 / (1 + e^{-f(x_i)})`.

    It is the model of ``pm.Bernoulli(logit_p=f)``. Labels may be 0 and 1, -1 and 1, or booleans.

    Notes
    -----
    `SkewGPPosterior.predict` gives ``p_mean``, the probability of a label 1, with its Monte Carlo
    error ``p_mean_se``, and draws ``p`` and ``y``. The average of the logistic function is exact
    to 1e-9: logistic noise is a mixture of normal ones [2]_.

    References
    ----------
    .. [1] C. E. Rasmussen & C. K. I. Williams (2006), Gaussian Processes for Machine Learning,
       chapter 3.
    .. [2] D. F. Andrews & C. L. Mallows (1974), Scale mixtures of normal distributions,
       doi:10.1111/j.2517-6161.1974.tb00989.x.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> gp = sg.SkewGP(cov_func=4.0 * pm.gp.cov.ExpQuad(1, ls=1.0))
    >>> x, y = [-2.0, -1.0, 1.0, 2.0], [0, 0, 1, 1]
    >>> posterior = gp.posterior(x, y, likelihood=sg.likelihoods.BernoulliLogit())
    >>> posterior.predict([-1.5, 1.5])["predictions_summary"]["p_mean"].values.round(2)
    array([0.22, 0.78])
    """

    probability, noise = staticmethod(expit), LOGISTIC_NOISE

    def in_pymc(self, f: Any, exp: Any) -> tuple[str, dict[str, Any]]:
        """By log odds."""
        return "Bernoulli", {"logit_p": f}

    def functions(self, y: Data) -> FactorFunctions:
        """Of the side of 0 that each label is on."""
        side = np.where(y == 1, 1.0, -1.0)

        def log_prob(eta: FloatArray) -> FloatArray:
            return log_logistic(side * eta)

        def slopes(eta: FloatArray) -> tuple[FloatArray, FloatArray]:
            other, slope = logistic_with_slope(-side * eta)
            return side * other, -slope

        return FactorFunctions(log_prob, slopes)


# Successes of several trials under a logit link.


@dataclass(frozen=True, eq=False)
class BinomialLogit(_Trials, ClosedFormSites):
    r"""Successes of n trials: :math:`y_i \sim \mathrm{Binomial}(n_i, 1 / (1 + e^{-f(x_i)}))`.

    It is the model of ``pm.Binomial(n, logit_p=f)``. A row is one observation however many its
    trials are: a thousand of them cost what one costs.

    Parameters
    ----------
    n : int or array_like of int, shape (n_rows,)
        Trials at each row of X, 0 or more; a number stands for all. New counts ``y`` are predicted
        only where it is one number.

    Raises
    ------
    ValueError
        When used: fewer trials than successes, negative or fractional counts, another length.

    Notes
    -----
    `SkewGPPosterior.predict` gives ``p_mean`` with its Monte Carlo error ``p_mean_se``, the
    probability that a new trial is a success, ``y_quantile`` of the successes in n trials, and
    draws ``p`` and ``y``.

    References
    ----------
    .. [1] P. McCullagh & J. A. Nelder (1989), Generalized Linear Models, chapter 4.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> gp = sg.SkewGP(cov_func=4.0 * pm.gp.cov.ExpQuad(1, ls=1.0))
    >>> doses, deaths = [-1.0, 0.0, 1.0], [1, 40, 95]
    >>> posterior = gp.posterior(doses, deaths, likelihood=sg.likelihoods.BinomialLogit(100))
    >>> posterior.predict([-0.5, 0.5])["predictions_summary"]["p_mean"].values.round(1)
    array([0.1, 0.8])
    """

    n: Any
    new_values = "whole"
    probability, noise = staticmethod(expit), LOGISTIC_NOISE

    def in_pymc(self, f: Any, exp: Any) -> tuple[str, dict[str, Any]]:
        """By log odds."""
        return "Binomial", {"n": self.n, "logit_p": f}

    def functions(self, y: Data) -> FactorFunctions:
        """Of successes and failures."""
        trials = as_trials(self.n, y.size)
        return log_odds_functions(y * 1.0, trials - y * 1.0, log_choose(trials, y))

    def cdf(self, y: FloatArray, f: FloatArray) -> FloatArray:
        """Of the successes in n trials."""
        n = int(self.n)
        return np.asarray(bdtr(np.minimum(y, n), n, expit(f)))
