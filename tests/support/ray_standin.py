"""A stand-in for Ray whose actors are objects of this process; a call runs when its answer is fetched."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any


class RayError(Exception):
    """Base class of Ray's errors."""


class RayTaskError(RayError):
    """An exception in an actor."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class GetTimeoutError(RayError, TimeoutError):
    """No answer in time."""


class UnserializableException(RayError):  # noqa: N818 - its name in Ray
    """An exception in an actor that cannot be loaded here."""


class Handle:
    """Of an actor. `is_lost` makes its calls fail."""

    def __init__(self, actor: Any) -> None:
        self.actor, self.is_lost = actor, False

    def __getattr__(self, name: str) -> Any:
        def remote(*args: Any, **kwargs: Any) -> Callable[[], Any]:
            answers: list[Any] = []

            def get() -> Any:
                if self.is_lost:
                    raise RayError("the actor died")
                try:
                    answers[:] = answers or [getattr(self.actor, name)(*args, **kwargs)]
                except Exception as error:
                    raise RayTaskError(error) from error
                return answers[0]

            return get

        return SimpleNamespace(remote=remote)


class RayStandIn(ModuleType):
    """Its module, for `sys.modules`; connected, with one node of two cores.

    Attributes:
        handles: Of all actors, in the order of their start.
    """

    exceptions = SimpleNamespace(
        RayError=RayError,
        RayTaskError=RayTaskError,
        GetTimeoutError=GetTimeoutError,
        UnserializableException=UnserializableException,
    )

    def __init__(self) -> None:
        super().__init__("ray")
        self.__spec__ = ModuleSpec("ray", None)
        self.handles: list[Handle] = []

    def is_initialized(self) -> bool:
        return True

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": {"CPU": 2.0, "sandbox": 2.0}}]

    def available_resources(self) -> dict[str, float]:
        return {"CPU": 2.0}

    def remote(self, kind: type) -> Any:
        def start(*args: Any) -> Handle:
            self.handles.append(Handle(kind(*args)))
            return self.handles[-1]

        return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=start))

    def get(self, answer: Callable[[], Any], timeout: float) -> Any:
        return answer()

    def put(self, value: Any) -> Any:
        return value

    def wait(self, answers: list[Callable[[], Any]], **_: Any) -> tuple[list[Callable[[], Any]], list[Any]]:
        for answer in answers:
            with suppress(RayError):
                answer()
        return answers, []

    def kill(self, handle: Handle, **_: Any) -> None:
        handle.is_lost = True
