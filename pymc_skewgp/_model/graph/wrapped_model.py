"""Models of packages that build PyMC's, such as Bambi, known by attributes: none is imported."""

from typing import Any

import pymc as pm
from xarray import DataTree


def is_wrapped(model: Any) -> bool:
    """Whether an object builds a model of PyMC and keeps it in its ``backend``, as Bambi's do."""
    return hasattr(model, "backend") and callable(getattr(model, "build", None))


def pymc_model(model: Any) -> Any:
    """The model of PyMC inside, built where that was to come; anything else as it is."""
    if not is_wrapped(model):
        return model
    if not model.built:
        model.build()
    return model.backend.model


def as_fitted(model: Any, tree: DataTree) -> DataTree:
    """What ``fit`` of such a model returns for draws of the one inside; else the tree as it is.

    Its own last step: the intercept is moved to where predictors are not centred, and offsets of
    group-specific effects and parameters of the likelihood are left out.
    """
    if not is_wrapped(model):
        return tree
    inside: pm.Model = model.backend.model
    of_rows = {x.name for x in inside.deterministics} & set(model.family.likelihood.params)
    posterior = tree["posterior"].to_dataset()
    tree["posterior"] = DataTree(posterior.drop_vars(of_rows, errors="ignore"))
    found: DataTree = model.backend._clean_results(tree, True, False)
    model.backend.fit = True
    return found
