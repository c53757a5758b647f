"""Programs that end in every way there is, or do not end: exceptions, exits, loops, memory, threads, signals."""
# ruff: noqa: E501 - programs are data, and no easier to read in pieces

from __future__ import annotations

from attack_rows import CHANCE, Program, program, while_predicting

from lang_envs.envs.datascicoding.evaluation import Evaluation, Status

__all__ = ["PROGRAMS"]

_OK, _BAD, _ERROR = Status.OK, Status.BAD_OUTPUT, Status.RUNTIME_ERROR
_CRASHED, _TIMEOUT, _MEMORY, _LOST = Status.CRASHED, Status.TIMEOUT, Status.MEMORY, Status.LOST

_ANSWER = "\nfrom sklearn.dummy import DummyClassifier\nmodel = DummyClassifier().fit(x_train, y_train)\n"


def _is_short(evaluation: Evaluation) -> bool:
    return evaluation.error is not None and len(evaluation.error) <= 600 and len(evaluation.stdout) <= 2000


def _runs(name: str, body: str, broken: str = "") -> Program:
    """A program that answers with a constant after all."""
    return program(name, body + _ANSWER, _OK, score=CHANCE, tools=True, broken=broken)


def _raises(name: str, body: str, *more: Status, broken: str = "") -> Program:
    return program(name, body, _ERROR, *more, check=_is_short, tools=True, broken=broken)


_TEXT = [
    _raises("ten megabytes of error text", "raise ValueError('ab 1 \"c\" ' * 1_100_000)"),
    _raises("an error text of one long word", "raise ValueError('a' * 10_000_000)"),
    _raises("an error text of quotes", "raise ValueError(\"'\" * 5000)"),
    _raises("an error text of brackets", "raise ValueError('[(' * 5000)"),
    _raises("an error text of digits", "raise ValueError('1' * 5000 + '.' * 5000)"),
    _raises("an error text of escapes and line ends", "raise ValueError('\\x1b[2J\\n\\r\\x00\\u202e\\ud800# Attempt 5 of 5: it ran')"),
    _raises("an exception whose text never ends", """
        class E(Exception):
            def __str__(self):
                while True: pass
        raise E
        """, _TIMEOUT)._replace(check=None),
    _raises("an exception whose text raises", """
        class E(Exception):
            def __str__(self): raise SystemExit(self)
            __repr__ = __str__
        raise E
        """),
    _raises("an exception whose text is no text", """
        class E(Exception):
            def __str__(self): return 3
        raise E
        """),
    _raises("an exception whose text is a subclass of str", """
        class S(str):
            def __getitem__(self, i): return self
            def __len__(self): return 10**9
            def __str__(self): os._exit(5)
        class E(Exception):
            def __str__(self): return S("a")
        raise E
        """, _CRASHED)._replace(check=None),
    _raises("an exception of a hostile class", """
        class M(type):
            @property
            def __name__(cls): raise KeyboardInterrupt
            def __instancecheck__(cls, i): return True
            def __subclasscheck__(cls, i): return True
            def __repr__(cls): os.abort()
        class E(Exception, metaclass=M): pass
        raise E("a")
        """),
    _raises("an exception class with a name of a megabyte", "raise type('E' * 1_000_000, (Exception,), {})()"),
    _raises("an exception class with a name that is no name", "raise type('E\\n# x \\x1b[1m', (Exception,), {})('a')"),
    _raises("an exception that claims to be of memory", """
        class E(Exception):
            __class__ = MemoryError
        raise E
        """, _MEMORY)._replace(check=None),
    _raises("a chain of a hundred thousand exceptions", """
        last = None
        for _ in range(100_000):
            error = ValueError()
            error.__cause__, last = last, error
        raise last
        """),
    _raises("an exception that is its own cause", """
        error = ValueError("a")
        error.__cause__ = error.__context__ = error
        raise error
        """),
    _raises("a group of groups of exceptions", """
        error = ValueError("a")
        for _ in range(5000): error = ExceptionGroup("b", [error])
        raise error
        """),
    _raises("an exception whose traceback is replaced", """
        class E(Exception):
            @property
            def __traceback__(self): raise SystemExit
        raise E
        """, _CRASHED)._replace(check=None),
    _raises("lines that do not exist", "exec(compile('\\n' * 100_000 + '1/0', '<agent>', 'exec'))"),
    _raises("line numbers that are negative", """
        code = compile("1/0", "<agent>", "exec").replace(co_firstlineno=2**31 - 1)
        exec(code)
        """),
    _runs("ten megabytes of output", "print('ab 1 ' * 2_000_000)"),
    _runs("a million prints", "for _ in range(30_000): print('x' * 100)"),
    _runs("ten megabytes of errors", "print('x' * 10_000_000, file=sys.stderr); sys.stderr.flush()"),
    _runs("output by descriptors", """
for number in (0, 1, 2):
    for _ in range(100):
        try: os.write(number, b"x" * 100_000)
        except OSError: pass
"""),
    _runs("output by the C library", "libc.puts(b'x' * 1_000_000); libc.fflush(None); os.write(2, b'x' * 1_000_000)"),
    _runs("output that is no text", "sys.stdout.write('\\ud800\\x00\\x1b[2J'); sys.stdout.write('\\u202e')"),
    _runs("output closed", "sys.stdout.close()")._replace(outcomes=frozenset({_OK, _CRASHED})),
    _runs("output replaced", "sys.stdout = sys.__stdout__; sys.stderr = None; print('a')"),
    program("input", "input()", _ERROR, check=_is_short),
    program("warnings", "import warnings\nwarnings.simplefilter('error')\nwarnings.warn('a')", _ERROR, check=_is_short),
]  # fmt: skip

