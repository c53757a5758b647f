"""Environments in Ray actors: the results of ordinary vectors, after the loss of any actor too."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from ray_users import (
    BrokenLamps,
    LampsElsewhere,
    TracedLamps,
    UnsteadyDoors,
    alive,
    outside,
    play,
    relatives,
    until,
)
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import VecEnv
from toy import everything

from lang_envs.envs.datascicoding.evaluation import Status
from poad_sb3 import GRPO, POAD, TWOSOME
from poad_sb3.common.on_policy_algorithm import LLMOnPolicyAlgorithm
from poad_sb3.distributed import ray_vec_env
from poad_sb3.distributed.ray_cluster import RayConnection
from poad_sb3.distributed.ray_vec_env import RayVecEnv, make_ray_envs
from poad_sb3.errors import WorkerError
from poad_sb3.vec_env.make_envs import make_envs

CODE = "DataSciCoding-airlines-v0"
LOST = 10.0
"""Seconds without an answer after which a stopped actor counts as lost."""


@pytest.fixture
def ray_envs(cluster: RayConnection) -> Iterator[Callable[..., RayVecEnv]]:
    """Make environments in actors that take no cores; they are closed at the end."""
    envs: list[RayVecEnv] = []

    def make(env: Any, n_envs: int, n_actors: int, **settings: Any) -> RayVecEnv:
        kwargs = settings.pop("env_kwargs", {})
        envs.append(make_ray_envs(env, kwargs, n_envs, n_actors, **{"demand": {}, **settings}))
        return envs[-1]

    yield make
    for env in envs:
        env.close()


def kill(env: VecEnv, index: int, number: int = signal.SIGKILL) -> int:
    """Send a signal to the actor of an environment."""
    (pid,) = env.env_method("process", indices=[index])
    os.kill(pid, number)
    return int(pid)


@pytest.mark.process
def test_actors_are_an_ordinary_vector_and_a_killed_one_is_made_again(
    ray_envs: Callable[..., RayVecEnv], tmp_path: Path
) -> None:
    make = partial(TracedLamps, str(tmp_path))
    plain, env = make_vec_env(make, 4), ray_envs(make, 4, 2)
    assert (env.observation_space, env.action_space) == (plain.observation_space, plain.action_space)
    assert env.metadata == plain.metadata
    pids = env.env_method("process")
    assert len(set(pids)) == 2
    assert os.getpid() not in pids
    assert env.env_method("hash_seed") == ["0"] * 4
    wanted = play(plain)
    np.testing.assert_equal(play(env), wanted)
    np.testing.assert_equal(play(env, at={5: lambda: kill(env, 0)}), wanted)
    again = env.env_method("process")
    assert again[2:] == pids[2:]
    assert pids[0] not in again
    env.set_attr("note", "some", indices=[0, 2])
    assert env.get_attr("note", indices=[2]) == ["some"]
    assert not env.has_attr("note")
    assert env.env_is_wrapped(Monitor) == [True] * 4
    assert env.get_attr("unwrapped")[0].moves == 3

    family = {os.getpid(), *relatives(os.getpid())}
    assert any("raylet" in psutil.Process(pid).name() for pid in family)
    assert outside(family) == [], "Ray listens on the loopback interface only"
    started = [psutil.Process(pid).environ() for pid in family if "raylet" in psutil.Process(pid).name()]
    assert [about["RAY_USAGE_STATS_ENABLED"] for about in started] == ["0"]
    folder = RayConnection._folder
    assert folder is not None
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "token").stat().st_mode & 0o777 == 0o600
    assert os.environ["RAY_AUTH_TOKEN_PATH"] == str(folder / "token")


# ---------------------------------------------------------------------- the same results


GROUPS = {"group_size": 2}
TASKS: dict[str, tuple[str, dict[str, Any], dict[str, tuple[type[LLMOnPolicyAlgorithm], dict[str, Any], set[int]]]]] = {
    "listed": (
        "MultiKey-v0",
        {"k": 1, "d": 0},
        {
            "POAD": (POAD, {}, {1, 4}),
            "GRPO": (GRPO, GROUPS, {4}),
            "TWOSOME": (TWOSOME, {"action_sampling": "candidates"}, {4}),
        },
    ),
    "code": (CODE, {"data": "synthetic"}, {"POAD": (POAD, {}, {2})}),
    "free": ("RayUsers/Spelling-v0", {}, {"GRPO": (GRPO, {"action_sampling": "free", **GROUPS}, {2})}),
}
"""Environment, its arguments, and methods with their arguments and numbers of actors."""


@pytest.mark.process
@pytest.mark.parametrize("kind", TASKS)
def test_weights_do_not_depend_on_the_number_of_actors(kind: str, ray_envs: Callable[..., RayVecEnv]) -> None:
    env_id, env_kwargs, methods = TASKS[kind]

    def trained(name: str, env: VecEnv) -> Any:
        method, settings, _ = methods[name]
        more = {"n_steps": 4, "batch_size": 16, "seed": 3, "policy_kwargs": {"critic_arch": (16,)}, **settings}
        if kind != "listed":
            more |= {"max_new_tokens": 12, "n_steps": 1}
        model = method("LLMPolicy", env, **more).learn(3 * more["n_steps"] * env.num_envs)
        assert model.rollout_buffer.all_samples().advantages.any()
        return everything(model)

    local = make_envs(env_id, env_kwargs, 4)
    wanted = {name: trained(name, local) for name in methods}
    for n_actors in sorted(set.union(*(numbers for *_, numbers in methods.values()))):
        env = ray_envs(env_id, 4, n_actors, env_kwargs=env_kwargs)
        for name, (*_, numbers) in methods.items():
            if n_actors in numbers:
                assert trained(name, env) == wanted[name], (name, n_actors)


@pytest.mark.process
def test_an_error_of_an_environment_is_raised_as_it_is(ray_envs: Callable[..., RayVecEnv], tmp_path: Path) -> None:
    env = ray_envs(partial(BrokenLamps, str(tmp_path)), 4, 2)
    pids = env.env_method("process")
    env.reset()
    waits = np.stack([env.action_space.encode("wait")] * 4)
    with pytest.raises(ValueError, match=r"^the lamp is broken$"):
        env.step(waits)
    assert env.env_method("process") == pids, "the actors live on"
    env.reset()
    assert env.step(env.action_space.encode("press the red button")[None].repeat(4, 0))[1].shape == (4,)
    with pytest.raises(AttributeError, match="nothing"):
        env.get_attr("nothing")
    with pytest.raises(RuntimeError, match="the server is busy"):  # an error that cannot be loaded here
        env.step(env.action_space.encode("press the green button")[None].repeat(4, 0))


# ---------------------------------------------------------------------- lost actors


@pytest.mark.process
@pytest.mark.parametrize("kind", [TracedLamps, LampsElsewhere])
def test_an_actor_dies_in_mid_step(kind: type[TracedLamps], ray_envs: Callable[..., RayVecEnv], tmp_path: Path) -> None:
    wanted = play(make_vec_env(partial(kind, str(tmp_path)), 4), 4)
    env = ray_envs(partial(kind, str(tmp_path), 0.5), 4, 2)
    pids = env.env_method("process")
    before = {pid: 0 for pid in pids}

    def strike() -> None:
        """Kill the second actor once its next step is under way."""
        marks = len(list(tmp_path.glob(f"{pids[3]}-*")))

        def wait_and_kill() -> None:
            until(lambda: len(list(tmp_path.glob(f"{pids[3]}-*"))) > marks)
            os.kill(pids[3], signal.SIGKILL)

        threading.Thread(target=wait_and_kill).start()

    np.testing.assert_equal(play(env, 4, {2: strike}), wanted)
    moves = {pid: len(list(tmp_path.glob(f"{pid}-*"))) for pid in before}
    assert moves[pids[0]] == 2 * 4, "the step of the living actor was not repeated"
    assert env.env_method("process", indices=[0, 1]) == pids[:2]
    assert not alive({pids[3]})


@pytest.mark.process
@pytest.mark.parametrize("lost", [False, True])
def test_an_interrupted_wait_is_repeated(
    ray_envs: Callable[..., RayVecEnv], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    """Answers that were there before it are kept, and no actor makes the step again."""
    make = partial(TracedLamps, str(tmp_path))
    env, alone = ray_envs(make, 4, 2), make_vec_env(make, 4)
    for vector in (env, alone):
        vector.seed(3)
    np.testing.assert_equal(env.reset(), alone.reset())
    actions = np.stack([env.action_space.encode("wait")] * 4)
    get, answers = ray_vec_env.get, []

    def interrupted(answer: Any, seconds: float) -> Any:
        answers.append(answer)
        if len(answers) == 2:
            raise KeyboardInterrupt
        return get(answer, seconds)

    pids = env.env_method("process")
    env.step_async(actions)
    with monkeypatch.context() as patch:
        patch.setattr(ray_vec_env, "get", interrupted)
        with pytest.raises(KeyboardInterrupt):
            env.step_wait()
    if lost:
        os.kill(pids[0], signal.SIGKILL)
    with pytest.raises(RuntimeError, match="they are stepping"):
        env.step_async(actions)
    for _ in range(3):
        np.testing.assert_equal(env.step_wait()[:3], alone.step(actions)[:3])
        env.step_async(actions)


@pytest.mark.process
def test_a_stopped_actor_is_replaced_and_a_slow_one_is_not(ray_envs: Callable[..., RayVecEnv], tmp_path: Path) -> None:
    wanted = play(make_vec_env(partial(TracedLamps, str(tmp_path)), 2), 5)
    env = ray_envs(partial(TracedLamps, str(tmp_path), 1.5), 2, 2, step_seconds=LOST)
    slow, stopped = env.env_method("process")
    np.testing.assert_equal(play(env, 5, {3: lambda: kill(env, 1, signal.SIGSTOP)}), wanted)
    until(lambda: not alive({stopped}), 30)
    again = env.env_method("process")
    assert again[0] == slow
    assert again[1] != stopped


@pytest.mark.process
def test_without_a_state_the_actions_are_repeated_and_two_lost_actors_start_side_by_side(
    ray_envs: Callable[..., RayVecEnv], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_vec_env, "_SECONDS_TO_NOTICE", 60.0)  # of a busy machine too
    env_id = "ray_users:RayUsers/Doors-v0"
    env = ray_envs(env_id, 3, 2)
    dies = {3: lambda: kill(env, 0), 10: lambda: (kill(env, 0), kill(env, 2))}
    np.testing.assert_equal(play(env, 14, dies), play(make_envs(env_id, {}, 3), 14))  # type: ignore[arg-type]
    done = ["lost" if "was lost" in line else "again" for line in caplog.messages if "Actor" in line or "actor" in line]
    assert done == ["lost", "again", "lost", "lost", "again", "again"]


@pytest.mark.process
def test_refuses_to_repeat_unsteady_environments(ray_envs: Callable[..., RayVecEnv]) -> None:
    env = ray_envs(UnsteadyDoors, 8, 1)
    with pytest.raises(WorkerError, match=r"same results for the same seed and actions; environment \d of the actor"):
        play(env, 8, {6: lambda: kill(env, 0)})


@pytest.mark.process
def test_a_checkpoint_goes_on_with_other_actors(ray_envs: Callable[..., RayVecEnv], tmp_path: Path) -> None:
    make = partial(TracedLamps, str(tmp_path))

    def agent(env: VecEnv) -> POAD:
        return POAD("LLMPolicy", env, n_steps=4, batch_size=8, seed=0)

    straight = everything(agent(make_vec_env(make, 4)).learn(48))
    first = agent(ray_envs(make, 4, 2)).learn(16)
    first.save(tmp_path / "latest.zip")
    assert first.env is not None
    first.env.close()
    with pytest.raises(WorkerError, match=r"Expected open environments; their actors are closed\. Fix: make new"):
        first.env.reset()
    again = POAD.load(tmp_path / "latest.zip", ray_envs(make, 4, 1))
    assert everything(again.learn(32, reset_num_timesteps=False)) == straight


# ---------------------------------------------------------------------- the sandboxes of a cluster

_SPY = """
import glob, os, socket, subprocess, sys
from sklearn.naive_bayes import GaussianNB

