"""Kernels for the pages that run, forked from one process: what all import is imported once.

conf.py starts `kernels.py serve ADDRESS`. Jupyter starts `kernels.py ask ADDRESS ARGUMENTS` for
each page; it stays as long as the kernel does, and the kernel as long as it.
"""

import json
import os
import select
import signal
import socket
import sys
import threading


def ask(address: str, *arguments: str) -> None:
    """Ask for a kernel in this folder, and wait for its end: its side of the line closes then."""
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(address)
        line.sendall(json.dumps([os.getcwd(), *arguments]).encode() + b"\n")
        line.recv(1)


def serve(address: str) -> None:
    """Fork a kernel for every request, until the process that started this one closes its side."""
    os.environ["JPY_PARENT_PID"] = str(os.getpid())
    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
    # Pages are compiled by numba: g++ takes a second or two for each constant that PyTensor folds.
    os.environ["PYTENSOR_FLAGS"] = os.environ.get("PYTENSOR_FLAGS", "") + ",cxx="
    # Who forks has one thread: those of linear algebra and of Arrow's allocator are not started.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    os.environ["JE_ARROW_MALLOC_CONF"] = "background_thread:false"
    load()
    server = socket.socket(socket.AF_UNIX)
    server.bind(address)
    server.listen()
    children = []
    while sys.stdin not in select.select([server, sys.stdin], [], [])[0]:
        line, _ = server.accept()
        children.append(os.fork())
        if children[-1] == 0:
            server.close()
            return kernel(line)
        line.close()
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def load() -> None:
    """Import what pages import, and load what is compiled for the calls that most of them make."""
    import arviz  # noqa: F401
    import ipykernel.kernelapp  # noqa: F401
    import matplotlib.pyplot  # noqa: F401
    import pymc as pm
    import pytensor.link.numba.dispatch  # noqa: F401
    import sklearn.model_selection  # noqa: F401

    import pymc_skewgp as sg

    gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0))
    gp.posterior([[0.0], [1.0]], [0, 1]).sample(draws=10, chains=1, random_seed=0)
    with pm.Model() as model:
        effect = pm.Normal("effect", 0, pm.HalfNormal("sd", 1), shape=2)
        pm.Poisson("y", pm.math.exp(effect), observed=[1, 2])
    sg.integrate(model, random_seed=0, progressbar=False)


def kernel(line: socket.socket) -> None:
    """Be a kernel of Jupyter."""
    folder, *arguments = json.loads(line.makefile().readline())
    os.chdir(folder)
    # Handlers of loggers were made before there was a kernel; pages leave out what is logged.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)

    def watch() -> None:
        line.recv(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    sys.modules["ipykernel.kernelapp"].IPKernelApp.launch_instance(arguments)


if __name__ == "__main__":
    {"ask": ask, "serve": serve}[sys.argv[1]](*sys.argv[2:])
