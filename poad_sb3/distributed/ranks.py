"""`Ranks`: the processes that run one training together.

Every rank runs the same program on the same data. Rank 0 steps the environments, calls the callbacks and writes files
(`on_rank_zero`); passes through the language model are split, and their results are exchanged (`merge`, `union`). All
else is computed on every rank alike, from equal numbers: a training has the same result for any number of ranks.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from poad_sb3.errors import LostRankError, RankError

__all__ = ["Ranks", "current_ranks", "end_ranks", "start_ranks"]

T = TypeVar("T")
TIMEOUT = timedelta(minutes=2)
"""Longest wait for a sign of life, and for an exchange that all have reached; torch's own default is 30 minutes."""
MEETING = timedelta(hours=1)
"""Longest wait for a rank that lives: disks of nodes differ, and so do the lengths of texts that ranks write."""
_BEAT = 5.0
"""Maximum number of seconds between two signs of life of a rank."""
_PIECE = 4 << 20
"""Maximum size of a value in the store, in bytes: torch's refuses more than 8 MiB, and closes the connection."""


class Ranks:
    """One process of a training, with its connection to the other ranks; by default the only one.

    Args:
        rank: Number of this process.
        size: Number of processes, a power of two.
        store: Key-value store of all processes.
        group: Process group of all processes for data on the host.
        timeout: Longest wait for a sign of life of a rank, and for an exchange that all have reached.
    """

    def __init__(
        self,
        rank: int = 0,
        size: int = 1,
        store: Any = None,
        group: Any = None,
        timeout: timedelta = TIMEOUT,
    ) -> None:
        self.rank, self.size = rank, size
        self._store, self._group, self._timeout = store, group, timeout
        self._is_data_parallel = self._rank_zero_only = False
        self._n_on_rank_zero = self._n_meetings = 0
        self._published: list[str] = []
        self._stop = threading.Event()
        self._beat_seconds = min(_BEAT, timeout.total_seconds() / 5)
        if store is not None and size > 1:
            self._beat()
            threading.Thread(target=self._live, daemon=True).start()

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
        """Wait for all ranks, as long as they live, before an exchange; gloo's errors then get their cause.

        Gloo alone would count a rank as lost whose texts take longer than those of the other ranks.
        """
        lost = self._await(self._arrive(), range(self.size), MEETING)
        if lost is not None:
            raise self._waits_in_vain(f"no sign of life of rank {lost} within {self._timeout.total_seconds():g} s")
        try:
            yield
        except RuntimeError as error:
            if not _is_of_an_exchange(error):
                raise
            raise self._waits_in_vain(_line(error)) from error

    def meet(self) -> None:
        """Wait up to `MEETING` for all ranks, after work in which they may give no signs of life.

        Raises:
            LostRankError: If a rank does not arrive in that time.
        """
        if self.size > 1 and not self._rank_zero_only:
            self._await(self._arrive(), (), MEETING)

    def _arrive(self) -> str:
        """Note that this rank has arrived at the next meeting; return the key that the last one to arrive writes."""
        assert self._store is not None
        self._n_meetings += 1
        count, left = (f"meeting/{number}" for number in (self._n_meetings, self._n_meetings - 1))
        try:
            if self._store.add(count, 1) == self.size:
                self._store.set(f"{count}/all", b"here")
                for key in (left, f"{left}/all"):  # all have left the one before
                    self._store.delete_key(key)
        except RuntimeError as error:
            raise _gone(error) from error
        return f"{count}/all"

    # ------------------------------------------------------------------ rank 0 alone

    def on_rank_zero(self, name: str, run: Callable[[], T]) -> T:
        """Run a function on rank 0 and broadcast its result, while the other ranks wait.

        The work may take long: ranks give a sign of life every few seconds. Meanwhile rank 0 works alone.

        Args:
            name: Name of the work. Ranks that call for different work do not run the same program.
            run: Function that does the work. Its result must be picklable.

        Raises:
            LostRankError: On other ranks than 0, if the function raises on rank 0, or rank 0 is lost.
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
        for number, piece in enumerate(pieces):
            self._store.set(f"{key}/{number}", piece)
        self._store.set(key, len(pieces).to_bytes(4, "big") + first)
        self._published += [key, *(f"{key}/{number}" for number in range(len(pieces)))]

    def _published_at(self, key: str) -> bytes:
        assert self._store is not None
        first: bytes = self._store.get(key)
        n_others = int.from_bytes(first[:4], "big")
        return first[4:] + b"".join(self._store.get(f"{key}/{number}") for number in range(n_others))

    def _await_rank_zero(self, name: str, key: str) -> Any:
        if self._await(key, (0,), timedelta.max) is not None:
            seconds = round(self._timeout.total_seconds())
            raise LostRankError(
                f"Expected a sign of life of rank 0 (in {name}) within {seconds} s; got none. {_RESUME}"
            )
        led, failure, result = pickle.loads(self._published_at(key))
        if led != name:
            raise RankError(
                f"Expected all ranks to run the same program; rank 0 is in {led}, rank {self.rank} in {name}. "
                "Fix: call learn, save, load and set_env on every rank, and predict on any."
            )
        if failure is not None:
            raise LostRankError(f"Rank 0 failed in {name}: {failure}")
        return result

    def _await(self, key: str, ranks: Iterable[int], longest: timedelta) -> int | None:
        """Wait for a key of the store.

        Args:
            key: Name of the key.
            ranks: Ranks that must give signs of life meanwhile.
            longest: Longest wait.

        Returns:
            Number of a rank that gave no sign of life for the time-out; None when the key is there.

        Raises:
            LostRankError: If the key is not there in time, or the store is gone.
        """
        assert self._store is not None
        start = looked = time.monotonic()
        signs = dict.fromkeys(ranks, (b"", start))
        while True:
            now = time.monotonic()
            try:
                if self._store.check([key]):  # its `wait` would write a warning at each time-out
                    return None
                if now - looked > self._beat_seconds:
                    looked = now
                    for rank, (before, since) in signs.items():
                        sign = self._store.get(_sign(rank))
                        if sign != before:
                            signs[rank] = sign, now
                        elif now - since > self._timeout.total_seconds():
                            return rank
            except RuntimeError as error:
                raise _gone(error) from error
            if now - start > longest.total_seconds():
                raise LostRankError(
                    f"Expected all {self.size} ranks within {longest}; rank {self.rank} waits in vain. {_RESUME}"
                )
            time.sleep(min(max((now - start) / 50, 2e-4), 0.1))  # adds at most a fiftieth to a wait

    def _forget(self) -> None:
        """Delete answers that all ranks have read: those before an exchange that all have reached."""
        if self.rank == 0 and self._store is not None:
            for key in self._published:
                self._store.delete_key(key)
            self._published.clear()

    def _beat(self) -> None:
        assert self._store is not None
        if not self._stop.is_set():
            self._store.set(_sign(self.rank), str(time.monotonic_ns()))

    def _live(self) -> None:
        try:
            while not self._stop.wait(self._beat_seconds):
                self._beat()
        except RuntimeError:  # the store has ended, and the launcher with it: no rank waits for the result
            if self.rank == 0 and not self._stop.is_set():
                os.kill(os.getpid(), signal.SIGINT)

    def _waits_in_vain(self, reason: str) -> LostRankError:
        return LostRankError(
            f"Expected all {self.size} ranks to reach an exchange; rank {self.rank} waits in vain ({reason}). {_RESUME}"
        )

    def wait_until_first_ends(self) -> None:
        """Wait while rank 0 lives: a launcher ends it when another rank ends, before it has reported its error."""
        if self.is_first or self._store is None:
            return
        self.end()  # rank 0 may wait for this one
        sign = b""
        with contextlib.suppress(RuntimeError):  # the store ends with the run
            while (now := self._store.get(_sign(0))) != sign:
                sign = now
                time.sleep(2 * self._beat_seconds)

    def end(self) -> None:
        """Stop the signs of life."""
        self._stop.set()


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
        timeout: Longest wait for a sign of life of a rank, and for an exchange that all have reached. The first meeting
            may take an hour: ranks of several nodes do not start at once.

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
    ranks = None
    try:
        store, rank, _ = next(dist.rendezvous("env://", timeout=MEETING))  # type: ignore[attr-defined]
        ranks = Ranks(rank, n_procs, dist.PrefixStore("ranks", store), None, timeout)  # type: ignore[attr-defined]
        ranks.meet()
        store.set_timeout(timeout)
        group = dist.PrefixStore("group", store)  # type: ignore[attr-defined]
        dist.init_process_group(backend, timeout=timeout, store=group, rank=rank, world_size=n_procs)
        ranks._group = dist.group.WORLD
    except (RuntimeError, ValueError) as error:
        if ranks is not None:
            ranks.end()
        raise RankError(f"Expected to meet {n_procs} ranks; they did not ({_line(error)}).") from error
    _current = ranks
    return _current


def end_ranks() -> None:
    """Leave the other processes, at the end of a script."""
    global _current
    if _current.size > 1:
        _current.end()
        with contextlib.suppress(RuntimeError):  # other ranks may be gone already
            dist.barrier(group=dist.group.WORLD)
        dist.destroy_process_group()
    _current = Ranks()


def _sign(rank: int) -> str:
    """Return the key of the signs of life of a rank."""
    return f"alive/{rank}"


def _is_of_an_exchange(error: RuntimeError) -> bool:
    """Return whether an error of torch is one of an exchange; gloo's have no class of their own."""
    return isinstance(error, dist.DistError) or "gloo" in str(error)


def _gone(error: Exception) -> LostRankError:
    return LostRankError(f"Expected rank 0 to go on; it is gone ({_line(error)}). {_RESUME}")


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
