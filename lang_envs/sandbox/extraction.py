"""From the text of an action to the syntax tree of a module that defines `build_model`, without executing it.

The parse runs in the trusted parent, on untrusted text; `nesting` explains why that is safe.
"""

from __future__ import annotations

import ast
import os
import re
import textwrap
import threading
import warnings
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from lang_envs.errors import LangEnvsError
from lang_envs.sandbox.syntax_depth import first_too_deep

__all__ = ["MAX_CODE_BYTES", "AgentCode", "CodeSyntaxError", "banned_use", "extract", "parsed"]

MAX_CODE_BYTES = 8192
"""Maximum length of a text that is parsed, in bytes of UTF-8."""

_FUNCTION = "build_model"
_TEMPLATE = "import numpy as np\ndef build_model(x_train, y_train):\n    return model\n"
_HEADER = "if True:\n"  # gives an indented body something to be indented under
_MAX_MESSAGE = 200  # characters
_MAX_NAME = 200  # characters of a string that may be a name
_NAMES_OF_PYTHON = frozenset({"", "python", "python3", "py", "py3", "ipython"})
_FENCE = re.compile(r"(?P<indent>[ \t]*+)(?P<fence>`{3,}+|~{3,}+)[ \t]*+(?P<language>[\w+-]*+)[^`]*+")
_DEFINITION = re.compile(rf"^[ \t]*(?:async[ \t]+)?def[ \t]+{_FUNCTION}\b", re.MULTILINE)
_RESULT = re.compile(r"^[ \t]*(?:return\b|model[ \t]*(?::[^=\n]*)?=(?!=))", re.MULTILINE)
_BLANK_START = re.compile(r"\A(?:[ \t\f]*\n)+")
_parsing = threading.RLock()  # see `parsed`
if hasattr(os, "register_at_fork"):  # a child would inherit a lock that is never opened, and filters never restored
    os.register_at_fork(
        before=_parsing.acquire,
        after_in_parent=_parsing.release,
        after_in_child=_parsing.release,
    )


class CodeSyntaxError(LangEnvsError):
    """Text that holds no code that parses.

    Attributes:
        line: Line of the code (from 1) that is to blame; None if none is.
        message: Description of the mistake, one line of at most 200 characters. It is a function of the text alone.
        source: Code that `line` counts in: the content of a fence, for instance.
    """

    def __init__(self, line: int | None, message: str, source: str = "") -> None:
        self.line = None if line is None else min(max(line, 1), source.count("\n") + 1)
        self.message = " ".join(message.split())[:_MAX_MESSAGE]
        self.source = source
        where = "" if line is None else f" in line {line}"
        super().__init__(
            f"Expected the body of {_FUNCTION} as Python code; got an error{where}: {self.message}. Fix: mend the code."
        )

    def __reduce__(self) -> tuple[type[CodeSyntaxError], tuple[int | None, str, str]]:
        return type(self), (self.line, self.message, self.source)


@dataclass(frozen=True)
class AgentCode:
    """The code of an action.

    Attributes:
        source: Code as it was written, without markdown fences, blank lines around it and (where no string runs over
            several lines) common indentation. Lines end in one newline character each; split at that alone.
        tree: Module that imports numpy as `np` and defines `build_model`. Its line numbers are those of `source`, its
            columns need not be. `compile` may still refuse it (`return` in a class, `nonlocal` without a binding,
            `import *` in a function) with SyntaxError, ValueError or RecursionError.
    """

    source: str
    tree: ast.Module


