"""Log evidence plus log prior as a function of a vector of unconstrained hyperparameters."""

from collections.abc import Container, Iterator, Mapping, Sequence
from copy import copy
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.initial_point import make_initial_point_fn
from pytensor.graph.traversal import ancestors, graph_inputs
from pytensor.tensor.random.basic import BernoulliRV

from pymc_skewgp._gaussian.points import uniform_points
from pymc_skewgp._gaussian.weights import Estimate
from pymc_skewgp._model.gp.functions import is_random
from pymc_skewgp._model.graph.collapsed import Collapsed
from pymc_skewgp._model.ops.plain_mode import PLAIN
from pymc_skewgp._posterior.evidence_gradient import (
    EP_TOLERANCE,
    EvidenceByEP,
    EvidenceGradient,
    EvidenceTerms,
    evidence_by_twisting,
    evidence_estimate,
)
from pymc_skewgp._threads import few_blas_threads
from pymc_skewgp._validation import FloatArray, refuse_masked, refuse_other_kinds

# Half the width of the box, on the unconstrained scale: a factor of a thousand for what is
# positive, and for what lies between two bounds all but a thousandth of their distance.
_HALF_WIDTH = float(np.log(1e3))
# What starts move a flat prior's variable by, its entries together and each by itself.
_SPREAD, _SCATTER = 3.0, 0.3
_MOST_BINARY = 3
_ROUGH = 3e-4  # tolerance of EP where it need not be better

Batch = tuple[FloatArray, ...]
Pattern = tuple[int, ...]


class Value(NamedTuple):
    """Of the objective at a point, with its gradient."""

    total: float
    log_evidence: float
    gradient: FloatArray
    noise: float = 0.0  # what the evidence jumps by between neighbours


