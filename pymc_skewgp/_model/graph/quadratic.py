r"""Variables and potentials whose log density is quadratic in latent values, by their own density.

.. math:: \log p(z) = c + b^\top z - \tfrac12 z^\top Q z

with b the gradient at 0 and Q minus the Hessian, which is the same everywhere: so are random walks,
autoregressions, CAR and ICAR fields and Gaussian custom distributions recognised, with no code for
any of them. A white list decides, of operations that keep the gradient affine.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.gradient import jacobian
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import graph_inputs

from pymc_skewgp._model.graph.affine import why_not_affine
from pymc_skewgp._model.graph.lifted_layout import entries_by_name
from pymc_skewgp._model.ops.double_precision import in_double
from pymc_skewgp._model.ops.known_functions import plain_function

# Share of its terms by which the integral of a density may vary by round-off.
_ROUND_OFF = 1e-7
_SPREAD, _SEED = 0.3, 0


class OwnDensity(NamedTuple):
    """Log density of a variable, and its slope in the variable's value: graphs of values."""

    log_density: Any
    slope: Any


class Quadratic(NamedTuple):
    """A log density c + b' z - z' Q z / 2 of some values z, raveled one after the other.

    Attributes
    ----------
    constant : TensorVariable, shape ()
    slope : TensorVariable, shape (d,)
    precision : TensorVariable, shape (d, d)
    """

    constant: Any
    slope: Any
    precision: Any

    def integrated(self, factor: Any) -> tuple[Any, Any, Any]:
        r"""Mean and factor of F z, and the log of the integral but for (2 pi)^(d/2).

        With :math:`Q = L L^\top` and :math:`w = L^{-1} b` these are :math:`F L^{-\top} w`,
        :math:`F L^{-\top}` and :math:`c + w^\top w / 2 - \sum_i \log L_{ii}`.
        """
        chol = pt.linalg.cholesky(self.precision)
        white = pt.linalg.solve_triangular(chol, self.slope, lower=True)
        turned = pt.linalg.solve_triangular(chol, factor.T, lower=True).T
        log_det = pt.log(pt.diagonal(chol)).sum()
        return turned @ white, turned, self.constant + 0.5 * (white @ white) - log_det


# Of each variable: its density where the log of it is quadratic in its value, else None.
_KNOWN: WeakKeyDictionary[Any, OwnDensity | None] = WeakKeyDictionary()


def own_density(model: pm.Model, rv: Any) -> OwnDensity | None:
    """Of a free variable without a transform; None where its log is not quadratic in its value."""
    if rv not in _KNOWN:
        _KNOWN[rv] = _own_density(model, rv)
    return _KNOWN[rv]


def _own_density(model: pm.Model, rv: Any) -> OwnDensity | None:
    if model.rvs_to_transforms[rv] is not None or not rv.dtype.startswith("float"):
        return None
    # Values first: PyMC would copy random variables, and a copy is another one.
    inputs = model.replace_rvs_by_values(rv.owner.inputs)
    given = rv.owner.clone_with_new_inputs(inputs, strict=False).outputs[rv.owner.outputs.index(rv)]
    value = model.rvs_to_values[rv]
    try:
        log_density = pm.logp(given, value, warn_rvs=False).sum()
        (log_density,) = in_double([entries_by_name(log_density)])
        slope = slopes_of(log_density, [value])[0]
    except Exception:  # what PyMC's many rules raise: it has no density, or no gradient
        return None
    return OwnDensity(log_density, slope) if why_not_affine(slope, [value]) is None else None


def slopes_of(log_density: Any, values: Sequence[Any]) -> list[Any]:
    """Gradient in some values."""
    found: list[Any] = pt.grad(
        log_density, list(values), disconnected_inputs="ignore", return_disconnected="zero"
    )
    return found


def why_not_quadratic(log_density: Any, values: Sequence[Any]) -> str | None:
    """First operation by which a log density is not known to be quadratic in values, or None."""
    reasons = (why_not_affine(slope, list(values)) for slope in slopes_of(log_density, values))
    return next((reason for reason in reasons if reason is not None), None)


def has_constant_integral(model: pm.Model, rv: Any, above: Sequence[Any]) -> bool:
    """Whether the integral of a density over its variable does not depend on others `above` it.

    As of a random walk on its drift. By value, near the model's initial point, of what is quadratic
    in all of them together; True where the density has no integral. At that point itself other
    coefficients are zero.
    """
    own, point = own_density(model, rv), model.initial_point()
    assert own is not None
    values = [model.rvs_to_values[x] for x in [rv, *above]]
    origins = [pt.as_tensor(np.zeros_like(point[x.name])) for x in values]
    found = quadratic_in(own.log_density, values, origins)
    used = set(graph_inputs([found.slope, found.precision]))
    inputs = [x for x in model.value_vars if x in used]
    function = plain_function(inputs, [found.slope, found.precision])
    k = point[values[0].name].size
    rng = np.random.default_rng(_SEED)
    near = [point[x.name] for x in inputs]
    near = [x if x.dtype.kind != "f" else x + _SPREAD * rng.normal(size=x.shape) for x in near]
    try:
        slope, precision = function(*near)
        carried = np.linalg.solve(precision[:k, :k], np.c_[precision[:k, k:], slope[:k]])
    except np.linalg.LinAlgError:
        return True
    except ValueError:  # of parameters out of their range
        return False
    whole = np.c_[precision[k:, k:], slope[k:]]
    left = np.abs(whole - precision[k:, :k] @ carried).max(initial=0.0)
    return bool(left <= _ROUND_OFF * np.abs(whole).max(initial=0.0))


def quadratic_in(log_density: Any, values: Sequence[Any], origins: Sequence[Any]) -> Quadratic:
    """The coefficients of a log density for which `why_not_quadratic` is None; free of `values`."""
    slopes = slopes_of(log_density, values)
    zeros = dict(zip(values, origins, strict=True))
    rows = []
    for slope, origin in zip(slopes, origins, strict=True):
        flat = pt.broadcast_to(slope, origin.shape).ravel()
        own = []
        for value, other in zip(values, origins, strict=True):
            bend = jacobian(flat, value, vectorize=True, disconnected_inputs="ignore")
            own.append(-clone_replace(bend, zeros).reshape((origin.size, other.size)))
        rows.append(own[0] if len(own) == 1 else pt.concatenate(own, axis=1))
    at_zero = clone_replace([log_density, *slopes], zeros)
    flat = [
        pt.broadcast_to(x, origin.shape).ravel()
        for x, origin in zip(at_zero[1:], origins, strict=True)
    ]
    return Quadratic(
        at_zero[0],
        flat[0] if len(flat) == 1 else pt.concatenate(flat),
        rows[0] if len(rows) == 1 else pt.concatenate(rows, axis=0),
    )
