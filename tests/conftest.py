"""Fixtures and settings of all tests."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from lang_envs.cache import cache_folder

# The tests also pass on a busy machine.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--gpu`."""
    parser.addoption("--gpu", action="store_true", help="let tests use NVIDIA GPUs; they are hidden by default")


def pytest_configure(config: pytest.Config) -> None:
    """Give each test run its own cache and data folder, and each of its processes its own sandbox supervisor."""
    if not config.getoption("--gpu"):  # bits and sums differ there, and tests of many processes would share one
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    else:
        import torch

        if not torch.cuda.is_available():
            raise pytest.UsageError("Expected a GPU that torch can use for --gpu; there is none.")
    if not hasattr(config, "workerinput"):  # workers of pytest-xdist inherit the folder
        model = cache_folder() / "models" / "smollm2"
        config.lang_envs_cache = os.environ["LANG_ENVS_CACHE"] = tempfile.mkdtemp(prefix="lang-envs-cache-")
        if model.is_dir():  # for the tests of the real model
            (cache_folder() / "models").mkdir()
            (cache_folder() / "models" / "smollm2").symlink_to(model.resolve())
    os.environ["LANG_ENVS_RUN"] = os.urandom(8).hex()
    os.environ["LANG_ENVS_OFFLINE"] = "1"
    os.environ.pop("LANG_ENVS_DATA", None)  # the default is a folder of the cache


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the cache of the test run."""
    folder = getattr(config, "lang_envs_cache", None)
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark ids beyond the first of a family as `matrix`.

    Ids with another table of one class are left out where a test is marked `one_table`. Tests whose timeout is longer
    than the default come first: one that a worker starts last runs on alone.
    """
    from walk import FAMILY_IDS, IDS, SLOW_CHECKS, TABLE_CHECKS, TABLE_IDS

    def repeats(item: pytest.Item) -> bool:
        given = item.callspec.params if hasattr(item, "callspec") else {}
        check, env_id = getattr(given.get("check"), "name", None), given.get("env_id")
        if item.get_closest_marker("one_table") is None or item.get_closest_marker("every_id") is not None:
            return False
        is_slow = env_id == "DataSciCoding-generated-v0" and check in SLOW_CHECKS
        return is_slow or (env_id in TABLE_IDS and check not in TABLE_CHECKS)

    left_out = [item for item in items if repeats(item)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in set(left_out)]
    default = float(config.getini("timeout"))
    items.sort(key=lambda item: -max([default, *getattr(item.get_closest_marker("timeout"), "args", ())]))
    for item in items:
        env_id = item.callspec.params.get("env_id") if hasattr(item, "callspec") else None
        if env_id in IDS and env_id not in FAMILY_IDS and not item.get_closest_marker("every_id"):
            item.add_marker("matrix")


def pytest_collection_finish() -> None:
    """Leave the objects of the collection out of garbage collections: they live to the end (5 % of the time)."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Let SIGINT raise KeyboardInterrupt here and in started processes; `nohup make test &` starts with it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
