"""Who plays the episodes: in this process, in threads, or in processes; results come in the order of the plan."""

from __future__ import annotations

import atexit
import json
import signal
import threading
import time
import traceback
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from enum import StrEnum
from multiprocessing import get_context
from typing import Any, NamedTuple

from lang_bench.agents.base import Agent, AgentError
from lang_bench.agents.callables import memory_of
from lang_bench.runner.episodes import Step, make_text_env, play_episode
from lang_bench.runner.errors import AgentFailedError, BenchmarkError
from lang_bench.runner.plan import Identity, Job, Plan
from lang_bench.runner.records import episode_record, step_records
from lang_envs.errors import LangEnvsError, RewardError
from lang_envs.report.results import check_step
from lang_envs.wrappers import TextAction
from poad_sb3.common.episode_lines import discount_of, encode
from poad_sb3.distributed.job_executor import end_with_parent
from poad_sb3.distributed.ray_executor import RayExecutor
from poad_sb3.errors import PoadError

_loading = threading.Lock()
"""Lock around loading: Transformers loads one model at a time; two threads at once may leave weights empty."""
_AHEAD = 4
"""Maximum number of episodes for each worker that are running or waiting; a kill loses no more."""


class Workers(StrEnum):
    """Where episodes are played."""

    PROCESSES = "processes"
    THREADS = "threads"


class Played(NamedTuple):
    """An episode that is over.

    Attributes:
        job: The episode.
        record: Line of the episode.
        steps: Lines of the steps, if the plan records them.
        seconds: Wall time of the episode.
    """

    job: Job
    record: dict[str, Any]
    steps: list[dict[str, Any]]
    seconds: float


class Player:
    """Plays the episodes of a plan one after the other, with one agent and one environment at a time.

    Args:
        plan: The plan to play.
        agent_name: Name of the agent in the lines.
    """

    def __init__(self, plan: Plan, agent_name: str = "") -> None:
        self.plan, self.agent_name = plan, agent_name
        self._agent: tuple[object, Agent] | None = None
        self._env: tuple[str, TextAction] | None = None

    def identity(self, seed: int) -> Identity:
        """Return name and settings of the agent of a seed.

        Raises:
            AgentFailedError: If code of a user or another package fails to make the agent.
        """
        try:
            agent = self._agent_of(seed)
        except (LangEnvsError, PoadError, BenchmarkError, OSError):
            raise
        except (Exception, SystemExit) as error:
            raise AgentFailedError(
                f"Expected {self.plan.agent!r} to make an agent; got {type(error).__name__}: {str(error).rstrip('.')}. "
                "Fix: correct the cause.",
                "".join(traceback.format_exception(error)),
            ) from None
        return Identity(agent.name, agent.settings, agent.incidental)

    def play(self, job: Job) -> Played:
        """Play an episode.

        Raises:
            AgentFailedError: For any exception, with the episode's name; the original error as text.
        """
        started = time.perf_counter()
        try:
            agent, env, discount = self._agent_of(job.seed), self._env_of(job.env), discount_of(job.env)
            steps: list[Step] = []
            result = play_episode(env, agent, job.reset_seed, discount, steps.append if self.plan.steps else None)
            record, lines = episode_record(job, self.agent_name, discount, result), step_records(job, steps)
            for line in lines:
                check_step(json.loads(encode(line)))  # as it will be read
        except (Exception, SystemExit) as error:  # third-party code may call exit(), and the run would end as if done
            # As text: an agent's exception need not survive pickling. The message of our own errors is enough.
            whole = "" if isinstance(error, AgentError | RewardError) else "".join(traceback.format_exception(error))
            raise AgentFailedError(
                f"Expected {job} to be played to its end; got {type(error).__name__}: {str(error).rstrip('.')}. "
                "Fix: correct the cause. The episodes before it are kept, and the same command resumes.",
                whole,
            ) from None
        return Played(job, record, lines, time.perf_counter() - started)

    def _agent_of(self, seed: int) -> Agent:
        from lang_bench.agents import make_agent

        spec, settings = self.plan.agent_of(seed)
        if self._agent is None or self._agent[0] != (spec, settings):
            self._close_agent()
            with _loading:
                self._agent = (spec, settings), make_agent(spec, **settings)
        return self._agent[1]

    def _env_of(self, env_id: str) -> TextAction:
        if self._env is None or self._env[0] != env_id:
            self._close_env()
            self._env = env_id, make_text_env(env_id, self.plan.env_settings)
        return self._env[1]

    def _close_agent(self) -> None:
        held, self._agent = self._agent, None
        if held is None:
            return
        try:
            held[1].close()
        except Exception as error:  # of third-party code, after its episodes
            warnings.warn(
                f"Expected {self.plan.agent!r} to close; got {type(error).__name__}: {error}. The episodes are kept.",
                RuntimeWarning,
                stacklevel=2,
            )

    def _close_env(self) -> None:
        held, self._env = self._env, None
        if held is not None:
            held[1].close()

    def close(self) -> None:
        """Free the resources of agent and environment."""
        try:
            self._close_agent()
        finally:
            self._close_env()


