"""Sites as functions of their predictors, and of parameters that are to be learnt."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pymc_skewgp._observations.likelihood import Data, Likelihood
from pymc_skewgp._observations.sites import SiteLikelihood, Sites
from pymc_skewgp._validation import FloatArray

_STEP = 1e-5  # of differences in a parameter, as a share of it
_LEAST_SHARE = 1e-3  # of the largest entry of a parameter, below which a step is no share of one


class SitesGiven(Protocol):
    """Log p(y_i | eta_i) of m sites, with numbers for all of their parameters."""

    @property
    def size(self) -> int:
        """Number m."""
        ...

    @property
    def has_parameters(self) -> bool:
        """Whether any are to be learnt."""
        ...

    @property
    def log_concave(self) -> bool:
        """Whether all are known to be, wherever the predictors are."""
        ...

    def log_prob(self, eta: FloatArray) -> FloatArray:
        """Of predictors, shape (..., m): as many values; -inf where y_i is impossible."""
        ...

    def slopes(self, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """First and second derivative in eta_i, likewise."""
        ...

    def kinked(self, eta: FloatArray) -> NDArray[np.bool_]:
        """Sites whose first derivative jumps within the range of predictors, shape (k, m)."""
        ...

    def in_parameters(self, eta: FloatArray, weights: FloatArray) -> list[FloatArray]:
        """Derivatives of the sum of weights times `log_prob`, shape (k, m), in each parameter."""
        ...


class SiteFamily(Protocol):
    """Sites for any data and any values of their parameters."""

    def at(self, y: Data, parameters: Sequence[FloatArray]) -> SitesGiven:
        """ValueError for values that are impossible."""
        ...


@dataclass(frozen=True, eq=False)
class LikelihoodFamily:
    """A likelihood of sites some of whose parameters, by name, are to be learnt.

    Attributes
    ----------
    likelihood : SiteLikelihood
        With numbers in their place.
    names : tuple of str
    """

    likelihood: SiteLikelihood
    names: tuple[str, ...] = ()

    def at(self, y: Data, parameters: Sequence[FloatArray]) -> "LikelihoodAt":
        """See `SiteFamily`."""
        return LikelihoodAt(self, y, tuple(np.asarray(x, np.float64) for x in parameters))

    def sites(self, y: Data, parameters: Sequence[FloatArray]) -> Sites:
        """Sites with these parameters; ValueError where they are impossible."""
        values = {name: x[()] for name, x in zip(self.names, parameters, strict=True)}
        known = with_parameters(self.likelihood, values)
        known.as_data(y, y.shape[0])  # which checks the parameters
        return known.sites(y, y.shape[0])


class LikelihoodAt:
    """Sites of a `LikelihoodFamily`: derivatives in parameters are differences."""

    log_concave = False

    def __init__(
        self, family: LikelihoodFamily, y: Data, parameters: tuple[FloatArray, ...]
    ) -> None:
        self._family, self._y, self._parameters = family, y, parameters
        self.has_parameters = bool(parameters)
        sites = family.sites(y, parameters)
        self.size, self.log_prob, self.slopes = sites.size, sites.log_prob, sites.slopes

    def kinked(self, eta: FloatArray) -> NDArray[np.bool_]:
        """See `SitesGiven`: all or none, wherever the predictors are."""
        return np.full(self.size, self._family.likelihood.has_kinks)

    def in_parameters(self, eta: FloatArray, weights: FloatArray) -> list[FloatArray]:
        """See `SitesGiven`."""

        def log_prob(parameters: Sequence[FloatArray]) -> FloatArray:
            return self._family.sites(self._y, parameters).log_prob(eta)

        return parameter_differences(log_prob, self._parameters, weights)


class JoinedSites:
    """Sites of several kinds, one kind after the other."""

    def __init__(self, parts: Sequence[SitesGiven]) -> None:
        self._parts = parts
        ends = np.cumsum([part.size for part in parts])
        self._own = [slice(end - p.size, end) for p, end in zip(parts, ends, strict=True)]
        self.size = int(ends[-1])
        self.has_parameters = any(part.has_parameters for part in parts)
        self.log_concave = all(part.log_concave for part in parts)

    def log_prob(self, eta: FloatArray) -> FloatArray:
        """See `SitesGiven`."""
        pairs = zip(self._parts, self._own, strict=True)
        return np.concatenate([part.log_prob(eta[..., own]) for part, own in pairs], axis=-1)

    def slopes(self, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """See `SitesGiven`."""
        pairs = zip(self._parts, self._own, strict=True)
        found = [part.slopes(eta[..., own]) for part, own in pairs]
        first, second = (np.concatenate(x, axis=-1) for x in zip(*found, strict=True))
        return first, second

    def kinked(self, eta: FloatArray) -> NDArray[np.bool_]:
        """See `SitesGiven`."""
        pairs = zip(self._parts, self._own, strict=True)
        return np.concatenate([part.kinked(eta[..., own]) for part, own in pairs])

    def in_parameters(self, eta: FloatArray, weights: FloatArray) -> list[FloatArray]:
        """See `SitesGiven`."""
        found = []
        for part, own in zip(self._parts, self._own, strict=True):
            found += part.in_parameters(eta[:, own], weights[:, own])
        return found


def joined_sites(parts: Sequence[SitesGiven]) -> SitesGiven:
    """Of one kind these themselves."""
    return parts[0] if len(parts) == 1 else JoinedSites(parts)


def parameter_differences(
    log_prob: Callable[[Sequence[FloatArray]], FloatArray],
    parameters: Sequence[FloatArray],
    weights: FloatArray,
) -> list[FloatArray]:
    """Derivatives of the sum of weights times a function of parameters, in each of these."""
    found = []
    for i, value in enumerate(parameters):
        slopes = np.zeros(value.shape)
        least = _LEAST_SHARE * float(np.abs(value).max(initial=0.0))
        for index in np.ndindex(value.shape):
            step = _STEP * (max(abs(float(value[index])), least) or 1.0)
            moved = []
            for sign in (1.0, -1.0):
                other = value.copy()
                other[index] += sign * step
                moved.append(log_prob([*parameters[:i], other, *parameters[i + 1 :]]))
            # Predictors without weight may be where nothing is possible.
            with np.errstate(invalid="ignore"):
                slope = np.where(weights != 0.0, (moved[0] - moved[1]) / (2.0 * step), 0.0)
            slopes[index] = (weights * slope).sum()
        found.append(slopes)
    return found


def with_parameters(likelihood: Any, values: Mapping[str, Any]) -> Any:
    """A likelihood with other parameters, be they those of the one that it gives weights to."""
    found = {}
    for field in fields(likelihood):
        inner = getattr(likelihood, field.name)
        if isinstance(inner, Likelihood):
            found[field.name] = with_parameters(inner, values)
        elif field.name in values:
            found[field.name] = values[field.name]
    return replace(likelihood, **found) if found else likelihood
