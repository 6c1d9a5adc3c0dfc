"""What no public function takes: refused by name, before anything is computed or allocated."""

import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr
from approximation_oracles import rbf
from oracles import equicorrelated_moments

import pymc_skewgp as sg
from pymc_skewgp import _limits as memory
from pymc_skewgp._limits import available_bytes, refuse_too_many_draws
from pymc_skewgp._validation import as_generator

X = np.linspace(-1.0, 1.0, 4)[:, None]
Y = np.array([0, 1, 0, 1])
COV = 0.5 * np.eye(3) + 0.5
MASKED = np.ma.masked_array([0.5, 0.2, 0.1], mask=[False, True, False])


kernel = rbf(1.0)


def posterior(**kwargs):
    return sg.SkewGPPosterior(X, Y, cov_func=kernel, **kwargs)


def sun():
    return sg.SUN(np.zeros(3), np.eye(3), 0.1 * np.eye(3), np.zeros(3), COV)


def process():
    return sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0))


def learnable():
    with pm.Model():
        return sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=pm.HalfNormal("ls")))


# Each takes one array and hands it to a public function, with the name it has there: one for each
# way in. That all arguments are checked by one function each is in the tests of theirs.
ARRAYS = {
    "x of mvn_logcdf": lambda v: sg.mvn_logcdf(v, COV),
    "mu of SUN": lambda v: sg.SUN(v, COV, np.zeros((3, 1)), [0.0], [[1.0]]),
    "X of SkewGPPosterior": lambda v: sg.SkewGPPosterior(v, [0, 1, 1], cov_func=kernel),
    "y of SkewGPPosterior": lambda v: sg.SkewGPPosterior(X[:3], v, cov_func=kernel),
    "quantiles of predict": lambda v: posterior().predict(X, quantiles=v),
    "values of cdf": lambda v: posterior().marginals(X[:3]).cdf(v),
    "X of SkewGP.posterior": lambda v: process().posterior(v, [0, 1, 1]),
    "y of find_hyperparameters": lambda v: sg.find_hyperparameters(
        learnable(), X[:3], v, progressbar=False
    ),
}
COVARIANCES = {
    "cov of mvn_logcdf": lambda v: sg.mvn_logcdf(np.zeros(3), v),
    "latent_cov of SUN": lambda v: sg.SUN([0.0], [[1.0]], np.zeros((1, 3)), np.zeros(3), v),
}


@pytest.mark.parametrize("way", ARRAYS)
@pytest.mark.parametrize(
    ("value", "error", "match"),
    [
        (MASKED, ValueError, r"has masked values \(1 of 3\)"),
        (np.array([0.0, 1.0, 1.0 + 1e-3j]), TypeError, "must be numeric, got complex128"),
        (np.array(["2024-01-01", "2024-01-02", "2024-02-01"], "M8[D]"), TypeError, "datetime64"),
    ],
    ids=["masked", "complex", "date"],
)
def test_arrays_of_no_real_numbers(way, value, error, match):
    with pytest.raises(error, match=rf"^{way.split()[0]} .*{match}"):
        ARRAYS[way](value)


@pytest.mark.parametrize("way", COVARIANCES)
@pytest.mark.parametrize(
    ("value", "error", "match"),
    [
        (np.ma.masked_array(COV, mask=np.eye(3) == 1), ValueError, "has masked values"),
        (COV.astype(complex), TypeError, "must be numeric, got complex128"),
        (np.diag([1.0, 1.0, 1e-300]), ValueError, r"has the variance 1e-300 .*entry 2"),
        (np.diag([1.0, 1e300, 1.0]), ValueError, r"has the variance 1e\+300 .*entry 1"),
    ],
    ids=["masked", "complex", "tiny", "huge"],
)
def test_covariances_that_are_none(way, value, error, match):
    with pytest.raises(error, match=rf"^{way.split()[0]} .*{match}"):
        COVARIANCES[way](value)


