"""Results files for the tests of reports: small and complete, of code, of a training, and hostile."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

import lang_envs  # noqa: F401 - registers the ids
from lang_bench.runner.credit import CREDITS, GAE_LAMBDA, GAMMA, credit_of_episode
from lang_bench.runner.plan import Job
from lang_envs.wrappers import TextAction

__all__ = ["AGENTS", "END", "HOME", "KITCHEN", "PAYLOADS", "code", "hostile", "small", "training", "write"]

Record = dict[str, Any]
KITCHEN, HOME, CODE = "Overcooked-TomatoSalad-v0", "VirtualHome-Entertainment-v0", "DataSciCoding-balance-scale-v0"
AGENTS = ("POAD, 2,500 steps", "random", "oracle of a friend")
END = "</s>"
_STEPS = {"max_episode_steps": 30}


# ---------------------------------------------------------------------- lines


def header_of(agent: str, envs: Sequence[str], episodes: int, seeds: Sequence[int], **more: Any) -> Record:
    return {
        "format": 1,
        "agent": {"name": agent, "spec": "module:agent", "arguments": {}, "settings": {"temperature": 1.0}},
        "envs": [{"id": env_id, "discount": 0.99, "arguments": {}} for env_id in envs],
        "env_settings": {},
        "episodes": episodes,
        "seeds": list(seeds),
        "steps": True,
        "command": "lang-bench run --agent module:agent",
        "commit": None,
        "cpu": "a processor",
        "cores": 2,
        "python": "3.11.7",
        "versions": {"lang-envs": "0.2.0", "numpy": "2.4.6"},
        **more,
    }


def episode_of(job: Job, agent: str, steps: Sequence[Record], **more: Any) -> Record:
    """Return the line of an episode that agrees with its steps."""
    moves = np.cumsum([0, *(step["moves"] for step in steps)])
    return {
        **job._asdict(),
        "agent": agent,
        "reset_seed": job.reset_seed,
        "return": float(sum(step["reward"] for step in steps)),
        "discounted_return": float(sum(0.99**n * step["reward"] for n, step in zip(moves, steps, strict=False))),
        "discount": 0.99,
        "success": steps[-1]["success"],
        "steps": len(steps),
        "moves": int(moves[-1]),
        "invalid_actions": sum(step["invalid"] for step in steps),
        "terminated": steps[-1]["terminated"],
        "truncated": steps[-1]["truncated"],
        **more,
        "steps_list": [{**job._asdict(), "step": number, **step} for number, step in enumerate(steps)],
    }


def write(path: Path, header: Mapping[str, Any], episodes: Iterable[Mapping[str, Any]]) -> Path:
    """Write episodes, with their steps under `steps_list`, as the two files of a measurement."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rules = {name: rule._asdict() for name, rule in CREDITS.items()}
    credit = {"gamma": GAMMA, "gae_lambda": GAE_LAMBDA, "rules": rules}
    encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    with path.open("wb") as lines, path.with_suffix(".steps.jsonl").open("wb") as steps:
        lines.write(encode(header).encode("utf-8", "backslashreplace") + b"\n")
        steps.write(
            encode({**header, "content": "steps", "credit": credit}).encode("utf-8", "backslashreplace") + b"\n"
        )
        for episode in episodes:
            kept = {name: value for name, value in episode.items() if name != "steps_list"}
            lines.write(encode(kept).encode("utf-8", "backslashreplace") + b"\n")
            for step in episode["steps_list"]:
                steps.write(encode(step).encode("utf-8", "backslashreplace") + b"\n")
    return path


def tokens_of(text: str) -> list[str]:
    """Return words with the spaces before them, and the end token: joined they are the text and the end."""
    words = text.split(" ")
    return [words[0], *(f" {word}" for word in words[1:]), END]


# ---------------------------------------------------------------------- episodes that were played


