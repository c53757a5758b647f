"""`ReplicaDistribution`: free actions that copies of the policy's model generate in Ray actors.

Prompts are divided by the rule of the policy's own decoding, which does not know the number of replicas. So any number
of them gives the same actions, and a lost one is replaced and asked again.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import socket
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import cloudpickle
import numpy as np
import safetensors.torch
import torch

from poad_sb3.distributed.ray_cluster import (
    RayConnection,
    cause_of_loss,
    check_room,
    find_modules,
    free_amounts,
    free_room,
    get,
    launch_actor,
    module_path,
    note_loss,
    room,
)
from poad_sb3.distributions.base import SampledAction, ScoreCache
from poad_sb3.distributions.free import generate
from poad_sb3.distributions.remote import RemoteDistribution
from poad_sb3.errors import ModelError, WorkerError
from poad_sb3.language_model.language_model import LanguageModel
from poad_sb3.prompts import Question
from poad_sb3.settings.sampling import SamplingSettings

__all__ = ["ModelReplica", "ReplicaDistribution"]

_SECONDS = 600.0
"""Longest wait for a replica to start, or for one answer, in seconds; then it counts as lost."""


class ModelReplica:
    """A copy of the policy's model, in an actor."""

    def make(self, path: Sequence[str], packed: bytes, *, plain_passes: bool = False) -> tuple[str, str]:
        """Make the model, and return the fingerprint of base and tokenizer, and the process in words.

        Args:
            path: Folders to find modules in, after those of this process.
            packed: Arguments of `LanguageModel`, pickled.
            plain_passes: Whether the policy has given up merged rows and caches.
        """
        find_modules(path)
        arguments: dict[str, Any] = cloudpickle.loads(packed)
        self.lm = LanguageModel(**arguments).to(arguments["device"])
        if plain_passes:
            self.lm.use_plain_passes()
        self.name = ""
        return self.lm.fingerprint, f"process {os.getpid()} on {socket.gethostname()}"

    def load(self, name: str, content: bytes) -> None:
        """Take over the weights of an adapter.

        Args:
            name: Name of the weights: version and SHA-256, `"VERSION-DIGEST"`.
            content: All trained parameters, as a safetensors file.

        Raises:
            ModelError: If the content has another digest or other parameters.
        """
        self.name = ""
        digest, weights = hashlib.sha256(content).hexdigest(), safetensors.torch.load(content)
        trained = _trained(self.lm)
        if digest != name.rpartition("-")[2] or weights.keys() != trained.keys():
            raise ModelError(
                f"Expected the weights {name} with {len(trained)} tensors; got {len(weights)} with digest {digest}. "
                "Fix: the same version of this library on every node."
            )
        with torch.no_grad():
            for key, parameter in trained.items():
                parameter.copy_(weights[key])
        self.name = name

    def generate(self, name: str, packed: bytes) -> bytes:
        """Continue prompts with the given random numbers; see `poad_sb3.distributions.free.generate`.

        Args:
            name: Name of the weights that the actions must come from.
            packed: Prompts, sampling settings and random numbers, pickled.

        Raises:
            ModelError: If the present weights are others.
        """
        if name != self.name:
            raise ModelError(f"Expected the weights {name} in a replica; it has {self.name!r}. Fix: report this error.")
        return pickle.dumps(generate(self.lm, *pickle.loads(packed)))


@dataclass
class _Call:
    """Prompts that one replica continues together."""

    number: int
    """Number of the replica."""
    packed: bytes
    handle: Any = None
    """Handle of the actor that the prompts were sent to."""
    answer: Any = None


