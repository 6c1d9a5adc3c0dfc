"""The tables of docs/your_model.md: what is drawn exactly, and what is averaged over."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm
import pytest

import pymc_skewgp as sg
from pymc_skewgp._model.graph.collapsed import collapse_model

PAGE = Path(__file__).parents[2] / "docs" / "your_model.md"
n = 12
x = np.linspace(-1.0, 1.0, n)
DATA: dict[str, Any] = {
    "np": np,
    "pm": pm,
    "sg": sg,
    "n": n,
    "x": x,
    "X": np.column_stack([np.ones(n), x]),
    "g": np.arange(n) % 3,
    "h": np.arange(n) % 4,
    "W": np.array([[0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0]]),
    "values": np.sin(3.0 * x),
    "positive": np.exp(np.sin(3.0 * x)),
    "seen": np.minimum(np.exp(x), 2.0),
    "shares": 0.5 + 0.4 * x,
    "labels": np.arange(n) % 2,
    "levels": np.arange(n) % 3,
    "counts": np.arange(n) % 5,
}


def rows(heading: str) -> list[tuple[str, str]]:
    """Code and effect of each row of the table under a heading."""
    section = PAGE.read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    cells = re.findall(r"^\| (`.+`) \| (.+) \|$", section, re.MULTILINE)
    return [("\n".join(code.strip("`").split("`<br>`")), effect) for code, effect in cells]


def names(effect: str, verb: str) -> set[str]:
    part = re.search(rf"{verb} ([^;]+)", effect)
    return set(re.findall("`(.+?)`", part[1])) if part else set()


SECTIONS = "Forms of the block", "Observations", "Several predictors", "One log density of all"


@pytest.mark.parametrize(("code", "effect"), [row for x in SECTIONS for row in rows(x)])
def test_row(code, effect):
    known = dict(DATA)
    with pm.Model() as model:
        if "s" in names(effect, "averages over"):
            known["s"] = pm.HalfNormal("s", 1)
        if "observed=" not in code and "eta" in code:
            exec(code, known)
            known["y"] = pm.Poisson("y", pm.math.exp(known["eta"]), observed=DATA["counts"])
        elif "eta" not in code:
            exec(code, known)
        else:
            known["b"] = pm.Normal("b", 0, 1, shape=2)
            known["eta"] = pm.math.dot(known["X"], known["b"])
            exec(code, known)
    found = collapse_model(model)
    block = {name for one in found.blocks for name in one.names}
    assert block == names(effect, "draws")
    assert {rv.name for rv in model.free_RVs} - block == names(effect, "averages over")
