r"""What an approximated prior changes: exact against approximate on parts of the data."""

from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from scipy.linalg import solve_triangular

from pymc_skewgp._errors import ApproximationError, PriorApproximationWarning, warn
from pymc_skewgp._gaussian import linalg
from pymc_skewgp._gaussian.weights import Estimate, IntArray
from pymc_skewgp._observations.observations import add_noise, as_matrix
from pymc_skewgp._observations.sites import SiteLikelihood
from pymc_skewgp._posterior import features as bases
from pymc_skewgp._posterior.automatic import ApproximationLoss, loss_of_fit
from pymc_skewgp._posterior.finite_rank_fit import FiniteRankFit, VecchiaFit, finite_rank_fit
from pymc_skewgp._posterior.prior import DataSet, Features, Prior, between_functions
from pymc_skewgp._validation import FloatArray, as_count

_MOST_ROWS = 2000
# Rows at which variances are compared, and rows at which forecasts are, left out of a part.
_ROWS_OF_VARIANCES, _ROWS_OF_FORECASTS = 20_000, 200
# Nats a row, and difference of probabilities, from which on it is warned of: differences of log
# loss between methods are of that size.
_LARGEST_LOSS, _LARGEST_DIFFERENCE = 0.005, 0.02
_ERRORS = 3.0


class Part(NamedTuple):
    """Rows of the data, and other rows at which forecasts are compared."""

    name: str
    seen: IntArray
    new: IntArray


class ReportsPrior:
    """The part of `SkewGPPosterior` that compares its prior with the kernel as it is."""

    @cached_property
    def approximation_loss(self: Any) -> ApproximationLoss | None:
        r"""Log evidence under the kernel itself, less that under the approximated prior: in nats.

        The standard error of `log_marginal_likelihood` is of the evidence *under the approximated
        prior*. What that differs by from the kernel's own is estimated here, from all rows, by
        products with the kernel (for sites and limits to first order, by EP's sites of them). Of
        more than 20,000 rows, and of rows about several values of f each, ``value`` is its mean
        over such data, the divergence, and ``std_error`` how much data scatter around it.

        Has ``value``, ``std_error`` (of this estimate; of more than five nats only the size is
        known, and it is half of the value), and ``divergence``, the Kullback-Leibler
        divergence in nats of the noisy values, exact from approximate. 0 where the prior is the
        kernel as it is. None where it is not known: rows on workers, `Vecchia`, and less than five
        rows a coordinate up to 5000 rows, of which `prior_report` says more.

        References
        ----------
        .. [1] J. Gardner, G. Pleiss, D. Bindel, K. Q. Weinberger & A. G. Wilson (2018), GPyTorch:
           Blackbox matrix-matrix Gaussian process inference with GPU acceleration,
           arXiv:1809.11165.

        Examples
        --------
        >>> import numpy as np
        >>> import pymc as pm
        >>> import pymc_skewgp as sg
        >>> X = np.linspace(0.0, 9.0, 400)[:, None]
        >>> gp = sg.SkewGP(
        ...     cov_func=pm.gp.cov.ExpQuad(1, ls=1.0),
        ...     approximation=sg.approximations.Inducing(12),
        ... )
        >>> known = sg.likelihoods.Gaussian(0.5)
        >>> posterior = gp.posterior(X, np.sin(X[:, 0]), likelihood=known)
        >>> print(f"{posterior.approximation_loss.value:.0f} nat")
        1 nat
        """
        if self.prior.approximation is None:
            return ApproximationLoss(0.0, 0.0, 0.0)
        if not isinstance(self._fit, FiniteRankFit) or isinstance(self._fit, VecchiaFit):
            return None
        return loss_of_fit(self._fit, replace(self.prior, approximation=None))

    def prior_report(self: Any, n_rows: int = 1000, *, random_seed: int = 0) -> xr.Dataset:
        """What the approximation of the prior changes, compared on parts of the data.

        Two parts are taken, the neighbourhood of a row and random rows. Given each of them alone
        the kernel as it is and its approximation are compared, at 200 rows that were left out.

        Parameters
        ----------
        n_rows : int, default 1000
            Rows of each part, at most 2000: matrices of them are factorised.
        random_seed : int, default 0
            Which rows.

        Returns
        -------
        Dataset
            ``residual_variance_mean``, ``_max`` and ``residual_share_mean``: variance of f that
            the features leave. By ``part``: ``kl_u``, the Kullback-Leibler divergence in nats of
            the noisy values that the labels limit (NaN under sites); ``log_evidence_exact`` and
            ``log_evidence``, with standard errors ``_se``; ``f_mean_difference``, in posterior
            standard deviations; ``p_difference_mean`` and ``p_difference_max`` of labels; at each
            ``point`` ``p_exact``, ``p``, ``f_mean_exact``, ``f_mean`` (of several functions their
            values follow each other, and p is NaN). ``ep_log_evidence``: expectation
            propagation's on all rows, with these features and with twice as many; of `Vecchia`
            with twice as many neighbours.
            `plot_prior_report` draws it.

        Raises
        ------
        ApproximationError
            Where the prior is not approximated, and for data of several kinds.

        Warns
        -----
        PriorApproximationWarning
            Where the evidence is off by more than .005 nats a row, or probabilities by more than
            .02 on average: forecasts would show it.
        """
        return _report(self, as_count("n_rows", n_rows), as_count("random_seed", random_seed, 0))


