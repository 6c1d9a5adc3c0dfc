"""Kernels that tell the data from new points: each row has noise of its own, which no other shares.

As PyMC has it: ``cov(X)`` has the white noise on its diagonal, also where two rows are equal;
``cov(X, Xs)`` has none, even where Xs equals X. So f at the data has the noise of their rows, and f
at new points another one, whatever their inputs.

Monte Carlo: `agree` takes 16 independent seeds and asks that their mean is within 5 of its own
standard errors of the truth, a t statistic of 15 degrees: false alarms 1.6e-4 a number for a new
seed, none for the seeds fixed here. Draws are compared by their own standard errors, as said there.
"""

from functools import cache
from typing import NamedTuple

import arviz as az
import numpy as np
import pymc as pm
import pytest
from approximation_oracles import ExactMarginals, exact_marginals
from oracles import probit_posterior_quadrature
from scipy.integrate import quad
from scipy.stats import norm

import pymc_skewgp as sg
from pymc_skewgp._model.gp.functions import ArrayCovariance
from pymc_skewgp._posterior.gaussian_posterior import ep_posterior

N_SEEDS = 16
cov = pm.gp.cov


def smooth(A, B):
    return np.exp(-0.5 * (A - B.T) ** 2)


def noisy_function(X, Xs=None, diag=False):
    """A kernel on arrays with noise where Xs is missing, as PyMC's."""
    if diag:
        return np.full(len(X), 1.0 + 9.0)
    return smooth(X, X) + 9.0 * np.eye(len(X)) if Xs is None else smooth(X, Xs)


def shared_function(X, Xs=None, diag=False):
    """A function of two inputs and nothing else: what it has at equal inputs, they share."""
    if diag:
        return np.full(len(X), 1.0 + 9.0)
    Xs = X if Xs is None else Xs
    return smooth(X, Xs) + 9.0 * (Xs.T == X)


@cache
def on_arrays(function):
    """Compiled once."""
    return ArrayCovariance(function) if isinstance(function, cov.BaseCovariance) else function


class Kernel(NamedTuple):
    function: object  # a pm.gp.cov object, or a function of arrays
    own: object  # the matrix of one set of rows, from their smooth part S and the identity
    between: object  # of two sets, from S

    def posterior(self, x, y, **options):
        return sg.SkewGPPosterior(x, y, cov_func=on_arrays(self.function), **options)

    def joint(self, *blocks):
        """Prior covariance of f at blocks of rows, each of them a different one."""
        rows = [
            [
                self.own(smooth(a, a), np.eye(len(a))) if i == j else self.between(smooth(a, b))
                for j, b in enumerate(blocks)
            ]
            for i, a in enumerate(blocks)
        ]
        return np.block(rows)


KERNELS = {
    "sum": Kernel(
        cov.ExpQuad(1, ls=1.0) + cov.WhiteNoise(3.0), lambda S, one: S + 9.0 * one, lambda S: S
    ),
    "alone": Kernel(cov.WhiteNoise(1.5), lambda S, one: 2.25 * one, lambda S: 0.0 * S),
    "product": Kernel(
        cov.ExpQuad(1, ls=1.0) * cov.WhiteNoise(1.5) + 2.0 * cov.ExpQuad(1, ls=1.0),
        lambda S, one: 2.25 * one + 2.0 * S,
        lambda S: 2.0 * S,
    ),
    "power": Kernel(
        (cov.ExpQuad(1, ls=1.0) + cov.WhiteNoise(1.2)) ** 2,
        lambda S, one: (S + 1.44 * one) ** 2,
        lambda S: S**2,
    ),
    "function": Kernel(noisy_function, lambda S, one: S + 9.0 * one, lambda S: S),
}
SUM = KERNELS["sum"]
# Two rows with labels, apart or equal; the first of the new points is at the first row.
ROWS = {"apart": np.array([[0.3], [1.1]]), "tied": np.array([[0.3], [0.3]])}
NEW = np.array([[0.3], [0.3], [-0.8]])
Y = np.array([1, 0])
SIGN = np.array([1.0, -1.0])


def agree(values, truth):
    """The mean over seeds (first axis) is `truth`; see the head of this file."""
    values = np.asarray(values)
    error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
    # The floor is the oracle's own error, and all there is where nothing is random.
    gap = np.abs(values.mean(axis=0) - truth) / (5.0 * error + 1e-8)
    assert gap.max() < 1.0, f"{gap.max():.2f} tolerances off: {values.mean(axis=0)}, not {truth}"


def truth(kernel, x, new=NEW) -> ExactMarginals:
    """By quadrature, at the rows and then at the new points."""
    return exact_marginals(kernel.joint(x, new), SIGN)


# Each kernel at rows that are apart or equal.
CASES = [
    ("sum", "tied"), ("alone", "apart"), ("product", "tied"), ("power", "apart"),
    ("function", "apart"),
]  # fmt: skip


