"""What all tests share."""

from __future__ import annotations

import os
import shutil
import tempfile

import pytest
from hypothesis import HealthCheck, settings

# A busy machine is no failure.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


def pytest_configure(config: pytest.Config) -> None:
    """A cache of the run's own, shared by its workers: nothing of an earlier run decides a test."""
    if "LANG_ENVS_TEST_CACHE" not in os.environ:
        config.lang_envs_cache = os.environ["LANG_ENVS_TEST_CACHE"] = tempfile.mkdtemp(prefix="lang-envs-cache-")
    os.environ["LANG_ENVS_CACHE"] = os.environ["LANG_ENVS_TEST_CACHE"]
    os.environ["LANG_ENVS_OFFLINE"] = "1"  # no test asks a real service for anything
    os.environ.pop("LANG_ENVS_DATA", None)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Only who made it removes it."""
    folder = getattr(config, "lang_envs_cache", None)
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
