"""The latent functions for each hyperparameter draw of a trace, given data."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice, starmap
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from xarray import Dataset, DataTree

from pymc_skewgp._errors import LowEffectiveSampleWarning, warn
from pymc_skewgp._model.gp.latent_tree import LatentDraws, latent_tree, refuse_taken_names
from pymc_skewgp._model.gp.marginal_variable import DataOfModel
from pymc_skewgp._model.gp.process import joint_covariance, signs_of_functions
from pymc_skewgp._model.gp.trace import DrawFunction, posterior_draws
from pymc_skewgp._model.gp.values import ValuesAt, as_coregion_graph, mean_of_values
from pymc_skewgp._model.graph.data_rows import KnownData
from pymc_skewgp._model.graph.data_sites import KnownSites
from pymc_skewgp._model.graph.mean_coefficients import OwnScale, with_coefficients
from pymc_skewgp._model.ops.plain_mode import PLAIN
from pymc_skewgp._model.ops.skew_normal import sun_of_process
from pymc_skewgp._observations.likelihood import Likelihood
from pymc_skewgp._observations.observations import Observations, stacked
from pymc_skewgp._observations.sites import SiteLikelihood, SitesOfParts
from pymc_skewgp._observations.values import Values, derivative_groups, function_index, input_index
from pymc_skewgp._posterior.conditioning import Conditioning
from pymc_skewgp._posterior.data_sets import DataSet
from pymc_skewgp._posterior.draws_with_evidence import Case
from pymc_skewgp._posterior.many_draws import draws_of_many
from pymc_skewgp._posterior.prior_values import units_of
from pymc_skewgp._posterior.process import process_given
from pymc_skewgp._validation import FloatArray, as_count

_LEAST_FRACTION = 0.1


class _Kinds(NamedTuple):
    """Data of each kind, and what of the functions they and new points are about."""

    names: list[str]
    known: list[KnownData | KnownSites]
    values: list[Values]
    n_functions: int

    def at(self, random: Sequence[FloatArray]) -> list[Likelihood]:
        """Likelihoods with these values of their random parameters, one after the other."""
        rest = iter(random)
        return [
            part.at(dict(zip(part.random, islice(rest, len(part.random)), strict=True)))
            for part in self.known
        ]

    def rows(self, likelihoods: Sequence[Likelihood], variances: FloatArray) -> Observations:
        """Rows of all the data; `variances` are the prior ones of their values."""
        parts, sizes, start = [], [values.size for values in self.values], 0
        for known, likelihood, size in zip(self.known, likelihoods, sizes, strict=False):
            rows = likelihood.observations(known.y, known.X.shape[0])
            if likelihood.relative_noise:
                rows = replace(rows, S=rows.S * variances[start : start + size])
            start += size
            parts.append(rows)
        return stacked(parts, sizes[: len(parts)])

    def sites(self, likelihoods: Sequence[Likelihood]) -> SitesOfParts | None:
        """Observations that are no rows; None where all are."""
        parts = [
            likelihood.sites(known.y, known.X.shape[0])
            if isinstance(likelihood, SiteLikelihood)
            else None
            for known, likelihood in zip(self.known, likelihoods, strict=True)
        ]
        if all(part is None for part in parts):
            return None
        return SitesOfParts(parts, [values.size for values in self.values[: len(parts)]])


def draw_latent(
    gp: Any,
    idata: DataTree,
    data: DataOfModel,
    Xnew: FloatArray | None,
    *,
    name: str,
    n_candidates: int,
    rng: np.random.Generator,
    progressbar: bool,
) -> DataTree:
    """`SkewGP.sample_latent` given data, for checked arguments."""
    count = as_count("n_candidates", n_candidates)
    trace = posterior_draws(idata)
    latent = LatentGivenData(gp, data, Xnew)
    refuse_taken_names(trace, name, latent.sets)
    shape = (trace.sizes["chain"], trace.sizes["draw"])
    f = np.empty((*shape, latent.size))
    relative_ess = np.empty(shape)
    likelihoods = np.empty(shape, dtype=object)
    indices = []

    def cases() -> Iterator[Case]:
        for index, at in latent.each(trace, f"Drawing {name}", progressbar, along_path=True):
            indices.append(index)
            likelihoods[index] = at.likelihoods
            yield Case(at.given, latent.n_signs, 0.0, at.sites)

    size = relative_ess.size
    # Thousands of runs: one warning, with their number, comes after them.
    every = draws_of_many(cases(), [1] * size, count, rng.spawn(size), starmap)
    for i, drawn in enumerate(every):
        f[indices[i]], relative_ess[indices[i]] = drawn.f[0], drawn.relative_ess
    few = int((relative_ess < _LEAST_FRACTION).sum())
    if few:
        warn(
            f"for {few} of {relative_ess.size} hyperparameter draws the {count} candidates had an "
            f"effective sample size of less than a tenth of their number (the smallest relative "
            f"ESS is {relative_ess.min():.3f}): raise n_candidates, or look at the prior of the "
            "variance.",
            LowEffectiveSampleWarning,
            stacklevel=4,
        )
    return latent_tree(
        trace, latent.sets, LatentDraws(name, f, relative_ess, likelihoods, Xnew), rng
    )


class AtDraw(NamedTuple):
    """Latent functions given data, at one draw of the hyperparameters.

    Attributes
    ----------
    given : Conditioning
        Of the functions at the pseudo-points, at the data, and at new points.
    likelihoods : list of Likelihood
        One for each kind of data.
    signs : tuple of ndarray
        Prior covariance, phase and truncation at the pseudo-points.
    sites : SitesOfParts or None
        Observations that are no rows, of the values after the pseudo-points.
    """

    given: Conditioning
    likelihoods: list[Likelihood]
    signs: tuple[FloatArray, FloatArray, FloatArray]
    sites: SitesOfParts | None


class LatentGivenData:
    """The latent functions of a SkewGP given data, as a function of the hyperparameters.

    Parameters
    ----------
    gp : SkewGP
    data : DataOfModel
    Xnew : ndarray, shape (t, d), or None
        New points, at which they are wanted as well.
    coefficients : sequence of variables
        Of the mean, wanted after all of these in place of being known.

    Attributes
    ----------
    sets : tuple of DataSet
    size : int
        Values at the data and at the new points, and coefficients.
    n_signs : int
        Values at the pseudo-points, which come before them.
    coefficient_shapes : dict
        Shape of each coefficient by name.
    """

    def __init__(
        self,
        gp: Any,
        data: DataOfModel,
        Xnew: FloatArray | None,
        coefficients: Sequence[Any] = (),
    ) -> None:
        kinds, graphs = _kinds(data, Xnew)
        self._kinds = kinds
        self.sets = tuple(
            DataSet(own, known.X, known.y, known.likelihood)
            for own, known in zip(kinds.names, kinds.known, strict=True)
        )
        shapes = [tuple(map(int, rv.shape.eval(mode=PLAIN))) for rv in coefficients]
        self.coefficient_shapes = {rv.name: n for rv, n in zip(coefficients, shapes, strict=True)}
        n_coefficients = sum(int(np.prod(shape, dtype=int)) for shape in shapes)
        self.size = sum(values.size for values in kinds.values) + n_coefficients
        self.n_signs = gp.n_pseudo_points * kinds.n_functions
        self._outputs = _outputs(gp, data, kinds, graphs)
        self._units = _unit_groups(gp, kinds, self.n_signs)
        if coefficients:
            self._outputs = _with_coefficients(
                data.model, coefficients, self._outputs, self.n_signs
            )
            end = self.n_signs + self.size
            self._units |= {i: np.array([i]) for i in range(end - n_coefficients, end)}
        # Of a function that gives a distribution each takes a compilation.
        self._known = None if any(part.random for part in kinds.known) else kinds.at([])

    @property
    def has_sites(self) -> bool:
        """Whether observations are no rows."""
        return any(isinstance(part, KnownSites) for part in self._kinds.known)

    def each(
        self, trace: Dataset, description: str, progressbar: bool, *, along_path: bool = False
    ) -> Iterator[tuple[Any, AtDraw]]:
        """Index of each draw of a trace, and the functions there: see `DrawFunction.each`."""
        function = DrawFunction(trace, self._outputs)
        s = self.n_signs
        for index, arrays in function.each(description, progressbar, along_path=along_path):
            cov, mean, phase, truncation, *random = arrays
            likelihoods = self._known or self._kinds.at(random)
            variances = cov.diagonal()
            rows = self._kinds.rows(likelihoods, variances[s:])
            units = units_of(variances, self._units)
            given = process_given(cov, mean, phase, truncation, rows, units)
            signs = cov[:s, :s], phase, truncation
            yield index, AtDraw(given, likelihoods, signs, self._kinds.sites(likelihoods))


def _kinds(data: DataOfModel, Xnew: FloatArray | None) -> tuple[_Kinds, list[ValuesAt]]:
    known = data.known()
    k = max(part.n_functions for part in known)
    graphs = data.values(known)
    values = [Values(part.X, part.n_functions, part.likelihood.derivative) for part in known]
    if Xnew is not None:
        graphs.append(ValuesAt(Xnew, k))
        values.append(Values(Xnew, k))
    return _Kinds(list(data.kinds), known, values, k), graphs


def _outputs(gp: Any, data: DataOfModel, kinds: _Kinds, graphs: list[ValuesAt]) -> list[Any]:
    """Prior moments, signs at pseudo-points, and random parameters of likelihoods, as graphs."""
    coregion = as_coregion_graph(data.coregion, kinds.n_functions)
    phase, truncation, _ = signs_of_functions(gp, kinds.n_functions)
    return [
        joint_covariance(gp, graphs, 0.0, coregion)[1],
        mean_of_values(gp.mean_func, graphs),
        pt.as_tensor_variable(phase),
        pt.as_tensor_variable(truncation),
        *(pt.as_tensor_variable(x) for part in kinds.known for x in part.random.values()),
    ]


def _with_coefficients(
    model: Any, coefficients: Sequence[Any], outputs: list[Any], s: int
) -> list[Any]:
    """The prior moments with the coefficients of the mean after the values."""
    known = OwnScale(model.free_RVs)
    cov, mean, *others = outputs
    values = sun_of_process(mean, cov[s:, s:], None, None, 0)
    joint = with_coefficients(known, coefficients, values, 0)
    cov, *others = known.replace_rvs_by_values([cov, *others])
    # The signs at the pseudo-points are those of f less its mean.
    nothing = pt.zeros((s, joint.mu.shape[0] + s - cov.shape[0]))
    cross = pt.concatenate([cov[:s, s:], nothing], axis=1)
    top = pt.concatenate([cov[:s, :s], cross], axis=1)
    bottom = pt.concatenate([cross.T, joint.scale], axis=1)
    return [pt.concatenate([top, bottom], axis=0), joint.mu, *others]


def _unit_groups(gp: Any, kinds: _Kinds, n_latent: int) -> dict[Any, Any]:
    """Which values are of one function, or of one derivative of it, by that."""
    parts = kinds.values
    if n_latent:
        parts = [Values(np.zeros((gp.n_pseudo_points, 1)), kinds.n_functions), *parts]
    function, at = function_index(parts), input_index(parts)
    found = {}
    for derivative, inputs in derivative_groups(parts).items():
        for k in range(kinds.n_functions):
            rows = np.flatnonzero(np.isin(at, inputs) & (function == k))
            if rows.size:
                found[derivative, k] = rows
    return found
