"""What the tests of estimators share."""

from functools import partialmethod
from types import SimpleNamespace

import pytest

from pymc_skewgp import SkewGP
from pymc_skewgp._learn import estimator as one_process


@pytest.fixture
def no_search(monkeypatch):
    """Hyperparameters stay at their starts, and draws are few: for a hundred fits of interfaces."""

    def learn(data, settings, rng, start, **_):
        values = {"shift": 0.0, **start}
        report = SimpleNamespace(point=values)
        return SimpleNamespace(
            objective=None, values=values, interrupted=False, report=lambda evidence: report
        )

    monkeypatch.setattr(one_process, "learn", learn)
    monkeypatch.setattr(SkewGP, "posterior", partialmethod(SkewGP.posterior, n_draws=128))