class Objective:
    """Log evidence and log prior of a collapsed model, over its continuous free variables.

    Parameters
    ----------
    model : pymc.Model
    collapsed : Collapsed
    data : sequence of variables
        What the orthants are functions of besides the model's variables: none, or inputs and signs.
    batches : sequence of tuples of arrays
        Values of `data`; the log evidence is the sum over them.

    Attributes
    ----------
    names : list of str
        Of the variables' values, as the model knows them (``ls_log__``).
    labels : list of str
        Of the coordinates of the vector: names of variables, with an index (``ls[0]``), though the
        vector has them on the unconstrained scale.
    binary : list of str
        Of the binary free variables, which a pattern gives the values of.
    """

    def __init__(
        self,
        model: pm.Model,
        collapsed: Collapsed,
        data: Sequence[Any] = (),
        batches: Sequence[Batch] = ((),),
    ) -> None:
        self._model, self._batches = model, list(batches)
        flat = model.replace_rvs_by_values([x for graph in collapsed.evidences for x in graph])
        size = len(EvidenceTerms._fields)
        graphs = [EvidenceTerms(*flat[i : i + size]) for i in range(0, len(flat), size)]
        terms = [t.sum() for t in model.logp(vars=collapsed.rest, jacobian=False, sum=False)]
        log_prior = sum(terms, start=pt.constant(0.0))
        _refuse_foreign_variables([*flat, log_prior])
        used = set(graph_inputs([*flat, log_prior]))
        values = [value for value in model.value_vars if value in used]
        self._continuous = [v for v in values if v.dtype.startswith("float")]
        self._discrete = [v for v in values if v not in self._continuous]
        self.names = [v.name for v in self._continuous]
        self.binary = [v.name for v in self._discrete]
        for value in self._discrete:
            rv = model.values_to_rvs[value]
            if not isinstance(rv.owner.op, BernoulliRV):
                raise ValueError(
                    f"{rv.name} is discrete: only pm.Bernoulli variables can be learnt, by trying "
                    "every value. Give it a value with pm.do."
                )
        if not values:
            raise ValueError(
                "there is nothing to learn: no covariance, mean, pseudo-point, phase or "
                "truncation depends on a random variable. Give what is to be learnt a prior, as "
                'in ls = pm.HalfFlat("ls").'
            )
        inputs = [*self._continuous, *self._discrete]
        self._evidences = [
            _CompiledEvidence(inputs, list(data), graph, self._continuous) for graph in graphs
        ]
        slopes = _gradient(log_prior, self._continuous)
        self._log_prior = _function(inputs, [log_prior, *slopes])
        self._compile_points(inputs)
        self._size = 0  # of the last matrix
        self._by_ep = self._fresh_sites()

    def on(self, batches: Sequence[Batch]) -> "Objective":
        """The same for other data, nothing compiled anew."""
        other = copy(self)
        other._batches = list(batches)
        other._by_ep = other._fresh_sites()
        return other

    def _fresh_sites(self) -> dict[tuple[int, ...], EvidenceByEP]:
        """EP for every orthant of every batch, with nothing to begin from."""
        # A composite likelihood is off by more than EP ever is.
        tol = EP_TOLERANCE if len(self._batches) <= 1 else _ROUGH
        keys = np.ndindex(len(self._evidences), len(self._batches))
        return {key: EvidenceByEP(tol) for key in keys}

    # --- points ----------------------------------------------------------------------------

    def _compile_points(self, inputs: list[Any]) -> None:
        """Free variables and what is computed from them, on their own scale."""
        model = self._model
        free = [model.values_to_rvs[v] for v in inputs]
        graphs = model.replace_rvs_by_values([*free, *model.deterministics])
        unknown = set(model.value_vars) - set(inputs)
        names = [rv.name for rv in [*free, *model.deterministics]]
        # A Deterministic of a latent function that is integrated out has no value.
        kept = [
            (name, graph)
            for name, graph in zip(names, graphs, strict=True)
            if unknown.isdisjoint(graph_inputs([graph]))
        ]
        self._point_names = [name for name, _ in kept]
        self._point = _function(inputs, [graph for _, graph in kept])

    def start(self, overrides: Mapping[str, Any] | None = None) -> FloatArray:
        """The model's initial point as a vector, or values given by name, on their own scale."""
        model = self._model
        by_name = {rv.name: rv for rv in model.free_RVs}
        given = dict(overrides or {})
        for name in {v.name for v in model.deterministics}.intersection(given):
            del given[name]  # of another fit's point, say
        unknown = sorted(set(given) - set(by_name))
        if unknown:
            raise ValueError(
                f"start has {', '.join(unknown)}; free variables are {', '.join(by_name)}."
            )
        strategies = {by_name[name]: _of_shape(by_name[name], x) for name, x in given.items()}
        initial = make_initial_point_fn(model=model, overrides=strategies, jitter_rvs=set())
        point = initial(0)
        outside = [
            model.values_to_rvs[value].name
            for value in self._continuous
            if not np.isfinite(point[value.name]).all()
        ]
        if outside:
            raise ValueError(f"start lies outside of the support of {', '.join(outside)}.")
        self._shapes = [np.shape(point[name]) for name in self.names]
        own = [model.values_to_rvs[value].name for value in self._continuous]
        self.labels = [
            name if shape == () else f"{name}[{', '.join(map(str, index))}]"
            for name, shape in zip(own, self._shapes, strict=True)
            for index in np.ndindex(shape)
        ]
        self._n_binary = [(np.shape(point[name]), np.size(point[name])) for name in self.binary]
        return np.concatenate([np.ravel(point[name]) for name in self.names] or [np.zeros(0)])

    def patterns(self) -> list[Pattern]:
        """All values of the binary variables together; one empty pattern where there are none."""
        n = sum(size for _, size in self._n_binary)
        if n > _MOST_BINARY:
            raise ValueError(
                f"{', '.join(self.binary)} together have {n} binary entries: at most "
                f"{_MOST_BINARY} are learnt, by trying all their values."
            )
        return list(product((0, 1), repeat=n))

    def bounds(self, start: FloatArray, held: Container[str] = ()) -> list[tuple[float, float]]:
        """The box around `start`: none where a variable is not transformed, no width where held."""
        box: list[tuple[float, float]] = []
        for value, part in zip(self._continuous, self._split(start), strict=True):
            rv = self._model.values_to_rvs[value]
            free = self._model.rvs_to_transforms[rv] is None
            width = 0.0 if rv.name in held else np.inf if free else _HALF_WIDTH
            box += [(x - width, x + width) for x in part.ravel().tolist()]
        return box

    def spread_starts(
        self, start: FloatArray, count: int, rng: np.random.Generator
    ) -> list[FloatArray]:
        """Points all over the prior, or, where it is flat, up to a factor of twenty from `start`.

        The entries of a variable move together, for the most part: lengthscales of many inputs are
        long together or short together.
        """
        shifts = uniform_points(max(len(self._continuous), 1), count, 1, rng)
        columns = []
        for value, part, q in zip(self._continuous, self._split(start), shifts, strict=False):
            own = _prior_draws(self._model, value, count, rng)
            if own is None:
                together = _SPREAD * (2.0 * q[:, None] - 1.0)
                own = part.ravel() + together + rng.normal(0.0, _SCATTER, (count, part.size))
            columns.append(own.reshape(count, -1))
        if not columns:
            return [start] * count
        low, high = np.transpose(self.bounds(start))
        return list(np.clip(np.hstack(columns), low, high))

    def point(self, x: FloatArray, pattern: Pattern) -> dict[str, NDArray[Any]]:
        """Values by name on their own scale, those of Deterministics among them."""
        results = self._point(*self._arguments(x, pattern))
        return dict(zip(self._point_names, map(np.asarray, results), strict=True))

    def refuse_other_phases(self, x: FloatArray, pattern: Pattern, exact: bool) -> None:
        """Raise where a phase is none: their squares are the variances of the latent signs."""
        for *_, orthants in self._orthants(x, pattern):
            squares = orthants.prior_cov.diagonal()
            if not (squares > 0).all() or (exact and np.abs(squares - 1.0).max(initial=0.0) > 1e-3):
                raise ValueError(
                    f"with {', '.join(self.binary)} = {pattern} a phase is neither +1 nor -1: "
                    'write 2 * pm.Bernoulli("positive", 0.5, shape=s) - 1.'
                )

    # --- values ----------------------------------------------------------------------------

    def by_ep(self, x: FloatArray, pattern: Pattern) -> Value:
        """Value and gradient with the evidence of expectation propagation."""
        return self._value(x, pattern, lambda key, o: self._by_ep[key](o))

    def by_twisting(self, x: FloatArray, pattern: Pattern, n_draws: int, seed: int) -> Value:
        """Value and gradient with the evidence of the twisted sampler."""
        return self._value(x, pattern, lambda key, o: evidence_by_twisting(o, n_draws, seed))

    def estimate(self, x: FloatArray, pattern: Pattern, n_draws: int, seed: int) -> Estimate:
        """Log evidence with its error, summed over the batches."""
        estimates = [
            evidence_estimate(orthants, n_draws, seed)
            for *_, orthants in self._orthants(x, pattern)
        ]
        values, errors, fractions, shapes = np.transpose(estimates)
        return Estimate(
            float(values.sum()),
            float(np.sqrt((errors**2).sum())),
            float(fractions.min()),
            float(shapes.max()),
        )

    def log_prior(self, x: FloatArray, pattern: Pattern) -> float:
        """Log density of the rest of the model, without Jacobians."""
        return float(self._log_prior(*self._arguments(x, pattern))[0])

    def batch_evidences(self, x: FloatArray, pattern: Pattern, n_draws: int) -> FloatArray:
        """Log evidence of every batch by the twisted sampler, no gradient."""
        orthants = [o for *_, o in self._orthants(x, pattern)]
        return np.array([evidence_estimate(o, n_draws).value for o in orthants])

    def _value(self, x: FloatArray, pattern: Pattern, evidence: Any) -> Value:
        # Between the kernel's passes and the factorisations a second BLAS thread would be woken
        # and sent to sleep all the time.
        with few_blas_threads(self._size):
            return self._sum(x, pattern, evidence)

    def _sum(self, x: FloatArray, pattern: Pattern, evidence: Any) -> Value:
        arguments = self._arguments(x, pattern)
        log_prior, *slopes = self._log_prior(*arguments)
        total, noise, gradient = 0.0, 0.0, [np.array(s, dtype=np.float64) for s in slopes]
        for key, compiled, batch, orthants in self._orthants(x, pattern):
            found: EvidenceGradient = evidence(key, orthants)
            total += found.value
            noise = float(np.hypot(noise, found.noise))
            if not np.isfinite(total):
                break
            for sum_, part in zip(
                gradient, compiled.pull_back(arguments, batch, found.wrt), strict=True
            ):
                sum_ += part
        flat = np.concatenate([np.ravel(g) for g in gradient] or [np.zeros(0)])
        value = total + float(log_prior)
        if not (np.isfinite(value) and np.isfinite(flat).all()):
            return Value(-np.inf, -np.inf, np.zeros_like(flat))
        return Value(value, total, flat, noise)

    def _orthants(self, x: FloatArray, pattern: Pattern) -> Iterator[tuple[Any, ...]]:
        arguments = self._arguments(x, pattern)
        for i, compiled in enumerate(self._evidences):
            for j, batch in enumerate(self._batches):
                orthants = compiled(arguments, batch)
                self._size = orthants.cov.shape[0]
                yield (i, j), compiled, batch, orthants

    def _arguments(self, x: FloatArray, pattern: Pattern) -> list[Any]:
        parts: list[Any] = self._split(x)
        begin = 0
        for (shape, size), value in zip(self._n_binary, self._discrete, strict=True):
            part = np.array(pattern[begin : begin + size], dtype=value.dtype)
            parts.append(part.reshape(shape))
            begin += size
        return parts

    def _split(self, x: FloatArray) -> list[FloatArray]:
        ends = np.cumsum([np.prod(shape, dtype=int) for shape in self._shapes])[:-1]
        pieces = np.split(x, ends) if self._shapes else []
        return [p.reshape(shape) for p, shape in zip(pieces, self._shapes, strict=True)]


