"""What many rows cost is said beforehand, and refused where memory would end."""

import io
import logging
import threading
import time

import numpy as np
import pymc as pm
import pytest
from rich.console import Console

import pymc_skewgp as sg
from pymc_skewgp import _limits as cost

N = 60_000  # 27 GiB a matrix
X = np.linspace(0.0, 1.0, N)[:, None]
Y = (np.arange(N) % 2).astype(int)
GB = 2**30


def process():
    with pm.Model():
        kernel = pm.gp.cov.ExpQuad(1, ls=pm.LogNormal("ls", 0.0, 1.0))
        return sg.SkewGP(cov_func=kernel, approximation=None)


def in_a_model(use):
    gp = process()
    with gp.model:
        use(gp)


ROUTES = {
    "posterior": lambda: process().posterior(X, Y, point={"ls": 1.0}).log_marginal_likelihood,
    "sites": lambda: (
        process()
        .posterior(X, Y, likelihood=sg.likelihoods.BernoulliLogit(), point={"ls": 1.0})
        .log_marginal_likelihood
    ),
    "prior": lambda: in_a_model(lambda gp: gp.prior("f", X)),
    "marginal_likelihood": lambda: in_a_model(lambda gp: gp.marginal_likelihood("y", X, Y)),
    "find_hyperparameters": lambda: sg.find_hyperparameters(process(), X, Y, progressbar=False),
    "integrate": lambda: sg.integrate(process(), X, Y, progressbar=False),
}


@pytest.mark.parametrize("route", ROUTES)
def test_routes_refuse(route, monkeypatch):
    monkeypatch.setattr(cost, "available_bytes", lambda: 16 * GB)
    # 60000 squared times 8 bytes times 5; the square root of 16 GiB over 40 bytes.
    with pytest.raises(sg.TooManyRowsError, match=r"60000 rows.* 134 GiB .* 16 GiB .* 20724 rows"):
        ROUTES[route]()


def test_comparisons_refuse(monkeypatch):
    monkeypatch.setattr(cost, "available_bytes", lambda: 16 * GB)
    pairs = np.stack([np.arange(N - 1), np.arange(1, N)], axis=1)
    match = "60000 rows.* as Preference has 59999 rows that share noise"
    with pytest.raises(sg.TooManyRowsError, match=match):
        sg.SkewGPPreference(noise="item").fit(X, pairs)


def test_said_beforehand(monkeypatch, caplog):
    monkeypatch.setattr(cost, "available_bytes", lambda: 64 * GB)
    # A Cholesky factorisation of 6000 rows takes 72 s at 1e9 operations a second.
    monkeypatch.setattr(cost, "_operations_per_second", lambda: 1e9)
    monkeypatch.setattr(cost, "_announced", set())
    with caplog.at_level(logging.INFO, logger="pymc.pymc_skewgp"):
        cost.announce_rows(6000)
        cost.announce_rows(6000)  # such as of the next draw's posterior
        cost.announce_rows(4000)
    assert caplog.messages == [
        "6000 rows: exact algebra with 6000 x 6000 matrices takes some 1.34 GiB of memory and "
        "2 min (smooth kernels) to 48 min (rough ones)."
    ]


def test_unknown_memory_refuses_nothing(monkeypatch):
    monkeypatch.setattr(cost, "available_bytes", lambda: None)
    cost.refuse_too_many_rows(10**7)


def test_blocks_say_what_they_cost(monkeypatch, caplog):
    monkeypatch.setattr(cost, "available_bytes", lambda: 2 * GB)
    with caplog.at_level(logging.INFO, "pymc.pymc_skewgp"):
        cost.announce_blocks(2 * 10**5, 225, 1024)
    # 8 n r and 400 n bytes.
    assert "200000 rows of 225 features, in blocks: some 0.41 GiB" in caplog.text
    caplog.clear()
    cost.announce_blocks(10**4, 225, 1024)
    assert not caplog.text
    with pytest.raises(sg.TooManyRowsError, match=r"7.45 GiB .* 2 GiB .* take 268 features"):
        cost.announce_blocks(10**6, 1000, 1024)


def test_an_average_says_what_it_costs(monkeypatch, caplog):
    """At 1e9 operations a second a factorisation of 2000 rows takes 2.7 s: 500 * 10 + 22 * 12."""
    monkeypatch.setattr(cost, "_operations_per_second", lambda: 1e9)
    with caplog.at_level(logging.INFO, "pymc.pymc_skewgp"):
        cost.announce_exact_average(1000, 500, 32)
        cost.announce_exact_average(2000, 500, 22)
    (said,) = caplog.messages
    assert "500 evaluations" in said
    assert "22 posteriors" in said
    assert "3.9 h" in said


