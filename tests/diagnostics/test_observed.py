"""Data of sites as PyMC's variables: PyMC's log probability against that of the likelihood."""

import numpy as np
import pymc as pm
import pytest
from likelihood_cases import GIVEN

import pymc_skewgp as sg
from pymc_skewgp._diagnostics.approximations import Problem, observe

of = sg.likelihoods
X = np.array([[-1.0], [0.0], [1.5]])
F = np.array([0.3, -1.2, 0.8])
ROWS = [
    (case.kind(**case.arguments_of(3)), case.data(3))
    for case in GIVEN.values()
    if case.likelihood.in_pymc(0.0, np.exp) is not None
]


def problem(likelihood, y):
    """Three data."""
    return Problem(
        sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)),
        {},
        None,
        X,
        y,
        X[:0],
        likelihood=likelihood,
    )


@pytest.mark.parametrize(
    ("likelihood", "y"),
    [
        *ROWS,
        (of.BernoulliLogit(), [-1, 1, 1]),
        (of.OrderedLogit([-1.0, 0.5], categories=["low", "mid", "high"]), ["mid", "low", "high"]),
    ],
)
def test_log_probability(likelihood, y):
    with pm.Model() as model:
        f = pm.Normal("f", shape=3)
        observe(problem(likelihood, y), f)
    found = model.compile_logp(model["y"], sum=False, mode="FAST_COMPILE")({"f": F})[0]
    expected = likelihood.log_likelihood(likelihood.as_data(y, 3), F)
    # PyMC's negative binomial is off by 5e-8 from SciPy's and ours.
    np.testing.assert_allclose(found, expected, rtol=1e-7)


def test_no_such_variable():
    with pm.Model():
        f = pm.Normal("f", shape=3)
        for known in (of.Weighted(of.Poisson(), 0.5), of.BernoulliProbit(noise_cov=np.eye(3))):
            with pytest.raises(ValueError, match="PyMC's methods are compared on labels with"):
                observe(problem(known, [0, 1, 1]), f)