class _CompiledEvidence:
    """Orthants as a function of the variables, and the gradient pulled back through it."""

    def __init__(
        self, inputs: list[Any], data: list[Any], graph: EvidenceTerms, wrt: list[Any]
    ) -> None:
        self._forward = _function([*inputs, *data], list(graph))
        weights = [output.type() for output in graph]
        weighted = sum((w * output).sum() for w, output in zip(weights, graph, strict=True))
        self._pull = _function([*inputs, *data, *weights], _gradient(weighted, wrt))

    def __call__(self, arguments: list[Any], batch: Batch) -> EvidenceTerms:
        return EvidenceTerms(
            *(np.asarray(x, np.float64) for x in self._forward(*arguments, *batch))
        )

    def pull_back(self, arguments: list[Any], batch: Batch, wrt: EvidenceTerms) -> list[FloatArray]:
        """Gradient in the variables from that in the orthants."""
        result: list[FloatArray] = self._pull(*arguments, *batch, *wrt)
        return result


def _of_shape(rv: Any, value: Any) -> NDArray[Any]:
    """`value` broadcast to the shape of `rv`, as far as that is known."""
    name = f"start[{rv.name!r}]"
    refuse_masked(name, value)
    array, shape = np.asarray(value), rv.type.shape
    refuse_other_kinds(name, array)
    fits = array.ndim <= len(shape) and all(
        want in (None, have) or have == 1
        for want, have in zip(shape[::-1], array.shape[::-1], strict=False)
    )
    if not fits:
        raise ValueError(f"{name} must have shape {shape}, got {array.shape}.")
    return array if None in shape else np.broadcast_to(array, shape).copy()


