"""The classes of scikit-learn that the grammar knows beyond those of `lang_envs.envs.datascicoding.coder`, as data.

Every choice of arguments runs on every table with at least four features, and is quick; others (slow defaults, counts
above a small table's) are left out. None of it was chosen by its score.
"""

from __future__ import annotations

from lang_envs.envs.datascicoding.coder import DEPTH, MODELS, REDUCERS, SCALERS, SEED, STRENGTHS, Part

_TABLE_DEPENDENT = ("OneVsRestClassifier", "QuadraticDiscriminantAnalysis")
"""Classes that fail on some tables for reasons of the data, with the arguments that the small grammar gives them."""

ALL_MODELS: tuple[Part, ...] = (
    *(part for part in MODELS if part.name not in _TABLE_DEPENDENT),
    Part("naive_bayes", "GaussianNB", {"priors": ("None",)}),
    Part("linear_model", "LogisticRegression", {"solver": ("'newton-cholesky'",), "C": STRENGTHS}),
    Part("linear_model", "LogisticRegression", {"solver": ("'lbfgs'",), "max_iter": ("20", "200"), "tol": ("1e-3",)}),
    Part(
        "linear_model",
        "SGDClassifier",
        {"loss": ("'log_loss'",), "penalty": ("'l1'", "'elasticnet'"), "max_iter": ("10", "50"), **SEED},
    ),
    Part("discriminant_analysis", "LinearDiscriminantAnalysis", {"solver": ("'svd'",), "tol": ("1e-4", "1e-2")}),
    Part("neighbors", "KNeighborsClassifier", {"n_neighbors": ("7", "9"), "metric": ("'chebyshev'", "'manhattan'")}),
    Part(
        "neighbors",
        "RadiusNeighborsClassifier",
        {"radius": ("1.0", "5.0", "20.0"), "outlier_label": ("'most_frequent'",), "weights": ("'uniform'",)},
    ),
    Part("tree", "DecisionTreeClassifier", {"max_leaf_nodes": ("4", "8", "16"), "ccp_alpha": ("0.0", "0.01"), **SEED}),
    Part("tree", "DecisionTreeClassifier", {"max_features": ("'sqrt'", "2"), "splitter": ("'random'",), **SEED}),
    Part(
        "ensemble",
        "AdaBoostClassifier",
        {
            "estimator": ("DecisionTreeClassifier(max_depth=1)", "DecisionTreeClassifier(max_depth=2)"),
            **SEED,
            "n_estimators": ("5", "10"),
        },
    ),
    Part(
        "ensemble",
        "BaggingClassifier",
        {
            "estimator": ("GaussianNB()", "KNeighborsClassifier(5)", "DecisionTreeClassifier(max_depth=3)"),
            "n_estimators": ("5", "8"),
            "max_features": ("0.5", "1.0"),
            **SEED,
        },
    ),
    Part(
        "ensemble",
        "ExtraTreesClassifier",
        {"n_estimators": ("8", "20"), "bootstrap": ("True",), "class_weight": ("'balanced'", "None"), **DEPTH},
    ),
    Part("semi_supervised", "SelfTrainingClassifier", {"estimator": ("GaussianNB()", "DecisionTreeClassifier()")}),
    Part("semi_supervised", "LabelSpreading", {"kernel": ("'knn'",), "n_neighbors": ("5", "7", "15")}),
    Part(
        "calibration",
        "CalibratedClassifierCV",
        {
            "estimator": ("RidgeClassifier()", "Perceptron()", "LinearSVC()", "KNeighborsClassifier(9)"),
            "cv": ("2",),
            "method": ("'sigmoid'", "'isotonic'"),
        },
    ),
    Part(
        "multiclass",
        "OneVsRestClassifier",
        {"estimator": ("LogisticRegression(max_iter=50)", "KNeighborsClassifier(7)", "LogisticRegression(C=0.1)")},
    ),
)
"""Classifiers with `predict_proba` that take any numbers."""

