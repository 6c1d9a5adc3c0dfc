"""Regressions of posteriordb's, translated from Stan to PyMC with their priors.

A function stands for a Stan program and has its name; it takes the data, arrays and numbers by
Stan's names, and returns a `pymc.Model` whose variables have Stan's names too. Parameters without a
prior are `Flat` or `HalfFlat`, as in Stan. `NAMES` has the posteriors; `posteriordb_models` adds
those of all other models.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pymc as pm

Data = Mapping[str, Any]


class Posterior(NamedTuple):
    """A model with data; a note where the model is more than a plain Gaussian block."""

    model: Callable[[Data], pm.Model]
    data: str
    note: str = ""


NAMES: dict[str, Posterior] = {}


def translates(*data_names, note=""):
    """Registers a model for each of its data sets."""

    def register(function):
        for data in data_names:
            NAMES[f"{data}-{function.__name__}"] = Posterior(function, data, note)
        return function

    return register


def linear(y, *columns, scale=None):
    """Flat coefficients, the intercept first; the noise half-Cauchy with that scale, or flat."""
    X = np.column_stack([np.ones(len(y)), *columns])
    with pm.Model() as model:
        beta = pm.Flat("beta", shape=X.shape[1])
        sigma = pm.HalfFlat("sigma") if scale is None else pm.HalfCauchy("sigma", scale)
        pm.Normal("y", pm.math.dot(X, beta), sigma, observed=y)
    return model


def logistic(y, *columns):
    """Flat coefficients, the intercept apart."""
    X = np.column_stack(columns)
    with pm.Model() as model:
        alpha = pm.Flat("alpha")
        beta = pm.Flat("beta", shape=X.shape[1])
        pm.Bernoulli("y", logit_p=alpha + pm.math.dot(X, beta), observed=y)
    return model


def centred(x):
    return x - x.mean()


@translates("arK")
def arK(d):
    y, K = d["y"], d["K"]
    lags = np.column_stack([y[K - k : len(y) - k] for k in range(1, K + 1)])
    with pm.Model() as model:
        alpha = pm.Normal("alpha", 0.0, 10.0)
        beta = pm.Normal("beta", 0.0, 10.0, shape=K)
        sigma = pm.HalfCauchy("sigma", 2.5)
        pm.Normal("y", alpha + pm.math.dot(lags, beta), sigma, observed=y[K:])
    return model


@translates("sblrc", "sblri")
def blr(d):
    with pm.Model() as model:
        beta = pm.Normal("beta", 0.0, 10.0, shape=d["D"])
        sigma = pm.HalfNormal("sigma", 10.0)
        pm.Normal("y", pm.math.dot(d["X"], beta), sigma, observed=d["y"])
    return model


@translates("diamonds", note="Student t prior of the intercept")
def diamonds(d):
    X = d["X"][:, 1:] - d["X"][:, 1:].mean(axis=0)
    with pm.Model() as model:
        b = pm.Normal("b", 0.0, 1.0, shape=d["K"] - 1)
        intercept = pm.StudentT("Intercept", nu=3, mu=8.0, sigma=10.0)
        sigma = pm.HalfStudentT("sigma", nu=3, sigma=10.0)
        pm.Normal("Y", intercept + pm.math.dot(X, b), sigma, observed=d["Y"])
    return model


@translates("earnings")
def earn_height(d):
    return linear(d["earn"], d["height"])


@translates("earnings")
def log10earn_height(d):
    return linear(np.log10(d["earn"]), d["height"])


@translates("earnings")
def logearn_height(d):
    return linear(np.log(d["earn"]), d["height"])


@translates("earnings")
def logearn_height_male(d):
    return linear(np.log(d["earn"]), d["height"], d["male"])


@translates("earnings")
def logearn_interaction(d):
    return linear(np.log(d["earn"]), d["height"], d["male"], d["height"] * d["male"])


@translates("earnings")
def logearn_interaction_z(d):
    height = centred(d["height"]) / d["height"].std(ddof=1)
    return linear(np.log(d["earn"]), height, d["male"], height * d["male"])


@translates("earnings")
def logearn_logheight_male(d):
    return linear(np.log(d["earn"]), np.log(d["height"]), d["male"])


@translates("kidiq")
def kidscore_interaction(d):
    return linear(d["kid_score"], d["mom_hs"], d["mom_iq"], d["mom_hs"] * d["mom_iq"], scale=2.5)


@translates("kidiq")
def kidscore_momhs(d):
    return linear(d["kid_score"], d["mom_hs"], scale=2.5)


@translates("kidiq")
def kidscore_momhsiq(d):
    return linear(d["kid_score"], d["mom_hs"], d["mom_iq"], scale=2.5)


@translates("kidiq")
def kidscore_momiq(d):
    return linear(d["kid_score"], d["mom_iq"], scale=2.5)


@translates("kidiq_with_mom_work")
def kidscore_interaction_c(d):
    hs, iq = centred(d["mom_hs"]), centred(d["mom_iq"])
    return linear(d["kid_score"], hs, iq, hs * iq)


@translates("kidiq_with_mom_work")
def kidscore_interaction_c2(d):
    hs, iq = d["mom_hs"] - 0.5, d["mom_iq"] - 100.0
    return linear(d["kid_score"], hs, iq, hs * iq)


@translates("kidiq_with_mom_work")
def kidscore_interaction_z(d):
    hs, iq = (centred(x) / (2.0 * x.std(ddof=1)) for x in (d["mom_hs"], d["mom_iq"]))
    return linear(d["kid_score"], hs, iq, hs * iq)


@translates("kidiq_with_mom_work")
def kidscore_mom_work(d):
    return linear(d["kid_score"], *(d["mom_work"] == k for k in (2, 3, 4)))


@translates("kilpisjarvi_mod")
def kilpisjarvi(d):
    with pm.Model() as model:
        alpha = pm.Normal("alpha", d["pmualpha"], d["psalpha"])
        beta = pm.Normal("beta", d["pmubeta"], d["psbeta"])
        sigma = pm.HalfFlat("sigma")
        pm.Normal("y", alpha + beta * d["x"], sigma, observed=d["y"])
    return model


@translates("mesquite")
def mesquite(d):
    columns = ("diam1", "diam2", "canopy_height", "total_height", "density", "group")
    return linear(d["weight"], *(d[k] for k in columns))


@translates("mesquite")
def logmesquite(d):
    columns = ("diam1", "diam2", "canopy_height", "total_height", "density")
    return linear(np.log(d["weight"]), *(np.log(d[k]) for k in columns), d["group"])


def canopy(d):
    """Logarithms of the canopy's volume, area and shape."""
    area = np.log(d["diam1"] * d["diam2"])
    return area + np.log(d["canopy_height"]), area, np.log(d["diam1"] / d["diam2"])


