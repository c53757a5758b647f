"""Code found in the text of an action, and no text harms the process that searches it."""

from __future__ import annotations

import ast
import contextlib
import pickle
import subprocess
import sys
import textwrap
import time
import traceback
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lang_envs.sandbox.extraction import AgentCode, CodeSyntaxError, banned_use, extract

BODY = "model = make(x_train, y_train)\nif model:\n    model.fit(1)"
WITH_RETURN = BODY + "\nreturn [model]"
FUNCTION = f"def build_model(x_train, y_train):\n{textwrap.indent(WITH_RETURN, '    ')}"


class Model(list):
    def __init__(self, *arguments):
        super().__init__(arguments)

    def fit(self, number):
        self.append(number)


def run(code: AgentCode):
    """The value of `build_model(1, 2)` of the code."""
    module = {"make": Model, "__name__": "agent"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(code.tree, "<agent>", "exec", dont_inherit=True), module)
    assert module["np"].__name__ == "numpy"
    return module["build_model"](1, 2)


def indented(text: str, indent: str = "    ") -> str:
    return textwrap.indent(text, indent)


def infilled(text: str, indent: str = "    ") -> str:
    return textwrap.indent(text, indent).removeprefix(indent)


@pytest.mark.parametrize(
    "lay_out",
    [
        str,
        indented,
        lambda text: indented(text, "\t"),
        infilled,
        lambda text: " " + infilled(text),
        lambda text: infilled(text) + "\n    return\n",
        lambda text: f"# a comment\n{indented(text)}",
    ],
)
@pytest.mark.parametrize(
    "fence",
    [
        str,
        lambda text: f"```python\n{text}\n```",
        lambda text: f"```\n{text}\n```",
        lambda text: f"~~~py\n{text}\n~~~\n",
        lambda text: f"```python\n{text}",
        lambda text: f"{text}\n```\nThis code trains it, doesn't it?",
        lambda text: f"Here's the code (see `fit`):\n\n```python\n{text}\n```\nIt isn't slow.",
        lambda text: f"First:\n```bash\npip install it\n```\nthen\n```python\n{text}\n```\n```\n1 / 0\n```",
        lambda text: f"   ```python\n{indented(text, '   ')}\n   ```",
        lambda text: f"````python\n{text}\n````",
    ],
)
@pytest.mark.parametrize("ending", [str, lambda text: "\ufeff" + text.replace("\n", "\r\n")])
def test_finds_a_body_in_every_layout(lay_out, fence, ending):
    code = extract(ending(fence(lay_out(BODY))))
    assert run(code) == [1, 2, 1]
    assert "```" not in code.source
    assert ast.dump(extract(code.source).tree) == ast.dump(code.tree)


@pytest.mark.parametrize("lay_out", [str, lambda text: f"Sure!\n```python\n{indented(text)}\n```"])
@pytest.mark.parametrize(
    ("text", "result"),
    [
        (FUNCTION, [[1, 2, 1]]),
        ("import math\nclass A(list):\n    pass\n" + FUNCTION + "\n\ndef other():\n    pass", [[1, 2, 1]]),
        ("def build_model(a: int, b=3, *c, **d) -> list:\n    return [b, a]", [2, 1]),
        ("def helper(a):\n    return a + 5\ndef build_model(x, y):\n    model = helper(y)", 7),
        ("def build_model(x, y):\n    model = x\n    return", 1),
        ("def build_model(x, y):\n    return x\ndef build_model(x, y):\n    return y", 2),
        ('"""Doc."""\nfrom __future__ import annotations\ndef build_model(x: nowhere, y):\n    return np.int64(y)', 2),
    ],
)
def test_finds_a_function_with_the_code_around_it(text, result, lay_out):
    code = extract(lay_out(text))
    assert run(code) == result
    assert ast.dump(extract(code.source).tree) == ast.dump(code.tree)


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("return x_train", 1),
        ("model = 5\nreturn", 5),
        ("model = 5\nreturn None", None),
        ("model = 5\nif x_train:\n    return 6\nelse:\n    return 7", 6),
        ("'''\n```\n'''\nmodel = 5", 5),
        ("    x = '''\n  a\nb'''\n    return x", "\n  a\nb"),
        ("x = '''\n  a\nb'''\n    return x", "\n  a\nb"),
        ("    x = f'''\n  a{1}\nb'''\n    return x", "\n  a1\nb"),
        ("```\nx = '''\n~~~\n'''\nreturn x\n```", "\n~~~\n"),
        ("    x = ('a'\n'b')\n    return x", "ab"),
        ("return '\\d'", "\\d"),
        ("\f\nmodel = 1\n\f", 1),
        ("    return 'a\tb'\r\n", "a\tb"),
        ("  # c\n     return 5", 5),
        ("# c\n   @staticmethod\n   def model(): 5\n   return 6", 6),
    ],
)
def test_code_means_what_was_written(text, result):
    code = extract(text)
    assert run(code) == result
    assert ast.dump(extract(code.source).tree) == ast.dump(code.tree)


