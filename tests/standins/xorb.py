"""Uploads of the client of Xet: chunks of files, one after the other, each with a header of eight bytes.

Read off hf_xet 1.8; the compression is LZ4's frame format, of the bytes as they are or grouped by their place in words
of four.
"""

from __future__ import annotations

__all__ = ["contents"]

_PLAIN, _LZ4, _GROUPED_LZ4 = 0, 1, 2
_MAGIC = b"\x04\x22\x4d\x18"
_CONTENT_SIZE, _BLOCK_CHECKSUM = 0x08, 0x10


def contents(xorb: bytes) -> bytes:
    """The bytes of all chunks together."""
    data, place = bytearray(), 0
    while place < len(xorb) and xorb[place] == 0:  # a footer would begin with another version
        length, compression = _number(xorb, place + 1, 3), xorb[place + 4]
        expected = _number(xorb, place + 5, 3)
        chunk = xorb[place + 8 : place + 8 + length]
        if compression != _PLAIN:
            chunk = _frame(chunk)
        if compression == _GROUPED_LZ4:
            chunk = _ungrouped(chunk)
        if len(chunk) != expected or compression > _GROUPED_LZ4:
            raise ValueError(f"Expected a chunk of {expected} bytes; got {len(chunk)}, compression {compression}.")
        data += chunk
        place += 8 + length
    return bytes(data)


def _number(data: bytes, place: int, size: int) -> int:
    return int.from_bytes(data[place : place + size], "little")


def _ungrouped(data: bytes) -> bytes:
    """All first bytes of words of four, all second, ...: back in their places."""
    result, start = bytearray(len(data)), 0
    for group in range(4):
        size = len(result[group::4])
        result[group::4] = data[start : start + size]
        start += size
    return bytes(result)


def _frame(data: bytes) -> bytes:
    if data[:4] != _MAGIC:
        raise ValueError(f"Expected an LZ4 frame; got {data[:4]!r}.")
    flags = data[4]
    place = 7 + (8 if flags & _CONTENT_SIZE else 0)
    result = bytearray()
    while size := _number(data, place, 4):
        is_plain, size = size >> 31, size & 0x7FFFFFFF
        block = data[place + 4 : place + 4 + size]
        if is_plain:
            result += block
        else:
            _decompress(block, result)  # blocks may refer to those before
        place += 4 + size + (4 if flags & _BLOCK_CHECKSUM else 0)
    return bytes(result)


def _decompress(block: bytes, result: bytearray) -> None:
    """Decompress a block: runs of bytes, each followed by a copy of earlier ones."""
    place = 0
    while place < len(block):
        token = block[place]
        length, place = _length(block, place + 1, token >> 4)
        result += block[place : place + length]
        place += length
        if place >= len(block):
            return
        back = _number(block, place, 2)
        length, place = _length(block, place + 2, token & 15)
        length += 4
        start = len(result) - back
        for index in range(start, start + length):  # a copy may run into itself
            result.append(result[index])


def _length(block: bytes, place: int, first: int) -> tuple[int, int]:
    """A length whose first four bits are known, and its end."""
    if first < 15:
        return first, place
    while True:
        first += block[place]
        place += 1
        if block[place - 1] < 255:
            return first, place
