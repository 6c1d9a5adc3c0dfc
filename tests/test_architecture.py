"""The layers of the package: what each module may import, and how long modules and functions are.

The layers stand in the table below from left to right. A module imports, of the package, only from
its own layer and those to its left, and, of other projects, only what its layer or one to its left
names. Imports inside functions count like any other. Blocks under ``if TYPE_CHECKING`` do not.
"""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from itertools import accumulate
from pathlib import Path
from runpy import run_path
from typing import NamedTuple

import pytest

parse = cache(ast.parse)
ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "pymc_skewgp"


# Names of modules, each with all that is below it; and what a layer adds to the allowed imports.
LAYERS = {
    "foundations": ("_errors _validation _limits", "numpy scipy threadpoolctl rich"),
    "gaussian": ("_gaussian", "numba llvmlite arviz_stats"),
    "sun": ("_sun", ""),
    "observations": ("_observations likelihoods", ""),
    "_posterior": ("_posterior approximations", "xarray arviz_base"),
    "mcmc": ("_mcmc", ""),
    "ops": ("_model.ops", "pytensor"),
    "model": ("_model cov", "pymc cloudpickle"),
    "learn": ("_learn", "sklearn joblib"),
    "diagnostics": ("_diagnostics", "arviz pandas pymc_extras"),
    "plots": ("_plots", "matplotlib"),
}
NAMES = tuple(LAYERS)
# What each layer may import of other projects: what those to its left may, too.
ALLOWED = [set(x.split()) for x in accumulate((y for _, y in LAYERS.values()), "{} {}".format)]

# The package itself gathers names of every layer; the version is a constant that any may read.
EXEMPT = frozenset({PACKAGE, f"{PACKAGE}._version"})

# Optional projects: never imported with the package, only inside functions, and not in the first
# two layers.
NEVER_AT_MODULE_LEVEL = frozenset({"jax", "jaxlib", "torch", "matplotlib", "dask", "distributed"})


class Import(NamedTuple):
    """One imported name; `at_module_level` when importing the module executes it."""

    target: str
    line: int
    at_module_level: bool


def layer_index(module: str) -> int | None:
    """Place of the module's layer in the table, None for a module that no layer lists."""
    for index, (roots, _) in enumerate(LAYERS.values()):
        if any(f"{module}.".startswith(f"{PACKAGE}.{root}.") for root in roots.split()):
            return index
    return None


def is_type_checking(test: ast.expr) -> bool:
    """Whether the condition of an ``if`` is TYPE_CHECKING, plain or as an attribute."""
    if isinstance(test, ast.Name):
        return test.id == "TYPE_CHECKING"
    return isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"


def resolve(node: ast.ImportFrom, module: str, is_package: bool) -> str:
    """Absolute name of the module that a ``from`` statement names."""
    if node.level == 0:
        return node.module or ""
    parts = module.split(".")
    drop = node.level - 1 if is_package else node.level
    base = parts[: len(parts) - drop]
    return ".".join([*base, node.module] if node.module else base)


