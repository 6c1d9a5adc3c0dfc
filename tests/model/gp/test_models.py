"""SkewGP in models: its variables are the unified skew-normal vectors that they should be."""

import numpy as np
import pymc as pm
import pytest
from pymc.distributions.shape_utils import change_dist_size
from pytensor.compile.mode import Mode
from pytensor.graph.replace import vectorize_graph

from pymc_skewgp import SUN, SkewGP

# These graphs run a few times: compiling them would be all of the time.
PLAIN = Mode("py", "fast_run").excluding("fusion", "inplace")
ExpQuad = pm.gp.cov.ExpQuad
X = np.array([[-1.5], [-0.4], [0.3], [1.2]])
XNEW = np.array([[-0.9], [0.8], [2.5]])
Y = np.array([0, 1, 1, 0])
POINTS, PHASE, TRUNCATION = np.array([[0.5], [2.0]]), np.array([1.0, -1.0]), np.array([0.3, -0.2])
JITTER = 1e-6
F = np.array([0.2, 0.9, 1.1, -0.3])


def rbf(a, b=None, ls=0.8, variance=2.25):
    """ExpQuad in NumPy; with one argument with the jitter."""
    gap = (a - (a if b is None else b).T) / ls
    return variance * np.exp(-0.5 * gap**2) + (JITTER * np.eye(len(a)) if b is None else 0.0)


def pseudo(s):
    """Arguments for s pseudo-points."""
    if not s:
        return {}
    return {"pseudo_points": POINTS[:s], "phase": PHASE[:s], "truncation": TRUNCATION[:s]}


def skew_gp(s, ls=0.8, eta=1.5, **changes):
    mean = pm.gp.mean.Linear([0.4], 0.1)
    return SkewGP(mean_func=mean, cov_func=eta**2 * ExpQuad(1, ls=ls), **{**pseudo(s), **changes})


def exact(s, inputs, ls=0.8, variance=2.25, truncation=TRUNCATION):
    """The unified skew-normal marginal at `inputs`, by the paper's formula."""
    joint = rbf(np.vstack([POINTS[:s], inputs]), ls=ls, variance=variance)
    factor = PHASE[:s] / np.sqrt(joint.diagonal()[:s])
    return SUN.from_cross_cov(
        0.4 * inputs[:, 0] + 0.1,
        joint[s:, s:],
        joint[s:, :s] * factor,
        truncation[:s],
        factor[:, None] * joint[:s, :s] * factor,
    )


def logp(model, variable, point):
    return float(model.compile_logp(vars=[model[variable]], mode=PLAIN)(point))


def assert_moments(draws, sun):
    """Five standard errors, each of four coordinates: a false alarm in 3e-6 of all seeds.

    An element of the covariance has variance near 2 S_ii S_jj / n, the tails being Gaussian.
    """
    n, sd = len(draws), np.sqrt(sun.cov().diagonal())
    assert (np.abs(draws.mean(axis=0) - sun.mean()) < 5 * sd / np.sqrt(n)).all()
    gap = np.abs(np.cov(draws.T) - sun.cov()) / np.outer(sd, sd)
    assert gap.max() < 6 * np.sqrt(2.0 / n)


@pytest.fixture(params=[0, 2], ids="s={}".format)
def s(request):
    return request.param


