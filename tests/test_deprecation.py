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