@pytest.mark.parametrize("scale", [1e-199, 1e199])
def test_variances_within_the_limits_are_a_change_of_units(scale):
    exact = -np.log(4.0)  # of three variables with correlation 1/2, all positive
    assert sg.mvn_logcdf(np.zeros(3), scale * COV).value == pytest.approx(exact, abs=1e-3)
    drawn = sg.truncated_mvn(scale * COV, 0.0, None, n_draws=1024, random_seed=1)
    assert isinstance(drawn, sg.TruncatedDraws)
    assert drawn.pareto_k < 0.7  # nearly equal weights
    weights = np.exp(drawn.log_weights - drawn.log_weights.max())
    mean = (weights / weights.sum()) @ drawn.draws / np.sqrt(scale)
    wanted = equicorrelated_moments(np.zeros(3), np.full(3, np.inf), 0.5).first
    # Deviations of 0.6 over 32: less than three standard errors of plain Monte Carlo, and the
    # points are quasi-random. The seed is fixed.
    np.testing.assert_allclose(mean, wanted, atol=0.05)


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        (lambda k: 1e-300 * k, ValueError, "has the variance 1e-300"),
        (lambda k: k + 0j, TypeError, "must be numeric, got complex128"),
    ],
)
def test_kernels_of_such_values_are_refused(change, error, match):
    given = sg.SkewGPPosterior(X, Y, cov_func=lambda *args: change(kernel(*args)))
    with pytest.raises(error, match=f"cov_func at X {match}"):
        _ = given.latent


def test_dates_as_objects_are_refused():
    with pytest.raises(TypeError, match="x must be numeric"):
        sg.mvn_logcdf(np.array([np.datetime64("2024-01-01")] * 3, dtype=object), COV)


def test_parameters_of_rows_are_not_masked():
    with pytest.raises(ValueError, match=r"exposure has masked values \(1 of 3\)"):
        sg.likelihoods.Poisson(MASKED)


@pytest.mark.parametrize("form", [np.ma.masked_array, lambda v: v.astype(object), pd.DataFrame])
def test_other_forms_of_numbers_are_taken(form):
    x = pd.Series(np.ones(3)) if form is pd.DataFrame else form(np.ones(3))
    assert sg.mvn_logcdf(x, form(COV)) == sg.mvn_logcdf(np.ones(3), COV)
    found = sg.SkewGPPosterior(form(X), pd.Series(Y), cov_func=kernel).log_marginal_likelihood
    assert found == posterior().log_marginal_likelihood


def test_columns_of_a_frame_in_another_order(tmp_path):
    """By every way to new rows, that of a result from a file among them."""
    frame = pd.DataFrame({"age": X[:, 0], "dose": X[::-1, 0] ** 2})
    gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(2, ls=[0.5, 3.0]))
    at = gp.posterior(frame, Y)
    result = sg.integrate(gp, frame, Y, random_seed=1, progressbar=False)
    result.to_netcdf(tmp_path / "result.nc")
    with xr.open_datatree(tmp_path / "result.nc") as read:
        for call in (
            at.predict,
            at.marginals,
            at.probability,
            lambda new: at.update(new, Y),
            lambda new: sg.predict(result, new),
            lambda new: sg.predict(read.load(), new, gp=gp),
        ):
            with pytest.raises(ValueError, match=r"Xnew has the columns dose, age, and the data"):
                call(frame[["dose", "age"]])
    found = at.predict(frame[:2])["predictions_constant_data"].dataset
    assert found["feature"].values.tolist() == ["age", "dose"]
    assert np.array_equal(at.marginals(frame).moments.mean, at.marginals(frame.values).moments.mean)


