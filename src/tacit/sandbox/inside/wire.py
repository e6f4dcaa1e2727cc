"""The line between the tests and the solution: plain values only, written as tagged JSON.

Neither side ever runs or unpickles what the other sends. A value that is not plain (a function, a
generator, an instance of the solution's own class) stays where it is and crosses as a number.
"""

import builtins
import importlib
import json
import os
import struct
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from typing import Any

Json = Any
"""What json.dumps takes: None, bool, int, float, str as they are, all else as [tag, …]."""

LARGEST = 32 * 2**20
"""Bytes of one message; a larger one ends the conversation."""

SEQUENCES: dict[str, Callable[[list[Any]], Any]] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "deque": deque,
}
MAPPINGS: dict[str, Callable[[list[Any]], Any]] = {
    "dict": dict,
    "defaultdict": dict,  # equal to a dict, and its factory could not cross
    "Counter": lambda pairs: Counter(dict(pairs)),
    "OrderedDict": OrderedDict,
}
TEXTUAL = {
    "Fraction": ("fractions", ""),
    "Decimal": ("decimal", ""),
    "date": ("datetime", "fromisoformat"),
    "datetime": ("datetime", "fromisoformat"),
}
TYPES = {name: kind for name, kind in vars(builtins).items() if isinstance(kind, type)}


class Closed(BaseException):
    """The other side is gone or broke the rules. Not an Exception: no test may swallow it."""


class Channel:
    """Messages over one end of a socket pair."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def send(self, message: Json) -> None:
        body = json.dumps(message).encode("ascii")
        data = memoryview(struct.pack("!I", len(body)) + body)
        try:
            while data:
                data = data[os.write(self.fd, data) :]
        except OSError as error:
            raise Closed(str(error)) from None

    def receive(self) -> Json:
        (size,) = struct.unpack("!I", self._read(4))
        if size > LARGEST:
            raise Closed(f"a message of {size} bytes")
        try:
            return json.loads(self._read(size))
        except (ValueError, RecursionError) as error:
            raise Closed(f"not a message: {type(error).__name__}") from None

    def _read(self, size: int) -> bytes:
        parts = []
        while size:
            try:
                part = os.read(self.fd, min(size, 2**20))
            except OSError as error:
                raise Closed(str(error)) from None
            if not part:
                raise Closed("no answer")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


def encode(value: Any, other: Callable[[Any], Json]) -> Json:
    """A plain value as JSON; `other` says what to do with one that is not plain."""
    kind = type(value)
    name = kind.__name__
    if value is None or kind in (bool, float, str):
        return value
    if kind is int:
        return value if abs(value) < 2**53 else ["int", hex(value)]
    if name in SEQUENCES and kind.__module__ in ("builtins", "collections"):
        return [name, *(encode(item, other) for item in value)]
    if name in MAPPINGS and kind.__module__ in ("builtins", "collections"):
        return [name, *([encode(k, other), encode(v, other)] for k, v in value.items())]
    if kind in (bytes, bytearray):
        return [name, value.hex()]
    if kind is complex:
        return [name, value.real, value.imag]
    if kind is range:
        return [name, hex(value.start), hex(value.stop), hex(value.step)]
    if isinstance(value, type) and value in TYPES.values():
        return ["type", value.__name__]
    if name in TEXTUAL and kind.__module__ == TEXTUAL[name][0]:
        return [name, value.isoformat() if TEXTUAL[name][1] else str(value)]
    return other(value)


def decode(data: Json, resolve: Callable[[int], Any]) -> Any:
    """What `encode` wrote, built from plain types alone; raises on anything else."""
    if not isinstance(data, list):
        if isinstance(data, dict):
            raise ValueError("a JSON object is no value")
        return data
    tag, *rest = data
    if tag in SEQUENCES:
        return SEQUENCES[tag]([decode(item, resolve) for item in rest])
    if tag in MAPPINGS:
        return MAPPINGS[tag]([(decode(k, resolve), decode(v, resolve)) for k, v in rest])
    if tag == "int":
        return int(rest[0], 16)
    if tag in ("bytes", "bytearray"):
        return (bytes if tag == "bytes" else bytearray).fromhex(rest[0])
    if tag == "complex":
        return complex(float(rest[0]), float(rest[1]))
    if tag == "range":
        return range(*(int(part, 16) for part in rest))
    if tag in TEXTUAL:
        module, constructor = TEXTUAL[tag]
        kind = getattr(importlib.import_module(module), tag)
        return getattr(kind, constructor)(rest[0]) if constructor else kind(rest[0])
    if tag == "type":
        return TYPES[rest[0]]
    if tag == "object":
        return resolve(int(rest[0]))
    raise ValueError(f"unknown tag {tag!r}")