@cache
def walk(env_id: str, seed: int, *, n_steps: int = _STEPS["max_episode_steps"]) -> tuple[Record, ...]:
    """Play listed actions at random, now and then an invalid one."""
    rng = np.random.default_rng(seed)
    steps: list[Record] = []
    with TextAction(gym.make(env_id, disable_env_checker=True, max_episode_steps=n_steps)) as env:
        observation, info = env.reset(seed=seed)
        is_over = False
        while not is_over:
            listed = info["admissible_actions"]
            action = "sing a song" if rng.random() < 0.05 else listed[rng.integers(len(listed))]
            shown = observation
            observation, reward, terminated, truncated, info = env.step(action)
            is_over = terminated or truncated
            steps.append(
                {
                    "observation": str(shown),
                    "admissible_actions": listed,
                    "action": action,
                    "invalid": info["invalid_action"],
                    "reward": float(reward),
                    "success": info["success"],
                    "moves": int(info.get("primitive_steps", 1)),
                    "terminated": terminated,
                    "truncated": truncated,
                }
            )
    steps[-1]["final_observation"] = str(observation)
    return tuple(steps)


def with_tokens(steps: Iterable[Record], rng: np.random.Generator) -> list[Record]:
    """Add every optional field of a step that an agent of tokens can have."""
    tokenized = [with_token_fields(step, rng) for step in steps]
    credits = credit_of_episode([step["reward"] for step in tokenized], [step["values"] for step in tokenized])
    for number, step in enumerate(tokenized):
        step["advantages"] = {name: rows[number] for name, rows in credits.items()}
        step["credits"] = {"POAD, own critic": rng.normal(size=len(step["tokens"])).tolist()}
    tokenized[-1]["final_value"] = float(rng.normal())
    return tokenized


def with_token_fields(step: Record, rng: np.random.Generator) -> Record:
    tokens = tokens_of(step["action"])
    n_tokens, listed = len(tokens), step["admissible_actions"]
    options = rng.integers(1, 5, size=n_tokens)
    log_probs = np.where(options == 1, 0.0, -rng.exponential(size=n_tokens))
    others = [f" {word}" for word in ("tomato", "bowl", "board", "plate", "sofa")]
    probs = rng.dirichlet(np.ones(len(listed)))
    return {
        **step,
        "note": f"I think that I should {step['action']}.",
        "tokens": tokens,
        "log_probs": log_probs.tolist(),
        "values": rng.normal(size=n_tokens).tolist(),
        "token_options": options.tolist(),
        "alternatives": [
            None
            if n == 1
            else [[token, log_prob], *([other, log_prob - 1.0 - rank] for rank, other in enumerate(others[: n - 1]))]
            for token, log_prob, n in zip(tokens, log_probs.tolist(), options.tolist(), strict=True)
        ],
        "entropies": [None if n == 1 else float(np.log(n)) for n in options.tolist()],
        "prompt_tokens": tokens_of(step["observation"])[:-1],
        "action_probs": probs.tolist(),
    }


def small(folder: Path, *, n_episodes: int = 5) -> list[Path]:
    """3 agents on 2 tasks, 5 episodes each, played in the real environments, with all optional fields.

    Args:
        folder: Where the files are written, one for each agent.
        n_episodes: Episodes of each agent on each task, of one seed.
    """
    paths = []
    for number, agent in enumerate(AGENTS):
        rng = np.random.default_rng(number)
        header = header_of(agent, (KITCHEN, HOME), n_episodes, [0], env_settings=_STEPS)
        episodes = []
        for job in (Job(env_id, 0, episode) for env_id in (KITCHEN, HOME) for episode in range(n_episodes)):
            steps = with_tokens(walk(job.env, job.reset_seed), rng)
            extra = {"requests": 3, "prompt_tokens": 900, "completion_tokens": 90, "cost": 0.25, "group": job.episode}
            episodes.append(episode_of(job, agent, steps, **extra))
        paths.append(write(folder / f"agent{number}.jsonl", header, episodes))
    return paths


