"""Programs that answer with something else than an honest array, or write the report themselves."""

from __future__ import annotations

from attack_rows import CHANCE, Program, answering, program, while_predicting

from lang_envs.envs.datascicoding.evaluation import Status

__all__ = ["PROGRAMS"]

_OK, _BAD, _ERROR = Status.OK, Status.BAD_OUTPUT, Status.RUNTIME_ERROR
_FLAT = "np.full((len(x), 3), 1 / 3)"


def _answer(name: str, expression: str, *outcomes: Status, before: str = "", broken: str = "") -> Program:
    score = CHANCE if _OK in outcomes else None
    return program(name, answering(expression, before), *outcomes, score=score, broken=broken)


_ARRAYS = [
    _answer("NaN", f"{_FLAT} * np.nan", _BAD),
    _answer("one infinity", "np.where(np.arange(3 * len(x)).reshape(-1, 3) == 5, np.inf, 1 / 3)", _BAD),
    _answer("huge numbers that cancel", "np.tile([1e308, 1e308, -2e308], (len(x), 1))", _BAD),
    _answer("rows that do not add up", "np.ones((len(x), 3))", _BAD),
    _answer("labels instead of probabilities", "np.zeros(len(x), dtype=int)", _BAD),
    _answer("too few rows", f"{_FLAT}[1:]", _BAD),
    _answer("too many rows", f"np.vstack([{_FLAT}] * 2)", _BAD),
    _answer("too many columns", "np.full((len(x), 4), 0.25)", _BAD),
    _answer("two columns", "np.full((len(x), 2), 0.5)", _BAD),
    _answer("transposed", f"{_FLAT}.T", _BAD),
    _answer("a number", "np.float64(1)", _BAD),
    _answer("nothing", "None", _ERROR, _BAD),
    _answer("no rows", "np.zeros((0, 3))", _BAD),
    _answer("sixty dimensions", "np.ones((1,) * 60)", _BAD),
    _answer("strings that are numbers", f"{_FLAT}.astype(str)", _OK, _BAD),
    _answer("strings", "np.full((len(x), 3), 'a')", _ERROR),
    _answer("complex numbers", f"{_FLAT} + 1j", _OK, _BAD, _ERROR),
    _answer("objects", f"{_FLAT}.astype(object)", _OK),
    _answer("structured", "np.zeros(len(x), dtype=[('a', float), ('b', float)])", _ERROR),
    _answer("dates", "np.zeros((len(x), 3), dtype='M8[s]')", _ERROR, _BAD),
    _answer("negative strides", f"{_FLAT}[::-1, ::-1]", _OK),
    _answer("zero strides", "np.broadcast_to(np.float64(1 / 3), (len(x), 3))", _OK),
    _answer("columns first", f"np.asfortranarray({_FLAT})", _OK),
    _answer("big-endian", f"{_FLAT}.astype('>f8')", _OK),
    _answer("half precision", f"{_FLAT}.astype('f2')", _OK, _BAD),
    _answer("long doubles", f"{_FLAT}.astype(np.longdouble)", _OK),
    _answer("a masked array", f"np.ma.masked_all((len(x), 3)) + {_FLAT}", _OK, _BAD, _ERROR),
    _answer("a matrix of lists of different lengths", "[[1.0], [1.0, 2.0]]", _ERROR),
    _answer("a generator", "(row for row in x)", _ERROR),
    _answer("a set", "{1.0, 2.0}", _ERROR),
    _answer("a memory view", f"memoryview({_FLAT})", _OK),
    _answer(
        "an array of a hundred million rows", "np.broadcast_to(1 / 3, (10**8, 3))", Status.MEMORY, Status.TIMEOUT, _BAD
    ),
    _answer("an array of eight megabytes", "np.zeros((400_000, 3))", _BAD),
]

