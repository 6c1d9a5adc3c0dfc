"""Models as users write them: which step they get, and the rows behind it.

The cases are in `patterns`, and the same table is on the page docs/patterns.md.
"""

import warnings
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pymc as pm
import pytest
from mixture_oracles import log_marginal, rows_about
from patterns import PATTERNS, Pattern
from pymc.sampling.mcmc import assign_step_methods
from pytensor.graph.traversal import graph_inputs
from scipy import stats
from scipy.special import log_ndtr, ndtr
from step_models import analyse

from pymc_skewgp._errors import NotConjugateWarning
from pymc_skewgp._gaussian.truncated import mvn_logcdf
from pymc_skewgp._model.steps.block_move import LatentAtPoint
from pymc_skewgp._model.steps.sun_step import ConjugateStep

pytestmark = pytest.mark.usefixtures("in_python")

PAGE = Path(__file__).parents[2] / "docs" / "patterns.md"
ALL = [pattern for patterns in PATTERNS.values() for pattern in patterns]
by_code = pytest.mark.parametrize("pattern", ALL, ids=lambda p: p.code)


def assigned(model):
    """Names of the variables that `ConjugateStep` would get, and the warnings.

    PyMC looks whether the log density has gradients, which takes most of its time: it has.
    """
    gradients = patch.object(pm.Model, "logp"), patch("pymc.sampling.mcmc.tg")
    with warnings.catch_warnings(record=True) as caught, gradients[0], gradients[1]:
        warnings.simplefilter("always")
        _, steps = assign_step_methods(model)
    mine = [x for x in caught if issubclass(x.category, NotConjugateWarning)]
    names = {model.values_to_rvs[value].name for value in steps.get(ConjugateStep, [])}
    return names, [str(x.message) for x in mine]


@by_code
def test_step(pattern: Pattern):
    model = pattern.build()
    names, messages = assigned(model)
    if pattern.why:
        assert any("as it stands" in message and pattern.why in message for message in messages)
    else:
        assert not messages
    assert names == {*pattern.block, *pattern.moved, *pattern.predicted, *pattern.apart}
    if pattern.block and not pattern.under_sites:
        latent = analyse(model, model["f"])
        assert set(latent.names) == set(pattern.block)
        mixed = [y for y in latent.observed if y.rows.mixture is not None]
        assert bool(mixed) == pattern.given_indicators
        rows_have_the_density_of_the_data(model, latent)


def log_density_of_rows(observed, f):
    """Log density of the points, and log probability of the intervals, given f.

    Intervals whose noise is shared have the limits 0 and infinity in these patterns.
    """
    centre = observed.of(f) + observed.a
    point = observed.is_point
    S = observed.S if observed.S.ndim == 2 else np.diag(observed.S)
    assert not S[np.ix_(point, ~point)].any()
    total = 0.0
    if point.any():
        normal = stats.multivariate_normal(centre[point], S[np.ix_(point, point)])
        total += normal.logpdf(observed.value[point])
    rest = list(np.flatnonzero(~point))
    while rest:
        block = np.flatnonzero(S[rest[0]])
        rest = [i for i in rest if i not in block]
        lower, upper, mean = observed.lower[block], observed.upper[block], centre[block]
        if block.size > 1:
            assert (lower == 0).all()
            assert np.isposinf(upper).all()
            total += mvn_logcdf(mean, cov=S[np.ix_(block, block)]).value
            continue
        low, high = (x[0] / np.sqrt(S[block[0], block[0]]) for x in (lower - mean, upper - mean))
        total += log_ndtr(-low) if high == np.inf else np.log(ndtr(high) - ndtr(low))
    return total


def log_density_of_data(model, f):
    """Of rows, and of mixtures of rows with their indicators integrated out."""
    observed, mixed = model.observations, np.zeros(model.observations.n_rows, bool)
    total = 0.0
    for mixture, where in model.mixtures:
        mixed[where] = True
        about = rows_about(observed, observed.of(f) + observed.a, where)
        total += log_marginal(mixture, about).sum()
    return total if mixed.all() else total + log_density_of_rows(observed.rows(~mixed), f)


def rows_have_the_density_of_the_data(model, latent):
    """By PyMC's own log density of what is observed, at two points."""
    # Were they functions of what is drawn, they would be computed anew in every step.
    graphs = [*latent.prior, *(x for y in latent.observed for x in (y.A, y.a, *y.rows.graphs))]
    assert set(graph_inputs(graphs)).isdisjoint(latent.values)
    at_point = LatentAtPoint(model, latent, {"mode": "FAST_COMPILE"})
    own = [model[y.name] for y in latent.observed]
    logp = model.compile_logp(vars=own, mode="FAST_COMPILE")
    constants = [y.rows.log_constant for y in latent.observed]
    constant = sum(float(x.eval()) for x in constants if x is not None)
    rng, start = np.random.default_rng(len(latent.names)), model.initial_point()
    for _ in range(2):
        point = {k: v + 0.5 * rng.standard_normal(v.shape) for k, v in start.items()}
        f = np.concatenate([point[value.name].ravel() for value in latent.values])
        rows = log_density_of_data(at_point.model(point), f)
        # PyMC takes a root of two in single precision here and there: 1e-8 a row.
        assert rows + constant == pytest.approx(float(logp(point)), abs=1e-6)


def test_the_page_has_the_table():
    """Row by row; `python tests/patterns.py` prints it."""
    text = PAGE.read_text()
    place = 0
    for heading, patterns in PATTERNS.items():
        place = text.index(f"## {heading}\n", place)
        for pattern in patterns:
            assert pattern.row() in text[place:], pattern.row()
            place = text.index(pattern.row(), place)
    others = text.index("## What data look like")
    assert text[:others].count("\n| `") == len(ALL)
