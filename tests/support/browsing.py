"""A browser for the tests of pages: opens a file and keeps a record of everything that the page did.

Playwright drives the Chromium of the distribution. The browser is started by the first test that needs it.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

__all__ = ["Browser", "Visit", "start_browser"]

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--no-sandbox",  # tests may run as root
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
_SECONDS = 30.0


def start_browser() -> Browser:
    """Start a browser, or skip the test where there is none; with `CI` set the test fails instead."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    missing = "" if path else f"no browser: none of {', '.join(NAMES)} is installed"
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        missing = "no browser: the package playwright is not installed"
    if missing:
        if os.environ.get("CI"):
            pytest.fail(missing, pytrace=False)
        pytest.skip(missing)
    driver = sync_playwright().start()
    try:
        return Browser(driver, driver.chromium.launch(executable_path=path, args=[*FLAGS]))
    except BaseException:
        driver.stop()
        raise


class Browser:
    """A browser, and its driver."""

    def __init__(self, driver: Any, browser: Any) -> None:
        self._driver, self._browser = driver, browser

    def close(self) -> None:
        self._browser.close()
        self._driver.stop()

    def context(self, **options: Any) -> BrowserContext:
        """Return a new context of Playwright, without a network: its pages share nothing with other contexts."""
        context = self._browser.new_context(**{"offline": True, **options})
        context.set_default_timeout(1000 * _SECONDS)
        return context


class Visit:
    """A page in a context of its own, and what it did.

    Args:
        browser: The browser.
        options: Of the context, such as `color_scheme="dark"`, `viewport={"width": 360, "height": 640}` or
            `java_script_enabled=False`.

    Attributes:
        page: Playwright's page.
        requests: Addresses that it asked for, its own file among them.
        console: Messages of the console, those of a policy that was violated among them.
        dialogs: Texts of dialogs.
        errors: Uncaught errors.
    """

    def __init__(self, browser: Browser, **options: Any) -> None:
        self.context = browser.context(**options)
        self.page: Page = self.context.new_page()
        self.requests: list[str] = []
        self.console: list[str] = []
        self.dialogs: list[str] = []
        self.errors: list[str] = []
        self.context.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.console.append(f"{message.type}: {message.text}"))
        self.page.on("dialog", self._dismiss)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))

    def _dismiss(self, dialog: Any) -> None:
        self.dialogs.append(dialog.message)
        dialog.dismiss()

    def open(self, path: Path | str, fragment: str = "", *, before: str = "") -> Visit:
        """Open a file from the disk, or an address; `before` is JavaScript that runs first."""
        if before:
            self.page.add_init_script(before)
        self.page.goto((path if isinstance(path, str) else path.resolve().as_uri()) + fragment)
        return self

    def close(self) -> None:
        self.context.close()

    @property
    def is_quiet(self) -> bool:
        """Whether it asked for one file, its own, and neither the console nor a dialog nor an error says anything."""
        return len(self.requests) == 1 and not (self.console or self.dialogs or self.errors)

    def said(self) -> str:
        """Return all records as text, for messages of assertions."""
        return f"{self.requests=} {self.console=} {self.dialogs=} {self.errors=}"

    def is_true(self, expression: str) -> bool:
        """Return whether an expression is true in the page; False while the page is being left or reloaded."""
        from playwright.sync_api import Error

        try:
            return bool(self.page.evaluate(expression))
        except Error:
            return False

    def until(self, condition: str | Callable[[], Any], what: str = "") -> None:
        """Wait until an expression of JavaScript, or a function, is true. An error of the page fails the test.

        `page.wait_for_function` compiles its text inside the page, which a strict policy forbids.
        """
        end = time.monotonic() + _SECONDS
        while True:
            holds = self.is_true(condition) if isinstance(condition, str) else condition()
            if holds:
                return
            if self.errors or time.monotonic() > end:
                pytest.fail(f"the page did not come to {what or condition}; {self.said()}")
            self.page.wait_for_timeout(20)

    def n_elements(self) -> int:
        """Return the number of elements of the document."""
        return int(self.page.evaluate("document.getElementsByTagName('*').length"))

    def element_names(self) -> set[str]:
        """Return the names of all elements, those in shadow trees and frames not included."""
        names = "[...new Set(Array.from(document.getElementsByTagName('*'), (one) => one.localName))]"
        return set(self.page.evaluate(names))

    def axe(self, *tags: str) -> list[str]:
        """Return the violations that axe-core finds, one line each.

        Args:
            tags: Rules to run, such as `wcag2a`; see axe-core.
        """
        from axe_playwright_python.base import AXE_FILE_PATH

        if not self.is_true("'axe' in window"):
            self.page.evaluate(Path(AXE_FILE_PATH).read_text(encoding="utf-8"))
        result = self.page.evaluate("(values) => axe.run(document, {runOnly: {type: 'tag', values}})", list(tags))
        return [
            f"{violation['id']}: {violation['help']}: {node['target']} {node['html'][:200]}"
            for violation in result["violations"]
            for node in violation["nodes"]
        ]