def test_an_average_keeps_what_fits(monkeypatch):
    """Six matrices each, of 8 n^2 bytes, in four gigabytes together."""
    monkeypatch.setattr(cost, "available_bytes", lambda: 5 * GB)
    assert cost.posteriors_kept(600, 32) == 32
    assert cost.posteriors_kept(2000, 32) == 22
    assert cost.posteriors_kept(4000, 32) == 5
    with pytest.raises(sg.TooManyRowsError, match=r"12000 rows keeps 4 .* 25.7 GiB .* maximise"):
        cost.posteriors_kept(12000, 32)


@pytest.fixture
def said(monkeypatch):
    """What a bar of progress is told, in place of rich's."""
    found = []
    monkeypatch.setattr(
        "rich.progress.Progress.update", lambda *_, description, **__: found.append(description)
    )
    return found


CALLS = {
    "find_hyperparameters": lambda gp, x, y: sg.find_hyperparameters(gp, x, y),
    "integrate": lambda gp, x, y: sg.integrate(gp, x, y, draws=20, n_evidences=4),
    "estimator": lambda _, x, y: sg.SkewGPClassifier().fit(x, y),
    "sbc": lambda gp, x, y: sg.sbc(gp, x, point={"ls": 1.0}, n_simulations=2, draws=9),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_long_call_has_one_bar_with_stages(call, said, capsys):
    with pm.Model():
        gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=pm.LogNormal("ls", 0.0, 0.2)))
    x, y = np.linspace(0.0, 1.0, 6)[:, None], [0, 1, 0, 1, 1, 1]
    CALLS[call](gp, x, y)
    assert said
    assert not capsys.readouterr().out  # which is no terminal


def test_a_posterior_of_many_rows_has_a_bar(said):
    x = np.linspace(0.0, 1.0, 4100)[:, None]
    few = sg.approximations.Inducing(5)
    gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0), approximation=few)

    def evidence(n, **options):
        data = x[:n], np.sin(x[:n, 0])
        posterior = gp.posterior(*data, likelihood=sg.likelihoods.Gaussian(sigma=0.1), **options)
        return posterior.log_marginal_likelihood

    evidence(4100)
    assert said == ["Prior for 4100 rows", "Posterior of 4100 rows"]
    evidence(4100, progressbar=False)
    evidence(100)
    with cost.progress(False):  # of a call that shows none
        evidence(4100)
    assert len(said) == 2


def test_draws_at_rows_and_more_data_have_a_bar(said):
    x = np.linspace(0.0, 1.0, 10_001)[:, None]
    few = sg.approximations.Inducing(5)
    gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0), approximation=few)
    posterior = gp.posterior(x, np.sin(x[:, 0]), likelihood=sg.likelihoods.Gaussian(sigma=0.1))
    draws = posterior.sample(10, 1, random_seed=0)
    said.clear()
    posterior.at_rows(draws, np.arange(300), random_seed=0)
    posterior.update([[0.5]], [0.5])
    assert said == ["Draws at 300 rows", "Prior for 10002 rows"]


def test_calls_within_a_call_go_on_with_its_bar(said):
    cost.stage("of no call")
    with cost.progress(True):
        cost.stage("first")
        with cost.progress(True):
            cost.stage("second", 3)
        with cost.progress(False):
            cost.stage("unseen")
        assert list(cost.steps("ab", "third", 2)) == ["a", "b"]
    assert said == ["first", "second", "third"]


@pytest.mark.parametrize(
    ("seconds", "options", "shown"),
    [
        (0.4, {}, True),
        (0.0, {}, False),
        (0.4, {"wanted": False}, False),
        (0.4, {"terminal": False}, False),
        (0.4, {"thread": True}, False),
    ],
)
def test_a_bar_is_of_long_calls_in_a_terminal(monkeypatch, seconds, options, shown):
    """Patience of .1 s, and .4 s for the bar to be drawn."""
    terminal = options.get("terminal", True)
    console = Console(file=io.StringIO(), force_terminal=terminal, force_interactive=terminal)
    monkeypatch.setattr("rich.progress.get_console", lambda: console)
    monkeypatch.setattr(cost, "_PATIENCE", 0.1)

    def call():
        with cost.progress(options.get("wanted", True)):
            cost.stage("Working")
            time.sleep(seconds)

    if options.get("thread"):
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
    else:
        call()
    assert ("Working" in console.file.getvalue()) == shown
