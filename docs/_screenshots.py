"""Pictures of the report for the site: `python docs/_screenshots.py` draws docs/assets/report_*.png with Chromium."""

from __future__ import annotations

import io
import shutil
import tempfile
from pathlib import Path

from _gallery import reports
from _tables import ROOT
from PIL import Image
from playwright.sync_api import sync_playwright

from lang_envs.report import write_report

LAST = "#v=episode&a=POAD&t=Overcooked-TomatoSalad-v0&s=0&n=0&at={at}"
SHOTS = {
    "episode": (LAST + "&step=2&token=1", 1440, 1180, "light"),
    "episode_phone": (LAST + "&step=2&token=1", 360, 800, "dark"),
    "compare": ("#v=compare&a=POAD&t=Overcooked-TomatoSalad-v0&s=0&n=0&at={at}", 768, 620, "dark"),
}
"""By name: link, width and height of the window, theme."""


def main() -> None:
    """Draw the pictures."""
    report = reports()["demo"]
    at = max(one["training_steps"] for one in report.episodes)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page_file = write_report(report, Path(folder) / "demo.html")
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, (link, width, height, theme) in SHOTS.items():
            context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=theme)  # type: ignore[arg-type]
            page = context.new_page()
            page.goto(page_file.as_uri() + link.format(at=at))
            page.wait_for_selector("body[data-ready]")
            page.wait_for_timeout(800)
            image = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
            path = ROOT / f"docs/assets/report_{name}.png"
            image.quantize(128, dither=Image.Dither.NONE).save(path, optimize=True)
            context.close()
        browser.close()


if __name__ == "__main__":
    main()
