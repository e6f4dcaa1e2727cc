"""What the tests and the solution send each other: plain values only, written as tagged JSON.

Neither side ever runs or unpickles what the other sends. A value that is not plain (a function, a
generator, an instance of the solution's own class) stays in its process, and its number is sent.
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
    "defaultdict": dict,  # equal to a dict, and its factory could not be sent
    "Counter": lambda pairs: Counter(dict(pairs)),
    "OrderedDict": OrderedDict,
}
SCALARS: dict[str, tuple[Callable[[Any], list[Json]], Callable[..., Any]]] = {
    "int": (lambda value: [hex(value)], lambda text: int(text, 16)),
    "bytes": (lambda value: [value.hex()], bytes.fromhex),
    "bytearray": (lambda value: [value.hex()], bytearray.fromhex),
    "complex": (lambda value: [value.real, value.imag], lambda a, b: complex(float(a), float(b))),
    "range": (
        lambda value: [hex(value.start), hex(value.stop), hex(value.step)],
        lambda *ends: range(*(int(end, 16) for end in ends)),
    ),
}
TEXTUAL = {
    "Fraction": ("fractions", ""),
    "Decimal": ("decimal", ""),
    "date": ("datetime", "fromisoformat"),
    "datetime": ("datetime", "fromisoformat"),
}
"""Sent as text; their modules are imported only if needed, because two of them take 10 ms."""
TYPES = {name: kind for name, kind in vars(builtins).items() if isinstance(kind, type)}


class Closed(BaseException):
    """The other side is gone or broke the rules. Not an Exception: no test may swallow it."""

    status = "ended"


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

    def _read(self, size: int) -> bytearray:
        data = bytearray()
        while len(data) < size:
            try:
                part = os.read(self.fd, min(size - len(data), 2**20))
            except OSError as error:
                raise Closed(str(error)) from None
            if not part:
                raise Closed("no answer")
            data += part
        return data


def encode(value: Any, other: Callable[[Any], Json]) -> Json:
    """A plain value as JSON; `other` says what to do with one that is not plain."""
    kind = type(value)
    name, module = kind.__name__, kind.__module__
    if value is None or kind in (bool, float, str) or (kind is int and abs(value) < 2**53):
        return value
    if module in ("builtins", "collections"):
        if name in SEQUENCES:
            return [name, *(encode(item, other) for item in value)]
        if name in MAPPINGS:
            return [name, *([encode(k, other), encode(v, other)] for k, v in value.items())]
        if name in SCALARS:
            return [name, *SCALARS[name][0](value)]
        if kind is type and value in TYPES.values():
            return ["type", value.__name__]
    if name in TEXTUAL and module == TEXTUAL[name][0]:
        return [name, value.isoformat() if TEXTUAL[name][1] else str(value)]
    return other(value)


def decode(data: Json, resolve: Callable[[int], Any]) -> Any:
    """What `encode` wrote, built from plain types alone; raises on anything else."""
    if isinstance(data, dict):
        raise ValueError("a JSON object is no value")
    if not isinstance(data, list):
        return data
    tag, *rest = data
    if tag in SEQUENCES:
        return SEQUENCES[tag]([decode(item, resolve) for item in rest])
    if tag in MAPPINGS:
        return MAPPINGS[tag]([(decode(k, resolve), decode(v, resolve)) for k, v in rest])
    if tag in SCALARS:
        return SCALARS[tag][1](*rest)
    if tag in TEXTUAL:
        module, constructor = TEXTUAL[tag]
        kind = getattr(importlib.import_module(module), tag)
        return getattr(kind, constructor)(rest[0]) if constructor else kind(rest[0])
    if tag == "type":
        return TYPES[rest[0]]
    if tag == "object":
        return resolve(int(rest[0]))
    raise ValueError(f"unknown tag {tag!r}")
