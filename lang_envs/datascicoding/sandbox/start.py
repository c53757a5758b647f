"""How a supervisor comes to be: a fresh interpreter loads the libraries, enters namespaces, and becomes it."""

from __future__ import annotations

import gc
import importlib
import json
import os
import socket
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

from lang_envs.datascicoding.sandbox import namespaces
from lang_envs.datascicoding.sandbox.confinement import Layer, Prepared, confine_early, confine_late, prepare
from lang_envs.datascicoding.sandbox.library_files import LIBRARIES
from lang_envs.datascicoding.sandbox.meters import outer_pid
from lang_envs.datascicoding.sandbox.privileges import become, drop_bounding_set
from lang_envs.datascicoding.sandbox.supervisor import Options, Supervisor

__all__ = ["PRELOADED", "main", "start_from_arguments"]

PRELOADED = (
    "sklearn.calibration",
    "sklearn.cluster",
    "sklearn.compose",
    "sklearn.decomposition",
    "sklearn.discriminant_analysis",
    "sklearn.dummy",
    "sklearn.ensemble",
    "sklearn.feature_selection",
    "sklearn.gaussian_process",
    "sklearn.impute",
    "sklearn.kernel_approximation",
    "sklearn.linear_model",
    "sklearn.metrics",
    "sklearn.mixture",
    "sklearn.model_selection",
    "sklearn.naive_bayes",
    "sklearn.neighbors",
    "sklearn.neural_network",
    "sklearn.pipeline",
    "sklearn.preprocessing",
    "sklearn.svm",
    "sklearn.tree",
    "scipy.optimize",
    "scipy.spatial",
    "scipy.special",
    "scipy.stats",
    "concurrent.futures.thread",
    "decimal",
    "email.parser",
    "importlib.metadata",
    "statistics",
)
"""What children find loaded; anything else of these libraries they can load themselves."""


def main(listener_fd: int, options: Options) -> None:
    """Become the supervisor: called in a fresh interpreter, see `rendezvous`.

    Two processes: the one that was started loads, enters the namespaces and ends, its child is the supervisor (a
    process enters a new namespace of process ids only by being forked into it).
    """
    for name in PRELOADED:
        importlib.import_module(name)
    _warm_up()
    sys.meta_path.insert(0, _OnlyLibraries())
    prepared = prepare()  # as whoever we are: another user may not find the libraries
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
    listener = socket.socket(fileno=listener_fd)
    layers = _try_layers(prepared, options) | ({Layer.NAMESPACES} if entered else set())
    hello = {"hello": {"pid": outer_pid(), "layers": sorted(layers), "namespaces": sorted(entered)}}
    gc.collect()
    gc.freeze()  # children that collect garbage would otherwise copy every page
    gc.disable()
    Supervisor(listener, options, prepared, hello).run()


class _OnlyLibraries(MetaPathFinder):
    """Says of every other package that there is none: what is installed beside is unreadable, and differs anyway."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        name = fullname.partition(".")[0]
        if name not in LIBRARIES and name not in sys.stdlib_module_names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def _try_layers(prepared: Prepared, options: Options) -> set[Layer]:
    """The layers that hold in a child: tried once, in one that ends at once."""
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
    """What is slow the first time, done once for all children."""
    import numpy as np
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import GaussianNB
    from threadpoolctl import ThreadpoolController

    ThreadpoolController()
    x, y = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([0, 0, 1, 1])
    for model in (GaussianNB(), LogisticRegression()):
        model.fit(x, y).predict_proba(x)


def start_from_arguments(arguments: Sequence[str]) -> None:
    """Entry of the fresh interpreter."""
    settings = json.loads(arguments[0])
    settings["options"]["without"] = tuple(settings["options"]["without"])
    main(settings["listener"], Options(**settings["options"]))
