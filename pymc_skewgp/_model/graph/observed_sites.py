"""Sites found in a model as what evidences and steps need: of the whole vector of a block."""

from collections.abc import Mapping
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.replace import clone_replace

from pymc_skewgp._model.gp.distribution_graph import DistributionGraph
from pymc_skewgp._model.gp.site_functions import SiteFunctions
from pymc_skewgp._model.graph.analysis import BlockGraph
from pymc_skewgp._model.graph.analytic import is_analytic
from pymc_skewgp._model.graph.canonical_sites import RecognisedFamily
from pymc_skewgp._model.graph.compiled_sites import CompiledFamily
from pymc_skewgp._model.graph.data_sites import SitesOfData
from pymc_skewgp._model.graph.sites import ObservedSites


def sites_of_data(y: ObservedSites, compile_kwargs: Mapping[str, Any] | None = None) -> SitesOfData:
    """Compiled functions of data, predictors and parameters; see `SiteFunctions`."""
    values = y.values.ravel()
    # Numbers are passed as 64 bits: whole ones, of binary variables, are made whole again inside.
    numbers = {x: pt.tensor(x.name, dtype="float64", shape=x.type.shape) for x in y.parameters}
    whole = {x: pt.cast(number, x.dtype) for x, number in numbers.items()}
    log_prob = clone_replace(y.log_prob, whole) if whole else y.log_prob
    parameters = tuple(numbers.values())
    known = DistributionGraph(y.eta, values.type(), None, log_prob, None, parameters=parameters)
    functions = SiteFunctions(known, compile_kwargs=compile_kwargs)
    given = tuple(pt.cast(x, "float64") for x in y.parameters)
    by_values = not given and is_analytic([log_prob], [y.eta])
    family = RecognisedFamily(functions) if by_values else CompiledFamily(functions)
    return SitesOfData(family, values, given)


def site_design(block: BlockGraph, y: ObservedSites) -> Any:
    """A, with a column for each entry of the block."""
    columns, start = [], 0
    m = y.a.shape[0]
    for name, own in zip(block.names, block.slices, strict=True):
        size = own.stop - own.start
        if name not in y.members:
            columns.append(pt.zeros((m, size)))
        elif y.A is None:
            columns.append(pt.switch(pt.eq(m, size), pt.eye(m, size), pt.ones((m, size))))
        else:
            columns.append(y.A[:, start : start + size])
            start = start + size
    return columns[0] if len(columns) == 1 else pt.concatenate(columns, axis=1)
