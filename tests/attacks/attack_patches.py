"""Programs that change the Python they run in, or play with names, encodings and the environment's memory."""
# ruff: noqa: E501 - programs are data, and no easier to read in pieces

from __future__ import annotations

from attack_rows import CHANCE, Program, breach, program

from lang_envs.envs.datascicoding.evaluation import Status

__all__ = ["PROGRAMS", "TEXTS"]

_OK, _ERROR, _SYNTAX = Status.OK, Status.RUNTIME_ERROR, Status.SYNTAX_ERROR

_CONSTANT = "\nfrom sklearn.dummy import DummyClassifier\nmodel = DummyClassifier().fit(x_train, y_train)\n"


def _patches(name: str, body: str, broken: str = "") -> Program:
    """A program that patches something, and answers with a constant: it must be paid that of a constant."""
    return program(name, body + _CONSTANT, _OK, score=CHANCE, tools=True, broken=broken)


_PATCHES = [
    _patches("the metrics of scikit-learn", """
import sklearn.metrics as m, sklearn.metrics._ranking as r
for module in (m, r):
    for name in dir(module):
        if callable(getattr(module, name)) and not isinstance(getattr(module, name), type):
            setattr(module, name, lambda *a, **k: 5.0)
"""),
    _patches("scikit-learn's base classes", """
import sklearn.base
sklearn.base.BaseEstimator.__getstate__ = lambda self: 1 / 0
sklearn.base.ClassifierMixin.score = lambda *a: 1.0
DummyClassifier.__repr__ = lambda self: os._exit(1)
"""),
    _patches("numpy's checks", """
for name in ("isfinite", "allclose", "array_equal", "argsort"):
    setattr(np, name, lambda *a, **k: True)
"""),
    _patches("numpy's mean", "np.mean = lambda *a, **k: 1.0; np.core = None"),
    _patches("builtins", """
import builtins
for name in ("min", "max", "all", "any", "abs", "float", "sum", "sorted"):
    setattr(builtins, name, lambda *a, **k: 1)
del builtins.open
""")._replace(outcomes=frozenset({_OK, _ERROR, Status.CRASHED, Status.BAD_OUTPUT}), score=None, check=lambda e: (e.score or 0) <= CHANCE),
    _patches("isinstance and type", """
import builtins
builtins.isinstance = lambda a, b: True
""")._replace(outcomes=frozenset({_OK, _ERROR, Status.CRASHED, Status.TIMEOUT}), score=None, check=lambda e: (e.score or 0) <= CHANCE),
    _patches("json", "import json\njson.dumps = lambda *a, **k: '{\"auc\": 1.0, \"error\": null}'"),
    _patches("os.write", "write = os.write\nos.write = lambda fd, data: write(fd, b'x') and len(data)")._replace(
        outcomes=frozenset({Status.BAD_OUTPUT}), score=None),
    _patches("os.write that writes everything twice", "write = os.write\nos.write = lambda fd, data: write(fd, data) and write(fd, data)")._replace(
        outcomes=frozenset({Status.BAD_OUTPUT}), score=None),
    _patches("os._exit", "os._exit = lambda code: None")._replace(
        outcomes=frozenset({_OK, Status.CRASHED, Status.TIMEOUT}), score=None, check=lambda e: e.score in (None, CHANCE)),
    _patches("os._exit that never ends", """
def forever(code):
    while True: pass
os._exit = forever
""")._replace(outcomes=frozenset({Status.TIMEOUT}), score=None),
    _patches("the environment's modules", """
frame = sys._getframe()
while frame.f_code.co_name != "serve_one":
    frame = frame.f_back
w = frame.f_globals
w["MAX_STDOUT"] = 10**9
w["_describe_error"] = lambda e: {"error": "ValueError", "message": str(list(y_train)), "line": 1}
w["compile"] = None
"""),
    _patches("the environment's modules through the collector", """
import gc, types
for f in gc.get_objects():
    if isinstance(f, types.FunctionType) and f.__module__ and f.__module__.startswith("lang_envs"):
        f.__defaults__ = None
        if f.__name__ in ("check_probabilities", "auc", "cpu_seconds", "_enforce", "drain"):
            f.__code__ = (lambda *a, **k: 1.0).__code__
"""),
    _patches("the supervisor's own objects", """
import gc
for thing in gc.get_objects():
    if type(thing).__name__ in ("Supervisor", "_Child", "_Task", "_Evaluation"):
        try:
            thing.__dict__.clear()
        except Exception:
            pass
"""),
    _patches("the report's writer", """
import gc
frame = sys._getframe()
while frame:
    if frame.f_code.co_name == "serve_one":
        frame.f_globals["_write_report"] = lambda pipe, header, p: os.write(pipe, b"{}")
        frame.f_globals["REPORT_HEAD"] = None
    frame = frame.f_back
""")._replace(outcomes=frozenset({Status.BAD_OUTPUT, Status.CRASHED}), score=None),
    _patches("memory of interned objects", """
ctypes.memmove(id(5) + 24, (7).to_bytes(4, "little"), 4)
ctypes.memmove(id(None) + 8, ctypes.string_at(id(True) + 8, 8), 0)
"""),
    _patches("freed memory", "ctypes.pythonapi.Py_DecRef(ctypes.py_object(type('A', (), {})))"),
    _patches("a trace function", """
seen = []
def trace(frame, event, arg):
    frame.f_trace_lines = True
    seen.append(frame)
    return trace
sys.settrace(trace); sys.setprofile(trace)
""")._replace(outcomes=frozenset({_OK, Status.TIMEOUT}), score=None, check=lambda e: e.score in (None, CHANCE)),
    _patches("a trace function that raises", """
def trace(frame, event, arg): raise SystemExit
sys.settrace(trace)
""")._replace(outcomes=frozenset({_ERROR, Status.CRASHED}), score=None),
    _patches("an audit hook that forbids everything", """
def hook(event, arguments):
    if event not in ("import",): raise SystemExit
sys.addaudithook(hook)
""")._replace(outcomes=frozenset({_OK, _ERROR, Status.CRASHED}), score=None, check=lambda e: e.score in (None, CHANCE)),
    _patches("import hooks", """
class Finder:
    def find_spec(self, name, path=None, target=None): os._exit(3)
sys.path_hooks.insert(0, Finder); sys.path_importer_cache.clear()
"""),
    _patches("the modules replaced", """
for name in list(sys.modules):
    if name.startswith(("lang_envs", "json", "struct")):
        sys.modules[name] = None
""")._replace(outcomes=frozenset({_OK, Status.CRASHED}), check=lambda e: e.score in (None, CHANCE)),
    _patches("the modules forgotten", "from sklearn.dummy import DummyClassifier as D\nsys.modules.clear()")._replace(
        outcomes=frozenset({_OK, _ERROR, Status.CRASHED, Status.BAD_OUTPUT}), score=None, check=lambda e: e.score in (None, CHANCE)),
    _patches("the path of imports", "sys.path[:] = ['/tmp', FOLDER, '.']; sys.path_importer_cache.clear()"),
    _patches("the garbage collector", "import gc\ngc.unfreeze(); gc.enable(); gc.set_threshold(1)\ngc.callbacks.append(lambda *a: None)"),
    _patches("the generators", "import random\nnp.random.seed = random.seed = lambda *a: 1 / 0\nnp.random.set_state = None"),
    _patches("the training data", "x_train[:] = 0\ny_train[:] = np.arange(len(y_train)) % 3"),
    program("the test data", """
        class Model:
            def predict_proba(self, x):
                x[:] = 0
                return np.full((60, 3), 1 / 3)
        model = Model()
        """, _OK, score=CHANCE),
    program("seeds that others could guess", """
        class Model:
            def predict_proba(self, x):
                # what train_test_split(random_state=i) shuffles with is not in this process
                return np.eye(3)[np.random.RandomState(0).permutation(len(x)) % 3]
        model = Model()
        """, _OK, check=lambda e: (e.score or 0) < 0.75),
]  # fmt: skip

