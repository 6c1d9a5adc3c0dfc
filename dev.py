"""Run quickstart, tests or linters of pymc_skewgp, or build its pages, in a separate environment.

python3 dev.py quickstart [arguments]  runs examples/quickstart.py
python3 dev.py test [arguments]        runs pytest, in two processes; "-n 0" gives one
python3 dev.py lint                    runs ruff and mypy
python3 dev.py docs [arguments]        runs Sphinx, and with it the pages that compute
python3 dev.py install                 installs what all of these need, once for all

The environment is .venv beside this file. It is made, and the package installed in it in
editable mode, at the first run and whenever pyproject.toml or the version of Python changed.
"""

# This file needs nothing but the standard library, and it parses under every Python from 2.7 on:
# an old one prints one sentence that says what is wrong. So no f-strings and no annotations here.

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time

OLDEST = (3, 12)
ROOT = os.path.dirname(os.path.abspath(__file__))
VENV = os.path.join(ROOT, ".venv")
STAMP = os.path.join(VENV, "dev-stamp.json")
EXTRAS = {"quickstart": "examples", "test": "test", "lint": "dev", "docs": "docs"}


def say(text):
    """Print one line at once, ahead of what a command started later prints."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def fail(text, code=1):
    """End with one plain sentence on the error stream."""
    sys.stdout.flush()
    sys.stderr.write(text + "\n")
    sys.exit(code)


def run(command, cwd=None):
    """Run a command and return its exit code, 128 + the number for one that a signal ended."""
    code = subprocess.call(command, cwd=cwd)
    return code if code >= 0 else 128 - code


def venv_python():
    """Path of the interpreter in the environment."""
    if os.name == "nt":
        return os.path.join(VENV, "Scripts", "python.exe")
    return os.path.join(VENV, "bin", "python")


def check_version(command):
    """End unless this interpreter is new enough."""
    if sys.version_info[:2] >= OLDEST:
        return
    oldest = "%d.%d" % OLDEST
    fail(
        "pymc_skewgp needs Python %s or newer; this is Python %s (%s): run this command with "
        "a newer one, for example python%s dev.py %s"
        % (oldest, "%d.%d.%d" % sys.version_info[:3], sys.executable, "3.13", command)
    )


def check_venv_modules():
    """End unless this interpreter can make environments (Debian packages that apart)."""
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError as error:
        fail(
            "This Python (%s) cannot make virtual environments, because its module %s is missing: "
            "install it, on Debian or Ubuntu with: apt install python%d.%d-venv"
            % (sys.executable, error.name, sys.version_info[0], sys.version_info[1])
        )


def wanted_stamp():
    """Return what the environment depends on, apart from the extras."""
    with open(os.path.join(ROOT, "pyproject.toml"), "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    return {
        "pyproject": digest,
        "python": "%s, %s" % (sys.version.split()[0], os.path.realpath(sys.base_prefix)),
        "root": ROOT,
    }


def read_stamp():
    """Return the stamp of the environment, empty where there is none."""
    try:
        with open(STAMP) as file:
            stamp = json.load(file)
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}


def write_stamp(stamp, extras):
    """Write down what is installed, in one step so that no half-written stamp is left."""
    with open(STAMP + ".new", "w") as file:
        json.dump(dict(stamp, extras=sorted(extras)), file)
    os.replace(STAMP + ".new", STAMP)


def venv_works():
    """Whether .venv has the version of this interpreter, and pip."""
    question = "import sys, pip; print(sys.version.split()[0], sys.prefix)"
    try:
        answer = subprocess.check_output(
            [venv_python(), "-c", question], stderr=subprocess.DEVNULL, cwd=ROOT
        )
    except (OSError, subprocess.CalledProcessError):
        return False
    version, prefix = answer.decode().rstrip("\r\n").split(" ", 1)
    return version == sys.version.split()[0] and os.path.realpath(prefix) == os.path.realpath(VENV)


def prepare(*extras):
    """Make the environment and install the package with the extras, where not yet done."""
    wanted = wanted_stamp()
    stamp = read_stamp()
    installed = stamp.pop("extras", [])
    if stamp != wanted:
        installed = []
    if set(extras) <= set(installed) and os.path.exists(venv_python()):
        return
    start = time.time()
    if os.path.exists(STAMP):
        os.remove(STAMP)
    if stamp.get("python") != wanted["python"] or not venv_works():
        check_venv_modules()
        say("Making .venv with Python %s ..." % sys.version.split()[0])
        base = getattr(sys, "_base_executable", None) or sys.executable
        code = run([base, "-m", "venv", "--clear", VENV])
        if code:
            fail("dev.py: making the virtual environment %s failed." % VENV, code)
    extras = sorted(set(installed).union(extras))
    say("Installing pymc_skewgp[%s] (about a minute the first time) ..." % ",".join(extras))
    # The name of the folder may hold brackets or spaces: "." with cwd does not mind.
    target = ".[%s]" % ",".join(extras)
    pip = [venv_python(), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    code = run(pip + ["--editable", target], cwd=ROOT)
    if code:
        fail("dev.py: installing the package (pip install --editable '%s') failed." % target, code)
    write_stamp(wanted, extras)
    say("Installed in %.0f s." % (time.time() - start))


def install(arguments):
    """Install what all commands need, so that they may then run side by side."""
    if arguments:
        fail("dev.py install takes no arguments.", 2)
    prepare(*EXTRAS.values())
    return 0


def quickstart(arguments):
    """Run the example in the current directory, where its files go."""
    script = os.path.join(ROOT, "examples", "quickstart.py")
    if not os.path.exists(script):
        fail("dev.py: there is no %s to run." % script)
    prepare(EXTRAS["quickstart"])
    return run([venv_python(), script] + arguments)


def test(arguments):
    """Run pytest in the root of the project: paths in the arguments start there."""
    prepare(EXTRAS["test"])
    # A file's tests share what it makes for all of them, which two processes would make twice.
    # Files stay in their order, in which the examples of docstrings come last: short ones, so that
    # both processes end together.
    in_two = ["-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"]
    return run([venv_python(), "-m", "pytest"] + in_two + arguments, cwd=ROOT)


def lint(arguments):
    """Run every linter, whatever the others say, and return the first bad exit code."""
    if arguments:
        fail("dev.py lint takes no arguments.", 2)
    prepare(EXTRAS["lint"])
    result = 0
    for name in ("ruff check", "ruff format --check", "mypy"):
        say("%s ..." % name)
        words = name.split()
        paths = ["."] if words[0] == "ruff" else []
        code = run([venv_python(), "-m"] + words + paths, cwd=ROOT)
        if code:
            say("%s: exit code %d" % (name, code))
        result = result or code
    return result


def docs(arguments):
    """Build the pages, with warnings as errors; say where they begin and which ones failed."""
    prepare(EXTRAS["docs"])
    say("Building the pages (six minutes the first time: they compute what they show) ...")
    target = os.path.join(ROOT, "docs", "_build", "html")
    reports = os.path.join(target, "reports")
    shutil.rmtree(reports, ignore_errors=True)  # of the build before
    sphinx = [venv_python(), "-m", "sphinx", "-W", "--keep-going", "--quiet", "-b", "html"]
    code = run(sphinx + arguments + ["docs", target], cwd=ROOT)
    for folder, _, files in sorted(os.walk(reports)):
        for name in sorted(files):
            report = os.path.join(folder, name)
            say("A page failed and is without its results; %s says why." % report)
    if os.path.exists(os.path.join(target, "index.html")):
        say("Open %s" % os.path.join(target, "index.html"))
    return code


def main(arguments):
    """Run one command and return its exit code."""
    commands = {
        "quickstart": quickstart,
        "test": test,
        "lint": lint,
        "docs": docs,
        "install": install,
    }
    name = arguments[0] if arguments else None
    if name in ("-h", "--help"):
        say(__doc__.strip())
        return 0
    check_version(name if name in commands else "test")
    if name not in commands:
        fail(__doc__.strip(), 2)
    try:
        return commands[name](arguments[1:])
    except KeyboardInterrupt:
        fail("dev.py: stopped.", 130)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
