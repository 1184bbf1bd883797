"""Login of a person: a form, and a signed cookie that does not contain the token.

The cookie is ``<end of the session, s since the epoch>.<HMAC of that with the token>``. Processes with the same token accept each other's
cookies, a restart keeps all sessions, and a new token ends all sessions.
"""

import asyncio
import hmac
import time
from html import escape
from http import HTTPStatus
from typing import Final
from urllib.parse import quote

from aiohttp import web

from ringfence_kafka.http import same_origin

PATH: Final = "/login"
END_PATH: Final = "/logout"
COOKIE: Final = "ringfence"
SESSION_S: Final = 8 * 3_600
FAILED_S: Final = 1.0
"""Delay after a wrong token, in seconds; the next attempt waits for it."""
ATTEMPTS_MAX: Final = 8
"""Maximum number of waiting attempts; more are refused."""
FORM: Final = "application/x-www-form-urlencoded"
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    # With "no-referrer" browsers send "Origin: null" with the form.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
_STYLE: Final = (
    ":root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;max-width:22rem;margin:15vh auto;padding:0 1rem}"
    "input,button{font:inherit;padding:.5rem;width:100%;box-sizing:border-box;margin:.25rem 0 1rem}h1{font-size:1.25rem}"
)


def sign(token: str, ends_s: int) -> str:
    """Return the cookie of a session. ``ends_s``: its end, in seconds since the epoch."""
    text = str(ends_s)
    return f"{text}.{hmac.digest(token.encode(), b'ringfence session ' + text.encode(), 'sha256').hex()}"


def is_signed(token: str, cookie: str, now_s: float) -> bool:
    """Return whether a cookie belongs to a session that has not ended."""
    text, _, _ = cookie.partition(".")
    if not (text.isascii() and text.isdigit() and len(text) <= 12):
        return False
    return (
        hmac.compare_digest(cookie.encode(errors="surrogateescape"), sign(token, int(text)).encode())
        and int(text) > now_s
    )


def local_path(path: str) -> str:
    """Return the path if it is a path of this server, else ``/``."""
    return path if path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable() else "/"


class Login:
    """Login form of one server."""

    def __init__(self, token: str, *, secure: bool, names: frozenset[str]) -> None:
        """Create the form. ``secure``: whether the server uses TLS; ``names``: its host names."""
        self._token = token
        self._secure = secure
        self._names = names
        self._turn = asyncio.Lock()
        self._waiting = 0

    def knows(self, request: web.Request) -> bool:
        """Return whether the request has a valid cookie."""
        cookie = request.cookies.get(self._cookie(request))
        return cookie is not None and is_signed(self._token, cookie, time.time())

    def form(self, path: str, fault: str = "") -> web.Response:
        """Return the form. After the login the browser continues to ``path``."""
        note = f"<p role=alert>{escape(fault)}</p>" if fault else ""
        target = f"{PATH}?to={quote(local_path(path), safe='/')}"
        return _page(
            f"{note}<form method=post action='{escape(target)}'><label for=token>Token, the value of the variable that "
            "<code>app.web_token_env</code> names</label><input id=token name=token type=password autocomplete=current-password "
            "autofocus required><button>Log in</button></form>",
            status=401,
        )

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer a request for the login or the logout page."""
        path = local_path(request.query.get("to", "/"))
        if request.method in same_origin.READING:
            if request.path == PATH:
                return self.form(path)
            return _page(f"<form method=post action='{END_PATH}'><button>Log out</button></form>")
        if reason := same_origin.refusal(request, self._names, FORM):
            return _page(f"<p role=alert>{escape(reason)}</p>", status=403)
        if request.path == END_PATH:
            done = _onward(PATH)
            done.del_cookie(self._cookie(request), path="/")
            return done
        given = await _token(request)
        if not await self._is_right(given):
            return self.form(path, "This token is wrong, or too many attempts are waiting. Try again.")
        done = _onward(path)
        done.set_cookie(
            self._cookie(request), sign(self._token, int(time.time()) + SESSION_S), max_age=SESSION_S, path="/", httponly=True,
            samesite="Strict", secure=self._secure,
        )  # fmt: skip
        return done

    async def _is_right(self, given: str) -> bool:
        """Return whether this is the token. Attempts wait for each other, and a wrong one takes a second."""
        if self._waiting >= ATTEMPTS_MAX:
            return False
        self._waiting += 1
        try:
            async with self._turn:
                right = hmac.compare_digest(given.encode(errors="surrogateescape"), self._token.encode())
                if not right:
                    await asyncio.sleep(FAILED_S)
                return right
        finally:
            self._waiting -= 1

    @staticmethod
    def _cookie(request: web.Request) -> str:
        """Return the cookie's name, which contains the port, because browsers do not separate cookies by port."""
        return f"{COOKIE}-{same_origin.port(request.host)}"


async def _token(request: web.Request) -> str:
    """Return the token in a form; empty if the form is malformed or has no token."""
    try:
        given = (await request.post()).get("token")
    except (LookupError, ValueError):  # an unknown charset, or bytes that it does not contain
        return ""
    return given if isinstance(given, str) else ""


def _onward(path: str) -> web.Response:
    return web.Response(status=HTTPStatus.SEE_OTHER, headers=HEADERS | {"Location": path})


def _page(body: str, *, status: int = 200) -> web.Response:
    text = (
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>Ringfence: log in</title><style>{_STYLE}</style><h1>Ringfence</h1>{body}</html>"
    )
    return web.Response(text=text, content_type="text/html", status=status, headers=HEADERS)
