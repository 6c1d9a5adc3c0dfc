"""Functions at the data and at new points given rows or factors: what forecasts ask of a fit."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pymc_skewgp._errors import NotSitesError
from pymc_skewgp._gaussian import escalation, linalg, truncated
from pymc_skewgp._gaussian import weights as w
from pymc_skewgp._gaussian.blocks.beside import RowsBeside, refuse_contradictory_constraints
from pymc_skewgp._gaussian.coordinate_gaussian import SiteLogDensity
from pymc_skewgp._gaussian.covariance import predictor_covariance
from pymc_skewgp._gaussian.truncated import TruncatedDraws
from pymc_skewgp._gaussian.twisted import Rung
from pymc_skewgp._observations.likelihood import Derivative, Values
from pymc_skewgp._observations.observations import Observations, equal_rows
from pymc_skewgp._observations.sites import Sites
from pymc_skewgp._posterior import prior as priors
from pymc_skewgp._posterior.conditioning import Conditioning, Regression, as_dense, process_given
from pymc_skewgp._posterior.prior import Prior
from pymc_skewgp._posterior.site_evidence import SiteDraws
from pymc_skewgp._sun.parameters import SunParameters, naming_the_labels
from pymc_skewgp._validation import FloatArray, Seed, as_generator

_PAIRS = 256  # of points, whose covariances are read off the diagonal of a matrix
Method = Literal["twisted", "lin_ess"]
# Weighted draws that a chain is resampled from, at least: one draw alone would be the proposal's.
LEAST_WEIGHTED = 128
NOTHING_DRAWN = w.Estimate(0.0, 0.0, 1.0, -np.inf)


class FunctionFit:
    """K functions at the pseudo-points, at the data and at new points, given the data.

    A latent vector is drawn, and given it the functions are Gaussian: where the data are rows the
    rectangle u; where there are sites, functions p(y_i | eta_i) of one predictor each, coordinates
    c of the functions given the points, :math:`z = m + F c`, in mirrored pairs from EP's Gaussian
    under all sites and rows.

    Parameters
    ----------
    prior : Prior
        Of each function; they are independent in the prior, but for its coregion.
    parts : sequence of Values
        What the data are about.
    rows : Observations or Conditioning, optional
        Rows of these values, none of them where all data are sites; or f given these. None of a fit
        that has no use for them.
    constrained : ndarray of bool, shape (m,)
        Which of the rows that are intervals are constraints, which may contradict each other or the
        data.
    sites : Sites, optional

    Attributes
    ----------
    n_functions : int
        K, as many as the data are about.
    n_latent : int
        K times the number of pseudo-points.
    """

    def __init__(
        self,
        prior: Prior,
        parts: Sequence[Values],
        rows: Observations | Conditioning | None = None,
        constrained: NDArray[np.bool_] | None = None,
        sites: Sites | None = None,
    ) -> None:
        self._prior, self._parts, self._given = prior, tuple(parts), rows
        self._constrained, self._sites = constrained, sites
        self._draws_rows = rows is not None and sites is None
        self.n_functions = max(part.n_functions for part in parts)
        self.n_latent = prior.n_pseudo_points * self.n_functions
        self._everything = after_pseudo_points(prior, self._parts)

    @cached_property
    def conditioning(self) -> Conditioning:
        """Of f at the pseudo-points and at the data, given the rows."""
        if isinstance(self._given, Conditioning):
            return self._given
        assert self._given is not None
        return conditioned(self._prior, self._parts, self._given)

    @cached_property
    def sampler(self) -> Any:
        """EP and proposals of the latent vector, which the evidence and all draws share."""
        given = self.conditioning
        if self._sites is not None:
            return site_draws(given, self._sites, self.n_latent, self._constrained).sampler
        sampler = escalation.RectangleSampler(given.cov, given.lower, given.upper)
        if self._constrained is not None and self._constrained.any():
            rows = np.flatnonzero(self._constrained) + self.n_latent
            refuse_contradictory_constraints(sampler, rows, given.intervals.variances[rows])
        return sampler

    @property
    def fitted(self) -> bool:
        """Whether EP and its proposal are there: what is asked next only draws from them."""
        return "sampler" in vars(self) and (not self._draws_rows or self.sampler.fitted)

    def latent(self, n_draws: int, random_seed: Seed) -> TruncatedDraws:
        """Weighted draws of the latent vector, and the log probability of all but the points.

        Of coordinates both members of `n_draws` mirrored pairs.
        """
        if not self._draws_rows:
            found: TruncatedDraws = self.sampler.members(n_draws, as_generator(random_seed))
            return found
        count = n_draws if self.sampler.size else 1  # without u there is nothing to draw
        return self._rows_drawn(count, "twisted", random_seed)

    @property
    def _rows_drawn(self) -> Callable[..., TruncatedDraws]:
        """See `draw_latent`."""
        return partial(draw_latent, self.sampler, n_pseudo_points=self.n_latent)

    def equal_draws(
        self, shape: tuple[int, int], method: str, rng: np.random.Generator, thin: int = 1
    ) -> tuple[TruncatedDraws, w.IntArray]:
        """Draws of the latent vector, and which of them to take, `shape` being (chains, draws).

        Of coordinates one member of each mirrored pair; ValueError for another method than
        "twisted".
        """
        chains, draws = shape
        count = max(draws, LEAST_WEIGHTED) * chains
        if self._draws_rows:
            if method == "lin_ess" or not self.sampler.size:  # equal, and a chain's order matters
                count = draws * chains
                latent = self._rows_drawn(count, method, rng, chains=chains, thin=thin)
                return latent, np.arange(count).reshape(shape)
            latent = self._rows_drawn(count, method, rng)
            return latent, w.systematic_rows(latent.log_weights.reshape(chains, -1), draws, rng)
        refuse_method(method)
        latent = self.sampler.singles(count, rng)
        chosen = w.systematic_rows(latent.log_weights.reshape(chains, -1), draws, rng)
        if latent.replicate is None:
            # A coordinate of evenly spaced points goes up and down with their order.
            chosen = w.together(chosen, latent.log_weights.size, rng)
        return latent, chosen

    def draw(
        self,
        latent: TruncatedDraws,
        chosen: w.IntArray,
        rng: np.random.Generator,
        rows: w.IntArray | None = None,
    ) -> FloatArray:
        """Draws of f at the data, all parts in a row, shape (chains, draws, q).

        From draws of the latent vector, and which of them; of data of one part, at some `rows`.
        """
        given, s, k = self.conditioning, self.n_latent, self.n_functions
        at: Any = slice(None) if rows is None else (k * rows[:, None] + np.arange(k)).ravel()
        if self._draws_rows:
            f = given.draw(latent.draws, rng, chosen.ravel(), skip=s)[:, at]
        else:  # c says all of f at the data
            f = latent.draws[chosen.ravel()] @ given.factor[s:][at].T
            f += given.mean[s:][at]
        return f.reshape(*chosen.shape, -1)

    def sun(self) -> SunParameters:
        """Of f at the data, one latent dimension for each row of u.

        Raises
        ------
        ValueError
            For observations with two finite limits, and under sites.
        """
        given, s = self.conditioning, self.n_latent
        if not self._draws_rows:
            raise ValueError(
                "under a likelihood that is not made of intervals the posterior of f is no SUN: "
                "use sample, predict or marginals."
            )
        above = np.isposinf(given.upper)
        if not (above | np.isneginf(given.lower)).all():
            raise ValueError(
                "a SUN has one-sided latent limits, and some observations have two: use sample, "
                "predict or marginals."
            )
        side = np.where(above, 1.0, -1.0)
        factor, row_factor = given.factor[s:], side[:, None] * given.row_factor
        return SunParameters(
            given.mean[s:],
            factor @ factor.T,
            factor @ row_factor.T,
            np.where(above, -given.lower, given.upper),
            side[:, None] * given.cov.dense() * side,
        )

    @property
    def n_kept(self) -> int | None:
        """Length of the latent vector, where that is kept of draws, and not f at the data."""
        return None

    def given_coordinates(
        self, coordinates: FloatArray, rng: np.random.Generator, rows: w.IntArray
    ) -> FloatArray:
        """Draws of f at some rows of data of one part, given rows of kept coordinates."""
        raise ValueError("the draws are not of this posterior, which keeps no coordinates.")

    def by_factors(self) -> "FunctionFit":
        """The same with intervals that repeat as factors of their predictors, where some do.

        Rows drawn one by one would share a tail of f that all draws miss.
        """
        rows = self._given
        if not self._draws_rows or not isinstance(rows, Observations):
            return self
        equal = equal_rows(rows)
        given, few = None, rows
        if equal.first.size < rows.n_rows:
            few = replace(rows.rows(equal.first), log_constant=rows.log_constant)
            given = conditioned(self._prior, self._parts, few)
        elif rows.is_point.all():
            return self
        given = given or self.conditioning
        own = ~few.is_point
        every = np.zeros(rows.n_rows, dtype=bool)
        every[~rows.is_point] = self._constrained
        constrained = every[equal.first][own]
        left = constrained | (few.variances[own] <= 0.0)
        kept = np.concatenate([np.ones(self.n_latent, dtype=bool), left])
        counts = np.concatenate([np.ones(self.n_latent), equal.counts[own]])
        found = given.with_factors(counts, kept, self.n_latent)
        if found is None:
            return self
        given, sites = found
        fit = FunctionFit(self._prior, self._parts, given, constrained[left], sites)
        return self if few is rows and fit.sampler.collapsed else fit

    def averaged(
        self, regression: Regression, joint: FloatArray | None
    ) -> tuple[Regression, FloatArray | None]:
        """What `latent` has no draws of, averaged over: a regression on what it has.

        And the covariance of new points given the latent vector as one given what `latent` has.
        """
        return regression, joint

    def evidence(self, joint: w.Estimate, signs: w.Estimate) -> w.Estimate:
        """Log evidence, from the probability of the rectangle and that of the prior's signs."""
        value, std_error, _, _ = w.add_estimates(self.conditioning.log_density, joint, signs)
        return joint._replace(value=value, std_error=std_error)

    def prior_log_prob(self, n_draws: int) -> w.Estimate:
        """Log probability of the signs at the pseudo-points, before any data."""
        return priors.log_prob_of_signs(self._prior, self.n_functions, n_draws)

    def regression(
        self, new: FloatArray | None, *, joint: bool = False, derivative: Derivative | None = None
    ) -> Regression:
        """At new points; for None at the data, which are not new points at their inputs."""
        prior, _ = self._prior, self.conditioning  # first: what is wrong at the data is named
        if new is None:
            return self._here(joint, self.n_functions if len(self._parts) == 1 else 1)
        at = Values(new, self.n_functions, derivative)
        return self._regression_at(at, priors.variances_of(prior, "Xnew", at), joint)

    def _here(self, joint: bool, group: int) -> Regression:
        """Of f at the data; whether jointly, and of how many values together."""
        given, s = self.conditioning, self.n_latent
        if self._draws_rows:
            return given.regression(skip=s, joint=joint, group=group)
        mean, factor = given.mean[s:], given.factor[s:]
        shape = (mean.size // group, group, group)
        covariance = None if group == 1 else np.zeros(shape)
        taken = factor @ factor.T if joint else None
        return Regression(mean, np.zeros(mean.size), factor.T, taken, covariance)

    def pair_regression(self, a: FloatArray, b: FloatArray) -> Regression:
        """Of the first function at pairs of points, rows of `a` and `b` by turns."""
        prior, _ = self._prior, self.conditioning
        at = Values(np.stack([a, b], axis=1).reshape(-1, a.shape[1]))
        covariance = np.zeros((a.shape[0], 2, 2))
        covariance[:, [0, 1], [0, 1]] = priors.variances_of(prior, "Xnew", at).reshape(-1, 2)
        for start in range(0, a.shape[0], _PAIRS):
            block = slice(start, start + _PAIRS)
            between = priors.covariance_of(prior, "Xnew", [Values(a[block])], [Values(b[block])])
            covariance[block, 0, 1] = covariance[block, 1, 0] = between.diagonal()
        return self._regression_at(at, covariance)

    def _regression_at(self, at: Values, variance: FloatArray, joint: bool = False) -> Regression:
        cross = priors.covariance_of(self._prior, "Xnew", self._everything, [at])
        mean, own = priors.mean_of(self._prior, "Xnew", [at]), not self._draws_rows
        return self.conditioning.regression_at(
            mean, variance, cross, joint=joint, on_coordinates=own
        )

    def covariance_at(self, new: FloatArray, regression: Regression) -> FloatArray | None:
        """Of f at t new points given u, shape (t K, t K); None where it is too large to be kept."""
        assert regression.taken is not None
        at = [Values(new, self.n_functions)]
        return linalg.symmetric(priors.covariance_of(self._prior, "Xnew", at) - regression.taken)

    def draw_at(
        self,
        regression: Regression,
        covariance: FloatArray | None,
        shape: tuple[int, int],
        rng: np.random.Generator,
    ) -> FloatArray:
        """Joint draws of f at t new points, shape (chains, draws, t K)."""
        assert covariance is not None
        latent, chosen = self.equal_draws(shape, "twisted", rng)
        sd = np.sqrt(priors.between_functions(self._prior, self.n_functions).diagonal())
        units = np.tile(sd, covariance.shape[0] // sd.size)
        factor = units[:, None] * linalg.low_rank_factor(covariance / units / units[:, None])
        f = regression.centre[:, None] + (latent.draws[chosen.ravel()] @ regression.solved).T
        f += factor @ rng.standard_normal((factor.shape[1], f.shape[1]))
        return f.T.reshape(*shape, -1)


def after_pseudo_points(prior: Prior, parts: Sequence[Values]) -> list[Values]:
    """The functions at the pseudo-points, where there are any, and then these values of them."""
    if not prior.n_pseudo_points:
        return list(parts)
    return [Values(prior.pseudo_points, max(part.n_functions for part in parts)), *parts]


def conditioned(prior: Prior, parts: Sequence[Values], rows: Observations) -> Conditioning:
    """The functions at the pseudo-points, and these values of them, given rows of the first."""
    everything, k = after_pseudo_points(prior, parts), max(part.n_functions for part in parts)
    return process_given(
        priors.factored_covariance_of(prior, "X", everything),
        priors.mean_of(prior, "X", parts),
        np.repeat(prior.phase, k),
        np.repeat(prior.truncation, k),
        rows,
    )


def refuse_method(method: str) -> None:
    """Raise ValueError for a method that knows rows only."""
    if method != "twisted":
        raise ValueError(
            f"method={method!r} draws a number within limits for each row of the data, and here "
            'coordinates of f are drawn: leave method at its default, "twisted".'
        )


def draw_latent(
    sampler: escalation.RectangleSampler,
    n_draws: int,
    method: str,
    random_seed: Seed,
    *,
    n_pseudo_points: int,
    chains: int = 1,
    thin: int = 1,
) -> TruncatedDraws:
    """Draws of u: weighted and near-independent ones ("twisted"), or Markov chains ("lin_ess")."""
    if method not in ("twisted", "lin_ess"):
        raise ValueError(f'method must be "twisted" or "lin_ess", got {method!r}.')
    if not sampler.size:  # points only: f itself is Gaussian
        return TruncatedDraws(np.zeros((n_draws, 0)), np.zeros(n_draws), NOTHING_DRAWN, "exact")
    rng = as_generator(random_seed)
    with naming_the_labels(n_pseudo_points):
        if method == "twisted":
            return truncated.draws_by(sampler, n_draws, rng)
        return truncated.lin_ess_draws_by(sampler, n_draws, rng, n_chains=chains, thin=thin)


# Predictors of sites as functions of a Gaussian vector's coordinates, and draws of these.

_EP_TOLERANCE = 1e-2  # of sampling: weights make up for what is left


def site_log_density(given: Conditioning, sites: Sites, skip: int) -> SiteLogDensity:
    """Log density of the sites in the coordinates of z, of whose values the first `skip` have none.

    Raises
    ------
    ValueError
        Where it is not finite at the mean of z.
    """
    offset = sites.of(given.mean[skip:]) + sites.a
    with np.errstate(all="ignore"):
        wrong = ~np.isfinite(sites.log_prob(offset))
    if wrong.any():
        i = int(np.argmax(wrong))
        raise ValueError(
            f"the log likelihood is not finite in {int(wrong.sum())} of {wrong.size} rows at the "
            f"mean of the prior given exact data: row {i} has the predictor {offset[i]:.3g}. Give "
            "a mean_func where the data are possible, or check y."
        )
    return SiteLogDensity(sites.log_prob, offset, sites.of(given.factor[skip:]))


def site_draws(
    given: Conditioning,
    sites: Sites,
    skip: int,
    constrained: NDArray[np.bool_] | None = None,
    *,
    tol: float = _EP_TOLERANCE,
    rung: Rung = escalation.DEFAULT.first,
) -> SiteDraws:
    """A conditioned vector z = mean + factor c under sites; its rows are intervals.

    Parameters
    ----------
    given : Conditioning
    sites : Sites
        Of the values of z after its first `skip`.
    skip : int
    constrained : ndarray of bool, optional
        Which of the rows after the first `skip` are constraints.
    tol, rung
        See `SiteDraws`.
    """
    if sites.width > 1:
        raise NotSitesError(
            "a likelihood of several functions does not stand beside pseudo-points here.",
            "Use SkewGP.posterior, or a SkewGP without pseudo_points.",
        )
    density = site_log_density(given, sites, skip)
    if not given.n_rows:
        cov = predictor_covariance(density.factor)
        return SiteDraws(density, sites.slopes, cov, None, tol)
    nugget = np.zeros(given.n_rows)
    if constrained is not None:
        nugget[skip:] = np.where(constrained, given.intervals.variances[skip:], 0.0)
    noise = given.intervals.S if given.intervals.S.ndim == 1 else as_dense(given.intervals.S)
    rows = RowsBeside(given.row_factor, given.lower, given.upper, noise, nugget)
    cov = predictor_covariance(np.vstack([given.row_factor, density.factor]), noise)
    return SiteDraws(density, sites.slopes, cov, rows, tol, rung)