def test_text_cannot_end_the_function_and_run_in_the_module():
    with pytest.raises(CodeSyntaxError, match="unindent"):
        extract("    model = 1\n    return model\n\nleaked = 5")
    with pytest.raises(CodeSyntaxError, match="unexpected indent"):
        extract("    model = 1\nelse:\n    leaked = 5")
    statements = extract("model = 1\nreturn model\n\nimport os").tree.body
    assert [type(node) for node in statements] == [ast.Import, ast.FunctionDef]
    assert statements[0].names[0].name == "numpy"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a = 1\nb = nowhere", 2),
        ("    a = 1\n    b = nowhere", 2),
        ("Text.\n\n```python\n\na = 1\nb = nowhere\n```", 2),
        ("def build_model(x, y):\n    return nowhere", 2),
        ("import math\na = 1", 2),  # no model: the end is to blame
    ],
)
def test_lines_are_counted_in_the_source(text, line):
    code = extract(text)
    with pytest.raises(NameError) as caught:
        run(code)
    assert [frame.lineno for frame in traceback.extract_tb(caught.tb)][-1] == line


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", None, "no code"),
        ("# only\n# comments", None, "no code"),
        ("```python\n```", 1, "invalid syntax"),
        ("a = 1\nb = (2", 2, r"'\(' was never closed"),
        ("a = 1\n    b = )", 2, "unmatched '\\)'"),
        ("It is:\n\n```python\na = 1\nb = = 2\n```", 2, "invalid syntax"),
        ("def build_model(x, y):", 1, "expected an indented block"),
        ("a = 1\n\0b", 2, "null byte"),
        ("a = 1\n\nb = '\udc80'", 3, "surrogate"),
        ("a = '\u200b'\nb = 1\u200b2", 2, "invalid non-printable character"),
        ("a = 'é'\n" * 1000, None, "9000 bytes of code, more than 8192"),
        ("9" * 5000, 1, "4300 digits"),
        ("-" * 8000 + "1", 1, "nested too deeply"),
        ("a = 1\n" + "(" * 8000, 2, "nested too deeply"),
        (("-" * 290 + "lambda a, b:") * 20 + "1", 1, "nested too deeply"),
        ("f'{" + "(" * 4000 + "}'", 1, "nested too deeply"),
        ("f'''{" * 300, 1, "nested too deeply"),
        ("if a: b\n" + "elif a: b\n" * 800, 202, "nested too deeply"),
        ("\n".join(" " * i + "if a:" for i in range(110)) + " b", 101, "too many levels of indentation"),
        ("{\n" + "word\n" * 1500, 302, "nested too deeply"),
    ],
)
def test_what_does_not_parse_is_one_typed_error(text, line, message):
    with pytest.raises(CodeSyntaxError, match=message) as caught:
        extract(text)
    error = caught.value
    assert error.line == line
    assert len(error.message) <= 200
    assert "\n" not in error.message
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.line, copy.message, copy.source, str(copy)) == (error.line, error.message, error.source, str(error))


