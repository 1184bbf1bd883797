"""TLS and token of the pages of workers, consumers and bridges."""

import hmac
import logging
import os
import ssl
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import aiohttp
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from ringfence_kafka.auth import certificate_validity
from ringfence_kafka.config.settings import AppSettings
from ringfence_kafka.errors import ConfigurationError
from ringfence_kafka.http import same_origin
from ringfence_kafka.http.login import END_PATH, PATH, Login

log: Final = logging.getLogger("ringfence.web")

_ALIVE: Final = "/live"
_READY: Final = "/health"
_BEARER: Final = "Bearer "


@dataclass(frozen=True, slots=True)
class HttpAuth:
    """TLS and token of a server."""

    token: str = ""
    """Required token; empty = none."""
    context: ssl.SSLContext | None = None
    """TLS context; None = no TLS."""
    names: frozenset[str] = frozenset()
    """Host names of the server, besides addresses, localhost and the machine's own name."""

    def middleware(self) -> Middleware:
        """Return a middleware that requires the token, and refuses changes by web pages of other origins.

        Without the token a probe gets the readiness, and a browser the login form.
        """
        expected = (_BEARER + self.token).encode()
        login = Login(self.token, secure=self.context is not None, names=self.names) if self.token else None

        @web.middleware
        async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
            if login is not None and request.path in {PATH, END_PATH}:
                return await login.answer(request)
            given = request.headers.get("Authorization", "").encode(errors="surrogateescape")
            known = login is None or hmac.compare_digest(given, expected) or login.knows(request)
            if known or request.path == _ALIVE:
                changes = request.method not in same_origin.READING
                if changes and (reason := same_origin.refusal(request, self.names)):
                    return web.json_response({"error": reason}, status=403)
                return await handler(request)
            if request.path == _READY:
                status = (await handler(request)).status
                return web.json_response({"ready": status == HTTPStatus.OK}, status=status)
            if login is not None and "text/html" in request.headers.get("Accept", ""):
                return login.form(request.path_qs)
            headers = {"WWW-Authenticate": "Bearer"}
            return web.json_response(
                {"error": "the token of app.web_token_env is required"}, status=401, headers=headers
            )

        return guard


OPEN: Final = HttpAuth()
"""No TLS and no token."""


def http_auth(app: AppSettings) -> HttpAuth:
    """Return the settings of ``[app]``. A certificate that is not valid now is logged.

    Raises:
        ConfigurationError: the certificate or the key cannot be used.
    """
    token = os.environ[app.web_token_env] if app.web_token_env else ""
    names = frozenset(name for name in (app.web_host, app.web_name) if name)
    if not app.web_tls_certfile:
        return HttpAuth(token, names=names)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(app.web_tls_certfile, app.web_tls_keyfile, _no_passphrase)
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"app.web_tls_certfile = {app.web_tls_certfile!r}, app.web_tls_keyfile = {app.web_tls_keyfile!r} cannot be used "
            f"({error}): name readable PEM files of a certificate and of its own key, not encrypted"
        ) from error
    if fault := certificate_validity.fault(app.web_tls_certfile):
        log.warning(
            "the certificate of this web server %s. Clients that verify it, such as status, groups and "
            "dlq, get no answer; messages continue. Renew app.web_tls_certfile = %r, and restart this "
            "process",
            fault,
            app.web_tls_certfile,
        )
    return HttpAuth(token, context, names)


def session(app: AppSettings, limit_s: float) -> aiohttp.ClientSession:
    """Return a client session for such a server. Raises as :func:`http_auth`."""
    headers = {"Authorization": _BEARER + os.environ[app.web_token_env]} if app.web_token_env else {}
    try:
        context = ssl.create_default_context(cafile=app.web_tls_cafile or None)
    except OSError as error:
        raise ConfigurationError(
            f"app.web_tls_cafile = {app.web_tls_cafile!r} cannot be used ({error}): name a readable PEM file of certificates"
        ) from error
    return aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=limit_s),
        headers=headers,
        connector=aiohttp.TCPConnector(ssl=context),
    )


def _no_passphrase() -> str:
    """Raise instead of OpenSSL's question on the terminal."""
    raise ValueError("the key is encrypted")
