"""Tokens for SASL OAUTHBEARER: from a user's function, or with client credentials from an identity provider."""

import asyncio
import importlib
import inspect
import json
import ssl
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple

from ringfence_kafka.config.kafka import KafkaSettings
from ringfence_kafka.errors import ConfigurationError, PrerequisiteError, named

FETCH_LIMIT_S: Final = 10.0
UNKNOWN_LIFE_S: Final = 300.0
"""Assumed lifetime of a token that does not state its own, in seconds."""
_CLIENT_ERROR: Final = 400
_SERVER_ERROR: Final = 500
RENEWED_AT: Final = 0.8
"""Share of its lifetime after which a token is renewed."""


class Token(NamedTuple):
    """Token and its expiry."""

    text: str
    expires: float
    """Seconds since the epoch."""


class TokenSource:
    """Source of tokens. It keeps a token for most of its lifetime. Thread-safe."""

    def __init__(self, kafka: KafkaSettings) -> None:
        """Load the user's function.

        Raises:
            ConfigurationError: the function does not exist, or its module does not load.
        """
        self._kafka = kafka
        self._lock = threading.Lock()
        self._kept: tuple[Token, float] | None = None
        self._function = _loaded(kafka.sasl_oauth_callback) if kafka.sasl_oauth_callback else None

    def current(self) -> Token:
        """Return a token that stays valid for a while.

        Raises:
            PrerequisiteError: no token is available; the text has the reason from the function or the identity provider, and no secret.
        """
        with self._lock:
            now = time.time()
            if self._kept is not None and now < self._kept[1]:
                return self._kept[0]
            token = _granted(self._kafka) if self._function is None else self._called(self._function)
            if token.expires <= now:
                raise PrerequisiteError(f"{self._where} gives a token that has expired: look at its clock")
            self._kept = token, now + RENEWED_AT * (token.expires - now)
            return token

    @property
    def _where(self) -> str:
        kafka = self._kafka
        if kafka.sasl_oauth_callback:
            return f"kafka.sasl_oauth_callback = {kafka.sasl_oauth_callback!r}"
        return f"kafka.sasl_oauth_token_url = {kafka.sasl_oauth_token_url!r}"

    def _called(self, function: Callable[[], Any]) -> Token:
        try:
            found = function()
            if inspect.isawaitable(found):
                with ThreadPoolExecutor(1) as pool:  # an event loop may run in the caller's thread
                    found = pool.submit(asyncio.run, _awaited(found)).result()
        except Exception as error:
            raise PrerequisiteError(f"{self._where} fails: {named(error)}") from error
        match found:
            case str(text) if text:
                return Token(text, _expiry(text))
            case (str(text), int() | float() as expires) if text:
                return Token(text, float(expires))
        raise PrerequisiteError(
            f"{self._where} returns {type(found).__name__}: it must return the token, or the token and when it expires "
            "(seconds since the epoch)"
        )


_SOURCES: Final[dict[tuple[str, ...], TokenSource]] = {}


def source_of(kafka: KafkaSettings) -> TokenSource:
    """Return one source for all clients with the same access settings: a thousand producers do not need a thousand tokens.

    Raises:
        ConfigurationError: as :class:`TokenSource`.
    """
    key = (
        kafka.sasl_oauth_callback,
        kafka.sasl_oauth_token_url,
        kafka.sasl_oauth_client_id,
        kafka.sasl_oauth_scope,
        kafka.secret_place("sasl_oauth_client_secret"),
    )
    if key not in _SOURCES:
        _SOURCES[key] = TokenSource(kafka)
    return _SOURCES[key]


async def _awaited(found: Any) -> Any:
    return await found


def _loaded(text: str) -> Callable[[], Any]:
    """Return the function in ``pkg.module:function``. The current folder comes first in the search path."""
    module, _, path = text.partition(":")
    here = str(Path.cwd())
    if sys.path[:1] != [here]:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except Exception as error:
        raise ConfigurationError(
            f"kafka.sasl_oauth_callback = {text!r} does not load ({named(error)}): name a function as pkg.module:function; it is looked "
            f"for in {here}, then where Python looks"
        ) from error
    if not callable(found):
        raise ConfigurationError(f"kafka.sasl_oauth_callback = {text!r} is not a function: name one")
    function: Callable[[], Any] = found
    return function


def _granted(kafka: KafkaSettings) -> Token:
    """Request a token with client credentials (RFC 6749, 4.4)."""
    # Authlib and requests take a quarter of a second to load.
    import requests
    from authlib.integrations.base_client import OAuthError
    from authlib.integrations.requests_client import OAuth2Session

    url, client_id = kafka.sasl_oauth_token_url, kafka.sasl_oauth_client_id
    # RFC 6749, 2.3.1 requires URL encoding of both. Authlib sends them unchanged.
    login = [
        urllib.parse.quote(name, safe="") for name in (client_id, kafka.secret("sasl_oauth_client_secret"))
    ]
    system = ssl.get_default_verify_paths()
    try:
        with OAuth2Session(
            *login,
            scope=kafka.sasl_oauth_scope or None,
            default_timeout=FETCH_LIMIT_S,
        ) as session:
            session.register_compliance_hook("access_token_response", _checked)
            found = session.fetch_token(
                url, grant_type="client_credentials", verify=system.cafile or system.capath or True
            )
        text, expires = str(found["access_token"]), found.get("expires_at")
        return Token(text, float(expires) if expires else _expiry(text))
    except OAuthError as error:
        raise PrerequisiteError(
            f"kafka.sasl_oauth_token_url = {url!r} refuses kafka.sasl_oauth_client_id = {client_id!r} ({error.error}): fix the ID, or "
            f"the secret in {kafka.secret_place('sasl_oauth_client_secret')}"
        ) from error
    except (requests.RequestException, ValueError, KeyError, TypeError, AttributeError) as error:
        raise PrerequisiteError(
            f"kafka.sasl_oauth_token_url = {url!r} gives no token ({named(error)}): fix the address, or start what answers there"
        ) from error


def _checked(response: Any) -> Any:
    """Raise an error for a refusal by HTTP status: Authlib only looks for ``error`` in the body."""
    from authlib.integrations.base_client import OAuthError

    if _CLIENT_ERROR <= response.status_code < _SERVER_ERROR:
        raise OAuthError(f"HTTP {response.status_code}")
    response.raise_for_status()
    return response


def _expiry(text: str) -> float:
    """Return the expiry of a JWT from its claims; for other tokens :data:`UNKNOWN_LIFE_S` from now."""
    from joserfc import jws
    from joserfc.errors import JoseError

    try:
        return float(json.loads(jws.extract_compact(text.encode()).payload)["exp"])
    except (JoseError, ValueError, KeyError, TypeError):
        return time.time() + UNKNOWN_LIFE_S
