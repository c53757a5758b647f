"""Tables of generated actions: the numbers are the buffer's, the texts are the tokens', and files can be resumed."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3.common.logger import CSVOutputFormat, HumanOutputFormat, JSONOutputFormat, Logger, configure
from stable_baselines3.common.vec_env import DummyVecEnv
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from toy import METHODS, Collector, LampEnv, TableEnv, make_agent, make_method, randomise
from transformers import AutoTokenizer
from zoo import ZOO

from poad_sb3 import BADQ, POAD
from poad_sb3.common.callbacks import GenerationTableCallback
from poad_sb3.common.generations import Generation, TokenEntry, markdown, print_generations, token_texts
from poad_sb3.common.on_policy_algorithm import LLMOnPolicyAlgorithm

N = 16


def stored(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "generations.jsonl").read_text().splitlines()]


def trained(folder: Path, name: str = "POAD", *, n_envs: int = 1, **kwargs: Any) -> LLMOnPolicyAlgorithm:
    """An agent after one rollout without an update, so that its buffer is still the source of the table."""
    agent = make_method(name, n_envs=n_envs)
    randomise(agent.policy)
    agent.train = lambda: None  # type: ignore[method-assign]
    return agent.learn(N * n_envs, GenerationTableCallback(folder, **kwargs))


# ------------------------------------------------------------------ written files


@pytest.mark.matrix_after(2)
@pytest.mark.parametrize("name", METHODS)
def test_the_numbers_are_those_of_the_buffer(tmp_path: Path, name: str) -> None:
    agent = trained(tmp_path, name, n_envs=2, n_samples=1000)
    actions, lines = list(agent.rollout_buffer.sampled_actions()), stored(tmp_path)
    counted = np.argwhere(agent.rollout_buffer.counted).tolist()  # with a critic 16 steps, else whole episodes
    assert [(line["step"], line["env"]) for line in lines] == [(2 * t + 2, env) for t, env in counted]
    for action, line in zip(actions, lines, strict=True):
        assert line["reward"] == action.reward == agent.rollout_buffer.rewards[action.position, action.env]
        assert line["action"] == agent.policy.lm.prompter.action_text(action.path.action)
        assert line["prompt"].startswith("<s>The lamp is ")
        tokens = line["tokens"]
        product = math.prod(token["probability"] for token in tokens)
        assert product == pytest.approx(math.exp(action.log_probs.sum()), rel=1e-5)
        choices = {decision.position for decision in action.path.decisions}
        assert [token["forced"] for token in tokens] == [n not in choices for n in range(len(action.path.action))]
        assert all(token["probability"] == 1 for token in tokens if token["forced"])
        assert "".join(token["text"] for token in tokens).strip().removesuffix("</s>") == line["action"]
        known, without = (tokens, line) if agent.credit_level == "token" else ([line], tokens[0])
        for key, values in (("value", action.values), ("advantage", action.advantages), ("return", action.returns)):
            assert [one[key] for one in known if key in one] == values.tolist()[: len(known)]
            assert key not in without


def test_the_buffer_gives_its_actions_as_it_learns_from_them() -> None:
    agent = make_agent(Collector, n_envs=3)
    randomise(agent.policy)
    agent.learn(3 * N)
    actions, batch = list(agent.rollout_buffer.sampled_actions()), agent.rollout_buffer._flat
    assert batch is not None
    assert [(one.position, one.env) for one in actions] == [(t, env) for t in range(N) for env in range(3)]
    assert [one.path for one in actions] == batch.paths
    for name, expected in (("values", batch.old_values), ("advantages", batch.advantages), ("returns", batch.returns)):
        assert np.array_equal(np.concatenate([getattr(one, name) for one in actions]), expected.numpy())
    assert np.array_equal(np.concatenate([one.log_probs for one in actions]), batch.old_log_prob.numpy())
    evaluated = agent.policy.token_values([one.path for one in actions])
    for one, start in zip(actions, evaluated.starts, strict=True):
        own = evaluated.values[start : start + len(one.path.action)]
        torch.testing.assert_close(own, torch.from_numpy(one.values), rtol=0, atol=1e-5)


def test_a_buffer_without_a_rollout_has_no_actions() -> None:
    agent = make_agent(Collector)
    with pytest.raises(RuntimeError, match=r"Expected a rollout that was collected here. Fix: fill the buffer"):
        next(agent.rollout_buffer.sampled_actions())
    agent.learn(N)
    other = make_agent(Collector).rollout_buffer
    other.set_state(agent.rollout_buffer.get_state())
    with pytest.raises(RuntimeError, match="Expected a rollout that was collected here"):
        next(other.sampled_actions())


def test_actions_are_spread_over_the_rollout(tmp_path: Path) -> None:
    trained(tmp_path, n_samples=4)
    assert [line["step"] for line in stored(tmp_path)] == [1, 6, 11, 16]


def test_the_extremes_are_the_best_and_the_worst(tmp_path: Path) -> None:
    agent = trained(tmp_path, n_samples=5, pick="extremes")
    means = []
    for action in agent.rollout_buffer.sampled_actions():
        choices = [decision.position for decision in action.path.decisions]
        means.append((float(np.mean(action.advantages[choices])), action.position + 1))
    ordered = [step for _, step in sorted(means, key=lambda one: (-one[0], one[1]))]
    assert [line["step"] for line in stored(tmp_path)] == [*ordered[:3], *ordered[-2:]]


def test_only_the_end_of_a_prompt_is_kept(tmp_path: Path) -> None:
    trained(tmp_path, prompt_characters=11)
    assert all(line["prompt"] == "…moves left." for line in stored(tmp_path))


def test_a_value_without_bounds_is_still_json(tmp_path: Path) -> None:
    callback = GenerationTableCallback(tmp_path)
    agent = make_agent(Collector).learn(N, callback)
    callback.n_samples = 1000
    flat = agent.rollout_buffer._flat
    assert flat is not None
    flat.old_values[0] = float("nan")
    flat.advantages[1] = float("inf")
    callback.on_rollout_end()
    tokens = stored(tmp_path)[4]["tokens"]
    assert tokens[0]["value"] is None
    assert tokens[1]["advantage"] is None
    for line in (tmp_path / "generations.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


# ------------------------------------------------------------------ once in a while, and again


def test_every_so_many_rollouts(tmp_path: Path) -> None:
    make_agent(n_epochs=1).learn(5 * N, GenerationTableCallback(tmp_path, every=2, n_samples=1))
    assert [line["step"] for line in stored(tmp_path)] == [N + 1, 3 * N + 1]


@pytest.mark.matrix
@pytest.mark.parametrize("every", [1, 2])
def test_a_training_that_goes_on_writes_what_an_unbroken_one_does(tmp_path: Path, every: int) -> None:
    def table(name: str) -> GenerationTableCallback:
        return GenerationTableCallback(tmp_path / name, every=every)

    make_agent(n_epochs=1).learn(6 * N, table("straight"))
    model = make_agent(n_epochs=1).learn(3 * N, table("resumed"))
    model.save(tmp_path / "model.zip")
    model.learn(2 * N, table("resumed"), reset_num_timesteps=False)  # goes on, is killed, and loses this
    path = tmp_path / "resumed" / "generations.jsonl"
    lost = max(line["step"] for line in stored(path.parent))
    assert lost > 3 * N
    path.write_text(path.read_text() + '{"step": 3, "env')
    POAD.load(tmp_path / "model.zip", LampEnv()).learn(3 * N, table("resumed"), reset_num_timesteps=False)
    assert path.read_text() == (tmp_path / "straight" / "generations.jsonl").read_text()
    assert [file.name for file in path.parent.iterdir()] == ["generations.jsonl"]


def test_a_new_training_starts_a_new_file(tmp_path: Path) -> None:
    for _ in range(2):
        make_agent(n_epochs=1).learn(N, GenerationTableCallback(tmp_path, n_samples=3))
        assert len(stored(tmp_path)) == 3


def test_damaged_lines_are_dropped(tmp_path: Path) -> None:
    model = make_agent(n_epochs=1).learn(N, GenerationTableCallback(tmp_path, n_samples=2))
    path = tmp_path / "generations.jsonl"
    whole = path.read_text()
    path.write_text('[1]\n{"env": 0}\nnothing\n\n{"step": "one"}\n' + whole)
    model.learn(N, GenerationTableCallback(tmp_path, n_samples=2), reset_num_timesteps=False)
    assert path.read_text().startswith(whole)
    assert len(stored(tmp_path)) == 4


def test_watching_changes_nothing(tmp_path: Path) -> None:
    plain, watched = make_agent(n_epochs=1).learn(2 * N), make_agent(n_epochs=1)
    watched.learn(2 * N, GenerationTableCallback(tmp_path))
    before, after = plain.policy.state_dict(), watched.policy.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize("name", ["every", "n_samples", "prompt_characters"])
def test_numbers_are_checked(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=f"Expected {name} >= 1; got 0. Fix: leave the callback out"):
        GenerationTableCallback(tmp_path, **{name: 0})


def test_unknown_picks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"Expected pick to be one of \['spread', 'extremes'\]; got 'best'"):
        GenerationTableCallback(tmp_path, pick="best")


def test_algorithms_without_rollouts_are_refused(tmp_path: Path) -> None:
    agent = BADQ("LLMPolicy", DummyVecEnv([LampEnv]), policy_kwargs={"critic_arch": (8,)})
    with pytest.raises(TypeError, match=r"Expected an algorithm with token rollouts .*got BADQ. Fix: use it with POAD"):
        agent.learn(4, GenerationTableCallback(tmp_path))


# ------------------------------------------------------------------ TensorBoard and the terminal


def test_tensorboard_shows_the_table_and_nothing_else_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    agent = make_agent(n_epochs=1)
    logger = configure(str(tmp_path), ["tensorboard", "stdout", "csv", "json", "log"])
    agent.set_logger(logger)
    agent.learn(2 * N, GenerationTableCallback(tmp_path, n_samples=2))
    logger.close()
    kinds = {type(one) for one in logger.output_formats}
    assert {CSVOutputFormat, HumanOutputFormat, JSONOutputFormat} <= kinds
    assert "ep_rew_mean" in capsys.readouterr().out
    for file in ("progress.csv", "progress.json", "log.txt"):
        text = (tmp_path / file).read_text()
        assert "ep_rew_mean" in text
        assert "generations" not in text
    (events,) = tmp_path.glob("events.*")
    board = EventAccumulator(str(events)).Reload()
    (tag,) = board.Tags()["tensors"]
    assert tag.startswith("rollout/generations")
    logged = board.Tensors(tag)
    assert [event.step for event in logged] == [N, 2 * N]
    text = logged[-1].tensor_proto.string_val[0].decode()
    for line in stored(tmp_path)[-2:]:
        assert f"**step {line['step']}, environment 0, reward {line['reward']:.3g}**: {line['action']}" in text
        for token in line["tokens"]:
            assert f" {token['value']:z.3g} | {token['advantage']:z.3g} | {token['return']:z.3g} |" in text


def test_markdown_takes_text_as_text() -> None:
    tokens = [TokenEntry(text, 0.5, False, 0.0, 1.0, 1.0) for text in (" a|b", "\n", "<b>", "*x*", "`")]
    one = Generation(1, 0, "line one\n| <i> *line* two", "a|b\n<b>", 1.0, None, None, None, tuple(tokens))
    title, prompt, table = markdown(one).split("\n\n")
    assert title == "**step 1, environment 0, reward 1**: a&#124;b &lt;b&gt;"
    assert prompt == "> line one &#124; &lt;i&gt; &#42;line&#42; two"
    rows = table.splitlines()
    assert all(row.count("|") == 6 for row in rows)
    texts = [row.split("|")[1].strip() for row in rows[2:]]
    assert texts == ["␣a&#124;b", "⏎", "&lt;b&gt;", "&#42;x&#42;", "&#96;"]


@pytest.mark.parametrize("name", ["POAD", "TWOSOME"])
def test_the_terminal_shows_it_in_eighty_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    agent = make_method(name, lamp=TableEnv)
    agent.set_logger(Logger(None, []))
    agent.learn(N, GenerationTableCallback(tmp_path, n_samples=2, verbose=1))
    shown = capsys.readouterr().out
    assert all(len(line) <= 80 for line in shown.splitlines())
    assert shown.count("The lamp is ") == 2
    assert "forced" in shown
    for line in stored(tmp_path):
        assert f"step {line['step']}  env 0  reward {line['reward']:.3g}" in shown
        for token in line["tokens"]:
            assert token["text"].replace(" ", "␣") in shown
            assert token["forced"] or f"p {token['probability']:.2f}" in shown
        credit = [line] if name == "TWOSOME" else line["tokens"]
        assert all(f"V {one['value']:z.2f}" in shown for one in credit)


def entry(text: str, advantage: float, *, forced: bool = False) -> TokenEntry:
    return TokenEntry(text, 1.0 if forced else 0.5, forced, 0.0, advantage, 0.0)


def test_tokens_are_blue_above_zero_and_orange_below(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in (("FORCE_COLOR", "1"), ("COLORTERM", "truecolor"), ("TERM", "xterm"), ("COLUMNS", "80")):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    tokens = (entry("best", 2.0), entry("good", 1.0), entry("bad", -2.0), entry("wild", math.nan))
    print_generations([Generation(1, 0, "Go.", "", 1.0, None, None, None, tokens)])
    shown = capsys.readouterr().out
    for colour, text in (
        ("60;150;255", "best"),
        ("105;150;202", "good"),
        ("255;140;40", "bad"),
        ("150;150;150", "wild"),
    ):
        assert f"\x1b[1;38;2;{colour}m{text}\x1b[0m" in shown


def test_a_text_cannot_command_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    one = Generation(1, 0, "a\nb\x1b[2J[bold]", "", 1.0, None, None, None, (entry("\x1b[31m[red]", 1.0),))
    print_generations([one])
    shown = capsys.readouterr().out
    assert "a\nb\\x1b[2J[bold]" in shown
    assert "\\x1b[31m[red]" in shown


# ------------------------------------------------------------------ texts of tokens

LETTERS = "wait, é😀日本\n  x"


@pytest.fixture(scope="module")
def tokenizers(zoo_folder: Callable[[str], Path]) -> dict[str, Any]:
    return {name: AutoTokenizer.from_pretrained(zoo_folder(name)) for name in ZOO}


def ids_of(tokenizer: Any, text: str) -> list[int]:
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False)
    return ids


@pytest.mark.parametrize("name", ZOO)
def test_texts_of_tokens_are_what_they_add(tokenizers: dict[str, Any], name: str) -> None:
    tokenizer = tokenizers[name]
    whole = ids_of(tokenizer, f"The lamp is red. You {LETTERS}")
    start = len(ids_of(tokenizer, "The lamp is red. You"))
    texts = token_texts(tokenizer, whole[:start], [*whole[start:], tokenizer.eos_token_id])
    assert len(texts) == len(whole) - start + 1
    assert all(texts)
    assert texts[0].startswith(" wa"), "a first token keeps its space"
    written = [
        text for text, token in zip(texts, whole[start:], strict=False) if not part_of_letter(tokenizer, token, text)
    ]
    assert "".join(written) == f" {LETTERS}"
    assert texts[-1] == tokenizer.eos_token


def part_of_letter(tokenizer: Any, token: int, text: str) -> bool:
    return text == tokenizer.convert_ids_to_tokens(token) and (text.startswith("<0x") or not text.isascii())


@pytest.mark.parametrize("name", ZOO)
def test_texts_of_broken_letters(tokenizers: dict[str, Any], name: str) -> None:
    """Freely sampled text need not be UTF-8."""
    tokenizer = tokenizers[name]
    face = ids_of(tokenizer, "x 😀")[-4:]
    for action in (
        face[:2],
        [face[0], face[0], face[1]],
        [*face, face[1]],
        face[2:],
        [*face[:3], tokenizer.eos_token_id],
    ):
        texts = token_texts(tokenizer, ids_of(tokenizer, "The lamp is red."), action)
        assert len(texts) == len(action)
        assert all(texts)


def test_texts_behind_a_prompt_of_one_token(tokenizers: dict[str, Any]) -> None:
    tokenizer = tokenizers["llama2"]
    prompt: Sequence[int] = [tokenizer.bos_token_id]
    assert "".join(token_texts(tokenizer, prompt, ids_of(tokenizer, "wait here"))).strip() == "wait here"


def test_texts_of_tokens_that_the_tokenizer_does_not_have(tokenizers: dict[str, Any]) -> None:
    tokenizer = tokenizers["qwen2"]
    unknown = len(tokenizer) + 3
    assert token_texts(tokenizer, [1], [unknown, *ids_of(tokenizer, "wait")])[0] == f"<{unknown}>"
