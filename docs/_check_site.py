"""Check the built site: every link and fragment exists, and no page is wider than a laptop or a phone.

    make docs && .venv/bin/python docs/_check_site.py

The widths need Chromium (Debian: `apt-get install chromium`).
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

SITE = Path(__file__).parent.parent / "site"
WIDTHS = (1400, 390)
SCHEMES = ("default", "slate")
_PROBE = """<!doctype html><body><pre id="found"></pre><script>
const pages = %s, widths = %s, schemes = %s, found = [];
(async () => {
  for (const width of widths) {
    const frame = document.createElement("iframe");
    frame.style = `width:${width}px;height:900px;border:0`;
    document.body.append(frame);
    for (const page of pages) {
      await new Promise(loaded => { frame.onload = loaded; frame.src = page; });
      const inner = frame.contentDocument;
      for (const scheme of schemes) {
        inner.body.setAttribute("data-md-color-scheme", scheme);
        const over = inner.documentElement.scrollWidth - width;
        if (over > 0) found.push([page, width, scheme, over]);
      }
    }
    frame.remove();
  }
  document.getElementById("found").textContent = JSON.stringify({found, n: pages.length}) + "END";
})();
</script></body>"""


class Page(HTMLParser):
    """Links and anchors of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.append(value)
            elif name in ("id", "name") and value:
                self.anchors.add(value)


def broken_links(pages: dict[Path, Page]) -> list[str]:
    """Return the links within the site that have no target."""
    broken = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or link.startswith("data:"):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                broken.append(f"{path.relative_to(SITE)}: {link}")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                broken.append(f"{path.relative_to(SITE)}: {link} (no such anchor)")
    return broken


def too_wide(paths: list[Path]) -> list[str]:
    """Return the pages whose content is wider than the window."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("docs: Expected Chromium for the check of widths; got none. Fix: apt-get install chromium.")
    with tempfile.TemporaryDirectory() as folder:
        probe = Path(folder) / "probe.html"
        pages = [path.as_uri() for path in paths]
        probe.write_text(_PROBE % (json.dumps(pages), json.dumps(WIDTHS), json.dumps(SCHEMES)), encoding="utf-8")
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
        options += ["--disable-background-networking", "--disable-web-security", "--allow-file-access-from-files"]
        options += [f"--user-data-dir={folder}/profile", "--virtual-time-budget=3000000", "--dump-dom"]
        done = subprocess.run([chromium, *options, probe.as_uri()], capture_output=True, text=True, check=True)
    answer = re.search(r"(\{.*\})END", done.stdout)
    if answer is None:
        sys.exit(f"docs: Expected a list of widths from Chromium; got {done.stdout[-300:]!r}.")
    found = json.loads(answer[1])
    assert found["n"] == len(paths)
    return [
        f"{page.removeprefix(SITE.as_uri())}: {over} px too wide at {width} px ({scheme})"
        for page, width, scheme, over in found["found"]
    ]


def main() -> int:
    """Print every fault; return 1 if there is one."""
    paths = sorted(path for path in SITE.rglob("*.html") if path.name != "404.html")
    if not paths:
        sys.exit(f"docs: Expected the built site in {SITE}; got no page. Fix: make docs.")
    broken = broken_links({path: Page(path) for path in paths})
    print("\n".join(broken) or f"{len(paths)} pages without a broken link")
    wide = too_wide(paths)
    print("\n".join(wide) or f"none wider than the window at {WIDTHS} px")
    return int(bool(broken or wide))


if __name__ == "__main__":
    sys.exit(main())