def play_all(
    player: Player, jobs: Sequence[Job], n_workers: int, workers: Workers, ray: str | None = None
) -> Iterator[Played]:
    """Play episodes, and yield them in the given order, independent of the order of completion.

    Args:
        player: Player for a single worker; further workers get players of the same plan.
        jobs: Jobs to play.
        n_workers: Number of episodes that are played at a time.
        workers: Kind of workers that play.
        ray: Address of a Ray cluster whose actors play instead; see `RayConnection`.

    Raises:
        AgentFailedError: At the first episode, in this order, that fails.
        BenchmarkError: If threads would share an agent.
    """
    if not jobs or (ray is None and (n_workers == 1 or len(jobs) < 2)):
        yield from map(player.play, jobs)
        return
    n_workers, players = max(1, min(n_workers, len(jobs))), list[Player]()
    if ray is None and workers is Workers.THREADS:
        players = _players_of_threads(player.plan, player.agent_name, n_workers)
    executor = _executor((player.plan, player.agent_name), n_workers, ray, players)
    waiting, waits = deque[Future[Played]](), True
    try:
        for job in jobs:
            with _interrupts_held():
                waiting.append(executor.submit(_play_here, job))
            if any(future.done() and future.exception() for future in waiting):
                break  # begin no further job: the run ends with it
            if len(waiting) >= _AHEAD * n_workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenExecutor as error:
        raise AgentFailedError(
            "Expected the worker processes to live; one of them was ended from outside or ended itself, perhaps for "
            "want of memory. Fix: fewer --workers. What was written is kept, and the same command resumes."
        ) from error
    except KeyboardInterrupt:  # an agent may never answer, and its episode is not kept
        waits = isinstance(executor, ProcessPoolExecutor)  # it ends with its workers; at exit it may print a traceback
        if isinstance(executor, ProcessPoolExecutor):
            for process in list((executor._processes or {}).values()):
                process.kill()
        raise
    finally:
        executor.shutdown(wait=waits, cancel_futures=True)
        for created in players if waits else ():
            created.close()


def _players_of_threads(plan: Plan, agent_name: str, n: int) -> list[Player]:
    """Return a player for each thread; one agent in several would mix the memories of their episodes."""
    players = [Player(plan, agent_name) for _ in range(n)]
    if len({id(memory_of(player._agent_of(plan.first_seed))) for player in players}) < n:
        for player in players:
            player.close()
        raise BenchmarkError(
            f"Expected an agent of its own for every thread; {plan.agent!r} is one object. "
            "Fix: name its class, or a function that makes it; or --in processes."
        )
    return players


def _executor(arguments: tuple[Plan, str], n_workers: int, ray: str | None, players: list[Player]) -> Executor:
    if ray is not None:
        return RayExecutor(n_workers, ray, _begin, arguments)
    if players:
        return ThreadPoolExecutor(n_workers, initializer=_take, initargs=([*players],))
    # Spawned: no open file is inherited, least of all the lock of the results.
    return ProcessPoolExecutor(n_workers, get_context("spawn"), initializer=_start, initargs=arguments)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold Ctrl-C back while a worker may start, and in it until `_start`: its imports would end in a traceback."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_here = threading.local()
"""Player of this thread; an executor offers no other place for it."""


def _take(players: list[Player]) -> None:
    _here.player = players.pop()


def _begin(plan: Plan, agent_name: str) -> None:
    _here.player = Player(plan, agent_name)
    atexit.register(_here.player.close)


def _start(plan: Plan, agent_name: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent ends its workers
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    _begin(plan, agent_name)
    threading.Thread(target=end_with_parent, daemon=True).start()


def _play_here(job: Job) -> Played:
    played: Played = _here.player.play(job)
    return played