_TIMES = [
    breach("a file at import time", """
        won = through(lambda: exec("open(FOLDER + '/new', 'w')", globals() | {"FOLDER": FOLDER}))
        """),
    program("side effects at import time", """
        import os, sys
        try:
            open("/tmp/lang-envs-attack-import", "w")
            BAD = True
        except OSError:
            BAD = False
        def build_model(x_train, y_train):
            from sklearn.dummy import DummyClassifier
            from sklearn.naive_bayes import GaussianNB
            return (GaussianNB() if BAD else DummyClassifier()).fit(x_train, y_train)
        """, _OK, score=CHANCE),
    program("an exit at import time", "import sys\nsys.exit()\ndef build_model(x_train, y_train):\n    return None", _ERROR),
    program("a loop at import time", "while True: pass\ndef build_model(x_train, y_train):\n    return None", Status.TIMEOUT),
    program("a class body that exits", "class A:\n    import os\n    os._exit(7)\nmodel = A", Status.CRASHED),
    program("a decorator that replaces the function", """
        def swap(f):
            return lambda *a: None
        @swap
        def build_model(x_train, y_train):
            return 1
        """, _ERROR),
    program("true randomness", """
        import random
        from sklearn.dummy import DummyClassifier
        if random.SystemRandom().random() < 2: model = DummyClassifier().fit(x_train, y_train)
        """, _OK, score=CHANCE),
    program("the time of day", """
        import time
        from sklearn.dummy import DummyClassifier
        if time.time() < 0: raise ValueError
        model = DummyClassifier().fit(x_train, y_train)
        """, _OK, score=CHANCE),
]  # fmt: skip

