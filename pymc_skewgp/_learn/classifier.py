"""`SkewGPClassifier`: the exact posterior behind the interface of scikit-learn."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri
from sklearn.base import ClassifierMixin
from xarray import DataTree

from pymc_skewgp._learn import estimator
from pymc_skewgp._learn.optimizers import SearchSettings
from pymc_skewgp._limits import steps
from pymc_skewgp._observations.classes import MultinomialProbit, Softmax
from pymc_skewgp._validation import FloatArray

_LEAST_PROBABILITY = 1e-300


@dataclass(eq=False, repr=False, kw_only=True)
class SkewGPClassifier(ClassifierMixin, estimator.ProcessEstimator):
    r"""Gaussian process and Skew Gaussian process classification with the exact posterior.

    .. math:: P(y = 1 \mid x) = \mathrm E\, \Phi\{f(x)\}, \qquad f \sim \mathrm{SkewGP} \mid X, y,

    under a probit likelihood, averaged over near-independent draws of the posterior: no Laplace
    approximation. Hyperparameters maximise the marginal likelihood. With more than two classes each
    is fitted against the rest, and the probabilities are normalised; or, with
    ``multi_class="exact"`` or ``"softmax"``, all are fitted together, the largest of K noisy
    functions being the class (`likelihoods.MultinomialProbit`, `likelihoods.Softmax`).

    Parameters
    ----------
    kernel : {"rbf", "matern32", "matern52", "nn"} or callable, default "rbf"
        Kernel, times a variance; "nn" is the arcsine kernel (`cov.NeuralNetwork`). Or a function
        that takes the number of features and returns a ``pm.gp.cov`` object; random variables that
        it makes are learnt with their priors (it is called inside a ``pm.Model``).
    ard : bool, default False
        A lengthscale for each feature (automatic relevance determination) in a named kernel, all of
        them shrunk to a common scale.
    n_pseudo_points : int, default 0
        Pseudo-points: inputs at which the prior is conditioned on the sign of the latent function.
        Their places are learnt. With up to three their signs are learnt as well, by trying all;
        with more, each keeps the label of the row that it starts at. 0: an ordinary process.
    batch_size : int, "auto" or None, default "auto"
        Labels in each batch of the composite likelihood by which hyperparameters are learnt (the
        posterior always has all data); with batches pseudo-points are learnt on one, under the
        kernel learnt on all. None: all at once. "auto": all at once up to 1500 rows, batches of
        500 beyond, and above 5000 all by inducing points.
    n_restarts : int, default 1
        Searches from random starts besides the first one.
    warm_start : bool, default False
        Whether another `fit` goes on from the kernel that the last one has learnt, without
        restarts: after some more rows, for instance, or with pseudo-points added by `set_params`.
        `kernel`, `ard`, features and classes have to be the same.
    random_state : int, RandomState instance or None, default None
        Of restarts, batches and draws. An int makes `fit` reproducible.
    verbose : bool, default True
        Show progress of what takes more than two seconds, in a terminal or a notebook.
    n_jobs : int or None, default None
        Classes fitted in parallel by joblib; with
        ``joblib.parallel_config(backend="dask")`` on a cluster.
    multi_class : {"ovr", "exact", "softmax"}, default "ovr"
        More than two classes: each against the rest, with a kernel of its own; or one multinomial
        probit model of K functions with one kernel; or one of at most six functions under a softmax
        (`likelihoods.Softmax`), which is the logit link of two classes. A multinomial probit takes
        as long as n (K - 1) labels of two classes, above 5000 rows some K times as long as "ovr".
        Both have weak priors as in `SkewGPOrdinalClassifier`, and neither pseudo-points nor
        `warm_start`.
    class_weight : None, "balanced" or dict, default None
        Weight of each class, 1 where the dict has none; "balanced": n / (n_classes * rows of the
        class), as scikit-learn has it.
    fit_intercept : bool, default True
        Whether f has a constant level, without pseudo-points. Far from all data the probability is
        1/2 without it. With it, it is the share of the class a priori, from which the data move it
        the more the more lengthscales they span.
    hyperparameters : {"auto", "maximize", "average"}, default "auto"
        "auto" averages with `ard`, a named kernel and at most 300 rows, and maximises otherwise,
        where classes are fitted together, and with pseudo-points or `warm_start`.
        "maximize": the most probable ones. "average": the posterior averaged over them, as
        `integrate` does, by a mixture of posteriors at 32 points. Then one log ls is normal about
        log l + 1 with standard deviation 1.5, l the distance of two rows of X, about, and eta
        HalfNormal(25). No pseudo-points, `warm_start`, batches. Above 5000 rows 16 points or fewer,
        and some 150 evaluations of EP, a second each for 20,000 rows.

    Attributes
    ----------
    classes_ : ndarray, shape (n_classes,)
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        One for each feature, when `X` has names of columns.
    posterior_ : SkewGPPosterior, or list of them
        With more than two classes one for each against the rest, or of all functions together.
    hyperparameters_ : HyperparameterFit, DataTree or None, or list of them
        Hyperparameters and their standard errors; None where the kernel has nothing to learn. With
        ``hyperparameters="average"`` draws of them, in which those of one posterior stand side by
        side, and what is known of their weights as attributes of the group ``posterior``.
    log_marginal_likelihood_ : Estimate, or list of them
        Log evidence of all training labels in nats, with its standard error: at the hyperparameters
        that were found, or, with "average", of the model, the hyperparameters integrated out.

    Raises
    ------
    ValueError
        From `fit`: NaN or infinite features, a single class, unknown kernels; other classes,
        features or kernels than before with `warm_start`.

    See Also
    --------
    sklearn.gaussian_process.GaussianProcessClassifier : Laplace's approximation, logistic link.

    Notes
    -----
    Features are taken as they are: put a ``StandardScaler`` before it when they have different
    units and `ard` is off.

    But for averages and where classes are fitted together named kernels have flat priors:
    hyperparameters maximise the marginal likelihood, and on separable labels the variance has no
    maximum: `fit` warns with `BoundaryOptimumWarning` where the evidence rises beyond eta = 100 by
    .08 nats, or others end at the bounds, a thousand times their start. Of weak identification and
    convergence see `hyperparameters_` (``flat``, ``converged``). Pseudo-points have a prior that
    keeps them apart, the volume of their correlation matrix. A kernel with priors is a function::

        def kernel(d):
            ls = pm.InverseGamma("ls", alpha=5, beta=5)
            return 4.0 * pm.gp.cov.Matern52(d, ls=ls)

    With ``ard=True`` lengthscales of a named kernel are shrunk together:

    .. math:: \log \ell_j = \log l_j + 1 + \tau (1.5 \mu / 0.7 + d_j)

    with :math:`l_j` the distance of two rows in feature j, about, :math:`\mu` and :math:`d_j`
    standard normal, and :math:`\tau^2 / 0.7^2` inverse gamma (2, 2). Integrated out, that is a
    Student t distribution with four degrees of freedom, of ``log_ls``.

    The level b of f has the prior

    .. math:: b \sim N(m, 1 + v), \qquad m = \sqrt{2 + 2 v}\, \Phi^{-1}(\pi), \qquad
        v = \mathrm{var} f,

    with :math:`\pi` the share of the class, by weight. A priori that is the probability of a label,
    :math:`\mathrm E\, \Phi(f + b) = \Phi\{m / (1 + v + 1 + v)^{1/2}\} = \pi`, to a hundredth, as
    :math:`\Phi^{-1}(\pi)` is rounded to .05. The level is integrated out with f, as a part of the
    kernel. Where classes are fitted together the K levels have mean 0.

    With weights that are not whole the likelihood is :math:`\prod_i p(y_i \mid f_i)^{w_i}`, which
    is no density of labels: ``log_marginal_likelihood_`` is the log of its mean under the prior, to
    be compared only at equal weights, and probabilities are those of data that count so much, not
    of the population that the rows were drawn from. See `likelihoods.Weighted`.

    Where the search is interrupted from the keyboard the estimator is fitted with the best
    hyperparameters so far, with `InterruptedSearchWarning`; a class whose search had not begun
    stays at the start.

    Forecasts are for new rows, also at the features of training rows: white noise in the kernel is
    new there. `to_datatree` has f at the training rows.

    From 450 rows on the search begins with 300 of them, and ``hyperparameters_.std_error`` is left
    out. Above 5000 the prior is approximated, which is logged: see ``posterior_.prior_report()``.

    References
    ----------
    .. [1] A. Benavoli, D. Azzimonti & D. Piga (2020), Skew Gaussian processes for classification,
       doi:10.1007/s10994-020-05906-3, arXiv:2005.12987.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from pymc_skewgp import SkewGPClassifier
    >>> X, y = make_moons(80, noise=0.2, random_state=0)
    >>> model = SkewGPClassifier(random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.9)
    True
    >>> model.predict_proba(X[:1]).shape
    (1, 2)
    """

    # Not a parameter: benchmarks and tests set others on an instance.
    _search: ClassVar[SearchSettings] = SearchSettings(n_draws=256, hessian=False)

    n_pseudo_points: int = 0
    batch_size: int | str | None = "auto"
    warm_start: bool = False
    n_jobs: int | None = None
    multi_class: Literal["ovr", "exact", "softmax"] = "ovr"
    class_weight: Mapping[Any, float] | Literal["balanced"] | None = None
    fit_intercept: bool = True

    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> "SkewGPClassifier":
        """Learn hyperparameters and condition on the labels.

        Parameters
        ----------
        X : array_like, shape (n, d)
            Features.
        y : array_like, shape (n,)
            Classes, of any type that scikit-learn takes.
        sample_weight : array_like, shape (n,), optional
            Weights >= 0, times those of `class_weight`. Whole numbers say how often each row was
            observed: `fit` is to rows that repeat so often, and takes as long. Others are powers of
            the likelihood, see the notes.

        Returns
        -------
        SkewGPClassifier
            Itself.
        """
        inputs, labels, powers = self._labelled(X, y, sample_weight, self.class_weight)
        several = np.unique(labels).size > 2
        self._together = self.multi_class == "softmax" or (self.multi_class == "exact" and several)
        search = self._settings(inputs.shape[0], powers=powers)
        average = self._averages(inputs.shape[0])
        if average and (self.n_pseudo_points or self.warm_start):
            raise ValueError(
                'hyperparameters="average" takes no pseudo-points, whose places have no prior, and '
                'no warm_start: use "maximize" for them.'
            )
        # Flat priors, but for an average, which needs others.
        # The sign at a pseudo-point is that of f without a level.
        level = 0.5 if self.fit_intercept and not self.n_pseudo_points else None
        scale = 1.0 if average else None
        kernel = estimator.Kernel(self.kernel, self.ard, scale, average, level)
        classes, codes = np.unique(labels, return_inverse=True)
        self._refuse_single(classes)
        if self.multi_class not in ("ovr", "exact", "softmax"):
            raise ValueError(
                f'multi_class must be "ovr", "exact" or "softmax", got {self.multi_class!r}.'
            )
        if self._together:
            with self._progress():
                fits = [self._fit_together(inputs, classes, codes, powers)]
        else:
            process = {"kernel": self.kernel, "ard": self.ard, "n_features_in_": inputs.shape[1]}
            positives = [1] if classes.size == 2 else list(range(classes.size))
            before = self._before(classes, process) or [None] * len(positives)
            fits = []
            given = inputs, kernel, search, powers
            tasks = self._tasks(fits, given, [codes == k for k in positives], before)
            with self._progress():
                found = Parallel(n_jobs=self.n_jobs, return_as="generator")(tasks)
                for own in steps(found, "Classes", len(positives)):
                    fits.append(own)  # what is begun next asks whether it was interrupted
            self._process = process
        self.classes_ = classes
        self._keep(*fits)
        return self

    def _tasks(
        self,
        fits: Sequence[estimator.FittedProcess],
        given: tuple[FloatArray, estimator.Kernel, SearchSettings, FloatArray | None],
        labels: Sequence[NDArray[np.bool_]],
        before: Sequence[Any],
    ) -> Iterator[Any]:
        """Each class against the rest; after one whose search was interrupted, without a search."""
        (inputs, kernel, search, powers), seed = given, self._seed(self.random_state)
        for y, point in zip(labels, before, strict=True):
            own = search.at_start() if any(found.interrupted for found in fits) else search
            yield delayed(estimator.fit_binary)(
                inputs, y, kernel, own, seed, self.n_pseudo_points, point, powers
            )

    def _fit_together(
        self, X: FloatArray, classes: NDArray[Any], codes: NDArray[Any], powers: FloatArray | None
    ) -> estimator.FittedProcess:
        """One process for all classes."""
        if self.n_pseudo_points or self.warm_start:
            raise ValueError(
                f'multi_class="{self.multi_class}" takes no pseudo-points and no warm_start: use '
                '"ovr" for them.'
            )
        exact, names = self.multi_class == "exact", classes.tolist()
        likelihood: Any = (MultinomialProbit if exact else Softmax)(categories=names)
        if powers is not None and exact:
            raise ValueError(
                'multi_class="exact" takes whole weights, rows that repeat: a power of a '
                'multinomial probit is no such model. Use "ovr" or "softmax" for others.'
            )
        each = classes.size - 1 if exact else classes.size
        settings = self._settings(X.shape[0], each, powers)
        size = settings.batch_size
        settings = replace(
            settings,
            batch_size=None if size is None else max(size // each, 2),
            coarse_size=max(settings.coarse_size // each, 2),
            coarse_above=settings.coarse_above // each,
        )
        definition = estimator.Definition(likelihood=likelihood)
        given = X, codes, lambda _: definition, settings
        return self._fitted(*given, powers=powers, share=0.5 if self.fit_intercept else None)

    def predict_proba(
        self, X: ArrayLike, return_std: bool = False
    ) -> FloatArray | tuple[FloatArray, FloatArray]:
        """Probability of each class.

        Parameters
        ----------
        X : array_like, shape (t, d)
        return_std : bool, default False
            Whether the standard deviation of the probability under the posterior is wanted too:
            how little the data say of it. Exact with two classes, up to draws of the posterior;
            with more it is that of 4000 draws, to a hundredth of itself.

        Returns
        -------
        ndarray, shape (t, n_classes), or two of them
            Probabilities, columns in the order of ``classes_``, which add up to 1; and their
            standard deviations.
        """
        with self._progress():
            p = self._positive(X)
            if p.shape[1] == 1:
                p = np.hstack([1.0 - p, p])
            else:
                p /= p.sum(axis=1, keepdims=True)
            if not return_std:
                return p
            inputs, each = self._checked(X), self._posteriors
            if self._together or len(each) > 1:
                return p, self._by_rows(lambda new: estimator.drawn_sd(each, new), inputs)
            sd = self._by_rows(lambda new: estimator.binary_sd(each[0], new), inputs)
            return p, np.column_stack([sd, sd])

    def decision_function(self, X: ArrayLike) -> FloatArray:
        r"""Probit of the probability, :math:`\Phi^{-1}(p)`, of each class against the rest.

        Parameters
        ----------
        X : array_like, shape (t, d)

        Returns
        -------
        ndarray, shape (t,) or (t, n_classes)
            With two classes, for the second: positive where it is the more probable one.
        """
        p = np.clip(self._positive(X), _LEAST_PROBABILITY, np.nextafter(1.0, 0.0))
        score: FloatArray = ndtri(p)
        return score[:, 0] if score.shape[1] == 1 else score

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Most probable class.

        Parameters
        ----------
        X : array_like, shape (t, d)

        Returns
        -------
        ndarray, shape (t,)
        """
        score = self.decision_function(X)
        chosen = (score > 0).astype(int) if score.ndim == 1 else score.argmax(axis=1)
        labels: NDArray[Any] = self.classes_[chosen]
        return labels

    def _positive(self, X: ArrayLike) -> FloatArray:
        """Probability of each class that was fitted, shape (t, 1) or (t, n_classes)."""
        X = self._checked(X)
        if self._together:
            return self._probabilities(X)
        each = self._posteriors
        return self._by_rows(
            lambda new: np.column_stack([own.probability(new).value for own in each]), X
        )

    def _before(
        self, classes: NDArray[Any], process: dict[str, Any]
    ) -> list[dict[str, NDArray[Any]] | None]:
        """What the last fit has learnt of each class, where this one is to go on from it."""
        if not self.warm_start or not hasattr(self, "hyperparameters_"):
            return []
        then, now = ({"classes": self.classes_, **self._process}, {"classes": classes, **process})
        for name, value in now.items():
            if not np.array_equal(then[name], value):
                raise ValueError(
                    f"warm_start=True goes on from the last fit, of {name} {then[name]}, and now "
                    f"it is {value}: set warm_start=False."
                )
        reports = self.hyperparameters_
        listed = reports if isinstance(reports, list) else [reports]
        if any(isinstance(report, DataTree) for report in listed):
            return []  # an average has no point to go on from
        return [None if report is None else report.point for report in listed]
