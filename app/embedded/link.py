"""A network link that can be disturbed: a TCP relay whose behaviour changes under open connections."""

import asyncio
import contextlib
import dataclasses
import math
import socket
import struct
import threading
from collections.abc import Coroutine
from enum import Enum
from types import TracebackType
from typing import Any, Final, Self

from app.embedded import ports
from app.embedded.broker_process import HOST

CALL_LIMIT_S: Final = 10.0
_CHUNK_BYTES: Final = 64 * 1024
_CHUNKS_MAX: Final = 256
"""Chunks in transit in one direction of a connection. More slow the sender down, like a full TCP window."""
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)


class _Direction(Enum):
    REQUESTS = "client to broker"
    ANSWERS = "broker to client"


@dataclasses.dataclass(frozen=True)
class _Mode:
    refusing: bool = False
    delay_s: float = 0.0
    bytes_per_s: float = math.inf
    dropped: frozenset[_Direction] = frozenset()
    held: bool = False


_OPEN: Final = _Mode()
_CUT: Final = _Mode(refusing=True)


class TcpProxy:
    """Relays one port of this machine to another, in its own thread and event loop.

    The mode can be changed at any time and from any thread; the call returns when it is in force. No
    connection delivers a stream with a gap: one that may have lost bytes is reset before bytes flow again.
    """

    def __init__(self, upstream_port: int, port: int = 0) -> None:
        """Choose the port; 0 = a free one. It stays the same over cuts."""
        self.port: Final = port or ports.choose(HOST)
        self.connections_cut = 0
        self.bytes_withheld = 0
        """Number of bytes dropped or held."""
        self.bytes_delayed = 0
        self._upstream_port = upstream_port
        self._mode = _OPEN
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._flowing = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"proxy {self.port}", daemon=True)

    @property
    def bootstrap(self) -> str:
        """``host:port`` for clients."""
        return f"{HOST}:{self.port}"

    @property
    def struck(self) -> int:
        """Counter that grows with any disturbance. A nemesis that does not change it has tested nothing."""
        return self.connections_cut + self.bytes_withheld + self.bytes_delayed

    # -- modes --------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Let everything pass."""
        self._call(self._switch(_OPEN))

    def cut(self) -> None:
        """Reset all connections and refuse new ones."""
        self._call(self._switch(_CUT))

    def delay(self, seconds: float) -> None:
        """Delay everything by ``seconds`` in each direction, in order."""
        self._call(self._switch(_Mode(delay_s=seconds)))

    def narrow(self, bytes_per_second: float) -> None:
        """Limit the rate of each connection in each direction; faster senders have to wait."""
        self._call(self._switch(_Mode(bytes_per_s=bytes_per_second)))

    def blackhole(self) -> None:
        """Keep connections, but drop all data including their ends, so that neither side notices anything."""
        self._call(self._switch(_Mode(dropped=frozenset(_Direction))))

    def hold(self) -> None:
        """Keep connections and their data. All data arrives late, at :meth:`open`, as TCP retransmits it."""
        self._call(self._switch(_Mode(held=True)))

    def lose_answers(self) -> None:
        """Let requests reach the broker, but drop its answers."""
        self._call(self._switch(_Mode(dropped=frozenset({_Direction.ANSWERS}))))

    # -- life ---------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self.open()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        """Run a coroutine on the proxy's loop, and wait for it."""
        asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_LIMIT_S)

    # -- on the proxy's loop ------------------------------------------------------------------------------

    async def _switch(self, mode: _Mode) -> None:
        before, self._mode = self._mode, mode
        if mode.refusing:
            self.connections_cut += len(self._connections)
        if mode.refusing or before.dropped - mode.dropped:
            for connection in self._connections:
                connection.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)
        if mode.held:
            self._flowing.clear()
        else:
            self._flowing.set()
        if mode.refusing and self._server is not None:
            self._server.close()
            self._server = None
        if not mode.refusing and self._server is None:
            self._server = await asyncio.start_server(self._relay, HOST, self.port)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Relay one connection until both sides have ended it, one side broke it, or it is reset."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a relay is a task")
        self._connections.add(task)
        writers = [writer]
        try:
            if self._mode.refusing:
                raise ConnectionRefusedError  # accepted just before the cut
            upstream_reader, upstream_writer = await asyncio.open_connection(HOST, self._upstream_port)
            writers.append(upstream_writer)
            async with asyncio.TaskGroup() as group:
                for direction, source, target in (
                    (_Direction.REQUESTS, reader, upstream_writer),
                    (_Direction.ANSWERS, upstream_reader, writer),
                ):
                    under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_CHUNKS_MAX)
                    group.create_task(self._read(source, under_way))
                    group.create_task(self._deliver(direction, under_way, target))
        except (OSError, ExceptionGroup, asyncio.CancelledError):
            for stream_writer in writers:
                _reset(stream_writer)
        finally:
            self._connections.discard(task)
            for stream_writer in writers:
                stream_writer.close()

    async def _read(
        self, source: asyncio.StreamReader, under_way: asyncio.Queue[tuple[float, bytes]]
    ) -> None:
        """Queue incoming chunks. An empty chunk marks the end."""
        chunk = b"first"
        while chunk:
            try:
                chunk = await source.read(_CHUNK_BYTES)
            except OSError:
                chunk = b""  # a reset is an end too, and the mode decides whether the other side notices it
            mode = self._mode
            if mode.held:
                self.bytes_withheld += len(chunk)
            if mode.delay_s:
                self.bytes_delayed += len(chunk)
            if mode.bytes_per_s < math.inf:
                self.bytes_delayed += len(chunk)
                await asyncio.sleep(len(chunk) / mode.bytes_per_s)
            await under_way.put((self._loop.time() + mode.delay_s, chunk))

    async def _deliver(
        self,
        direction: _Direction,
        under_way: asyncio.Queue[tuple[float, bytes]],
        target: asyncio.StreamWriter,
    ) -> None:
        """Deliver chunks in order when they are due, unless the present mode drops them."""
        chunk = b"first"
        while chunk:
            due, chunk = await under_way.get()
            await asyncio.sleep(max(0.0, due - self._loop.time()))
            await self._flowing.wait()
            if direction in self._mode.dropped:
                self.bytes_withheld += len(chunk)
                continue
            if chunk:
                target.write(chunk)
                await target.drain()
            else:
                target.write_eof()
        if direction in self._mode.dropped:
            await asyncio.Event().wait()  # the other side must not notice the end before the reset


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close a connection with a reset instead of an orderly end."""
    with contextlib.suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    writer.transport.abort()