TEXTS: list[Program] = [
    program("a null byte", "model = 1\0\n", _SYNTAX),
    program("a lone surrogate", "model = '\ud800'\n", _SYNTAX),
    program("only a null byte", "\0", _SYNTAX),
    program("a declared encoding", "# -*- coding: utf-7 -*-\n+AGk-mport os\nmodel = None", _SYNTAX, _ERROR),
    program("a mark of the byte order", "\ufeffmodel = None", _ERROR),
    program("names in other alphabets", "𝓶𝓸𝓭𝓮𝓵 = None\nreturn \uff4d\uff4f\uff44\uff45\uff4c", _ERROR),
    program("letters that change direction", "model = None  # \u202e\u2066 os.system('x') \u2069", _ERROR),
    program("line ends of all kinds", "model = 1\r\nx = 2\rmodel = None\x0c\n\x0b", _ERROR, _SYNTAX),
    program("a fence in a fence", "```python\n```python\nmodel = None\n```\n```", _ERROR, _SYNTAX),
    program("no text at all", "", _SYNTAX),
    program("blank lines", " \n\t\n", _SYNTAX),
    program("brackets", "(" * 8000, _SYNTAX),
    program("signs", "model = " + "-" * 8000 + "1", _SYNTAX),
    program("powers", "model = " + "2**" * 2500 + "2", _SYNTAX, Status.TIMEOUT, _ERROR, Status.MEMORY),
    program("attributes", "model = a" + ".b" * 4000, _SYNTAX, _ERROR),
    program("folding of constants", "model = ((((1 << 60) << 60) << 60) * 'a' * 10**9)", _ERROR, Status.MEMORY),
    program("a body that ends the function", "return None\n\nimport os\nos._exit(9)", _ERROR),
    program("more code than is read", "x = 1\n" * 3000, _SYNTAX),
    program("a star import in a function", "from os import *\nmodel = None", _SYNTAX, _ERROR),
    program("a nonlocal of nothing", "nonlocal a\nmodel = None", _SYNTAX, _ERROR),
    program("return in a class", "class A:\n    return 1\nmodel = A", _SYNTAX, _ERROR),
    program("await outside", "await x_train", _SYNTAX, _ERROR),
    program("a forbidden name", "from sklearn.svm import SVC\nmodel = SVC()", Status.BANNED),
    program("a forbidden name, imported as another", "from sklearn.svm import SVC as A\nmodel = A()", Status.BANNED),
    program("a forbidden name as an attribute", "import sklearn.svm as s\nmodel = s . SVC (C=1)", Status.BANNED),
    program("a forbidden name as text", "import sklearn.svm\nmodel = getattr(sklearn.svm, 'S' + 'VC')()", Status.BANNED),
    program("a forbidden name in other letters", "import sklearn.svm\nmodel = sklearn.svm.\uff33\uff36\uff23()", Status.BANNED),
    program("a forbidden name for its own class", "class SVC: pass\nmodel = SVC()", Status.BANNED),
    program("a forbidden name in f-strings", "import sklearn.svm\nmodel = getattr(sklearn.svm, f'S{\"VC\"}')", Status.BANNED),
    program("a name that only contains a forbidden one", "from sklearn.svm import LinearSVC\nmodel = LinearSVC()", _ERROR),
    program("a forbidden name spelt backwards, which is a rule and no wall", "import sklearn.svm as s\nmodel = getattr(s, 'CVS'[::-1])", _ERROR),
]  # fmt: skip

PROGRAMS: list[Program] = [row._replace(splits=1) for row in (*_PATCHES, *_TIMES)]
