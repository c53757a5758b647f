"""Environments in parts: one vector to SB3, turns to the algorithm, and results that do not depend on timing."""

from __future__ import annotations

import gc
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv, VecMonitor, VecNormalize
from toy import LampEnv, everything

from lang_envs.core import Outcome
from poad_sb3 import NTPO, POAD, TWOSOME
from poad_sb3.common.on_policy_algorithm import LLMOnPolicyAlgorithm
from poad_sb3.vec_env.make_envs import make_envs
from poad_sb3.vec_env.pipelined import PipelinedVecEnv, make_pipelined_envs
from poad_sb3.vec_env.text_observations import VecAdmissibleObservation

N, ENVS = 8, 4
ROLLOUT = N * ENVS


class SlowLamps(LampEnv):
    """Lamps whose moves take a random time."""

    def _move(self, reward: float) -> Outcome:
        time.sleep(random.Random().expovariate(500))  # unseeded: timing is not known
        return super()._move(reward)


def lamps(*sizes: int, make: Callable[[], gym.Env[Any, Any]] = SlowLamps) -> VecEnv:
    """Four of them: all together, or in parts of these sizes."""
    vectors = [DummyVecEnv([lambda: Monitor(make())] * size) for size in sizes or (ENVS,)]
    return PipelinedVecEnv(vectors) if len(sizes) > 1 else vectors[0]


def agent(env: VecEnv, kind: type[LLMOnPolicyAlgorithm] = POAD, **more: Any) -> LLMOnPolicyAlgorithm:
    settings = {"n_steps": N, "batch_size": 8, "n_epochs": 2, "seed": 3, "policy_kwargs": {"critic_arch": (16,)}}
    return kind("LLMPolicy", env, **{**settings, **more})


def at_rest(env: VecEnv | None) -> bool:
    assert isinstance(env, PipelinedVecEnv)
    return all(stepper._pending is None for stepper in env._steppers)


class Note(BaseCallback):
    """Records the view of callbacks, step by step; stops or fails on demand."""

    def __init__(self, at: int = 0, what: Callable[[], bool] | None = None) -> None:
        super().__init__()
        self.seen: list[Any] = []
        self.at, self.what = at, what

    def _on_step(self) -> bool:
        names = ("actions", "rewards", "dones")
        step = [self.locals[name].tolist() for name in names]
        infos = [{key: info[key] for key in ("colour", "success")} for info in self.locals["infos"]]
        self.seen.append((self.num_timesteps, *step, infos, self.locals["new_obs"]["text"].tolist()))
        if isinstance(self.training_env, PipelinedVecEnv):
            assert at_rest(self.training_env), "between two steps nothing is under way"
        return self.what() if self.what is not None and self.num_timesteps == self.at else True


# ---------------------------------------------------------------------- one vector


def layouts() -> dict[str, Callable[[], VecEnv]]:
    def nested() -> VecEnv:
        return PipelinedVecEnv([make_pipelined_envs(short, 2, 2), lamps(2, make=short)])

    short = partial(LampEnv, moves=2)
    make, processes = partial(lamps, make=short), partial(SubprocVecEnv, [short], start_method="forkserver")
    return {
        "two": partial(make, 2, 2),
        "uneven": partial(make, 1, 3),
        "each alone": partial(make, 1, 1, 1, 1),
        "nested": nested,
        "processes": lambda: PipelinedVecEnv([processes(), make(3)]),
        "observed outside": lambda: VecAdmissibleObservation(make(2, 2)),
        "observed inside": lambda: make(2, 2).wrapped(VecAdmissibleObservation),  # type: ignore[attr-defined]
        "monitored outside": lambda: VecMonitor(PipelinedVecEnv([DummyVecEnv([short] * 2) for _ in range(2)])),
    }