def attempts():
    yield from os.environ
    yield from map(str, sys.argv)
    for pattern in ("/proc/*/environ", "/proc/*/cmdline", PATH, "/tmp/le-ray-*/token", os.path.expanduser("~/.ray/*")):
        for path in [PATH, *glob.glob(pattern)]:
            try:
                yield open(path, "rb").read().decode("latin-1")
            except OSError:
                pass
    try:
        yield subprocess.run(["env"], capture_output=True, text=True).stdout
    except OSError:
        pass
    try:
        socket.create_connection(("127.0.0.1", PORT), 1).close()
        yield "RAY_AUTH"
    except OSError:
        pass

def is_found():
    return any("RAY_AUTH" in text or TOKEN in text for text in attempts())

def build_model(x_train, y_train):
    if is_found():
        raise ValueError("found")
    return GaussianNB().fit(x_train, y_train)
"""


@pytest.mark.process
def test_actors_of_the_sandboxes_of_a_cluster_whose_code_finds_no_token(ray_envs: Callable[..., RayVecEnv]) -> None:
    import ray

    env = ray_envs(CODE, 2, 2, env_kwargs={"data": "synthetic"}, demand=None)
    program = "from sklearn.naive_bayes import GaussianNB\nreturn GaussianNB().fit(x_train, y_train)"
    rewards = []
    for vector in (env, make_envs(CODE, {"data": "synthetic"}, 2)):
        vector.reset()
        rewards.append(vector.step(np.stack([vector.action_space.encode(program)] * 2))[1])
    np.testing.assert_array_equal(*rewards)
    assert all(rewards[0] > 0)

    path = Path(os.environ["RAY_AUTH_TOKEN_PATH"])
    port = int(ray.get_runtime_context().gcs_address.rpartition(":")[2])
    token = path.read_text()
    spy = f"PATH, PORT = {str(path)!r}, {port}\nTOKEN = {token[:5]!r} + {token[5:]!r}\n{_SPY}"
    scope: dict[str, Any] = {}
    exec(spy, scope)
    assert scope["is_found"](), "outside of the sandbox the token is found"
    for program in (spy, spy.replace("if is_found()", "if not is_found()")):
        infos = env.step(np.stack([env.action_space.encode(program)] * 2))[3]
        status = Status.OK if program is spy else Status.RUNTIME_ERROR
        assert [info["status"] for info in infos] == [status] * 2, infos
