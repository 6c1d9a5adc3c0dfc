"""Hyperparameters of a unified skew-normal variable in a PyMC model, moved without it."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from pymc.pytensorf import compile
from pytensor.graph.traversal import ancestors, graph_inputs

from pymc_skewgp._mcmc.augmentation import Augmentation, ProbitSUN
from pymc_skewgp._mcmc.collapsed_slices import CollapsedSlices
from pymc_skewgp._mcmc.conjugate_moves import Between
from pymc_skewgp._model.distributions.unified_skew_normal import UnifiedSkewNormalRV
from pymc_skewgp._model.graph.probit_model import ProbitModel
from pymc_skewgp._model.ops.mvn_logcdf import pt_mvn_logcdf
from pymc_skewgp._validation import FloatArray

Point = dict[str, NDArray[Any]]


class Hyperparameters:
    """Continuous free variables that a unified skew-normal variable's parameters depend on.

    Other unified skew-normal variables are not among them: they have steps of their own.

    Parameters
    ----------
    model : pymc.Model
    rv : TensorVariable
        The unified skew-normal variable.
    probit : ProbitModel
        Of `rv`.
    compile_kwargs : dict, optional
        Of ``pymc.pytensorf.compile``.
    collapse : bool, default True
        False for none of them.

    Attributes
    ----------
    names : list of str
        Of their value variables, on whose unconstrained scale they are moved.
    """

    def __init__(
        self,
        model: pm.Model,
        rv: Any,
        probit: ProbitModel,
        compile_kwargs: Mapping[str, Any] | None = None,
        *,
        collapse: bool = True,
    ) -> None:
        parameters = model.replace_rvs_by_values(list(rv.owner.op.dist_params(rv.owner)))
        truncation, latent_cov = parameters[3:]
        upstream = set(graph_inputs(parameters))
        moved = [
            value
            for other, value in model.rvs_to_values.items()
            if collapse
            and value in upstream
            and other in model.free_RVs
            and value.dtype.startswith("float")
            and not isinstance(other.owner.op, UnifiedSkewNormalRV)
        ]
        self.names = [value.name for value in moved]
        self._probit = probit
        self.begin()
        if not moved:
            return
        others = [
            other
            for other in [*model.basic_RVs, *model.potentials]
            if other is not rv and other.name not in probit.observed
        ]
        terms = model.logp(vars=others, jacobian=True, sum=False)
        # With f integrated out its own density leaves the constant that normalises it.
        if latent_cov.type.shape[-1] != 0:
            terms.append(-pt_mvn_logcdf(truncation, latent_cov))
        terms = [term.sum() for term in terms if not set(moved).isdisjoint(ancestors([term]))]
        total = sum(terms[1:], start=terms[0])
        used = set(graph_inputs([total]))
        inputs = [value for value in model.value_vars if value in used]
        self._inputs = [value.name for value in inputs]
        self._log_rest = compile(inputs, total, **(compile_kwargs or {}))

    def begin(self) -> None:
        """Begin a chain: what the last one learnt is not for the next."""
        self._slices: CollapsedSlices | None = None

    def between(
        self, point: Point, rng: np.random.Generator, *, tune: bool
    ) -> tuple[Between | None, Callable[[], Point]]:
        """A move of them that starts at `point`, and where it ended once it was made.

        Returns
        -------
        between : callable or None
            See `ConjugateSampler.step`. None where there is nothing to move.
        moved : callable
            Their values after the move.
        """
        if not self.names:
            return None, lambda: {}
        values = np.concatenate([np.ravel(point[name]) for name in self.names]).astype(float)
        if self._slices is None:
            self._slices = CollapsedSlices(values.size)
        slices = self._slices

        def evaluate(candidate: FloatArray) -> tuple[ProbitSUN, float]:
            there = {**point, **self._split(candidate, point)}
            log_rest = float(self._log_rest(*(there[name] for name in self._inputs)))
            return self._probit.parameters(there), log_rest

        def move(u: FloatArray, target: Augmentation) -> tuple[FloatArray, Augmentation]:
            nonlocal values
            values, u, target = slices.move(evaluate, values, u, target, rng, tune=tune)
            return u, target

        return move, lambda: self._split(values, point)

    def _split(self, values: FloatArray, point: Point) -> Point:
        parts, start = {}, 0
        for name in self.names:
            like = np.asarray(point[name])
            part = values[start : start + like.size]
            parts[name] = part.reshape(like.shape).astype(like.dtype, copy=False)
            start += like.size
        return parts