def extract(text: str) -> AgentCode:
    """Find the code in the text of an action.

    Understood are the body of the function (bare, indented, or with only its first line not indented, as a model
    writes that fills a hole after four spaces), the whole function with the code around it, and either of them in
    a markdown fence: of several blocks the last that defines `build_model`, by any statement outside of other functions
    and classes (earlier: drafts), otherwise the last that returns something or binds `model`, otherwise the last
    with Python code. A bare `return` at the end of the body
    is dropped (a model's stop word), and `return model` is put where a body does not end in a `return`. All of that is
    done on the syntax tree: strings over several lines stay as they are, and no text can end the function early.
    `extract(code.source)` gives the same tree again.

    Args:
        text: Any text.

    Raises:
        CodeSyntaxError: If the text holds no code that parses.
    """
    _check_characters(text)
    return _extract(text.lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n"))


def _extract(text: str) -> AgentCode:
    try:
        return _parse_code(text)
    except CodeSyntaxError:
        blocks = _fenced_blocks(text)
        if not blocks:
            raise
        return _extract(max(reversed(blocks), key=lambda block: block.rank).text)  # a block may hold blocks


def banned_use(code: AgentCode, banned: Collection[str]) -> str | None:
    """Return the first of the banned names that the code uses; None if it uses none.

    A use is the name itself (also of a variable of the agent's own), an attribute or an import of that name under
    any alias, and a string that is the name, or a dotted path through it, also if it is put together by `+` or
    in an f-string from constants: `getattr(svm, "S" + "VC")`. No use are longer names and texts, and comments.
    Spellings that only exist when the code runs (`"CVS"[::-1]`, `dir(svm)[3]`) are out of reach: a banned name is a
    rule of the task, not a security boundary.

    Args:
        code: Result of `extract`.
        banned: Names, for instance `("GridSearchCV", "SVC")`.
    """
    nodes = list(ast.walk(code.tree))
    texts = _constant_texts(nodes)
    uses = ((_position(node), name) for node in nodes for name in _names_used(node, texts) if name in banned)
    return min(uses, default=(None, None))[1]


# ---------------------------------------------------------------------- characters and fences


def _check_characters(text: str) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        raise CodeSyntaxError(line, "a lone surrogate is no character", text) from None
    if size > MAX_CODE_BYTES:
        raise CodeSyntaxError(None, f"{size} bytes of code, more than {MAX_CODE_BYTES}", text)
    if "\0" in text:
        raise CodeSyntaxError(text.count("\n", 0, text.index("\0")) + 1, "a null byte", text)


class _Block(NamedTuple):
    text: str
    rank: tuple[bool, bool, bool, bool]
    """Whether it defines the function; and if it does not, whether it has a result, is labelled Python, and is closed
    or follows a labelled fence."""


def _fenced_blocks(text: str) -> list[_Block]:
    """Return the blocks between markdown fences that are not empty; without a fence none."""
    blocks: list[_Block] = []
    before: list[str] = []
    lines = iter(text.split("\n"))
    for line in lines:
        opening = _FENCE.fullmatch(line)
        if opening is None:
            before.append(line)
            continue
        inside, closed = _until_closed(lines, opening["fence"])
        inside = [_outdented(line, len(opening["indent"])) for line in inside]
        language = opening["language"].lower()
        _add_block(blocks, inside, language in _NAMES_OF_PYTHON, closed or bool(language))
        if not closed and (not blocks or (not language and _is_code("\n".join(before)))):
            _add_block(blocks, before, True, True)  # the fence closes a block that the prompt has opened
    return blocks


def _add_block(blocks: list[_Block], lines: list[str], is_python: bool, is_sure: bool) -> None:
    text = "\n".join(lines)
    if text.strip():
        is_definition, has_result = _content_of(text)
        rank = (True, True, True, True) if is_definition else (False, has_result, is_python, is_sure)
        blocks.append(_Block(text, rank))


def _content_of(text: str) -> tuple[bool, bool]:
    """Return whether a block defines the function, and whether it returns something or binds `model`."""
    try:
        _, statements = _statements_of(text)
    except CodeSyntaxError:  # the answer's own code may be the one with the mistake
        return _DEFINITION.search(text) is not None, _RESULT.search(text) is not None
    nodes = [node for statement in statements for node in ast.walk(statement)]
    bound = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    has_result = "model" in bound or any(isinstance(node, ast.Return) for node in nodes)
    return bool(_definitions(statements)), has_result


def _until_closed(lines: Iterator[str], fence: str) -> tuple[list[str], bool]:
    """Return the lines up to the fence that closes a block, and whether there is one."""
    inside: list[str] = []
    for line in lines:
        bare = line.rstrip()
        if bare.strip(" \t").strip(fence[0]) == "" and bare.count(fence[0]) >= len(fence):
            return inside, True
        if fence[0] == "`" and bare.endswith(fence):  # no Python line outside a string ends in backticks
            return [*inside, bare.rstrip("`")], True
        inside.append(line)
    return inside, False


def _outdented(line: str, width: int) -> str:
    """Return a line of a block without the indentation of its fence (CommonMark 4.5)."""
    return line[:width].lstrip(" \t") + line[width:]


def _is_code(text: str) -> bool:
    """Return whether a text is code, and not prose that parses as one word a line."""
    try:
        _, statements = _statements_of(text)
    except CodeSyntaxError:
        return False
    return any(not isinstance(statement, ast.Expr) for statement in statements)


# ---------------------------------------------------------------------- layout and syntax tree


def _parse_code(text: str) -> AgentCode:
    source, statements = _statements_of(text)
    return AgentCode(source, _module(statements))


def _statements_of(text: str) -> tuple[str, list[ast.stmt]]:
    """Return the source of a text and its statements, in the first layout that parses."""
    text = _BLANK_START.sub("", text).rstrip()
    deep = first_too_deep(text)
    if deep is not None:
        line = text.count("\n", 0, deep) + 1
        raise CodeSyntaxError(line, "nested too deeply, or a bracket before it is never closed", text)
    failures: list[CodeSyntaxError] = []
    for header, laid_out in _layouts(text):
        try:
            statements = _parse(header, laid_out)
        except CodeSyntaxError as error:
            failures.append(error)
            continue
        if not statements:
            break
        return (_shown(text, laid_out, statements) if header else laid_out), statements
    raise max(failures, key=_progress, default=CodeSyntaxError(None, "no code", text))


def _progress(error: CodeSyntaxError) -> tuple[int, bool]:
    """Rank how far a layout parsed.

    The layout that was meant is the one that parses furthest.
    """
    return error.line or 0, "indent" not in error.message


def _shown(text: str, laid_out: str, statements: list[ast.stmt]) -> str:
    """Return the text of an indented body without its indentation, where that is certain to be the same code."""
    nodes = (node for statement in statements for node in ast.walk(statement))
    texts = (node for node in nodes if isinstance(node, ast.Constant | ast.JoinedStr))
    if "\t" in text or "\f" in text or any(node.lineno != node.end_lineno for node in texts):
        return text
    dedented = textwrap.dedent(laid_out)
    starts_bare = not dedented.split("\n")[statements[0].lineno - 1].startswith(" ")  # comments may lie further left
    return dedented if starts_bare and len(dedented) <= len(text) else text


def _layouts(text: str) -> Iterator[tuple[str, str]]:
    """Yield the readings of the text: a prefix, and the text with its first line indented or not."""
    yield "", text
    first = text.lstrip(" \t\f")
    if first != text:
        yield _HEADER, text
        yield "", first
    for indent in ("    ", "\t", "  "):
        if f"\n{indent}" in text:
            yield _HEADER, indent + first


def parsed(source: str) -> ast.Module:
    """Parse source like `ast.parse`, without its warnings and by one thread at a time.

    `catch_warnings` in two threads at once may leave the wrong filters behind, and CPython 3.11 counts the depth of all
    threads' trees together: where two parse at once, one of them may end in a SystemError ("recursion depth mismatch").
    """
    with _parsing, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source)