@dataclass
class _Pool:
    """The replicas of a model.

    Args:
        packed: Arguments of `LanguageModel`, pickled.
        fingerprint: Fingerprint of base and tokenizer.
        demand: Resources that a replica takes.
        n_replicas: Number of replicas.
        plain_passes: Whether the policy has given up merged rows and caches.
    """

    packed: bytes
    fingerprint: str
    demand: dict[str, float]
    n_replicas: int
    plain_passes: bool
    name: str = ""
    content: bytes = b""
    handles: list[Any] = field(default_factory=list)
    n_losses: dict[int, int] = field(default_factory=dict)
    about: dict[int, str] = field(default_factory=dict)
    """Process and machine of each replica, for messages."""
    close: Callable[[], object] = lambda: None
    """Function that ends the replicas."""

    def start(self) -> None:
        """Start all replicas; returns when they have their models."""
        connection = RayConnection()  # before the import of Ray, which reads then where it may listen
        import ray

        self.close = weakref.finalize(self, _end, self.handles, connection)
        # In a cluster of this process nothing ends that they could wait for: its actors of environments stay.
        n_room = free_room(self.demand, self.n_replicas) if connection.is_local else room(self.demand)
        check_room(self.n_replicas, n_room, self.demand, "replicas", "generation_replicas or --n-actors")
        self.handles += [launch_actor(ModelReplica, self.demand) for _ in range(self.n_replicas)]
        starting = [self._make(handle) for handle in self.handles]
        for number, answer in enumerate(starting):
            try:
                self._check(number, get(answer, _SECONDS))
            except ray.exceptions.RayError as error:
                raise self._no_start(number, error) from error

    def _no_start(self, number: int, error: Exception) -> WorkerError:
        return WorkerError(
            f"Expected replica {number} to start within {_SECONDS:g} s; {cause_of_loss(error)} (free in the "
            f"cluster: {free_amounts(self.demand)}). Fix: fewer generation_replicas or --n-actors."
        )

    def load(self, name: str, content: bytes) -> None:
        """Send the weights of an adapter to all replicas."""
        import ray

        self.name, self.content = name, content
        shared = ray.put(content)  # once to each node
        loading = [handle.load.remote(name, shared) for handle in self.handles]
        for number, answer in enumerate(loading):
            try:
                get(answer, _SECONDS)
                self.n_losses[number] = 0
            except ray.exceptions.RayError as error:
                self._replace(number, error)

    def run(self, calls: Sequence[_Call]) -> list[list[SampledAction]]:
        """Send all calls, which each replica makes one after the other, and return their actions in order."""
        for call in calls:
            self._send(call)
        return [self._answer(call) for call in calls]

    def _send(self, call: _Call) -> None:
        call.handle = self.handles[call.number]
        call.answer = call.handle.generate.remote(self.name, call.packed)

    def _answer(self, call: _Call) -> list[SampledAction]:
        import ray

        while True:
            try:
                actions: list[SampledAction] = pickle.loads(get(call.answer, _SECONDS))
                break
            except ray.exceptions.RayError as error:
                if call.handle is self.handles[call.number]:
                    self._replace(call.number, error)
            self._send(call)
        self.n_losses[call.number] = 0
        return actions

    def _make(self, handle: Any) -> Any:
        return handle.make.remote(module_path(), self.packed, plain_passes=self.plain_passes)

    def _check(self, number: int, made: tuple[str, str]) -> None:
        fingerprint, self.about[number] = made
        if fingerprint != self.fingerprint:
            raise ModelError(
                f"Expected replicas of the policy's base model; replica {number} ({self.about[number]}) loaded another "
                "one. Fix: the same files at the same path on every node, or a revision."
            )

    def _replace(self, number: int, error: Exception) -> None:
        """Kill a lost replica and start another in its place."""
        import ray

        while True:
            self.n_losses[number] = self.n_losses.get(number, 0) + 1
            name = f"replica {number} (last as {self.about[number]})"
            note_loss(self.handles[number], name, self.n_losses[number], error)
            check_room(self.n_replicas, room(self.demand), self.demand, "replicas", "generation_replicas")
            try:
                handle = self.handles[number] = launch_actor(ModelReplica, self.demand)
                try:
                    self._check(number, get(self._make(handle), _SECONDS))
                except ray.exceptions.GetTimeoutError as late:  # no loss: it may have found no room
                    raise self._no_start(number, late) from late
                get(handle.load.remote(self.name, self.content), _SECONDS)
                return
            except ray.exceptions.RayError as again:
                error = again


def _end(handles: Sequence[Any], connection: RayConnection) -> None:
    """End the replicas, and close the connection."""
    import ray

    if ray.is_initialized():
        for handle in handles:
            ray.kill(handle, no_restart=True)
    connection.close()


class ReplicaDistribution(RemoteDistribution):
    """Ordinary sampling by replicas of the policy's model; greedy decoding and scores by the policy's own model.

    Replicas start with the first actions of several batches, and take a GPU each if the policy is on one, else a core.

    Args:
        lm: Language model with an adapter.
        sampling: Sampling settings with `generation_replicas`.

    Raises:
        ModelError: If there is no adapter to send, or several ranks.
    """

    def __init__(self, lm: LanguageModel, sampling: SamplingSettings) -> None:
        super().__init__(lm, sampling, "generation_replicas")
        self._pool: _Pool | None = None

    def close(self) -> None:
        """End the replicas; the next action starts others. In any case they end with the process."""
        if self._pool is not None:
            self._pool.close()
            self._pool, self._sent = None, ()

    def sample(
        self, questions: Sequence[Question], rngs: Sequence[np.random.Generator], cache: ScoreCache
    ) -> list[SampledAction]:
        """See `ActionDistribution.sample`.

        Raises:
            WorkerError: If the cluster has no room for the replicas, or one is lost repeatedly.
        """
        prompts = [self.prompt(question) for question in questions]
        parts = list(self.lm.decode_batches(prompts, self._sampling.max_new_tokens))
        uniforms = np.stack([rng.random(self._sampling.max_new_tokens) for rng in rngs])
        if len(parts) == 1:  # nothing to divide, as in an evaluation
            return generate(self.lm, prompts, self._sampling, uniforms)
        if self._pool is None:
            self._pool = self._start()
        self.send_weights()
        calls = []
        for number, part in enumerate(parts):
            packed = pickle.dumps(([prompts[at] for at in part], self._sampling, uniforms[part]))
            calls.append(_Call(number % self._pool.n_replicas, packed))
        found: dict[int, SampledAction] = {}
        for part, actions in zip(parts, self._pool.run(calls), strict=True):
            found.update(zip(part, actions, strict=True))
        return [found[at] for at in range(len(prompts))]

    def _start(self) -> _Pool:
        device = self.lm.base.device.type
        arguments = {**vars(self.lm.settings), "device": device}
        demand = {"CPU": 1.0} if device == "cpu" else {"GPU": 1.0}
        n_replicas, packed = self._sampling.generation_replicas, cloudpickle.dumps(arguments)
        pool = _Pool(packed, self.lm.fingerprint, demand, n_replicas, self.lm.plain_passes)
        try:
            pool.start()
        except BaseException:
            pool.close()
            raise
        return pool

    def _send_weights(self, version: int) -> None:
        assert self._pool is not None
        content = safetensors.torch.save({key: one.detach().cpu() for key, one in _trained(self.lm).items()})
        self._pool.load(f"{version}-{hashlib.sha256(content).hexdigest()}", content)


def _trained(lm: LanguageModel) -> dict[str, torch.nn.Parameter]:
    return {name: one for name, one in lm.network.named_parameters() if one.requires_grad}
