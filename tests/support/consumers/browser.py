"""A browser of one consumer's pages."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from ringfence_client.web import web
from tests.support.consumers.in_process import Running


class Pages:
    """Sends requests, and reads JSON."""

    def __init__(self, base: str, session: aiohttp.ClientSession) -> None:
        self.base = base
        self._session = session

    async def get(self, path: str) -> tuple[int, dict[str, Any]]:
        async with self._session.get(self.base + path) as answer:
            return answer.status, await answer.json()

    async def post(self, path: str, body: Any) -> tuple[int, dict[str, Any]]:
        async with self._session.post(self.base + path, json=body) as answer:
            return answer.status, await answer.json()

    async def groups(self) -> dict[str, dict[str, Any]]:
        return {item["group"]: item for item in (await self.get("/groups"))[1]["groups"]}


@asynccontextmanager
async def pages_of(running: Running) -> AsyncIterator[Pages]:
    listener = socket.create_server(("127.0.0.1", 0))
    async with web.serving(running.consumer, listener), aiohttp.ClientSession() as session:
        yield Pages(f"http://127.0.0.1:{listener.getsockname()[1]}", session)