@pytest.mark.matrix_after(1)
@pytest.mark.parametrize("layout", layouts())
def test_parts_are_the_same_environments(layout: str) -> None:
    plain, pipelined = lamps(make=partial(LampEnv, moves=2)), layouts()[layout]()
    if layout.startswith("observed"):
        plain = VecAdmissibleObservation(plain)
    assert pipelined.num_envs == ENVS
    assert (pipelined.observation_space, pipelined.action_space) == (plain.observation_space, plain.action_space)
    assert list(plain.seed(5)) == list(pipelined.seed(5)) == [5, 6, 7, 8]
    first = [env.reset() for env in (plain, pipelined)]
    np.testing.assert_equal(*first)
    assert pipelined.unwrapped.reset_infos == plain.unwrapped.reset_infos
    chosen, ended = np.random.default_rng(0), 0
    for _ in range(5):
        listed = plain.env_method("admissible_actions")
        assert [list(one) for one in pipelined.env_method("admissible_actions")] == listed
        actions = np.stack([plain.action_space.encode(str(chosen.choice(actions))) for actions in listed])
        (obs, rewards, dones, infos), (obs_, rewards_, dones_, infos_) = plain.step(actions), pipelined.step(actions)
        np.testing.assert_equal(obs_, obs)
        np.testing.assert_allclose(rewards_, rewards)
        np.testing.assert_equal(dones_, dones)
        assert [without_clock(info) for info in infos_] == [without_clock(info) for info in infos]
        assert list(pipelined.unwrapped.reset_infos) == list(plain.unwrapped.reset_infos)
        ended += sum(dones)
    assert ended == 2 * ENVS
    pipelined.close()


def without_clock(info: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in info.items() if key != "episode"}


def test_attributes_and_methods_by_place() -> None:
    env = lamps(1, 3)
    env.set_attr("note", "all")
    env.set_attr("note", "some", indices=[0, 2])
    assert env.get_attr("note") == ["some", "all", "some", "all"]
    assert env.get_attr("note", indices=[3, 2]) == ["all", "some"]
    assert env.get_attr("note", indices=-2) == ["some"]
    assert env.has_attr("note")
    assert not env.has_attr("nothing")
    with pytest.raises(IndexError):
        env.get_attr("note", indices=[4])
    env.reset()
    assert [state["env"] for state in env.env_method("get_state", indices=[1])] == [
        env.env_method("get_state")[1]["env"]
    ]
    assert env.env_is_wrapped(Monitor) == [True] * ENVS
    assert env.env_is_wrapped(gym.wrappers.TimeLimit, indices=[2]) == [False]
    assert not env.parts[0].has_attr("nothing")  # type: ignore[attr-defined]


def test_options_and_images_by_place() -> None:
    class Options(LampEnv):
        def _restart(self, options: Any) -> None:
            self.options = dict(options)
            super()._restart(options)

        def render(self) -> Any:
            return np.full((2, 2, 3), self.options.get("place", 9), dtype=np.uint8)

    def make() -> Options:
        env = Options()
        env.render_mode = "rgb_array"
        return env

    env = lamps(1, 3, make=make)
    env.set_options([{"place": place} for place in range(ENVS)])
    env.reset()
    assert env.get_attr("options") == [{"place": place} for place in range(ENVS)]
    assert [int(image[0, 0, 0]) for image in env.get_images()] == [0, 1, 2, 3]  # type: ignore[index]
    assert env.render().shape == (4, 4, 3)  # type: ignore[union-attr]
    env.set_options({"place": 7})
    env.reset()
    assert env.get_attr("options") == [{"place": 7}] * ENVS
    env.reset()
    assert env.get_attr("options") == [{}] * ENVS, "options are for one reset"


def test_what_cannot_be_grouped_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Expected at least one part .* Fix: PipelinedVecEnv"):
        PipelinedVecEnv([])
    short = DummyVecEnv([lambda: gym.make("KeyToken-v0")])
    with pytest.raises(ValueError, match=r"Expected parts with one observation_space; part 1 has .* Fix: make them"):
        PipelinedVecEnv([lamps(), short])
    seen = VecAdmissibleObservation(lamps(make=LampEnv))
    with pytest.raises(ValueError, match=r"part 1 has a VecNormalize. Fix: wrap the whole"):
        PipelinedVecEnv([seen, VecNormalize(seen, norm_obs=False)])
    for n_parts in (0, 3):
        with pytest.raises(ValueError, match=rf"Expected between 1 and 2 parts.*; got {n_parts}\. Fix"):
            make_pipelined_envs(LampEnv, 2, n_parts)


