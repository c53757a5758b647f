"""Token credit as a page: coloured tokens with their numbers as tooltips."""

from __future__ import annotations

import html

from benchmarks.reports.credit_picture import is_dark, shade, visible
from benchmarks.reports.rollouts import Rollout, RolloutStep

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
body {{ font: 14px/1.45 system-ui, sans-serif; margin: 1.5em; color: #1e1e1e; background: #fff; }}
h1 {{ font-size: 1.2em; margin-bottom: .2em; }}
p {{ color: #6e6e6e; margin: .2em 0 1em; }}
table {{ border-collapse: collapse; width: 100%; }}
th {{ text-align: left; position: sticky; top: 0; background: #fff; }}
td, th {{ border-bottom: 1px solid #d7d7d7; padding: .5em .8em .5em 0; vertical-align: top; }}
td:first-child {{ width: 22%; color: #6e6e6e; font-size: .9em; white-space: pre-line; }}
td:first-child b {{ color: #1e1e1e; }}
.token {{ display: inline-block; font-family: ui-monospace, monospace; padding: .1em .25em; margin: 1px;
  border: 1px solid #d7d7d7; border-radius: 3px; color: #1e1e1e; white-space: pre; }}
.token.dark {{ color: #fff; }}
.token small {{ display: block; font-size: .7em; }}
</style>
<h1>{title}</h1>
<p>{remark}</p>
<table>
<thead><tr><th>action</th>{head}</tr></thead>
<tbody>
{rows}
</tbody>
</table>
</html>
"""


def credit_html(rollout: Rollout) -> str:
    """Write a self-contained page: every action of a rollout, a column for each way of assigning credit."""
    rows = []
    for number, step in enumerate(rollout.steps, start=1):
        head = f"<b>{number}, reward {step.reward:+z.3g}</b>\n{html.escape(step.observation)}"
        cells = "".join(f"<td>{_tokens(step, name, rollout.scale)}</td>" for name in rollout.columns)
        rows.append(f"<tr><td>{head}</td>{cells}</tr>")
    return _PAGE.format(
        title=html.escape(rollout.title),
        remark=html.escape(rollout.remark),
        head="".join(f"<th>{html.escape(name)}</th>" for name in rollout.columns),
        rows="\n".join(rows),
    )


def _tokens(step: RolloutStep, column: str, scale: float) -> str:
    spans = []
    known = {"log p": step.log_probs, "V": step.values.get(column, ())}
    for place, (token, advantage) in enumerate(zip(step.tokens, step.advantages[column], strict=True)):
        color = shade(advantage, scale)
        facts = [f"advantage {advantage:+z.4f}"]
        facts += [f"{name} {row[place]:.4f}" for name, row in known.items() if len(row)]
        spans.append(
            f'<span class="token{" dark" if is_dark(color) else ""}" style="background:rgb{color}" '
            f'title="{html.escape(", ".join(facts))}">'
            f"{html.escape(visible(token))}<small>{advantage:+z.2f}</small></span>"
        )
    return "".join(spans)