NONNEGATIVE_MODELS: tuple[Part, ...] = (
    Part("naive_bayes", "MultinomialNB", {"alpha": ("0.01", "0.1", "1.0"), "fit_prior": ("True", "False")}),
    Part("naive_bayes", "ComplementNB", {"alpha": ("0.01", "0.1", "1.0"), "fit_prior": ("True", "False")}),
)
"""Classifiers that want numbers of at least 0: they follow `MinMaxScaler(clip=True)`."""

WEAK_MODELS: tuple[Part, ...] = (
    Part("dummy", "DummyClassifier", {"strategy": ("'prior'", "'stratified'", "'uniform'", "'most_frequent'")}),
    Part("tree", "DecisionTreeClassifier", {"max_depth": ("1",), "criterion": ("'gini'", "'entropy'", "'log_loss'")}),
    Part("tree", "ExtraTreeClassifier", {"max_depth": ("1", "2"), "random_state": ("0", "1", "7")}),
    Part("neighbors", "NearestCentroid", {"shrink_threshold": ("None", "0.5", "2.0"), "priors": ("'uniform'",)}),
    Part("neighbors", "KNeighborsClassifier", {"n_neighbors": ("1",), "p": ("1", "2")}),
    Part("naive_bayes", "BernoulliNB", {"binarize": ("0.0", "1.0", "3.0"), "alpha": ("0.1", "1.0", "10.0")}),
    Part("linear_model", "LogisticRegression", {"C": ("1e-4", "1e-3"), "max_iter": ("2", "5", "10")}),
    Part("linear_model", "SGDClassifier", {"loss": ("'modified_huber'",), "max_iter": ("1", "2"), "eta0": ("0.01",)}),
    Part("neural_network", "MLPClassifier", {"hidden_layer_sizes": ("(2,)", "(3,)"), "max_iter": ("3", "10")}),
    Part(
        "ensemble",
        "RandomForestClassifier",
        {"n_estimators": ("1", "2", "3"), "max_depth": ("1", "2"), "max_features": ("1",)},
    ),
    Part("ensemble", "AdaBoostClassifier", {"n_estimators": ("1", "2"), "learning_rate": ("0.1", "1.0")}),
    Part("ensemble", "GradientBoostingClassifier", {"n_estimators": ("1", "2"), "max_depth": ("1",)}),
)
"""Models that are weak on any table by construction (one split, one neighbour, hardly trained): without them most code
that runs would score much the same, and there would be little to learn."""

FULL_SCALERS: tuple[Part, ...] = (
    *SCALERS,
    Part("preprocessing", "MaxAbsScaler", {"copy": ("True",)}),
    Part("preprocessing", "StandardScaler", {"with_std": ("True", "False")}),
    Part("preprocessing", "RobustScaler", {"quantile_range": ("(10, 90)", "(25, 75)")}),
    Part("preprocessing", "PowerTransformer", {"method": ("'yeo-johnson'",), "standardize": ("True",)}),
    Part(
        "preprocessing",
        "KBinsDiscretizer",
        {"n_bins": ("2", "3", "5"), "encode": ("'ordinal'", "'onehot-dense'"), "strategy": ("'uniform'",)},
        ("n_bins", "encode"),
    ),
    Part("impute", "SimpleImputer", {"strategy": ("'mean'", "'median'", "'most_frequent'")}),
)
"""Steps that keep the columns, or cut each into some."""

