"""What the tests of estimators share."""

from types import SimpleNamespace

import pytest

from pymc_skewgp._learn import estimator as one_process


@pytest.fixture
def no_search(monkeypatch):
    """Hyperparameters stay at their starts: for a hundred fits that test the interface only."""

    def learn(data, settings, rng, start, **_):
        values = {"shift": 0.0, **start}
        report = SimpleNamespace(point=values)
        return SimpleNamespace(objective=None, values=values, report=lambda evidence: report)

    monkeypatch.setattr(one_process, "learn", learn)