def training(folder: Path, *, checkpoints: Sequence[int] = (0, 256, 512), n_episodes: int = 2) -> Path:
    """Episodes of the checkpoints of a training; the reset seeds are the same at each of them."""
    rng = np.random.default_rng(0)
    agent = "POAD of a training"
    header = header_of(agent, (KITCHEN,), n_episodes, [0], env_settings=_STEPS, training=True)
    episodes = []
    for at in checkpoints:
        for job in (Job(KITCHEN, 0, episode) for episode in range(n_episodes)):
            steps = with_tokens(walk(KITCHEN, job.reset_seed), rng)
            episodes.append(episode_of(job, agent, steps, training_steps=at, group=job.reset_seed))
    return write(folder / "episodes.jsonl", header, episodes)


# ---------------------------------------------------------------------- episodes of code


def code(path: Path, *, n_episodes: int = 1000, n_steps: int = 10, n_tokens: int = 150, seed: int = 0) -> Path:
    """Write episodes of code: 10 attempts of 150 tokens after an observation of 1,200 characters."""
    rng = np.random.default_rng(seed)
    names = ["x", "y", "model", "scale", "fit", "from", "sklearn", "import", "return", "=", "(", ")", "\n    ", "0.1"]
    words = [f" {name}{tail}" for name in names for tail in ("", "_train", "_test", ".copy()", "[0]", ":", ",")]
    columns = "".join(f"column_{n}: number between {n} and {n + 9}\n" for n in range(30))
    agent = "coder"

    def episodes() -> Iterator[Record]:
        for number in range(n_episodes):
            chosen = rng.integers(len(words), size=(n_steps, n_tokens - 1)).tolist()
            numbers = rng.normal(size=(2, n_steps, n_tokens))
            log_probs, values = (-np.abs(numbers[0])).tolist(), numbers[1].tolist()
            steps, trouble = [], ""
            for step in range(n_steps):
                is_last = step == n_steps - 1
                tokens = [words[index] for index in chosen[step]]
                error = None if is_last else f"NameError: name 'x{chosen[step][0]}' is not defined\nin line {step}"
                steps.append(
                    {
                        "observation": f"Write build_model.\n{columns}{trouble}".ljust(1200),
                        "admissible_actions": None,
                        "action": "".join(tokens),
                        "invalid": False,
                        "reward": 0.9 if is_last else -1.0,
                        "success": is_last,
                        "moves": 1,
                        "terminated": is_last,
                        "truncated": False,
                        "note": "",
                        "tokens": [*tokens, END],
                        "log_probs": log_probs[step],
                        "values": values[step],
                        "score": 0.9 if is_last else None,
                        "status": "ok" if is_last else "error",
                        "error": error,
                        "scores": {str(split): 0.9 for split in range(5)} if is_last else None,
                    }
                )
                trouble = error or ""
            yield episode_of(Job(CODE, 0, number), agent, steps, ran_share=1 / n_steps, best_score=0.9, data="real")

    return write(path, header_of(agent, (CODE,), n_episodes, [0]), episodes())


# ---------------------------------------------------------------------- hostile texts

