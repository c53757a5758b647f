"""The use of an installation with each extra alone: `python -I uses.py EXTRA`, run by the Python that has it.

A script of its own, with the standard library at its top only: it finds no package but the installed ones. It works in
the current folder, which `__main__` has prepared, and ends with a line of JSON: versions, and what was done.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import runpy
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from importlib import metadata
from pathlib import Path

_TOMATO = "Overcooked-TomatoSalad-v0"
_TABLE = "x,y,ill\n" + "".join(f"{n},{n * n % 7},{'yes' if n % 3 else 'no'}\n" for n in range(40))
_TYPED = 'import lang_envs\n\nreveal_type(lang_envs.ByteTokenizer().encode("tomato"))\n'
_TASK = """
task: quiz
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{q}}}}"
doc_to_choice: ["{{{{right}}}}", "{{{{wrong}}}}"]
doc_to_target: 0
metric_list: [{{metric: acc, aggregation: mean, higher_is_better: true}}]
"""
_SITE = "site_name: x\nplugins: [mkdocstrings]\ntheme: material\n"


def command(*words: str, code: int = 0, says: str = "") -> None:
    """Run a command of this installation; complain unless it ends with `code` and its output has `says` in it."""
    done = subprocess.run(
        [str(Path(sys.executable).parent / words[0]), *words[1:]], capture_output=True, text=True, timeout=300
    )
    said = done.stdout + done.stderr
    if done.returncode != code or says not in said:
        raise AssertionError(f"Expected {words} to exit with {code} and say {says!r}; got {done.returncode}: {said}")


def refuses(error: type[Exception], says: str, use: Callable[[], object]) -> None:
    """Complain unless `use` raises that error, with `says` in its message."""
    try:
        use()
    except error as raised:
        if says not in str(raised):
            raise AssertionError(f"Expected an error that says {says!r}; got {raised}") from raised
    else:
        raise AssertionError(f"Expected an error that says {says!r}; got none.")


def lacks(extra: str, use: Callable[[], object]) -> None:
    """Complain unless `use` raises the error that names the extra, and how this installation gets it."""
    from lang_envs import MissingExtraError

    refuses(MissingExtraError, f'pip install "lang-envs[{extra}]"', use)


def write(name: str, text: str) -> str:
    """A file of that text; its name."""
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(text, encoding="utf-8")
    return name


def use_nothing() -> None:
    """The quick start for environments, every task that needs no table, and what is said for the rest."""
    runpy.run_path("quick_start_environments.py")
    import gymnasium as gym

    import lang_envs
    import poad_sb3
    from lang_envs.recording import record_gif

    for row in lang_envs.ENV_ROWS:
        if not row.id.startswith("DataSciCoding"):
            env = gym.make(row.id, render_mode="rgb_array")
            env.reset(seed=0)
            env.step(env.action_space.encode(lang_envs.oracle(env)))
            env.render()
    record_gif(_TOMATO, lang_envs.agents.oracle_agent(), "salad.gif")
    lacks("llm", lambda: poad_sb3.POAD)
    lacks("llm", lambda: gym.make(_TOMATO, tokenizer="a/tokenizer").reset())
    lacks("datasci", lambda: gym.make("DataSciCoding-iris-v0").reset())
    lacks("data", lambda: gym.make("DataSciCoding-v0", table=write("a.csv", _TABLE), target="ill").reset())
    command("lang-envs", "list", code=2, says='"lang-envs[cli]"')
    command("poad", "--help", code=2, says='"lang-envs[cli,llm]"')


def use_llm() -> None:
    """The whole quick start with the pocket model, what SB3 logs with, and what is said without wandb or quant."""
    runpy.run_path("quick_start.py")
    from poad_sb3 import POAD
    from poad_sb3.common.callbacks import WandbCallback

    model = POAD("LLMPolicy", _TOMATO, seed=0, tensorboard_log="logs")
    model.learn(128, progress_bar=True)
    assert list(Path("logs").rglob("events.*"))
    model.policy.save("policy.pt")
    lacks("wandb", lambda: WandbCallback("project"))
    lacks("quant", lambda: POAD("LLMPolicy", _TOMATO, policy_kwargs={"quantization": "4bit"}))


def use_cli() -> None:
    """Both commands, and what they say where another extra is needed."""
    command("lang-envs", "list", says=_TOMATO)
    command("lang-envs", "check", _TOMATO, says="0 failed")
    command("lang-envs", "watch", _TOMATO, "--out", "salad.gif")
    command("lang-envs", "check", "DataSciCoding-iris-v0", code=1, says='"lang-envs[datasci]"')
    command("lang-envs", "data", "fetch", "breast-w", code=1, says='"lang-envs[data]"')
    command("lang-envs", "sandbox", "doctor", code=2, says='"lang-envs[datasci]"')
    command("poad", "--help", says="train")
    command("poad", "presets")
    for words in (("train", _TOMATO), ("doctor",), ("eval", "x"), ("export", "x", "y")):
        command("poad", *words, code=1, says='"lang-envs[cli,llm]"')


def use_datasci() -> None:
    """Code of an agent is run in the sandbox and scored."""
    import gymnasium as gym

    import lang_envs

    env = gym.make("DataSciCoding-iris-v0")
    env.reset(seed=0)
    reward = float(env.step(env.action_space.encode(lang_envs.oracle(env)))[1])
    assert reward > 0.9, reward
    lacks("data", lambda: gym.make("DataSciCoding-v0", table=write("a.csv", _TABLE), target="ill").reset())


def use_data() -> None:
    """A table of one's own is played on; fetching from both services tells that nobody answers."""
    import gymnasium as gym
    import pandas as pd

    from lang_envs.datasets.errors import OfflineError
    from lang_envs.datasets.fetching import fetch
    from lang_envs.datasets.manifest import manifest

    pd.read_csv(write("a.csv", _TABLE)).to_parquet("a.parquet")
    for table in ("a.csv", "a.parquet"):
        gym.make("DataSciCoding-v0", table=table, target="ill").reset(seed=0)
    write(".kaggle/kaggle.json", '{"username": "nobody", "key": "none"}')
    os.environ["HTTPS_PROXY"] = os.environ["https_proxy"] = "http://127.0.0.1:9"  # nobody listens
    os.environ["KAGGLE_USERNAME"] = os.environ["KAGGLE_KEY"] = "nobody"
    for name in ("breast-w", "pharyngitis"):
        refuses(OfflineError, "Expected to reach", partial(fetch, manifest(name), timeout=20))