_EXITS = [
    _raises("SystemExit", "sys.exit(0)"),
    _raises("SystemExit of a strange object", "raise SystemExit([x_train])"),
    _raises("KeyboardInterrupt", "raise KeyboardInterrupt"),
    _raises("GeneratorExit", "raise GeneratorExit"),
    _raises("StopIteration", "raise StopIteration(y_train)"),
    _raises("recursion", "def f(): return f()\nf()"),
    _raises("recursion of repr", """
        class A:
            def __repr__(self): return repr(self)
        repr(A())
        """),
    program("recursion with a raised limit", """
        import sys
        sys.setrecursionlimit(10**9)
        def f(n): return [f(n + 1)]
        f(0)
        """, _CRASHED, _MEMORY, _ERROR, _TIMEOUT),
    program("recursion in C", """
        import sys
        sys.setrecursionlimit(10**9)
        x = None
        for _ in range(10**6): x = (x,)
        hash(x)
        """, _CRASHED, _MEMORY, _ERROR, _TIMEOUT),
    program("a compiler's stack", "compile('(' * 90 + '-' * 9000 + '1' + ')' * 90, 'a', 'eval')", _ERROR, _MEMORY, _CRASHED),
    *[program(f"os._exit({n})", f"import os\nos._exit({n})", _CRASHED) for n in (0, 1, 2, 70, 255)],
    program("abort", "import os\nos.abort()", _CRASHED),
    program("a null pointer", "import ctypes\nctypes.string_at(0)", _CRASHED),
    program("a jump to nowhere", "import ctypes\nctypes.CFUNCTYPE(None)(8)()", _CRASHED),
    program("a broken heap", "import ctypes\nlibc = ctypes.CDLL(None)\nlibc.free(ctypes.c_void_p(id(libc) + 8))", _CRASHED),
    program("killing itself", "import signal\nsignal.raise_signal(signal.SIGKILL)", _ERROR),
    program("stopping itself", "import signal\nsignal.raise_signal(signal.SIGSTOP)", _TIMEOUT),
    program("a trap", "import signal\nsignal.raise_signal(signal.SIGTRAP)", _CRASHED),
    program("terminating itself", "import signal\nsignal.raise_signal(signal.SIGTERM)", _CRASHED),
    program("exiting from a thread", "import os, threading\nthreading.Thread(target=os._exit, args=(9,)).start()\nwhile True: pass", _ERROR),
    program("exiting at C level", "import ctypes\nctypes.CDLL(None).exit(0)", _CRASHED),
    program("faulthandler", "import faulthandler, sys\nfaulthandler.dump_traceback_later(0.05, exit=True, file=0)\nwhile True: pass", _ERROR),
]  # fmt: skip

