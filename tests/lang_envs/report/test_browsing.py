"""The tests of pages can fail: a page that does wrong is noticed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import browsing
import pytest
import report_data

Open = Callable[..., browsing.Visit]
CALM = "<!doctype html><html lang=en><meta charset=utf-8><title>a</title><h1>A page</h1><p>of two lines</p>"


def page(folder: Path, html: str, name: str = "page.html") -> Path:
    path = folder / name
    path.write_bytes(html.encode("utf-8", "replace"))
    return path


def test_a_calm_page_is_quiet(visit: Open, tmp_path: Path) -> None:
    seen = visit(page(tmp_path, CALM))
    assert seen.is_quiet, seen.said()
    assert seen.n_elements() == 7
    assert seen.element_names() == {"html", "head", "meta", "title", "body", "h1", "p"}
    assert 0 < seen.heap_mb() < 10


@pytest.mark.matrix_after(3)
@pytest.mark.parametrize(
    ("script", "kind", "record"),
    [
        ("console.log('a', 1)", "console", "log: a 1"),
        ("alert('boo')", "dialogs", "boo"),
        ("null.x", "errors", "Cannot read properties of null"),
        ("Promise.reject(new Error('late'))", "errors", "late"),
        ("fetch('https://evil.invalid/a').catch(() => 0)", "requests", "https://evil.invalid/a"),
        ("new Image().src = 'other.png'", "requests", "other.png"),
    ],
)
def test_a_page_that_does_more_is_noticed(visit: Open, tmp_path: Path, script: str, kind: str, record: str) -> None:
    seen = visit(page(tmp_path, f"{CALM}<script>{script}</script>"))
    seen.until(lambda: any(record in one for one in getattr(seen, kind)), f"{record} in {kind}")
    assert not seen.is_quiet


def test_cpu_time_is_that_of_the_page(visit: Open, tmp_path: Path) -> None:
    busy = "const end = performance.now() + 400; while (performance.now() < end); document.title = 'done'"
    seen = visit(page(tmp_path, f"{CALM}<script>{busy}</script>"))
    seen.until("document.title === 'done'")
    before = seen.cpu_ms()
    assert 50 < before < 450  # 400 at most of the wall time; less beside other processes
    seen.page.wait_for_timeout(300)
    assert seen.cpu_ms() - before < 100


def test_a_page_is_waited_for_under_a_strict_policy(visit: Open, tmp_path: Path) -> None:
    policy = "default-src 'none'; style-src 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    html = CALM.replace("<meta", f'<meta http-equiv=content-security-policy content="{policy}"><meta')
    seen = visit(page(tmp_path, f"{html}<script>window.ran = 1</script>"))
    seen.until("document.querySelector('h1').textContent === 'A page'")
    assert seen.page.evaluate("window.ran === undefined")
    assert any("Content Security Policy" in one for one in seen.console)
    assert seen.page.evaluate("try { document.body.innerHTML = '<b>'; 0 } catch (e) { e.name }") == "TypeError"


def test_axe_finds_a_picture_without_text(visit: Open, tmp_path: Path) -> None:
    pixel = "data:image/gif;base64,R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw=="
    seen = visit(page(tmp_path, f"{CALM}<main><img src='{pixel}'></main>"))
    assert [one.partition(":")[0] for one in seen.axe("wcag2a", "wcag2aa")] == ["image-alt"]


def test_payloads_run_where_nothing_is_escaped(visit: Open, tmp_path: Path) -> None:
    """Of the first 34, about 20 run and 6 ask for an address by themselves; others need a click or another context."""
    seen = visit(page(tmp_path, CALM))
    n_fired = 0
    for number, payload in enumerate(report_data.PAYLOADS[:34]):
        if "refresh" in payload:  # leaves the page while the next one is opened
            continue
        html = f'{CALM}<div title="{payload}">{payload}</div><script>const text = "{payload}";</script>'
        seen.open(page(tmp_path, html, f"{number}.html"))
        n_fired += seen.is_true("window.pwned")
    assert n_fired >= 15
    assert sum("evil.invalid" in one for one in seen.requests) >= 5
    assert len(report_data.PAYLOADS) >= 60


@pytest.mark.parametrize("missing", ["browser", "playwright"])
@pytest.mark.parametrize("ci", ["", "true"])
def test_without_a_browser_tests_are_skipped_but_fail_in_ci(
    monkeypatch: pytest.MonkeyPatch, missing: str, ci: str
) -> None:
    monkeypatch.setenv("CI", ci)
    if missing == "browser":
        pytest.importorskip("playwright")
        monkeypatch.setattr(browsing, "NAMES", ("no-such-browser",))
    else:
        monkeypatch.setitem(sys.modules, "playwright.sync_api", None)
    expected = pytest.fail.Exception if ci else pytest.skip.Exception
    with pytest.raises(expected, match="no browser: ") as caught:
        browsing.start_browser()
    assert "\n" not in str(caught.value)
