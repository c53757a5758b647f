"""Strong short code for every table: what `lang_envs.oracle` submits.

How it was found: 56 pipelines of scikit-learn (logistic regression, discriminant analyses, nearest neighbours, forests,
boosting, networks, kernel approximations, votes of them), with 20 more for the balances (functions of their features)
and 61 more for wine, breast-cancer and digits, were fitted in process on the 20 splits of random_state 5 .. 24 and
ranked by their mean ROC AUC; those that take more than about 2.5 s for 5 splits were left out. The splits of
random_state 0 .. 4, which the reward uses, took no part, so that nothing here was selected on the halves that are
reported. Among those within 0.0001 of the best the quickest was taken. Mean on the 20 splits, CPU seconds of 5:

    balance-scale       1.0000  0.04   the best that does not multiply columns: 0.9917, log and a network
    balance-scale-full  1.0000  0.04
    wine                0.9998  0.05
    iris                0.9987  0.02
    breast-cancer       0.9950  0.06
    digits              0.9998  0.38

The code for the balances states the law of the lever, which the observation does not: that is knowledge of the world,
and what makes it an oracle.
"""

from __future__ import annotations

__all__ = ["ORACLE_CODE", "oracle_code"]

_LEVER = """\
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

torque = FunctionTransformer(lambda x: x[:, [0]] * x[:, [1]] - x[:, [2]] * x[:, [3]])
model = make_pipeline(torque, LogisticRegression())
model.fit(x_train, y_train)
"""

_WINE = """\
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.ensemble import VotingClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

linear = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
quadratic = QuadraticDiscriminantAnalysis(reg_param=0.1)
vote = VotingClassifier([("linear", linear), ("quadratic", quadratic)], voting="soft")
model = make_pipeline(StandardScaler(), vote)
model.fit(x_train, y_train)
"""

_IRIS = """\
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

model = LinearDiscriminantAnalysis()
model.fit(x_train, y_train)
"""

_BREAST_CANCER = """\
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

kernel = Nystroem(gamma=0.01, n_components=150, random_state=0)
model = make_pipeline(StandardScaler(), kernel, LogisticRegression(C=10, max_iter=1000))
model.fit(x_train, y_train)
"""

_DIGITS = """\
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.kernel_approximation import Nystroem
from sklearn.pipeline import make_pipeline

kernel = Nystroem(gamma=0.0003, n_components=200, random_state=0)
model = make_pipeline(kernel, LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.01))
model.fit(x_train, y_train)
"""

_ANY = """\
from sklearn.ensemble import HistGradientBoostingClassifier, VotingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

linear = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
trees = HistGradientBoostingClassifier(max_iter=50, random_state=0)
model = VotingClassifier([("linear", linear), ("trees", trees)], voting="soft")
model.fit(x_train, y_train)
"""

ORACLE_CODE: dict[str, str] = {
    "balance-scale": _LEVER,
    "balance-scale-full": _LEVER,
    "wine": _WINE,
    "iris": _IRIS,
    "breast-cancer": _BREAST_CANCER,
    "digits": _DIGITS,
}
"""Body of `build_model(x_train, y_train)` by name of the table; it ends where the template returns `model`."""


def oracle_code(name: str) -> str:
    """Body of `build_model` for a table; for one without a row, a vote of a linear model and boosted trees."""
    return ORACLE_CODE.get(name, _ANY)
