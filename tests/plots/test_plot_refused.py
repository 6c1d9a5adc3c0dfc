"""What no plot can show: refused by name, and no empty figure is left."""

from functools import partial

import arviz as az
import numpy as np
import pymc as pm
import pytest
from xarray import Dataset

import pymc_skewgp as sg

X, PLANE = np.arange(4.0), np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.5]])
VALUE = np.array([0.5, -0.2, 0.1, -0.3])


def normal(n):
    return sg.LatentMarginals(np.zeros((n, 1)), np.ones(n), np.ones(1))


def coverage(*, without=()):
    each = {"coverage": ("prob", [0.5]), "mean": ("prob", [0.5]), "mean_se": ("prob", [0.1])}
    return Dataset(each, coords={"prob": [0.5]}).drop_vars(without)


def process(d=1):
    return sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(d, ls=1.0))


def drawn(group, name, shape):
    return az.from_dict({group: {name: np.full(shape, 0.5)}})


SLICE, BAND, SKEW = sg.plot_slice_density, sg.plot_latent_band, sg.plot_skewness
PRIOR, SECOND, COVER = sg.plot_prior_draws, sg.plot_second_order, sg.plot_coverage
ONE = sg.SUN([1.0], [[4.0]], [[0.9]], [0.0], [[1.0]])
THREE = sg.SUN(np.zeros(3), np.eye(3), np.zeros((3, 1)), [0.0], [[1.0]])
CONTOUR = {"kind": "contour"}
P, SD = np.array([0.9, 0.6, 0.2, 0.1, 0.5]), np.array([0.1, 0.2, 0.15, 0.05, 0.3])
REFUSED = [
    (partial(SLICE, normal(2), 2), IndexError, r"index 2 is beyond the 2 point\(s\)"),
    (partial(SLICE, normal(2), -3), IndexError, "index -3"),
    (partial(SLICE, normal(2), 0.5), TypeError, "index must be an integer, got float"),
    (partial(SLICE, {}, 0), ValueError, "marginals is empty"),
    (partial(SLICE, {"a": normal(2)}, 0, labels=["a", "b"]), ValueError, r"1 different name\(s\)"),
    (partial(SLICE, "f", 0), TypeError, "got str"),
    (partial(SLICE, {"a": [1.0]}, 0), TypeError, "got list"),
    (partial(SLICE, {"a": normal(2), "b": normal(3)}, 0), ValueError, "numbers: {'a': 2, 'b': 3}"),
    (partial(SLICE, drawn("posterior", "f", (2, 9, 1)), 0, labels="d"), ValueError, "d has no spr"),
    (partial(SLICE, normal(2), 0, X=np.zeros(3)), ValueError, r"3 row\(s\), but marginals has 2"),
    (partial(SLICE, normal(2), 0, y=[1]), ValueError, r"y must have shape \(2,\)"),
    (partial(SKEW, np.zeros((4, 3)), VALUE), ValueError, r"1 or 2 column\(s\), got 3: choose"),
    (partial(SKEW, X[:3], VALUE), ValueError, r"3 row\(s\), but skewness has 4"),
    (
        partial(SKEW, X, Dataset({"skewness_se": 1.0})),
        KeyError,
        r"lacks skewness.*\['skewness_se'\]",
    ),
    (partial(SKEW, PLANE, VALUE, kind="map"), ValueError, '"scatter" or "contour", got \'map\''),
    (partial(SKEW, X, VALUE, **CONTOUR), ValueError, "two columns, and X has one"),
    (partial(SKEW, X, VALUE, vmax=1.0), ValueError, "two columns, and X has one"),
    (partial(SKEW, PLANE, VALUE, vmax=0.0), ValueError, "vmax must be positive"),
    (partial(SKEW, PLANE[:2], VALUE[:2], **CONTOUR), ValueError, "got 2: use kind="),
    (partial(SKEW, np.outer(X, [1, 1]), VALUE, **CONTOUR), ValueError, "on one line"),
    (partial(SKEW, PLANE, VALUE, X_data=PLANE), ValueError, "give y as well"),
    (partial(BAND, np.zeros((4, 2)), normal(4)), ValueError, r"1 column\(s\), got 2"),
    (partial(BAND, X[:3], normal(4)), ValueError, r"3 row\(s\), but exact has 4 point\(s\)"),
    (partial(BAND, X, normal(4), prob=1.0), ValueError, "strictly between 0 and 1, got 1.0"),
    (partial(BAND, X, normal(4), y=[0, 1]), ValueError, r"y must have shape \(4,\)"),
    (partial(BAND, X, normal(4), X_data=[0.0]), ValueError, "give y as well"),
    (partial(BAND, X, normal(4), normal(4), labels="exact"), ValueError, "name both"),
    (partial(BAND, X, normal(4), normal(4), labels=None), TypeError, "or a list of them; got None"),
    (partial(BAND, X, "posterior"), TypeError, "expected a SkewGPPosterior.*got str"),
    (partial(BAND, X, normal(4), normal(2)), ValueError, r"approximation has 2 point\(s\)"),
    (
        partial(BAND, X, drawn("posterior", "f", (2, 5, 4)), group="prior"),
        KeyError,
        r"no group 'prior'.*\['posterior'\]",
    ),
    (partial(PRIOR, "gp", X), TypeError, "gp must be a SkewGP, got str"),
    (partial(PRIOR, process(), np.zeros((3, 2))), ValueError, r"1 column\(s\), got 2"),
    (partial(PRIOR, process(), X, draws=0), ValueError, "draws must be at least 1, got 0"),
    (partial(PRIOR, process(), X, draws=1.5), TypeError, "draws must be an integer"),
    (partial(PRIOR, process(), X, point=3), TypeError, "point must map names"),
    (partial(PRIOR, process(2), X), ValueError, "gp has 2 inputs"),
    (partial(COVER, {}), ValueError, "coverage is empty"),
    (partial(COVER, [0.5]), TypeError, "coverage must be a Dataset.*got list"),
    (partial(COVER, {"a": coverage(), "b": 0.5}), TypeError, r"coverage\['b'\] must be a Dataset"),
    (partial(COVER, coverage(without="mean_se")), KeyError, "lacks mean_se; it has"),
    (partial(COVER, coverage(without="prob")), KeyError, "lacks prob"),
    (partial(COVER, {"a": coverage()}, labels=["a", "b"]), ValueError, "1 different"),
    (partial(sg.plot_sun_density, [0.0]), TypeError, "sun must be a SUN, got list"),
    (partial(sg.plot_sun_density, THREE), ValueError, r"3 dimensions.*sun.marginal\(\[0, 1\]\)"),
    (partial(sg.plot_sun_density, ONE, n_grid=1), ValueError, "n_grid must be at least 2, got 1"),
    (partial(sg.plot_sun_density, ONE, levels=1), ValueError, "levels must be at least 2, got 1"),
    (partial(SECOND, P), ValueError, "p_sd is missing"),
    (partial(SECOND, P, SD[:3]), ValueError, "p_sd must have length 5, got 3"),
    (partial(SECOND, P, SD, [1, 0]), ValueError, r"y must have shape \(5,\)"),
    (partial(SECOND, P * 3, SD), ValueError, r"got ranges \[0.3, 2.7\]"),
    (partial(SECOND, P, -SD), ValueError, "p_sd must not be negative"),
    (
        partial(SECOND, drawn("predictions", "f", (1, 8, 2)), group="posterior"),
        KeyError,
        r"no group 'posterior'.*\['predictions'\]",
    ),
    (
        partial(SECOND, drawn("predictions", "f", (1, 8, 2)), [0.1, 0.1], var="f"),
        ValueError,
        "comes from the DataTree",
    ),
    (partial(sg.plot_prior_report, 3), TypeError, "prior_report"),
    (partial(sg.plot_prior_report, Dataset({"p": 0.5})), KeyError, "f_mean"),
]


@pytest.mark.parametrize(("call", "error", "message"), REFUSED)
@pytest.mark.usefixtures("no_figure_left")
def test_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
