"""The login form in a real browser: only a browser shows what a form sends."""

from pathlib import Path

import aiohttp

from ringfence_kafka.http import login
from tests.support.pages import chromium
from tests.support.worker import WorkerProcess, configure, wait_for

TOKEN = "let-me-see"


async def test_a_person_gets_to_the_page(bootstrap: str, tmp_path: Path) -> None:
    """The form replaces the page, takes the token, and leads to the page; the cookie is out of a script's reach."""
    config = configure(tmp_path, bootstrap, "login-app", [{"name": "login", "partitions": 1}])
    config.write_text(config.read_text().replace("[app]", '[app]\nweb_token_env = "LOGIN_TOKEN"'))
    with WorkerProcess(config, "w", {"LOGIN_TOKEN": TOKEN}) as worker:
        wait_for(lambda: worker.health()[0] == 200, worker.log)
        async with chromium.tab(tmp_path / "browser") as tab:
            await tab.open(f"http://127.0.0.1:{worker.port}/")
            await tab.until("document.querySelector('#token') !== null")
            await tab.run("document.querySelector('#token').value = 'wrong'; document.forms[0].submit()")
            await tab.until("document.querySelector('[role=alert]') !== null")
            await tab.run(f"document.querySelector('#token').value = '{TOKEN}'; document.forms[0].submit()")
            await tab.until("document.title.includes('login-app')")
            assert login.COOKIE not in str(await tab.run("document.cookie"))

            await tab.run("document.querySelector('#address-login').click()")
            await tab.until(
                "document.querySelectorAll('.chart').length === 6 && document.querySelector('.lanes') !== null"
            )
            base = f"http://127.0.0.1:{worker.port}"
            await tab.open(f"{base}/dead-letters/a%2Fb/login")
            assert "No dead letter is open" in await tab.run("document.body.textContent")
            assert "a/b" in await tab.run("document.title")
            await tab.open(f"{base}/address/none", f"{base}/")  # it leads to the overview
        async with aiohttp.ClientSession() as session:
            for path in (
                "/address/login",
                "/consumers/a/login",
                "/dead-letters/a/login",
                "/dead-letters/a/login/0/0",
                "/history",
            ):
                async with session.get(base + path) as answer:
                    assert answer.status == 401, path