RUN = "window.pwned=1"
OUTSIDE = "https://evil.invalid"
PAYLOADS = [
    f"<script>{RUN}</script>",
    f"</script><script>{RUN}</script>",
    f"<!--<script>{RUN}//",
    f'<img src="x" onerror="{RUN}">',
    f"<svg/onload={RUN}>",
    f'<svg><a xlink:href="javascript:{RUN}"><text y=20>a</text></a></svg>',
    f'<iframe srcdoc="<script>parent.{RUN}</script>"></iframe>',
    f'<noscript><p title="</noscript><img src=x onerror={RUN}>">',
    f"' onmouseover='{RUN}' x='",
    f"</style><script>{RUN}</script>",
    f"<link rel=stylesheet href={OUTSIDE}/a.css>",
    f"<base href={OUTSIDE}/>",
    f"<form action={OUTSIDE}><button>a</button></form>",
    f"<style>*{{background:url({OUTSIDE})}}</style>",
    f"<details open ontoggle={RUN}>a</details>",
    f"<div popover id=p onbeforetoggle={RUN}>a</div><button popovertarget=p>b</button>",
    f"<a href=javascript:{RUN}>a</a>",
    f"javascript:{RUN}",
    f"data:text/html,<script>{RUN}</script>",
    f"${{{RUN}}}",
    f"');{RUN};('",
    f"\u2028{RUN}\u2029{RUN}",
    f"a\x00<script>{RUN}</script>",
    "\ud800 a lone surrogate \udfff",
    "\u202egnp.exe\u2066 order \u2069\u200b\ufeff",
    "__proto__",
    "constructor",
    f"]]><script>{RUN}</script>",
    f"&lt;script&gt;{RUN}&lt;/script&gt;",
    "a" * 20_000,
    "e" + "\u0301" * 500,
    "\x1b[2J\x1b[31mred\x1b]0;title\x07",
    "\x1b]8;;https://evil.invalid\x1b\\a\x1b]8;;\x1b\\",
    "{{DATA}} {{SCRIPT}} {{TITLE}}",
    "</li></ul></main><main id=x>",
    "#v=episode&a=x&step=-1",
    " \t\n ",
    "",
]
"""Texts that run `window.pwned=1`, fetch an address, or break a page that does not escape them."""


def hostile(folder: Path, payloads: Sequence[str] = PAYLOADS) -> list[Path]:
    """Write files with each payload in each text field: of the header, the episodes and the steps, keys too."""
    return [
        write(folder / f"payload{number:02}.jsonl", *_hostile(payload, number))
        for number, payload in enumerate(payloads)
    ]


def _hostile(payload: str, number: int) -> tuple[Record, list[Record]]:
    agent = env_id = payload
    described = {payload: payload, "b": [payload]}
    header = header_of(agent, (env_id,), 2, [0], command=payload, commit=payload, cpu=payload, python=payload)
    header["agent"] |= {"spec": payload, "arguments": described, "settings": described, "incidental": [payload]}
    header["envs"][0]["arguments"] = described
    header |= {"env_settings": described, "versions": {payload: payload}, payload or "empty": payload}
    rng = np.random.default_rng(number)
    steps = [
        {
            "observation": payload,
            "admissible_actions": [payload, f"{payload} again"],
            "action": payload,
            "invalid": False,
            "reward": 1.0 - step,
            "success": False,
            "moves": 1,
            "terminated": False,
            "truncated": step == 1,
            "note": payload,
            "tokens": [payload, END],
            "log_probs": [-1.0, 0.0],
            "values": rng.normal(size=2).tolist(),
            "advantages": {payload: [0.5, -0.5]},
            "token_options": [2, 1],
            "alternatives": [[[payload, -1.0], [f"{payload}!", -1.5]], None],
            "entropies": [0.5, None],
            "prompt_tokens": [payload, payload],
            "action_probs": [0.25, 0.75],
            "credits": {payload: [0.25, -0.25]},
            "score": 0.5,
            "status": payload,
            "error": payload,
            "scores": {payload: 0.5},
            payload or "empty": payload,
        }
        for step in range(2)
    ]
    steps[-1] |= {"final_observation": payload, "final_value": 0.5}
    episodes = []
    for episode in range(2):
        more = {"group": payload, "data": payload, "best_score": 0.5}
        episodes.append(episode_of(Job("x", 0, episode), agent, steps, **more) | {"env": env_id})
        episodes[-1]["steps_list"] = [{**step, "env": env_id} for step in episodes[-1]["steps_list"]]
    return header, episodes