_OBJECTS = [
    _answer(
        "an array that lies about everything",
        "Liar(x)",
        _ERROR,
        _BAD,
        _OK,
        before=f"""
        class Liar:
            def __init__(self, x): self.x = x
            shape, dtype, ndim, size = (60, 3), np.dtype(float), 2, 180
            __class__ = np.ndarray
            def __len__(self): return 1 << 62
            def __array__(self, *a, **k): x = self.x; return {_FLAT}
            def __reduce__(self): return eval, ("1/0",)
        """,
    ),
    _answer(
        "an interface to memory that is not there",
        "Liar()",
        Status.CRASHED,
        _BAD,
        _ERROR,
        before="""
        class Liar:
            __array_interface__ = {"shape": (60, 3), "typestr": "<f8", "data": (8, False), "version": 3}
        """,
    ),
    _answer(
        "an interface that reads beyond its array",
        "Liar()",
        _BAD,
        _ERROR,
        _OK,
        Status.CRASHED,
        before="""
        class Liar:
            __array_interface__ = {"shape": (60, 3), "typestr": "<f8", "data": (id(None), False), "version": 3}
        """,
    )._replace(score=None),
    _answer(
        "a subclass of arrays that answers for itself",
        f"{_FLAT}.view(Sub)",
        _OK,
        _ERROR,
        before="""
        class Sub(np.ndarray):
            def __array_finalize__(self, obj): pass
            def __array_wrap__(self, *a): raise ValueError
            def __array_ufunc__(self, *a, **k): return 1.0
            def __array_function__(self, *a): return 1.0
            def astype(self, *a, **k): return 1.0
            shape = property(lambda self: (60, 3))
            def tobytes(self, *a): return b""
        """,
    ),
    _answer(
        "a sequence without an end",
        "Endless()",
        Status.TIMEOUT,
        Status.MEMORY,
        _ERROR,
        Status.CRASHED,
        before="""
        class Endless:
            def __len__(self): return 1 << 40
            def __getitem__(self, i): return 0.5
        """,
    ),
    _answer(
        "a list that holds itself",
        "knot",
        _ERROR,
        Status.CRASHED,
        Status.MEMORY,
        before="knot = []\nknot.append(knot)",
    ),
    _answer(
        "an array whose conversion never ends",
        "Slow()",
        Status.TIMEOUT,
        before="""
        class Slow:
            def __array__(self, *a, **k):
                while True: pass
        """,
    ),
    program("no model", "model = None", _ERROR),
    program("a class instead of a model", "from sklearn.naive_bayes import GaussianNB\nmodel = GaussianNB", _ERROR),
    program("a model that was not fitted", "from sklearn.naive_bayes import GaussianNB\nmodel = GaussianNB()", _ERROR),
    program("a module as a model", "model = np", _ERROR),
    program("a generator instead of a function", "model = None\nyield model", _ERROR),
    program("a coroutine instead of a function", "async def build_model(x_train, y_train):\n    return None", _ERROR),
    program("no function", "def build_model(x_train, y_train):\n    return None\nbuild_model = 3", _ERROR),
    program("a function of other arguments", "def build_model(a):\n    return a", _ERROR),
    program(
        "attributes that are computed",
        """
        class Model:
            calls = 0
            def __getattr__(self, name):
                Model.calls += 1
                if name == "predict_proba" and Model.calls > 1: raise KeyboardInterrupt
                return lambda x: np.full((len(x), 3), 1 / 3)
        model = Model()
        """,
        _OK,
        score=CHANCE,
    ),
    program(
        "another type at each call",
        """
        class Model:
            calls = 0
            def predict_proba(self, x):
                Model.calls += 1
                return [None, np.full((len(x), 3), 1 / 3), "a", 3][Model.calls % 4]
        model = Model()
        """,
        _OK,
        score=CHANCE,
    ),
    program(
        "predictions from globals and frames",
        while_predicting("""
        import sys
        frame = sys._getframe()
        while frame:
            for value in frame.f_locals.values():
                for part in (value if isinstance(value, tuple) else (value,)):
                    if isinstance(part, np.ndarray) and part.dtype == np.int64 and len(part) == len(x):
                        return np.eye(3)[part]
            frame = frame.f_back
        """),
        _OK,
        check=lambda evaluation: (evaluation.score or 0) < 0.75,  # it finds the training half's labels
    ),
]

_TOOLS = """
import errno, io, json, os, struct

def is_pipe(number):
    try:
        return os.lseek(number, 0, os.SEEK_CUR) < 0
    except OSError as error:
        return error.errno == errno.ESPIPE

(pipe,) = filter(is_pipe, range(64))

def send(data):
    data = memoryview(data)
    while data:
        data = data[os.write(pipe, data):]

def array(values):
    file = io.BytesIO()
    np.lib.format.write_array(file, np.ascontiguousarray(values), version=(1, 0), allow_pickle=True)
    return file.getvalue()

def report(header, body=b""):
    head = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("!I", len(head)) + head + body

N = 60
flat = np.full((N, 3), 1 / 3)
"""


def _report(name: str, body: str, *outcomes: Status, broken: str = "") -> Program:
    score = CHANCE if _OK in outcomes else None
    return program(name, _TOOLS + body, *outcomes, score=score, broken=broken)


def _header(name: str, header: str, *outcomes: Status, broken: str = "") -> Program:
    """A report with a header of the agent's own and a constant answer."""
    return _report(name, f"send(report({header}, array(flat)))\nos._exit(0)\n", *outcomes, broken=broken)


