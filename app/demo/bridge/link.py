"""A network link that can be cut: a TCP relay in its own thread and event loop."""

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Coroutine
from typing import Any, Final, Self

from app.embedded import ports
from app.embedded.broker_process import HOST

CALL_LIMIT_S: Final = 10.0
CHUNK_BYTES: Final = 64 * 1024
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)


class Link:
    """Relays one port of this machine to another. No connection delivers a stream with a gap."""

    def __init__(self, upstream_port: int, port: int = 0) -> None:
        """Choose the port; 0 = a free one. It stays the same over cuts."""
        self.port: Final = port or ports.choose(HOST)
        self._upstream_port = upstream_port
        self._connections: set[asyncio.Task[Any]] = set()
        self._server: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"link {self.port}", daemon=True)

    @property
    def bootstrap(self) -> str:
        """``host:port`` for clients."""
        return f"{HOST}:{self.port}"

    def open(self) -> None:
        """Let everything pass."""
        self._call(self._listen())

    def cut(self) -> None:
        """Reset all connections and refuse new ones."""
        self._call(self._refuse())

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self.open()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.cut()
        finally:
            self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_LIMIT_S)
        if self._thread.is_alive():
            raise RuntimeError(f"{self._thread.name} does not end")
        self._loop.close()

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine on the link's loop, and wait for it."""
        asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_LIMIT_S)

    async def _listen(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._relay, HOST, self.port)

    async def _refuse(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        await self._reset_all()

    async def _reset_all(self) -> None:
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Relay one connection until both sides have ended it, one side broke it, or it is reset."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a relay is a task")
        self._connections.add(task)
        writers = [writer]
        try:
            if self._server is None:
                raise ConnectionRefusedError  # accepted just before the cut
            upstream_reader, upstream_writer = await asyncio.open_connection(HOST, self._upstream_port)
            writers.append(upstream_writer)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._forward(reader, upstream_writer, answers=False))
                group.create_task(self._forward(upstream_reader, writer, answers=True))
        except (OSError, ExceptionGroup, asyncio.CancelledError):
            for stream_writer in writers:
                _reset(stream_writer)
        finally:
            self._connections.discard(task)
            for stream_writer in writers:
                stream_writer.close()

    async def _forward(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, *, answers: bool
    ) -> None:
        """Forward one direction to its end."""
        while chunk := await source.read(CHUNK_BYTES):
            target.write(chunk)
            await target.drain()
        target.write_eof()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close a connection with a reset instead of an orderly end."""
    with contextlib.suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    writer.transport.abort()