@pytest.mark.parametrize("value", [1j, np.datetime64("2024-01-01"), np.ma.masked], ids=str)
def test_values_of_hyperparameters_are_real_numbers(value):
    with pm.Model():
        ls = pm.HalfNormal("ls")
        gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=ls))
    with pytest.raises((TypeError, ValueError), match=r"point\['ls'\]"):
        gp.posterior(X, Y, point={"ls": value})
    with pytest.raises((TypeError, ValueError), match=r"start\['ls'\]"):
        sg.find_hyperparameters(gp, X, Y, start={"ls": value}, progressbar=False)


CALLS = {
    "mvn_logcdf": lambda **k: sg.mvn_logcdf(np.zeros(3), COV, **k),
    "truncated_mvn": lambda **k: sg.truncated_mvn(COV, 0.0, None, **k),
    "lin_ess": lambda **k: sg.truncated_mvn(COV, 0.0, None, method="lin_ess", **k),
    "equally_weighted": lambda **k: sg.truncated_mvn(COV, 0.0, None, n_draws=64).equally_weighted(
        **k
    ),
    "pt_mvn_logcdf": lambda **k: sg.pt_mvn_logcdf(np.zeros(3), COV, **k).eval(),
    "SUN.sample": lambda n=2, **k: sun().sample(n, **k),
    "SUN.mean": lambda **k: sun().mean(**k),
    "SUN.logpdf": lambda **k: sun().logpdf(np.zeros(3), **k),
    "SkewGPPosterior": lambda **k: posterior(**k),
    "SkewGP.posterior": lambda **k: process().posterior(X, Y, **k),
    "sample": lambda draws=2, chains=1, **k: posterior().sample(draws, chains, **k),
    "predict": lambda draws=2, **k: posterior().predict(X, draws=draws, **k),
    "predict without draws": lambda **k: posterior().predict(X, draws=0, **k),
    "find_hyperparameters": lambda **k: sg.find_hyperparameters(learnable(), X, Y, **k),
    "maximize_frechet_bound": lambda **k: sg.maximize_frechet_bound(learnable(), X, Y, **k),
}
# Arguments that say how many draws are made.
DRAWS = [
    *((name, "n_draws") for name in ("mvn_logcdf", "truncated_mvn", "lin_ess", "pt_mvn_logcdf")),
    *((name, "n_draws") for name in ("SUN.mean", "SUN.logpdf")),
    *((name, "n_draws") for name in ("SkewGPPosterior", "SkewGP.posterior")),
    *((name, "n") for name in ("equally_weighted", "SUN.sample")),
    *((name, "draws") for name in ("sample", "predict")),
    ("sample", "chains"),
]


@pytest.mark.parametrize(("name", "argument"), [*DRAWS, ("find_hyperparameters", "n_restarts")])
@pytest.mark.parametrize("value", [True, False, np.True_])
def test_booleans_are_no_counts(name, argument, value):
    with pytest.raises(TypeError, match=rf"^{argument} must be an integer, got (True|False)"):
        CALLS[name](**{argument: value})


@pytest.mark.parametrize("name", sorted(set(CALLS) - {"pt_mvn_logcdf"}))
@pytest.mark.parametrize(
    ("seed", "error", "match"),
    [
        (np.random.RandomState(1), TypeError, "got a RandomState: pass an integer"),
        ("1", TypeError, "got str"),
        (1.0, TypeError, "got float"),
        (True, TypeError, "got True"),
        (-1, ValueError, "got -1"),
    ],
    ids=["RandomState", "str", "float", "bool", "negative"],
)
def test_seeds_of_other_kinds(name, seed, error, match):
    accepted = "None, an integer .*SeedSequence .*Generator"
    with pytest.raises(error, match=f"^random_seed must be {accepted}, {match}"):
        CALLS[name](random_seed=seed)


def test_seeds_that_are_taken():
    generator = np.random.default_rng(3)
    assert as_generator(generator) is generator
    for seed in (3, np.int64(3), np.random.SeedSequence(3)):
        assert as_generator(seed).random() == np.random.default_rng(3).random()
    for seed in ([3, 1], (3, 1), np.array([3, 1])):
        assert as_generator(seed).random() == np.random.default_rng([3, 1]).random()
    for seed in ([3, -1], [3, 0.5], [3, "1"]):
        with pytest.raises((TypeError, ValueError), match=r"^each entry of random_seed must be"):
            as_generator(seed)
    assert isinstance(as_generator(None), np.random.Generator)


