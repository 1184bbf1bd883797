"""A person's way past the token, on a real server."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus

import aiohttp
import pytest
from aiohttp import web

from ringfence_kafka.http import login
from ringfence_kafka.http.auth import HttpAuth
from tests.unit.ringfence_kafka.http.served import served

TOKEN = "let-me-see"
HTML = {"Accept": "text/html"}


async def _page(request: web.Request) -> web.Response:
    return web.json_response({"method": request.method})


@asynccontextmanager
async def _served(auth: HttpAuth) -> AsyncIterator[tuple[str, aiohttp.ClientSession]]:
    jar = aiohttp.CookieJar(unsafe=True)  # cookies of addresses
    async with served(auth, _page) as url, aiohttp.ClientSession(cookie_jar=jar) as asking:
        yield url, asking


async def _log_in(
    base: str, asking: aiohttp.ClientSession, token: str = TOKEN, to: str = "/groups", **headers: str
) -> aiohttp.ClientResponse:
    return await asking.post(
        f"{base}/login", params={"to": to}, data={"token": token}, headers=headers, allow_redirects=False
    )


async def test_a_browser_is_shown_the_form_and_gets_in() -> None:
    """The cookie is kept from scripts and other sites, and does not hold the token; programs still send the token itself."""
    async with _served(HttpAuth(TOKEN)) as (base, asking):
        answer = await asking.get(f"{base}/groups?name=a", headers=HTML)
        assert (answer.status, answer.content_type) == (401, "text/html")
        assert "action='/login?to=/groups%3Fname%3Da'" in await answer.text()
        answer = await asking.get(f"{base}/groups")
        assert (answer.status, answer.content_type) == (401, "application/json")
        assert (await _log_in(base, asking, to="//evil.example")).headers["Location"] == "/"
        answer = await _log_in(base, asking)
        assert (answer.status, answer.headers["Location"]) == (HTTPStatus.SEE_OTHER, "/groups")
        cookie = answer.headers["Set-Cookie"]
        assert all(name in cookie for name in ("HttpOnly", "SameSite=Strict", "Max-Age=28800"))
        assert TOKEN not in cookie
        answer = await asking.get(f"{base}/groups", headers=HTML)
        assert (answer.status, await answer.json()) == (200, {"method": "GET"})
        assert (
            await asking.post(f"{base}/groups", json={}, headers={"Origin": base})
        ).status == HTTPStatus.OK

        answer = await asking.post(f"{base}/logout", data={"": ""}, allow_redirects=False)
        assert answer.status == HTTPStatus.SEE_OTHER
        assert (await asking.get(f"{base}/groups", headers=HTML)).status == HTTPStatus.UNAUTHORIZED


@pytest.mark.parametrize(
    "headers", [{"Origin": "http://evil.example"}, {"Host": "evil.example"}, {"Sec-Fetch-Site": "cross-site"}]
)
async def test_nobody_else_logs_a_browser_in(headers: dict[str, str]) -> None:
    """A page of another origin sends the right token: it is refused, and no cookie is set."""
    async with _served(HttpAuth(TOKEN)) as (base, asking):
        answer = await _log_in(base, asking, **headers)
        assert answer.status == HTTPStatus.FORBIDDEN
        assert "Set-Cookie" not in answer.headers


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "127.0.0.1:99999"}, {"Host": "a:b:c"}, {"Host": "[::1"}, {"Host": ""}, {"Origin": "http://[::1"}, {"Cookie": "a=b; =; \xff"},
        {"Content-Type": f"{login.FORM}; charset=nope"}, {"Content-Type": f"{login.FORM}; charset=utf-7"}, {"Content-Type": ";"},
    ],
)  # fmt: skip
async def test_malformed_headers_are_refused(
    headers: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Malformed headers get a plain refusal, and probes still get their answer."""
    monkeypatch.setattr(login, "FAILED_S", 0.0)
    async with _served(HttpAuth(TOKEN)) as (base, asking):
        for path in ("/login", "/logout", "/groups"):
            answer = await asking.post(f"{base}{path}", data=b"token=+AGQ-\xff", headers=headers)
            assert answer.status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}, path
        assert (await asking.get(f"{base}/live", headers=headers)).status == HTTPStatus.OK
    async with _served(HttpAuth()) as (base, asking):
        assert (
            await asking.post(f"{base}/groups", data=b"{}", headers=headers)
        ).status == HTTPStatus.FORBIDDEN


async def test_wrong_tokens_are_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts with wrong tokens wait for each other, and only a few may wait."""
    monkeypatch.setattr(login, "FAILED_S", 0.1)
    async with _served(HttpAuth(TOKEN)) as (base, asking):
        begun = time.monotonic()
        attempts = [_log_in(base, asking, "wrong") for _ in range(3 * login.ATTEMPTS_MAX)]
        answers = await asyncio.gather(*attempts)
        assert time.monotonic() - begun >= 0.1 * login.ATTEMPTS_MAX
        assert {answer.status for answer in answers} == {401}
        assert not any("Set-Cookie" in answer.headers for answer in answers)
        assert (await _log_in(base, asking)).status == HTTPStatus.SEE_OTHER


def test_it_leads_nowhere_else() -> None:
    elsewhere = ("//evil.example", "https://evil.example", "/\\evil.example", "groups", "/a\r\nX: y", "")

    assert [login.local_path(to) for to in elsewhere] == ["/"] * len(elsewhere)


def test_sessions_end() -> None:
    """A cookie is valid until its end; one of another token, or an invented one, is not."""
    cookie = login.sign(TOKEN, 1_000)
    assert login.is_signed(TOKEN, cookie, 999.0)
    assert not login.is_signed(TOKEN, cookie, 1_000.0)
    assert not login.is_signed("another", cookie, 0.0)
    other_end = "9999." + cookie.partition(".")[2]
    forged = ["", ".", "9999", other_end, cookie[:-1], "x" + cookie, "٣" + cookie, cookie + "\udcff"]
    assert not any(login.is_signed(TOKEN, item, 0.0) for item in forged)


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("POST", {"Origin": "http://evil.example"}, 403),
        ("POST", {"Host": "evil.example"}, 403),
        ("POST", {"Content-Type": "text/plain"}, 403),
        ("POST", {}, 200),
        ("POST", {"Host": "orders.example:80"}, 200),
        ("GET", {"Host": "a-service:6066"}, 200),
    ],
)
async def test_without_a_token_changes_are_checked_all_the_same(
    method: str, headers: dict[str, str], status: int
) -> None:
    """A change from a page of another origin is refused without a token too. Reading is open."""
    headers = {"Content-Type": "application/json"} | headers
    async with _served(HttpAuth(names=frozenset({"orders.example"}))) as (base, asking):
        answer = await asking.request(method, f"{base}/groups", data=b"{}", headers=headers)
        assert answer.status == status
        assert ("error" in await answer.json()) is (status == 403)
