"""The scikit-learn estimators: what they learn, and what they predict."""

import numpy as np
import pymc as pm
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import pymc_skewgp as sg

from .harness import SEED, call, calls, drawn, estimate

X = np.column_stack([np.linspace(-3.0, 3.0, 24), np.cos(np.arange(24.0))])
VALUES = np.sin(2.0 * X[:, 0]) + 0.4 * np.cos(np.arange(24.0) ** 2)
LABELS = np.where(VALUES > 0, "yes", "no")
LEVELS = np.digitize(VALUES, [-0.5, 0.5])
NEW = np.array([[0.3, 0.0], [2.2, 0.5], [-1.0, -0.5]])
# Of 1024 draws of f, and of where the search ends; of averages, whose points are 32, more.
SEARCH, AVERAGE = 3e-3, 1e-2


def kernel(d):
    """With priors, so that the optimum is well defined."""
    ls, sd = pm.InverseGamma("ls", 5, 5), pm.HalfNormal("sd", 2.0)
    return sd**2 * pm.gp.cov.ExpQuad(d, ls=ls)


def evidence(model):
    """With the prior at the maximum, which other ends of the search change by hundredths."""
    value, error = estimate(model.log_marginal_likelihood_)
    found = {"evidence": (value, np.hypot(error, SEARCH))}
    fit = model.hyperparameters_
    return found | ({"prior": (fit.log_prior, 2 * SEARCH)} if hasattr(fit, "log_prior") else {})


def forecast(model, error=SEARCH):
    """Evidence, and probabilities at new points."""
    return evidence(model) | {"p": (model.predict_proba(NEW), error)}


def trees(model):
    """Means of drawn f, and the groups of draws at the data."""
    tree = model.sample_latent(NEW, draws=500, chains=2, random_state=SEED)
    groups = sorted(model.to_datatree(draws=2, chains=1, random_state=SEED))
    return {"draws": drawn(tree["predictions"]["f"])["mean"], "groups": groups}


def classifier(**options):
    return sg.SkewGPClassifier(options.pop("kernel", kernel), random_state=SEED, **options)


@call
def labels():
    model = classifier().fit(X, LABELS)
    return forecast(model) | {
        "decision": (model.decision_function(NEW), 5 * SEARCH),
        "predicted": model.predict(NEW),
        "score": model.score(X, LABELS),
        "classes": model.classes_,
        "ls": (model.hyperparameters_.point["ls"], SEARCH),
    }


@call
def labels_by_a_named_kernel():
    """Matern, with a lengthscale for each feature."""
    y = (VALUES + 0.8 * np.cos(np.arange(24.0) * 5) > 0).astype(int)
    model = sg.SkewGPClassifier("matern52", ard=True, n_restarts=0, random_state=SEED).fit(X, y)
    return {"names": sorted(model.hyperparameters_.point), "predicted": model.predict(NEW)} | {
        "p": (model.predict_proba(NEW), 5 * SEARCH)
    }


@call
def labels_with_weights():
    weights = 1 + np.arange(24) % 3
    model = classifier().fit(X, LABELS, sample_weight=weights)
    return forecast(model) | {"score": model.score(X, LABELS, sample_weight=weights)}


@call
def labels_under_signs():
    """Of learnt places, whose search has more than one end."""
    model = classifier(n_pseudo_points=1).fit(X, LABELS)
    return {"shape": list(model.predict_proba(NEW).shape), "predicted": model.predict(NEW)}


@call
def latent_draws():
    model = classifier().fit(X, LABELS)
    tree = model.sample_latent(NEW, draws=500, chains=2, random_state=SEED)
    data = model.to_datatree(draws=500, chains=2, random_state=SEED)
    found = drawn(tree["predictions"]["f"])
    return found | {
        "at_data": drawn(data["posterior"]["f"][..., 0])["mean"],
        "groups": sorted(data),
    }


@call
def classes():
    model = classifier().fit(X, LEVELS)
    return {
        "p": (model.predict_proba(NEW), SEARCH),
        "predicted": model.predict(NEW),
        "evidences": len(model.log_marginal_likelihood_),
    }


@call
def nothing_to_learn():
    model = classifier(kernel=lambda d: 2.0 * pm.gp.cov.ExpQuad(d, ls=1.0)).fit(X, LABELS)
    return {"p": (model.predict_proba(NEW), SEARCH), "none": model.hyperparameters_ is None}


