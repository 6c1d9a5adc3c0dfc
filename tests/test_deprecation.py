"""Old names work for one more release, and say the new one."""

import numpy as np
import pymc as pm
import pytest
from arviz_base import from_dict

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


def test_point_of_gp_posterior_by_position():
    with pm.Model():
        gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=pm.HalfNormal("ls")))
    X, y, point = [[0.0], [1.0]], [0, 1], {"ls": 0.5}
    with pytest.warns(FutureWarning, match=r"takes point by name .* write point=\.\.\.") as record:
        old = gp.posterior(X, y, point)
    assert record[0].filename == __file__
    assert old.log_marginal_likelihood == gp.posterior(X, y, point=point).log_marginal_likelihood
    with pytest.raises(TypeError):
        gp.posterior(X, y, point, 1024)


@pytest.mark.parametrize("by_name", [False, True])
def test_compare_approximations_with_the_kernel_last(by_name):
    X, y, cov, mean = [[0.0], [1.0]], [0, 1], pm.gp.cov.ExpQuad(1, ls=1.0), pm.gp.mean.Constant(1.0)
    options = {"methods": ["ep"], "random_seed": 1, "progressbar": False}
    gp = sg.SkewGP(cov_func=cov, mean_func=mean)
    new = sg.compare_approximations(gp, X, y, **options).table
    args, named = ([], {"X": X, "y": y, "cov_func": cov}) if by_name else ([X, y, cov], {})
    with pytest.warns(FutureWarning, match=r"compare_approximations\(gp, X, y\)") as record:
        old = sg.compare_approximations(*args, **named, mean_func=mean, **options).table
    assert record[0].filename == __file__
    assert old["evidence"].item() == new["evidence"].item()


def test_variable_of_posterior_skewness_by_position():
    tree = from_dict({"posterior": {"g": np.random.default_rng(0).normal(size=(2, 20, 3))}})
    with pytest.warns(FutureWarning, match=r"posterior_skewness takes var by name") as record:
        old = sg.posterior_skewness(tree, "g")
    assert record[0].filename == __file__
    assert old.identical(sg.posterior_skewness(tree, var="g"))
