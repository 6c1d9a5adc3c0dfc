"""Signs that a smooth function hardly ever has: computed, or refused by name, never wrong.

The oracle for three signs is the closed form 1/8 + sum asin(rho_ij) / (4 pi), evaluated with 60
digits of the covariance exp(-d^2 / 2) itself, not of its entries in double precision.
"""

import numpy as np
import pymc as pm
import pytest
from approximation_oracles import rbf

import pymc_skewgp as sg
from pymc_skewgp._errors import no_warnings
from pymc_skewgp._gaussian.log_prob_gradient import log_prob_and_gradient
from pymc_skewgp._gaussian.truncated import log_orthant
from pymc_skewgp._posterior import evidence_gradient
from pymc_skewgp._sun.parameters import LARGEST_EFFECT, naming_the_labels, round_off_effect

ALTERNATING, ONE_CHANGE = np.array([1.0, -1.0, 1.0]), np.array([1.0, -1.0, -1.0])
# (phase, spacing), the log probability of the signs, and whether it is refused. One change of sign
# is computable down to where points coincide; two are up to a thousandth of a lengthscale.
EXACT = [
    (ALTERNATING, 1e-1, -10.133186863917025, False),
    (ALTERNATING, 1e-2, -17.039694486509138, False),
    (ALTERNATING, 1e-3, -23.94743738947575, True),
    (ALTERNATING, 3e-4, -27.559355688703455, True),
    (ALTERNATING, 5e-5, -32.93463408545012, True),
    (ONE_CHANGE, 1e-1, -4.14379769233217, False),
    (ONE_CHANGE, 1e-2, -6.44308058595297, False),
    (ONE_CHANGE, 1e-3, -8.745632678724839, False),
    (ONE_CHANGE, 3e-4, -9.94960517971742, False),
    (ONE_CHANGE, 5e-5, -11.741364619778807, False),
]
CONTRADICTORY = "pseudo_points and phase contradict each other.*below about -1[0-9][0-9]"


def latent_cov(points, phase, lengthscale=1.0):
    distance = (points - points[:, None]) / lengthscale
    return phase * np.exp(-0.5 * distance**2) * phase[:, None]


def phases(s, kind):
    rng = np.random.default_rng(0)
    return {
        "random": np.where(rng.random(s) < 0.5, -1.0, 1.0),
        "alternating": (-1.0) ** np.arange(s),
        "equal": np.ones(s),
        "halves": np.where(np.arange(s) < s / 2, 1.0, -1.0),
    }[kind]


def fifty():
    """The points and phases that no smooth function has, inputs and labels."""
    X = np.linspace(-2.0, 2.0, 10)[:, None]
    return np.linspace(-2.0, 2.0, 50)[:, None], phases(50, "random"), X, (X[:, 0] > 0).astype(int)


def fifty_process():
    points, phase, _, _ = fifty()
    return sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0), pseudo_points=points, phase=phase)


@pytest.mark.parametrize(("phase", "spacing", "exact", "refused"), EXACT)
def test_three_signs_are_right_or_refused(phase, spacing, exact, refused):
    gamma = latent_cov(spacing * np.arange(3), phase)
    effect = round_off_effect(gamma, np.zeros(3))
    assert refused == (not effect.nats <= LARGEST_EFFECT)
    result = log_prob_and_gradient(np.zeros(3), np.full(3, np.inf), gamma, n_draws=1024)
    if refused:
        assert result.value == -np.inf
        assert exact < effect.log_prob + LARGEST_EFFECT  # a bound, as the message has it
        return
    with no_warnings():
        estimate = log_orthant(np.zeros(3), gamma, 1024, 0)
    # Five standard errors (1024 points, at most 0.002), and what round-off may do.
    assert [estimate.value, result.value] == pytest.approx([exact] * 2, abs=0.01 + effect.nats)


@pytest.mark.parametrize(("s", "lengthscale"), [(8, 1.0), (15, 0.3), (15, 1.0), (50, 0.1)])
@pytest.mark.parametrize("kind", ["random", "alternating", "equal", "halves"])
def test_what_is_accepted_does_not_depend_on_round_off(s, kind, lengthscale):
    gamma = latent_cov(np.linspace(-2.0, 2.0, s), phases(s, kind), lengthscale)
    if not round_off_effect(gamma, np.zeros(s)).nats <= LARGEST_EFFECT:
        return
    rng = np.random.default_rng(1)
    values, errors = [], []
    for _ in range(2):
        off = rng.uniform(-1.0, 1.0, gamma.shape) * np.finfo(float).eps
        with no_warnings():
            estimate = log_orthant(np.zeros(s), gamma + off + off.T, 256, 0)
        values.append(estimate.value)
        errors.append(estimate.std_error)
    # Five standard errors of a difference: false alarms 1e-6 for each case, but the seeds are
    # fixed.
    assert abs(values[1] - values[0]) <= LARGEST_EFFECT + 5.0 * np.hypot(*errors)


