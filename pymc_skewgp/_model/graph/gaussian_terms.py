"""Predictors of a block, and the terms of one without a SkewGP."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.traversal import graph_inputs

from pymc_skewgp._errors import NotSitesError
from pymc_skewgp._model.graph.analysis import BlockGraph, ObservedRows
from pymc_skewgp._model.graph.joined_rows import NoisyRows, joined, joint_counts
from pymc_skewgp._model.graph.joint_gaussian import JointGaussian, joint_gaussian
from pymc_skewgp._model.graph.lean_terms import lean_terms
from pymc_skewgp._model.graph.likelihoods.likelihood import Likelihood
from pymc_skewgp._model.graph.observed_sites import site_design
from pymc_skewgp._model.ops.known_functions import plain_function
from pymc_skewgp._model.ops.plain_mode import PLAIN
from pymc_skewgp._posterior.factor_terms import FactorTerms
from pymc_skewgp._validation import FloatArray

# Deviations of the Gaussian in place of a flat prior, beside what the data can say.
_FLAT = 1e5


class SiteDesign(NamedTuple):
    """Predictors A z + a of the sites of a block, z its vector: graphs.

    Attributes
    ----------
    A : TensorVariable, shape (m, q)
    a : TensorVariable, shape (m,)
    """

    A: Any
    a: Any


def predictors_of(block: BlockGraph) -> SiteDesign:
    """Of rows, then of sites."""
    designs, offsets = [], []
    for y in block.observed:
        checked(y.name, y.values, y.likelihood)
        m, p = y.a.shape[0], block.prior.mu.shape[0]
        # Without a design eta is f itself, or its one entry for all rows.
        same = pt.switch(pt.eq(m, p), pt.eye(m, p), pt.ones((m, p)))
        designs.append(same if y.A is None else y.A)
        offsets.append(y.a)
    for known in block.sites:
        designs.append(site_design(block, known))
        offsets.append(known.a)
    return SiteDesign(joined(designs), joined(offsets))


def gaussian_terms(
    model: pm.Model, block: BlockGraph, potentials: Sequence[Any]
) -> tuple[FactorTerms, JointGaussian]:
    """Terms of a block without a SkewGP, and its vector of white coordinates."""
    A, a = predictors_of(block)
    joint = joint_gaussian(model, block.members, potentials, _flat_scales(model, block, A))
    rows = [noisy_rows(y) for y in block.observed]
    if any(x.S.type.ndim != 1 for x in rows):
        raise NotSitesError("noise that observations share is not known to a block without SkewGP.")
    nothing = pt.zeros(0, dtype="float64")
    lower, upper, value, noise = (
        joined([getattr(x, name) for x in rows]) if rows else nothing
        for name in ("lower", "upper", "value", "S")
    )
    counts = joint_counts([(x.counts, x.lower) for x in rows]) if rows else None
    constants = [joint.log_constant, *(x.log_constant for x in rows)]
    terms = FactorTerms(
        A,
        a,
        lower,
        upper,
        value,
        noise,
        pt.as_tensor_variable(np.float64(1.0) if counts is None else counts),
        sum(constants),
    )
    return lean_terms(model, terms, joint), joint


def _flat_scales(model: pm.Model, block: BlockGraph, A: Any) -> dict[str, FloatArray]:
    """Deviations in place of density 1: many times what the data can say, column by column."""
    if not any(member.is_flat for member in block.members):
        return {}
    point = model.initial_point()
    found = [A, *(y.value for y in block.observed if y.value is not None)]
    used = set(graph_inputs(found))
    inputs = [value for value in model.value_vars if value in used]
    design, *data = plain_function(inputs, found)(*(point[x.name] for x in inputs))
    size = max((np.nanmax(np.abs(x), initial=1.0) for x in data), default=1.0)
    columns = np.sqrt(np.mean(np.asarray(design) ** 2, axis=0))
    scales = _FLAT * size / np.where(columns > 0.0, columns, 1.0)
    ends = np.cumsum([np.size(point[member.value.name]) for member in block.members])
    each = zip(block.members, np.split(scales, ends[:-1]), strict=True)
    return {member.name: own for member, own in each if member.is_flat}


def noisy_rows(y: ObservedRows) -> NoisyRows:
    """Rows of the vector of a block."""
    value = nowhere(y.lower) if y.value is None else y.value
    log_constant = zero() if y.log_constant is None else y.log_constant
    log_constant = pt.cast(log_constant, "float64")
    return NoisyRows(y.S, y.lower, y.upper, value, log_constant, counts=y.counts)


def checked(name: str, values: Any, likelihood: Likelihood) -> Any:
    """The data, where they are what a likelihood asks for."""
    likelihood.check(name, values.eval(mode=PLAIN))
    return values


def nowhere(like: Any) -> Any:
    """The value of rows that are intervals."""
    return pt.full_like(like, pt.constant(float("nan"), dtype="float64"), dtype="float64")


def zero() -> Any:
    """The log of no constant."""
    return pt.constant(0.0, dtype="float64")
