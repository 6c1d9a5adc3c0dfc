"""How Sphinx builds these pages: `python3 dev.py docs`."""

import ast
import atexit
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version as version_of
from pathlib import Path

from docutils import nodes

import pymc_skewgp

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "docs" / "_build"


def state_of_the_code() -> str:
    """Digest of all that the outputs of the pages depend on, besides the pages themselves."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / "pymc_skewgp").rglob("*.py")):
        digest.update(path.read_bytes())
    # Some pages show tables made of these.
    for path in sorted((ROOT / "benchmarks" / "results").glob("*.csv")):
        digest.update(path.read_bytes())
    for name in ("pymc", "pytensor", "arviz", "numpy"):
        digest.update(f"{name} {version_of(name)}".encode())
    return digest.hexdigest()[:16]


def list_of_modules() -> str:
    """A page with a sentence for every module: the first paragraph of its docstring."""
    page, room = ["# All modules", ""], None
    for path in sorted((ROOT / "pymc_skewgp").rglob("*.py"), key=lambda path: (path.parent, path)):
        said = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        if path.name == "__init__.py" or not said:
            continue
        if path.parent != room:
            room = path.parent
            page += ["", f"## `{room.relative_to(ROOT)}`", ""]
        sentence = " ".join(said.split("\n\n")[0].split())
        page.append(f"* `{path.stem}`: {sentence}")
    return "\n".join(page) + "\n"


def list_of_likelihoods() -> str:
    """The page of the reference with all public likelihoods."""
    page = ["Likelihoods", "===========", "", ".. currentmodule:: pymc_skewgp", ""]
    lists = {
        "module": ["likelihoods"],
        "plain_class": [f"likelihoods.{name}" for name in pymc_skewgp.likelihoods.__all__],
    }
    for template, names in lists.items():
        page += [".. autosummary::", "   :toctree: .", f"   :template: autosummary/{template}.rst"]
        page += ["   :nosignatures:", "", *(f"   {name}" for name in names), ""]
    return "\n".join(page)


def generate_pages(state: str) -> None:
    """Pages of the reference that are made of the code, anew where it or the lists have changed.

    autosummary adds a page for each name. Those of names that are no longer public would stay.
    """
    folder = ROOT / "docs" / "generated"
    paths = [*(ROOT / "docs" / "api").glob("*.rst")]
    paths += [*(ROOT / "docs" / "_templates").rglob("*.rst"), Path(__file__)]
    state += hashlib.sha256(b"".join(path.read_bytes() for path in sorted(paths))).hexdigest()
    written = folder / ".state"
    if written.exists() and written.read_text() == state:
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "modules.md").write_text(list_of_modules(), encoding="utf-8")
    (folder / "likelihoods.rst").write_text(list_of_likelihoods())
    written.write_text(state)


def start_kernels(app, env, docnames):
    """Start the process that forks kernels, until this one ends, and tell Jupyter of it."""
    if not any("{code-cell}" in Path(env.doc2path(name)).read_text("utf-8") for name in docnames):
        return
    script = [sys.executable, str(ROOT / "docs" / "kernels.py")]
    address = tempfile.mkdtemp() + "/address"  # short: the path of a socket has 107 characters
    server = subprocess.Popen([*script, "serve", address], stdin=subprocess.PIPE)
    while server.poll() is None and not os.path.exists(address):
        time.sleep(0.1)

    @atexit.register
    def end() -> None:
        server.communicate()
        shutil.rmtree(os.path.dirname(address))

    folder = BUILD / "kernels" / "python3"
    folder.mkdir(parents=True, exist_ok=True)
    command = [*script, "ask", address, "-f", "{connection_file}"]
    spec = {"argv": command, "display_name": "Python 3", "language": "python"}
    spec["interrupt_mode"] = "message"  # signals reach the process that asked
    (folder / "kernel.json").write_text(json.dumps(spec))


project = "pymc_skewgp"
author = "The pymc_skewgp developers"
project_copyright = author
version = release = pymc_skewgp.__version__

extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx-mathjax-offline",  # so that formulas are drawn without a network
    "sphinx_copybutton",
]
exclude_patterns = ["_build", "_templates"]
templates_path = ["_templates"]
# Single backticks in docstrings are names of Python: links where they are known, code elsewhere.
default_role = "py:obj"

# --- pages that run ----------------------------------------------------------------------------
# Kernels of their own: without the reader's start-up files, and quiet about how they are reached.
(BUILD / "ipython" / "profile_default").mkdir(parents=True, exist_ok=True)
(BUILD / "ipython" / "profile_default" / "ipython_kernel_config.py").write_text(
    'get_config().IPKernelApp.log_level = "ERROR"\n'
)
os.environ["IPYTHONDIR"] = str(BUILD / "ipython")
os.environ["JUPYTER_PATH"] = str(BUILD)  # where start_kernels puts them

# Executed pages are kept from one build to the next, until the package or the page changes.
nb_execution_mode = "cache"
STATE = state_of_the_code()
nb_execution_cache_path = str(BUILD / "executed" / STATE)
# A page that fails is a warning, with which the build goes on: the others are written all the same.
nb_execution_raise_on_error = False
nb_execution_timeout = 600  # seconds for one cell
nb_execution_show_tb = True
nb_merge_streams = True
nb_render_markdown_format = "myst"  # which knows tables
# PyMC logs to the error stream. What a page claims, it asserts.
nb_output_stderr = "remove"
myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

# --- reference ---------------------------------------------------------------------------------
generate_pages(STATE)
autosummary_generate = True
autosummary_ignore_module_all = False
toc_object_entries_show_parents = "hide"
autodoc_typehints = "none"  # numpydoc has them
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

# --- pages as they look ------------------------------------------------------------------------
html_theme = "pydata_sphinx_theme"
html_title = "pymc_skewgp"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_sidebars = {"index": []}  # without siblings, which the list on the left would name
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "show_prev_next": True,
    "navbar_align": "left",
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


def picture_first(app, doctree):
    """Put a tutorial's first figure above its code as well: its answer, under its question."""
    section = next(doctree.findall(nodes.section), None)
    if not app.env.docname.startswith("tutorials/") or section is None:
        return
    cells = [node for node in section.findall(nodes.container) if "cell" in node["classes"]]
    for output in section.findall(nodes.container):
        if (
            "cell_output" in output["classes"]
            and next(output.findall(nodes.image), None) is not None
        ):
            section.insert(section.index(cells[0]), output.deepcopy())
            return


def setup(app):
    """Kernels before pages are read; pictures before the images of a page are collected."""
    app.connect("env-before-read-docs", start_kernels)
    app.connect("doctree-read", picture_first, priority=400)
