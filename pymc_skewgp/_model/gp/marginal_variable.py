"""The observed variable of a SkewGP whose latent functions are integrated out."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_skewgp._model.distributions.marginal_data import Kinds, MarginalData
from pymc_skewgp._model.distributions.marginal_probit import MarginalProbit
from pymc_skewgp._model.gp.process import (
    as_input_graph,
    as_label_graph,
    process_of_values,
    shape_now,
)
from pymc_skewgp._model.gp.values import ValuesAt, as_coregion_graph
from pymc_skewgp._model.gp.variables import skew_normal
from pymc_skewgp._model.graph.data_rows import KnownData
from pymc_skewgp._model.graph.data_sites import KnownSites, is_of_sites, known_of
from pymc_skewgp._model.ops.plain_mode import PLAIN
from pymc_skewgp._observations.arguments import as_inputs
from pymc_skewgp._observations.bernoulli_probit import BernoulliProbit
from pymc_skewgp._posterior.data_sets import kinds_of


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
    """

    kinds: Mapping[str, tuple[Any, Any, Any]]
    coregion: Any
    model: Any = None
    variable: Any = None

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
            As `known_data`.
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

    def values(self, known: list[KnownData | KnownSites]) -> list[ValuesAt]:
        """What of the functions they are about."""
        inputs = [X for X, _, _ in self.kinds.values()]
        return [
            ValuesAt(X, x.n_functions, x.likelihood.derivative, x.likelihood.relative_noise)
            for X, x in zip(inputs, known, strict=True)
        ]


def data_of_model(gp: Any, X: Any, y: Any, likelihood: Any, coregion: Any) -> DataOfModel:
    """The arguments of `SkewGP.marginal_likelihood`.

    Raises
    ------
    TypeError, ValueError
        What does not fit, as far as it is known.
    """
    given = {
        name: (_matrix(inputs), data, BernoulliProbit() if known is None else known)
        for name, (inputs, data, known) in kinds_of(X, y, likelihood).items()
    }
    only_labels = DataOfModel(given, coregion).labels is not None
    kinds = {}
    for name, (inputs, data, known) in given.items():
        if only_labels:
            data = as_label_graph(data, inputs)
        elif isinstance(data, Variable):
            raise TypeError(
                f"y under {type(known).__name__} must be an array, which is checked and taken "
                "apart now. Only labels of one function may be pm.Data."
            )
        elif shape_now(inputs)[0] is None:
            raise ValueError("X must have a known number of rows: give an array, or pm.Data.")
        kinds[name] = (as_input_graph("X", inputs, gp.n_columns), data, known)
    # Predictors of sites are the last rows of an evidence.
    ordered = sorted(kinds.items(), key=lambda kind: is_of_sites(kind[1][2]))
    return DataOfModel(dict(ordered), coregion, None if gp.model is None else gp.model.root)


def marginal_variable(
    gp: Any, name: str, data: DataOfModel, jitter: float, options: Mapping[str, Any]
) -> TensorVariable:
    """An observed variable of the model in context; `options` are those of the variable."""
    if data.labels is not None:
        X, y = data.labels
        sun = process_of_values(gp, [ValuesAt(X)], jitter)
        return skew_normal(name, sun, MarginalProbit, observed=y, **options)
    known = data.known()
    coregion = as_coregion_graph(data.coregion, max(part.n_functions for part in known))
    sun = process_of_values(gp, data.values(known), jitter, coregion)
    value = Kinds(tuple(known)).observed
    return MarginalData(name, sun, parts=known, observed=value, **options)


def _present(value: Any) -> Any:
    """Values as they are now; of inputs that depend on random variables only the shape counts."""
    return value.eval(mode=PLAIN) if isinstance(value, Variable) else value


def _matrix(X: Any) -> Any:
    return X if isinstance(X, Variable) else as_inputs("X", X)
