"""Every `python` block of the documentation runs. Blocks marked `py` (they need a network) are shown only."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lang_envs import ENV_ROWS

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = [
    path
    for path in (ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")))
    if BLOCK.search(path.read_text(encoding="utf-8"))
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_blocks_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "docs"}
    for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
        line = page.read_text(encoding="utf-8")[: block.start(1)].count("\n")
        short = block[1].replace("10_000", "128")  # a whole training would take a minute or more
        exec(compile("\n" * line + short, str(page), "exec"), namespace)


def test_every_logged_metric_is_explained(tmp_path: Path) -> None:
    from stable_baselines3.common.logger import Logger

    from poad_sb3 import POAD

    seen: set[str] = set()

    class Names(Logger):
        def record(self, key, value, exclude=None):
            seen.add(key)

    model = POAD("LLMPolicy", "Overcooked-TomatoSalad-v0", n_steps=128, n_epochs=1, seed=0)
    model.set_logger(Names(None, []))
    model.learn(256)
    explained = set(
        re.findall(
            r"^\| `((?:train|rollout|time)/\w+)` \|",
            (ROOT / "docs/algorithms/poad.md").read_text(encoding="utf-8"),
            re.MULTILINE,
        )
    )
    assert seen == explained


def test_the_example_is_that_of_the_readme() -> None:
    index, readme = (BLOCK.search((ROOT / name).read_text(encoding="utf-8")) for name in ("docs/index.md", "README.md"))
    assert index is not None
    assert readme is not None
    assert index[1] == readme[1]


@pytest.mark.parametrize("env_id", [row.id for row in ENV_ROWS])
def test_every_environment_has_a_page(env_id: str) -> None:
    pages = ROOT.glob("docs/environments/*.md")
    assert any(env_id in page.read_text(encoding="utf-8") for page in pages), (
        f"no page in docs/environments mentions {env_id}"
    )