@pytest.mark.parametrize("kind", ["equal", "halves"])
def test_agreeing_signs_at_many_points_are_accepted(kind):
    gamma = latent_cov(np.linspace(-2.0, 2.0, 50), phases(50, kind))
    assert round_off_effect(gamma, np.zeros(50)).nats < 1e-6


def test_a_jitter_that_is_added_elsewhere_counts():
    gamma = latent_cov(np.linspace(-2.0, 2.0, 10), phases(10, "alternating"))
    assert round_off_effect(gamma, np.zeros(10)).nats <= LARGEST_EFFECT
    assert round_off_effect(gamma, np.zeros(10), 1e-6).nats > LARGEST_EFFECT


def test_units_do_not_count():
    gamma = latent_cov(1e-3 * np.arange(3), ALTERNATING)
    sd = np.array([1e-3, 1.0, 1e3])
    scaled = round_off_effect(gamma * sd * sd[:, None], np.zeros(3))
    assert scaled.nats == pytest.approx(round_off_effect(gamma, np.zeros(3)).nats, rel=0.2)


def test_truncation_that_asks_for_nothing_is_no_contradiction():
    points, phase, X, y = fifty()
    with no_warnings():
        free = sg.SkewGPPosterior(
            X, y, cov_func=rbf(1.0), pseudo_points=points, phase=phase, truncation=20.0
        )
        found = free.log_marginal_likelihood.value
    plain = sg.SkewGPPosterior(X, y, cov_func=rbf(1.0)).log_marginal_likelihood.value
    assert found == pytest.approx(plain, abs=0.05)


def draw_of_a_prior(X, y, signs):
    with pm.Model():
        prior = fifty_process().prior("f", X, jitter=0.0)
        pm.draw(prior, random_seed=1, mode="FAST_COMPILE")


def draws_for_a_trace(X, y, signs):
    arviz_base = pytest.importorskip("arviz_base")
    with pm.Model():
        ls = pm.HalfNormal("ls")
        gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=ls), **signs)
    trace = arviz_base.from_dict({"posterior": {"ls": np.ones((1, 2))}})
    gp.sample_latent(trace, X=X, y=y, progressbar=False)


REFUSED = {
    CONTRADICTORY: lambda X, y, signs: sg.SkewGPPosterior(X, y, cov_func=rbf(1.0), **signs),
    "shorter lengthscale": lambda X, y, signs: fifty_process().posterior(X, y),
    "contradict": lambda X, y, signs: sg.sbc(
        fifty_process(), X, n_simulations=1, draws=9, progressbar=False
    ),
    "pseudo_points": draws_for_a_trace,
    "below about": draw_of_a_prior,
}


@pytest.mark.parametrize("match", REFUSED)
def test_fifty_random_signs_are_refused(match):
    points, phase, X, y = fifty()
    error = sg.ContradictoryPseudoPointsError
    if match == "below about":  # a draw of the distribution, which knows of no pseudo-points
        error = sg.DoublePrecisionError
    with no_warnings(), pytest.raises(error, match=match):
        REFUSED[match](X, y, {"pseudo_points": points, "phase": phase})


def test_a_shorter_lengthscale_helps_as_the_message_says():
    points, phase, X, y = fifty()
    found = sg.SkewGPPosterior(
        X, y, cov_func=rbf(1.0, 0.1), pseudo_points=points, phase=phase
    ).log_marginal_likelihood
    assert -20.0 < found.value < 0.0


def test_the_error_is_of_the_kinds_that_callers_catch():
    for kind in (FloatingPointError, ValueError, sg.DoublePrecisionError):
        assert issubclass(sg.ContradictoryPseudoPointsError, kind)


def test_the_variance_of_the_labels_does_not_add_to_the_jitter():
    """Each row's jitter is a share of its own variance: 1 for the signs, 1e4 for the labels.

    A ten times larger share on the signs alone moves the log evidence by less than five of its
    stated errors, which allow for the jitter (false alarms: t with 15 degrees, 2e-4).
    """
    points, phase = np.linspace(-2.0, 2.0, 20), phases(20, "random")
    plain = rbf(1e4)

    def raised(X, Xs=None, diag=False):
        value = plain(X, Xs, diag)
        return value + 1e-11 * 1e4 * np.eye(len(X)) if Xs is None and not diag else value

    found = [
        sg.SkewGPPosterior(
            np.linspace(-2.0, 2.0, 4), [0, 1, 1, 0], cov_func=k, pseudo_points=points, phase=phase
        )
        for k in (plain, raised)
    ]
    with no_warnings():
        first, second = (posterior.log_marginal_likelihood for posterior in found)
    error = np.hypot(first.std_error, second.std_error)
    assert error < 0.1
    assert abs(first.value - second.value) < 5.0 * error


