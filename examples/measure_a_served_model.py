"""Measure a model behind an OpenAI-compatible server: vLLM, llama.cpp, Ollama, OpenAI. Needs the extra `openai`.

OPENAI_API_KEY=... python examples/measure_a_served_model.py BASE_URL MODEL [EPISODES]
python examples/measure_a_served_model.py http://127.0.0.1:8000/v1 Qwen/Qwen2.5-7B-Instruct

From a shell: `lang-bench run --agent openai:MODEL --agent-set base_url=URL --env ID`.
"""

import os
import sys
from pathlib import Path

from lang_bench import Plan, Workers, load, measure

BASE_URL, MODEL = sys.argv[1:3]
EPISODES = int(sys.argv[3]) if len(sys.argv) > 3 else 20
os.environ.setdefault("OPENAI_API_KEY", "none")  # a server of your own may want no key

plan = Plan(
    f"openai:{MODEL}",  # "react:openai:..." thinks before it acts
    ("Overcooked-TomatoSalad-v0", "VirtualHome-FoodPreparation-v0"),
    episodes=EPISODES,
    seeds=1,
    agent_settings={"base_url": BASE_URL, "temperature": 0.0, "max_tokens": 64},
)
path = Path("runs/measured") / f"{MODEL.replace('/', '_')}.jsonl"
measure(plan, path, n_workers=4, workers=Workers.THREADS)  # threads, since the work is waiting for the server

for cell in load([path]):
    names = ("discounted_return", "success", "invalid_rate", "prompt_tokens", "completion_tokens")
    print(cell.env, {name: round(float(cell.scores(name).mean()), 3) for name in names})