LAYOUT = ["a = 1", "if a:", " ", "  ", "    ", "\t", "'''", "\n", "\n", "return", "# c", "```", "(", ")"]


@given(
    st.text(st.sampled_from("ab1 \n\t(){}[]'\"\\#:,.=-`~\r\f\0é") | st.characters(), max_size=60)
    | st.lists(st.sampled_from(LAYOUT)).map("".join)
)
def test_any_text_is_code_or_a_typed_error(text):
    try:
        code = extract(text)
    except CodeSyntaxError:
        return
    assert ast.dump(extract(code.source).tree) == ast.dump(code.tree)
    with contextlib.suppress(SyntaxError, SyntaxWarning):  # warnings are errors here
        compile(code.tree, "<agent>", "exec")


HOSTILE = r"""
import itertools, threading
from lang_envs.sandbox.extraction import CodeSyntaxError, extract

units = ["-", "not ", "(", "[", "{", "{a:", "lambda:", "lambda a=(", "a.", "a(", "a[", "f(a=", "a if b else ", "a,",
         "(a for a in ", "a ", "print ", "match ", "'", '"', "'''\n", "f'{", "f'''{", "```\n", "~~~\n", "@a\n", "{**",
         "if a:b\nel", "elif a:b\n", "\\\n", "# \n", "\t", "\ta=1\n", "    a=1\n", "case[", "x:(", "(-", "(not ", "*",
         "await ", "1", "0x1", "\f", "a b("]
closing = {"(": ")", "[": "]", "{": "}"}
programs = ["\n".join(" " * i + "if a:" for i in range(97)) + "\n" + " " * 97 + unit * 40 + "1" for unit in units]
programs += ["{" + "a\n" * 4000, "case {" + "a #\n" * 2000, "(" + "a \\\n" * 2000]
for unit, length, end in itertools.product(units, (30, 49, 120, 299, 8191), ("", "1", "1=1", "close")):
    text = unit * min(length, 8191 // len(unit))
    if end == "close":
        end = "1" + "".join(closing.get(c, "") for c in reversed(text))
    programs.append((text + end)[:8191])

def attack():
    for program in programs:
        try:
            extract(program)
        except CodeSyntaxError:
            pass
    print(len(programs))

threading.stack_size(256 * 1024)
thread = threading.Thread(target=attack)
thread.start(); thread.join()
"""


def test_no_text_crashes_a_thread_with_a_small_stack():
    done = subprocess.run([sys.executable, "-c", HOSTILE], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.strip().isdigit()) == (0, True), done.stderr


def test_extraction_does_not_change_warning_filters():
    filters = list(warnings.filters)
    extract("x = '\\d'\nif x is 'a': pass")
    assert warnings.filters == filters


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("from sklearn.svm import SVC\nreturn SVC()", "SVC"),
        ("from sklearn.svm import SVC as M\nreturn M()", "SVC"),
        ("from sklearn.svm import *\nreturn SVC()", "SVC"),
        ("from sklearn import svm\nreturn getattr(svm, 'SVC')()", "SVC"),
        ("return svm.__dict__['SVC']()", "SVC"),
        ("return getattr(svm, 'S' + 'V' 'C')()", "SVC"),
        ("return getattr(svm, f'S{\"V\"}C')()", "SVC"),
        ("return pydoc.locate('sklearn.svm.SVC')()", "SVC"),
        ("return \uff33\uff36\uff23()", "SVC"),
        ("match model:\n    case svm.SVC(): pass", "SVC"),
        ("from sklearn.model_selection import GridSearchCV as G, KFold", "GridSearchCV"),
        ("import a\n\n\nmodel = a.GridSearchCV\nSVC", "GridSearchCV"),
        ("def helper():\n    return SVC()\ndef build_model(x, y):\n    return helper()", "SVC"),
        ("from sklearn.svm import LinearSVC, NuSVC\nreturn LinearSVC(NuSVC)", None),
        ("# SVC\nreturn 1", None),
        ("'''SVC is not allowed'''\nprint('no SVC')", None),
        ("model = make(SVC=1)", None),
        ("return getattr(svm, 'SVC'[::-1] + 'x')", "SVC"),
        ("return getattr(svm, 'CVS'[::-1])", None),  # out of reach, and reported as such
        ("return getattr(svm, 'S' + x + 'C', f'S{1}VC' + f'{x} SVC')", None),
        ("x = 'S' + 0x" + "f" * 4000 + "\nreturn SVC", "SVC"),
    ],
)
def test_banned_names_are_found_by_meaning(text, name):
    assert banned_use(extract(text), ("GridSearchCV", "SVC")) == name
    assert banned_use(extract(text), ()) is None