@pytest.mark.parametrize(
    ("value", "error", "match"),
    [
        ("0.1", TypeError, "rtol must be a number, got str"),
        (True, TypeError, "rtol must be a number, got bool"),
        (np.nan, ValueError, "rtol must be positive, got nan"),
        (np.inf, ValueError, "rtol must be finite, got inf"),
        (0, ValueError, "rtol must be positive, got 0"),
    ],
)
def test_tolerances(value, error, match):
    with pytest.raises(error, match=match):
        sg.mvn_logcdf(np.zeros(3), COV, rtol=value)


@pytest.mark.parametrize("value", ["1e-6", np.nan, -1e-6, True])
def test_jitter(value):
    with pm.Model(), pytest.raises((TypeError, ValueError), match="jitter must"):
        process().prior("f", X, jitter=value)


FAR_TOO_MANY = 10**13  # 1e13 numbers of 8 bytes: 73 TiB a row


@pytest.mark.parametrize(("name", "argument"), DRAWS)
def test_draws_beyond_memory(name, argument, monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 2**30)
    with pytest.raises(sg.TooManyDrawsError, match=r"at least [0-9.e+]+ GiB .* 1 GiB of memory"):
        CALLS[name](**{argument: FAR_TOO_MANY})


@pytest.mark.parametrize("kind", [sg.TooManyDrawsError, sg.TooManyRowsError])
def test_both_kinds_of_error(kind):
    assert issubclass(kind, MemoryError)
    assert issubclass(kind, ValueError)


def test_what_fits_is_not_refused(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 2**30)
    refuse_too_many_draws("n_draws", 2**20, 64, buffers=2)  # 1 GiB
    with pytest.raises(sg.TooManyDrawsError, match="n_draws asks for 1048577 draws of 64"):
        refuse_too_many_draws("n_draws", 2**20 + 1, 64, buffers=2)
    monkeypatch.setattr(memory, "available_bytes", lambda: None)  # it is not known
    refuse_too_many_draws("n_draws", FAR_TOO_MANY, 10)


def _machine(root, available=None, groups="", **files):
    (root / "proc" / "self").mkdir(parents=True)
    if available is not None:
        text = f"MemTotal: 99 kB\nMemAvailable:    {available} kB\n"
        (root / "proc" / "meminfo").write_text(text)
    (root / "proc" / "self" / "cgroup").write_text(groups)
    for name, content in files.items():
        path = root / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return available_bytes(root / "proc", root / "cgroup")


VERSION_2 = {
    "user/job/memory.max": "500000\n",
    "user/job/memory.current": "300000\n",
    "user/job/memory.stat": "anon 200000\ninactive_file 100000\n",
    "user/memory.current": "300000\n",
}
VERSION_1 = {"memory/memory.limit_in_bytes": "400000\n", "memory/memory.usage_in_bytes": "100000\n"}


@pytest.mark.parametrize(
    ("available", "groups", "files", "expected"),
    [
        (1000, "", {}, 1000 * 1024),
        (None, "0::/\n", {}, None),
        (1000, "0::/user/job\n", {**VERSION_2, "user/memory.max": "max\n"}, 300_000),
        (1000, "0::/user/job\n", {**VERSION_2, "user/memory.max": "900000\n"}, 300_000),
        # Seen from a container.
        (1000, "8:pids:/x\n4:memory:/docker/abc\n0::/\n", VERSION_1, 300_000),
    ],
)
def test_memory_of_a_machine_and_its_groups(tmp_path, available, groups, files, expected):
    assert available_bytes(tmp_path / "proc", tmp_path / "cgroup") is None
    assert _machine(tmp_path, available, groups, **files) == expected
