"""Every public name is in some call: names by reflection on the package, calls by their source."""

import re
from pathlib import Path

import pytest

import pymc_skewgp as sg

HERE = Path(__file__).parent
# Of SUN every method is compared with an oracle, and nothing is recorded.
SUN = HERE.parent / "sun" / "test_sun.py"
FILES = [*sorted(HERE.glob("calls_*.py")), HERE / "harness.py", SUN]
SOURCE = "\n".join(path.read_text() for path in FILES)
FUNCTIONS = re.split(r"\n(?=def |@|[A-Z_]+ = |    \w+=[l(])", SOURCE)

# Named in no call, and why.
NOT_NAMED = {
    "ClusterLostError": "needs a cluster that dies",
    "DistributedPosterior": "needs a cluster",
    "rows_on": "needs a cluster",
    "SeveralModesWarning": "needs a cluster",
    "EPConvergenceWarning": "no small call ends so",
    "InexactStepWarning": "poor draws, by chance",
    "HeavyTailWarning": "vague priors: in tests of integrate",
    "IntegrationWarning": "unequal weights, by chance",
    "OptimumConvergenceWarning": "settings of the search are not public",
    "StuckChainWarning": "a chain that stands still, by chance",
    "SkewGPWarning": "the base class of the others",
    "likelihoods": "a module",
    "approximations": "a module",
}
# Methods of public classes that no user calls.
PYMC = ("competence", "stop_tuning", "sampling_state", "setup_chain", "step")
NOT_CALLED = {
    "SkewGP": ("approximated_by", "refuse_approximation"),
    "SkewGPPosterior": ("prior",),
    "LatentPosterior": ("prior",),
    "ConjugateStep": PYMC,
    "LinESS": PYMC,
}
# How the source of a call shows that it is about an object of the class: it makes one.
MAKERS = {
    "SkewGP": r"SkewGP\(|GP\b|process\(|learnable\(",
    "SkewGPPosterior": r"posterior|fit\(|told|found",
    "LatentMarginals": r"marginals",
    "Estimate": r"log_marginal_likelihood|mvn_logcdf",
    "TruncatedDraws": r"truncated",
    "SUN": r"SUN|sun\(|five\(",
    "Comparison": r"compare",
    "SkewGPClassifier": r"classifier\(",
    "HyperparameterFit": r"fit\b",
    **{
        name: name
        for name in (
            "LatentPosterior",
            "SkewGPOrdinalClassifier",
            "SkewGPPreference",
            "SkewGPRegressor",
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


def methods() -> list[tuple[str, str]]:
    return [
        (name, method)
        for name in MAKERS
        for method in dir(getattr(sg, name))
        if not method.startswith("_")
        and ours(getattr(sg, name), method)
        and method not in NOT_CALLED.get(name, ())
    ]


def test_names():
    named = set(re.findall(r"\bsg\.(\w+)", SOURCE))
    assert set(sg.__all__) - named == set(NOT_NAMED)


def test_names_of_modules():
    """Calls of the likelihoods come from a table, which another test asks to be complete."""
    names = sg.approximations.__all__
    assert not [n for n in names if not re.search(rf"\b(of\.)?{n}\(|of\.{n}\.", SOURCE)]


@pytest.mark.parametrize(("name", "method"), methods())
def test_methods(name: str, method: str):
    # What two classes have from one base class is called through either.
    own = getattr(getattr(sg, name), method)
    same = [c for c in MAKERS if getattr(getattr(sg, c), method, None) is own]
    makers = "|".join(MAKERS[c] for c in same)
    assert any(re.search(makers, f) and re.search(rf"\.{method}\b", f) for f in FUNCTIONS)