def test_one_thread_parses_at_a_time(monkeypatch):
    """CPython 3.11 counts the depth of the trees of all threads together, and may end in a SystemError."""
    parse, inside, most = ast.parse, [], []

    def watched(source, *arguments, **keywords):
        inside.append(source)
        most.append(len(inside))
        time.sleep(0.002)
        inside.pop()
        return parse(source, *arguments, **keywords)

    monkeypatch.setattr(ast, "parse", watched)
    with ThreadPoolExecutor(4) as pool:
        assert len(list(pool.map(extract, [BODY] * 16))) == 16
    assert len(most) >= 2 * 16  # the body, and its wrapper
    assert set(most) == {1}


DRAFT, FINAL = "model = 1", "model = 2"
FUNCTION = "def build_model(x_train, y_train):\n    {}\n    return model"


@pytest.mark.parametrize(
    "answer",
    [
        f"```python\n{FUNCTION.format(DRAFT)}\n```\nBetter:\n```python\n{FUNCTION.format(FINAL)}\n```",
        f"```\n{FUNCTION.format(DRAFT)}\n```\nBetter:\n```\n{FUNCTION.format(FINAL)}\n```\nOutput:\n```\n0.9\n```",
        f"```python\n{FUNCTION.format(DRAFT)}\n```\nBetter:\n```python\n{FUNCTION.format(FINAL)}",
        f"```python\n{FUNCTION.format(FINAL)}\n```\nUse it:\n```python\nmodel = build_model(x, y)\n```",
        f"```python\n{DRAFT}\n```\nBetter:\n```python\n{FINAL}\n```\nIt prints:\n```\n0.9\n```",
        f"```\n{DRAFT}\n```\nBetter:\n```\n{FINAL}\n```",
        f"{FUNCTION.format(DRAFT)}\n\n{FUNCTION.format(FINAL)}",
        *(
            f"```python\n{FUNCTION.format(DRAFT)}\n```\nBetter:\n{fence}\n{final}"
            for fence in ("```python", "~~~")
            for final in (
                "def build_model(x, y): return 2",
                "def build_model(x, y):\n    (model := 2)",
                "if True:\n    def build_model(x, y):\n        model = 2",
                "try:\n    import nothing\nexcept ImportError:\n    def build_model(x, y):\n        return 2",
                "build_model = lambda x, y: 2",
                "class K:\n    def build_model(self, x, y):\n        return 3\n\ndef build_model(x, y):\n    return 2",
            )
        ),
        f"```python\n{FUNCTION.format(FINAL)}\n```\n```python\nclass K:\n  def build_model(self):\n    return 3\n```",
        f"```python\n{FUNCTION.format(FINAL)}\n```\n```python\ntext = 'A:\\n def build_model(x, y):\\n  return 3'\n```",
        f"~~~~markdown\n```python\n{FUNCTION.format(DRAFT)}\n```\n```python\n{FUNCTION.format(FINAL)}\n```\n~~~~",
        f"{FUNCTION.format(DRAFT)}\nif True:\n    def build_model(x, y):\n        model = 2",
    ],
)
def test_evaluates_the_last_of_several_definitions(answer):
    module = {}
    exec(compile(extract(answer).tree, "<agent>", "exec"), module)
    assert module["build_model"](None, None) == 2