def test_a_group_makes_one_step_at_a_time() -> None:
    env = lamps(2, 2)
    assert isinstance(env, PipelinedVecEnv)
    env.reset()
    with pytest.raises(RuntimeError, match=r"Expected a step in progress; .* Fix: call begin\(\)"):
        env.wait(1)
    waits = np.stack([env.action_space.encode("wait")] * 2)
    env.begin(1, waits)
    with pytest.raises(RuntimeError, match=r"Expected an idle part; .* Fix: wait\(\)"):
        env.begin(1, waits)
    assert env.get_attr("left") == [3, 3, 2, 2], "what is asked meanwhile waits for the step"
    assert env.wait(1)[1].tolist() == pytest.approx([-0.1, -0.1])
    env.begin(0, waits)
    env.reset()
    assert env.get_attr("left") == [3] * ENVS
    with pytest.raises(RuntimeError, match="the part has none"):
        env.wait(0)


# ---------------------------------------------------------------------- the same training

WAYS: dict[str, tuple[type[LLMOnPolicyAlgorithm], dict[str, Any]]] = {
    "trie": (POAD, {}),
    "candidates": (TWOSOME, {}),
    "free": (NTPO, {"action_sampling": "free", "max_new_tokens": 4, "top_p": 0.95}),
    "history": (POAD, {"policy_kwargs": {"critic_arch": (16,), "prompt": {"kind": "completion", "history": 2}}}),
}


def assert_same_training(one: LLMOnPolicyAlgorithm, other: LLMOnPolicyAlgorithm) -> None:
    """To rounding: rows go through the model in other company."""
    theirs = other.policy.state_dict()
    for name, tensor in one.policy.state_dict().items():
        torch.testing.assert_close(tensor, theirs[name], rtol=1e-3, atol=1e-4, msg=lambda said, name=name: name + said)
    for mine, yours in zip(one.policy.rollout_rngs, other.policy.rollout_rngs, strict=True):
        assert mine.bit_generator.state == yours.bit_generator.state
    counted = [[(round(e["r"], 4), e["l"]) for e in model.ep_info_buffer or ()] for model in (one, other)]
    assert counted[0] == counted[1] != []
    states = [[repr(state) for state in model.env.env_method("get_state")] for model in (one, other)]  # type: ignore[union-attr]
    assert states[0] == states[1]


@pytest.mark.matrix_after(1)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("sizes", [(2, 2), (1, 2, 1)])
def test_parts_train_as_one(way: str, sizes: tuple[int, ...]) -> None:
    kind, settings = WAYS[way]
    together, apart = agent(lamps(), kind, **settings), agent(lamps(*sizes), kind, **settings)
    notes = Note(), Note()
    start = {name: tensor.clone() for name, tensor in together.policy.state_dict().items()}
    together.learn(3 * ROLLOUT, notes[0])
    apart.learn(3 * ROLLOUT, notes[1])
    assert len(notes[0].seen) == 3 * N
    assert notes[1].seen == notes[0].seen
    assert any(
        not torch.equal(start[name], one) for name, one in together.policy.state_dict().items() if "lora" in name
    )
    assert_same_training(apart, together)
    assert at_rest(apart.env)


@pytest.mark.matrix
def test_the_same_groups_train_the_same_bit_for_bit() -> None:
    first, second = (everything(agent(lamps(2, 2)).learn(3 * ROLLOUT)) for _ in range(2))
    assert first == second


class Turns:
    """Counts how often the model has begun to act; a step waits for the number that says that both are under way."""

    def __init__(self) -> None:
        self.acts, self.changed = 0, threading.Condition()

    def reach(self, acts: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.acts >= acts, timeout=30), "the model waits for this step"


