"""The variables of a model that stand for a SkewGP at given inputs."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_skewgp._model.distributions.marginal import Kinds, MarginalData, MarginalProbit
from pymc_skewgp._model.distributions.truncated_mvnormal import TruncatedMvNormal
from pymc_skewgp._model.gp import process
from pymc_skewgp._model.graph.data import KnownData, KnownSites, is_of_sites, known_of
from pymc_skewgp._model.ops.densities import static_n_latent, sun_from_white
from pymc_skewgp._model.ops.plain_mode import PLAIN
from pymc_skewgp._observations.binary import BernoulliProbit
from pymc_skewgp._observations.likelihood import Columns, as_inputs, column_names
from pymc_skewgp._posterior.prior import kinds_of
from pymc_skewgp._sun.parameters import SunParameters


class FunctionAt(NamedTuple):
    """The latent function of a model where it is known.

    Attributes
    ----------
    X : array or variable, shape (n, d)
    f : TensorVariable, shape (n,)
    jitter : float
        Added to the variances there.
    """

    X: Any
    f: Any
    jitter: float


def as_function_at(given: Mapping[str, Any], n_columns: float, jitter: float) -> FunctionAt:
    """The argument `given` of `SkewGP.conditional`."""
    if set(given) != {"X", "f"}:
        raise ValueError(
            f"given must have the keys 'X' and 'f', got {sorted(given)}: SkewGPs are not "
            "additive, so there is no 'gp' to name."
        )
    X = process.as_input_graph("given['X']", given["X"], n_columns)
    f = pt.as_tensor_variable(given["f"])
    n, found = process.shape_now(X)[0], f.type.shape
    if len(found) != 1 or (None not in (n, found[0]) and found[0] != n):
        raise ValueError(
            f"given['f'] must have shape ({n},), one value for each row of given['X']; got {found}."
        )
    return FunctionAt(X, f, jitter)


def function_here(functions: Mapping[str, FunctionAt]) -> FunctionAt | None:
    """The latent function that `prior` made, in the model in context where it was called in some.

    Raises
    ------
    ValueError
        Of several in one model.
    """
    model = pm.Model.get_context(error_if_none=False)
    every = list(functions.values())
    here = [x for x in every if model is not None and model.named_vars.get(x.f.name) is x.f]
    if len(here) > 1:
        names = ", ".join(repr(x.f.name) for x in here)
        raise ValueError(
            f"this SkewGP has {len(here)} latent functions in the model, {names}: say which one by "
            "given={'X': ..., 'f': ...}."
        )
    return next(reversed(here or every), None)


def skew_normal_from_white(name: str, sun: SunParameters, **kwargs: Any) -> TensorVariable:
    """A unified skew-normal vector as a function of white noise and of a truncated Gaussian."""
    dims = kwargs.pop("dims", None)
    shape = {} if dims is not None else {"shape": sun.mu.shape}
    white = pm.Normal(f"{name}_rotated_", dims=dims, **shape, **kwargs)
    latent = None
    n_latent = static_n_latent(sun)
    if n_latent:
        latent = TruncatedMvNormal(
            f"{name}_latent_",
            mu=np.zeros(n_latent),
            cov=sun.latent_cov,
            lower=-sun.truncation,
            upper=None,
        )
    return pm.Deterministic(name, sun_from_white(sun, latent, white), dims=dims)


# The observed variable of a SkewGP whose latent functions are integrated out.


class DataOfModel(NamedTuple):
    """Data that functions are integrated out under, by name of the kind.

    Attributes
    ----------
    kinds : dict
        (X, y, likelihood) by name, empty where there is only one: checked, but for what is a graph.
    coregion : array_like or variable, or None
    model : pymc.Model, or None
        Of the random variables that likelihoods depend on.
    variable : TensorVariable, or None
        The observed variable that was made of them.
    columns : tuple of str, or None
        Names of the columns of the inputs, of a DataFrame.
    """

    kinds: Mapping[str, tuple[Any, Any, Any]]
    coregion: Any
    model: Any = None
    variable: Any = None
    columns: Columns = None

    @property
    def graphs(self) -> list[Any]:
        """What they, and the prior of the functions, are computed from."""
        own = [x for X, y, _ in self.kinds.values() for x in (X, y)]
        return [x for x in [*own, self.variable] if isinstance(x, Variable)]

    @property
    def labels(self) -> tuple[Any, Any] | None:
        """Inputs and labels, where there is nothing but labels of one function."""
        if list(self.kinds) != [""] or self.coregion is not None:
            return None
        X, y, likelihood = self.kinds[""]
        plain = isinstance(likelihood, BernoulliProbit) and likelihood.noise_cov is None
        return (X, y) if plain else None

    def known(self) -> list[KnownData | KnownSites]:
        """The data as they are now, checked.

        Raises
        ------
        TypeError, ValueError
            As `known_of`.
        """
        found = []
        for name, (X, y, likelihood) in self.kinds.items():
            try:
                inputs = np.asarray(_present(X), dtype=np.float64)
                found.append(known_of(inputs, _present(y), likelihood, self.model))
            except (TypeError, ValueError) as error:
                if not name:
                    raise
                raise type(error)(f"in the data {name!r}: {error}") from error
        return found

    def values(self, known: list[KnownData | KnownSites]) -> list[process.ValuesAt]:
        """What of the functions they are about."""
        inputs = [X for X, _, _ in self.kinds.values()]
        return [
            process.ValuesAt(X, x.n_functions, x.likelihood.derivative, x.likelihood.relative_noise)
            for X, x in zip(inputs, known, strict=True)
        ]


def data_of_model(gp: Any, X: Any, y: Any, likelihood: Any, coregion: Any) -> DataOfModel:
    """The arguments of `SkewGP.marginal_likelihood`.

    Raises
    ------
    TypeError, ValueError
        What does not fit, as far as it is known.
    """
    every = kinds_of(X, y, likelihood)
    columns = next((column_names(inputs) for inputs, _, _ in every.values()), None)
    given = {
        name: (_matrix(inputs, columns), data, BernoulliProbit() if known is None else known)
        for name, (inputs, data, known) in every.items()
    }
    only_labels = DataOfModel(given, coregion).labels is not None
    kinds = {}
    for name, (inputs, data, known) in given.items():
        if only_labels:
            data = process.as_label_graph(data, inputs)
        elif isinstance(data, Variable):
            raise TypeError(
                f"y under {type(known).__name__} must be an array, which is checked and taken "
                "apart now. Only labels of one function may be pm.Data."
            )
        elif process.shape_now(inputs)[0] is None:
            raise ValueError("X must have a known number of rows: give an array, or pm.Data.")
        kinds[name] = (process.as_input_graph("X", inputs, gp.n_columns), data, known)
    # Predictors of sites are the last rows of an evidence.
    ordered = sorted(kinds.items(), key=lambda kind: is_of_sites(kind[1][2]))
    model = None if gp.model is None else gp.model.root
    return DataOfModel(dict(ordered), coregion, model, columns=columns)


def given_data(gp: Any, X: Any, y: Any, likelihood: Any, coregion: Any) -> DataOfModel | None:
    """Data that were given as arguments; None where none were.

    Raises
    ------
    ValueError
        For one of X and y without the other.
    """
    several = isinstance(X, Mapping | list) and y is None
    if (X is None) != (y is None) and not several:
        raise ValueError("give both X and y, or neither (those of marginal_likelihood).")
    return None if X is None else data_of_model(gp, X, y, likelihood, coregion)


def marginal_variable(
    gp: Any, name: str, data: DataOfModel, jitter: float, options: Mapping[str, Any]
) -> TensorVariable:
    """An observed variable of the model in context; `options` are those of the variable."""
    if data.labels is not None:
        X, y = data.labels
        sun = process.process_of_values(gp, [process.ValuesAt(X)], jitter)
        return MarginalProbit(name, **sun._asdict(), observed=y, **options)
    known = data.known()
    coregion = process.as_coregion_graph(data.coregion, max(part.n_functions for part in known))
    sun = process.process_of_values(gp, data.values(known), jitter, coregion)
    value = Kinds(tuple(known)).observed
    return MarginalData(name, sun, parts=known, observed=value, **options)


def _present(value: Any) -> Any:
    """Values as they are now; of inputs that depend on random variables only the shape counts."""
    return value.eval(mode=PLAIN) if isinstance(value, Variable) else value


def _matrix(X: Any, columns: Columns) -> Any:
    return X if isinstance(X, Variable) else as_inputs("X", X, None, columns)
