"""`SkewGPSurvival`: times to an event behind the interface of scikit-learn."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike
from sklearn.utils.validation import validate_data

from pymc_skewgp._learn import estimator
from pymc_skewgp._learn.averaging.average_process import AveragedPosterior
from pymc_skewgp._observations import survival
from pymc_skewgp._observations.likelihood import refuse_rows
from pymc_skewgp._observations.predictive_quantiles import NewValues
from pymc_skewgp._validation import FloatArray, as_vector

# Medians are looked for in this range of logarithms, and found to 1e-7 of themselves.
_FURTHEST, _HALVINGS = 700.0, 34
_DISTRIBUTIONS = {
    "weibull": survival.Weibull,
    "exponential": survival.Weibull,
    "lognormal": survival.LogNormal,
    "loglogistic": survival.LogLogistic,
}


@dataclass(eq=False, repr=False, kw_only=True)
class SkewGPSurvival(estimator.ProcessEstimator):
    r"""Times to an event: accelerated failure times with a Gaussian process and exact posterior.

    .. math:: \log t = f(x) + \sigma e, \qquad f \sim GP(b, k)

    Times may be censored from either side, or between limits, and subjects may enter late. Kernel
    and sigma maximise the marginal likelihood times weak priors; the level b is integrated out with
    f, whose posterior is averaged over near-independent draws.

    Parameters
    ----------
    kernel : {"rbf", "matern32", "matern52", "nn"} or callable, default "rbf"
        As for `SkewGPRegressor`.
    distribution : {"weibull", "exponential", "lognormal", "loglogistic"}, default "weibull"
        Of a time given f; see `likelihoods.Weibull`, `likelihoods.LogNormal` and
        `likelihoods.LogLogistic`. Exponential times are Weibull's with sigma 1.
    ard : bool, default False
        A lengthscale for each feature (automatic relevance determination) in a named kernel, all of
        them shrunk to a common scale.
    n_restarts : int, default 1
        Searches from random starts besides the first one.
    random_state : int, RandomState instance or None, default None
        Of restarts and draws. An int makes `fit` reproducible.
    verbose : bool, default True
        Show progress of what takes more than two seconds, in a terminal or a notebook.
    hyperparameters : {"auto", "maximize", "average"}, default "auto"
        "auto" averages with `ard`, a named kernel and at most 300 rows, and maximises otherwise.
        "maximize": the most probable ones. "average": the posterior averaged over them, as for
        `SkewGPRegressor`.

    Attributes
    ----------
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        One for each feature, when `X` has names of columns.
    posterior_ : SkewGPPosterior
        Exact posterior.
    hyperparameters_ : HyperparameterFit, DataTree or None
        Hyperparameters, their standard errors, and whether the search converged. With
        ``hyperparameters="average"`` draws of them.
    log_marginal_likelihood_ : Estimate
        Log evidence of all training data in nats, with its standard error.

    Raises
    ------
    ValueError
        From `fit`: NaN or infinite features, times that are not positive, limits in the wrong
        order, entries after the event, unknown kernels and distributions.

    Notes
    -----
    Features are taken as they are: put a ``StandardScaler`` before it when they have different
    units and `ard` is off. Priors are weak, in units of the standard deviation s of the logarithms
    of times: eta HalfNormal(5 s), sigma LogNormal(log(s / 2), 1), the level Normal(mean, s).

    References
    ----------
    .. [1] J. D. Kalbfleisch & R. L. Prentice (2002), The Statistical Analysis of Failure Time Data,
       doi:10.1002/9781118032985, chapters 2 and 3.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_skewgp import SkewGPSurvival
    >>> rng = np.random.default_rng(0)
    >>> x = np.linspace(-2, 2, 40)[:, None]
    >>> time, end = np.exp(x[:, 0]) * rng.weibull(2.0, 40), rng.uniform(0.5, 6.0, 40)
    >>> y = np.empty(40, dtype=[("event", bool), ("time", float)])
    >>> y["event"], y["time"] = time < end, np.minimum(time, end)
    >>> model = SkewGPSurvival(random_state=0).fit(x, y)
    >>> bool(np.all(np.diff(model.predict([[-1.0], [0.0], [1.0]])) > 0))
    True
    >>> model.predict_survival_function([[0.0]], times=[0.5, 1.0, 2.0]).shape
    (1, 3)
    """

    distribution: Literal["weibull", "exponential", "lognormal", "loglogistic"] = "weibull"

    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> "SkewGPSurvival":
        """Learn hyperparameters and condition on the times.

        Parameters
        ----------
        X : array_like, shape (n, d)
            Features.
        y : structured array, DataFrame, or array_like, shape (n,), (n, 2) or (n, 3)
            Fields, or columns, of whether the event was seen, of times, and perhaps ``entry``; or
            times, all seen; or a lower and an upper limit of each, equal where the event was seen,
            ``[t, inf]`` where it was censored at t, ``[0, t]`` where it was before t; or limits and
            the time of entry.
        sample_weight : array_like, shape (n,), optional
            Weights >= 0. Whole numbers say how often each row was observed; others are powers of
            the likelihood (`likelihoods.Weighted`).

        Returns
        -------
        SkewGPSurvival
            Itself.
        """
        if self.distribution not in _DISTRIBUTIONS:
            raise ValueError(
                f"distribution must be one of {', '.join(_DISTRIBUTIONS)}, got "
                f"{self.distribution!r}."
            )
        kind = _DISTRIBUTIONS[self.distribution]
        inputs = validate_data(self, X, dtype="numeric")
        data = kind(1.0).as_data(y, inputs.shape[0])
        rows, powers = self._weighted(len(data), sample_weight)
        inputs, data = self._features(inputs[rows]), data[rows]
        logs = _middle_logs(data)
        scale = float(np.std(logs)) or 1.0

        def define(_: Any) -> estimator.Definition:
            start, sigma = {}, 1.0
            if self.distribution != "exponential":
                # Not near 0, where EP means nothing: times are not known to a thousandth.
                sigma = pm.LogNormal("sigma", np.log(0.5 * scale), 1.0)
                start = {"sigma": 0.5 * scale}
            level = pm.Normal("level", float(logs.mean()), scale)
            return estimator.Definition(pm.gp.mean.Constant(level), kind(sigma), start)

        settings = self._settings(inputs.shape[0], powers=powers)
        self._keep(self._fitted(inputs, data, define, settings, scale=scale, powers=powers))
        return self

    def predict(self, X: ArrayLike) -> FloatArray:
        """Median of the time to the event.

        Parameters
        ----------
        X : array_like, shape (t, d)

        Returns
        -------
        ndarray, shape (t,)
            In the units of the times: where `predict_survival_function` is 1/2.
        """

        def medians(rows: FloatArray) -> FloatArray:
            new, size = self._new_logs(rows), len(rows)
            low, high = np.full(size, -_FURTHEST), np.full(size, _FURTHEST)
            for _ in range(_HALVINGS):
                middle = 0.5 * (low + high)
                later = _later(new, middle) > 0.5
                low, high = np.where(later, middle, low), np.where(later, high, middle)
            median: FloatArray = np.exp(0.5 * (low + high))
            return median

        return self._by_rows(medians, self._checked(X))

    def predict_survival_function(self, X: ArrayLike, times: ArrayLike) -> FloatArray:
        """Probability that the event is later, f averaged over.

        Parameters
        ----------
        X : array_like, shape (t, d)
        times : array_like, shape (m,)
            Positive.

        Returns
        -------
        ndarray, shape (t, m)
        """
        inputs, wanted = self._checked(X), as_vector("times", times)
        refuse_rows("times", wanted, ~(wanted > 0), "be positive")

        def later(rows: FloatArray) -> FloatArray:
            new, logs = self._new_logs(rows), np.log(wanted)
            return np.column_stack([_later(new, np.full(len(rows), x)) for x in logs])

        return self._by_rows(later, inputs)

    def score(self, X: ArrayLike, y: ArrayLike) -> float:
        """Concordance: share of pairs whose medians are in the order of their times.

        Parameters
        ----------
        X : array_like, shape (n, d)
        y : array_like
            As for `fit`. Pairs count whose order is known: one's upper limit is not above the
            other's lower limit.

        Returns
        -------
        float
            Equal medians count half (Harrell's C).
        """
        median = self.predict(X)
        data = _DISTRIBUTIONS[self.distribution](1.0).as_data(y, median.size)
        low, high, _ = survival.limits_of(data).T
        known = (high[:, None] <= low) & ~((low[:, None] == low) & (high[:, None] == high))
        if not known.any():
            raise ValueError("no pair of times has a known order: concordance is of none.")
        right = (median[:, None] < median) + 0.5 * (median[:, None] == median)
        return float(right[known].mean())

    def _new_logs(self, X: FloatArray) -> list[tuple[float, NewValues]]:
        """Logarithms of new times under each posterior, with its weight."""
        found = self.posterior_
        parts: list[Any] = [found]
        weights = np.ones(1)
        if isinstance(found, AveragedPosterior):
            parts, weights = found.posteriors, found.weights
        known: list[Any] = [getattr(x.likelihood, "likelihood", x.likelihood) for x in parts]
        new = [NewValues(x.marginals(X), one.cdf) for one, x in zip(known, parts, strict=True)]
        return list(zip(weights.tolist(), new, strict=True))


def _later(new: list[tuple[float, NewValues]], log_time: FloatArray) -> FloatArray:
    """P(log t > log_time), point by point."""
    below = sum(weight * values.cdf(log_time) for weight, values in new)
    return np.clip(1.0 - below, 0.0, 1.0)


def _middle_logs(data: Any) -> FloatArray:
    """Logarithms about where each time is known to be, for the scale of priors."""
    low, high, _ = survival.limits_of(data).T
    ends = np.where(low > 0, low, high), np.where(np.isfinite(high), high, low)
    known = (ends[0] > 0) & np.isfinite(ends[1])
    if not known.any():
        return np.zeros(1)
    return 0.5 * (np.log(ends[0][known]) + np.log(ends[1][known]))
