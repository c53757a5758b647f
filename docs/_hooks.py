"""Build hooks of the site: parts that follow from the live code are generated, so that they cannot drift.

Every id has a generated page and a picture. In the other pages a marker such as
`<!-- generated: observation Overcooked-TomatoSalad-v0 -->` is replaced by the Markdown that the function of that name
(with underscores) returns for the argument. A marker without a function fails the build. A marker
`<!-- records: FILE FIELD` has a template of a table in the lines below; see `_tables.filled`.
"""

from __future__ import annotations

import re
from html import unescape

import _architecture
import _coding
import _data
import _gallery
import _pages
import _results
import _studies
import _tables
from _families import FAMILIES, rows_of
from _tables import ROOT
from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

from lang_envs import ENV_ROWS

_MARKER = re.compile(r"<!-- generated: (?P<name>[a-z-]+)(?: (?P<argument>[^>]+?))? -->")
_RECORDS = re.compile(r"<!-- records: (?P<file>\S+) (?P<field>\S+)\n(?P<template>.*?)-->", re.DOTALL)
_ON_GITHUB = re.compile(r"^> \*On GitHub .*\n", re.MULTILINE)
"""Notes for readers of the source, which has markers in place of tables."""
_EQUATION = re.compile(r'<(?P<tag>div|span) class="arithmatex">\\[\[(](?P<tex>.*?)\\[\])]</(?P=tag)>', re.DOTALL)
_MODULES = (_architecture, _coding, _data, _gallery, _pages, _results, _studies, _tables)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the pages of the ids to the navigation."""
    reference = next(section["Reference"] for section in config.nav if "Reference" in section)
    environments = next(section["Environments"] for section in reference if "Environments" in section)
    for name, family in FAMILIES.items():
        pages = [{row.id.partition("-")[2]: f"environments/{row.id}.md"} for row in rows_of(name)]
        environments.append({f"{family.title}, every id": pages})
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages of the ids, the pictures that the live renderer draws, and those of the results."""
    for row in ENV_ROWS:
        files.append(File.generated(config, f"environments/{row.id}.md", content=_pages.page(row)))
        files.append(File.generated(config, f"assets/{row.id}.gif", content=_pages.oracle_gif(row)))
    results = ROOT / "data" / "results"
    for made in (*results.glob("*.png"), *results.glob("studies/*.png")):
        place = made.relative_to(results).as_posix()
        files.append(File.generated(config, f"assets/{place}", content=made.read_bytes()))
    for place, content in {**_gallery.files(), **_studies.files()}.items():
        files.append(File.generated(config, place, content=content))
    return files


def on_page_content(html: str, **_: object) -> str:
    """Typeset equations as MathML: browsers draw it without a script or a font of ours."""

    def typeset(match: re.Match[str]) -> str:
        source = unescape(match["tex"])
        if match["tag"] == "span":
            return convert(source)
        return f'<div class="equation">{convert(source, display="block")}</div>'

    return _EQUATION.sub(typeset, html)


def on_page_markdown(markdown: str, **_: object) -> str:
    """Replace the markers of a page."""

    def generated(match: re.Match[str]) -> str:
        name = match["name"].replace("-", "_")
        function = next((vars(module)[name] for module in _MODULES if name in vars(module)), None)
        if function is None:
            raise PluginError(f"Expected a marker that names a function of docs/_*.py; got {match[0]!r}.")
        text: str = function(match["argument"]) if match["argument"] else function()
        return text

    markdown = _RECORDS.sub(lambda one: _tables.filled(*one.groups()), markdown)
    return _MARKER.sub(generated, _ON_GITHUB.sub("", markdown))
