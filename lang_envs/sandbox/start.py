"""How a supervisor comes to be: a fresh interpreter loads the libraries, enters namespaces, and becomes it."""

from __future__ import annotations

import contextlib
import errno
import gc
import importlib
import io
import os
import pkgutil
import socket
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Any

from lang_envs.sandbox.confinement import namespaces
from lang_envs.sandbox.confinement.layers import Layer, Prepared, confine_early, confine_late, prepare
from lang_envs.sandbox.confinement.library_files import LIBRARIES
from lang_envs.sandbox.confinement.privileges import become, drop_bounding_set
from lang_envs.sandbox.errors import fix_of
from lang_envs.sandbox.meters import outer_pid
from lang_envs.sandbox.protocol import write_array
from lang_envs.sandbox.supervisor import Meeting, Options, Supervisor

_MIN_FILES = 128
_MAX_FILES = 1 << 16
_SCIKIT_LEARN_LEFT_OUT = ("conftest", "externals", "tests")
_SCIPY = (
    "cluster.hierarchy cluster.vq constants differentiate fft fftpack integrate interpolate io linalg ndimage odr "
    "optimize signal sparse sparse.csgraph sparse.linalg spatial spatial.distance special stats stats.mstats stats.qmc"
)
_NUMPY = "fft lib.stride_tricks linalg ma polynomial random testing typing"
_STANDARD = (
    "abc argparse array ast base64 bisect calendar cmath codecs collections concurrent.futures.thread contextlib copy "
    "csv ctypes dataclasses datetime decimal difflib email.parser enum fractions functools gc glob hashlib heapq "
    "importlib.metadata inspect io itertools json keyword linecache locale logging math mmap multiprocessing numbers "
    "operator pathlib pickle platform pprint queue random re resource secrets select shutil signal socket sqlite3 "
    "statistics string struct subprocess sys tempfile textwrap threading time timeit token tokenize traceback types "
    "typing unicodedata unittest urllib.request uuid warnings weakref zlib "
    "encodings.ascii encodings.cp437 encodings.idna encodings.latin_1 encodings.utf_16 encodings.utf_32"
)


def main(meeting: Meeting, options: Options) -> None:
    """Become the supervisor: called in a fresh interpreter, see `rendezvous`.

    The process that was started loads, enters the namespaces and ends; its child is the supervisor (a process enters a
    new namespace of process ids only by being forked into it), and a child of that the forker.
    """
    _hide_other_packages()
    _preload()
    _warm_up()
    _raise_file_limit()
    prepared = prepare()  # as the current user: another user may not find the libraries
    _forget_paths()
    if options.user is not None:
        become(options.user)
    entered: frozenset[str] = frozenset()
    if Layer.NAMESPACES.value not in options.without:
        entered = namespaces.enter()
    if Layer.CAPABILITIES.value not in options.without:
        drop_bounding_set()
    if os.fork():
        os._exit(0)
    os.chdir("/")
    with contextlib.suppress(OSError):  # no space; only who finds us stuck reads it
        os.truncate(meeting.lock, 0)
        os.write(meeting.lock, str(outer_pid()).encode())
    layers = _try_layers(prepared, options) | ({Layer.NAMESPACES} if entered else set())
    hello = {"hello": {"pid": outer_pid(), "layers": sorted(layers), "namespaces": sorted(entered)}}
    gc.collect()
    gc.freeze()  # children that collect garbage would otherwise copy every page
    gc.disable()
    Supervisor(meeting, options, prepared, hello).run()


def _preload() -> None:
    """Import modules that code may use: a confined child cannot open files, so it cannot load any."""
    import site

    import sklearn

    site.setquit()  # exit() and help(), which an interpreter without site lacks
    site.sethelper()
    public = [module.name for module in pkgutil.iter_modules(sklearn.__path__) if not module.name.startswith("_")]
    for name in set(public) - set(_SCIKIT_LEARN_LEFT_OUT):
        importlib.import_module(f"sklearn.{name}")
    for experiment in ("enable_halving_search_cv", "enable_iterative_imputer"):
        importlib.import_module(f"sklearn.experimental.{experiment}")
    for package, names in (("scipy.", _SCIPY), ("numpy.", _NUMPY), ("", _STANDARD)):
        for name in names.split():
            with contextlib.suppress(ModuleNotFoundError):  # some are not of every version
                importlib.import_module(package + name)


def _raise_file_limit() -> None:
    """Raise the limit on open files to the user's hard limit: every client needs descriptors."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILES)
    if wanted < _MIN_FILES:
        raise OSError(errno.EMFILE, f"a limit of {wanted} open files, which is less than {_MIN_FILES}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _hide_other_packages() -> None:
    """Make every package but those of `LIBRARIES` impossible to import, for code and for the libraries themselves.

    The packages installed beside differ between machines. scikit-learn imports some of them where it finds them
    (pandas, pyarrow, psutil), and a reward would depend on that. This package is hidden too: it needs no module again.
    """
    for name in [name for name in sys.modules if not _is_allowed(name)]:
        del sys.modules[name]
    sys.meta_path.insert(0, _OnlyLibraries())


def _forget_paths() -> None:
    """Forget what the import system knows of folders: their listings name the packages of this machine."""
    importlib.invalidate_caches()
    sys.path_importer_cache.clear()
    sys.path.clear()
    sys.orig_argv.clear()
    sys.argv[:] = [""]


def _is_allowed(name: str) -> bool:
    package = name.partition(".")[0]
    is_standard = package in sys.stdlib_module_names or package.startswith("_sysconfigdata_")  # named by the platform
    return is_standard or package in LIBRARIES or package == "__main__"


class _OnlyLibraries(MetaPathFinder):
    """Refuse to import any other package."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if not _is_allowed(fullname):
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


def _try_layers(prepared: Prepared, options: Options) -> set[Layer]:
    """Return the layers that hold in a child: tried once, in one that ends at once."""
    without = [Layer(name) for name in options.without]
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            layers = confine_early(without, prepared)
            layers |= confine_late(without, prepared, memory_bytes=1 << 30, cpu_seconds=60)
            os.write(write_end, " ".join(layers).encode())
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as file:
        names = file.read().split()
    os.waitpid(pid, 0)
    return {Layer(name) for name in names}


def _warm_up() -> None:
    """Do once, for all children, the work that is slow the first time."""
    import numpy as np
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import GaussianNB
    from sklearn.utils.parallel import _get_threadpool_controller

    _get_threadpool_controller()  # it reads /proc/self/maps
    write_array(io.BytesIO(), np.zeros((2, 2)))
    x, y = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([0, 0, 1, 1])
    for model in (GaussianNB(), LogisticRegression()):
        model.fit(x, y).predict_proba(x)


def start_from_arguments(settings: dict[str, Any]) -> None:
    """Start the supervisor in the fresh interpreter."""
    settings["options"]["without"] = tuple(settings["options"]["without"])
    listener, folder, lock = settings["meeting"]
    try:
        main(Meeting(socket.socket(fileno=listener), folder, lock), Options(**settings["options"]))
    except OSError as error:
        if not fix_of(error):
            raise
        sys.exit(f"{error}. {fix_of(error)}")