class TestPrior:
    def test_moments_of_draws_of_white_noise(self, s):
        """Those of the variable itself are those of its parameters, which are its density's."""
        with pm.Model() as model:
            f = skew_gp(s).prior("f", X, reparameterize=True)
        many = {v: change_dist_size(v, (20_000,), expand=True) for v in model.free_RVs}
        draws = pm.draw(vectorize_graph(f, many), random_seed=1, mode=PLAIN)
        sun = exact(s, X)
        assert draws.shape == (20_000, 4)
        assert_moments(draws, sun)
        # The third moment, of which a Gaussian has none: standard error sqrt(6 / n).
        third = (((draws - draws.mean(axis=0)) / draws.std(axis=0)) ** 3).mean(axis=0)
        np.testing.assert_allclose(third, sun.skew(), atol=6 * np.sqrt(6.0 / 20_000))

    def test_pseudo_point_at_a_datum(self):
        """The jitter, which both have, keeps them apart."""
        points = {"pseudo_points": X[1:2], "phase": [-1.0], "truncation": [0.0]}
        with pm.Model() as model:
            SkewGP(cov_func=2.25 * ExpQuad(1, ls=0.8), **points).prior("f", X)
        # f at the pseudo-point is f at the datum up to the jitter: its sign is known.
        inside, outside = (
            logp(model, "f", {"f": np.array([0.2, sign * 0.5, 0.3, -0.3])}) for sign in (-1, 1)
        )
        normal = exact(0, X)
        expected = np.log(2.0) + SUN(
            np.zeros(4), normal.scale, np.zeros((4, 0)), [], np.zeros((0, 0))
        ).logpdf([0.2, -0.5, 0.3, -0.3])
        # The jitter moves the mean given the datum by 1e-6 / 2.25 of it.
        assert inside == pytest.approx(expected, abs=1e-5)
        assert outside < inside - 1000.0

    def test_jitter_is_added_to_all_variances(self):
        with pm.Model() as model:
            skew_gp(1).prior("f", X, jitter=0.5)
        joint = rbf(np.vstack([POINTS[:1], X])) + (0.5 - JITTER) * np.eye(5)
        sd = np.sqrt(joint[0, 0])
        sun = SUN.from_cross_cov(
            0.4 * X[:, 0] + 0.1, joint[1:, 1:], joint[1:, :1] / sd, TRUNCATION[:1], [[1.0]]
        )
        assert logp(model, "f", {"f": F}) == pytest.approx(sun.logpdf(F), abs=1e-10)


class TestConditional:
    FNEW = np.array([0.4, 0.6, -0.5])

    def expected(self, s):
        return exact(s, np.vstack([X, XNEW])).conditional(slice(4), F)

    def test_density_after_reparameterized_prior(self, s):
        with pm.Model() as model:
            gp = skew_gp(s)
            f = gp.prior("f", X, reparameterize=True)
            gp.conditional("new", XNEW)
        point = {"f_rotated_": np.array([0.3, -0.2, 0.1, 0.5])}
        if s:
            point["f_latent__interval__"] = np.array([0.2, -0.6])[:s]
        inputs = [v for v in model.value_vars if v.name in point]
        values = model.replace_rvs_by_values([f])
        value = model.compile_fn(values, inputs=inputs, mode=PLAIN)(point)[0]
        point["new"] = self.FNEW
        joint = exact(s, np.vstack([X, XNEW]))
        expected = joint.conditional(slice(4), value).logpdf(self.FNEW)
        assert logp(model, "new", point) == pytest.approx(expected, abs=1e-8)

    def test_density_with_given(self, s):
        with pm.Model(coords={"at": list("abc")}) as model:
            skew_gp(s).conditional("new", XNEW, given={"X": X, "f": F}, dims="at")
        assert model.named_vars_to_dims == {"new": ("at",)}
        found = logp(model, "new", {"new": self.FNEW})
        assert found == pytest.approx(self.expected(s).logpdf(self.FNEW), abs=1e-8)

    def test_white_noise_is_new_at_old_inputs(self):
        """As `pm.gp.Latent`: white noise belongs to f, and is independent between rows."""
        gp = SkewGP(cov_func=ExpQuad(1, ls=0.8) + pm.gp.cov.WhiteNoise(0.7))
        with pm.Model() as model:
            gp.conditional("new", X[:1], given={"X": X, "f": F})
        smooth = rbf(X, ls=0.8, variance=1.0)
        weights = np.linalg.solve(smooth + 0.49 * np.eye(4), rbf(X, X[:1], variance=1.0))[:, 0]
        variance = 1.49 + JITTER - rbf(X[:1], X, variance=1.0) @ weights
        expected = -0.5 * (F @ weights) ** 2 / variance - 0.5 * np.log(2 * np.pi * variance)
        assert logp(model, "new", {"new": np.zeros(1)}) == pytest.approx(expected[0], abs=1e-10)


