"""The reasons for which a web server refuses us: TLS and tokens."""

import logging
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from app.commands.groups import lease_holders, show
from app.commands.status import lanes
from app.commands.status.findings import findings
from app.commands.status.model import UNKNOWN
from ringfence_kafka.config.load import validate
from ringfence_kafka.config.settings import AppSettings
from ringfence_kafka.http import probe_errors
from ringfence_kafka.http.auth import HttpAuth, http_auth, session
from ringfence_kafka.http.probe_errors import ProbeError
from tests.support.statuses import STATUS, WORKER, with_lanes, with_share
from tests.unit.ringfence_kafka.http.served import certificate_files, served

NOW = datetime.now(UTC)
DAY = timedelta(days=1)
EXPIRED: dict[str, Any] = {"not_before": NOW - 9 * DAY, "not_after": NOW - DAY}
TOKEN = "let-me-see"
OTHER = "somebody-else"


def _app(folder: Path, name: str = "127.0.0.1", **times: Any) -> AppSettings:
    return validate({"app": certificate_files(folder, name, **times)}).app


async def _page(_: web.Request) -> web.Response:
    return web.json_response({"groups": [], "instance": "w1", "ready": True})


async def _asked(app: AppSettings, url: str, path: str = "/health") -> Any:
    async with session(app, 10) as asking:
        return await probe_errors.get(asking, app, url + path)


@pytest.mark.parametrize(
    ("name", "times", "what", "do"),
    [
        ("127.0.0.1", EXPIRED, "has expired", "renew app.web_tls_certfile"),
        ("127.0.0.1", {"not_before": NOW + DAY, "not_after": NOW + 9 * DAY}, "not valid yet", "its clock"),
        ("w1.test", {}, "for another name", "app.web_name"),
    ],
)  # fmt: skip
async def test_certificates(tmp_path: Path, name: str, times: dict[str, Any], what: str, do: str) -> None:
    app = _app(tmp_path, name, **times)
    async with served(http_auth(app), _page) as url:
        found = await _asked(app, url)

        assert isinstance(found, ProbeError)
        assert (what in found.what, do in found.do) == (True, True), found
        assert await show.fetch_groups(validate({"app": app.model_dump()}), url) == found
        assert f"cannot be asked at {url} ({found})" == await lease_holders.send_order(
            app, url, "groups/skip", {}
        )


async def test_other_servers(tmp_path: Path) -> None:
    """The error for an unknown authority names the caller's key. A server without TLS is reported as another program."""
    app = _app(tmp_path)
    async with served(http_auth(app), _page) as url:
        unknown = await _asked(app.model_copy(update={"web_tls_cafile": ""}), url)
    async with served(HttpAuth(), _page) as url:
        plain = await _asked(app, url.replace("http:", "https:"))

    assert "is not trusted" in unknown.what
    assert "set app.web_tls_cafile here, now '' (the system's)" in unknown.do
    assert plain.what == "it does not speak TLS there"


@pytest.mark.parametrize("path", ["/health", "/groups"])
async def test_tokens(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """A missing and a wrong token are reported as such, although ``/health`` answers without one, with fewer details."""
    without = validate({}).app
    monkeypatch.setenv("RINGFENCE_WEB_TOKEN", OTHER)
    wrong = validate({"app": {"web_token_env": "RINGFENCE_WEB_TOKEN"}}).app
    async with served(HttpAuth(TOKEN), _page) as url:
        no_token, other = await _asked(without, url, path), await _asked(wrong, url, path)
        refused = await lease_holders.send_order(wrong, url, "groups/skip", {})
        monkeypatch.setenv("RINGFENCE_WEB_TOKEN", TOKEN)
        right = await _asked(wrong, url, path)

    assert no_token.what == "it asks for a token, and app.web_token_env is not set here"
    assert other.what == "it refuses the token in RINGFENCE_WEB_TOKEN (app.web_token_env)"
    assert f"cannot be asked at {url} ({other})" == refused
    assert right["groups"] == []
    assert OTHER not in f"{other}{no_token}"


async def test_a_worker_that_is_not_heard(tmp_path: Path) -> None:
    """The verb ``status`` gives the reason why a worker is not heard, for the worker and for its waiting lanes."""
    app = _app(tmp_path, **EXPIRED)
    async with served(http_auth(app), _page) as url, session(app, 10) as asking:
        why = await lanes.fetch_document(asking, app, url)
    assert isinstance(why, ProbeError)
    worker = replace(WORKER, ready=None, unheard=why)
    waiting = replace(with_lanes(state=UNKNOWN, lag=4, head_age_seconds=61.0), workers=[worker])
    lane, note = findings(waiting)

    expired = "its web certificate has expired, at http://w1:6066"
    assert note.what == f"{expired}, so the state of its lanes is unknown here"
    assert note.do.startswith("renew app.web_tls_certfile there")
    assert f"does not report why: {expired}" in lane.what
    assert "renew app.web_tls_certfile there" in lane.do


def test_consumers_that_are_not_heard() -> None:
    """Consumers with the same problem are reported together, as a note."""
    why = ProbeError("it asks for a token", "set it")
    (found,) = findings(with_share({"unheard": {"http://c1": why, "http://c2": why}}))

    told = "it asks for a token, at http://c1, http://c2, so the state of its handlers is unknown here"
    assert (found.stands, found.what, found.do) == (False, told, "set it")
    assert findings(STATUS) == []


@pytest.mark.parametrize("expired", [False, True])
def test_its_own_certificate(tmp_path: Path, caplog: pytest.LogCaptureFixture, expired: bool) -> None:
    """A server with an expired certificate warns at its start and continues, although clients reject it."""
    with caplog.at_level(logging.WARNING, logger="ringfence.web"):
        assert http_auth(_app(tmp_path, **EXPIRED if expired else {})).context is not None

    assert ["expired on" in message for message in caplog.messages] == [True] * expired
