"""Check the built site: links and anchors, and that no page is wider than the window of a laptop or a phone.

`make docs`, then this file. The widths need Chromium (Debian: `apt-get install chromium`) and Playwright, as the tests
of reports do.
"""

from __future__ import annotations

import shutil
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from playwright.sync_api import sync_playwright

SITE = Path(__file__).parent.parent / "site"
WIDTHS = (1400, 390)
SCHEMES = ("default", "slate")
_OVER = """(scheme) => {
  document.body.setAttribute("data-md-color-scheme", scheme);
  return document.documentElement.scrollWidth - innerWidth;
}"""


class Page(HTMLParser):
    """Anchors of a page, and the addresses that it links to or loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, _: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect `id`, `href` and `src`."""
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            elif name in ("href", "src") and value:
                self.links.add(value)


def broken_links(pages: dict[Path, Page]) -> list[str]:
    """Return the links of pages to a file or an anchor of the site that is not there."""
    broken = []
    for path, page in pages.items():
        for link in sorted(page.links):
            address = urlsplit(link)
            if address.scheme or address.netloc:
                continue
            target = (path.parent / unquote(address.path)).resolve() if address.path else path
            anchors = pages[target].anchors if target in pages else None
            if not target.exists() or (address.fragment and anchors is not None and address.fragment not in anchors):
                broken.append(f"{path.relative_to(SITE)}: broken link {link}")
    return broken


def wide_pages(paths: list[Path]) -> list[str]:
    """Return the pages that are wider than a window."""
    wide = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for width in WIDTHS:
            page = browser.new_page(viewport={"width": width, "height": 900})
            for path in paths:
                page.goto(path.as_uri())
                for scheme in SCHEMES:
                    if (over := page.evaluate(_OVER, scheme)) > 0:
                        wide.append(f"{path.relative_to(SITE)}: {over} px too wide at {width} px ({scheme})")
        browser.close()
    return wide


def main() -> int:
    """Print every broken link and every page that is too wide; return 1 if there is one."""
    paths = sorted(path for path in SITE.rglob("*.html") if path.name != "404.html")
    if not paths:
        sys.exit(f"docs: Expected the built site in {SITE}; got no page. Fix: make docs.")
    found = [*broken_links({path: Page(path) for path in paths}), *wide_pages(paths)]
    print("\n".join(found) or f"{len(paths)} pages, no broken link, none wider than the window at {WIDTHS} px")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