class PatientLamps(LampEnv):
    """A lamp of part A (or B) that moves when the model acts for B (or, next, for A)."""

    def __init__(self, turns: Turns, part: int) -> None:
        super().__init__()
        self.turns, self.part, self.moves_made = turns, part, 0

    def _move(self, reward: float) -> Outcome:
        last_of_rollout = self.moves_made % N == N - 1
        if not (self.part == 1 and last_of_rollout):
            self.turns.reach(2 * self.moves_made + self.part + 2)
        self.moves_made += 1
        return super()._move(reward)


def test_environments_step_while_the_model_acts_for_others() -> None:
    turns = Turns()
    parts = [DummyVecEnv([partial(PatientLamps, turns, part)]) for part in range(2)]
    model = agent(PipelinedVecEnv(parts))
    act = model.policy.act

    def count(*args: Any, **kwargs: Any) -> Any:
        with turns.changed:
            turns.acts += 1
            turns.changed.notify_all()
        return act(*args, **kwargs)

    model.policy.act = count  # type: ignore[method-assign]
    model.learn(2 * N * 2)
    assert turns.acts == 2 * 2 * N


def test_environments_of_a_part_step_at_once() -> None:
    barrier = threading.Barrier(2, timeout=30)

    class Meets(LampEnv):
        def _move(self, reward: float) -> Outcome:
            barrier.wait()
            return super()._move(reward)

    agent(make_pipelined_envs(Meets, ENVS)).learn(ROLLOUT)
    assert not barrier.broken


# ---------------------------------------------------------------------- stopping and going on


