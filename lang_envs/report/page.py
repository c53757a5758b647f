"""The page: template, style, script and data as one HTML file.

A content security policy names the script and the style by their hashes and forbids everything else: no text of the
data can run, be fetched or change the style of the page.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from pathlib import Path

from lang_envs.files import write_bytes
from lang_envs.report.data import Metric, Report
from lang_envs.report.modules import join_modules
from lang_envs.report.packing import pack

__all__ = ["LARGE", "build_page", "printed", "size_lines", "write_report"]

LARGE = 25_000_000
"""Largest size in bytes of a report that is not reported as large."""
PICTURES = 20
_PAGE = Path(__file__).parent / "page"
_TRUSTED = "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"


def write_report(report: Report, path: Path, *, pictures: int = PICTURES, shown: int | None = None) -> Path:
    """Write a report as one HTML file that needs no network and no other file.

    Args:
        report: Content of the page.
        path: Path of the file; it is replaced in one step.
        pictures: Number of episodes that are replayed for their pictures.
        shown: Maximum number of episodes with steps in the file; None for all. The list has every episode.

    Returns:
        The path.
    """
    return write_bytes(path, build_page(report, pictures=pictures, shown=shown))


def size_lines(path: Path) -> list[str]:
    """Return a line with path and size of a written report; with a second one if it is large."""
    size = path.stat().st_size
    lines = [f"  {path} ({size / 1e6:.1f} MB)"]
    if size > LARGE:
        lines.append(
            f"  The file is larger than {LARGE / 1e6:.0f} MB. Fix: --pictures 0, or --episodes-shown N; "
            "the list keeps every episode."
        )
    return lines


def build_page(report: Report, *, pictures: int = PICTURES, shown: int | None = None) -> bytes:
    """Return the bytes of a report; see `write_report`. The same content gives the same bytes.

    Args:
        report: Content of the page.
        pictures: Number of episodes that are replayed for their pictures.
        shown: Maximum number of episodes whose steps are kept; None for all.
    """
    script, style = join_modules(_PAGE), (_PAGE / "style.css").read_text(encoding="utf-8")
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data: blob:; {_TRUSTED}"
    )
    blocks = pack(report, pictures=pictures, shown=shown)
    data = "\n".join(
        f'<script type="application/{"octet-stream" if name == "tiles" else "gzip"}" id="data-{name}">'
        f"{block.decode('ascii')}</script>"
        for name, block in blocks.items()
    )
    parts = {
        "POLICY": html.escape(policy, quote=True),
        "TITLE": html.escape(_visible(report.title), quote=True),
        "STYLE": style,
        "OVERVIEW": _overview(report),
        "DATA": data,
        "SCRIPT": script,
    }
    template = (_PAGE / "index.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{([A-Z]+)\}\}", lambda match: parts[match[1]], template).encode("utf-8", "backslashreplace")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


# ---------------------------------------------------------------------- the part that needs no script


def printed(value: float, low: float | None, high: float | None, metric: Metric) -> str:
    """Return a mean with its interval as text: `0.912 [0.900, 0.921]`, or `0.921` where all seeds got the same."""
    factor, unit = (100, " %") if metric.is_rate else (1, "")
    ends = (end for end in (value, low, high) if end is not None)
    texts = [f"{factor * end:z.{metric.digits}f}" for end in ends]
    return f"{texts[0]}{unit}" if len(set(texts)) == 1 else f"{texts[0]}{unit} [{texts[1]}, {texts[2]}]"


def _overview(report: Report) -> str:
    """Write the scores as HTML tables, one for each task."""
    parts = [f"<p>{_text(sentence)}</p>" for sentence in report.about]
    parts += [f'<p class="warning">{_text(run.name)}: {_text(run.remark)}</p>' for run in report.runs if run.remark]
    metrics = {metric.name: metric for metric in report.metrics}
    for task in dict.fromkeys(score.task for score in report.scores):
        scores = {(score.agent, score.metric): score for score in report.scores if score.task == task}
        names = [name for name in metrics if any((agent, name) in scores for agent, _ in scores)]
        head = "".join(f'<th scope="col">{_text(metrics[name].title)}</th>' for name in names)
        rows = []
        for agent in dict.fromkeys(agent for agent, _ in scores):
            row = [scores.get((agent, name)) for name in names]
            first_score = next(score for score in row if score is not None)
            count = (
                f"{first_score.n_episodes}"
                if first_score.n_episodes == first_score.expected
                else f"{first_score.n_episodes} of {first_score.expected}"
            )
            texts = (
                "" if score is None else printed(score.value, score.low, score.high, metrics[score.metric])
                for score in row
            )
            cells = "".join(f"<td>{text}</td>" for text in texts)
            rows.append(f'<tr><th scope="row">{_text(agent)}</th><td>{count}</td>{cells}</tr>')
        parts.append(
            f'<section class="task"><h3>{_text(task)}</h3><div class="wide" tabindex="0" role="group" '
            f'aria-label="{_text(task)}"><table><thead><tr><th scope="col">agent</th>'
            f'<th scope="col">episodes</th>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div></section>'
        )
    for table in report.tables:
        head = "".join(f'<th scope="col">{_text(cell)}</th>' for cell in table.head)
        body = "".join(
            f'<tr><th scope="row">{_text(first)}</th>{"".join(f"<td>{_text(cell)}</td>" for cell in rest)}</tr>'
            for first, *rest in table.rows
        )
        remark = f"<p>{_text(table.remark)}</p>" if table.remark else ""
        parts.append(
            f'<section class="task"><h3>{_text(table.title)}</h3>{remark}<div class="wide" tabindex="0" role="group" '
            f'aria-label="{_text(table.title)}"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div></section>'
        )
    if report.notes:
        notes = "".join(f"<p>{_text(sentence)}</p>" for sentence in report.notes)
        parts.append(f"<details><summary>Notes ({len(report.notes)})</summary>{notes}</details>")
    return "\n".join(parts)


_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


def _visible(text: str) -> str:
    """Show control, direction and zero-width characters as their code points."""
    return _UNSAFE.sub(lambda match: f"\u27e8{ord(match[0]):04X}\u27e9", text)


def _text(text: str) -> str:
    return html.escape(_visible(text), quote=True)
