"""Check that no page of the built site is wider than the window of a laptop or a phone: `make docs`, then this file.

`mkdocs build --strict` checks links and anchors. The widths need Chromium (Debian: `apt-get install chromium`) and
Playwright, as the tests of reports do.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

SITE = Path(__file__).parent.parent / "site"
WIDTHS = (1400, 390)
SCHEMES = ("default", "slate")
_OVER = """(scheme) => {
  document.body.setAttribute("data-md-color-scheme", scheme);
  return document.documentElement.scrollWidth - innerWidth;
}"""


def main() -> int:
    """Print every page that is too wide; return 1 if there is one."""
    paths = sorted(path for path in SITE.rglob("*.html") if path.name != "404.html")
    if not paths:
        sys.exit(f"docs: Expected the built site in {SITE}; got no page. Fix: make docs.")
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
    print("\n".join(wide) or f"{len(paths)} pages, none wider than the window at {WIDTHS} px")
    return int(bool(wide))


if __name__ == "__main__":
    sys.exit(main())
