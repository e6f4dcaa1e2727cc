"""An HTTP proxy on the loopback that breaks what passes through it, in every way a network can.

What it does to a request is drawn from a seed, and counted.
"""

import asyncio
import json
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Mapping
from urllib.parse import urlsplit

FAULTS = (
    "429",
    "429 with Retry-After",
    "500",
    "503",
    "reset",
    "slow body",
    "truncated JSON",
    "wrong content type",
    "empty choices",
    "impossible usage",
    "lost answer",
)
"""`reset` comes before the server has heard of it, `lost answer` after it has done the work."""

EACH, LOSS = 0.02, 0.05


def rates(each: float = EACH, loss: float = LOSS) -> dict[str, float]:
    return {**dict.fromkeys(FAULTS, each), "lost answer": loss}


class FaultyProxy:
    def __init__(self, upstream: str, faults: Mapping[str, float], seed: int = 0) -> None:
        self.counts: Counter[str] = Counter()
        self._target = urlsplit(upstream)
        self._faults = faults
        self._draw = random.Random(seed)
        self._serving: set[asyncio.Task[None] | None] = set()
        """Keeps tasks from the garbage collector: after a client has hung up, nothing else does."""
        self._open: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._ready.wait()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}{self._target.path}"

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(
            asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=256)
        )
        self._port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        for _ in range(10):  # connections just accepted get their transport, which can be closed
            self._loop.run_until_complete(asyncio.sleep(0))
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        for writer in self._open:  # what still had something to send
            writer.transport.abort()
        self._loop.run_until_complete(asyncio.sleep(0.01))  # let transports close
        self._loop.close()

    def _fault(self) -> str | None:
        """At most one fault a request."""
        point = self._draw.random()
        for name, rate in self._faults.items():
            if (point := point - rate) < 0:
                return name
        return None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request a connection keeps it simple: clients are told that it closes."""
        me = asyncio.current_task()
        self._serving.add(me)
        self._open.add(writer)
        try:
            head, body = await _message(reader)
            fault = self._fault()
            self.counts[fault or "passed"] += 1
            await self._answer(fault, head, body, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        except asyncio.CancelledError:
            writer.transport.abort()  # closing would wait for what nobody reads any more
        finally:
            writer.close()
            self._serving.discard(me)

    async def _answer(
        self, fault: str | None, head: bytes, body: bytes, writer: asyncio.StreamWriter
    ) -> None:
        match fault:
            case "429" | "429 with Retry-After" | "500" | "503":
                status = fault[:3]
                more = b"Retry-After: 0.05\r\n" if "Retry" in fault else b""
                error = {"error": {"message": f"injected {fault}"}}
                await _send(writer, status, json.dumps(error).encode(), more=more)
                return
            case "reset":
                _reset(writer)
                return
        answer = await self._upstream(head, body)
        match fault:
            case "lost answer":
                _reset(writer)
            case "slow body":
                await _send(writer, "200", answer, dribble=True)
            case "truncated JSON":
                await _send(writer, "200", answer[: len(answer) // 2])
            case "wrong content type":
                await _send(writer, "200", b"<html>please log in</html>", kind=b"text/html")
            case "empty choices":
                await _send(
                    writer, "200", json.dumps(json.loads(answer) | {"choices": []}).encode()
                )
            case "impossible usage":
                usage = {"prompt_tokens": 1, "completion_tokens": float("inf")}
                await _send(
                    writer, "200", json.dumps(json.loads(answer) | {"usage": usage}).encode()
                )
            case _:
                await _send(writer, "200", answer)

    async def _upstream(self, head: bytes, body: bytes) -> bytes:
        reader, writer = await asyncio.open_connection(self._target.hostname, self._target.port)
        self._open.add(writer)
        try:
            writer.write(head + body)
            _, answer = await _message(reader)
            return answer
        finally:
            writer.close()


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(
        int(line.split(b":")[1])
        for line in head.lower().split(b"\r\n")
        if line.startswith(b"content-length:")
    )
    return head, await reader.readexactly(length)


async def _send(
    writer: asyncio.StreamWriter,
    status: str,
    body: bytes,
    *,
    kind: bytes = b"application/json",
    more: bytes = b"",
    dribble: bool = False,
) -> None:
    head = b"HTTP/1.1 %s x\r\nContent-Type: %s\r\n%sContent-Length: %d\r\nConnection: close\r\n\r\n"
    writer.write(head % (status.encode(), kind, more, len(body)))
    for piece in (body[i : i + 1] for i in range(len(body))) if dribble else (body,):
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(0.2 * dribble)


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close with RST, as a machine does that went away."""
    sock: socket.socket = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