@translates("mesquite")
def logmesquite_logvolume(d):
    return linear(np.log(d["weight"]), canopy(d)[0])


@translates("mesquite")
def logmesquite_logva(d):
    return linear(np.log(d["weight"]), *canopy(d)[:2], d["group"])


@translates("mesquite")
def logmesquite_logvas(d):
    rest = np.log(d["total_height"]), np.log(d["density"]), d["group"]
    return linear(np.log(d["weight"]), *canopy(d), *rest)


@translates("mesquite")
def logmesquite_logvash(d):
    return linear(np.log(d["weight"]), *canopy(d), np.log(d["total_height"]), d["group"])


@translates(*(f"nes{year}" for year in range(1972, 2001, 4)))
def nes(d):
    ages = (d["age_discrete"] == k for k in (2, 3, 4))
    rest = (d[k] for k in ("educ1", "gender", "income"))
    return linear(d["partyid7"], d["real_ideo"], d["race_adj"], *ages, *rest)


@translates("sesame_data")
def sesame_one_pred_a(d):
    return linear(d["watched"], d["encouraged"])


@translates("nes_logit_data")
def nes_logit_model(d):
    return logistic(d["vote"], d["income"])


@translates("wells_data")
def wells_dist(d):
    with pm.Model() as model:
        beta = pm.Flat("beta", shape=2)
        pm.Bernoulli("switched", logit_p=beta[0] + beta[1] * d["dist"], observed=d["switched"])
    return model


@translates("wells_data")
def wells_dist100_model(d):
    return logistic(d["switched"], d["dist"] / 100.0)


@translates("wells_data")
def wells_dist100ars_model(d):
    return logistic(d["switched"], d["dist"] / 100.0, d["arsenic"])


@translates("wells_data")
def wells_interaction_model(d):
    dist = d["dist"] / 100.0
    return logistic(d["switched"], dist, d["arsenic"], dist * d["arsenic"])


@translates("wells_data")
def wells_interaction_c_model(d):
    dist, arsenic = centred(d["dist"]) / 100.0, centred(d["arsenic"])
    return logistic(d["switched"], dist, arsenic, dist * arsenic)


@translates("wells_data")
def wells_dae_model(d):
    return logistic(d["switched"], d["dist"] / 100.0, d["arsenic"], d["educ"] / 4.0)


@translates("wells_data")
def wells_dae_c_model(d):
    dist, arsenic = centred(d["dist"]) / 100.0, centred(d["arsenic"])
    return logistic(d["switched"], dist, arsenic, dist * arsenic, d["educ"] / 4.0)


@translates("wells_data")
def wells_daae_c_model(d):
    dist, arsenic = centred(d["dist"]) / 100.0, centred(d["arsenic"])
    return logistic(d["switched"], dist, arsenic, dist * arsenic, d["assoc"], d["educ"] / 4.0)


@translates("wells_data")
def wells_dae_inter_model(d):
    dist, arsenic, educ = (
        centred(d[k]) / by for k, by in (("dist", 100.0), ("arsenic", 1.0), ("educ", 4.0))
    )
    products = dist * arsenic, dist * educ, arsenic * educ
    return logistic(d["switched"], dist, arsenic, educ, *products)
