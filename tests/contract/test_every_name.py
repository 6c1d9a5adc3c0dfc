"""Every public name and method is in some test: names by reflection on the package."""

import re
from pathlib import Path

import pytest

import pymc_skewgp as sg

HERE = Path(__file__)
FILES = [path for path in sorted(HERE.parents[1].rglob("*.py")) if path != HERE]
SOURCES = [path.read_text() for path in FILES]

# Methods of public classes that no user calls.
PYMC = ("competence", "stop_tuning", "sampling_state", "setup_chain", "step")
NOT_CALLED = {
    "SkewGP": ("approximated_by", "refuse_approximation"),
    "SkewGPPosterior": ("prior",),
    "LatentPosterior": ("prior",),
    "ConjugateStep": PYMC,
    "LinESS": PYMC,
}
# How a file shows that it is about an object of the class: it makes one.
MAKERS = {
    "SkewGP": r"SkewGP\(",
    "SkewGPPosterior": r"posterior",
    "LatentMarginals": r"LatentMarginals|marginals\(",
    "Estimate": r"log_marginal_likelihood|mvn_logcdf|_estimate",
    "TruncatedDraws": r"truncated_mvn",
    "SUN": r"SUN",
    "Comparison": r"compare_approximations",
    "SkewGPClassifier": r"Classifier\(",
    "HyperparameterFit": r"find_hyperparameters",
    **{
        name: name
        for name in (
            "LatentPosterior",
            "SkewGPOrdinalClassifier",
            "SkewGPPreference",
            "SkewGPRegressor",
            "SkewGPSurvival",
            "ConjugateStep",
            "LinESS",
        )
    },
}


def ours(cls: type, name: str) -> bool:
    """Whether the package, not PyMC or scikit-learn, says what the method does."""
    attribute = next(c.__dict__[name] for c in cls.__mro__ if name in c.__dict__)
    inner = getattr(attribute, "fget", None) or getattr(attribute, "func", None) or attribute
    return getattr(inner, "__module__", "").startswith("pymc_skewgp") and "_request" not in name


METHODS = [
    (name, method)
    for name in MAKERS
    for method in dir(getattr(sg, name))
    if not method.startswith("_")
    and ours(getattr(sg, name), method)
    and method not in NOT_CALLED.get(name, ())
]


def test_names():
    named = set(re.findall(r"\w+", "\n".join(SOURCES)))
    assert not {*sg.__all__, *sg.approximations.__all__} - named


@pytest.mark.parametrize(("name", "method"), METHODS)
def test_methods(name: str, method: str):
    # What two classes have from one base class is called through either.
    own = getattr(getattr(sg, name), method)
    same = [c for c in MAKERS if getattr(getattr(sg, c), method, None) is own]
    makers = "|".join(MAKERS[c] for c in same)
    assert any(re.search(makers, s) and re.search(rf"\.{method}\b", s) for s in SOURCES)
