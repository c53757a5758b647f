"""Strong short code for every table, submitted by `lang_envs.oracle`.

How it was found: 56 pipelines of scikit-learn (logistic regression, discriminant analyses, nearest neighbours, forests,
boosting, networks, kernel approximations, votes of them), with 20 more for the balances (functions of their features)
and 61 more for wine, breast-cancer and digits, were fitted in process on the 20 splits of random_state 5 .. 24 and
ranked by their mean ROC AUC; those that take more than about 2.5 s for 5 splits were left out. The splits of
random_state 0 .. 4 of the reward took no part, so that no code was selected on the halves that are reported. Among
those within 0.0001 of the best the quickest was taken. For health-insurance 117 pipelines and for pharyngitis 93 were
compared in the same way, in steps, on the arrays of `preprocessing="default"`; networks that stop with a warning were
left out. Mean on the 20 splits, CPU seconds of 5, mean on the 5 splits of the reward:

    balance-scale       1.0000  0.04  1.0000   the best that does not multiply columns: 0.9917, log and a network
    balance-scale-full  1.0000  0.04  1.0000
    wine                0.9998  0.05  0.9999
    iris                0.9987  0.02  0.9990
    breast-cancer       0.9950  0.06  0.9953
    digits              0.9998  0.38  0.9998
    health-insurance    0.6534  0.57  0.6538   the fallback: 0.5873; boosting on columns as they are: 0.5941
    pharyngitis         0.7396  0.79  0.7191   the fallback: 0.7178

All splits halve the same rows, so even the last column is high for new ones: four other blocks of 2,000 rows of the
health-insurance file give 0.6114 to 0.6530 (the fallback 0.5731 to 0.5780).

The code for the balances states the law of the lever, absent from the observation: this knowledge of the world makes it
an oracle. The code for health-insurance knows the two columns whose numbers are arbitrary categories, and reads four of
twelve columns.

The code for generated tables is the shortest of 14 programs that are within 0.01 of the best on the tables of 40 seeds
(10,000 to 10,039: mean AUC 0.7845, the best 0.7942). Its score on other tables:
`python -m benchmarks measure datasci-scores`.

The fallback, a vote of a linear model and boosted trees, serves airlines, breast-w and spaceship-titanic (their rows
were not available for a search), synthetic stand-ins, whose columns all count, and
tables of the user's own.
"""

from __future__ import annotations

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

_HEALTH_INSURANCE = """\
from sklearn.compose import make_column_transformer
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

one_hot = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
columns = make_column_transformer((one_hot, [9, 10]), ("passthrough", [7, 8]))
trees = ExtraTreesClassifier(min_samples_leaf=10, max_features=0.3, random_state=0)
model = make_pipeline(columns, trees)
model.fit(x_train, y_train)
"""

_PHARYNGITIS = """\
from sklearn.compose import make_column_transformer
from sklearn.ensemble import GradientBoostingClassifier, VotingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import SplineTransformer, StandardScaler

curves = make_column_transformer((SplineTransformer(4, degree=2), [0, 6]), remainder="passthrough")
linear = make_pipeline(curves, StandardScaler(), LogisticRegression(C=0.05))
stumps = GradientBoostingClassifier(learning_rate=0.05, n_estimators=80, max_depth=1, random_state=0)
net = MLPClassifier(200, max_iter=500, tol=0.001, random_state=0)
model = VotingClassifier([("l", linear), ("s", stumps), ("n", net)], voting="soft")
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

_GENERATED = """\
from sklearn.ensemble import HistGradientBoostingClassifier, VotingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

few = [j for j in range(x_train.shape[1]) if len(np.unique(x_train[:, j])) < 8]
linear = make_pipeline(SimpleImputer(), StandardScaler(), LogisticRegression(C=0.3, max_iter=1000))
boosted = HistGradientBoostingClassifier(max_iter=50, categorical_features=few, random_state=0)
model = VotingClassifier([("linear", linear), ("boosted", boosted)], voting="soft")
model.fit(x_train, y_train)
"""

ORACLE_CODE: dict[str, str] = {
    "balance-scale": _LEVER,
    "balance-scale-full": _LEVER,
    "wine": _WINE,
    "iris": _IRIS,
    "breast-cancer": _BREAST_CANCER,
    "digits": _DIGITS,
    "health-insurance": _HEALTH_INSURANCE,
    "pharyngitis": _PHARYNGITIS,
    "generated": _GENERATED,
}
"""Body of `build_model(x_train, y_train)` by value of `dataset`; it ends where the template returns `model`."""


def oracle_code(name: str) -> str:
    """Return a body of `build_model` for a table; by default a vote of a linear model and boosted trees."""
    return ORACLE_CODE.get(name, _ANY)
