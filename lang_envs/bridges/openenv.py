"""OpenEnv: a server of a task, the client of it, and the folder that hubs take (extra `openenv`).

OpenEnv has one flag for the end of an episode; `terminated` and `truncated` are in the observation here. Each WebSocket
is a session with an environment of its own, which no other can reach.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from lang_envs.bridges.text_env import TextEnv
from lang_envs.errors import LangEnvsError, missing_extra

try:
    from openenv.core import EnvClient
    from openenv.core.client_types import StepResult
    from openenv.core.env_server import create_app
    from openenv.core.env_server.interfaces import Environment
    from openenv.core.env_server.types import Action, ConcurrencyConfig, Observation, State
    from pydantic import Field
    from starlette.middleware.base import BaseHTTPMiddleware
    from starlette.responses import PlainTextResponse
except ImportError as error:
    raise missing_extra("openenv", "the package openenv, which serves environments") from error

MAX_ANSWER = 65_536
"""Maximum number of characters of an answer; a longer one is refused before it reaches an environment."""
MAX_MESSAGE = 1 << 20
"""Maximum number of bytes of a message or request; a longer message ends its connection."""
MAX_SESSIONS, IDLE_SECONDS = 64, 600.0


class LangAction(Action):  # type: ignore[misc]  # pydantic is not installed for type checks
    """An answer of a language model."""

    text: str = Field(max_length=MAX_ANSWER, description="The action, or an answer that names it.")


class LangObservation(Observation):  # type: ignore[misc]
    """What the agent reads, and how the episode stands."""

    text: str = ""
    admissible_actions: list[str] | None = None
    terminated: bool = False
    truncated: bool = False
    success: bool = False
    invalid_action: bool = False


class LangState(State):  # type: ignore[misc]
    """The episode so far."""

    task: str = ""
    episode_return: float = 0.0
    success: bool = False


class LangEnvironment(Environment[LangAction, LangObservation, LangState]):  # type: ignore[misc]
    """A task behind OpenEnv's interface.

    Args:
        task: Id of the environment.
        **kwargs: Arguments of `TextEnv`.
    """

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, task: str, **kwargs: Any) -> None:
        super().__init__()
        self._open: TextEnv | None = TextEnv(task, **kwargs)
        self._episode_id: str | None = None

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> LangObservation:
        """Begin an episode."""
        self._episode_id = episode_id
        text, info = self._env.reset(seed=seed)
        return self._observed(text, 0.0, False, False, info)

    def step(self, action: LangAction, timeout_s: float | None = None, **_: Any) -> LangObservation:
        """Do an action."""
        return self._observed(*self._env.step(action.text))

    @property
    def state(self) -> LangState:
        """The episode so far; no part of the environment that an agent is not to see."""
        return LangState(
            episode_id=self._episode_id,
            step_count=len(self._env.rewards),
            task=self._env.task,
            episode_return=self._env.episode_return,
            success=self._env.success,
        )

    def close(self) -> None:
        """Close the environment; the server does so to an idle session, whose connection stays open."""
        if self._open is not None:
            self._open.close()
            self._open = None

    @property
    def _env(self) -> TextEnv:
        if self._open is None:
            raise LangEnvsError("Expected a message in time; got one for a closed session. Fix: connect again.")
        return self._open

    def _observed(
        self, text: str, reward: float, terminated: bool, truncated: bool, info: dict[str, Any]
    ) -> LangObservation:
        return LangObservation(
            text=text,
            admissible_actions=self._env.admissible_actions,
            done=terminated or truncated,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            success=bool(info["success"]),
            invalid_action=bool(info["invalid_action"]),
            metadata={"truncated": truncated},
        )


class LangEnvClient(EnvClient[LangAction, LangObservation, LangState]):  # type: ignore[misc]
    """The client: `with LangEnvClient(base_url="http://127.0.0.1:8000").sync() as env: env.reset(seed=0)`."""

    def _step_payload(self, action: LangAction) -> dict[str, Any]:
        return {"text": action.text}

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[LangObservation]:
        ends = {"done": payload.get("done", False), "reward": payload.get("reward")}
        return StepResult(observation=LangObservation(**payload["observation"], **ends), **ends)

    def _parse_state(self, payload: dict[str, Any]) -> LangState:
        return LangState(**payload)


def make_app(task: str, *, max_sessions: int = MAX_SESSIONS, idle_seconds: float = IDLE_SECONDS, **kwargs: Any) -> Any:
    """Return the server of a task, an application for `uvicorn`.

    Args:
        task: Id of the environment.
        max_sessions: Maximum number of sessions at a time.
        idle_seconds: Seconds without a message after which a session is closed.
        **kwargs: Arguments of `TextEnv`.

    Raises:
        LangEnvsError: If the environment cannot be made, or would run programs without the full sandbox.
    """
    env = TextEnv(task, **kwargs)  # a fault is reported before anybody waits for the server
    env.close()
    if "confinement" in inspect.signature(type(env.unwrapped)).parameters:  # it runs programs
        if kwargs.setdefault("confinement", "require") != "require":
            raise LangEnvsError(
                f"Expected confinement='require' for programs that others send; got {kwargs['confinement']!r}. "
                "Fix: leave it out, on Linux."
            )
        from lang_envs.sandbox.shared import shared_sandbox  # not for Windows

        shared_sandbox("require").about()
    limits = ConcurrencyConfig(max_concurrent_envs=max_sessions, session_timeout=idle_seconds)
    make: Callable[[], Any] = lambda: LangEnvironment(task, **kwargs)  # noqa: E731
    app = create_app(make, LangAction, LangObservation, env_name=task, concurrency_config=limits, state_cls=LangState)
    app.add_middleware(BaseHTTPMiddleware, dispatch=_refuse_long)
    return app


async def _refuse_long(request: Any, answer: Callable[[Any], Any]) -> Any:
    """Refuse a body that is longer than a message, or of unknown length: uvicorn limits those of WebSockets alone."""
    if "transfer-encoding" in request.headers or int(request.headers.get("content-length", 0)) > MAX_MESSAGE:
        return PlainTextResponse(f"Expected a body of at most {MAX_MESSAGE} bytes.", status_code=413)
    return await answer(request)


def serve(task: str, *, host: str = "127.0.0.1", port: int = 8000, **kwargs: Any) -> None:
    """Serve a task until the process is interrupted; see `make_app`."""
    import uvicorn

    uvicorn.run(make_app(task, **kwargs), host=host, port=port, ws_max_size=MAX_MESSAGE, log_level="warning")