def _refuse_foreign_variables(graphs: list[Any]) -> None:
    """What is left of random variables when the model's own are values: each a hidden draw."""
    found = [str(v.name or "<unnamed>") for v in ancestors(graphs) if is_random(v)]
    if found:
        raise ValueError(
            f"the model does not know the random variable(s) {', '.join(sorted(set(found)))}: make "
            "them, and the SkewGP, inside one ``with pm.Model():``."
        )


def _prior_draws(
    model: pm.Model, value: Any, count: int, rng: np.random.Generator
) -> FloatArray | None:
    """Draws of a variable on its unconstrained scale; None where its prior is flat."""
    rv = model.values_to_rvs[value]
    transform = model.rvs_to_transforms[rv]
    free = rv if transform is None else transform.forward(rv, *rv.owner.inputs)
    try:
        drawn = pm.draw(free, count, random_seed=int(rng.integers(2**31)), mode=PLAIN)
    except NotImplementedError:
        return None
    return np.asarray(drawn) if np.isfinite(drawn).all() else None


def _gradient(output: Any, wrt: list[Any]) -> list[Any]:
    if not wrt:
        return []
    return list(pt.grad(output, wrt, disconnected_inputs="ignore", return_disconnected="zero"))


def _function(inputs: list[Any], outputs: list[Any]) -> Any:
    return pytensor.function(inputs, outputs, mode=PLAIN, on_unused_input="ignore")
