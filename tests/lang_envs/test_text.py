"""Escapes of untrusted text: for Markdown, and for a terminal."""

from __future__ import annotations

import io

import pytest
import report_data
from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.table import Table

from lang_envs.cli.common import PlainConsole, echo
from lang_envs.text import markdown_text, terminal_text

MARKUP = (
    "a | b `c` *d* _e_ __f__ ~~g~~ [h](http://i.invalid) ![j](k) <b>l</b> &amp; $m$ www.n.invalid snake_case \\",
    "# heading",
    "- item",
    "1. item",
    "===",
    "{: onclick=x}",
    "https://a.invalid",
)


def inline(markdown: str) -> list[Token]:
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(markdown)
    return [child for token in tokens for child in token.children or []]


def test_markdown_shows_a_text_as_it_is() -> None:
    for text in (*MARKUP, *report_data.PAYLOADS):
        escaped = markdown_text(text)
        row = f"| {escaped} | end |\n"
        for page, n_ends in ((escaped, 0), (f"## {escaped}\n", 0), (f"{row}|---|---|\n{row}", 2)):
            tokens = inline(page)
            assert {token.type for token in tokens} <= {"text", "text_special"}, text
            assert "".join(token.content for token in tokens).replace("\u3000", "").isprintable(), text
            assert sum(token.content == "end" for token in tokens) == n_ends, text
        assert "http://" not in escaped
        assert "www." not in escaped


def test_the_terminal_shows_a_text_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    for text in (*report_data.PAYLOADS, "[bold]a[/red] :smile: \x9b31m"):
        file = io.StringIO()
        table = Table(text, title=text)
        table.add_row(text)
        PlainConsole(file=file, width=100_000, markup=False, emoji=False).print(text, table)
        echo(text, err=True)
        for line in f"{file.getvalue()}{capsys.readouterr().err}".split("\n"):
            assert line.replace("\t", "").isprintable(), text
        assert terminal_text(terminal_text(text)) == terminal_text(text)
    assert "[bold]a[/red] :smile: \\x9b31m" in file.getvalue()