FULL_REDUCERS: tuple[Part, ...] = (
    *REDUCERS,
    Part("decomposition", "PCA", {"n_components": ("1", "2", "3", "4")}),
    Part("decomposition", "TruncatedSVD", {"n_components": ("1", "2", "3"), **SEED}, ("n_components",)),
    Part("decomposition", "FastICA", {"n_components": ("2", "3"), "max_iter": ("50",), **SEED}, ("n_components",)),
    Part("decomposition", "FactorAnalysis", {"n_components": ("1", "2", "3"), "max_iter": ("50",)}, ("n_components",)),
    Part(
        "decomposition",
        "KernelPCA",
        {"n_components": ("2", "3"), "kernel": ("'linear'", "'rbf'", "'cosine'")},
        ("n_components", "kernel"),
    ),
    Part("random_projection", "GaussianRandomProjection", {"n_components": ("1", "2", "4"), **SEED}, ("n_components",)),
    Part(
        "random_projection",
        "SparseRandomProjection",
        {"n_components": ("2", "4"), "density": ("0.5", "1.0")},
        ("n_components",),
    ),
    Part("feature_selection", "SelectKBest", {"score_func": ("f_classif",), "k": ("1", "2", "3", "4")}),
    Part("feature_selection", "SelectPercentile", {"score_func": ("f_classif",), "percentile": ("25", "50", "75")}),
    Part("feature_selection", "VarianceThreshold", {"threshold": ("0.0", "1e-8")}),
    Part(
        "feature_selection",
        "SelectFromModel",
        {"estimator": ("DecisionTreeClassifier(max_depth=3)", "ExtraTreesClassifier(n_estimators=5)")},
    ),
    Part(
        "feature_selection",
        "RFE",
        {"estimator": ("DecisionTreeClassifier()",), "n_features_to_select": ("1", "2", "3"), "step": ("0.5",)},
        ("n_features_to_select",),
    ),
    Part("cluster", "KMeans", {"n_clusters": ("2", "3", "5", "8"), "n_init": ("1",), **SEED}, ("n_clusters",)),
    Part(
        "cluster",
        "FeatureAgglomeration",
        {"n_clusters": ("2", "3", "4"), "linkage": ("'average'", "'ward'")},
        ("n_clusters",),
    ),
    Part(
        "kernel_approximation",
        "RBFSampler",
        {"gamma": ("0.001", "0.01", "0.1", "1.0"), "n_components": ("10", "30")},
        ("n_components",),
    ),
    Part(
        "kernel_approximation",
        "Nystroem",
        {"gamma": ("0.001", "0.01", "0.1"), "n_components": ("10", "25")},
        ("n_components",),
    ),
    Part(
        "kernel_approximation",
        "PolynomialCountSketch",
        {"degree": ("2", "3"), "n_components": ("10", "30")},
        ("n_components",),
    ),
    Part(
        "ensemble",
        "RandomTreesEmbedding",
        {"n_estimators": ("3", "5"), "max_depth": ("2", "3"), "sparse_output": ("False",)},
        ("n_estimators", "max_depth"),
    ),
    Part("discriminant_analysis", "LinearDiscriminantAnalysis", {"n_components": ("1",)}),
)
"""Steps that make other, mostly fewer, columns."""

COLUMN_STEPS: tuple[Part, ...] = (
    Part("preprocessing", "PolynomialFeatures", {"degree": ("2", "3"), "interaction_only": ("True", "False")}),
    Part("preprocessing", "PolynomialFeatures", {"degree": ("2",), "include_bias": ("False",)}),
    Part("preprocessing", "SplineTransformer", {"n_knots": ("3", "4", "5"), "degree": ("1", "2", "3")}),
)
"""Steps that make many columns of few: they follow a step that leaves at most four."""

WRAPPERS: tuple[Part, ...] = (
    Part("ensemble", "BaggingClassifier", {"n_estimators": ("3", "5"), "max_samples": ("0.5", "0.8", "1.0"), **SEED}),
    Part("calibration", "CalibratedClassifierCV", {"cv": ("2",), "method": ("'sigmoid'", "'isotonic'")}),
    Part("semi_supervised", "SelfTrainingClassifier", {"threshold": ("0.75", "0.9"), "max_iter": ("3",)}),
)
"""Classifiers whose first argument is another classifier."""
