"""A real headless Chromium, steered by its debugging protocol."""

import asyncio
import contextlib
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

LIMIT_S = 180.0


def program() -> str:
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    pytest.skip("no Chromium on this machine: install the package chromium")


class Tab:
    """One page of the browser."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._number = 0
        self.complaints: list[str] = []

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": parameters})
        async with asyncio.timeout(LIMIT_S):
            while True:
                answer = json.loads((await self._socket.receive()).data)
                if answer.get("method") in {"Log.entryAdded", "Runtime.exceptionThrown"}:
                    self.complaints.append(json.dumps(answer["params"]))
                if answer.get("id") == self._number:
                    assert "error" not in answer, answer
                    return dict(answer["result"])

    async def run(self, script: str) -> Any:
        done = await self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    async def until(self, script: str) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not await self.run(script):  # noqa: ASYNC110 - what it waits for is in another process
                await asyncio.sleep(0.1)

    async def open(self, url: str, leads_to: str = "") -> None:
        """Open a page, and wait until all of it is there, or of the page that it leads to."""
        await self.call("Page.navigate", url=url)
        whole = f"location.href.startsWith({json.dumps(url)})"
        if leads_to:
            whole = f"location.href === {json.dumps(leads_to)}"
        await self.until(f"{whole} && document.readyState === 'complete'")

    async def show_as(self, width: int, height: int, *, dark: bool = False) -> None:
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])

    async def press(self, key: str, code: int) -> None:
        for kind in ("keyDown", "keyUp"):
            await self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code
            )


@contextlib.asynccontextmanager
async def tab(folder: Path) -> AsyncIterator[Tab]:
    process = await asyncio.create_subprocess_exec(
        program(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
        "--remote-debugging-port=0", f"--user-data-dir={folder}", "about:blank",
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        told = folder / "DevToolsActivePort"
        async with asyncio.timeout(LIMIT_S):
            while not (told.exists() and len(told.read_text().splitlines()) > 1):  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.05)
        port = told.read_text().splitlines()[0]
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json") as answer:
                pages = [item for item in await answer.json() if item["type"] == "page"]
            async with session.ws_connect(pages[0]["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                shown = Tab(socket)
                for name in ("Page", "Runtime", "Log"):
                    await shown.call(f"{name}.enable")
                yield shown
    finally:
        process.terminate()
        await process.wait()