def _report(posterior: Any, n_rows: int, seed: int) -> xr.Dataset:
    asked, data = posterior.prior.approximation, _only(posterior)
    if asked is None:
        raise ApproximationError(
            "the prior of this posterior is the kernel as it is: there is nothing to report."
        )
    exact = replace(posterior.prior, approximation=None)
    X = data.X
    features, twice = asked.features(exact, X), asked.doubled().features(exact, X)
    # What the features leave of the variance of f, at many rows.
    some, rng = X, np.random.default_rng(seed)
    if X.shape[0] > _ROWS_OF_VARIANCES:
        some = X[np.sort(rng.choice(X.shape[0], _ROWS_OF_VARIANCES, replace=False))]
    left = bases.residual_variances(exact, features, some)
    share = left / np.maximum(bases.function_variances(exact, some), np.finfo(float).tiny)
    variances = {
        "residual_variance_mean": left.mean(),
        "residual_variance_max": np.abs(left).max(),
        "residual_share_mean": share.mean(),
    }
    parts = _parts(exact, data.X, min(n_rows, _MOST_ROWS), np.random.default_rng(seed))
    names = xr.IndexVariable("part", [part.name for part in parts])
    by_part = xr.concat([_of_part(posterior, part, features) for part in parts], dim=names)
    # EP's evidence on all rows, with these features and with twice as many.
    priors = [replace(exact, cov_func=bases.FiniteRankKernel(x)) for x in (features, twice)]
    fits: Any = [
        finite_rank_fit(*known, (data,)) for known in zip(priors, (features, twice), strict=True)
    ]
    rank = [features.rank, twice.rank]
    ranks = {
        "ep_log_evidence": xr.DataArray(
            [fit.ep_log_evidence for fit in fits], dims="features", attrs={"ranks": rank}
        ),
        "rank": xr.DataArray(rank, dims="features"),
    }
    found = xr.merge([xr.Dataset(variances), by_part, xr.Dataset(ranks)])
    found.attrs = {"approximation": repr(asked), "n_rows": data.X.shape[0]}
    _warn(found)
    return found


def _only(posterior: Any) -> DataSet:
    sets = posterior._sets
    if len(sets) > 1 or sets[0].likelihood.y_dim != "obs_id":
        raise ApproximationError(
            "prior_report compares posteriors given some of the rows, and needs data of one kind "
            "in which each observation is one row of X."
        )
    return sets[0]


