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