@pytest.mark.parametrize(
    ("raised", "n_pseudo_points", "wanted", "match"),
    [
        (FloatingPointError("why"), 2, sg.DoublePrecisionError, r"labels y contradict .*\(why\)"),
        (np.linalg.LinAlgError("why"), 2, sg.DoublePrecisionError, "pseudo_points and phase"),
        (FloatingPointError("why"), 0, FloatingPointError, "^why$"),
        (sg.NotPositiveDefiniteError("why"), 2, sg.NotPositiveDefiniteError, "^why$"),
    ],
)
def test_a_failure_with_labels_is_named(raised, n_pseudo_points, wanted, match):
    with pytest.raises(wanted, match=match), naming_the_labels(n_pseudo_points):
        raise raised


@pytest.mark.parametrize(
    "call",
    [
        lambda sun: sun.log_normalizer,
        lambda sun: sun.logpdf(np.zeros(4)),
        lambda sun: sun.logcdf(np.zeros(4)),
        lambda sun: sun.sample(3, random_seed=1),
        lambda sun: sun.mean(n_draws=64),
        lambda sun: sun.marginal([0]).cov(n_draws=64),
        lambda sun: sun.conditional([0], 0.0).sample(3, random_seed=1),
    ],
    ids=["log_normalizer", "logpdf", "logcdf", "sample", "mean", "marginal", "conditional"],
)
def test_a_sun_with_such_a_latent_covariance(call):
    points, phase = np.linspace(-2.0, 2.0, 50), phases(50, "random")
    with no_warnings():  # of the jitter
        sun = sg.SUN.from_cross_cov(
            np.zeros(4), np.eye(4), np.zeros((4, 50)), np.zeros(50), latent_cov(points, phase)
        )
        with pytest.raises(sg.DoublePrecisionError, match=r"latent_cov .* truncation .*below"):
            call(sun)


def test_the_density_of_such_a_prior_is_zero_without_jitter():
    _, _, X, y = fifty()
    with pm.Model() as model, no_warnings():
        fifty_process().marginal_likelihood("y", X, y, jitter=0.0)
    assert model.compile_logp(mode="FAST_COMPILE")({}) == -np.inf


def labelled(s, kind, lengthscale, n=40):
    """Rectangles of n labels, and of the signs at s pseudo-points."""
    points, x = np.linspace(-2.0, 2.0, s), np.linspace(-2.0, 2.0, n)
    sign = np.concatenate([phases(s, kind), np.where(x > 0, 1.0, -1.0)])
    gamma = latent_cov(np.concatenate([points, x]), sign, lengthscale)
    cov = gamma + np.diag(np.concatenate([np.zeros(s), np.ones(n)]))
    infinite = np.full(s + n, np.inf)
    noise = np.concatenate([np.zeros(s), np.ones(n)])
    return evidence_gradient.EvidenceTerms(
        lower=np.zeros(s + n),
        upper=infinite,
        value=np.full(s + n, np.nan),
        cov=cov,
        noise=noise,
        prior_lower=np.zeros(s),
        prior_upper=infinite[:s],
        prior_cov=gamma[:s, :s],
    )


@pytest.mark.parametrize("lengthscale", [0.85, 1.5, 3.4])
def test_the_evidence_by_ep_is_that_of_the_signs_however_improbable(lengthscale):
    terms = labelled(8, "alternating", lengthscale)
    exact = evidence_gradient.evidence_by_draws(terms, 1024)
    # EP's own bias at variance 1, hundredths of a nat.
    assert evidence_gradient.EvidenceByEP()(terms).value == pytest.approx(exact.value, abs=0.1)


@pytest.mark.parametrize(
    "evidence",
    [
        lambda terms: evidence_gradient.EvidenceByEP()(terms).value,
        lambda terms: evidence_gradient.evidence_by_draws(terms, 256).value,
        lambda terms: evidence_gradient.evidence_estimate(terms, 256).value,
    ],
    ids=["EP", "twisted", "estimate"],
)
def test_there_is_no_evidence_where_round_off_decides_the_signs(evidence):
    assert evidence(labelled(50, "random", 1.0)) == -np.inf


@pytest.mark.slow(ci=True)
def test_a_search_for_hyperparameters_keeps_away():
    points, phase, X, y = fifty()
    with pm.Model():
        ls = pm.LogNormal("ls", np.log(0.2), 1.0, initval=0.1)
        gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=ls), pseudo_points=points, phase=phase)
    with no_warnings():
        fit = sg.find_hyperparameters(gp, X, y, n_restarts=2, random_seed=0, progressbar=False)
        assert np.isfinite(gp.posterior(X, y, point=fit.point).log_marginal_likelihood.value)


@pytest.mark.slow(ci=True)
def test_a_search_that_meets_nothing_else_says_so():
    points, phase, X, y = fifty()
    with pm.Model():
        eta = pm.HalfNormal("eta")
        gp = sg.SkewGP(
            cov_func=eta**2 * pm.gp.cov.ExpQuad(1, ls=1.0), pseudo_points=points, phase=phase
        )
    with no_warnings(), pytest.raises(ValueError, match="phases contradict each other"):
        sg.find_hyperparameters(gp, X, y, random_seed=0, progressbar=False)
