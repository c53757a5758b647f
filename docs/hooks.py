"""Build hooks of the site: equations as MathML, and files outside of `docs` that pages show or link to."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
OUTSIDE = (
    "data/results/*.png",
    "data/results/studies/*.png",
    "examples/*.*",
    "examples/[!_]*/*.*",
    "notebooks/*.ipynb",
)
"""Files that pages link to by their paths in the repository; the site has copies, as if `docs` were its root."""
_EQUATION = re.compile(r'<(?P<tag>div|span) class="arithmatex">\\[\[(](?P<tex>.*?)\\[\])]</(?P=tag)>', re.DOTALL)


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the files outside of `docs`."""
    for path in (path for pattern in OUTSIDE for path in ROOT.glob(pattern)):
        files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Point links between `docs` and the files outside of it to the copies."""
    markdown = re.sub(r"(\]\((?:\.\./)*)\.\./((?:data/results|examples|notebooks)/)", r"\1\2", markdown)
    return markdown.replace("](../docs/", "](../")


def on_page_content(html: str, **_: object) -> str:
    """Typeset equations as MathML: browsers draw it without a script or a font of ours."""

    def typeset(match: re.Match[str]) -> str:
        source = unescape(match["tex"])
        if match["tag"] == "span":
            return convert(source)
        return f'<div class="equation">{convert(source, display="block")}</div>'

    return _EQUATION.sub(typeset, html)