def _parse(header: str, text: str) -> list[ast.stmt]:
    """Return the statements of a text, with its own line numbers."""
    offset = header.count("\n")
    try:
        module = parsed(header + text)
    except SyntaxError as error:
        line = None if error.lineno is None else max(error.lineno - offset, 1)
        raise CodeSyntaxError(line, error.msg, text) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise CodeSyntaxError(None, str(error) or "nested too deeply", text) from None
    if not header:
        return module.body
    ast.increment_lineno(module, -offset)
    if len(module.body) > 1:
        raise CodeSyntaxError(module.body[1].lineno, "unindent does not match any outer indentation level", text)
    wrapper = module.body[0]
    return wrapper.body if isinstance(wrapper, ast.If) and not wrapper.orelse else []


def _module(statements: list[ast.stmt]) -> ast.Module:
    """Return the module of a body's statements, or of those of a module that defines the function itself."""
    module = parsed(_TEMPLATE)
    numpy_import, function = module.body
    assert isinstance(function, ast.FunctionDef)
    [return_model] = function.body
    ast.increment_lineno(return_model, (statements[-1].end_lineno or 1) - return_model.lineno)
    ast.increment_lineno(function.args, -1)
    function.lineno, function.end_lineno = 1, return_model.end_lineno
    definitions = _definitions(statements)
    for definition in definitions:
        if isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef):
            definition.body = _ending_in_return(definition.body, return_model)
    if definitions:
        start = next((i for i, node in enumerate(statements) if not _stays_first(node)), 0)
        return ast.Module([*statements[:start], numpy_import, *statements[start:]], [])
    function.body = _ending_in_return(statements, return_model)
    return module


