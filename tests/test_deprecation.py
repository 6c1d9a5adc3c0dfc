"""Old names work for one more release, and say the new one."""

import numpy as np
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
