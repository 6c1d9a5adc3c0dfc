"""The pages under docs/: complete, linked, with alternative text. Sphinx is not needed for this."""

import re
from pathlib import Path

import pytest

import pymc_skewgp

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = sorted(
    path
    for path in DOCS.rglob("*")
    if path.suffix in (".md", ".rst")
    and not {"_build", "_templates", "generated"} & set(path.relative_to(DOCS).parts)
)
NOTEBOOKS = [path for path in PAGES if "{code-cell}" in path.read_text()]


def name_of(path):
    return str(path.relative_to(DOCS).with_suffix(""))


def entries(text):
    """Names in the lists of autosummary."""
    found = set()
    for block in re.findall(r"\.\. autosummary::\n((?:   .*\n|\n)+)", text):
        found |= {line.strip() for line in block.splitlines() if line.strip()[:1] not in ("", ":")}
    return found


def test_every_public_name_is_in_the_reference():
    text = "".join(path.read_text() for path in sorted((DOCS / "api").glob("*.rst")))
    wanted = {*pymc_skewgp.__all__, "cov.Matern", "cov.NeuralNetwork"} - {"__version__"}
    # The page of the likelihoods is made of their `__all__`.
    wanted -= {"likelihoods"}
    wanted |= {f"approximations.{name}" for name in pymc_skewgp.approximations.__all__}
    found = entries(text)
    assert not wanted - found, f"not in docs/api/: {sorted(wanted - found)}"
    assert not found - wanted, f"in docs/api/, but not public: {sorted(found - wanted)}"
    assert "pymc_skewgp.__version__" in text


def test_every_warning_and_error_is_explained():
    text = (DOCS / "troubleshooting.md").read_text()
    headings = re.findall(r"^### (\w+)$", text, re.M)
    for name in pymc_skewgp.__all__:
        if name.endswith(("Warning", "Error")) and name != "SkewGPWarning":
            assert name in headings, name


def test_every_page_is_in_a_table_of_contents():
    listed = {"index"}
    for page in PAGES:
        folder = page.parent.relative_to(DOCS)
        pattern = r"```\{toctree\}\n(.*?)```|\.\. toctree::\n((?:   .*\n|\n)+)"
        for blocks in re.findall(pattern, page.read_text(), re.S if page.suffix == ".md" else 0):
            lines = [line.strip() for line in "".join(blocks).splitlines()]
            names = [re.sub(r".*<(.*)>", r"\1", line) for line in lines]
            listed |= {str(folder / name) for name in names if name and name[0] != ":"}
    # Two are made when the pages are built: of the docstrings, and of the list of likelihoods.
    made = {"generated/modules", "api/../generated/likelihoods"}
    assert listed == {name_of(page) for page in PAGES} | made


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_between_pages_hold(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    for target in re.findall(r"\]\(((?!http)[^)#]+)", text):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", NOTEBOOKS, ids=name_of)
def test_notebooks(page):
    """Pictures have alternative text, seconds are measured, code is public and compiles."""
    text = page.read_text()
    assert text.count("    alt: ") >= text.count("plt.subplots(")
    assert not re.search(r"!\[\]", text)
    prose = re.sub(r"```.*?```", "", text, flags=re.S)
    assert not re.search(r"\d+(\.\d+)? ?(s|ms|seconds|minutes)\b", prose)
    for code in re.findall(r"```\{code-cell\} ipython3\n(.*?)```", text, re.S):
        assert "sys.path" not in code
        assert not re.search(r"pymc_skewgp(\.\w+)*\._", code)
        code = re.sub(r"\A---\n.*?\n---\n", "", code, flags=re.S)
        lines = [line for line in code.splitlines() if not line.startswith((":", "%"))]
        compile("\n".join(lines), name_of(page), "exec")