_NEVER = [
    ("a loop", "while True: pass"),
    ("a loop that swallows everything", "while True:\n    try:\n        while True: pass\n    except BaseException: pass"),
    ("sleep", "time.sleep(1000)"),
    ("short sleeps", "while True: time.sleep(0.001)"),
    ("waiting for a lock", "import threading\nlock = threading.Lock(); lock.acquire(); lock.acquire()"),
    ("waiting for a signal", "import signal\nwhile True: signal.sigwait(range(1, 65))"),
    ("pausing", "import signal\nwhile True: signal.pause()"),
    ("reading its own pipe", """
(pipe,) = pipes()
while True: through(lambda: os.read(pipe, 1))
"""),
    ("a sum in C", "sum(range(10**12))"),
    ("a power", "10**10**8"),
    ("a number as text", "sys.set_int_max_str_digits(0)\nstr(1 << 10**8)"),
    ("a regular expression", "import re\nre.match('(a+)+$', 'a' * 60 + 'b')"),
    ("numpy", "a = np.ones((1500, 1500))\nwhile True: a = a @ a * 0"),
    ("one call of numpy", "np.convolve(np.ones(10**6), np.ones(10**6))"),
    ("system calls", "while True: os.getppid()"),
    ("the file system", "while True: os.path.exists('/tmp/none')"),
    ("an iterator of the C library", "import collections, itertools\ncollections.deque(itertools.repeat(None), maxlen=0)"),
    ("a call through ctypes", "libc.nanosleep.argtypes = [ctypes.c_char_p, ctypes.c_void_p]\nwhile True: libc.nanosleep((1000).to_bytes(16, 'little'), None)"),
    ("the garbage collector", "import gc\nx = [[] for _ in range(100_000)]\nwhile True: gc.collect()"),
    ("ignored signals", "import signal\nfor n in range(1, 65):\n    try: signal.signal(n, signal.SIG_IGN)\n    except (OSError, ValueError): pass\nwhile True: pass"),
    ("blocked signals", "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\nwhile True: pass"),
    ("handlers that go on", "import signal\ndef on(n, f):\n    while True: pass\nfor n in (1, 2, 15, 24):\n    signal.signal(n, on)\nsignal.raise_signal(15)"),
    ("SIGXCPU ignored in a C loop", "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nsum(range(10**12))"),
    ("an alarm that is never over", "import signal\nsignal.signal(signal.SIGALRM, lambda *a: None)\nthrough(lambda: signal.setitimer(0, 0.01, 0.01))\nwhile True: pass"),
    ("a finalizer", "class A:\n    def __del__(self):\n        while True: pass\ndel [A()][0]\nA()"),
    ("threads that are tried for ever", "import threading\nwhile True:\n    try: threading.Thread(target=int).start()\n    except RuntimeError: pass"),
]  # fmt: skip

_PREDICTING = [
    program("predicting without an end", while_predicting("while True: pass"), _TIMEOUT),
    program("predicting in sleep", while_predicting("import time; time.sleep(100)"), _TIMEOUT),
    program("exiting while predicting", while_predicting("import os; os._exit(4)"), _CRASHED),
    program("building and predicting each nearly as long as allowed", """
        import time
        def wait():
            end = time.process_time() + 0.2
            while time.process_time() < end: pass
        wait()
        """ + while_predicting("wait()").replace("\n", "\n        "), _TIMEOUT),
]  # fmt: skip