@pytest.mark.parametrize("y", [Y.tolist(), Y.astype(bool), 2 * Y - 1, Y.astype(float)])
def test_codes_of_the_labels(y):
    with pm.Model() as model:
        skew_gp(1).marginal_likelihood("y", X, y)
    np.testing.assert_array_equal(model.rvs_to_values[model["y"]].data, Y)
    assert model.observed_RVs == [model["y"]]


@pytest.mark.parametrize("scalar", [True, False])
def test_density(scalar):
    with pm.Model() as model:
        t = pm.Normal("t") if scalar else pm.Normal("t", shape=2)
        skew_gp(2, truncation=t).prior("f", X)
    for value in ([0.7, 0.7], [-1.0, -1.0]) if scalar else ([0.7, -1.0], [0.0, 2.0]):
        point = {"t": np.array(value[0] if scalar else value), "f": F}
        expected = exact(2, X, truncation=np.array(value)).logpdf(F)
        assert logp(model, "f", point) == pytest.approx(expected, abs=1e-10)


class TestData:
    """Inputs and labels in `pm.Data`, and changed."""

    def test_inputs_of_prior_and_conditional(self, s):
        with pm.Model() as model:
            inputs, new = pm.Data("X", X), pm.Data("Xnew", XNEW)
            gp = skew_gp(s)
            gp.prior("f", inputs)
            gp.conditional("new", new)
        functions = {v: model.compile_logp(vars=[model[v]], mode=PLAIN) for v in ("f", "new")}
        for a, b in ((X, XNEW), (X[:2], X[2:] + 0.1)):
            model.set_data("X", a)
            model.set_data("Xnew", b)
            point = {"f": F[: len(a)], "new": F[: len(b)]}
            joint = exact(s, np.vstack([a, b]))
            expected = joint.marginal(slice(len(a))).logpdf(point["f"])
            assert functions["f"](point) == pytest.approx(expected, abs=1e-9)
            expected = joint.conditional(slice(len(a)), point["f"]).logpdf(point["new"])
            assert functions["new"](point) == pytest.approx(expected, abs=1e-8)

    def test_inputs_and_labels_of_the_marginal_likelihood(self, s):
        with pm.Model() as model:
            gp = skew_gp(s)
            gp.marginal_likelihood("y", pm.Data("X", X), pm.Data("labels", Y), n_draws=2048)
        function = model.compile_logp(mode=PLAIN)
        for a, b in ((X, Y), (XNEW, np.array([1, 0, 1]))):
            with model:
                pm.set_data({"X": a, "labels": b})
            expected = gp.posterior(a, b, n_draws=2048).log_marginal_likelihood
            tolerance = 5 * np.sqrt(2.0) * expected.std_error + 1e-5
            assert function({}) == pytest.approx(expected.value, abs=tolerance)

    def test_what_becomes_wrong_is_reported_at_evaluation(self):
        with pm.Model() as model:
            skew_gp(1).marginal_likelihood("y", pm.Data("X", X), pm.Data("labels", Y))
        function = model.compile_logp(mode=PLAIN)
        model.set_data("X", np.zeros((4, 2)))
        with pytest.raises(AssertionError, match="SpecifyShape"):
            function({})
        model.set_data("X", X[:3])
        with pytest.raises(ValueError, match=r"broadcast|incompatible"):
            function({})
        model.set_data("X", X)
        model.set_data("labels", [0, 1, 2, 1])
        assert function({}) == -np.inf


class TestInvalidWhileSampling:
    """Minus infinity, not NaN and no exception: the sampler turns back."""

    def test_negative_variance(self):
        with pm.Model() as model:
            v = pm.Normal("v")
            gp = SkewGP(cov_func=v * ExpQuad(1, ls=0.8), **pseudo(1))
            gp.prior("f", X)
            gp.marginal_likelihood("y", X, Y)
        function = model.compile_logp(vars=[model["f"], model["y"]], sum=False, mode=PLAIN)
        for v in (-1.0, np.nan):
            found = function({"v": np.array(v), "f": F})
            np.testing.assert_array_equal(found, [-np.inf, -np.inf])
        assert np.isfinite(function({"v": np.array(1.0), "f": F})).all()

    def test_truncation(self):
        with pm.Model() as model:
            t = pm.Normal("t")
            skew_gp(1, truncation=t).marginal_likelihood("y", X, Y)
        log_p = model.compile_logp(vars=[model["y"]], mode=PLAIN)
        assert log_p({"t": np.array(np.nan)}) == -np.inf
        assert np.isfinite(log_p({"t": np.array(np.inf)}))