@pytest.mark.matrix_after(1)
@pytest.mark.parametrize("sizes", [(), (2, 2), (1, 3)])
@pytest.mark.parametrize("place", [ROLLOUT // 2, ROLLOUT + ENVS, 2 * ROLLOUT])
def test_a_callback_that_stops_leaves_no_trace_of_what_was_chosen_ahead(sizes: tuple[int, ...], place: int) -> None:
    together, apart = agent(lamps()), agent(lamps(*sizes))
    for model in (together, apart):
        model.learn(4 * ROLLOUT, Note(place, lambda: False))
        assert model.num_timesteps == place
    assert_same_training(apart, together)
    notes = Note(), Note()
    together.learn(ROLLOUT, notes[0], reset_num_timesteps=False)
    apart.learn(ROLLOUT, notes[1], reset_num_timesteps=False)
    assert notes[0].seen == notes[1].seen
    assert_same_training(apart, together)


def test_an_error_of_a_callback_leaves_a_state_to_go_on_from(tmp_path: Path) -> None:
    def fail() -> bool:
        raise KeyboardInterrupt

    model = agent(lamps(2, 2))
    with pytest.raises(KeyboardInterrupt):
        model.learn(4 * ROLLOUT, Note(ROLLOUT + 2 * ENVS, fail))
    assert at_rest(model.env)
    model.save(tmp_path / "model.zip")
    loaded = POAD.load(tmp_path / "model.zip", lamps(2, 2))
    for one in (model, loaded):
        one.learn(2 * ROLLOUT, reset_num_timesteps=False)
    assert everything(loaded) == everything(model)


@pytest.mark.matrix
@pytest.mark.matrix_after(1)
@pytest.mark.parametrize("way", ["trie", "history"])
@pytest.mark.parametrize("step", [ROLLOUT + ENVS, ROLLOUT + N, 2 * ROLLOUT])
def test_a_grouped_training_resumes_exactly(tmp_path: Path, way: str, step: int) -> None:
    kind, settings = WAYS[way]
    path = tmp_path / "mid.zip"
    model = agent(lamps(2, 2), kind, **settings)
    model.learn(4 * ROLLOUT, Note(step, lambda: model.save(path) or not path.exists()))  # type: ignore[func-returns-value]
    resumed = kind.load(path, lamps(2, 2))
    assert resumed.num_timesteps == 2 * ROLLOUT
    resumed.learn(2 * ROLLOUT, reset_num_timesteps=False)
    assert everything(resumed) == everything(model)


def test_a_checkpoint_knows_no_groups(tmp_path: Path) -> None:
    agent(lamps(2, 2)).learn(2 * ROLLOUT).save(tmp_path / "model.zip")
    together, apart = (POAD.load(tmp_path / "model.zip", env) for env in (lamps(), lamps(3, 1)))
    for model in (together, apart):
        model.learn(ROLLOUT, reset_num_timesteps=False)
    assert_same_training(apart, together)


# ---------------------------------------------------------------------- errors


class Faulty(LampEnv):
    """A lamp whose `at`-th move does something."""

    def __init__(self, what: Callable[[], None] | None = None, at: int = N + 3) -> None:
        super().__init__()
        self.what, self.moves_to_fault = what, at

    def _move(self, reward: float) -> Outcome:
        self.moves_to_fault -= 1
        if self.moves_to_fault == 0 and self.what is not None:
            self.what()
        return super()._move(reward)


def faulty(what: Callable[[], None], place: int) -> PipelinedVecEnv:
    """Parts of two and two; one of them fails once."""
    makes: list[Any] = [partial(Faulty, what) if place == index else Faulty for index in range(ENVS)]
    return PipelinedVecEnv([DummyVecEnv(makes[:2]), DummyVecEnv(makes[2:])])


@pytest.mark.matrix_after(1)
@pytest.mark.parametrize("place", [0, 3])
@pytest.mark.parametrize("error", [ConnectionError("the simulator is gone"), SystemExit(3)])
def test_an_error_in_a_thread_reaches_the_training(tmp_path: Path, place: int, error: BaseException) -> None:
    def fail() -> None:
        raise error

    model = agent(faulty(fail, place))
    with pytest.raises(type(error), match=str(error)) as caught:
        model.learn(4 * ROLLOUT)
    assert caught.value is error
    model.save(tmp_path / "weights.zip")
    with pytest.warns(UserWarning, match="exact_resume=False"):
        POAD.load(tmp_path / "weights.zip", lamps(2, 2)).learn(ROLLOUT, reset_num_timesteps=False)
    model.learn(2 * ROLLOUT, reset_num_timesteps=False)  # from a reset, once all have ended their steps
    assert all(np.isfinite(tensor.numpy()).all() for tensor in model.policy.state_dict().values())


def test_an_error_in_a_step_of_all_leaves_nothing_under_way() -> None:
    def fail() -> None:
        raise ConnectionError("the simulator is gone")

    env = PipelinedVecEnv([DummyVecEnv([partial(Faulty, fail, 1)]), DummyVecEnv([partial(Faulty, None, 1)])])
    env.reset()
    waits = np.stack([env.action_space.encode("wait")] * 2)
    with pytest.raises(ConnectionError, match="the simulator is gone"):
        env.step(waits)
    assert at_rest(env)
    assert env.step(waits)[1].shape == (2,)


@pytest.mark.process
def test_a_worker_of_a_part_that_is_killed_is_named() -> None:
    workers = SubprocVecEnv([LampEnv] * 2, start_method="forkserver")
    step_async, left = workers.step_async, [N + 2]

    def step_and_kill(actions: Any) -> None:
        step_async(actions)
        left[0] -= 1
        if left[0] == 0:
            workers.processes[1].kill()
            wait([workers.processes[1].sentinel])

    workers.step_async = step_and_kill  # type: ignore[method-assign]
    try:
        model = agent(PipelinedVecEnv([lamps(2), workers]))
        with pytest.raises(RuntimeError, match=r"an answer of every environment; .*\(environment 3, exit code -9\)"):
            model.learn(4 * ROLLOUT)
    finally:
        for process in workers.processes:
            process.kill()
            process.join()
        workers.closed = True


@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupt_does_not_wait_for_a_step() -> None:
    held = threading.Event()

    def hang() -> None:
        time.sleep(0.5)  # a signal in the moment before Python begins to wait is noticed when it has waited
        os.kill(os.getpid(), signal.SIGINT)  # Ctrl-C, while the main thread waits for this step
        assert held.wait(60)

    model = agent(faulty(hang, 1))
    with pytest.raises(KeyboardInterrupt):
        model.learn(4 * ROLLOUT)
    env = model.env
    assert isinstance(env, PipelinedVecEnv)
    assert not at_rest(env), "the step goes on"
    threading.Timer(0.2, held.set).start()
    model.learn(ROLLOUT, reset_num_timesteps=False)  # when it has ended
    env.close()


# ---------------------------------------------------------------------- threads


def threads_of(env: PipelinedVecEnv) -> list[threading.Thread]:
    return [stepper._thread for stepper in env._steppers if stepper._thread is not None]


def test_a_group_has_one_thread_for_its_life() -> None:
    names: list[set[int]] = [set(), set()]

    class Tells(LampEnv):
        def __init__(self, part: int) -> None:
            super().__init__()
            self.part = part

        def _move(self, reward: float) -> Outcome:
            names[self.part].add(threading.get_ident())
            return super()._move(reward)

    env = PipelinedVecEnv([DummyVecEnv([partial(Tells, part)] * 2) for part in range(2)])
    assert threads_of(env) == [], "started by the first step"
    model = agent(env).learn(3 * ROLLOUT)
    assert [len(one) for one in names] == [1, 1]
    assert names[0] != names[1]
    assert threading.get_ident() not in names[0] | names[1]
    assert isinstance(model.env, PipelinedVecEnv)
    threads = threads_of(model.env)
    assert len(threads) == 2
    model.env.close()
    assert not any(thread.is_alive() for thread in threads)
    assert threads_of(model.env) == []
    model.env.close()


def test_an_ordinary_vector_needs_no_thread() -> None:
    before = set(threading.enumerate())  # threads of earlier tests may end meanwhile
    agent(lamps()).learn(ROLLOUT)
    assert set(threading.enumerate()) <= before


def test_threads_end_with_what_they_serve() -> None:
    env = lamps(2, 2)
    assert isinstance(env, PipelinedVecEnv)
    env.reset()
    env.step(np.stack([env.action_space.encode("wait")] * ENVS))
    threads = threads_of(env)
    assert all(thread.is_alive() for thread in threads)
    del env
    gc.collect()
    for thread in threads:
        thread.join(10)
    assert not any(thread.is_alive() for thread in threads)


# ---------------------------------------------------------------------- DataSciCoding

PROGRAMS = (
    "from sklearn.naive_bayes import GaussianNB\nreturn GaussianNB().fit(x_train, y_train)",
    "from sklearn.tree import DecisionTreeClassifier\nreturn DecisionTreeClassifier(max_depth=3).fit(x_train, y_train)",
    "return nothing_of_the_kind",
)


class Writes(gym.ActionWrapper[Any, Any, Any]):
    """Replaces texts of a model without Python by one of a few programs."""

    def action(self, action: Any) -> Any:
        said = self.action_space.decode_finished(action) or ""  # type: ignore[attr-defined]
        return self.action_space.encode(PROGRAMS[len(said) % len(PROGRAMS)])  # type: ignore[attr-defined]


def coding(pipelined: bool) -> VecEnv:
    def make() -> gym.Env[Any, Any]:
        return Writes(gym.make("DataSciCoding-balance-scale-v0", splits=2, max_attempts=2, cache=False))

    return make_pipelined_envs(make, ENVS) if pipelined else DummyVecEnv([lambda: Monitor(make())] * ENVS)


class Graded(BaseCallback):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, float, str]] = []

    def _on_step(self) -> bool:
        for info, reward in zip(self.locals["infos"], self.locals["rewards"], strict=True):
            self.seen.append((str(info["status"]), round(float(reward), 5), info["code"]))
        return True


