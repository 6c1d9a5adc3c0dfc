"""Models as users write them, and what `pm.sample` does: the tables of docs/patterns.md, read."""

import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.transforms import ordered
from pymc.exceptions import ImputationWarning

import pymc_skewgp as sg

PAGE = Path(__file__).parents[1] / "docs" / "patterns.md"
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
    outcome : str
        What `pm.sample` does, in words.
    block : tuple of str
        Variables that are drawn together with f, f among them; empty where NUTS samples f.
    moved : tuple of str
        Those that the step samples with the block integrated out.
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
    outcome: str
    block: tuple[str, ...]
    moved: tuple[str, ...]
    predicted: tuple[str, ...]
    why: str
    given_indicators: bool
    apart: tuple[str, ...]
    under_sites: bool

    @classmethod
    def of(cls, code: str, outcome: str) -> "Pattern":
        """Of a row of the page."""
        does, _, why = outcome.partition(", with a warning: ")
        first, *more = does.split("; ")
        block, _, how = first.partition(" exactly")
        parts = {part.split()[0]: _names(part) for part in more}
        return cls(
            code="\n".join(code.strip("`").split("`<br>`")),
            outcome=outcome,
            block=_names(block),
            moved=parts.get("samples", ()),
            predicted=parts.get("predicts", ()),
            why=why,
            given_indicators="given indicators" in how,
            apart=_names(how),
            under_sites="by importance" in how,
        )

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


def _names(text: str) -> tuple[str, ...]:
    return tuple(re.findall("`(.+?)`", text))


def _tables() -> Iterator[tuple[str, list[Pattern]]]:
    """Headings of the page, and the patterns under each."""
    for section in PAGE.read_text().split("\n## ")[1:]:
        rows = re.findall(r"^\| (`.+`) \| ((?:draws|NUTS).*) \|$", section, re.MULTILINE)
        yield section.split("\n")[0], [Pattern.of(*row) for row in rows]


PATTERNS = {heading: patterns for heading, patterns in _tables() if patterns}
