"""Models as users write them, and what `pm.sample` does: the tables of docs/patterns.md."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.transforms import ordered
from pymc.exceptions import ImputationWarning

import pymc_skewgp as sg

X = np.linspace(-1.0, 1.0, 6)[:, None]
DATA: dict[str, Any] = {
    "X": X,
    "x": X[:, 0],
    "Z": np.array([[1.0, 0.5], [0.0, -1.0], [2.0, 0.3], [1.0, 1.0], [-1.0, 0.0], [0.4, 0.2]]),
    "guess": np.array([0.5, 0.5, 0.3, 0.5, 0.7, 0.5]),
    "idx": np.array([0, 0, 3, 5]),
    "i": np.array([0, 2, 4, 1]),
    "j": np.array([1, 3, 0, 5]),
    "group": np.array([0, 0, 1, 1, 2, 2]),
    "pairs": np.array([[0, 1], [2, 3], [4, 0], [1, 5]]),
    "sets": np.array([[0, 1, 2], [3, 1, 5], [2, 4, 0]]),
    "offset": np.array([0.3, -0.2, 0.1, 0.0, 0.5, -1.0]),
    "weights": np.array([1.0, 2.0, 1.0, 3.0, 1.0, 1.0]),
    "sd": np.array([0.3, 0.5, 0.2, 0.8, 1.0, 0.4]),
    "S": 0.3 * np.eye(6) + 0.1,
    "labels": np.array([0, 1, 1, 0, 1, 0]),
    "values": np.array([-0.3, 0.6, 0.4, 1.0, -0.8, 2.0]),
    "positive": np.array([0.3, 0.6, 0.4, 1.0, 0.8, 2.0]),
    "seen": np.array([0.0, 0.6, 0.4, 1.0, 0.0, 1.5]),
    "lower": np.array([-np.inf, 0.5, 0.4, 0.0, -1.0, 1.0]),
    "upper": np.array([0.0, 1.0, 0.4, 2.0, 0.0, np.inf]),
    "within": np.array([0.0, 0.5, 0.4, 0.5, -0.5, 1.0]),
    "levels": np.array([0, 2, 1, 1, 0, 2]),
    "trials": np.array([3, 2, 1, 4, 2, 3]),
    "successes": np.array([1, 2, 0, 3, 1, 0]),
    "counts": np.array([0, 2, 1, 5, 0, 3]),
    "wins": np.ones(4, dtype=int),
    "outcomes": np.array([1, -1, 1, -1]),
    "outcomes_with_ties": np.array([1, 0, -1, 0]),
    "chosen": np.array([2, 0, 1]),
    "classes": np.array([0, 2, 1, 1, 0, 2]),
    "replicates": np.array([[0.1, -0.3], [0.5, 0.7], [0.0, 0.4], [1.2, 0.9], [-0.5, -1.0], [2, 1]]),
    "values_or_nan": np.array([-0.3, 0.6, np.nan, 1.0, np.nan, 2.0]),
    "masked_seen": np.ma.masked_array([0.0, 0.6, 0.4, 1.0, 0.0, 1.5], mask=[0, 0, 1, 0, 1, 0]),
    "masked_levels": np.ma.masked_array([0, 2, 1, 1, 0, 2], mask=[0, 0, 1, 0, 0, 0]),
    "masked": np.ma.masked_array([0, 1, 1, 0, 1, 0], mask=[0, 0, 1, 0, 0, 0]),
}


def _function(name: str, **kwargs: Any) -> Any:
    return sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=0.7)).prior(name, X, **kwargs)


# Variables that the code of a pattern may name; each is made when it is named first.
VARIABLES: dict[str, Callable[[], Any]] = {
    "gp": lambda: sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=0.7)),
    "f": lambda: _function("f"),
    "g": lambda: _function("g"),
    "h": lambda: _function("h"),
    "alpha": lambda: pm.Normal("alpha", 0.0, 2.0),
    "b": lambda: pm.Normal("b", 0.0, 1.0, shape=2),
    "tau": lambda: pm.HalfNormal("tau", 1.0),
    "sigma": lambda: pm.HalfNormal("sigma", 1.0),
    "c": lambda: pm.Normal("c", [-1.0, 1.0], 1.0, shape=2, transform=ordered),
    "d": lambda: pm.HalfNormal("d", 1.0),
    "nu": lambda: pm.Gamma("nu", 2.0, 0.1),
    "eps": lambda: pm.Beta("eps", 1.0, 9.0),
    "gamma": lambda: pm.Beta("gamma", 2.0, 8.0),
    "lapse": lambda: pm.Beta("lapse", 1.0, 9.0),
}


class _Namespace(dict[str, Any]):
    def __missing__(self, name: str) -> Any:
        if name not in VARIABLES:
            raise KeyError(name)
        self[name] = VARIABLES[name]()
        return self[name]


@dataclass(frozen=True)
class Pattern:
    """What a user writes, and what becomes of f.

    Attributes
    ----------
    code : str
        Statements within a model.
    block : tuple of str
        Variables that are drawn together with f, f among them; empty where NUTS samples f.
    moved : tuple of str
        Those that the step moves with the block integrated out.
    predicted : tuple of str
        Those that depend on the block, and nothing on them: the step draws them given it.
    why : str
        Reason why NUTS samples f, or another function, in the words of the warning; empty where
        none is given.
    given_indicators : bool
        Whether the observations are mixtures of rows.
    apart : tuple of str
        Functions of blocks of their own, which share hyperparameters with this one: the step takes
        all of them together.
    under_sites : bool
        Whether the observations are no rows.
    """

    code: str
    block: tuple[str, ...] = ("f",)
    moved: tuple[str, ...] = ()
    predicted: tuple[str, ...] = ()
    why: str = ""
    given_indicators: bool = False
    apart: tuple[str, ...] = ()
    under_sites: bool = False

    def build(self) -> pm.Model:
        """The model."""
        own = _Namespace(DATA, pm=pm, sg=sg, np=np, pt=pt)
        with pm.Model() as model, warnings.catch_warnings():
            warnings.simplefilter("ignore", ImputationWarning)
            exec(self.code, {}, own)
        return own.get("model", model)

    def row(self) -> str:
        """Its row in the docs."""
        code = "<br>".join(f"`{line}`" for line in self.code.splitlines())
        return f"| {code} | {self.outcome} |"

    @property
    def outcome(self) -> str:
        """What `pm.sample` does, in words."""
        if not self.block:
            return f"NUTS, with a warning: {self.why}" if self.why else "NUTS"
        jointly = " jointly and" if len(self.block) > 1 else ""
        text = f"draws {_listed(self.block)}{jointly} exactly"
        text += " given indicators" if self.given_indicators else ""
        text += ", by pairs" if self.under_sites else ""
        if self.apart:
            text += f", and {_listed(self.apart)} with it"
        if self.moved:
            text += f"; moves {_listed(self.moved)}"
        if self.predicted:
            text += f"; predicts {_listed(self.predicted)}"
        return text + (f"; NUTS for the rest, with a warning: {self.why}" if self.why else "")


def _listed(names: tuple[str, ...]) -> str:
    quoted = [f"`{name}`" for name in names]
    return quoted[0] if len(quoted) == 1 else ", ".join(quoted[:-1]) + f" and {quoted[-1]}"


def _refused(code: str, why: str) -> Pattern:
    return Pattern(code, block=(), why=why)


def _mixture(code: str, moved: tuple[str, ...] = (), predicted: tuple[str, ...] = ()) -> Pattern:
    return Pattern(code, moved=moved, predicted=predicted, given_indicators=True)


def _sites(
    code: str, moved: tuple[str, ...] = (), block: tuple[str, ...] = ("f",), **more: Any
) -> Pattern:
    return Pattern(code, moved=moved, block=block, under_sites=True, **more)


# Headings of the page, and the patterns under each.
PATTERNS: dict[str, list[Pattern]] = {
    "Labels and counts of successes": [
        Pattern('sg.BernoulliProbit("y", f, observed=labels)'),
        Pattern('pm.Bernoulli("y", p=pm.math.invprobit(f), observed=labels)'),
        Pattern('pm.Bernoulli("y", p=0.5 * (1 + pt.erf(f / np.sqrt(2))), observed=labels)'),
        Pattern(
            'p = pm.math.exp(pm.logcdf(pm.Normal.dist(), f))\npm.Bernoulli("y", p, observed=labels)'
        ),
        Pattern(
            'p = pm.Deterministic("p", pm.math.invprobit(f))\n'
            'pm.Bernoulli("y", p=p, observed=labels)'
        ),
        Pattern('pm.Bernoulli("y", p=1 - pm.math.invprobit(f), observed=labels)'),
        Pattern('pm.Binomial("y", n=trials, p=pm.math.invprobit(f), observed=successes)'),
    ],
    "Labels that are flipped, or guesses": [
        _mixture('pm.Bernoulli("y", p=0.05 + 0.9 * pm.math.invprobit(f), observed=labels)'),
        _mixture(
            'pm.Bernoulli("y", p=eps + (1 - 2 * eps) * pm.math.invprobit(f), observed=labels)',
            moved=("eps",),
        ),
        _mixture(
            "p = pm.math.invprobit(f)\n"
            'pm.Bernoulli("y", p=(1 - eps) * p + eps * (1 - p), observed=labels)',
            moved=("eps",),
        ),
        _mixture(
            "p = lapse * guess + (1 - lapse) * pm.math.invprobit(f)\n"
            'pm.Bernoulli("y", p=p, observed=labels)',
            moved=("lapse",),
        ),
        _mixture(
            "p = lapse / 2 + (1 - lapse) * 0.5 * pt.erfc(-f / np.sqrt(2))\n"
            'pm.Bernoulli("y", p=p[idx], observed=labels[idx])',
            moved=("lapse",),
        ),
        _mixture(
            "p = gamma + (1 - gamma - lapse) * pm.math.invprobit(f)\n"
            'pm.Bernoulli("y", p=p, observed=labels)',
            moved=("gamma", "lapse"),
        ),
        _mixture(
            "p = 0.5 + (0.5 - lapse) * pm.math.invprobit(f)\n"
            'pm.Binomial("y", n=trials, p=p, observed=successes)',
            moved=("lapse",),
        ),
    ],
    "Predictors": [
        Pattern('sg.BernoulliProbit("y", f[idx], observed=labels[idx])'),
        Pattern('sg.BernoulliProbit("y", 2 * f + offset, observed=labels)'),
        Pattern('sg.BernoulliProbit("y", x * f - f.mean(), observed=labels)'),
        Pattern('sg.BernoulliProbit("y", f / sigma, observed=labels)', moved=("sigma",)),
        Pattern('sg.BernoulliProbit("y", f + alpha, observed=labels)', ("f", "alpha")),
        Pattern('sg.BernoulliProbit("y", f + pm.math.dot(Z, b), observed=labels)', ("f", "b")),
        Pattern('sg.BernoulliProbit("y", f + g, observed=labels)', ("f", "g")),
        Pattern(
            'u = pm.Normal("u", 0, tau, shape=3)\n'
            'sg.BernoulliProbit("y", f + u[group], observed=labels)',
            ("f", "u"),
            ("tau",),
        ),
        Pattern(
            'u = pm.ZeroSumNormal("u", shape=3)\n'
            'sg.BernoulliProbit("y", f + u[group], observed=labels)',
            ("f", "u"),
        ),
        Pattern('pm.Bernoulli("y", p=pm.math.invprobit(f[2]), observed=1)'),
        Pattern('pm.Binomial("y", n=5, p=pm.math.invprobit(f[2]), observed=[3, 1])'),
        Pattern('pm.Normal("y", f[0], 1.0, observed=0.3)'),
        Pattern('pm.OrderedProbit("y", eta=f[0], cutpoints=[-0.5, 0.5], observed=levels)'),
    ],
    "Values": [
        Pattern('pm.Normal("y", f, 0.3, observed=values)'),
        Pattern('pm.Normal("y", f, sigma, observed=values)', moved=("sigma",)),
        Pattern('pm.Normal("y", f, sd, observed=values)'),
        Pattern('pm.Normal("y", f[:, None], 0.3, observed=replicates)'),
        Pattern('pm.Normal("y", f, sigma / np.sqrt(weights), observed=values)', moved=("sigma",)),
        Pattern('pm.LogNormal("y", f, sigma, observed=positive)', moved=("sigma",)),
        Pattern('pm.MvNormal("y", f, cov=S, observed=values)'),
        Pattern(
            'pm.MvNormal("y", f, chol=sigma * np.linalg.cholesky(S), observed=values)',
            moved=("sigma",),
        ),
        Pattern(
            'pm.MvNormal("y", f.reshape((2, 3)), tau=4 * np.eye(3), observed=values.reshape(2, 3))'
        ),
        Pattern('pm.Censored("y", pm.Normal.dist(f, 0.3), lower=0, upper=None, observed=seen)'),
        Pattern(
            'pm.Censored("y", pm.Normal.dist(f, sigma), lower=0, upper=1.5, observed=seen)',
            moved=("sigma",),
        ),
        Pattern('sg.IntervalNormal("y", f, 0.3, lower, upper, observed=within)'),
        _mixture('pm.StudentT("y", nu=4, mu=f, sigma=0.3, observed=values)'),
        _mixture(
            'pm.StudentT("y", nu=nu, mu=f, sigma=sigma, observed=values)', moved=("nu", "sigma")
        ),
        _mixture('pm.StudentT("y", nu=4, mu=f, lam=1 / sd**2, observed=values)'),
        _mixture(
            "y = pm.StudentT.dist(nu=4, mu=f, sigma=sigma)\n"
            'pm.Censored("y", y, lower=0, upper=1.5, observed=seen)',
            moved=("sigma",),
        ),
        _mixture('pm.Laplace("y", f, sigma, observed=values)', moved=("sigma",)),
        _mixture('pm.AsymmetricLaplace("y", b=2, mu=f, q=0.9, observed=values)'),
        Pattern(
            'pm.Normal("y", f, pm.math.exp(g), observed=values)',
            why="the noise or the limits of y depend on g",
        ),
    ],
    "Ordered categories": [
        Pattern('pm.OrderedProbit("y", eta=f, cutpoints=[-0.5, 0.5], observed=levels)'),
        Pattern(
            'pm.OrderedProbit("y", eta=f, cutpoints=c, compute_p=False, observed=levels)',
            moved=("c",),
        ),
        Pattern(
            'pm.OrderedProbit("y", eta=f, cutpoints=[-0.5, 0.5], sigma=sigma, observed=levels)',
            moved=("sigma",),
        ),
    ],
    "Duels, choices, classes": [
        Pattern('sg.BernoulliProbit("y", f[i] - f[j], observed=wins)'),
        Pattern('sg.PreferenceProbit("y", f, pairs, observed=outcomes)'),
        Pattern(
            'sg.PreferenceProbit("y", f, pairs, sigma, threshold=d, observed=outcomes_with_ties)',
            moved=("sigma", "d"),
        ),
        Pattern('sg.ChoiceProbit("y", f[sets], sigma, observed=chosen)', moved=("sigma",)),
        Pattern(
            'sg.MultinomialProbit("y", pt.stack([f, g, h], axis=1), observed=classes)',
            ("f", "g", "h"),
        ),
    ],
    "Several kinds of data, and data that change": [
        Pattern(
            'pm.Normal("y", f, sigma, observed=values)\n'
            'sg.BernoulliProbit("z", f[idx], observed=labels[idx])\n'
            'sg.PreferenceProbit("w", f, pairs, observed=outcomes)',
            moved=("sigma",),
        ),
        Pattern(
            'pm.Normal("y", f, 0.3, observed=values)\n'
            'sg.BernoulliProbit("z", g + alpha * f, observed=labels)',
            ("f", "g"),
            ("alpha",),
        ),
        Pattern(
            "gp = sg.SkewGP(cov_func=tau**2 * pm.gp.cov.ExpQuad(1, 0.7))\n"
            'f, g = gp.prior("f", X), gp.prior("g", X)\n'
            'sg.BernoulliProbit("y", f, observed=labels)\n'
            'pm.Normal("z", g, 0.3, observed=values)',
            moved=("tau",),
            apart=("g",),
        ),
        Pattern('data = pm.Data("data", labels)\nsg.BernoulliProbit("y", f, observed=data)'),
        Pattern(
            'sg.BernoulliProbit("y", f, shape=6)\n'
            'model = pm.observe(pm.modelcontext(None), {"y": labels})'
        ),
        Pattern(
            'pm.Normal("y", f, sigma, observed=values)\n'
            'model = pm.do(pm.modelcontext(None), {"sigma": 0.5})'
        ),
        Pattern('sg.BernoulliProbit("y", f[~masked.mask], observed=masked.compressed())'),
        Pattern('sg.BernoulliProbit("y", f, observed=masked)', predicted=("y_unobserved",)),
        Pattern(
            'pm.Bernoulli("y", p=pm.math.invprobit(f + alpha), observed=masked)',
            ("f", "alpha"),
            predicted=("y_unobserved",),
        ),
        Pattern(
            'pm.Normal("y", f, sigma, observed=values_or_nan)',
            moved=("sigma",),
            predicted=("y_unobserved",),
        ),
        Pattern(
            'pm.Censored("y", pm.Normal.dist(f, 0.3), lower=0, upper=None, observed=masked_seen)',
            predicted=("y_unobserved",),
        ),
        _mixture(
            'pm.StudentT("y", nu=4, mu=f, sigma=sigma, observed=values_or_nan)',
            moved=("sigma",),
            predicted=("y_unobserved",),
        ),
        _mixture(
            "p = lapse * guess + (1 - lapse) * pm.math.invprobit(f)\n"
            'pm.Bernoulli("y", p=p, observed=masked)',
            moved=("lapse",),
            predicted=("y_unobserved",),
        ),
        Pattern(
            'pm.OrderedProbit("y", eta=f, cutpoints=c, observed=masked_levels)',
            moved=("c",),
            predicted=("y_unobserved",),
        ),
        Pattern(
            'pm.Gamma("r", 2.0, pm.math.exp(f[0]))\nsg.BernoulliProbit("y", f, observed=labels)',
            predicted=("r",),
        ),
        _refused(
            'pm.MvNormal("y", f, cov=S, observed=values_or_nan)',
            "y_observed, which depends on f, is MultivariateNormal with masked entries",
        ),
    ],
    "Sites": [
        _sites('pm.Bernoulli("y", logit_p=f, observed=labels)'),
        _sites('pm.Bernoulli("y", p=0.05 + 0.9 * pm.math.invlogit(f), observed=labels)'),
        _sites('pm.Poisson("y", pm.math.exp(f), observed=counts)'),
        _sites(
            'pm.NegativeBinomial("y", mu=pm.math.exp(f), alpha=sigma, observed=counts)', ("sigma",)
        ),
        _sites('pm.Poisson("y", pm.math.exp(f + alpha), observed=counts)', block=("f", "alpha")),
        _sites('pm.Logistic("y", f, 0.3, observed=values)'),
        _sites('pm.TruncatedNormal("y", f, 1.0, lower=0, observed=positive)'),
        _sites(
            "t = pm.Exponential.dist(pm.math.exp(f))\n"
            'pm.Censored("y", t, lower=None, upper=2.0, observed=positive)'
        ),
        _sites('pm.OrderedLogistic("y", eta=f, cutpoints=[-0.5, 0.5], observed=levels)'),
        _sites('pm.Normal("y", pm.math.exp(f), 0.3, observed=values)'),
        _sites('pm.Normal("y", 0.0, pm.math.exp(f), observed=values)'),
        _sites(
            'sg.BernoulliProbit("y", f, observed=labels)\n'
            'pm.Poisson("z", pm.math.exp(f), observed=counts)'
        ),
    ],
    "Not conjugate": [
        _refused(
            'pm.Bernoulli("y", p=pm.math.invprobit(f) * pm.math.invprobit(g), observed=labels)',
            "y, which depends on f, is Bernoulli without the probit link",
        ),
        _refused(
            "p = pm.math.softmax(pt.stack([f, g, h], axis=1), axis=1)\n"
            'pm.Categorical("y", p, observed=classes)',
            "y, which depends on f, is Categorical",
        ),
        _refused(
            'sg.BernoulliProbit("y", f, observed=labels)\npm.Potential("bound", -(f[0] ** 2))',
            "the potential bound depends on f",
        ),
        _refused(
            'pm.Potential("y", (weights * pm.logp(sg.BernoulliProbit.dist(f), labels)).sum())',
            "the potential y depends on f",
        ),
        _refused(
            'r = pm.Gamma("r", 2.0, pm.math.exp(f[0]))\n'
            'sg.BernoulliProbit("y", f, observed=labels)\n'
            'pm.Poisson("z", r, observed=counts)',
            "r, which depends on f, is not observed",
        ),
        Pattern(
            'eta = pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(1, 0.7)).prior("eta", X)\n'
            'sg.BernoulliProbit("y", eta, observed=labels)',
            block=(),
        ),
        Pattern(
            'eta = gp.prior("eta", X, reparameterize=True)\n'
            'pm.Poisson("y", pm.math.exp(eta), observed=counts)',
            block=(),
        ),
    ],
}


if __name__ == "__main__":
    for heading, patterns in PATTERNS.items():
        print(f"## {heading}\n\n| in the model | what `pm.sample` does |\n|---|---|")
        print("\n".join(pattern.row() for pattern in patterns), end="\n\n")