def _definitions(nodes: Iterable[ast.AST]) -> list[ast.AST]:
    """Return the definitions of the function and the assignments to its name, inside of `if` and `try` too."""
    definitions: list[ast.AST] = []
    for node in nodes:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            definitions += [node] if node.name == _FUNCTION else []
        elif any(isinstance(target, ast.Name) and target.id == _FUNCTION for target in targets):
            definitions.append(node)
        elif isinstance(node, ast.stmt | ast.excepthandler | ast.match_case):
            definitions += _definitions(ast.iter_child_nodes(node))
    return definitions


def _ending_in_return(body: list[ast.stmt], return_model: ast.stmt) -> list[ast.stmt]:
    last = body[-1]
    if isinstance(last, ast.Return):
        if last.value is not None:
            return body
        body = body[:-1]
    return [*body, ast.copy_location(return_model, last) if isinstance(last, ast.Return) else return_model]


def _stays_first(node: ast.stmt) -> bool:
    """Return whether a statement must come first: a docstring, or an import from `__future__`."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


# ---------------------------------------------------------------------- names


def _position(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def _names_used(node: ast.AST, texts: dict[ast.AST, str]) -> list[str]:
    """Return the names that a node uses itself, not by its children."""
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute):
        return [node.attr]
    path = node.name if isinstance(node, ast.alias) else texts.get(node, "")
    names = path.split(".")
    return names if all(name.isidentifier() for name in names) else []


def _constant_texts(nodes: list[ast.AST]) -> dict[ast.AST, str]:
    """Return the string that a node always is: constants, their sums, and f-strings of them.

    Args:
        nodes: Nodes of the tree, every one before its children.
    """
    texts: dict[ast.AST, str] = {}
    for node in reversed(nodes):
        if isinstance(node, ast.Constant):
            text = node.value if isinstance(node.value, str) else None
        else:
            parts = _parts(node)
            text = "".join(texts[part] for part in parts) if parts and all(part in texts for part in parts) else None
        if text is not None and len(text) <= _MAX_NAME:
            texts[node] = text
    return texts


def _parts(node: ast.AST) -> list[ast.AST]:
    """Return the nodes whose strings, one after the other, are the string of this node, if they all have one."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [node.left, node.right]
    if isinstance(node, ast.JoinedStr):
        return list(node.values)
    if isinstance(node, ast.FormattedValue) and node.conversion in (-1, ord("s")) and node.format_spec is None:
        return [node.value]
    return []
