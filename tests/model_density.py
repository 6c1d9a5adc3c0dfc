"""The log density of a PyMC model and its slopes, of whole arrays of points."""

import numpy as np
import pytensor
import pytensor.tensor as pt
from pymc.pytensorf import join_nonshared_inputs
from pytensor.graph.replace import vectorize_graph


def density_of(model):
    """Log densities and slopes as a function of values of all variables, and whose these are."""
    point = model.initial_point()
    names = np.concatenate([np.repeat(v.name, np.size(point[v.name])) for v in model.value_vars])
    (total,), x = join_nonshared_inputs(point, [model.logp()], model.value_vars)
    rows = pt.dmatrix()
    graphs = vectorize_graph([total, pt.grad(total, x)], {x: rows})
    function = pytensor.function([rows], graphs, mode="FAST_COMPILE")

    def density(x):
        logs, slopes = function(x.reshape(-1, x.shape[-1]))
        return logs.reshape(x.shape[:-1]), slopes.reshape(x.shape)

    return density, names
