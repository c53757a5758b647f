"""Check the prose of the packages: the rate of vague words in docstrings and comments, and phrases to avoid.

Run by `make check`. `docs/development/glossary.md` has the terms to use instead.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
VAGUE = ("what", "which", "whatever", "nothing", "nobody", "told", "said")
MAX_PER_THOUSAND = 3.0
"""Vague words per 1,000 words of docstrings and comments, for each top-level folder (SB3 and Gymnasium: 1.7)."""

AVOID = {
    r"(?m)^(What|Which|Whatever|Whoever|Nobody|Nothing)\b": "start with a verb or the noun that is meant",
    r"\b(is|are|was|were|be)\s+(told|said|asked)\b": "name the value, or use the active voice",
    r"\banew\b": "again",
    r"\bstrangers?\b": "untrusted",
    r"\bforth and back\b": "forward and backward",
}
"""Patterns of phrases in docstrings and comments, and their replacement."""


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and text of every docstring (of attributes too) and comment of a Python file."""
    source = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# ")


def main() -> int:
    """Print the rate of each folder and every phrase to avoid; return 1 if there is anything to change."""
    words: Counter[str] = Counter()
    vague: dict[str, Counter[str]] = {}
    found = []
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.py"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    names = [name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()]
    if not names:
        sys.exit(f"docs: Expected a git checkout with Python files in {ROOT}; got {listed.stderr.strip() or 'none'}.")
    for name in names:
        folder = name.split("/")[0]
        for line, text in texts(ROOT / name):
            spoken = re.findall(r"[a-z']+", text.lower())
            words[folder] += len(spoken)
            vague.setdefault(folder, Counter()).update(word for word in spoken if word in VAGUE)
            for pattern, better in AVOID.items():
                found += [f"{name}:{line}: {hit[0]!r}: {better}" for hit in re.finditer(pattern, text)]
    too_many = False
    for folder, count in vague.items():
        rate = 1000 * count.total() / words[folder]
        too_many |= rate > MAX_PER_THOUSAND
        print(f"{folder:12} {rate:5.2f} of 1,000 words; {dict(count.most_common())}")
    print("\n".join(found))
    return int(too_many or bool(found))


if __name__ == "__main__":
    sys.exit(main())
