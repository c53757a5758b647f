"""Tables of generated actions: the numbers are the buffer's, the texts are the tokens', and files can be resumed."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3.common.logger import configure
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from toy import LampEnv, make_agent, make_method, randomise
from transformers import AutoTokenizer
from zoo import ZOO

from poad_sb3 import POAD
from poad_sb3.common.callbacks import GenerationTableCallback
from poad_sb3.common.on_policy_algorithm import LLMOnPolicyAlgorithm
from poad_sb3.common.token_fields import token_texts

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


@pytest.mark.parametrize("name", ["POAD", "TWOSOME", "POAD, free", "GRPO"])
def test_the_numbers_are_those_of_the_buffer(tmp_path: Path, name: str) -> None:
    agent = trained(tmp_path, name, n_envs=2, n_samples=1000)
    actions, lines = list(agent.rollout_buffer.sampled_actions()), stored(tmp_path)
    counted = np.argwhere(agent.rollout_buffer.counted).tolist()  # with a critic 16 steps, else whole episodes
    assert [(line["step"], line["env"]) for line in lines] == [(2 * t + 2, env) for t, env in counted]
    for action, line in zip(actions, lines, strict=True):
        assert line["reward"] == action.reward == agent.rollout_buffer.rewards[action.step, action.env]
        assert line["action"] == agent.policy.lm.prompter.action_text(action.path.action)
        assert line["prompt"].startswith("<s>The lamp is ")
        tokens = line["tokens"]
        product = math.prod(token["probability"] for token in tokens)
        assert product == pytest.approx(math.exp(action.log_probs.sum()), rel=1e-5)
        choices = {decision.position for decision in action.path.decisions}
        assert [token["forced"] for token in tokens] == [n not in choices for n in range(len(action.path.action))]
        assert all(token["probability"] == 1 for token in tokens if token["forced"])
        assert "".join(token["text"] for token in tokens).strip().removesuffix("</s>") == line["action"]
        entries, without = (tokens, line) if agent.credit_level == "token" else ([line], tokens[0])
        for key, values in (("value", action.values), ("advantage", action.advantages), ("return", action.returns)):
            assert [entry[key] for entry in entries if key in entry] == values.tolist()[: len(entries)]
            assert key not in without


def test_actions_are_spread_over_the_rollout(tmp_path: Path) -> None:
    trained(tmp_path, n_samples=4)
    assert [line["step"] for line in stored(tmp_path)] == [1, 6, 11, 16]


# ------------------------------------------------------------------ once in a while, and again


def test_tables_are_written_every_n_rollouts(tmp_path: Path) -> None:
    make_agent(n_epochs=1).learn(5 * N, GenerationTableCallback(tmp_path, every=2, n_samples=1))
    assert [line["step"] for line in stored(tmp_path)] == [N + 1, 3 * N + 1]


@pytest.mark.matrix
@pytest.mark.parametrize("every", [1, 2])
def test_a_resumed_training_writes_the_same_table(tmp_path: Path, every: int) -> None:
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


def test_the_callback_changes_no_weight(tmp_path: Path) -> None:
    plain, watched = make_agent(n_epochs=1).learn(2 * N), make_agent(n_epochs=1)
    watched.learn(2 * N, GenerationTableCallback(tmp_path))
    before, after = plain.policy.state_dict(), watched.policy.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


# ------------------------------------------------------------------ TensorBoard


def test_tensorboard_alone_shows_the_table(tmp_path: Path) -> None:
    agent = make_agent(n_epochs=1)
    logger = configure(str(tmp_path), ["tensorboard", "csv"])
    agent.set_logger(logger)
    agent.learn(2 * N, GenerationTableCallback(tmp_path, n_samples=2))
    logger.close()
    assert "generations" not in (tmp_path / "progress.csv").read_text()
    (events,) = tmp_path.glob("events.*")
    board = EventAccumulator(str(events)).Reload()
    (tag,) = board.Tags()["tensors"]
    assert tag.startswith("rollout/generations")
    logged = board.Tensors(tag)
    assert [event.step for event in logged] == [N, 2 * N]
    text = logged[-1].tensor_proto.string_val[0].decode()
    assert all(line["action"] in text for line in stored(tmp_path)[-2:])


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
