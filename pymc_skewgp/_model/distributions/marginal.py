"""Data under any likelihood, with the latent functions integrated out."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.logprob.abstract import _logprob
from pytensor.tensor.variable import TensorVariable

from pymc_skewgp._gaussian.log_prob_gradient import LogProbMethod
from pymc_skewgp._model.distributions import unified_skew_normal as usn
from pymc_skewgp._model.graph import data
from pymc_skewgp._model.ops.densities import label_intervals
from pymc_skewgp._model.ops.log_evidence import LogEvidence, SiteKinds, pt_log_evidence
from pymc_skewgp._sun.parameters import SunParameters
from pymc_skewgp._validation import FloatArray

_N_SUN = len(SunParameters._fields)


class Kinds(NamedTuple):
    """Data of one kind or of several, without the graphs of what is random in their likelihoods.

    One kind's value is its y; that of several is a vector of all their numbers, one kind after the
    other.
    """

    parts: tuple[data.KnownData | data.KnownSites, ...]

    @property
    def value(self) -> NDArray[Any]:
        """The data."""
        if len(self.parts) == 1:
            return self.parts[0].y
        return np.concatenate([np.ravel(part.y).astype(np.float64) for part in self.parts])

    @property
    def observed(self) -> Any:
        """`value` as PyMC may have it, which would take NaN in an array for missing data."""
        value = self.value
        return pt.constant(value) if np.isnan(value).any() else value

    def with_value(self, value: NDArray[Any]) -> "Kinds":
        """The same for other data of the same shapes."""
        if np.array_equal(value, self.value, equal_nan=True):
            return self  # with arrays that are there already
        ends = np.cumsum([0, *(part.y.size for part in self.parts)])
        flat = np.ravel(value)
        parts = []
        for part, (start, end) in zip(self.parts, pairwise(ends), strict=True):
            y = flat[start:end].reshape(part.y.shape).astype(part.y.dtype)
            checked = part.likelihood.as_data(y, part.X.shape[0])
            parts.append(replace(part, y=checked))
        return Kinds(tuple(parts))

    def rows(self, random: Sequence[Any]) -> list[data.RowsOfData]:
        """Graphs of the rows; `random` are the random parameters, in the order of `parameters`."""
        named = self._by_part(random)
        return [
            part.rows_of([pt.constant(x) for x in part.arrays], values)
            for part, values in zip(self.parts, named, strict=True)
        ]

    def replicated(
        self, f: FloatArray, random: Sequence[Any], rng: np.random.Generator
    ) -> NDArray[Any]:
        """New data given f, shape (draws, p), with one set of parameters."""
        drawn, start = [], 0
        for part, values in zip(self.parts, self._by_part(random), strict=True):
            n, k = part.X.shape[0], part.n_functions
            own = f[:, start : start + n * k]
            start += n * k
            own = own if k == 1 else own.reshape(-1, n, k)
            known = part.at(values)
            y = np.asarray(known.replicate(part.y, own, known.log_likelihood(part.y, own), rng))
            if y.ndim == part.y.ndim:  # values that are seen, of data that are two bounds each
                y = np.stack([y, y], axis=-1)
            drawn.append(y)
        if len(drawn) == 1:
            return np.asarray(drawn[0])
        return np.concatenate([y.reshape(len(f), -1) for y in drawn], axis=1)

    def _by_part(self, values: Sequence[Any]) -> Sequence[Mapping[str, Any]]:
        rest = iter(values)
        return [{name: next(rest) for name in part.random} for part in self.parts]


class MarginalRV(usn.JointDrawsRV):
    """Data with their function integrated out.

    Parameters
    ----------
    method : {"twisted", "ep"}
    n_draws : int
        How the log density is computed; see `pt_mvn_logcdf`.
    kinds : Kinds, optional
        What the data are, where they are not labels.
    """

    def __init__(
        self, method: LogProbMethod, n_draws: int, kinds: Kinds | None = None, **kwargs: Any
    ) -> None:
        self.method, self.n_draws, self.kinds = method, n_draws, kinds
        super().__init__(**kwargs)


class MarginalDataRV(MarginalRV):
    """Data given rows of a unified skew-normal vector."""

    kinds: Kinds
    name = "marginal_data"
    __props__ = ("name", "signature", "dtype", "inplace", "kinds", "method", "n_draws")

    def rng_fn(self, rng: np.random.Generator, *parameters: Any) -> Any:
        """Draw f, then data given f; the random parameters and the size come last."""
        sun, (*random, size) = SunParameters(*parameters[:_N_SUN]), parameters[_N_SUN:]
        if sun.mu.ndim > 1:
            raise NotImplementedError(
                "data with their function integrated out are drawn for one set of parameters at a "
                "time, and these have batch dimensions."
            )
        shape = () if size is None else tuple(int(n) for n in size)
        f = usn.unified_skew_normal.draws(rng, (prod(shape),), *sun)
        y = self.kinds.replicated(f, random, rng)
        return y.reshape(*shape, *y.shape[1:]).astype(self.dtype)


def _variable_of(op: usn.JointDrawsRV, parameters: Any, rng: Any = None, **kwargs: Any) -> Any:
    rng = pt.random.shared_rng(seed=None) if rng is None else rng
    return op(*parameters, rng=rng, return_next_rng=True, **kwargs)[1]


def _make_data(
    *parameters: Any, kinds: Kinds, method: LogProbMethod, n_draws: int, **kwargs: Any
) -> TensorVariable:
    value = kinds.value
    inputs = ["(p)", "(p,p)", "(p,s)", "(s)", "(s,s)"]
    for i, x in enumerate(parameters[_N_SUN:]):
        inputs.append("(" + ",".join(f"k{i}{j}" for j in range(x.type.ndim)) + ")")
    output = "(" + ",".join(str(n) for n in value.shape) + ")"
    signature = f"{','.join(inputs)}->{output}"
    op = MarginalDataRV(method, n_draws, kinds, signature=signature, dtype=value.dtype.name)
    return _variable_of(op, parameters, **kwargs)


class MarginalData(pm.Distribution):
    """Data under likelihoods, with the unified skew-normal function integrated out.

    Parameters
    ----------
    sun : SunParameters
        Graphs, of the values of the functions that the data are about, one kind after the other.
    parts : sequence of KnownData or KnownSites
        The data, and what is random in their likelihoods; those of sites last.
    method : {"twisted", "ep"}, default "twisted"
    n_draws : int, default 256
        As for `pt_mvn_logcdf`.
    """

    rv_type = MarginalDataRV
    rv_op = _make_data

    @classmethod
    def dist(
        cls,
        sun: SunParameters,
        *,
        parts: Sequence[data.KnownData | data.KnownSites],
        method: LogProbMethod = "twisted",
        n_draws: int = 256,
        **kwargs: Any,
    ) -> TensorVariable:
        """Unnamed variable; see the class."""
        mu, scale, cross_cov, truncation, latent_cov = sun
        sun = usn.as_sun_parameters(mu, scale, None, truncation, latent_cov, cross_cov)
        LogEvidence(method, n_draws)  # refuses what it does not know, before any sampling
        random = [pt.cast(x, "float64") for part in parts for x in part.random.values()]
        kinds = Kinds(tuple(part.without_graphs() for part in parts))
        options = {"kinds": kinds, "method": method, "n_draws": n_draws}
        return super().dist([*sun, *random], **options, **kwargs)

    def support_point(rv: Any, size: Any, *parameters: Any) -> Any:
        """The data themselves."""
        value = pt.constant(rv.owner.op.kinds.value)
        several = size is not None and rv.type.ndim > value.type.ndim
        return pt.full((*size, *value.shape), value) if several else value


def rows_given(
    op: MarginalDataRV, value: Any, parameters: Sequence[Any]
) -> tuple[SunParameters, data.NoisyRows, tuple[data.SitesOfData, ...], SiteKinds]:
    """The predictors of the rows of a `MarginalData` variable, its rows, sites on the last of them.

    And these sites without graphs.

    Raises
    ------
    NotImplementedError
        Data that are not constants.
    """
    known = usn.known_value(value)
    if known is None:
        raise NotImplementedError(
            "data with their function integrated out must be arrays, and not a variable: which of "
            "their rows are points, and which are intervals, is read from them."
        )
    kinds = op.kinds.with_value(known)
    sun, random = SunParameters(*parameters[:_N_SUN]), parameters[_N_SUN:]
    parts = kinds.rows(random)
    given = [(x.y, part.sites) for x, part in zip(kinds.parts, parts, strict=True) if part.sites]
    without_graphs = SiteKinds(
        tuple((x.family, y, [p.type.ndim for p in x.parameters]) for y, x in given)
    )
    sun, rows = data.rows_of_parts(sun, parts)
    return sun, rows, tuple(sites for _, sites in given), without_graphs


@_logprob.register(MarginalDataRV)
def _marginal_data_logp(op: MarginalDataRV, values: Any, *inputs: Any, **kwargs: Any) -> Any:
    [value] = values
    _, _, *parameters = inputs
    sun, rows, sites, kinds = rows_given(op, value, parameters)
    log_p = pt_log_evidence(
        (rows.lower, rows.upper),
        sun,
        value=rows.value,
        noise=rows.S,
        counts=rows.counts,
        method=op.method,
        n_draws=op.n_draws,
        sites=(kinds, [x for part in sites for x in part.parameters]) if sites else None,
    )
    return log_p + rows.log_constant


# Binary labels of a unified skew-normal function, with the function integrated out.


class MarginalProbitRV(MarginalRV):
    """Labels y = 1{f + e > 0} of a unified skew-normal f and standard normal noise e."""

    name = "marginal_probit"
    signature = "(p),(p,p),(p,s),(s),(s,s)->(p)"
    dtype = "int64"
    __props__ = ("name", "signature", "dtype", "inplace", "method", "n_draws")

    def draws(self, rng: np.random.Generator, size: Any, *parameters: Any) -> Any:
        """Draw f, then y given f."""
        f = usn.unified_skew_normal.draws(rng, size, *parameters)
        return (f + rng.standard_normal(f.shape) > 0).astype(np.int64)


def _make(*parameters: Any, method: LogProbMethod, n_draws: int, **kwargs: Any) -> TensorVariable:
    return _variable_of(MarginalProbitRV(method, n_draws), parameters, **kwargs)


class MarginalProbit(pm.Discrete):
    r"""Binary labels of a unified skew-normal function, with the function integrated out.

    .. math:: p(y) = \int \prod_i \Phi(w_i f_i)\, \mathrm{SUN}(f)\, df
        = \frac{\Phi_{s+n}(\tilde\gamma; \tilde\Gamma)}{\Phi_s(\gamma; \Gamma)}, \qquad w = 2y - 1

    One density for all labels together: they are dependent once f is gone.

    Parameters
    ----------
    mu, scale, skewness, truncation, latent_cov, cross_cov : tensor_like
        Of f, as for `UnifiedSkewNormal`; batch dimensions are data sets apart.
    method : {"twisted", "ep"}, default "twisted"
    n_draws : int, default 256
        How the probabilities are computed, as for `pt_mvn_logcdf`.

    Raises
    ------
    TypeError
        As for `UnifiedSkewNormal`.
    ValueError, NotPositiveDefiniteError
        Constants that are invalid, as for `UnifiedSkewNormal`; an unknown method, `n_draws` < 1.
        Parameters that turn out invalid while sampling, and labels other than 0 and 1, have log
        density -inf.

    References
    ----------
    .. [1] A. Benavoli, D. Azzimonti & D. Piga (2020), arXiv:2005.12987.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_skewgp._model.distributions.marginal import MarginalProbit
    >>> none = np.zeros((2, 0)), np.zeros(0), np.zeros((0, 0))
    >>> y = MarginalProbit.dist(np.zeros(2), np.eye(2), *none)
    >>> print(f"{pm.logp(y, [0, 1]).eval():.4f}")  # log 1/4
    -1.3863
    """

    rv_type = MarginalProbitRV
    rv_op = _make

    @classmethod
    def dist(
        cls,
        mu: Any,
        scale: Any,
        skewness: Any = None,
        truncation: Any = None,
        latent_cov: Any = None,
        *,
        cross_cov: Any = None,
        method: LogProbMethod = "twisted",
        n_draws: int = 256,
        **kwargs: Any,
    ) -> TensorVariable:
        """Unnamed variable; see the class."""
        sun = usn.as_sun_parameters(mu, scale, skewness, truncation, latent_cov, cross_cov)
        LogEvidence(method, n_draws)  # refuses what it does not know, before any sampling
        return super().dist(list(sun), method=method, n_draws=n_draws, **kwargs)

    def support_point(rv: Any, size: Any, *parameters: Any) -> Any:
        """Label more probable at the location, one by one."""
        likely = pt.gt(usn.UnifiedSkewNormal.support_point(rv, size, *parameters), 0.0)
        return likely.astype("int64")


@_logprob.register(MarginalProbitRV)
def _marginal_probit_logp(op: MarginalProbitRV, values: Any, *inputs: Any, **kwargs: Any) -> Any:
    [value] = values
    _, _, *parameters = inputs
    lower, upper, noise = label_intervals(value)
    log_p = pt_log_evidence(
        (lower, upper),
        SunParameters(*parameters),
        noise=noise,
        method=op.method,
        n_draws=op.n_draws,
    )
    binary = pt.all(pt.or_(pt.eq(value, 1), pt.eq(value, 0)), axis=-1)
    return pt.switch(binary, log_p, -np.inf)
