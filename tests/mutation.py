"""Sample mutants on covered lines and run the tests that execute them.

    python -m pytest -n 2 --cov --cov-context=test --cov-report= -m "not slow"     # writes .coverage
    python tests/mutation.py --n 60 --seed 0 --out data/results/mutation.json

A mutant changes one operator, constant or condition of a line that a test executes (not at import). The tests of `make
test` that execute its line run first, then those of `make test-matrix`, each group until the first failure. The
checkout must be clean: the file is changed in place and restored. A run that was stopped continues with the mutants
that `--out` lacks.
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from coverage import CoverageData

ROOT = Path(__file__).parent.parent
PACKAGES = ("lang_envs", "poad_sb3", "benchmarks")
PARTS = {"test": "not matrix and not process and not slow", "matrix": "(matrix or process) and not slow"}
SECONDS = 900

_COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_OPERATORS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult}


class Mutant(NamedTuple):
    """One changed expression.

    Attributes:
        file: Path in the repository.
        line: Line of the expression.
        before: Source of the expression.
        after: Source in its place.
        start: Offset of the expression in the bytes of the file.
    """

    file: str
    line: int
    before: str
    after: str
    start: int


def mutations(node: ast.AST) -> Iterator[ast.expr]:
    """Yield changed versions of an expression."""
    match node:
        case ast.Compare(left, [operator], [right]) if type(operator) in _COMPARISONS:
            yield ast.Compare(left, [_COMPARISONS[type(operator)]()], [right])
        case ast.BinOp(left, operator, right) if type(operator) in _OPERATORS:
            yield ast.BinOp(left, _OPERATORS[type(operator)](), right)
        case ast.BoolOp(ast.And(), values):
            yield ast.BoolOp(ast.Or(), values)
        case ast.BoolOp(ast.Or(), values):
            yield ast.BoolOp(ast.And(), values)
        case ast.UnaryOp(ast.Not(), operand):
            yield operand
        case ast.IfExp(test, body, orelse):
            yield ast.IfExp(test, orelse, body)
        case ast.Constant(bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(int() as value):
            yield ast.Constant(value + 1)


def mutants(file: str, lines: set[int]) -> list[Mutant]:
    """Return the mutants of a file on some lines; annotations, docstrings and error messages are left alone."""
    source = (ROOT / file).read_bytes()
    offsets = [0]
    for text in source.splitlines(keepends=True):
        offsets.append(offsets[-1] + len(text))
    tree = ast.parse(source)
    skipped = {
        id(inner)
        for node in ast.walk(tree)
        for part in (
            *([node.annotation] if isinstance(node, ast.AnnAssign | ast.arg) and node.annotation else []),
            *([node.returns] if isinstance(node, ast.FunctionDef) and node.returns else []),
            *([node] if isinstance(node, ast.JoinedStr) else []),
        )
        for inner in ast.walk(part)
    }
    found = []
    for node in ast.walk(tree):
        if id(node) in skipped or getattr(node, "lineno", 0) not in lines:
            continue
        for changed in mutations(node):
            start = offsets[node.lineno - 1] + node.col_offset
            end = offsets[node.end_lineno - 1] + node.end_col_offset
            before = source[start:end].decode()
            found.append(
                Mutant(file, node.lineno, before, f"({ast.unparse(ast.fix_missing_locations(changed))})", start)
            )
    return found


def closeness(test: str, file: str) -> int:
    """Return how many leading folders, and words of the file's name, a test has in common with a source file."""
    path = Path(test.partition("::")[0])
    folders = zip(path.parent.parts[1:], Path(file).parent.parts, strict=False)
    return sum(a == b for a, b in folders) + 2 * (path.stem == f"test_{Path(file).stem}")


def tests_of_part(part: str) -> set[str]:
    """Return the ids of the tests of `make test` or `make test-matrix`, as a whole collection marks them."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n", "0", "-o", "addopts=", "-m", PARTS[part]]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return {line for line in done.stdout.splitlines() if "::" in line}


def killer(mutant: Mutant, tests: list[str]) -> str:
    """Run tests against a mutant; return the first that fails, or an empty text."""
    path = ROOT / mutant.file
    source = path.read_bytes()
    end = mutant.start + len(mutant.before.encode())
    path.write_bytes(source[: mutant.start] + mutant.after.encode() + source[end:])
    try:
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as arguments:
            arguments.write("\n".join(tests))
            arguments.flush()
            command = [sys.executable, "-m", "pytest", "-x", "-n", "0", "-p", "no:cacheprovider", "--no-cov"]
            try:
                done = subprocess.run(
                    [*command, "-rfE", "--no-header", f"@{arguments.name}"],
                    cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                return f"no end within {SECONDS} s"
    finally:
        path.write_bytes(source)
    if done.returncode == 0:
        return ""
    if done.returncode not in (1, 2):  # 2: the mutant breaks the collection
        raise RuntimeError(f"pytest ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0].split(" - ")[0] if failed else f"exit code {done.returncode}"


def main() -> None:
    """Sample, run, and write the outcome of every mutant."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--coverage", type=Path, default=ROOT / ".coverage")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    data = CoverageData(str(options.coverage))
    data.read()
    tests_of: dict[tuple[str, int], list[str]] = {}
    candidates: list[Mutant] = []
    for measured in sorted(data.measured_files()):
        path = Path(measured)
        if not path.is_relative_to(ROOT) or path.relative_to(ROOT).parts[0] not in PACKAGES:
            continue
        file = path.relative_to(ROOT).as_posix()
        covered = set()
        for line, contexts in data.contexts_by_lineno(measured).items():
            tests = sorted({context.rpartition("|")[0] for context in contexts} - {""})
            if tests:
                tests_of[file, line] = tests
                covered.add(line)
        candidates += mutants(file, covered)
    chosen = random.Random(options.seed).sample(candidates, options.n)
    done = json.loads(options.out.read_text()) if options.out.exists() else []
    parts = {part: tests_of_part(part) for part in PARTS}
    for mutant in chosen[len(done) :]:
        tests = tests_of[mutant.file, mutant.line]
        record = mutant._asdict() | {"n_tests": len(tests)}
        for part, members in parts.items():
            chosen_tests = [test for test in tests if test in members]
            chosen_tests.sort(key=lambda test: -closeness(test, mutant.file))  # those most likely to fail come first
            record[part] = killer(mutant, chosen_tests) if chosen_tests else ""
            if record[part]:
                break
        done.append(record)
        options.out.write_text(json.dumps(done, indent=1, ensure_ascii=False) + "\n")
        outcome = next((part for part in PARTS if record.get(part)), "SURVIVED")
        print(f"{len(done):3} {outcome:9} {mutant.file}:{mutant.line}: {mutant.before} -> {mutant.after}", flush=True)


if __name__ == "__main__":
    main()
