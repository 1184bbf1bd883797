"""A network link that can be disturbed: a TCP relay whose behaviour changes under open connections."""

import asyncio
import dataclasses
import math
from typing import Final

from app.demo.bridge.link import CHUNK_BYTES, Link

_CHUNKS_MAX: Final = 256
"""Chunks in transit in one direction of a connection. More slow the sender down, like a full TCP window."""

Chunks = asyncio.Queue[tuple[float, bytes]]
"""Chunks in transit, each with the time at which it is due. An empty chunk marks the end."""


@dataclasses.dataclass(frozen=True)
class _Mode:
    refusing: bool = False
    delay_s: float = 0.0
    bytes_per_s: float = math.inf
    drops_requests: bool = False
    drops_answers: bool = False
    held: bool = False

    def drops(self, *, answers: bool) -> bool:
        return self.drops_answers if answers else self.drops_requests


_OPEN: Final = _Mode()


class TcpProxy(Link):
    """A link with modes.

    The mode can be changed at any time and from any thread; the call returns when it is in force. A connection that may have lost bytes is
    reset before bytes flow again.
    """

    def __init__(self, upstream_port: int, port: int = 0) -> None:
        super().__init__(upstream_port, port)
        self.connections_cut = 0
        self.bytes_withheld = 0
        """Number of bytes dropped or held."""
        self.bytes_delayed = 0
        self._mode = _OPEN
        self._flowing = asyncio.Event()

    @property
    def struck(self) -> int:
        """Counter that grows with any disturbance. A nemesis that does not change it has tested nothing."""
        return self.connections_cut + self.bytes_withheld + self.bytes_delayed

    def open(self) -> None:
        """Let everything pass."""
        self._call(self._switch(_OPEN))

    def cut(self) -> None:
        """Reset all connections and refuse new ones."""
        self._call(self._switch(_Mode(refusing=True)))

    def delay(self, seconds: float) -> None:
        """Delay everything by ``seconds`` in each direction, in order."""
        self._call(self._switch(_Mode(delay_s=seconds)))

    def narrow(self, bytes_per_second: float) -> None:
        """Limit the rate of each connection in each direction; faster senders have to wait."""
        self._call(self._switch(_Mode(bytes_per_s=bytes_per_second)))

    def blackhole(self) -> None:
        """Keep connections, but drop all data including their ends, so that neither side notices anything."""
        self._call(self._switch(_Mode(drops_requests=True, drops_answers=True)))

    def hold(self) -> None:
        """Keep connections and their data. All data arrives late, at :meth:`open`, as TCP retransmits it."""
        self._call(self._switch(_Mode(held=True)))

    def lose_answers(self) -> None:
        """Let requests reach the broker, but drop its answers."""
        self._call(self._switch(_Mode(drops_answers=True)))

    async def _switch(self, mode: _Mode) -> None:
        before, self._mode = self._mode, mode
        if mode.held:
            self._flowing.clear()
        else:
            self._flowing.set()
        if mode.refusing:
            self.connections_cut += len(self._connections)
            await self._refuse()
            return
        if any(before.drops(answers=side) and not mode.drops(answers=side) for side in (False, True)):
            await self._reset_all()
        await self._listen()

    async def _forward(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, *, answers: bool
    ) -> None:
        under_way: Chunks = asyncio.Queue(_CHUNKS_MAX)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._read(source, under_way))
            group.create_task(self._deliver(under_way, target, answers=answers))

    async def _read(self, source: asyncio.StreamReader, under_way: Chunks) -> None:
        chunk = b"first"
        while chunk:
            try:
                chunk = await source.read(CHUNK_BYTES)
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

    async def _deliver(self, under_way: Chunks, target: asyncio.StreamWriter, *, answers: bool) -> None:
        """Deliver chunks in order when they are due, unless the present mode drops them."""
        chunk = b"first"
        while chunk:
            due, chunk = await under_way.get()
            await asyncio.sleep(max(0.0, due - self._loop.time()))
            await self._flowing.wait()
            if self._mode.drops(answers=answers):
                self.bytes_withheld += len(chunk)
                continue
            if chunk:
                target.write(chunk)
                await target.drain()
            else:
                target.write_eof()
        if self._mode.drops(answers=answers):
            await asyncio.Event().wait()  # the other side must not notice the end before the reset
