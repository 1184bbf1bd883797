import ssl
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from app.worker.faust_app import RingfenceApp
from app.worker.parts import WorkerParts
from ringfence_kafka.config.load import validate
from ringfence_kafka.errors import ConfigurationError
from ringfence_kafka.http.auth import HttpAuth, http_auth, session
from tests.unit.ringfence_kafka.http.served import certificate_files, served

TOKEN = "let-me-see"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setenv("RINGFENCE_WEB_TOKEN", TOKEN)
    return {"web_token_env": "RINGFENCE_WEB_TOKEN"} | certificate_files(tmp_path)


async def _page(request: web.Request) -> web.Response:
    return web.json_response({"page": request.path}, status=503 if request.path == "/health" else 200)


async def _get(asking: aiohttp.ClientSession, url: str, **headers: str) -> tuple[int, Any]:
    async with asking.get(url, headers=headers) as answer:
        return answer.status, await answer.json()


async def test_without_the_token(files: dict[str, str]) -> None:
    """A probe without the token learns the health; all other requests are refused, whatever stands in place of the token."""
    right = {"Authorization": f"Bearer {TOKEN}"}
    async with served(HttpAuth(TOKEN), _page) as url, aiohttp.ClientSession() as asking:
        assert await _get(asking, f"{url}/live") == (200, {"page": "/live"})
        assert await _get(asking, f"{url}/health") == (503, {"ready": False})
        for given in ({}, {"Authorization": TOKEN}, {"Authorization": f"Bearer {TOKEN}x"}, {"Authorization": "Bearer "},
                      {"Authorization": f"Basic {TOKEN}"}):  # fmt: skip
            for name in ("metrics", "groups"):
                status, said = await _get(asking, f"{url}/{name}", **given)
                assert (status, list(said)) == (401, ["error"])
        async with asking.post(f"{url}/skip") as answer:
            assert answer.status == 401
        assert await _get(asking, f"{url}/metrics", **right) == (200, {"page": "/metrics"})
        assert await _get(asking, f"{url}/health", **right) == (503, {"page": "/health"})


async def test_tls_and_token(files: dict[str, str]) -> None:
    """Verbs get in with the same settings; a client without TLS or with an unknown authority does not."""
    app = validate({"app": files}).app
    async with served(http_auth(app), _page) as url:
        assert url.startswith("https://127.0.0.1:")
        stranger = app.model_copy(update={"web_tls_cafile": ""})
        async with session(app, 10) as asking, session(stranger, 10) as other:
            assert await _get(asking, f"{url}/groups") == (200, {"page": "/groups"})
            with pytest.raises(aiohttp.ClientConnectorCertificateError):
                await _get(other, f"{url}/groups")


def test_a_worker_has_both(files: dict[str, str]) -> None:
    made = RingfenceApp(WorkerParts(validate({"app": files})))

    assert isinstance(made.conf.web_ssl_context, ssl.SSLContext)
    assert [middleware.__name__ for middleware in made.web.web_app.middlewares] == ["guard"]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"web_tls_keyfile": ""}, "needs web_tls_keyfile: set both or neither"),
        ({"web_tls_certfile": "nowhere.pem"}, "web_tls_certfile = 'nowhere.pem': no such file"),
        ({"web_token_env": "NOT_SET"}, "web_token_env = 'NOT_SET': that variable is not set"),
        ({"web_token_env": TOKEN}, "(hidden: may be the password itself)"),
    ],
)
def test_settings_that_do_not_fit(files: dict[str, str], change: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        validate({"app": files | change})

    assert complaint in str(caught.value)
    assert TOKEN not in str(caught.value)


def test_files_that_hold_something_else(files: dict[str, str]) -> None:
    app = validate({"app": files | {"web_tls_keyfile": files["web_tls_cafile"]}}).app
    with pytest.raises(ConfigurationError, match=r"app\.web_tls_certfile = .* cannot be used"):
        http_auth(app)
