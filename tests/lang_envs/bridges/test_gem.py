"""GEM, AgileRL and SkyRL play the oracle's episode by their own functions; run by `make test-bridges`."""

from __future__ import annotations

import pytest

from lang_envs.bridges import text_env
from lang_envs.bridges.text_env import TextEnv

SALAD = "Overcooked-TomatoSalad-v0"
ORACLE_RETURN = 1.1102837966825794


def oracle_actions() -> list[str]:
    env, actions = TextEnv(SALAD), []
    env.reset(seed=0)
    while not env.is_over:
        actions.append(env.oracle_action())
        env.step(actions[-1])
    return actions


def test_gem_plays_the_oracles_episode():
    gem = pytest.importorskip("gem")
    gem.register("lang/TomatoSalad", "lang_envs.bridges:TextEnv", task=SALAD)
    env = gem.make("lang/TomatoSalad")
    env.reset(seed=0)
    steps = [env.step(action) for action in oracle_actions()]
    assert sum(step[1] for step in steps) == pytest.approx(ORACLE_RETURN)
    assert [step[2] for step in steps] == [False] * (len(steps) - 1) + [True]
    env.reset(seed=1)
    assert env.step(env.sample_random_action())[4]["invalid_action"] is False


def test_gems_vectors_give_each_environment_its_seed():
    gem = pytest.importorskip("gem")
    gem.register("lang/MultiKey", "lang_envs.bridges:TextEnv", task="MultiKey-v0")
    envs = gem.make_vec(["lang/MultiKey"] * 2, vec_kwargs=[{"seed": 3}, {"seed": 4}], async_mode=False)
    observations, _ = envs.reset(seed=[3, 4])
    assert observations[0] == text_env("MultiKey-v0").reset(seed=3)[0]
    assert observations[0] != observations[1]
    _, rewards, *_ = envs.step([envs.envs[0].oracle_action(), "nonsense"])
    assert rewards[0] > rewards[1]


def test_agilerl_plays_the_oracles_episode():
    """Its harness tokenizes prompts and answers, as for a model that it trains."""
    pytest.importorskip("agilerl")
    import torch
    from agilerl.llm_envs.harness import RolloutHarness
    from transformers import AutoTokenizer

    from poad_sb3.pocket import model_path

    tokenizer = AutoTokenizer.from_pretrained(model_path("pocket"))
    settings = {"max_turns": 20, "apply_chat_template": False}
    harness = RolloutHarness.from_spec("lang_envs.bridges:TextEnv", {"task": SALAD}, tokenizer, **settings)
    prompt, _ = harness.reset(seed=0)
    for action in oracle_actions():
        answer = [*tokenizer(action, add_special_tokens=False).input_ids, tokenizer.eos_token_id]
        prompt, _, terminated, truncated, _ = harness.step(torch.cat([prompt["input_ids"], torch.tensor([answer])], 1))
    assert (terminated, truncated, harness.done) == (True, False, True)
    assert sum(harness.turn_rewards) == pytest.approx(ORACLE_RETURN)
    harness.close()


def test_skyrl_plays_the_oracles_episode():
    skyrl_gym = pytest.importorskip("skyrl_gym")
    skyrl_gym.register(id="lang_envs", entry_point="lang_envs.bridges.skyrl:SkyRLEnv")
    env = skyrl_gym.make("lang_envs", env_config={}, extras={"task": SALAD, "seed": 0})
    prompt, _ = env.init([{"role": "system", "content": "You cook."}])
    assert prompt[-1]["content"].count("- ") >= 5
    steps = [env.step(action) for action in oracle_actions()]
    assert sum(step["reward"] for step in steps) == pytest.approx(ORACLE_RETURN)
    assert steps[-1]["done"]
    assert steps[-1]["metadata"] == {"truncated": False, "success": True, "invalid_action": False}
    assert env.get_metrics()["episode_return"] == pytest.approx(ORACLE_RETURN)
    env = skyrl_gym.make("lang_envs", env_config={}, extras={"task": SALAD, "seed": 0, "max_turns": 2})
    env.init([])
    assert [env.step("nonsense")["done"] for _ in range(2)] == [False, True]
    assert env.get_metrics()["truncated"]