class TestMarginals:
    @pytest.mark.parametrize(("name", "rows"), CASES)
    def test_at_the_data_and_at_new_points(self, name, rows):
        """At the data f ~ N(0, K) with the noise in K, by quadrature over f itself.

        New points have noise of their own, at the very inputs of the data, and no share of that of
        the data.
        """
        kernel, x = KERNELS[name], ROWS[rows]
        posteriors = [kernel.posterior(x, Y, random_seed=i) for i in range(N_SEEDS)]
        at_data = probit_posterior_quadrature(kernel.joint(x), Y)
        found = [p.marginals().moments for p in posteriors]
        agree([m.mean for m in found], at_data.mean)
        agree([m.sd for m in found], np.sqrt(at_data.cov.diagonal()))
        agree([m.skewness for m in found], at_data.skewness)
        wanted = truth(kernel, x)
        agree([p.probability(NEW).value for p in posteriors], wanted.p()[2:])
        found = [p.marginals(NEW) for p in posteriors]
        for moment, want in zip(("mean", "sd", "skewness"), wanted.moments(), strict=True):
            agree([getattr(at.moments, moment) for at in found], want[2:])
        agree([at.cdf(np.zeros(3)).value for at in found], wanted.cdf(np.zeros(5))[2:])

    def test_what_equal_inputs_share_new_points_share(self):
        """A function of two inputs tells no data from new points: the same f at both."""
        posterior = sg.SkewGPPosterior(ROWS["apart"], Y, cov_func=shared_function)
        at, new = posterior.marginals(), posterior.marginals(ROWS["apart"])
        # The covariance at the data is a product of factors: round-off.
        np.testing.assert_allclose(at.means, new.means, rtol=1e-10)
        np.testing.assert_allclose(at.variance, new.variance, rtol=1e-10)


class TestPseudoPoints:
    def test_a_pseudo_point_at_a_row_has_noise_of_its_own(self):
        """f(r) > 0 at the input of the one row, whose label is 0.

        With f(r) integrated out the density of f(x) is N(f; 0, v) Phi(-f) Phi(b f), b from the
        covariance 1 of the two, which have variance 10 each.
        """
        v, b = 10.0, 0.1 / np.sqrt(10.0 - 0.1)
        for function in (SUM.function, noisy_function):
            kernel = Kernel(function, SUM.own, SUM.between)

            def density(f):
                return norm.pdf(f, scale=np.sqrt(v)) * norm.cdf(-f) * norm.cdf(b * f)

            powers = [quad(lambda f, k=k: f**k * density(f), -40, 40)[0] for k in range(3)]
            mean = powers[1] / powers[0]
            sd = np.sqrt(powers[2] / powers[0] - mean**2)
            found = [
                kernel.posterior([[0.3]], [0], pseudo_points=[[0.3]], random_seed=i)
                for i in range(N_SEEDS)
            ]
            agree([[p.marginals().moments.mean[0]] for p in found], mean)
            agree([[p.marginals().moments.sd[0]] for p in found], sd)
            # P(f(r) > 0) is 1/2, and the label's row counts in the density above.
            agree([[p.log_marginal_likelihood.value] for p in found], np.log(2.0 * powers[0]))


@pytest.mark.parametrize("name", ["sum", "function"])
def test_joint_draws(name):
    """At the data and at new points, two of them one input of the data: 20000 draws each.

    Their effective sample size is 4 in 5 of them at least; 5 standard errors, 5 for deviations of a
    kurtosis up to 5, for ten numbers: false alarms 1e-5.
    """
    kernel, x = KERNELS[name], ROWS["apart"]
    posterior = kernel.posterior(x, Y, n_draws=16384)
    here = posterior.sample(5000, 4, random_seed=1)["posterior"]["f"].values.reshape(-1, 2)
    new = posterior.predict(NEW, draws=5000, random_seed=2)["predictions"]["f"]
    f = np.concatenate([here, new.values.reshape(-1, 3)], axis=1)
    mean, sd, _ = truth(kernel, x).moments()
    assert (np.abs(f.mean(axis=0) - mean) < 5 * sd / np.sqrt(16_000)).all()
    assert (np.abs(f.std(axis=0) / sd - 1) < 5 * 1.5 / np.sqrt(2 * 16_000)).all()
    # Equal inputs share the smooth part alone, of variance below 1: an error of .07 for a product
    # of two deviations of 3.2.
    assert np.cov(f[:, 2], f[:, 3])[0, 1] < 1.0 + 5 * 0.08


def test_ep():
    """Its moments are all but exact."""
    x = ROWS["apart"]
    found = ep_posterior(SUM.posterior(x, Y).prior, x, Y, NEW)
    mean, sd, _ = truth(SUM, x).moments()
    np.testing.assert_allclose(found.mean, mean, atol=0.01)
    np.testing.assert_allclose(np.sqrt(found.cov.diagonal()), sd, rtol=0.01)
    assert found.cov[2, 3] < 1.0


class TestOfAModel:
    def test_latent_draws(self):
        """f at two equal rows and at new points for each draw of a trace, by quadrature.

        300 independent draws: means to 5 errors, deviations to 5 of 1.5 / sqrt(2 N) for a
        kurtosis up to 5: 10 numbers, false alarms 1e-5.
        """
        x = ROWS["tied"]
        with pm.Model():
            gp = sg.SkewGP(cov_func=SUM.function)
            gp.marginal_likelihood("y", x, Y)
        trace = az.from_dict({"posterior": {"a": np.zeros((1, 300))}})
        tree = gp.sample_latent(trace, Xnew=NEW, random_seed=4, progressbar=False)
        f = np.concatenate(
            [tree[group]["f"].values.reshape(300, -1) for group in ("posterior", "predictions")],
            axis=1,
        )
        mean, sd, _ = truth(SUM, x).moments()
        assert (np.abs(f.mean(axis=0) - mean) < 5 * sd / np.sqrt(300)).all()
        assert (np.abs(f.std(axis=0) / sd - 1.0) < 5 * 1.5 / np.sqrt(600)).all()
        p = tree["predictions"]["p"].mean(("chain", "draw")).values
        # A probability has a deviation below 1/2.
        np.testing.assert_allclose(p, truth(SUM, x).p()[2:], atol=5 * 0.5 / np.sqrt(300))
