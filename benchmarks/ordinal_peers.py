"""Ordinal regressions of other packages, in an interpreter that has them.

    python ordinal_peers.py FOLDS OUT

FOLDS is an .npz with X, y, new; OUT gets `p_NAME`, class probabilities at `new`, `seconds_NAME`.
"""

import sys
import time
import warnings

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


def main():
    data = np.load(sys.argv[1])
    found = {}
    for name, method in (("mord", by_mord), ("statsmodels", by_statsmodels)):
        started = time.perf_counter()
        try:
            found[f"p_{name}"] = method(data["X"], data["y"], data["new"])
            found[f"seconds_{name}"] = time.perf_counter() - started
        except Exception as error:  # a peer that fails is reported, not hidden
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
    np.savez(sys.argv[2], **found)


if __name__ == "__main__":
    main()