def imports(
    node: ast.AST, module: str, is_package: bool, at_module_level: bool = True
) -> Iterator[Import]:
    """Every import below `node`, but for those under TYPE_CHECKING."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield Import(alias.name, node.lineno, at_module_level)
        return
    if isinstance(node, ast.ImportFrom):
        source = resolve(node, module, is_package)
        for alias in node.names:
            # The name may be a module or something in one: the longer form fits both, because a
            # layer lists everything below its modules.
            yield Import(f"{source}.{alias.name}", node.lineno, at_module_level)
        return
    children: list[ast.AST] = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.If) and is_type_checking(node.test):
        children = list(node.orelse)
    inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    for child in children:
        yield from imports(child, module, is_package, at_module_level and not inside)


def third_party_problem(found: Import, index: int | None) -> str | None:
    """What is wrong with importing this from outside the package; index None: an exempt module."""
    top = found.target.split(".")[0]
    if top in NEVER_AT_MODULE_LEVEL:
        if found.at_module_level:
            return f"imports {top} at module level: do so inside the function that needs it"
        if index is None or index > 1:
            return None
    if index is None or top in sys.stdlib_module_names:
        return None
    if top in ALLOWED[index]:
        return None
    return f"imports {top}, which the layer {NAMES[index]} does not allow"


def internal_problem(found: Import, index: int | None) -> str | None:
    """What is wrong with importing this part of the package."""
    if index is None or found.target.startswith(f"{PACKAGE}._version"):
        return None
    there = layer_index(found.target)
    if there is None:
        return f"imports {found.target}, which is in no layer: name the module that defines it"
    if there > index:
        return (
            f"imports {found.target} of the layer {NAMES[there]}, "
            f"to the right of its own, {NAMES[index]}"
        )
    return None


def violations(module: str, source: str, is_package: bool = False) -> list[str]:
    """Every breach of the layers in one module, one sentence each."""
    index = layer_index(module)
    if index is None and module not in EXEMPT:
        return [f"{module} belongs to no layer: add it to the table in tests/test_architecture.py"]
    if module in EXEMPT:
        index = None
    problems = []
    for found in imports(parse(source), module, is_package):
        internal = found.target.split(".")[0] == PACKAGE
        check = internal_problem if internal else third_party_problem
        problem = check(found, index)
        if problem is not None:
            problems.append(f"{module}, line {found.line}: {problem}")
    return problems


def module_files() -> dict[str, Path]:
    """Every module of the package, by name."""
    files = {}
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return files


MODULES = module_files()


def test_imports_follow_the_layers():
    problems = []
    for module, path in MODULES.items():
        source = path.read_text(encoding="utf-8")
        problems += violations(module, source, is_package=path.name == "__init__.py")
    assert not problems, "\n".join(problems)


def test_no_two_test_files_have_one_name():
    """Those of folders without packages are imported by their name alone."""
    seen: dict[str, Path] = {}
    twice = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        if path.name != "conftest.py" and path.name in seen:
            twice.append(f"{path.relative_to(ROOT)} and {seen[path.name].relative_to(ROOT)}")
        seen[path.name] = path
    assert not twice, "one name for two files: " + "; ".join(twice)


@pytest.mark.parametrize(
    ("module", "source", "expected"),
    [
        ("_gaussian.a", "import pymc", "imports pymc, which the layer gaussian does not allow"),
        ("_gaussian.a", "def f():\n    import jax", "imports jax, which the layer gaussian"),
        ("_gaussian.a", "from pymc_skewgp._sun.sun import SUN", "of the layer sun, to the right"),
        ("_gaussian.a", "from .._sun import SUN", "of the layer sun, to the right"),
        ("_sun", "try:\n    import torch\nexcept ImportError:\n    pass", "at module level"),
        ("_model.ops.a", "from pymc_skewgp._model.gp.latent import GP", "layer model"),
        ("_sun", "if TYPE_CHECKING:\n    pass\nelse:\n    import pymc", "imports pymc"),
        ("_sunny", "", "belongs to no layer: add it to the table"),
    ],
)
def test_the_checker_sees_violations(module, source, expected):
    problems = violations(f"{PACKAGE}.{module}", source)
    assert len(problems) == 1
    assert expected in problems[0]


# --- length -------------------------------------------------------------------------------------

docstring_lines = run_path(str(ROOT / ".ci" / "code_lines.py"))["docstring_lines"]
MAX_FILE_LINES = 800
# Lines of code: without the docstring, comments and blank lines.
MAX_FUNCTION_LINES = 60
MAX_PARAMETERS = 8

# What users call takes its many options by name, as in NumPy, PyMC and ArviZ. Each with its reason.
PUBLIC = {
    "_diagnostics.comparison:compare_approximations": "a whole comparison in one call",
    "_diagnostics.comparison:sbc": "a whole calibration in one call",
    "_learn.hyperparameters:find_hyperparameters": "a whole search in one call",
    "_learn.integrate:integrate": "a whole integral in one call",
    "_learn.predict:predict": "every result, and what it may lack",
    "_model.distributions.marginal:MarginalProbit.dist": "five parameters, two forms of one",
    "_model.gp.skewgp:SkewGP.marginal_likelihood": "data, and how to integrate",
    "_model.gp.skewgp:SkewGP.posterior": "data, and how to draw",
    "_model.gp.skewgp:SkewGP.sample_latent": "a trace, data, and how to draw",
    "_plots.densities:plot_slice_density": "what is drawn, each part with its switch",
    "_plots.latent:plot_latent_band": "what is drawn, each part with its switch",
    "_plots.latent:plot_skewness": "what is drawn, each part with its switch",
    "_posterior.posterior:SkewGPPosterior.__init__": "a prior, its data, and how to draw",
}


def functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    """Every function below `tree` with its name, dotted within classes and functions."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            name = f"{prefix}{node.name}"
            if isinstance(node, ast.FunctionDef):
                yield name, node
            yield from functions(node, f"{name}.")
        else:
            yield from functions(node, prefix)


def n_code_lines(function: ast.FunctionDef, lines: list[str], documented: set[int]) -> int:
    """Lines from the signature to the end, less docstrings, comments and blank lines."""
    inside = range(function.lineno, (function.end_lineno or 0) + 1)
    code = (lines[number - 1].strip() for number in inside if number not in documented)
    return sum(1 for line in code if line and not line.startswith("#"))


def n_parameters(function: ast.FunctionDef) -> int:
    """Parameters but ``self`` and ``cls``; ``*args`` and ``**kwargs`` count as one each."""
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    gathered = [arguments.vararg, arguments.kwarg]
    own = sum(argument.arg not in ("self", "cls") for argument in named)
    return own + sum(argument is not None for argument in gathered)


def too_long(module: str, source: str) -> dict[str, str]:
    """What is too long in a module: names, as the tables above have them, and how much too long."""
    short = module.removeprefix(f"{PACKAGE}.")
    found = {}
    lines, documented = source.splitlines(), docstring_lines(source)
    if len(lines) > MAX_FILE_LINES:
        found[short] = f"has {len(lines)} lines, more than {MAX_FILE_LINES}"
    for name, function in functions(parse(source)):
        code, parameters = n_code_lines(function, lines, documented), n_parameters(function)
        problems = []
        if code > MAX_FUNCTION_LINES:
            problems.append(f"has {code} lines of code, more than {MAX_FUNCTION_LINES}")
        if parameters > MAX_PARAMETERS and f"{short}:{name}" not in PUBLIC:
            problems.append(f"has {parameters} parameters, more than {MAX_PARAMETERS}")
        if problems:
            found[f"{short}:{name}"] = " and ".join(problems)
    return found


def test_modules_and_functions_are_short():
    found = {}
    for module, path in MODULES.items():
        found |= too_long(module, path.read_text(encoding="utf-8"))
    assert not found, "; ".join(f"{name} {problem}" for name, problem in found.items())


@pytest.mark.parametrize("known", PUBLIC)
def test_the_table_of_public_functions_names_what_there_is(known):
    module, name = known.split(":")
    source = MODULES[f"{PACKAGE}.{module}"].read_text(encoding="utf-8")
    assert n_parameters(dict(functions(parse(source)))[name]) > MAX_PARAMETERS