@pytest.mark.matrix
def test_code_is_evaluated_in_parts_as_in_one(tmp_path: Path) -> None:
    # top_p leaves out the tail of the distribution, whose tokens are as narrow as the rounding of a sum
    settings: dict[str, Any] = {"action_sampling": "free", "max_new_tokens": 6, "top_p": 0.95, "n_steps": 4}
    graded = Graded(), Graded()
    together = agent(coding(False), NTPO, **settings).learn(3 * 4 * ENVS, graded[0])
    apart = agent(coding(True), NTPO, **settings).learn(2 * 4 * ENVS, graded[1])
    apart.save(tmp_path / "half.zip")
    apart.learn(4 * ENVS, graded[1], reset_num_timesteps=False)
    assert graded[0].seen == graded[1].seen
    assert {"ok", "runtime_error"} <= {status for status, *_ in graded[0].seen}
    for mine, theirs in zip(together.policy.parameters(), apart.policy.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4)
    resumed = NTPO.load(tmp_path / "half.zip", coding(True)).learn(4 * ENVS, reset_num_timesteps=False)
    for mine, theirs in zip(resumed.policy.parameters(), apart.policy.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    for model in (together, apart, resumed):
        model.env.close()


CODING, KEY = "DataSciCoding-balance-scale-v0", "KeyToken-v0"


@pytest.mark.parametrize(
    ("env_id", "n_envs", "n_parts", "sizes"),
    [
        (CODING, 3, None, [1, 2]),
        (CODING, 3, 1, [3]),
        (CODING, 1, None, None),
        (KEY, 3, None, None),
        (KEY, 3, 1, None),
        (KEY, 5, 2, [2, 3]),
    ],
)
def test_parts_are_made_where_they_pay(env_id: str, n_envs: int, n_parts: int | None, sizes: list[int] | None) -> None:
    env = make_envs(env_id, {}, n_envs, n_parts)
    assert (env.num_envs, type(env)) == (n_envs, DummyVecEnv if sizes is None else PipelinedVecEnv)
    assert env.env_is_wrapped(Monitor) == [True] * n_envs
    if sizes is not None:
        assert [part.num_envs for part in env.parts] == sizes  # type: ignore[attr-defined]
    env.close()


@pytest.mark.matrix
def test_a_run_of_groups_goes_on_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    from poad_sb3.cli.app import app

    monkeypatch.chdir(tmp_path)
    said = ["train", KEY, "--n-envs", "3", "--n-parts", "2", "--set", "n_steps=4", "--set", "n_epochs=1"]
    for out, parts in (("whole", [24]), ("parts", [12, 24])):
        for steps in parts:
            done = CliRunner().invoke(app, [*said, "--steps", str(steps), "--out", out, "--resume"])
            assert done.exit_code == 0, done.output
    whole, parts = (POAD.load(f"{out}/latest.zip").policy.state_dict() for out in ("whole", "parts"))
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    refused = CliRunner().invoke(app, ["train", KEY, "--n-envs", "2", "--n-parts", "3", "--out", "none"])
    assert (refused.exit_code, "between 1 and 2 parts" in refused.output) == (1, True)


# ---------------------------------------------------------------------- where the time goes


class Pause(LampEnv):
    def _move(self, reward: float) -> Outcome:
        time.sleep(0.01)
        return super()._move(reward)


def test_the_seconds_are_parts_of_the_time() -> None:
    model = agent(lamps(make=Pause))
    started = time.perf_counter()
    model.learn(ROLLOUT)
    passed = time.perf_counter() - started
    logged = model.logger.name_to_value
    seconds = {name.removeprefix("time/seconds_"): logged[name] for name in logged if name.startswith("time/seconds_")}
    assert set(seconds) == {"acting", "values", "update", "env", "overhead"}
    assert all(value > 0 for value in seconds.values())
    assert seconds["env"] >= 0.01 * ROLLOUT
    assert sum(seconds.values()) <= passed


@pytest.mark.slow
def test_waiting_is_less_where_the_model_works_meanwhile() -> None:
    def waited(env: VecEnv) -> float:
        model = agent(env)
        act = model.policy.act

        def slow(*args: Any, **kwargs: Any) -> Sequence[Any]:
            time.sleep(0.03)
            return act(*args, **kwargs)

        model.policy.act = slow  # type: ignore[method-assign]
        return float(model.learn(ROLLOUT).logger.name_to_value["time/seconds_env"])

    one, two = waited(lamps(make=Pause)), waited(lamps(2, 2, make=Pause))
    assert two < 0.5 * one


def test_parts_are_made_of_an_id_and_arguments() -> None:
    env = make_pipelined_envs("KeyToken-v0", 3, env_kwargs={"n_tokens": 2})
    assert [one.n_tokens for one in env.get_attr("unwrapped")] == [2] * 3
    env.close()
