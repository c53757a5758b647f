"""The modules of the page as one script."""

from __future__ import annotations

from pathlib import Path

import pytest

from lang_envs.report import ReportError
from lang_envs.report.modules import join_modules

ONE = 'import {a} from "./one.js";\n'


def _folder(path: Path, **sources: str) -> Path:
    for name, source in sources.items():
        (path / f"{name}.js").write_text(source, encoding="utf-8")
    return path


def test_modules_follow_those_that_they_import(tmp_path: Path) -> None:
    joined = join_modules(
        _folder(
            tmp_path,
            main='import {a} from "./one.js";\nimport {b} from "./two.js";\na(b);\n',
            one='import {b} from "./two.js";\nexport function a(x) {\n  return x + b;\n}\n',
            two="export const b = 1;\nconst [c, d] = [2, 3];\n",
        )
    )
    assert joined.startswith('"use strict";')
    assert "import" not in joined
    assert "export" not in joined
    assert joined.index("const b = 1;") < joined.index("function a(x)") < joined.index("a(b);")
    assert joined.count("const b = 1;") == 1


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        ({"main": f"{ONE}const a2 = a;\n", "one": "const a = 1;\n"}, "to export a"),
        ({"main": f"{ONE}const b = a;\n", "one": "export const a = 1;\nconst b = 2;\n"}, "defines b"),
        ({"main": "export default 1;\n"}, "got another one"),
        ({"main": 'const a = "</script>";\n'}, "without `</script`"),
    ],
)  # fmt: skip
def test_other_forms_are_refused(sources: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(ReportError, match=message):
        join_modules(_folder(tmp_path, **sources))
