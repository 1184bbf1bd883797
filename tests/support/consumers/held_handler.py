"""A handler that is held in the middle of a message, and ends when it is cancelled, or does not."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

from ringfence_client import Message, Reject
from tests.support.consumers.in_process import Recorder
from tests.support.lanes import LIMIT_S


class Held:
    """A handler that is held in the first message of each partition, the first time, until it is released."""

    def __init__(self, kind: str) -> None:
        """``kind``: "async" ends when it is cancelled, "stubborn" does not, "thread" cannot."""
        self.kind = kind
        self.recorder = Recorder(self._async)
        self.free = threading.Event()
        self.rejects = False
        self._lock = threading.Lock()
        self._held: set[int] = set()

    @property
    def handler(self) -> Callable[[Message], Any]:
        return self._thread if self.kind == "thread" else self.recorder

    def _holds(self, message: Message) -> bool:
        if message.offset or message.partition in self._held:
            return False
        self._held.add(message.partition)
        return True

    async def _async(self, message: Message) -> None:
        holds = self._holds(message)
        deadline = time.monotonic() + LIMIT_S  # a test that fails must end
        while holds and not self.free.is_set() and time.monotonic() < deadline:
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                if self.kind == "async":
                    raise
        if holds and self.rejects:
            raise Reject("too late")

    def _thread(self, message: Message) -> None:
        observed = self.recorder.observed(message)
        with self._lock:
            observed.__enter__()
        try:
            if self._holds(message):
                self.free.wait(LIMIT_S)
        finally:
            with self._lock:
                observed.__exit__(None, None, None)
