"""Inspect evaluates a task with its mock model; run by `make test-bridges`."""

from __future__ import annotations

import pytest

pytest.importorskip("inspect_ai")

from inspect_ai import eval as evaluate
from inspect_ai.model import ModelOutput, ModelUsage, get_model

from lang_envs.bridges.inspect_task import lang_env
from lang_envs.bridges.text_env import TextEnv

SALAD = "Overcooked-TomatoSalad-v0"
pytestmark = pytest.mark.filterwarnings("ignore")  # of the package itself


def test_a_model_that_answers_as_the_oracle_gets_its_return(tmp_path):
    env, outputs = TextEnv(SALAD), []
    for seed in range(2):
        env.reset(seed=seed)
        while not env.is_over:
            output = ModelOutput.from_content("mockllm/model", env.oracle_action())
            output.usage = ModelUsage(input_tokens=1, output_tokens=1)  # else the mock downloads a tokenizer
            outputs.append(output)
            env.step(outputs[-1].completion)
    model = get_model("mockllm/model", custom_outputs=outputs)
    (log,) = evaluate(lang_env(SALAD, episodes=2), model=model, log_dir=str(tmp_path), max_samples=1, display="none")
    assert log.status == "success", log.error
    scores = [sample.scores["episode_return"] for sample in log.samples]
    assert [score.value for score in scores] == pytest.approx([1.1102837966825794] * 2)
    assert all(score.metadata["success"] and not score.metadata["truncated"] for score in scores)
    model = get_model("mockllm/model", custom_outputs=outputs)
    limits = {"message_limit": 6, "log_dir": str(tmp_path), "display": "none"}
    (log,) = evaluate(lang_env(SALAD, episodes=1), model=model, **limits)
    assert log.status == "success", log.error
    assert len(log.samples[0].scores["episode_return"].metadata["rewards"]) == 2