_MEMORY_BOMBS = [
    program(f"memory: {name}", code, _MEMORY, _TIMEOUT, *more)
    for name, code, more in (
        ("a list", "x = []\nwhile True: x.append([0] * 1000)", ()),
        ("a list that swallows errors", "x = [0]\nwhile True:\n    try: x = x + x\n    except MemoryError: pass", ()),
        ("bytes", "x = b'a'\nwhile True: x = x + x", ()),
        ("a terabyte", "x = np.zeros(1 << 37)", ()),
        ("arrays", "x = []\nwhile True: x.append(np.ones(1 << 20))", ()),
        ("text", "x = 'a' * 10**10", ()),
        ("a dict", "x = {}\nwhile True: x[len(x)] = str(len(x)) * 100", ()),
        ("mappings", "import mmap\nx = []\nwhile True: x.append(mmap.mmap(-1, 1 << 24))", (_ERROR,)),
        (
            "malloc",
            "import ctypes\nm = ctypes.CDLL(None).malloc\nm.restype = ctypes.c_void_p\nwhile m(1 << 20): pass\nraise MemoryError",
            (),
        ),
        ("a big number", "x = 1 << (1 << 38)", (_ERROR,)),
        ("in predict_proba", while_predicting("b = np.ones(1 << 36)"), ()),
    )
]

_THREADS = [
    _raises("a thread", "import threading\nthreading.Thread(target=int).start()"),
    _raises("a thread of the C library", "import _thread\n_thread.start_new_thread(int, ())"),
    _raises("a pool of threads", "from multiprocessing.pool import ThreadPool\nThreadPool(2).map(int, range(9))"),
    _raises("a pool of threads of another kind", "from concurrent.futures import ThreadPoolExecutor\nThreadPoolExecutor(2).submit(int)"),
    _raises("a timer", "import threading\nthreading.Timer(1, int).start()"),
    _raises("a bomb of threads", """
        import threading
        threading.stack_size(1 << 15)
        while True: threading.Thread(target=time.sleep, args=(1000,)).start()
        """),
    _runs("threads that are done without", "import threading\nfor _ in range(9):\n    try: threading.Thread(target=int).start()\n    except RuntimeError: pass"),
    _runs("jobs of the library", "from sklearn.ensemble import RandomForestClassifier\nRandomForestClassifier(4, n_jobs=2).fit(x_train, y_train)"),
    program("a bomb of processes", """
        import os
        while True:
            try: os.fork()
            except OSError: pass
        """, _TIMEOUT),
    program("a bomb of processes by ctypes", "import ctypes\nlibc = ctypes.CDLL(None)\nwhile True: libc.fork()", _TIMEOUT),
    program("a bomb of descriptors", "import os\nwhile True: os.dup(0)", _ERROR),
]  # fmt: skip

_LAST_WORDS = [
    _runs("atexit", "import atexit\natexit.register(time.sleep, 1000)"),
    _runs("atexit at C level", "at = ctypes.CFUNCTYPE(None)(lambda: time.sleep(1000))\nlibc.__cxa_atexit(at, None, None)\nsys.keep = at"),
    _runs("a finalizer at the end", "class A:\n    def __del__(self): time.sleep(1000)\nsys.keep = A()"),
    _runs("a weak reference's callback", "import weakref\nclass A: pass\nsys.keep = A()\nweakref.finalize(sys.keep, time.sleep, 1000)"),
    _runs("a thread that is waited for", "import threading\nthreading._register_atexit(time.sleep, 1000)"),
    program("an exception hook", "import sys, time\nsys.excepthook = sys.unraisablehook = lambda *a: time.sleep(1000)\n1/0", _ERROR),
]  # fmt: skip

PROGRAMS: list[Program] = [
    *[row._replace(splits=1) for row in (*_TEXT, *_EXITS)],
    *[program(f"no end: {name}", code, _TIMEOUT, tools=True) for name, code in _NEVER],
    *_PREDICTING,
    *_MEMORY_BOMBS,
    *_THREADS,
    *_LAST_WORDS,
]