def use_bench() -> None:
    """The commands of the checkout's `benchmarks`, with the packages from the wheel."""
    plan = ("-m", "benchmarks", "run", "--env", _TOMATO, "--episodes", "2", "--seeds", "2", "--out")
    command("python", *plan, "random.jsonl", "--agent", "random", says="4 episodes played")
    command("python", "-m", "benchmarks", "report", "random.jsonl", "--out", "report")
    assert list(Path("report").glob("*.png"))
    command("python", *plan, "x.jsonl", "--agent", "openai:m", code=1, says='"lang-envs[openai]"')
    command("python", *plan, "x.jsonl", "--agent", "untrained", code=1, says='"lang-envs[llm]"')


def use_openai() -> None:
    """The client is made, asks, and tells that nobody answers."""
    sys.path.insert(0, str(Path.cwd()))
    from benchmarks.agents import make_agent
    from benchmarks.agents.base import AgentError

    agent = make_agent("openai:model", base_url="http://127.0.0.1:9/v1", retries=0)
    refuses(AgentError, "APIConnectionError", lambda: agent.reply("What now?"))


def use_lm_eval() -> None:
    """A trained policy is compared with its base model, on a task of one question."""
    from poad_sb3 import POAD

    POAD("LLMPolicy", _TOMATO, n_steps=64, seed=0).learn(64).save("poad.zip")
    write("tasks/quiz.json", json.dumps({"q": "I am in the kitchen. I", "right": "walk", "wrong": "eat the wall"}))
    write("tasks/quiz.yaml", _TASK.format(data=Path("tasks/quiz.json").resolve()))
    os.environ.update(dict.fromkeys(("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE"), "1"))
    of = ("--checkpoint", "poad.zip", "--include", "tasks", "--tasks", "quiz", "--out", "ability")
    command("python", "-m", "benchmarks", "measure", "language-ability", *of)
    assert Path("ability/language_ability.json").is_file()


def use_wandb() -> None:
    """A training is logged, into a folder as there is no network."""
    from poad_sb3 import POAD
    from poad_sb3.common.callbacks import WandbCallback

    callback = WandbCallback("project", mode="offline", dir=".")
    try:
        POAD("LLMPolicy", _TOMATO, n_steps=64, seed=0).learn(64, callback=callback)
    finally:
        callback.close()
    assert list(Path("wandb").glob("offline-run-*"))


def use_quant() -> None:
    """Trainings of bases in 8 and 4 bits."""
    from poad_sb3 import POAD

    for bits in ("8bit", "4bit"):
        POAD("LLMPolicy", _TOMATO, n_steps=64, seed=0, policy_kwargs={"quantization": bits}).learn(64)


def use_video() -> None:
    """Gymnasium's recorder."""
    import gymnasium as gym
    from gymnasium.wrappers import RecordVideo

    import lang_envs

    env = RecordVideo(gym.make(_TOMATO, render_mode="rgb_array"), "videos", disable_logger=True)
    env.reset(seed=0)
    over = False
    while not over:
        _, _, terminated, truncated, _ = env.step(env.action_space.encode(lang_envs.oracle(env)))
        over = terminated or truncated
    env.close()
    assert Path("videos/rl-video-episode-0.mp4").stat().st_size > 0


def use_docs() -> None:
    """A page of the site, with the docstrings of a module."""
    write("site/mkdocs.yml", _SITE)
    write("site/docs/index.md", "# Spaces\n\n::: lang_envs.spaces\n")
    command("mkdocs", "build", "--strict", "--config-file", "site/mkdocs.yml")
    assert "TokenSequence" in Path("site/site/index.html").read_text(encoding="utf-8")


def use_test() -> None:
    """Tests of the checkout against the wheel, and what a checker learns of its types."""
    chosen = [f"tests/lang_envs/test_{name}.py" for name in ("core", "overcooked_env", "virtualhome_golden")]
    command("pytest", "-n", "2", *chosen, says="passed")
    command("mypy", "--strict", write("typed.py", _TYPED), says="Revealed type")
    command("ruff", "check", "typed.py", code=1, says="F821")
    command("pre-commit", "--version")


USES = {
    name.removeprefix("use_").replace("_", "-"): use for name, use in list(globals().items()) if name.startswith("use_")
}
"""Uses by extra; `nothing` is the wheel alone."""


def main(extra: str) -> None:
    """Do what an extra is for, quietly, then say which versions did it."""
    with contextlib.redirect_stdout(io.StringIO()):
        USES[extra]()
    found = {one.metadata["Name"]: one.version for one in metadata.distributions()}
    sys.stdout.write(json.dumps(dict(sorted(found.items(), key=lambda pair: pair[0].lower()))) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
