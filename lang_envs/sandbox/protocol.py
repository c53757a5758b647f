"""Protocol of client, supervisor and child: messages over Unix sockets, with file descriptors.

A message is a length and a JSON object; the descriptors that belong to it travel with its first byte. Pickles are not
used. Data that the supervisor must not hold (code, features, labels, answers) is not in messages: it passes from
client to child in a file without a name and from child to client in a pipe.
"""

from __future__ import annotations

import json
import math
import os
import re
import socket
import struct
import tempfile
from collections import deque
from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

_HEAD = struct.Struct("!I")
_FLOAT64_HEADER = re.compile(
    rb"\x93NUMPY\x01\x00..\{'descr': '<f8', 'fortran_order': False, 'shape': "
    rb"\((?P<shape>(?:[0-9]{1,12}(?:, |,|(?=\)))){0,8})\), \} {0,200}\n",
    re.DOTALL,
)
_MAX_MESSAGE = 1 << 20
MAX_TASKS = 100
"""Maximum number of tasks of one evaluation."""
_MAX_FILES = 250  # two for each task; the kernel passes at most 253 descriptors with one message

Message = dict[str, Any]


class Channel:
    """Messages with file descriptors over a stream socket."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._bytes = bytearray()
        self._files: deque[int] = deque()

    def fileno(self) -> int:
        """Return the descriptor, for selectors."""
        return self.socket.fileno()

    def send(self, message: Message, files: Sequence[int] = ()) -> None:
        """Send one message whole.

        Raises:
            OSError: If the other side is gone or, on a socket with a timeout, does not read.
        """
        body = json.dumps({**message, "n_files": len(files)}).encode()
        data = _HEAD.pack(len(body)) + body
        sent = socket.send_fds(self.socket, [data], list(files)) if files else self.socket.send(data)
        if sent < len(data):
            self.socket.sendall(data[sent:])

    def receive(self) -> list[tuple[Message, list[int]]]:
        """Return the messages that have arrived, after waiting for some bytes if the socket waits.

        The caller owns the descriptors.

        Raises:
            EOFError: If the other side has closed.
            OSError: If the connection is broken, or the message is invalid.
        """
        data, files, _, _ = socket.recv_fds(self.socket, 1 << 16, _MAX_FILES)
        self._files.extend(files)
        if not data:
            raise EOFError("the other side has closed the connection")
        self._bytes += data
        messages = []
        while (message := self._next()) is not None:
            count = int(message.pop("n_files"))
            messages.append((message, [self._files.popleft() for _ in range(count)]))
        return messages

    def _next(self) -> Message | None:
        if len(self._bytes) < _HEAD.size:
            return None
        (length,) = _HEAD.unpack_from(self._bytes)
        if length > _MAX_MESSAGE:
            raise OSError(f"a message of {length} bytes")
        if len(self._bytes) < _HEAD.size + length:
            return None
        body = bytes(self._bytes[_HEAD.size : _HEAD.size + length])
        del self._bytes[: _HEAD.size + length]
        message: Message = json.loads(body)
        return message

    def close(self) -> None:
        """Close the socket, and descriptors that came with no message."""
        self.socket.close()
        while self._files:
            os.close(self._files.pop())


def anonymous_file(name: str) -> int:
    """Return the descriptor of an empty file that has no path."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create(name, os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def write_array(file: BinaryIO, array: NDArray[Any]) -> None:
    """Append an array in `.npy` format.

    Raises:
        ValueError: If the array holds objects.
    """
    np.lib.format.write_array(file, np.ascontiguousarray(array), version=(1, 0), allow_pickle=False)


def read_array(file: BinaryIO) -> NDArray[Any]:
    """Read an array in `.npy` format; never unpickles.

    Raises:
        ValueError: If it holds objects, or is not an array.
    """
    array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
    return array


def parse_array(data: bytes) -> NDArray[np.float64]:
    """Return the float64 array that untrusted bytes hold in `.npy` format, as `write_array` writes it.

    numpy's own parser evaluates the header as Python, which can take the whole stack of a thread.

    Raises:
        ValueError: If the bytes hold anything else.
    """
    head = _FLOAT64_HEADER.match(data)
    if head is None:
        raise ValueError("no float64 array by rows, in version 1.0 of the format")
    shape, body = [int(size) for size in re.findall(rb"[0-9]+", head["shape"])], data[head.end() :]
    if math.prod(shape) * 8 != len(body):
        raise ValueError(f"shape {shape}, {len(body)} bytes")
    return np.frombuffer(body, dtype="<f8").reshape(shape)