@call
def values():
    model = sg.SkewGPRegressor(kernel, random_state=SEED).fit(X, VALUES)
    mean, sd = model.predict(NEW, return_std=True)
    return evidence(model) | {
        "mean": (mean, SEARCH),
        "sd": (sd, SEARCH),
        "score": (model.score(X, VALUES), SEARCH),
        "sigma": (model.hyperparameters_.point["sigma"], SEARCH),
    }


@call(slow=True)
def values_averaged():
    model = sg.SkewGPRegressor(kernel, hyperparameters="average", random_state=SEED).fit(X, VALUES)
    mean, sd = model.predict(NEW, return_std=True)
    return evidence(model) | {"mean": (mean, AVERAGE), "sd": (sd, AVERAGE)}


@call
def values_by_a_named_kernel():
    model = sg.SkewGPRegressor("matern32", random_state=SEED).fit(X, VALUES)
    return {"mean": (model.predict(NEW), 5 * SEARCH), "names": sorted(model.hyperparameters_.point)}


@call
def censored_values():
    model = sg.SkewGPRegressor(kernel, censoring=(-0.5, None), random_state=SEED)
    model.fit(X, VALUES.clip(-0.5))
    return evidence(model) | trees(model) | {"mean": (model.predict(NEW), 5 * SEARCH)}


@call
def levels():
    model = sg.SkewGPOrdinalClassifier(kernel, random_state=SEED).fit(X, LEVELS)
    found = forecast(model, 2 * SEARCH) | trees(model)
    return found | {
        "predicted": model.predict(NEW),
        "score": model.score(X, LEVELS),
        "cutpoints": (model.cutpoints_, 10 * SEARCH),
    }


@call
def levels_by_name_averaged():
    names = np.array(["low", "middle", "high"])
    model = sg.SkewGPOrdinalClassifier(
        kernel, categories=names, hyperparameters="average", random_state=SEED
    ).fit(X, names[LEVELS])
    return {"p": (model.predict_proba(NEW), AVERAGE), "predicted": model.predict(NEW)}


DUELS = np.column_stack([np.arange(24), (np.arange(24) * 7 + 3) % 24])
DUELS = DUELS[DUELS[:, 0] != DUELS[:, 1]]
DUELS = np.where((VALUES[DUELS[:, 0]] > VALUES[DUELS[:, 1]])[:, None], DUELS, DUELS[:, ::-1])


@call
def duels():
    model = sg.SkewGPPreference(kernel, random_state=SEED).fit(X, DUELS)
    found = evidence(model) | trees(model)
    return found | {
        "utility": (model.predict(NEW), 5 * SEARCH),
        "p": (model.probability(NEW[:1], NEW[1:2]).value, SEARCH),
        "score": model.score(X, DUELS),
    }


@call
def duels_averaged():
    model = sg.SkewGPPreference(kernel, hyperparameters="average", random_state=SEED)
    model.fit(X, DUELS)
    return {"p": (model.probability(NEW[:1], NEW[1:2]).value, AVERAGE)}


@call
def duels_with_ties():
    ties = np.column_stack([DUELS, np.arange(len(DUELS)) % 4 == 0]).astype(int)
    model = sg.SkewGPPreference(kernel, threshold=0.3, random_state=SEED).fit(X, ties)
    return evidence(model) | {"p": (model.probability(NEW[:1], NEW[1:2]).value, SEARCH)}


@call
def as_scikit_learn_has_them():
    found = {}
    for make in (
        sg.SkewGPClassifier,
        sg.SkewGPOrdinalClassifier,
        sg.SkewGPPreference,
        sg.SkewGPRegressor,
    ):
        copy = clone(make("matern32", n_restarts=0).set_params(ard=True))
        found[make.__name__] = sorted(copy.get_params())
        assert copy.get_params()["ard"] is True
    return found


@call(slow=True)
def in_a_pipeline():
    model = make_pipeline(StandardScaler(), sg.SkewGPRegressor(kernel, random_state=SEED))
    return {"scores": (cross_val_score(model, X, VALUES, cv=3), 0.01)}


def two_fits():
    return classifier(warm_start=True).fit(X[:20], LABELS[:20]).fit(X, LABELS)


calls(
    labels_averaged=lambda: forecast(classifier(hyperparameters="average").fit(X, LABELS), AVERAGE),
    classes_of_one_model=lambda: forecast(
        classifier(multi_class="exact").fit(X, LEVELS), 2 * SEARCH
    ),
    started_warm=lambda: forecast(two_fits()),
)