_REPORTS = [
    _header("a report of its own, and no other", '{"stdout": ""}', _OK),
    _report("a report, and another later", "send(report({}, array(flat)))\nmodel = None", _BAD),
    _report("a report, and then a crash", "send(report({}, array(flat)))\nos.abort()", Status.CRASHED),
    _report("a report, and then another exit code", "send(report({}, array(flat)))\nos._exit(3)", Status.CRASHED),
    _report("a report, and then no end", "send(report({}, array(flat)))\nwhile True: pass", Status.TIMEOUT),
    _report(
        "bytes on every descriptor",
        """
for number in range(64):
    try:
        os.write(number, b"PK\\3\\4 fake")
    except OSError:
        pass
model = None
""",
        _BAD,
    ),
    _report("every descriptor closed", "os.closerange(0, 64)\nmodel = None", Status.CRASHED),
    _report("the pipe replaced", "os.dup2(0, pipe)\nmodel = None", _BAD, Status.CRASHED),
    _report("half a report", "send(report({}, array(flat))[:200])\nos._exit(0)", _BAD),
    _report("a pickle", "send(report({}, b'\\x80\\x04\\x95N.'))\nos._exit(0)", _BAD),
    _report("an array of pickled objects", "send(report({}, array(np.array([print, eval]))))\nos._exit(0)", _BAD),
    _report("an array of another type", "send(report({}, array(flat.astype('f4'))))\nos._exit(0)", _BAD),
    _report("an array of text", "send(report({}, array(np.full((N, 3), 'a'))))\nos._exit(0)", _BAD),
    _report("NaN past the child's checks", "send(report({}, array(flat * np.nan)))\nos._exit(0)", _BAD),
    _report("an array that is longer than it says", "send(report({}, array(flat) + bytes(8)))\nos._exit(0)", _BAD),
    _report(
        "an array that says it is huge",
        "send(report({}, array(flat).replace(b'(60, 3)', b'(9**9,)')))\nos._exit(0)",
        _BAD,
    ),
    _report(
        "an array of a negative length",
        "send(report({}, array(flat).replace(b'(60, 3)', b'(-6, 3)')))\nos._exit(0)",
        _BAD,
    ),
    _report(
        "a header of numpy's that calls a function",
        "send(report({}, array(flat).replace(b'(60, 3)', b'exit(1)')))\nos._exit(0)",
        _BAD,
    ),
    _report(
        "a header of numpy's that is nested deeply",
        """
text = b"(" * 4000 + b")" * 4000
send(report({}, b"\\x93NUMPY\\1\\0" + struct.pack("<H", len(text)) + text))
os._exit(0)
""",
        _BAD,
    ),
    _report(
        "a header of numpy's that is a tower of signs",
        """
text = b"-" * 9000 + b"1"
send(report({}, b"\\x93NUMPY\\1\\0" + struct.pack("<H", len(text)) + text))
os._exit(0)
""",
        _BAD,
    ),
    _report("sixteen megabytes", "send(bytes(16 << 20))\nos._exit(0)", _BAD),
    _report("bytes without an end", "while True: send(bytes(1 << 16))", Status.TIMEOUT),
    _report("single bytes without an end", "while True: os.write(pipe, b'x')", Status.TIMEOUT),
    _report("a length that is not there", "send(struct.pack('!I', 2**32 - 1) + b'{}')\nos._exit(0)", _BAD),
    _report("no report at all", "os._exit(0)", Status.CRASHED),
    _header("a header that is no object", "b'[1, 2]'", _BAD),
    _header("a header that is a string", "b'\"error\"'", _BAD),
    _header("a header that is no JSON", "b'{]'", _BAD),
    _header("a header in another encoding", "'{\"a\": \"\\u00e9\"}'.encode('latin-1')", _BAD),
    _header("a header of surrogates", 'b\'{"error": "\\\\ud800", "message": "\\\\udfff", "line": 1}\'', _ERROR),
    _header("a header that is nested deeply", "b'[' * 100_000 + b']' * 100_000", _BAD),
    _header("an error that is nested", "b'{\"error\": ' + b'[' * 800 + b']' * 800 + b'}'", _ERROR, _BAD),
    _header("a number of a million digits", "b'{\"line\": ' + b'9' * 1_000_000 + b'}'", _BAD),
    _header("NaN and infinities", 'b\'{"error": NaN, "line": Infinity, "message": -Infinity}\'', _ERROR),
    _header("an error that is a number", '{"error": 3, "message": 4, "line": "one", "stdout": 5}', _ERROR),
    _header("an error that is an object", '{"error": {"a": [1]}, "message": {"b": None}, "line": [1]}', _ERROR),
    _header("an error that is false", '{"error": False, "message": None, "line": True, "stdout": None}', _ERROR),
    _header("an error that is empty", '{"error": "", "message": "", "line": None}', _ERROR),
    _header("a line that is not there", '{"error": "ValueError", "message": "m", "line": 10**30}', _ERROR),
    _header("a line below zero", '{"error": "ValueError", "message": "m", "line": -1}', _ERROR),
    _header("a line that is a text", '{"error": "ValueError", "message": "m", "line": "1"}', _ERROR),
    _header("output that is a list", '{"stdout": [[1], {"a": 2}]}', _OK),
    _header("a message of seven megabytes", '{"error": "E", "message": "ab 1" * (7 << 18), "line": 1}', _BAD),
    _header("a name of seven megabytes", '{"error": "Ab1_" * (7 << 18), "message": "", "line": 1}', _BAD),
    _header("output of seven megabytes", '{"stdout": "ab \'" * (7 << 18)}', _BAD),
    _header("a header of a million small objects", "b'{\"a\": [' + b'{},' * 2_000_000 + b'{}]}'", _BAD),
    _header("an error that says it was memory", '{"error": "MemoryError"}', Status.MEMORY),
]

PROGRAMS: list[Program] = [row._replace(splits=1) for row in (*_ARRAYS, *_OBJECTS, *_REPORTS)]