def refuse(message, *calls, error=ValueError):
    for call in calls:
        with pm.Model(), pytest.raises(error, match=message):
            call()


GIVEN = {"X": X, "f": F}


class TestPlainErrors:
    ARGUMENTS = {  # noqa: RUF012
        "pseudo_points holds 1 NaN": {"pseudo_points": [[np.nan]]},
        r"pseudo_points has 2 column\(s\), but cov_func": {"pseudo_points": [[0.5, 1.0]]},
        "pseudo_points is empty": {"pseudo_points": np.zeros((0, 1))},
        r"phase must hold \+1 and -1 only": {"pseudo_points": POINTS, "phase": [1.0, 0.5]},
        "phase must have length 2, got 1": {"pseudo_points": POINTS, "phase": [1.0]},
        "truncation holds 2 NaN": {"pseudo_points": POINTS, "truncation": np.nan},
        "phase and truncation belong to pseudo_points": {"truncation": 1.0},
    }

    @pytest.mark.parametrize("message", ARGUMENTS)
    def test_arguments_of_the_process(self, message):
        refuse(message, lambda: SkewGP(cov_func=ExpQuad(1, ls=1.0), **self.ARGUMENTS[message]))

    def test_variables_among_the_arguments(self):
        with pm.Model():
            r, t = pm.Normal("r", shape=(2, 1)), pm.Normal("t", shape=3)
            unknown = pm.Normal("u", shape=(pm.Poisson("n", 3), 1))
        for arguments, message in (
            ({"truncation": t}, "truncation must be a number or have shape"),
            ({"phase": r}, "phase must be a number or have shape"),
            ({"pseudo_points": t}, "pseudo_points must be a matrix"),
            ({"pseudo_points": unknown}, "must have a known number of rows"),
            ({"pseudo_points": None, "truncation": t}, "belong to pseudo_points"),
        ):
            refuse(message, lambda given=arguments: skew_gp(2, **{"phase": None, **given}))

    def test_sum(self):
        message = "not additive: add the covariance functions"
        refuse(message, lambda: skew_gp(1) + skew_gp(0), error=TypeError)

    INPUTS = [  # noqa: RUF012
        (np.zeros((3, 2)), r"has 2 column\(s\), but cov_func was built with input_dim=1"),
        ([[np.nan]], "holds 1 NaN"),
        (np.zeros((0, 1)), "is empty"),
        (np.ma.masked_array(X, X > 1.0), "has masked values"),
    ]

    @pytest.mark.parametrize(("inputs", "message"), INPUTS, ids=[m[:10] for _, m in INPUTS])
    def test_inputs(self, inputs, message):
        gp, y = skew_gp(1), np.zeros(len(inputs), dtype=int)
        refuse(
            f"X {message}",
            lambda: gp.prior("f", inputs),
            lambda: gp.prior("f", inputs, reparameterize=True),
            lambda: gp.marginal_likelihood("y", inputs, y),
            lambda: gp.posterior(inputs, y),
        )
        refuse(f"Xnew {message}", lambda: gp.conditional("f", inputs, given=GIVEN))
        given = {"X": inputs, "f": F}
        refuse(rf"given\['X'\] {message}", lambda: gp.conditional("f", X, given=given))

    def test_data_with_wrong_inputs(self):
        for value, message in ((np.zeros((4, 2)), "X has 2 column"), (F, "must be a matrix")):
            refuse(message, lambda value=value: skew_gp(1).prior("f", pm.Data("X", value)))

    LABELS = {  # noqa: RUF012
        r"two classes coded 0 and 1 .* found 3 value\(s\): 0, 1, 2": [0, 1, 2, 1],
        "two classes coded 0 and 1": list("abab"),
        r"y must have shape \(4,\), one label for each row of X; got \(3,\)": [0, 1, 1],
        "y must be finite, found NaN|two classes": [0, 1, np.nan, 1],
        "y has masked values": np.ma.masked_array(Y, [0, 0, 0, 1]),
    }

    @pytest.mark.parametrize("message", LABELS)
    def test_labels(self, message):
        gp, y = skew_gp(1), self.LABELS[message]
        refuse(message, lambda: gp.marginal_likelihood("y", X, y), lambda: gp.posterior(X, y))

    def test_data_with_wrong_labels(self):
        def data(inputs, y):
            skew_gp(1).marginal_likelihood("y", inputs, pm.Data("labels", y))

        message = r"y must hold the labels 0 and 1, found \[0 1 2\]: .* 'labels'"
        refuse(message, lambda: data(X, [0, 1, 2, 1]), lambda: data(pm.Data("X", X), [0, 1, 2, 1]))
        message = "y must have length 4, one label for each row of X; got 3"
        refuse(message, lambda: data(X, [0, 1, 1]), lambda: data(pm.Data("X", X), [0, 1, 1]))
        refuse("y must be a vector, got a tensor with 2", lambda: data(X, Y[:, None]))

    def test_given(self):
        gp = skew_gp(1)
        refuse(r"call prior\(name, X\) first or pass given=", lambda: gp.conditional("f", X))
        for given, message in (
            ({"X": X}, r"given must have the keys 'X' and 'f', got"),
            ({"X": X, "f": F, "gp": 1}, r"given must have the keys 'X' and 'f', got"),
            ({"X": X, "f": F[:3]}, r"given\['f'\] must have shape \(4,\)"),
            ({"X": X, "f": 0.0}, r"given\['f'\] must have shape \(4,\)"),
        ):
            refuse(message, lambda given=given: gp.conditional("f", XNEW, given=given))

    @pytest.mark.parametrize("points", [0, 1])
    def test_constant_hyperparameters(self, points):
        """At build: no sampler could mend them."""
        for cov_func, message in (
            (ExpQuad(1, ls=0.0), "cov_func gave NaN or infinite covariances"),
            (-1.0 * ExpQuad(1, ls=1.0), "no variance at some of pseudo_points|not positive def"),
        ):
            gp = SkewGP(cov_func=cov_func, **pseudo(points))
            refuse(
                message,
                lambda gp=gp: gp.prior("f", X),
                lambda gp=gp: gp.prior("f", X, reparameterize=True),
                lambda gp=gp: gp.marginal_likelihood("y", X, Y),
                lambda gp=gp: gp.conditional("new", XNEW, given=GIVEN),
            )

    def test_constant_mean(self):
        gp = SkewGP(cov_func=ExpQuad(1, ls=1.0), mean_func=pm.gp.mean.Constant(np.nan))
        refuse("mean_func gave NaN", lambda: gp.prior("f", X))

    @pytest.mark.parametrize("phase", [[1, 1], [1, -1]])
    def test_coincident_pseudo_points(self, phase):
        gp = SkewGP(cov_func=ExpQuad(1, ls=1.0), pseudo_points=[[0.5], [0.5]], phase=phase)
        message = "with opposite phases" if phase[1] < 0 else "pseudo_points 0 and 1 coincide"
        refuse(message, lambda: gp.prior("f", X), lambda: gp.marginal_likelihood("y", X, Y))

    def test_arguments_that_pymc_would_ignore(self):
        gp = skew_gp(1)
        refuse(
            "unexpected argument",
            lambda: gp.prior("f", X, reparametrize=True),
            lambda: gp.prior("f", X, n_outputs=2),
            lambda: gp.conditional("f", XNEW, given=GIVEN, diag=True),
            lambda: gp.marginal_likelihood("y", X, Y, sigma=1.0),
            error=TypeError,
        )

    def test_method(self):
        message = "method must be one of"
        refuse(message, lambda: skew_gp(1).marginal_likelihood("y", X, Y, method="laplace"))


def test_says_what_it_is():
    assert repr(skew_gp(2)) == "SkewGP(cov_func=Prod, mean_func=Linear, n_pseudo_points=2)"