def _parts(exact: Prior, X: FloatArray, n_rows: int, rng: np.random.Generator) -> list[Part]:
    """A neighbourhood of a row, in units of the kernel, and a random part."""
    n = X.shape[0]
    size = min(n, n_rows + _ROWS_OF_FORECASTS)
    new = max(1, min(_ROWS_OF_FORECASTS, size // 5))
    some = X[rng.choice(n, min(n, 5000), replace=False)]
    scaled = (X - X[rng.integers(n)]) * bases.column_scales(exact, some, rng)
    near = np.argsort(np.einsum("ij,ij->i", scaled, scaled), kind="stable")[:size]
    anywhere = rng.choice(n, size, replace=False)
    parts = []
    for name, chosen in (("neighbourhood", near), ("random", anywhere)):
        mixed = rng.permutation(chosen)
        parts.append(Part(name, np.sort(mixed[new:]), np.sort(mixed[:new])))
    return parts


def _of_part(posterior: Any, part: Part, features: Features) -> xr.Dataset:
    """Evidence, forecasts and KL, given these rows alone."""
    data = _only(posterior)
    seen, new = data.part(part.seen), data.X[part.new]
    with_kernel = replace(posterior.prior, approximation=None)
    with_features = replace(with_kernel, cov_func=bases.FiniteRankKernel(features))
    found: dict[str, Any] = {"n_seen": part.seen.size, "kl_u": _kl(with_kernel, features, seen)}
    f, p = [], []
    for suffix, prior in (("_exact", with_kernel), ("", with_features)):
        own = posterior._given(prior, (seen,))
        evidence: Estimate = own.log_marginal_likelihood
        f.append(own.marginals(new).moments)
        p.append(_probability(own, new, f[-1].mean.size))
        found |= {
            f"log_evidence{suffix}": evidence.value,
            f"log_evidence{suffix}_se": evidence.std_error,
            f"p{suffix}": ("point", p[-1]),
            f"f_mean{suffix}": ("point", f[-1].mean),
        }
    difference = np.abs(p[0] - p[1])
    found["p_difference_mean"], found["p_difference_max"] = difference.mean(), difference.max()
    square = np.mean((f[0].mean - f[1].mean) ** 2)
    return xr.Dataset(found | {"f_mean_difference": np.sqrt(square / np.mean(f[0].sd ** 2))})


def _probability(posterior: Any, new: FloatArray, size: int) -> FloatArray:
    """Of a label 1; NaN for each value of f where there are no such labels."""
    try:
        return posterior.probability(new).value
    except TypeError:
        return np.full(size, np.nan)


def _kl(exact: Prior, features: Features, data: DataSet) -> float:
    """KL of u, the noisy values that rows limit, exact from approximate; NaN where there are none.

    It is what labels are expected to lose, at most, in nats.
    """
    if isinstance(data.likelihood, SiteLikelihood):
        return float("nan")
    rows = data.rows()
    design = as_matrix(rows.A, rows.n_rows)
    noise = np.zeros((rows.n_rows, rows.n_rows))
    add_noise(noise, rows.S)
    between = between_functions(exact, data.values.n_functions)
    factors = []
    for matrix in (exact.covariance("X", data.X), bases.FiniteRankKernel(features)(data.X)):
        values = np.kron(matrix, between)
        cov = np.asarray(design @ (design @ values).T) + noise
        factors.append(linalg.cholesky("the covariance of u", linalg.symmetric(cov))[0])
    ratio = solve_triangular(factors[1], factors[0], lower=True)
    log_det = np.log(factors[1].diagonal()).sum() - np.log(factors[0].diagonal()).sum()
    return float(0.5 * ((ratio**2).sum() - rows.n_rows) + log_det)


def _warn(report: xr.Dataset) -> None:
    """Where the approximation would be seen in forecasts."""
    loss = np.abs(report["log_evidence"] - report["log_evidence_exact"])
    error = np.hypot(report["log_evidence_se"], report["log_evidence_exact_se"])
    loss = np.maximum(loss - _ERRORS * error, 0.0) / report["n_seen"]
    gain = float(np.diff(report["ep_log_evidence"])[0]) / report.attrs["n_rows"]
    off = float(report["p_difference_mean"].max())
    reasons = []
    if float(loss.max()) > _LARGEST_LOSS:
        worst = str(report["part"].values[int(np.argmax(np.asarray(loss)))])
        reasons.append(f"its evidence is off by {float(loss.max()):.3f} nats a row ({worst})")
    if abs(gain) > _LARGEST_LOSS:
        reasons.append(f"twice as many features change EP's evidence by {gain:+.3f} nats a row")
    if off > _LARGEST_DIFFERENCE:
        reasons.append(f"probabilities of labels are off by {off:.3f} on average")
    if reasons:
        warn(
            f"{report.attrs['approximation']} differs from the kernel as it is: "
            f"{'; '.join(reasons)}. Raise the rank (of HSGP also c, of Vecchia m), or take a "
            "smoother kernel.",
            PriorApproximationWarning,
            stacklevel=4,
        )
