"""`Ranks`: the processes that run one training together.

Every rank runs the same program on the same data. Rank 0 steps the environments, calls the callbacks and writes files
(`on_rank_zero`); passes through the language model are split, and their results are exchanged (`merge`, `union`). All
else is computed on every rank alike, from equal numbers: a training has the same result for any number of ranks.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from poad_sb3.errors import LostRankError, RankError

__all__ = ["Ranks", "current_ranks", "end_ranks", "start_ranks"]

T = TypeVar("T")
TIMEOUT = timedelta(hours=1)
"""Longest wait for an exchange: disks of nodes differ, and so do the lengths of texts that ranks write."""
_PIECE = 4 << 20
"""Maximum size of a value in the store, in bytes: torch's refuses more than 8 MiB, and closes the connection."""


class Ranks:
    """One process of a training, with its connection to the other ranks; by default the only one.

    Args:
        rank: Number of this process.
        size: Number of processes, a power of two.
        store: Key-value store of all processes.
        group: Process group of all processes for data on the host.
    """

    def __init__(self, rank: int = 0, size: int = 1, store: Any = None, group: Any = None) -> None:
        self.rank, self.size = rank, size
        self._store, self._group = store, group
        self._is_data_parallel = self._rank_zero_only = False
        self._n_on_rank_zero = 0
        self._published: list[str] = []

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0: the one that steps environments, calls callbacks and writes files."""
        return self.rank == 0

    # ------------------------------------------------------------------ split work

    @contextlib.contextmanager
    def data_parallel(self) -> Iterator[None]:
        """Split passes among the ranks in this context, a training; elsewhere each makes its own, as in `predict`."""
        before, self._is_data_parallel = self._is_data_parallel, True
        try:
            yield
        except RankError:
            raise
        except RuntimeError as error:
            if self.size > 1 and _is_of_an_exchange(error):  # within a pass they are torch's (`fsdp`)
                raise self._waits_in_vain(_line(error)) from error
            raise
        finally:
            self._is_data_parallel = before

    @property
    def is_data_parallel(self) -> bool:
        """Whether passes are split now: in a training of several ranks, outside of `on_rank_zero`."""
        return self.size > 1 and self._is_data_parallel and not self._rank_zero_only

    @property
    def rank_zero_only(self) -> bool:
        """Whether rank 0 works alone now, in `on_rank_zero`."""
        return self._rank_zero_only

    def owner(self, micro_batch: int, n_micro_batches: int) -> int:
        """Return the rank that computes a micro-batch: each rank has as many in a row."""
        return micro_batch * self.size // n_micro_batches

    def owns(self, micro_batch: int, n_micro_batches: int) -> bool:
        """Return whether this rank computes a micro-batch."""
        return not self.is_data_parallel or self.owner(micro_batch, n_micro_batches) == self.rank

    # ------------------------------------------------------------------ exchange

    def merge(self, results: Mapping[int, T]) -> dict[int, T]:
        """All-gather results by their number, where passes are split; else return those that are given."""
        if not self.is_data_parallel:
            return dict(results)
        return {number: result for part in self._gather(results) for number, result in part.items()}

    def union(self, *values: Tensor) -> list[Tensor]:
        """All-reduce (sum) tensors of one shape that each rank has filled in places of its own, 0 elsewhere.

        One number and zeros are added in any order without rounding.
        """
        if not self.is_data_parallel:
            return list(values)
        stacked = torch.stack([tensor.detach().to("cpu", torch.float32) for tensor in values])
        with self._exchange():
            dist.all_reduce(stacked, group=self._group)
        return [tensor.to(like) for tensor, like in zip(stacked, values, strict=True)]

    def gather_tensors(self, tensor: Tensor) -> list[Tensor]:
        """All-gather a float32 tensor of each rank, all of one shape, in their order."""
        on_host = tensor.to("cpu")
        gathered = [torch.empty_like(on_host) for _ in range(self.size)]
        with self._exchange():
            dist.all_gather(gathered, on_host, group=self._group)
        return [part.to(tensor.device) for part in gathered]

    def require_equal(self, name: str, text: str) -> None:
        """Check that a text is the same on all ranks.

        Args:
            name: Name of the text, for the error.
            text: Text of this rank.

        Raises:
            RankError: If the texts differ.
        """
        if self.size == 1:
            return
        everywhere = self._gather(text)
        differing = [rank for rank, other in enumerate(everywhere) if other != everywhere[0]]
        if differing:
            raise RankError(
                f"Expected the same {name} on all {self.size} ranks; rank {differing[0]} has others than rank 0. Fix: "
                "the same script, versions, kind of processor and thread count on each, and no callback that changes "
                "the model."
            )

    def _gather(self, value: T) -> list[T]:
        gathered: list[Any] = [None] * self.size
        with self._exchange():
            dist.all_gather_object(gathered, value, group=self._group)
        self._forget()
        return gathered

    @contextlib.contextmanager
    def _exchange(self) -> Iterator[None]:
        """Give the errors of an exchange their cause, another rank."""
        try:
            yield
        except RuntimeError as error:
            if not _is_of_an_exchange(error):
                raise
            raise self._waits_in_vain(_line(error)) from error

    # ------------------------------------------------------------------ rank 0 alone

    def on_rank_zero(self, name: str, run: Callable[[], T]) -> T:
        """Run a function on rank 0 and broadcast its result, while the other ranks wait.

        The work may take as long as it likes: a launcher ends the other ranks with rank 0. Meanwhile it works alone.

        Args:
            name: Name of the work. Ranks that call for different work do not run the same program.
            run: Function that does the work. Its result must be picklable.

        Raises:
            LostRankError: On other ranks than 0, if the function raises on rank 0; or if the store is lost.
            RankError: If rank 0 is in other work.
        """
        if self.size == 1 or self._rank_zero_only:
            return run()
        assert self._store is not None
        self._n_on_rank_zero += 1
        key = f"rank_zero/{self._n_on_rank_zero}"
        if self.rank > 0:
            awaited: T = self._await_rank_zero(name, key)
            return awaited
        self._rank_zero_only = True
        try:
            result = run()
            answer = pickle.dumps((name, None, result))
        except BaseException as error:
            self._publish(key, pickle.dumps((name, f"{type(error).__name__}: {error}", None)))
            raise
        finally:
            self._rank_zero_only = False
        self._publish(key, answer)
        return result

    def _publish(self, key: str, answer: bytes) -> None:
        """Write an answer to the store: its first piece last, preceded by the number of the other pieces."""
        assert self._store is not None
        first, *pieces = [answer[start : start + _PIECE] for start in range(0, len(answer), _PIECE)]
        try:
            for number, piece in enumerate(pieces):
                self._store.set(f"{key}/{number}", piece)
            self._store.set(key, len(pieces).to_bytes(4, "big") + first)
        except RuntimeError as error:
            raise _gone(error) from error
        self._published += [key, *(f"{key}/{number}" for number in range(len(pieces)))]

    def _await_rank_zero(self, name: str, key: str) -> Any:
        assert self._store is not None
        start = time.monotonic()
        try:
            while not self._store.check([key]):  # its `wait` would let no Ctrl-C through
                time.sleep(min(max((time.monotonic() - start) / 50, 2e-4), 0.1))  # adds at most a fiftieth to a wait
            first: bytes = self._store.get(key)
            n_others = int.from_bytes(first[:4], "big")
            answer = first[4:] + b"".join(self._store.get(f"{key}/{number}") for number in range(n_others))
        except RuntimeError as error:
            raise _gone(error) from error
        led, failure, result = pickle.loads(answer)
        if led != name:
            raise RankError(
                f"Expected all ranks to run the same program; rank 0 is in {led}, rank {self.rank} in {name}. "
                "Fix: call learn, save, load and set_env on every rank, and predict on any."
            )
        if failure is not None:
            raise LostRankError(f"Rank 0 failed in {name}: {failure}")
        return result

    def _forget(self) -> None:
        """Delete answers that all ranks have read: those before an exchange that all have reached."""
        if self.rank == 0 and self._store is not None:
            for key in self._published:
                self._store.delete_key(key)
            self._published.clear()

    def _waits_in_vain(self, reason: str) -> LostRankError:
        return LostRankError(
            f"Expected all {self.size} ranks to reach an exchange; rank {self.rank} waits in vain ({reason}). {_RESUME}"
        )


_RESUME = "Fix: see the output of that rank, and go on from the last checkpoint."
_current = Ranks()


def current_ranks() -> Ranks:
    """Return the ranks of this process: those of `start_ranks`, or this process alone."""
    return _current


def start_ranks(n_procs: int, *, timeout: timedelta = TIMEOUT) -> Ranks:
    """Join the processes that `torchrun` or `poad train --n-procs` has started.

    Call it before the algorithm is made. Every rank then runs the same script.

    Args:
        n_procs: Number of processes, a power of two. Launchers may start fewer without an error.
        timeout: Longest wait for the start of all ranks, and for an exchange.

    Raises:
        RankError: If the launcher started another number, or it is no power of two.
    """
    global _current
    if n_procs < 1 or n_procs & (n_procs - 1):
        raise RankError(
            "Expected a number of ranks that is a power of two, since gradients are added along a binary tree; got "
            f"{n_procs}."
        )
    started = int(os.environ.get("WORLD_SIZE") or "1")
    if started != n_procs:
        raise RankError(
            f"Expected {n_procs} ranks; the launcher started {started} (WORLD_SIZE). Fix: poad train --n-procs "
            f"{n_procs}, or torchrun --standalone --nproc-per-node {n_procs} SCRIPT; unset RANK and WORLD_SIZE where "
            "another program has left them."
        )
    if _current.size > 1:
        if _current.size != n_procs:
            raise RankError(f"Expected {_current.size} ranks, as before; got {n_procs}.")
        return _current
    if n_procs == 1:
        return _current
    backend = "gloo"
    if torch.cuda.is_available():
        if "LOCAL_RANK" not in os.environ and torch.cuda.device_count() > 1:
            raise RankError(
                f"Expected LOCAL_RANK, the number of this process on its node, which chooses its GPU; got none. Fix: "
                f"torchrun --nproc-per-node {n_procs} SCRIPT, or LOCAL_RANK=$SLURM_LOCALID under srun."
            )
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
        backend = "cpu:gloo,cuda:nccl"
    try:
        store, rank, _ = next(dist.rendezvous("env://", timeout=timeout))  # type: ignore[attr-defined]
        group = dist.PrefixStore("group", store)  # type: ignore[attr-defined]
        dist.init_process_group(backend, timeout=timeout, store=group, rank=rank, world_size=n_procs)
    except (RuntimeError, ValueError) as error:
        raise RankError(f"Expected to meet {n_procs} ranks; they did not ({_line(error)}).") from error
    _current = Ranks(rank, n_procs, dist.PrefixStore("ranks", store), dist.group.WORLD)  # type: ignore[attr-defined]
    return _current


def end_ranks() -> None:
    """Leave the other processes, at the end of a script."""
    global _current
    if _current.size > 1:
        with contextlib.suppress(RuntimeError):  # other ranks may be gone already
            dist.barrier(group=dist.group.WORLD)
        dist.destroy_process_group()
    _current = Ranks()


def _is_of_an_exchange(error: RuntimeError) -> bool:
    """Return whether an error of torch is one of an exchange; gloo's have no class of their own."""
    return isinstance(error, dist.DistError) or "gloo" in str(error)


def _gone(error: Exception) -> LostRankError:
    return LostRankError(f"Expected the store of the ranks; it is gone ({_line(error)}). {_RESUME}")


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
