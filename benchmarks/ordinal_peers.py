"""Ordinal regressions of other packages, in an interpreter that has them.

    python ordinal_peers.py FOLD OUT

FOLD is an .npz with X, y, new; OUT gets `p_NAME`, class probabilities at `new`, and `seconds_NAME`,
CPU time, for each package that is installed.
"""

import sys
import time
import warnings
from importlib.util import find_spec

import numpy as np

warnings.filterwarnings("ignore")


def by_mord(X, y, new):
    import mord

    model = mord.LogisticAT(alpha=1.0).fit(X, y)
    return model.predict_proba(new)


def by_statsmodels(X, y, new):
    from statsmodels.miscmodels.ordinal_model import OrderedModel

    varying = X.std(axis=0) > 0
    model = OrderedModel(y, X[:, varying], distr="probit").fit(method="bfgs", disp=False)
    return np.asarray(model.predict(new[:, varying]))


METHODS = {"mord": by_mord, "statsmodels": by_statsmodels}


def main():
    data = np.load(sys.argv[1])
    found = {}
    for name, method in METHODS.items():
        if find_spec(name) is None:
            continue
        try:
            started = time.process_time()
            p = method(data["X"], data["y"], data["new"])
            found |= {f"p_{name}": p, f"seconds_{name}": time.process_time() - started}
        except Exception as error:  # a peer that fails is reported, not hidden
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
    np.savez(sys.argv[2], **found)


if __name__ == "__main__":
    main()
