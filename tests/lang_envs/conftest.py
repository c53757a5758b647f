from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import gymnasium as gym
import pytest
from walk import IDS

from lang_envs import ENV_ROWS


@pytest.fixture(scope="session", autouse=True)
def _trial_arguments() -> None:
    """Let `gym.make(id)` make every id here: without the tables that have to be fetched, or are the user's."""
    for row in ENV_ROWS:
        spec = gym.registry[row.id]
        spec.kwargs = {**spec.kwargs, **row.trial}


@pytest.fixture(params=IDS)
def env_id(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def workers_end() -> Iterator[None]:
    """Turn a wait for a dead worker into a failure.

    SB3's `SubprocVecEnv` waits for ever when one of several workers dies: the others keep its pipe open.
    """

    def give_up(number: int, frame: FrameType | None) -> None:
        for worker in multiprocessing.active_children():
            worker.kill()
        raise TimeoutError("a worker process did not answer; its error is on stderr")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="session")
def tiny_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a byte-level BPE tokenizer with an end and a padding token."""
    return save_tokenizer(tmp_path_factory.mktemp("tiny_tokenizer"), eos_token="</s>", pad_token="<pad>")


def save_tokenizer(folder: Path, *, lowercase: bool = False, **special_tokens: str) -> Path:
    from tokenizers import ByteLevelBPETokenizer
    from transformers import PreTrainedTokenizerFast

    sentences = ["pick up the tomato", "put the tomato on the cutting board", "serve the dish", "chop nothing"]
    tokenizer = ByteLevelBPETokenizer(lowercase=lowercase)
    tokenizer.train_from_iterator(
        sentences, vocab_size=320, special_tokens=list(special_tokens.values()), show_progress=False
    )
    PreTrainedTokenizerFast(tokenizer_object=tokenizer._tokenizer, **special_tokens).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def make_tokenizer() -> object:
    """`save_tokenizer`, for tests that need a peculiar one."""
    return save_tokenizer
