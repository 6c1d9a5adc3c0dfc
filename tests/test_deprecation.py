"""Old names work for one more release, and say the new one."""

import numpy as np
import pymc as pm
import pytest

import pymc_skewgp as sg

COV = 0.5 * np.eye(3) + 0.5


@pytest.mark.parametrize("make", [sg.mvn_logcdf, lambda x, cov: sg.truncated_mvn(cov, x, None)])
def test_ess_fraction_is_relative_ess(make):
    result = make(np.zeros(3), COV)
    with pytest.warns(FutureWarning, match="ess_fraction is now called relative_ess") as record:
        old = result.ess_fraction
    assert old == result.relative_ess
    assert record[0].filename == __file__


@pytest.fixture(scope="module")
def learnable():
    x = np.linspace(-2.0, 2.0, 12)[:, None]
    with pm.Model():
        gp = sg.SkewGP(cov_func=4.0 * pm.gp.cov.ExpQuad(1, ls=pm.InverseGamma("ls", 5, 3)))
    options = {"method": "ep", "n_restarts": 0, "random_seed": 0, "progressbar": False}
    return lambda **more: sg.find_hyperparameters(gp, x, x[:, 0] > 0.3, **options, **more)


def test_settled_is_converged(learnable):
    fit = learnable()
    with pytest.warns(FutureWarning, match="HyperparameterFit.settled is now called converged"):
        assert fit.settled is fit.converged


@pytest.mark.parametrize(("old", "new"), [(False, True), (True, False)])
def test_warnings_of_a_search_are_quiet(learnable, old, new):
    match = rf"find_hyperparameters\(warnings={old}\) is now called .*quiet={new}"
    with pytest.warns(FutureWarning, match=match) as record:
        learnable(warnings=old)
    assert record[0].filename == __file__


def test_unsettled_optimum_warning():
    with pytest.warns(FutureWarning, match="now called pymc_skewgp.OptimumConvergenceWarning"):
        assert sg.UnsettledOptimumWarning is sg.OptimumConvergenceWarning
